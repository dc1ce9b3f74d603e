//! Starts breakers on first use and again after a death: one per skill on a node.
//!
//! Owns: the list of breakers and their restart budgets. Supervised by: the root. Survives its death: the rows in the store.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use ractor::ActorId;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{BreakerArgs, BreakerMsg, CircuitBreaker};
use crate::{
    observe::{Addr, ChildEnded, Context, EndKind, Named, Node, NodeError},
    supervise::{Budget, BudgetLimits, stop_child},
    tasks::Tasks,
    wiring::Wiring,
};

/// Deaths of one breaker in the window, after which it is not started again until the window has passed.
const BUDGET: BudgetLimits = BudgetLimits { restarts_max: 20, window_ms: 10_000 };

/// Open breakers that are started when the process starts.
const OPEN_MAX: u32 = 1_000;
/// Minimum and maximum back-off between two attempts to list the open breakers, in milliseconds.
const LIST_AGAIN_MS_MIN: u64 = 500;
const LIST_AGAIN_MS_MAX: u64 = 30_000;

/// Messages of the parent of all breakers.
pub enum BreakersMsg {
    /// Return the breaker of this skill, and start it if necessary; `None` if it dies too often.
    Ensure {
        /// The skill.
        skill: String,
        /// Receives the breaker's address.
        reply: oneshot::Sender<Option<Addr<BreakerMsg>>>,
    },
    /// These breakers were left open by an earlier run of the process.
    LeftOpen(Vec<String>),
}

impl Named for BreakersMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Ensure { .. } => "Ensure",
            Self::LeftOpen(_) => "LeftOpen",
        }
    }
}

struct Child {
    addr: Option<Addr<BreakerMsg>>,
    budget: Budget,
    is_over_budget: bool,
}

pub(crate) struct BreakersState {
    wiring: Arc<Wiring>,
    children: BTreeMap<String, Child>,
    cells: HashMap<ActorId, String>,
    /// The task that lists the breakers that an earlier run left open.
    listing: Tasks<()>,
}

/// The actor of the parent of all breakers.
pub(crate) struct Breakers;

impl Node for Breakers {
    type Msg = BreakersMsg;
    type Args = Arc<Wiring>;
    type State = BreakersState;
    const KIND: &'static str = "breakers";

    fn init(ctx: &Context<Self>, wiring: Arc<Wiring>) -> Result<BreakersState, NodeError> {
        let listing = Tasks::of(ctx.branch());
        Ok(BreakersState { wiring, children: BTreeMap::new(), cells: HashMap::new(), listing })
    }

    async fn ready(ctx: &Context<Self>, state: &mut BreakersState) -> Result<(), NodeError> {
        list_open(ctx, state);
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut BreakersState, msg: BreakersMsg) -> Result<(), NodeError> {
        match msg {
            BreakersMsg::Ensure { skill, reply } => {
                let addr = ensure(ctx, state, &skill).await;
                // The requester may have given up.
                let _ = reply.send(addr);
            }
            BreakersMsg::LeftOpen(skills) => {
                state.listing.remove(&());
                for skill in skills {
                    ensure(ctx, state, &skill).await;
                }
            }
        }
        Ok(())
    }

    async fn child_ended(ctx: &Context<Self>, state: &mut BreakersState, ended: ChildEnded) -> Result<(), NodeError> {
        let Some(skill) = state.cells.remove(&ended.id) else { return Ok(()) };
        let Some(child) = state.children.get_mut(&skill) else { return Ok(()) };
        child.addr = None;
        // The breaker is started again on its next use; the row in the store has its state. A death because of an
        // unavailable store does not count.
        if matches!(ended.kind, EndKind::Killed | EndKind::Failed(_)) {
            child.is_over_budget = child.budget.died(ctx.now()).is_none();
        }
        Ok(())
    }

    async fn stopping(_ctx: &Context<Self>, state: &mut BreakersState) {
        for addr in state.children.values_mut().filter_map(|s| s.addr.take()) {
            stop_child(&addr.cell, Duration::from_secs(1)).await;
        }
    }

    fn view(state: &BreakersState) -> Value {
        let left_alone: Vec<&String> =
            state.children.iter().filter(|(_, s)| s.is_over_budget).map(|(skill, _)| skill).collect();
        json!({"breakers": state.cells.len(), "left_alone": left_alone})
    }
}

/// Starts the breakers that an earlier run left open, so that operators see them before their skill is called.
fn list_open(ctx: &Context<Breakers>, state: &mut BreakersState) {
    let (store, me) = (state.wiring.store.clone(), ctx.me());
    state.listing.spawn((), async move {
        let mut wait_ms = LIST_AGAIN_MS_MIN;
        loop {
            match store.open_breakers(OPEN_MAX).await {
                Ok(skills) => {
                    // If the message is lost, this incarnation has ended, and the next one lists them again.
                    me.tell(BreakersMsg::LeftOpen(skills));
                    return;
                }
                Err(e) => tracing::warn!(error = %e, "open breakers could not be listed; trying again"),
            }
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            wait_ms = (wait_ms * 2).min(LIST_AGAIN_MS_MAX);
        }
    });
}

async fn ensure(ctx: &Context<Breakers>, state: &mut BreakersState, skill: &str) -> Option<Addr<BreakerMsg>> {
    if let Some(addr) = state.children.get(skill).and_then(|s| s.addr.clone()) {
        return Some(addr);
    }
    if let Some(child) = state.children.get_mut(skill) {
        child.is_over_budget = child.budget.is_used_up(ctx.now());
        if child.is_over_budget {
            return None;
        }
    }
    let args = BreakerArgs {
        skill: skill.to_owned(),
        limits: state.wiring.limits.breaker,
        store: state.wiring.store.clone(),
        runner: state.wiring.runner.clone(),
        log: state.wiring.log.clone(),
        operations: state.wiring.operations.clone(),
        lease: state.wiring.lease.clone(),
        orders: state.wiring.leases.orders().clone(),
    };
    match ctx.spawn::<CircuitBreaker>(&format!("breaker:{skill}"), args).await {
        Ok(addr) => {
            state.cells.insert(addr.cell.get_id(), skill.to_owned());
            let child = state.children.entry(skill.to_owned()).or_insert_with(|| Child {
                addr: None,
                budget: Budget::new(BUDGET),
                is_over_budget: false,
            });
            child.addr = Some(addr.clone());
            Some(addr)
        }
        Err(e) => {
            tracing::warn!(skill, error = %e, "breaker did not start");
            None
        }
    }
}
