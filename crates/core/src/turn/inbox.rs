//! Accepted messages before their turns begin, and messages without a turn of their own: job commands, and messages that
//! receive the answer of another task.

use serde::{Deserialize, Serialize};

use super::{
    conversation::{Clock, Conversation, Lane, Turn},
    directive::Directive,
};
use crate::{
    context::Exchange,
    dead_letter::DeadLetterLimits,
    event::{EventBody, FinalEvent, Inbound, JobVerb, Priority},
    ids::{Seq, TaskId},
    limits::{Deadline, Deadlines},
    time::Micros,
};

/// The answer to a steering message, once its turn is answered.
const STEERING_ANSWER: &str = "Taken up in the answer to your earlier message.";

/// An accepted message whose turn has not begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// Its task.
    pub task: TaskId,
    /// Its sequence number in the log, which is also its queue position.
    pub seq: Seq,
    /// The message.
    pub inbound: Inbound,
    /// When the message was accepted.
    pub accepted_at: Micros,
    /// The time from which its deadlines count: its acceptance, its due time, or when it was resumed.
    pub at: Micros,
    /// Suspended by its user.
    pub held: bool,
    /// How often its hard deadline has passed.
    pub late: u32,
    /// The limits for its dead letter, from its last missed deadline.
    pub dead_letters: DeadLetterLimits,
}

impl Pending {
    /// A message that was accepted at `accepted_at`. Its lane is free since `free_from`, as far as the state knows.
    fn new(task: TaskId, seq: Seq, inbound: Inbound, accepted_at: Micros, free_from: Micros) -> Self {
        let at = inbound.not_before.map_or(accepted_at, |due| due.max(accepted_at)).max(free_from);
        Self { task, seq, inbound, accepted_at, at, held: false, late: 0, dead_letters: DeadLetterLimits::default() }
    }

    /// When the message is due, if it has a due time.
    #[must_use]
    pub const fn not_before(&self) -> Option<Micros> {
        self.inbound.not_before
    }
}

/// A job command: a message about tasks, which the kernel carries out without a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobCommand {
    /// Its task.
    pub task: TaskId,
    /// Its sequence number in the log, which is also its queue position.
    pub seq: Seq,
    /// The message.
    pub inbound: Inbound,
    /// The resolved meaning. Once it is set, exactly this is carried out.
    pub meant: Option<Meant>,
}

/// The resolved meaning of a job command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meant {
    /// The operation.
    pub verb: JobVerb,
    /// The tasks that it applies to.
    pub targets: Vec<TaskId>,
    /// The reply to the user.
    pub text: String,
}

impl JobCommand {
    pub(super) fn directive(&self) -> Directive {
        match &self.meant {
            None => Directive::Understand { task: self.task, text: self.inbound.text.clone() },
            Some(Meant { verb, targets, text }) => {
                Directive::CarryOut { task: self.task, verb: *verb, targets: targets.clone(), text: text.clone() }
            }
        }
    }
}

/// A message for the same work as another task, whose answer it receives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// Its task.
    pub task: TaskId,
    /// The task whose answer it receives.
    pub into: TaskId,
    /// The class that the other task must still get if its own is less urgent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifts: Option<Priority>,
}

impl Conversation {
    /// Queues a message of the log. A live Engine may receive it late, a replay receives it at its position in the log. Both
    /// reach the same state, because the sequence number gives the queue position, and the task that the message joins is
    /// decided on reception and stored as an event.
    pub(super) fn received(&mut self, seq: Seq, at: Micros, task: TaskId, inbound: &Inbound) {
        if self.is_open(task) || self.finished.contains(&task) {
            return;
        }
        self.is_listed |= !inbound.stateless;
        if inbound.order {
            let index = self.job_commands.partition_point(|o| o.seq <= seq);
            self.job_commands.insert(index, JobCommand { task, seq, inbound: inbound.clone(), meant: None });
        } else {
            let free_from = self.free_from[Lane::of(inbound.priority) as usize];
            self.enqueue(Pending::new(task, seq, inbound.clone(), at, free_from));
        }
    }

    fn enqueue(&mut self, pending: Pending) {
        let index = self.inbox.partition_point(|p| p.seq <= pending.seq);
        self.inbox.insert(index, pending);
    }

    /// The next message that must join another task, and that task. A message names only tasks that were accepted before it,
    /// so joins form no cycles.
    pub(super) fn joining(&self) -> Option<(TaskId, TaskId)> {
        self.inbox.iter().find_map(|p| {
            let same = p.inbound.same_as.filter(|into| *into != p.task && self.is_open(*into));
            Some((p.task, same.or_else(|| self.steered_by(p))?))
        })
    }

