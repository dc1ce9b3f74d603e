//! A static one-for-one supervisor. Its children are known when it starts, each is restarted whenever it ends, and one
//! budget limits the deaths of all of them. When the budget is used up, the supervisor dies, and its own supervisor decides.
//!
//! Owns: a fixed list of children. Supervised by: another supervisor; the root by none. Survives its death: nothing; its
//! children are started anew.

use std::{sync::Arc, time::Duration};

use ractor::{ActorCell, ActorId};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{Budget, BudgetLimits};
use crate::{
    observe::{ChildEnded, Context, EndKind, Named, Node, NodeError, StartError},
    tasks::Tasks,
};

type Start =
    Arc<dyn Fn(Context<Supervisor>) -> annie_core::ports::Fut<'static, Result<ActorCell, StartError>> + Send + Sync>;

/// The longest wait before a restart, in milliseconds. The whole system needs these children. The budget, which counts the
/// deaths of all of them together, bounds their number; a longer wait would only keep it from ever being used up.
const RESTART_WAIT_MS_MAX: u64 = 500;

/// A permanent child: how to start it, and how long it may take to stop.
#[derive(Clone)]
pub struct ChildSpec {
    /// Its segment of the path.
    pub name: Arc<str>,
    /// How long it may take to stop before it is killed, in milliseconds.
    pub stop_ms_max: u64,
    start: Start,
}

impl ChildSpec {
    /// A permanent child of this kind; `args` makes its arguments for each start.
    pub fn permanent<C: Node>(name: &str, args: impl Fn() -> C::Args + Send + Sync + 'static) -> Self {
        let (args, name) = (Arc::new(args), Arc::<str>::from(name));
        Self {
            name: name.clone(),
            stop_ms_max: 5_000,
            start: Arc::new(move |ctx| {
                let (args, name) = (args(), name.clone());
                Box::pin(async move { Ok(ctx.spawn::<C>(&name, args).await?.cell) })
            }),
        }
    }

    /// Sets the time limit for stopping, in milliseconds.
    #[must_use]
    pub const fn stop_within_ms(mut self, stop_ms_max: u64) -> Self {
        self.stop_ms_max = stop_ms_max;
        self
    }
}

/// The arguments of a supervisor.
#[derive(Clone)]
pub struct SupervisorArgs {
    /// The children, in the order of their start; they stop in reverse order.
    pub children: Vec<ChildSpec>,
    /// The budget for the deaths of all children together.
    pub budget: BudgetLimits,
}

/// Messages of a supervisor.
pub enum SupervisorMsg {
    /// The back-off of the child with this index is over.
    StartAgain(usize),
    /// An operator gives the children their whole restart budget again.
    ResetBudget {
        /// Receives the restarts that are left.
        reply: oneshot::Sender<u32>,
    },
}

impl Named for SupervisorMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::StartAgain(_) => "StartAgain",
            Self::ResetBudget { .. } => "ResetBudget",
        }
    }
}

struct Child {
    spec: ChildSpec,
    cell: Option<ActorCell>,
    restarts: u64,
}

/// The state of a supervisor.
pub struct SupervisorState {
    children: Vec<Child>,
    budget: Budget,
    waits: Tasks<usize>,
}

/// The supervisor's actor.
pub struct Supervisor;

impl Node for Supervisor {
    type Msg = SupervisorMsg;
    type Args = SupervisorArgs;
    type State = SupervisorState;
    const KIND: &'static str = "supervisor";

    fn init(ctx: &Context<Self>, args: SupervisorArgs) -> Result<SupervisorState, NodeError> {
        let children = args.children.into_iter().map(|spec| Child { spec, cell: None, restarts: 0 }).collect();
        Ok(SupervisorState { children, budget: Budget::new(args.budget), waits: Tasks::of(ctx.branch()) })
    }

