//! Templates: texts with values of a run. `{args.day}` is an argument, `{steps.list.result}` the result of a step,
//! `{steps.list.result.title}` a field of a result that is JSON, `{steps.add.evidence.id}` a field of what a skill returned for
//! programs. Other braces are text. A value that is filled in is never read as a template.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::run::StepResult;
use crate::{
    context::{clip, is_clipped},
    state::{StateKey, StateText},
};

/// The fields of a step that a template may name.
const STEP_FIELDS: [&str; 6] = ["result", "evidence", "status", "error", "passes", "visits"];

/// The values in the arguments of one call have together at most so many times the size of one value: the log has them twice.
const CALL_VALUES_MAX: usize = 4;

/// A part of a template.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    Text(&'a str),
    Value(Reference<'a>),
}

/// What a placeholder names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reference<'a> {
    Arg(&'a str),
    /// The field of a step, and the path below it.
    Step {
        id: &'a str,
        field: &'a str,
        path: &'a str,
    },
    /// A part of the item of a fan-out; the whole item if the path is empty.
    Item(&'a str),
    Now,
    Today,
    /// A value of the state; with a question mark it may be missing.
    State {
        key: &'a str,
        is_optional: bool,
    },
}

/// The values that templates name.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    pub args: &'a Map<String, Value>,
    pub results: &'a BTreeMap<String, StepResult>,
    pub passes: &'a BTreeMap<String, u32>,
    pub visits: &'a BTreeMap<String, u32>,
    /// The local time when the run began: `2026-02-18 14:05 Wednesday`.
    pub now: &'a str,
    pub item: Option<&'a Value>,
    /// The values of the state, by key with its prefix.
    pub state: &'a BTreeMap<String, StateText>,
    pub bytes_max: usize,
}

/// The parts of a template.
///
/// # Errors
/// The first placeholder that is wrong, as a sentence without its end.
pub(super) fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let mut from = 0;
    while let Some(at) = rest[from..].find('{').map(|at| at + from) {
        let inside = &rest[at + 1..];
        if !begins_placeholder(inside) {
            from = at + 1;
            continue;
        }
        let Some(end) = inside.find('}') else {
            return Err(format!("`{}` has no closing brace", rest[at..].chars().take(30).collect::<String>()));
        };
        if is_state(inside) && rest[..at].ends_with('{') && inside[end + 1..].starts_with('}') {
            // Doubled braces stand for the text in single ones.
            pieces.push(Piece::Text(&rest[..at - 1]));
            pieces.push(Piece::Text(&rest[at..at + end + 2]));
            rest = &inside[end + 2..];
            from = 0;
            continue;
        }
        if at > 0 {
            pieces.push(Piece::Text(&rest[..at]));
        }
        pieces.push(Piece::Value(reference(&inside[..end])?));
        rest = &inside[end + 1..];
        from = 0;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Ok(pieces)
}

fn begins_placeholder(inside: &str) -> bool {
    ["args.", "steps.", "item}", "item.", "now}", "today}"].iter().any(|begin| inside.starts_with(begin))
        || is_state(inside)
}

/// Whether a placeholder names a value of the state. Its prefix is explicit.
fn is_state(inside: &str) -> bool {
    let name = inside.split('}').next().unwrap_or_default();
    let name = name.strip_suffix('?').unwrap_or(name);
    name.contains(':') && StateKey::parse(name).is_ok_and(|key| key.to_string() == name)
}

/// Reads the inside of a placeholder.
pub(super) fn reference(inside: &str) -> Result<Reference<'_>, String> {
    if let Some(name) = inside.strip_prefix("args.") {
        return Ok(Reference::Arg(name));
    }
    match inside {
        "item" => return Ok(Reference::Item("")),
        "now" => return Ok(Reference::Now),
        "today" => return Ok(Reference::Today),
        _ if is_state(inside) => {
            let key = inside.strip_suffix('?');
            return Ok(Reference::State { key: key.unwrap_or(inside), is_optional: key.is_some() });
        }
        _ => {}
    }
    if let Some(path) = inside.strip_prefix("item.") {
        return Ok(Reference::Item(path));
    }
    let Some(rest) = inside.strip_prefix("steps.") else {
        return Err(format!("`{{{inside}}}` names no value"));
    };
    let (id, rest) = rest.split_once('.').unwrap_or((rest, ""));
    let (field, path) = rest.split_once('.').unwrap_or((rest, ""));
    if !STEP_FIELDS.contains(&field) {
        return Err(format!("`{{{inside}}}` names no field of a step: known are {}", STEP_FIELDS.join(", ")));
    }
    if !path.is_empty() && !matches!(field, "result" | "evidence") {
        return Err(format!("`{{{inside}}}`: `{field}` has no parts"));
    }
    Ok(Reference::Step { id, field, path })
}

