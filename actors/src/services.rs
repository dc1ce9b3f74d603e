//! Long-running work that is no actor of ours, made a part of the tree: a door's listener, the watcher of the skill folder.
//!
//! Owns: `Services` one group of them, each with a budget of restarts; `Service` one running future. Supervised by: the root,
//! and a service by its group. Survives its death: the list of what is to run, which is kept beside the tree.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use annie_core::ports::Fut;
use parking_lot::Mutex;
use ractor::{ActorCell, ActorId};
use serde_json::{Value, json};

use crate::{
    observe::{ChildEnded, Context, EndKind, Named, Node, NodeError},
    supervise::{Budget, BudgetLimits, stop_child},
    tasks::{Tasks, caught},
};

/// Makes the future that a service runs; called anew for each life. An error or a panic is a death; `Ok` is the end.
pub type MakeService = Arc<dyn Fn() -> Fut<'static, Result<(), String>> + Send + Sync>;

/// Deaths of one service before it is given up.
const BUDGET: BudgetLimits = BudgetLimits { restarts_max: 10, window_ms: 60_000 };

/// What is to run in one group, by name.
#[derive(Default)]
pub(crate) struct ServiceList(Mutex<Vec<(String, MakeService)>>);

impl ServiceList {
    pub fn add(&self, name: &str, make: MakeService) {
        self.0.lock().push((name.to_owned(), make));
    }

    fn all(&self) -> Vec<(String, MakeService)> {
        self.0.lock().clone()
    }
}

/// What a group hears.
pub(crate) enum ServicesMsg {
    /// The list has grown.
    Look,
    /// The back-off of a service is over.
    StartAgain(String),
}

impl Named for ServicesMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Look => "Look",
            Self::StartAgain(_) => "StartAgain",
        }
    }
}

struct Seat {
    cell: Option<ActorCell>,
    budget: Budget,
    state: &'static str,
}

/// A group's state.
pub(crate) struct ServicesState {
    list: Arc<ServiceList>,
    seats: BTreeMap<String, Seat>,
    cells: HashMap<ActorId, String>,
    waits: Tasks<String>,
}

/// One group of services.
pub(crate) struct Services;

impl Node for Services {
    type Msg = ServicesMsg;
    type Args = Arc<ServiceList>;
    type State = ServicesState;
    const KIND: &'static str = "services";

    fn init(ctx: &Context<Self>, list: Arc<ServiceList>) -> Result<ServicesState, NodeError> {
        Ok(ServicesState { list, seats: BTreeMap::new(), cells: HashMap::new(), waits: Tasks::of(ctx.branch()) })
    }

    async fn ready(ctx: &Context<Self>, state: &mut ServicesState) -> Result<(), NodeError> {
        look(ctx, state).await;
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut ServicesState, msg: ServicesMsg) -> Result<(), NodeError> {
        match msg {
            ServicesMsg::Look => look(ctx, state).await,
            ServicesMsg::StartAgain(name) => {
                state.waits.remove(&name);
                start(ctx, state, &name).await;
            }
        }
        Ok(())
    }

    async fn child_ended(ctx: &Context<Self>, state: &mut ServicesState, ended: ChildEnded) -> Result<(), NodeError> {
        let Some(name) = state.cells.remove(&ended.id) else { return Ok(()) };
        let Some(seat) = state.seats.get_mut(&name) else { return Ok(()) };
        seat.cell = None;
        match ended.kind {
            EndKind::Done => {
                seat.state = "ended";
                return Ok(());
            }
            EndKind::Stopped => {
                start(ctx, state, &name).await;
                return Ok(());
            }
            EndKind::Killed | EndKind::Failed(_) | EndKind::Deprived(_) => {}
        }
        match seat.budget.died(ctx.now()) {
            Some(wait_ms) => {
                seat.state = "backing off";
                let (me, again) = (ctx.me(), name.clone());
                state.waits.spawn(name, async move {
                    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                    // If it fails the group is gone, and its next life starts everything.
                    me.tell(ServicesMsg::StartAgain(again));
                });
            }
            None => {
                seat.state = "given up";
                tracing::error!(service = name, "dies too often and is given up");
            }
        }
        Ok(())
    }

    async fn stopping(_ctx: &Context<Self>, state: &mut ServicesState) {
        state.waits.retain(|_| false);
        for cell in state.seats.values_mut().filter_map(|s| s.cell.take()) {
            stop_child(&cell, Duration::from_secs(2)).await;
        }
    }

    fn view(state: &ServicesState) -> Value {
        let services: Vec<Value> = state.seats.iter().map(|(n, s)| json!({"name": n, "state": s.state})).collect();
        json!({"services": services})
    }
}

async fn look(ctx: &Context<Services>, state: &mut ServicesState) {
    for (name, _) in state.list.all() {
        if !state.seats.contains_key(&name) {
            state.seats.insert(name.clone(), Seat { cell: None, budget: Budget::new(BUDGET), state: "starting" });
            start(ctx, state, &name).await;
        }
    }
}

async fn start(ctx: &Context<Services>, state: &mut ServicesState, name: &str) {
    let Some((_, make)) = state.list.all().into_iter().find(|(n, _)| n == name) else { return };
    let Some(seat) = state.seats.get_mut(name) else { return };
    match ctx.spawn::<Service>(&format!("service:{name}"), make).await {
        Ok(addr) => {
            state.cells.insert(addr.cell.get_id(), name.to_owned());
            seat.cell = Some(addr.cell);
            seat.state = "running";
        }
        Err(e) => {
            tracing::error!(service = name, error = %e, "does not start");
            seat.state = "not started";
        }
    }
}

/// What a service hears.
pub(crate) enum ServiceMsg {
    /// Its future is over.
    Over(Result<(), String>),
}

impl Named for ServiceMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Over(_) => "Over",
        }
    }
}

/// One running service: the future itself is a tracked task, aborted when this life ends.
pub(crate) struct Service;

impl Node for Service {
    type Msg = ServiceMsg;
    type Args = MakeService;
    type State = (MakeService, Tasks<()>);
    const KIND: &'static str = "service";

    fn init(ctx: &Context<Self>, make: MakeService) -> Result<Self::State, NodeError> {
        Ok((make, Tasks::of(ctx.branch())))
    }

    async fn ready(ctx: &Context<Self>, (make, running): &mut Self::State) -> Result<(), NodeError> {
        let (work, me) = (make(), ctx.me());
        running.spawn((), async move {
            let over = caught(work).await.unwrap_or_else(|panic| Err(format!("panic: {panic}")));
            me.tell(ServiceMsg::Over(over));
        });
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, _state: &mut Self::State, msg: ServiceMsg) -> Result<(), NodeError> {
        let ServiceMsg::Over(over) = msg;
        match over {
            Ok(()) => {
                ctx.stop();
                Ok(())
            }
            Err(why) => Err(NodeError::new(why)),
        }
    }

    fn view((_, running): &Self::State) -> Value {
        json!({"running": !running.is_empty()})
    }
}
