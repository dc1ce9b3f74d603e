//! The part that completions and responses share: starting a turn for a client, and its result.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use annie_actors::{Follow, KernelError, Submitted};
use annie_core::{
    caller::CallerRequest,
    event::{Event, EventBody, FinalEvent, Mode, Scope},
    ids::{ConversationId, TaskId, UserId},
    message::{Finish, ToolCall, Usage},
};
use axum::{
    http::HeaderMap,
    response::{
        IntoResponse, Response, Sse,
        sse::{Event as Sent, KeepAlive},
    },
};
use futures_util::stream;
use serde_json::json;

use super::attempt::Attempt;
use crate::{
    api::{AppState, ConversationRef, Feed, FeedItem, Message, MessageOptions, submission},
    auth::{Caller, KeyScope},
    error::{ApiError, Code},
    http::stream::unbuffered,
};

/// The interval of keep-alive comments on a silent stream.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The turn that a client requests.
pub struct TurnOptions {
    /// The conversation that the client names; absent means a new one.
    pub conversation_ref: Option<ConversationRef>,
    /// Whether lists leave the conversation out.
    pub stateless: bool,
    pub mode: Option<Mode>,
    pub text: String,
    /// Earlier messages, for a conversation that the kernel does not know.
    pub preamble: Vec<(String, String)>,
    pub request: CallerRequest,
}

/// The maximum wait for a completion that is not streamed, in seconds. OpenAI's libraries abandon a request after 600 s, and a
/// client that has disconnected receives nothing.
const WAIT_S_MAX: u64 = 480;

/// A turn in progress.
pub struct Begun {
    pub task: TaskId,
    pub conversation: ConversationId,
    /// Whether the same request was received before.
    pub repeated: bool,
    /// Whether the client may repeat the request and gets the answer of the same turn: it sent an id, or it numbers its
    /// attempts.
    pub is_repeatable: bool,
    pub feed: Feed,
    pub guard: WaitGuard,
}

impl Begun {
    /// Waits for the final event of the turn.
    ///
    /// # Errors
    /// If the wait ends before the turn. The message is stored in this case, and the error says so.
    pub async fn end(self, state: &AppState) -> Result<Arc<Event>, ApiError> {
        let Self { task, conversation, is_repeatable, feed, mut guard, .. } = self;
        let wait_s = state.limits.wait_s_max.min(WAIT_S_MAX);
        let mut feed = feed.at_most(Duration::from_secs(wait_s));
        let of_stored = |error: ApiError| if is_repeatable { error } else { error.of_stored() };
        if let Some(event) = feed.last().await.map_err(of_stored)? {
            guard.mark_answered();
            return Ok(event);
        }
        let (code, why) = if state.shared.is_closing() {
            (Code::Unavailable, "the server is stopping".to_owned())
        } else {
            (Code::DeadlineExceeded, format!("the answer takes longer than {wait_s} s; ask for a stream"))
        };
        let turn = if guard.cancel_now().await {
            "the turn is being cancelled".to_owned()
        } else {
            format!("the turn goes on as {task} in {conversation}{}", guard.remaining_time())
        };
        Err(of_stored(ApiError::new(code, format!("{why}; {turn}"))))
    }
}

/// The error for a stream that ends before the answer. The client can still read the answer later.
pub fn cut_off(task: TaskId) -> ApiError {
    let why =
        format!("the stream ended before the answer; the turn goes on as {task}: look there before you ask again");
    ApiError::new(Code::Unavailable, why).of_stored()
}

