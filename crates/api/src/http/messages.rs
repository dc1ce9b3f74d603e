//! `POST /api/v1/messages`: accepts a message and, on request, waits for its answer.

use std::time::Duration;

use annie_actors::{Submission, Submitted};
use annie_core::{
    event::{Event, FinalEvent, Mode, Priority},
    ids::{ConversationId, TaskId},
    message::Usage,
    ports::{Address, TaskState},
};
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    extract::{Args, Body, header_text, whole_option},
    problem::Problem,
    schema,
};
use crate::{
    api::{AppState, ConversationRef, Feed, Message, MessageOptions, submission},
    auth::Caller,
    error::ApiError,
};

/// The header with the caller's message id.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// A message to Annie.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMessage {
    /// The text of the message.
    #[schema(min_length = 1)]
    text: String,
    /// The existing conversation to which the message belongs.
    #[serde(default)]
    #[schema(value_type = Option<schema::ConversationId>)]
    conversation_id: Option<String>,
    /// Alternatively a name of your own for the conversation: the same name always selects the same conversation of the same
    /// user.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 512)]
    conversation_key: Option<String>,
    /// The mode of the turn: `multi_agent`, `single_loop` or `direct`.
    #[serde(default)]
    #[schema(value_type = Option<schema::Mode>)]
    mode: Option<Mode>,
    /// `high`, `normal`, `low` or `background`; with the source `voice` also `realtime`. If absent, the server decides by the
    /// source and the text.
    #[serde(default)]
    #[schema(value_type = Option<schema::Priority>)]
    priority: Option<Priority>,
    /// `voice` for a spoken message, which requires the scope `voice` and runs at once, outside the queue; `cli` for a message
    /// that was typed at the command line. Absent for all others.
    #[serde(default)]
    #[schema(pattern = "^(voice|cli)$")]
    source: Option<String>,
    /// Join the running turn of the conversation, if there is one, instead of waiting for it to end.
    #[serde(default)]
    steer: bool,
    /// A name for the work: if an equal message with the same name is still waiting, the work is done once for both.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200)]
    name: Option<String>,
    /// Only local backends may process the message.
    #[serde(default)]
    private: bool,
    /// The user's emotion, if the client knows it.
    #[serde(default)]
    emotion: Option<Feeling>,
    /// The message does not start before this time, RFC 3339.
    #[serde(default)]
    #[schema(format = DateTime)]
    not_before: Option<String>,
    /// Alternatively, the message does not start before this delay, in milliseconds.
    #[serde(default, deserialize_with = "whole_option")]
    #[schema(maximum = 31_622_400_000_u64)]
    delay_ms: Option<u64>,
    /// The message starts after these tasks of yours have ended, whatever their outcome; at most 64.
    #[serde(default)]
    #[schema(value_type = Vec<schema::TaskId>, max_items = 64)]
    after: Vec<String>,
    /// Never interpret the text as a job command (such as "cancel that"): for clients that only forward messages.
    #[serde(default)]
    verbatim: bool,
    /// Deliver the final text to this address, whether or not a client waits for it.
    #[serde(default)]
    reply_to: Option<ReplyTo>,
    /// Your id for the message. If the same id is sent again, the message is acknowledged again but not run again. Also
    /// accepted as the header `Idempotency-Key`.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200)]
    client_id: Option<String>,
}

/// The user's emotion.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Feeling {
    /// `neutral`, `frustrated`, `stressed`, `happy`, `tired` or `curious`, or a common synonym of an emotion recogniser.
    name: String,
    /// The confidence, from 0 to 1.
    #[schema(minimum = 0, maximum = 1)]
    intensity: f32,
}

/// An address of a channel.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplyTo {
    /// The name of a channel of the configuration.
    #[schema(min_length = 1, max_length = 40)]
    channel: String,
    /// The recipient, in the form of the channel, such as a chat or a thread.
    #[schema(min_length = 1, max_length = 256)]
    to: String,
}

