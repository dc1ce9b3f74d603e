//! The optional arguments of `dispatch_agent`.

use serde_json::{Map, Value};

use super::{Resolver, shown, tools::whole};
use crate::{dispatch::DispatchOptions, effort::Effort, json_schema};

impl Resolver<'_> {
    /// The options of a dispatch. An error is a text for the model.
    pub(super) fn options(&self, arguments: &Value) -> Result<DispatchOptions, String> {
        let model = text(arguments, "model")?;
        Ok(DispatchOptions {
            label: label(arguments)?,
            timeout_ms: self.timeout_ms(arguments)?,
            backends: self.models.route(self.route, model)?,
            effort: effort(arguments)?,
            output_schema: schema(&arguments["output_schema"])?,
            output_key: key(arguments)?,
        })
    }

    /// The time limit, at most that of the configuration. Like too many calls, more than that is no error.
    fn timeout_ms(&self, arguments: &Value) -> Result<Option<u64>, String> {
        let most_ms = self.limits.agent_timeout_ms_max;
        match &arguments["timeout_s"] {
            Value::Null => Ok(None),
            value => match whole(value).filter(|seconds| *seconds > 0) {
                Some(seconds) => Ok(Some(u64::from(seconds).saturating_mul(1_000).min(most_ms))),
                None => Err(format!("timeout_s must be a whole number of seconds, from 1 to {}.", most_ms / 1_000)),
            },
        }
    }
}

/// An optional text.
fn text<'a>(arguments: &'a Value, name: &str) -> Result<Option<&'a str>, String> {
    match &arguments[name] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Err(format!("{name} must be a text."))
        }
    }
}

fn effort(arguments: &Value) -> Result<Option<Effort>, String> {
    let Some(word) = text(arguments, "effort")? else { return Ok(None) };
    Effort::named(word).map(Some).ok_or_else(|| format!("effort {:?} must be low, medium or high.", shown(word)))
}

fn label(arguments: &Value) -> Result<String, String> {
    let chars_max = DispatchOptions::LABEL_CHARS_MAX;
    let label = text(arguments, "label")?.unwrap_or_default();
    if label.chars().count() > chars_max || label.contains(char::is_control) {
        return Err(format!("label must be one line of at most {chars_max} characters."));
    }
    Ok(label.to_owned())
}

fn key(arguments: &Value) -> Result<Option<String>, String> {
    let Some(key) = text(arguments, "output_key")? else { return Ok(None) };
    // The mission names it in braces, and models write them here too.
    let key = key.strip_prefix('{').and_then(|key| key.strip_suffix('}')).unwrap_or(key);
    if !DispatchOptions::is_key(key) {
        let chars_max = DispatchOptions::KEY_CHARS_MAX;
        let key = shown(key);
        return Err(format!("output_key {key:?} must be 1 to {chars_max} letters, digits or _, and no digit first."));
    }
    Ok(Some(key.to_owned()))
}

/// A JSON Schema, which models also send as text.
fn schema(value: &Value) -> Result<Option<Value>, String> {
    const WRONG: &str = "output_schema must be a JSON Schema, as an object.";
    let schema = match value {
        Value::Null => return Ok(None),
        Value::Object(_) => value.clone(),
        Value::String(text) if text.trim().is_empty() => return Ok(None),
        Value::String(text) => Value::Object(serde_json::from_str::<Map<_, _>>(text).map_err(|_| WRONG.to_owned())?),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => return Err(WRONG.to_owned()),
    };
    let (bytes, bytes_max) = (schema.to_string().len(), DispatchOptions::SCHEMA_BYTES_MAX);
    if bytes > bytes_max {
        return Err(format!("output_schema has {bytes} bytes and at most {bytes_max} are allowed."));
    }
    json_schema::check(&schema).map_err(|why| format!("output_schema cannot be used: {why}."))?;
    Ok(Some(schema))
}
