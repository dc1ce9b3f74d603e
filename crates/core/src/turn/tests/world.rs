//! Simulates the Engine, its sub-agents, the model and the skills, without a clock, tasks or actors.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::script::{agent, reply, skills};
use crate::{
    context::framed,
    event::{
        AgentReport, Event, EventBody, FinalEvent, Inbound, JudgedCalls, Mode, NewEvent, Priority, PromptFacts,
        ReportStatus, ResumeCause,
    },
    ids::{AgentId, ConversationId, Seq, TaskId, UserId},
    limits::{Deadlines, TurnLimits},
    message::{Message, ModelError, ModelErrorKind, ModelReply, ModelRequest, ToolCall},
    outcome::Outcome,
    replay::Replay,
    skill::SkillSet,
    time::Micros,
    turn::{
        Conversation, Directive, Judged, Phase, SubTurn, Turn, TurnEffects, manual_of,
        policy::{BEFORE_SKILL, CallPolicy},
    },
};

pub struct World {
    /// The state of the live Engine.
    pub conv: Conversation,
    pub log: Vec<Event>,
    pub skills: SkillSet,
    pub limits: TurnLimits,
    pub mode: Mode,
    pub facts: PromptFacts,
    pub route: Vec<String>,
    /// If set, a turn's facts are read only by [`World::begin`].
    pub slow_facts: bool,
    /// The running sub-agents, by turn and name.
    pub agents: BTreeMap<(TaskId, AgentId), SubTurn>,
    /// The effects of the running agents of each turn.
    effects: BTreeMap<TaskId, TurnEffects>,
    pub now: Micros,
    /// Messages that are in the log and that the Engine has not received yet.
    pub undelivered: Vec<Event>,
    /// The policies that judge the calls of replies. The fold of a reply without recorded verdicts uses the kernel's list.
    pub(in crate::turn) policies: Vec<&'static dyn CallPolicy>,
    /// Disables checks and logging, for very long runs.
    pub fast: bool,
    /// The turn that the script is about, while it runs; otherwise the oldest turn.
    focus: Option<TaskId>,
    tasks: u32,
}

/// The core decides again what the log of every test contains.
impl Drop for World {
    fn drop(&mut self) {
        if self.fast || std::thread::panicking() {
            return;
        }
        let mut replay = Replay::new(self.conv.id, self.conv.user.clone());
        self.log.iter().for_each(|event| replay.see(event));
        let check = replay.finish();
        assert!(check.agrees(), "the replay diverges: {:#?}", check.divergences);
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(Mode::MultiAgent, TurnLimits::default())
    }

    pub fn in_mode(mode: Mode) -> Self {
        Self::with(mode, TurnLimits::default())
    }

    pub fn with(mode: Mode, limits: TurnLimits) -> Self {
        let user = UserId::new("ann").unwrap();
        let skills = skills();
        let manual = match mode {
            Mode::Direct => skills.for_model().map(|s| manual_of(s, true)).collect(),
            Mode::MultiAgent | Mode::SingleLoop => Vec::new(),
        };
        Self {
            conv: Conversation::new(ConversationId::for_key(&user, "k"), user),
            log: Vec::new(),
            facts: PromptFacts {
                skills: "- tasks: To-do list\n".to_owned(),
                domains: skills.domains().into_iter().map(|d| d.name).collect(),
                manual,
                user_name: "Ann".to_owned(),
                timezone: "Europe/Berlin".to_owned(),
                local_now: "2026-02-18 14:05 Wednesday".to_owned(),
                ..PromptFacts::default()
            },
            skills,
            limits,
            mode,
            route: Vec::new(),
            slow_facts: false,
            agents: BTreeMap::new(),
            effects: BTreeMap::new(),
            now: Micros(1_000_000_000),
            undelivered: Vec::new(),
            policies: BEFORE_SKILL.to_vec(),
            fast: false,
            focus: None,
            tasks: 0,
        }
    }

    // Messages and controls

    pub fn inbound(text: &str) -> Inbound {
        Inbound { client_id: String::new(), text: text.to_owned(), source: "cli".to_owned(), ..Inbound::default() }
    }

    pub fn say(&mut self, text: &str) -> TaskId {
        self.receive(Self::inbound(text))
    }

