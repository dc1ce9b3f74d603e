//! Converts a table of TOML values into a [`Config`], with the path of each invalid key or value.

use annie_core::limits::Deadlines;
use annie_core::skill::edit_distance;
use annie_llm::{CommandConfig, ModelConfig};
use serde::{Serialize, de::DeserializeOwned};
use serde_path_to_error::Segment;
use toml::{Table, Value};

use super::{
    backend::{BackendConfig, ClientConfig, Kind, Pool},
    settings::Config,
};

/// Keys whose values must not be repeated in errors.
const SECRET_KEYS: [&str; 6] = ["api_key", "proxy", "headers", "key", "env", "url"];

/// An error in one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyError {
    /// The tables and the key; a list entry is given by its index.
    pub path: Vec<String>,
    /// Whether the key itself is wrong rather than its value.
    pub is_key: bool,
    /// The problem.
    pub what: String,
    /// How to fix it.
    pub fix: String,
}

impl KeyError {
    /// An error in a value; `what` continues the sentence after the key's name.
    pub fn value(path: &[&str], what: &str, fix: &str) -> Self {
        let path: Vec<String> = path.iter().map(|s| (*s).to_owned()).collect();
        Self { what: format!("`{}`: {what}", dotted(&path)), path, is_key: false, fix: fix.to_owned() }
    }
}

/// Keys as other programs name them, and the keys of this configuration that mean the same.
const SYNONYMS: [(&str, &str); 5] =
    [("url", "base_url"), ("endpoint", "base_url"), ("base", "base_url"), ("host", "bind"), ("key", "api_key")];

/// Limits of a turn that have a place of their own in the configuration.
pub(super) const TURN_ELSEWHERE: [(&str, &str); 7] = [
    ("interface", "sub_agent.interface"),
    ("agent_timeout_ms_max", "sub_agent.timeout_ms_max"),
    ("agent_control", "sub_agent.control"),
    ("loop_guard", "[loop_guard]"),
    ("error_router", "[error_router]"),
    ("result_checks", "[result_checks]"),
    ("voice", "[voice]"),
];

/// A path in dotted notation.
pub fn dotted(path: &[String]) -> String {
    let mut text = String::new();
    for part in path {
        let plain = !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if !text.is_empty() {
            text.push('.');
        }
        if plain { text.push_str(part) } else { text.push_str(&format!("{part:?}")) }
    }
    text
}

/// The configuration of a table, with defaults filled in. Only the structure is checked.
pub fn typed(mut table: Table) -> Result<Config, KeyError> {
    for (key, place) in TURN_ELSEWHERE {
        if table.get("turn").and_then(|t| t.get(key)).is_some() {
            return Err(KeyError {
                path: vec!["turn".to_owned(), key.to_owned()],
                is_key: true,
                what: format!("unknown key `turn.{key}`"),
                fix: format!("it is set as `{place}`"),
            });
        }
    }
    fill_deadlines(&mut table);
    let backends = table.remove("backend");
    let mut config: Config = read(Value::Table(table), &[], &["backend"])?;
    // Without the key, limits that were recorded before it existed mean answers as the model wrote them.
    config.turn.voice = config.voice;
    if let Some(backends) = backends {
        let Value::Array(list) = backends else {
            return Err(KeyError::value(&["backend"], "it is not a list", "begin each backend with `[[backend]]`"));
        };
        config.backend =
            list.into_iter().enumerate().map(|(at, value)| backend(at, value)).collect::<Result<_, _>>()?;
    }
    Ok(config)
}

fn backend(at: usize, value: Value) -> Result<BackendConfig, KeyError> {
    let path = ["backend".to_owned(), at.to_string()];
    let Value::Table(table) = value else {
        return Err(KeyError::value(&["backend", &path[1]], "it is not a table", "begin it with `[[backend]]`"));
    };
    let (own, rest): (Table, Table) =
        table.into_iter().partition(|(key, _)| BackendConfig::POOL_KEYS.contains(&key.as_str()));
    let pool: Pool = read(Value::Table(own), &path, &[])?;
    let is_profile_set = rest.contains_key("profile");
    let rest = Value::Table(rest);
    let client = match pool.kind {
        Kind::Model => read(rest, &path, &BackendConfig::POOL_KEYS)
            .map(|model: ModelConfig| ClientConfig::Model(ModelConfig { is_profile_set, ..model }))
            .map_err(|e| of_kind(e, &CommandConfig::default(), "a program's: add kind = \"command\" or remove it")),
        Kind::Command => read(rest, &path, &BackendConfig::POOL_KEYS)
            .map(ClientConfig::Command)
            .map_err(|e| of_kind(e, &ModelConfig::default(), "a model server's: remove it, or kind = \"command\"")),
    };
    Ok(BackendConfig { pool, client: client? })
}

/// Explains a key of one kind of backend that is used for the other kind.
fn of_kind(error: KeyError, other: &impl Serialize, whose: &str) -> KeyError {
    let known = Table::try_from(other).unwrap_or_default();
    match error.path.as_slice() {
        [_, _, key] if error.is_key && known.contains_key(key) => KeyError { fix: format!("it is {whose}"), ..error },
        _ => error,
    }
}

