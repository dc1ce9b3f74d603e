//! The right to one round on one backend. It comes back when it is dropped, however its holder ends; the table of what is out
//! lives beside the scheduler, so that a new life of it never gives out more than there are slots.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_core::{
    event::Priority,
    ids::{ConversationId, TaskId, UserId},
    queue::BackendId,
    time::Micros,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::SchedulerMsg;
use crate::{observe::Handle, wiring::Wiring};

/// Whose round it is.
#[derive(Debug, Clone)]
pub struct PermitRequest {
    /// The task.
    pub task: TaskId,
    /// Whose.
    pub user: UserId,
    /// In which conversation.
    pub conversation: ConversationId,
    /// Its class.
    pub priority: Priority,
    /// Since when this round waits.
    pub since: Micros,
}

struct Lease {
    backend: BackendId,
    name: String,
    task: TaskId,
    since: Micros,
}

/// Permits that are out, of every life of the scheduler.
#[derive(Default)]
pub struct Leases {
    out: Mutex<BTreeMap<u64, Lease>>,
    next: AtomicU64,
    gate_epoch: AtomicU64,
}

impl Leases {
    /// How many are out on a backend.
    #[must_use]
    pub fn count(&self, backend: BackendId) -> usize {
        self.out.lock().values().filter(|l| l.backend == backend).count()
    }

    pub(super) fn next_gate_epoch(&self) -> u64 {
        self.gate_epoch.fetch_add(1, Relaxed) + 1
    }

    pub(super) fn list(&self) -> Vec<Value> {
        let out = self.out.lock();
        out.values().map(|l| json!({"task": l.task, "backend": l.name, "since": l.since})).collect()
    }

    pub(super) fn lease(
        self: &Arc<Self>,
        backend: BackendId,
        name: &str,
        task: TaskId,
        since: Micros,
        scheduler: Handle<SchedulerMsg>,
    ) -> Permit {
        let id = self.next.fetch_add(1, Relaxed);
        self.out.lock().insert(id, Lease { backend, name: name.to_owned(), task, since });
        Permit { id, backend, name: name.to_owned(), ran_ms: 0, leases: self.clone(), scheduler }
    }
}

/// The right to one round. Dropping it gives it back.
pub struct Permit {
    id: u64,
    backend: BackendId,
    name: String,
    ran_ms: u64,
    leases: Arc<Leases>,
    scheduler: Handle<SchedulerMsg>,
}

impl Permit {
    /// On which backend.
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.name
    }

    /// Gives it back, saying how long the round took: the scheduler learns from it.
    pub fn give_back(mut self, ran_ms: u64) {
        self.ran_ms = ran_ms;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.leases.out.lock().remove(&self.id);
        // If nobody is there, the next life looks into the table.
        self.scheduler.tell(SchedulerMsg::Released { backend: self.backend, ran_ms: self.ran_ms });
    }
}

/// Waits for the right to one round, across deaths of the scheduler. Dropping the future leaves the queue.
pub(crate) async fn acquire(wiring: &Wiring, request: PermitRequest) -> Permit {
    let mut wait_ms = 5;
    loop {
        let (reply, answer) = oneshot::channel();
        if wiring.scheduler.cast(SchedulerMsg::Acquire { request: request.clone(), reply }).is_ok()
            && let Ok(permit) = answer.await
        {
            return permit;
        }
        // Between two lives of the scheduler, or its mailbox is full.
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        wait_ms = (wait_ms * 2).min(1_000);
    }
}
