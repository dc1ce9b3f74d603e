//! Declared arguments of skills. A handler declares one Rust struct, whose JSON Schema is converted to this form. Flags,
//! validation errors, the schema for models and the synopsis in `--help` are derived from it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::SkillSpec;

/// The type of an argument's values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgKind {
    /// Any text.
    Text,
    /// A whole number.
    Integer,
    /// The number of an existing thing. A skill with effects accepts only numbers that occur in the conversation.
    Id,
    /// A number.
    Number,
    /// `--flag`, `--flag true`, `--flag=false`.
    Bool,
    /// One of these words.
    Choice(Vec<String>),
    /// Several texts: a repeated flag, or one value with commas.
    List,
    /// A date or date and time: `2026-02-28`, `2026-02-28T14:00`, `today`, `tomorrow`, `friday`, `+3d`. The handler resolves
    /// words.
    Date,
}

/// One argument.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArgSpec {
    /// `title` for `--title`; in snake case. `--due-date` also matches `due_date`.
    pub name: String,
    /// The type of its values.
    pub kind: ArgKind,
    /// Whether the argument is required.
    pub required: bool,
    /// One sentence, with the format of the value.
    pub help: String,
    /// Minimum of a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<f64>,
    /// Maximum of a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum: Option<f64>,
    /// The handler's default value, for the help text.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub default: Value,
}

/// Invalid arguments, with the name of the argument and the right usage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}\nUsage: {usage}\nTry `{skill} --help`.")]
pub struct ArgError {
    /// The error, with the name of the flag.
    pub what: String,
    /// The skill's synopsis.
    pub usage: String,
    /// The skill.
    pub skill: String,
}

impl ArgSpec {
    fn placeholder(&self) -> String {
        match &self.kind {
            ArgKind::Text => "TEXT".to_owned(),
            ArgKind::Integer | ArgKind::Id | ArgKind::Number => "N".to_owned(),
            ArgKind::Bool => String::new(),
            ArgKind::Choice(words) => words.join("|"),
            ArgKind::List => "A,B".to_owned(),
            ArgKind::Date => "DATE".to_owned(),
        }
    }

    /// `--title TEXT`, in brackets if optional.
    #[must_use]
    pub fn usage(&self) -> String {
        let value = self.placeholder();
        let flag = if value.is_empty() { format!("--{}", self.name) } else { format!("--{} {value}", self.name) };
        if self.required { flag } else { format!("[{flag}]") }
    }

    /// The argument's line in `--help`.
    #[must_use]
    pub fn help_line(&self) -> String {
        let mut line = format!("  --{} {}", self.name, self.placeholder()).trim_end().to_owned();
        line.push_str("  ");
        line.push_str(&self.help);
        if self.required {
            line.push_str(" (required)");
        } else if !self.default.is_null() {
            let shown = self.default.as_str().map_or_else(|| self.default.to_string(), str::to_owned);
            line.push_str(&format!(" (default {shown})"));
        }
        line
    }

