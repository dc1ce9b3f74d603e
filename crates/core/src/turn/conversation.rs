//! The state of one conversation as a fold over its events. Nothing changes except here, by an event: so a replay gives the
//! same state (invariant 5).

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    directive::Directive,
    inbox,
    inbox::{Joined, Order, Pending},
    opening,
    provenance::Provenance,
    report, request,
    run::{AgentRun, RunKind},
    sub::SubTurn,
    truth,
};
use crate::{
    classify::spoken,
    context::{Exchange, Frames, History},
    event::{AgentReport, Event, EventBody, Inbound, Mode, Priority, PromptFacts},
    ids::{AgentId, ConversationId, Seq, TaskId, UserId},
    letter::Strategy,
    limits::{MainInterface, TurnLimits},
    message::{Message, ModelRequest},
    plan::{NodeState, Plan},
    receipt::Receipt,
    skill::SkillSet,
    time::Micros,
};

/// The version of the shape below, for snapshots: an older snapshot is ignored and the log is read instead.
pub const STATE_VERSION: u16 = 9;

/// How many finished tasks are remembered, so that a message that comes again is not answered again.
const FINISHED_MAX: usize = 32;

/// How many receipts of finished turns are remembered, so that what was done may be told.
const RECEIPTS_MAX: usize = 32;

/// A turn that stopped at a limit and may go on [S0 5.2].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Paused {
    /// Its task; older snapshots do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The context as it was.
    pub messages: Vec<Message>,
    /// How many of those are history.
    pub stable: usize,
    /// The agents so far.
    pub plan: Plan,
    /// It must not leave the house.
    pub private: bool,
    /// What it was told: the turn that continues it is shown the same texts again.
    #[serde(default, skip_serializing_if = "Provenance::is_empty")]
    pub provenance: Provenance,
    /// The receipts of its own effects and of those of the turns that it continued: the turn that continues it does not
    /// repeat them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<Receipt>,
    /// Effects of its own that may have happened, and of the turns that it continued.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_doubt: Vec<(String, Value)>,
    /// A program worked on it: what that did, no receipt shows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub programs_ran: bool,
}

impl Paused {
    /// The receipts of its effects and of its agents', each once: what a turn before it did, both lists may have.
    pub(super) fn all_receipts(&self) -> Vec<Receipt> {
        each_once(self.receipts.iter().chain(self.plan.receipts()))
    }

    /// Effects of its own and of its agents that may have happened, each once.
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

/// Turns of one lane follow one another: what a person waits for never stands behind what nobody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// REALTIME and HIGH.
    Front,
    /// Everything else: it goes on in the background.
    Back,
}

