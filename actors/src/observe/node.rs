//! What an actor of the tree is, and the wrapper that runs it.

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

/// A message that can say which kind it is: `Submit`, `ModelReplied` …
pub trait Named {
    /// The variant's name.
    fn name(&self) -> &'static str;

    /// The same once more, if hearing it twice, or after what was sent later, does no harm: a hint to look, or a fact that
    /// is told again after a crash as well. Faults double and hold back only such messages.
    fn again(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }
}

/// Why an actor gives up its life: its state is in doubt, and its successor builds it anew from the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct NodeError {
    what: String,
    /// What it needs was away: its own doing had no part in it.
    is_deprived: bool,
}

impl NodeError {
    /// In doubt about something.
    #[must_use]
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), is_deprived: false }
    }

    /// In doubt because the log or the store is away for now.
    #[must_use]
    pub fn deprived(what: impl Into<String>) -> Self {
        Self { what: what.into(), is_deprived: true }
    }
}

/// Why an actor did not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("actor {path} did not start: {why}")]
pub struct StartError {
    /// Where it was to stand.
    pub path: Path,
    /// What came in between.
    pub why: String,
}

/// The reason that an actor gives for ending by itself.
const DONE: &str = "done";

/// How a child's life ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndKind {
    /// It ended by itself: there was nothing left for it to do.
    Done,
    /// An operator or its parent asked for it, by a stop or a kill.
    Stopped,
    /// It was killed unasked, or its task was cancelled.
    Killed,
    /// It panicked or returned an error.
    Failed(String),
    /// It gave up because the log or the store was away.
    Deprived(String),
}

/// A child's death, as its parent hears of it.
#[derive(Debug, Clone)]
pub struct ChildEnded {
    /// Which cell.
    pub id: ActorId,
    /// How it ended.
    pub kind: EndKind,
}

/// What all actors of one kernel share.
pub(crate) struct System {
    pub env: Env,
    pub directory: Arc<Directory>,
}

impl System {
    pub fn handle<M: Named + Send + 'static>(self: &Arc<Self>, path: &Path) -> Handle<M> {
        Handle::new(path.clone(), self.directory.clone())
    }
}

/// What a node knows of itself.
pub struct Context<N: Node> {
    /// Where it stands.
    pub path: Path,
    /// Which life this is.
    pub incarnation: Incarnation,
    pub(crate) system: Arc<System>,
    cell: ActorCell,
    meter: Arc<Meter>,
    children: Children,
    node: PhantomData<fn(N)>,
}

/// A life as its parent remembers it, for the record of its end.
pub(super) struct Life {
    pub(super) branch: Branch,
    path: Path,
    kind: &'static str,
    incarnation: Incarnation,
    meter: Arc<Meter>,
}

