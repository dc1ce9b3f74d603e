//! Background workers. A worker is the actor of one [`Chore`], a kind of work that becomes due. It makes a pass over
//! the store when an item is due, or when a hint says that something new was stored. It makes one pass at a time, and
//! is idle in between.
//!
//! Owns: when its next item is due. Supervised by: infra. Survives its death: the items, which the store keeps; the
//! next incarnation begins with a pass. Passes are idempotent, because a pass may be repeated after a crash.

use std::{fmt::Display, future::Future, marker::PhantomData, sync::Arc, time::Duration};

use annie_core::time::Micros;
use serde_json::{Map, Value};

use crate::{
    due_timer::{DueTimer, earlier, later, outcome},
    kernel::KernelError,
    observe::{Branch, Context, Named, Node, NodeError},
    wiring::Wiring,
};

/// Minimum and maximum wait before a message that the kernel itself sends is sent again because it could not be stored,
/// in milliseconds.
const STORE_WAIT_MS: (u64, u64) = (1_000, 60_000);

/// After this time a worker reads a store that other nodes share, although nothing is due, in milliseconds. Another node
/// announces neither the rows that it stores nor, if the announcement is lost, its end.
const UNANNOUNCED_MS_MAX: u64 = 3_600_000;

/// One kind of work that becomes due, and what its worker keeps between two passes.
pub(crate) trait Chore: Sized + Send + Sync + 'static {
    /// The kind of the actor, in views, metrics and fault points.
    const KIND: &'static str;
    /// The items of a pass, for log lines: "the dead letters".
    const SUBJECT: &'static str;
    /// How long a stop waits for the pass under way before it aborts the pass, in milliseconds. Shorter than the 5,000 ms after
    /// which the supervisor kills the worker.
    const STOP_MS_MAX: u64 = 0;
    /// What the tree gives to each incarnation.
    type Config: Clone + Send + 'static;
    /// The log writer's notification of a new row.
    type Hint: Clone + Send + 'static;
    /// The hints since the pass before, as one pass needs them.
    type Batch: Send + Sync + 'static;
    /// What a pass did.
    type Done: Send + 'static;

    /// The state of a new incarnation. `owner` is the actor, for tasks of its own.
    fn new(config: Self::Config, wiring: Arc<Wiring>, owner: Branch) -> Self;

    /// Called once for each incarnation, before its first pass.
    fn start(&mut self) {}

    /// Stores a hint for the next pass. Returns how long that pass may be delayed, in milliseconds, to serve more
    /// hints.
    fn take_hint(&mut self, hint: Self::Hint) -> u64;

    /// Removes and returns the hints for the pass that begins.
    fn batch(&mut self) -> Self::Batch;

    /// Processes all that is due.
    ///
    /// # Errors
    /// If items could not be processed. Then the pass is repeated after a back-off.
    fn pass(wiring: &Wiring, batch: &Self::Batch) -> impl Future<Output = Result<Pass<Self::Done>, String>> + Send;

    /// Handles the end of a pass.
    fn passed(&mut self, done: Self::Done);

    /// Puts back the hints of a failed pass, so that the next pass gets them.
    fn failed(&mut self, _batch: Self::Batch) {}

    /// Called when the worker stops: the pass under way must begin nothing more.
    fn stop(&mut self) {}

    /// The view of the worker without the timer, which the worker adds.
    fn view(&self) -> Map<String, Value>;
}

/// A pass that ended.
pub(crate) struct Pass<D> {
    /// When the next item is due.
    pub next: Option<Micros>,
    /// What was done.
    pub done: D,
}

/// Messages of a background worker.
pub(crate) enum WorkerMsg<C: Chore> {
    /// Something new was stored. This message may be lost: the pass after the next such message, or the first pass of
    /// the next incarnation, reads everything.
    New(C::Hint),
    /// The timer went off: an item may be due.
    Clock,
    /// The result of a pass. A failure returns the hints of the pass.
    PassEnded(Result<Pass<C::Done>, (String, C::Batch)>),
}

