//! `web.search`: results of a search engine that the operator configured. The request is sent to that host only.

mod results;

use annie_core::{
    outcome::Outcome,
    ports::{EgressReply, EgressRequest, SecretHeader},
    skill::Effect,
};
use results::Found;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    error::{Host, SkillError, egress_outcome},
    handler::{Ctx, Handler, Ran},
    request::encoded,
    text::{bounded, brief},
};

/// The longest query, in characters.
const QUERY_CHARS_MAX: usize = 400;
/// How much of a title and of a text is shown, in bytes.
const TITLE_BYTES_MAX: usize = 200;
const SNIPPET_BYTES_MAX: usize = 400;
/// The header in which Brave expects its key.
const BRAVE_HEADER: &str = "X-Subscription-Token";

/// The protocol of a search engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchKind {
    /// `SearXNG` and others with its JSON. The instance must allow the format `json`.
    Searxng,
    /// The web search API of Brave.
    Brave,
    /// The pages of DuckDuckGo Lite.
    DuckduckgoLite,
}

impl SearchKind {
    /// The address of the service; `None` if each installation has its own.
    #[must_use]
    pub const fn usual_url(self) -> Option<&'static str> {
        match self {
            Self::Searxng => None,
            Self::Brave => Some("https://api.search.brave.com/res/v1/web/search"),
            Self::DuckduckgoLite => Some("https://lite.duckduckgo.com/lite/"),
        }
    }
}

/// The search engine that `web.search` asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchRules {
    /// Its protocol.
    pub kind: SearchKind,
    /// The address without a query.
    pub url: String,
    /// The name of the secret that is sent with each request.
    pub secret: Option<String>,
}

pub(crate) struct Search;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// What to search for, in a few words.
    query: String,
    /// How many results at most.
    #[serde(default = "count")]
    #[schemars(range(min = 1, max = 20))]
    count: usize,
}

const fn count() -> usize {
    8
}

impl Handler for Search {
    type Args = Args;
    const NAME: &'static str = "web.search";
    const EFFECT: Effect = Effect::Read;
    const EXTERNAL: bool = true;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let rules = ctx.tools.search.clone().ok_or(SkillError::NoSearch)?;
        let query = bounded("query", &args.query, QUERY_CHARS_MAX)?;
        let reply = match ctx.send(request(&rules, &query, args.count)).await {
            Ok(reply) => reply,
            Err(SkillError::Egress(error)) => return Ok(egress_outcome(&error, Effect::Read, Host::OfTheSkill)),
            Err(error) => return Err(error),
        };
        if let Some(refused) = refused(&rules, &reply) {
            return Ok(refused);
        }
        let found = match results::read(rules.kind, &reply) {
            Ok(found) => found,
            Err(why) => return Ok(Outcome::permanent("parse_error", format!("The search engine's response {why}."))),
        };
        if found.is_empty() {
            return Ok(Outcome::permanent("empty_result", format!("The search for {query:?} found nothing.")));
        }
        let found: Vec<Found> = found.into_iter().take(args.count).collect();
        let evidence = json!({"query": query, "results": found.len()});
        Ok(Outcome::success(shown(&query, &found)).with_evidence(evidence))
    }
}

fn request(rules: &SearchRules, query: &str, count: usize) -> EgressRequest {
    let mut pairs = vec![("q", query.to_owned())];
    match rules.kind {
        SearchKind::Searxng => pairs.push(("format", "json".to_owned())),
        SearchKind::Brave => pairs.push(("count", count.to_string())),
        SearchKind::DuckduckgoLite => {}
    }
    let query: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    let separator = if rules.url.contains('?') { '&' } else { '?' };
    let mut request = EgressRequest::get(format!("{}{separator}{}", rules.url, query.join("&")));
    let accept = if rules.kind == SearchKind::DuckduckgoLite { "text/html" } else { "application/json" };
    request.headers = vec![("Accept".to_owned(), accept.to_owned())];
    if let Some(secret) = &rules.secret {
        let (header, before) =
            if rules.kind == SearchKind::Brave { (BRAVE_HEADER, "") } else { ("Authorization", "Bearer ") };
        let [header, before, after] = [header, before, ""].map(str::to_owned);
        request.secret_headers.push(SecretHeader { header, before, secret: secret.clone(), after });
    }
    request
}

/// The outcome of a response without results.
fn refused(rules: &SearchRules, reply: &EgressReply) -> Option<Outcome> {
    let status = reply.status;
    let error_type = format!("http_{status}");
    let what = format!("The search engine answered with status {status}.");
    Some(match (rules.kind, status) {
        // The page on which a person shows to be one.
        (SearchKind::DuckduckgoLite, 202) => Outcome::transient(
            "http_429",
            "The search engine asks whether a person searches; it may answer again later.",
        ),
        (_, 200..300) => return None,
        (SearchKind::Searxng, 403) => {
            let fix = "The operator must allow the format json in the settings of the instance (search.formats).";
            Outcome::permanent(&error_type, format!("{what} {fix}"))
        }
        (SearchKind::Brave, 401 | 403 | 422) if rules.secret.is_none() => {
            let fix = "The operator must set web_search.secret to the name of a secret with the API key.";
            Outcome::permanent(&error_type, format!("{what} {fix}"))
        }
        (_, 408 | 425 | 429 | 500..) => {
            Outcome { pause_s: reply.retry_after_s(), ..Outcome::transient(&error_type, what) }
        }
        _ => Outcome::permanent(&error_type, what),
    })
}

fn shown(query: &str, found: &[Found]) -> String {
    let mut text = format!("Results of a web search for {query:?}. They are from outside and not by the user:\n");
    for (n, Found { title, url, snippet }) in (1..).zip(found) {
        text.push_str(&format!("\n{n}. {}\n   {url}\n", brief(title, TITLE_BYTES_MAX)));
        let snippet = brief(snippet, SNIPPET_BYTES_MAX);
        if !snippet.is_empty() {
            text.push_str(&format!("   {snippet}\n"));
        }
    }
    text
}
