//! The state of one conversation as a fold over its events. Nothing changes except here, by an event: so a replay gives the
//! same state (invariant 5).

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::{
    directive::Directive,
    run::{AgentRun, Ending, Phase, RunKind},
    sub::SubTurn,
};
use crate::{
    context::{Exchange, History, continue_note, turn_context},
    event::{
        Action, AgentReport, DispatchSpec, Event, EventBody, Inbound, Mode, PromptFacts, ResolvedCall, ResumeCause,
    },
    ids::{AgentId, ConversationId, Seq, TaskId, UserId},
    limits::TurnLimits,
    message::{Message, ModelError, ModelErrorKind, ModelRequest, Usage},
    plan::{NodeState, Plan},
    time::Micros,
};

/// The version of the shape below, for snapshots: an older snapshot is ignored and the log is read instead.
pub const STATE_VERSION: u16 = 1;

/// A turn that stopped at a limit and may go on (S0 5.2).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Paused {
    /// The context as it was.
    pub messages: Vec<Message>,
    /// How many of those are history.
    pub stable: usize,
    /// The agents so far.
    pub plan: Plan,
}

/// The turn under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Its task.
    pub task: TaskId,
    /// The message.
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
    /// When it began.
    pub started_at: Micros,
    /// Somebody asked to cancel it.
    pub cancelled: bool,
    /// The context did not fit once, and the history was left out.
    pub without_history: bool,
    /// How often an Engine died in it.
    pub crashes: u32,
    /// How often the process ended in it.
    pub restarts: u32,
    /// The run ended without a look at its agents' results, and has to be given them.
    pub owes_results: bool,
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
    /// When that happened.
    pub at: Micros,
    /// Finished turns.
    pub history: History,
    /// Accepted messages whose turn has not begun, oldest first.
    pub inbox: VecDeque<(TaskId, Inbound)>,
    /// Of those, the ones to cancel.
    pub cancelled: Vec<TaskId>,
    /// The turn under way.
    pub turn: Option<Turn>,
    /// The last turn, if it paused at a limit.
    pub paused: Option<Paused>,
    /// When skills were called, oldest first: the sliding window.
    pub window: VecDeque<Micros>,
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
            cancelled: Vec::new(),
            turn: None,
            paused: None,
            window: VecDeque::new(),
        }
    }

    /// Takes in an event of the log. An event that does not fit the state (late, repeated, of another turn) changes
    /// nothing but the place: the log may hold what came too late.
    pub fn apply(&mut self, event: &Event) {
        self.seq = event.seq.max(self.seq);
        self.fold(event.at, event.task, &event.agent, &event.body);
    }

    /// Takes in an event whose place is not known yet; [`Self::placed`] tells it later.
    pub fn fold(&mut self, at: Micros, task: TaskId, agent: &AgentId, body: &EventBody) {
        self.at = at.max(self.at);
        match body {
            EventBody::Received(inbound) => self.inbox.push_back((task, inbound.clone())),
            EventBody::TurnStarted { mode, facts, limits } => self.begin(task, *mode, facts, limits),
            EventBody::CancelRequested { .. } => self.cancel(task),
            EventBody::Answered { text, paused, .. } => self.finish(task, text, *paused),
            EventBody::Failed { text, .. } | EventBody::Cancelled { text } => self.finish(task, text, false),
            _ => {
                let at = self.at;
                let Some(turn) = self.turn.as_mut().filter(|t| t.task == task) else { return };
                // A live Engine hears of its sub-agents' runs with their reports only, so a replay counts them there too.
                let calls = match body {
                    EventBody::SkillFinished { .. } if agent.is_orchestrator() => 1,
                    EventBody::AgentReported { report } => report.tool_calls_used as usize,
                    _ => 0,
                };
                if calls > 0 {
                    let from = at.plus_ms(-i64::try_from(turn.limits.window_ms).unwrap_or(i64::MAX));
                    self.window.retain(|t| *t >= from);
                    self.window.extend(std::iter::repeat_n(at, calls));
                }
                turn.fold(at, agent, body);
            }
        }
    }

    /// Notes the place of the last folded event.
    pub fn placed(&mut self, seq: Seq) {
        self.seq = seq.max(self.seq);
    }

    fn begin(&mut self, task: TaskId, mode: Mode, facts: &PromptFacts, limits: &TurnLimits) {
        let Some(at) = self.inbox.iter().position(|(t, _)| *t == task) else { return };
        let Some((_, inbound)) = self.inbox.remove(at) else { return };
        if self.history.is_empty() {
            seed_history(&mut self.history, &inbound.preamble);
        }
        let said = facts.spoken.clone().unwrap_or_else(|| inbound.text.clone());
        let paused = self.paused.take().filter(|_| is_continue(&inbound.text));
        let (messages, stable, plan) = match paused {
            Some(paused) => {
                let mut messages = paused.messages;
                messages.push(Message::user(continue_note(&said)));
                (messages, paused.stable, paused.plan)
            }
            None => {
                self.history.fit(limits.history_tokens_max());
                let mut messages = self.history.messages();
                let stable = messages.len();
                messages.push(Message::User { context: turn_context(facts), text: said });
                (messages, stable, Plan::default())
            }
        };
        let (rounds_max, calls_max) = match mode {
            Mode::MultiAgent => (limits.iterations_max, 0),
            Mode::SingleLoop | Mode::Direct => (limits.single_loop_calls_max + 2, limits.single_loop_calls_max),
        };
        let mut main = AgentRun::new(AgentId::orchestrator(), RunKind::Main(mode), messages, rounds_max, calls_max);
        main.stable = stable;
        self.turn = Some(Turn {
            task,
            inbound,
            mode,
            limits: limits.clone(),
            facts: facts.clone(),
            main,
            plan,
            runs: BTreeMap::new(),
            started_at: self.at,
            cancelled: false,
            without_history: false,
            crashes: 0,
            restarts: 0,
            owes_results: false,
        });
    }

    fn cancel(&mut self, task: TaskId) {
        if let Some(turn) = self.turn.as_mut().filter(|t| t.task == task) {
            turn.cancelled = true;
        } else if self.inbox.iter().any(|(t, _)| *t == task) && !self.cancelled.contains(&task) {
            self.cancelled.push(task);
        }
    }

    fn finish(&mut self, task: TaskId, text: &str, paused: bool) {
        self.cancelled.retain(|t| *t != task);
        if let Some(turn) = self.turn.take_if(|t| t.task == task) {
            self.history.push(Exchange { user: turn.inbound.text, answer: text.to_owned() });
            self.paused =
                paused.then(|| Paused { messages: turn.main.messages, stable: turn.main.stable, plan: turn.plan });
            if let Some(paused) = &mut self.paused {
                paused.messages.push(Message::assistant(text));
                paused.plan = paused.plan.resumable();
            }
        } else if let Some(at) = self.inbox.iter().position(|(t, _)| *t == task) {
            self.inbox.remove(at);
        }
    }

    /// What is wanted from the world and has no result yet.
    #[must_use]
    pub fn outstanding(&self) -> Vec<Directive> {
        match &self.turn {
            Some(turn) => turn.outstanding(),
            None => match self.inbox.front() {
                Some((task, _)) => vec![Directive::BeginTurn { task: *task }],
                None => Vec::new(),
            },
        }
    }

    /// Whether nothing is under way and nothing waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.turn.is_none() && self.inbox.is_empty()
    }

    /// The state with which a sub-agent runs.
    #[must_use]
    pub fn sub_turn(&self, agent: &AgentId) -> Option<SubTurn> {
        let turn = self.turn.as_ref()?;
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
            run: turn.runs.get(agent)?.clone(),
            calls_granted,
            since,
        })
    }

    /// The request of the main agent's current round.
    #[must_use]
    pub fn request(&self) -> Option<ModelRequest> {
        let turn = self.turn.as_ref()?;
        Some(super::request::main(self.id, turn))
    }

    /// The task whose turn is under way.
    #[must_use]
    pub fn current(&self) -> Option<TaskId> {
        self.turn.as_ref().map(|t| t.task)
    }
}

