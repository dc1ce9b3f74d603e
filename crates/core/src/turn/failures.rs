//! The failures of an agent's skills, and what the router decides about them.

use super::{
    agent::AgentView,
    run::{AgentRun, OpenCall, RunKind},
};
use crate::{
    agent_report::AgentReport,
    error_route::{self, ErrorKind, ErrorRules, Failure, Granted, Routed, Step},
    event::PlannedSkill,
    ids::IntentId,
    outcome::Outcome,
    plan::first_line,
    result_check::{self, CheckedCall},
    skill::{Effect, SkillSet, SkillSpec},
};

/// The most lines of an agent that its parent is asked to decide about.
const ESCALATED_MAX: usize = 5;
/// The most skills that the kernel runs in place of a failed one.
const STAND_INS_MAX: usize = 2;

impl AgentRun {
    /// What follows a failure of an open call.
    pub(super) fn routed(
        &self,
        open: &OpenCall,
        outcome: &Outcome,
        rules: &ErrorRules,
        granted: Option<&Granted<'_>>,
    ) -> Option<Routed> {
        let kind = ErrorKind::of(outcome)?;
        let skill = open.planned().map_or(open.call.name.as_str(), |planned| planned.skill.as_str());
        let before = self.failures.get(&kind).copied().unwrap_or(0);
        error_route::route(rules, &Failure { skill, outcome, before }, granted)
    }

    /// Notes what an outcome means for the goal of the turn.
    pub(super) fn note_for_goal(&mut self, skill: &str, outcome: &Outcome, routed: Option<&Routed>) {
        self.note_stuck(outcome, routed);
        if let Some(routed) = routed {
            self.failed_for_goal(skill, outcome, routed);
        }
    }

    /// Counts a failure for the goal of the turn, and notes what the parent agent is to decide.
    pub(super) fn failed_for_goal(&mut self, skill: &str, outcome: &Outcome, routed: &Routed) {
        let count = self.failures.entry(routed.kind).or_default();
        *count = count.saturating_add(1);
        self.failed_skills.insert(skill.to_owned());
        // A failure that the model can mend by other arguments is no question to another agent.
        let is_at_end = routed.step == Step::Report && routed.kind != ErrorKind::Validation;
        if matches!(self.kind, RunKind::Sub(_))
            && (outcome.escalate || is_at_end)
            && self.escalated.len() < ESCALATED_MAX
        {
            let tried = match outcome.escalation_context.as_str() {
                "" => format!("{} of this kind in all", routed.before.saturating_add(1)),
                tried => first_line(tried),
            };
            let line =
                format!("{skill} failed ({}): {}; tried: {tried}", routed.kind.as_str(), first_line(&outcome.data));
            self.escalated.push(line);
        }
    }

    /// Adds the failures of an agent that worked for the same goal.
    pub(super) fn learn_failures(&mut self, report: &AgentReport) {
        for (kind, count) in &report.failures {
            let known = self.failures.entry(*kind).or_default();
            *known = (*known).max(*count);
        }
        self.failed_skills.extend(report.failed_skills.iter().cloned());
        self.learn_asked(report);
    }
}

impl AgentView<'_> {
    pub(super) fn run(&self) -> &AgentRun {
        match self {
            Self::Main { turn, .. } => &turn.main,
            Self::Sub(turn) => &turn.run,
        }
    }

    pub(super) fn rules(&self) -> &ErrorRules {
        match self {
            Self::Main { turn, .. } => &turn.limits.error_router,
            Self::Sub(turn) => &turn.limits.error_router,
        }
    }

    /// Whether this agent may run a skill. The orchestrator runs none itself: it dispatches agents with the skill.
    pub(super) fn may_run(&self, spec: &SkillSpec) -> bool {
        let is_granted = match self {
            Self::Main { turn, .. } => {
                spec.is_model_invocable()
                    && (spec.effect == Effect::Read
                        || !turn.facts.spoken_as.is_some_and(crate::classify::Spoken::reads_only))
            }
            Self::Sub(turn) => turn.spec.skills.contains(&spec.name),
        };
        let is_confined = self.run().confined.as_ref().is_some_and(|confined| !confined.allows(&spec.name));
        is_granted && !is_confined && !(spec.external && self.is_private())
    }

    /// What follows the failure of a call with this intent; `None` if it did not fail.
    #[must_use]
    pub fn route_failure(self, intent: IntentId, outcome: &Outcome, skills: &SkillSet) -> Option<Routed> {
        let run = self.run();
        let open =
            run.open_calls().iter().find(|open| open.planned().is_some_and(|planned| planned.intent == intent))?;
        let granted = Granted {
            skills,
            may_run: &|spec| self.may_run(spec),
            has_failed: &|name| run.failed_skills.contains(name),
        };
        let routed = run.routed(open, outcome, self.rules(), Some(&granted))?;
        Some(self.offer_advice(routed, outcome.status))
    }

    /// The outcome of a call with what its text says about itself.
    #[must_use]
    pub fn check_result(self, planned: &PlannedSkill, outcome: Outcome) -> Outcome {
        let rules = match self {
            Self::Main { turn, .. } => &turn.limits.result_checks,
            Self::Sub(turn) => &turn.limits.result_checks,
        };
        let PlannedSkill { skill, arguments, effect, external, .. } = planned;
        let call = CheckedCall { skill, arguments, effect: *effect, external: *external };
        result_check::checked(rules, &call, outcome)
    }

    /// The rules of the turn.
    #[must_use]
    pub fn error_rules(self) -> ErrorRules {
        self.rules().clone()
    }

    /// The skills that the kernel may run itself in place of this one if it fails: both only read, the other one reaches other
    /// machines only if this one does, and it accepts the same arguments.
    #[must_use]
    pub fn stand_ins(self, planned: &PlannedSkill, skills: &SkillSet) -> Vec<PlannedSkill> {
        if planned.effect != Effect::Read || !self.rules().run_alternatives {
            return Vec::new();
        }
        let run = self.run();
        let fits = |spec: &SkillSpec| {
            let called = spec.as_called(&planned.arguments);
            called.effect == Effect::Read
                && (planned.external || !called.external)
                && spec.check_arguments(&planned.arguments).is_ok()
                && self.may_run(spec)
        };
        let granted = Granted { skills, may_run: &fits, has_failed: &|name| run.failed_skills.contains(name) };
        let found = granted.alternatives(self.rules(), &planned.skill);
        let stand_in = |spec: &SkillSpec| PlannedSkill {
            intent: IntentId::for_call(self.task(), self.agent(), &format!("{}:{}", planned.intent, spec.name)),
            skill: spec.name.clone(),
            arguments: planned.arguments.clone(),
            effect: spec.effect,
            external: spec.external,
            timeout_ms: spec.timeout_ms,
            origin: planned.origin.clone(),
        };
        found.into_iter().take(STAND_INS_MAX).map(stand_in).collect()
    }
}
