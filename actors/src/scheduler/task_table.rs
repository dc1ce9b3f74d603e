//! The scheduler's data: every open task, the queue of every backend, and the choice of the next round. It contains no actor:
//! the caller passes the time in, and permits come out.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use annie_core::{
    event::Priority,
    ids::{ConversationId, TaskId, UserId},
    queue::{BackendId, Queue, QueueLimits, Waiting, WorkKey},
    time::Micros,
};
use tokio::sync::oneshot;

use super::{
    NoPermit, Permit, PermitRequest, SchedulerMsg,
    admission_queue::{AdmissionQueue, Admitted},
    choice::RoundChoice,
    leases::{Leases, Mark},
    routes::Usable,
};
use crate::{fixed::FixedMap, observe::Handle};

/// A request for a round.
pub(super) struct Ticket {
    pub request: PermitRequest,
    pub reply: oneshot::Sender<Result<Permit, NoPermit>>,
    /// Indices of the backends that may run it.
    pub route: Vec<usize>,
    /// Index of the backend for which it waits.
    pub at: usize,
}

impl Ticket {
    fn is_alive(&self) -> bool {
        !self.reply.is_closed()
    }
}

/// An open task.
pub(super) struct Entry {
    /// Its rank in every queue: class, anchor, preemptions, rounds.
    pub waiting: Waiting,
    /// Its work, for finding equal work.
    pub work: Option<WorkKey>,
    /// The rounds for which it asks.
    pub tickets: Vec<Ticket>,
    /// Receives an answer once the task may start: it works without a round.
    pub works: Option<oneshot::Sender<()>>,
    /// Its user suspended it.
    pub is_held: bool,
    /// An operator paused its class or suspended its conversation.
    pub is_stopped: bool,
    /// No further round starts before this time.
    pub until: Option<Micros>,
    /// Whether it is deferred because its model failed.
    pub has_failed: bool,
    /// The backend on which its last round began.
    pub ran_on: Option<usize>,
    /// The tasks for whose end it waits: open ones, and ones that may be open.
    pub after: BTreeSet<TaskId>,
    /// Whether a round was granted and no further one was asked for since.
    pub is_given: bool,
    /// Whether it takes a queue position, which limits and estimates count.
    pub is_task: bool,
    /// The round of its turn that last asked for a permit, and how many the turn may have.
    pub progress: Option<(u32, u32)>,
    /// When the scheduler first received it.
    pub first_seen_at: Micros,
    /// Since when it is known to be stored.
    pub stored_at: Option<Micros>,
    /// Its sequence number among all tasks that the scheduler has entered.
    pub number: u64,
}

impl Entry {
    /// Whether no round of it is granted, whatever it asks for.
    pub fn is_blocked(&self) -> bool {
        self.is_held || self.is_stopped || self.until.is_some() || !self.after.is_empty()
    }

    /// Whether it waits: it has not begun, asks for a round, or is blocked.
    pub fn waits(&self) -> bool {
        self.waiting.rounds_done == 0 || !self.tickets.is_empty() || self.is_blocked()
    }

    pub fn class(&self) -> Priority {
        self.waiting.class
    }
}

/// Tasks whose end is remembered, so that a late request does not bring one back.
const ENDED_MAX: usize = 10_000;

/// All open tasks and the queues.
pub(super) struct TaskTable {
    pub leases: Arc<Leases>,
    pub limits: QueueLimits,
    me: Handle<SchedulerMsg>,
    /// All waiting tasks: depth limits apply to it.
    pub admission_queue: AdmissionQueue,
    /// The tasks that wait for a slot, by backend.
    pub lines: Vec<Queue>,
    /// REALTIME tasks that wait for a free slot, by backend. They do not queue with the others.
    urgent: Vec<VecDeque<TaskId>>,
    pub entries: FixedMap<TaskId, Entry>,
    /// Open tasks without a queue position: their users, and when they were first received. Other tasks may wait for them.
    unqueued: FixedMap<TaskId, (UserId, Micros)>,
    /// The tasks that wait for the end of a task.
    dependants: HashMap<TaskId, Vec<TaskId>>,
    pub deferred: BTreeSet<(Micros, TaskId)>,
    /// Deferred tasks whose model failed. May also contain tasks that have resumed or ended since.
    pub failed: BTreeSet<TaskId>,
    /// The rounds that every backend accepted when its state was last read.
    pub usable: Vec<Usable>,
    /// When a task of class HIGH was last granted a round, by backend.
    high_at: Vec<Option<Micros>>,
    ended: (VecDeque<TaskId>, HashSet<TaskId>),
    /// Whether the task table has been read, so that the tasks of earlier incarnations are known; before that only voice gets
    /// here.
    pub is_loaded: bool,
    /// Whether a task waits for one that is not known here: the task table shows whether that one is open.
    pub is_unsure: bool,
    pub granted: u64,
    /// How many tasks were entered.
    pub seen: u64,
}