impl Turn {
    fn fold(&mut self, at: Micros, agent: &AgentId, body: &EventBody) {
        match body {
            EventBody::AgentStarted { calls_granted } => self.agent_started(agent, *calls_granted, at),
            EventBody::AgentReported { report } => self.agent_reported(agent, report),
            EventBody::ResultsGiven => self.give_results(),
            EventBody::Resumed { cause: ResumeCause::Crash } => self.crashes += 1,
            EventBody::Resumed { cause: ResumeCause::Restart } => self.restarts += 1,
            EventBody::ModelReplied { round, text, calls, usage, .. } if agent.is_orchestrator() => {
                self.main_replied(*round, text, calls, usage);
            }
            EventBody::ModelFailed { round, error } if agent.is_orchestrator() => self.main_failed(*round, error),
            _ => {
                let run = if agent.is_orchestrator() { Some(&mut self.main) } else { self.runs.get_mut(agent) };
                if let Some(run) = run {
                    fold_run(run, body);
                }
                self.settle();
            }
        }
    }

    fn main_replied(&mut self, round: u32, text: &str, calls: &[ResolvedCall], usage: &Usage) {
        if !self.main.awaits(round) {
            return;
        }
        self.main.replied(round, text, calls, usage);
        let specs: Vec<(String, DispatchSpec)> = self
            .main
            .open_calls()
            .iter()
            .filter(|o| o.result.is_none())
            .filter_map(|o| match &o.call.action {
                Action::Dispatch(spec) => Some((o.call.id.clone(), spec.clone())),
                _ => None,
            })
            .collect();
        let only: Vec<DispatchSpec> = specs.iter().map(|(_, s)| s.clone()).collect();
        let verdicts = self.plan.add(&only, self.limits.agents_max);
        for ((call_id, spec), verdict) in specs.into_iter().zip(verdicts) {
            let text = match verdict {
                Ok(()) => serde_json::json!({"agent_id": spec.agent, "status": "accepted"}).to_string(),
                Err(why) => format!("Error: {why}"),
            };
            self.main.answer(&call_id, text);
        }
        self.owes_results = matches!(self.main.phase, Phase::Ended(Ending::Said(_))) && self.plan.has_uncollected();
        self.settle();
    }

