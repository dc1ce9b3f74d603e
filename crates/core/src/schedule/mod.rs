//! Schedules: messages that a user has submitted again and again, at times that a cron expression names.
//!
//! A schedule is a document (ADR 0033). This module holds its form and every decision about it, as pure functions that a write
//! runs under the lock of the user's documents. The kernel's worker (`actors/src/schedules.rs`) carries out what was decided.

mod files;
mod recurrence;
#[cfg(test)]
mod tests;
mod words;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::{
    files::{FileChange, FileSchedule, follow_files},
    recurrence::{INTERVAL_MS_MIN, Recurrence},
};
use crate::{
    ids::{ConversationId, IntentId, TaskId, UserId},
    ports::{
        Address, Decide, Document, DocumentChange, DocumentQuery, DocumentWrite, Namespace, Seen, StoreError,
        StoreErrorKind,
    },
    time::Micros,
};

/// The source of the messages that schedules submit, and the prefix of their ids.
pub const SCHEDULE: &str = "schedule";
/// Schedules of one user, at most.
pub const SCHEDULES_MAX: u32 = 50;
/// The longest message of a schedule, in bytes.
pub const TEXT_BYTES_MAX: usize = 8_000;
/// How late an occurrence may be submitted, in milliseconds. If the process did not run for longer, the occurrence is missed.
pub const CATCH_UP_MS_MAX: u64 = 3_600_000;

/// The schedules of all users. Stored documents have the fields of [`Schedule`]: an old one must stay readable.
pub static SCHEDULES: Namespace =
    Namespace { numbers: &["runs", "due_at"], contents: &["text"], ..Namespace::named("schedules") };

/// Why there is no such schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The times are not understood.
    #[error("{0}")]
    When(String),
    /// There is no such time zone.
    #[error("`{0}` is no time zone: give an IANA name such as `Europe/Prague`")]
    Zone(String),
    /// No time matches the expression.
    #[error("this schedule never comes: no date has such a day and month")]
    Never,
    /// Two occurrences are too close.
    #[error(
        "two runs of this schedule would be {} s apart, and the least is {} s: give it fewer times",
        interval_ms.div_ceil(1_000),
        INTERVAL_MS_MIN / 1_000
    )]
    TooOften {
        /// The distance of the two, in milliseconds.
        interval_ms: u64,
    },
    /// The message is empty or too long.
    #[error("the message of a schedule has 1 to {} bytes", TEXT_BYTES_MAX)]
    Text,
    /// The user has too many schedules.
    #[error("a user has at most {} schedules: remove one first", SCHEDULES_MAX)]
    TooMany,
}

/// A schedule, as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Unlike the number it is never used again, also after the user's data was deleted.
    pub id: Uuid,
    /// The message: a prompt, or `/skill` with arguments.
    pub text: String,
    /// The times as the user gave them: words or a cron expression.
    pub when: String,
    /// The IANA zone of the times.
    pub timezone: String,
    /// The conversation to which the message is submitted.
    pub conversation: ConversationId,
    /// Where the answers are delivered; absent means that the user is notified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<Address>,
    /// The next occurrence; absent while the schedule is paused.
    pub due_at: Option<Micros>,
    /// The occurrence that is being submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<Micros>,
    /// Why the schedule is paused; absent if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// Occurrences that were submitted.
    pub runs: u64,
    /// How often occurrences were left out because the process did not run at their time.
    #[serde(default)]
    pub missed: u64,
    /// Occurrences that were left out because the task of the one before had not ended.
    #[serde(default)]
    pub skipped: u64,
    /// The last occurrence that was submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at: Option<Micros>,
    /// The task of the last occurrence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_task: Option<TaskId>,
    /// The skill whose file asks for this schedule; absent if a person or a skill created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// A schedule with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberedSchedule {
    /// The number by which people and models refer to it.
    pub number: u64,
    /// The schedule.
    pub schedule: Schedule,
    /// Time of creation.
    pub created_at: Micros,
}

