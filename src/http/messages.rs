//! `POST /api/v1/messages`: takes in a message, and waits for its answer if asked to.

use std::time::Duration;

use annie_actors::Submitted;
use annie_core::{
    event::{Event, EventBody, Mode, Priority},
    ids::{ConversationId, TaskId},
    message::Usage,
    ports::TaskState,
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
    auth::Caller,
    door::{AppState, Feed, Message, Where, Wish, submission},
    error::Fault,
};

/// The header with the caller's id for a message.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// A message to Annie.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMessage {
    /// What is said.
    #[schema(min_length = 1)]
    text: String,
    /// An existing conversation to say it in.
    #[serde(default)]
    #[schema(value_type = Option<schema::ConversationId>)]
    conversation_id: Option<String>,
    /// Or a name of your own for the conversation: the same name is always the same conversation of the same user.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 512)]
    conversation_key: Option<String>,
    /// How the turn is run: `multi_agent`, `single_loop` or `direct`.
    #[serde(default)]
    #[schema(value_type = Option<schema::Mode>)]
    mode: Option<Mode>,
    /// `high`, `normal`, `low` or `background`; with the source `voice` also `realtime`. If absent, where it was said and
    /// its words decide.
    #[serde(default)]
    #[schema(value_type = Option<schema::Priority>)]
    priority: Option<Priority>,
    /// `voice` for what was spoken, with the scope `voice`: it runs at once, outside the queue. Absent for everything else.
    #[serde(default)]
    #[schema(pattern = "^voice$")]
    source: Option<String>,
    /// It joins the turn under way in its conversation, if there is one, instead of waiting behind it.
    #[serde(default)]
    steer: bool,
    /// Names the work: equal work of yours under this name that waits already is done once, and answers both.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200)]
    name: Option<String>,
    /// It must not leave the house: only local backends may run it.
    #[serde(default)]
    private: bool,
    /// How the user feels, where the front end knows it.
    #[serde(default)]
    emotion: Option<Feeling>,
    /// It does not begin before this time: RFC 3339.
    #[serde(default)]
    #[schema(format = DateTime)]
    not_before: Option<String>,
    /// Or not before so many milliseconds have gone by.
    #[serde(default, deserialize_with = "whole_option")]
    #[schema(maximum = 31_622_400_000_u64)]
    delay_ms: Option<u64>,
    /// It begins when these tasks of yours have ended, however they did: at most 64 ids.
    #[serde(default)]
    #[schema(value_type = Vec<schema::TaskId>, max_items = 64)]
    after: Vec<String>,
    /// Its words are never an order about tasks ("cancel that"): for front ends that only pass on.
    #[serde(default)]
    verbatim: bool,
    /// Your id for the message: sent again, it is acknowledged again and not run again. Also as `Idempotency-Key`.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200)]
    client_id: Option<String>,
}

/// How a user feels.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Feeling {
    /// `neutral`, `frustrated`, `stressed`, `happy`, `tired` or `curious`, or a common recogniser's word for one of these.
    name: String,
    /// How sure that is, from 0 to 1.
    #[schema(minimum = 0, maximum = 1)]
    intensity: f32,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Wait {
    /// Wait so many seconds for the answer: at most `doors.wait_s_max` of the configuration, 600 by default.
    #[param(maximum = 600)]
    wait: Option<u64>,
}

/// The message is stored and will get exactly one answer or one visible failure.
#[derive(Debug, Serialize, ToSchema)]
pub struct Accepted {
    #[schema(value_type = schema::TaskId)]
    task_id: TaskId,
    #[schema(value_type = schema::ConversationId)]
    conversation_id: ConversationId,
    /// Where it is in the log: stream after here for its answer.
    seq: u64,
    /// It had come before.
    repeated: bool,
    /// The class that it got.
    #[schema(value_type = schema::Priority)]
    priority: Priority,
    /// It is an order about tasks: carried out at once, without a model.
    is_order: bool,
    /// Equal work waits as this task: its answer is this one's answer too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::TaskId>)]
    same_as: Option<TaskId>,
    /// Its place in the queue, from 1; absent for a repeat, an order and what steers a turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<usize>,
    /// When its first round may be expected to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    start_in_ms: Option<u64>,
    /// Why its end was not waited for, though `wait` asked for it. The message is stored: follow the conversation's stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_waited: Option<String>,
    /// How it ended, if it was waited for.
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
            is_order: submitted.is_order,
            same_as: place.and_then(|p| p.same_as),
            position: place.map(|p| p.position),
            start_in_ms: place.map(|p| p.start_in_ms),
            not_waited: None,
            ending: None,
        }
    }
}

