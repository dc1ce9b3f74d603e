//! Accepted messages on their way to a turn, and those that never get one of their own: orders about tasks, and messages
//! that are answered with another's answer.

use serde::{Deserialize, Serialize};

use super::{
    conversation::{Clock, Conversation, Lane, Turn},
    directive::Directive,
};
use crate::{
    context::Exchange,
    event::{EventBody, Inbound, OrderVerb, Priority},
    ids::{Seq, TaskId},
    letter::LetterLimits,
    limits::{Deadline, Deadlines},
    time::Micros,
};

/// What a message that steered a turn is answered with, once the turn has its answer.
const TAKEN_UP: &str = "Taken up in the answer to your earlier message.";

/// An accepted message whose turn has not begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// Its task.
    pub task: TaskId,
    /// Its place in the log, and among the others.
    pub seq: Seq,
    /// The message.
    pub inbound: Inbound,
    /// When it was accepted.
    pub accepted_at: Micros,
    /// Since when its deadlines count: its acceptance, its due time, or when it was let go on.
    pub at: Micros,
    /// Held back by its user.
    pub held: bool,
    /// How often its hard deadline has passed.
    pub late: u32,
    /// What becomes of its dead letter, as told with the last of those.
    pub letters: LetterLimits,
}

impl Pending {
    /// A message that was accepted at that time. Its lane was free from then on, as far as the state knows.
    fn new(task: TaskId, seq: Seq, inbound: Inbound, accepted_at: Micros, free_from: Micros) -> Self {
        let at = inbound.not_before.map_or(accepted_at, |due| due.max(accepted_at)).max(free_from);
        Self { task, seq, inbound, accepted_at, at, held: false, late: 0, letters: LetterLimits::default() }
    }

    /// When it is due, if that was said.
    #[must_use]
    pub const fn not_before(&self) -> Option<Micros> {
        self.inbound.not_before
    }
}

/// An order about tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Its task.
    pub task: TaskId,
    /// Its place in the log, and among the others.
    pub seq: Seq,
    /// The message.
    pub inbound: Inbound,
    /// What it was understood to mean: from then on just this is done.
    pub meant: Option<Meant>,
}

/// What an order was understood to mean.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meant {
    /// What is done.
    pub verb: OrderVerb,
    /// With which tasks.
    pub targets: Vec<TaskId>,
    /// What the user is told.
    pub text: String,
}

impl Order {
    pub(super) fn directive(&self) -> Directive {
        match &self.meant {
            None => Directive::Understand { task: self.task, text: self.inbound.text.clone() },
            Some(Meant { verb, targets, text }) => {
                Directive::CarryOut { task: self.task, verb: *verb, targets: targets.clone(), text: text.clone() }
            }
        }
    }
}

/// The same work as another task's: answered with its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// Its task.
    pub task: TaskId,
    /// Whose answer it gets.
    pub into: TaskId,
    /// The class that the other is still to get, if it is more urgent than its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifts: Option<Priority>,
}

impl Conversation {
    /// A message of the log. The Engine hears of it when it may, a replay at its place, and both come to the same state: it
    /// stands at its place, and what it joins is decided when it is heard of, and stored.
    pub(super) fn received(&mut self, seq: Seq, at: Micros, task: TaskId, inbound: &Inbound) {
        if self.is_open(task) || self.finished.contains(&task) {
            return;
        }
        self.is_listed |= !inbound.stateless;
        if inbound.order {
            let place = self.orders.partition_point(|o| o.seq <= seq);
            self.orders.insert(place, Order { task, seq, inbound: inbound.clone(), meant: None });
        } else {
            let free_from = self.free_from[Lane::of(inbound.priority) as usize];
            self.stand(Pending::new(task, seq, inbound.clone(), at, free_from));
        }
    }

    fn stand(&mut self, pending: Pending) {
        let place = self.inbox.partition_point(|p| p.seq <= pending.seq);
        self.inbox.insert(place, pending);
    }

