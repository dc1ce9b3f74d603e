//! The state of one conversation as a fold over its events. Only events change the state, and only in this module, so a
//! replay gives the same state (invariant 5).

#![deny(clippy::wildcard_enum_match_arm)]

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    directive::Directive,
    inbox,
    inbox::{JobCommand, Joined, Pending},
    opening,
    provenance::Provenance,
    report, request,
    run::{AgentRun, Phase, RunKind},
    sub::SubTurn,
    truth,
};
use crate::{
    classify::spoken,
    context::{Exchange, Frames, History},
    dead_letter::{DeadLetterLimits, Strategy},
    event::{AgentReport, Event, EventBody, FinalEvent, Inbound, Mode, Priority, PromptFacts, Recorder},
    ids::{AgentId, ConversationId, Seq, TaskId, UserId},
    limits::{MainInterface, TurnLimits},
    message::{Message, ModelRequest},
    plan::{NodeState, Plan},
    receipt::Receipt,
    skill::SkillSet,
    time::Micros,
};

/// The version of the serialised state. A snapshot of an older version is ignored, and the log is read instead.
pub const STATE_VERSION: u16 = 10;

/// How many finished tasks are remembered, so that a message that is delivered again is not answered again.
const FINISHED_MAX: usize = 32;

/// How many receipts of finished turns are remembered, so that later answers may mention these effects.
const RECEIPTS_MAX: usize = 32;

/// A turn that stopped at a limit and may be continued [S0 5.2].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Paused {
    /// Its task; `None` in older snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The main agent's context at the pause.
    pub messages: Vec<Message>,
    /// How many leading messages are history.
    pub stable: usize,
    /// The sub-agents so far.
    pub plan: Plan,
    /// The turn may run on local backends only.
    pub private: bool,
    /// The sources of what its agents read. The turn that continues it sees the same texts again.
    #[serde(default, skip_serializing_if = "Provenance::is_empty")]
    pub provenance: Provenance,
    /// The receipts of its own effects and of the effects of the turns that it continued. The turn that continues it does
    /// not repeat these effects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<Receipt>,
    /// In-doubt effects of this turn and of the turns that it continued.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_doubt: Vec<(String, Value)>,
    /// An agentic backend worked on it. No receipt shows the effects of that work.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub programs_ran: bool,
}

impl Paused {
    /// The receipts of its effects and of its agents' effects. Both lists may contain an effect of an earlier turn; the result
    /// contains each receipt once.
    pub(super) fn all_receipts(&self) -> Vec<Receipt> {
        each_once(self.receipts.iter().chain(self.plan.receipts()))
    }

    /// The in-doubt effects of this turn and of its agents, each once.
    pub(super) fn all_doubts(&self) -> Vec<(String, Value)> {
        each_once(self.in_doubt.iter().chain(self.plan.in_doubt()))
    }
}

fn each_once<'a, T: Clone + PartialEq + 'a>(all: impl Iterator<Item = &'a T>) -> Vec<T> {
    let mut once: Vec<T> = Vec::new();
    for one in all {
        if !once.contains(one) {
            once.push(one.clone());
        }
    }
    once
}

/// Messages of one lane begin in order, one turn at a time. Two lanes ensure that work for which a user waits never queues
/// behind background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// REALTIME and HIGH.
    Front,
    /// All other classes, which run in the background.
    Back,
}

impl Lane {
    /// Both lanes.
    pub const ALL: [Self; 2] = [Self::Front, Self::Back];

    /// The lane of a class.
    #[must_use]
    pub const fn of(class: Priority) -> Self {
        match class {
            Priority::Realtime | Priority::High => Self::Front,
            Priority::Normal | Priority::Low | Priority::Background => Self::Back,
        }
    }
}

