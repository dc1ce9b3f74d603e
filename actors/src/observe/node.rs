//! The trait of all actors of the tree, and the wrapper that runs them.

use std::{
    future::Future,
    marker::PhantomData,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use annie_core::{
    ids::Incarnation,
    ports::{Env, FaultAction},
    time::Micros,
};
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use serde_json::Value;

use super::{
    branch::{Branch, Children, KillsOnDrop},
    directory::{Crash, Directory, Entry, Mail, Meter, Path},
    envelope::{Addr, Depth, Envelope, Handle},
};

/// A message that has a kind: `Submit`, `ModelReplied` …
pub trait Named {
    /// The variant's name.
    fn name(&self) -> &'static str;

    /// A copy of the message, if receiving it twice, or after later messages, does no harm: a hint to read the log, or a
    /// fact that is also repeated after a crash. Faults duplicate and delay only such messages.
    fn again(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }
}

/// Why an actor ends itself: its state is in doubt, and its next incarnation rebuilds it from the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct NodeError {
    what: String,
    /// A dependency was unavailable, so the actor itself is not to blame.
    is_deprived: bool,
}

impl NodeError {
    /// An error after which the state is in doubt.
    #[must_use]
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), is_deprived: false }
    }

    /// An error because the log or the store is unavailable for now.
    #[must_use]
    pub fn deprived(what: impl Into<String>) -> Self {
        Self { what: what.into(), is_deprived: true }
    }
}

/// Why an actor did not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("actor {path} did not start: {why}")]
pub struct StartError {
    /// The path of the actor.
    pub path: Path,
    /// The cause.
    pub why: String,
}

/// The stop reason of an actor that ends itself.
const DONE: &str = "done";

/// How a child ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndKind {
    /// It ended itself: it had no more work.
    Done,
    /// An operator or its parent ended it, by a stop or a kill.
    Stopped,
    /// It was killed by neither of them, or its task was cancelled.
    Killed,
    /// It panicked or returned an error.
    Failed(String),
    /// It ended itself because the log or the store was unavailable.
    Deprived(String),
}

/// The end of a child, as reported to its parent.
#[derive(Debug, Clone)]
pub struct ChildEnded {
    /// The id of the child's cell.
    pub id: ActorId,
    /// How it ended.
    pub kind: EndKind,
}

/// The parts that all actors of one kernel share.
pub(crate) struct System {
    pub env: Env,
    pub directory: Arc<Directory>,
}

impl System {
    pub fn handle<M: Named + Send + 'static>(self: &Arc<Self>, path: &Path) -> Handle<M> {
        Handle::new(path.clone(), self.directory.clone())
    }
}

/// The context of a node: its identity and its access to the system.
pub struct Context<N: Node> {
    /// The path of the actor.
    pub path: Path,
    /// The incarnation of the actor.
    pub incarnation: Incarnation,
    pub(crate) system: Arc<System>,
    cell: ActorCell,
    meter: Arc<Meter>,
    children: Children,
    node: PhantomData<fn(N)>,
}

/// A parent's record of a child's incarnation, for reporting its end.
pub(super) struct IncarnationRecord {
    pub(super) branch: Branch,
    path: Path,
    kind: &'static str,
    incarnation: Incarnation,
    meter: Arc<Meter>,
}

/// An actor's entry in the directory. It is dropped with the actor's state, so it is also removed when the actor dies
/// together with its parent and no parent records the end.
struct Registered {
    directory: Arc<Directory>,
    path: Path,
    cell: ActorId,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.directory.remove(&self.path, self.cell);
    }
}

impl<N: Node> Context<N> {
    /// The kernel's time and randomness.
    #[must_use]
    pub fn env(&self) -> &Env {
        &self.system.env
    }

    /// The wall clock.
    #[must_use]
    pub fn now(&self) -> Micros {
        self.system.env.now()
    }

    /// The address of this incarnation, for messages from its own tasks.
    #[must_use]
    pub fn me(&self) -> Addr<N::Msg> {
        Addr {
            cell: self.cell.clone(),
            meter: self.meter.clone(),
            mailbox_max: N::MAILBOX_MAX,
            incarnation: self.incarnation,
            message: PhantomData,
        }
    }

    pub(crate) fn branch(&self) -> Branch {
        Branch { cell: self.cell.clone(), children: self.children.clone() }
    }

    /// The same context for another node type: for a node that wraps another.
    pub(crate) fn cast<O: Node>(&self) -> Context<O> {
        Context {
            path: self.path.clone(),
            incarnation: self.incarnation,
            system: self.system.clone(),
            cell: self.cell.clone(),
            meter: self.meter.clone(),
            children: self.children.clone(),
            node: PhantomData,
        }
    }

