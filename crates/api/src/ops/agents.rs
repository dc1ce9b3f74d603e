//! Running sub-agents: the list, texts that reach one in its next round, and the end of one.

use annie_actors::OpenAgent;
use annie_core::{
    event,
    ids::{ConversationId, TaskId},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    acts::{Subject, recorded},
    row::{
        Call, Operation,
        Verb::{Get, Post},
        route,
    },
};
use crate::{
    auth::{
        KeyScope::{self, JobsControl, JobsRead},
        Need::Scope,
    },
    error::ApiError,
    grpc::{convert::path_id, v1},
    http::{
        extract::{Args, Body, Id},
        schema,
    },
};

const LIST: &str = "List the sub-agents of your open tasks that have not reported.";
const STEER: &str = "Add a text to the mission of a sub-agent, which it sees in its next round.";
const STOP: &str = "End one sub-agent. The others continue, and the orchestrator learns of it.";

/// The operations on running sub-agents.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/agents", Scope(JobsRead), list_agents, Agents::from)
            .about("list_agents", "jobs", LIST, "agents list")
            .rpc("/annie.v1.Agents/List", asked_list, listed),
        route(
            Post,
            "/api/v1/agents/{id}/steer",
            Scope(JobsControl),
            recorded("agent.steer", about_steer, steer),
            |done| done,
        )
        .about("steer_agent", "jobs", STEER, "agents steer")
        .id("The conversation of the agent")
        .rpc("/annie.v1.Agents/Steer", asked_steer, message_of_control),
        route(Post, "/api/v1/agents/{id}/stop", Scope(JobsControl), recorded("agent.stop", about_stop, stop), |done| {
            done
        })
        .about("stop_agent", "jobs", STOP, "agents stop")
        .id("The conversation of the agent")
        .rpc("/annie.v1.Agents/Stop", asked_stop, message_of_control),
    ]
}

/// The text is the user's, and is only in the conversation.
fn about_steer((Id(id), Body(asked)): &(Id<ConversationId>, Body<SteerAgent>)) -> Subject {
    Subject::of(format!("{id}/{}", asked.agent))
}

fn about_stop((Id(id), Body(asked)): &(Id<ConversationId>, Body<StopAgent>)) -> Subject {
    Subject::of(format!("{id}/{}", asked.agent)).because(&asked.reason)
}

/// A sub-agent that has not reported.
#[derive(Debug, Serialize, ToSchema)]
pub struct Agent {
    #[schema(value_type = schema::ConversationId)]
    conversation_id: ConversationId,
    /// The task of its turn.
    #[schema(value_type = schema::TaskId)]
    task_id: TaskId,
    /// Its name, unique in its turn.
    agent: String,
    /// The title that its dispatch gave it; absent if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    label: String,
    mission: String,
    /// `waiting` for other agents or for calls, or `running`.
    status: String,
    /// When it started, RFC 3339; absent while it waits.
    #[schema(format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<String>,
    /// The number of its round; 0 while it waits.
    round: u32,
    /// Its skill calls so far.
    calls_used: u32,
    /// The maximum of its skill calls.
    calls_max: u32,
    /// How long it may work, in milliseconds, without its waits for permits and persons.
    ms_max: u64,
    /// The backends that may run its rounds, the preferred one first.
    backends: Vec<String>,
    /// How many texts were added to its mission.
    steered: u32,
}

const fn status_of(open: &OpenAgent) -> &'static str {
    if open.since.is_some() { "running" } else { "waiting" }
}

impl From<OpenAgent> for Agent {
    fn from(open: OpenAgent) -> Self {
        let status = status_of(&open).to_owned();
        Self {
            conversation_id: open.conversation,
            task_id: open.task,
            agent: open.agent.to_string(),
            label: open.label,
            mission: open.mission,
            status,
            started_at: open.since.map(|since| since.to_string()),
            round: open.round,
            calls_used: open.calls_used,
            calls_max: open.calls_max,
            ms_max: open.ms_max,
            backends: open.backends,
            steered: open.steered,
        }
    }
}

fn message_of(open: OpenAgent) -> v1::Agent {
    let status = status_of(&open).to_owned();
    v1::Agent {
        conversation_id: open.conversation.to_string(),
        task_id: open.task.to_string(),
        agent: open.agent.to_string(),
        label: open.label,
        mission: open.mission,
        status,
        started_at_us: open.since.map_or(0, |since| since.0),
        round: open.round,
        calls_used: open.calls_used,
        calls_max: open.calls_max,
        ms_max: open.ms_max,
        backends: open.backends,
        steered: open.steered,
    }
}

/// The sub-agents that have not reported, in the order of their dispatch.
#[derive(Debug, Serialize, ToSchema)]
pub struct Agents {
    agents: Vec<Agent>,
}

