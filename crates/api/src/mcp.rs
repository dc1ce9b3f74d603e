//! Annie as an MCP server: what a message of a client asks for, and the answers (ADR 0062). `POST /mcp` (`http/mcp.rs`) and
//! `annie mcp serve` on stdin and stdout (`src/cli/mcp/serve.rs`) share this.

use annie_core::{
    context::direct_tool_name,
    outcome::Outcome,
    skill::{Effect, SkillSpec},
};
use annie_mcp::{REVISION_LEGACY, REVISION_MODERN, is_legacy_revision};
use serde_json::{Value, json};

use crate::api::VERSION;

/// The name of the tool that sends a message to Annie.
pub const ANNIE: &str = "annie";
/// The field of a call's `_meta` with its idempotency key: 1 to 200 bytes. A call that is repeated under its key has no further
/// effect.
pub const KEY: &str = "annie/key";
/// The conversation of messages that name none.
const CONVERSATION: &str = "mcp";

/// JSON-RPC: the text is not JSON.
pub const NOT_JSON: i64 = -32_700;
/// JSON-RPC: the message is no request.
const NO_REQUEST: i64 = -32_600;
/// JSON-RPC: there is no such method.
const NO_METHOD: i64 = -32_601;
/// JSON-RPC: the parameters are not valid.
pub const BAD_PARAMS: i64 = -32_602;
/// The newest revision: the server does not speak the revision that the client names.
const UNKNOWN_REVISION: i64 = -32_022;
/// The field of `_meta` in which a request of the newest revision names it.
const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// JSON-RPC: the server failed.
pub const INTERNAL: i64 = -32_603;

/// What a message of a client asks for.
#[derive(Debug, PartialEq)]
pub enum Asked {
    /// Nothing that is answered: a notification, or the answer to a request that Annie never makes.
    Nothing,
    /// An answer that depends on nothing else.
    Answer(Value),
    /// The list of tools.
    Tools {
        /// The id of the request.
        id: Value,
    },
    /// A call of a tool.
    Call(Call),
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The id of the request.
    pub id: Value,
    /// The name of the tool.
    pub tool: String,
    /// A JSON object.
    pub arguments: Value,
    /// The idempotency key, if the client named one.
    pub key: Option<String>,
}

/// The message in a call of the tool `annie`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToAnnie {
    /// The text.
    pub text: String,
    /// The client's name for the conversation.
    pub conversation: String,
}

/// Reads a message of a client.
#[must_use]
pub fn asked(message: &Value) -> Asked {
    let (id, params) = (message["id"].clone(), &message["params"]);
    let Some(method) = message["method"].as_str() else {
        let is_answer = message["result"].is_object() || message["error"].is_object();
        return if is_answer { Asked::Nothing } else { Asked::Answer(error(&id, NO_REQUEST, "this is no request")) };
    };
    // A notification needs no answer. A call that the client cancels goes on in Annie: its message is stored.
    if id.is_null() {
        return Asked::Nothing;
    }
    if !(id.is_string() || id.is_number()) {
        return Asked::Answer(error(&Value::Null, NO_REQUEST, "the id of a request is a text or a number"));
    }
    match method {
        "ping" => Asked::Answer(empty(&id, params)),
        "initialize" => Asked::Answer(result(&id, begun(params))),
        "server/discover" => Asked::Answer(result(&id, discovered())),
        "tools/list" => Asked::Tools { id },
        "tools/call" => called(id, params),
        _ => Asked::Answer(error(&id, NO_METHOD, "there is no such method")),
    }
}

fn called(id: Value, params: &Value) -> Asked {
    let Some(tool) = params["name"].as_str() else { return Asked::Answer(no_such_tool(&id)) };
    let arguments = match &params["arguments"] {
        Value::Null => json!({}),
        arguments @ Value::Object(_) => arguments.clone(),
        _ => return Asked::Answer(error(&id, BAD_PARAMS, "the arguments of a tool are an object")),
    };
    let key = params["_meta"][KEY].as_str().map(str::to_owned);
    Asked::Call(Call { id, tool: tool.to_owned(), arguments, key })
}