/// If only one deadline of a class is set, the other keeps its default.
fn fill_deadlines(table: &mut Table) {
    let Some(Value::Table(given)) = table.get_mut("deadline") else { return };
    for (class, usual) in Table::try_from(Deadlines::default()).unwrap_or_default() {
        if let (Some(Value::Table(own)), Value::Table(usual)) = (given.get_mut(&class), usual) {
            for (key, value) in usual {
                own.entry(key).or_insert(value);
            }
        }
    }
}

/// Reads the value at a path; `more` are known keys that were removed from it before.
fn read<T: DeserializeOwned>(value: Value, at: &[String], more: &[&str]) -> Result<T, KeyError> {
    serde_path_to_error::deserialize(value).map_err(|e| {
        let mut path = at.to_vec();
        path.extend(e.path().iter().filter_map(|segment| match segment {
            Segment::Map { key } => Some(key.clone()),
            Segment::Seq { index } => Some(index.to_string()),
            Segment::Enum { .. } | Segment::Unknown => None,
        }));
        convert_error(path, e.inner().message(), at.len(), more)
    })
}

/// Phrases of Rust libraries, and their replacements for the author of the file.
const PLAIN_WORDS: [(&str, &str); 11] = [
    ("invalid socket address syntax", "it is no address with a port, such as 127.0.0.1:7420"),
    ("unknown variant", "unknown value"),
    ("expected a sequence", "expected a list"),
    ("expected a map", "expected a table"),
    ("expected a boolean", "expected true or false"),
    ("expected usize", "expected a whole number that is not negative"),
    ("expected u64", "expected a whole number that is not negative"),
    ("expected u32", "expected a whole number that is not negative and not too large"),
    ("expected u16", "expected a whole number from 0 to 65535"),
    ("expected f64", "expected a number"),
    ("expected f32", "expected a number"),
];

/// Serde names types of the program; the author of the file knows tables and numbers. Quoted parts of the file stay unchanged.
fn without_type_names(message: &str) -> String {
    let mut text = without_struct_names(message);
    for (rust, plain) in PLAIN_WORDS {
        let outside = text.rfind(rust).filter(|at| text[..*at].matches('"').count().is_multiple_of(2));
        if let Some(at) = outside {
            text.replace_range(at..at + rust.len(), plain);
        }
    }
    text
}

fn without_struct_names(message: &str) -> String {
    match message.split_once("expected struct ") {
        Some((before, after)) => {
            let rest = after.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
            format!("{before}expected a table{rest}")
        }
        None => message.to_owned(),
    }
}

/// Converts an error of serde. `more` are keys that are known at this depth in addition to those that serde lists.
fn convert_error(mut path: Vec<String>, message: &str, depth: usize, more: &[&str]) -> KeyError {
    let Some((wrong, expected)) = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')) else {
        let name = dotted(&path);
        if path.last().is_some_and(|key| key == "to") && message.contains("expected struct") {
            let fix = "write it as { backend = \"NAME\" }, or say what it must be: { capabilities = [\"git\"] }";
            return KeyError { what: format!("`{name}`: it is not a table"), path, is_key: false, fix: fix.into() };
        }
        let is_secret = path.iter().any(|part| SECRET_KEYS.contains(&part.as_str()));
        let what = if is_secret { "it is not a text" } else { message.trim() };
        let what = format!("`{name}`: {}", without_type_names(what));
        return KeyError {
            path,
            is_key: false,
            what,
            fix: "see `annie config sample` for every key and its values".into(),
        };
    };
    if path.last().is_none_or(|last| last != wrong) {
        path.push(wrong.to_owned());
    }
    // Every second part between backticks is a name.
    let more = more.iter().copied().filter(|_| path.len() == depth + 1);
    let mut known: Vec<&str> = expected.split('`').skip(1).step_by(2).chain(more).collect();
    let is_elsewhere = |key: &str| TURN_ELSEWHERE.iter().any(|(elsewhere, _)| *elsewhere == key);
    known.retain(|key| !is_elsewhere(key) || path.first().is_none_or(|table| table != "turn"));
    known.sort_unstable();
    let near = known
        .iter()
        .map(|key| {
            let is_apart = !key.contains(wrong);
            (edit_distance(wrong, key), is_apart, key.len().abs_diff(wrong.len()), *key)
        })
        .min();
    let same = SYNONYMS.iter().find(|(other, key)| *other == wrong && known.contains(key)).map(|(_, key)| *key);
    let fix = match near {
        _ if same.is_some() => format!("did you mean `{}`?", same.unwrap_or_default()),
        Some((distance, is_apart, _, key)) if distance <= 2 || !is_apart => format!("did you mean `{key}`?"),
        _ if known.is_empty() => "remove it".to_owned(),
        _ => format!("known here are {}", known.join(", ")),
    };
    KeyError { what: format!("unknown key `{}`", dotted(&path)), path, is_key: true, fix }
}
