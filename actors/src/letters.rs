//! Dead letters: tries again by itself what failed while nobody waited, and gives up what failed for too long.
//!
//! Owns: when something is next to be done about a letter. Supervised by: infra. Survives its death: the letters, which are
//! folded from the log. A new try is a message whose id is made of the letter's, so that it is sent once however often it
//! is begun.

use std::sync::Arc;

use annie_core::{
    event::{Event, EventBody, Inbound, NewEvent, Priority, Retry, Scope},
    ids::{AgentId, ConversationId, Seq, TaskId},
    inbound::DEAD_LETTER,
    letter::LetterState,
    ports::{Append, Fence, LetterRow, Store, StoreError},
    time::Micros,
    turn::TaskEffects,
};
use serde_json::{Value, json};

use crate::{
    kernel::{KernelError, PAGE_MAX, Submission, take_in},
    log_writer::append,
    lookout::{Blocked, Lookout, earlier, later, outcome},
    observe::{Context, Named, Node, NodeError},
    wiring::Wiring,
};

/// Letters that one look takes in.
const LETTERS_MAX: u32 = 100;
/// How soon a letter is looked at again for which there was no place, in milliseconds: at least, and at most.
pub(crate) const PLACE_MS: (u64, u64) = (1_000, 60_000);
/// What moves letters without being asked, in the log.
const BY: &str = "letters";

/// What it hears.
pub(crate) enum LettersMsg {
    /// A letter came or went. May get lost: the next one, or the next life, finds it.
    New,
    /// It may be time to look.
    Clock,
    /// A look is over.
    Looked(Result<Looked, String>),
}

impl Named for LettersMsg {
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

/// What a look came to.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    next: Option<Micros>,
    waiting: u64,
    retried: u64,
    archived: u64,
}

/// Its state.
pub(crate) struct LettersState {
    wiring: Arc<Wiring>,
    lookout: Lookout,
    waiting: u64,
    retried: u64,
    archived: u64,
}

/// The keeper of the dead letters.
pub(crate) struct DeadLetters;

impl Node for DeadLetters {
    type Msg = LettersMsg;
    type Args = Arc<Wiring>;
    type State = LettersState;
    const KIND: &'static str = "letters";

    fn init(ctx: &Context<Self>, wiring: Arc<Wiring>) -> Result<LettersState, NodeError> {
        Ok(LettersState { wiring, lookout: Lookout::of(ctx.branch()), waiting: 0, retried: 0, archived: 0 })
    }

    async fn ready(ctx: &Context<Self>, state: &mut LettersState) -> Result<(), NodeError> {
        want(ctx, state);
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut LettersState, msg: LettersMsg) -> Result<(), NodeError> {
        match msg {
            LettersMsg::New => want(ctx, state),
            LettersMsg::Clock => {
                if state.lookout.struck(ctx.now()) {
                    look(ctx, state);
                }
                wind(ctx, state);
            }
            LettersMsg::Looked(looked) => {
                match looked {
                    Ok(Looked { next, waiting, retried, archived }) => {
                        state.waiting = waiting;
                        state.retried += retried;
                        state.archived += archived;
                        state.lookout.looked(ctx.now(), next);
                    }
                    Err(error) => {
                        tracing::warn!(error, "the dead letters could not be looked through");
                        state.lookout.failed(ctx.now());
                    }
                }
                wind(ctx, state);
            }
        }
        Ok(())
    }

    fn view(state: &LettersState) -> Value {
        json!({
            "waiting": state.waiting, "retried": state.retried, "archived": state.archived,
            "lookout": state.lookout.view()
        })
    }
}

fn want(ctx: &Context<DeadLetters>, state: &mut LettersState) {
    state.lookout.want(ctx.now());
    wind(ctx, state);
}

fn wind(ctx: &Context<DeadLetters>, state: &mut LettersState) {
    let me = ctx.me();
    state.lookout.wind(ctx.now(), move || me.tell(LettersMsg::Clock));
}

fn look(ctx: &Context<DeadLetters>, state: &mut LettersState) {
    let (wiring, me) = (state.wiring.clone(), ctx.me());
    state.lookout.look(async move {
        me.tell(LettersMsg::Looked(outcome(go_through(&wiring)).await));
    });
}

