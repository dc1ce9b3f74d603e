//! An agent asks for another approach, after the router has nothing left for its goal. The advice is one round of the agent with a
//! prompt of its own: it has a permit, counts as spending, ends with the turn, and its reply is an event, so that no crash asks
//! twice for what was recorded.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    agent::AgentView,
    resolve::malformed,
    run::{AgentRun, OpenCall, Phase, RunKind},
};
use crate::{
    agent_report::AgentReport,
    alternatives::{
        Advice, AlternativesCall, OUTPUT_TOKENS_MAX, REQUEST, SKILLS_CHARS_MAX, STRATEGIES_MAX, advisor_system, cut,
    },
    caller::CallOptions,
    error_route::{ErrorKind, ErrorRules, Routed, Step},
    event::{Action, EventBody, ResolvedCall},
    limits::SubAgentInterface,
    message::{Message, ModelReply, ModelRequest, SystemPart, ToolDef},
    outcome::{Outcome, Status},
    route::AgentModels,
    skill::{CallStyle, Effect, SkillSet},
};

/// The hint after a failure at the end of its chain.
const OFFER: &str = "Nothing else of the usual ways is left. Ask once for another approach";

/// Requests for other approaches of one agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Advising {
    /// How many it may make.
    #[serde(default = "usual", skip_serializing_if = "is_usual")]
    pub allowed: u32,
    /// How many it made.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub asked: u32,
    /// How many the agents made that have reported to it.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub asked_by_others: u32,
    /// The last failure was at the end of its chain, and nothing succeeded since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_stuck: bool,
    /// The calls of the reply with the request while the round of the advisor runs: only the request has no result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calls: Vec<OpenCall>,
}

/// How many an agent may make with the default limits. States that were stored before have this number too.
const fn usual() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_usual(allowed: &u32) -> bool {
    *allowed == usual()
}

impl Default for Advising {
    fn default() -> Self {
        Self { allowed: usual(), asked: 0, asked_by_others: 0, is_stuck: false, calls: Vec::new() }
    }
}

impl Advising {
    /// Whether nothing differs from the default.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The state of the main agent of a turn.
    pub fn of_main(rules: &ErrorRules) -> Self {
        Self { allowed: rules.alternatives_per_goal_max.min(rules.alternatives_per_turn_max), ..Self::default() }
    }

    /// The state of a sub-agent. The requests of the main agent and of the running agents are subtracted, so that all together never ask
    /// more often than the limit of the turn says.
    pub fn of_sub<'a>(rules: &ErrorRules, main: &Self, others: impl Iterator<Item = &'a Self>) -> Self {
        let taken = others
            .fold(main.allowed.saturating_add(main.asked_by_others), |sum, other| sum.saturating_add(other.allowed));
        let left = rules.alternatives_per_turn_max.saturating_sub(taken);
        Self { allowed: rules.alternatives_per_goal_max.min(left), ..Self::default() }
    }
}

/// Whether another approach may be asked for after a failure: not after a refusal, and not where an effect may have happened.
fn may_follow(routed: &Routed, status: Status) -> bool {
    let excluded = matches!(
        routed.kind,
        ErrorKind::Validation
            | ErrorKind::Refused
            | ErrorKind::SsrfBlocked
            | ErrorKind::Cancelled
            | ErrorKind::UnknownEffect
    );
    routed.step == Step::Report && !excluded && !matches!(status, Status::ErrorBlocked | Status::Unknown)
}

/// The tool of an agent that may ask.
pub(super) fn tool() -> ToolDef {
    let text = |about: &str| json!({"type": "string", "description": about});
    ToolDef {
        name: REQUEST.to_owned(),
        description: "When your current approach to a task is failing repeatedly, call this to get another one. Describe what you \
                      tried and what went wrong. Returns approaches to try."
            .to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "task": text("What you are trying to accomplish."),
                "attempts": text("What you tried, and why it failed."),
                "error_details": text("Error messages or symptoms.")
            },
            "required": ["task", "attempts"]
        }),
        strict: false,
    }
}

/// The action of a request with these arguments. Advisor and map are added when the whole reply is known.
pub(super) fn requested(run: &AgentRun, arguments: &Map<String, Value>) -> Action {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str).map(cut).unwrap_or_default();
    if !run.may_ask() {
        let why = if run.advising.allowed == 0 || run.advising.asked < run.advising.allowed {
            "it is offered only after the usual ways to the goal have failed"
        } else {
            "you have asked as often as you may. Report what failed"
        };
        return malformed(&format!("{REQUEST} cannot be called now: {why}."), false);
    }
    let (task, attempts, errors) = (text("task"), text("attempts"), text("error_details"));
    if task.is_empty() || attempts.is_empty() {
        let problem = format!("{REQUEST} needs task and attempts: what is to be accomplished, and what was tried.");
        return Action::Answer {
            text: format!("Error: {problem}"),
            is_error: true,
            is_unknown: false,
            is_malformed: false,
        };
    }
    Action::Alternatives(Box::new(AlternativesCall { task, attempts, errors, ..AlternativesCall::default() }))
}

