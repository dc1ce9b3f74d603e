//! Values that are invalid for any setting of their kind: a text with a NUL character, or an empty path, address or key.

use toml::{Table, Value};

use super::{layers::leaves, typed::KeyError};

/// Settings whose empty text can never work. To use the default, the setting is left out.
const NOT_EMPTY: [&str; 9] =
    ["url_file", "url_env", "api_key", "api_key_file", "api_key_env", "key", "key_file", "proxy", "timezone"];

/// Every unusable value of a configuration.
pub(super) fn problems(table: &Table) -> Vec<KeyError> {
    leaves(table).iter().filter_map(|path| problem(path, value_at(table, path)?)).collect()
}

fn problem(path: &[String], value: &Value) -> Option<KeyError> {
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    if has_nul(value) {
        return Some(KeyError::value(&parts, "it has a NUL character", "remove it"));
    }
    let is_empty = value.as_str().is_some_and(|text| text.trim().is_empty());
    let key = parts.last()?;
    let is_address = parts == ["client", "url"] || parts == ["store", "url"];
    let must_say = NOT_EMPTY.contains(key) || parts == ["data", "folder"] || is_address;
    (is_empty && must_say).then(|| KeyError::value(&parts, "it is empty", fix_of(&parts)))
}

/// The fix for an empty text.
fn fix_of(parts: &[&str]) -> &'static str {
    match parts {
        ["store", "url"] => {
            "give the address of a PostgreSQL database, or leave `url` out: then everything is kept in the data folder (SQLite)"
        }
        _ => "give a value, or leave it out",
    }
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Table(table) => table.iter().any(|(key, value)| key.contains('\0') || has_nul(value)),
        _ => false,
    }
}

fn value_at<'a>(table: &'a Table, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(table.get(first)?, |value, part| match value {
        Value::Table(table) => table.get(part),
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        _ => None,
    })
}

/// Whether a text names log levels. A misspelt level would be the name of a module, and nothing else would be logged.
pub(crate) fn is_log_level(text: &str) -> bool {
    let is_level = |word: &str| word.trim().parse::<tracing_subscriber::filter::LevelFilter>().is_ok();
    let is_part = |part: &str| part.split_once('=').map_or_else(|| is_level(part), |(_, level)| is_level(level));
    // The brackets of a span may contain a comma.
    let is_plain = !text.contains('[');
    tracing_subscriber::EnvFilter::try_new(text).is_ok() && (!is_plain || text.split(',').all(is_part))
}