/// Tries again or gives up whatever is due.
async fn go_through(wiring: &Wiring) -> Result<Looked, StoreError> {
    let mut looked = Looked::default();
    let archive_ms = i64::try_from(wiring.limits.turn.letters.archive_after_ms).unwrap_or(i64::MAX);
    let mut blocked = Blocked::new();
    loop {
        let now = wiring.env.now();
        let archive_before = now.plus_ms(archive_ms.saturating_neg());
        let rows = blocked.rows(LETTERS_MAX);
        let due = wiring.store.due_letters(now, archive_before, rows).await?;
        let is_last = due.len() < rows as usize;
        for row in due.into_iter().filter(|row| !blocked.has(&row.task)).collect::<Vec<_>>() {
            let is_over = row.letter.since < archive_before;
            let done = if is_over { archive(wiring, &row).await } else { retry(wiring, &row).await };
            match done {
                Ok(()) => *(if is_over { &mut looked.archived } else { &mut looked.retried }) += 1,
                Err(error) => blocked.put(row.task, wait_for(wiring, row.task, &error)),
            }
        }
        if is_last || blocked.is_full() {
            break;
        }
    }
    let waiting = wiring.store.letters_waiting().await?;
    looked.waiting = waiting.count;
    #[expect(clippy::cast_precision_loss, reason = "a count in a gauge")]
    metrics::gauge!("annie_dead_letters_waiting").set(waiting.count as f64);
    let archive_at = waiting.oldest_since.map(|since| since.plus_ms(archive_ms).plus_ms(1));
    looked.next = blocked.next(earlier(waiting.next_retry_at, archive_at));
    Ok(looked)
}

/// When to see again about something for which there was no place.
pub(crate) fn wait_for(wiring: &Wiring, what: impl std::fmt::Display, error: &KernelError) -> Micros {
    let (least, most) = PLACE_MS;
    let wait_ms = match error {
        KernelError::Full(refusal) => refusal.retry_after_ms.clamp(least, most),
        KernelError::Unavailable(_) | KernelError::NotReady(_) => least,
        error => {
            tracing::warn!(%what, %error, "it could not be sent");
            most
        }
    };
    later(wiring.env.now(), wait_ms)
}

async fn retry(wiring: &Wiring, row: &LetterRow) -> Result<(), KernelError> {
    let tried = tried(wiring.store.as_ref(), row).await?;
    take_in(wiring, again(row, tried, Priority::Background)).await?;
    Ok(())
}

/// A failed task: its message, and what it had done.
pub(crate) struct Tried {
    original: Inbound,
    effects: TaskEffects,
}

/// What the log has of a failed task.
///
/// # Errors
/// If its message is not there, or the store fails.
pub(crate) async fn tried(store: &dyn Store, row: &LetterRow) -> Result<Tried, KernelError> {
    let (mut original, mut effects) = (None, TaskEffects::of(row.task));
    each_event(store, row.conversation, |event| {
        effects.take(&event);
        match event.body {
            EventBody::Received(inbound) if event.task == row.task => original = Some(inbound),
            _ => {}
        }
        true
    })
    .await?;
    let original = original.ok_or(KernelError::NotFound("message"))?;
    Ok(Tried { original, effects })
}

/// The message of a failed task once more. Its id is the letter's, so a second one is a repeat, whoever sends it. It is told
/// what was done, and does not do it again.
pub(crate) fn again(row: &LetterRow, tried: Tried, priority: Priority) -> Submission {
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
    let tried = row.letter.tried.clone();
    message.retry = Some(Retry { tried, is_outside, ..effects.retry(row.letter.since) });
    message
}

async fn archive(wiring: &Wiring, row: &LetterRow) -> Result<(), KernelError> {
    move_to(wiring, row, LetterState::Archived, BY).await
}

/// Has a letter tried again as soon as there is a place for it.
///
/// # Errors
/// If it cannot be stored.
pub(crate) async fn make_due(wiring: &Wiring, row: &LetterRow, now: Micros, by: &str) -> Result<(), KernelError> {
    record(wiring, row, now, EventBody::LetterDue { by: by.to_owned() }).await
}

/// Takes a letter out of those that wait.
///
/// # Errors
/// If it cannot be stored.
pub(crate) async fn move_to(wiring: &Wiring, row: &LetterRow, state: LetterState, by: &str) -> Result<(), KernelError> {
    record(wiring, row, wiring.env.now(), EventBody::LetterMoved { state, by: by.to_owned() }).await
}

async fn record(wiring: &Wiring, row: &LetterRow, at: Micros, body: EventBody) -> Result<(), KernelError> {
    let event = NewEvent { at, task: row.task, agent: AgentId::orchestrator(), body };
    let (conversation, user) = (row.conversation, row.user.clone());
    append(&wiring.log, Append { conversation, user, fence: Fence::Inbox, events: vec![event] }).await?;
    Ok(())
}

/// A message as the log has it.
pub(crate) struct Message {
    /// Its place.
    pub seq: Seq,
    /// What it was.
    pub inbound: Inbound,
}

/// The message that became a task.
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
        match event.body {
            EventBody::Received(inbound) if event.task == task => found = Some(Message { seq: event.seq, inbound }),
            _ => {}
        }
        found.is_none()
    })
    .await?;
    Ok(found)
}

/// Reads a conversation from its beginning, for as long as it is wanted.
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
