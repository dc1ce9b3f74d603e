//! `annie mcp serve`: Annie as an MCP server over stdin and stdout, in front of a running server. The one tool, `annie`, sends a
//! message and returns its answer. So the rules for messages, skills and effects are those of every front end.

use std::time::Duration;

use annie_mcp::{REVISION_LEGACY, REVISION_MODERN, is_legacy_revision};
use futures_util::{
    future::BoxFuture,
    stream::{FuturesUnordered, StreamExt},
};
use serde_json::{Value, json};

use crate::{
    api::VERSION,
    cli::{client::Client, failure::Failure, input::Input, site::Site},
    system,
};

/// The most messages that are waited for at once. Further requests are read when one has ended.
const CALLS_MAX: usize = 16;
/// How long the server is asked to wait for an answer, in seconds: less than the client of the command line waits for a response.
const WAIT_S_MAX: u64 = 20;
/// How often it is asked. A turn of more than ten minutes is not waited for.
const WAITS_MAX: u32 = 30;
/// The pause before a server that has no room for a further waiting client is asked again, in milliseconds.
const PAUSE_MS: u64 = 1_000;
/// The conversation of messages that name none.
const CONVERSATION: &str = "mcp";

/// JSON-RPC: the text is not JSON, it is no request, there is no such method, the parameters are not valid.
const NOT_JSON: i64 = -32_700;
const NO_REQUEST: i64 = -32_600;
const NO_METHOD: i64 = -32_601;
const BAD_PARAMS: i64 = -32_602;

/// What a message of the client asks for.
#[derive(Debug, PartialEq)]
enum Asked {
    /// Nothing to answer.
    Nothing,
    /// An answer that needs no server.
    Answer(Value),
    /// A message to Annie, under the id of the request.
    Message { id: Value, text: String, conversation: String },
}

/// Answers the client until it closes stdin.
///
/// # Errors
/// If no server runs, stdin cannot be read, or stdout is closed.
pub async fn run(site: &Site) -> Result<(), Failure> {
    let client = site.running().await?;
    let mut input = Input::of_process();
    let wait_s = site.loaded.config.api.wait_s_max.min(WAIT_S_MAX);
    let mut calls: FuturesUnordered<BoxFuture<'_, Value>> = FuturesUnordered::new();
    loop {
        tokio::select! {
            line = input.next(), if calls.len() < CALLS_MAX => match line? {
                None => return Ok(()),
                Some(line) => match asked(&line) {
                    Asked::Nothing => {}
                    Asked::Answer(answer) => site.console.json(&answer)?,
                    Asked::Message { id, text, conversation } => {
                        calls.push(Box::pin(send(&client, wait_s, id, text, conversation)));
                    }
                },
            },
            Some(answer) = calls.next(), if !calls.is_empty() => site.console.json(&answer)?,
        }
    }
}

/// Sends a message to Annie and waits for its answer. Each further wait repeats the message under its id, so that a server that
/// is restarted in between answers it once.
async fn send(client: &Client, wait_s: u64, id: Value, text: String, conversation: String) -> Value {
    let client_id = system::env().uuid().simple().to_string();
    let body = json!({"text": text, "conversation_key": conversation, "client_id": client_id});
    let path = format!("/api/v1/messages?wait={wait_s}");
    let mut task = Value::Null;
    for _ in 0..WAITS_MAX {
        let sent = match client.post_idempotent(&path, &body).await {
            Ok(sent) => sent,
            Err(failure) => return answered(&id, &failure.what, true, &task),
        };
        task = sent["task_id"].clone();
        if let Some(answer) = sent["answer"].as_str() {
            return answered(&id, answer, sent["status"] != "completed", &task);
        }
        if !sent["not_waited"].is_null() {
            // Too many clients wait at the server.
            tokio::time::sleep(Duration::from_millis(PAUSE_MS)).await;
        }
    }
    let text =
        "Annie has the message and still works on it, or waits until a person approves a call (`annie approvals`).";
    answered(&id, text, false, &task)
}

/// The result of the tool.
fn answered(id: &Value, text: &str, is_error: bool, task: &Value) -> Value {
    let content = json!([{"type": "text", "text": text}]);
    let structured = json!({"answer": text, "task_id": task});
    result(id, json!({"content": content, "isError": is_error, "structuredContent": structured}))
}

