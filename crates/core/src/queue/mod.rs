//! The scheduler's queue, which decides which task runs the next round. Pure, without a clock.
//!
//! A queued task waits for its **next round** on one backend. Tasks enter through [`Queue::admit`], which enforces the
//! limits. [`Queue::pop`] removes the next task. After its round the caller returns it with [`Queue::yield_back`] if the
//! task yielded voluntarily, or with [`Queue::preempt`] if it was preempted. An admitted task is never refused later.
//!
//! Order: REALTIME never waits. Among the other tasks, the lowest effective class is served first (see [`effective`]). Tasks
//! of equal effective class rotate by user, then by conversation, then by age. Each call passes the time in, and the queue's
//! time never goes back.

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

    // Adding tasks

    /// Requests admission of a new task.
    pub fn admit(&mut self, waiting: Waiting, now: Micros) -> Admission {
        if waiting.class == Priority::Realtime {
            return Admission::RunNow;
        }
        self.tick(waiting.backend, now);
        if self.table.get(waiting.task).is_some() {
            return Admission::Coalesced { into: waiting.task };
        }
        if let Some(into) = waiting.work.and_then(|work| self.table.task_for_work(&waiting.user, work)) {
            self.raise(into, waiting.class, now);
            return Admission::Coalesced { into };
        }
        if let Some(refusal) = self.refusal(&waiting.user, waiting.class, waiting.backend, self.table.len()) {
            return Admission::Refused(refusal);
        }
        self.put(waiting, now);
        Admission::Queued
    }

    /// Returns a task to the queue in its previous state: after a restart, or when its user resumes it. Never refused. A
    /// task that is already queued is unchanged. Returns false for REALTIME, which never waits and must be run by the
    /// caller.
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

    /// Returns a task after a round in which it yielded voluntarily: its wait starts anew. Otherwise like
    /// [`Queue::restore`].
    pub fn yield_back(&mut self, mut waiting: Waiting, now: Micros) -> bool {
        waiting.rounds_done = waiting.rounds_done.saturating_add(1);
        waiting.anchor = now;
        waiting.preempted_at = None;
        self.restore(waiting, now)
    }

    /// Returns a task after a round because [`Queue::should_preempt`] was true. The task keeps its anchor and is placed
    /// behind the tasks of equal class, so that the task for which it was preempted is served. Otherwise like
    /// [`Queue::restore`].
    pub fn preempt(&mut self, mut waiting: Waiting, now: Micros) -> bool {
        waiting.rounds_done = waiting.rounds_done.saturating_add(1);
        waiting.preemptions = waiting.preemptions.saturating_add(1);
        waiting.preempted_at = Some(now);
        self.restore(waiting, now)
    }

    // Removing tasks

    /// Removes and returns the task that runs the next round on a backend.
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

    /// Removes a task at any position: it was cancelled, or suspended by its user until [`Queue::restore`].
    pub fn remove(&mut self, task: TaskId) -> Option<Waiting> {
        let slot = self.table.slot(task)?;
        let entry = self.table.take(slot)?;
        if let Some(bands) = self.backends.get_mut(&entry.waiting.backend) {
            bands.remove(&entry.ticket);
        }
        self.drop_if_empty(entry.waiting.backend);
        Some(entry.waiting)
    }

    /// Changes the class of a queued task. The task keeps its anchor.
    ///
    /// # Errors
    /// If the task is not queued, if the class is REALTIME, or if its user's depth limit in that class is reached.
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

    /// Whether a task that has just run a round must be preempted: a HIGH task waits for its backend, the running task's own
    /// class is lower, and it was not preempted too often. Tasks raised by aging get the next free slot, but never preempt.
    pub fn should_preempt(&mut self, running: &Waiting, now: Micros) -> bool {
        self.tick(running.backend, now);
        running.class > Priority::High
            && running.preemptions < self.limits.preemptions_max
            && self.backends.get(&running.backend).is_some_and(|bands| bands.high_ready() > 0)
    }

    // Inspecting

    /// The task that runs the next round on a backend, and the reason.
    pub fn peek(&mut self, backend: BackendId, now: Micros) -> Option<Rank> {
        self.tick(backend, now);
        self.ranks(backend).next()
    }

    /// The position of a task: `position - 1` tasks are popped before it, if no task is added or removed. Takes time
    /// proportional to the position.
    pub fn position(&mut self, task: TaskId, now: Micros) -> Option<Rank> {
        let backend = self.table.get(task)?.waiting.backend;
        self.tick(backend, now);
        self.ranks(backend).chain(self.delayed(backend)).find(|rank| rank.task == task)
    }

    /// All tasks of a backend: the ready ones in the order of their rounds, then the delayed ones.
    pub fn list(&mut self, backend: BackendId, now: Micros) -> Vec<Rank> {
        self.tick(backend, now);
        self.ranks(backend).chain(self.delayed(backend)).collect()
    }

    /// A queued task.
    #[must_use]
    pub fn get(&self, task: TaskId) -> Option<&Waiting> {
        self.table.get(task).map(|entry| &entry.waiting)
    }

    /// Number of queued tasks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// Number of a user's queued tasks of a class.
    #[must_use]
    pub fn depth(&self, user: &UserId, class: Priority) -> u32 {
        self.table.depth(user, class)
    }

    /// Number of ready tasks of a backend, as of the last call that passed the time.
    #[must_use]
    pub fn ready(&self, backend: BackendId) -> usize {
        self.backends.get(&backend).map_or(0, Bands::ready)
    }

    /// Lower bound of the number of tasks served on a backend before a new task of this class, as of the last call that
    /// passed the time. For estimates; takes constant time.
    #[must_use]
    pub fn ahead(&self, backend: BackendId, class: Priority) -> usize {
        self.backends.get(&backend).map_or(0, |bands| bands.ahead_of_newcomer(class))
    }

    /// Time at which the next delayed task of a backend becomes ready, for a timer.
    #[must_use]
    pub fn next_due(&self, backend: BackendId) -> Option<Micros> {
        self.backends.get(&backend).and_then(Bands::next_due)
    }

    // Learning from rounds

    /// Records the duration of a round on this backend.
    pub fn observe_round(&mut self, backend: BackendId, round_ms: u64) {
        self.rounds_of(backend).observe(round_ms);
    }

    /// Sets the number of concurrent rounds on this backend.
    pub fn set_slots(&mut self, backend: BackendId, slots: u32) {
        self.rounds_of(backend).set_slots(slots);
    }

    /// Estimated time until the task at this position (from 1) starts, in milliseconds from now.
    #[must_use]
    pub fn start_in_ms(&self, backend: BackendId, position: usize) -> u64 {
        self.times(backend).wait_ms(position)
    }

    /// Mean duration of a round on this backend, in milliseconds.
    #[must_use]
    pub fn round_ms(&self, backend: BackendId) -> u64 {
        self.times(backend).round_ms()
    }

    // Internals

    fn rounds_of(&mut self, backend: BackendId) -> &mut RoundTimes {
        self.rounds.entry(backend).or_insert_with(|| RoundTimes::guess(self.limits.round_guess_ms))
    }

    fn times(&self, backend: BackendId) -> RoundTimes {
        self.rounds.get(&backend).copied().unwrap_or_else(|| RoundTimes::guess(self.limits.round_guess_ms))
    }

    /// Advances the time on a backend. If the clock was set back, the queue's time stands still until the clock catches up.
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

    /// Stores an entry whose times were taken at `now`. If the queue's time stands still because the clock was set back, the
    /// times are shifted, so that their distance to the present is kept.
    fn put(&mut self, mut waiting: Waiting, now: Micros) {
        let skew_us = self.now.0.saturating_sub(now.0);
        let times = [Some(&mut waiting.anchor), waiting.not_before.as_mut(), waiting.preempted_at.as_mut()];
        for at in times.into_iter().flatten() {
            at.0 = at.0.saturating_add(skew_us);
        }
        let due = waiting.not_before.filter(|at| *at > self.now);
        let since = waiting.not_before.map_or(waiting.anchor, |at| at.max(waiting.anchor));
        waiting.anchor = due.unwrap_or(since.min(self.now));
        let seq = self.stamp(self.now).seq;
        let turn = waiting.preempted_at.map_or(waiting.anchor, |at| at.min(self.now).max(waiting.anchor));
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

    /// Raises a queued task because equal work was requested with a more urgent class, if the user's depth limit allows it.
    fn raise(&mut self, task: TaskId, class: Priority, now: Micros) {
        if self.get(task).is_some_and(|waiting| class < waiting.class) {
            // At the depth limit, the task keeps its class.
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