    /// The turn that a message steers: the newest of its own lane, otherwise the newest of all. A private message steers no
    /// turn that may run on cloud backends.
    fn steered_by(&self, pending: &Pending) -> Option<TaskId> {
        let Pending { inbound, accepted_at, held, .. } = pending;
        let accepts = |t: &&Turn| t.hears_from.is_some_and(|from| from <= *accepted_at);
        let fits_privacy = |t: &&Turn| !inbound.private || t.inbound.private;
        let fitting = || self.turns.iter().rev().filter(|t| inbound.steer && !held && accepts(t) && fits_privacy(t));
        let own = fitting().find(|t| t.lane == Lane::of(inbound.priority));
        own.or_else(|| fitting().next()).map(|t| t.task)
    }

    /// Joins a message to the task that the log names.
    pub(super) fn join(&mut self, task: TaskId, into: TaskId) {
        let Some(index) = self.inbox.iter().position(|p| p.task == task) else { return };
        let Some(pending) = self.inbox.remove(index) else { return };
        let steers = pending.inbound.steer;
        if pending.inbound.same_as == Some(into) && self.is_open(into) {
            self.joined.push(Joined { task, into, lifts: pending.inbound.lifts });
        } else if let Some(turn) = self.turns.iter_mut().find(|t| t.task == into && steers) {
            turn.heard.push(pending);
        } else {
            self.enqueue(pending);
        }
    }

    /// Returns a steering message that the model did not see to its old queue position. It steers no other turn.
    pub(super) fn return_to_inbox(&mut self, mut unseen: Pending) {
        unseen.at = self.at.max(unseen.at);
        unseen.inbound.steer = false;
        self.enqueue(unseen);
    }

    /// The messages of a lane that are not suspended, oldest first; empty while a turn blocks the lane.
    fn ready_in(&self, lane: Lane) -> impl Iterator<Item = &Pending> {
        let is_free = !self.turns.iter().any(|t| t.lane == lane && !t.aside);
        self.inbox.iter().filter(move |p| is_free && !p.held && Lane::of(p.inbound.priority) == lane)
    }

    /// The message of a lane whose turn may begin now: the oldest that is due. A message that is not due does not block others.
    pub(super) fn next_in(&self, lane: Lane, now: Micros) -> Option<&Pending> {
        self.ready_in(lane).find(|p| p.not_before().is_none_or(|at| at <= now))
    }

    /// The message, if its turn may begin once it is due. Only messages with a due time let later messages pass.
    #[must_use]
    pub fn may_begin(&self, task: TaskId) -> Option<&Inbound> {
        let next = |lane| {
            let mut blocked = false;
            self.ready_in(lane).find(move |p| {
                let is_task = p.task == task && !blocked;
                blocked |= p.not_before().is_none();
                is_task
            })
        };
        Lane::ALL.into_iter().find_map(next).map(|p| &p.inbound)
    }

    /// Removes the message whose turn has begun. Whether the turn was allowed to begin was checked when it began: a message that
    /// precedes it now may have been received only later.
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

    /// Returns steering messages that the model has not seen to the inbox, so that suspending or deferring this turn does not
    /// suspend them.
    pub(super) fn return_unseen_steering(&mut self, task: TaskId) {
        let turn = self.turns.iter_mut().find(|t| t.task == task);
        for unseen in turn.map(|t| std::mem::take(&mut t.heard)).unwrap_or_default() {
            self.return_to_inbox(unseen);
        }
    }

    /// Suspends or resumes a task. Resuming also ends a deferral. A turn that was suspended once does not block its lane again.
    pub(super) fn set_suspended(&mut self, task: TaskId, is_suspended: bool) {
        let at = self.at;
        if is_suspended {
            self.return_unseen_steering(task);
        } else if let Some(turn) = self.turns.iter_mut().find(|t| t.task == task) {
            turn.deferral.is_lifted = turn.deferral.until.is_some_and(|until| until > at);
        }
        if let Some(turn) = self.turns.iter_mut().find(|t| t.task == task && t.suspended != is_suspended) {
            turn.suspended = is_suspended;
            turn.aside = true;
            turn.restart_clock(at);
        } else if let Some(pending) = self.inbox.iter_mut().find(|p| p.task == task && p.held != is_suspended) {
            pending.held = is_suspended;
            pending.at = pending.at.max(at);
        }
        self.start_clocks();
    }

