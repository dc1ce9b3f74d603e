//! Turns inside a band: users in rotation, inside a user the conversations in rotation, inside a conversation in order.
//!
//! Whoever was served least recently is next; whoever was not served yet counts from the arrival of its oldest entry. So
//! with one entry a user this is first come, first served, and somebody with a hundred entries gets one turn a lap. A
//! newcomer always goes to the end of the lap: nobody can be overtaken without end. All operations are O(log n).

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::Hash,
};

use crate::{event::Priority, ids::ConversationId, time::Micros};

/// Place of an entry in the queue's table.
pub(super) type Slot = u32;
/// A user's place in the queue's table of users.
pub(super) type UserKey = u32;

/// An instant with a tie-breaker: no two are ever equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stamp {
    pub at: Micros,
    pub seq: u64,
}

/// What a set holds of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Item {
    pub slot: Slot,
    pub class: Priority,
}

/// Something that gives its entries in an order of its own.
trait Line: Default {
    /// What its place among other lines counts from; nothing if it is empty.
    fn first(&self) -> Option<Stamp>;
    /// Takes the next entry.
    fn pop(&mut self, served: Stamp) -> Option<(Stamp, Item)>;
    /// All entries in the order in which they would be taken if nothing came or went meanwhile.
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
    /// Its key in the ring: the later of `served` and what its line counts from.
    key: Option<Stamp>,
    /// When it was served last, remembered while it has entries here.
    served: Option<Stamp>,
}

/// Lines that take turns.
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
    /// Changes a member's line and puts the member where that says; out of the rotation if its line is empty.
    fn change<R>(&mut self, who: K, change: impl FnOnce(&mut Member<L>) -> R) -> R {
        let member = self.members.entry(who).or_default();
        let result = change(member);
        let key = member.line.first().map(|first| member.served.map_or(first, |served| served.max(first)));
        if key != member.key {
            if let Some(old) = member.key {
                self.ring.remove(&old);
            }
            if let Some(new) = key {
                self.ring.insert(new, who);
            }
            member.key = key;
        }
        if key.is_none() {
            self.members.remove(&who);
        }
        result
    }
}

impl<K: Copy + Eq + Hash, L: Line> Line for Rotation<K, L> {
    fn first(&self) -> Option<Stamp> {
        self.ring.first_key_value().map(|(key, _)| *key)
    }

    fn pop(&mut self, served: Stamp) -> Option<(Stamp, Item)> {
        let who = *self.ring.first_key_value()?.1;
        self.change(who, |member| {
            member.served = Some(served);
            member.line.pop(served)
        })
    }

    fn order(&self) -> impl Iterator<Item = (Stamp, Item)> {
        let members = self.ring.values().filter_map(|who| self.members.get(who));
        RoundRobin::over(members.map(|member| member.line.order()))
    }
}

/// Entries in fair rotation: of users, and of each user's conversations.
#[derive(Debug, Default)]
pub(super) struct FairSet {
    users: Rotation<UserKey, Rotation<ConversationId, Ages>>,
    len: usize,
}

impl FairSet {
    pub fn len(&self) -> usize {
        self.len
    }

    /// How many users share it: the length of a lap.
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

    /// Takes the next one; its user and conversation go to the end of their laps.
    pub fn pop(&mut self, served: Stamp) -> Option<(Stamp, Item)> {
        let popped = self.users.pop(served)?;
        self.len -= 1;
        Some(popped)
    }

    /// All entries in the order in which they would be taken if nothing came or went meanwhile.
    pub fn order(&self) -> impl Iterator<Item = (Stamp, Item)> {
        self.users.order()
    }

    fn conversation<R>(&mut self, user: UserKey, conversation: ConversationId, f: impl FnOnce(&mut Ages) -> R) -> R {
        self.users.change(user, |member| member.line.change(conversation, |member| f(&mut member.line)))
    }
}

/// One from each source in turn, until all are empty. `fresh` gives the sources in the order of the first lap.
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
