//! The fold, event by event.

use std::{cmp::Reverse, collections::BTreeMap};

use annie_core::{
    event::{
        Action, AgentReport, CallVerdict, DispatchSpec, Event, EventBody, FinalEvent, Inbound, JudgedCalls,
        PlannedSkill, ResolvedCall,
    },
    ids::{AgentId, IntentId, TaskId},
    message::{Finish, Usage},
    outcome::Outcome,
    time::Micros,
    trace_parent::TraceParent,
    workflow::WORKFLOW,
};

use super::{
    TraceRules,
    agent::AgentRun,
    content::{clip, message},
    marks::{mark, word},
};
use crate::{
    names,
    span::{Link, Span, SpanId, SpanKind, TraceId, Value},
};

/// `error.type` of what ended with its task, before it had a result of its own.
const NOT_FINISHED: &str = "not_finished";
/// `error.type` of what a cancellation ended.
const CANCELLED: &str = "cancelled";

/// The spans of a task so far.
pub struct Fold<'a> {
    rules: &'a TraceRules,
    task: TaskId,
    trace: TraceId,
    message: Span,
    /// The spans that have ended.
    ended: Vec<Span>,
    agents: BTreeMap<AgentId, AgentRun>,
    /// The backends of the turn's route.
    route: Vec<String>,
    /// Why what is open ends with the task.
    ends_with: &'static str,
}

/// A round that has ended.
struct Round<'a> {
    number: u32,
    waited_ms: u64,
    backend: Option<&'a str>,
}

impl<'a> Fold<'a> {
    pub fn new(task: TaskId, at: Micros, parent: Option<TraceParent>, rules: &'a TraceRules) -> Self {
        let trace = parent.map_or_else(|| TraceId::of(task), |parent| TraceId(parent.trace));
        let mut message = Span {
            trace,
            id: SpanId::of_message(task),
            parent: parent.map(|parent| SpanId(parent.span)),
            name: names::MESSAGE.to_owned(),
            kind: SpanKind::Server,
            start: at,
            end: at,
            attributes: Vec::new(),
            marks: Vec::new(),
            links: Vec::new(),
            error: None,
        };
        message.set(names::TASK, task.to_string());
        let (ended, agents, route) = (Vec::new(), BTreeMap::new(), Vec::new());
        Self { rules, task, trace, message, ended, agents, route, ends_with: NOT_FINISHED }
    }

    /// All spans, that of the message first, the others in the order of their starts.
    pub fn finish(mut self) -> Vec<Span> {
        let (end, why) = (self.message.end, self.ends_with);
        for (_, run) in std::mem::take(&mut self.agents) {
            self.ended.extend(run.end(end, why));
        }
        let mut spans = vec![self.message];
        self.ended.sort_by_key(|span| (span.start, Reverse(span.end)));
        spans.append(&mut self.ended);
        spans
    }

    /// Folds an event of the task.
    pub fn see(&mut self, event: &Event) {
        self.message.end = self.message.end.max(event.at);
        if let Some(mark) = mark(event) {
            let run = self.agents.get_mut(&event.agent);
            run.map_or(&mut self.message, |run| &mut run.span).marks.push(mark);
        }
        let at = event.at;
        match &event.body {
            EventBody::Received(inbound) => self.received(event, inbound),
            EventBody::Joined { into } => self.message.links.push(Link::to(*into)),
            EventBody::TurnStarted { mode, route, continues, .. } => {
                self.route.clone_from(route);
                self.turn_started(event, mode.as_str(), *continues);
            }
            EventBody::RoundBegan { .. } => self.of(event, |run| run.round_began = Some(at)),
            EventBody::RoundNotBegun { .. } => self.of(event, |run| run.round_began = None),
            EventBody::ModelReplied { .. } => self.replied(event),
            EventBody::ModelFailed { round, error, waited_ms } => {
                let backend = if let [only] = &self.route[..] { Some(only.clone()) } else { None };
                let round = Round { number: *round, waited_ms: *waited_ms, backend: backend.as_deref() };
                let mut span = self.round(event, &round, None);
                span.fail(error.kind.as_str());
                self.ended.push(span);
            }
            EventBody::SkillStarted { .. } => {}
            EventBody::SkillFinished { intent, call_id, skill, outcome, duration_ms, .. } => {
                self.run_ended(event, (*intent, call_id, skill), outcome, *duration_ms);
            }
            EventBody::AgentStarted { .. } => self.agent_started(event),
            EventBody::AgentReported { report } => self.agent_reported(event, report),
            EventBody::Resumed { .. } | EventBody::Continued { .. } | EventBody::Retried { .. } => self.waits_since(at),
            EventBody::Deferred { until, .. } => self.waits_since(*until),
            EventBody::Answered { .. } | EventBody::Failed { .. } | EventBody::Cancelled { .. } => {
                if let Some(end) = event.body.as_final() {
                    self.ends(end);
                }
            }
            EventBody::InterfaceChanged { .. }
            | EventBody::LoopDetected { .. }
            | EventBody::CancelRequested { .. }
            | EventBody::AgentSteered { .. }
            | EventBody::SteeringTaken { .. }
            | EventBody::AgentStopRequested { .. }
            | EventBody::Decided { .. }
            | EventBody::ApprovalRequested { .. }
            | EventBody::ApprovalDecided { .. }
            | EventBody::ResultsGiven
            | EventBody::Suspended { .. }
            | EventBody::Reprioritised { .. }
            | EventBody::DeadlinePassed { .. }
            | EventBody::Ordered { .. }
            | EventBody::DeadLetterDue { .. }
            | EventBody::DeadLetterMoved { .. }
            | EventBody::Copied(_)
            | EventBody::Compacted(_) => {}
        }
    }