/// A turn that has begun and has no final event yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Its task.
    pub task: TaskId,
    /// The message, without its preamble.
    pub inbound: Inbound,
    /// The mode in which the turn runs.
    pub mode: Mode,
    /// The limits of the turn.
    pub limits: TurnLimits,
    /// The facts that its prompts are built from.
    pub facts: PromptFacts,
    /// The main agent, which answers the user.
    pub main: AgentRun,
    /// The sub-agents of the turn.
    pub plan: Plan,
    /// The states of the running sub-agents according to the log. Sub-agents are started or resumed with these.
    pub runs: BTreeMap<AgentId, AgentRun>,
    /// The progress of the live sub-agents, as they report it to their Engine. If the turn ends an agent, the agent's report is
    /// made from its progress. A replay has it in `runs`.
    #[serde(skip)]
    pub(super) progress: BTreeMap<AgentId, AgentReport>,
    /// When the turn began.
    pub started_at: Micros,
    /// Cancellation was requested.
    pub cancelled: bool,
    /// How often an Engine died during the turn.
    pub crashes: u32,
    /// How often the process ended during the turn.
    pub restarts: u32,
    /// The main agent answered before it saw its agents' results, and must receive them before the turn ends.
    pub owes_results: bool,
    /// The backends that may run its rounds, the preferred one first. If empty, the first configured backend runs them.
    pub route: Vec<String>,
    /// The lane of its class.
    pub lane: Lane,
    /// The turn is detached: it was suspended or deferred once, or waits for other tasks, and no longer blocks its lane.
    pub aside: bool,
    /// Suspended by its user: no further round starts.
    pub suspended: bool,
    /// The state of its deferral.
    pub deferral: Deferral,
    /// The state of its deadlines.
    pub clock: Clock,
    /// The retry strategies that were used after failures.
    pub strategies: Vec<Strategy>,
    /// The reasons of those failures, one line each.
    pub tried: Vec<String>,
    /// When the first of those failures occurred.
    pub failing_since: Option<Micros>,
    /// Notes of the kernel to the model, which are delivered before the next round.
    pub(super) notes: Vec<String>,
    /// Steering messages that its model has not seen yet.
    pub(super) heard: Vec<Pending>,
    /// The tasks of the steering messages that its model has seen.
    pub(super) told: Vec<TaskId>,
    /// Of the messages in `told`, those for which a finished answer waits for one more round, until that round's reply arrives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) waited_for: Vec<Pending>,
    /// Messages accepted from this time on may steer the turn; `None` while no message may.
    pub(super) hears_from: Option<Micros>,
    /// How often the model was notified that its answer does not have the requested format.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub(super) format_repairs: u32,
}

/// The deferral of a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferral {
    /// When the turn resumes; other turns go first until then.
    pub until: Option<Micros>,
    /// How often the turn was deferred.
    pub count: u32,
    /// The turn must be deferred, and the event is not recorded yet.
    pub(super) is_due: bool,
    /// The turn was resumed before `until`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_lifted: bool,
    /// The turn was deferred because its model failed, and resumes as soon as the model answers again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after_failure: bool,
}

/// The state of a task's deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// The time from which the deadlines count.
    pub from: Micros,
    /// The soft deadline has passed.
    pub soft_passed: bool,
    /// The hard deadline has passed.
    pub hard_passed: bool,
    /// The model was asked to finish.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hinted: bool,
    /// How far waits of sub-agents since the main agent's last reply have moved [`Self::from`], in milliseconds. Agents wait at
    /// the same time, so the longest wait counts and not the sum.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub agents_waited_ms: u64,
    /// How far waits for permits have moved [`Self::from`], in milliseconds.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub waited_ms: u64,
    /// How long models processed their prompts before their first tokens, in milliseconds. The soft deadline is later by this.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub prefill_ms: u64,
    /// The sub-agents' part of `prefill_ms` since the main agent's last reply, in milliseconds: the longest, not the sum.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub agents_prefill_ms: u64,
}

impl Clock {
    /// Deadlines that count from this time on.
    #[must_use]
    pub const fn starting(from: Micros) -> Self {
        Self {
            from,
            soft_passed: false,
            hard_passed: false,
            hinted: false,
            agents_waited_ms: 0,
            waited_ms: 0,
            prefill_ms: 0,
            agents_prefill_ms: 0,
        }
    }

