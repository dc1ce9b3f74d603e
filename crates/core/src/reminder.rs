//! Reminders: a to-do may name an instant at which its user is notified of it.
//!
//! The reminder is a part of the to-do's document (ADR 0042), so that one write changes both. This module holds this part and every
//! decision about it, as pure functions that a write runs under the lock of the user's to-dos. The kernel's worker
//! (`actors/src/reminders.rs`) carries out what was decided. The other fields of a to-do belong to the skills `tasks.*`.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use chrono::{NaiveDateTime, TimeDelta, TimeZone};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    ids::{ConversationId, IntentId, TaskId, UserId},
    ports::{
        Decide, Document, DocumentChange, DocumentQuery, DocumentWrite, Namespace, NumberRange, Seen, SkillCall,
        StoreError, StoreErrorKind,
    },
    skill::ORIGIN_TAG,
    time::Micros,
};

/// The source of the messages of reminders, and the prefix of their ids.
pub const REMINDER: &str = "reminder";
/// Reminders that a list shows, at most.
pub const REMINDERS_MAX: u32 = 500;
/// The longest delay by which a person postpones a reminder, in minutes: a year.
pub const SNOOZE_MINUTES_MAX: u32 = 365 * 24 * 60;
/// A reminder that is sent so much after its time says so, in milliseconds. The worker reads the clock once a minute.
const LATE_MS_MIN: u64 = 90_000;
/// The longest gap of local time that is searched for its end, in minutes: the zone of Apia skipped a day.
const GAP_MINUTES_MAX: i64 = 25 * 60;

/// The to-dos of all users. The due time is compared as text. Stored documents have these fields: an old one must stay readable.
pub static TODOS: Namespace = Namespace {
    texts: &["due", "status", "part_of"],
    numbers: &["priority", "remind_at"],
    tags: "tags",
    contents: &["title", "description", "tags"],
    ..Namespace::named("tasks")
};

/// The reminder of a to-do, beside the instant `remind_at`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reminder {
    /// The intent that set the reminder. Unlike the number of the to-do it is never used again.
    pub id: Uuid,
    /// The conversation in which the user is reminded.
    pub conversation: ConversationId,
    /// The task that set the reminder. If its message had an address, the reminder is delivered there.
    pub task: TaskId,
    /// The IANA zone of the times that the reminder names.
    pub timezone: String,
    /// The text of the reminder that is being sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<String>,
    /// When the user was last reminded of this to-do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reminded_at: Option<Micros>,
}

impl Reminder {
    /// A reminder that a skill sets.
    #[must_use]
    pub fn set_by(call: &SkillCall) -> Self {
        Self {
            id: call.intent.uuid(),
            conversation: call.conversation,
            task: call.task,
            timezone: call.timezone.clone(),
            claimed: None,
            reminded_at: None,
        }
    }
}

/// A to-do as its reminder sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemindedTodo {
    /// The number of the to-do.
    pub number: u64,
    /// What is to be done.
    pub title: String,
    /// When it is due, in the user's local time.
    pub due: Option<String>,
    /// When the user is reminded; absent if the user was reminded, or the reminder was cancelled.
    pub remind_at: Option<Micros>,
    /// The reminder.
    pub reminder: Reminder,
    /// The origins of the texts of the to-do, which the user did not write. Empty if the user wrote them.
    pub origins: Vec<String>,
}

/// The fields of a to-do's body that a reminder needs.
#[derive(Deserialize)]
struct Body {
    title: String,
    status: String,
    due: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    remind_at: Option<Micros>,
    #[serde(default)]
    reminder: Option<Reminder>,
}

impl Body {
    fn of(document: &Document) -> Result<Self, StoreError> {
        Self::deserialize(&document.body).map_err(corrupt)
    }

    fn is_open(&self) -> bool {
        !matches!(self.status.as_str(), "done" | "cancelled")
    }
}

impl RemindedTodo {
    /// The to-do of a document; `None` if it never had a reminder.
    ///
    /// # Errors
    /// `Corrupt` if the document is no to-do.
    pub fn of(document: &Document) -> Result<Option<Self>, StoreError> {
        let Body { title, due, tags, remind_at, reminder, .. } = Body::of(document)?;
        let number = document.number;
        let origins = tags.iter().filter_map(|tag| tag.strip_prefix(ORIGIN_TAG)).map(str::to_owned).collect();
        Ok(reminder.map(|reminder| Self { number, title, due, remind_at, reminder, origins }))
    }

    /// The id of the message of the reminder. The log stores one message with this id, in all processes.
    #[must_use]
    pub fn message_id(&self, remind_at: Micros) -> String {
        format!("{REMINDER}:{}:{}", self.reminder.id.simple(), remind_at.0)
    }

    /// The message of the reminder: a line for models, followed by the text that the user gets.
    fn message(&self, remind_at: Micros, now: Micros) -> String {
        let Self { number, title, due, reminder, .. } = self;
        let due = due.as_ref().map(|due| format!(", due {}", due.replace('T', " "))).unwrap_or_default();
        let is_late = now.since_ms(remind_at) >= LATE_MS_MIN;
        let late = if is_late {
            let zone: Tz = reminder.timezone.parse().unwrap_or(Tz::UTC);
            let time = remind_at.to_utc().with_timezone(&zone).format("%Y-%m-%d %H:%M %Z");
            format!(" This reminder is late: it was set for {time}, when it could not be sent.")
        } else {
            String::new()
        };
        format!(
            "[Reminder of task #{number}]\nReminder: {title} (task #{number}{due}).{late} Say “it is done” or “snooze it for 10 \
             minutes”."
        )
    }
}