impl TaskTable {
    pub fn new(limits: QueueLimits, leases: Arc<Leases>, me: Handle<SchedulerMsg>) -> Self {
        let backends = leases.len();
        let lines = (0..backends).map(|n| {
            let mut line = Queue::new(limits.clone());
            line.set_slots(id(n), u32::try_from(leases.slots(n)).unwrap_or(u32::MAX));
            line
        });
        let mut table = Self {
            lines: lines.collect(),
            admission_queue: AdmissionQueue::new(limits.clone(), u32::try_from(leases.slots(0)).unwrap_or(u32::MAX)),
            urgent: vec![VecDeque::new(); backends],
            usable: vec![Usable::default(); backends],
            high_at: vec![None; backends],
            limits,
            leases,
            me,
            entries: FixedMap::default(),
            unqueued: FixedMap::default(),
            dependants: HashMap::new(),
            deferred: BTreeSet::new(),
            failed: BTreeSet::new(),
            ended: (VecDeque::new(), HashSet::new()),
            is_loaded: false,
            is_unsure: false,
            granted: 0,
            seen: 0,
        };
        // The next incarnation keeps what the previous one learned about the duration of rounds.
        for n in 0..backends {
            for ran_ms in table.leases.last_rounds(n) {
                table.learn(n, ran_ms);
            }
        }
        table
    }

    /// Estimates use the current number of slots of a backend. Grants are limited by the leases.
    pub fn set_slots(&mut self, n: usize) {
        let slots = u32::try_from(self.leases.slots(n)).unwrap_or(u32::MAX);
        if let Some(line) = self.lines.get_mut(n) {
            line.set_slots(id(n), slots);
        }
        if n == 0 {
            self.admission_queue.set_slots(slots);
        }
    }

    // Tasks

    /// Enters a task, which waits for those of `after` that are open. A task that is unknown here may belong to another
    /// process.
    pub fn enter(
        &mut self,
        mut waiting: Waiting,
        not_before: Option<Micros>,
        after: Vec<TaskId>,
        now: Micros,
    ) -> &mut Entry {
        let task = waiting.task;
        self.seen += 1;
        let mark = self.leases.marked(task).unwrap_or_default();
        waiting.rounds_done = waiting.rounds_done.max(mark.rounds_done);
        waiting.preemptions = waiting.preemptions.max(mark.preemptions);
        self.unqueued.remove(&task);
        let may_be_open = |a: &TaskId| self.owner_of(*a).map_or(!self.has_ended(*a), |owner| *owner == waiting.user);
        let after: BTreeSet<TaskId> = after.into_iter().filter(|a| *a != task && may_be_open(a)).collect();
        self.is_unsure |= after.iter().any(|a| self.owner_of(*a).is_none());
        for other in &after {
            self.dependants.entry(*other).or_default().push(task);
        }
        let until = not_before.filter(|at| *at > now);
        if let Some(until) = until {
            self.deferred.insert((until, task));
        }
        let is_stopped = self.leases.orders().stops(waiting.class, waiting.conversation).is_some();
        let entry = Entry {
            work: waiting.work.take(),
            waiting,
            tickets: Vec::new(),
            works: None,
            is_held: false,
            is_stopped,
            until,
            has_failed: false,
            ran_on: None,
            after,
            is_given: self.leases.is_out(task),
            is_task: true,
            progress: None,
            first_seen_at: now,
            stored_at: None,
            number: self.seen,
        };
        self.entries.entry(task).insert_entry(entry).into_mut()
    }

