//! The actors of the backends: each looks whether its endpoint is there.
//!
//! Owns: `Backends` one actor per backend, each with a budget of restarts; `BackendNode` the question whether its endpoint
//! answers, asked at the start and, only while it does not, again at growing intervals; and, whenever it does, what its server
//! says of itself, for settings that the operator leaves out; once more after a round, where it had not loaded its model. Nobody waits for that. Supervised by: the resources, and a
//! backend by its group. Survives its death: what calls have taught about the backend, which is beside the scheduler; a new
//! life asks once and goes on from there. Nothing polls while all is well.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use annie_core::{
    message::{ModelError, ModelErrorKind},
    ports::{Model, ServerFacts},
    time::Micros,
};
use ractor::{ActorCell, ActorId};
use serde_json::{Value, json};

use crate::{
    observe::{ChildEnded, Context, EndKind, Handle, Named, Node, NodeError},
    scheduler::{Leases, SchedulerMsg, is_answer},
    supervise::{Budget, BudgetLimits, stop_child},
    tasks::{Tasks, caught},
};

/// Deaths of one backend's actor before it is given up. Its rounds run all the same.
const BUDGET: BudgetLimits = BudgetLimits { restarts_max: 10, window_ms: 60_000 };
/// How long an endpoint has to say that it is there, in milliseconds.
const CHECK_MS_MAX: u64 = 60_000;
/// How long its server has to say what it is and what it can, in milliseconds.
const DESCRIBE_MS_MAX: u64 = 20_000;
/// After which it is first asked again, in milliseconds; each time twice as long.
const AGAIN_MS_MIN: u64 = 2_000;
/// After which it is asked again at the latest, in milliseconds.
const AGAIN_MS_MAX: u64 = 300_000;

/// One backend's place under the group.
pub(crate) fn segment(name: &str) -> String {
    format!("backend:{name}")
}

/// What a backend's actor starts from.
#[derive(Clone)]
pub(crate) struct BackendArgs {
    pub name: String,
    pub model: Arc<dyn Model>,
    pub leases: Arc<Leases>,
    pub scheduler: Handle<SchedulerMsg>,
}

/// What a backend's actor hears.
pub enum BackendMsg {
    /// Calls fail: look whether it is there.
    Look,
    /// A round has loaded its model: its server may say more now.
    Loaded,
    /// It is time to ask it.
    Again,
    /// It answered, or did not.
    Checked(Result<(), ModelError>),
    /// Its server said what it is and what it can, or gave no answer.
    Described(Option<ServerFacts>),
}

impl Named for BackendMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Look => "Look",
            Self::Loaded => "Loaded",
            Self::Again => "Again",
            Self::Checked(_) => "Checked",
            Self::Described(_) => "Described",
        }
    }
}

/// A backend's actor.
pub(crate) struct BackendNode;

/// Its state.
pub(crate) struct BackendState {
    args: BackendArgs,
    /// The question that is out, or the wait for the next one.
    work: Tasks<()>,
    /// The question what its server is.
    asking: Tasks<()>,
    failures: u32,
    checks: u64,
    checked_at: Option<Micros>,
    last_error: Option<ModelError>,
}

impl Node for BackendNode {
    type Msg = BackendMsg;
    type Args = BackendArgs;
    type State = BackendState;
    const KIND: &'static str = "backend";
    const MAILBOX_MAX: usize = 100;

    fn init(ctx: &Context<Self>, args: BackendArgs) -> Result<BackendState, NodeError> {
        let (work, asking) = (Tasks::of(ctx.branch()), Tasks::of(ctx.branch()));
        Ok(BackendState { args, work, asking, failures: 0, checks: 0, checked_at: None, last_error: None })
    }

    async fn ready(ctx: &Context<Self>, state: &mut BackendState) -> Result<(), NodeError> {
        check(ctx, state);
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut BackendState, msg: BackendMsg) -> Result<(), NodeError> {
        match msg {
            // It is being asked already, or will be.
            BackendMsg::Look if !state.work.is_empty() => {}
            BackendMsg::Look => wait(ctx, state),
            BackendMsg::Loaded => describe(ctx, state),
            BackendMsg::Again => check(ctx, state),
            BackendMsg::Checked(answer) => checked(ctx, state, answer),
            BackendMsg::Described(facts) => described(state, facts),
        }
        Ok(())
    }

    fn view(state: &BackendState) -> Value {
        let error = state.last_error.as_ref();
        let mut view = json!({
            "backend": state.args.name, "checks": state.checks, "checked_at": state.checked_at.map(|at| at.to_string()),
            "failed_checks": state.failures, "is_asked_again": !state.work.is_empty(),
            "check_error": error.map(|e| json!({"kind": e.kind.as_str(), "detail": e.detail})),
        });
        let known = state.args.leases.find(&state.args.name).map(|n| state.args.leases.view(n));
        if let (Some(view), Some(Value::Object(known))) = (view.as_object_mut(), known) {
            view.extend(known);
        }
        view
    }
}

fn check(ctx: &Context<BackendNode>, state: &mut BackendState) {
    let (me, model) = (ctx.me(), state.args.model.clone());
    state.checks += 1;
    state.work.spawn((), async move {
        let asked = tokio::time::timeout(Duration::from_millis(CHECK_MS_MAX), caught(model.check())).await;
        let failed = |kind, what: String| Err(ModelError::new(kind, what));
        let answer = match asked {
            Ok(Ok(answer)) => answer,
            Ok(Err(panic)) => failed(ModelErrorKind::Protocol, format!("the client broke down: {panic}")),
            Err(_) => failed(ModelErrorKind::Timeout, format!("no answer within {} s", CHECK_MS_MAX / 1_000)),
        };
        me.tell(BackendMsg::Checked(answer));
    });
}

