//! `POST /mcp`: Annie as an MCP server over HTTP (ADR 0062). Each request gets one JSON answer: there is no session, and no stream.

use std::{sync::Arc, time::Duration};

use annie_actors::{CommandCaller, Kernel};
use annie_core::{approval::CLIENT, context::direct_tool_name, skill::SkillSpec};
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    extract::{Body, header_text},
    messages::submit_and_wait,
    problem::Problem,
};
use crate::{
    api::{AppState, ConversationRef, Message, MessageOptions, submission},
    auth::{Caller, KeyScope},
    error::{ApiError, Code},
    mcp::{
        self, ANNIE, Asked, Call, NOT_JSON, annie_tool, answer_of, asked, is_known_revision, listed, no_such_tool,
        not_run, ran, to_annie, tool_of, unanswered, unknown_revision,
    },
};

/// The source of messages and runs, for classes and hooks.
const SOURCE: &str = "mcp";
/// The header with the revision that a client has agreed on.
const REVISION: &str = "mcp-protocol-version";
/// How long a call of `annie` waits for the answer, in seconds. The official clients wait 300 s for an answer by default.
const WAIT_S_MAX: u64 = 240;

/// A message of JSON-RPC 2.0: a request, or a notification if it has no id.
#[derive(Serialize, ToSchema)]
struct McpMessage {
    #[schema(pattern = "^2\\.0$")]
    jsonrpc: String,
    /// A text or a number.
    id: Option<Value>,
    /// `initialize`, `ping`, `tools/list`, `tools/call` or `server/discover`.
    method: String,
    params: Option<Value>,
}

/// An answer of JSON-RPC 2.0.
#[derive(Serialize, ToSchema)]
struct McpAnswer {
    jsonrpc: String,
    /// The id of the request.
    id: Value,
    #[schema(value_type = Option<Object>)]
    result: Option<Value>,
    #[schema(value_type = Option<Object>)]
    error: Option<Value>,
}

/// Send a message of the Model Context Protocol. The tools are `annie`, which sends a message, and the skills on your own data.
#[utoipa::path(
    post, path = "/mcp", tag = "skills", request_body = McpMessage,
    responses(
        (status = 200, body = McpAnswer, description = "The answer to a request"),
        (status = 202, description = "A notification was received"),
        (status = "default", body = Problem, description = "Refused; a body that is not JSON is refused by an answer of JSON-RPC"),
    )
)]
pub async fn post_mcp(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    body: Result<Body<Value>, ApiError>,
) -> Result<Response, ApiError> {
    let message = match body {
        Ok(Body(message)) => message,
        Err(refused) if refused.code == Code::InvalidRequest => {
            let answer = mcp::error(&Value::Null, NOT_JSON, &refused.detail);
            return Ok((StatusCode::BAD_REQUEST, Json(answer)).into_response());
        }
        Err(refused) => return Err(refused),
    };
    if let Some(version) = header_text(&headers, REVISION)?.filter(|version| !is_known_revision(version)) {
        let answer = unknown_revision(&message["id"], version);
        return Ok((StatusCode::BAD_REQUEST, Json(answer)).into_response());
    }
    Ok(match asked(&message) {
        Asked::Nothing => StatusCode::ACCEPTED.into_response(),
        Asked::Answer(answer) => Json(answer).into_response(),
        Asked::Tools { id } => Json(listed(&id, &tools(&state, &caller))).into_response(),
        Asked::Call(call) => Json(answer_to(&state, &caller, call).await).into_response(),
    })
}

/// The tools of the caller. A key without the scope `chat` has none.
fn tools(state: &AppState, caller: &Caller) -> Vec<Value> {
    if caller.must(KeyScope::Chat).is_err() {
        return Vec::new();
    }
    let skills = skills(state).into_iter().map(|skill| tool_of(&skill));
    std::iter::once(annie_tool()).chain(skills).collect()
}

/// The skills that a command may run without a conversation.
fn skills(state: &AppState) -> Vec<Arc<SkillSpec>> {
    let all = state.kernel.catalog().skills();
    all.iter().filter(|skill| Kernel::runs_by_command(skill)).cloned().collect()
}

async fn answer_to(state: &AppState, caller: &Caller, call: Call) -> Value {
    if caller.must(KeyScope::Chat).is_err() {
        return no_such_tool(&call.id);
    }
    if call.tool == ANNIE {
        return ask(state, caller, &call).await;
    }
    let skill = skills(state).into_iter().find(|skill| direct_tool_name(&skill.name) == call.tool);
    let Some(skill) = skill else { return no_such_tool(&call.id) };
    // A model of the client makes the call, so no person has approved it, and the user did not write its arguments.
    let origins = vec![CLIENT.to_owned()];
    let by = CommandCaller { user: caller.user.clone(), source: SOURCE, may_approve: false, is_served: true, origins };
    let command = format!("{} {}", skill.name, call.arguments);
    let key = call.key.unwrap_or_else(|| new_key(state));
    match state.kernel.run_skill(by, &command, &key, false).await {
        Ok(run) => ran(&call.id, &run.outcome),
        Err(error) => not_run(&call.id, &ApiError::from(error).detail),
    }
}

fn new_key(state: &AppState) -> String {
    state.kernel.env().uuid().simple().to_string()
}

/// Sends the message of a call, and waits for the answer.
async fn ask(state: &AppState, caller: &Caller, call: &Call) -> Value {
    let asked = match to_annie(call) {
        Ok(asked) => asked,
        Err(refused) => return refused,
    };
    let message = Message {
        text: asked.text,
        conversation_ref: ConversationRef::Key(asked.conversation),
        mode: None,
        priority: None,
        client_id: Some(call.key.clone().unwrap_or_else(|| new_key(state))),
        preamble: Vec::new(),
        options: MessageOptions::default(),
    };
    let wait = Duration::from_secs(state.limits.wait_s_max.min(WAIT_S_MAX));
    let sent = match submission(state, caller, SOURCE, message).await {
        Ok(submission) => submit_and_wait(state, caller, submission, wait).await,
        Err(error) => Err(error),
    };
    match sent {
        Ok(accepted) => {
            let sent = serde_json::to_value(&accepted).unwrap_or_default();
            answer_of(&call.id, &sent).unwrap_or_else(|| unanswered(&call.id, &sent["task_id"]))
        }
        Err(error) => not_run(&call.id, &error.detail),
    }
}
