//! Reminders: sends the message of each to-do whose instant has come to the conversation in which the reminder was set.
//!
//! Owns: when the next reminder is due. Supervised by: infra. Survives its death: the reminders, which are a part of the to-dos. The
//! worker stores the text of a reminder in the to-do before it sends the message. After a crash, this or another process therefore
//! sends the same text again under the same message id, and the log stores that message once.

use std::sync::Arc;

use annie_core::{
    ids::{IntentId, UserId},
    ports::{Address, Document, StoreError, StoreErrorKind},
    reminder::{REMINDER, RemindedTodo, ReminderChange, TODOS},
    time::Micros,
};
use serde_json::{Map, Value};

use crate::{
    due_timer::{Blocked, earlier, later},
    kernel::{KernelError, Submission, accept_message},
    observe::{Branch, NodeError, task_point},
    task_log::message_of,
    wiring::Wiring,
    worker::{Chore, Pass, wait_for},
};

/// Page size: how many due reminders one query returns, in addition to blocked ones.
const DUE_MAX: u32 = 100;
/// Maximum interval between two passes while a reminder is awaited, in milliseconds. After the machine slept, timers fire late
/// by the length of the sleep; a pass reads the wall clock.
const CLOCK_READ_MS_MAX: u64 = 60_000;

/// The chore of the worker for reminders.
pub(crate) struct Reminders {
    sent: u64,
}

impl Chore for Reminders {
    const KIND: &'static str = "reminders";
    const SUBJECT: &'static str = "the reminders";
    type Config = ();
    type Hint = ();
    type Batch = ();
    /// How many reminders were sent.
    type Done = u64;

    fn new((): (), _wiring: Arc<Wiring>, _owner: Branch) -> Self {
        Self { sent: 0 }
    }

    fn take_hint(&mut self, (): ()) -> u64 {
        0
    }

    fn batch(&mut self) {}

    async fn pass(wiring: &Wiring, (): &()) -> Result<Pass<u64>, String> {
        process_due(wiring).await.map_err(|error| error.to_string())
    }

    fn passed(&mut self, sent: u64) {
        self.sent += sent;
    }

    fn view(&self) -> Map<String, Value> {
        [("sent".to_owned(), self.sent.into())].into_iter().collect()
    }
}

