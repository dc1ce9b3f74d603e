//! Long-running operations whose time is up: their conversation is told that no result came.
//!
//! Owns: when the next operation expires. Supervised by: infra. Survives its death: the operations, which are folded from
//! the log. The message has the same id as the one that a result would have brought, so that only one of them is taken.

use std::sync::Arc;

use annie_core::{
    event::Priority,
    inbound::OPERATION,
    ports::{OperationRow, StoreError},
    time::Micros,
};
use serde_json::{Value, json};

use crate::{
    kernel::{KernelError, Submission, take_in},
    letters::{message_of, wait_for},
    lookout::{Blocked, Lookout, outcome},
    observe::{Context, Named, Node, NodeError},
    wiring::Wiring,
};

/// Operations that one look takes in.
const OPERATIONS_MAX: u32 = 100;

/// What it hears.
pub(crate) enum ExpiryMsg {
    /// An operation was started. May get lost: the next one, or the next life, finds it.
    New,
    /// It may be time to look.
    Clock,
    /// A look is over.
    Looked(Result<Looked, String>),
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

/// What a look came to.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    next: Option<Micros>,
    expired: u64,
}

/// Its state.
pub(crate) struct ExpiryState {
    wiring: Arc<Wiring>,
    lookout: Lookout,
    expired: u64,
}

/// The watch over long-running operations.
pub(crate) struct Expiry;

impl Node for Expiry {
    type Msg = ExpiryMsg;
    type Args = Arc<Wiring>;
    type State = ExpiryState;
    const KIND: &'static str = "expiry";

    fn init(ctx: &Context<Self>, wiring: Arc<Wiring>) -> Result<ExpiryState, NodeError> {
        Ok(ExpiryState { wiring, lookout: Lookout::of(ctx.branch()), expired: 0 })
    }

    async fn ready(ctx: &Context<Self>, state: &mut ExpiryState) -> Result<(), NodeError> {
        want(ctx, state);
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut ExpiryState, msg: ExpiryMsg) -> Result<(), NodeError> {
        match msg {
            ExpiryMsg::New => want(ctx, state),
            ExpiryMsg::Clock => {
                if state.lookout.struck(ctx.now()) {
                    look(ctx, state);
                }
                wind(ctx, state);
            }
            ExpiryMsg::Looked(looked) => {
                match looked {
                    Ok(Looked { next, expired }) => {
                        state.expired += expired;
                        state.lookout.looked(ctx.now(), next);
                    }
                    Err(error) => {
                        tracing::warn!(error, "the operations could not be looked through");
                        state.lookout.failed(ctx.now());
                    }
                }
                wind(ctx, state);
            }
        }
        Ok(())
    }

    fn view(state: &ExpiryState) -> Value {
        json!({"expired": state.expired, "lookout": state.lookout.view()})
    }
}

fn want(ctx: &Context<Expiry>, state: &mut ExpiryState) {
    state.lookout.want(ctx.now());
    wind(ctx, state);
}

fn wind(ctx: &Context<Expiry>, state: &mut ExpiryState) {
    let me = ctx.me();
    state.lookout.wind(ctx.now(), move || me.tell(ExpiryMsg::Clock));
}

fn look(ctx: &Context<Expiry>, state: &mut ExpiryState) {
    let (wiring, me) = (state.wiring.clone(), ctx.me());
    state.lookout.look(async move {
        me.tell(ExpiryMsg::Looked(outcome(go_through(&wiring)).await));
    });
}

/// Tells of every operation that has expired.
async fn go_through(wiring: &Wiring) -> Result<Looked, StoreError> {
    let mut looked = Looked::default();
    let mut blocked = Blocked::new();
    loop {
        let rows = blocked.rows(OPERATIONS_MAX);
        let due = wiring.store.expiring_operations(wiring.env.now(), rows).await?;
        let is_last = due.len() < rows as usize;
        for row in due.into_iter().filter(|row| !blocked.has(&row.id)).collect::<Vec<_>>() {
            match expire(wiring, &row).await {
                Ok(()) => looked.expired += 1,
                Err(error) => blocked.put(row.id, wait_for(wiring, row.id, &error)),
            }
        }
        if is_last || blocked.is_full() {
            break;
        }
    }
    let first = wiring.store.expiring_operations(Micros(i64::MAX), 1).await?;
    looked.next = blocked.next(first.first().map(|row| row.expires_at));
    Ok(looked)
}

async fn expire(wiring: &Wiring, row: &OperationRow) -> Result<(), KernelError> {
    let text = format!("[Operation {} of {} brought no result until {}.]", row.id, row.skill, row.expires_at);
    take_in(wiring, about(wiring, row, text).await?).await?;
    metrics::counter!("annie_operations_expired_total").increment(1);
    Ok(())
}

/// The one message that an operation brings into its conversation, with what the task that started it said of privacy and
/// mode.
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
