//! HTTP requests of skill files (`request:`, ADR 0043). The file names the host and the path; arguments fill places in
//! path segments, query, headers and body. Each value is encoded for its place, so that it changes nothing else.

mod fill;
mod outcome;

use std::collections::BTreeMap;

use annie_core::{
    ports::{EgressMethod, SecretHeader},
    skill::SkillSpec,
};
pub(crate) use fill::{encoded, with_letters};
use serde_json::Value;

use crate::{
    error::{Host, SkillError, egress_outcome},
    handler::{Ctx, Ran},
};

/// The header that carries the intent of an idempotent request, unless the file names another one.
pub(crate) const IDEMPOTENCY_HEADER: &str = "Idempotency-Key";

/// What a request sends besides its URL and headers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Body {
    Nothing,
    /// JSON, whose texts may be places. A text that is only a place becomes the typed value.
    Json(Value),
    /// Fields of a form.
    Form(Vec<(String, String)>),
    /// A text.
    Text(String),
}

/// How a response is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Text,
    /// The readable text of a page.
    Html,
    /// Only the status counts.
    Nothing,
}

/// What a status means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    Success,
    EmptyResult,
    Transient,
    Permanent,
    Blocked,
}

/// How a response becomes an outcome.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResponseRules {
    pub(crate) format: Format,
    /// The JSON Pointer of the value that is shown; empty for the whole document.
    pub(crate) pointer: String,
    /// The label and the pointer of each field that is shown, relative to the value, or to each of its items.
    pub(crate) fields: Vec<(String, String)>,
    /// How many items of a list are shown.
    pub(crate) items_max: usize,
    /// How many characters are shown.
    pub(crate) chars_max: usize,
    pub(crate) bytes_max: usize,
    pub(crate) statuses: BTreeMap<u16, Meaning>,
}

/// A request of a skill file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RequestTemplate {
    pub(crate) method: EgressMethod,
    /// Scheme, host and port have no places.
    pub(crate) url: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) secret_headers: Vec<SecretHeader>,
    pub(crate) body: Body,
    pub(crate) idempotency_header: String,
    pub(crate) response: ResponseRules,
}

/// Sends the request of a skill for these arguments, and converts the response into the outcome.
pub(crate) async fn run(ctx: &Ctx, template: &RequestTemplate, arguments: Value) -> Ran {
    let request = fill::request(template, &ctx.spec, &ctx.call.intent.to_string(), arguments)?;
    match ctx.send(request).await {
        Ok(reply) => Ok(outcome::of(&reply, template, &ctx.spec)),
        Err(SkillError::Egress(error)) => Ok(egress_outcome(&error, ctx.spec.effect, Host::OfTheSkill)),
        Err(error) => Err(error),
    }
}

/// What a run with these arguments would send, for people. Secrets are shown by their names.
///
/// # Errors
/// If the arguments do not fit their places.
pub(crate) fn preview(template: &RequestTemplate, spec: &SkillSpec, arguments: Value) -> Result<String, SkillError> {
    let request = fill::request(template, spec, "<the id of the run>", arguments)?;
    let mut text = format!("{} {}\n", request.method.as_str(), request.url);
    for (name, value) in &request.headers {
        text.push_str(&format!("{name}: {value}\n"));
    }
    for SecretHeader { header, before, secret, after } in &request.secret_headers {
        text.push_str(&format!("{header}: {before}<secret {secret}>{after}\n"));
    }
    if !request.body.is_empty() {
        text.push_str(&format!("\n{}\n", String::from_utf8_lossy(&request.body)));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
