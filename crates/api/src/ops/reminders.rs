//! Reminders: to-dos of which the user is notified at a time.

use annie_actors::KernelError;
use annie_core::{
    ids::ConversationId,
    reminder::{RemindedTodo, SNOOZE_MINUTES_MAX},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::row::{
    Call, Operation,
    Verb::{Get, Post},
    route,
};
use crate::{
    auth::{
        KeyScope::{Chat, JobsRead},
        Need::Scope,
    },
    error::ApiError,
    grpc::v1,
    http::{
        extract::{Body, Name},
        schema,
    },
};

/// The operations on reminders.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/reminders", Scope(JobsRead), list_reminders, Reminders::from)
            .about("list_reminders", "jobs", "List your reminders that are to come.", "reminders list")
            .rpc("/annie.v1.Reminders/List", |_: v1::ListRemindersRequest| Ok(()), listed),
        route(Post, "/api/v1/reminders/{number}/cancel", Scope(Chat), cancel_reminder, Reminder::from)
            .about("cancel_reminder", "jobs", "Cancel a reminder. Its task stays in the list.", "reminders cancel")
            .rpc("/annie.v1.Reminders/Cancel", asked, message_of),
        route(Post, "/api/v1/reminders/{number}/snooze", Scope(Chat), snooze_reminder, Reminder::from)
            .about("snooze_reminder", "jobs", "Be reminded of an open task in so many minutes.", "reminders snooze")
            .rpc("/annie.v1.Reminders/Snooze", asked_snooze, message_of),
    ]
}

/// A reminder.
#[derive(Debug, Serialize, ToSchema)]
pub struct Reminder {
    /// The number of the task in your list.
    number: u64,
    /// What is to be done.
    title: String,
    /// When you are notified, RFC 3339; absent if the reminder was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    remind_at: Option<String>,
    /// When the task is due, in local time; absent if it has no date.
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<String>,
    /// The IANA zone of the local time.
    timezone: String,
    /// The conversation in which you are reminded.
    #[schema(value_type = schema::ConversationId)]
    conversation_id: ConversationId,
}

impl From<RemindedTodo> for Reminder {
    fn from(RemindedTodo { number, title, due, remind_at, reminder, .. }: RemindedTodo) -> Self {
        Self {
            number,
            title,
            remind_at: remind_at.map(|at| at.to_string()),
            due,
            timezone: reminder.timezone,
            conversation_id: reminder.conversation,
        }
    }
}

pub(super) fn message_of(RemindedTodo { number, title, due, remind_at, reminder, .. }: RemindedTodo) -> v1::Reminder {
    v1::Reminder {
        number,
        title,
        remind_at_us: remind_at.map(|at| at.0),
        due: due.unwrap_or_default(),
        timezone: reminder.timezone,
        conversation_id: reminder.conversation.to_string(),
    }
}

/// All reminders of a user that are to come.
#[derive(Debug, Serialize, ToSchema)]
pub struct Reminders {
    /// The next one first; at most 500.
    reminders: Vec<Reminder>,
}

impl From<Vec<RemindedTodo>> for Reminders {
    fn from(all: Vec<RemindedTodo>) -> Self {
        Self { reminders: all.into_iter().map(Into::into).collect() }
    }
}

fn listed(all: Vec<RemindedTodo>) -> v1::ListRemindersResponse {
    v1::ListRemindersResponse { reminders: all.into_iter().map(message_of).collect() }
}

async fn list_reminders(call: Call, (): ()) -> Result<Vec<RemindedTodo>, ApiError> {
    Ok(call.state.kernel.reminders(&call.caller.user).await?)
}

fn asked(asked: v1::ReminderRequest) -> Result<Name, ApiError> {
    Ok(Name(asked.number.to_string()))
}

/// The number in a path.
fn number(text: &str) -> Result<u64, ApiError> {
    text.parse().map_err(|_| KernelError::NotFound("reminder").into())
}

async fn cancel_reminder(call: Call, Name(which): Name) -> Result<RemindedTodo, ApiError> {
    Ok(call.state.kernel.cancel_reminder(&call.caller.user, number(&which)?).await?)
}

/// By how much a reminder is postponed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Snooze {
    /// Minutes from now.
    #[schema(minimum = 1, maximum = 525_600)]
    minutes: u32,
}

const _: () = assert!(SNOOZE_MINUTES_MAX == 525_600, "the description of `minutes` names the limit");

fn asked_snooze(asked: v1::SnoozeReminderRequest) -> Result<(Name, Body<Snooze>), ApiError> {
    Ok((Name(asked.number.to_string()), Body(Snooze { minutes: asked.minutes })))
}

async fn snooze_reminder(
    call: Call,
    (Name(which), Body(Snooze { minutes })): (Name, Body<Snooze>),
) -> Result<RemindedTodo, ApiError> {
    Ok(call.state.kernel.snooze_reminder(&call.caller.user, number(&which)?, minutes).await?)
}
