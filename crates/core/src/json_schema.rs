//! A validator for the subset of JSON Schema that structured outputs and tool arguments use. Keywords that it does not
//! implement (`pattern`, `format`, `description` …) are annotations: the backend receives them, and they are not checked
//! here.
//!
//! The `jsonschema` crate implements the whole standard, but would add about forty crates to the dependencies of
//! `annie-core`.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// Maximum size of a schema, in bytes of its JSON.
pub const SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// Maximum nesting depth of a schema.
const DEPTH_MAX: usize = 32;
/// Maximum number of schema nodes visited by one validation, so that a recursive schema cannot loop for ever.
const STEPS_MAX: usize = 20_000;
/// Maximum number of nested schema nodes in a validation, because the stack is finite.
const NESTED_MAX: usize = 400;
/// Maximum number of errors reported.
const ERRORS_MAX: usize = 8;
/// Maximum length of a value in an error message, in characters.
const SHOWN_CHARS_MAX: usize = 60;

const TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];

/// Checks that the validator can use a schema.
///
/// # Errors
/// The error and its location in the schema.
pub fn check(schema: &Value) -> Result<(), String> {
    let bytes = schema.to_string().len();
    if bytes > SCHEMA_BYTES_MAX {
        return Err(format!("the schema has {bytes} bytes, and at most {SCHEMA_BYTES_MAX} are allowed"));
    }
    if !schema.is_object() {
        return Err("a schema is a JSON object".to_owned());
    }
    check_node(schema, schema, "#", 0)
}

fn check_node(root: &Value, schema: &Value, at: &str, depth: usize) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err(format!("{at}: the schema nests deeper than {DEPTH_MAX} levels"));
    }
    let node = match schema {
        Value::Bool(_) => return Ok(()),
        Value::Object(node) => node,
        _ => return Err(format!("{at}: a schema is a JSON object, `true` or `false`")),
    };
    if let Some(kinds) = node.get("type") {
        check_type(kinds, at)?;
    }
    if let Some(reference) = node.get("$ref") {
        let text = reference.as_str().unwrap_or_default();
        if resolve(root, text).is_none() {
            return Err(format!("{at}/$ref: {reference} names nothing in this schema; only `#/…` can be followed"));
        }
    }
    for (key, is_right, wanted) in [
        ("required", node.get("required").is_none_or(is_list_of_texts), "a list of names"),
        ("enum", node.get("enum").is_none_or(Value::is_array), "a list of values"),
        ("properties", node.get("properties").is_none_or(Value::is_object), "an object"),
    ] {
        if !is_right {
            return Err(format!("{at}/{key}: it must be {wanted}"));
        }
    }
    for key in ["properties", "$defs", "definitions"] {
        for (name, inner) in node.get(key).and_then(Value::as_object).into_iter().flatten() {
            check_node(root, inner, &format!("{at}/{key}/{name}"), depth + 1)?;
        }
    }
    for key in ["items", "additionalProperties", "not"] {
        if let Some(inner) = node.get(key) {
            check_node(root, inner, &format!("{at}/{key}"), depth + 1)?;
        }
    }
    for key in ["anyOf", "oneOf", "allOf", "prefixItems"] {
        let Some(list) = node.get(key) else { continue };
        let Some(list) = list.as_array() else { return Err(format!("{at}/{key}: it must be a list of schemas")) };
        for (n, inner) in list.iter().enumerate() {
            check_node(root, inner, &format!("{at}/{key}/{n}"), depth + 1)?;
        }
    }
    Ok(())
}

fn check_type(kinds: &Value, at: &str) -> Result<(), String> {
    let is_known = |kind: &Value| kind.as_str().is_some_and(|kind| TYPES.contains(&kind));
    let is_right = match kinds {
        Value::Array(kinds) => !kinds.is_empty() && kinds.iter().all(is_known),
        kind => is_known(kind),
    };
    if is_right { Ok(()) } else { Err(format!("{at}/type: {kinds} is no type; the types are {}", TYPES.join(", "))) }
}

fn is_list_of_texts(value: &Value) -> bool {
    value.as_array().is_some_and(|list| list.iter().all(Value::is_string))
}

fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    root.pointer(reference.strip_prefix('#')?)
}

/// Whether two items are equal.
fn has_equal(items: &[Value]) -> bool {
    let mut seen = HashSet::with_capacity(items.len());
    !items.iter().all(|item| seen.insert(item))
}

