//! The state of one conversation as a fold over its events. Nothing changes except here, by an event: so a replay gives the
//! same state (invariant 5).

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::{
    directive::Directive,
    opening,
    run::{AgentRun, RunKind},
    sub::SubTurn,
};
use crate::{
    context::{Exchange, History},
    event::{Event, EventBody, Inbound, Mode, PromptFacts},
    ids::{AgentId, ConversationId, Seq, TaskId, UserId},
    limits::TurnLimits,
    message::{Message, ModelRequest},
    plan::{NodeState, Plan},
    time::Micros,
};

/// The version of the shape below, for snapshots: an older snapshot is ignored and the log is read instead.
pub const STATE_VERSION: u16 = 1;

/// How many finished tasks are remembered, so that a message that comes again is not answered again.
const FINISHED_MAX: usize = 32;

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
    /// The tasks that ended last, oldest first.
    #[serde(default)]
    pub finished: VecDeque<TaskId>,
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
            finished: VecDeque::new(),
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
            EventBody::Received(inbound) => self.received(task, inbound),
            EventBody::TurnStarted { mode, facts, limits, .. } => self.begin(task, *mode, facts, limits),
            EventBody::CancelRequested { .. } => self.cancel(task),
            EventBody::Answered { text, paused, .. } => self.finish(task, text, *paused),
            EventBody::Failed { text, .. } | EventBody::Cancelled { text } => self.finish(task, text, false),
            _ => {
                let at = self.at;
                let Some(turn) = self.turn.as_mut().filter(|t| t.task == task) else { return };
                let calls = turn.fold(at, agent, body);
                if calls > 0 {
                    let from = window_start(at, &turn.limits);
                    self.window.retain(|t| *t >= from);
                    self.window.extend(std::iter::repeat_n(at, calls as usize));
                }
            }
        }
    }

    /// Notes the place of the last folded event.
    pub fn placed(&mut self, seq: Seq) {
        self.seq = seq.max(self.seq);
    }

    fn received(&mut self, task: TaskId, inbound: &Inbound) {
        let known = self.current() == Some(task)
            || self.finished.contains(&task)
            || self.inbox.iter().any(|(waiting, _)| *waiting == task);
        if !known {
            self.inbox.push_back((task, inbound.clone()));
        }
    }

    /// Begins the turn of the oldest message, if none is under way: anything else would break the order.
    fn begin(&mut self, task: TaskId, mode: Mode, facts: &PromptFacts, limits: &TurnLimits) {
        if self.turn.is_some() || self.inbox.front().is_none_or(|(first, _)| *first != task) {
            return;
        }
        let Some((_, mut inbound)) = self.inbox.pop_front() else { return };
        if self.history.is_empty() {
            opening::seed_history(&mut self.history, &inbound.preamble);
        }
        inbound.preamble.clear();
        let opening = opening::open(&mut self.history, self.paused.take(), &inbound, facts, limits);
        let run_limits = opening::run_limits(mode, limits, self.window_calls(limits));
        let (agent, kind) = (AgentId::orchestrator(), RunKind::Main(mode));
        self.turn = Some(Turn {
            task,
            inbound,
            mode,
            limits: limits.clone(),
            facts: facts.clone(),
            main: AgentRun::new(agent, kind, opening.messages, opening.stable, run_limits),
            plan: opening.plan,
            runs: BTreeMap::new(),
            started_at: self.at,
            cancelled: false,
            crashes: 0,
            restarts: 0,
            owes_results: false,
        });
    }

    /// Skill calls within the sliding window.
    pub(super) fn window_calls(&self, limits: &TurnLimits) -> u32 {
        let from = window_start(self.at, limits);
        u32::try_from(self.window.iter().filter(|t| **t >= from).count()).unwrap_or(u32::MAX)
    }

    fn cancel(&mut self, task: TaskId) {
        if let Some(turn) = self.turn.as_mut().filter(|t| t.task == task) {
            turn.cancelled = true;
        } else if self.inbox.iter().any(|(t, _)| *t == task) && !self.cancelled.contains(&task) {
            self.cancelled.push(task);
        }
    }

    fn finish(&mut self, task: TaskId, text: &str, paused: bool) {
        if let Some(turn) = self.turn.take_if(|t| t.task == task) {
            self.history.push(Exchange { user: turn.inbound.text, answer: text.to_owned() });
            self.paused = paused.then(|| {
                let AgentRun { mut messages, stable, .. } = turn.main;
                messages.push(Message::assistant(text));
                Paused { messages, stable, plan: turn.plan.resumable() }
            });
        } else if let Some(at) = self.inbox.iter().position(|(t, _)| *t == task) {
            self.inbox.remove(at);
        } else {
            return;
        }
        self.cancelled.retain(|t| *t != task);
        self.finished.push_back(task);
        if self.finished.len() > FINISHED_MAX {
            self.finished.pop_front();
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

fn window_start(at: Micros, limits: &TurnLimits) -> Micros {
    at.plus_ms(i64::try_from(limits.window_ms).unwrap_or(i64::MAX).saturating_neg())
}
