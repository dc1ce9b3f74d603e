//! Reads an OpenAPI description.

use std::collections::BTreeMap;

use serde_json::Value;

/// The properties of a schema with those of its parts.
///
/// # Panics
/// If the document lacks a part that the schema refers to.
#[must_use]
pub fn properties(document: &Value, schema: &Value) -> BTreeMap<String, Value> {
    if let Some(path) = schema["$ref"].as_str() {
        #[expect(clippy::expect_used, reason = "a description that is incomplete ends its test")]
        let part = document.pointer(path.trim_start_matches('#')).expect("the part is in the description");
        return properties(document, part);
    }
    let own = schema["properties"].as_object().into_iter().flatten();
    let mut found: BTreeMap<String, Value> = own.map(|(name, value)| (name.clone(), value.clone())).collect();
    for part in ["allOf", "anyOf", "oneOf"].iter().filter_map(|key| schema[*key].as_array()).flatten() {
        found.extend(properties(document, part));
    }
    found
}