    fn span(&self, key: &str, parent: SpanId, name: String, (start, end): (Micros, Micros)) -> Span {
        Span {
            trace: self.trace,
            id: SpanId::of(self.task, key),
            parent: Some(parent),
            name,
            kind: SpanKind::Internal,
            start,
            end: end.max(start),
            attributes: Vec::new(),
            marks: Vec::new(),
            links: Vec::new(),
            error: None,
        }
    }

    fn received(&mut self, event: &Event, inbound: &Inbound) {
        let root = &mut self.message;
        root.start = event.at;
        root.name = format!("{} {}", names::MESSAGE, inbound.channel());
        root.set(names::CONVERSATION, event.conversation.to_string());
        root.set(names::SOURCE, inbound.source.as_str());
        root.set(names::CHANNEL, inbound.channel());
        root.set(names::PRIORITY, inbound.priority.as_str());
        root.links.extend(inbound.retry.as_ref().map(|retry| Link::to(retry.of)));
        if self.rules.content {
            root.set(names::INPUT_MESSAGES, message("user", &inbound.text, None));
        }
    }

    fn turn_started(&mut self, event: &Event, mode: &str, continues: Option<TaskId>) {
        let message = self.message.id;
        if event.at > self.message.start {
            let wait = (self.message.start, event.at);
            self.ended.push(self.span("queue", message, names::QUEUE.to_owned(), wait));
        }
        self.message.links.extend(continues.map(Link::to));
        let mut span = self.agent_span(event, message);
        span.set(names::MODE, mode);
        self.agents.insert(event.agent.clone(), AgentRun::new(span));
    }

    fn agent_span(&self, event: &Event, parent: SpanId) -> Span {
        let (agent, at) = (event.agent.as_str(), event.at);
        let name = format!("{} {agent}", names::INVOKE_AGENT);
        let mut span = self.span(&format!("agent {agent} {}", event.seq), parent, name, (at, at));
        span.set(names::OPERATION, names::INVOKE_AGENT);
        span.set(names::AGENT_NAME, agent);
        span.set(names::AGENT_ID, agent);
        span.set(names::CONVERSATION, event.conversation.to_string());
        span
    }

    /// The agent that answers the user, or the message if its turn has not begun.
    fn main(&self) -> SpanId {
        self.agents.get(&AgentId::orchestrator()).map_or(self.message.id, |run| run.span.id)
    }

    fn parent_of(&self, agent: &AgentId) -> SpanId {
        self.agents.get(agent).map_or_else(|| self.main(), |run| run.span.id)
    }

    fn of(&mut self, event: &Event, change: impl FnOnce(&mut AgentRun)) {
        if let Some(run) = self.agents.get_mut(&event.agent) {
            change(run);
        }
    }

    /// All agents begin their rounds again, not before this time.
    fn waits_since(&mut self, at: Micros) {
        for run in self.agents.values_mut() {
            run.idle_since = run.idle_since.max(at);
            run.round_began = None;
        }
    }