/// An actor's entry in the directory. It goes with the actor's state, so it goes also when the actor dies with its parent
/// and nobody is left to hear of it.
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

    /// This life's own address, for messages to itself from its tasks.
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

    /// The same life seen as another node: for one that is made of another.
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
        let life = Life { branch, path, kind: C::KIND, incarnation: addr.incarnation, meter: addr.meter.clone() };
        self.children.insert(addr.cell.get_id(), life);
        Ok(addr)
    }

    /// Ends this life in good order, after the current message: there is nothing left for it to do.
    pub fn stop(&self) {
        self.cell.stop(Some(DONE.to_owned()));
    }

    /// Waits for something slow that has a time limit of its own, a commit: the watchdog does not take it for a hang.
    pub(crate) async fn wait_for<T>(&self, work: impl Future<Output = T> + Send) -> T {
        self.meter.wait(self.env().clock.as_ref(), work).await
    }

    /// A named fault point inside a handler, for faults between two steps of one message.
    pub(crate) async fn fault_point(&self, point: &str) -> Result<(), NodeError> {
        strike(self, point).await
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

/// An actor: what it starts from, what it hears, what it keeps.
///
/// `init` runs in the parent's task: cheap, no waiting. `ready` runs in the actor's own task before its first message:
/// heavy loading belongs there. A handler never waits for a model, a skill or a process; short store calls are all it
/// may wait for.
pub trait Node: Sized + Send + Sync + 'static {
    /// What it hears.
    type Msg: Named + Send + 'static;
    /// What it starts from.
    type Args: Send + 'static;
    /// What it keeps.
    type State: Send + 'static;
    /// What it is, in views, metrics and fault points.
    const KIND: &'static str;
    /// Messages that may wait; one more is refused.
    const MAILBOX_MAX: usize = 10_000;

    /// Builds the state.
    ///
    /// # Errors
    /// If it cannot; the parent hears of it as a failed start.
    fn init(ctx: &Context<Self>, args: Self::Args) -> Result<Self::State, NodeError>;

    /// Loads what is heavy.
    ///
    /// # Errors
    /// If it cannot; the parent hears of it as a failed life.
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

    /// Hears that a child ended.
    ///
    /// # Errors
    /// If the state is in doubt afterwards, or the budget for restarts is used up.
    fn child_ended(
        _ctx: &Context<Self>,
        _state: &mut Self::State,
        _ended: ChildEnded,
    ) -> impl Future<Output = Result<(), NodeError>> + Send {
        async { Ok(()) }
    }

    /// Ends in good order; children are still alive. Not called after a panic, an error or a kill.
    fn stopping(_ctx: &Context<Self>, _state: &mut Self::State) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// What operators may see of the state: small, without secrets.
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
        strike(&ctx, "init").await?;
        let state = N::init(&ctx, args)?;
        ctx.system.directory.insert(ctx.path.clone(), entry);
        Ok(Running { ctx, state, registered })
    }

    async fn post_start(&self, _me: ActorRef<Self::Msg>, running: &mut Running<N>) -> Result<(), ActorProcessingErr> {
        let Running { ctx, state, .. } = running;
        busy(ctx, "Ready", async {
            strike(ctx, "ready").await?;
            N::ready(ctx, state).await
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
                // The asker may have left; that is its business.
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
            strike(ctx, "child_ended").await?;
            N::child_ended(ctx, state, ended).await
        })
        .await?;
        Ok(())
    }

    async fn post_stop(&self, _me: ActorRef<Self::Msg>, running: &mut Running<N>) -> Result<(), ActorProcessingErr> {
        N::stopping(&running.ctx, &mut running.state).await;
        running.ctx.children.kill();
        let Registered { directory, path, cell } = &running.registered;
        directory.remove(path, *cell);
        Ok(())
    }
}

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
            return N::handle(ctx, state, msg).await;
        }
        strike(ctx, &format!("before:{name}")).await?;
        N::handle(ctx, state, msg).await?;
        strike(ctx, &format!("after:{name}")).await
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

/// Kills arrive as terminations, and an aborted task too; both are abnormal.
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
    let life = ctx.children.remove(id);
    let is_asked = life.as_ref().is_some_and(|life| life.meter.is_asked_to_end.load(Relaxed));
    let kind = if kind == EndKind::Killed && is_asked { EndKind::Stopped } else { kind };
    let reason = match &kind {
        EndKind::Done | EndKind::Stopped => None,
        EndKind::Killed => Some("killed".to_owned()),
        EndKind::Failed(error) | EndKind::Deprived(error) => Some(error.clone()),
    };
    if let Some(Life { path, kind, incarnation, meter, .. }) = life {
        // A killed life's state is dropped only after this, and its successor may be started before.
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
async fn strike<N: Node>(ctx: &Context<N>, point: &str) -> Result<(), NodeError> {
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

/// A named fault point between two steps of a task that works for an actor; [`Faults::in_task`] says what may strike there.
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

/// Asks whoever lives at a path for its view; nothing if it does not answer in time.
pub(crate) async fn ask_view(directory: &Directory, path: &Path, wait: std::time::Duration) -> Option<Value> {
    let entry = directory.get(path)?;
    let (reply, answer) = tokio::sync::oneshot::channel();
    (entry.ask)(reply)?;
    tokio::time::timeout(wait, answer).await.ok()?.ok()
}
