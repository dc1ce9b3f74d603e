//! Schedules: messages that are submitted again and again at fixed times.

use annie_actors::{KernelError, Submitted};
use annie_core::{
    ids::{ConversationId, TaskId},
    ports::Address,
    schedule::{self, NumberedSchedule, ScheduleChange},
    time::Micros,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    acts::{Subject, recorded},
    row::{
        Call, Operation,
        Verb::{Get, Post},
        command, route,
    },
};
use crate::{
    auth::{
        KeyScope::{Chat, JobsControl, JobsRead},
        Need::Scope,
    },
    error::ApiError,
    grpc::{convert, v1},
    http::{
        extract::{Body, Name},
        messages::{Accepted, ReplyTo},
        schema,
    },
};

/// The operations on schedules.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/schedules", Scope(JobsRead), list_schedules, Schedules::from)
            .about("list_schedules", "jobs", "List your schedules.", "cron list")
            .rpc("/annie.v1.Schedules/List", |_: v1::ListSchedulesRequest| Ok(()), listed),
        route(Post, "/api/v1/schedules", Scope(Chat), create_schedule, Schedule::from)
            .about("create_schedule", "jobs", "Have a message submitted again and again at fixed times.", "cron add")
            .rpc("/annie.v1.Schedules/Create", asked_new, message_of),
        route(Get, "/api/v1/schedules/{number}/next", Scope(JobsRead), next_occurrences, Occurrences::from)
            .about("next_occurrences", "jobs", "Get the next ten times of a schedule.", "cron next")
            .rpc("/annie.v1.Schedules/Next", asked, occurrences),
        route(
            Post,
            "/api/v1/schedules/{number}/pause",
            Scope(JobsControl),
            recorded("schedule.pause", about, pause_schedule),
            Schedule::from,
        )
        .about("pause_schedule", "jobs", "Pause a schedule.", "cron pause")
        .rpc("/annie.v1.Schedules/Pause", asked, message_of),
        route(
            Post,
            "/api/v1/schedules/{number}/resume",
            Scope(JobsControl),
            recorded("schedule.resume", about, resume_schedule),
            Schedule::from,
        )
        .about("resume_schedule", "jobs", "Resume a schedule that is paused.", "cron resume")
        .rpc("/annie.v1.Schedules/Resume", asked, message_of),
        command(
            "/api/v1/schedules/{number}/remove",
            Scope(JobsControl),
            recorded("schedule.remove", about, remove_schedule),
            "The schedule is removed",
        )
        .about("remove_schedule", "jobs", "Remove a schedule.", "cron remove")
        .rpc("/annie.v1.Schedules/Remove", asked, |()| v1::RemoveScheduleResponse {}),
        route(Post, "/api/v1/schedules/{number}/run", Scope(Chat), run_schedule, Accepted::from)
            .about("run_schedule", "jobs", "Submit the message of a schedule now.", "cron run-now")
            .rpc("/annie.v1.Schedules/RunNow", asked, convert::submitted),
    ]
}

/// A schedule.
#[derive(Debug, Serialize, ToSchema)]
pub struct Schedule {
    /// The number of the schedule in its routes.
    number: u64,
    /// The message: a prompt, or `/skill` with arguments.
    text: String,
    /// The times as they were given: words or a cron expression.
    when: String,
    /// The times as a cron expression.
    cron: String,
    /// The IANA zone of the times.
    timezone: String,
    /// The conversation to which the message is submitted.
    #[schema(value_type = schema::ConversationId)]
    conversation_id: ConversationId,
    /// Where the answers are delivered; absent if you are notified of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<ReplyTo>,
    /// The next time, RFC 3339; absent while the schedule is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    next_at: Option<String>,
    /// Why the schedule is paused; absent if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<String>,
    /// How many times the message was submitted.
    runs: u64,
    /// How often times were left out because the server did not run.
    missed: u64,
    /// How many times were left out because the task of the time before had not ended.
    skipped: u64,
    /// The last time for which the message was submitted, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    last_at: Option<String>,
    /// The task of that message.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::TaskId>)]
    last_task_id: Option<TaskId>,
    /// The skill whose file asks for this schedule; absent if it was created otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    skill: Option<String>,
    /// RFC 3339.
    #[schema(format = DateTime)]
    created_at: String,
}

/// The cron expression of a stored schedule; empty if it is no longer understood, which pauses the schedule.
fn cron_of(schedule: &schedule::Schedule) -> String {
    schedule.recurrence().map(|times| times.cron()).unwrap_or_default()
}

impl From<NumberedSchedule> for Schedule {
    fn from(NumberedSchedule { number, schedule, created_at }: NumberedSchedule) -> Self {
        Self {
            number,
            cron: cron_of(&schedule),
            text: schedule.text,
            when: schedule.when,
            timezone: schedule.timezone,
            conversation_id: schedule.conversation,
            reply_to: schedule.reply_to.map(ReplyTo::from),
            next_at: schedule.due_at.map(|at| at.to_string()),
            paused: schedule.paused,
            runs: schedule.runs,
            missed: schedule.missed,
            skipped: schedule.skipped,
            last_at: schedule.last_at.map(|at| at.to_string()),
            last_task_id: schedule.last_task,
            skill: schedule.file,
            created_at: created_at.to_string(),
        }
    }
}

