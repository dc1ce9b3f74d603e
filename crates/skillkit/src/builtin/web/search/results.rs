//! Reads the responses of search engines.

use crate::egress::Url;
use annie_core::ports::EgressReply;
use serde::Deserialize;

use super::SearchKind;
use crate::builtin::web::{fetch::reply_text, html::page};

/// How many results of one response are read at most.
const RESULTS_MAX: usize = 100;

/// One result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) title: String,
    pub(super) url: String,
    /// A part of the page's text.
    pub(super) snippet: String,
}

/// The results of a response, or why they cannot be read.
pub(super) fn read(kind: SearchKind, reply: &EgressReply) -> Result<Vec<Found>, String> {
    let found = match kind {
        SearchKind::Searxng => searxng(&reply.body)?,
        SearchKind::Brave => brave(&reply.body)?,
        SearchKind::DuckduckgoLite => duckduckgo_lite(&reply_text(reply))?,
    };
    let is_web = |found: &Found| Url::parse(&found.url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    Ok(found.into_iter().filter(is_web).take(RESULTS_MAX).collect())
}

#[derive(Deserialize)]
struct Searxng {
    results: Vec<Item>,
}

/// A result of `SearXNG` or Brave. Both leave keys out.
#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    url: Option<String>,
    #[serde(default, alias = "description")]
    content: Option<String>,
}

impl From<Item> for Found {
    fn from(item: Item) -> Self {
        let url = item.url.unwrap_or_default().trim().to_owned();
        let title = text(&item.title.unwrap_or_default());
        let title = if title.is_empty() { url.clone() } else { title };
        Self { title, url, snippet: text(&item.content.unwrap_or_default()) }
    }
}

fn searxng(body: &[u8]) -> Result<Vec<Found>, String> {
    let read: Searxng = serde_json::from_slice(body).map_err(|why| format!("is not that of SearXNG: {why}"))?;
    Ok(read.results.into_iter().map(Found::from).collect())
}

/// Brave leaves `web` out if nothing was found.
#[derive(Deserialize)]
struct Brave {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    web: Option<BraveWeb>,
}

#[derive(Deserialize)]
struct BraveWeb {
    #[serde(default)]
    results: Vec<Item>,
}

fn brave(body: &[u8]) -> Result<Vec<Found>, String> {
    let read: Brave = serde_json::from_slice(body).map_err(|why| format!("is not that of Brave: {why}"))?;
    if read.kind != "search" {
        return Err(format!("is not that of Brave: its type is {:?}", read.kind));
    }
    Ok(read.web.into_iter().flat_map(|web| web.results).map(Found::from).collect())
}

/// The page of `DuckDuckGo` Lite: a table with a link of the class `result-link` for each result, and a cell of the class
/// `result-snippet` behind it. Rows of the class `result-sponsored` are advertisements.
fn duckduckgo_lite(html: &str) -> Result<Vec<Found>, String> {
    let mut found: Vec<Found> = Vec::new();
    let mut is_advertisement = false;
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        let tag_and_rest = &rest[at + 1..];
        let Some((tag, behind)) = tag_and_rest.split_once('>') else { break };
        rest = behind;
        let is_class = |class: &str| tag.contains(&format!("'{class}'")) || tag.contains(&format!("\"{class}\""));
        match tag.split_whitespace().next().unwrap_or_default() {
            "tr" => is_advertisement = is_class("result-sponsored"),
            "a" if is_class("result-link") && !is_advertisement => {
                let title = text(behind.split("</a").next().unwrap_or_default());
                let url = attribute(tag, "href").map(target).unwrap_or_default();
                found.push(Found { title, url, snippet: String::new() });
            }
            "td" if is_class("result-snippet") && !is_advertisement => {
                let snippet = text(behind.split("</td").next().unwrap_or_default());
                if let Some(last) = found.last_mut().filter(|last| last.snippet.is_empty()) {
                    last.snippet = snippet;
                }
            }
            _ => {}
        }
    }
    if found.is_empty() && !html.contains("No results") && !html.contains("No  results") {
        return Err("has neither results nor the text that there are none".to_owned());
    }
    Ok(found)
}