impl From<Address> for ReplyTo {
    fn from(Address { channel, to }: Address) -> Self {
        Self { channel, to }
    }
}

impl From<ReplyTo> for Address {
    fn from(ReplyTo { channel, to }: ReplyTo) -> Self {
        Self { channel, to }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Wait {
    /// Wait up to this many seconds for the answer: at most `api.wait_s_max` of the configuration, 600 by default.
    #[param(maximum = 600)]
    wait: Option<u64>,
}

/// The message is stored. It will get exactly one answer or one visible failure.
#[derive(Debug, Serialize, ToSchema)]
pub struct Accepted {
    #[schema(value_type = schema::TaskId)]
    task_id: TaskId,
    #[schema(value_type = schema::ConversationId)]
    conversation_id: ConversationId,
    /// The sequence number of the message in the log. Stream the events after it for the answer.
    seq: u64,
    /// Whether the same message was received before.
    repeated: bool,
    /// The class that was assigned.
    #[schema(value_type = schema::Priority)]
    priority: Priority,
    /// Whether the message is a job command, which is carried out at once without a model.
    is_job_command: bool,
    /// The waiting task with the same work, whose answer is also the answer of this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::TaskId>)]
    same_as: Option<TaskId>,
    /// The position in the queue, from 1; absent for a repeat, a job command and a steering message.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<usize>,
    /// The estimated time until the first round starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    start_in_ms: Option<u64>,
    /// Why the server did not wait for the end although `wait` was given. The message is stored: follow the conversation's
    /// stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_waited: Option<String>,
    /// How the turn ended, if it ended within `wait`.
    #[serde(flatten)]
    ending: Option<Ending>,
}

impl From<Submitted> for Accepted {
    fn from(submitted: Submitted) -> Self {
        let place = submitted.place.as_ref();
        Self {
            task_id: submitted.task,
            conversation_id: submitted.conversation,
            seq: submitted.seq.0,
            repeated: submitted.repeated,
            priority: submitted.priority,
            is_job_command: submitted.is_job_command,
            same_as: place.and_then(|p| p.same_as),
            position: place.map(|p| p.position),
            start_in_ms: place.map(|p| p.start_in_ms),
            not_waited: None,
            ending: None,
        }
    }
}

impl Accepted {
    /// The acknowledgement of a stored message whose end cannot be waited for.
    fn not_waited(mut self, error: &ApiError) -> Self {
        tracing::warn!(%error, task = %self.task_id, "an answer could not be waited for");
        self.not_waited = Some(error.to_string());
        self
    }
}

/// How a turn ended.
#[derive(Debug, Serialize, ToSchema)]
pub struct Ending {
    /// `completed`, `failed` or `cancelled`.
    #[schema(value_type = schema::TaskState)]
    status: TaskState,
    /// The text of the answer.
    answer: String,
    /// Whether the turn reached a limit. A message "continue" continues it.
    paused: bool,
    /// Of a completed task: `done`, `paused`, `declined`, `no_action`, `gave_up` or `incomplete`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::AnswerOutcome>)]
    outcome: Option<&'static str>,
    /// The error code of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The token usage of the turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    usage: Option<Usage>,
}

impl Ending {
    /// The ending in a final event; nothing for other events.
    fn of(event: &Event) -> Option<Self> {
        let plain = |status, answer: &str| Self {
            status,
            answer: answer.to_owned(),
            paused: false,
            outcome: None,
            error: None,
            usage: None,
        };
        Some(match event.body.as_final()? {
            FinalEvent::Answered { text, paused, usage, outcome, finish, .. } => Self {
                paused,
                outcome: Some(outcome.word(paused, finish)),
                usage: Some(*usage),
                ..plain(TaskState::Completed, text)
            },
            FinalEvent::Failed { code, text, .. } => {
                Self { error: Some(code.to_owned()), ..plain(TaskState::Failed, text) }
            }
            FinalEvent::Cancelled { text } => plain(TaskState::Cancelled, text),
        })
    }
}

/// Send a message.
#[utoipa::path(
    post, path = "/api/v1/messages", tag = "chat", request_body = NewMessage,
    params(Wait),
    responses(
        (status = 202, body = Accepted, description = "Stored; the answer arrives on the conversation's stream"),
        (status = 200, body = Accepted, description = "Stored, and ended within `wait`"),
        (status = "default", body = Problem, description = "Refused; nothing was stored, unless the code is `unavailable`"),
    )
)]
pub async fn post_message(
    State(state): State<AppState>,
    caller: Caller,
    Args(Wait { wait }): Args<Wait>,
    headers: HeaderMap,
    Body(new): Body<NewMessage>,
) -> Result<Response, ApiError> {
    let max = state.limits.wait_s_max;
    if wait.is_some_and(|s| s > max) {
        return Err(ApiError::invalid(format!("at most {max} s can be waited; follow the stream instead")).at("wait"));
    }
    let message = Message {
        conversation_ref: conversation_ref(new.conversation_id, new.conversation_key)?,
        client_id: client_id(new.client_id, &headers)?,
        text: new.text,
        mode: new.mode,
        priority: new.priority,
        preamble: Vec::new(),
        options: MessageOptions {
            source: new.source,
            steer: new.steer,
            name: new.name,
            private: new.private,
            emotion: new.emotion.map(|e| (e.name, e.intensity)),
            not_before: new.not_before,
            delay_ms: new.delay_ms,
            after: new.after,
            verbatim: new.verbatim,
            reply_to: new.reply_to.map(Address::from),
        },
    };
    let submission = submission(&state, &caller, "http", message).await?;
    let accepted = match wait.filter(|s| *s > 0) {
        Some(seconds) => submit_and_wait(&state, &caller, submission, Duration::from_secs(seconds)).await?,
        None => Accepted::from(state.kernel.submit(submission).await?),
    };
    let status = if accepted.ending.is_some() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(accepted)).into_response())
}

