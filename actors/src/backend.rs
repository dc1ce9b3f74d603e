//! The actors of the backends: each checks whether its endpoint answers.
//!
//! Owns: `Backends` one actor per backend, each with a restart budget; `BackendNode` the health check of its endpoint. The
//! check runs at the start, and again at growing intervals only while the endpoint does not answer. After each successful
//! check the server's description of itself is read, for settings that the operator leaves out; it is read once more after a
//! round that loaded the model. Nothing waits for the description. Supervised by: the resources, and a backend by its group.
//! Survives its death: what calls have shown about the backend, which is kept outside the Scheduler. The next incarnation
//! checks once and continues from there. Nothing polls while the endpoint answers.

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
    scheduler::{BackendReport, Leases, SchedulerMsg, is_answer},
    supervise::{Budget, BudgetLimits, stop_child},
    tasks::{Tasks, caught},
};

/// Deaths of one backend's actor before it is given up. Rounds on the backend run nevertheless.
const BUDGET: BudgetLimits = BudgetLimits { restarts_max: 10, window_ms: 60_000 };
/// Time limit of a health check, in milliseconds.
const CHECK_MS_MAX: u64 = 60_000;
/// Time limit for the server to describe itself, in milliseconds.
const DESCRIBE_MS_MAX: u64 = 20_000;
/// The first interval between two checks, in milliseconds; each further one is twice as long.
const AGAIN_MS_MIN: u64 = 2_000;
/// The longest interval between two checks, in milliseconds.
const AGAIN_MS_MAX: u64 = 300_000;

/// The name of a backend's actor under the group.
pub(crate) fn segment(name: &str) -> String {
    format!("backend:{name}")
}

#[derive(Clone)]
pub(crate) struct BackendArgs {
    pub name: String,
    pub model: Arc<dyn Model>,
    pub leases: Arc<Leases>,
    pub scheduler: Handle<SchedulerMsg>,
}

/// Messages of a backend's actor.
pub enum BackendMsg {
    /// Calls fail: check the endpoint.
    Check,
    /// A round has loaded the model: the server may report more now.
    Loaded,
    /// Time for the next check.
    Again,
    /// The result of a check.
    Checked(Result<(), ModelError>),
    /// The server's description of itself, or `None` without an answer.
    Described(Option<ServerFacts>),
}

impl Named for BackendMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Check => "Check",
            Self::Loaded => "Loaded",
            Self::Again => "Again",
            Self::Checked(_) => "Checked",
            Self::Described(_) => "Described",
        }
    }
}

/// The actor of one backend.
pub(crate) struct BackendNode;

pub(crate) struct BackendState {
    args: BackendArgs,
    /// The check under way, or the wait for the next one.
    work: Tasks<()>,
    /// The request for the server's description.
    describing: Tasks<()>,
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
        let (work, describing) = (Tasks::of(ctx.branch()), Tasks::of(ctx.branch()));
        Ok(BackendState { args, work, describing, failures: 0, checks: 0, checked_at: None, last_error: None })
    }

    async fn ready(ctx: &Context<Self>, state: &mut BackendState) -> Result<(), NodeError> {
        check(ctx, state);
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut BackendState, msg: BackendMsg) -> Result<(), NodeError> {
        match msg {
            // A check is under way or scheduled.
            BackendMsg::Check if !state.work.is_empty() => {}
            BackendMsg::Check => wait(ctx, state),
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
            Ok(Err(panic)) => failed(ModelErrorKind::Protocol, format!("the client panicked: {panic}")),
            Err(_) => failed(ModelErrorKind::Timeout, format!("no answer within {} s", CHECK_MS_MAX / 1_000)),
        };
        me.tell(BackendMsg::Checked(answer));
    });
}

fn checked(ctx: &Context<BackendNode>, state: &mut BackendState, answer: Result<(), ModelError>) {
    state.work.remove(&());
    state.checked_at = Some(ctx.now());
    // A server that refuses or limits the request does answer.
    let failure = answer.err().filter(|e| !is_answer(e.kind));
    let up = failure.is_none();
    if let Some(e) = &failure {
        tracing::warn!(backend = state.args.name, error = %e, "the backend does not answer");
        state.failures = state.failures.saturating_add(1);
        wait(ctx, state);
    } else {
        state.failures = 0;
        // The server may have been restarted with another model or window.
        describe(ctx, state);
    }
    state.last_error = failure;
    // If the Scheduler is restarting, the results of calls show the same.
    state
        .args
        .scheduler
        .tell(SchedulerMsg::Backend(BackendReport::BackendChecked { backend: state.args.name.clone(), up }));
}