/// Validates a value against a schema that [`check`] accepted.
///
/// # Errors
/// The errors, each with its location in the value.
pub fn validate(schema: &Value, value: &Value) -> Result<(), Vec<String>> {
    let mut run = Run { root: schema, steps: 0, nested: 0, is_too_large: false, errors: Vec::new() };
    run.visit(schema, value, "$");
    if run.is_too_large {
        run.errors.push("$: the schema is too large to check this value by it".to_owned());
    }
    if run.errors.is_empty() { Ok(()) } else { Err(run.errors) }
}

struct Run<'a> {
    root: &'a Value,
    steps: usize,
    nested: usize,
    /// A part of the value that affects the result was not checked.
    is_too_large: bool,
    errors: Vec<String>,
}

impl<'a> Run<'a> {
    fn fail(&mut self, at: &str, what: impl std::fmt::Display) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(format!("{at}: {what}"));
        }
    }

    /// Whether a value conforms to a schema, without the reasons; `None` if it is too large to check.
    fn fits(&mut self, schema: &'a Value, value: &Value) -> Option<bool> {
        let before = (std::mem::take(&mut self.errors), std::mem::take(&mut self.is_too_large));
        self.visit(schema, value, "$");
        let is_wrong = !self.errors.is_empty();
        let is_unclear = self.is_too_large && !is_wrong;
        (self.errors, self.is_too_large) = before;
        (!is_unclear).then_some(!is_wrong)
    }

    fn visit(&mut self, schema: &'a Value, value: &Value, at: &str) {
        self.nested += 1;
        self.judge(schema, value, at);
        self.nested -= 1;
    }

    fn judge(&mut self, schema: &'a Value, value: &Value, at: &str) {
        self.steps += 1;
        if self.steps > STEPS_MAX || self.nested > NESTED_MAX {
            self.is_too_large = true;
            return;
        }
        if self.errors.len() >= ERRORS_MAX {
            return;
        }
        let node = match schema {
            Value::Bool(false) => return self.fail(at, "nothing is allowed here"),
            Value::Object(node) => node,
            _ => return,
        };
        if let Some(target) = node.get("$ref").and_then(Value::as_str).and_then(|r| resolve(self.root, r)) {
            self.visit(target, value, at);
        }
        self.kind(node, value, at);
        self.choices(node, value, at);
        match value {
            Value::Object(map) => self.object(node, map, at),
            Value::Array(items) => self.array(node, items, at),
            Value::String(text) => {
                self.length(node, ("minLength", "maxLength"), text.chars().count(), "characters", at)
            }
            Value::Number(number) => self.number(node, number.as_f64().unwrap_or(0.0), at),
            Value::Bool(_) | Value::Null => {}
        }
    }

    fn kind(&mut self, node: &Map<String, Value>, value: &Value, at: &str) {
        let Some(wanted) = node.get("type") else { return };
        let is_it = |kind: &Value| kind.as_str().is_some_and(|kind| is_kind(kind, value));
        let fits = wanted.as_array().map_or_else(|| is_it(wanted), |kinds| kinds.iter().any(is_it));
        if !fits {
            self.fail(at, format_args!("it must be {wanted}, and is {}", shown(value)));
        }
    }

    fn choices(&mut self, node: &'a Map<String, Value>, value: &Value, at: &str) {
        if let Some(allowed) = node.get("enum").and_then(Value::as_array)
            && !allowed.contains(value)
        {
            let allowed: Vec<String> = allowed.iter().take(20).map(shown).collect();
            self.fail(at, format_args!("it must be one of [{}], and is {}", allowed.join(", "), shown(value)));
        }
        if let Some(only) = node.get("const")
            && only != value
        {
            self.fail(at, format_args!("it must be {}, and is {}", shown(only), shown(value)));
        }
        let list = |key: &str| node.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for inner in list("allOf") {
            self.visit(inner, value, at);
        }
        if !list("anyOf").is_empty() {
            let mut is_unclear = false;
            let fits = list("anyOf").iter().any(|inner| {
                let fits = self.fits(inner, value);
                is_unclear |= fits.is_none();
                fits == Some(true)
            });
            match (fits, is_unclear) {
                (true, _) => {}
                (false, true) => self.is_too_large = true,
                (false, false) => self.fail(at, format_args!("{} fits none of the schemas in `anyOf`", shown(value))),
            }
        }
        if !list("oneOf").is_empty() {
            let fitting: Vec<Option<bool>> = list("oneOf").iter().map(|inner| self.fits(inner, value)).collect();
            let count = fitting.iter().filter(|fits| **fits == Some(true)).count();
            self.is_too_large |= fitting.contains(&None);
            if count != 1 && !fitting.contains(&None) {
                self.fail(at, format_args!("it must fit one of the schemas in `oneOf`, and fits {count}"));
            }
        }
        if let Some(inner) = node.get("not") {
            match self.fits(inner, value) {
                Some(true) => self.fail(at, "it fits the schema in `not`"),
                Some(false) => {}
                None => self.is_too_large = true,
            }
        }
    }

    fn object(&mut self, node: &'a Map<String, Value>, map: &Map<String, Value>, at: &str) {
        for name in node.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            if !map.contains_key(name) {
                self.fail(at, format_args!("{name:?} is missing"));
            }
        }
        let properties = node.get("properties").and_then(Value::as_object);
        let rest = node.get("additionalProperties");
        for (name, inner) in map {
            let at = format!("{at}.{name}");
            match (properties.and_then(|p| p.get(name)), rest) {
                (Some(schema), _) => self.visit(schema, inner, &at),
                (None, Some(Value::Bool(false))) => self.fail(&at, "there is no such property"),
                (None, Some(schema)) => self.visit(schema, inner, &at),
                (None, None) => {}
            }
        }
        self.length(node, ("minProperties", "maxProperties"), map.len(), "properties", at);
    }

    fn array(&mut self, node: &'a Map<String, Value>, items: &[Value], at: &str) {
        let first = node.get("prefixItems").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for (n, item) in items.iter().enumerate() {
            if let Some(schema) = first.get(n).or_else(|| node.get("items")) {
                self.visit(schema, item, &format!("{at}[{n}]"));
            }
        }
        self.length(node, ("minItems", "maxItems"), items.len(), "items", at);
        if node.get("uniqueItems") == Some(&Value::Bool(true)) && has_equal(items) {
            self.fail(at, "its items must differ from each other");
        }
    }

    fn length(&mut self, node: &Map<String, Value>, (min, max): (&str, &str), len: usize, what: &str, at: &str) {
        let bound = |key: &str| node.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        if let Some(least) = bound(min).filter(|least| len < *least) {
            self.fail(at, format_args!("it has {len} {what}, and needs at least {least}"));
        }
        if let Some(most) = bound(max).filter(|most| len > *most) {
            self.fail(at, format_args!("it has {len} {what}, and at most {most} are allowed"));
        }
    }

    fn number(&mut self, node: &Map<String, Value>, number: f64, at: &str) {
        let bound = |key: &str| node.get(key).and_then(Value::as_f64);
        let broken = [
            ("minimum", bound("minimum").is_some_and(|b| number < b)),
            ("maximum", bound("maximum").is_some_and(|b| number > b)),
            ("exclusiveMinimum", bound("exclusiveMinimum").is_some_and(|b| number <= b)),
            ("exclusiveMaximum", bound("exclusiveMaximum").is_some_and(|b| number >= b)),
        ];
        for (key, _) in broken.into_iter().filter(|(_, is_broken)| *is_broken) {
            let bound = node.get(key).map(shown).unwrap_or_default();
            self.fail(at, format_args!("{number} breaks `{key}` {bound}"));
        }
    }
}