    /// A message that is to have no turn of its own, and what it joins. What it names was accepted before it, so that
    /// nothing joins in a circle.
    pub(super) fn joining(&self) -> Option<(TaskId, TaskId)> {
        self.inbox.iter().find_map(|p| {
            let same = p.inbound.same_as.filter(|into| *into != p.task && self.is_open(*into));
            Some((p.task, same.or_else(|| self.steered_by(p))?))
        })
    }

    /// The turn that a message steers: the newest of its own lane, else the newest. What is private joins no turn that may
    /// leave the house.
    fn steered_by(&self, pending: &Pending) -> Option<TaskId> {
        let Pending { inbound, accepted_at, held, .. } = pending;
        let hears = |t: &&Turn| t.hears_from.is_some_and(|from| from <= *accepted_at);
        let may_know = |t: &&Turn| !inbound.private || t.inbound.private;
        let fitting = || self.turns.iter().rev().filter(|t| inbound.steer && !held && hears(t) && may_know(t));
        let own = fitting().find(|t| t.lane == Lane::of(inbound.priority));
        own.or_else(|| fitting().next()).map(|t| t.task)
    }

    /// A message has joined what the log says.
    pub(super) fn join(&mut self, task: TaskId, into: TaskId) {
        let Some(place) = self.inbox.iter().position(|p| p.task == task) else { return };
        let Some(pending) = self.inbox.remove(place) else { return };
        let steers = pending.inbound.steer;
        if pending.inbound.same_as == Some(into) && self.is_open(into) {
            self.joined.push(Joined { task, into, lifts: pending.inbound.lifts });
        } else if let Some(turn) = self.turns.iter_mut().find(|t| t.task == into && steers) {
            turn.heard.push(pending);
        } else {
            self.stand(pending);
        }
    }

    /// What a turn did not hear before it ended is a message like any other, at its old place. It joins no other turn.
    pub(super) fn take_back(&mut self, mut unheard: Pending) {
        unheard.at = self.at.max(unheard.at);
        unheard.inbound.steer = false;
        self.stand(unheard);
    }

    /// The messages of a lane that are not held back, oldest first; none while a turn holds the lane up.
    fn ready_in(&self, lane: Lane) -> impl Iterator<Item = &Pending> {
        let is_free = !self.turns.iter().any(|t| t.lane == lane && !t.aside);
        self.inbox.iter().filter(move |p| is_free && !p.held && Lane::of(p.inbound.priority) == lane)
    }

    /// The message whose turn may begin in a lane: the oldest whose time has come. One that is not due yet holds nobody up.
    pub(super) fn next_in(&self, lane: Lane, now: Micros) -> Option<&Pending> {
        self.ready_in(lane).find(|p| p.not_before().is_none_or(|at| at <= now))
    }

    /// Whether a message's turn may begin, once it is due. Only what is due at some time gives way to those behind it.
    #[must_use]
    pub fn may_begin(&self, task: TaskId) -> Option<&Inbound> {
        let next = |lane| {
            let mut blocked = false;
            self.ready_in(lane).find(move |p| {
                let is_it = p.task == task && !blocked;
                blocked |= p.not_before().is_none();
                is_it
            })
        };
        Lane::ALL.into_iter().find_map(next).map(|p| &p.inbound)
    }

    /// The message whose turn has begun. Whether it might was looked at when it did: a message that stands before it now may
    /// have been heard of only later.
    pub(super) fn take_out(&mut self, task: TaskId) -> Option<Pending> {
        let at = self.inbox.iter().position(|p| p.task == task)?;
        self.inbox.remove(at)
    }

    pub(super) fn cancel(&mut self, task: TaskId) {
        if let Some(turn) = self.turns.iter_mut().find(|t| t.task == task) {
            turn.cancelled = true;
        } else if self.is_open(task)
            && !self.cancelled.contains(&task)
            && !self.owed.iter().any(|(owed, _)| *owed == task)
        {
            self.cancelled.push(task);
        }
    }