    /// Starts a linked child under this node.
    ///
    /// # Errors
    /// If its `init` fails or panics.
    pub async fn spawn<C: Node>(&self, segment: &str, args: C::Args) -> Result<Addr<C::Msg>, StartError> {
        let path = self.path.child(segment);
        let (addr, branch) = spawn::<C>(&self.system, path.clone(), args, Some(self.cell.clone())).await?;
        let record =
            IncarnationRecord { branch, path, kind: C::KIND, incarnation: addr.incarnation, meter: addr.meter.clone() };
        self.children.insert(addr.cell.get_id(), record);
        Ok(addr)
    }

    /// Ends this incarnation gracefully after the current message, because it has no more work.
    pub fn stop(&self) {
        self.cell.stop(Some(DONE.to_owned()));
    }

    /// Waits for slow work that has a time limit of its own, such as a commit. The watchdog does not take this wait for a
    /// hang.
    pub(crate) async fn wait_for<T>(&self, work: impl Future<Output = T> + Send) -> T {
        self.meter.wait(self.env().clock.as_ref(), work).await
    }

    /// A named fault point inside a handler, for faults between two steps of one message.
    pub(crate) async fn fault_point(&self, point: &str) -> Result<(), NodeError> {
        inject_fault(self, point).await
    }
}

/// Starts a node, linked to a parent if there is one.
pub(crate) async fn spawn<C: Node>(
    system: &Arc<System>,
    path: Path,
    args: C::Args,
    parent: Option<ActorCell>,
) -> Result<(Addr<C::Msg>, Branch), StartError> {
    let incarnation = system.directory.next_incarnation();
    let mail = system.env.faults.clone().map(|faults| Mail { faults, kind: C::KIND, path: path.clone() });
    let meter = Directory::new_meter(mail);
    let children = Children::default();
    let below = children.clone();
    let start = Start { system: system.clone(), path: path.clone(), incarnation, meter: meter.clone(), children, args };
    let started = match parent {
        Some(parent) => Actor::spawn_linked(None, Observed::<C>(PhantomData), start, parent).await,
        None => Actor::spawn(None, Observed::<C>(PhantomData), start).await,
    };
    let (actor, _task) = started.map_err(|e| StartError { path, why: e.to_string() })?;
    let addr = Addr { cell: actor.get_cell(), meter, mailbox_max: C::MAILBOX_MAX, incarnation, message: PhantomData };
    Ok((addr, Branch { cell: actor.get_cell(), children: below }))
}

/// An actor: its messages, arguments, state and handlers.
///
/// `init` runs in the parent's task: it must be cheap and must not wait. `ready` runs in the actor's own task before its
/// first message: slow loading belongs there. A handler never waits for a model, a skill or a process; it may wait only for
/// short store calls.
pub trait Node: Sized + Send + Sync + 'static {
    /// The type of its messages.
    type Msg: Named + Send + 'static;
    /// The arguments of a start.
    type Args: Send + 'static;
    /// The state of one incarnation.
    type State: Send + 'static;
    /// The kind of the actor, in views, metrics and fault points.
    const KIND: &'static str;
    /// Messages that may wait in the mailbox; a further request is refused.
    const MAILBOX_MAX: usize = 10_000;

    /// Builds the state.
    ///
    /// # Errors
    /// If it cannot; the parent receives a failed start.
    fn init(ctx: &Context<Self>, args: Self::Args) -> Result<Self::State, NodeError>;

    /// Loads the state before the first message, where that is slow.
    ///
    /// # Errors
    /// If it cannot; the parent receives the end of this incarnation.
    fn ready(_ctx: &Context<Self>, _state: &mut Self::State) -> impl Future<Output = Result<(), NodeError>> + Send {
        async { Ok(()) }
    }

    /// Handles one message.
    ///
    /// # Errors
    /// If the state is in doubt afterwards.
    fn handle(
        ctx: &Context<Self>,
        state: &mut Self::State,
        msg: Self::Msg,
    ) -> impl Future<Output = Result<(), NodeError>> + Send;

    /// Handles the end of a child.
    ///
    /// # Errors
    /// If the state is in doubt afterwards, or the restart budget is used up.
    fn child_ended(
        _ctx: &Context<Self>,
        _state: &mut Self::State,
        _ended: ChildEnded,
    ) -> impl Future<Output = Result<(), NodeError>> + Send {
        async { Ok(()) }
    }

    /// Handles a graceful stop; children are still running. Not called after a panic, an error or a kill.
    fn stopping(_ctx: &Context<Self>, _state: &mut Self::State) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The part of the state that operators may see: small, without secrets.
    fn view(state: &Self::State) -> Value;
}