fn describe(ctx: &Context<BackendNode>, state: &mut BackendState) {
    let (model, me) = (state.args.model.clone(), ctx.me());
    state.describing.spawn((), async move {
        let asked = tokio::time::timeout(Duration::from_millis(DESCRIBE_MS_MAX), caught(model.describe())).await;
        let facts = if let Ok(Ok(facts)) = asked { facts } else { None };
        me.tell(BackendMsg::Described(facts));
    });
}

fn described(state: &mut BackendState, facts: Option<ServerFacts>) {
    state.describing.remove(&());
    let Some(facts) = facts else {
        state.args.leases.learn_nothing(&state.args.name);
        return;
    };
    state.args.leases.learn(&state.args.name, facts);
    // If the Scheduler is restarting, its next incarnation reads the slots from the leases.
    state
        .args
        .scheduler
        .tell(SchedulerMsg::Backend(BackendReport::BackendDescribed { backend: state.args.name.clone() }));
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

/// Messages of the group.
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

struct Child {
    args: BackendArgs,
    cell: Option<ActorCell>,
    budget: Budget,
}

pub(crate) struct BackendsState {
    children: BTreeMap<String, Child>,
    cells: HashMap<ActorId, String>,
    waits: Tasks<String>,
}

/// The actor of the group of all backends.
pub(crate) struct Backends;

impl Node for Backends {
    type Msg = BackendsMsg;
    type Args = Vec<BackendArgs>;
    type State = BackendsState;
    const KIND: &'static str = "backends";

    fn init(ctx: &Context<Self>, backends: Vec<BackendArgs>) -> Result<BackendsState, NodeError> {
        let child = |args: BackendArgs| (args.name.clone(), Child { args, cell: None, budget: Budget::new(BUDGET) });
        let children = backends.into_iter().map(child).collect();
        Ok(BackendsState { children, cells: HashMap::new(), waits: Tasks::of(ctx.branch()) })
    }

    async fn ready(ctx: &Context<Self>, state: &mut BackendsState) -> Result<(), NodeError> {
        let mut names: Vec<String> = state.children.keys().cloned().collect();
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
        let Some(child) = state.children.get_mut(&name) else { return Ok(()) };
        child.cell = None;
        if matches!(ended.kind, EndKind::Stopped | EndKind::Done) {
            start(ctx, state, &name).await;
            return Ok(());
        }
        match child.budget.died(ctx.now()) {
            Some(wait_ms) => {
                let (me, again) = (ctx.me(), name.clone());
                state.waits.spawn(name, async move {
                    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                    // If the message is lost the group is gone, and its next incarnation starts all actors.
                    me.tell(BackendsMsg::StartAgain(again));
                });
            }
            None => tracing::error!(backend = name, "restart budget used up, its actor stays stopped"),
        }
        Ok(())
    }

    async fn stopping(_ctx: &Context<Self>, state: &mut BackendsState) {
        state.waits.retain(|_| false);
        for cell in state.children.values_mut().filter_map(|s| s.cell.take()) {
            stop_child(&cell, Duration::from_secs(1)).await;
        }
    }

    fn view(state: &BackendsState) -> Value {
        let backends: HashMap<&String, bool> = state.children.iter().map(|(n, s)| (n, s.cell.is_some())).collect();
        json!({"running": backends})
    }
}

async fn start(ctx: &Context<Backends>, state: &mut BackendsState, name: &str) {
    let Some(child) = state.children.get_mut(name) else { return };
    match ctx.spawn::<BackendNode>(&segment(name), child.args.clone()).await {
        Ok(addr) => {
            state.cells.insert(addr.cell.get_id(), name.to_owned());
            child.cell = Some(addr.cell);
        }
        Err(e) => tracing::error!(backend = name, error = %e, "the backend's actor did not start"),
    }
}