    /// Credits the time that a model processed its prompt before its first token. Time before [`Self::from`] does not count.
    pub(super) fn credit_prefill(&mut self, prefill_ms: u64, now: Micros) {
        let prefill_ms = prefill_ms.min(now.since_ms(self.from));
        self.prefill_ms = self.prefill_ms.saturating_add(prefill_ms);
    }

    /// Credits the time that rounds waited for their permits, which is not the turn's time. Waits before [`Self::from`], for
    /// example while the turn was suspended, do not move the deadlines.
    pub(super) fn credit(&mut self, waited_ms: u64, now: Micros) {
        let waited_ms = waited_ms.min(now.since_ms(self.from));
        self.from = self.from.later_ms(waited_ms);
        self.waited_ms = self.waited_ms.saturating_add(waited_ms);
    }
}

/// The state of the conversation that the folds and the decisions of a turn depend on.
#[derive(Clone, Copy)]
pub(super) struct Now {
    /// When the Engine last recorded an event.
    pub at: Micros,
    /// Skill calls of the conversation within its sliding window, plus the calls that all its turns have reserved or running.
    pub window_used: u32,
}

/// The state of one conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// The conversation's id.
    pub id: ConversationId,
    /// The user that the conversation belongs to.
    pub user: UserId,
    /// The sequence number of the last folded event.
    pub seq: Seq,
    /// When the Engine last recorded an event.
    pub at: Micros,
    /// The finished turns, as later turns see them.
    pub history: History,
    /// Accepted messages whose turn has not begun, oldest first.
    pub inbox: VecDeque<Pending>,
    /// Job commands that are not carried out yet.
    pub job_commands: Vec<JobCommand>,
    /// Messages that receive the answer of another task.
    pub joined: Vec<Joined>,
    /// Pending messages, job commands, joined messages and steering messages whose cancellation was requested.
    pub cancelled: Vec<TaskId>,
    /// Final events that still have to be recorded for tasks that receive another task's answer.
    pub(super) owed: VecDeque<(TaskId, EventBody)>,
    /// The turns without a final event, in the order in which they began: at most one in each lane, and the detached turns.
    pub turns: Vec<Turn>,
    /// The last turn that paused at a limit. A front-lane turn that ends without a pause clears it.
    pub paused: Option<Paused>,
    /// The receipts of the last effects of finished turns, oldest first, at most [`RECEIPTS_MAX`].
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub(super) receipts: VecDeque<Receipt>,
    /// The sources of what its turns have read: see [`Provenance`].
    #[serde(default, skip_serializing_if = "Provenance::is_empty")]
    pub known: Provenance,
    /// The times of skill calls, oldest first: the sliding window.
    pub window: VecDeque<Micros>,
    /// The tasks that ended last, oldest first.
    #[serde(default)]
    pub finished: VecDeque<TaskId>,
    /// When each lane was last free.
    pub(super) free_from: [Micros; Lane::ALL.len()],
    /// The conversation appears in lists, because not all of its messages are stateless calls.
    #[serde(default = "listed", skip_serializing_if = "is_true")]
    pub is_listed: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_true(listed: &bool) -> bool {
    *listed
}

/// The default for older snapshots.
const fn listed() -> bool {
    true
}

impl Conversation {
    /// A conversation without events.
    #[must_use]
    pub fn new(id: ConversationId, user: UserId) -> Self {
        Self {
            id,
            user,
            seq: Seq(0),
            at: Micros(0),
            history: History::default(),
            inbox: VecDeque::new(),
            job_commands: Vec::new(),
            joined: Vec::new(),
            cancelled: Vec::new(),
            owed: VecDeque::new(),
            turns: Vec::new(),
            paused: None,
            receipts: VecDeque::new(),
            known: Provenance::default(),
            window: VecDeque::new(),
            finished: VecDeque::new(),
            free_from: [Micros(0); Lane::ALL.len()],
            is_listed: false,
        }
    }

    /// Folds an event of the log. An event that does not fit the state (late, repeated, of another turn) only advances the
    /// sequence number, because the log may contain late events.
    pub fn apply(&mut self, event: &Event) {
        self.seq = event.seq.max(self.seq);
        self.take(event.seq, event.at, event.task, &event.agent, &event.body);
    }