impl<C: Chore> Named for WorkerMsg<C> {
    fn name(&self) -> &'static str {
        match self {
            Self::New(_) => "New",
            Self::Clock => "Clock",
            Self::PassEnded(_) => "PassEnded",
        }
    }

    fn again(&self) -> Option<Self> {
        let Self::New(hint) = self else { return None };
        Some(Self::New(hint.clone()))
    }
}

pub(crate) struct WorkerState<C> {
    chore: C,
    wiring: Arc<Wiring>,
    due_timer: DueTimer,
}

/// The actor of a chore.
pub(crate) struct Worker<C>(PhantomData<fn(C)>);

impl<C: Chore> Node for Worker<C> {
    type Msg = WorkerMsg<C>;
    type Args = (C::Config, Arc<Wiring>);
    type State = WorkerState<C>;
    const KIND: &'static str = C::KIND;

    fn init(ctx: &Context<Self>, (config, wiring): Self::Args) -> Result<WorkerState<C>, NodeError> {
        let chore = C::new(config, wiring.clone(), ctx.branch());
        Ok(WorkerState { chore, wiring, due_timer: DueTimer::of(ctx.branch()) })
    }

    async fn ready(ctx: &Context<Self>, state: &mut WorkerState<C>) -> Result<(), NodeError> {
        state.chore.start();
        request_pass(ctx, state, 0);
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut WorkerState<C>, msg: WorkerMsg<C>) -> Result<(), NodeError> {
        match msg {
            WorkerMsg::New(hint) => {
                let delay_ms = state.chore.take_hint(hint);
                request_pass(ctx, state, delay_ms);
            }
            WorkerMsg::Clock => {
                if state.due_timer.fired(ctx.now()) {
                    start_pass(ctx, state);
                }
                set_timer(ctx, state);
            }
            WorkerMsg::PassEnded(Ok(Pass { next, done })) => {
                state.chore.passed(done);
                let at_last = state.wiring.store.is_shared().then(|| later(ctx.now(), UNANNOUNCED_MS_MAX));
                state.due_timer.pass_ended(ctx.now(), earlier(next, at_last));
                set_timer(ctx, state);
            }
            WorkerMsg::PassEnded(Err((error, batch))) => {
                tracing::warn!(error, path = %ctx.path, "the pass over {} failed, trying again", C::SUBJECT);
                state.chore.failed(batch);
                state.due_timer.pass_failed(ctx.now());
                set_timer(ctx, state);
            }
        }
        Ok(())
    }

    async fn stopping(_ctx: &Context<Self>, state: &mut WorkerState<C>) {
        state.chore.stop();
        state.due_timer.finish_pass(Duration::from_millis(C::STOP_MS_MAX)).await;
    }

    fn view(state: &WorkerState<C>) -> Value {
        let mut view = state.chore.view();
        view.insert("due_timer".to_owned(), state.due_timer.view());
        view.into()
    }
}

fn request_pass<C: Chore>(ctx: &Context<Worker<C>>, state: &mut WorkerState<C>, delay_ms: u64) {
    state.due_timer.request_pass(later(ctx.now(), delay_ms));
    set_timer(ctx, state);
}

fn set_timer<C: Chore>(ctx: &Context<Worker<C>>, state: &mut WorkerState<C>) {
    let me = ctx.me();
    state.due_timer.set_timer(ctx.now(), move || me.tell(WorkerMsg::Clock));
}

fn start_pass<C: Chore>(ctx: &Context<Worker<C>>, state: &mut WorkerState<C>) {
    let (wiring, batch, me) = (state.wiring.clone(), state.chore.batch(), ctx.me());
    state.due_timer.start_pass(async move {
        let result = outcome(C::pass(&wiring, &batch)).await;
        me.tell(WorkerMsg::PassEnded(result.map_err(|error| (error, batch))));
    });
}

/// When the kernel sends a message of its own again that could not be stored.
pub(crate) fn wait_for(wiring: &Wiring, what: impl Display, error: &KernelError) -> Micros {
    let (least, most) = STORE_WAIT_MS;
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