    /// The span of a round that has ended, and that of its wait for a permit. `model` is the one that replied.
    fn round(&mut self, event: &Event, round: &Round<'_>, model: Option<&str>) -> Span {
        let (key, parent) = (event.seq.to_string(), self.parent_of(&event.agent));
        let (mut since, mut called) = (event.at, event.at);
        self.of(event, |run| {
            (since, called) = run.round_until(event.at, round.waited_ms);
            run.idle_since = event.at;
        });
        if round.waited_ms > 0 && called > since {
            let wait = self.span(&format!("wait {key}"), parent, names::QUEUE.to_owned(), (since, called));
            self.ended.push(wait);
        }
        let names_of = round.backend.and_then(|backend| self.rules.backends.get(backend));
        let requested = names_of.map(|names| names.model.as_str()).filter(|model| !model.is_empty()).or(model);
        let name = requested.map_or_else(|| names::CHAT.to_owned(), |model| format!("{} {model}", names::CHAT));
        let mut span = self.span(&format!("round {key}"), parent, name, (called, event.at));
        span.kind = SpanKind::Client;
        span.set(names::OPERATION, names::CHAT);
        span.set(names::CONVERSATION, event.conversation.to_string());
        span.set(names::ROUND, u64::from(round.number));
        if let Some(model) = requested {
            span.set(names::REQUEST_MODEL, model);
        }
        if let Some(backend) = round.backend {
            span.set(names::PROVIDER, names_of.map_or(backend, |names| names.provider.as_str()));
            span.set(names::BACKEND, backend);
        }
        span
    }

    fn replied(&mut self, event: &Event) {
        let EventBody::ModelReplied { round, text, calls, finish, usage, model, backend, .. } = &event.body else {
            return;
        };
        let EventBody::ModelReplied { cached, waited_ms, prefill_ms, judged, .. } = &event.body else { return };
        let backend = Some(backend.as_str()).filter(|backend| !backend.is_empty());
        let model = Some(model.as_str()).filter(|model| !model.is_empty());
        let mut span = self.round(event, &Round { number: *round, waited_ms: *waited_ms, backend }, model);
        if let Some(model) = model {
            span.set(names::RESPONSE_MODEL, model);
        }
        let reason = if calls.is_empty() { *finish } else { Finish::ToolCalls };
        span.attributes.push((names::FINISH_REASONS, Value::Texts(vec![word(&reason)])));
        add_usage(&mut span, usage);
        if *prefill_ms > 0 {
            #[expect(clippy::cast_precision_loss, reason = "milliseconds of a round")]
            span.attributes.push((names::TIME_TO_FIRST_CHUNK, Value::Number(*prefill_ms as f64 / 1e3)));
        }
        if *cached {
            span.kind = SpanKind::Internal;
            span.attributes.push((names::IS_CACHED, Value::Flag(true)));
        }
        if self.rules.content {
            span.set(names::OUTPUT_MESSAGES, message("assistant", text, Some(&word(&reason))));
        }
        // The reply of a workflow called no model.
        if backend != Some(WORKFLOW) {
            self.ended.push(span);
        }
        for (n, call) in calls.iter().enumerate() {
            self.called(event, n, call, judged.as_ref());
        }
    }

    /// A call of a reply.
    fn called(&mut self, event: &Event, n: usize, call: &ResolvedCall, judged: Option<&JudgedCalls>) {
        let key = format!("call {} {n}", event.seq);
        match &call.action {
            Action::Skill(planned) => {
                let run = self.planned(event, &key, &call.id, planned);
                match judged.and_then(|judged| judged.of(&call.id)) {
                    Some(CallVerdict::Refuse { why, .. }) => {
                        let mut run = run;
                        run.fail(&word(why));
                        self.ended.push(run);
                    }
                    Some(CallVerdict::Warn { .. }) | None => self.of(event, |agent| {
                        agent.runs.insert(planned.intent, run);
                    }),
                }
            }
            Action::Answer { is_error, is_unknown, is_malformed, .. } => {
                // The name of a call that is none is any text of the model.
                let tool = if *is_unknown || *is_malformed { "unknown" } else { call.name.as_str() };
                let mut span = self.tool(event, &key, tool, &call.id);
                if *is_unknown {
                    span.fail("unknown_tool");
                } else if *is_error || *is_malformed {
                    span.fail("invalid_call");
                }
                self.ended.push(span);
            }
            Action::ControlAgent { .. } | Action::Alternatives(_) => {
                let span = self.tool(event, &key, &call.name, &call.id);
                self.ended.push(span);
            }
            // Sub-agents have spans of their own. The caller's tools run outside.
            Action::Dispatch(DispatchSpec { .. }) | Action::Collect { .. } | Action::Caller => {}
        }
    }

