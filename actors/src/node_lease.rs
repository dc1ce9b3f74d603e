//! The lease of this process, as a node among those that share its database (ADR 0019): renewed in time, and taken anew under
//! another incarnation when it is lost. A store that only this process writes needs none, and then nothing happens here.
//!
//! Owns: when the lease is renewed, and which nodes are known to be dead. Supervised by: infra. Survives its death: the lease
//! ([`Lease`], beside the tree) and the node's row.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_core::{
    ids::{NodeId, NodeIncarnation},
    ports::{Clock, Env, Renewal, Store, StoreError},
    time::Micros,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::{
    conversations::ConversationsMsg,
    lookout::outcome,
    observe::{Context, Named, Node, NodeError},
    tasks::Tasks,
    wiring::Wiring,
};

/// From a renewal that failed to the next at most, in milliseconds.
const AGAIN_MS_MAX: u64 = 500;
/// The part of a lease in which it counts as run out here though it has not expired in the database yet: what began before
/// needs a while to end.
const MARGIN_PART: u64 = 5;

/// How long leases last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseLimits {
    /// How long a node that does not renew its lease counts as living, in milliseconds.
    pub lease_ms: u64,
    /// From one renewal to the next, in milliseconds; a third of the lease at most.
    pub renew_ms: u64,
}

impl Default for LeaseLimits {
    fn default() -> Self {
        Self { lease_ms: 10_000, renew_ms: 3_000 }
    }
}

/// The lease as everybody in this process sees it.
pub(crate) struct Lease {
    limits: LeaseLimits,
    is_shared: bool,
    name: Mutex<(NodeId, NodeIncarnation)>,
    /// Until when it is held for certain, by the monotonic clock.
    held_until_us: AtomicU64,
    renewed: Notify,
}

impl Lease {
    /// Registers the process, if its store is shared.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn register(node: NodeId, env: &Env, store: &dyn Store, limits: LeaseLimits) -> Result<Self, StoreError> {
        let name = Mutex::new((node, NodeIncarnation::from_uuid(env.uuid())));
        let (held_until_us, renewed) = (AtomicU64::new(0), Notify::new());
        let lease = Self { limits, is_shared: store.is_shared(), name, held_until_us, renewed };
        if lease.is_shared {
            let asked_us = env.clock.monotonic_us();
            store.register_node(node, lease.incarnation(), limits.lease_ms).await?;
            lease.extend(asked_us);
        }
        Ok(lease)
    }

    /// Which run of the process claims conversations.
    pub fn incarnation(&self) -> NodeIncarnation {
        self.name.lock().1
    }

    /// Whether no other process can have declared this one dead.
    fn is_held(&self, monotonic_us: u64) -> bool {
        !self.is_shared || monotonic_us < self.held_until_us.load(Relaxed)
    }

    /// Whether this run of the process holds the lease, or will as soon as it is renewed. If not, it begins nothing that must
    /// not happen twice; it may still write, since the store refuses what is another's now.
    pub async fn holds(&self, run: NodeIncarnation, clock: &dyn Clock) -> bool {
        let held = async {
            loop {
                let renewed = self.renewed.notified();
                if self.is_held(clock.monotonic_us()) || self.incarnation() != run {
                    break;
                }
                renewed.await;
            }
        };
        let wait = Duration::from_millis(self.limits.renew_ms);
        tokio::time::timeout(wait, held).await.is_ok() && self.incarnation() == run
    }

    /// It was renewed by a question that was asked at this time.
    fn extend(&self, asked_us: u64) {
        let sure_ms = self.limits.lease_ms - self.limits.lease_ms / MARGIN_PART;
        self.held_until_us.store(asked_us.saturating_add(sure_ms.saturating_mul(1_000)), Relaxed);
        self.renewed.notify_waiters();
    }

    /// A node leaves in good order, so that nobody waits for its lease to expire.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn end(&self, store: &dyn Store) -> Result<(), StoreError> {
        if self.is_shared { store.end_node(self.incarnation()).await } else { Ok(()) }
    }
}

