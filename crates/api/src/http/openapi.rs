//! The OpenAPI description, generated from the handlers and from the authorisation table. `docs/openapi.json` is its golden
//! copy, so that a change of the interface is visible in review.

mod chat;
mod responses;

use std::sync::LazyLock;

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};
use utoipa::{
    Modify, OpenApi,
    openapi::{
        OpenApi as Document,
        security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme},
    },
};

use super::{
    live::{LiveData, LiveDraft, LiveReset},
    problem::PROBLEM_JSON,
    schema::{Draft, Event, Reset, StreamData, StreamError, VISIBLE},
};
use crate::{auth::Need, ops};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Annie",
        description = "A kernel for AI agents. Errors are RFC 9457 problems with a stable `code`. Chat clients may also use the \
            OpenAI-compatible `/v1`, and gRPC (`annie.v1`, with reflection) on the same port.",
        license(name = "Apache-2.0")
    ),
    servers((url = "/", description = "This server")),
    tags(
        (name = "chat", description = "Messages, conversations, their streams, and notifications"),
        (name = "jobs", description = "Tasks, long-running operations and dead letters"),
        (name = "skills", description = "The skills that agents can use"),
        (name = "operations", description = "Operator commands: actors, the queue, the voice gate and the breakers"),
        (name = "keys", description = "API keys and their scopes"),
        (name = "health", description = "For load balancers, service managers and Prometheus"),
        (name = "openai", description = "The OpenAI-compatible API")
    ),
    components(schemas(Event, Draft, Reset, StreamError, StreamData, LiveData, LiveDraft, LiveReset)),
    modifiers(&Keys)
)]
struct Head;

struct Keys;

impl Modify for Keys {
    fn modify(&self, document: &mut Document) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        document.components.get_or_insert_default().add_security_scheme("key", scheme);
        document.security = Some(vec![SecurityRequirement::new::<_, [&str; 0], &str>("key", [])]);
    }
}

/// The part of the description that is not generated from the routes.
pub(super) fn head() -> Document {
    Head::openapi()
}

/// The complete description.
#[must_use]
pub fn document() -> Value {
    let mut document = super::api().into_openapi();
    document.merge(chat::Routes::openapi());
    let mut document = serde_json::to_value(document).unwrap_or_default();
    bound_integers(&mut document);
    if let Some(Value::Array(parts)) = document.pointer_mut("/components/schemas/Accepted/allOf") {
        // The fields of the ending are in the same object, or are missing. A flattened `Option` would be described as null.
        parts.retain(|part| part.get("oneOf").is_none());
        parts.push(json!({ "anyOf": [{ "$ref": "#/components/schemas/Ending" }, { "type": "object" }] }));
    }
    for (path, operations) in objects(&mut document["paths"]) {
        for (method, operation) in objects(operations) {
            finish(&path, &method, operation);
        }
    }
    let schemas = &mut document["components"]["schemas"];
    for (schema, property, pattern) in TEXTS {
        schemas[schema]["properties"][property]["pattern"] = json!(pattern);
    }
    schemas["NewMessage"]["not"] = contradictions();
    // A command on the root ends the whole server, and is refused without `force`.
    schemas["Act"]["anyOf"] = json!([
        { "properties": { "path": { "pattern": "[^/]" } } },
        { "required": ["force"], "properties": { "force": { "const": true } } },
    ]);
    schemas["Feeling"]["properties"]["name"]["enum"] = json!(FEELINGS);
    let given = json!({ "not": { "type": "null" } });
    schemas["ResponseRequest"]["not"] = json!({
        "required": ["conversation", "previous_response_id"],
        "properties": { "conversation": given, "previous_response_id": given },
    });
    schemas["ResponseInput"]["oneOf"][0]["pattern"] = json!(NOT_BLANK);
    schemas["ResponseInput"]["oneOf"][1]["minItems"] = json!(1);
    schemas["EmbeddingInput"]["oneOf"][0]["minLength"] = json!(1);
    // An event may have the fields of a draft too, so more than one schema can match.
    if let Some(kinds) = schemas["StreamData"].as_object_mut()
        && let Some(any) = kinds.remove("oneOf")
    {
        kinds.insert("anyOf".to_owned(), any);
    }
    for (sent, data) in [("SentEvent", "StreamData"), ("SentNotice", "Notice")] {
        let described = &mut schemas[sent]["properties"]["data"];
        described["contentMediaType"] = json!("application/json");
        described["contentSchema"] = json!({ "$ref": format!("#/components/schemas/{data}") });
    }
    document
}

/// The members of an object.
fn objects(value: &mut Value) -> impl Iterator<Item = (String, &mut Value)> {
    value.as_object_mut().into_iter().flatten().map(|(name, value)| (name.clone(), value))
}