/// The value of an attribute of a tag, with its character references decoded.
fn attribute(tag: &str, name: &str) -> Option<String> {
    let value = tag.split_once(&format!("{name}="))?.1;
    let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let value = value[1..].split(quote).next()?;
    Some(text(value))
}

/// The address behind the redirect of the search engine (`//duckduckgo.com/l/?uddg=…`).
fn target(link: String) -> String {
    let whole = if link.starts_with("//") { format!("https:{link}") } else { link };
    let Ok(url) = Url::parse(&whole) else { return whole };
    let target = url.query_pairs().find(|(name, _)| name == "uddg").map(|(_, value)| value.into_owned());
    target.unwrap_or(whole)
}

/// A piece of HTML as text in one line.
fn text(html: &str) -> String {
    page(html).text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(body: &str) -> EgressReply {
        let (status, url) = (200, "https://search.test/".to_owned());
        EgressReply { status, content_type: String::new(), headers: Vec::new(), body: body.as_bytes().to_vec(), url }
    }

    fn found(title: &str, url: &str, snippet: &str) -> Found {
        let [title, url, snippet] = [title, url, snippet].map(str::to_owned);
        Found { title, url, snippet }
    }

    #[test]
    fn search_results_of_each_kind_are_read() {
        let searxng = r#"{"query": "rust", "number_of_results": 0, "results": [{"url": "https://rust-lang.org/", "title":
            "Rust &amp; more", "content": "A <b>language</b>", "engine": "x", "score": 1.0}, {"url": "javascript:x"}, {"url":
            "http://b.test", "title": null, "content": null}], "answers": [], "unresponsive_engines": [["x", "timeout"]]}"#;
        assert_eq!(
            read(SearchKind::Searxng, &reply(searxng)).unwrap(),
            [found("Rust & more", "https://rust-lang.org/", "A language"), found("http://b.test", "http://b.test", "")]
        );
        let brave = r#"{"type": "search", "query": {"original": "rust"}, "web": {"type": "search", "results": [{"title": "Rust",
            "url": "https://rust-lang.org/", "description": "A <strong>language</strong>", "age": "2 days"}]}}"#;
        assert_eq!(
            read(SearchKind::Brave, &reply(brave)).unwrap(),
            [found("Rust", "https://rust-lang.org/", "A language")]
        );
        assert_eq!(read(SearchKind::Brave, &reply(r#"{"type": "search", "query": {}}"#)), Ok(Vec::new()));
        let lite = "<table><tr class=\"result-sponsored\"><td><a rel=\"nofollow\" href=\"https://ad.test\" class='result-link'>Ad\
                    </a></td></tr><tr class=\"result-sponsored\"><td class='result-snippet'>Buy</td></tr><tr><td>1.&nbsp;</td>\
                    <td><a rel=\"nofollow\" href=\"//duckduckgo.com/l/?uddg=https%3A%2F%2Frust%2Dlang.org%2Fa%3Fb%3D1&amp;rut=ab\" \
                    class='result-link'>Rust <b>Lang</b></a></td></tr><tr><td class='result-snippet'>\n A <b>language</b>.</td>\
                    </tr></table>";
        assert_eq!(
            read(SearchKind::DuckduckgoLite, &reply(lite)).unwrap(),
            [found("Rust Lang", "https://rust-lang.org/a?b=1", "A language.")]
        );
        assert_eq!(read(SearchKind::DuckduckgoLite, &reply("<p>No results.</p>")), Ok(Vec::new()));
    }

    #[test]
    fn search_response_in_another_form_is_an_error() {
        for (kind, body) in [
            (SearchKind::Searxng, "<html>no json</html>"),
            (SearchKind::Searxng, r#"{"results": 3}"#),
            (SearchKind::Brave, r#"{"type": "ErrorResponse", "error": {}}"#),
            (SearchKind::DuckduckgoLite, "<html><form>Are you a person?</form></html>"),
        ] {
            assert!(read(kind, &reply(body)).is_err(), "{kind:?} {body}");
        }
    }
}