impl Lane {
    /// Both.
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

/// A turn under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Its task.
    pub task: TaskId,
    /// The message, without what came before it.
    pub inbound: Inbound,
    /// How it is run.
    pub mode: Mode,
    /// What it may use up.
    pub limits: TurnLimits,
    /// What its prompts are made of.
    pub facts: PromptFacts,
    /// The agent that answers the user.
    pub main: AgentRun,
    /// The sub-agents.
    pub plan: Plan,
    /// The running sub-agents' own states, as far as the log tells: what they are started or resumed with.
    pub runs: BTreeMap<AgentId, AgentRun>,
    /// What the live sub-agents have done so far, as they themselves tell their Engine: the report of an agent that the turn
    /// ends is made of this. A replay has it in `runs`.
    #[serde(skip)]
    pub(super) progress: BTreeMap<AgentId, AgentReport>,
    /// When it began.
    pub started_at: Micros,
    /// Somebody asked to cancel it.
    pub cancelled: bool,
    /// How often an Engine died in it.
    pub crashes: u32,
    /// How often the process ended in it.
    pub restarts: u32,
    /// The run ended without a look at its agents' results, and has to be given them.
    pub owes_results: bool,
    /// The backends that may run its rounds, the one meant first; nothing means the first that is configured.
    pub route: Vec<String>,
    /// The lane of its class.
    pub lane: Lane,
    /// It does not hold up its lane any more: it was held back or deferred once.
    pub aside: bool,
    /// Held back by its user: no further round starts.
    pub suspended: bool,
    /// It was deferred until then, how often altogether, and whether that is still to be recorded.
    pub deferral: Deferral,
    /// How it stands with its deadlines.
    pub clock: Clock,
    /// What was tried after failures, and what failed, one line each.
    pub strategies: Vec<Strategy>,
    /// See `strategies`.
    pub tried: Vec<String>,
    /// When the first of those failed.
    pub failing_since: Option<Micros>,
    /// What the kernel has to tell its model before the next round.
    pub(super) notes: Vec<String>,
    /// Messages that steer it and that its model has not seen yet.
    pub(super) heard: Vec<Pending>,
    /// Those that it has seen.
    pub(super) told: Vec<TaskId>,
    /// Of those, the ones for whose sake an answer that was said already waits for one more round, until that is there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) waited_for: Vec<Pending>,
    /// Messages that were accepted from then on may join it; nothing while none may.
    pub(super) hears_from: Option<Micros>,
    /// How often the model was told that its answer has not the form that was asked for.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub(super) format_repairs: u32,
}

/// When a turn goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferral {
    /// Until then others go first.
    pub until: Option<Micros>,
    /// How often it was deferred.
    pub count: u32,
    /// It is to be deferred.
    pub(super) is_due: bool,
    /// It was let go on before that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_lifted: bool,
    /// Its model failed, and it goes on as soon as that answers again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after_failure: bool,
}

/// How a task stands with its deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// Since when its deadlines count.
    pub from: Micros,
    /// The soft one has passed.
    pub soft_passed: bool,
    /// The hard one has passed.
    pub hard_passed: bool,
    /// Its model was asked to come to an end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hinted: bool,
    /// How much of [`Self::from`] are waits of sub-agents since the main agent's last reply, in milliseconds. Agents wait at
    /// the same time, so the longest wait counts and not the sum.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub agents_waited_ms: u64,
    /// How much of [`Self::from`] are waits for permits, in milliseconds.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub waited_ms: u64,
    /// How long models read before their first tokens, in milliseconds: the soft deadline is later by that.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub prefill_ms: u64,
    /// How much of that are sub-agents' since the main agent's last reply: the longest, and not the sum.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub agents_prefill_ms: u64,
}

impl Clock {
    /// Deadlines that count from then on.
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

    /// A model read for this long before its first token. What it read before its deadlines began to count does not move them.
    pub(super) fn credit_prefill(&mut self, prefill_ms: u64, now: Micros) {
        let prefill_ms = prefill_ms.min(now.since_ms(self.from));
        self.prefill_ms = self.prefill_ms.saturating_add(prefill_ms);
    }

    /// Rounds waited for their permits: that is not the turn's time. What they waited before its deadlines began to count,
    /// such as while its user held it back, does not move them.
    pub(super) fn credit(&mut self, waited_ms: u64, now: Micros) {
        let waited_ms = waited_ms.min(now.since_ms(self.from));
        self.from = self.from.later_ms(waited_ms);
        self.waited_ms = self.waited_ms.saturating_add(waited_ms);
    }
}

