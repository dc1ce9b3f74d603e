//! Remembers users without data: without memories, or without open todos. Every turn asks for both, most users have neither,
//! and a query costs as much as the rest of the turn. Only this process writes (the folder is locked), so an entry stays true
//! until the next write of the same user.
//!
//! A write that is abandoned in the middle may still be stored, at an unknown time. Until a later write, which comes after it,
//! has ended, its user does not count as a user without data.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use annie_core::ids::UserId;
use parking_lot::Mutex;

/// The most users that are remembered; beyond that the set is cleared.
const USERS_MAX: usize = 100_000;

/// The users without data of one kind.
#[derive(Default)]
pub struct Absence {
    users: Mutex<Users>,
    writes: AtomicU64,
}

#[derive(Default)]
struct Users {
    /// Users known to have no data.
    absent: HashSet<UserId>,
    /// Users with a write that has begun and not ended: the current one, and abandoned ones before it.
    writing: HashSet<UserId>,
}

impl Absence {
    /// Number of writes that have ended; must be read before the database is queried.
    pub fn writes(&self) -> u64 {
        self.writes.load(SeqCst)
    }

    /// Whether this user is known to have no data.
    pub fn is_known(&self, user: &UserId) -> bool {
        self.users.lock().absent.contains(user)
    }

    /// The database reported that this user has no data, and was queried when `writes` writes had ended. A write that began or
    /// ended since then may be this user's, and the report is ignored.
    pub fn found(&self, user: &UserId, writes: u64) {
        let mut users = self.users.lock();
        if self.writes() == writes && !users.writing.contains(user) {
            if users.absent.len() >= USERS_MAX {
                users.absent.clear();
            }
            users.absent.insert(user.clone());
        }
    }

    /// This user's write begins. The caller has exclusive access to the writer until the write ends, so writes begin one after
    /// the other.
    pub fn begins(&self, user: &UserId) {
        let mut users = self.users.lock();
        users.absent.remove(user);
        users.writing.insert(user.clone());
    }

    /// The write that began last has ended, successfully or not, and with it all writes that began before.
    pub fn ended(&self) {
        let mut users = self.users.lock();
        self.writes.fetch_add(1, SeqCst);
        users.writing.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absence_ignores_a_result_that_is_older_than_a_write() {
        let (absence, ann) = (Absence::default(), UserId::local());
        let before = absence.writes();
        absence.begins(&ann);
        absence.found(&ann, before);
        assert!(!absence.is_known(&ann), "a write is under way");
        absence.ended();
        absence.found(&ann, before);
        assert!(!absence.is_known(&ann), "a write ended meanwhile");
        absence.found(&ann, absence.writes());
        assert!(absence.is_known(&ann));
        absence.begins(&ann);
        assert!(!absence.is_known(&ann));
    }

    #[test]
    fn absence_treats_an_abandoned_write_as_possible_until_a_later_one_has_ended() {
        let (absence, ann, bob) = (Absence::default(), UserId::local(), UserId::new("bob").unwrap());
        absence.begins(&ann);
        absence.found(&ann, absence.writes());
        assert!(!absence.is_known(&ann));
        absence.begins(&bob);
        absence.ended();
        absence.found(&ann, absence.writes());
        assert!(absence.is_known(&ann));
    }
}