impl NumberedSchedule {
    /// A stored schedule.
    ///
    /// # Errors
    /// `Corrupt` if the document is none.
    pub fn of(document: &Document) -> Result<Self, StoreError> {
        let schedule = Schedule::of(document)?;
        Ok(Self { number: document.number, schedule, created_at: document.created_at })
    }
}

impl Schedule {
    fn of(document: &Document) -> Result<Self, StoreError> {
        Self::deserialize(&document.body).map_err(corrupt)
    }

    /// The times.
    ///
    /// # Errors
    /// If a later version does not understand the stored expression or zone.
    pub fn recurrence(&self) -> Result<Recurrence, ScheduleError> {
        Recurrence::parse(&self.when, &self.timezone)
    }

    /// The id of the message of an occurrence. The log stores one message with this id, in all processes.
    #[must_use]
    pub fn message_id(&self, occurrence: Micros) -> String {
        format!("{SCHEDULE}:{}:{}", self.id.simple(), occurrence.0)
    }

    fn into_change(self, number: u64) -> Result<DocumentChange, StoreError> {
        let body = serde_json::to_value(self).map_err(corrupt)?;
        Ok(DocumentChange::Replace { number, body })
    }

    fn pause(&mut self, why: &str) {
        (self.due_at, self.claimed, self.paused) = (None, None, Some(why.to_owned()));
    }

    /// Sets the next occurrence after `after`.
    fn advance(&mut self, after: Micros) {
        self.claimed = None;
        match self.recurrence() {
            Ok(times) => match times.next_after(after) {
                Some(next) => self.due_at = Some(next),
                None => self.pause(&ScheduleError::Never.to_string()),
            },
            Err(error) => self.pause(&error.to_string()),
        }
    }
}

fn corrupt(error: impl ToString) -> StoreError {
    StoreError { kind: StoreErrorKind::Corrupt, what: "reading a schedule", detail: error.to_string() }
}

/// A schedule to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSchedule {
    /// The message.
    pub text: String,
    /// The times, in words or as a cron expression.
    pub when: String,
    /// The IANA zone of the times.
    pub timezone: String,
    /// The conversation; `None` for one of its own.
    pub conversation: Option<ConversationId>,
    /// Where the answers are delivered.
    pub reply_to: Option<Address>,
    /// The skill whose file asks for it. There is one schedule for each file.
    pub file: Option<String>,
}

impl NewSchedule {
    /// The write that creates the schedule. It keeps everything as it is if the user has [`SCHEDULES_MAX`] schedules.
    ///
    /// # Errors
    /// If the message, the times or the zone is refused.
    pub fn write(self, user: UserId, intent: IntentId, now: Micros) -> Result<DocumentWrite, ScheduleError> {
        let text = self.text.trim().to_owned();
        if text.is_empty() || text.len() > TEXT_BYTES_MAX {
            return Err(ScheduleError::Text);
        }
        let first = Recurrence::parse(&self.when, &self.timezone)?.first(now)?;
        let own = || ConversationId::for_key(&user, &format!("{SCHEDULE}:{}", intent.uuid().simple()));
        let schedule = Schedule {
            id: intent.uuid(),
            text,
            when: self.when.trim().to_owned(),
            timezone: self.timezone,
            conversation: self.conversation.unwrap_or_else(own),
            reply_to: self.reply_to,
            due_at: Some(first),
            claimed: None,
            paused: None,
            runs: 0,
            missed: 0,
            skipped: 0,
            last_at: None,
            last_task: None,
            file: self.file,
        };
        let decide: Decide = Arc::new(move |seen: &[Document]| {
            if seen.len() >= SCHEDULES_MAX as usize {
                return Ok(DocumentChange::Keep);
            }
            for document in seen.iter().filter(|_| schedule.file.is_some()) {
                if Schedule::of(document)?.file == schedule.file {
                    return Ok(DocumentChange::Keep);
                }
            }
            Ok(DocumentChange::Insert(serde_json::to_value(&schedule).map_err(corrupt)?))
        });
        let seen = Seen::Query(all());
        Ok(DocumentWrite { user, namespace: &SCHEDULES, intent, seen, decide, at: now })
    }
}

