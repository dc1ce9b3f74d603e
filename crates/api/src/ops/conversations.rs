//! Conversations: lists, messages, the event log, and leaving quarantine.

use annie_actors::FoundConversation as Found;
use annie_core::{
    event::Event,
    ids::{ConversationId, Seq, TaskId},
    outcome,
    ports::{ConversationRow, TaskState},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{
    acts::{Subject, recorded},
    row::{
        Call, Operation,
        Verb::{Get, Post},
        command, route,
    },
};
use crate::{
    api::{
        AgentLine, AgentStatus, History, HistoryMessage, SkillLine, history,
        page::{self, Page},
        shown_event,
    },
    auth::{
        KeyScope::{self, Chat, JobsControl},
        Need::Scope,
    },
    error::ApiError,
    grpc::{
        convert::{self, path_id},
        v1,
    },
    http::{
        extract::{Args, Body, Id, page_of},
        schema,
    },
};

/// Conversations of a search by default, and at most.
const FOUND: u32 = 20;
const FOUND_MAX: u32 = 100;

/// The operations on conversations.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/conversations", Scope(Chat), list_conversations, Conversations::from)
            .about("list_conversations", "chat", "List your conversations.", "conversations list")
            .rpc("/annie.v1.Conversations/List", asked_list, listed),
        route(Get, "/api/v1/conversations/search", Scope(Chat), search_conversations, FoundConversations::from)
            .about("search_conversations", "chat", SEARCH, "conversations search")
            .rpc("/annie.v1.Conversations/Search", asked_search, found),
        route(Post, "/api/v1/conversations/{id}/rename", Scope(Chat), rename_conversation, Conversation::from)
            .about("rename_conversation", "chat", "Give a conversation a title.", "conversations rename")
            .rpc("/annie.v1.Conversations/Rename", asked_rename, wire),
        route(Get, "/api/v1/conversations/{id}", Scope(Chat), get_conversation, Conversation::from)
            .about("get_conversation", "chat", "Get a conversation.", "")
            .rpc("/annie.v1.Conversations/Get", |r: v1::ConversationRequest| path_id("id", &r.id), wire),
        route(Get, "/api/v1/conversations/{id}/messages", Scope(Chat), get_messages, Messages::from)
            .about(
                "get_messages",
                "chat",
                "List the messages of a conversation, the newest page first.",
                "conversations show",
            )
            .rpc("/annie.v1.Chat/History", asked_messages, messages),
        route(Get, "/api/v1/conversations/{id}/events", Scope(Chat), get_events, Events::from)
            .about("get_events", "chat", "List the events of a conversation.", "")
            .rpc("/annie.v1.Events/List", asked_events, events),
        command(
            "/api/v1/conversations/{id}/resume",
            Scope(JobsControl),
            recorded("conversation.resume", |Id(id): &Id<ConversationId>| Subject::of(id), resume_conversation),
            RESUMED,
        )
        .about("resume_conversation", "chat", RESUME, "conversations resume")
        .rpc(
            "/annie.v1.Jobs/ResumeConversation",
            |r: v1::ResumeConversationRequest| path_id("conversation_id", &r.conversation_id),
            |()| v1::ResumeConversationResponse {},
        ),
    ]
}

const SEARCH: &str = "Search your conversations: those whose title or messages have all words, the newest ones first. The newest 500 \
     conversations are read, and the last 2,000 events of each.";
const RESUMED: &str = "The conversation is resumed";
const RESUME: &str =
    "Take a conversation out of quarantine. With the scope `ops:control` it may belong to another user.";

