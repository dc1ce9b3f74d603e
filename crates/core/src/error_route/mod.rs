//! Decides what follows a failure: one chain of steps for each kind of error, used from left to right [S3 4.4]. The chains form
//! a ladder: try again, go another way, ask for less, report. The router decides for failures of skills and of models; callers
//! carry out what it decides. It decides once, when the failure is recorded, so a replay does not depend on present chains.

mod kind;
mod model;
mod rules;
mod step;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use kind::ErrorKind;
pub use model::{after_model_error, may_succeed_on_retry};
pub use rules::{Chains, ErrorRules};
pub use step::{Rung, Step};

use crate::{
    outcome::{Outcome, Status},
    skill::{Effect, SkillSet, SkillSpec},
};

/// The longest pause of a host after which the kernel itself tries again, in seconds. The agent decides about a longer one.
const PAUSE_S_MAX: u32 = 5;

/// The decision about a failure, as it is recorded with the outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Routed {
    /// The kind of the failure.
    pub kind: ErrorKind,
    /// The number of failures of this kind before, for the same goal.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub before: u32,
    /// The decided step.
    pub step: Step,
    /// What the model is advised to do. Empty if the error itself says it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
    /// The skills that may stand in, if the step is one to another skill.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// The steps that are left for the next failures of this kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<Step>,
}

/// The failure that is routed.
#[derive(Debug, Clone, Copy)]
pub struct Failure<'a> {
    /// The skill that failed.
    pub skill: &'a str,
    /// Its outcome.
    pub outcome: &'a Outcome,
    /// The number of failures of this kind before, for the same goal: attempts are counted for what is to be reached, whatever
    /// calls were made for it.
    pub before: u32,
}

/// The skills that an agent may run.
pub struct Granted<'a> {
    /// All skills.
    pub skills: &'a SkillSet,
    /// Whether the agent may run a skill.
    pub may_run: &'a dyn Fn(&SkillSpec) -> bool,
    /// Whether a skill has failed for the same goal.
    pub has_failed: &'a dyn Fn(&str) -> bool,
}

impl Granted<'_> {
    /// The alternatives to a skill that exist, that the agent may run, and that have not failed: those of the skill's file
    /// first.
    pub(crate) fn alternatives(&self, rules: &ErrorRules, skill: &str) -> Vec<&SkillSpec> {
        let own = self.skills.get(skill).map(|spec| spec.alternatives.as_slice()).unwrap_or_default();
        let mut found: Vec<&SkillSpec> = Vec::new();
        for name in own.iter().chain(rules.alternatives_of(skill)) {
            let spec =
                self.skills.get(name).map(AsRef::as_ref).filter(|spec| spec.name != skill && (self.may_run)(spec));
            let spec = spec.filter(|spec| !(self.has_failed)(&spec.name));
            found.extend(spec.filter(|spec| found.iter().all(|known| known.name != spec.name)));
        }
        found
    }

    /// The skill that carries out a step after a failure of another skill: it exists, the agent may run it, it only reads, and it has
    /// not failed.
    fn helper(&self, step: Step, failed: &str) -> Option<&str> {
        let is_outside = self.skills.get(failed).is_some_and(|spec| spec.external);
        step.helpers(is_outside).iter().find_map(|name| {
            let spec = self.skills.get(name).filter(|spec| spec.name != failed && spec.effect == Effect::Read)?;
            ((self.may_run)(spec) && !(self.has_failed)(&spec.name)).then_some(spec.name.as_str())
        })
    }
}

/// The decision about a failure; `None` if the run did not fail.
#[must_use]
pub fn route(rules: &ErrorRules, failure: &Failure<'_>, granted: Option<&Granted<'_>>) -> Option<Routed> {
    let kind = ErrorKind::of(failure.outcome)?;
    let skills: Vec<String> = match granted {
        Some(granted) => granted.alternatives(rules, failure.skill).iter().map(|spec| spec.name.clone()).collect(),
        None => Vec::new(),
    };
    let spec = granted.and_then(|granted| granted.skills.get(failure.skill));
    let mut chain = match spec {
        Some(spec) => rules.chain(&spec.fallback, kind),
        None => rules.chain(&Chains::new(), kind),
    };
    // What the outcome itself, or the author of the skill, names as an alternative is worth a step of its own.
    if !skills.is_empty() && !chain.contains(&Step::OtherSkill) && chain.iter().any(|step| step.rung() == Rung::Replan)
    {
        chain.insert(0, Step::OtherSkill);
    }
    chain.retain(|step| *step != Step::OtherSkill || !skills.is_empty());
    let mut rest = chain.into_iter().skip(failure.before as usize);
    let step = match failure.outcome.status {
        Status::ErrorBlocked => Step::Report,
        _ => rest.next().unwrap_or(Step::Report),
    };
    let left: Vec<Step> = if step == Step::Report { Vec::new() } else { rest.collect() };
    let hint = match failure.outcome.status {
        Status::Unknown => String::new(),
        Status::ErrorBlocked => BLOCKED.to_owned(),
        _ => step.hint(kind, &skills, granted.and_then(|granted| granted.helper(step, failure.skill))),
    };
    Some(Routed { kind, before: failure.before, step, hint, skills, left })
}

/// The advice after a refusal by a guard.
const BLOCKED: &str = "This is refused for good: do not try it again, say so.";

/// After how many milliseconds the kernel itself runs a failed call once more: its skill only reads, the failure passes, the host does
/// not ask for a longer pause than [`PAUSE_S_MAX`], and neither the skill's file (`own`) nor the operator set a chain without a
/// repetition. `None` if it does not.
#[must_use]
pub fn retries_after_ms(rules: &ErrorRules, own: &Chains, effect: Effect, outcome: &Outcome) -> Option<u64> {
    let kind = ErrorKind::of(outcome)?;
    let pause_s = outcome.pause_s.unwrap_or(0);
    let passes =
        matches!(kind, ErrorKind::Http429 | ErrorKind::HttpError | ErrorKind::Timeout | ErrorKind::Unavailable);
    let repeats = |chain: &Vec<Step>| chain.iter().any(|step| matches!(step, Step::Retry | Step::BackOff));
    let retries = rules.retry_reads
        && effect == Effect::Read
        && outcome.status == Status::ErrorTransient
        && passes
        && pause_s <= PAUSE_S_MAX
        && rules.set_chain(own, kind).is_none_or(repeats);
    retries.then(|| rules.retry_wait_ms.max(u64::from(pause_s) * 1_000))
}

impl Routed {
    /// The decision as text, for the event.
    #[must_use]
    pub fn decision(&self, skill: &str) -> String {
        format!("{}: {} after {skill}", self.step.rung().as_str(), self.step.as_str())
    }

    /// The reasons as text, for the event.
    #[must_use]
    pub fn reasoning(&self) -> String {
        let times = self.before.saturating_add(1);
        let skills = if self.skills.is_empty() || self.step != Step::OtherSkill {
            String::new()
        } else {
            format!("; it may be replaced by {}", self.skills.join(", "))
        };
        format!("{} for the {} time for this goal{skills}", self.kind.as_str(), ordinal(times))
    }

    /// The steps that were not taken.
    #[must_use]
    pub fn alternatives(&self) -> Vec<String> {
        self.left.iter().map(|step| step.as_str().to_owned()).collect()
    }
}

fn ordinal(n: u32) -> String {
    let end = match (n % 10, n % 100) {
        (1, rest) if rest != 11 => "st",
        (2, rest) if rest != 12 => "nd",
        (3, rest) if rest != 13 => "rd",
        _ => "th",
    };
    format!("{n}{end}")
}