/// The state of one conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// Its id.
    pub id: ConversationId,
    /// Whose.
    pub user: UserId,
    /// The last event in it.
    pub seq: Seq,
    /// When the Engine last recorded something.
    pub at: Micros,
    /// Finished turns.
    pub history: History,
    /// Accepted messages whose turn has not begun, oldest first.
    pub inbox: VecDeque<Pending>,
    /// Orders about tasks that are not carried out yet.
    pub orders: Vec<Order>,
    /// Messages that are answered with another's answer.
    pub joined: Vec<Joined>,
    /// Of all those, the ones to cancel.
    pub cancelled: Vec<TaskId>,
    /// Finals that those are owed whose answer is another's, which has come.
    pub(super) owed: VecDeque<(TaskId, EventBody)>,
    /// The turns under way, in the order in which they began: one in each lane, and those that were set aside.
    pub turns: Vec<Turn>,
    /// The last turn, if it paused at a limit.
    pub paused: Option<Paused>,
    /// The receipts of the effects of its finished turns, oldest first, as many as are kept.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub(super) receipts: VecDeque<Receipt>,
    /// What its turns were told: see [`Provenance`].
    #[serde(default, skip_serializing_if = "Provenance::is_empty")]
    pub known: Provenance,
    /// When skills were called, oldest first: the sliding window.
    pub window: VecDeque<Micros>,
    /// The tasks that ended last, oldest first.
    #[serde(default)]
    pub finished: VecDeque<TaskId>,
    /// When each lane was last seen free.
    pub(super) free_from: [Micros; Lane::ALL.len()],
    /// Somebody may come back to it: not all of its messages are stateless calls.
    #[serde(default = "listed", skip_serializing_if = "is_true")]
    pub is_listed: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_true(listed: &bool) -> bool {
    *listed
}

/// What older snapshots mean.
const fn listed() -> bool {
    true
}

impl Conversation {
    /// A conversation in which nothing has happened.
    #[must_use]
    pub fn new(id: ConversationId, user: UserId) -> Self {
        Self {
            id,
            user,
            seq: Seq(0),
            at: Micros(0),
            history: History::default(),
            inbox: VecDeque::new(),
            orders: Vec::new(),
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

    /// Takes in an event of the log. An event that does not fit the state (late, repeated, of another turn) changes
    /// nothing but the place: the log may hold what came too late.
    pub fn apply(&mut self, event: &Event) {
        self.seq = event.seq.max(self.seq);
        self.take(event.seq, event.at, event.task, &event.agent, &event.body);
    }

    /// Takes in an event whose place is not known yet, but behind all others; [`Self::placed`] tells it later.
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
            EventBody::Suspended { .. } | EventBody::Continued { .. } => {
                self.hold(task, matches!(body, EventBody::Suspended { .. }));
                self.start_clocks();
            }
            EventBody::Reprioritised { priority, .. } => {
                self.reprioritise(task, *priority);
                self.start_clocks();
            }
            EventBody::Ordered { verb, targets, text } => self.ordered(task, *verb, targets, text),
            EventBody::Answered { paused, .. } => self.finish(task, body, *paused),
            EventBody::Failed { .. } | EventBody::Cancelled { .. } => self.finish(task, body, false),
            EventBody::DeadlinePassed { hard: true, letters } if self.pending_late(task, letters.as_ref()) => {}
            _ => self.go_on(at, task, agent, body),
        }
        for turn in &mut self.turns {
            turn.note_hearing(self.at);
        }
    }

    /// What an event means for the turn that it is about.
    fn go_on(&mut self, event_at: Micros, task: TaskId, agent: &AgentId, body: &EventBody) {
        let at = self.at;
        let Some(window_used) = self.turn(task).map(|t| self.window_used(&t.limits)) else { return };
        let Some(turn) = self.turns.iter_mut().find(|t| t.task == task) else { return };
        let until = turn.deferral.until;
        let calls = turn.fold((at, event_at), window_used, agent, body);
        let is_put_off = turn.deferral.until != until;
        if calls > 0 {
            let from = window_start(at, &turn.limits);
            self.window.retain(|t| *t >= from);
            self.window.extend(std::iter::repeat_n(at, calls as usize));
        }
        if is_put_off {
            self.give_back_unheard(task);
            self.start_clocks();
        }
    }

    /// Notes the place of the last folded event.
    pub fn placed(&mut self, seq: Seq) {
        self.seq = seq.max(self.seq);
    }