    /// Folds an event whose sequence number is not known yet, but is higher than all others. [`Self::set_last_seq`] sets it
    /// later.
    pub fn fold(&mut self, at: Micros, task: TaskId, agent: &AgentId, body: &EventBody) {
        self.take(Seq(self.seq.0.saturating_add(1)), at, task, agent, body);
    }

    fn take(&mut self, seq: Seq, at: Micros, task: TaskId, agent: &AgentId, body: &EventBody) {
        if is_recorded_by_the_engine(agent, body) {
            self.at = at.max(self.at);
        }
        match body {
            EventBody::Received(inbound) => self.received(seq, at, task, inbound),
            EventBody::Joined { into } => self.join(task, *into),
            EventBody::TurnStarted { mode, facts, limits, route, .. } => self.begin(task, *mode, facts, limits, route),
            EventBody::CancelRequested { .. } => self.cancel(task),
            EventBody::Suspended { .. } => self.set_suspended(task, true),
            EventBody::Continued { .. } => self.set_suspended(task, false),
            EventBody::Reprioritised { priority, .. } => self.reprioritise(task, *priority),
            EventBody::Ordered { verb, targets, text } => self.resolve_job_command(task, *verb, targets, text),
            EventBody::DeadlinePassed { hard, dead_letters } => {
                self.deadline_passed(task, *hard, dead_letters.as_ref());
            }
            EventBody::Deferred { until, after_failure, .. } => self.defer(task, *until, *after_failure),
            EventBody::Retried { strategy, reason } => self.in_turn(task, |turn, now| {
                turn.retry(*strategy, reason, now.at);
            }),
            EventBody::InterfaceChanged { .. } => self.in_turn(task, |turn, now| {
                turn.switch_to_commands(now.window_used);
            }),
            EventBody::AgentStarted { calls_granted } => self.in_turn(task, |turn, now| {
                turn.agent_started(agent, *calls_granted, now.at);
            }),
            EventBody::AgentReported { report } => {
                self.in_turn_with_calls(task, |turn, now| turn.agent_reported(now.at, agent, report));
            }
            EventBody::ResultsGiven => self.in_turn(task, |turn, _| turn.give_results()),
            EventBody::Resumed { cause } => self.in_turn(task, |turn, now| turn.resumed(*cause, now.at)),
            EventBody::ModelReplied { .. }
            | EventBody::ModelFailed { .. }
            | EventBody::RoundBegan { .. }
            | EventBody::RoundNotBegun { .. }
            | EventBody::SkillStarted { .. }
            | EventBody::SkillFinished { .. } => {
                self.in_turn_with_calls(task, |turn, now| turn.fold_run(now, at, agent, body));
            }
            // Records for readers of the log, and facts about a task that has ended.
            EventBody::Decided { .. } | EventBody::DeadLetterDue { .. } | EventBody::DeadLetterMoved { .. } => {}
            EventBody::Answered { .. } | EventBody::Failed { .. } | EventBody::Cancelled { .. } => {
                if let Some(end) = body.as_final() {
                    self.finish(task, end);
                }
            }
        }
        for turn in &mut self.turns {
            turn.update_steerable(self.at);
        }
    }

    /// Folds an event into the open turn of a task, if there is one.
    fn in_turn(&mut self, task: TaskId, fold: impl FnOnce(&mut Turn, Now)) {
        self.in_turn_with_calls(task, |turn, now| {
            fold(turn, now);
            0
        });
    }

    /// Folds an event into the open turn of a task, if there is one. `fold` returns how many skill calls the event adds to the
    /// conversation's window.
    fn in_turn_with_calls(&mut self, task: TaskId, fold: impl FnOnce(&mut Turn, Now) -> u32) {
        let at = self.at;
        let Some(window_used) = self.turn(task).map(|t| self.window_used(&t.limits)) else { return };
        let Some(turn) = self.turns.iter_mut().find(|t| t.task == task) else { return };
        let round = turn.main.round;
        let calls = fold(turn, Now { at, window_used });
        if turn.main.phase == Phase::Thinking && turn.main.round != round {
            turn.deliver_notes();
        }
        if calls > 0 {
            let from = window_start(at, &turn.limits);
            self.window.retain(|t| *t >= from);
            self.window.extend(std::iter::repeat_n(at, calls as usize));
        }
    }