/// The arguments of a command that asks; `None` for other commands.
pub(super) fn request_command(line: &str) -> Option<Map<String, Value>> {
    let parsed = crate::command::parse(line).ok().filter(|parsed| parsed.name == REQUEST)?;
    let flags = parsed.flags.into_iter().filter_map(|(name, value)| Some((name, Value::from(value?))));
    Some(flags.chain(parsed.assigned.into_iter().map(|(name, value)| (name, Value::from(value)))).collect())
}

impl AgentRun {
    /// The same run with these requests.
    pub(super) fn with_advising(mut self, advising: Advising) -> Self {
        self.advising = advising;
        self
    }

    /// Whether the agent may ask for another approach in its current round.
    pub(super) fn may_ask(&self) -> bool {
        self.advising.is_stuck
            && self.advising.asked < self.advising.allowed
            && self.workflow.is_none()
            && !self.wrapping_up
    }

    /// Whether the current round is that of an advisor.
    pub(super) fn is_advising(&self) -> bool {
        !self.advising.calls.is_empty()
    }

    /// The request that the current round answers.
    pub(super) fn advice_request(&self) -> Option<&AlternativesCall> {
        self.advising.calls.iter().find(|open| open.result.is_none()).and_then(asked_in)
    }

    /// Notes whether the agent is stuck after this outcome.
    pub(super) fn note_stuck(&mut self, outcome: &Outcome, routed: Option<&Routed>) {
        match routed {
            Some(routed) if may_follow(routed, outcome.status) => self.advising.is_stuck = true,
            None if outcome.status.is_ok() => self.advising.is_stuck = false,
            Some(_) | None => {}
        }
    }

    /// Learns what an agent that worked for the same goal asked, and that it is stuck.
    pub(super) fn learn_asked(&mut self, report: &AgentReport) {
        self.advising.asked_by_others = self.advising.asked_by_others.saturating_add(report.alternatives_asked);
        self.advising.is_stuck |= report.is_stuck;
    }

    /// Once only requests for another approach have no result: answers those whose advice is known, and begins the round of the
    /// advisor for one that needs a model. Returns true if such a round begins. It does not count against the rounds of the agent.
    pub(super) fn begin_advice(&mut self) -> bool {
        let Phase::Acting(calls) = &mut self.phase else { return false };
        if !calls.iter().any(|open| open.result.is_none()) {
            return false;
        }
        if calls.iter().any(|open| open.result.is_none() && asked_in(open).is_none()) {
            return false;
        }
        let mut needs_model = false;
        for open in calls.iter_mut().filter(|open| open.result.is_none()) {
            self.advising.asked = self.advising.asked.saturating_add(1);
            self.advising.is_stuck = false;
            let advice = asked_in(open).and_then(|asked| asked.answer.clone());
            open.result = advice.as_ref().map(Advice::result);
            needs_model |= open.result.is_none();
        }
        if needs_model {
            self.advising.calls = std::mem::take(calls);
            self.rounds_max = self.rounds_max.saturating_add(1);
            self.round += 1;
            self.phase = Phase::Thinking;
        }
        needs_model
    }

    /// Ends the round of the advisor. Without advice the fallback map answers. Returns false if there is no such round.
    pub(super) fn take_advice(&mut self, advice: Option<&Advice>) -> bool {
        if !self.is_advising() {
            return false;
        }
        let mut calls = std::mem::take(&mut self.advising.calls);
        for open in calls.iter_mut().filter(|open| open.result.is_none()) {
            let known = asked_in(open).map(|asked| asked.map.clone()).unwrap_or_default();
            open.result = Some(advice.unwrap_or(&known).result());
        }
        self.phase = Phase::Acting(calls);
        true
    }

    /// The hint after a failure, if the agent may ask for another approach.
    fn offer(&self, routed: &Routed, status: Status) -> Option<String> {
        let may_ask = self.advising.asked < self.advising.allowed && self.workflow.is_none();
        if !may_ask || !may_follow(routed, status) {
            return None;
        }
        let how = match self.style() {
            CallStyle::Cmd => format!("`{REQUEST} --task \"...\" --attempts \"...\" --error-details \"...\"`"),
            CallStyle::UseSkill | CallStyle::Direct => format!("the tool {REQUEST}"),
        };
        Some(format!("{OFFER} with {how}, or say what failed."))
    }
}

/// The request of a call.
fn asked_in(open: &OpenCall) -> Option<&AlternativesCall> {
    asked(&open.call)
}

fn asked(call: &ResolvedCall) -> Option<&AlternativesCall> {
    if let Action::Alternatives(asked) = &call.action { Some(asked) } else { None }
}

/// The advice of a reply of an advisor.
pub(super) fn advice_of(calls: &[ResolvedCall]) -> Option<&Advice> {
    calls.first().and_then(asked).and_then(|asked| asked.answer.as_ref())
}

impl EventBody {
    /// The record of the advice in a reply, for readers of the log.
    #[must_use]
    pub fn advice_decided(&self) -> Option<Self> {
        let Self::ModelReplied { calls, .. } = self else { return None };
        let asked = calls.iter().filter_map(asked).find(|asked| asked.answer.is_some())?;
        let why = if asked.route.is_empty() { "no backend of the turn has a language model" } else { "" };
        let advice = asked.answer.as_ref()?;
        Some(advice.decided(asked, if advice.by_model { "" } else { why }))
    }
}

