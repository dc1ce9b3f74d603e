//! `annie mcp serve`: Annie as an MCP server over stdin and stdout, in front of a running server. The tools are those of `POST /mcp`
//! (ADR 0062), to which all calls are passed on but one: a message to Annie is sent to `/api/v1/messages`, whose answer may take
//! longer than one request.

use futures_util::{
    future::BoxFuture,
    stream::{FuturesUnordered, StreamExt},
};
use serde_json::{Value, json};

use crate::{
    cli::{client::Client, failure::Failure, input::Input, site::Site},
    mcp::{ANNIE, Asked, Call, INTERNAL, KEY, NOT_JSON, answer_of, asked, error, not_run, to_annie, unanswered},
    system,
};

/// The most calls that are waited for at once. Further requests are read when one has ended.
const CALLS_MAX: usize = 16;
/// How long the server is asked to wait for an answer, in seconds: less than the client of the command line waits for a response.
const WAIT_S_MAX: u64 = 20;
/// How often it is asked. A turn of more than ten minutes is not waited for.
const WAITS_MAX: u32 = 30;
/// The pause before a server that has no room for a further waiting client is asked again, in milliseconds.
const PAUSE_MS: u64 = 1_000;

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
                Some(line) => match serde_json::from_str::<Value>(&line) {
                    Err(_) => site.console.json(&error(&Value::Null, NOT_JSON, "this line is not JSON"))?,
                    Ok(message) => match asked(&message) {
                        Asked::Nothing => {}
                        Asked::Answer(answer) => site.console.json(&answer)?,
                        Asked::Call(call) if call.tool == ANNIE => calls.push(Box::pin(send(&client, wait_s, call))),
                        Asked::Call(call) => calls.push(Box::pin(pass_on(&client, call.id, message))),
                        Asked::Tools { id } => calls.push(Box::pin(pass_on(&client, id, message))),
                    },
                },
            },
            Some(answer) = calls.next(), if !calls.is_empty() => site.console.json(&answer)?,
        }
    }
}

/// Passes a message on to the server. It has a key, so that a server that is restarted in between runs a call once.
async fn pass_on(client: &Client, id: Value, mut message: Value) -> Value {
    if message["method"] == "tools/call" && message["params"]["_meta"][KEY].is_null() {
        if !message["params"]["_meta"].is_object() {
            message["params"]["_meta"] = json!({});
        }
        message["params"]["_meta"][KEY] = new_key().into();
    }
    match client.post_idempotent("/mcp", &message).await {
        Ok(answer) => answer,
        Err(failure) => error(&id, INTERNAL, &failure.what),
    }
}

fn new_key() -> String {
    system::env().uuid().simple().to_string()
}

/// Sends a message to Annie and waits for its answer. Each further wait repeats the message under its id, so that a server that
/// is restarted in between answers it once.
async fn send(client: &Client, wait_s: u64, call: Call) -> Value {
    let asked = match to_annie(&call) {
        Ok(asked) => asked,
        Err(refused) => return refused,
    };
    let client_id = call.key.unwrap_or_else(new_key);
    let body = json!({"text": asked.text, "conversation_key": asked.conversation, "client_id": client_id});
    let path = format!("/api/v1/messages?wait={wait_s}");
    let mut task = Value::Null;
    for _ in 0..WAITS_MAX {
        let sent = match client.post_idempotent(&path, &body).await {
            Ok(sent) => sent,
            Err(failure) => return not_run(&call.id, &failure.what),
        };
        if let Some(answer) = answer_of(&call.id, &sent) {
            return answer;
        }
        task = sent["task_id"].clone();
        if !sent["not_waited"].is_null() {
            // Too many clients wait at the server.
            tokio::time::sleep(std::time::Duration::from_millis(PAUSE_MS)).await;
        }
    }
    unanswered(&call.id, &task)
}