    /// Enters a task without a queue position: a job command, a steering message, or a message that gets another task's answer.
    pub fn enter_unqueued(&mut self, task: TaskId, user: UserId, now: Micros) {
        if !self.entries.contains_key(&task) && !self.has_ended(task) {
            self.unqueued.entry(task).or_insert((user, now));
        }
    }

    pub fn owner_of(&self, task: TaskId) -> Option<&UserId> {
        self.entries.get(&task).map(|e| &e.waiting.user).or_else(|| self.unqueued.get(&task).map(|(user, _)| user))
    }

    /// Number of open tasks that are known.
    pub fn len(&self) -> usize {
        self.entries.len() + self.unqueued.len()
    }

    /// The tasks without a queue position that were known before `at`.
    pub fn unqueued_before(&self, at: Micros) -> Vec<TaskId> {
        self.unqueued.iter().filter(|(_, (_, first_seen_at))| *first_seen_at < at).map(|(task, _)| *task).collect()
    }

    /// Removes a task that has ended or was never stored.
    pub fn leave(&mut self, task: TaskId, is_ended: bool, now: Micros) {
        if is_ended && self.ended.1.insert(task) {
            self.ended.0.push_back(task);
            if self.ended.0.len() > ENDED_MAX
                && let Some(oldest) = self.ended.0.pop_front()
            {
                self.ended.1.remove(&oldest);
            }
        }
        self.leases.unmark(task);
        // Applies also to a task that only an earlier incarnation knew.
        self.leases.fall_silent(task, now);
        self.unqueued.remove(&task);
        if let Some(entry) = self.entries.remove(&task) {
            if let Some(until) = entry.until {
                self.deferred.remove(&(until, task));
            }
            for other in &entry.after {
                self.forget_waiter(*other, task);
            }
        }
        self.admission_queue.put(task, None, now);
        for line in &mut self.lines {
            line.remove(task);
        }
        for waiter in self.dependants.remove(&task).unwrap_or_default() {
            if let Some(entry) = self.entries.get_mut(&waiter) {
                entry.after.remove(&task);
                self.settle(waiter, now);
            }
        }
    }

    /// A task no longer waits for these tasks.
    pub fn stop_waiting(&mut self, task: TaskId, ended: &[TaskId], now: Micros) {
        let Some(entry) = self.entries.get_mut(&task) else { return };
        for other in ended {
            entry.after.remove(other);
        }
        for other in ended {
            self.forget_waiter(*other, task);
        }
        self.settle(task, now);
    }

    /// Removes the list of waiters of a task when it becomes empty: a task that was never known here never ends here, so its
    /// list would stay.
    fn forget_waiter(&mut self, other: TaskId, waiter: TaskId) {
        let Some(waiters) = self.dependants.get_mut(&other) else { return };
        waiters.retain(|task| *task != waiter);
        if waiters.is_empty() {
            self.dependants.remove(&other);
        }
    }

    /// Number of tasks for whose end others wait.
    pub fn awaited(&self) -> usize {
        self.dependants.len()
    }

    /// Whether a task of a user's conversation works, or is about to. Before the open tasks are known the answer is always yes.
    pub fn works_on(&self, conversation: ConversationId, user: &UserId) -> bool {
        let is_of_it = |e: &&Entry| e.waiting.conversation == conversation && e.waiting.user == *user;
        let mut of_it = self.entries.values().filter(is_of_it);
        !self.is_loaded || of_it.any(|e| !e.is_blocked())
    }

    pub fn has_ended(&self, task: TaskId) -> bool {
        self.ended.1.contains(&task)
    }

    pub fn hold(&mut self, task: TaskId, is_held: bool, now: Micros) {
        let Some(entry) = self.entries.get_mut(&task) else { return };
        entry.is_held = is_held;
        if is_held && entry.class() == Priority::Realtime {
            self.leases.fall_silent(task, now);
        }
        self.settle(task, now);
    }