    /// What a turn has not heard that stands still now is not to stand still with it.
    pub(super) fn give_back_unheard(&mut self, task: TaskId) {
        let turn = self.turns.iter_mut().find(|t| t.task == task);
        for unheard in turn.map(|t| std::mem::take(&mut t.heard)).unwrap_or_default() {
            self.take_back(unheard);
        }
    }

    /// Holds a task back, or lets it go on, also one that was put off. A turn that was held back once does not hold up its
    /// lane again.
    pub(super) fn hold(&mut self, task: TaskId, held: bool) {
        let at = self.at;
        if held {
            self.give_back_unheard(task);
        } else if let Some(turn) = self.turns.iter_mut().find(|t| t.task == task) {
            turn.deferral.is_lifted = turn.deferral.until.is_some_and(|until| until > at);
        }
        if let Some(turn) = self.turns.iter_mut().find(|t| t.task == task && t.suspended != held) {
            turn.suspended = held;
            turn.aside = true;
            turn.restart_clock(at);
        } else if let Some(pending) = self.inbox.iter_mut().find(|p| p.task == task && p.held != held) {
            pending.held = held;
            pending.at = pending.at.max(at);
        }
    }

    /// Changes a task's class. Its lane and its deadlines are the new class's, and those count from now. Voice alone is
    /// REALTIME: nothing becomes it or ceases to be it.
    pub(super) fn reprioritise(&mut self, task: TaskId, priority: Priority) {
        for joined in self.joined.iter_mut().filter(|j| j.into == task) {
            // Lifted once: whoever changes its class afterwards means it.
            joined.lifts = None;
        }
        let at = self.at;
        let changes = |class: Priority| class != priority && ![class, priority].contains(&Priority::Realtime);
        if let Some(turn) = self.turns.iter_mut().find(|t| t.task == task && changes(t.inbound.priority)) {
            turn.inbound.priority = priority;
            turn.lane = Lane::of(priority);
            turn.restart_clock(at);
        } else if let Some(pending) = self.inbox.iter_mut().find(|p| p.task == task && changes(p.inbound.priority)) {
            pending.inbound.priority = priority;
            pending.at = pending.at.max(at);
            pending.late = 0;
        }
    }

    /// A task that gets a more urgent class from one that joined it, which is that.
    pub(super) fn lifted(&self) -> Option<(TaskId, Priority, TaskId)> {
        self.joined.iter().find_map(|j| {
            let class = j.lifts.filter(|class| *class != Priority::Realtime)?;
            let pending = || self.inbox.iter().find(|p| p.task == j.into).map(|p| p.inbound.priority);
            let own = self.turn(j.into).map(|t| t.inbound.priority).or_else(pending)?;
            (class < own).then_some((j.into, class, j.task))
        })
    }

    pub(super) fn ordered(&mut self, task: TaskId, verb: OrderVerb, targets: &[TaskId], text: &str) {
        if let Some(order) = self.orders.iter_mut().find(|o| o.task == task && o.meant.is_none()) {
            order.meant = Some(Meant { verb, targets: targets.to_vec(), text: text.to_owned() });
        }
    }

    /// A message that has waited too long; while it is held back it may. Says whether there is one.
    pub(super) fn pending_late(&mut self, task: TaskId, letters: Option<&LetterLimits>) -> bool {
        let at = self.at;
        let Some(pending) = self.inbox.iter_mut().find(|p| p.task == task) else { return false };
        if !pending.held {
            pending.late = pending.late.saturating_add(1);
            pending.letters = letters.cloned().unwrap_or_default();
            pending.at = at;
        }
        true
    }

    /// Takes out a message that ends without a turn of its own; false if there is none.
    pub(super) fn leave(&mut self, task: TaskId, text: &str) -> bool {
        if let Some(at) = self.inbox.iter().position(|p| p.task == task) {
            self.inbox.remove(at);
        } else if let Some(at) = self.orders.iter().position(|o| o.task == task) {
            let order = self.orders.remove(at);
            let Inbound { text: user, private, .. } = order.inbound;
            self.history.push(Exchange { user, answer: text.to_owned(), private, steps: Vec::new() });
        } else if let Some(at) = self.joined.iter().position(|j| j.task == task) {
            self.joined.remove(at);
        } else if let Some(at) = self.owed.iter().position(|(owed, _)| *owed == task) {
            self.owed.remove(at);
        } else {
            return self.turns.iter_mut().any(|t| t.forget(task));
        }
        true
    }