    pub fn receive(&mut self, inbound: Inbound) -> TaskId {
        let task = self.post(inbound);
        self.deliver(task);
        task
    }

    /// Stores a message that the Engine has not received yet.
    pub fn post(&mut self, inbound: Inbound) -> TaskId {
        self.tasks += 1;
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.tasks.to_be_bytes());
        let task = TaskId::from_uuid(uuid::Uuid::new_v8(bytes));
        let event = self.append(task, AgentId::orchestrator(), EventBody::Received(inbound));
        self.undelivered.push(event);
        task
    }

    /// Delivers a stored message to the Engine.
    pub fn deliver(&mut self, task: TaskId) {
        let index =
            self.undelivered.iter().position(|e| e.task == task).expect("the Engine has not received the message");
        let event = self.undelivered.remove(index);
        self.conv.apply(&event);
        self.record_all(Vec::new());
    }

    /// Sends a message of this class.
    pub fn say_as(&mut self, class: Priority, text: &str) -> TaskId {
        self.receive(Inbound { priority: class, ..Self::inbound(text) })
    }

    /// Sends a steering message.
    pub fn add(&mut self, text: &str) -> TaskId {
        self.receive(Inbound { steer: true, ..Self::inbound(text) })
    }

    /// Records an event caused by the user, an operator or the clock.
    pub fn happens(&mut self, task: TaskId, body: EventBody) {
        self.record(task, AgentId::orchestrator(), body);
    }

    pub fn cancel(&mut self, task: TaskId) {
        self.happens(task, EventBody::CancelRequested { by: "ann".to_owned() });
    }

    pub fn suspend(&mut self, task: TaskId) {
        self.happens(task, EventBody::Suspended { by: "ann".to_owned() });
    }

    pub fn resume(&mut self, task: TaskId) {
        self.happens(task, EventBody::Continued { by: "ann".to_owned() });
    }

    pub fn make(&mut self, task: TaskId, priority: Priority) {
        self.happens(task, EventBody::Reprioritised { priority, by: "ann".to_owned() });
    }

    /// Advances the clock to the next deadline, which passes. Returns its task, and whether it is the hard deadline.
    pub fn deadline(&mut self) -> Option<(TaskId, bool)> {
        let (at, task, hard) = self.conv.next_deadline(&Deadlines::default())?;
        self.now = self.now.max(at);
        self.happens(task, EventBody::DeadlinePassed { hard, dead_letters: None });
        let next = self.conv.next_deadline(&Deadlines::default());
        assert_ne!(next, Some((at, task, hard)), "a deadline passes only once");
        Some((task, hard))
    }

    /// Directs the following calls to this turn.
    pub fn on(&mut self, task: TaskId) -> &mut Self {
        self.focus = Some(task);
        self
    }

    /// The messages whose turns may begin now.
    pub fn beginnings(&self) -> Vec<TaskId> {
        let wanted = self.conv.outstanding(self.now).into_iter();
        wanted.filter_map(|d| if let Directive::BeginTurn { task } = d { Some(task) } else { None }).collect()
    }

    /// Reads the facts of the next turn.
    pub fn begin(&mut self) {
        let task = *self.beginnings().first().expect("no turn may begin");
        let (mode, facts, limits, route) = (self.mode, self.facts.clone(), self.limits.clone(), self.route.clone());
        let continues = self.conv.continues(task);
        self.happens(task, EventBody::TurnStarted { mode, facts, limits, route, continues });
        assert!(self.conv.turn(task).is_some() || self.finals(task).len() == 1, "a turn that may begin begins");
    }

    pub fn wait_ms(&mut self, ms: i64) {
        self.now = self.now.plus_ms(ms);
    }

    // The Engine

    fn append(&mut self, task: TaskId, agent: AgentId, body: EventBody) -> Event {
        self.now = self.now.plus_ms(1);
        let new = NewEvent { at: self.now, task, agent, body };
        let event = Event::placed(self.conv.id, Seq(self.log.len() as u64 + 1), new);
        if !self.fast || event.body.is_final() {
            self.log.push(event.clone());
        }
        event
    }

    pub fn record(&mut self, task: TaskId, agent: AgentId, body: EventBody) {
        self.record_all(vec![(task, agent, body)]);
    }

    fn record_all(&mut self, events: Vec<(TaskId, AgentId, EventBody)>) {
        for (task, agent, body) in events {
            let event = self.append(task, agent, body);
            self.conv.fold(event.at, event.task, &event.agent, &event.body);
        }
        for ((task, agent), turn) in &self.agents {
            let progress = turn.reported(ReportStatus::Crashed, String::new(), self.now);
            self.conv.agent_progress(*task, agent, progress);
        }
        let mut decided = 0;
        while let Some(decision) = self.conv.decide() {
            let event = self.append(decision.task, decision.agent, decision.body);
            self.conv.fold(event.at, event.task, &event.agent, &event.body);
            decided += 1;
            assert!(decided < 1_000, "decisions do not terminate");
        }
        self.conv.set_last_seq(Seq(self.log.len() as u64));
        self.perform();
        self.check();
    }

    fn perform(&mut self) {
        let wanted = self.conv.outstanding(self.now);
        let ids: BTreeSet<_> = wanted.iter().map(Directive::id).collect();
        assert_eq!(ids.len(), wanted.len(), "directives have different ids");
        let runs: BTreeSet<(TaskId, AgentId)> = wanted
            .iter()
            .filter_map(
                |d| if let Directive::RunAgent { task, agent } = d { Some((*task, agent.clone())) } else { None },
            )
            .collect();
        self.agents.retain(|key, _| runs.contains(key));
        self.effects.retain(|task, _| runs.iter().any(|(of, _)| of == task));
        for (task, _) in &runs {
            self.effects.entry(*task).or_default().learn(self.conv.turn(*task).expect("the turn is running"));
        }
        for key in runs {
            if !self.agents.contains_key(&key) {
                let turn = self.conv.sub_turn(key.0, &key.1).expect("a running agent has a state");
                self.agents.insert(key.clone(), turn);
            }
            if let Some(report) = self.agents[&key].report(self.now) {
                return self.hand_in(&key, Vec::new(), report);
            }
        }
        if !self.slow_facts && !self.beginnings().is_empty() {
            self.begin();
        }
    }

    /// Begins the work that is due.
    pub fn advance(&mut self) {
        self.record_all(Vec::new());
    }

    /// Simulates a crash of the Engine or the process. The next incarnation knows only the log.
    pub fn restart(&mut self, cause: ResumeCause) {
        self.conv = self.refolded();
        self.agents.clear();
        self.effects.clear();
        self.undelivered.clear();
        let turns = self.conv.turns.iter().filter(|t| !t.control.is_suspended).map(|t| t.task);
        let events = turns.map(|task| (task, AgentId::orchestrator(), EventBody::Resumed { cause })).collect();
        self.record_all(events);
    }

    pub fn refolded(&self) -> Conversation {
        let mut conv = Conversation::new(self.conv.id, self.conv.user.clone());
        for event in &self.log {
            conv.apply(event);
        }
        conv
    }

    /// The state folded from the log, without the messages that the Engine has not received.
    pub fn expected_from_log(&self) -> Conversation {
        let mut conv = self.refolded();
        let is_delivered = |task: TaskId| self.undelivered.iter().all(|e| e.task != task);
        conv.inbox.retain(|p| is_delivered(p.task));
        conv.job_commands.retain(|o| is_delivered(o.task));
        conv
    }

    // The model

    /// The turn that the script is about, or the oldest turn.
    pub fn current(&self) -> Option<TaskId> {
        let focus = self.focus.filter(|task| self.conv.turn(*task).is_some());
        focus.or_else(|| self.conv.turns.first().map(|t| t.task))
    }

    pub fn turn(&self) -> &Turn {
        self.conv.turn(self.task()).expect("a turn is under way")
    }

    /// A running sub-agent of the current turn.
    pub fn sub(&self, name: &str) -> &SubTurn {
        &self.agents[&(self.task(), agent(name))]
    }

    fn key(&self, agent_id: &AgentId) -> Option<(TaskId, AgentId)> {
        Some((self.current()?, agent_id.clone())).filter(|key| self.agents.contains_key(key))
    }

    fn task(&self) -> TaskId {
        self.current().expect("a turn is under way")
    }

    /// The main agent's model replies.
    pub fn replies(&mut self, text: &str, calls: &[ToolCall]) {
        self.replies_with(&reply(text, calls));
    }

    pub fn replies_with(&mut self, reply: &ModelReply) {
        let turn = self.turn();
        assert!(turn.main.awaits(turn.main.round), "the main agent does not wait for the model: {:?}", turn.main.phase);
        let round = turn.main.round;
        let agent = self.conv.main_agent(self.task()).expect("a turn is under way");
        let calls = agent.resolve(reply, &self.skills);
        let judged = agent.judge_by(&self.policies, &calls, self.now.plus_ms(1));
        let judged =
            judged.map(|judged| JudgedCalls { are_answer: agent.are_answer(&calls, &judged, &self.skills), ..judged });
        let body = replied(round, reply, calls).with_verdicts(judged);
        self.record(self.task(), AgentId::orchestrator(), body);
    }

    pub fn model_fails(&mut self, kind: ModelErrorKind) {
        let round = self.turn().main.round;
        let body = EventBody::ModelFailed { round, error: ModelError::new(kind, "so it is"), waited_ms: 0 };
        self.record(self.task(), AgentId::orchestrator(), body);
    }

    /// A sub-agent's model replies.
    pub fn agent_replies(&mut self, name: &str, text: &str, calls: &[ToolCall]) {
        self.agent_replies_with(name, &reply(text, calls));
    }

    pub fn agent_replies_with(&mut self, name: &str, reply: &ModelReply) {
        assert!(self.agent_tries(name, reply), "{name} waits for another agent's call");
    }

    /// The same. Returns false if the reply waits for another agent's call; then nothing has happened.
    pub fn agent_tries(&mut self, name: &str, reply: &ModelReply) -> bool {
        let turn = self.sub(name);
        assert!(turn.run.awaits(turn.run.round), "{name} does not wait for the model: {:?}", turn.run.phase);
        let mut calls = turn.view().resolve(reply, &self.skills);
        let agent_id = agent(name);
        if self.effects.entry(turn.task).or_default().judge(&agent_id, &mut calls, true) == Judged::Waits {
            return false;
        }
        let turn = self.sub(name);
        let judged = turn.view().judge_by(&self.policies, &calls, self.now.plus_ms(1));
        let body = replied(turn.run.round, reply, calls).with_verdicts(judged);
        self.agent_records(&agent_id, body);
        true
    }

    pub fn agent_model_fails(&mut self, name: &str, kind: ModelErrorKind) {
        let round = self.sub(name).run.round;
        let error = ModelError::new(kind, "so it is");
        self.agent_records(&agent(name), EventBody::ModelFailed { round, error, waited_ms: 0 });
    }

    /// A sub-agent stores an event, or hands its last event with its report to the Engine.
    pub fn agent_records(&mut self, agent: &AgentId, body: EventBody) {
        let key = self.key(agent).expect("the agent runs");
        let task = key.0;
        let turn = self.agents.get_mut(&key).expect("the agent runs");
        // One millisecond later, like in `append`.
        turn.fold(self.now.plus_ms(1), &body);
        match turn.report(self.now) {
            Some(report) => self.hand_in(&key, vec![(task, agent.clone(), body)], report),
            None => {
                self.effects.entry(task).or_default().note(&turn.run);
                self.append(task, agent.clone(), body);
                self.check();
            }
        }
    }

    /// A person adds a text to the mission of an agent of the turn. A running agent takes it up.
    pub fn steer(&mut self, name: &str, text: &str) {
        let (task, id) = (self.task(), agent(name));
        self.record(task, id.clone(), EventBody::AgentSteered { by: "ann".to_owned(), text: text.to_owned() });
        let node = self.conv.turn(task).and_then(|turn| turn.agents.plan.node(&id));
        let steering = node.map(|node| node.steering.clone()).unwrap_or_default();
        let taken = self.agents.get_mut(&(task, id.clone())).and_then(|turn| turn.steered(steering));
        if let Some(body) = taken {
            self.agent_records(&id, body);
        }
    }

    fn hand_in(&mut self, key: &(TaskId, AgentId), mut last: Vec<(TaskId, AgentId, EventBody)>, report: AgentReport) {
        self.agents.remove(key).expect("the agent runs");
        last.push((key.0, key.1.clone(), EventBody::AgentReported { report }));
        self.record_all(last);
    }

    /// The kernel ends a sub-agent: its time limit expired, or its actor crashed.
    pub fn agent_ends(&mut self, name: &str, status: ReportStatus) {
        let now = self.now;
        let turn = self.sub(name);
        let report = match status {
            ReportStatus::Timeout => turn.clone().timed_out(now, &|_| true),
            _ => turn.reported(status, "The agent crashed: a panic.".to_owned(), self.now),
        };
        self.hand_in(&(self.task(), agent(name)), Vec::new(), report);
    }

    // The skills

    fn wanted(&self, agent_id: &AgentId) -> Vec<Directive> {
        let Some(current) = self.current() else { return Vec::new() };
        let all = match self.agents.get(&(current, agent_id.clone())) {
            Some(turn) => turn.outstanding(),
            None => self.conv.outstanding(self.now),
        };
        let fits = |d: &Directive| matches!(d, Directive::CallSkill { task, agent, .. } if agent == agent_id && *task == current);
        all.into_iter().filter(fits).collect()
    }

    /// The skill runs that an agent waits for and that may be running, as (skill, arguments).
    pub fn skill_calls(&self, agent_id: &AgentId) -> Vec<(String, Value)> {
        let described = |d| match d {
            Directive::CallSkill { skill, .. } => (skill.skill, skill.arguments),
            _ => (String::new(), Value::Null),
        };
        self.wanted(agent_id).into_iter().map(described).collect()
    }

    /// The breaker admits the first requested run of this agent. Only the log contains this event.
    pub fn skill_starts(&mut self, agent_id: &AgentId) {
        let Some(Directive::CallSkill { task, agent, call_id, skill, .. }) = self.wanted(agent_id).into_iter().next()
        else {
            panic!("{agent_id} requests no skill");
        };
        let body = EventBody::SkillStarted { intent: skill.intent, call_id, skill: skill.skill };
        if let Some(turn) = self.agents.get_mut(&(task, agent.clone())) {
            turn.fold(self.now.plus_ms(1), &body);
        }
        self.append(task, agent, body);
    }

    /// Appends an event that no live Engine receives.
    pub fn only_logged(&mut self, task: TaskId, agent_id: &AgentId, body: EventBody) {
        self.append(task, agent_id.clone(), body);
    }

    /// The `n`th requested run of this agent ends.
    pub fn skill_ends(&mut self, agent_id: &AgentId, n: usize, outcome: Outcome) {
        let Some(Directive::CallSkill { task, call_id, skill, .. }) = self.wanted(agent_id).into_iter().nth(n) else {
            panic!("{agent_id} requests no skill");
        };
        let body = EventBody::SkillFinished {
            intent: skill.intent,
            call_id,
            skill: skill.skill,
            outcome,
            duration_ms: 5,
            route: None,
        };
        if agent_id.is_orchestrator() {
            self.record(task, agent_id.clone(), body);
        } else {
            self.agent_records(agent_id, body);
        }
    }

    /// The first requested run of a sub-agent succeeds.
    pub fn agent_skill(&mut self, name: &str, data: &str) {
        self.skill_ends(&agent(name), 0, Outcome::success(data));
    }

    /// The first requested run of the main agent succeeds.
    /// The sub-agent's first open call fails.
    pub fn agent_fails(&mut self, name: &str, error_type: &str) {
        self.skill_ends(&agent(name), 0, Outcome::transient(error_type, "It failed."));
    }

    pub fn main_skill(&mut self, data: &str) {
        self.skill_ends(&AgentId::orchestrator(), 0, Outcome::success(data));
    }

    // Observations

    pub fn request(&self) -> ModelRequest {
        self.conv.main_agent(self.task()).map(|agent| agent.request(&self.skills)).expect("a turn is under way")
    }

    /// The texts of the messages that the main agent's model sees.
    pub fn texts(&self) -> Vec<String> {
        let text = |message: &Message| match message {
            Message::User { text, .. } | Message::Tool { text, .. } => text.to_string(),
            Message::Assistant { text, .. } | Message::Note { text } => text.clone(),
        };
        self.request().messages.iter().map(text).collect()
    }

    /// The last message to the main agent's model.
    pub fn last_shown(&self) -> String {
        last_of(&self.request().messages)
    }

    pub fn last_shown_to(&self, name: &str) -> String {
        last_of(&self.sub(name).run.messages)
    }

    /// The results of the main agent's last calls.
    pub fn results(&self) -> Vec<String> {
        let messages = self.request().messages;
        let from = messages.iter().rposition(|m| matches!(m, Message::Assistant { .. })).map_or(0, |at| at + 1);
        let unframed = |text: String| {
            let results: Vec<String> = framed(&text, "result").into_iter().map(|r| r.text.into_owned()).collect();
            if results.is_empty() { vec![text] } else { results }
        };
        messages[from..].iter().map(text_of).flat_map(unframed).collect()
    }

    pub fn running(&self) -> Vec<&str> {
        self.agents.keys().map(|(_, agent)| agent.as_str()).collect()
    }

    pub fn finals(&self, task: TaskId) -> Vec<&EventBody> {
        self.log.iter().filter(|e| e.task == task && e.body.is_final()).map(|e| &e.body).collect()
    }

    /// The final event of a task, as (kind, text).
    pub fn ending(&self, task: TaskId) -> (&'static str, String) {
        let finals = self.finals(task);
        assert_eq!(finals.len(), 1, "one final event: {finals:?}");
        match finals[0].as_final().unwrap() {
            FinalEvent::Answered { text, paused: true, .. } => ("paused", text.to_owned()),
            FinalEvent::Answered { text, .. } => ("answered", text.to_owned()),
            FinalEvent::Failed { text, code, .. } => ("failed", format!("{code}: {text}")),
            FinalEvent::Cancelled { text } => ("cancelled", text.to_owned()),
        }
    }

    pub fn answer(&self, task: TaskId) -> String {
        let (kind, text) = self.ending(task);
        assert_eq!(kind, "answered", "{text}");
        text
    }

    pub fn reports(&self, task: TaskId) -> Vec<(&str, AgentReport)> {
        self.log
            .iter()
            .filter(|e| e.task == task)
            .filter_map(|e| {
                let EventBody::AgentReported { report } = &e.body else { return None };
                Some((e.agent.as_str(), report.clone()))
            })
            .collect()
    }

    pub fn statuses(&self, task: TaskId) -> Vec<(&str, ReportStatus)> {
        self.reports(task).into_iter().map(|(agent, report)| (agent, report.status)).collect()
    }

    pub fn granted(&self, name: &str) -> u32 {
        self.sub(name).calls_granted
    }
}