    pub fn defer(&mut self, task: TaskId, until: Micros, after_failure: bool, now: Micros) {
        let Some(entry) = self.entries.get_mut(&task) else { return };
        if let Some(before) = entry.until.take() {
            self.deferred.remove(&(before, task));
        }
        if until > now {
            entry.until = Some(until);
            self.deferred.insert((until, task));
        }
        entry.has_failed = after_failure && until > now;
        if entry.has_failed {
            self.failed.insert(task);
        }
        self.settle(task, now);
    }

    /// REALTIME is reserved for voice: no task becomes REALTIME or ceases to be it.
    pub fn reprioritise(&mut self, task: TaskId, class: Priority, now: Micros) {
        let Some(entry) = self.entries.get_mut(&task) else { return };
        if entry.class() == class || [entry.class(), class].contains(&Priority::Realtime) {
            return;
        }
        entry.waiting.class = class;
        for line in &mut self.lines {
            line.remove(task);
        }
        self.settle(task, now);
    }

    /// Applies the passing of time: gates whose terms have ended, tasks whose deferral has ended.
    pub fn tick(&mut self, now: Micros) {
        self.leases.tick(now);
        while let Some((until, task)) = self.deferred.first().copied().filter(|(until, _)| *until <= now) {
            self.deferred.remove(&(until, task));
            if let Some(entry) = self.entries.get_mut(&task) {
                entry.until = None;
                entry.has_failed = false;
                // Its waiting time begins when it may run.
                entry.waiting.anchor = entry.waiting.anchor.max(until);
                self.settle(task, now);
            }
        }
    }

    // Rounds

    /// A caller asks for a round.
    pub fn ask(&mut self, request: PermitRequest, reply: oneshot::Sender<Result<Permit, NoPermit>>, now: Micros) {
        let route = match self.route(&request.route) {
            Ok(route) => route,
            Err(none) => {
                let _ = reply.send(Err(none));
                return;
            }
        };
        let task = request.task;
        if self.has_ended(task) || reply.is_closed() {
            // The task has ended or the caller has gone. Without an answer the caller asks again as long as it runs.
            return;
        }
        self.enter_unknown(&request, now);
        let Some(class) = self.entries.get(&task).map(Entry::class) else { return };
        let at = self.pick(&route, class, now);
        self.set_rank(task, request.since, at, now);
        if let Some(entry) = self.entries.get_mut(&task) {
            // Only stored tasks ask for rounds, and requests for embeddings, which the kernel forgets itself.
            entry.stored_at.get_or_insert(now);
            entry.progress = request.progress.or(entry.progress);
            entry.tickets.push(Ticket { request, reply, route, at });
            if class == Priority::Realtime && !entry.is_blocked() {
                self.leases.speak(at, task, now);
            }
        }
        self.settle(task, now);
    }

    /// Sets the rank of a task that asks for a round among its equals: preempted if an urgent task waits, otherwise behind
    /// them.
    fn set_rank(&mut self, task: TaskId, since: Micros, at: usize, now: Micros) {
        let Some(entry) = self.entries.get_mut(&task) else { return };
        entry.tickets.retain(Ticket::is_alive);
        if !entry.tickets.is_empty() {
            // A task with parallel agents: its other rounds keep their rank.
            return;
        }
        let is_given = std::mem::take(&mut entry.is_given);
        let was_preempted = is_given && self.is_preempted(task, at, now);
        let Some(entry) = self.entries.get_mut(&task) else { return };
        let waiting = &mut entry.waiting;
        if is_given {
            if was_preempted {
                waiting.preemptions = waiting.preemptions.saturating_add(1);
                waiting.preempted_at = Some(now);
                metrics::counter!("annie_queue_parks_total").increment(1);
                self.leases.mark(
                    task,
                    Mark { rounds_done: waiting.rounds_done, preemptions: waiting.preemptions, back_at: None },
                );
            } else {
                waiting.anchor = since.min(now);
                waiting.preempted_at = None;
            }
        } else if self.leases.marked(task).is_some() {
            // Its round waited in an earlier incarnation of the scheduler already.
            waiting.anchor = since.min(now);
        } else if since > now {
            let later_ms = i64::try_from(since.since_ms(now)).unwrap_or(i64::MAX);
            waiting.anchor = waiting.anchor.plus_ms(later_ms);
        } else {
            waiting.anchor = waiting.anchor.min(since);
        }
    }