/// The pattern of texts without control characters.
const PLAIN: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$";
/// The pattern of texts that are not blank.
const NOT_BLANK: &str = "[^\\s\\u0085\\u00a0]";
/// Patterns of request fields, in addition to their lengths.
const TEXTS: [(&str, &str, &str); 8] = [
    ("NewMessage", "text", NOT_BLANK),
    ("NewMessage", "conversation_key", PLAIN),
    ("NewMessage", "client_id", PLAIN),
    ("NewMessage", "name", PLAIN),
    ("ReplyTo", "to", PLAIN),
    ("KeyOptions", "name", VISIBLE),
    ("Hold", "holder", PLAIN),
    ("Release", "holder", PLAIN),
];

/// The accepted names of emotions.
const FEELINGS: [&str; 32] = [
    "neutral",
    "calm",
    "relaxed",
    "frustrated",
    "frustration",
    "angry",
    "anger",
    "annoyed",
    "impatient",
    "urgent",
    "stressed",
    "stress",
    "anxious",
    "anxiety",
    "fear",
    "fearful",
    "overwhelmed",
    "happy",
    "happiness",
    "joy",
    "joyful",
    "excited",
    "tired",
    "low",
    "sad",
    "sadness",
    "exhausted",
    "curious",
    "curiosity",
    "interested",
    "surprise",
    "surprised",
];

/// Combinations of options that a message cannot have.
fn contradictions() -> Value {
    let given = |names: &[&str]| {
        let properties: Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!({ "not": { "type": "null" } }))).collect();
        json!({ "required": names, "properties": properties })
    };
    let steered = |name: &str, value: Value| json!({ "required": ["steer", name], "properties": { "steer": { "const": true }, name: value } });
    json!({ "anyOf": [
        given(&["conversation_id", "conversation_key"]),
        given(&["not_before", "delay_ms"]),
        steered("not_before", json!({ "type": "string" })),
        steered("delay_ms", json!({ "type": "integer" })),
        steered("after", json!({ "minItems": 1 })),
        { "required": ["priority"], "properties": { "priority": { "const": "realtime" }, "source": { "type": "null" } } },
    ] })
}

/// The parts that are the same for every operation: the required key, according to the authorisation table; the content type of
/// its errors; and header parameters, which are texts and never null.
fn finish(path: &str, method: &str, operation: &mut Value) {
    match rule(method, path) {
        Some(Need::Nothing | Need::OperationKey) => operation["security"] = json!([]),
        Some(Need::LocalOr(_)) => operation["security"] = json!([{}, { "key": [] }]),
        Some(Need::AnyKey | Need::Scope(_)) | None => {}
    }
    if !path.starts_with("/v1/")
        && let Some(Value::Object(content)) = operation.pointer_mut("/responses/default/content")
        && let Some(problem) = content.remove("application/json")
    {
        content.insert(PROBLEM_JSON.to_owned(), problem);
    }
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        if parameter["in"] == "header" {
            parameter["required"] = json!(false);
        }
        if let Some(Value::Array(kinds)) = parameter.pointer_mut("/schema/type") {
            kinds.retain(|kind| kind != "null");
        }
    }
    for (_, response) in operation.get_mut("responses").into_iter().flat_map(objects) {
        // OpenAPI requires a description of every response.
        if let Some(response) = response.as_object_mut() {
            response.entry("description").or_insert(json!(""));
        }
    }
}

/// The requirement of a documented route. The table contains the router's wildcard syntax.
pub(super) fn rule(method: &str, path: &str) -> Option<Need> {
    ops::need(&method.to_uppercase(), path).or_else(|| ops::need(&method.to_uppercase(), &path.replace('{', "{*")))
}

/// Adds the maximum of unsigned integers, which OpenAPI's formats cannot express.
fn bound_integers(value: &mut Value) {
    match value {
        Value::Object(object) => {
            let is_unsigned = object.get("minimum").and_then(Value::as_i64).is_some_and(|least| least >= 0);
            let is_integer = object.get("type").is_some_and(|kind| {
                kind == "integer" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "integer"))
            });
            if is_unsigned && is_integer {
                let format = object.remove("format");
                let most = if format == Some(json!("int32")) { u64::from(u32::MAX) } else { u64::MAX };
                object.entry("maximum").or_insert(json!(most));
            }
            object.values_mut().for_each(bound_integers);
        }
        Value::Array(items) => items.iter_mut().for_each(bound_integers),
        _ => {}
    }
}

static TEXT: LazyLock<String> = LazyLock::new(|| serde_json::to_string_pretty(&document()).unwrap_or_default());

/// `GET /api/openapi.json`.
pub async fn json() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response()
}
