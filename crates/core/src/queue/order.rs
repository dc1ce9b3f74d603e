//! The order of one backend's queue.
//!
//! A task's effective class falls with its wait, `max(1, class - wait / 300 s)`, continuously, and never to REALTIME.
//! Tasks of equal effective class are a **band** and take turns (see `fair`). Two facts make it cheap to keep exactly:
//!
//! - Everybody whose effective class is 1 (all of HIGH, and whoever waited long enough) is equal: that is the front band.
//!   A task enters it once, and inside a class the oldest enters first: each pop moves those over whose time has come.
//! - Of the others, time cancels out: `class - (now - anchor) / A` orders as `anchor + A * class` does. So the class
//!   whose oldest task has the smallest such sum is next, and pop compares three heads. Which of that class's users is
//!   served with it is a matter of turns again.

use std::collections::{BTreeMap, HashSet};

use super::{
    fair::{FairSet, Item, Slot, Stamp, UserKey},
    table::{Entry, Table},
};
use crate::{event::Priority, ids::ConversationId, time::Micros};

/// The classes that age, with their places in [`Bands::classes`].
const AGING: [Priority; 3] = [Priority::Normal, Priority::Low, Priority::Background];

/// A task's effective class: its own less one for every `aging_ms` of wait, never below HIGH's 1. REALTIME stays 0.
#[must_use]
pub fn effective(class: Priority, anchor: Micros, now: Micros, aging_ms: u32) -> f64 {
    if class == Priority::Realtime {
        return 0.0;
    }
    #[expect(clippy::cast_precision_loss, reason = "waits are far below 2^52 microseconds")]
    let waited_ms = now.0.saturating_sub(anchor.0).max(0) as f64 / 1_000.0;
    (f64::from(class.level()) - waited_ms / f64::from(aging_ms.max(1))).max(1.0)
}

/// Everything the order needs of an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticket {
    pub item: Item,
    pub user: UserKey,
    pub conversation: ConversationId,
    /// Since when it ages.
    pub anchor: Stamp,
    /// Since when it waits for its turn in the front band: later than `anchor` if it was parked.
    pub turn: Stamp,
    /// Not before this.
    pub due: Option<Stamp>,
}

/// Which band an entry is served from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Band {
    Front,
    Class,
}

/// One class's entries that have not reached the front yet.
#[derive(Debug, Default)]
struct ClassSet {
    by_age: BTreeMap<Stamp, Slot>,
    turns: FairSet,
}

/// One backend's entries.
#[derive(Debug, Default)]
pub(super) struct Bands {
    front: FairSet,
    classes: [ClassSet; 3],
    delayed: BTreeMap<Stamp, Slot>,
    /// Entries of class HIGH in `front`.
    high: usize,
}

impl Bands {
    pub fn is_empty(&self) -> bool {
        self.ready() == 0 && self.delayed.is_empty()
    }

    /// How many could run now.
    pub fn ready(&self) -> usize {
        self.front.len() + self.classes.iter().map(|c| c.turns.len()).sum::<usize>()
    }

    /// How many of class HIGH could run now.
    pub fn high_ready(&self) -> usize {
        self.high
    }

    pub fn next_due(&self) -> Option<Micros> {
        self.delayed.first_key_value().map(|(due, _)| due.at)
    }

    /// The entries that are not due yet, soonest first.
    pub fn delayed(&self) -> impl Iterator<Item = Slot> {
        self.delayed.values().copied()
    }

    /// How many would at least be served before a newcomer of this class.
    pub fn ahead_of_newcomer(&self, class: Priority) -> usize {
        let more_urgent = self.classes.iter().zip(AGING).filter(|(_, c)| *c <= class);
        self.front.len() + more_urgent.map(|(set, _)| set.turns.len()).sum::<usize>()
    }

