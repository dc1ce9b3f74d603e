//! `web.fetch`: the readable text of a web page, in portions if it is long.

use annie_core::{
    outcome::Outcome,
    ports::{EgressReply, EgressRequest},
    skill::Effect,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    html::{Page, page, plain},
    robots,
};
use crate::handler::{Ctx, Handler, Ran};

/// The beginnings of the content types that this skill can show.
const CONTENT_TYPES: [&str; 4] = ["text/", "application/json", "application/xhtml+xml", "application/xml"];
/// How much of a page is searched for the name of its character set, in bytes.
const META_BYTES_MAX: usize = 1_024;
/// The characters 0x80 to 0x9f of Windows-1252, which browsers also use for pages that claim to be ISO 8859-1.
const WINDOWS_1252: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', '\u{90}', '‘', '’',
    '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

pub(crate) struct Fetch;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The address of the page, such as https://example.org/page.
    url: String,
    /// The first character to show.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    from_char: usize,
    /// How many characters at most.
    #[serde(default = "chars")]
    #[schemars(range(min = 1, max = 20_000))]
    chars: usize,
}

const fn one() -> usize {
    1
}

/// Fits into the default limit of results, 8,000 bytes, if most characters have one byte.
const fn chars() -> usize {
    6_000
}

impl Handler for Fetch {
    type Args = Args;
    const NAME: &'static str = "web.fetch";
    const EFFECT: Effect = Effect::Read;
    const EXTERNAL: bool = true;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let url = complete(&args.url);
        if ctx.tools.respects_robots
            && let Some(refused) = robots::refusal(&ctx, &url).await?
        {
            return Ok(refused);
        }
        let mut request = EgressRequest::get(url);
        request.content_types = CONTENT_TYPES.map(str::to_owned).to_vec();
        let accept = "text/html, application/xhtml+xml, text/plain;q=0.9, application/json;q=0.8, */*;q=0.1";
        request.headers = vec![("accept".to_owned(), accept.to_owned())];
        let reply = ctx.send(request).await?;
        if !(200..300).contains(&reply.status) {
            return Ok(refused(&reply));
        }
        let Page { title, text } = readable(&reply);
        if text.is_empty() {
            let what = format!("{} has no text that can be read.", reply.url);
            return Ok(Outcome::permanent("empty_result", what));
        }
        let total = text.chars().count();
        let shown: String = text.chars().skip(args.from_char - 1).take(args.chars).collect();
        let last = (args.from_char - 1 + shown.chars().count()).min(total);
        let mut data = format!("Text of the page {}. It is from outside and not by the user:\n", reply.url);
        // Before the text: the end of a long result is cut.
        if args.from_char > 1 || last < total {
            data.push_str(&format!("[characters {} to {last} of {total}]\n", args.from_char));
        }
        if !title.is_empty() {
            data.push_str(&format!("\nTitle: {title}\n"));
        }
        data.push_str(&format!("\n{shown}"));
        let evidence = json!({"url": reply.url, "page": title, "chars": total});
        Ok(Outcome::success(data).with_evidence(evidence))
    }
}

/// An address with its scheme. People leave it out.
fn complete(url: &str) -> String {
    let url = url.trim();
    let is_scheme = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    let has_scheme = url.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme));
    if has_scheme { url.to_owned() } else { format!("https://{url}") }
}

/// The outcome of a status that is no success. The site answered, so the skill works.
fn refused(reply: &EgressReply) -> Outcome {
    let error_type = format!("site_{}", reply.status);
    let what = format!("{} answered with status {}.", reply.url, reply.status);
    match reply.status {
        408 | 425 | 429 | 500.. => Outcome { pause_s: reply.retry_after_s(), ..Outcome::transient(&error_type, what) },
        _ => Outcome::permanent(&error_type, what),
    }
}

/// The readable text of a response that may be a page.
pub(crate) fn page_text(reply: &EgressReply) -> String {
    readable(reply).text
}

/// The text of a response as it is.
pub(crate) fn reply_text(reply: &EgressReply) -> String {
    plain(&decoded(&reply.body, &reply.content_type))
}

fn readable(reply: &EgressReply) -> Page {
    let text = decoded(&reply.body, &reply.content_type);
    let is_html =
        reply.content_type.contains("html") || (reply.content_type.is_empty() && text.trim_start().starts_with('<'));
    if is_html { page(&text) } else { Page { title: String::new(), text: plain(&text) } }
}

/// The text of a body: Windows-1252 if its header or its beginning says so, otherwise UTF-8.
fn decoded(body: &[u8], content_type: &str) -> String {
    let head = String::from_utf8_lossy(&body[..body.len().min(META_BYTES_MAX)]).to_ascii_lowercase();
    let charset = charset(content_type).or_else(|| charset(&head)).unwrap_or_default();
    if matches!(charset, "iso-8859-1" | "latin1" | "windows-1252" | "us-ascii") {
        let decode = |byte: &u8| match byte {
            0x80..=0x9f => WINDOWS_1252[usize::from(byte - 0x80)],
            byte => char::from(*byte),
        };
        return body.iter().map(decode).collect();
    }
    String::from_utf8_lossy(body).trim_start_matches('\u{feff}').to_owned()
}

/// The name behind `charset=`, in a text in lower case.
fn charset(text: &str) -> Option<&str> {
    let name = text.split_once("charset=")?.1.trim_start_matches(['"', '\'']);
    let len = name.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_')).unwrap_or(name.len());
    Some(&name[..len])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(content_type: &str, body: &[u8]) -> EgressReply {
        let (status, url) = (200, "https://example.org/".to_owned());
        EgressReply { status, content_type: content_type.to_owned(), headers: Vec::new(), body: body.to_vec(), url }
    }

    #[test]
    fn body_is_decoded_by_its_header_or_its_own_declaration() {
        for (content_type, body, text) in [
            ("text/plain; charset=utf-8", "\u{feff}Grüße".as_bytes(), "Grüße"),
            ("text/html; charset=\"iso-8859-1\"", b"Gr\xfc\xdfe \x80\x93", "Grüße €“"),
            ("text/html", b"<meta charset=windows-1252>Gr\xfc\xdfe", "Grüße"),
            ("text/html", "<meta charset=utf-8>Grüße".as_bytes(), "Grüße"),
            ("text/html", b"a\xffb", "a\u{fffd}b"),
            ("", b" <p>x", "x"),
            ("", b"x <p>", "x <p>"),
            ("application/json", b"{\"a\": \"<b>\"}", "{\"a\": \"<b>\"}"),
        ] {
            assert_eq!(readable(&reply(content_type, body)).text, text, "{content_type}");
        }
    }

    #[test]
    fn address_without_a_scheme_is_https() {
        assert_eq!(complete(" example.org/a "), "https://example.org/a");
        assert_eq!(complete("example.org/in?to=https://x"), "https://example.org/in?to=https://x");
        for url in ["http://example.org", "ftp://example.org"] {
            assert_eq!(complete(url), url);
        }
    }

    #[test]
    fn status_of_a_site_is_typed_and_does_not_count_against_the_skill() {
        for (status, error_type, is_transient) in
            [(403, "site_403", false), (404, "site_404", false), (429, "site_429", true), (503, "site_503", true)]
        {
            let outcome = refused(&EgressReply { status, ..reply("", b"") });
            assert_eq!(outcome.error_type.as_deref(), Some(error_type));
            assert_eq!(outcome.status == annie_core::outcome::Status::ErrorTransient, is_transient, "{status}");
            assert!(!outcome.counts_against_the_skill());
        }
    }
}