    async fn ready(ctx: &Context<Self>, state: &mut SupervisorState) -> Result<(), NodeError> {
        for child in &mut state.children {
            child.cell = Some(start(ctx, &child.spec).await?);
        }
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut SupervisorState, msg: SupervisorMsg) -> Result<(), NodeError> {
        match msg {
            SupervisorMsg::StartAgain(index) => {
                state.waits.remove(&index);
                start_again(ctx, state, index).await
            }
            SupervisorMsg::ResetBudget { reply } => {
                state.budget.reset();
                let _ = reply.send(state.budget.left());
                Ok(())
            }
        }
    }

    async fn child_ended(ctx: &Context<Self>, state: &mut SupervisorState, ended: ChildEnded) -> Result<(), NodeError> {
        let is = |child: &Child, id: ActorId| child.cell.as_ref().is_some_and(|c| c.get_id() == id);
        let Some(index) = state.children.iter().position(|c| is(c, ended.id)) else { return Ok(()) };
        state.children[index].cell = None;
        if ended.kind == EndKind::Stopped {
            // An operator requested the restart, so the budget is not charged.
            return start_again(ctx, state, index).await;
        }
        died(ctx, state, index).await
    }

    async fn stopping(_ctx: &Context<Self>, state: &mut SupervisorState) {
        state.waits.retain(|_| false);
        for child in state.children.iter_mut().rev() {
            if let Some(cell) = child.cell.take() {
                stop_child(&cell, Duration::from_millis(child.spec.stop_ms_max)).await;
            }
        }
    }

    fn view(state: &SupervisorState) -> Value {
        let children: Vec<Value> = state
            .children
            .iter()
            .map(|c| json!({"name": *c.spec.name, "alive": c.cell.is_some(), "restarts": c.restarts}))
            .collect();
        json!({"strategy": "one_for_one", "restarts_left": state.budget.left(), "children": children})
    }
}

async fn start(ctx: &Context<Supervisor>, spec: &ChildSpec) -> Result<ActorCell, NodeError> {
    (spec.start)(ctx.cast()).await.map_err(|e| NodeError::new(e.to_string()))
}

async fn start_again(ctx: &Context<Supervisor>, state: &mut SupervisorState, index: usize) -> Result<(), NodeError> {
    let child = &mut state.children[index];
    child.restarts += 1;
    ctx.system.directory.pulse.actor_restarted(ctx.now());
    metrics::counter!("annie_actor_restarts_total", "kind" => child.spec.name.to_string()).increment(1);
    ctx.fault_point("restarting").await?;
    match start(ctx, &child.spec).await {
        Ok(cell) => {
            // The child runs, but a stop of the supervisor does not find it yet.
            ctx.fault_point("restarted").await?;
            child.cell = Some(cell);
            Ok(())
        }
        Err(e) => {
            tracing::warn!(child = &*child.spec.name, error = %e, "restart failed");
            Box::pin(died(ctx, state, index)).await
        }
    }
}

async fn died(ctx: &Context<Supervisor>, state: &mut SupervisorState, index: usize) -> Result<(), NodeError> {
    let name = state.children[index].spec.name.clone();
    match state.budget.died(ctx.now()) {
        None => Err(NodeError::new(format!("restart budget used up by {name}"))),
        Some(0) => start_again(ctx, state, index).await,
        Some(wait_ms) => {
            let me = ctx.me();
            let wait_ms = wait_ms.min(RESTART_WAIT_MS_MAX);
            state.waits.spawn(index, async move {
                tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                // If the message is lost the supervisor is gone, and the child must not be restarted.
                me.tell(SupervisorMsg::StartAgain(index));
            });
            Ok(())
        }
    }
}

/// Stops an actor gracefully; kills it after the time limit; and waits until it is gone.
pub async fn stop_child(cell: &ActorCell, within: Duration) {
    cell.stop(None);
    if cell.wait(Some(within)).await.is_err() {
        tracing::warn!(actor = ?cell.get_id(), "the actor did not stop in time, killing it");
        cell.kill();
        if cell.wait(Some(within)).await.is_err() {
            tracing::error!(actor = ?cell.get_id(), "the actor is still running after a kill: it blocks its thread");
        }
    }
}