    /// Changes a task's class. The task gets the lane and the deadlines of the new class, which count from now. Only voice is
    /// REALTIME: no task enters or leaves that class.
    pub(super) fn reprioritise(&mut self, task: TaskId, priority: Priority) {
        for joined in self.joined.iter_mut().filter(|j| j.into == task) {
            // A joined message raises the class only once. A later change of the class is deliberate and stays.
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
        self.start_clocks();
    }

    /// A task that must get a more urgent class, that class, and the joined task that it comes from.
    pub(super) fn priority_lift(&self) -> Option<(TaskId, Priority, TaskId)> {
        self.joined.iter().find_map(|j| {
            let class = j.lifts.filter(|class| *class != Priority::Realtime)?;
            let pending = || self.inbox.iter().find(|p| p.task == j.into).map(|p| p.inbound.priority);
            let own = self.turn(j.into).map(|t| t.inbound.priority).or_else(pending)?;
            (class < own).then_some((j.into, class, j.task))
        })
    }

    pub(super) fn resolve_job_command(&mut self, task: TaskId, verb: JobVerb, targets: &[TaskId], text: &str) {
        if let Some(command) = self.job_commands.iter_mut().find(|o| o.task == task && o.meant.is_none()) {
            command.meant = Some(Meant { verb, targets: targets.to_vec(), text: text.to_owned() });
        }
    }

    /// Records that a pending message missed its hard deadline; a suspended message has no deadlines. Returns false if the task
    /// is not a pending message.
    pub(super) fn note_missed_deadline(&mut self, task: TaskId, dead_letters: Option<&DeadLetterLimits>) -> bool {
        let at = self.at;
        let Some(pending) = self.inbox.iter_mut().find(|p| p.task == task) else { return false };
        if !pending.held {
            pending.late = pending.late.saturating_add(1);
            pending.dead_letters = dead_letters.cloned().unwrap_or_default();
            pending.at = at;
        }
        true
    }

    /// Removes a message that ends without a turn of its own. Returns false if there is no such message.
    pub(super) fn remove_without_turn(&mut self, task: TaskId, text: &str) -> bool {
        if let Some(at) = self.inbox.iter().position(|p| p.task == task) {
            self.inbox.remove(at);
        } else if let Some(at) = self.job_commands.iter().position(|o| o.task == task) {
            let command = self.job_commands.remove(at);
            let Inbound { text: user, private, .. } = command.inbound;
            self.history.push(Exchange { user, answer: text.to_owned(), private, steps: Vec::new() });
        } else if let Some(at) = self.joined.iter().position(|j| j.task == task) {
            self.joined.remove(at);
        } else if let Some(at) = self.owed.iter().position(|(owed, _)| *owed == task) {
            self.owed.remove(at);
        } else {
            return self.turns.iter_mut().any(|t| t.drop_steering(task));
        }
        true
    }

    /// Schedules the final event of a task for all messages that joined it.
    pub(super) fn release_joined(&mut self, task: TaskId, end: FinalEvent<'_>) {
        let (released, rest): (Vec<_>, Vec<_>) = self.joined.drain(..).partition(|j| j.into == task);
        self.joined = rest;
        self.owed.extend(released.into_iter().map(|j| (j.task, same_final(end))));
    }

    /// The next deadline: its time, its task, and whether it is the hard one. Suspended tasks have no deadlines.
    #[must_use]
    pub fn next_deadline(&self, deadlines: &Deadlines) -> Option<(Micros, TaskId, bool)> {
        self.next_deadline_adjusted(deadlines, |_, at, _| at)
    }

    /// Like [`Self::next_deadline`], for a caller that knows of waits that are not recorded yet. `moved` moves a turn's deadline
    /// by these waits; its last argument says whether the deadline is the hard one.
    #[must_use]
    pub fn next_deadline_adjusted(
        &self,
        deadlines: &Deadlines,
        moved: impl Fn(&Turn, Micros, bool) -> Micros,
    ) -> Option<(Micros, TaskId, bool)> {
        let turns =
            self.turns.iter().filter(|t| !t.suspended && !t.cancelled && !t.may_wait_for_others()).filter_map(|t| {
                let (deadline, permit_ms_max) = (t.deadline(deadlines), deadlines.permit_ms_max(t.inbound.priority));
                let (at, is_hard) = t.clock.next(deadline, permit_ms_max)?;
                // A moved soft deadline does not delay the hard one.
                let hard = moved(t, t.clock.after(deadline.hard_ms, permit_ms_max), true);
                let soft = (!is_hard).then(|| moved(t, at, false)).filter(|soft| *soft < hard);
                Some(soft.map_or((hard, t.task, true), |soft| (soft, t.task, false)))
            });
        // A message behind a turn of its own lane has no deadline: the deadlines of that turn count.
        let pending = Lane::ALL.into_iter().flat_map(|lane| self.ready_in(lane)).map(|p| {
            let hard_ms = deadlines.of(p.inbound.priority).hard_ms;
            (p.at.later_ms(hard_ms), p.task, true)
        });
        turns.chain(pending).min()
    }

    /// Restarts the deadlines of messages whose lane has become free. `free_from` also covers messages that queued in the log at
    /// that time and are received later.
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

    /// When the next message becomes due.
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
    /// The soft deadline in milliseconds. The time that a model processes its prompt before its first token does not count.
    fn soft_ms(self, deadline: Deadline) -> u64 {
        deadline.soft_ms.saturating_add(self.prefill_ms)
    }

    /// The time `ms` after the clock began. Waits for permits beyond `permit_ms_max` count as the turn's time.
    fn after(self, ms: u64, permit_ms_max: u64) -> Micros {
        let beyond_ms = self.waited_ms.saturating_sub(permit_ms_max);
        self.from.later_ms(ms).plus_ms(-i64::try_from(beyond_ms).unwrap_or(i64::MAX))
    }

    /// The next deadline, and whether it is the hard one. Of the waits for permits, `permit_ms_max` does not count as the turn's
    /// time; longer waits do.
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
    /// The part of a wait for permits that does not count as this turn's time, in milliseconds. `waited_ms` is not recorded in
    /// the log yet.
    #[must_use]
    pub fn permit_credit_ms(&self, deadlines: &Deadlines, waited_ms: u64) -> u64 {
        let most_ms = deadlines.permit_ms_max(self.inbound.priority);
        waited_ms.min(most_ms.saturating_sub(self.clock.waited_ms))
    }

    /// A spoken request has the deadline of its kind [S2 4]; all others have the deadline of their class.
    fn deadline(&self, deadlines: &Deadlines) -> Deadline {
        match self.facts.spoken_as {
            Some(kind) if self.inbound.priority == Priority::Realtime => deadlines.voice(kind),
            _ => deadlines.of(self.inbound.priority),
        }
    }

    /// Updates whether messages may steer the turn: it must be running and have another round soon. A message that was accepted
    /// before that gets a turn of its own, even if it is received later.
    pub(super) fn update_steerable(&mut self, at: Micros) {
        let works = !self.suspended && !self.cancelled && !self.may_wait_for_others();
        let accepts = works && !self.clock.hard_passed && self.main.ending().is_none();
        let deferred_until = self.deferral.until.filter(|until| *until > at);
        let from = || deferred_until.unwrap_or_else(|| self.hears_from.map_or(at, |from| from.min(at)));
        self.hears_from = accepts.then(from);
    }

    /// Restarts the deadlines. They do not count before the end of a deferral.
    pub(super) fn restart_clock(&mut self, at: Micros) {
        self.clock = Clock::starting(self.deferral.until.map_or(at, |until| until.max(at)));
    }

    /// Whether the turn may still wait for the tasks that it depends on, as far as the state shows: its first round has no
    /// result yet.
    pub(super) fn may_wait_for_others(&self) -> bool {
        !self.inbound.after.is_empty() && self.main.awaits(1)
    }

    /// Whether the turn works on a task: its own, or one that steers it.
    #[must_use]
    pub fn works_on(&self, task: TaskId) -> bool {
        self.task == task || self.is_steered_by(task)
    }

    /// Whether a message steers the turn.
    pub(super) fn is_steered_by(&self, task: TaskId) -> bool {
        self.told.contains(&task) || self.heard.iter().any(|p| p.task == task)
    }

    /// Removes a steering message that ends on its own. Text that the model has seen stays in the context.
    fn drop_steering(&mut self, task: TaskId) -> bool {
        let steered = self.is_steered_by(task);
        self.told.retain(|seen| *seen != task);
        self.heard.retain(|p| p.task != task);
        steered
    }
}

/// The final event of a joined task, copied from the task that did the work.
fn same_final(end: FinalEvent<'_>) -> EventBody {
    match end {
        // The usage counts for the task that did the work, and the dead letter is stored once.
        FinalEvent::Answered { text, paused, outcome, finish, calls, usage: _ } => EventBody::Answered {
            text: text.to_owned(),
            paused,
            usage: crate::message::Usage::default(),
            outcome,
            finish,
            calls: calls.to_vec(),
        },
        FinalEvent::Failed { code, text, detail, dead_letter: _ } => EventBody::Failed {
            code: code.to_owned(),
            text: text.to_owned(),
            detail: detail.to_owned(),
            dead_letter: None,
        },
        FinalEvent::Cancelled { text } => EventBody::Cancelled { text: text.to_owned() },
    }
}

/// The final event of a message that steered a turn.
pub(super) fn steering_final(end: FinalEvent<'_>) -> EventBody {
    match end {
        FinalEvent::Answered { .. } => EventBody::answered(STEERING_ANSWER),
        FinalEvent::Failed { .. } | FinalEvent::Cancelled { .. } => same_final(end),
    }
}
