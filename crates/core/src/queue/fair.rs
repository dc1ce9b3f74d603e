//! Fair rotation within a band: users rotate, within a user conversations rotate, and within a conversation entries are
//! ordered by age.
//!
//! The member that was served least recently is next. A member that was not served yet is ranked by the arrival of its
//! oldest entry. So with one entry per user the order is first come, first served, and a user with a hundred entries gets
//! one turn per lap. A new member goes to the end of the lap, so that no member can be overtaken indefinitely. All
//! operations are O(log n).

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::Hash,
};

use crate::{event::Priority, ids::ConversationId, time::Micros};

/// Index of an entry in the queue's table.
pub(super) type Slot = u32;
/// Index of a user in the queue's table of users.
pub(super) type UserKey = u32;

/// An instant with a tie-breaker. All stamps are different.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stamp {
    pub at: Micros,
    pub seq: u64,
}

/// The data of an entry in a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Item {
    pub slot: Slot,
    pub class: Priority,
}

/// A sequence of entries with its own order.
trait Line: Default {
    /// The stamp that ranks this line among other lines; `None` if it is empty.
    fn first(&self) -> Option<Stamp>;
    /// Removes the next entry.
    fn pop(&mut self, served: Stamp) -> Option<(Stamp, Item)>;
    /// All entries in the order of removal, if none is added or removed in the meantime.
    fn order(&self) -> impl Iterator<Item = (Stamp, Item)>;
}

/// A conversation's entries, oldest first.
type Ages = BTreeMap<Stamp, Item>;

impl Line for Ages {
    fn first(&self) -> Option<Stamp> {
        self.first_key_value().map(|(stamp, _)| *stamp)
    }

    fn pop(&mut self, _: Stamp) -> Option<(Stamp, Item)> {
        self.pop_first()
    }

    fn order(&self) -> impl Iterator<Item = (Stamp, Item)> {
        self.iter().map(|(stamp, item)| (*stamp, *item))
    }
}

/// One member of a rotation.
#[derive(Debug, Default)]
struct Member<L> {
    line: L,
    /// Its key in the ring: the later of `served` and the first stamp of its line.
    key: Option<Stamp>,
    /// When it was last served, remembered while it has entries.
    served: Option<Stamp>,
}

/// Lines in rotation.
#[derive(Debug)]
struct Rotation<K, L> {
    ring: BTreeMap<Stamp, K>,
    members: HashMap<K, Member<L>>,
}

impl<K, L> Default for Rotation<K, L> {
    fn default() -> Self {
        Self { ring: BTreeMap::new(), members: HashMap::new() }
    }
}

impl<K: Copy + Eq + Hash, L: Line> Rotation<K, L> {
    /// Changes a member's line and updates the member's position in the ring. A member with an empty line is removed.
    fn change<R>(&mut self, member_id: K, change: impl FnOnce(&mut Member<L>) -> R) -> R {
        let member = self.members.entry(member_id).or_default();
        let result = change(member);
        let key = member.line.first().map(|first| member.served.map_or(first, |served| served.max(first)));
        if key != member.key {
            if let Some(old) = member.key {
                self.ring.remove(&old);
            }
            if let Some(new) = key {
                self.ring.insert(new, member_id);
            }
            member.key = key;
        }
        if key.is_none() {
            self.members.remove(&member_id);
        }
        result
    }
}

impl<K: Copy + Eq + Hash, L: Line> Line for Rotation<K, L> {
    fn first(&self) -> Option<Stamp> {
        self.ring.first_key_value().map(|(key, _)| *key)
    }

    fn pop(&mut self, served: Stamp) -> Option<(Stamp, Item)> {
        let member_id = *self.ring.first_key_value()?.1;
        self.change(member_id, |member| {
            member.served = Some(served);
            member.line.pop(served)
        })
    }

    fn order(&self) -> impl Iterator<Item = (Stamp, Item)> {
        let members = self.ring.values().filter_map(|member_id| self.members.get(member_id));
        RoundRobin::over(members.map(|member| member.line.order()))
    }
}

/// Entries in fair rotation: by user, and by conversation within each user.
#[derive(Debug, Default)]
pub(super) struct FairSet {
    users: Rotation<UserKey, Rotation<ConversationId, Ages>>,
    len: usize,
}

impl FairSet {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Number of users with entries, which is the length of a lap.
    pub fn users(&self) -> usize {
        self.users.ring.len()
    }

    pub fn insert(&mut self, user: UserKey, conversation: ConversationId, stamp: Stamp, item: Item) {
        self.conversation(user, conversation, |ages| ages.insert(stamp, item));
        self.len += 1;
    }

    pub fn remove(&mut self, user: UserKey, conversation: ConversationId, stamp: Stamp) -> Option<Item> {
        let item = self.conversation(user, conversation, |ages| ages.remove(&stamp))?;
        self.len -= 1;
        Some(item)
    }

    /// Removes the next entry. Its user and conversation go to the end of their laps.
    pub fn pop(&mut self, served: Stamp) -> Option<(Stamp, Item)> {
        let popped = self.users.pop(served)?;
        self.len -= 1;
        Some(popped)
    }

    /// All entries in the order of removal, if none is added or removed in the meantime.
    pub fn order(&self) -> impl Iterator<Item = (Stamp, Item)> {
        self.users.order()
    }

    fn conversation<R>(&mut self, user: UserKey, conversation: ConversationId, f: impl FnOnce(&mut Ages) -> R) -> R {
        self.users.change(user, |member| member.line.change(conversation, |member| f(&mut member.line)))
    }
}

/// Iterates over several sources in rotation until all are exhausted. `fresh` yields the sources in the order of the first
/// lap.
struct RoundRobin<F, I> {
    fresh: F,
    again: VecDeque<I>,
}

impl<F, I> RoundRobin<F, I> {
    fn over(fresh: F) -> Self {
        Self { fresh, again: VecDeque::new() }
    }
}

impl<I: Iterator, F: Iterator<Item = I>> Iterator for RoundRobin<F, I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        loop {
            let mut source = self.fresh.next().or_else(|| self.again.pop_front())?;
            if let Some(item) = source.next() {
                self.again.push_back(source);
                return Some(item);
            }
        }
    }
}
