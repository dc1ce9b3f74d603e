//! Schedules: submits the message of each occurrence that is due to the conversation of its schedule.
//!
//! Owns: when the next occurrence is due. Supervised by: infra. Survives its death: the schedules, which are documents. The
//! worker stores the claim of an occurrence in the schedule before it submits the message. After a crash, this or another process
//! therefore submits the same occurrence again under the same message id, and the log stores that message once.

use std::sync::Arc;

use annie_core::{
    ids::{IntentId, UserId},
    ports::{Document, StoreError, StoreErrorKind},
    schedule::{NumberedSchedule, SCHEDULE, SCHEDULES, Schedule, ScheduleChange},
    time::Micros,
};
use serde_json::{Map, Value};

use crate::{
    due_timer::{Blocked, earlier, later},
    kernel::{KernelError, Submission, accept_message},
    observe::{Branch, NodeError, task_point},
    wiring::Wiring,
    worker::{Chore, Pass, wait_for},
};

/// Page size: how many due schedules one query returns, in addition to blocked ones.
const DUE_MAX: u32 = 100;
/// Maximum interval between two passes while an occurrence is awaited, in milliseconds. After the machine slept, timers fire late
/// by the length of the sleep; a pass reads the wall clock.
const CLOCK_READ_MS_MAX: u64 = 60_000;

/// The chore of the worker for schedules.
pub(crate) struct Schedules {
    submitted: u64,
}

impl Chore for Schedules {
    const KIND: &'static str = "schedules";
    const SUBJECT: &'static str = "the schedules";
    type Config = ();
    type Hint = ();
    type Batch = ();
    /// How many occurrences were submitted.
    type Done = u64;

    fn new((): (), _wiring: Arc<Wiring>, _owner: Branch) -> Self {
        Self { submitted: 0 }
    }

    fn take_hint(&mut self, (): ()) -> u64 {
        0
    }

    fn batch(&mut self) {}

    async fn pass(wiring: &Wiring, (): &()) -> Result<Pass<u64>, String> {
        process_due(wiring).await.map_err(|error| error.to_string())
    }

    fn passed(&mut self, submitted: u64) {
        self.submitted += submitted;
    }

    fn view(&self) -> Map<String, Value> {
        [("submitted".to_owned(), self.submitted.into())].into_iter().collect()
    }
}

/// Submits every occurrence that is due.
async fn process_due(wiring: &Wiring) -> Result<Pass<u64>, StoreError> {
    let mut submitted = 0;
    let mut blocked = Blocked::new();
    loop {
        let rows = blocked.rows(DUE_MAX);
        let due = wiring.documents.due_documents(&SCHEDULES, wiring.env.now(), rows).await?;
        let is_last = due.len() < rows as usize;
        for (user, document) in due {
            let key = (user, document.number);
            if blocked.has(&key) {
                continue;
            }
            match run_due(wiring, &key.0, &document).await {
                Ok(is_submitted) => submitted += u64::from(is_submitted),
                Err(KernelError::Store(error)) if error.kind != StoreErrorKind::Corrupt => return Err(error),
                Err(error) => {
                    let again = wait_for(wiring, format!("schedule {} of {}", key.1, key.0), &error);
                    blocked.put(key, again);
                }
            }
        }
        if is_last || blocked.is_full() {
            break;
        }
    }
    let first = wiring.documents.due_documents(&SCHEDULES, Micros(i64::MAX), 1).await?;
    let due_at = |(_, document): &(UserId, Document)| Micros(document.body["due_at"].as_i64().unwrap_or_default());
    let next = blocked.next(first.first().map(due_at));
    let clock_read = next.map(|_| later(wiring.env.now(), CLOCK_READ_MS_MAX));
    Ok(Pass { next: earlier(next, clock_read), done: submitted })
}

