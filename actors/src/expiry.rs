//! Expiry of long-running operations: their conversation gets the message that no result came in time.
//!
//! Owns: when the next operation expires. Supervised by: infra. Survives its death: the operations, which are folded from
//! the log. The message has the same id as the one that a result would have brought, so that only one of the two is stored.

use std::sync::Arc;

use annie_core::{
    event::Priority,
    inbound::OPERATION,
    ports::{OperationRow, StoreError},
    time::Micros,
};
use serde_json::{Value, json};

use crate::{
    dead_letters::{message_of, wait_for},
    due_timer::{Blocked, DueTimer, outcome},
    kernel::{KernelError, Submission, accept_message},
    observe::{Context, Named, Node, NodeError},
    wiring::Wiring,
};

/// Operations that are read at once.
const OPERATIONS_MAX: u32 = 100;

/// Messages of the expiry worker.
pub(crate) enum ExpiryMsg {
    /// An operation was started. May get lost: the next such message, or the next incarnation, reads the operations.
    New,
    /// An operation may be due.
    Clock,
    /// The result of a pass.
    Looked(Result<PassResult, String>),
}

impl Named for ExpiryMsg {
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
    expired: u64,
}

pub(crate) struct ExpiryState {
    wiring: Arc<Wiring>,
    due_timer: DueTimer,
    expired: u64,
}

/// The background worker for operations that expire.
pub(crate) struct Expiry;

impl Node for Expiry {
    type Msg = ExpiryMsg;
    type Args = Arc<Wiring>;
    type State = ExpiryState;
    const KIND: &'static str = "expiry";

    fn init(ctx: &Context<Self>, wiring: Arc<Wiring>) -> Result<ExpiryState, NodeError> {
        Ok(ExpiryState { wiring, due_timer: DueTimer::of(ctx.branch()), expired: 0 })
    }

    async fn ready(ctx: &Context<Self>, state: &mut ExpiryState) -> Result<(), NodeError> {
        request_pass(ctx, state);
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut ExpiryState, msg: ExpiryMsg) -> Result<(), NodeError> {
        match msg {
            ExpiryMsg::New => request_pass(ctx, state),
            ExpiryMsg::Clock => {
                if state.due_timer.fired(ctx.now()) {
                    start_pass(ctx, state);
                }
                set_timer(ctx, state);
            }
            ExpiryMsg::Looked(result) => {
                match result {
                    Ok(PassResult { next, expired }) => {
                        state.expired += expired;
                        state.due_timer.pass_ended(ctx.now(), next);
                    }
                    Err(error) => {
                        tracing::warn!(error, "the pass over the operations failed, trying again");
                        state.due_timer.pass_failed(ctx.now());
                    }
                }
                set_timer(ctx, state);
            }
        }
        Ok(())
    }

    fn view(state: &ExpiryState) -> Value {
        json!({"expired": state.expired, "due_timer": state.due_timer.view()})
    }
}

fn request_pass(ctx: &Context<Expiry>, state: &mut ExpiryState) {
    state.due_timer.request_pass(ctx.now());
    set_timer(ctx, state);
}

fn set_timer(ctx: &Context<Expiry>, state: &mut ExpiryState) {
    let me = ctx.me();
    state.due_timer.set_timer(ctx.now(), move || me.tell(ExpiryMsg::Clock));
}

fn start_pass(ctx: &Context<Expiry>, state: &mut ExpiryState) {
    let (wiring, me) = (state.wiring.clone(), ctx.me());
    state.due_timer.start_pass(async move {
        me.tell(ExpiryMsg::Looked(outcome(process_due(&wiring)).await));
    });
}

/// Stores a message for every operation that has expired.
async fn process_due(wiring: &Wiring) -> Result<PassResult, StoreError> {
    let mut result = PassResult::default();
    let mut blocked = Blocked::new();
    loop {
        let rows = blocked.rows(OPERATIONS_MAX);
        let due = wiring.store.expiring_operations(wiring.env.now(), rows).await?;
        let is_last = due.len() < rows as usize;
        for row in due.into_iter().filter(|row| !blocked.has(&row.id)).collect::<Vec<_>>() {
            match expire(wiring, &row).await {
                Ok(()) => result.expired += 1,
                Err(error) => blocked.put(row.id, wait_for(wiring, row.id, &error)),
            }
        }
        if is_last || blocked.is_full() {
            break;
        }
    }
    let first = wiring.store.expiring_operations(Micros(i64::MAX), 1).await?;
    result.next = blocked.next(first.first().map(|row| row.expires_at));
    Ok(result)
}

async fn expire(wiring: &Wiring, row: &OperationRow) -> Result<(), KernelError> {
    let text = format!("[Operation {} of {} brought no result until {}.]", row.id, row.skill, row.expires_at);
    accept_message(wiring, about(wiring, row, text).await?).await?;
    metrics::counter!("annie_operations_expired_total").increment(1);
    Ok(())
}

/// The one message that an operation brings into its conversation, with the privacy and mode of the task that started it.
///
/// # Errors
/// If the store fails.
pub(crate) async fn about(wiring: &Wiring, row: &OperationRow, text: String) -> Result<Submission, StoreError> {
    let original = message_of(wiring.store.as_ref(), row.conversation, row.task).await?.map(|found| found.inbound);
    let mut message = Submission::new(row.user.clone(), OPERATION, text).within(row.conversation);
    message.client_id = Some(format!("{OPERATION}:{}", row.id));
    message.priority = Some(Priority::Normal);
    message.mode = original.as_ref().and_then(|inbound| inbound.mode);
    message.private = original.is_some_and(|inbound| inbound.private);
    message.verbatim = true;
    message.resumes = Some(row.id);
    Ok(message)
}
