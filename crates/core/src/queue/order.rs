//! The order of one backend's queue.
//!
//! A task's effective class decreases continuously with its waiting time, `max(1, class - wait / 300 s)`, and never reaches
//! REALTIME. Tasks of equal effective class form a **band** and rotate (see `fair`). Two facts allow an exact and cheap
//! implementation:
//!
//! - All tasks with effective class 1 (all of HIGH, and those that waited long enough) are equal: they form the front band.
//!   A task enters it once, and within a class the oldest enters first. Each pop moves over the tasks whose time has come.
//! - For the other tasks, the current time cancels out: `class - (now - anchor) / A` orders like `anchor + A * class`. So
//!   the class whose oldest task has the smallest sum is next, and pop compares three heads. Which of that class's users is
//!   served is decided by the rotation.

use std::collections::{BTreeMap, HashSet};

use super::{
    fair::{FairSet, Item, Slot, Stamp, UserKey},
    table::{Entry, Table},
};
use crate::{event::Priority, ids::ConversationId, time::Micros};

/// The classes that age, in the order of [`Bands::classes`].
const AGING: [Priority; 3] = [Priority::Normal, Priority::Low, Priority::Background];

/// A task's effective class: its own class less one for every `aging_ms` of waiting, but at least HIGH's 1. REALTIME stays
/// 0.
#[must_use]
pub fn effective(class: Priority, anchor: Micros, now: Micros, aging_ms: u32) -> f64 {
    if class == Priority::Realtime {
        return 0.0;
    }
    #[expect(clippy::cast_precision_loss, reason = "waits are far below 2^52 microseconds")]
    let waited_ms = now.0.saturating_sub(anchor.0).max(0) as f64 / 1_000.0;
    (f64::from(class.level()) - waited_ms / f64::from(aging_ms.max(1))).max(1.0)
}

/// The data of an entry that determines its order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticket {
    pub item: Item,
    pub user: UserKey,
    pub conversation: ConversationId,
    /// Start of its aging.
    pub anchor: Stamp,
    /// Start of its wait within the front band. Later than `anchor` if it was preempted.
    pub turn: Stamp,
    /// Earliest time at which it becomes ready.
    pub due: Option<Stamp>,
}

/// The band from which an entry is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Band {
    Front,
    Class,
}

/// The entries of one class that are not in the front band yet.
#[derive(Debug, Default)]
struct ClassSet {
    by_age: BTreeMap<Stamp, Slot>,
    turns: FairSet,
}

/// The entries of one backend.
#[derive(Debug, Default)]
pub(super) struct Bands {
    front: FairSet,
    classes: [ClassSet; 3],
    delayed: BTreeMap<Stamp, Slot>,
    /// Number of entries of class HIGH in `front`.
    high: usize,
}

impl Bands {
    pub fn is_empty(&self) -> bool {
        self.ready() == 0 && self.delayed.is_empty()
    }

    /// Number of ready entries.
    pub fn ready(&self) -> usize {
        self.front.len() + self.classes.iter().map(|c| c.turns.len()).sum::<usize>()
    }

    /// Number of ready entries of class HIGH.
    pub fn high_ready(&self) -> usize {
        self.high
    }

    pub fn next_due(&self) -> Option<Micros> {
        self.delayed.first_key_value().map(|(due, _)| due.at)
    }

    /// The delayed entries, soonest first.
    pub fn delayed(&self) -> impl Iterator<Item = Slot> {
        self.delayed.values().copied()
    }

    /// Lower bound of the number of entries served before a new entry of this class.
    pub fn ahead_of_newcomer(&self, class: Priority) -> usize {
        let more_urgent = self.classes.iter().zip(AGING).filter(|(_, c)| *c <= class);
        self.front.len() + more_urgent.map(|(set, _)| set.turns.len()).sum::<usize>()
    }

    /// Approximate maximum number of entries served before a user with entries in this class has a turn.
    pub fn lap(&self, class: Priority) -> usize {
        aging_index(class).map_or(self.front.users(), |index| self.front.len() + self.classes[index].turns.users())
    }

    pub fn insert(&mut self, ticket: &Ticket, now: Micros) {
        match ticket.due {
            Some(due) if due.at > now => {
                self.delayed.insert(due, ticket.item.slot);
            }
            _ => self.make_ready(ticket),
        }
    }

    fn make_ready(&mut self, ticket: &Ticket) {
        match aging_index(ticket.item.class) {
            None => self.push_front(ticket),
            Some(index) => {
                let set = &mut self.classes[index];
                set.by_age.insert(ticket.anchor, ticket.item.slot);
                set.turns.insert(ticket.user, ticket.conversation, ticket.anchor, ticket.item);
            }
        }
    }

