//! Who runs the next round: the scheduler's queue, pure and without a clock.
//!
//! What waits is a task for its **next round** on one backend. An entry comes in once through [`Queue::admit`], which is
//! where limits are kept; [`Queue::pop`] hands it out, and after its round the caller gives it back: [`Queue::yield_back`]
//! if it gave way by itself, [`Queue::park`] if another one pushed it aside. What was admitted is never refused again.
//!
//! Order: REALTIME never waits. Of the others the smallest effective class is served (see [`effective`]), and among
//! equals users take turns, then conversations, then age decides. Time is told with every call and never goes back.

mod entry;
mod estimate;
mod fair;
mod limits;
mod order;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::{
    event::Priority,
    ids::{TaskId, UserId},
    time::Micros,
};
pub use entry::{Admission, BackendId, Grant, Rank, ReprioritiseError, Waiting, Why, WorkKey};
use estimate::RoundTimes;
use fair::Stamp;
pub use limits::{DepthLimits, QueueLimits, Refusal, RefusalReason};
pub use order::effective;
use order::{Band, Bands, Ticket};
use table::{Entry, Table};

/// The queue of all backends.
#[derive(Debug, Default)]
pub struct Queue {
    limits: QueueLimits,
    table: Table,
    backends: BTreeMap<BackendId, Bands>,
    rounds: BTreeMap<BackendId, RoundTimes>,
    now: Micros,
    seq: u64,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new(limits: QueueLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    // Coming in

    /// Asks for a place for a new task.
    pub fn admit(&mut self, waiting: Waiting, now: Micros) -> Admission {
        if waiting.class == Priority::Realtime {
            return Admission::RunNow;
        }
        self.tick(waiting.backend, now);
        if self.table.get(waiting.task).is_some() {
            return Admission::Coalesced { into: waiting.task };
        }
        if let Some(into) = waiting.work.and_then(|work| self.table.doing(&waiting.user, work)) {
            self.lift(into, waiting.class, now);
            return Admission::Coalesced { into };
        }
        if let Some(refusal) = self.refusal(&waiting.user, waiting.class, waiting.backend, self.table.len()) {
            return Admission::Refused(refusal);
        }
        self.put(waiting, now);
        Admission::Queued
    }

    /// Puts a task back as it was: after a restart, or when its user lets it go on. Never refused; a task that waits
    /// already stays as it is. False if it is REALTIME, which never waits: run it.
    pub fn restore(&mut self, waiting: Waiting, now: Micros) -> bool {
        if waiting.class == Priority::Realtime {
            return false;
        }
        self.tick(waiting.backend, now);
        if self.table.get(waiting.task).is_none() {
            self.put(waiting, now);
        }
        true
    }

    /// Gives a task back after a round that gave way by itself: it waits anew from now. As [`Queue::restore`] otherwise.
    pub fn yield_back(&mut self, mut waiting: Waiting, now: Micros) -> bool {
        waiting.rounds_done = waiting.rounds_done.saturating_add(1);
        waiting.anchor = now;
        waiting.parked_at = None;
        self.restore(waiting, now)
    }

    /// Gives a task back after a round because [`Queue::should_park`] said so: it keeps its anchor, and goes behind its
    /// equals so that the one it was parked for is served. As [`Queue::restore`] otherwise.
    pub fn park(&mut self, mut waiting: Waiting, now: Micros) -> bool {
        waiting.rounds_done = waiting.rounds_done.saturating_add(1);
        waiting.parks = waiting.parks.saturating_add(1);
        waiting.parked_at = Some(now);
        self.restore(waiting, now)
    }

    // Going out

    /// Takes the task whose round is next on a backend.
    pub fn pop(&mut self, backend: BackendId, now: Micros) -> Option<Grant> {
        self.tick(backend, now);
        let served = self.stamp(self.now);
        let (slot, band) = self.backends.get_mut(&backend)?.pop(served, self.limits.aging_ms_per_class)?;
        let entry = self.table.take(slot)?;
        self.drop_if_empty(backend);
        let (waiting, now) = (entry.waiting, self.now);
        let effective = effective(waiting.class, waiting.anchor, now, self.limits.aging_ms_per_class);
        let (waited_ms, why) = (now.since_ms(waiting.anchor), why(waiting.class, band));
        Some(Grant { waiting, effective, waited_ms, why })
    }

    /// Takes a task out, wherever it stands: cancelled, or held by its user until [`Queue::restore`].
    pub fn remove(&mut self, task: TaskId) -> Option<Waiting> {
        let slot = self.table.slot(task)?;
        let entry = self.table.take(slot)?;
        if let Some(bands) = self.backends.get_mut(&entry.waiting.backend) {
            bands.remove(&entry.ticket);
        }
        self.drop_if_empty(entry.waiting.backend);
        Some(entry.waiting)
    }

    /// Changes a waiting task's class; it keeps its anchor.
    ///
    /// # Errors
    /// If it does not wait, the class is REALTIME, or its user's depth in that class is reached.
    pub fn reprioritise(&mut self, task: TaskId, class: Priority, now: Micros) -> Result<(), ReprioritiseError> {
        let entry = self.table.get(task).ok_or(ReprioritiseError::NotWaiting)?;
        if class == Priority::Realtime {
            return Err(ReprioritiseError::Realtime);
        }
        if entry.waiting.class == class {
            return Ok(());
        }
        let (user, backend) = (entry.waiting.user.clone(), entry.waiting.backend);
        self.tick(backend, now);
        if let Some(refusal) = self.refusal(&user, class, backend, 0) {
            return Err(refusal.into());
        }
        if let Some(waiting) = self.remove(task) {
            self.put(Waiting { class, ..waiting }, self.now);
        }
        Ok(())
    }

    /// Whether a task that has just run a round must be parked: a HIGH one waits for its backend, its own
    /// class is lower, and it was not parked too often. Aged tasks get the next free slot, never an eviction.
    pub fn should_park(&mut self, running: &Waiting, now: Micros) -> bool {
        self.tick(running.backend, now);
        running.class > Priority::High
            && running.parks < self.limits.parks_max
            && self.backends.get(&running.backend).is_some_and(|bands| bands.high_ready() > 0)
    }

    // Looking

    /// The task whose round is next on a backend, and why.
    pub fn peek(&mut self, backend: BackendId, now: Micros) -> Option<Rank> {
        self.tick(backend, now);
        self.ranks(backend).next()
    }

    /// Where a task stands: as many pops are before it as its position says less one, if nothing comes or goes. Takes
    /// time in proportion to the position.
    pub fn position(&mut self, task: TaskId, now: Micros) -> Option<Rank> {
        let backend = self.table.get(task)?.waiting.backend;
        self.tick(backend, now);
        self.ranks(backend).chain(self.delayed(backend)).find(|rank| rank.task == task)
    }

    /// Everything that waits for a backend in the order of its rounds, then what is not due yet.
    pub fn list(&mut self, backend: BackendId, now: Micros) -> Vec<Rank> {
        self.tick(backend, now);
        self.ranks(backend).chain(self.delayed(backend)).collect()
    }

    /// A waiting task.
    #[must_use]
    pub fn get(&self, task: TaskId) -> Option<&Waiting> {
        self.table.get(task).map(|entry| &entry.waiting)
    }

    /// How many wait altogether.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// How many tasks of a user wait in a class.
    #[must_use]
    pub fn depth(&self, user: &UserId, class: Priority) -> u32 {
        self.table.depth(user, class)
    }

    /// How many could run on a backend now, as of the last call that told the time.
    #[must_use]
    pub fn ready(&self, backend: BackendId) -> usize {
        self.backends.get(&backend).map_or(0, Bands::ready)
    }

    /// How many would at least be served on a backend before a newcomer of this class, as of the last call that told the
    /// time: for an estimate, in no time.
    #[must_use]
    pub fn ahead(&self, backend: BackendId, class: Priority) -> usize {
        self.backends.get(&backend).map_or(0, |bands| bands.ahead_of_newcomer(class))
    }

    /// When the next delayed task becomes ready on a backend: a timer's work, nothing polls.
    #[must_use]
    pub fn next_due(&self, backend: BackendId) -> Option<Micros> {
        self.backends.get(&backend).and_then(Bands::next_due)
    }

    // Learning

    /// A round on this backend took so long.
    pub fn observe_round(&mut self, backend: BackendId, round_ms: u64) {
        self.rounds_of(backend).observe(round_ms);
    }

    /// How many rounds run at once on this backend.
    pub fn set_slots(&mut self, backend: BackendId, slots: u32) {
        self.rounds_of(backend).set_slots(slots);
    }

    /// When whoever stands at this position (from 1) may expect to start, in milliseconds from now.
    #[must_use]
    pub fn start_in_ms(&self, backend: BackendId, position: usize) -> u64 {
        self.times(backend).wait_ms(position)
    }

    /// The usual round on this backend, in milliseconds.
    #[must_use]
    pub fn round_ms(&self, backend: BackendId) -> u64 {
        self.times(backend).round_ms()
    }

    // Inside

    fn rounds_of(&mut self, backend: BackendId) -> &mut RoundTimes {
        self.rounds.entry(backend).or_insert_with(|| RoundTimes::guess(self.limits.round_guess_ms))
    }

    fn times(&self, backend: BackendId) -> RoundTimes {
        self.rounds.get(&backend).copied().unwrap_or_else(|| RoundTimes::guess(self.limits.round_guess_ms))
    }

    /// Lets time pass on a backend. A clock that was set back stands still here until it catches up.
    fn tick(&mut self, backend: BackendId, now: Micros) {
        self.now = self.now.max(now);
        if let Some(bands) = self.backends.get_mut(&backend) {
            bands.advance(self.now, self.limits.aging_ms_per_class, &self.table);
        }
    }

    fn stamp(&mut self, at: Micros) -> Stamp {
        self.seq += 1;
        Stamp { at, seq: self.seq }
    }

    /// Stores an entry whose times were told at `now`. If time stands still here because the clock was set back, what
    /// counts is how long ago they were.
    fn put(&mut self, mut waiting: Waiting, now: Micros) {
        let skew_us = self.now.0.saturating_sub(now.0);
        let times = [Some(&mut waiting.anchor), waiting.not_before.as_mut(), waiting.parked_at.as_mut()];
        for at in times.into_iter().flatten() {
            at.0 = at.0.saturating_add(skew_us);
        }
        let due = waiting.not_before.filter(|at| *at > self.now);
        let since = waiting.not_before.map_or(waiting.anchor, |at| at.max(waiting.anchor));
        waiting.anchor = due.unwrap_or(since.min(self.now));
        let seq = self.stamp(self.now).seq;
        let turn = waiting.parked_at.map_or(waiting.anchor, |at| at.min(self.now).max(waiting.anchor));
        let (conversation, backend) = (waiting.conversation, waiting.backend);
        let now = self.now;
        let ticket = self.table.insert(waiting, |item, user, anchor| Ticket {
            item,
            user,
            conversation,
            anchor: Stamp { at: anchor, seq },
            turn: Stamp { at: turn, seq },
            due: due.map(|at| Stamp { at, seq }),
        });
        self.backends.entry(backend).or_default().insert(&ticket, now);
    }

    /// Equal work is wanted more urgently than it waits: it moves up if its user has room there.
    fn lift(&mut self, task: TaskId, class: Priority, now: Micros) {
        if self.get(task).is_some_and(|waiting| class < waiting.class) {
            // No room is no harm: it stays where it is.
            self.reprioritise(task, class, now).ok();
        }
    }

    fn refusal(&self, user: &UserId, class: Priority, backend: BackendId, waiting: usize) -> Option<Refusal> {
        let depth_max = self.limits.depth_per_user.of(class);
        let (reason, limit) = if self.table.depth(user, class) >= depth_max {
            (RefusalReason::UserDepth, depth_max)
        } else if waiting >= self.limits.waiting_max as usize {
            (RefusalReason::QueueFull, self.limits.waiting_max)
        } else {
            return None;
        };
        let bands = self.backends.get(&backend);
        let position = bands.map_or(0, |bands| bands.ahead_of_newcomer(class)) + 1;
        let rounds = match reason {
            RefusalReason::UserDepth => bands.map_or(1, |bands| bands.lap(class)),
            RefusalReason::QueueFull | RefusalReason::RealtimeFull => 1,
        };
        let (least, most) = Refusal::RETRY_MS.into_inner();
        let retry_after_ms = self.times(backend).wait_ms(rounds.max(1)).clamp(least, most);
        Some(Refusal { reason, class, limit, position, retry_after_ms })
    }

    fn drop_if_empty(&mut self, backend: BackendId) {
        if self.backends.get(&backend).is_some_and(Bands::is_empty) {
            self.backends.remove(&backend);
        }
    }

    fn ranks(&self, backend: BackendId) -> impl Iterator<Item = Rank> {
        let times = self.times(backend);
        let order = self.backends.get(&backend).map(|bands| bands.order(self.limits.aging_ms_per_class));
        order.into_iter().flatten().zip(1..).filter_map(move |((slot, band), position)| {
            let entry = self.table.at(slot)?;
            let why = why(entry.waiting.class, band);
            Some(self.rank(entry, Some(position), why, times.wait_ms(position)))
        })
    }

    fn delayed(&self, backend: BackendId) -> impl Iterator<Item = Rank> {
        let slots = self.backends.get(&backend).map(Bands::delayed).into_iter().flatten();
        slots.filter_map(|slot| {
            let entry = self.table.at(slot)?;
            let until = entry.waiting.anchor;
            Some(self.rank(entry, None, Why::Delayed { until }, until.since_ms(self.now)))
        })
    }

    fn rank(&self, entry: &Entry, position: Option<usize>, why: Why, start_in_ms: u64) -> Rank {
        let Waiting { task, class, anchor, .. } = entry.waiting;
        let effective = effective(class, anchor, self.now, self.limits.aging_ms_per_class);
        Rank { task, class, position, effective, waited_ms: self.now.since_ms(anchor), why, start_in_ms }
    }
}

fn why(class: Priority, band: Band) -> Why {
    match band {
        Band::Class => Why::ByClass,
        Band::Front if class == Priority::High => Why::Urgent,
        Band::Front => Why::Aged,
    }
}