    fn tool(&self, event: &Event, key: &str, tool: &str, call_id: &str) -> Span {
        let (parent, name) = (self.parent_of(&event.agent), format!("{} {tool}", names::EXECUTE_TOOL));
        let mut span = self.span(key, parent, name, (event.at, event.at));
        span.set(names::OPERATION, names::EXECUTE_TOOL);
        span.set(names::TOOL_NAME, tool);
        span.set(names::TOOL_TYPE, "function");
        span.set(names::TOOL_CALL_ID, call_id);
        span
    }

    fn planned(&self, event: &Event, key: &str, call_id: &str, planned: &PlannedSkill) -> Span {
        let mut span = self.tool(event, key, &planned.skill, call_id);
        span.set(names::INTENT, planned.intent.to_string());
        span.set(names::EFFECT, word(&planned.effect));
        if self.rules.content {
            span.set(names::TOOL_ARGUMENTS, clip(&planned.arguments.to_string()));
        }
        span
    }

    fn run_ended(
        &mut self,
        event: &Event,
        (intent, call_id, skill): (IntentId, &str, &str),
        outcome: &Outcome,
        duration_ms: u64,
    ) {
        let mut planned = None;
        self.of(event, |run| {
            planned = run.runs.remove(&intent);
            run.idle_since = event.at;
        });
        let mut span = planned.unwrap_or_else(|| self.tool(event, &format!("run {}", event.seq), skill, call_id));
        let began = event.at.plus_ms(i64::try_from(duration_ms).map_or(i64::MIN, |ms| -ms));
        span.start = span.start.max(began).min(event.at);
        span.end = event.at;
        span.set(names::OUTCOME, outcome.status.as_str());
        if !outcome.status.is_ok() {
            span.fail(outcome.error_type.as_deref().unwrap_or_else(|| outcome.status.as_str()));
        }
        if self.rules.content {
            span.set(names::TOOL_RESULT, clip(&outcome.data));
        }
        self.ended.push(span);
    }

    fn agent_started(&mut self, event: &Event) {
        if !self.agents.contains_key(&event.agent) {
            let span = self.agent_span(event, self.main());
            self.agents.insert(event.agent.clone(), AgentRun::new(span));
        }
    }

    fn agent_reported(&mut self, event: &Event, report: &AgentReport) {
        let run = self.agents.remove(&event.agent);
        let mut run = run.unwrap_or_else(|| AgentRun::new(self.agent_span(event, self.main())));
        run.span.set(names::OUTCOME, report.status.as_str());
        if !matches!(report.status.as_str(), "completed" | "no_action") {
            run.span.fail(report.status.as_str());
        }
        if self.rules.content {
            run.span.set(names::OUTPUT_MESSAGES, message("assistant", &report.result, None));
        }
        self.ended.extend(run.end(event.at, report.status.as_str()));
        if let Some(main) = self.agents.get_mut(&AgentId::orchestrator()) {
            main.idle_since = event.at;
        }
    }

    fn ends(&mut self, end: FinalEvent<'_>) {
        let main = self.agents.get_mut(&AgentId::orchestrator());
        let mut spans: Vec<&mut Span> = main.into_iter().map(|run| &mut run.span).chain([&mut self.message]).collect();
        let outcome = end.word();
        match end {
            FinalEvent::Answered { .. } => {}
            FinalEvent::Failed { code, .. } => spans.iter_mut().for_each(|span| span.fail(code)),
            FinalEvent::Cancelled { .. } => self.ends_with = CANCELLED,
        }
        for span in spans {
            span.set(names::OUTCOME, outcome);
            if self.rules.content {
                span.set(names::OUTPUT_MESSAGES, message("assistant", end.text(), None));
            }
        }
    }
}

/// Tokens and money. Only rounds have them, because receivers add the numbers of all spans.
fn add_usage(span: &mut Span, usage: &Usage) {
    span.set(names::INPUT_TOKENS, usage.input_tokens);
    span.set(names::OUTPUT_TOKENS, usage.output_tokens);
    for (name, tokens) in [
        (names::CACHE_READ_TOKENS, usage.cached_tokens),
        (names::CACHE_CREATION_TOKENS, usage.cache_written_tokens),
        (names::REASONING_TOKENS, usage.reasoning_tokens),
    ] {
        if tokens > 0 {
            span.set(name, tokens);
        }
    }
    if usage.cost_usd > 0.0 {
        span.attributes.push((names::COST_USD, Value::Number(usage.cost_usd)));
    }
}