/// The query for all schedules of a user.
#[must_use]
pub fn all() -> DocumentQuery {
    DocumentQuery { limit: SCHEDULES_MAX, ..DocumentQuery::default() }
}

/// A change of one schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleChange {
    /// Its user pauses it.
    Pause,
    /// Its user resumes it. Occurrences of the time in between are not made up for.
    Resume,
    /// Its user removes it.
    Remove,
    /// Its file asks for another message or other times, from now on.
    Rewrite {
        /// The message.
        text: String,
        /// The times.
        when: String,
        /// The IANA zone of the times.
        timezone: String,
    },
    /// Claims the occurrence that is due, before it is submitted. It is the last one that is not older than [`CATCH_UP_MS_MAX`];
    /// without one, or while the task of the one before runs, the schedule advances.
    Claim {
        /// The occurrence that the worker has seen as due.
        due_at: Micros,
        /// Whether the task of the occurrence before has not ended.
        is_running: bool,
    },
    /// The message of the claimed occurrence is stored.
    Submitted {
        /// The occurrence.
        occurrence: Micros,
        /// The task of the message.
        task: TaskId,
    },
    /// The message of the claimed occurrence is refused for good: the schedule is paused with the reason.
    Refused {
        /// The occurrence.
        occurrence: Micros,
        /// The reason.
        why: String,
    },
}

impl ScheduleChange {
    /// The write of the change. It keeps everything as it is if there is no such schedule, or if the change does not apply to its
    /// state.
    #[must_use]
    pub fn write(self, user: UserId, number: u64, intent: IntentId, now: Micros) -> DocumentWrite {
        let decide: Decide = Arc::new(move |seen: &[Document]| {
            let Some(document) = seen.first() else { return Ok(DocumentChange::Keep) };
            self.decide(number, Schedule::of(document)?, now)
        });
        DocumentWrite { user, namespace: &SCHEDULES, intent, seen: Seen::Number(number), decide, at: now }
    }

    fn decide(&self, number: u64, mut schedule: Schedule, now: Micros) -> Result<DocumentChange, StoreError> {
        match self {
            Self::Remove => return Ok(DocumentChange::Archive(number)),
            Self::Pause if schedule.paused.is_none() => schedule.pause("by its user"),
            Self::Resume if schedule.paused.is_some() => {
                schedule.paused = None;
                schedule.advance(now);
            }
            Self::Rewrite { text, when, timezone } => {
                (schedule.text, schedule.when) = (text.clone(), when.clone());
                (schedule.timezone, schedule.paused) = (timezone.clone(), None);
                schedule.advance(now);
            }
            Self::Claim { due_at, is_running } if schedule.due_at == Some(*due_at) && schedule.claimed.is_none() => {
                schedule.claim(*due_at, *is_running, now);
            }
            Self::Submitted { occurrence, task } if schedule.claimed == Some(*occurrence) => {
                schedule.runs += 1;
                (schedule.last_at, schedule.last_task) = (Some(*occurrence), Some(*task));
                schedule.advance(now.max(*occurrence));
            }
            Self::Refused { occurrence, why } if schedule.claimed == Some(*occurrence) => schedule.pause(why),
            Self::Pause | Self::Resume | Self::Claim { .. } | Self::Submitted { .. } | Self::Refused { .. } => {
                return Ok(DocumentChange::Keep);
            }
        }
        schedule.into_change(number)
    }
}

impl Schedule {
    fn claim(&mut self, due_at: Micros, is_running: bool, now: Micros) {
        let times = match self.recurrence() {
            Ok(times) => times,
            Err(error) => return self.pause(&error.to_string()),
        };
        match times.to_run(due_at, now, CATCH_UP_MS_MAX) {
            None => {
                self.missed += 1;
                self.advance(now);
            }
            Some(_) if is_running => {
                self.skipped += 1;
                self.advance(now);
            }
            Some(occurrence) => {
                // The occurrences before it are made up for by this one.
                self.missed += u64::from(occurrence != due_at);
                self.claimed = Some(occurrence);
            }
        }
    }
}
