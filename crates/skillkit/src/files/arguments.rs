//! `arguments:` of a command skill without a handler: the names, types and limits of its arguments.

use annie_core::skill::{ArgKind, ArgSpec};
use serde_json::Value as Json;
use serde_yaml_ng::{Mapping, Value};

use super::{
    frontmatter::{Frontmatter, scalar, truth},
    problem::Report,
};

const KEYS: [&str; 7] = ["type", "description", "required", "choices", "minimum", "maximum", "default"];
/// The most arguments of one skill: each is a part of every prompt that shows the skill.
const ARGUMENTS_MAX: usize = 32;

/// Reads the declared arguments. Every problem is reported.
pub(crate) fn read(front: &Frontmatter, report: &mut Report) -> Vec<ArgSpec> {
    let line = front.line_of("arguments");
    let Some(value) = front.get("arguments") else { return Vec::new() };
    let Some(map) = value.as_mapping() else {
        report.error(line, "`arguments` must be a mapping", "write `days: {type: integer, description: …}` below it");
        return Vec::new();
    };
    if map.len() > ARGUMENTS_MAX {
        report.error(line, format!("there are more than {ARGUMENTS_MAX} arguments"), "divide the skill");
    }
    let mut args: Vec<ArgSpec> = map
        .iter()
        .filter_map(|(name, value)| {
            argument(name, value, &mut |what: String, fix: String| report.error(line, what, fix))
        })
        .collect();
    args.sort_by(|a, b| b.required.cmp(&a.required).then_with(|| a.name.cmp(&b.name)));
    args
}

/// Reads one argument: its type alone, or a mapping.
fn argument(name: &Value, value: &Value, wrong: &mut dyn FnMut(String, String)) -> Option<ArgSpec> {
    let Some(name) = name.as_str().filter(|name| is_name(name)) else {
        let fix = "use small letters, digits and underscores, beginning with a letter";
        wrong(format!("`{}` cannot be the name of an argument", scalar(name).unwrap_or_default()), fix.to_owned());
        return None;
    };
    let word = Mapping::from_iter([(Value::from("type"), value.clone())]);
    let map = value.as_mapping().unwrap_or(&word);
    let text = |key: &str| map.get(key).and_then(scalar);
    for key in map.keys().map(|key| scalar(key).unwrap_or_default()).filter(|key| !KEYS.contains(&key.as_str())) {
        wrong(format!("argument `{name}`: unknown key `{key}`"), format!("known are {}", KEYS.join(", ")));
    }
    let kind = kind(&text("type").unwrap_or_else(|| "text".to_owned()), map);
    let kind = kind.map_err(|(what, fix)| wrong(format!("argument `{name}`: {what}"), fix)).ok()?;
    let required = match map.get("required").map(truth) {
        Some(None) => {
            wrong(format!("argument `{name}`: `required` must be true or false"), "write `required: true`".to_owned());
            return None;
        }
        flag => flag.flatten().unwrap_or(false),
    };
    let bound = |key: &str| map.get(key).and_then(Value::as_f64);
    let spec = ArgSpec {
        name: name.to_owned(),
        kind,
        required,
        help: text("description").unwrap_or_default(),
        minimum: bound("minimum"),
        maximum: bound("maximum"),
        default: map.get("default").map_or(Json::Null, |value| serde_json::to_value(value).unwrap_or(Json::Null)),
    };
    for key in ["minimum", "maximum"] {
        if map.get(key).is_some() && bound(key).is_none() {
            wrong(format!("argument `{name}`: `{key}` is not a number"), format!("write `{key}: 1`"));
        }
    }
    if !spec.default.is_null()
        && let Err(what) = spec.check(&spec.default)
    {
        wrong(format!("argument `{name}`: its default {what}"), "correct the default or leave it out".to_owned());
    }
    Some(spec)
}

fn kind(word: &str, map: &Mapping) -> Result<ArgKind, (String, String)> {
    Ok(match word {
        "text" | "string" => ArgKind::Text,
        "integer" => ArgKind::Integer,
        "number" => ArgKind::Number,
        "boolean" => ArgKind::Bool,
        "list" => ArgKind::List,
        "date" => ArgKind::Date,
        "choice" => {
            let words: Vec<String> =
                map.get("choices").and_then(Value::as_sequence).into_iter().flatten().filter_map(scalar).collect();
            if words.is_empty() {
                return Err(("a choice needs `choices`".to_owned(), "write `choices: [small, large]`".to_owned()));
            }
            ArgKind::Choice(words)
        }
        other => {
            let fix = "write text, integer, number, boolean, list, date or choice";
            return Err((format!("`type: {other}` is unknown"), fix.to_owned()));
        }
    })
}

/// Whether a text can be the name of an argument.
pub(crate) fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    (1..=64).contains(&text.len()) && text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(is_part)
}