/// What it hears.
pub(crate) enum NodeLeaseMsg {
    /// It is time to renew.
    Renew,
    /// The store has answered, or not.
    Renewed {
        /// When it was asked, by the monotonic clock.
        asked_us: u64,
        /// What it said.
        renewal: Result<Renewal, String>,
    },
    /// The process is registered under a new incarnation, or not yet.
    Registered {
        /// When that was asked, by the monotonic clock.
        asked_us: u64,
        /// Under which.
        name: Result<(NodeId, NodeIncarnation), String>,
    },
}

impl Named for NodeLeaseMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Renew => "Renew",
            Self::Renewed { .. } => "Renewed",
            Self::Registered { .. } => "Registered",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Work {
    Timer,
    Ask,
}

/// Its state.
pub(crate) struct NodeLeaseState {
    wiring: Arc<Wiring>,
    tasks: Tasks<Work>,
    /// The dead nodes that were taken notice of.
    ended: (u64, Option<Micros>),
    /// Since when the lease has been held without a gap, by the monotonic clock.
    steady_since_us: Option<u64>,
    renewals: u64,
    losses: u64,
    last_error: Option<String>,
}

/// The watch over the lease.
pub(crate) struct NodeLease;

impl Node for NodeLease {
    type Msg = NodeLeaseMsg;
    type Args = Arc<Wiring>;
    type State = NodeLeaseState;
    const KIND: &'static str = "node_lease";

    fn init(ctx: &Context<Self>, wiring: Arc<Wiring>) -> Result<NodeLeaseState, NodeError> {
        let tasks = Tasks::of(ctx.branch());
        let (ended, steady_since_us, last_error) = ((0, None), None, None);
        Ok(NodeLeaseState { wiring, tasks, ended, steady_since_us, renewals: 0, losses: 0, last_error })
    }

    async fn ready(ctx: &Context<Self>, state: &mut NodeLeaseState) -> Result<(), NodeError> {
        if state.wiring.lease.is_shared {
            renew(ctx, state);
        }
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut NodeLeaseState, msg: NodeLeaseMsg) -> Result<(), NodeError> {
        match msg {
            NodeLeaseMsg::Renew => renew(ctx, state),
            NodeLeaseMsg::Renewed { asked_us, renewal } => renewed(ctx, state, asked_us, renewal),
            NodeLeaseMsg::Registered { asked_us, name } => registered(ctx, state, asked_us, name),
        }
        Ok(())
    }

    fn view(state: &NodeLeaseState) -> Value {
        let lease = &state.wiring.lease;
        let now_us = state.wiring.env.clock.monotonic_us();
        let (node, incarnation) = *lease.name.lock();
        if !lease.is_shared {
            return json!({"incarnation": incarnation, "lease": "the lock of the data folder"});
        }
        let left_us = lease.held_until_us.load(Relaxed).saturating_sub(now_us);
        json!({
            "node": node, "incarnation": incarnation, "is_held": lease.is_held(now_us), "left_ms": left_us / 1_000,
            "renewals": state.renewals, "losses": state.losses, "dead_nodes": state.ended.0,
            "last_error": state.last_error
        })
    }
}

fn renew(ctx: &Context<NodeLease>, state: &mut NodeLeaseState) {
    state.tasks.remove(&Work::Timer);
    let (lease, store, me) = (state.wiring.lease.clone(), state.wiring.store.clone(), ctx.me());
    let asked_us = ctx.env().clock.monotonic_us();
    if !lease.is_held(asked_us) {
        state.steady_since_us = None;
    }
    // Where the database was away all leases may have expired: whoever is back first lets the others come back, too.
    let lease_us = lease.limits.lease_ms.saturating_mul(1_000);
    let may_end_others = state.steady_since_us.is_some_and(|since| asked_us.saturating_sub(since) >= lease_us);
    state.tasks.spawn(Work::Ask, async move {
        let LeaseLimits { lease_ms, renew_ms } = lease.limits;
        let ask = store.renew_node(lease.incarnation(), lease_ms, may_end_others);
        let renewal = outcome_within(renew_ms, outcome(ask)).await;
        me.tell(NodeLeaseMsg::Renewed { asked_us, renewal });
    });
}