    /// How many are served before a user with entries in this class has had a turn, at most about.
    pub fn lap(&self, class: Priority) -> usize {
        place_of(class).map_or(self.front.users(), |place| self.front.len() + self.classes[place].turns.users())
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
        match place_of(ticket.item.class) {
            None => self.push_front(ticket),
            Some(place) => {
                let set = &mut self.classes[place];
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
        if let Some(place) = place_of(ticket.item.class) {
            let set = &mut self.classes[place];
            if set.by_age.remove(&ticket.anchor).is_some() {
                set.turns.remove(ticket.user, ticket.conversation, ticket.anchor);
                return;
            }
        }
        if self.front.remove(ticket.user, ticket.conversation, ticket.turn).is_some() {
            self.high -= usize::from(ticket.item.class == Priority::High);
        }
    }

    /// Lets time pass: what is due becomes ready, what waited long enough goes to the front.
    pub fn advance(&mut self, now: Micros, aging_ms: u32, table: &Table) {
        while let Some(due) = self.delayed.first_entry().filter(|e| e.key().at <= now) {
            if let Some(entry) = table.at(due.remove()) {
                self.make_ready(&entry.ticket);
            }
        }
        for (place, class) in AGING.into_iter().enumerate() {
            let front_after_ms = i64::from(class.level() - Priority::High.level()) * i64::from(aging_ms);
            let set = &mut self.classes[place];
            while let Some(oldest) = set.by_age.first_entry().filter(|e| e.key().at.plus_ms(front_after_ms) <= now) {
                if let Some(Entry { ticket, .. }) = table.at(oldest.remove()) {
                    set.turns.remove(ticket.user, ticket.conversation, ticket.anchor);
                    self.front.insert(ticket.user, ticket.conversation, ticket.turn, ticket.item);
                }
            }
        }
    }

    /// Takes the next one; call [`Bands::advance`] before.
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

    /// All ready entries in the order of their pops if time stood still; call [`Bands::advance`] before.
    pub fn order(&self, aging_ms: u32) -> impl Iterator<Item = (Slot, Band)> {
        let front = self.front.order().map(|(_, item)| (item.slot, Band::Front));
        let mut rests: Vec<Rest<_, _>> = self
            .classes
            .iter()
            .map(|set| Rest { ages: set.by_age.keys().copied(), turns: set.turns.order(), taken: HashSet::new() })
            .collect();
        let mut oldest: Vec<Option<Stamp>> = rests.iter_mut().map(Rest::oldest).collect();
        front.chain(std::iter::from_fn(move || {
            let place = best(oldest.iter().copied(), aging_ms)?;
            let rest = &mut rests[place];
            let (anchor, item) = rest.turns.next()?;
            rest.taken.insert(anchor.seq);
            if oldest[place].is_some_and(|head| rest.taken.remove(&head.seq)) {
                oldest[place] = rest.oldest();
            }
            Some((item.slot, Band::Class))
        }))
    }
}

/// What is left of a class while its order is walked through.
struct Rest<A, T> {
    ages: A,
    turns: T,
    /// Served ahead of older ones.
    taken: HashSet<u64>,
}

impl<A: Iterator<Item = Stamp>, T> Rest<A, T> {
    fn oldest(&mut self) -> Option<Stamp> {
        let taken = &mut self.taken;
        self.ages.find(|age| !taken.remove(&age.seq))
    }
}

/// The class whose oldest entry is the most urgent now; the higher class if two are equal.
fn best(heads: impl Iterator<Item = Option<Stamp>>, aging_ms: u32) -> Option<usize> {
    heads
        .zip(AGING)
        .enumerate()
        .filter_map(|(place, (head, class))| {
            head.map(|head| (head.at.plus_ms(i64::from(class.level()) * i64::from(aging_ms)), place))
        })
        .min()
        .map(|(_, place)| place)
}

fn place_of(class: Priority) -> Option<usize> {
    AGING.iter().position(|c| *c == class)
}
