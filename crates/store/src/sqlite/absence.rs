//! Remembers which users have no documents of a kind. Every turn asks for memories and for open to-dos, most users have neither,
//! and a query costs as much as the rest of the turn. Only this process writes (the folder is locked), so an entry stays true
//! until the next write of the same user.
//!
//! A write that is abandoned in the middle may still be stored, at an unknown time. Until a later write, which comes after it,
//! has ended, nothing is remembered of its user.

use std::{
    collections::{HashMap, HashSet},
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use annie_core::{ids::UserId, ports::TEXT_KEYS_MAX};
use parking_lot::Mutex;

/// The most users that are remembered; beyond that the map is cleared.
const USERS_MAX: usize = 100_000;
/// The most kinds that are remembered of one user.
const GAPS_MAX: usize = 16;

/// Documents that a user does not have: those of a namespace with these texts in their keys, or all of the namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    pub namespace: &'static str,
    /// As in a query: an empty list stands for all texts.
    pub texts: [Vec<String>; TEXT_KEYS_MAX],
}

impl Gap {
    /// All documents of a namespace.
    pub fn all(namespace: &'static str) -> Self {
        Self { namespace, texts: Default::default() }
    }

    fn covers(&self, other: &Self) -> bool {
        self.namespace == other.namespace && (self.texts == other.texts || self.texts.iter().all(Vec::is_empty))
    }
}

/// The users without documents of some kinds.
#[derive(Default)]
pub struct Absence {
    users: Mutex<Users>,
    writes: AtomicU64,
}

#[derive(Default)]
struct Users {
    /// What users are known not to have.
    absent: HashMap<UserId, Vec<Gap>>,
    /// Users with a write that has begun and not ended: the current one, and abandoned ones before it.
    writing: HashSet<UserId>,
}

impl Absence {
    /// Number of writes that have ended; must be read before the database is queried.
    pub fn writes(&self) -> u64 {
        self.writes.load(SeqCst)
    }

    /// Whether this user is known to have no such documents.
    pub fn is_known(&self, user: &UserId, gap: &Gap) -> bool {
        self.users.lock().absent.get(user).is_some_and(|gaps| gaps.iter().any(|known| known.covers(gap)))
    }

    /// The database reported that this user has no such documents, and was queried when `writes` writes had ended. A write that
    /// began or ended since then may be this user's, and the report is ignored.
    pub fn found(&self, user: &UserId, gap: Gap, writes: u64) {
        let mut users = self.users.lock();
        if self.writes() != writes || users.writing.contains(user) {
            return;
        }
        if users.absent.len() >= USERS_MAX && !users.absent.contains_key(user) {
            users.absent.clear();
        }
        let gaps = users.absent.entry(user.clone()).or_default();
        if gaps.len() < GAPS_MAX && !gaps.iter().any(|known| known.covers(&gap)) {
            gaps.push(gap);
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

    fn all() -> Gap {
        Gap::all("tasks")
    }

    #[test]
    fn absence_of_some_documents_says_nothing_about_others() {
        let (absence, ann) = (Absence::default(), UserId::local());
        let of = |state: &str| Gap { texts: [Vec::new(), vec![state.to_owned()], Vec::new()], ..all() };
        absence.found(&ann, of("open"), absence.writes());
        assert!(absence.is_known(&ann, &of("open")));
        assert!(!absence.is_known(&ann, &of("done")) && !absence.is_known(&ann, &all()));
        absence.found(&ann, all(), absence.writes());
        assert!(absence.is_known(&ann, &of("done")), "there is none at all");
        assert!(!absence.is_known(&ann, &Gap::all("memory")));
    }

    #[test]
    fn absence_ignores_a_result_that_is_older_than_a_write() {
        let (absence, ann) = (Absence::default(), UserId::local());
        let before = absence.writes();
        absence.begins(&ann);
        absence.found(&ann, all(), before);
        assert!(!absence.is_known(&ann, &all()), "a write is under way");
        absence.ended();
        absence.found(&ann, all(), before);
        assert!(!absence.is_known(&ann, &all()), "a write ended meanwhile");
        absence.found(&ann, all(), absence.writes());
        assert!(absence.is_known(&ann, &all()));
        absence.begins(&ann);
        assert!(!absence.is_known(&ann, &all()));
    }

    #[test]
    fn absence_treats_an_abandoned_write_as_possible_until_a_later_one_has_ended() {
        let (absence, ann, bob) = (Absence::default(), UserId::local(), UserId::new("bob").unwrap());
        absence.begins(&ann);
        absence.found(&ann, all(), absence.writes());
        assert!(!absence.is_known(&ann, &all()));
        absence.begins(&bob);
        absence.ended();
        absence.found(&ann, all(), absence.writes());
        assert!(absence.is_known(&ann, &all()));
    }
}