/// Encloses the text of a step with this id in a frame.
pub(super) type Frame<'a> = &'a dyn Fn(&str, &str) -> String;

impl Values<'_> {
    /// The value that a placeholder names; `None` for an optional argument that was not given.
    pub(super) fn get(&self, reference: Reference<'_>) -> Result<Option<Value>, String> {
        match reference {
            Reference::Arg(name) => Ok(self.args.get(name).filter(|value| !value.is_null()).cloned()),
            Reference::Item(path) => {
                let item = self.item.cloned().ok_or_else(|| "there is no item here".to_owned())?;
                part_of(item, path, || format!("the item has no part `{path}`")).map(Some)
            }
            Reference::Now => Ok(Some(self.now.into())),
            Reference::Today => Ok(Some(self.now.split(' ').next().unwrap_or_default().into())),
            Reference::State { key, is_optional } => match self.state.get(key) {
                Some(value) => Ok(Some(value.text.clone().into())),
                None if is_optional => Ok(None),
                None => Err(format!(
                    "{key} is not set (`annie state set {key} VALUE`, or `{{{key}?}}` if it may be missing)"
                )),
            },
            Reference::Step { id, field: "passes", .. } => Ok(Some(self.passes.get(id).copied().unwrap_or(0).into())),
            Reference::Step { id, field: "visits", .. } => Ok(Some(self.visits.get(id).copied().unwrap_or(0).into())),
            Reference::Step { id, field, path } => self.of_step(id, field, path).map(Some),
        }
    }

    /// Whether the author of a value had read text of others.
    fn is_of_others(&self, key: &str) -> bool {
        self.state.get(key).is_some_and(|value| !value.origin.is_empty())
    }

    fn of_step(&self, id: &str, field: &str, path: &str) -> Result<Value, String> {
        let Some(result) = self.results.get(id) else {
            return Err(format!("step `{id}` has no result yet"));
        };
        let whole = match field {
            "status" => return Ok(result.outcome.as_str().into()),
            "error" => return Ok(result.error.clone().into()),
            "evidence" if result.is_evidence_left_out => {
                let bytes_max = self.bytes_max;
                return Err(format!("the evidence of step `{id}` has more than {bytes_max} bytes (`value_bytes_max`)"));
            }
            "evidence" => result.evidence.clone(),
            _ if path.is_empty() => return Ok(result.text.clone().into()),
            _ if is_clipped(&result.text) => {
                return Err(self.not_whole(&format!("the result of step `{id}`, of which `{path}` is a part,")));
            }
            _ => serde_json::from_str(&result.text)
                .map_err(|_| format!("the result of step `{id}` is not JSON, so it has no part `{path}`"))?,
        };
        part_of(whole, path, || format!("the {field} of step `{id}` has no part `{path}`"))
    }

    /// A text with its values, each of which is cut where it is too long. `framed` encloses what steps returned, where a model
    /// reads the text.
    ///
    /// # Errors
    /// The value that is missing.
    pub(super) fn text(&self, template: &str, framed: Option<Frame<'_>>) -> Result<String, String> {
        self.filled(template, framed).map(|(text, _)| text)
    }

    /// A text with its values, and whether all of them are whole.
    fn filled(&self, template: &str, framed: Option<Frame<'_>>) -> Result<(String, bool), String> {
        let pieces = pieces(template)?;
        let mut values = Vec::new();
        for piece in &pieces {
            if let Piece::Value(reference) = piece {
                values.push(self.get(*reference)?.map(|value| plain(&value)).unwrap_or_default());
            }
        }
        // A cut of the whole text could remove the end of a frame, or what the author wrote behind it.
        let bytes_max = bytes_of_one(&values, self.bytes_max);
        let is_whole = values.iter().all(|value| value.len() <= bytes_max && !is_clipped(value));
        let (mut text, mut values) = (String::new(), values.iter());
        for piece in pieces {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Value(reference) => {
                    let value = clip(values.next().map_or("", String::as_str), bytes_max);
                    match (reference, framed) {
                        (Reference::Step { id, field: "result" | "evidence", .. }, Some(framed)) => {
                            text.push_str(&framed(id, &value));
                        }
                        (Reference::Item(_), Some(framed)) => text.push_str(&framed("item", &value)),
                        (Reference::State { key, .. }, Some(framed)) if self.is_of_others(key) => {
                            text.push_str(&framed(key, &value));
                        }
                        _ => text.push_str(&value),
                    }
                }
            }
        }
        Ok((text, is_whole))
    }

    /// The arguments of a call of a skill, whose values together have at most [`CALL_VALUES_MAX`] times the size of one.
    ///
    /// # Errors
    /// The value that is missing, or that the values are too long.
    pub(super) fn arguments_of_call(&self, args: &Map<String, Value>) -> Result<Map<String, Value>, String> {
        let size = |args: &Map<String, Value>| serde_json::to_string(args).map_or(0, |text| text.len());
        let filled = self.arguments(args)?;
        let bytes_max = self.bytes_max.saturating_mul(CALL_VALUES_MAX);
        if size(&filled).saturating_sub(size(args)) > bytes_max {
            return Err(format!(
                "the values of its arguments have more than {bytes_max} bytes together ({CALL_VALUES_MAX} times `value_bytes_max` below \
                 `[workflows]`), so name fewer of them, or raise the limit"
            ));
        }
        Ok(filled)
    }

    /// The arguments of a call. A text that is one placeholder gets the value with its type, and is left out if the value is an
    /// argument that was not given.
    ///
    /// # Errors
    /// The value that is missing.
    fn arguments(&self, args: &Map<String, Value>) -> Result<Map<String, Value>, String> {
        let filled = args.iter().map(|(name, value)| Ok(self.value(value)?.map(|value| (name.clone(), value))));
        let filled: Result<Vec<Option<(String, Value)>>, String> = filled.collect();
        Ok(filled?.into_iter().flatten().collect())
    }

    fn value(&self, template: &Value) -> Result<Option<Value>, String> {
        match template {
            Value::String(text) => match pieces(text)?.as_slice() {
                // An exact value must not be a part of one. A value in a longer text has a notice where it was cut.
                [Piece::Value(reference)] => match self.get(*reference)? {
                    Some(Value::String(value)) if is_clipped(&value) => {
                        Err(self.not_whole(&format!("the value of {text}")))
                    }
                    value => Ok(value),
                },
                _ => self.text(text, None).map(|text| Some(text.into())),
            },
            Value::Array(items) => {
                let items: Result<Vec<Option<Value>>, String> = items.iter().map(|item| self.value(item)).collect();
                Ok(Some(items?.into_iter().flatten().collect()))
            }
            Value::Object(map) => self.arguments(map).map(|map| Some(Value::Object(map))),
            other => Ok(Some(other.clone())),
        }
    }

    /// Why a cut value is not used.
    pub(super) fn not_whole(&self, what: &str) -> String {
        let bytes_max = self.bytes_max;
        format!(
            "{what} is not whole: a result has at most {bytes_max} bytes (`value_bytes_max` below `[workflows]`), so let the step \
             return less, or raise the limit"
        )
    }

    /// The items of a list: of a JSON array, or the lines of a text that are not empty.
    ///
    /// # Errors
    /// The value that is missing, that is no list, or that is not whole.
    pub(super) fn items(&self, template: &str) -> Result<Vec<Value>, String> {
        let (list, is_whole) = match pieces(template)?.as_slice() {
            [Piece::Value(reference)] => {
                let list = self.get(*reference)?.unwrap_or(Value::Null);
                let is_whole = !list.as_str().is_some_and(is_clipped);
                (list, is_whole)
            }
            _ => self.filled(template, None).map(|(text, is_whole)| (text.into(), is_whole))?,
        };
        if !is_whole {
            return Err(self.not_whole("the list"));
        }
        match list {
            Value::Array(items) => Ok(items),
            Value::Null => Ok(Vec::new()),
            Value::String(text) => match serde_json::from_str(&text) {
                Ok(Value::Array(items)) => Ok(items),
                _ => Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(Value::from).collect()),
            },
            other => Err(format!("{other} is no list")),
        }
    }
}

/// The size to which each value of a text is cut, in bytes, so that all of them together have at most twice the size of one.
/// Short values leave their room to the long ones.
fn bytes_of_one(values: &[String], bytes_max: usize) -> usize {
    let mut sizes: Vec<usize> = values.iter().map(|value| value.len().min(bytes_max)).collect();
    sizes.sort_unstable();
    let (mut left, mut count) = (bytes_max.saturating_mul(2), sizes.len());
    for size in sizes {
        let share = left / count;
        if size > share {
            return share;
        }
        left -= size;
        count -= 1;
    }
    bytes_max
}

/// The part of a value at a path of names and numbers, separated by dots.
fn part_of(whole: Value, path: &str, missing: impl Fn() -> String) -> Result<Value, String> {
    path.split('.').filter(|part| !part.is_empty()).try_fold(whole, |value, part| {
        let found = match &value {
            Value::Array(items) => part.parse::<usize>().ok().and_then(|n| items.get(n)),
            other => other.get(part),
        };
        found.cloned().ok_or_else(&missing)
    })
}

/// A value as text.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Array(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            items.iter().map(plain).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}
