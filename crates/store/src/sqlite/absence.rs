//! Who has nothing: users without a memory, users without an open task. Every turn asks for both, most users have neither,
//! and a question to the database costs as much as the rest of the turn. Only this process writes (the folder is locked), so
//! what is known here stays true until a write of the same user.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use annie_core::ids::UserId;
use parking_lot::Mutex;

/// Users remembered at most; then it begins anew.
const USERS_MAX: usize = 100_000;

/// The users who have nothing of one kind.
#[derive(Default)]
pub struct Absence {
    users: Mutex<HashSet<UserId>>,
    writes: AtomicU64,
}

impl Absence {
    /// How many writes there were: to be asked before the database is.
    pub fn writes(&self) -> u64 {
        self.writes.load(SeqCst)
    }

    /// Whether this user is known to have nothing.
    pub fn is_known(&self, user: &UserId) -> bool {
        self.users.lock().contains(user)
    }

    /// The database said that this user has nothing, and was asked when there had been so many writes. A write since then
    /// may have been this user's.
    pub fn found(&self, user: &UserId, writes: u64) {
        let mut users = self.users.lock();
        if self.writes() == writes {
            if users.len() >= USERS_MAX {
                users.clear();
            }
            users.insert(user.clone());
        }
    }

    /// This user has written, and it is committed.
    pub fn written(&self, user: &UserId) {
        let mut users = self.users.lock();
        self.writes.fetch_add(1, SeqCst);
        users.remove(user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_before_a_write_is_not_believed_after_it() {
        let (absence, ann) = (Absence::default(), UserId::local());
        let before = absence.writes();
        absence.written(&ann);
        absence.found(&ann, before);
        assert!(!absence.is_known(&ann));
        absence.found(&ann, absence.writes());
        assert!(absence.is_known(&ann));
        absence.written(&ann);
        assert!(!absence.is_known(&ann));
    }
}