/// Processes a due schedule: claims the occurrence, submits the message, and sets the next occurrence. Every step is idempotent,
/// because a crash may cause a repetition. Returns whether a message was submitted.
async fn run_due(wiring: &Wiring, user: &UserId, document: &Document) -> Result<bool, KernelError> {
    let NumberedSchedule { number, schedule, .. } = NumberedSchedule::of(document)?;
    let (occurrence, schedule) = match (schedule.claimed, schedule.due_at) {
        (Some(occurrence), _) => (occurrence, schedule),
        (None, None) => return Ok(false),
        (None, Some(due_at)) => {
            let claim = ScheduleChange::Claim { due_at, is_running: is_running(wiring, user, &schedule).await? };
            let before = schedule.missed;
            let Some(after) = change(wiring, user, number, claim).await? else { return Ok(false) };
            let Some(occurrence) = after.claimed else {
                let result = match &after.paused {
                    Some(_) => "refused",
                    None if after.missed > before => "missed",
                    None => "skipped",
                };
                tracing::info!(number, %due_at, result, "an occurrence of a schedule was not submitted");
                count(result);
                return Ok(false);
            };
            (occurrence, after)
        }
    };
    point(wiring, "claimed").await?;
    let message = message_of(user, &schedule, schedule.message_id(occurrence));
    let end = match accept_message(wiring, message).await {
        Ok(sent) => {
            point(wiring, "submitted").await?;
            ScheduleChange::Submitted { occurrence, task: sent.task }
        }
        Err(
            error @ (KernelError::Invalid(_)
            | KernelError::InvalidField { .. }
            | KernelError::NotFound(_)
            | KernelError::Deleted
            | KernelError::Conflict { .. }),
        ) => {
            tracing::warn!(number, %error, "a schedule is paused, because its message was refused");
            ScheduleChange::Refused { occurrence, why: error.to_string() }
        }
        Err(error) => return Err(error),
    };
    let is_submitted = matches!(end, ScheduleChange::Submitted { .. });
    change(wiring, user, number, end).await?;
    count(if is_submitted { "submitted" } else { "refused" });
    Ok(is_submitted)
}

fn count(result: &'static str) {
    metrics::counter!("annie_schedule_occurrences_total", "result" => result).increment(1);
}

/// Builds the message of one occurrence. `id` makes the submission idempotent.
pub(crate) fn message_of(user: &UserId, schedule: &Schedule, id: String) -> Submission {
    let mut message = Submission::new(user.clone(), SCHEDULE, schedule.text.clone()).within(schedule.conversation);
    message.client_id = Some(id);
    message.reply_to = schedule.reply_to.clone();
    message.verbatim = true;
    message
}

/// Whether the task of the last occurrence has not ended.
async fn is_running(wiring: &Wiring, user: &UserId, schedule: &Schedule) -> Result<bool, StoreError> {
    let Some(task) = schedule.last_task else { return Ok(false) };
    let row = wiring.store.task(annie_core::event::Scope::User(user.clone()), task).await?;
    Ok(row.is_some_and(|row| !row.state.is_ended()))
}

/// Changes a schedule. Returns `None` if the change does not apply, because the schedule was changed by its user or another
/// process.
pub(crate) async fn change(
    wiring: &Wiring,
    user: &UserId,
    number: u64,
    change: ScheduleChange,
) -> Result<Option<Schedule>, StoreError> {
    let intent = IntentId::from_uuid(wiring.env.uuid());
    let write = change.write(user.clone(), number, intent, wiring.env.now());
    let written = wiring.documents.write_document(write).await?;
    Ok(written.document.as_ref().map(NumberedSchedule::of).transpose()?.map(|found| found.schedule))
}

/// A fault point between two steps of an occurrence.
async fn point(wiring: &Wiring, point: &str) -> Result<(), StoreError> {
    let failed = |why: NodeError| StoreError {
        kind: StoreErrorKind::Internal,
        what: "running a schedule",
        detail: why.to_string(),
    };
    task_point(&wiring.env, "schedule", point).await.map_err(failed)
}