    /// Whether a task of class HIGH waits for the slot that this task had, or has taken it since its round came back.
    fn is_preempted(&mut self, task: TaskId, at: usize, now: Micros) -> bool {
        let Some(entry) = self.entries.get(&task) else { return false };
        let as_there = Waiting { backend: id(at), ..entry.waiting.clone() };
        if self.lines.get_mut(at).is_some_and(|line| line.should_preempt(&as_there, now)) {
            return true;
        }
        let may_be = as_there.class > Priority::High && as_there.preemptions < self.limits.preemptions_max;
        let back_at = self.leases.marked(task).and_then(|mark| mark.back_at);
        let is_taken =
            back_at.is_some_and(|back| self.high_at.get(at).copied().flatten().is_some_and(|high| high >= back));
        may_be && is_taken && self.leases.count(at) >= self.leases.slots(at)
    }

    /// Moves a task to the queues where it belongs, after any change to it.
    pub fn settle(&mut self, task: TaskId, now: Micros) {
        let Some(mut entry) = self.entries.remove(&task) else { return };
        entry.tickets.retain(Ticket::is_alive);
        let class = entry.class();
        entry.is_stopped = self.leases.orders().stops(class, entry.waiting.conversation).is_some();
        if !entry.is_blocked() {
            self.turn_away(&mut entry.tickets, class, now);
            if let Some(works) = entry.works.take() {
                // It no longer waits for its first round. The caller may have gone.
                entry.waiting.rounds_done = entry.waiting.rounds_done.max(1);
                let _ = works.send(());
            }
        }
        for ticket in &mut entry.tickets {
            if !self.leases.stance(ticket.at, class, now).takes() {
                let to = self.pick(&ticket.route, class, now);
                if to != ticket.at {
                    ticket.at = to;
                    metrics::counter!("annie_queue_moves_total").increment(1);
                }
            }
        }
        let backends_waited_for: BTreeSet<usize> = entry.tickets.iter().map(|t| t.at).collect();
        if class == Priority::Realtime {
            for at in backends_waited_for.into_iter().filter(|_| !entry.is_blocked()) {
                if let Some(urgent) = self.urgent.get_mut(at).filter(|u| !u.contains(&task)) {
                    urgent.push_back(task);
                }
            }
        } else {
            for (n, line) in self.lines.iter_mut().enumerate() {
                let is_there = !entry.is_blocked()
                    && backends_waited_for.contains(&n)
                    && self.leases.stance(n, class, now).shut.is_none();
                if !is_there {
                    line.remove(task);
                } else if line.get(task).is_none() {
                    line.restore(Waiting { backend: id(n), ..entry.waiting.clone() }, now);
                }
            }
            let takes_place = entry.is_task && entry.waits();
            self.admission_queue.put(task, takes_place.then(|| Admitted::of(&entry)), now);
        }
        self.entries.insert(task, entry);
    }

    /// Begins rounds wherever slots are free.
    pub fn dispatch(&mut self, now: Micros) {
        // A round that begins may close a rate window, which moves other tasks: the loop runs again for them. Each pass needs a
        // change of some backend, and the bound prevents two backends from passing tasks back and forth without end.
        for _ in 0..=self.lines.len() {
            let mut is_changed = false;
            for n in 0..self.lines.len() {
                is_changed |= self.look_at(n, now);
                while self.leases.count(n) < self.leases.slots(n) {
                    let Some((task, ticket, choice)) = self.next_of(n, now) else { break };
                    self.give(n, (task, choice), ticket, now);
                    is_changed |= self.look_at(n, now);
                }
            }
            if !is_changed {
                return;
            }
        }
    }