/// Stores the message and waits for its answer. The follower begins before the message is stored, so that it receives every event
/// and reads nothing from the log.
pub(super) async fn submit_and_wait(
    state: &AppState,
    caller: &Caller,
    submission: Submission,
    wait: Duration,
) -> Result<Accepted, ApiError> {
    let slot = match state.slot(caller) {
        Ok(slot) => slot,
        Err(error) => return Ok(Accepted::from(state.kernel.submit(submission).await?).not_waited(&error)),
    };
    let (submitted, follow) = state.kernel.ask(submission).await?;
    let mut accepted = Accepted::from(submitted);
    let mut feed = Feed::of(state, caller, slot, follow, Some(accepted.task_id)).at_most(wait);
    match feed.last().await {
        Ok(event) => accepted.ending = event.and_then(|event| Ending::of(&event)),
        // The message is stored: if the wait fails, the acknowledgement is still returned.
        Err(error) => return Ok(accepted.not_waited(&error)),
    }
    Ok(accepted)
}

fn conversation_ref(id: Option<String>, key: Option<String>) -> Result<ConversationRef, ApiError> {
    match (id, key) {
        (Some(_), Some(_)) => {
            Err(ApiError::invalid("give `conversation_id` or `conversation_key`, not both").at("conversation_key"))
        }
        (Some(id), None) => Ok(ConversationRef::Id(id)),
        (None, Some(key)) => Ok(ConversationRef::Key(key)),
        (None, None) => Ok(ConversationRef::New),
    }
}

/// The caller's message id, from the body or the header.
pub(super) fn client_id(body: Option<String>, headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    match (body, header_text(headers, IDEMPOTENCY_KEY)?) {
        (Some(body), Some(header)) if body != header => {
            Err(ApiError::invalid("the header `Idempotency-Key` says something else").at("client_id"))
        }
        (Some(id), _) => Ok(Some(id)),
        (None, header) => Ok(header.map(str::to_owned)),
    }
}