    /// Records that a deadline of a turn, or of a message whose turn has not begun, has passed.
    fn deadline_passed(&mut self, task: TaskId, is_hard: bool, dead_letters: Option<&DeadLetterLimits>) {
        if !(is_hard && self.note_missed_deadline(task, dead_letters)) {
            self.in_turn(task, |turn, _| turn.deadline_passed(is_hard));
        }
    }

    /// Defers a turn. Messages that steer it and that its model has not seen are not deferred with it.
    fn defer(&mut self, task: TaskId, until: Micros, after_failure: bool) {
        let mut is_deferred = false;
        self.in_turn(task, |turn, now| is_deferred = turn.defer_until(until, after_failure, now.at));
        if is_deferred {
            self.return_unseen_steering(task);
            self.start_clocks();
        }
    }

    /// Sets the sequence number of the last folded event.
    pub fn set_last_seq(&mut self, seq: Seq) {
        self.seq = seq.max(self.seq);
    }

    /// Records that a round of this turn's main agent may have begun on an agentic backend. No decision follows from it, but if
    /// the turn ends before the round, its final event says that the work may have taken effect. Returns true if this was not
    /// recorded yet.
    pub fn round_acts(&mut self, task: TaskId, round: u32) -> bool {
        self.turns.iter_mut().find(|t| t.task == task).is_some_and(|turn| turn.main.round_acts(round))
    }

    /// Records the progress of a live sub-agent. A live Engine does not fold the events of its agents, so it calls this before
    /// [`Self::decide`]. If the turn then ends the agent, the agent's report contains its progress.
    pub fn agent_progress(&mut self, task: TaskId, agent: &AgentId, progress: AgentReport) {
        let Some(turn) = self.turns.iter_mut().find(|t| t.task == task) else { return };
        if turn.runs.contains_key(agent) {
            turn.progress.insert(agent.clone(), progress);
        }
    }

    /// Records that no round of this turn's main agent runs on an agentic backend: the round did not begin there.
    pub fn round_does_not_act(&mut self, task: TaskId) {
        if let Some(turn) = self.turns.iter_mut().find(|t| t.task == task) {
            turn.main.acts_in = None;
        }
    }