pub(super) fn message_of(NumberedSchedule { number, schedule, created_at }: NumberedSchedule) -> v1::Schedule {
    v1::Schedule {
        number,
        cron: cron_of(&schedule),
        text: schedule.text,
        when: schedule.when,
        timezone: schedule.timezone,
        conversation_id: schedule.conversation.to_string(),
        reply_to: schedule.reply_to.map(|Address { channel, to }| v1::ReplyTo { channel, to }),
        next_at_us: schedule.due_at.map(|at| at.0),
        paused: schedule.paused.unwrap_or_default(),
        runs: schedule.runs,
        missed: schedule.missed,
        skipped: schedule.skipped,
        last_at_us: schedule.last_at.map(|at| at.0),
        last_task_id: schedule.last_task.map(|task| task.to_string()).unwrap_or_default(),
        skill: schedule.file.unwrap_or_default(),
        created_at_us: created_at.0,
    }
}

/// All schedules of a user.
#[derive(Debug, Serialize, ToSchema)]
pub struct Schedules {
    /// By number.
    schedules: Vec<Schedule>,
}

impl From<Vec<NumberedSchedule>> for Schedules {
    fn from(all: Vec<NumberedSchedule>) -> Self {
        Self { schedules: all.into_iter().map(Into::into).collect() }
    }
}

fn listed(all: Vec<NumberedSchedule>) -> v1::ListSchedulesResponse {
    v1::ListSchedulesResponse { schedules: all.into_iter().map(message_of).collect() }
}

async fn list_schedules(call: Call, (): ()) -> Result<Vec<NumberedSchedule>, ApiError> {
    Ok(call.state.kernel.schedules(&call.caller.user).await?)
}

/// A schedule to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSchedule {
    /// The message: a prompt, or `/skill` with arguments.
    #[schema(min_length = 1, max_length = 8000)]
    text: String,
    /// The times: words such as `every weekday at 8`, or a cron expression with five or six fields. At most one a minute.
    #[schema(min_length = 1, max_length = 200)]
    when: String,
    /// The IANA zone of the times; yours if absent.
    #[serde(default)]
    #[schema(max_length = 64)]
    timezone: String,
    /// The conversation to which the message is submitted; one of its own if absent.
    #[serde(default)]
    #[schema(value_type = Option<schema::ConversationId>)]
    conversation_id: Option<String>,
    /// Deliver the answers to this address; without one you are notified of them.
    #[serde(default)]
    reply_to: Option<ReplyTo>,
}

fn asked_new(asked: v1::CreateScheduleRequest) -> Result<Body<NewSchedule>, ApiError> {
    let v1::CreateScheduleRequest { text, when, timezone, conversation_id, reply_to } = asked;
    let conversation_id = Some(conversation_id);
    let reply_to = reply_to.map(|v1::ReplyTo { channel, to }| ReplyTo::from(Address { channel, to }));
    Ok(Body(NewSchedule { text, when, timezone, conversation_id, reply_to }))
}

async fn create_schedule(call: Call, Body(new): Body<NewSchedule>) -> Result<NumberedSchedule, ApiError> {
    let NewSchedule { text, when, timezone, conversation_id, reply_to } = new;
    let (kernel, user) = (&call.state.kernel, &call.caller.user);
    let timezone = if timezone.is_empty() { kernel.timezone(user).to_owned() } else { timezone };
    let conversation = convert::maybe_id("conversation_id", &conversation_id.unwrap_or_default())?;
    let reply_to = reply_to.map(Address::from);
    let new = schedule::NewSchedule { text, when, timezone, conversation, reply_to, file: None };
    Ok(kernel.create_schedule(user, new).await?)
}

/// The next times of a schedule.
#[derive(Debug, Serialize, ToSchema)]
pub struct Occurrences {
    /// RFC 3339; none while the schedule is paused.
    times: Vec<String>,
}

impl From<Vec<Micros>> for Occurrences {
    fn from(times: Vec<Micros>) -> Self {
        Self { times: times.iter().map(ToString::to_string).collect() }
    }
}

fn occurrences(times: Vec<Micros>) -> v1::NextOccurrencesResponse {
    v1::NextOccurrencesResponse { times_us: times.iter().map(|at| at.0).collect() }
}

fn asked(asked: v1::ScheduleRequest) -> Result<Name, ApiError> {
    Ok(Name(asked.number.to_string()))
}

/// The number in a path.
fn number(text: &str) -> Result<u64, ApiError> {
    text.parse().map_err(|_| KernelError::NotFound("schedule").into())
}

async fn next_occurrences(call: Call, Name(which): Name) -> Result<Vec<Micros>, ApiError> {
    Ok(call.state.kernel.occurrences(&call.caller.user, number(&which)?).await?)
}

async fn change(call: Call, which: &str, change: ScheduleChange) -> Result<NumberedSchedule, ApiError> {
    Ok(call.state.kernel.change_schedule(&call.caller.user, number(which)?, change).await?)
}

fn about(Name(which): &Name) -> Subject {
    Subject::of(format!("schedule {which}"))
}

async fn pause_schedule(call: Call, Name(which): Name) -> Result<NumberedSchedule, ApiError> {
    change(call, &which, ScheduleChange::Pause).await
}

async fn resume_schedule(call: Call, Name(which): Name) -> Result<NumberedSchedule, ApiError> {
    change(call, &which, ScheduleChange::Resume).await
}

async fn remove_schedule(call: Call, Name(which): Name) -> Result<(), ApiError> {
    change(call, &which, ScheduleChange::Remove).await.map(drop)
}

async fn run_schedule(call: Call, Name(which): Name) -> Result<Submitted, ApiError> {
    Ok(call.state.kernel.run_schedule(&call.caller.user, number(&which)?).await?)
}
