//! Who has nothing: users without a memory, users without an open task. Every turn asks for both, most users have neither,
//! and a question to the database costs as much as the rest of the turn. Only this process writes (the folder is locked), so
//! what is known here stays true until a write of the same user.
//!
//! A write that is given up in the middle may be stored all the same, nobody knows when: until a later write has come to its
//! end, which stands behind it, its user is not believed to have nothing.

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
    users: Mutex<Users>,
    writes: AtomicU64,
}

#[derive(Default)]
struct Users {
    /// Known to have nothing.
    absent: HashSet<UserId>,
    /// Whose write has begun and not ended: one, and those before it that were given up.
    writing: HashSet<UserId>,
}

impl Absence {
    /// How many writes have ended: to be asked before the database is.
    pub fn writes(&self) -> u64 {
        self.writes.load(SeqCst)
    }

    /// Whether this user is known to have nothing.
    pub fn is_known(&self, user: &UserId) -> bool {
        self.users.lock().absent.contains(user)
    }

    /// The database said that this user has nothing, and was asked when so many writes had ended. One that has begun or ended
    /// since then may have been this user's.
    pub fn found(&self, user: &UserId, writes: u64) {
        let mut users = self.users.lock();
        if self.writes() == writes && !users.writing.contains(user) {
            if users.absent.len() >= USERS_MAX {
                users.absent.clear();
            }
            users.absent.insert(user.clone());
        }
    }

    /// This user's write begins. Whoever says so holds the pen until it ends: writes begin one after the other.
    pub fn begins(&self, user: &UserId) {
        let mut users = self.users.lock();
        users.absent.remove(user);
        users.writing.insert(user.clone());
    }

    /// The write that began last has ended, well or not, and with it whatever began before.
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
    fn what_was_asked_before_a_write_is_not_believed_after_it() {
        let (absence, ann) = (Absence::default(), UserId::local());
        let before = absence.writes();
        absence.begins(&ann);
        absence.found(&ann, before);
        assert!(!absence.is_known(&ann), "it is being written");
        absence.ended();
        absence.found(&ann, before);
        assert!(!absence.is_known(&ann), "it was written meanwhile");
        absence.found(&ann, absence.writes());
        assert!(absence.is_known(&ann));
        absence.begins(&ann);
        assert!(!absence.is_known(&ann));
    }

    #[test]
    fn a_write_that_was_given_up_is_taken_for_possible_until_a_later_one_has_ended() {
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