    /// Begins the turn of a pending message.
    fn begin(&mut self, task: TaskId, mode: Mode, facts: &PromptFacts, limits: &TurnLimits, route: &[String]) {
        let Some(Pending { mut inbound, at, .. }) = self.take_out(task) else { return };
        let frames = Frames::of(task);
        if self.history.is_empty() {
            opening::seed_history(&mut self.history, &inbound.preamble, inbound.private, &frames);
        }
        self.known.preamble(&inbound.preamble);
        inbound.preamble.clear();
        let (lane, has_dependencies) = (Lane::of(inbound.priority), !inbound.after.is_empty());
        let paused = if lane == Lane::Front { self.paused.take() } else { None };
        let mode = limits.main_interface.mode(mode);
        let by_commands = limits.main_interface == MainInterface::Cmd && inbound.thread().is_none();
        let fixed_tokens = request::fixed_tokens(mode, by_commands, facts);
        let opening = match inbound.request.as_mut().and_then(|request| request.thread.as_mut()) {
            // The thread moves into the context, so that the state does not hold it twice.
            Some(thread) => opening::of_thread(std::mem::take(&mut thread.messages)),
            None => opening::open(&mut self.history, paused, &inbound, facts, limits, (mode, fixed_tokens, &frames)),
        };
        let run_limits = opening::run_limits(mode, limits, self.window_used(limits));
        let (agent, kind) = (AgentId::orchestrator(), RunKind::Main(mode));
        let outside = opening::outside_text(&inbound, &frames);
        let mut main = AgentRun::new(agent, kind, opening.messages, opening.stable, run_limits).with_frames(frames);
        (main.known, main.in_doubt) = (opening.receipts, opening.in_doubt);
        main.programs_ran = opening.programs_ran;
        main.earlier = self.receipts.iter().cloned().collect();
        main.is_asked = truth::asks_what_was(&inbound.text);
        // A story or a translation needs no action.
        (main.asks_only, main.told_to_act) = (spoken(&inbound.text).reads_only(), truth::asks_for_prose(&inbound.text));
        main.shows_calls = inbound.is_for_a_program();
        main.takes_cuts = main.shows_calls || inbound.sets_length();
        main.provenance = self.known.clone();
        if !opening.provenance.is_empty() {
            main.provenance.continue_from(&opening.provenance);
        }
        main.provenance.begin(&inbound, facts, &main.messages);
        // Later turns also see an outside party's text in its frame.
        inbound.text = outside.unwrap_or(inbound.text);
        if by_commands {
            main.begin_with_commands(mode, usize::MAX);
        }
        if let Some(retry) = &inbound.retry {
            main.begin_retry(retry);
        }
        self.turns.push(Turn {
            task,
            inbound,
            mode,
            limits: limits.clone(),
            facts: facts.clone(),
            main,
            plan: opening.plan,
            runs: BTreeMap::new(),
            progress: BTreeMap::new(),
            started_at: self.at,
            cancelled: false,
            crashes: 0,
            restarts: 0,
            owes_results: false,
            route: route.to_vec(),
            lane,
            // Its dependencies may take any time, so it must not block its lane.
            aside: has_dependencies,
            suspended: false,
            deferral: Deferral::default(),
            // Before this time the turn could not begin: it was not due, queued behind others, or the process was down.
            clock: Clock::starting(self.at.max(at)),
            strategies: Vec::new(),
            tried: Vec::new(),
            failing_since: None,
            notes: Vec::new(),
            heard: Vec::new(),
            told: Vec::new(),
            waited_for: Vec::new(),
            hears_from: None,
            format_repairs: 0,
        });
    }

    /// Skill calls within the sliding window, plus the calls that open turns have reserved or running.
    pub(super) fn window_used(&self, limits: &TurnLimits) -> u32 {
        self.turns.iter().map(Turn::calls_under_way).fold(self.window_calls(limits), u32::saturating_add)
    }

    /// Skill calls within the sliding window.
    pub(super) fn window_calls(&self, limits: &TurnLimits) -> u32 {
        let from = window_start(self.at, limits);
        u32::try_from(self.window.iter().filter(|t| **t >= from).count()).unwrap_or(u32::MAX)
    }

    fn finish(&mut self, task: TaskId, end: FinalEvent<'_>) {
        let text = end.text();
        let paused = matches!(end, FinalEvent::Answered { paused: true, .. });
        let turn = self.turns.iter().position(|t| t.task == task).map(|at| self.turns.remove(at));
        if let Some(mut turn) = turn {
            if matches!(end, FinalEvent::Answered { .. }) {
                turn.requeue_unseen_steering();
            }
            self.known.remember(&turn.main.provenance);
            self.receipts.extend(turn.own_receipts().cloned());
            self.receipts.drain(..self.receipts.len().saturating_sub(RECEIPTS_MAX));
            let private = turn.inbound.private;
            let answer = report::history_text(&turn, end);
            // A paused turn is continued with its whole context or shown by its report, so its steps are not needed.
            let is_done = matches!(end, FinalEvent::Answered { paused: false, .. });
            let steps = if is_done { turn.main.steps() } else { Vec::new() };
            self.history.push(Exchange { user: turn.inbound.text, answer, private, steps });
            if paused || turn.lane == Lane::Front {
                self.paused = paused.then(|| {
                    let in_doubt = turn.main.doubts();
                    let programs_ran = turn.main.programs_ran || turn.main.acts();
                    let AgentRun { mut messages, stable, receipts, mut known, provenance, .. } = turn.main.broken_off();
                    messages.push(Message::assistant(text));
                    known.extend(receipts);
                    Paused {
                        task: Some(task),
                        messages,
                        stable,
                        plan: turn.plan.resumable(),
                        private,
                        provenance,
                        receipts: known,
                        in_doubt,
                        programs_ran,
                    }
                });
            }
            self.owed.extend(turn.told.into_iter().map(|task| (task, inbox::steering_final(end))));
            for unseen in turn.heard {
                self.return_to_inbox(unseen);
            }
        } else if !self.remove_without_turn(task, text) {
            return;
        }
        self.start_clocks();
        self.release_joined(task, end);
        self.cancelled.retain(|t| *t != task);
        self.finished.push_back(task);
        if self.finished.len() > FINISHED_MAX {
            self.finished.pop_front();
        }
    }