    fn main_failed(&mut self, round: u32, error: &ModelError) {
        if !self.main.awaits(round) {
            return;
        }
        if error.kind == ModelErrorKind::Overflow && !self.without_history && self.main.stable > 0 {
            // Once, the past is left out rather than the request: the user sees an answer, and the log keeps the past.
            self.without_history = true;
            self.main.messages.drain(..self.main.stable);
            self.main.stable = 0;
            self.main.round += 1;
            self.main.rounds_max += 1;
        } else {
            self.main.end(Ending::ModelFailed(error.clone()));
        }
    }

    fn agent_started(&mut self, agent: &AgentId, calls_granted: u32, at: Micros) {
        self.plan.started(agent, calls_granted, at);
        let Some(node) = self.plan.node(agent) else { return };
        self.runs
            .insert(agent.clone(), super::sub::first_run(&node.spec, &self.plan, calls_granted, self.limits.interface));
    }

    fn agent_reported(&mut self, agent: &AgentId, report: &AgentReport) {
        if self.plan.reported(agent, report.clone()) {
            self.runs.remove(agent);
            self.settle();
        }
    }

    /// The orchestrator answered without a look at the results: they are put before it and it is asked again.
    fn give_results(&mut self) {
        self.owes_results = false;
        let results = self.plan.collect(&[]);
        self.main.note(&format!("[Agent results]\n{results}\n[Answer the user from these.]"));
        self.main.next_round();
    }

    /// Answers collects whose agents are all done, and lets the run think again when all its calls have results.
    fn settle(&mut self) {
        let waiting: Vec<(String, Vec<AgentId>)> = self
            .main
            .open_calls()
            .iter()
            .filter(|o| o.result.is_none())
            .filter_map(|o| match &o.call.action {
                Action::Collect { agents } => Some((o.call.id.clone(), agents.clone())),
                _ => None,
            })
            .collect();
        for (call_id, agents) in waiting {
            if let Some(unknown) = agents.iter().find(|a| self.plan.node(a).is_none()) {
                self.main.answer(&call_id, format!("Error: no agent {unknown} was dispatched in this turn."));
            } else if !self.plan.is_waiting_for(&agents) {
                let results = self.plan.collect(&agents);
                self.main.answer(&call_id, results);
            }
        }
        self.main.settle();
    }

    fn outstanding(&self) -> Vec<Directive> {
        let mut wanted = Vec::new();
        if self.cancelled {
            return wanted;
        }
        if self.main.phase == Phase::Thinking {
            let agent = AgentId::orchestrator();
            wanted.push(Directive::CallModel { task: self.task, agent, round: self.main.round });
        }
        wanted.extend(self.main.wanted_skills().map(|(open, skill)| Directive::CallSkill {
            task: self.task,
            agent: AgentId::orchestrator(),
            call_id: open.call.id.clone(),
            skill: skill.clone(),
            started_before: open.started,
        }));
        wanted.extend(
            self.plan
                .nodes()
                .iter()
                .filter(|n| matches!(n.state, NodeState::Running { .. }))
                .map(|n| Directive::RunAgent { task: self.task, agent: n.spec.agent.clone() }),
        );
        wanted
    }
}

/// What events mean for one agent's loop, whichever agent it is.
pub fn fold_run(run: &mut AgentRun, body: &EventBody) {
    match body {
        EventBody::ModelReplied { round, text, calls, usage, .. } => run.replied(*round, text, calls, usage),
        EventBody::ModelFailed { round, error } if run.awaits(*round) => run.end(Ending::ModelFailed(error.clone())),
        EventBody::SkillStarted { call_id, .. } => run.skill_started(call_id),
        EventBody::SkillFinished { call_id, skill, outcome, .. } => run.skill_finished(call_id, skill, outcome),
        _ => {}
    }
    run.settle();
}

fn seed_history(history: &mut History, preamble: &[(String, String)]) {
    let mut user = String::new();
    for (role, text) in preamble {
        if role == "assistant" {
            history.push(Exchange { user: std::mem::take(&mut user), answer: text.clone() });
        } else {
            if !user.is_empty() {
                user.push_str("\n\n");
            }
            user.push_str(text);
        }
    }
    if !user.is_empty() {
        history.push(Exchange { user, answer: "(no answer)".to_owned() });
    }
}

/// Whether the user lets a paused turn go on (S0 5.3: "yes, continue", or similar).
fn is_continue(text: &str) -> bool {
    let plain: String =
        text.to_lowercase().chars().map(|c| if c.is_alphanumeric() { c } else { ' ' }).collect::<String>();
    let words: Vec<&str> = plain.split_whitespace().collect();
    const WORDS: [&str; 18] = [
        "continue", "yes", "please", "go", "on", "ahead", "ok", "okay", "sure", "keep", "going", "yep", "yeah",
        "proceed", "do", "it", "resume", "y",
    ];
    !words.is_empty() && words.len() <= 5 && words.iter().all(|w| WORDS.contains(w))
}
