//! Conversations: lists, messages and the event log.

use annie_core::{
    ids::{ConversationId, Seq, TaskId},
    outcome,
    ports::{ConversationRow, TaskState},
};
use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{
    extract::{Args, Id, page_of},
    problem::Problem,
    schema,
};
use crate::{
    api::{AgentLine, AgentStatus, AppState, HistoryMessage, SkillLine, history, page, shown_event},
    auth::Caller,
    error::ApiError,
};

/// A conversation.
#[derive(Debug, Serialize, ToSchema)]
pub struct Conversation {
    #[schema(value_type = schema::ConversationId)]
    id: ConversationId,
    /// The first 80 characters of the first message.
    title: String,
    /// The sequence number of the last event.
    last_seq: u64,
    /// RFC 3339.
    #[schema(format = DateTime)]
    created_at: String,
    /// RFC 3339.
    #[schema(format = DateTime)]
    updated_at: String,
}

impl From<ConversationRow> for Conversation {
    fn from(row: ConversationRow) -> Self {
        Self {
            id: row.id,
            title: row.title,
            last_seq: row.last_seq.0,
            created_at: row.created_at.to_string(),
            updated_at: row.updated_at.to_string(),
        }
    }
}

/// Conversations, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Conversations {
    conversations: Vec<Conversation>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Page {
    /// The `next` of an earlier page; this page continues after it.
    #[param(pattern = "^([0-9]{1,18}_[0-9a-f]{32})?$")]
    next: Option<String>,
    /// The maximum number of rows; 50 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 500)]
    limit: Option<String>,
    /// Include the conversations of stateless calls, which are not continued.
    #[serde(default)]
    stateless: bool,
}

/// List your conversations.
#[utoipa::path(
    get, path = "/api/v1/conversations", tag = "chat", params(Page),
    responses((status = 200, body = Conversations), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn list_conversations(
    State(state): State<AppState>,
    caller: Caller,
    Args(page): Args<Page>,
) -> Result<Json<Conversations>, ApiError> {
    let (before, limit) = page_of(page.next.as_deref(), page.limit.as_deref())?;
    let rows = state.kernel.conversations(caller.scope(), before, limit, page.stateless).await?;
    let next = page::next_of(&rows, limit, ConversationRow::page_start);
    Ok(Json(Conversations { conversations: rows.into_iter().map(Into::into).collect(), next }))
}

/// Get a conversation.
#[utoipa::path(
    get, path = "/api/v1/conversations/{id}", tag = "chat", params(("id" = schema::ConversationId, Path)),
    responses((status = 200, body = Conversation), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn get_conversation(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<ConversationId>,
) -> Result<Json<Conversation>, ApiError> {
    Ok(Json(state.kernel.conversation(caller.scope(), id).await?.into()))
}

/// A message of the history.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatMessage {
    /// The sequence number of the message in the log.
    seq: u64,
    #[schema(value_type = schema::TaskId)]
    task_id: TaskId,
    /// `user` or `assistant`.
    role: &'static str,
    text: String,
    /// RFC 3339.
    #[schema(format = DateTime)]
    at: String,
    /// Of an answer: `completed`, `failed` or `cancelled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::TaskState>)]
    status: Option<TaskState>,
    /// Of an answer: the sub-agents that worked on it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    agents: Vec<AgentSummary>,
    /// Of an answer: the skills that ran for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skills: Vec<SkillSummary>,
}

/// A sub-agent that worked on an answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct AgentSummary {
    agent: String,
    mission: String,
    /// `completed`, `no_action`, `failed`, `timeout`, `crashed`, `skipped`, `cancelled` or `refused`; absent while the agent
    /// works.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<AgentStatus>,
    duration_ms: u64,
}

/// A skill that ran for an answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct SkillSummary {
    agent: String,
    skill: String,
    /// `success`, `partial`, `error_transient` …
    #[schema(value_type = schema::SkillStatus)]
    status: outcome::Status,
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

/// Messages, oldest first within the page.
#[derive(Debug, Serialize, ToSchema)]
pub struct Messages {
    messages: Vec<ChatMessage>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MessagesPage {
    /// The `next` of an earlier page; this page continues after it.
    #[param(pattern = "^[0-9]{0,18}$")]
    next: Option<String>,
    /// The maximum number of rows; 50 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 200)]
    limit: Option<String>,
}

/// List the messages of a conversation, the newest page first.
#[utoipa::path(
    get, path = "/api/v1/conversations/{id}/messages", tag = "chat", params(("id" = schema::ConversationId, Path), MessagesPage),
    responses((status = 200, body = Messages), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn get_messages(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<ConversationId>,
    Args(page): Args<MessagesPage>,
) -> Result<Json<Messages>, ApiError> {
    let limit = page::MESSAGES.of_text(page.limit.as_deref())?;
    let before = page::cursor(page.next.as_deref())?.map(Seq);
    let found = history(&state, &caller, id, before, limit as usize).await?;
    let messages = found.messages.into_iter().map(Into::into).collect();
    Ok(Json(Messages { messages, next: found.next_before.map(|seq| seq.to_string()) }))
}

/// A section of an event log.
#[derive(Debug, Serialize, ToSchema)]
pub struct Events {
    /// Oldest first. `kind` determines the other fields.
    #[schema(value_type = Vec<schema::Event>)]
    events: Vec<Value>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsPage {
    /// Only events after this sequence number; `next` takes precedence.
    after: Option<u64>,
    /// The `next` of an earlier page; this page continues after it.
    #[param(pattern = "^[0-9]{0,18}$")]
    next: Option<String>,
    /// The maximum number of rows; 100 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 500)]
    limit: Option<String>,
}

/// List the events of a conversation.
#[utoipa::path(
    get, path = "/api/v1/conversations/{id}/events", tag = "chat", params(("id" = schema::ConversationId, Path), EventsPage),
    responses((status = 200, body = Events), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn get_events(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<ConversationId>,
    Args(page): Args<EventsPage>,
) -> Result<Json<Events>, ApiError> {
    let limit = page::EVENTS.of_text(page.limit.as_deref())?;
    let after = page::cursor(page.next.as_deref())?.or(page.after).unwrap_or(0);
    let events = state.kernel.events(caller.scope(), id, Seq(after), limit).await?;
    let next = page::next_of(&events, limit, |event| event.seq.0);
    Ok(Json(Events { events: events.iter().map(shown_event).collect(), next }))
}