/// How a turn ended.
#[derive(Debug, Serialize, ToSchema)]
pub struct Ending {
    /// `completed`, `failed` or `cancelled`.
    #[schema(value_type = schema::TaskState)]
    status: TaskState,
    /// What Annie says.
    answer: String,
    /// A limit was reached, and "continue" goes on from there.
    paused: bool,
    /// Of a completed task: `done`, `paused`, `declined`, `no_action`, `gave_up` or `incomplete`.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    /// The failure's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// What the turn cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    usage: Option<Usage>,
}

impl Ending {
    /// The ending that a final event tells.
    fn of(event: &Event) -> Option<Self> {
        let plain = |status, answer: &String| Self {
            status,
            answer: answer.clone(),
            paused: false,
            outcome: None,
            error: None,
            usage: None,
        };
        Some(match &event.body {
            EventBody::Answered { text, paused, usage, outcome, finish, .. } => Self {
                paused: *paused,
                outcome: Some(outcome.word(*paused, *finish)),
                usage: Some(*usage),
                ..plain(TaskState::Completed, text)
            },
            EventBody::Failed { code, text, .. } => {
                Self { error: Some(code.clone()), ..plain(TaskState::Failed, text) }
            }
            EventBody::Cancelled { text } => plain(TaskState::Cancelled, text),
            _ => return None,
        })
    }
}

/// Send a message.
#[utoipa::path(
    post, path = "/api/v1/messages", tag = "chat", request_body = NewMessage,
    params(Wait),
    responses(
        (status = 202, body = Accepted, description = "Stored; the answer comes on the conversation's stream"),
        (status = 200, body = Accepted, description = "Stored and, with `wait`, ended"),
        (status = "default", body = Problem, description = "Not taken; nothing was stored unless the code is `unavailable`"),
    )
)]
pub async fn post_message(
    State(state): State<AppState>,
    caller: Caller,
    Args(Wait { wait }): Args<Wait>,
    headers: HeaderMap,
    Body(new): Body<NewMessage>,
) -> Result<Response, Fault> {
    let max = state.limits.wait_s_max;
    if wait.is_some_and(|s| s > max) {
        return Err(Fault::invalid(format!("at most {max} s can be waited; follow the stream instead")).at("wait"));
    }
    let message = Message {
        place: place(new.conversation_id, new.conversation_key)?,
        client_id: client_id(new.client_id, &headers)?,
        text: new.text,
        mode: new.mode,
        priority: new.priority,
        preamble: Vec::new(),
        wish: Wish {
            source: new.source,
            steer: new.steer,
            name: new.name,
            private: new.private,
            emotion: new.emotion.map(|e| (e.name, e.intensity)),
            not_before: new.not_before,
            delay_ms: new.delay_ms,
            after: new.after,
            verbatim: new.verbatim,
        },
    };
    let submission = submission(&state, &caller, "http", message).await?;
    let mut accepted = Accepted::from(state.kernel.submit(submission).await?);
    if let Some(seconds) = wait.filter(|s| *s > 0) {
        // The message is stored: whatever hinders the waiting, the acknowledgement stands.
        accepted.ending = match wait_for(&state, &caller, &accepted, Duration::from_secs(seconds)).await {
            Ok(ending) => ending,
            Err(fault) => {
                tracing::warn!(%fault, task = %accepted.task_id, "an answer could not be waited for");
                accepted.not_waited = Some(fault.to_string());
                None
            }
        };
    }
    let status = if accepted.ending.is_some() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(accepted)).into_response())
}

async fn wait_for(
    state: &AppState,
    caller: &Caller,
    accepted: &Accepted,
    wait: Duration,
) -> Result<Option<Ending>, Fault> {
    let after = annie_core::ids::Seq(accepted.seq);
    let slot = state.slot(caller)?;
    let follow = state.kernel.follow(caller.scope(), accepted.conversation_id, after).await?;
    let mut feed = Feed::of(state, caller, slot, follow, Some(accepted.task_id)).at_most(wait);
    Ok(feed.last().await?.and_then(|event| Ending::of(&event)))
}

fn place(id: Option<String>, key: Option<String>) -> Result<Where, Fault> {
    match (id, key) {
        (Some(_), Some(_)) => {
            Err(Fault::invalid("give `conversation_id` or `conversation_key`, not both").at("conversation_key"))
        }
        (Some(id), None) => Ok(Where::Id(id)),
        (None, Some(key)) => Ok(Where::Key(key)),
        (None, None) => Ok(Where::New),
    }
}

/// The caller's id for the message, from the body or the header.
pub(super) fn client_id(body: Option<String>, headers: &HeaderMap) -> Result<Option<String>, Fault> {
    match (body, header_text(headers, IDEMPOTENCY_KEY)?) {
        (Some(body), Some(header)) if body != header => {
            Err(Fault::invalid("the header `Idempotency-Key` says something else").at("client_id"))
        }
        (Some(id), _) => Ok(Some(id)),
        (None, header) => Ok(header.map(str::to_owned)),
    }
}
