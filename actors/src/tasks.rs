//! Tracked tasks: the only place of this package that spawns. A task belongs to the actor that started it, and is aborted
//! when the actor's state is dropped. A panic of a task ends its actor, because the actor would otherwise wait for the
//! task's result for ever; the next incarnation starts the task again.

use std::{any::Any, future::Future, hash::Hash, panic::AssertUnwindSafe, time::Duration};

use crate::observe::Branch;
use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tracing::Instrument;

use crate::fixed::FixedMap;

/// The tasks of one actor, by their purpose.
pub struct Tasks<K> {
    owner: Branch,
    running: FixedMap<K, Running>,
}

struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<K: Eq + Hash> Tasks<K> {
    /// An empty set of tasks of this actor.
    pub fn of(owner: Branch) -> Self {
        Self { owner, running: FixedMap::default() }
    }

    /// Starts a task, whose log lines have the ids of the present span. A running task with the same key is aborted first.
    pub fn spawn(&mut self, key: K, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn_noting(key, work, || ());
    }

    /// As [`Tasks::spawn`]; calls `note` if the task panics.
    pub fn spawn_noting(
        &mut self,
        key: K,
        work: impl Future<Output = ()> + Send + 'static,
        note: impl FnOnce() + Send + 'static,
    ) {
        let owner = self.owner.clone();
        let guarded = async move {
            if let Err(panic) = caught(work).await {
                tracing::error!(actor = ?owner.cell.get_id(), panic, "a task panicked, killing its actor");
                note();
                owner.kill();
            }
        };
        self.running.insert(key, Running(spawn(guarded.in_current_span())));
    }

    /// Whether a task with this key was started and not removed.
    #[must_use]
    pub fn contains(&self, key: &K) -> bool {
        self.running.contains_key(key)
    }

    /// Removes a task; aborts it if it still runs.
    pub fn remove(&mut self, key: &K) -> bool {
        self.running.remove(key).is_some()
    }

    /// Waits until a task has ended, at most this long, and removes it; aborts it if it still runs.
    pub async fn finish(&mut self, key: &K, within: Duration) {
        if let Some(mut running) = self.running.remove(key) {
            // A task that panicked has already killed its actor.
            let _ = tokio::time::timeout(within, &mut running.0).await;
        }
    }

    /// Keeps only the tasks whose key passes; aborts the others.
    pub fn retain(&mut self, mut keep: impl FnMut(&K) -> bool) {
        self.running.retain(|k, _| keep(k));
    }

    /// The number of tasks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// Whether there is no task.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }
}

/// Runs a future to its end and returns a panic inside it as text.
///
/// # Errors
/// The panic's text.
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| panic_text(&*panic))
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a text".to_owned())
}

#[expect(clippy::disallowed_methods, reason = "the one place where tasks are spawned and tracked")]
fn spawn(work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(work)
}