pub fn replied(round: u32, reply: &ModelReply, calls: Vec<crate::event::ResolvedCall>) -> EventBody {
    EventBody::replied(round, reply.clone(), calls, "test".to_owned())
}

/// The last message as a client sends it: a note of the kernel is merged into the preceding user message.
fn last_of(messages: &[Message]) -> String {
    match messages {
        [.., before @ Message::User { .. }, note @ Message::Note { .. }] => {
            format!("{}\n\n{}", text_of(before), text_of(note))
        }
        [.., last] => text_of(last),
        [] => panic!("there is a message"),
    }
}

pub fn text_of(message: &Message) -> String {
    match message {
        Message::User { text, .. }
        | Message::Assistant { text, .. }
        | Message::Tool { text, .. }
        | Message::Note { text } => text.clone(),
    }
}

/// A state without the parts that a live Engine does not know, or that differ from the log: the end of the log, that a
/// breaker admitted a run, and that a program began a round.
pub fn timeless(conv: &Conversation) -> Conversation {
    let mut conv = conv.clone();
    conv.seq = Seq(0);
    for turn in &mut conv.turns {
        turn.agents.progress.clear();
        (turn.main.began, turn.main.acts_in, turn.main.programs_ran) = (None, None, false);
        if let Phase::Acting(calls) = &mut turn.main.phase {
            calls.iter_mut().for_each(|open| open.started = false);
        }
    }
    conv
}