fn checked(ctx: &Context<BackendNode>, state: &mut BackendState, answer: Result<(), ModelError>) {
    state.work.remove(&());
    state.checked_at = Some(ctx.now());
    // Whoever says no, or not so often, is there.
    let failure = answer.err().filter(|e| !is_answer(e.kind));
    let up = failure.is_none();
    if let Some(e) = &failure {
        tracing::warn!(backend = state.args.name, error = %e, "does not answer");
        state.failures = state.failures.saturating_add(1);
        wait(ctx, state);
    } else {
        state.failures = 0;
        // It may have been started anew with another model or window.
        describe(ctx, state);
    }
    state.last_error = failure;
    // If the scheduler is between two lives, what calls teach says the same.
    state.args.scheduler.tell(SchedulerMsg::BackendChecked { backend: state.args.name.clone(), up });
}

fn describe(ctx: &Context<BackendNode>, state: &mut BackendState) {
    let (model, me) = (state.args.model.clone(), ctx.me());
    state.asking.spawn((), async move {
        let asked = tokio::time::timeout(Duration::from_millis(DESCRIBE_MS_MAX), caught(model.describe())).await;
        let facts = if let Ok(Ok(facts)) = asked { facts } else { None };
        me.tell(BackendMsg::Described(facts));
    });
}

fn described(state: &mut BackendState, facts: Option<ServerFacts>) {
    state.asking.remove(&());
    let Some(facts) = facts else {
        state.args.leases.learn_nothing(&state.args.name);
        return;
    };
    state.args.leases.learn(&state.args.name, facts);
    // If the scheduler is between two lives, the next one reads the slots from the leases.
    state.args.scheduler.tell(SchedulerMsg::BackendDescribed { backend: state.args.name.clone() });
}

fn wait(ctx: &Context<BackendNode>, state: &mut BackendState) {
    let doublings = state.failures.saturating_sub(1).min(16);
    let wait_ms = (AGAIN_MS_MIN << doublings).min(AGAIN_MS_MAX);
    let me = ctx.me();
    state.work.spawn((), async move {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        me.tell(BackendMsg::Again);
    });
}

/// What the group hears.
pub(crate) enum BackendsMsg {
    /// The back-off of a backend's actor is over.
    StartAgain(String),
}

impl Named for BackendsMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::StartAgain(_) => "StartAgain",
        }
    }
}

struct Seat {
    args: BackendArgs,
    cell: Option<ActorCell>,
    budget: Budget,
}

/// The group's state.
pub(crate) struct BackendsState {
    seats: BTreeMap<String, Seat>,
    cells: HashMap<ActorId, String>,
    waits: Tasks<String>,
}

/// The group of the backends' actors.
pub(crate) struct Backends;

impl Node for Backends {
    type Msg = BackendsMsg;
    type Args = Vec<BackendArgs>;
    type State = BackendsState;
    const KIND: &'static str = "backends";

    fn init(ctx: &Context<Self>, backends: Vec<BackendArgs>) -> Result<BackendsState, NodeError> {
        let seat = |args: BackendArgs| (args.name.clone(), Seat { args, cell: None, budget: Budget::new(BUDGET) });
        let seats = backends.into_iter().map(seat).collect();
        Ok(BackendsState { seats, cells: HashMap::new(), waits: Tasks::of(ctx.branch()) })
    }

    async fn ready(ctx: &Context<Self>, state: &mut BackendsState) -> Result<(), NodeError> {
        let mut names: Vec<String> = state.seats.keys().cloned().collect();
        names.sort();
        for name in names {
            start(ctx, state, &name).await;
        }
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut BackendsState, msg: BackendsMsg) -> Result<(), NodeError> {
        let BackendsMsg::StartAgain(name) = msg;
        state.waits.remove(&name);
        start(ctx, state, &name).await;
        Ok(())
    }

    async fn child_ended(ctx: &Context<Self>, state: &mut BackendsState, ended: ChildEnded) -> Result<(), NodeError> {
        let Some(name) = state.cells.remove(&ended.id) else { return Ok(()) };
        let Some(seat) = state.seats.get_mut(&name) else { return Ok(()) };
        seat.cell = None;
        if matches!(ended.kind, EndKind::Stopped | EndKind::Done) {
            start(ctx, state, &name).await;
            return Ok(());
        }
        match seat.budget.died(ctx.now()) {
            Some(wait_ms) => {
                let (me, again) = (ctx.me(), name.clone());
                state.waits.spawn(name, async move {
                    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                    // If it fails the group is gone, and its next life starts everything.
                    me.tell(BackendsMsg::StartAgain(again));
                });
            }
            None => tracing::error!(backend = name, "its actor dies too often and is given up"),
        }
        Ok(())
    }

    async fn stopping(_ctx: &Context<Self>, state: &mut BackendsState) {
        state.waits.retain(|_| false);
        for cell in state.seats.values_mut().filter_map(|s| s.cell.take()) {
            stop_child(&cell, Duration::from_secs(1)).await;
        }
    }

    fn view(state: &BackendsState) -> Value {
        let backends: HashMap<&String, bool> = state.seats.iter().map(|(n, s)| (n, s.cell.is_some())).collect();
        json!({"running": backends})
    }
}

async fn start(ctx: &Context<Backends>, state: &mut BackendsState, name: &str) {
    let Some(seat) = state.seats.get_mut(name) else { return };
    match ctx.spawn::<BackendNode>(&segment(name), seat.args.clone()).await {
        Ok(addr) => {
            state.cells.insert(addr.cell.get_id(), name.to_owned());
            seat.cell = Some(addr.cell);
        }
        Err(e) => tracing::error!(backend = name, error = %e, "its actor does not start"),
    }
}
