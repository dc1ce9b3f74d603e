//! The arguments of a tool. Its JSON Schema is untrusted: references are followed within the schema only, and not for ever. What
//! has no form as a declared argument, such as an object, is a text with JSON.

use annie_core::skill::{ArgKind, ArgSpec};
use serde_json::{Map, Value};

use crate::text::one_line;

/// How many references and alternatives lead to a property at most.
const DEPTH_MAX: usize = 8;
/// The most arguments of a tool.
const ARGUMENTS_MAX: usize = 64;
/// Length limit of an argument's name, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Length limit of an argument's description, in bytes.
const HELP_BYTES_MAX: usize = 400;
/// Length limit of the schema that the description of an argument with JSON shows, in bytes.
const SCHEMA_BYTES_MAX: usize = 600;

/// The arguments of a tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Arguments {
    pub(crate) specs: Vec<ArgSpec>,
    /// The names of those whose text is JSON.
    json: Vec<String>,
}

impl Arguments {
    /// Reads the schema of a tool.
    ///
    /// # Errors
    /// Why the tool cannot be called.
    pub(crate) fn read(schema: &Value) -> Result<Self, String> {
        let properties = schema["properties"].as_object();
        if properties.is_some_and(|properties| properties.len() > ARGUMENTS_MAX) {
            return Err(format!("it has more than {ARGUMENTS_MAX} arguments"));
        }
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut arguments = Self::default();
        for (name, property) in properties.into_iter().flatten() {
            let is_required = required.contains(&name.as_str());
            if !is_name(name) {
                // An optional argument with such a name is never given.
                if is_required {
                    return Err(
                        "the name of a required argument has other characters than letters, digits, - and _".to_owned()
                    );
                }
                continue;
            }
            let kind = kind_of(schema, property, DEPTH_MAX);
            let mut help = one_line(property["description"].as_str().unwrap_or_default(), HELP_BYTES_MAX);
            if kind.is_none() {
                let schema = one_line(&property.to_string(), SCHEMA_BYTES_MAX);
                help = format!("{help} JSON that fits this schema: {schema}").trim_start().to_owned();
                arguments.json.push(name.clone());
            }
            arguments.specs.push(ArgSpec {
                name: name.clone(),
                minimum: bound(&kind, &property["minimum"]),
                maximum: bound(&kind, &property["maximum"]),
                kind: kind.unwrap_or(ArgKind::Text),
                required: is_required,
                help,
                default: plain(&property["default"]),
            });
        }
        if let Some(missing) = required.iter().find(|name| !arguments.specs.iter().any(|spec| spec.name == **name)) {
            return Err(format!("its required argument {:?} is not described", one_line(missing, NAME_BYTES_MAX)));
        }
        arguments.specs.sort_by(|a, b| b.required.cmp(&a.required).then_with(|| a.name.cmp(&b.name)));
        Ok(arguments)
    }

    /// The arguments of a call as the server expects them.
    ///
    /// # Errors
    /// If the text of an argument is not JSON.
    pub(crate) fn to_send(&self, given: &Value) -> Result<Value, String> {
        let mut sent = Map::new();
        for (name, value) in given.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            let value = match value.as_str() {
                Some(text) if self.json.contains(name) => {
                    serde_json::from_str(text).map_err(|why| format!("--{name} is not valid JSON: {why}"))?
                }
                _ => value.clone(),
            };
            sent.insert(name.clone(), value);
        }
        Ok(Value::Object(sent))
    }
}

fn is_name(name: &str) -> bool {
    let is_part = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    name.len() <= NAME_BYTES_MAX
        && name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic())
        && name.bytes().all(is_part)
}