impl From<Vec<OpenAgent>> for Agents {
    fn from(open: Vec<OpenAgent>) -> Self {
        Self { agents: open.into_iter().map(Into::into).collect() }
    }
}

fn listed(open: Vec<OpenAgent>) -> v1::ListAgentsResponse {
    v1::ListAgentsResponse { agents: open.into_iter().map(message_of).collect() }
}

/// Which sub-agents are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AgentsFilter {
    /// Only those of this conversation.
    #[param(value_type = Option<schema::ConversationId>)]
    conversation_id: Option<ConversationId>,
}

fn asked_list(asked: v1::ListAgentsRequest) -> Result<Args<AgentsFilter>, ApiError> {
    let id = Some(asked.conversation_id).filter(|id| !id.is_empty());
    Ok(Args(AgentsFilter {
        conversation_id: id.map(|id| path_id("conversation_id", &id)).transpose()?.map(|Id(id)| id),
    }))
}

async fn list_agents(call: Call, Args(asked): Args<AgentsFilter>) -> Result<Vec<OpenAgent>, ApiError> {
    Ok(call.state.kernel.agents(scope_of(&call), asked.conversation_id).await?)
}

/// A text for a sub-agent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SteerAgent {
    /// The agent's name.
    agent: String,
    /// Its task; needed only if several tasks of the conversation have an agent with this name.
    #[schema(value_type = Option<schema::TaskId>)]
    task_id: Option<TaskId>,
    /// What it is to know or to do differently; at most 4096 bytes.
    text: String,
}

/// The end of a sub-agent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StopAgent {
    /// The agent's name.
    agent: String,
    /// Its task; needed only if several tasks of the conversation have an agent with this name.
    #[schema(value_type = Option<schema::TaskId>)]
    task_id: Option<TaskId>,
    /// The reason, for the orchestrator and the user; at most 500 characters.
    #[serde(default)]
    reason: String,
}

/// What was done to a sub-agent.
#[derive(Debug, Serialize, ToSchema)]
pub struct AgentControlled {
    #[schema(value_type = schema::ConversationId)]
    conversation_id: ConversationId,
    /// The task of its turn.
    #[schema(value_type = schema::TaskId)]
    task_id: TaskId,
    agent: String,
    /// `steered` or `stopped`.
    status: String,
}

fn message_of_control(done: AgentControlled) -> v1::AgentControlled {
    v1::AgentControlled {
        conversation_id: done.conversation_id.to_string(),
        task_id: done.task_id.to_string(),
        agent: done.agent,
        status: done.status,
    }
}

fn task_of(id: &str) -> Result<Option<TaskId>, ApiError> {
    Some(id).filter(|id| !id.is_empty()).map(|id| path_id("task_id", id).map(|Id(id)| id)).transpose()
}

fn asked_steer(asked: v1::SteerAgentRequest) -> Result<(Id<ConversationId>, Body<SteerAgent>), ApiError> {
    let v1::SteerAgentRequest { conversation_id, agent, task_id, text } = asked;
    let body = SteerAgent { agent, task_id: task_of(&task_id)?, text };
    Ok((path_id("conversation_id", &conversation_id)?, Body(body)))
}

fn asked_stop(asked: v1::StopAgentRequest) -> Result<(Id<ConversationId>, Body<StopAgent>), ApiError> {
    let v1::StopAgentRequest { conversation_id, agent, task_id, reason } = asked;
    let body = StopAgent { agent, task_id: task_of(&task_id)?, reason };
    Ok((path_id("conversation_id", &conversation_id)?, Body(body)))
}

/// An administrator may control the agents of all users. For all other callers those of another user do not exist.
fn scope_of(call: &Call) -> event::Scope {
    if call.caller.grants.has(KeyScope::Admin) { event::Scope::Operator } else { call.caller.scope() }
}

async fn steer(
    call: Call,
    (Id(conversation), Body(asked)): (Id<ConversationId>, Body<SteerAgent>),
) -> Result<AgentControlled, ApiError> {
    let SteerAgent { agent, task_id, text } = asked;
    let (scope, by, whom) = (scope_of(&call), call.caller.name(), (agent.as_str(), task_id));
    let task = call.state.kernel.steer_agent(scope, conversation, whom, text, &by).await?;
    Ok(AgentControlled { conversation_id: conversation, task_id: task, agent, status: "steered".to_owned() })
}

async fn stop(
    call: Call,
    (Id(conversation), Body(asked)): (Id<ConversationId>, Body<StopAgent>),
) -> Result<AgentControlled, ApiError> {
    let StopAgent { agent, task_id, reason } = asked;
    let (scope, by, whom) = (scope_of(&call), call.caller.name(), (agent.as_str(), task_id));
    let task = call.state.kernel.stop_agent(scope, conversation, whom, reason, &by).await?;
    Ok(AgentControlled { conversation_id: conversation, task_id: task, agent, status: "stopped".to_owned() })
}
