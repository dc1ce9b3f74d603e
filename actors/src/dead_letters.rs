//! Dead letters: retries dead letters of background work and archives those that exceeded their maximum age.
//!
//! Owns: when the next dead letter is due. Supervised by: infra. Survives its death: the dead letters, which are folded from
//! the log. A retry is a message whose id is derived from the dead letter's task, so it is stored once, however often it is
//! sent.

use std::sync::Arc;

use annie_core::{
    dead_letter::DeadLetterState,
    event::{Event, EventBody, Inbound, NewEvent, Priority, Retry, Scope},
    ids::{AgentId, ConversationId, Seq, TaskId},
    inbound::DEAD_LETTER,
    ports::{Append, DeadLetterRow, Fence, Store, StoreError},
    time::Micros,
    turn::TaskEffects,
};
use serde_json::{Value, json};

use crate::{
    due_timer::{Blocked, DueTimer, earlier, later, outcome},
    kernel::{KernelError, PAGE_MAX, Submission, accept_message},
    log_writer::append,
    observe::{Context, Named, Node, NodeError},
    wiring::Wiring,
};

/// Dead letters that are read at once.
const DEAD_LETTERS_MAX: u32 = 100;
/// Minimum and maximum wait of a dead letter that could not be retried, in milliseconds; also used for expired operations.
pub(crate) const RETRY_WAIT_MS: (u64, u64) = (1_000, 60_000);
/// The requester of automatic moves, in the log.
const BY: &str = "dead_letters";

/// Messages of the dead letter worker.
pub(crate) enum DeadLettersMsg {
    /// A dead letter was stored or moved. May get lost: the next such message, or the next incarnation, reads the dead
    /// letters.
    New,
    /// A dead letter may be due.
    Clock,
    /// The result of a pass.
    Looked(Result<PassResult, String>),
}

impl Named for DeadLettersMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::New => "New",
            Self::Clock => "Clock",
            Self::Looked(_) => "Looked",
        }
    }

    fn again(&self) -> Option<Self> {
        matches!(self, Self::New).then_some(Self::New)
    }
}

/// The result of a pass.
#[derive(Debug, Default)]
pub(crate) struct PassResult {
    next: Option<Micros>,
    waiting: u64,
    retried: u64,
    archived: u64,
}

pub(crate) struct DeadLettersState {
    wiring: Arc<Wiring>,
    due_timer: DueTimer,
    waiting: u64,
    retried: u64,
    archived: u64,
}

/// The background worker for dead letters.
pub(crate) struct DeadLetters;

impl Node for DeadLetters {
    type Msg = DeadLettersMsg;
    type Args = Arc<Wiring>;
    type State = DeadLettersState;
    const KIND: &'static str = "dead_letters";

    fn init(ctx: &Context<Self>, wiring: Arc<Wiring>) -> Result<DeadLettersState, NodeError> {
        Ok(DeadLettersState { wiring, due_timer: DueTimer::of(ctx.branch()), waiting: 0, retried: 0, archived: 0 })
    }

    async fn ready(ctx: &Context<Self>, state: &mut DeadLettersState) -> Result<(), NodeError> {
        request_pass(ctx, state);
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut DeadLettersState, msg: DeadLettersMsg) -> Result<(), NodeError> {
        match msg {
            DeadLettersMsg::New => request_pass(ctx, state),
            DeadLettersMsg::Clock => {
                if state.due_timer.fired(ctx.now()) {
                    start_pass(ctx, state);
                }
                set_timer(ctx, state);
            }
            DeadLettersMsg::Looked(result) => {
                match result {
                    Ok(PassResult { next, waiting, retried, archived }) => {
                        state.waiting = waiting;
                        state.retried += retried;
                        state.archived += archived;
                        state.due_timer.pass_ended(ctx.now(), next);
                    }
                    Err(error) => {
                        tracing::warn!(error, "the pass over the dead letters failed, trying again");
                        state.due_timer.pass_failed(ctx.now());
                    }
                }
                set_timer(ctx, state);
            }
        }
        Ok(())
    }