/// The kind of a property; `None` if its values are JSON.
fn kind_of(root: &Value, property: &Value, depth_max: usize) -> Option<ArgKind> {
    let depth_max = depth_max.checked_sub(1)?;
    if let Some(path) = property["$ref"].as_str() {
        return kind_of(root, root.pointer(path.strip_prefix('#')?)?, depth_max);
    }
    if let Some(words) = property["enum"].as_array() {
        let texts: Option<Vec<String>> = words.iter().map(|word| word.as_str().map(str::to_owned)).collect();
        return texts.filter(|texts| !texts.is_empty()).map(ArgKind::Choice);
    }
    let options = property["anyOf"].as_array().or_else(|| property["oneOf"].as_array());
    if let Some(options) = options {
        let mut kinds = options.iter().filter(|option| option["type"] != "null");
        return match (kinds.next(), kinds.next()) {
            (Some(only), None) => kind_of(root, only, depth_max),
            _ => None,
        };
    }
    let mut types: Vec<&str> = match &property["type"] {
        Value::String(one) => vec![one.as_str()],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    types.retain(|name| *name != "null");
    match types.as_slice() {
        ["string"] => Some(ArgKind::Text),
        ["integer"] => Some(ArgKind::Integer),
        ["number"] => Some(ArgKind::Number),
        ["boolean"] => Some(ArgKind::Bool),
        ["array"] if kind_of(root, &property["items"], depth_max) == Some(ArgKind::Text) => Some(ArgKind::List),
        _ => None,
    }
}

fn bound(kind: &Option<ArgKind>, value: &Value) -> Option<f64> {
    value.as_f64().filter(|_| matches!(kind, Some(ArgKind::Integer | ArgKind::Number)))
}

/// A default value for the help text, if it is short.
fn plain(value: &Value) -> Value {
    match value {
        Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(text) if text.len() <= NAME_BYTES_MAX => one_line(text, NAME_BYTES_MAX).into(),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_of_a_tool_have_the_kinds_of_its_schema() {
        let schema = json!({
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "What to\nsay"},
                "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
                "mode": {"enum": ["fast", "slow"]},
                "maybe": {"anyOf": [{"$ref": "#/$defs/flag"}, {"type": "null"}]},
                "tags": {"type": ["array", "null"], "items": {"type": "string"}},
                "filter": {"type": "object", "properties": {"a": {"type": "string"}}},
                "points": {"type": "array", "items": {"type": "number"}},
                "$odd": {"type": "string"},
            },
            "required": ["text"],
            "$defs": {"flag": {"type": "boolean"}},
        });
        let arguments = Arguments::read(&schema).unwrap();
        let kinds: Vec<(&str, &ArgKind)> =
            arguments.specs.iter().map(|spec| (spec.name.as_str(), &spec.kind)).collect();
        let choice = ArgKind::Choice(vec!["fast".to_owned(), "slow".to_owned()]);
        assert_eq!(
            kinds,
            [
                ("text", &ArgKind::Text),
                ("count", &ArgKind::Integer),
                ("filter", &ArgKind::Text),
                ("maybe", &ArgKind::Bool),
                ("mode", &choice),
                ("points", &ArgKind::Text),
                ("tags", &ArgKind::List),
            ]
        );
        let text = &arguments.specs[0];
        assert!(text.required && text.help == "What to say");
        assert_eq!((arguments.specs[1].minimum, arguments.specs[1].maximum), (Some(1.0), Some(9.0)));
        assert!(arguments.specs[2].help.starts_with("JSON that fits this schema: {"), "{}", arguments.specs[2].help);
        let sent = arguments.to_send(&json!({"text": "{}", "points": "[1, 2]", "mode": null}));
        assert_eq!(sent, Ok(json!({"text": "{}", "points": [1, 2]})));
        assert!(arguments.to_send(&json!({"filter": "a: 1"})).unwrap_err().starts_with("--filter is not valid JSON"));
    }

    #[test]
    fn schema_that_refers_to_itself_or_to_elsewhere_is_json() {
        let schema = json!({
            "properties": {"a": {"$ref": "#/$defs/a"}, "b": {"$ref": "https://example.org/schema.json"}},
            "$defs": {"a": {"$ref": "#/$defs/a"}},
        });
        let arguments = Arguments::read(&schema).unwrap();
        assert_eq!(arguments.json, ["a", "b"]);
        assert!(Arguments::read(&json!({"required": ["x"]})).is_err(), "an argument without a description");
        assert_eq!(Arguments::read(&json!({"type": "object"})), Ok(Arguments::default()));
        let many: Map<String, Value> = (0..65).map(|n| (format!("a{n}"), json!({"type": "string"}))).collect();
        assert!(Arguments::read(&json!({"properties": many})).is_err());
    }
}
