//! The lease of this node among those that share its database (ADR 0019). It is renewed in time, and acquired under a new
//! incarnation after it was lost. A store that only this process writes needs no lease, and then this actor does nothing.
//!
//! Owns: the renewal schedule, and the number of dead nodes seen. Supervised by: infra. Survives its death: the lease
//! ([`Lease`], outside the tree) and the node's row.

mod lease;

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use annie_core::{
    ids::{NodeId, NodeIncarnation},
    ports::{Renewal, StoreError},
    time::Micros,
};
pub(crate) use lease::Lease;
pub use lease::LeaseLimits;
use serde_json::{Value, json};

use crate::{
    conversations::ConversationsMsg,
    due_timer::outcome,
    log_writer::LogMsg,
    observe::{Context, Named, Node, NodeError},
    ownership::OwnershipMsg,
    tasks::Tasks,
    wiring::Wiring,
};

/// Maximum delay from a failed renewal to the next attempt, in milliseconds.
const AGAIN_MS_MAX: u64 = 500;
/// Messages of the lease actor.
pub(crate) enum NodeLeaseMsg {
    /// Time to renew.
    Renew,
    /// The answer to a renewal, or its failure.
    Renewed {
        /// When the renewal was requested, by the monotonic clock.
        asked_us: u64,
        /// The answer of the store.
        renewal: Result<Renewal, String>,
    },
    /// The answer to a registration under a new incarnation, or its failure.
    Registered {
        /// When the registration was requested, by the monotonic clock.
        asked_us: u64,
        /// The registered node and incarnation.
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

pub(crate) struct NodeLeaseState {
    wiring: Arc<Wiring>,
    tasks: Tasks<Work>,
    /// The dead nodes seen so far: their number, and when the last one ended.
    ended: (u64, Option<Micros>),
    /// Since when the lease has been held without interruption, by the monotonic clock.
    steady_since_us: Option<u64>,
    renewals: u64,
    losses: u64,
    last_error: Option<String>,
}

/// The actor that renews the lease.
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
    // After a database outage all leases may have expired. A node that is back first must give the others time to renew
    // before it declares any of them dead.
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
                // If the ownership actor is dead, its next incarnation scans the log.
                state.wiring.ownership.tell(OwnershipMsg::NodesEnded);
                // If the log writer is dead, its next incarnation makes the background workers read the store.
                state.wiring.log.tell(LogMsg::NodesEnded);
            }
            let passed_ms = ctx.env().clock.monotonic_us().saturating_sub(asked_us) / 1_000;
            set_timer(ctx, state, renew_ms.saturating_sub(passed_ms));
        }
        Ok(Renewal { is_held: false, .. }) => {
            metrics::counter!("annie_node_leases_lost_total").increment(1);
            tracing::warn!("this node was declared dead, registering a new incarnation");
            (state.losses, state.steady_since_us) = (state.losses + 1, None);
            state.wiring.lease.held_until_us.store(0, Relaxed);
            register(ctx, state);
        }
        Err(error) => {
            tracing::warn!(error, "the lease of this node could not be renewed, trying again");
            // The other nodes may have failed as well, and may come back later than this one.
            (state.last_error, state.steady_since_us) = (Some(error), None);
            set_timer(ctx, state, renew_ms.min(AGAIN_MS_MAX));
        }
    }
}

fn set_timer(ctx: &Context<NodeLease>, state: &mut NodeLeaseState, wait_ms: u64) {
    let me = ctx.me();
    state.tasks.spawn(Work::Timer, async move {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        me.tell(NodeLeaseMsg::Renew);
    });
}

/// Acquires a lease under a new incarnation. If another process with a copy of the data folder uses the same node id, it
/// keeps the id and this process takes a new one.
fn register(ctx: &Context<NodeLease>, state: &mut NodeLeaseState) {
    let (lease, store, env, me) = (state.wiring.lease.clone(), state.wiring.store.clone(), ctx.env().clone(), ctx.me());
    let asked_us = env.clock.monotonic_us();
    state.tasks.spawn(Work::Ask, async move {
        let (node, former) = *lease.name.lock();
        let register = async {
            let is_used_elsewhere =
                store.nodes().await?.iter().any(|row| row.node == node && row.incarnation != former);
            let node = if is_used_elsewhere { NodeId::from_uuid(env.uuid()) } else { node };
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
            // Another node may have claimed conversations of this one. If the parent of the Engines is dead, its next
            // incarnation claims under the new incarnation.
            state.wiring.conversations.tell(ConversationsMsg::LeaseLost);
            set_timer(ctx, state, state.wiring.lease.limits.renew_ms);
        }
        Err(error) => {
            tracing::warn!(error, "this node could not be registered again, trying again");
            state.last_error = Some(error);
            // The next renewal is refused again, and then the registration is tried again.
            set_timer(ctx, state, AGAIN_MS_MAX);
        }
    }
}

/// Limits a store call in time. After a timeout the lease may or may not have been renewed, so the store is asked again.
async fn outcome_within<T>(ms: u64, ask: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let late = |_| Err(format!("no answer within {ms} ms"));
    tokio::time::timeout(Duration::from_millis(ms), ask).await.unwrap_or_else(late)
}