    fn push_front(&mut self, ticket: &Ticket) {
        self.high += usize::from(ticket.item.class == Priority::High);
        self.front.insert(ticket.user, ticket.conversation, ticket.turn, ticket.item);
    }

    pub fn remove(&mut self, ticket: &Ticket) {
        if ticket.due.is_some_and(|due| self.delayed.remove(&due).is_some()) {
            return;
        }
        if let Some(index) = aging_index(ticket.item.class) {
            let set = &mut self.classes[index];
            if set.by_age.remove(&ticket.anchor).is_some() {
                set.turns.remove(ticket.user, ticket.conversation, ticket.anchor);
                return;
            }
        }
        if self.front.remove(ticket.user, ticket.conversation, ticket.turn).is_some() {
            self.high -= usize::from(ticket.item.class == Priority::High);
        }
    }

    /// Advances the time: delayed entries that are due become ready, and entries that waited long enough move to the front
    /// band.
    pub fn advance(&mut self, now: Micros, aging_ms: u32, table: &Table) {
        while let Some(due) = self.delayed.first_entry().filter(|e| e.key().at <= now) {
            if let Some(entry) = table.at(due.remove()) {
                self.make_ready(&entry.ticket);
            }
        }
        for (index, class) in AGING.into_iter().enumerate() {
            let front_after_ms = i64::from(class.level() - Priority::High.level()) * i64::from(aging_ms);
            let set = &mut self.classes[index];
            while let Some(oldest) = set.by_age.first_entry().filter(|e| e.key().at.plus_ms(front_after_ms) <= now) {
                if let Some(Entry { ticket, .. }) = table.at(oldest.remove()) {
                    set.turns.remove(ticket.user, ticket.conversation, ticket.anchor);
                    self.front.insert(ticket.user, ticket.conversation, ticket.turn, ticket.item);
                }
            }
        }
    }

    /// Removes the next entry. [`Bands::advance`] must be called before.
    pub fn pop(&mut self, served: Stamp, aging_ms: u32) -> Option<(Slot, Band)> {
        if let Some((_, item)) = self.front.pop(served) {
            self.high -= usize::from(item.class == Priority::High);
            return Some((item.slot, Band::Front));
        }
        let heads = self.classes.iter().map(|set| set.by_age.first_key_value().map(|(anchor, _)| *anchor));
        let set = &mut self.classes[best(heads, aging_ms)?];
        let (anchor, item) = set.turns.pop(served)?;
        set.by_age.remove(&anchor);
        Some((item.slot, Band::Class))
    }

    /// All ready entries in the order of removal, if the time stood still. [`Bands::advance`] must be called before.
    pub fn order(&self, aging_ms: u32) -> impl Iterator<Item = (Slot, Band)> {
        let front = self.front.order().map(|(_, item)| (item.slot, Band::Front));
        let mut rests: Vec<Rest<_, _>> = self
            .classes
            .iter()
            .map(|set| Rest { ages: set.by_age.keys().copied(), turns: set.turns.order(), taken: HashSet::new() })
            .collect();
        let mut oldest: Vec<Option<Stamp>> = rests.iter_mut().map(Rest::oldest).collect();
        front.chain(std::iter::from_fn(move || {
            let index = best(oldest.iter().copied(), aging_ms)?;
            let rest = &mut rests[index];
            let (anchor, item) = rest.turns.next()?;
            rest.taken.insert(anchor.seq);
            if oldest[index].is_some_and(|head| rest.taken.remove(&head.seq)) {
                oldest[index] = rest.oldest();
            }
            Some((item.slot, Band::Class))
        }))
    }
}

/// The remaining entries of a class during the iteration over its order.
struct Rest<A, T> {
    ages: A,
    turns: T,
    /// Entries served before older ones.
    taken: HashSet<u64>,
}

impl<A: Iterator<Item = Stamp>, T> Rest<A, T> {
    fn oldest(&mut self) -> Option<Stamp> {
        let taken = &mut self.taken;
        self.ages.find(|age| !taken.remove(&age.seq))
    }
}

/// The class whose oldest entry is now the most urgent. The more urgent class if two are equal.
fn best(heads: impl Iterator<Item = Option<Stamp>>, aging_ms: u32) -> Option<usize> {
    heads
        .zip(AGING)
        .enumerate()
        .filter_map(|(index, (head, class))| {
            head.map(|head| (head.at.plus_ms(i64::from(class.level()) * i64::from(aging_ms)), index))
        })
        .min()
        .map(|(_, index)| index)
}

fn aging_index(class: Priority) -> Option<usize> {
    AGING.iter().position(|c| *c == class)
}