/// Sends every reminder that is due.
async fn process_due(wiring: &Wiring) -> Result<Pass<u64>, StoreError> {
    let (mut sent, mut failed) = (0, None);
    let mut blocked = Blocked::new();
    loop {
        let rows = blocked.rows(DUE_MAX);
        let due = wiring.documents.due_documents(&TODOS, wiring.env.now(), rows).await?;
        let is_last = due.len() < rows as usize;
        for (user, document) in due {
            let key = (user, document.number);
            if blocked.has(&key) {
                continue;
            }
            match remind(wiring, &key.0, &document).await {
                Ok(is_sent) => sent += u64::from(is_sent),
                Err(KernelError::Store(error)) if error.is_retryable() => return Err(error),
                // The pass is repeated for this one, after the others.
                Err(KernelError::Store(error)) if error.kind != StoreErrorKind::Corrupt => {
                    blocked.put(key, wiring.env.now());
                    failed = Some(error);
                }
                Err(error) => {
                    let again = wait_for(wiring, format!("the reminder of task {} of {}", key.1, key.0), &error);
                    blocked.put(key, again);
                }
            }
        }
        if is_last || blocked.is_full() {
            break;
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    let first = wiring.documents.due_documents(&TODOS, Micros(i64::MAX), 1).await?;
    let due_at = |(_, document): &(UserId, Document)| Micros(document.body["remind_at"].as_i64().unwrap_or_default());
    let next = blocked.next(first.first().map(due_at));
    let clock_read = next.map(|_| later(wiring.env.now(), CLOCK_READ_MS_MAX));
    Ok(Pass { next: earlier(next, clock_read), done: sent })
}

/// Sends a reminder that is due: fixes its text, sends the message, and ends the reminder. Every step is idempotent, because a
/// crash may cause a repetition. Returns whether the message was sent.
async fn remind(wiring: &Wiring, user: &UserId, document: &Document) -> Result<bool, KernelError> {
    let Some(todo) = RemindedTodo::of(document)? else { return Err(KernelError::Store(no_reminder())) };
    let Some(remind_at) = todo.remind_at else { return Ok(false) };
    let number = todo.number;
    let claimed = if todo.reminder.claimed.is_some() {
        todo
    } else {
        let Some(todo) = change(wiring, user, number, ReminderChange::Claim { remind_at }).await? else {
            return Ok(false);
        };
        todo
    };
    point(wiring, "claimed").await?;
    let is_sent = send(wiring, user, &claimed, remind_at).await?;
    point(wiring, "sent").await?;
    change(wiring, user, number, ReminderChange::Sent { remind_at }).await?;
    metrics::counter!("annie_reminders_total", "result" => if is_sent { "sent" } else { "refused" }).increment(1);
    Ok(is_sent)
}

/// Stores the message of a reminder. If the address of the message that set the reminder is no longer accepted, the user is
/// notified instead. Returns false if the message is refused for good.
async fn send(wiring: &Wiring, user: &UserId, todo: &RemindedTodo, remind_at: Micros) -> Result<bool, KernelError> {
    let reminder = &todo.reminder;
    let original = message_of(wiring.store.as_ref(), reminder.conversation, reminder.task).await?;
    let original = original.map(|found| found.inbound);
    let mut message = Submission::new(user.clone(), REMINDER, reminder.claimed.clone().unwrap_or_default())
        .within(reminder.conversation);
    message.client_id = Some(todo.message_id(remind_at));
    message.channel = original.as_ref().map(|inbound| inbound.channel().to_owned()).unwrap_or_default();
    message.private = original.as_ref().is_some_and(|inbound| inbound.private);
    message.reply_to = original.and_then(|inbound| inbound.reply_to).filter(|to| has_channel(wiring, to));
    message.carries_answer = true;
    message.origins = todo.origins.clone();
    // The to-do is no part of the conversation in which its reminder was set.
    message.moves_on = true;
    match accept_message(wiring, message).await {
        Ok(_) => Ok(true),
        Err(
            error @ (KernelError::Invalid(_)
            | KernelError::InvalidField { .. }
            | KernelError::NotFound(_)
            | KernelError::Deleted
            | KernelError::Conflict { .. }),
        ) => {
            tracing::error!(number = todo.number, %user, %error, "a reminder was refused, and its user is not reminded");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn has_channel(wiring: &Wiring, address: &Address) -> bool {
    wiring.extensions.channel(&address.channel).is_some()
}

/// Changes a reminder. Returns `None` if the change does not apply, because the to-do was changed by its user or another process.
pub(crate) async fn change(
    wiring: &Wiring,
    user: &UserId,
    number: u64,
    change: ReminderChange,
) -> Result<Option<RemindedTodo>, StoreError> {
    let intent = IntentId::from_uuid(wiring.env.uuid());
    let write = change.write(user.clone(), number, intent, wiring.env.now());
    let written = wiring.documents.write_document(write).await?;
    written.document.as_ref().map(RemindedTodo::of).transpose().map(Option::flatten)
}

fn no_reminder() -> StoreError {
    StoreError {
        kind: StoreErrorKind::Corrupt,
        what: "reading a task",
        detail: "it has the time of a reminder and no reminder".to_owned(),
    }
}

/// A fault point between two steps of a reminder.
async fn point(wiring: &Wiring, point: &str) -> Result<(), StoreError> {
    let failed = |why: NodeError| StoreError {
        kind: StoreErrorKind::Internal,
        what: "sending a reminder",
        detail: why.to_string(),
    };
    task_point(&wiring.env, "reminder", point).await.map_err(failed)
}
