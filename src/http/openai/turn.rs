//! What completions and responses have in common: a turn that is begun for a client, and what it came to.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use annie_actors::{Follow, KernelError, Submitted};
use annie_core::{
    caller::CallerRequest,
    event::{Event, EventBody, Mode, Scope},
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
    auth::{Caller, KeyScope},
    door::{AppState, Feed, FeedItem, Message, Where, Wish, submission},
    error::{Code, Fault},
    http::stream::unbuffered,
};

/// After so long a silence a comment is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A turn as a client wants it.
pub struct TurnWish {
    /// Where the client means it to be said; nothing is a conversation of its own.
    pub place: Option<Where>,
    /// Lists leave the conversation out.
    pub stateless: bool,
    pub mode: Option<Mode>,
    pub text: String,
    /// What was said before, for a conversation that the kernel does not know.
    pub preamble: Vec<(String, String)>,
    pub request: CallerRequest,
}

/// How long a completion that is not streamed waits for its answer at most, in seconds: OpenAI's libraries give a request up
/// after 600 s, and a client that has hung up is told nothing.
const WAIT_S_MAX: u64 = 480;

/// A turn under way.
pub struct Begun {
    pub task: TaskId,
    pub conversation: ConversationId,
    /// The same request had come before.
    pub repeated: bool,
    /// The request may be repeated, and is answered by the same turn: its client gave an id, or numbers its attempts.
    pub is_repeatable: bool,
    pub feed: Feed,
    pub stay: Stay,
}

impl Begun {
    /// Waits for the final event of the turn.
    ///
    /// # Errors
    /// If the end could not be waited for. The message is stored by then, as each error says.
    pub async fn end(self, state: &AppState) -> Result<Arc<Event>, Fault> {
        let Self { task, conversation, is_repeatable, feed, mut stay, .. } = self;
        let wait_s = state.limits.wait_s_max.min(WAIT_S_MAX);
        let mut feed = feed.at_most(Duration::from_secs(wait_s));
        let of_stored = |fault: Fault| if is_repeatable { fault } else { fault.of_stored() };
        if let Some(event) = feed.last().await.map_err(of_stored)? {
            stay.ends_with_the_answer();
            return Ok(event);
        }
        let (code, why) = if state.doors.is_closing() {
            (Code::Unavailable, "the server is stopping".to_owned())
        } else {
            (Code::DeadlineExceeded, format!("the answer takes longer than {wait_s} s; ask for a stream"))
        };
        let turn = if stay.cancel_now().await {
            "the turn is being cancelled".to_owned()
        } else {
            format!("the turn goes on as {task} in {conversation}{}", stay.how_long())
        };
        Err(of_stored(Fault::new(code, format!("{why}; {turn}"))))
    }
}

/// Why a stream ends before the answer, which its client can still read.
pub fn cut_off(task: TaskId) -> Fault {
    let why =
        format!("the stream ended before the answer; the turn goes on as {task}: look there before you ask again");
    Fault::new(Code::Unavailable, why).of_stored()
}

/// Takes the message in and follows it.
pub async fn begin(
    state: &AppState,
    caller: Caller,
    (key, attempt): (Option<String>, Option<Attempt>),
    wish: TurnWish,
) -> Result<Begun, Fault> {
    // Before the message is stored: its sender is told that there is no place, and sends it again.
    let slot = state.slot(&caller).inspect_err(|_| attempt.iter().for_each(|attempt| attempt.refused(state)))?;
    let is_nameless = wish.place.is_none();
    let preamble = if is_known(state, &caller, wish.place.as_ref()).await? { Vec::new() } else { wish.preamble };
    let is_keyed = key.is_some();
    let message = Message {
        text: wish.text,
        place: wish.place.unwrap_or(Where::New),
        mode: wish.mode,
        priority: None,
        client_id: key,
        preamble,
        // A result of a tool is no order about tasks.
        wish: Wish { verbatim: wish.request.thread.is_some(), ..Wish::default() },
    };
    let request = Some(Box::new(wish.request)).filter(|request| **request != CallerRequest::default());
    let said = Said { message, stateless: wish.stateless, request };
    let Taken { submitted, follow, is_repeatable } = take_in(state, &caller, attempt.as_ref(), said).await?;
    // With a key the client, or the repeat that follows the same turn already, comes for the answer.
    let stay = Stay::new(state, caller.scope(), submitted.task, attempt.is_some(), is_nameless && !is_keyed);
    let feed = Feed::of(state, &caller, slot, follow, Some(submitted.task));
    let (task, conversation, repeated) = (submitted.task, submitted.conversation, submitted.repeated);
    Ok(Begun { task, conversation, repeated, is_repeatable, feed, stay })
}

