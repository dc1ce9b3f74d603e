//! Approvals: calls of skills that wait for a person, and the decisions about them.

use annie_actors::OpenApproval;
use annie_core::{
    approval::ApprovalVerdict,
    event,
    ids::{ConversationId, TaskId},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::row::{
    Call, Operation,
    Verb::{Get, Post},
    route,
};
use crate::{
    auth::{
        KeyScope::{self, JobsControl, JobsRead},
        Need::Scope,
    },
    error::ApiError,
    grpc::{convert::path_id, v1},
    http::{
        extract::{Body, Id},
        schema,
    },
};

/// The operations on approvals.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/approvals", Scope(JobsRead), list_approvals, Approvals::from)
            .about("list_approvals", "jobs", "List the calls of skills that wait for your approval.", "approvals list")
            .rpc("/annie.v1.Approvals/List", |_: v1::ListApprovalsRequest| Ok(()), listed),
        route(Post, "/api/v1/approvals/{id}/approve", Scope(JobsControl), approve, Approval::from)
            .about("approve", "jobs", "Approve a call of a task, so that it is made.", "approvals approve")
            .id("The task whose call waits")
            .rpc("/annie.v1.Approvals/Approve", asked_approve, message_of),
        route(Post, "/api/v1/approvals/{id}/deny", Scope(JobsControl), deny, Approval::from)
            .about("deny", "jobs", "Deny a call of a task, so that it is not made.", "approvals deny")
            .id("The task whose call waits")
            .rpc("/annie.v1.Approvals/Deny", asked_deny, message_of),
    ]
}

/// A call of a skill that waits for a person, or that was decided just now.
#[derive(Debug, Serialize, ToSchema)]
pub struct Approval {
    /// The task whose call waits.
    #[schema(value_type = schema::TaskId)]
    task_id: TaskId,
    /// The number of the request in its task, from 1.
    number: u32,
    #[schema(value_type = schema::ConversationId)]
    conversation_id: ConversationId,
    /// The agent that made the call.
    agent: String,
    skill: String,
    /// The arguments with which the skill would run.
    #[schema(value_type = Object)]
    arguments: Value,
    /// `ask_first_time`, `ask` or `always`.
    mode: String,
    /// `waiting`, `approved` or `denied`.
    status: String,
    /// RFC 3339.
    #[schema(format = DateTime)]
    requested_at: String,
    /// When the request counts as denied, RFC 3339.
    #[schema(format = DateTime)]
    expires_at: String,
    /// Who decided; absent while it waits.
    #[serde(skip_serializing_if = "String::is_empty")]
    by: String,
}

fn status_of(open: &OpenApproval) -> String {
    open.approval.verdict.as_ref().map_or("waiting", ApprovalVerdict::state).to_owned()
}

impl From<OpenApproval> for Approval {
    fn from(open: OpenApproval) -> Self {
        let status = status_of(&open);
        let OpenApproval { conversation, task, approval } = open;
        Self {
            task_id: task,
            number: approval.number,
            conversation_id: conversation,
            agent: approval.agent.to_string(),
            skill: approval.skill,
            arguments: approval.arguments,
            mode: approval.mode.as_str().to_owned(),
            status,
            requested_at: approval.requested_at.to_string(),
            expires_at: approval.expires_at.to_string(),
            by: approval.by,
        }
    }
}

fn message_of(open: OpenApproval) -> v1::Approval {
    let status = status_of(&open);
    let OpenApproval { conversation, task, approval } = open;
    v1::Approval {
        task_id: task.to_string(),
        number: approval.number,
        conversation_id: conversation.to_string(),
        agent: approval.agent.to_string(),
        skill: approval.skill,
        arguments_json: approval.arguments.to_string(),
        mode: approval.mode.as_str().to_owned(),
        status,
        requested_at_us: approval.requested_at.0,
        expires_at_us: approval.expires_at.0,
        by: approval.by,
    }
}

/// The calls of open tasks that wait for a person, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Approvals {
    approvals: Vec<Approval>,
}

impl From<Vec<OpenApproval>> for Approvals {
    fn from(open: Vec<OpenApproval>) -> Self {
        Self { approvals: open.into_iter().map(Into::into).collect() }
    }
}

fn listed(open: Vec<OpenApproval>) -> v1::ListApprovalsResponse {
    v1::ListApprovalsResponse { approvals: open.into_iter().map(message_of).collect() }
}

async fn list_approvals(call: Call, (): ()) -> Result<Vec<OpenApproval>, ApiError> {
    Ok(call.state.kernel.approvals(call.caller.scope()).await?)
}

/// The approval of a call.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Approve {
    /// The number of the request; absent means the only one that waits.
    number: Option<u32>,
    /// Later calls of the skill in this conversation need no approval.
    #[serde(default)]
    for_conversation: bool,
    /// The arguments to run with instead; absent means those of the request.
    #[schema(value_type = Option<Object>)]
    arguments: Option<Value>,
}

fn asked_approve(asked: v1::ApproveRequest) -> Result<(Id<TaskId>, Body<Approve>), ApiError> {
    let v1::ApproveRequest { task_id, number, for_conversation, arguments_json } = asked;
    let arguments = match arguments_json.trim() {
        "" => None,
        json => {
            let wrong = |e: serde_json::Error| ApiError::invalid(format!("it is no JSON: {e}")).at("arguments_json");
            Some(serde_json::from_str(json).map_err(wrong)?)
        }
    };
    let number = Some(number).filter(|number| *number > 0);
    Ok((path_id("task_id", &task_id)?, Body(Approve { number, for_conversation, arguments })))
}

async fn approve(call: Call, (Id(task), Body(asked)): (Id<TaskId>, Body<Approve>)) -> Result<OpenApproval, ApiError> {
    let Approve { number, for_conversation, arguments } = asked;
    decide(call, task, number, ApprovalVerdict::Approve { for_conversation, arguments }).await
}

/// The denial of a call.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Deny {
    /// The number of the request; absent means the only one that waits.
    number: Option<u32>,
    /// The reason, for the model and the user; at most 1000 characters.
    #[serde(default)]
    reason: String,
}

fn asked_deny(asked: v1::DenyRequest) -> Result<(Id<TaskId>, Body<Deny>), ApiError> {
    let v1::DenyRequest { task_id, number, reason } = asked;
    let number = Some(number).filter(|number| *number > 0);
    Ok((path_id("task_id", &task_id)?, Body(Deny { number, reason })))
}

async fn deny(call: Call, (Id(task), Body(asked)): (Id<TaskId>, Body<Deny>)) -> Result<OpenApproval, ApiError> {
    let Deny { number, reason } = asked;
    decide(call, task, number, ApprovalVerdict::Deny { reason }).await
}

async fn decide(
    call: Call,
    task: TaskId,
    number: Option<u32>,
    verdict: ApprovalVerdict,
) -> Result<OpenApproval, ApiError> {
    let Call { state, caller, .. } = call;
    // An administrator may decide in place of the owner. For all other callers the task of another user does not exist.
    let scope = if caller.grants.has(KeyScope::Admin) { event::Scope::Operator } else { caller.scope() };
    Ok(state.kernel.decide_approval(scope, task, number, verdict, &caller.name()).await?)
}