pub struct Start<N: Node> {
    system: Arc<System>,
    path: Path,
    incarnation: Incarnation,
    meter: Arc<Meter>,
    children: Children,
    args: N::Args,
}

/// The ractor actor around a node.
pub struct Observed<N>(PhantomData<fn(N)>);

pub struct Running<N: Node> {
    ctx: Context<N>,
    state: N::State,
    registered: Registered,
}

impl<N: Node> Actor for Observed<N> {
    type Msg = Envelope<N::Msg>;
    type State = Running<N>;
    type Arguments = Start<N>;

    async fn pre_start(&self, me: ActorRef<Self::Msg>, start: Start<N>) -> Result<Running<N>, ActorProcessingErr> {
        let Start { system, path, incarnation, meter, children, args } = start;
        let cell = me.get_cell();
        let entry = Entry {
            cell: cell.clone(),
            children: children.clone(),
            kind: N::KIND,
            incarnation,
            meter: meter.clone(),
            started_at: system.env.now(),
            mailbox_max: N::MAILBOX_MAX,
            ask: Arc::new({
                let me = me.clone();
                move |reply| me.cast(Envelope::View(reply)).ok()
            }),
        };
        let registered = Registered { directory: system.directory.clone(), path: path.clone(), cell: cell.get_id() };
        let ctx = Context { path, incarnation, system, cell, meter, children, node: PhantomData };
        inject_fault(&ctx, "init").await?;
        let state = N::init(&ctx, args)?;
        ctx.system.directory.insert(ctx.path.clone(), entry);
        Ok(Running { ctx, state, registered })
    }

    async fn post_start(&self, _me: ActorRef<Self::Msg>, running: &mut Running<N>) -> Result<(), ActorProcessingErr> {
        let Running { ctx, state, .. } = running;
        busy(ctx, "Ready", async {
            inject_fault(ctx, "ready").await?;
            Box::pin(N::ready(ctx, state)).await
        })
        .await?;
        Ok(())
    }