    /// A round of this turn's main agent may have begun on a backend that works by itself. Nothing follows from it here, but
    /// whatever ends the turn before the round ends says that its work may have taken effect. True if this is news.
    pub fn round_acts(&mut self, task: TaskId, round: u32) -> bool {
        self.turns.iter_mut().find(|t| t.task == task).is_some_and(|turn| turn.main.round_acts(round))
    }

    /// What a live sub-agent has done so far. A live Engine does not fold the events of its agents, so it says this before
    /// it asks what follows: an agent that the turn ends then reports what it did.
    pub fn agent_progress(&mut self, task: TaskId, agent: &AgentId, progress: AgentReport) {
        let Some(turn) = self.turns.iter_mut().find(|t| t.task == task) else { return };
        if turn.runs.contains_key(agent) {
            turn.progress.insert(agent.clone(), progress);
        }
    }

    /// No round of this turn's main agent runs on a backend that works by itself: one that was to begin there did not.
    pub fn round_does_not_act(&mut self, task: TaskId) {
        if let Some(turn) = self.turns.iter_mut().find(|t| t.task == task) {
            turn.main.acts_in = None;
        }
    }

    /// Begins the turn of a message that waits.
    fn begin(&mut self, task: TaskId, mode: Mode, facts: &PromptFacts, limits: &TurnLimits, route: &[String]) {
        let Some(Pending { mut inbound, at, .. }) = self.take_out(task) else { return };
        let frames = Frames::of(task);
        if self.history.is_empty() {
            opening::seed_history(&mut self.history, &inbound.preamble, inbound.private, &frames);
        }
        self.known.preamble(&inbound.preamble);
        inbound.preamble.clear();
        let (lane, waits) = (Lane::of(inbound.priority), !inbound.after.is_empty());
        let paused = if lane == Lane::Front { self.paused.take() } else { None };
        let mode = limits.main_interface.mode(mode);
        let by_commands = limits.main_interface == MainInterface::Cmd && inbound.thread().is_none();
        let fixed_tokens = request::fixed_tokens(mode, by_commands, facts);
        let opening = match inbound.request.as_mut().and_then(|request| request.thread.as_mut()) {
            // It is not kept twice.
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
        // Nobody is to act on a story.
        (main.asks_only, main.told_to_act) = (spoken(&inbound.text).reads_only(), truth::asks_for_prose(&inbound.text));
        main.shows_calls = inbound.is_for_a_program();
        main.takes_cuts = main.shows_calls || inbound.sets_length();
        main.provenance = self.known.clone();
        if !opening.provenance.is_empty() {
            main.provenance.continue_from(&opening.provenance);
        }
        main.provenance.begin(&inbound, facts, &main.messages);
        // Later turns see an outside party's text in its frame, too.
        inbound.text = outside.unwrap_or(inbound.text);
        if by_commands {
            main.begin_with_commands(mode, usize::MAX);
        }
        if let Some(retry) = &inbound.retry {
            main.goes_on_after(retry);
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
            // It waits for tasks that may take as long as they like: nobody stands behind it.
            aside: waits,
            suspended: false,
            deferral: Deferral::default(),
            // Before that nobody could work on it: it was not due, stood behind others, or the process was away.
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

    /// Skill calls within the sliding window, and those that turns under way may make or are making.
    pub(super) fn window_used(&self, limits: &TurnLimits) -> u32 {
        self.turns.iter().map(Turn::calls_under_way).fold(self.window_calls(limits), u32::saturating_add)
    }

    /// Skill calls within the sliding window.
    pub(super) fn window_calls(&self, limits: &TurnLimits) -> u32 {
        let from = window_start(self.at, limits);
        u32::try_from(self.window.iter().filter(|t| **t >= from).count()).unwrap_or(u32::MAX)
    }

    fn finish(&mut self, task: TaskId, body: &EventBody, paused: bool) {
        let text = match body {
            EventBody::Answered { text, .. } | EventBody::Failed { text, .. } | EventBody::Cancelled { text } => text,
            _ => return,
        };
        let turn = self.turns.iter().position(|t| t.task == task).map(|at| self.turns.remove(at));
        if let Some(mut turn) = turn {
            if matches!(body, EventBody::Answered { .. }) {
                turn.did_not_wait();
            }
            self.known.remember(&turn.main.provenance);
            self.receipts.extend(turn.own_receipts().cloned());
            self.receipts.drain(..self.receipts.len().saturating_sub(RECEIPTS_MAX));
            let private = turn.inbound.private;
            let answer = report::remembered(&turn, body, text);
            // What is gone on with is shown whole, or by its report.
            let is_done = matches!(body, EventBody::Answered { paused: false, .. });
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
            self.owed.extend(turn.told.into_iter().map(|task| (task, inbox::taken_up(body))));
            for unheard in turn.heard {
                self.take_back(unheard);
            }
        } else if !self.leave(task, text) {
            return;
        }
        self.start_clocks();
        self.release_joined(task, body);
        self.cancelled.retain(|t| *t != task);
        self.finished.push_back(task);
        if self.finished.len() > FINISHED_MAX {
            self.finished.pop_front();
        }
    }

    /// What is wanted from the world and has no result yet. A message whose time has not come wants nothing. Orders are
    /// carried out one after another: "pause that" and "go on" in the wrong order would mean the opposite.
    #[must_use]
    pub fn outstanding(&self, now: Micros) -> Vec<Directive> {
        let turns = self.turns.iter().flat_map(Turn::outstanding);
        let begins = Lane::ALL.into_iter().filter_map(|lane| self.next_in(lane, now));
        let begins = begins.map(|p| Directive::BeginTurn { task: p.task });
        turns.chain(begins).chain(self.orders.first().map(Order::directive)).collect()
    }

    /// Whether nothing is under way and nothing waits, but for what is held back.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.turns.iter().all(Turn::is_at_rest)
            && self.inbox.iter().all(|p| p.held)
            && self.orders.is_empty()
            && self.owed.is_empty()
    }

    /// A turn under way.
    #[must_use]
    pub fn turn(&self, task: TaskId) -> Option<&Turn> {
        self.turns.iter().find(|t| t.task == task)
    }

    /// Whether a task is accepted and has no final yet.
    #[must_use]
    pub fn is_open(&self, task: TaskId) -> bool {
        self.turn(task).is_some()
            || self.inbox.iter().any(|p| p.task == task)
            || self.orders.iter().any(|o| o.task == task)
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

    /// The request of the main agent's current round. Of `skills` only the names go into it, and not to the model.
    #[must_use]
    pub fn request(&self, task: TaskId, skills: &SkillSet) -> Option<ModelRequest> {
        let turn = self.turn(task)?;
        Some(super::request::main(self.id, turn, skills))
    }
}

/// Whether the Engine recorded it, so that its time is one of the Engine's. What doors, keepers, rounds, breakers and agents
/// store beside it a live Engine hears of later, or never: their times shall not make a state of a replay that it never had.
fn is_recorded_by_the_engine(agent: &AgentId, body: &EventBody) -> bool {
    match body {
        EventBody::Received(_)
        | EventBody::Decided { .. }
        | EventBody::LetterDue { .. }
        | EventBody::LetterMoved { .. }
        | EventBody::RoundBegan { .. }
        | EventBody::RoundNotBegun { .. }
        | EventBody::SkillStarted { .. } => false,
        EventBody::AgentStarted { .. } | EventBody::AgentReported { .. } => true,
        _ => agent.is_orchestrator(),
    }
}

fn window_start(at: Micros, limits: &TurnLimits) -> Micros {
    at.plus_ms(i64::try_from(limits.window_ms).unwrap_or(i64::MAX).saturating_neg())
}