    /// A task has its final: those that are the same work are owed the same.
    pub(super) fn release_joined(&mut self, task: TaskId, body: &EventBody) {
        let (released, rest): (Vec<_>, Vec<_>) = self.joined.drain(..).partition(|j| j.into == task);
        self.joined = rest;
        self.owed.extend(released.into_iter().map(|j| (j.task, alike(body))));
    }

    /// When the next deadline of a task passes: whose, and whether it is the hard one. A message that is held back has none.
    #[must_use]
    pub fn next_deadline(&self, deadlines: &Deadlines) -> Option<(Micros, TaskId, bool)> {
        self.next_deadline_but(deadlines, |_, at, _| at)
    }

    /// The same where the caller knows of waits that are not recorded yet, and moves a turn's deadline by them; it is told
    /// whether that is the hard one.
    #[must_use]
    pub fn next_deadline_but(
        &self,
        deadlines: &Deadlines,
        moved: impl Fn(&Turn, Micros, bool) -> Micros,
    ) -> Option<(Micros, TaskId, bool)> {
        let turns =
            self.turns.iter().filter(|t| !t.suspended && !t.cancelled && !t.may_wait_for_others()).filter_map(|t| {
                let (deadline, permit_ms_max) = (t.deadline(deadlines), deadlines.permit_ms_max(t.inbound.priority));
                let (at, is_hard) = t.clock.next(deadline, permit_ms_max)?;
                // However far the soft one is moved, the hard one does not wait for it.
                let hard = moved(t, t.clock.after(deadline.hard_ms, permit_ms_max), true);
                let soft = (!is_hard).then(|| moved(t, at, false)).filter(|soft| *soft < hard);
                Some(soft.map_or((hard, t.task, true), |soft| (soft, t.task, false)))
            });
        // One that stands behind a turn of its own lane waits for that turn, whose deadlines count.
        let pending = Lane::ALL.into_iter().flat_map(|lane| self.ready_in(lane)).map(|p| {
            let hard_ms = deadlines.of(p.inbound.priority).hard_ms;
            (p.at.later_ms(hard_ms), p.task, true)
        });
        turns.chain(pending).min()
    }

    /// A lane may have become free: the time of those that stood behind it begins now, also of those that did so in the log
    /// and are heard of later.
    pub(super) fn start_clocks(&mut self) {
        for lane in Lane::ALL {
            if !self.turns.iter().any(|t| t.lane == lane && !t.aside) {
                self.free_from[lane as usize] = self.at;
            }
        }
        for pending in &mut self.inbox {
            pending.at = pending.at.max(self.free_from[Lane::of(pending.inbound.priority) as usize]);
        }
    }

    /// When the next message is due whose time has not come.
    #[must_use]
    pub fn next_due(&self, now: Micros) -> Option<Micros> {
        Lane::ALL
            .into_iter()
            .flat_map(|lane| self.ready_in(lane))
            .filter_map(Pending::not_before)
            .filter(|at| *at > now)
            .min()
    }
}

impl Clock {
    /// The soft deadline: what a model reads before its first token does not count.
    fn soft_ms(self, deadline: Deadline) -> u64 {
        deadline.soft_ms.saturating_add(self.prefill_ms)
    }

    /// So long after it began to count.
    fn after(self, ms: u64, permit_ms_max: u64) -> Micros {
        let beyond_ms = self.waited_ms.saturating_sub(permit_ms_max);
        self.from.later_ms(ms).plus_ms(-i64::try_from(beyond_ms).unwrap_or(i64::MAX))
    }