/// A message and what the kernel is told beside it.
#[derive(Clone)]
struct Said {
    message: Message,
    stateless: bool,
    request: Option<Box<CallerRequest>>,
}

/// A message that was taken in.
struct Taken {
    submitted: Submitted,
    follow: Follow,
    is_repeatable: bool,
}

/// Stores the message, or finds that of an earlier attempt. Equal requests that are no attempts of each other are messages of
/// their own.
async fn take_in(state: &AppState, caller: &Caller, attempt: Option<&Attempt>, mut said: Said) -> Result<Taken, Fault> {
    let Some(attempt) = attempt else { return ask(state, caller, said).await };
    if let Some(earlier) = attempt.earlier() {
        said.message.client_id = Some(earlier.to_owned());
        return ask(state, caller, said).await;
    }
    let taken = take_in_anew(state, caller, attempt, said).await;
    match &taken {
        Ok(_) => attempt.accepted(state),
        Err(fault) if matches!(fault.code, Code::QueueFull | Code::TooSoon) => attempt.refused(state),
        // Something may be stored.
        Err(_) => {}
    }
    taken
}

async fn take_in_anew(state: &AppState, caller: &Caller, attempt: &Attempt, said: Said) -> Result<Taken, Fault> {
    while let Some(id) = attempt.new_id(state) {
        let mut said = said.clone();
        said.message.client_id = Some(id);
        match ask(state, caller, said).await {
            // A former process, or another one, gave the id to an equal request.
            Ok(taken) if taken.submitted.repeated => {}
            Err(fault) if fault.code == Code::Conflict => {}
            taken => return taken,
        }
    }
    ask(state, caller, said).await
}

async fn ask(state: &AppState, caller: &Caller, said: Said) -> Result<Taken, Fault> {
    let mut submission = submission(state, caller, "openai", said.message).await?;
    (submission.stateless, submission.request) = (said.stateless, said.request);
    let is_repeatable = submission.client_id.is_some();
    if state.doors.is_closing() {
        return Err(Fault::new(Code::Unavailable, "annie is shutting down").retry_in_ms(1_000));
    }
    let asked = state.kernel.ask(submission).await;
    let (submitted, follow) =
        asked.map_err(|error| if is_repeatable { error.into() } else { not_acknowledged(error) })?;
    Ok(Taken { submitted, follow, is_repeatable })
}

/// Why a message without an id was not acknowledged. An append that failed or was lost may be stored all the same, and
/// without an id nobody can find out. What was refused before its append is not stored ([`KernelError::NotReady`]).
fn not_acknowledged(error: KernelError) -> Fault {
    let may_be_stored = matches!(error, KernelError::Unavailable(_) | KernelError::Store(_));
    let mut fault = Fault::from(error);
    if may_be_stored {
        fault
            .detail
            .push_str("; the message may be stored all the same, and with an Idempotency-Key it could be repeated");
        fault = fault.of_stored();
    }
    fault
}

/// Says in a header which conversation it was.
pub fn name_conversation(response: &mut Response, conversation: ConversationId) {
    if let Ok(id) = conversation.to_string().parse() {
        response.headers_mut().insert("x-annie-conversation", id);
    }
}

