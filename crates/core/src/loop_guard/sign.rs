//! The marks by which calls and results are compared: hashes over what matters, and short texts of nearly equal arguments.

use std::{collections::BTreeSet, fmt::Write as _};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Seen;
use crate::{outcome::floor_char_boundary, skill::edit_distance};

/// The longest text of arguments that is compared character by character, in bytes. Of a longer one a hash is compared.
const NEAR_BYTES_MAX: usize = 160;
/// The shortest text of which one character may differ: two short words that differ in a character are two words.
const NEAR_CHARS_MIN: usize = 4;
/// A number with at least this many digits is an id or a time in seconds, and no count, position or date.
const ID_DIGITS_MIN: usize = 10;
/// The shortest hexadecimal id, in bytes, and how many of its characters are decimal digits at least: no word is one.
const ID_HEX_BYTES_MIN: usize = 16;
/// See [`ID_HEX_BYTES_MIN`].
const ID_HEX_DIGITS_MIN: usize = 4;
/// How much of a text is compared for near equality, in bytes.
const MASKED_BYTES_MAX: usize = 2_000;

/// Keys whose values differ from run to run and say nothing about the result.
const VOLATILE: [&str; 17] = [
    "cwd",
    "duration",
    "duration_ms",
    "duration_s",
    "elapsed",
    "elapsed_ms",
    "pid",
    "request_id",
    "session",
    "session_id",
    "span_id",
    "timestamp",
    "took",
    "took_ms",
    "trace_id",
    "ts",
    "nonce",
];
/// The same for results of calls that change something: marks of the one message that was sent.
const RECEIPT: [&str; 13] = [
    "created_at",
    "date",
    "event_id",
    "file_id",
    "idempotency_key",
    "message_id",
    "messageid",
    "poll_id",
    "receipt",
    "receipt_id",
    "run_id",
    "sent_at",
    "time",
];
/// Keys of an object that is a message, so that its `id` is a mark of it.
const MESSAGE: [&str; 6] = ["body", "channel", "chat", "recipient", "text", "to"];

/// The hash of the arguments, independent of the order of their keys.
pub(super) fn args_hash(args: &Value) -> String {
    let mut text = String::new();
    canonical(args, &mut text);
    hash16(text.as_bytes())
}

/// The hash of the arguments without times and ids.
pub(super) fn masked_hash(args: &Value) -> String {
    let mut text = String::new();
    canonical(&mapped(args, &|text| masked(text, false)), &mut text);
    hash16(text.as_bytes())
}

/// The texts of the arguments, in lower case, without numbers and with single spaces, behind a hash of everything else. Of long
/// texts their hash.
pub(super) fn near_text(args: &Value) -> String {
    let (mut rest, mut texts) = (String::new(), String::new());
    canonical(&mapped(args, &|_| String::new()), &mut rest);
    texts_of(&mapped(args, &|text| masked(text, true)), &mut texts);
    let texts = if texts.len() > NEAR_BYTES_MAX { hash16(texts.as_bytes()) } else { texts };
    format!("{}:{texts}", hash16(rest.as_bytes()))
}

/// Whether two texts of [`near_text`] differ in one character, or in `percent` of the characters of the shorter one, at most. Other
/// numbers are other arguments.
pub(super) fn is_near(a: &str, b: &str, percent: u32) -> bool {
    if a == b {
        return true;
    }
    let (Some((a_rest, a)), Some((b_rest, b))) = (a.split_once(':'), b.split_once(':')) else { return false };
    let (a_chars, b_chars) = (a.chars().count(), b.chars().count());
    let shorter = a_chars.min(b_chars);
    if a_rest != b_rest || shorter < NEAR_CHARS_MIN {
        return false;
    }
    let allowed = (shorter * percent as usize / 100).max(1);
    a_chars.abs_diff(b_chars) <= allowed && edit_distance(a, b) <= allowed
}

/// The hash of a result. Errors differ from results with the same text.
pub(super) fn result_hash(seen: &Seen<'_>) -> String {
    match seen.error {
        Some(_) => format!("error:{}", hash16(stable(seen).as_bytes())),
        None => hash16(stable(seen).as_bytes()),
    }
}