/// What is to be done, out of the text of a reminder.
#[must_use]
pub fn title_of(text: &str) -> &str {
    let (before, _) = text.rsplit_once(" (task #").unwrap_or((text, ""));
    before.strip_prefix("Reminder: ").unwrap_or(before)
}

/// The line of a reminder's message that stands in prompts, and the text that the user gets.
#[must_use]
pub fn parts(message: &str) -> (&str, &str) {
    message.split_once('\n').unwrap_or((message, message))
}

fn corrupt(error: impl ToString) -> StoreError {
    StoreError { kind: StoreErrorKind::Corrupt, what: "reading a task", detail: error.to_string() }
}

/// The query for the to-dos of a user that have a reminder to come.
#[must_use]
pub fn pending() -> DocumentQuery {
    let is_set = NumberRange { min: Some(0.0), max: None };
    DocumentQuery { numbers: [NumberRange::default(), is_set], limit: REMINDERS_MAX, ..DocumentQuery::default() }
}

/// The instant of a local time. A time that a change of the clocks skips is the first instant after it, and one that occurs twice
/// is the first one, as in schedules. `None` for a time outside of the calendar.
#[must_use]
pub fn instant(local: NaiveDateTime, zone: Tz) -> Option<Micros> {
    let exact = |at: NaiveDateTime| zone.from_local_datetime(&at).earliest();
    let after_gap = (1..=GAP_MINUTES_MAX)
        .filter_map(|minutes| exact(local.checked_add_signed(TimeDelta::try_minutes(minutes)?)?))
        .next();
    exact(local).or(after_gap).map(|at| Micros::from_utc(at.to_utc()))
}

/// When a to-do with this due time reminds: at its minute. A day without a time does not remind, nor does a time that has passed.
#[must_use]
pub fn at_due(due: &str, zone: Tz, now: Micros) -> Option<Micros> {
    let local = NaiveDateTime::parse_from_str(due, "%Y-%m-%dT%H:%M").ok()?;
    instant(local, zone).filter(|at| *at > now)
}

/// A change of one reminder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReminderChange {
    /// Fixes the text of the reminder that is due, before it is sent.
    Claim {
        /// The instant that the worker has seen as due.
        remind_at: Micros,
    },
    /// The message of the reminder is stored, or is refused for good.
    Sent {
        /// The instant of the reminder.
        remind_at: Micros,
    },
    /// Its user cancels it. The to-do stays.
    Cancel,
    /// Its user wants to be reminded at this instant instead, also after the reminder was sent.
    Snooze {
        /// The instant.
        until: Micros,
        /// The reminder of a to-do that had none.
        new: Reminder,
    },
}

impl ReminderChange {
    /// The write of the change. It keeps everything as it is if there is no such to-do, or if the change does not apply to its
    /// state.
    #[must_use]
    pub fn write(self, user: UserId, number: u64, intent: IntentId, now: Micros) -> DocumentWrite {
        let decide: Decide = Arc::new(move |seen: &[Document]| {
            let Some(document) = seen.first() else { return Ok(DocumentChange::Keep) };
            self.decide(document, now)
        });
        DocumentWrite { user, namespace: &TODOS, intent, seen: Seen::Number(number), decide, at: now }
    }

    fn decide(&self, document: &Document, now: Micros) -> Result<DocumentChange, StoreError> {
        let is_open = Body::of(document)?.is_open();
        let todo = RemindedTodo::of(document)?;
        let remind_at = todo.as_ref().and_then(|todo| todo.remind_at);
        let (remind_at, reminder) = match (self, todo) {
            (Self::Claim { remind_at: due }, Some(todo))
                if remind_at == Some(*due) && todo.reminder.claimed.is_none() =>
            {
                let claimed = Some(todo.message(*due, now));
                (remind_at, Reminder { claimed, ..todo.reminder })
            }
            (Self::Sent { remind_at: due }, Some(todo)) if remind_at == Some(*due) => {
                (None, Reminder { claimed: None, reminded_at: Some(now), ..todo.reminder })
            }
            (Self::Cancel, Some(todo)) if remind_at.is_some() => (None, Reminder { claimed: None, ..todo.reminder }),
            (Self::Snooze { until, new }, todo) if is_open => {
                // A new id: the message of the reminder before may be stored under the old one.
                let old = todo.map_or_else(|| new.clone(), |todo| todo.reminder);
                (Some(*until), Reminder { id: new.id, claimed: None, ..old })
            }
            (Self::Claim { .. } | Self::Sent { .. } | Self::Cancel | Self::Snooze { .. }, _) => {
                return Ok(DocumentChange::Keep);
            }
        };
        let mut body = document.body.clone();
        body["remind_at"] = remind_at.map_or(Value::Null, |at| json!(at));
        body["reminder"] = serde_json::to_value(reminder).map_err(corrupt)?;
        Ok(DocumentChange::Replace { number: document.number, body })
    }
}