    fn view(state: &DeadLettersState) -> Value {
        json!({
            "waiting": state.waiting, "retried": state.retried, "archived": state.archived,
            "due_timer": state.due_timer.view()
        })
    }
}

fn request_pass(ctx: &Context<DeadLetters>, state: &mut DeadLettersState) {
    state.due_timer.request_pass(ctx.now());
    set_timer(ctx, state);
}

fn set_timer(ctx: &Context<DeadLetters>, state: &mut DeadLettersState) {
    let me = ctx.me();
    state.due_timer.set_timer(ctx.now(), move || me.tell(DeadLettersMsg::Clock));
}

fn start_pass(ctx: &Context<DeadLetters>, state: &mut DeadLettersState) {
    let (wiring, me) = (state.wiring.clone(), ctx.me());
    state.due_timer.start_pass(async move {
        me.tell(DeadLettersMsg::Looked(outcome(process_due(&wiring)).await));
    });
}

/// Retries or archives all dead letters that are due.
async fn process_due(wiring: &Wiring) -> Result<PassResult, StoreError> {
    let mut result = PassResult::default();
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
            let done = if is_over { archive(wiring, &row).await } else { retry(wiring, &row).await };
            match done {
                Ok(()) => *(if is_over { &mut result.archived } else { &mut result.retried }) += 1,
                Err(error) => blocked.put(row.task, wait_for(wiring, row.task, &error)),
            }
        }
        if is_last || blocked.is_full() {
            break;
        }
    }
    let waiting = wiring.store.dead_letters_waiting().await?;
    result.waiting = waiting.count;
    #[expect(clippy::cast_precision_loss, reason = "a count in a gauge")]
    metrics::gauge!("annie_dead_letters_waiting").set(waiting.count as f64);
    let archive_at = waiting.oldest_since.map(|since| since.plus_ms(archive_ms).plus_ms(1));
    result.next = blocked.next(earlier(waiting.next_retry_at, archive_at));
    Ok(result)
}

/// When to try again to send a message that could not be stored.
pub(crate) fn wait_for(wiring: &Wiring, what: impl std::fmt::Display, error: &KernelError) -> Micros {
    let (least, most) = RETRY_WAIT_MS;
    let wait_ms = match error {
        KernelError::Full(refusal) => refusal.retry_after_ms.clamp(least, most),
        KernelError::Unavailable(_) | KernelError::NotReady(_) => least,
        error => {
            tracing::warn!(%what, %error, "a message of the kernel could not be stored, trying again");
            most
        }
    };
    later(wiring.env.now(), wait_ms)
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
    let mut message = Submission::new(row.user.clone(), DEAD_LETTER, original.text).within(row.conversation);
    message.client_id = Some(format!("{DEAD_LETTER}:{}", row.task));
    message.priority = Some(priority);
    message.mode = original.mode;
    message.private = original.private;
    message.stateless = original.stateless;
    message.verbatim = true;
    message.request = original.request;
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

/// A message from the log.
pub(crate) struct Message {
    pub seq: Seq,
    pub inbound: Inbound,
}

/// The message of a task.
///
/// # Errors
/// If the store fails.
pub(crate) async fn message_of(
    store: &dyn Store,
    conversation: ConversationId,
    task: TaskId,
) -> Result<Option<Message>, StoreError> {
    let mut found = None;
    each_event(store, conversation, |event| {
        if event.task == task
            && let EventBody::Received(inbound) = event.body
        {
            found = Some(Message { seq: event.seq, inbound });
        }
        found.is_none()
    })
    .await?;
    Ok(found)
}

/// Reads a conversation's events from the first one, until `take` returns false.
///
/// # Errors
/// If the store fails.
pub(crate) async fn each_event(
    store: &dyn Store,
    conversation: ConversationId,
    mut take: impl FnMut(Event) -> bool,
) -> Result<(), StoreError> {
    let mut after = Seq(0);
    loop {
        let page = store.events(Scope::Operator, conversation, after, PAGE_MAX).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.seq;
        for event in page {
            if !take(event) {
                return Ok(());
            }
        }
    }
}