    /// `permit_ms_max` is how much of the waits for permits is not the turn's own time: what waited for longer is.
    fn next(self, deadline: Deadline, permit_ms_max: u64) -> Option<(Micros, bool)> {
        let after = |ms: u64| self.after(ms, permit_ms_max);
        match (self.soft_passed, self.hard_passed) {
            (_, true) => None,
            (true, false) => Some((after(deadline.hard_ms), true)),
            (false, false) if self.soft_ms(deadline) < deadline.hard_ms => Some((after(self.soft_ms(deadline)), false)),
            (false, false) => Some((after(deadline.hard_ms), true)),
        }
    }
}

impl Turn {
    /// The part of a wait for permits that is not this turn's own time, in milliseconds. The log does not say yet that it
    /// waited for so long.
    #[must_use]
    pub fn permit_credit_ms(&self, deadlines: &Deadlines, waited_ms: u64) -> u64 {
        let most_ms = deadlines.permit_ms_max(self.inbound.priority);
        waited_ms.min(most_ms.saturating_sub(self.clock.waited_ms))
    }

    /// What was spoken has the time of its kind [S2 4]; everything else has its class's.
    fn deadline(&self, deadlines: &Deadlines) -> Deadline {
        match self.facts.spoken_as {
            Some(kind) if self.inbound.priority == Priority::Realtime => deadlines.voice(kind),
            _ => deadlines.of(self.inbound.priority),
        }
    }

    /// Notes whether messages may join it: it works on, and will have another round before long. One that was accepted
    /// before it did so has a turn of its own, also if it is heard of only then.
    pub(super) fn note_hearing(&mut self, at: Micros) {
        let works = !self.suspended && !self.cancelled && !self.may_wait_for_others();
        let hears = works && !self.clock.hard_passed && self.main.ending().is_none();
        let put_off = self.deferral.until.filter(|until| *until > at);
        let from = || put_off.unwrap_or_else(|| self.hears_from.map_or(at, |from| from.min(at)));
        self.hears_from = hears.then(from);
    }

    /// Its deadlines count anew; before it may go on they do not count.
    pub(super) fn restart_clock(&mut self, at: Micros) {
        self.clock = Clock::starting(self.deferral.until.map_or(at, |until| until.max(at)));
    }

    /// Whether it may still wait for the tasks that go before it, as far as it is known here: nothing has come of it yet.
    pub(super) fn may_wait_for_others(&self) -> bool {
        !self.inbound.after.is_empty() && self.main.awaits(1)
    }

    /// Whether it is the work of a task: its own, or one that steers it.
    #[must_use]
    pub fn works_on(&self, task: TaskId) -> bool {
        self.task == task || self.is_steered_by(task)
    }

    /// Whether a message steers it.
    pub(super) fn is_steered_by(&self, task: TaskId) -> bool {
        self.told.contains(&task) || self.heard.iter().any(|p| p.task == task)
    }

    /// A message that steers it ends by itself; what its model was told stays told.
    fn forget(&mut self, task: TaskId) -> bool {
        let steered = self.is_steered_by(task);
        self.told.retain(|told| *told != task);
        self.heard.retain(|p| p.task != task);
        steered
    }
}

/// The same answer, for the same work.
fn alike(body: &EventBody) -> EventBody {
    match body {
        // What it cost is counted with the task that did it, and a letter is kept once.
        EventBody::Answered { text, paused, outcome, finish, calls, .. } => EventBody::Answered {
            text: text.clone(),
            paused: *paused,
            usage: crate::message::Usage::default(),
            outcome: *outcome,
            finish: *finish,
            calls: calls.clone(),
        },
        EventBody::Failed { code, text, detail, .. } => {
            EventBody::Failed { code: code.clone(), text: text.clone(), detail: detail.clone(), letter: None }
        }
        other => other.clone(),
    }
}

/// What a message is told that steered a turn.
pub(super) fn taken_up(body: &EventBody) -> EventBody {
    match body {
        EventBody::Answered { .. } => EventBody::answered(TAKEN_UP),
        other => alike(other),
    }
}