fn is_kind(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        // 3.0 is an integer in JSON Schema.
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => false,
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors(schema: &Value, value: &Value) -> Vec<String> {
        check(schema).expect("a sound schema");
        validate(schema, value).err().unwrap_or_default()
    }

    #[test]
    fn json_schema_keywords_accept_valid_values_and_locate_invalid_ones() {
        let cases = [
            (json!({"type": "string"}), json!("x"), json!(1)),
            (json!({"type": ["string", "null"]}), json!(null), json!(true)),
            (json!({"type": "integer"}), json!(3.0), json!(3.5)),
            (json!({"enum": ["a", 1]}), json!(1), json!("b")),
            (json!({"const": {"a": 1}}), json!({"a": 1}), json!({"a": 2})),
            (json!({"required": ["a"]}), json!({"a": null}), json!({})),
            (
                json!({"properties": {"a": {"type": "array", "items": {"type": "number"}}}}),
                json!({"a": [1]}),
                json!({"a": [1, "x"]}),
            ),
            (json!({"properties": {"a": {}}, "additionalProperties": false}), json!({"a": 1}), json!({"b": 1})),
            (json!({"additionalProperties": {"type": "string"}}), json!({"a": "x"}), json!({"a": 1})),
            (json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), json!(null), json!(1)),
            (json!({"oneOf": [{"type": "number"}, {"minimum": 3}]}), json!(1), json!(4)),
            (json!({"allOf": [{"minimum": 1}, {"maximum": 3}]}), json!(2), json!(4)),
            (json!({"not": {"type": "string"}}), json!(1), json!("x")),
            (json!({"minLength": 2, "maxLength": 3}), json!("äöü"), json!("ä")),
            (json!({"minItems": 1, "maxItems": 2, "uniqueItems": true}), json!([1, 2]), json!([1, 1])),
            (json!({"exclusiveMinimum": 0, "exclusiveMaximum": 1}), json!(0.5), json!(1)),
            (json!({"prefixItems": [{"type": "string"}], "items": {"type": "number"}}), json!(["a", 1]), json!([1, 1])),
            (json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}), json!("x"), json!(1)),
        ];
        for (schema, right, wrong) in cases {
            assert!(errors(&schema, &right).is_empty(), "{schema} refuses {right}");
            let reported_errors = errors(&schema, &wrong);
            assert!(!reported_errors.is_empty() && reported_errors[0].starts_with('$'), "{schema} accepts {wrong}");
        }
        let deep = json!({"properties": {"a": {"items": {"required": ["b"]}}}});
        assert_eq!(errors(&deep, &json!({"a": [{"b": 1}, {}]})), ["$.a[1]: \"b\" is missing"]);
    }

    #[test]
    fn json_schema_recursive_reference_is_followed_up_to_a_limit() {
        let tree = json!({
            "type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"],
        });
        assert!(errors(&tree, &json!({"next": {"next": null}})).is_empty());
        assert!(!errors(&tree, &json!({"next": {"next": 1}})).is_empty());
        let endless =
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}});
        assert!(errors(&endless, &json!(1))[0].contains("too large"));
        for node in
            [json!({"not": endless}), json!({"anyOf": [endless]}), json!({"oneOf": [endless, {"type": "null"}]})]
        {
            let mut schema = node.clone();
            schema["$defs"] = endless["$defs"].clone();
            assert!(
                errors(&schema, &json!(1))[0].contains("too large"),
                "{node}: a value that was not checked must not pass"
            );
        }
        let either = json!({"anyOf": [{"type": "integer"}, endless], "$defs": endless["$defs"]});
        assert!(errors(&either, &json!(1)).is_empty(), "one of them fits for sure");
    }

    #[test]
    fn json_schema_unique_items_handles_long_list() {
        let schema = json!({"uniqueItems": true});
        let mut items: Vec<Value> = (0..100_000).map(|n| json!({"n": n})).collect();
        assert!(errors(&schema, &json!(items)).is_empty());
        items.push(json!({"n": 7}));
        assert_eq!(errors(&schema, &json!(items)), ["$: its items must differ from each other"]);
    }

    #[test]
    fn json_schema_check_rejects_unusable_schema_with_location() {
        let mut deep = json!({});
        for _ in 0..40 {
            deep = json!({"items": deep});
        }
        for (schema, place) in [
            (json!([]), "object"),
            (json!({"type": "text"}), "#/type"),
            (json!({"properties": {"a": {"type": []}}}), "#/properties/a/type"),
            (json!({"anyOf": {"type": "string"}}), "#/anyOf"),
            (json!({"properties": []}), "#/properties"),
            (json!({"required": "a"}), "#/required"),
            (json!({"$ref": "https://example.com/schema"}), "#/$ref"),
            (json!({"items": 1}), "#/items"),
            (deep, "nests deeper"),
            (json!({"description": "x".repeat(70_000)}), "bytes"),
        ] {
            let why = check(&schema).expect_err("it is refused");
            assert!(why.contains(place), "{why} does not name {place}");
        }
    }

    #[test]
    fn json_schema_errors_are_limited_and_truncated() {
        let reported_errors = errors(&json!({"items": {"type": "string"}}), &json!(vec![1; 50]));
        assert_eq!(reported_errors.len(), ERRORS_MAX);
        let long = errors(&json!({"type": "null"}), &json!("x".repeat(10_000)));
        assert!(long[0].len() < 200, "{}", long[0].len());
    }
}