/// Reads a message of the client.
fn asked(line: &str) -> Asked {
    let Ok(message) = serde_json::from_str::<Value>(line) else {
        return Asked::Answer(error(&Value::Null, NOT_JSON, "this line is not JSON"));
    };
    let (id, params) = (message["id"].clone(), &message["params"]);
    let Some(method) = message["method"].as_str() else {
        return Asked::Answer(error(&id, NO_REQUEST, "this is no request"));
    };
    // A notification needs no answer. A call that the client cancels goes on in Annie: its message is stored.
    if id.is_null() {
        return Asked::Nothing;
    }
    match method {
        "ping" => Asked::Answer(result(&id, json!({}))),
        "initialize" => Asked::Answer(result(&id, begun(params))),
        "server/discover" => Asked::Answer(result(&id, discovered())),
        "tools/list" => Asked::Answer(result(&id, json!({"tools": [tool()], "ttlMs": 0, "cacheScope": "private"}))),
        "tools/call" => called(id, params),
        _ => Asked::Answer(error(&id, NO_METHOD, "there is no such method")),
    }
}

fn called(id: Value, params: &Value) -> Asked {
    if params["name"] != "annie" {
        return Asked::Answer(error(&id, BAD_PARAMS, "there is no such tool"));
    }
    let arguments = &params["arguments"];
    let conversation = match &arguments["conversation"] {
        Value::Null => Some(CONVERSATION),
        other => other.as_str().filter(|name| !name.is_empty()),
    };
    match (arguments["message"].as_str(), conversation) {
        (Some(text), Some(conversation)) if !text.trim().is_empty() => {
            Asked::Message { id, text: text.to_owned(), conversation: conversation.to_owned() }
        }
        _ => Asked::Answer(error(&id, BAD_PARAMS, "annie takes message and conversation, both texts")),
    }
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

fn tool() -> Value {
    json!({
        "name": "annie",
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

/// An answer. The newest revision wants to know that it is complete; the older ones ignore that.
fn result(id: &Value, mut result: Value) -> Value {
    result["resultType"] = "complete".into();
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(message: Value) -> Value {
        match asked(&message.to_string()) {
            Asked::Answer(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn mcp_server_begins_by_either_revision_and_lists_its_tool() {
        let begin =
            |version: &str| answer(json!({"id": 1, "method": "initialize", "params": {"protocolVersion": version}}));
        assert_eq!(begin("2025-06-18")["result"]["protocolVersion"], "2025-06-18");
        assert_eq!(begin("1999-01-01")["result"]["protocolVersion"], REVISION_LEGACY);
        let found = answer(json!({"id": "a", "method": "server/discover", "params": {}}));
        assert_eq!((&found["id"], &found["result"]["supportedVersions"]), (&json!("a"), &json!([REVISION_MODERN])));
        let tools = answer(json!({"id": 2, "method": "tools/list"}));
        assert_eq!(
            (&tools["result"]["tools"][0]["name"], &tools["result"]["resultType"]),
            (&json!("annie"), &json!("complete"))
        );
    }

    #[test]
    fn mcp_server_refuses_what_it_does_not_know() {
        let call = |params: Value| json!({"id": 3, "method": "tools/call", "params": params});
        for (message, code) in [
            (json!({"id": 1, "method": "resources/list"}), NO_METHOD),
            (json!({"id": 1}), NO_REQUEST),
            (call(json!({"name": "other"})), BAD_PARAMS),
            (call(json!({"name": "annie", "arguments": {"message": " "}})), BAD_PARAMS),
            (call(json!({"name": "annie", "arguments": {"message": "x", "conversation": 7}})), BAD_PARAMS),
        ] {
            assert_eq!(answer(message.clone())["error"]["code"], code, "{message}");
        }
        assert_eq!(asked("{"), Asked::Answer(error(&Value::Null, NOT_JSON, "this line is not JSON")));
        assert_eq!(asked(r#"{"method":"notifications/initialized"}"#), Asked::Nothing);
        let sent = asked(&call(json!({"name": "annie", "arguments": {"message": "hi"}})).to_string());
        let wanted = Asked::Message { id: json!(3), text: "hi".to_owned(), conversation: CONVERSATION.to_owned() };
        assert_eq!(sent, wanted);
    }
}
