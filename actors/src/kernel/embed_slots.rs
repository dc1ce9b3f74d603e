//! Limits on concurrent requests for embeddings, per user and in total.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use annie_core::{
    event::Priority,
    ids::UserId,
    queue::{Refusal, RefusalReason},
};
use parking_lot::Mutex;

/// Concurrent requests of one user, at most: programs send batches in parallel.
const PER_USER_MAX: u32 = 16;
/// Concurrent requests of all users, at most.
const TOTAL_MAX: u32 = 256;
/// When a refused caller may try again, in milliseconds: about as long as a request takes.
const RETRY_AFTER_MS: u64 = 2_000;

/// The number of requests for embeddings under way, by user.
#[derive(Debug, Default)]
pub(crate) struct Embeddings(Mutex<BTreeMap<UserId, u32>>);

/// The slot of one request; released when dropped.
pub(super) struct Slot {
    embeddings: Arc<Embeddings>,
    user: UserId,
}

impl Embeddings {
    pub(super) fn take(self: &Arc<Self>, user: &UserId) -> Result<Slot, Refusal> {
        let mut by_user = self.0.lock();
        let total: u32 = by_user.values().sum();
        let own = by_user.get(user).copied().unwrap_or(0);
        if own >= PER_USER_MAX {
            return Err(refused(RefusalReason::UserDepth, PER_USER_MAX));
        }
        if total >= TOTAL_MAX {
            return Err(refused(RefusalReason::QueueFull, TOTAL_MAX));
        }
        by_user.insert(user.clone(), own + 1);
        Ok(Slot { embeddings: self.clone(), user: user.clone() })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Entry::Occupied(mut own) = self.embeddings.0.lock().entry(self.user.clone()) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

fn refused(reason: RefusalReason, limit: u32) -> Refusal {
    metrics::counter!("annie_tasks_refused_total", "priority" => Priority::High.as_str()).increment(1);
    let position = limit as usize + 1;
    Refusal { reason, class: Priority::High, limit, position, retry_after_ms: RETRY_AFTER_MS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embeddings_limit_per_user_and_total_and_release_slot_on_drop() {
        let embeddings = Arc::new(Embeddings::default());
        let user = |n: u32| UserId::new(format!("u{n}")).unwrap();
        let mut slots: Vec<Slot> = (0..PER_USER_MAX).map(|_| embeddings.take(&user(0)).unwrap()).collect();
        let full = embeddings.take(&user(0)).map(drop).unwrap_err();
        assert_eq!((full.reason, full.limit), (RefusalReason::UserDepth, PER_USER_MAX));
        assert!(full.retry_after_ms > 0);
        for n in PER_USER_MAX..TOTAL_MAX {
            slots.push(embeddings.take(&user(n)).unwrap());
        }
        let full = embeddings.take(&user(1)).map(drop).unwrap_err();
        assert_eq!((full.reason, full.limit), (RefusalReason::QueueFull, TOTAL_MAX));
        slots.clear();
        assert!(embeddings.0.lock().is_empty());
        assert!(embeddings.take(&user(0)).is_ok());
    }
}