/// A conversation.
#[derive(Debug, Serialize, ToSchema)]
pub struct Conversation {
    #[schema(value_type = schema::ConversationId)]
    id: ConversationId,
    /// The title that you gave to it, or the first 80 characters of the first message.
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

impl From<Page<ConversationRow>> for Conversations {
    fn from(page: Page<ConversationRow>) -> Self {
        Self { conversations: page.rows.into_iter().map(Into::into).collect(), next: page.next }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ConversationsPage {
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

async fn list_conversations(
    call: Call,
    Args(page): Args<ConversationsPage>,
) -> Result<Page<ConversationRow>, ApiError> {
    let (before, limit) = page_of(page.next.as_deref(), page.limit.as_deref())?;
    let rows = call.state.kernel.conversations(call.caller.scope(), before, limit, page.stateless).await?;
    Ok(Page::of(rows, limit, ConversationRow::page_start))
}

async fn get_conversation(call: Call, Id(id): Id<ConversationId>) -> Result<ConversationRow, ApiError> {
    Ok(call.state.kernel.titled_conversation(&call.caller.user, id).await?)
}

pub(super) fn wire(row: ConversationRow) -> v1::Conversation {
    v1::Conversation {
        id: row.id.to_string(),
        title: row.title,
        last_seq: row.last_seq.0,
        created_at_us: row.created_at.0,
        updated_at_us: row.updated_at.0,
    }
}

fn asked_list(asked: v1::ListConversationsRequest) -> Result<Args<ConversationsPage>, ApiError> {
    let v1::ListConversationsRequest { limit, next, stateless } = asked;
    Ok(Args(ConversationsPage { next: Some(next), limit: page::text_of(limit), stateless }))
}

fn listed(page: Page<ConversationRow>) -> v1::ListConversationsResponse {
    let conversations = page.rows.into_iter().map(wire).collect();
    v1::ListConversationsResponse { conversations, next: page.next.unwrap_or_default() }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ConversationSearch {
    /// 1 to 16 words, all of which must occur.
    #[serde(default)]
    query: String,
    /// The maximum number of conversations; 20 by default.
    #[serde(default)]
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

/// A conversation that a search found.
#[derive(Debug, Serialize, ToSchema)]
pub struct FoundConversation {
    #[schema(value_type = schema::ConversationId)]
    id: ConversationId,
    /// The title that you gave to it, or the first 80 characters of the first message.
    title: String,
    /// RFC 3339.
    #[schema(format = DateTime)]
    updated_at: String,
    /// The newest message or answer with all words; empty if only the title has them.
    excerpt: String,
}

/// Conversations that a search found, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct FoundConversations {
    conversations: Vec<FoundConversation>,
}

impl From<Vec<Found>> for FoundConversations {
    fn from(found: Vec<Found>) -> Self {
        let shown = |Found { row, excerpt }: Found| FoundConversation {
            id: row.id,
            title: row.title,
            updated_at: row.updated_at.to_string(),
            excerpt,
        };
        Self { conversations: found.into_iter().map(shown).collect() }
    }
}

fn found(found: Vec<Found>) -> v1::SearchConversationsResponse {
    let shown = |Found { row, excerpt }: Found| v1::FoundConversation {
        id: row.id.to_string(),
        title: row.title,
        updated_at_us: row.updated_at.0,
        excerpt,
    };
    v1::SearchConversationsResponse { conversations: found.into_iter().map(shown).collect() }
}

fn asked_search(asked: v1::SearchConversationsRequest) -> Result<Args<ConversationSearch>, ApiError> {
    let v1::SearchConversationsRequest { query, limit } = asked;
    Ok(Args(ConversationSearch { query, limit: Some(limit).filter(|limit| *limit > 0) }))
}

async fn search_conversations(call: Call, Args(search): Args<ConversationSearch>) -> Result<Vec<Found>, ApiError> {
    let limit = search.limit.unwrap_or(FOUND).clamp(1, FOUND_MAX) as usize;
    Ok(call.state.kernel.search_conversations(&call.caller.user, &search.query, limit).await?)
}

/// A new title.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTitle {
    /// The title, on one line.
    #[schema(min_length = 1, max_length = 80)]
    title: String,
}

fn asked_rename(asked: v1::RenameConversationRequest) -> Result<(Id<ConversationId>, Body<NewTitle>), ApiError> {
    Ok((path_id("id", &asked.id)?, Body(NewTitle { title: asked.title })))
}

async fn rename_conversation(
    call: Call,
    (Id(id), Body(NewTitle { title })): (Id<ConversationId>, Body<NewTitle>),
) -> Result<ConversationRow, ApiError> {
    Ok(call.state.kernel.rename_conversation(&call.caller.user, id, &title).await?)
}

/// A message of the history.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatMessage {
    /// The sequence number of the message in the log.
    seq: u64,
    #[schema(value_type = schema::TaskId)]
    task_id: TaskId,
    /// `user`, `assistant`, or `system` for what the kernel notes about the conversation.
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

fn message(message: HistoryMessage) -> v1::ChatMessage {
    let agents = message.agents.into_iter().map(|line| v1::AgentSummary {
        agent: line.agent,
        mission: line.mission,
        status: line.status.map_or("", AgentStatus::as_str).to_owned(),
        duration_ms: line.duration_ms,
    });
    let skills = message.skills.into_iter().map(|line| v1::SkillSummary {
        agent: line.agent,
        skill: line.skill,
        status: line.status.as_str().to_owned(),
        duration_ms: line.duration_ms,
    });
    v1::ChatMessage {
        seq: message.seq.0,
        task_id: message.task.to_string(),
        role: message.role.as_str().to_owned(),
        text: message.text,
        at_us: message.at.0,
        state: message.state.map_or(v1::TaskState::Unspecified, convert::state_of).into(),
        agents: agents.collect(),
        skills: skills.collect(),
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

impl From<History> for Messages {
    fn from(page: History) -> Self {
        let next = page.next_before.map(|seq| seq.to_string());
        Self { messages: page.messages.into_iter().map(Into::into).collect(), next }
    }
}

fn messages(page: History) -> v1::HistoryResponse {
    let next = page.next_before.map(|seq| seq.to_string()).unwrap_or_default();
    v1::HistoryResponse { messages: page.messages.into_iter().map(message).collect(), next }
}

fn asked_messages(asked: v1::HistoryRequest) -> Result<(Id<ConversationId>, Args<MessagesPage>), ApiError> {
    let page = MessagesPage { next: Some(asked.next), limit: page::text_of(asked.limit) };
    Ok((path_id("conversation_id", &asked.conversation_id)?, Args(page)))
}

async fn get_messages(
    call: Call,
    (Id(id), Args(page)): (Id<ConversationId>, Args<MessagesPage>),
) -> Result<History, ApiError> {
    let limit = page::MESSAGES.of_text(page.limit.as_deref())?;
    let before = page::cursor(page.next.as_deref())?.map(Seq);
    history(&call.state, &call.caller, id, before, limit as usize).await
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

impl From<Page<Event>> for Events {
    fn from(page: Page<Event>) -> Self {
        Self { events: page.rows.iter().map(shown_event).collect(), next: page.next }
    }
}

fn events(page: Page<Event>) -> v1::ListEventsResponse {
    let events = page.rows.iter().map(convert::event).collect();
    v1::ListEventsResponse { events, next: page.next.unwrap_or_default() }
}

fn asked_events(asked: v1::ListEventsRequest) -> Result<(Id<ConversationId>, Args<EventsPage>), ApiError> {
    let v1::ListEventsRequest { conversation_id, after_seq, limit, next } = asked;
    let page = EventsPage { after: Some(after_seq), next: Some(next), limit: page::text_of(limit) };
    Ok((path_id("conversation_id", &conversation_id)?, Args(page)))
}

async fn get_events(
    call: Call,
    (Id(id), Args(page)): (Id<ConversationId>, Args<EventsPage>),
) -> Result<Page<Event>, ApiError> {
    let limit = page::EVENTS.of_text(page.limit.as_deref())?;
    let after = page::cursor(page.next.as_deref())?.or(page.after).unwrap_or(0);
    let events = call.state.kernel.events(call.caller.scope(), id, Seq(after), limit).await?;
    Ok(Page::of(events, limit, |event| event.seq.0))
}

/// A caller with `ops:control` may resume another user's conversation, because the command reveals nothing of its content.
async fn resume_conversation(call: Call, Id(id): Id<ConversationId>) -> Result<(), ApiError> {
    let Call { state, caller, .. } = call;
    if !caller.grants.has(KeyScope::OpsControl) {
        state.kernel.conversation(caller.scope(), id).await?;
    }
    state.kernel.resume_conversation(id).await?;
    tracing::warn!(conversation = %id, by = caller.name(), "a conversation was taken out of quarantine");
    Ok(())
}
