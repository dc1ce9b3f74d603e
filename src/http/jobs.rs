//! Jobs: the open tasks as their user sees them, with their places and what is expected of them. What is done with one is
//! done with its task.

use annie_core::{
    event::Priority,
    ids::{ConversationId, TaskId},
    jobs::{JobLine, Style},
};
use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{extract::Args, problem::Problem, schema};
use crate::{
    auth::Caller,
    door::{AppState, status_of, told},
    error::Fault,
};

/// An open task.
#[derive(Debug, Serialize, ToSchema)]
pub struct Job {
    /// Its number in the list, from 1.
    number: usize,
    #[schema(value_type = schema::TaskId)]
    task_id: TaskId,
    #[schema(value_type = schema::ConversationId)]
    conversation_id: ConversationId,
    /// The message's first 80 characters.
    title: String,
    /// `queued`, `running`, `deferred` (it failed or its time was up, and it goes on later) or `suspended`.
    status: &'static str,
    /// Its class.
    #[schema(value_type = schema::Priority)]
    priority: Priority,
    /// Its place in the queue, from 1; absent while it runs, is put off or suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<usize>,
    /// The round that it is in; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    round: Option<u32>,
    /// How many rounds it may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    rounds_max: Option<u32>,
    /// When its next round may be expected to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    start_in_ms: Option<u64>,
    /// How long it has run.
    #[serde(skip_serializing_if = "Option::is_none")]
    running_ms: Option<u64>,
    /// Since when it is suspended, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    suspended_at: Option<String>,
}

impl From<JobLine> for Job {
    fn from(line: JobLine) -> Self {
        Self {
            status: status_of(&line),
            number: line.number,
            task_id: line.task,
            conversation_id: line.conversation,
            title: line.title,
            priority: line.priority,
            position: line.position,
            round: line.round.map(|(now, _)| now),
            rounds_max: line.round.map(|(_, max)| max),
            start_in_ms: line.start_in_ms,
            running_ms: line.running_ms,
            suspended_at: line.suspended_at.map(|at| at.to_string()),
        }
    }
}

/// The open tasks: what runs, what waits in the order of the queue, what is suspended.
#[derive(Debug, Serialize, ToSchema)]
pub struct Jobs {
    jobs: Vec<Job>,
    /// The list in words, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

/// How much is told in words.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Words {
    /// One or two sentences, to be spoken.
    Short,
    /// Everything, on lines of their own.
    Detailed,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct JobsArgs {
    /// Also in words: `short`, to be spoken, or `detailed`.
    #[param(inline)]
    text: Option<Words>,
}

/// Your open tasks.
#[utoipa::path(
    get, path = "/api/v1/jobs", tag = "jobs", params(JobsArgs),
    responses((status = 200, body = Jobs), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn list_jobs(
    State(state): State<AppState>,
    caller: Caller,
    Args(args): Args<JobsArgs>,
) -> Result<Json<Jobs>, Fault> {
    let lines = state.kernel.jobs(&caller.user).await?;
    let text = args.text.map(|words| match words {
        Words::Short => told(&lines, Style::Short),
        Words::Detailed => told(&lines, Style::Detailed),
    });
    Ok(Json(Jobs { jobs: lines.into_iter().map(Into::into).collect(), text }))
}