/// The text of a result without what differs from run to run. Only structured results name their parts.
fn stable(seen: &Seen<'_>) -> String {
    let text = seen.text.trim();
    let value = if text.starts_with(['{', '[']) { serde_json::from_str::<Value>(text).ok() } else { None };
    match value {
        Some(value) => {
            let mut out = String::new();
            canonical(&without_marks(&value, seen.has_changed), &mut out);
            out
        }
        None => seen.text.to_owned(),
    }
}

fn without_marks(value: &Value, is_receipt: bool) -> Value {
    match value {
        Value::Object(map) => {
            let is_message = is_receipt && map.keys().any(|key| MESSAGE.contains(&key.as_str()));
            let is_mark = |key: &str| {
                let key = key.to_ascii_lowercase();
                let key = key.as_str();
                VOLATILE.contains(&key) || (is_receipt && RECEIPT.contains(&key)) || (is_message && key == "id")
            };
            let kept = map.iter().filter(|(key, _)| !is_mark(key));
            Value::Object(kept.map(|(key, value)| (key.clone(), without_marks(value, is_receipt))).collect())
        }
        Value::Array(items) => items.iter().map(|item| without_marks(item, is_receipt)).collect(),
        plain => plain.clone(),
    }
}

/// The arguments with each text replaced. Values of keys that differ from call to call are left out.
fn mapped(value: &Value, text: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, _)| !VOLATILE.contains(&key.to_ascii_lowercase().as_str()));
            Value::Object(kept.map(|(key, value)| (key.clone(), mapped(value, text))).collect())
        }
        Value::Array(items) => items.iter().map(|item| mapped(item, text)).collect(),
        Value::String(plain) => Value::String(text(plain)),
        plain => plain.clone(),
    }
}

/// A text in lower case with single spaces, and `#` in place of each time of day and each id. With `numbers`, each other number
/// is replaced as well.
fn masked(text: &str, numbers: bool) -> String {
    let text = &text[..floor_char_boundary(text, MASKED_BYTES_MAX)];
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        let in_token = |c: char| c.is_alphanumeric() || matches!(c, ':' | '-' | '+' | '.');
        let mut rest = word;
        while let Some(first) = rest.chars().next() {
            let end =
                if in_token(first) { rest.find(|c| !in_token(c)).unwrap_or(rest.len()) } else { first.len_utf8() };
            let (token, after) = rest.split_at(end);
            rest = after;
            if is_time_or_id(token) {
                out.push('#');
            } else if numbers {
                without_numbers(token, &mut out);
            } else {
                out.extend(token.chars().flat_map(char::to_lowercase));
            }
        }
    }
    out
}

/// Whether a part of a text contains a time of day, or is a UUID or another long id.
fn is_time_or_id(token: &str) -> bool {
    let bytes = token.as_bytes();
    let has_time = bytes.windows(5).any(|w| {
        w[0].is_ascii_digit() && w[1].is_ascii_digit() && w[2] == b':' && w[3].is_ascii_digit() && w[4].is_ascii_digit()
    });
    let digits = bytes.iter().filter(|b| b.is_ascii_digit()).count();
    let is_hex = bytes.iter().all(|b| b.is_ascii_hexdigit() || *b == b'-');
    has_time
        || (digits >= ID_DIGITS_MIN && digits == bytes.len())
        || (is_hex && digits >= ID_HEX_DIGITS_MIN && bytes.len() >= ID_HEX_BYTES_MIN)
}

/// Adds a part of a text in lower case, with `#` in place of each run of digits.
fn without_numbers(token: &str, out: &mut String) {
    let mut was_digit = false;
    for c in token.chars() {
        let is_digit = c.is_ascii_digit();
        match (is_digit, was_digit) {
            (true, false) => out.push('#'),
            (true, true) => {}
            (false, _) => out.extend(c.to_lowercase()),
        }
        was_digit = is_digit;
    }
}

/// Adds the texts of a value, in the order of their keys.
fn texts_of(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            map.keys().collect::<BTreeSet<_>>().into_iter().for_each(|key| texts_of(&map[key], out));
        }
        Value::Array(items) => items.iter().for_each(|item| texts_of(item, out)),
        Value::String(text) => {
            out.push_str(text);
            out.push('\n');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            out.push('{');
            for key in map.keys().collect::<BTreeSet<_>>() {
                let _ = write!(out, "{}:", Value::from(key.as_str()));
                canonical(&map[key], out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        plain => {
            let _ = write!(out, "{plain}");
        }
    }
}

pub(super) fn hash16(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(8).fold(String::with_capacity(16), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}