    /// The directives that have no result yet. A message that is not due has none. Job commands are carried out one at a time,
    /// because "pause that" and "go on" in the wrong order would mean the opposite.
    #[must_use]
    pub fn outstanding(&self, now: Micros) -> Vec<Directive> {
        let turns = self.turns.iter().flat_map(Turn::outstanding);
        let begins = Lane::ALL.into_iter().filter_map(|lane| self.next_in(lane, now));
        let begins = begins.map(|p| Directive::BeginTurn { task: p.task });
        turns.chain(begins).chain(self.job_commands.first().map(JobCommand::directive)).collect()
    }

    /// Whether no work is running or pending, except suspended work.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.turns.iter().all(Turn::is_at_rest)
            && self.inbox.iter().all(|p| p.held)
            && self.job_commands.is_empty()
            && self.owed.is_empty()
    }

    /// The open turn of a task.
    #[must_use]
    pub fn turn(&self, task: TaskId) -> Option<&Turn> {
        self.turns.iter().find(|t| t.task == task)
    }

    /// Whether a task is accepted and has no final event yet.
    #[must_use]
    pub fn is_open(&self, task: TaskId) -> bool {
        self.turn(task).is_some()
            || self.inbox.iter().any(|p| p.task == task)
            || self.job_commands.iter().any(|o| o.task == task)
            || self.joined.iter().any(|j| j.task == task)
            || self.turns.iter().any(|t| t.is_steered_by(task))
            || self.owed.iter().any(|(owed, _)| *owed == task)
    }

    /// The state with which a sub-agent runs.
    #[must_use]
    pub fn sub_turn(&self, task: TaskId, agent: &AgentId) -> Option<SubTurn> {
        let turn = self.turn(task)?;
        let node = turn.plan.node(agent)?;
        let NodeState::Running { calls_granted, since } = node.state else { return None };
        Some(SubTurn {
            task: turn.task,
            user: self.user.clone(),
            conversation: self.id,
            spec: node.spec.clone(),
            facts: turn.facts.clone(),
            limits: turn.limits.clone(),
            priority: turn.inbound.priority,
            route: turn.route.clone(),
            run: turn.runs.get(agent)?.clone(),
            calls_granted,
            since,
        })
    }

    /// The request of the main agent's current round. Only the names of `skills` are part of it, and the model does not see
    /// them.
    #[must_use]
    pub fn request(&self, task: TaskId, skills: &SkillSet) -> Option<ModelRequest> {
        let turn = self.turn(task)?;
        Some(super::request::main(self.id, turn, skills))
    }
}

/// Whether the Engine recorded this event, so that the event's timestamp advances the conversation's time. Front ends,
/// background workers, rounds, breakers and agents append events of their own, which a live Engine receives later or never.
/// If the timestamps of those advanced the time, a replay would reach states that no live Engine had.
fn is_recorded_by_the_engine(agent: &AgentId, body: &EventBody) -> bool {
    match body.recorder() {
        Recorder::Engine => true,
        Recorder::Agent => agent.is_orchestrator(),
        Recorder::FrontEnd | Recorder::Round | Recorder::Breaker | Recorder::DeadLetters | Recorder::Several => false,
    }
}

fn window_start(at: Micros, limits: &TurnLimits) -> Micros {
    at.plus_ms(i64::try_from(limits.window_ms).unwrap_or(i64::MAX).saturating_neg())
}