/// The message in a call of `annie`.
///
/// # Errors
/// The answer to the call, if its arguments are not valid.
pub fn to_annie(call: &Call) -> Result<ToAnnie, Value> {
    let conversation = match &call.arguments["conversation"] {
        Value::Null => Some(CONVERSATION),
        other => other.as_str().filter(|name| !name.is_empty()),
    };
    match (call.arguments["message"].as_str(), conversation) {
        (Some(text), Some(conversation)) if !text.trim().is_empty() => {
            Ok(ToAnnie { text: text.to_owned(), conversation: conversation.to_owned() })
        }
        _ => Err(error(&call.id, BAD_PARAMS, "annie takes message and conversation, both texts")),
    }
}

/// Whether `tools/call` and the other methods are known in this revision.
#[must_use]
pub fn is_known_revision(version: &str) -> bool {
    version == REVISION_MODERN || is_legacy_revision(version)
}

/// The answer to the first request of a session. An unknown revision is answered with the one that Annie speaks.
fn begun(params: &Value) -> Value {
    let version = params["protocolVersion"].as_str().filter(|version| is_legacy_revision(version));
    json!({
        "protocolVersion": version.unwrap_or(REVISION_LEGACY),
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "annie", "version": VERSION},
    })
}

fn discovered() -> Value {
    json!({
        "supportedVersions": [REVISION_MODERN],
        "capabilities": {"tools": {}},
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "annie", "version": VERSION}},
    })
}

/// The answer to `tools/list`.
#[must_use]
pub fn listed(id: &Value, tools: &[Value]) -> Value {
    result(id, json!({"tools": tools, "ttlMs": 0, "cacheScope": "private"}))
}

/// The tool `annie`.
#[must_use]
pub fn annie_tool() -> Value {
    json!({
        "name": ANNIE,
        "description": "Sends a message to the assistant Annie and returns the answer. Annie has skills of its own, such as \
                        to-dos, notes and memories, and may change them when the message asks for it.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "message": {"type": "string", "description": "What to ask or to tell Annie."},
                "conversation": {
                    "type": "string",
                    "description": "A name of your own. Messages with the same name belong to one conversation.",
                },
            },
            "required": ["message"],
            "additionalProperties": false,
        },
        "annotations": {"readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": true},
    })
}

/// A skill as a tool. A skill whose effect is idempotent is so for one key only: a second call changes more.
#[must_use]
pub fn tool_of(skill: &SkillSpec) -> Value {
    let reads = skill.effect == Effect::Read;
    json!({
        "name": direct_tool_name(&skill.name),
        "title": skill.name,
        "description": skill.description,
        "inputSchema": skill.schema(),
        "annotations": {
            "readOnlyHint": reads,
            "destructiveHint": !reads,
            "idempotentHint": reads,
            "openWorldHint": skill.external,
        },
    })
}

/// The answer to a call of `annie`, from what `/api/v1/messages` answered; `None` while the message has no final text.
#[must_use]
pub fn answer_of(id: &Value, sent: &Value) -> Option<Value> {
    let is_error = sent["status"] != "completed";
    sent["answer"].as_str().map(|answer| answered(id, answer, is_error, &sent["task_id"]))
}

/// The answer to a call of `annie` whose message has no final text after the longest wait.
#[must_use]
pub fn unanswered(id: &Value, task: &Value) -> Value {
    let text =
        "Annie has the message and still works on it, or waits until a person approves a call (`annie approvals`).";
    answered(id, text, false, task)
}

/// The answer to a call of `annie` with this text.
#[must_use]
pub fn answered(id: &Value, text: &str, is_error: bool, task: &Value) -> Value {
    let content = json!([{"type": "text", "text": text}]);
    let structured = json!({"answer": text, "task_id": task});
    result(id, json!({"content": content, "isError": is_error, "structuredContent": structured}))
}

/// The answer to a call of a skill.
#[must_use]
pub fn ran(id: &Value, outcome: &Outcome) -> Value {
    let structured = json!({"status": outcome.status, "error": outcome.error_type, "evidence": outcome.evidence});
    let content = json!([{"type": "text", "text": outcome.data}]);
    result(id, json!({"content": content, "isError": !outcome.status.is_ok(), "structuredContent": structured}))
}