    /// Voice goes first, and no other round starts while the gate is closed (invariant 9).
    fn next_of(&mut self, n: usize, now: Micros) -> Option<(TaskId, Ticket, Option<Box<RoundChoice>>)> {
        while let Some(task) = self.urgent.get(n).and_then(VecDeque::front).copied() {
            if self.usable.get(n).is_some_and(|u| u.is_shut_for(Priority::Realtime)) {
                return None;
            }
            self.urgent.get_mut(n).and_then(VecDeque::pop_front);
            if let Some(ticket) = self.take_ticket(task, n) {
                let reason = (0.0, now.since_ms(ticket.request.since), "voice goes first".to_owned());
                let choice = self.choice(n, now, reason);
                return Some((task, ticket, choice));
            }
        }
        if self.usable.get(n).is_none_or(|u| u.is_closed) {
            return None;
        }
        while let Some(grant) = self.lines.get_mut(n)?.pop(id(n), now) {
            let task = grant.waiting.task;
            if let Some(ticket) = self.take_ticket(task, n) {
                let choice = self.choice(n, now, (grant.effective, grant.waited_ms, grant.why.to_string()));
                return Some((task, ticket, choice));
            }
            // The caller has gone.
            self.settle(task, now);
        }
        None
    }

    /// The choice of a task that was just taken from the queue of a backend, if others wait there.
    fn choice(&mut self, n: usize, now: Micros, reason: (f64, u64, String)) -> Option<Box<RoundChoice>> {
        let line = self.lines.get_mut(n).filter(|line| line.ready(id(n)) > 0)?;
        let (others, next) = (line.ready(id(n)), line.peek(id(n), now));
        let mut choice = RoundChoice::among(others, next.as_ref(), reason)?;
        self.leases.name(n).clone_into(&mut choice.backend);
        Some(choice)
    }

    fn take_ticket(&mut self, task: TaskId, n: usize) -> Option<Ticket> {
        let entry = self.entries.get_mut(&task).filter(|e| !e.is_blocked())?;
        let index = entry.tickets.iter().position(|t| t.at == n && t.is_alive())?;
        Some(entry.tickets.remove(index))
    }

    fn give(&mut self, n: usize, (task, choice): (TaskId, Option<Box<RoundChoice>>), ticket: Ticket, now: Micros) {
        if let Some(entry) = self.entries.get_mut(&task) {
            (entry.is_given, entry.ran_on) = (true, Some(n));
            entry.waiting.rounds_done = entry.waiting.rounds_done.saturating_add(1);
            let (rounds_done, preemptions) = (entry.waiting.rounds_done, entry.waiting.preemptions);
            self.leases.mark(task, Mark { rounds_done, preemptions, back_at: None });
            if entry.class() == Priority::Realtime {
                self.leases.speak(n, task, now);
            }
            if let Some(at) = self.high_at.get_mut(n).filter(|_| entry.class() == Priority::High) {
                *at = Some(now);
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "a duration in a histogram")]
        metrics::histogram!("annie_queue_wait_seconds", "priority" => ticket.request.priority.as_str())
            .record(now.since_ms(ticket.request.since) as f64 / 1e3);
        self.granted += 1;
        if let Some(mut permit) = self.leases.lease(n, (task, ticket.request.is_task), now, self.me.clone()) {
            permit.choice = choice;
            // The caller may have gone just now: then the permit is dropped with the answer, and comes back.
            let _ = ticket.reply.send(Ok(permit));
        }
        self.settle(task, now);
    }

    /// A round has ended: learns from its duration. Its permit is back already.
    pub fn observe(&mut self, backend: BackendId, ran_ms: u64) {
        let n = usize::from(backend.0);
        self.leases.note_round(n, ran_ms);
        self.learn(n, ran_ms);
    }

    fn learn(&mut self, n: usize, ran_ms: u64) {
        if let Some(line) = self.lines.get_mut(n) {
            line.observe_round(id(n), ran_ms);
        }
        if n == 0 {
            self.admission_queue.observe_round(ran_ms);
        }
    }

    /// The next time at which something changes without a message; the timer is set to it.
    pub fn next_due(&self) -> Option<Micros> {
        let opens = self.usable.iter().filter_map(Usable::next_change).min();
        let due = self.deferred.first().map(|(until, _)| *until);
        [self.leases.next_expiry(), opens, due].into_iter().flatten().min()
    }
}

/// The id of a backend by its index.
pub(super) fn id(n: usize) -> BackendId {
    BackendId(u16::try_from(n).unwrap_or(u16::MAX))
}
