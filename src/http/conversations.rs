//! Conversations: lists, what was said, the log as it is, and the way out of quarantine.

use annie_core::{
    event::Event,
    ids::{ConversationId, Seq, TaskId},
    ports::{ConversationRow, TaskState},
};
use axum::{Json, extract::State, http::StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    extract::{Args, Id, page_of},
    problem::Problem,
    schema,
};
use crate::{
    auth::Caller,
    door::{AgentLine, AppState, HistoryMessage, SkillLine, history, page_limit},
    error::Fault,
};

/// Messages on a page at most.
const MESSAGES_MAX: u32 = 200;

/// A conversation.
#[derive(Debug, Serialize, ToSchema)]
pub struct Conversation {
    #[schema(value_type = schema::ConversationId)]
    id: ConversationId,
    /// The first message's first 80 characters.
    title: String,
    /// The last event's place.
    last_seq: u64,
    /// RFC 3339.
    created_at: String,
    /// RFC 3339.
    updated_at: String,
    /// For `before` of the next page.
    updated_us: i64,
}

impl From<ConversationRow> for Conversation {
    fn from(row: ConversationRow) -> Self {
        Self {
            id: row.id,
            title: row.title,
            last_seq: row.last_seq.0,
            created_at: row.created_at.to_string(),
            updated_at: row.updated_at.to_string(),
            updated_us: row.updated_at.0,
        }
    }
}

/// Conversations, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Conversations {
    conversations: Vec<Conversation>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Page {
    /// Only those before this instant, in microseconds.
    before: Option<i64>,
    /// 1 to 500; 50 by default, and for 0.
    limit: Option<u32>,
    /// Those of stateless calls too, to which nobody comes back.
    #[serde(default)]
    stateless: bool,
}

/// Your conversations.
#[utoipa::path(
    get, path = "/api/v1/conversations", tag = "chat", params(Page),
    responses((status = 200, body = Conversations), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn list_conversations(
    State(state): State<AppState>,
    caller: Caller,
    Args(page): Args<Page>,
) -> Result<Json<Conversations>, Fault> {
    let (before, limit) = page_of(page.before, page.limit);
    let rows = state.kernel.conversations(caller.scope(), before, limit, page.stateless).await?;
    Ok(Json(Conversations { conversations: rows.into_iter().map(Into::into).collect() }))
}

/// One conversation.
#[utoipa::path(
    get, path = "/api/v1/conversations/{id}", tag = "chat", params(("id" = schema::ConversationId, Path)),
    responses((status = 200, body = Conversation), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn get_conversation(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<ConversationId>,
) -> Result<Json<Conversation>, Fault> {
    Ok(Json(state.kernel.conversation(caller.scope(), id).await?.into()))
}

/// A message of the history.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatMessage {
    /// Its place in the log.
    seq: u64,
    #[schema(value_type = schema::TaskId)]
    task_id: TaskId,
    /// `user` or `assistant`.
    role: &'static str,
    text: String,
    /// RFC 3339.
    at: String,
    /// Of an answer: `completed`, `failed` or `cancelled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::TaskState>)]
    status: Option<TaskState>,
    /// Of an answer: the sub-agents that worked for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    agents: Vec<AgentSummary>,
    /// Of an answer: the skills that ran for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skills: Vec<SkillSummary>,
}

/// A sub-agent that worked for an answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct AgentSummary {
    agent: String,
    mission: String,
    /// `completed`, `failed`, `timeout`, `crashed`, `skipped`, `cancelled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    duration_ms: u64,
}

/// A skill that ran for an answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct SkillSummary {
    agent: String,
    skill: String,
    /// `success`, `partial`, `error_transient` …
    status: &'static str,
    duration_ms: u64,
}

impl From<AgentLine> for AgentSummary {
    fn from(line: AgentLine) -> Self {
        Self { agent: line.agent, mission: line.mission, status: line.status, duration_ms: line.duration_ms }
    }
}

impl From<SkillLine> for SkillSummary {
    fn from(line: SkillLine) -> Self {
        Self { agent: line.agent, skill: line.skill, status: line.status, duration_ms: line.duration_ms }
    }
}

impl From<HistoryMessage> for ChatMessage {
    fn from(message: HistoryMessage) -> Self {
        Self {
            seq: message.seq.0,
            task_id: message.task,
            role: message.role.as_str(),
            text: message.text,
            at: message.at.to_string(),
            status: message.state,
            agents: message.agents.into_iter().map(Into::into).collect(),
            skills: message.skills.into_iter().map(Into::into).collect(),
        }
    }
}

/// What was said, oldest first within the page.
#[derive(Debug, Serialize, ToSchema)]
pub struct Messages {
    messages: Vec<ChatMessage>,
    /// Ask again with this as `before` for older ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_before: Option<u64>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MessagesPage {
    /// Only messages before this place.
    before: Option<u64>,
    /// 1 to 200; 50 by default, and for 0.
    limit: Option<u32>,
}

/// What was said in a conversation, the newest page first.
#[utoipa::path(
    get, path = "/api/v1/conversations/{id}/messages", tag = "chat", params(("id" = schema::ConversationId, Path), MessagesPage),
    responses((status = 200, body = Messages), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn get_messages(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<ConversationId>,
    Args(page): Args<MessagesPage>,
) -> Result<Json<Messages>, Fault> {
    let limit = page_limit(page.limit.unwrap_or(0), 50, MESSAGES_MAX);
    let found = history(&state, &caller, id, page.before.map(Seq), limit as usize).await?;
    let messages = found.messages.into_iter().map(Into::into).collect();
    Ok(Json(Messages { messages, next_before: found.next_before.map(|s| s.0) }))
}

/// A piece of a log.
#[derive(Debug, Serialize, ToSchema)]
pub struct Events {
    /// Oldest first; `kind` says what the other fields are.
    #[schema(value_type = Vec<schema::Event>)]
    events: Vec<Event>,
    /// Ask again with this as `after`; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_after: Option<u64>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsPage {
    /// The last place that you have.
    after: Option<u64>,
    /// 1 to 500; 100 by default, and for 0.
    limit: Option<u32>,
}

/// The log of a conversation as it is.
#[utoipa::path(
    get, path = "/api/v1/conversations/{id}/events", tag = "chat", params(("id" = schema::ConversationId, Path), EventsPage),
    responses((status = 200, body = Events), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn get_events(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<ConversationId>,
    Args(page): Args<EventsPage>,
) -> Result<Json<Events>, Fault> {
    let limit = page_limit(page.limit.unwrap_or(0), 100, annie_actors::PAGE_MAX);
    let events = state.kernel.events(caller.scope(), id, Seq(page.after.unwrap_or(0)), limit).await?;
    let full = events.len() >= limit as usize;
    let next_after = events.last().map(|e| e.seq.0).filter(|_| full);
    Ok(Json(Events { events, next_after }))
}

/// Take a conversation out of quarantine; with the scope `ops:control` also another user's.
#[utoipa::path(
    post, path = "/api/v1/conversations/{id}/resume", tag = "chat", params(("id" = schema::ConversationId, Path)),
    responses((status = 204, description = "It goes on"), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn resume_conversation(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<ConversationId>,
) -> Result<StatusCode, Fault> {
    crate::door::resume_conversation(&state, &caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}
