//! `POST /v1/chat/completions`: a message in, and its answer as one piece or as a stream.

use std::{convert::Infallible, time::Duration};

use annie_actors::Kernel;
use annie_core::{
    event::{EventBody, Scope},
    ids::{TaskId, UserId},
    message::Finish,
};
use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{
        IntoResponse, Response, Sse,
        sse::{Event as Sent, KeepAlive},
    },
};
use futures_util::stream;
use serde_json::{Value, json};

use super::{
    chunks::{Chunks, finish_reason, usage},
    request::ChatRequest,
};
use crate::{
    auth::{Caller, KeyScope},
    door::{AppState, Feed, Message, Where, Wish, submission},
    error::{Code, Fault},
    http::{extract::Body, messages::client_id, stream::unbuffered},
};

/// After so long a silence a comment is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// What every part of one completion says of itself.
#[derive(Debug, Clone)]
pub struct Label {
    pub id: String,
    pub created_s: i64,
    pub model: String,
}

/// The handler.
pub async fn complete(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    Body(request): Body<ChatRequest>,
) -> Result<Response, Fault> {
    request.check()?;
    let mode = request.mode()?;
    let said = request.said()?;
    let caller = on_behalf(caller, &headers)?;
    let place = request.conversation(&headers);
    let ephemeral = place.is_none();
    let preamble = if is_known(&state, &caller, place.as_ref()).await? { Vec::new() } else { said.before };
    let message = Message {
        text: said.text,
        place: place.unwrap_or(Where::New),
        mode,
        priority: None,
        client_id: client_id(None, &headers)?,
        preamble,
        wish: Wish::default(),
    };
    let submission = submission(&state, &caller, "openai", message).await?;
    let (submitted, follow) = state.kernel.ask(submission).await?;
    let label = Label {
        id: format!("chatcmpl-{}", submitted.task.uuid().simple()),
        created_s: state.kernel.now().0 / 1_000_000,
        model: request.model,
    };
    let abandon = ephemeral.then(|| Abandon::new(&state.kernel, caller.scope(), submitted.task));
    let feed = Feed::of(&state, &caller, follow, Some(submitted.task))?;
    let mut response = if request.stream == Some(true) {
        let with_usage = request.stream_options.and_then(|o| o.include_usage) == Some(true);
        // Of a repeat, drafts may have gone by: only the whole answer is sure.
        let chunks = Chunks::new(label, submitted.task, !submitted.repeated, with_usage);
        streamed(feed, chunks, abandon)
    } else {
        let feed = feed.at_most(Duration::from_secs(state.limits.wait_s_max));
        Json(whole(feed, &label, abandon).await?).into_response()
    };
    if let Ok(id) = submitted.conversation.to_string().parse() {
        response.headers_mut().insert("x-annie-conversation", id);
    }
    Ok(response)
}

/// A chat page that is trusted to says for which of its users it asks.
fn on_behalf(mut caller: Caller, headers: &HeaderMap) -> Result<Caller, Fault> {
    const HEADER: &str = "x-openwebui-user-id";
    if caller.grants.has(KeyScope::Impersonate)
        && !headers.contains_key(crate::auth::USER_HEADER)
        && let Some(user) = headers.get(HEADER)
    {
        let user = user.to_str().unwrap_or_default();
        caller.user = UserId::new(user).map_err(|e| Fault::from(e).at(HEADER))?;
    }
    Ok(caller)
}

/// Whether the conversation has a history of its own.
async fn is_known(state: &AppState, caller: &Caller, place: Option<&Where>) -> Result<bool, Fault> {
    let id = match place {
        Some(Where::Key(key)) => annie_core::ids::ConversationId::for_key(&caller.user, key),
        Some(Where::Id(_)) => return Ok(true),
        Some(Where::New) | None => return Ok(false),
    };
    match state.kernel.conversation(caller.scope(), id).await {
        Ok(_) => Ok(true),
        Err(annie_actors::KernelError::NotFound(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The answer in one piece.
async fn whole(mut feed: Feed, label: &Label, mut abandon: Option<Abandon>) -> Result<Value, Fault> {
    let Some(event) = feed.last().await? else {
        let why = "the answer takes longer than may be waited for here; ask for a stream";
        return Err(Fault::new(Code::DeadlineExceeded, why));
    };
    Abandon::disarm(&mut abandon);
    let (text, cost, reason) = match &event.body {
        EventBody::Answered { text, usage: cost, finish, .. } => (text, usage(cost), finish_reason(*finish)),
        EventBody::Cancelled { text } => (text, Value::Null, finish_reason(Finish::Stop)),
        body => return Err(failed(body)),
    };
    Ok(json!({
        "id": label.id, "object": "chat.completion", "created": label.created_s, "model": label.model,
        "choices": [{
            "index": 0, "message": { "role": "assistant", "content": text, "refusal": null }, "finish_reason": reason,
            "logprobs": null,
        }],
        "usage": cost,
    }))
}

/// A turn's visible failure as an error of the door.
pub fn failed(body: &EventBody) -> Fault {
    let EventBody::Failed { code, text, .. } = body else {
        return Fault::internal("a turn ended without a final event");
    };
    let kind = match code.as_str() {
        "context_overflow" => Code::ContextTooLong,
        "model_rate_limited" => Code::RateLimited,
        "model_unavailable" | "model_timeout" => Code::Unavailable,
        _ => Code::TurnFailed,
    };
    Fault::new(kind, text).with_facts(json!({ "error": code }))
}

fn streamed(feed: Feed, chunks: Chunks, abandon: Option<Abandon>) -> Response {
    let parts = stream::unfold((feed, chunks, abandon), |(mut feed, mut chunks, mut abandon)| async move {
        loop {
            if let Some(data) = chunks.pop() {
                return Some((Ok::<Sent, Infallible>(Sent::default().data(data)), (feed, chunks, abandon)));
            }
            if chunks.is_over() {
                return None;
            }
            chunks.take(feed.next().await);
            if chunks.is_over() {
                Abandon::disarm(&mut abandon);
            }
        }
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("still at work");
    let mut response = Sse::new(parts).keep_alive(keep_alive).into_response();
    unbuffered(&mut response);
    response
}

/// Cancels the task of a request that nobody waits for any more: without a conversation nobody will ever read its answer.
struct Abandon {
    kernel: Kernel,
    scope: Scope,
    task: TaskId,
    armed: bool,
}

impl Abandon {
    fn new(kernel: &Kernel, scope: Scope, task: TaskId) -> Self {
        Self { kernel: kernel.clone(), scope, task, armed: true }
    }

    fn disarm(abandon: &mut Option<Self>) {
        if let Some(abandon) = abandon {
            abandon.armed = false;
        }
    }
}

impl Drop for Abandon {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (kernel, scope, task) = (self.kernel.clone(), self.scope.clone(), self.task);
        runtime.spawn(async move {
            if let Err(error) = kernel.cancel(scope, task, "the client went away").await {
                tracing::debug!(%error, %task, "an abandoned task could not be cancelled");
            }
        });
    }
}
