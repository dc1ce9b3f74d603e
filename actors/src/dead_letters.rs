//! Dead letters: retries dead letters of background work and archives those that exceeded their maximum age.
//!
//! Owns: when the next dead letter is due. Supervised by: infra. Survives its death: the dead letters, which are folded from
//! the log. A retry is a message whose id is derived from the dead letter's task, so it is stored once, however often it is
//! sent.

use std::sync::Arc;

use annie_core::{
    dead_letter::DeadLetterState,
    event::{EventBody, Inbound, NewEvent, Priority, Retry},
    ids::AgentId,
    inbound::DEAD_LETTER,
    ports::{Append, DeadLetterRow, Fence, Store, StoreError},
    time::Micros,
    turn::TaskEffects,
};
use serde_json::{Map, Value};

use crate::{
    due_timer::{Blocked, earlier},
    kernel::{KernelError, Submission, accept_message},
    log_writer::append,
    observe::Branch,
    task_log::each_event,
    wiring::Wiring,
    worker::{Chore, Pass, wait_for},
};

/// Dead letters that are read at once.
const DEAD_LETTERS_MAX: u32 = 100;
/// The requester of automatic moves, in the log.
const BY: &str = "dead_letters";

/// The chore of the worker for dead letters.
pub(crate) struct DeadLetters {
    waiting: u64,
    retried: u64,
    archived: u64,
}

/// What a pass did.
#[derive(Debug, Default)]
pub(crate) struct Done {
    waiting: u64,
    retried: u64,
    archived: u64,
}

impl Chore for DeadLetters {
    const KIND: &'static str = "dead_letters";
    const SUBJECT: &'static str = "the dead letters";
    type Config = ();
    type Hint = ();
    type Batch = ();
    type Done = Done;

    fn new((): (), _wiring: Arc<Wiring>, _owner: Branch) -> Self {
        Self { waiting: 0, retried: 0, archived: 0 }
    }

    fn take_hint(&mut self, (): ()) -> u64 {
        0
    }

    fn batch(&mut self) {}

    async fn pass(wiring: &Wiring, (): &()) -> Result<Pass<Done>, String> {
        process_due(wiring).await.map_err(|error| error.to_string())
    }

    fn passed(&mut self, done: Done) {
        self.waiting = done.waiting;
        self.retried += done.retried;
        self.archived += done.archived;
    }

    fn view(&self) -> Map<String, Value> {
        [("waiting", self.waiting), ("retried", self.retried), ("archived", self.archived)]
            .map(|(name, count)| (name.to_owned(), count.into()))
            .into_iter()
            .collect()
    }
}

/// Retries or archives all dead letters that are due.
async fn process_due(wiring: &Wiring) -> Result<Pass<Done>, StoreError> {
    let mut done = Done::default();
    let archive_ms = i64::try_from(wiring.limits.turn.dead_letters.archive_after_ms).unwrap_or(i64::MAX);
    let mut blocked = Blocked::new();
    loop {
        let now = wiring.env.now();
        let archive_before = now.plus_ms(archive_ms.saturating_neg());
        let rows = blocked.rows(DEAD_LETTERS_MAX);
        let due = wiring.store.due_dead_letters(now, archive_before, rows).await?;
        let is_last = due.len() < rows as usize;
        for row in due.into_iter().filter(|row| !blocked.has(&row.task)).collect::<Vec<_>>() {
            let is_over = row.dead_letter.since < archive_before;
            let outcome = if is_over { archive(wiring, &row).await } else { retry(wiring, &row).await };
            match outcome {
                Ok(()) => *(if is_over { &mut done.archived } else { &mut done.retried }) += 1,
                Err(error) => blocked.put(row.task, wait_for(wiring, row.task, &error)),
            }
        }
        if is_last || blocked.is_full() {
            break;
        }
    }
    let waiting = wiring.store.dead_letters_waiting().await?;
    done.waiting = waiting.count;
    #[expect(clippy::cast_precision_loss, reason = "a count in a gauge")]
    metrics::gauge!("annie_dead_letters_waiting").set(waiting.count as f64);
    let archive_at = waiting.oldest_since.map(|since| since.plus_ms(archive_ms).plus_ms(1));
    Ok(Pass { next: blocked.next(earlier(waiting.next_retry_at, archive_at)), done })
}

