//! Texts with places for arguments: `{days}` in the argument list of a script, or in the parts of a request.

use annie_core::skill::ArgSpec;
use serde_json::Value;

use crate::files::placeholders;

/// The arguments without absent ones, and with the declared defaults.
pub(crate) fn defaulted(args: &[ArgSpec], mut arguments: Value) -> Value {
    if let Value::Object(map) = &mut arguments {
        map.retain(|_, value| !value.is_null());
        for arg in args.iter().filter(|arg| !arg.default.is_null()) {
            map.entry(arg.name.as_str()).or_insert_with(|| arg.default.clone());
        }
    }
    arguments
}

/// An argument as text; `None` if it is absent.
pub(crate) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => Some(items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")),
        other => Some(other.to_string()),
    }
}

/// The name of the argument, if a template is only its place.
pub(crate) fn only_place(template: &str) -> Option<&str> {
    placeholders(template).next().filter(|name| template.len() == name.len() + "{}".len())
}

/// A template with the values of the arguments; `None` if the template is only one argument, and that is absent. `encode` is
/// applied to each value and never to the template.
pub(crate) fn filled(template: &str, arguments: &Value, encode: &dyn Fn(String) -> String) -> Option<String> {
    let value = |name: &str| text_of(&arguments[name]).map(encode);
    if let Some(name) = only_place(template) {
        return value(name);
    }
    let (mut text, mut rest) = (String::with_capacity(template.len()), template);
    for name in placeholders(template) {
        let place = format!("{{{name}}}");
        // A value is never searched for places, because only what follows the place is.
        let Some((before, after)) = rest.split_once(&place) else { continue };
        text.push_str(before);
        text.push_str(&value(name).unwrap_or_default());
        rest = after;
    }
    text.push_str(rest);
    Some(text)
}
