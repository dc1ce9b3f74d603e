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

/// Deaths of one breaker before it is left alone for the window.
const BUDGET: BudgetLimits = BudgetLimits { restarts_max: 20, window_ms: 10_000 };

/// Breakers that are started at the beginning because they were left open.
const OPEN_MAX: u32 = 1_000;
/// Waits between two attempts to list them.
const LOOK_AGAIN_MS_MIN: u64 = 500;
const LOOK_AGAIN_MS_MAX: u64 = 30_000;

/// What it hears.
pub enum BreakersMsg {
    /// Give the breaker of this skill, started if need be; nothing if it dies too often.
    Ensure {
        /// Which skill.
        skill: String,
        /// Whom to answer.
        reply: oneshot::Sender<Option<Addr<BreakerMsg>>>,
    },
    /// These breakers were left open by an earlier run.
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

struct Seat {
    addr: Option<Addr<BreakerMsg>>,
    budget: Budget,
    tired: bool,
}

/// Its state.
pub(crate) struct BreakersState {
    wiring: Arc<Wiring>,
    seats: BTreeMap<String, Seat>,
    cells: HashMap<ActorId, String>,
    /// The look for breakers that an earlier run left open.
    looking: Tasks<()>,
}

/// The parent of all breakers.
pub(crate) struct Breakers;

impl Node for Breakers {
    type Msg = BreakersMsg;
    type Args = Arc<Wiring>;
    type State = BreakersState;
    const KIND: &'static str = "breakers";

    fn init(ctx: &Context<Self>, wiring: Arc<Wiring>) -> Result<BreakersState, NodeError> {
        let looking = Tasks::of(ctx.branch());
        Ok(BreakersState { wiring, seats: BTreeMap::new(), cells: HashMap::new(), looking })
    }

    async fn ready(ctx: &Context<Self>, state: &mut BreakersState) -> Result<(), NodeError> {
        look_for_open(ctx, state);
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut BreakersState, msg: BreakersMsg) -> Result<(), NodeError> {
        match msg {
            BreakersMsg::Ensure { skill, reply } => {
                let addr = ensure(ctx, state, &skill).await;
                // Whoever asked may have given up.
                let _ = reply.send(addr);
            }
            BreakersMsg::LeftOpen(skills) => {
                state.looking.remove(&());
                for skill in skills {
                    ensure(ctx, state, &skill).await;
                }
            }
        }
        Ok(())
    }

    async fn child_ended(ctx: &Context<Self>, state: &mut BreakersState, ended: ChildEnded) -> Result<(), NodeError> {
        let Some(skill) = state.cells.remove(&ended.id) else { return Ok(()) };
        let Some(seat) = state.seats.get_mut(&skill) else { return Ok(()) };
        seat.addr = None;
        // It comes back on its next use; the row in the store has its state. A store that is away is held against nobody.
        if matches!(ended.kind, EndKind::Killed | EndKind::Failed(_)) {
            seat.tired = seat.budget.died(ctx.now()).is_none();
        }
        Ok(())
    }

    async fn stopping(_ctx: &Context<Self>, state: &mut BreakersState) {
        for addr in state.seats.values_mut().filter_map(|s| s.addr.take()) {
            stop_child(&addr.cell, Duration::from_secs(1)).await;
        }
    }

    fn view(state: &BreakersState) -> Value {
        let tired: Vec<&String> = state.seats.iter().filter(|(_, s)| s.tired).map(|(skill, _)| skill).collect();
        json!({"breakers": state.cells.len(), "left_alone": tired})
    }
}

/// Starts the breakers that an earlier run left open, so that operators see them before their skill is called.
fn look_for_open(ctx: &Context<Breakers>, state: &mut BreakersState) {
    let (store, me) = (state.wiring.store.clone(), ctx.me());
    state.looking.spawn((), async move {
        let mut wait_ms = LOOK_AGAIN_MS_MIN;
        loop {
            match store.open_breakers(OPEN_MAX).await {
                Ok(skills) => {
                    // If the message is not taken this incarnation has ended, and the next one looks again.
                    me.tell(BreakersMsg::LeftOpen(skills));
                    return;
                }
                Err(e) => tracing::warn!(error = %e, "open breakers could not be listed; trying again"),
            }
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            wait_ms = (wait_ms * 2).min(LOOK_AGAIN_MS_MAX);
        }
    });
}

async fn ensure(ctx: &Context<Breakers>, state: &mut BreakersState, skill: &str) -> Option<Addr<BreakerMsg>> {
    if let Some(addr) = state.seats.get(skill).and_then(|s| s.addr.clone()) {
        return Some(addr);
    }
    if let Some(seat) = state.seats.get_mut(skill) {
        seat.tired = seat.budget.is_used_up(ctx.now());
        if seat.tired {
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
    };
    match ctx.spawn::<CircuitBreaker>(&format!("breaker:{skill}"), args).await {
        Ok(addr) => {
            state.cells.insert(addr.cell.get_id(), skill.to_owned());
            let seat = state.seats.entry(skill.to_owned()).or_insert_with(|| Seat {
                addr: None,
                budget: Budget::new(BUDGET),
                tired: false,
            });
            seat.addr = Some(addr.clone());
            Some(addr)
        }
        Err(e) => {
            tracing::warn!(skill, error = %e, "breaker did not start");
            None
        }
    }
}
