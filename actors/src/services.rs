//! Long-running services that are not actors of this package, made a part of the tree: a front end's listening
//! socket, the watcher of the skill folder.
//!
//! Owns: `Services` one group of them, each with a restart budget; `Service` one running future. Supervised by: the root,
//! and a service by its group. Survives its death: the list of services, which is kept outside the tree.

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

/// Makes the future that a service runs; called for every start. An error or a panic is a death; `Ok` ends the service for
/// good.
pub type MakeService = Arc<dyn Fn() -> Fut<'static, Result<(), String>> + Send + Sync>;

/// Deaths of one service before it is given up.
const BUDGET: BudgetLimits = BudgetLimits { restarts_max: 10, window_ms: 60_000 };

/// The services of one group, by name.
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

/// Messages of a group.
pub(crate) enum ServicesMsg {
    /// The list has grown.
    StartNew,
    /// The back-off of a service is over.
    StartAgain(String),
}

impl Named for ServicesMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::StartNew => "StartNew",
            Self::StartAgain(_) => "StartAgain",
        }
    }
}

struct Child {
    cell: Option<ActorCell>,
    budget: Budget,
    state: &'static str,
}

pub(crate) struct ServicesState {
    list: Arc<ServiceList>,
    children: BTreeMap<String, Child>,
    cells: HashMap<ActorId, String>,
    waits: Tasks<String>,
}

/// The actor of one group of services.
pub(crate) struct Services;

impl Node for Services {
    type Msg = ServicesMsg;
    type Args = Arc<ServiceList>;
    type State = ServicesState;
    const KIND: &'static str = "services";

    fn init(ctx: &Context<Self>, list: Arc<ServiceList>) -> Result<ServicesState, NodeError> {
        Ok(ServicesState { list, children: BTreeMap::new(), cells: HashMap::new(), waits: Tasks::of(ctx.branch()) })
    }

    async fn ready(ctx: &Context<Self>, state: &mut ServicesState) -> Result<(), NodeError> {
        start_new(ctx, state).await;
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut ServicesState, msg: ServicesMsg) -> Result<(), NodeError> {
        match msg {
            ServicesMsg::StartNew => start_new(ctx, state).await,
            ServicesMsg::StartAgain(name) => {
                state.waits.remove(&name);
                start(ctx, state, &name).await;
            }
        }
        Ok(())
    }

    async fn child_ended(ctx: &Context<Self>, state: &mut ServicesState, ended: ChildEnded) -> Result<(), NodeError> {
        let Some(name) = state.cells.remove(&ended.id) else { return Ok(()) };
        let Some(child) = state.children.get_mut(&name) else { return Ok(()) };
        child.cell = None;
        match ended.kind {
            EndKind::Done => {
                child.state = "ended";
                return Ok(());
            }
            EndKind::Stopped => {
                start(ctx, state, &name).await;
                return Ok(());
            }
            EndKind::Killed | EndKind::Failed(_) | EndKind::Deprived(_) => {}
        }
        match child.budget.died(ctx.now()) {
            Some(wait_ms) => {
                child.state = "backing off";
                let (me, again) = (ctx.me(), name.clone());
                state.waits.spawn(name, async move {
                    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                    // If the message is lost the group is gone, and its next incarnation starts all services.
                    me.tell(ServicesMsg::StartAgain(again));
                });
            }
            None => {
                child.state = "given up";
                tracing::error!(service = name, "restart budget used up, the service stays stopped");
            }
        }
        Ok(())
    }

    async fn stopping(_ctx: &Context<Self>, state: &mut ServicesState) {
        state.waits.retain(|_| false);
        for cell in state.children.values_mut().filter_map(|s| s.cell.take()) {
            stop_child(&cell, Duration::from_secs(2)).await;
        }
    }

    fn view(state: &ServicesState) -> Value {
        let services: Vec<Value> = state.children.iter().map(|(n, s)| json!({"name": n, "state": s.state})).collect();
        json!({"services": services})
    }
}

async fn start_new(ctx: &Context<Services>, state: &mut ServicesState) {
    for (name, _) in state.list.all() {
        if !state.children.contains_key(&name) {
            state.children.insert(name.clone(), Child { cell: None, budget: Budget::new(BUDGET), state: "starting" });
            start(ctx, state, &name).await;
        }
    }
}

async fn start(ctx: &Context<Services>, state: &mut ServicesState, name: &str) {
    let Some((_, make)) = state.list.all().into_iter().find(|(n, _)| n == name) else { return };
    let Some(child) = state.children.get_mut(name) else { return };
    match ctx.spawn::<Service>(&format!("service:{name}"), make).await {
        Ok(addr) => {
            state.cells.insert(addr.cell.get_id(), name.to_owned());
            child.cell = Some(addr.cell);
            child.state = "running";
        }
        Err(e) => {
            tracing::error!(service = name, error = %e, "the service did not start");
            child.state = "not started";
        }
    }
}

/// Messages of a service.
pub(crate) enum ServiceMsg {
    /// The service's future has ended.
    Over(Result<(), String>),
}

impl Named for ServiceMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Over(_) => "Over",
        }
    }
}

/// The actor of one running service. The future is a tracked task, aborted when this incarnation ends.
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