    async fn handle(
        &self,
        _me: ActorRef<Self::Msg>,
        envelope: Self::Msg,
        running: &mut Running<N>,
    ) -> Result<(), ActorProcessingErr> {
        let Running { ctx, state, .. } = running;
        match envelope {
            Envelope::View(reply) => {
                // The requester may be gone.
                let _ = reply.send(N::view(state));
            }
            Envelope::User { msg, depth } => handle_user(ctx, state, msg, depth).await?,
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _me: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        running: &mut Running<N>,
    ) -> Result<(), ActorProcessingErr> {
        let Running { ctx, state, .. } = running;
        let (cell, kind) = match event {
            SupervisionEvent::ActorTerminated(cell, _last_state, reason) => (cell, terminated(reason.as_deref())),
            SupervisionEvent::ActorFailed(cell, error) => (cell, failed(&error)),
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => return Ok(()),
        };
        let ended = note_end(ctx, &cell, kind);
        busy(ctx, "ChildEnded", async {
            inject_fault(ctx, "child_ended").await?;
            Box::pin(N::child_ended(ctx, state, ended)).await
        })
        .await?;
        Ok(())
    }

    async fn post_stop(&self, _me: ActorRef<Self::Msg>, running: &mut Running<N>) -> Result<(), ActorProcessingErr> {
        Box::pin(N::stopping(&running.ctx, &mut running.state)).await;
        running.ctx.children.kill();
        let Registered { directory, path, cell } = &running.registered;
        directory.remove(path, *cell);
        Ok(())
    }
}

/// Handles one message of the actor. The future of the handler is on the heap only while it runs: that of an Engine has
/// tens of KiB, and the task of an actor would hold them for as long as the actor is idle.
async fn handle_user<N: Node>(
    ctx: &Context<N>,
    state: &mut N::State,
    msg: N::Msg,
    depth: Depth,
) -> Result<(), NodeError> {
    drop(depth);
    let name = msg.name();
    busy(ctx, name, async {
        if ctx.env().faults.is_none() {
            return Box::pin(N::handle(ctx, state, msg)).await;
        }
        inject_fault(ctx, &format!("before:{name}")).await?;
        Box::pin(N::handle(ctx, state, msg)).await?;
        inject_fault(ctx, &format!("after:{name}")).await
    })
    .await
}

/// Runs a handler under its name. If the handler fails, panics or is cut short, the actor ends, and its children with it.
async fn busy<N: Node>(
    ctx: &Context<N>,
    name: &'static str,
    work: impl Future<Output = Result<(), NodeError>>,
) -> Result<(), NodeError> {
    let ends_with_it = KillsOnDrop::new(ctx.children.clone());
    ctx.meter.begin(name, ctx.env().clock.monotonic_us());
    let out = work.await;
    ctx.meter.end(ctx.env().clock.monotonic_us());
    if out.is_ok() {
        ends_with_it.disarm();
    }
    out
}

/// Ractor reports kills and aborted tasks as terminations; both are abnormal.
fn terminated(reason: Option<&str>) -> EndKind {
    match reason {
        Some("killed" | "actor_task_cancelled") => EndKind::Killed,
        Some(DONE) => EndKind::Done,
        _ => EndKind::Stopped,
    }
}

fn failed(error: &ActorProcessingErr) -> EndKind {
    match error.downcast_ref::<NodeError>() {
        Some(NodeError { what, is_deprived: true }) => EndKind::Deprived(what.clone()),
        _ => EndKind::Failed(error.to_string()),
    }
}

fn note_end<N: Node>(ctx: &Context<N>, cell: &ActorCell, kind: EndKind) -> ChildEnded {
    let id = cell.get_id();
    let record = ctx.children.remove(id);
    let is_asked = record.as_ref().is_some_and(|record| record.meter.is_asked_to_end.load(Relaxed));
    let kind = if kind == EndKind::Killed && is_asked { EndKind::Stopped } else { kind };
    let reason = match &kind {
        EndKind::Done | EndKind::Stopped => None,
        EndKind::Killed => Some("killed".to_owned()),
        EndKind::Failed(error) | EndKind::Deprived(error) => Some(error.clone()),
    };
    if let Some(IncarnationRecord { path, kind, incarnation, meter, .. }) = record {
        // The state of a killed actor is dropped only later, and its next incarnation may be started before that.
        ctx.system.directory.remove(&path, id);
        if let Some(reason) = reason {
            tracing::warn!(%path, incarnation = incarnation.0, %reason, "actor died");
            let last_messages = meter.recent.lock().iter().copied().collect();
            ctx.system.directory.crashed(Crash { path, incarnation, kind, reason, at: ctx.now(), last_messages });
        }
    }
    ChildEnded { id, kind }
}

#[expect(clippy::panic, reason = "this is the fault that tests ask for")]
async fn inject_fault<N: Node>(ctx: &Context<N>, point: &str) -> Result<(), NodeError> {
    let Some(faults) = &ctx.env().faults else { return Ok(()) };
    let kind = N::KIND;
    match faults.at_path(kind, ctx.path.as_str(), point) {
        // Only a message on its way can arrive twice.
        FaultAction::Pass | FaultAction::Twice => {}
        FaultAction::Panic => panic!("injected panic in {kind} at {point}"),
        FaultAction::Fail => return Err(NodeError::new(format!("injected failure in {kind} at {point}"))),
        FaultAction::Hang => return std::future::pending().await,
        FaultAction::Kill => {
            ctx.cell.kill();
            return std::future::pending().await;
        }
        FaultAction::Stop => ctx.cell.stop(Some("injected stop".to_owned())),
        FaultAction::Slow { wait_ms } => tokio::time::sleep(Duration::from_millis(u64::from(wait_ms))).await,
    }
    Ok(())
}

/// A named fault point between two steps of a task that works for an actor; [`Faults::in_task`] says which faults may be
/// injected there.
///
/// [`Faults::in_task`]: annie_core::ports::Faults::in_task
#[expect(clippy::panic, reason = "this is the fault that tests ask for; it ends the task's actor")]
pub(crate) async fn task_point(env: &Env, task: &str, point: &str) -> Result<(), NodeError> {
    let Some(faults) = &env.faults else { return Ok(()) };
    match faults.in_task(task, point) {
        FaultAction::Pass | FaultAction::Hang | FaultAction::Twice => {}
        FaultAction::Panic | FaultAction::Kill | FaultAction::Stop => panic!("injected death in {task} at {point}"),
        FaultAction::Fail => return Err(NodeError::new(format!("injected failure in {task} at {point}"))),
        FaultAction::Slow { wait_ms } => tokio::time::sleep(Duration::from_millis(u64::from(wait_ms))).await,
    }
    Ok(())
}

/// Asks the actor at a path for its view; `None` if it does not answer in time.
pub(crate) async fn ask_view(directory: &Directory, path: &Path, wait: std::time::Duration) -> Option<Value> {
    let entry = directory.get(path)?;
    let (reply, answer) = tokio::sync::oneshot::channel();
    (entry.ask)(reply)?;
    tokio::time::timeout(wait, answer).await.ok()?.ok()
}