async fn retry(wiring: &Wiring, row: &DeadLetterRow) -> Result<(), KernelError> {
    let tried = tried(wiring.store.as_ref(), row).await?;
    accept_message(wiring, retry_message(row, tried, Priority::Background)).await?;
    Ok(())
}

/// A failed task: its message, and its effects.
pub(crate) struct Tried {
    original: Inbound,
    effects: TaskEffects,
}

/// Reads the message and the effects of a failed task from the log.
///
/// # Errors
/// If its message is not there, or the store fails.
pub(crate) async fn tried(store: &dyn Store, row: &DeadLetterRow) -> Result<Tried, KernelError> {
    let (mut original, mut effects) = (None, TaskEffects::of(row.task));
    each_event(store, row.conversation, |event| {
        effects.take(&event);
        if event.task == row.task
            && let EventBody::Received(inbound) = event.body
        {
            original = Some(inbound);
        }
        true
    })
    .await?;
    let original = original.ok_or(KernelError::NotFound("message"))?;
    Ok(Tried { original, effects })
}

/// The retry message of a failed task. Its id is derived from the task, so a second one is a repeat, whatever sent it. It
/// carries the effects of the failed task, so that they are not repeated.
pub(crate) fn retry_message(row: &DeadLetterRow, tried: Tried, priority: Priority) -> Submission {
    let Tried { original, effects } = tried;
    let is_outside = original.outside_text().is_some();
    let channel = original.channel().to_owned();
    let mut message = Submission::new(row.user.clone(), DEAD_LETTER, original.text).within(row.conversation);
    message.client_id = Some(format!("{DEAD_LETTER}:{}", row.task));
    message.channel = channel;
    message.reply_to = original.reply_to;
    message.priority = Some(priority);
    message.mode = original.mode;
    message.private = original.private;
    message.stateless = original.stateless;
    message.verbatim = true;
    message.request = original.request;
    message.origins = original.origins;
    let tried = row.dead_letter.tried.clone();
    message.retry = Some(Retry { tried, is_outside, ..effects.retry(row.dead_letter.since) });
    message
}

async fn archive(wiring: &Wiring, row: &DeadLetterRow) -> Result<(), KernelError> {
    move_to(wiring, row, DeadLetterState::Archived, BY).await
}

/// Makes a dead letter due: it is retried as soon as the queue has capacity.
///
/// # Errors
/// If it cannot be stored.
pub(crate) async fn make_due(wiring: &Wiring, row: &DeadLetterRow, now: Micros, by: &str) -> Result<(), KernelError> {
    record(wiring, row, now, EventBody::DeadLetterDue { by: by.to_owned() }).await
}

/// Moves a dead letter out of the waiting state.
///
/// # Errors
/// If it cannot be stored.
pub(crate) async fn move_to(
    wiring: &Wiring,
    row: &DeadLetterRow,
    state: DeadLetterState,
    by: &str,
) -> Result<(), KernelError> {
    record(wiring, row, wiring.env.now(), EventBody::DeadLetterMoved { state, by: by.to_owned() }).await
}

async fn record(wiring: &Wiring, row: &DeadLetterRow, at: Micros, body: EventBody) -> Result<(), KernelError> {
    let event = NewEvent { at, task: row.task, agent: AgentId::orchestrator(), body };
    let (conversation, user) = (row.conversation, row.user.clone());
    append(&wiring.log, Append { conversation, user, fence: Fence::Inbox, events: vec![event] }).await?;
    Ok(())
}
