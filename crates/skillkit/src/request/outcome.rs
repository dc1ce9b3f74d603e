//! Converts the response to a request of a skill file into the outcome.

use annie_core::{
    outcome::Outcome,
    ports::EgressReply,
    skill::{Effect, SkillSpec},
};
use serde_json::{Value, json};

use super::{Format, Meaning, RequestTemplate, ResponseRules};
use crate::{
    builtin::web::{page_text, reply_text},
    error::cut,
    text::brief,
};

/// How much of the response to a refused request is shown, in bytes. It often says what is wrong.
const REFUSAL_BYTES_MAX: usize = 500;

/// The outcome of a response.
pub(super) fn of(reply: &EgressReply, template: &RequestTemplate, spec: &SkillSpec) -> Outcome {
    let rules = &template.response;
    let meaning = rules.statuses.get(&reply.status).copied().or_else(|| usual(reply, spec.effect));
    let outcome = match meaning {
        Some(Meaning::Success) => read(reply, rules, spec),
        Some(Meaning::EmptyResult) => empty(spec, "The host has nothing that fits."),
        Some(refused) => failure(reply, refused, spec),
        None => cut(&format!("http_{}", reply.status), &what(reply, spec)),
    };
    outcome.with_evidence(json!({"skill": spec.name, "status": reply.status}))
}

/// What a status means unless the file says otherwise; `None` if the effect may have happened all the same.
///
/// A redirect after an effect is the usual answer to a request that was carried out (post, redirect, get). A 503 or 408 without
/// `Retry-After` may come from a proxy that lost the connection after it had passed the request on.
fn usual(reply: &EgressReply, effect: Effect) -> Option<Meaning> {
    let is_read = effect == Effect::Read;
    match reply.status {
        200..300 => Some(Meaning::Success),
        300..400 if !is_read => None,
        408 | 503 if !is_read && reply.retry_after_s().is_none() => None,
        408 | 425 | 429 | 503 => Some(Meaning::Transient),
        500.. if is_read => Some(Meaning::Transient),
        500.. => None,
        _ => Some(Meaning::Permanent),
    }
}

fn failure(reply: &EgressReply, meaning: Meaning, spec: &SkillSpec) -> Outcome {
    let (error_type, mut message) = (format!("http_{}", reply.status), what(reply, spec));
    let pause = reply.retry_after_s();
    if let Some(seconds) = pause.filter(|seconds| matches!(reply.status, 429 | 503) && *seconds > 0) {
        message.push_str(&format!(" It may be tried again in {seconds} s."));
    }
    let outcome = match meaning {
        Meaning::Transient => Outcome::transient(&error_type, message),
        Meaning::Blocked => Outcome::blocked(&error_type, message),
        Meaning::Permanent | Meaning::Success | Meaning::EmptyResult => Outcome::permanent(&error_type, message),
    };
    Outcome { pause_s: pause, ..outcome }
}

/// The status and the beginning of the response.
fn what(reply: &EgressReply, spec: &SkillSpec) -> String {
    let said = brief(&page_text(reply), REFUSAL_BYTES_MAX);
    let said = if said.is_empty() { String::new() } else { format!(" Its response (from outside): {said}") };
    format!("The host of {} answered with status {}.{said}", spec.name, reply.status)
}

fn empty(spec: &SkillSpec, what: &str) -> Outcome {
    if spec.effect == Effect::Read {
        return Outcome::permanent("empty_result", what);
    }
    done(spec)
}

/// A success of a skill with an effect, whose response says nothing.
fn done(spec: &SkillSpec) -> Outcome {
    Outcome::success(format!("{} succeeded. The response says nothing more.", spec.name))
}

fn read(reply: &EgressReply, rules: &ResponseRules, spec: &SkillSpec) -> Outcome {
    let shown = match rules.format {
        Format::Nothing => return done(spec),
        Format::Text => reply_text(reply).trim().to_owned(),
        Format::Html => page_text(reply),
        Format::Json if reply.body.iter().all(u8::is_ascii_whitespace) => String::new(),
        Format::Json => match serde_json::from_slice::<Value>(&reply.body) {
            Ok(value) => selected(&value, rules),
            Err(error) => return unreadable(spec, &error.to_string()),
        },
    };
    if shown.is_empty() {
        return empty(spec, "The response has nothing at the selected place.");
    }
    let host = reply.url.split('/').nth(2).unwrap_or_default();
    let total = shown.chars().count();
    let mut text = format!("Response of {host}. It is from outside and not by the user:\n");
    if total > rules.chars_max {
        // Before the text: the end of a long result is cut.
        text.push_str(&format!("[the first {} of {total} characters]\n", rules.chars_max));
    }
    text.push('\n');
    text.extend(shown.chars().take(rules.chars_max));
    Outcome::success(text)
}

/// A request that succeeded, but whose response is not what the file says. An effect has happened all the same.
fn unreadable(spec: &SkillSpec, why: &str) -> Outcome {
    if spec.effect == Effect::Read {
        return Outcome::permanent("parse_error", format!("The response is not JSON: {why}."));
    }
    Outcome::partial(format!("{} succeeded, but its response cannot be read: it is not JSON ({why}).", spec.name))
}

/// The selected part of a JSON document as text; empty if there is none.
fn selected(document: &Value, rules: &ResponseRules) -> String {
    let Some(value) = document.pointer(&rules.pointer) else { return String::new() };
    match value {
        Value::Array(items) => {
            let shown: Vec<String> = items.iter().map(|item| fields(item, rules, "\n  ")).collect();
            let shown: Vec<String> = shown.into_iter().filter(|item| !item.is_empty()).collect();
            let more = shown.len().saturating_sub(rules.items_max);
            let mut lines: Vec<String> =
                shown.into_iter().take(rules.items_max).map(|item| format!("- {item}")).collect();
            if more > 0 {
                lines.push(format!("({more} more)"));
            }
            lines.join("\n")
        }
        other => fields(other, rules, "\n"),
    }
}

/// The fields of a value, or the value itself if the file names none.
fn fields(value: &Value, rules: &ResponseRules, separator: &str) -> String {
    if rules.fields.is_empty() {
        return plain(value);
    }
    let shown = rules.fields.iter().filter_map(|(label, pointer)| {
        let text = plain(value.pointer(pointer)?);
        (!text.is_empty()).then(|| format!("{label}: {text}"))
    });
    shown.collect::<Vec<_>>().join(separator)
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.trim().to_owned(),
        Value::Array(items) if items.is_empty() => String::new(),
        Value::Object(map) if map.is_empty() => String::new(),
        other => other.to_string(),
    }
}