/// The answer to a call that was refused or failed before the skill ran. The text is for the model of the client.
#[must_use]
pub fn not_run(id: &Value, why: &str) -> Value {
    result(id, json!({"content": [{"type": "text", "text": why}], "isError": true}))
}

/// An answer without content. Clients of the older revisions refuse one with further fields.
fn empty(id: &Value, params: &Value) -> Value {
    let is_modern = params["_meta"][PROTOCOL_VERSION].is_string();
    if is_modern { result(id, json!({})) } else { json!({"jsonrpc": "2.0", "id": id, "result": {}}) }
}

/// The error for a revision that Annie does not speak.
#[must_use]
pub fn unknown_revision(id: &Value, requested: &str) -> Value {
    let mut answer = error(id, UNKNOWN_REVISION, "Annie does not speak this revision of the protocol");
    answer["error"]["data"] = json!({"supported": [REVISION_MODERN, REVISION_LEGACY], "requested": requested});
    answer
}

/// The answer to a call of a tool that the caller does not have.
#[must_use]
pub fn no_such_tool(id: &Value) -> Value {
    error(id, BAD_PARAMS, "there is no such tool")
}

/// An answer. The newest revision wants to know that it is complete; the older ones ignore that.
fn result(id: &Value, mut result: Value) -> Value {
    result["resultType"] = "complete".into();
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

/// An error of the protocol.
#[must_use]
pub fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(message: &Value) -> Value {
        match asked(message) {
            Asked::Answer(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn mcp_server_begins_by_either_revision() {
        let begin =
            |version: &str| answer(&json!({"id": 1, "method": "initialize", "params": {"protocolVersion": version}}));
        assert_eq!(begin("2025-06-18")["result"]["protocolVersion"], "2025-06-18");
        assert_eq!(begin("1999-01-01")["result"]["protocolVersion"], REVISION_LEGACY);
        let found = answer(&json!({"id": "a", "method": "server/discover", "params": {}}));
        assert_eq!((&found["id"], &found["result"]["supportedVersions"]), (&json!("a"), &json!([REVISION_MODERN])));
        assert_eq!(found["result"]["resultType"], "complete");
        assert_eq!(asked(&json!({"id": 2, "method": "tools/list"})), Asked::Tools { id: json!(2) });
    }

    #[test]
    fn mcp_server_refuses_what_it_does_not_know() {
        let call = |params: Value| json!({"id": 3, "method": "tools/call", "params": params});
        for (message, code) in [
            (json!({"id": 1, "method": "resources/list"}), NO_METHOD),
            (json!({"id": 1}), NO_REQUEST),
            (json!({"id": {}, "method": "ping"}), NO_REQUEST),
            (call(json!({})), BAD_PARAMS),
            (call(json!({"name": "annie", "arguments": [1]})), BAD_PARAMS),
        ] {
            assert_eq!(answer(&message)["error"]["code"], code, "{message}");
        }
        for silent in [json!({"method": "notifications/initialized"}), json!({"id": 1, "result": {}})] {
            assert_eq!(asked(&silent), Asked::Nothing, "{silent}");
        }
    }

    #[test]
    fn mcp_message_to_annie_is_a_text_in_a_conversation() {
        let read = |arguments: Value| {
            let params = json!({"name": "annie", "arguments": arguments, "_meta": {KEY: "k"}});
            let Asked::Call(call) = asked(&json!({"id": 3, "method": "tools/call", "params": params})) else {
                panic!("a call")
            };
            assert_eq!(call.key.as_deref(), Some("k"));
            to_annie(&call)
        };
        let wanted = ToAnnie { text: "hi".to_owned(), conversation: CONVERSATION.to_owned() };
        assert_eq!(read(json!({"message": "hi"})), Ok(wanted));
        for wrong in [json!({"message": " "}), json!({"message": "x", "conversation": 7}), json!({})] {
            assert_eq!(read(wrong.clone()).unwrap_err()["error"]["code"], BAD_PARAMS, "{wrong}");
        }
    }
}