/// Submits the message and follows its turn.
pub async fn begin(
    state: &AppState,
    caller: Caller,
    (key, attempt): (Option<String>, Option<Attempt>),
    options: TurnOptions,
) -> Result<Begun, ApiError> {
    // Taken before the message is stored: if no slot is free, the client is refused and sends the message again.
    let slot = state.slot(&caller).inspect_err(|_| attempt.iter().for_each(|attempt| attempt.refused(state)))?;
    let is_nameless = options.conversation_ref.is_none();
    let preamble =
        if is_known(state, &caller, options.conversation_ref.as_ref()).await? { Vec::new() } else { options.preamble };
    let is_keyed = key.is_some();
    let message = Message {
        text: options.text,
        conversation_ref: options.conversation_ref.unwrap_or(ConversationRef::New),
        mode: options.mode,
        priority: None,
        client_id: key,
        preamble,
        // A tool result is not a job command.
        options: MessageOptions { verbatim: options.request.thread.is_some(), ..MessageOptions::default() },
    };
    let request = Some(Box::new(options.request)).filter(|request| **request != CallerRequest::default());
    let model_message = ModelMessage { message, stateless: options.stateless, request };
    let Accepted { submitted, follow, is_repeatable } =
        submit_attempt(state, &caller, attempt.as_ref(), model_message).await?;
    // With a key the client will ask for the answer again, or a repeat follows the same turn already.
    let guard = WaitGuard::new(state, caller.scope(), submitted.task, attempt.is_some(), is_nameless && !is_keyed);
    let feed = Feed::of(state, &caller, slot, follow, Some(submitted.task));
    let (task, conversation, repeated) = (submitted.task, submitted.conversation, submitted.repeated);
    Ok(Begun { task, conversation, repeated, is_repeatable, feed, guard })
}

/// A message with its options for the kernel.
#[derive(Clone)]
struct ModelMessage {
    message: Message,
    stateless: bool,
    request: Option<Box<CallerRequest>>,
}

/// A message that was accepted.
struct Accepted {
    submitted: Submitted,
    follow: Follow,
    is_repeatable: bool,
}

/// Stores the message, or finds the message of an earlier attempt. Equal requests that are not attempts of the same request are
/// separate messages.
async fn submit_attempt(
    state: &AppState,
    caller: &Caller,
    attempt: Option<&Attempt>,
    mut model_message: ModelMessage,
) -> Result<Accepted, ApiError> {
    let Some(attempt) = attempt else { return submit(state, caller, model_message).await };
    if let Some(earlier) = attempt.earlier() {
        model_message.message.client_id = Some(earlier.to_owned());
        return submit(state, caller, model_message).await;
    }
    let result = submit_new_attempt(state, caller, attempt, model_message).await;
    match &result {
        Ok(_) => attempt.accepted(state),
        Err(error) if matches!(error.code, Code::QueueFull | Code::TooSoon) => attempt.refused(state),
        // The message may be stored.
        Err(_) => {}
    }
    result
}

async fn submit_new_attempt(
    state: &AppState,
    caller: &Caller,
    attempt: &Attempt,
    model_message: ModelMessage,
) -> Result<Accepted, ApiError> {
    while let Some(id) = attempt.new_id(state) {
        let mut model_message = model_message.clone();
        model_message.message.client_id = Some(id);
        match submit(state, caller, model_message).await {
            // An earlier run of this process, or another process, gave the id to an equal request.
            Ok(result) if result.submitted.repeated => {}
            Err(error) if error.code == Code::Conflict => {}
            result => return result,
        }
    }
    submit(state, caller, model_message).await
}

async fn submit(state: &AppState, caller: &Caller, model_message: ModelMessage) -> Result<Accepted, ApiError> {
    let mut submission = submission(state, caller, "openai", model_message.message).await?;
    (submission.stateless, submission.request) = (model_message.stateless, model_message.request);
    let is_repeatable = submission.client_id.is_some();
    if state.shared.is_closing() {
        return Err(ApiError::new(Code::Unavailable, "annie is shutting down").retry_in_ms(1_000));
    }
    let submitted_result = state.kernel.ask(submission).await;
    let (submitted, follow) =
        submitted_result.map_err(|error| if is_repeatable { error.into() } else { not_acknowledged(error) })?;
    Ok(Accepted { submitted, follow, is_repeatable })
}

