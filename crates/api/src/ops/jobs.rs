//! Jobs: the open tasks of a user with their positions and estimates. Commands on a job are commands on its task.

use annie_core::{
    event::Priority,
    ids::{ConversationId, TaskId},
    jobs::{JobLine, Resolution, Style, say, understand},
    ports::TaskState,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::row::{Call, Operation, Verb::Get, route};
use crate::{
    auth::{KeyScope::JobsRead, Need::Scope},
    error::ApiError,
    grpc::{convert, v1},
    http::{extract::Args, schema},
};

/// The job command that asks for the list.
const LIST: &str = "/jobs";

/// The operations on jobs.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/jobs", Scope(JobsRead), list_jobs, Jobs::from)
            .about("list_jobs", "jobs", "List your open tasks.", "jobs list")
            .rpc("/annie.v1.Jobs/ListJobs", asked, listed),
    ]
}

/// The status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    Queued,
    Running,
    /// The job failed or reached its deadline, and continues later.
    Deferred,
    Suspended,
}

impl JobStatus {
    /// The status of a job. A job is an open task, so it has no final state.
    const fn of(job: &JobLine) -> Self {
        match job.state {
            _ if job.is_suspended() => Self::Suspended,
            _ if job.is_deferred => Self::Deferred,
            TaskState::Queued => Self::Queued,
            TaskState::Suspended => Self::Suspended,
            TaskState::Running | TaskState::Completed | TaskState::Failed | TaskState::Cancelled => Self::Running,
        }
    }
}

/// Why a job is deferred, if this is known.
fn reason_of(job: &JobLine) -> Option<String> {
    if job.awaits_approval {
        return Some("a call needs your approval".to_owned());
    }
    job.has_model_failed.then(|| "its model failed".to_owned())
}

/// The list in words, like the answer to "what are you working on?".
fn describe_jobs(jobs: &[JobLine], style: Style) -> String {
    understand(LIST).map_or_else(String::new, |command| say(&command, &Resolution::None, jobs, style))
}

/// An open task.
#[derive(Debug, Serialize, ToSchema)]
pub struct Job {
    /// The number in the list, from 1.
    number: usize,
    #[schema(value_type = schema::TaskId)]
    task_id: TaskId,
    #[schema(value_type = schema::ConversationId)]
    conversation_id: ConversationId,
    /// The first 80 characters of the message.
    title: String,
    /// `queued`, `running`, `deferred` (it failed or reached its deadline and continues later) or `suspended`.
    status: JobStatus,
    /// Whether a call of the task waits for the approval of a person.
    awaits_approval: bool,
    /// Why the task is deferred or waits for a person; absent if it does not, or if the reason is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The class of the task.
    #[schema(value_type = schema::Priority)]
    priority: Priority,
    /// The position in the queue, from 1; absent while the task runs, is deferred or is suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<usize>,
    /// The current round; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    round: Option<u32>,
    /// The maximum number of rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    rounds_max: Option<u32>,
    /// The estimated time until the next round starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    start_in_ms: Option<u64>,
    /// Until when the task is deferred, RFC 3339; absent if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    deferred_until: Option<String>,
    /// The part of its rounds that is done, in percent, if it uses all of them; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<u32>,
    /// The time in which the remaining rounds run if the task uses all of them. It may end sooner.
    #[serde(skip_serializing_if = "Option::is_none")]
    ends_in_ms_max: Option<u64>,
    /// How long the task has run; absent while it waits for its first round or is deferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    running_ms: Option<u64>,
    /// When the task was suspended, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    suspended_at: Option<String>,
}

impl From<JobLine> for Job {
    fn from(line: JobLine) -> Self {
        Self {
            status: JobStatus::of(&line),
            awaits_approval: line.awaits_approval,
            reason: reason_of(&line),
            percent: line.percent(),
            deferred_until: line.deferred_until.map(|at| at.to_string()),
            ends_in_ms_max: line.ends_in_ms_max,
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

/// A job as gRPC shows it.
fn wire(line: JobLine) -> v1::Job {
    v1::Job {
        state: state_of(&line).into(),
        awaits_approval: line.awaits_approval,
        reason: reason_of(&line).unwrap_or_default(),
        percent: line.percent(),
        deferred_until_us: line.deferred_until.map(|at| at.0),
        ends_in_ms_max: line.ends_in_ms_max,
        number: u32::try_from(line.number).unwrap_or(u32::MAX),
        task_id: line.task.to_string(),
        conversation_id: line.conversation.to_string(),
        title: line.title,
        priority: convert::priority_of(line.priority).into(),
        position: line.position.map(|p| p as u64),
        round: line.round.map(|(now, _)| now),
        rounds_max: line.round.map(|(_, max)| max),
        start_in_ms: line.start_in_ms,
        running_ms: line.running_ms,
        suspended_at_us: line.suspended_at.map(|at| at.0),
    }
}

/// The state of a job: of an open task that may be suspended or deferred.
const fn state_of(job: &JobLine) -> v1::TaskState {
    match JobStatus::of(job) {
        JobStatus::Queued => v1::TaskState::Queued,
        JobStatus::Running => v1::TaskState::Running,
        JobStatus::Deferred => v1::TaskState::Deferred,
        JobStatus::Suspended => v1::TaskState::Suspended,
    }
}

/// The open tasks: running ones, waiting ones in queue order, and suspended ones.
#[derive(Debug, Serialize, ToSchema)]
pub struct Jobs {
    jobs: Vec<Job>,
    /// The list in words, if it was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

/// The open tasks, and the list in words, if it was requested.
type Listed = (Vec<JobLine>, Option<String>);

impl From<Listed> for Jobs {
    fn from((lines, text): Listed) -> Self {
        Self { jobs: lines.into_iter().map(Into::into).collect(), text }
    }
}

fn listed((lines, text): Listed) -> v1::ListJobsResponse {
    v1::ListJobsResponse { jobs: lines.into_iter().map(wire).collect(), text: text.unwrap_or_default() }
}

/// The length of a description in words.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Words {
    /// One or two sentences that can be spoken.
    Short,
    /// Everything, one item per line.
    Detailed,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct JobsArgs {
    /// Include the list in words: `short`, which can be spoken, or `detailed`.
    #[param(inline)]
    text: Option<Words>,
}

fn asked(asked: v1::ListJobsRequest) -> Result<Args<JobsArgs>, ApiError> {
    let text = match v1::Words::try_from(asked.text) {
        Ok(v1::Words::Unspecified) => None,
        Ok(v1::Words::Short) => Some(Words::Short),
        Ok(v1::Words::Detailed) => Some(Words::Detailed),
        Err(_) => return Err(ApiError::invalid(format!("there is no such text: {}", asked.text)).at("text")),
    };
    Ok(Args(JobsArgs { text }))
}

async fn list_jobs(call: Call, Args(args): Args<JobsArgs>) -> Result<Listed, ApiError> {
    let lines = call.state.kernel.jobs(&call.caller.user).await?;
    let text = args.text.map(|words| match words {
        Words::Short => describe_jobs(&lines, Style::Short),
        Words::Detailed => describe_jobs(&lines, Style::Detailed),
    });
    Ok((lines, text))
}