    /// Parses a flag's text as this argument's JSON value.
    ///
    /// # Errors
    /// The expected value, as the rest of a sentence that begins with the argument's name.
    pub fn parse_text(&self, text: &str) -> Result<Value, String> {
        let value = match &self.kind {
            ArgKind::Text | ArgKind::Date | ArgKind::Choice(_) => Value::from(text),
            ArgKind::Integer | ArgKind::Id => text
                .trim()
                .trim_start_matches('#')
                .parse::<i64>()
                .map(Value::from)
                .map_err(|_| format!("wants a whole number, got {text:?}"))?,
            ArgKind::Number => text
                .trim()
                .parse::<f64>()
                .ok()
                .filter(|n| n.is_finite())
                .map(Value::from)
                .ok_or_else(|| format!("wants a number, got {text:?}"))?,
            ArgKind::Bool => match text.trim().to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" | "1" => Value::Bool(true),
                "false" | "no" | "off" | "0" => Value::Bool(false),
                _ => return Err(format!("wants true or false, got {text:?}")),
            },
            ArgKind::List => text.split(',').map(str::trim).filter(|s| !s.is_empty()).collect(),
        };
        self.check(&value)?;
        Ok(value)
    }

    /// Checks whether a JSON value is valid for this argument.
    ///
    /// # Errors
    /// The expected value, as the rest of a sentence that begins with the argument's name.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let number = |n: f64| match (self.minimum, self.maximum) {
            (Some(min), _) if n < min => Err(format!("must be at least {min}, got {n}")),
            (_, Some(max)) if n > max => Err(format!("must be at most {max}, got {n}")),
            _ => Ok(()),
        };
        match &self.kind {
            ArgKind::Text | ArgKind::Date => {
                let text = value.as_str().ok_or_else(|| format!("wants text, got {value}"))?;
                if self.required && text.trim().is_empty() { Err("must not be empty".to_owned()) } else { Ok(()) }
            }
            ArgKind::Integer | ArgKind::Id => {
                value.as_i64().ok_or_else(|| format!("wants a whole number, got {value}")).and_then(|n| {
                    #[expect(clippy::cast_precision_loss, reason = "bounds are small")]
                    number(n as f64)
                })
            }
            ArgKind::Number => value.as_f64().ok_or_else(|| format!("wants a number, got {value}")).and_then(number),
            ArgKind::Bool => value.as_bool().map(|_| ()).ok_or_else(|| format!("wants true or false, got {value}")),
            ArgKind::Choice(words) => match value.as_str() {
                Some(word) if words.iter().any(|w| w == word) => Ok(()),
                _ => Err(format!("must be one of {}, got {value}", words.join(", "))),
            },
            ArgKind::List => match value.as_array() {
                Some(items) if items.iter().all(Value::is_string) => Ok(()),
                _ => Err(format!("wants a list of texts, got {value}")),
            },
        }
    }

    fn schema(&self) -> Value {
        let mut schema = match &self.kind {
            ArgKind::Text => json!({"type": "string"}),
            ArgKind::Integer | ArgKind::Id => json!({"type": "integer"}),
            ArgKind::Number => json!({"type": "number"}),
            ArgKind::Bool => json!({"type": "boolean"}),
            ArgKind::Choice(words) => json!({"type": "string", "enum": words}),
            ArgKind::List => json!({"type": "array", "items": {"type": "string"}}),
            // `format: date` is not used: a server that enforces it would reject `friday`, and a model that follows it would
            // compute weekdays itself.
            ArgKind::Date => json!({"type": "string"}),
        };
        if let Value::Object(map) = &mut schema {
            let help = if self.kind == ArgKind::Date { in_date_words(&self.help) } else { self.help.clone() };
            map.insert("description".into(), help.into());
            if let Some(min) = self.minimum {
                map.insert("minimum".into(), bound(min));
            }
            if let Some(max) = self.maximum {
                map.insert("maximum".into(), bound(max));
            }
        }
        schema
    }
}

/// Description of the format of dates, at the end of an argument's description in a schema. Date arguments are recognised by
/// it.
const DATE_WORDS: &str = "A date in words or figures: today, tomorrow, friday, friday 14:00, 2026-12-01.";

fn in_date_words(help: &str) -> String {
    if help.is_empty() { DATE_WORDS.to_owned() } else { format!("{help} {DATE_WORDS}") }
}

/// A bound as JSON. Whole numbers have no fraction, because some servers reject one for integers.
fn bound(n: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "it was just compared")]
    let whole = n as i64;
    #[expect(clippy::cast_precision_loss, clippy::float_cmp, reason = "compared with what it came from")]
    let is_whole = whole as f64 == n;
    if is_whole { whole.into() } else { n.into() }
}

