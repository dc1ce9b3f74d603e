//! The lease of this node: a value outside the tree, which the lease actor renews and others ask.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use annie_core::{
    ids::{NodeId, NodeIncarnation},
    ports::{Clock, Env, Store, StoreError},
};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Fraction of the lease (one fifth) by which this process treats it as expired before the database does: work that began
/// before needs time to end.
const MARGIN_PART: u64 = 5;

/// The durations of leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseLimits {
    /// How long a node counts as live after its last renewal, in milliseconds.
    pub lease_ms: u64,
    /// Interval between two renewals, in milliseconds; at most a third of the lease.
    pub renew_ms: u64,
}

impl Default for LeaseLimits {
    fn default() -> Self {
        Self { lease_ms: 10_000, renew_ms: 3_000 }
    }
}

/// The lease, shared by everything in this process.
pub(crate) struct Lease {
    pub(super) limits: LeaseLimits,
    pub(super) is_shared: bool,
    pub(super) name: Mutex<(NodeId, NodeIncarnation)>,
    /// Until when the lease is certainly held, by the monotonic clock, in microseconds.
    pub(super) held_until_us: AtomicU64,
    renewed: Notify,
}

impl Lease {
    /// Registers this node, if its store is shared.
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

    /// The id of this node, which is the same in its next run if the store is shared.
    pub fn node(&self) -> NodeId {
        self.name.lock().0
    }

    /// The incarnation of this node, which claims conversations.
    pub fn incarnation(&self) -> NodeIncarnation {
        self.name.lock().1
    }

    /// Whether no other node can have declared this one dead.
    pub(super) fn is_held(&self, monotonic_us: u64) -> bool {
        !self.is_shared || monotonic_us < self.held_until_us.load(Relaxed)
    }

    /// The incarnation of this node, if no other node can have declared it dead.
    pub fn held(&self, monotonic_us: u64) -> Option<NodeIncarnation> {
        let incarnation = self.incarnation();
        self.is_held(monotonic_us).then_some(incarnation)
    }

    /// Whether the incarnation `run` of this node holds the lease, or will as soon as it is renewed. Without the lease it
    /// begins nothing that must not happen twice. It may still write, because the store refuses writes to conversations that
    /// another node has claimed.
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

    /// Extends the lease after a renewal that was requested at this time.
    pub(super) fn extend(&self, asked_us: u64) {
        let sure_ms = self.limits.lease_ms - self.limits.lease_ms / MARGIN_PART;
        self.held_until_us.store(asked_us.saturating_add(sure_ms.saturating_mul(1_000)), Relaxed);
        self.renewed.notify_waiters();
    }

    /// Ends the lease on a graceful stop, so that no node has to wait for it to expire.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn end(&self, store: &dyn Store) -> Result<(), StoreError> {
        if self.is_shared { store.end_node(self.incarnation()).await } else { Ok(()) }
    }
}