/// The error for a message without an id that was not acknowledged. A failed append may be stored nevertheless, and without an
/// id the client cannot find out. A message that was refused before its append is not stored ([`KernelError::NotReady`]).
fn not_acknowledged(error: KernelError) -> ApiError {
    let may_be_stored = matches!(error, KernelError::Unavailable(_) | KernelError::Store(_));
    let mut error = ApiError::from(error);
    if may_be_stored {
        error.detail.push_str("; the message may be stored nevertheless; with an Idempotency-Key it could be repeated");
        error = error.of_stored();
    }
    error
}

/// Adds a header with the id of the conversation.
pub fn name_conversation(response: &mut Response, conversation: ConversationId) {
    if let Ok(id) = conversation.to_string().parse() {
        response.headers_mut().insert("x-annie-conversation", id);
    }
}

/// The caller for whom a trusted chat page acts: the user in Open WebUI's header, if the key has the scope `impersonate`.
pub fn on_behalf(mut caller: Caller, headers: &HeaderMap) -> Result<Caller, ApiError> {
    const HEADER: &str = "x-openwebui-user-id";
    if caller.grants.has(KeyScope::Impersonate)
        && !headers.contains_key(crate::auth::USER_HEADER)
        && let Some(user) = headers.get(HEADER)
    {
        let user = user.to_str().unwrap_or_default();
        caller.user = UserId::new(user).map_err(|e| ApiError::from(e).at(HEADER))?;
    }
    Ok(caller)
}

/// Whether the conversation has a history in the store.
async fn is_known(
    state: &AppState,
    caller: &Caller,
    conversation_ref: Option<&ConversationRef>,
) -> Result<bool, ApiError> {
    let id = match conversation_ref {
        Some(ConversationRef::Key(key)) => annie_core::ids::ConversationId::for_key(&caller.user, key),
        Some(ConversationRef::Id(_)) => return Ok(true),
        Some(ConversationRef::New) | None => return Ok(false),
    };
    Ok(state.kernel.has_conversation_of_key(caller.scope(), id).await?)
}

/// The result of a turn for a client.
pub struct Answer<'a> {
    pub text: &'a str,
    pub calls: &'a [ToolCall],
    pub finish: Finish,
    pub usage: Option<&'a Usage>,
}

impl<'a> Answer<'a> {
    /// The answer of a final event; nothing if the turn failed.
    pub fn of(body: &'a EventBody) -> Option<Self> {
        match body.as_final()? {
            FinalEvent::Answered { text, calls, finish, usage, .. } => {
                Some(Self { text, calls, finish, usage: Some(usage) })
            }
            // OpenAI's libraries know a content filter as a finish reason, not as an error.
            FinalEvent::Failed { code: "model_content", .. } => {
                Some(Self { text: "", calls: &[], finish: Finish::ContentFilter, usage: None })
            }
            FinalEvent::Failed { .. } => None,
            FinalEvent::Cancelled { text } => Some(Self { text, calls: &[], finish: Finish::Stop, usage: None }),
        }
    }

    pub const fn finish_reason(&self) -> &'static str {
        match self.finish {
            _ if !self.calls.is_empty() => "tool_calls",
            Finish::Length => "length",
            Finish::ContentFilter => "content_filter",
            Finish::Stop | Finish::ToolCalls => "stop",
        }
    }
}

/// The error for a failed turn. Its message is stored, and its effects up to the failure have happened.
pub fn failed(body: &EventBody) -> ApiError {
    let EventBody::Failed { code, text, .. } = body else {
        return ApiError::internal("a turn ended without a final event").of_stored();
    };
    let kind = match code.as_str() {
        "context_overflow" => Code::ContextTooLong,
        "model_rate_limited" => Code::RateLimited,
        "model_unavailable" | "model_timeout" => Code::Unavailable,
        "refused_by_rule" => Code::Forbidden,
        _ => Code::TurnFailed,
    };
    ApiError::new(kind, text).with_facts(json!({ "error": code })).of_stored()
}