/// The schema of a list of arguments.
#[must_use]
pub fn schema_of(args: &[ArgSpec]) -> Value {
    let properties: Map<String, Value> = args.iter().map(|a| (a.name.clone(), a.schema())).collect();
    let required: Vec<&str> = args.iter().filter(|a| a.required).map(|a| a.name.as_str()).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// Reads arguments from a struct's JSON Schema as generated by `schemars`: `properties`, `required`, `description`, `enum`
/// (also behind a local `$ref` or an `anyOf` with null), `minimum`, `maximum`, `default`, and `format: "date"` or `"id"`.
#[must_use]
pub fn args_from_schema(schema: &Value) -> Vec<ArgSpec> {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut args: Vec<ArgSpec> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, property)| {
            let inner = resolve(schema, property);
            ArgSpec {
                name: name.clone(),
                kind: kind_of(schema, inner),
                required: required.contains(&name.as_str()),
                help: ["description"]
                    .iter()
                    .find_map(|k| property[*k].as_str().or_else(|| inner[*k].as_str()))
                    .unwrap_or_default()
                    .replace('\n', " "),
                minimum: inner["minimum"].as_f64().or_else(|| property["minimum"].as_f64()),
                maximum: inner["maximum"].as_f64().or_else(|| property["maximum"].as_f64()),
                default: property["default"].clone(),
            }
        })
        .collect();
    args.sort_by(|a, b| b.required.cmp(&a.required).then_with(|| a.name.cmp(&b.name)));
    args
}

/// Follows a local `$ref` and unwraps `anyOf: [X, null]`.
fn resolve<'a>(root: &'a Value, property: &'a Value) -> &'a Value {
    if let Some(name) = property["$ref"].as_str().and_then(|r| r.rsplit('/').next()) {
        return resolve(root, &root["$defs"][name]);
    }
    let options = property["anyOf"].as_array();
    match options.and_then(|options| options.iter().find(|o| o["type"] != "null")) {
        Some(option) => resolve(root, option),
        None => property,
    }
}

fn kind_of(root: &Value, property: &Value) -> ArgKind {
    let words = |v: &Value| -> Vec<String> {
        v.as_array().into_iter().flatten().filter_map(|w| w.as_str().map(str::to_owned)).collect()
    };
    if property["enum"].is_array() {
        return ArgKind::Choice(words(&property["enum"]));
    }
    if let Some(options) = property["oneOf"].as_array() {
        return ArgKind::Choice(
            options.iter().filter_map(|o| resolve(root, o)["const"].as_str().map(str::to_owned)).collect(),
        );
    }
    let kind = property["type"].as_str().map(str::to_owned).or_else(|| {
        property["type"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .find(|t| *t != "null")
            .map(str::to_owned)
    });
    match kind.as_deref() {
        Some("integer") if property["format"] == "id" => ArgKind::Id,
        Some("integer") => ArgKind::Integer,
        Some("number") => ArgKind::Number,
        Some("boolean") => ArgKind::Bool,
        Some("array") => ArgKind::List,
        _ if property["format"] == "date" => ArgKind::Date,
        _ if property["description"].as_str().is_some_and(|help| help.ends_with(DATE_WORDS)) => ArgKind::Date,
        _ => ArgKind::Text,
    }
}

/// Validates a JSON object against a skill's declared arguments.
pub fn check_object(skill: &SkillSpec, arguments: &Value) -> Result<(), ArgError> {
    let fail = |what: String| ArgError { what, usage: skill.synopsis(), skill: skill.name.clone() };
    let Value::Object(map) = arguments else {
        return Err(fail(format!("the arguments of {} must be a JSON object", skill.name)));
    };
    for (name, value) in map {
        let Some(spec) = skill.args.iter().find(|a| a.name == *name) else {
            return Err(fail(format!("{} has no flag --{name}", skill.name)));
        };
        if !value.is_null() {
            spec.check(value).map_err(|what| fail(format!("--{name} {what}")))?;
        }
    }
    match skill.args.iter().find(|a| a.required && map.get(&a.name).is_none_or(Value::is_null)) {
        Some(missing) => Err(fail(format!("missing required flag: --{}", missing.name))),
        None => Ok(()),
    }
}