fn renewed(ctx: &Context<NodeLease>, state: &mut NodeLeaseState, asked_us: u64, renewal: Result<Renewal, String>) {
    state.tasks.remove(&Work::Ask);
    let renew_ms = state.wiring.lease.limits.renew_ms;
    match renewal {
        Ok(Renewal { is_held: true, ended }) => {
            state.wiring.lease.extend(asked_us);
            state.steady_since_us.get_or_insert(asked_us);
            (state.renewals, state.last_error) = (state.renewals + 1, None);
            if std::mem::replace(&mut state.ended, ended) != ended {
                // If nobody lives there, its next life looks by itself.
                state.wiring.conversations.tell(ConversationsMsg::NodesEnded);
            }
            let passed_ms = ctx.env().clock.monotonic_us().saturating_sub(asked_us) / 1_000;
            wind(ctx, state, renew_ms.saturating_sub(passed_ms));
        }
        Ok(Renewal { is_held: false, .. }) => {
            metrics::counter!("annie_node_leases_lost_total").increment(1);
            tracing::warn!("this process was declared dead: it begins again under a new incarnation");
            (state.losses, state.steady_since_us) = (state.losses + 1, None);
            state.wiring.lease.held_until_us.store(0, Relaxed);
            register(ctx, state);
        }
        Err(error) => {
            tracing::warn!(error, "the lease of this process could not be renewed");
            // The others may have failed as well, and come back later than this one.
            (state.last_error, state.steady_since_us) = (Some(error), None);
            wind(ctx, state, renew_ms.min(AGAIN_MS_MAX));
        }
    }
}

fn wind(ctx: &Context<NodeLease>, state: &mut NodeLeaseState, wait_ms: u64) {
    let me = ctx.me();
    state.tasks.spawn(Work::Timer, async move {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        me.tell(NodeLeaseMsg::Renew);
    });
}

/// Takes a lease under a new incarnation. Another process that goes by the same name, on a copy of the data folder, keeps it.
fn register(ctx: &Context<NodeLease>, state: &mut NodeLeaseState) {
    let (lease, store, env, me) = (state.wiring.lease.clone(), state.wiring.store.clone(), ctx.env().clone(), ctx.me());
    let asked_us = env.clock.monotonic_us();
    state.tasks.spawn(Work::Ask, async move {
        let (node, former) = *lease.name.lock();
        let register = async {
            let is_anothers = store.nodes().await?.iter().any(|row| row.node == node && row.incarnation != former);
            let node = if is_anothers { NodeId::from_uuid(env.uuid()) } else { node };
            let incarnation = NodeIncarnation::from_uuid(env.uuid());
            store.register_node(node, incarnation, lease.limits.lease_ms).await?;
            Ok::<_, StoreError>((node, incarnation))
        };
        let name = outcome_within(lease.limits.renew_ms, outcome(register)).await;
        me.tell(NodeLeaseMsg::Registered { asked_us, name });
    });
}

fn registered(
    ctx: &Context<NodeLease>,
    state: &mut NodeLeaseState,
    asked_us: u64,
    name: Result<(NodeId, NodeIncarnation), String>,
) {
    state.tasks.remove(&Work::Ask);
    match name {
        Ok(name) => {
            *state.wiring.lease.name.lock() = name;
            state.wiring.lease.extend(asked_us);
            // What was claimed before may be another's now. If nobody lives there, its next life claims under the new name.
            state.wiring.conversations.tell(ConversationsMsg::LeaseLost);
            wind(ctx, state, state.wiring.lease.limits.renew_ms);
        }
        Err(error) => {
            tracing::warn!(error, "this process could not be registered again");
            state.last_error = Some(error);
            // The renewal is refused again, and this is tried again after it.
            wind(ctx, state, AGAIN_MS_MAX);
        }
    }
}

/// A store that does not answer in time may have renewed the lease or not: it is asked again.
async fn outcome_within<T>(ms: u64, ask: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let late = |_| Err(format!("no answer within {ms} ms"));
    tokio::time::timeout(Duration::from_millis(ms), ask).await.unwrap_or_else(late)
}