/// Converts the items of a feed into the events of a stream.
pub trait Pieces: Send + 'static {
    /// Processes an item of the feed.
    fn take(&mut self, item: Result<Option<FeedItem>, ApiError>);
    /// The events that are ready: the name of the event, if any, and its data.
    fn ready(&mut self) -> &mut VecDeque<(Option<&'static str>, String)>;
    /// Whether no more events will follow.
    fn is_over(&self) -> bool;
}

/// A stream of server-sent events.
pub fn streamed(feed: Feed, pieces: impl Pieces, guard: WaitGuard) -> Response {
    let parts = stream::unfold((feed, pieces, guard), |(mut feed, mut pieces, mut guard)| async move {
        loop {
            if let Some((name, data)) = pieces.ready().pop_front() {
                let sent = Sent::default().data(data);
                let sent = if let Some(name) = name { sent.event(name) } else { sent };
                return Some((Ok::<Sent, Infallible>(sent), (feed, pieces, guard)));
            }
            if pieces.is_over() {
                return None;
            }
            let item = feed.next().await;
            let is_answer = matches!(&item, Ok(Some(FeedItem::Event(e))) if e.task == guard.task && e.body.is_final());
            pieces.take(item);
            if is_answer {
                guard.mark_answered();
            } else if pieces.is_over() {
                guard.cancels = false;
            }
        }
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("still at work");
    let mut response = Sse::new(parts).keep_alive(keep_alive).into_response();
    unbuffered(&mut response);
    response
}

/// A response that waits for a turn. When no response waits any more for a turn without a conversation and without a key, its
/// answer can never be read, so the turn is cancelled: at once if the client does not number its attempts, else when no further
/// attempt arrived in time.
pub struct WaitGuard {
    state: AppState,
    scope: Scope,
    task: TaskId,
    is_numbered: bool,
    cancels: bool,
}

impl WaitGuard {
    fn new(state: &AppState, scope: Scope, task: TaskId, is_numbered: bool, cancels: bool) -> Self {
        state.shared.attempts.wait(task);
        Self { state: state.clone(), scope, task, is_numbered, cancels }
    }

    /// Records that the answer was delivered: a later attempt means another turn.
    fn mark_answered(&mut self) {
        self.cancels = false;
        if self.is_numbered {
            self.state.shared.attempts.answer(self.task);
        }
    }

    /// Describes how long the turn continues without a waiting response; empty if it is not cancelled.
    fn remaining_time(&self) -> String {
        if !self.cancels {
            return String::new();
        }
        format!(", and is cancelled if this request is not sent again within {} ms", self.state.limits.attempt_ms_max)
    }

    /// Cancels the turn if no further attempt is expected. Returns whether it is cancelled.
    async fn cancel_now(&mut self) -> bool {
        if !self.cancels || self.is_numbered {
            return false;
        }
        self.cancels = false;
        cancel(&self.state, self.scope.clone(), self.task).await
    }
}

async fn cancel(state: &AppState, scope: Scope, task: TaskId) -> bool {
    let cancelled = state.kernel.cancel(scope, task, "the client went away").await;
    cancelled.inspect_err(|error| tracing::debug!(%error, %task, "an abandoned task could not be cancelled")).is_ok()
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.state.shared.attempts.leave(self.task);
        if !self.cancels {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (state, scope, task, is_numbered) = (self.state.clone(), self.scope.clone(), self.task, self.is_numbered);
        runtime.spawn(async move {
            if is_numbered {
                tokio::time::sleep(Duration::from_millis(state.limits.attempt_ms_max)).await;
            }
            if !state.shared.attempts.is_waited_for(task) {
                cancel(&state, scope, task).await;
            }
        });
    }
}