/// The caller for whom a trusted chat page asks: the user of Open WebUI's header if the key has `impersonate`.
pub fn on_behalf(mut caller: Caller, headers: &HeaderMap) -> Result<Caller, Fault> {
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
        Err(KernelError::NotFound(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What a turn came to, for a client.
pub struct Answer<'a> {
    pub text: &'a str,
    pub calls: &'a [ToolCall],
    pub finish: Finish,
    pub usage: Option<&'a Usage>,
}

impl<'a> Answer<'a> {
    /// Nothing if the turn failed.
    pub fn of(body: &'a EventBody) -> Option<Self> {
        match body {
            EventBody::Answered { text, calls, finish, usage, .. } => {
                Some(Self { text: text.as_str(), calls: calls.as_slice(), finish: *finish, usage: Some(usage) })
            }
            // Their libraries know this as the reason of an end, not as an error.
            EventBody::Failed { code, .. } if code == "model_content" => {
                Some(Self { text: "", calls: &[], finish: Finish::ContentFilter, usage: None })
            }
            EventBody::Cancelled { text } => {
                Some(Self { text: text.as_str(), calls: &[], finish: Finish::Stop, usage: None })
            }
            _ => None,
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

/// A turn's visible failure as an error of the door: its message is stored, and what it did until then is done.
pub fn failed(body: &EventBody) -> Fault {
    let EventBody::Failed { code, text, .. } = body else {
        return Fault::internal("a turn ended without a final event").of_stored();
    };
    let kind = match code.as_str() {
        "context_overflow" => Code::ContextTooLong,
        "model_rate_limited" => Code::RateLimited,
        "model_unavailable" | "model_timeout" => Code::Unavailable,
        _ => Code::TurnFailed,
    };
    Fault::new(kind, text).with_facts(json!({ "error": code })).of_stored()
}

/// What makes the pieces of a stream out of what a feed gives.
pub trait Pieces: Send + 'static {
    /// Takes in what the feed gave.
    fn take(&mut self, item: Result<Option<FeedItem>, Fault>);
    /// The pieces that are ready: the event's name, if it has one, and its data.
    fn ready(&mut self) -> &mut VecDeque<(Option<&'static str>, String)>;
    /// Whether nothing more will come.
    fn is_over(&self) -> bool;
}

/// A stream of server-sent events.
pub fn streamed(feed: Feed, pieces: impl Pieces, stay: Stay) -> Response {
    let parts = stream::unfold((feed, pieces, stay), |(mut feed, mut pieces, mut stay)| async move {
        loop {
            if let Some((name, data)) = pieces.ready().pop_front() {
                let sent = Sent::default().data(data);
                let sent = if let Some(name) = name { sent.event(name) } else { sent };
                return Some((Ok::<Sent, Infallible>(sent), (feed, pieces, stay)));
            }
            if pieces.is_over() {
                return None;
            }
            let item = feed.next().await;
            let is_answer = matches!(&item, Ok(Some(FeedItem::Event(e))) if e.task == stay.task && e.body.is_final());
            pieces.take(item);
            if is_answer {
                stay.ends_with_the_answer();
            } else if pieces.is_over() {
                stay.cancels = false;
            }
        }
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("still at work");
    let mut response = Sse::new(parts).keep_alive(keep_alive).into_response();
    unbuffered(&mut response);
    response
}

/// A response that waits for a turn. When nobody waits any more for a turn without a conversation and without a key, nobody
/// will ever read its answer: it is cancelled, at once if its client does not number its attempts, and otherwise when no
/// further attempt came in time.
pub struct Stay {
    state: AppState,
    scope: Scope,
    task: TaskId,
    is_numbered: bool,
    cancels: bool,
}

impl Stay {
    fn new(state: &AppState, scope: Scope, task: TaskId, is_numbered: bool, cancels: bool) -> Self {
        state.doors.attempts.wait(task);
        Self { state: state.clone(), scope, task, is_numbered, cancels }
    }

    /// The answer was given: a later attempt does not mean this turn.
    fn ends_with_the_answer(&mut self) {
        self.cancels = false;
        if self.is_numbered {
            self.state.doors.attempts.answer(self.task);
        }
    }

    /// Until when the turn goes on though nobody waits for it, in words.
    fn how_long(&self) -> String {
        if !self.cancels {
            return String::new();
        }
        format!(", and is cancelled if this request is not sent again within {} ms", self.state.limits.attempt_ms_max)
    }

    /// Cancels the turn if no attempt is to be expected; whether it is cancelled.
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

impl Drop for Stay {
    fn drop(&mut self) {
        self.state.doors.attempts.leave(self.task);
        if !self.cancels {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (state, scope, task, is_numbered) = (self.state.clone(), self.scope.clone(), self.task, self.is_numbered);
        runtime.spawn(async move {
            if is_numbered {
                tokio::time::sleep(Duration::from_millis(state.limits.attempt_ms_max)).await;
            }
            if !state.doors.attempts.is_waited_for(task) {
                cancel(&state, scope, task).await;
            }
        });
    }
}
