//! Skills whose files conversations wrote: list them, approve their content, and withdraw the approval (ADR 0050).

use std::sync::Arc;

use annie_core::ids::{ConversationId, TaskId};
use annie_skillkit::{BuiltSkill, DecisionError, Router, SkillDecision, SkillError};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
        KeyScope::{JobsControl, JobsRead},
        Need::Scope,
    },
    error::{ApiError, Code},
    grpc::v1,
    http::{
        extract::{Body, Name},
        schema,
    },
};

/// The operations on skills of conversations.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/built-skills", Scope(JobsRead), list_built_skills, BuiltSkills::from)
            .about("list_built_skills", "skills", "List the skills that your conversations wrote.", "skills show")
            .rpc("/annie.v1.Skills/ListBuilt", |_: v1::ListBuiltSkillsRequest| Ok(()), listed),
        route(
            Post,
            "/api/v1/built-skills/{name}/approve",
            Scope(JobsControl),
            recorded("skill.approve", about_approval, approve_skill),
            BuiltSkillView::from,
        )
        .about("approve_skill", "skills", "Approve the content of a skill, so that it may run.", "skills approve")
        .rpc("/annie.v1.Skills/Approve", asked_approve, message_of),
        route(
            Post,
            "/api/v1/built-skills/{name}/withdraw",
            Scope(JobsControl),
            recorded("skill.withdraw", |Name(name): &Name| Subject::of(name), withdraw_skill),
            BuiltSkillView::from,
        )
        .about("withdraw_skill", "skills", "Withdraw the approval of a skill.", "skills withdraw")
        .rpc("/annie.v1.Skills/Withdraw", |r: v1::WithdrawSkillRequest| Ok(Name(r.name)), message_of),
    ]
}

fn about_approval((Name(name), _): &(Name, Body<ApproveSkill>)) -> Subject {
    Subject::of(name)
}

/// A skill whose file a conversation wrote.
#[derive(Debug, Serialize, ToSchema)]
pub struct BuiltSkillView {
    name: String,
    /// `prompt`, `request` or `script`.
    kind: &'static str,
    /// The path of the file below the data folder.
    source: String,
    /// The user in whose conversation the file was written.
    by: String,
    #[schema(value_type = schema::ConversationId)]
    conversation_id: ConversationId,
    #[schema(value_type = schema::TaskId)]
    task_id: TaskId,
    /// RFC 3339.
    #[schema(format = DateTime)]
    built_at: String,
    /// The SHA-256 of the present content, which an approval names.
    hash: String,
    /// The file and the programs that it names.
    text: String,
    /// `not_needed`, `awaiting_approval` or `approved`.
    state: &'static str,
    /// Who decided last; absent if there is no decision.
    #[serde(skip_serializing_if = "String::is_empty")]
    decided_by: String,
    /// When that was, RFC 3339; absent if there is no decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    decided_at: Option<String>,
}

impl From<BuiltSkill> for BuiltSkillView {
    fn from(skill: BuiltSkill) -> Self {
        let BuiltSkill { name, kind, source, by, conversation, task, at, hash, text, state, decided_by, decided_at } =
            skill;
        Self {
            name,
            kind,
            source,
            by: by.to_string(),
            conversation_id: conversation,
            task_id: task,
            built_at: at.to_string(),
            hash,
            text,
            state: state.as_str(),
            decided_by: decided_by.unwrap_or_default(),
            decided_at: decided_at.map(|at| at.to_string()),
        }
    }
}

fn message_of(skill: BuiltSkill) -> v1::BuiltSkill {
    let BuiltSkill { name, kind, source, by, conversation, task, at, hash, text, state, decided_by, decided_at } =
        skill;
    v1::BuiltSkill {
        name,
        kind: kind.to_owned(),
        source,
        by: by.to_string(),
        conversation_id: conversation.to_string(),
        task_id: task.to_string(),
        built_at_us: at.0,
        hash,
        text,
        state: state.as_str().to_owned(),
        decided_by: decided_by.unwrap_or_default(),
        decided_at_us: decided_at.map(|at| at.0),
    }
}

/// The skills that conversations of the caller wrote, by name.
#[derive(Debug, Serialize, ToSchema)]
pub struct BuiltSkills {
    skills: Vec<BuiltSkillView>,
}

impl From<Vec<BuiltSkill>> for BuiltSkills {
    fn from(skills: Vec<BuiltSkill>) -> Self {
        Self { skills: skills.into_iter().map(Into::into).collect() }
    }
}

fn listed(skills: Vec<BuiltSkill>) -> v1::ListBuiltSkillsResponse {
    v1::ListBuiltSkillsResponse { skills: skills.into_iter().map(message_of).collect() }
}

fn router(call: &Call) -> Result<Arc<Router>, ApiError> {
    call.state.skills.clone().ok_or_else(|| ApiError::new(Code::Unavailable, "this process has no skill files"))
}

fn failed(error: &SkillError) -> ApiError {
    ApiError::new(Code::Unavailable, error.to_string())
}

async fn list_built_skills(call: Call, (): ()) -> Result<Vec<BuiltSkill>, ApiError> {
    router(&call)?.built(&call.caller.user).await.map_err(|error| failed(&error))
}

/// The approval of a skill.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproveSkill {
    /// The hash of the content that was read.
    hash: String,
}

fn asked_approve(asked: v1::ApproveSkillRequest) -> Result<(Name, Body<ApproveSkill>), ApiError> {
    Ok((Name(asked.name), Body(ApproveSkill { hash: asked.hash })))
}

async fn approve_skill(
    call: Call,
    (Name(name), Body(ApproveSkill { hash })): (Name, Body<ApproveSkill>),
) -> Result<BuiltSkill, ApiError> {
    decide(call, &name, SkillDecision::Approve { hash }).await
}

async fn withdraw_skill(call: Call, Name(name): Name) -> Result<BuiltSkill, ApiError> {
    decide(call, &name, SkillDecision::Withdraw).await
}

async fn decide(call: Call, name: &str, decision: SkillDecision) -> Result<BuiltSkill, ApiError> {
    let (router, at) = (router(&call)?, call.state.kernel.now());
    let decided = router.decide(&call.caller.user, &call.caller.name(), name, decision, at).await;
    decided.map_err(|error| match error {
        DecisionError::NotTheOwner(_) => ApiError::new(Code::Forbidden, error.to_string()),
        DecisionError::Unknown(_) => ApiError::not_found("skill"),
        DecisionError::NotNeeded(_) => ApiError::invalid(error.to_string()),
        DecisionError::Changed { .. } => ApiError::new(Code::Stale, error.to_string()),
        DecisionError::Failed(error) => failed(&error),
    })
}
