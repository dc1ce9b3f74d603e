//! Which messages arrived at this process for a conversation whose Engine may have lost it to another process.

use std::collections::VecDeque;

use annie_core::ids::TaskId;

/// Tasks that are remembered for one conversation. A conversation begins its tasks in the order of their arrival, so when the
/// newest ones have begun, older ones do not wait any more.
const ARRIVALS_MAX: usize = 64;

/// The newest tasks that arrived, the oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct Arrivals(VecDeque<TaskId>);

impl Arrivals {
    pub fn push(&mut self, task: TaskId) {
        if self.0.len() >= ARRIVALS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(task);
    }

    pub fn append(&mut self, newer: Self) {
        for task in newer.0 {
            self.push(task);
        }
    }

    pub fn contains(&self, task: TaskId) -> bool {
        self.0.contains(&task)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use annie_core::ids::{ConversationId, UserId};

    use super::*;

    fn id(n: usize) -> TaskId {
        TaskId::from_uuid(ConversationId::for_key(&UserId::new("ann").unwrap(), &n.to_string()).uuid())
    }

    #[test]
    fn arrivals_beyond_the_limit_push_out_the_oldest() {
        let (mut older, mut newer) = (Arrivals::default(), Arrivals::default());
        assert!(older.is_empty());
        (0..ARRIVALS_MAX).for_each(|n| older.push(id(n)));
        newer.push(id(ARRIVALS_MAX));
        older.append(newer);
        assert!(!older.contains(id(0)));
        assert!((1..=ARRIVALS_MAX).all(|n| older.contains(id(n))));
    }
}