impl AgentView<'_> {
    /// The backends of the advisor, if the current round is its.
    #[must_use]
    pub fn advisors(&self) -> Option<&[String]> {
        self.run().advice_request().map(|asked| asked.route.as_slice())
    }

    /// The record of a round of the advisor that failed: the fallback map answers.
    #[must_use]
    pub fn advice_failed(&self, why: &str) -> Option<EventBody> {
        self.run().advice_request().map(|asked| asked.map.decided(asked, why))
    }

    /// Replaces the hint of a failure at the end of its chain if the agent may ask for another approach. Spoken turns have no time
    /// for that.
    pub(super) fn offer_advice(&self, routed: Routed, status: Status) -> Routed {
        let offer = self.run().offer(&routed, status).filter(|_| self.facts().spoken_as.is_none());
        match offer {
            Some(hint) => Routed { hint, ..routed },
            None => routed,
        }
    }

    /// The request of the advisor's round.
    pub(super) fn advice_prompt(&self, skills: &SkillSet) -> Option<ModelRequest> {
        let run = self.run();
        let asked = run.advice_request()?;
        let failed: Vec<&str> = run.failed_skills.iter().map(String::as_str).collect();
        let mut list = String::new();
        for skill in skills.iter().filter(|skill| self.may_run(skill)) {
            let about = skill.description.split_whitespace().collect::<Vec<_>>().join(" ");
            if list.len() + about.len() > SKILLS_CHARS_MAX {
                break;
            }
            let _ = writeln!(list, "- {}: {about}", skill.name);
        }
        Some(ModelRequest {
            model: None,
            system: vec![SystemPart { text: advisor_system(&list), cache: None }],
            messages: vec![Message::user(asked.question(&failed))],
            stable_messages: 0,
            tools: Vec::new(),
            skill_names: Vec::new(),
            output_tokens_max: OUTPUT_TOKENS_MAX,
            session_id: self.conversation().to_string(),
            priority: self.priority().level(),
            options: CallOptions::default(),
        })
    }

    /// The advisor's reply as a call with its advice, so that the log has what was understood.
    pub(super) fn read_advice(&self, reply: &ModelReply, skills: &SkillSet) -> Option<Vec<ResolvedCall>> {
        let asked = self.run().advice_request()?;
        let may_run = |name: &str| skills.get(name).is_some_and(|skill| self.may_run(skill));
        let answer = Some(Advice::read(&reply.text, asked, &may_run));
        let asked = AlternativesCall { answer, map: Advice::default(), ..asked.clone() };
        let action = Action::Alternatives(Box::new(asked));
        Some(vec![ResolvedCall { id: REQUEST.to_owned(), name: REQUEST.to_owned(), raw: String::new(), action }])
    }

    /// Adds the advisor and the fallback map to the first request of a reply, and refuses further ones.
    pub(super) fn prepare_requests(&self, calls: &mut [ResolvedCall], skills: &SkillSet, models: AgentModels<'_>) {
        let mut is_first = true;
        for call in calls {
            let Action::Alternatives(asked) = &mut call.action else { continue };
            if !std::mem::replace(&mut is_first, false) {
                call.action = malformed(&format!("{REQUEST} is called once in a reply."), false);
                continue;
            }
            asked.route = models.advisors(self.route(), &self.rules().alternatives_model);
            asked.map = self.map(skills);
            asked.answer = asked.route.is_empty().then(|| asked.map.clone());
        }
    }

    /// What the fallback map still says: alternatives of the failed skills, then skills of the same domains that only read, none
    /// of which has failed.
    fn map(&self, skills: &SkillSet) -> Advice {
        let run = self.run();
        let mut strategies: Vec<String> = Vec::new();
        let mut named: Vec<&str> = Vec::new();
        let has_failed = |name: &str| run.failed_skills.contains(name);
        for failed in &run.failed_skills {
            let own = skills.get(failed).map(|spec| spec.alternatives.as_slice()).unwrap_or_default();
            let domain = skills.get(failed).map(|spec| spec.domain.as_str()).unwrap_or_default();
            let declared = own.iter().chain(self.rules().alternatives_of(failed)).filter_map(|name| skills.get(name));
            let near = skills.iter().filter(|spec| spec.domain == domain && spec.effect == Effect::Read);
            for spec in declared.chain(near) {
                let is_new = !has_failed(&spec.name) && !named.contains(&spec.name.as_str());
                if is_new && self.may_run(spec) && strategies.len() < STRATEGIES_MAX {
                    named.push(&spec.name);
                    strategies.push(format!("{}: use it in place of {failed}", spec.name));
                }
            }
        }
        Advice { strategies, ..Advice::default() }
    }
}

/// Whether a sub-agent of this kind has tools.
pub(super) fn has_tools(run: &AgentRun) -> bool {
    !run.is_cmd() && !matches!(run.kind, RunKind::Sub(SubAgentInterface::Cmd))
}
