//! What the kernel itself does about a failed call, before its agent sees the failure: it runs a call that only reads once more if
//! the failure passes, and runs a skill that its author names in place of the failed one.

use std::{sync::Arc, time::Duration};

use annie_core::{
    error_route::{Chains, ErrorKind, ErrorRules, Step, retries_after_ms},
    event::{EventBody, PlannedSkill},
    outcome::Outcome,
};

use super::skill::{SkillDone, call_skill};
use crate::{breaker::RunRequest, wiring::Wiring};

/// What the kernel may do if a call fails.
#[derive(Debug)]
pub(crate) struct Fallback {
    /// The rules of the turn.
    pub rules: ErrorRules,
    /// The chains of the called skill's file.
    pub own: Chains,
    /// The skills that may run in place of the called one, in their order. No hook has an objection.
    pub stand_ins: Vec<PlannedSkill>,
}

/// Calls a skill, and does what the kernel can do by itself if it fails.
pub(crate) async fn call_with_fallback(wiring: Arc<Wiring>, request: RunRequest, fallback: Fallback) -> SkillDone {
    let Fallback { rules, own, stand_ins } = fallback;
    let mut done = call_skill(wiring.clone(), request).await;
    let effect = done.request.skill.effect;
    let wait_ms = done.outcome.as_ref().and_then(|outcome| retries_after_ms(&rules, &own, effect, outcome));
    if let Some(wait_ms) = wait_ms {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        done = again(&wiring, done, |kind| rules.chain(&own, kind)).await;
    }
    for stand_in in stand_ins {
        let kind = done.outcome.as_ref().and_then(ErrorKind::of);
        if !kind.is_some_and(|kind| rules.chain(&own, kind).contains(&Step::OtherSkill)) {
            break;
        }
        done = run_instead(&wiring, done, stand_in).await;
    }
    done
}

/// Runs a failed call once more. If it fails again, the second failure counts.
async fn again(wiring: &Arc<Wiring>, failed: SkillDone, chain: impl Fn(ErrorKind) -> Vec<Step>) -> SkillDone {
    let skill = failed.request.skill.skill.clone();
    let reasoning = format!("{} passes, and {skill} only reads", failure(failed.outcome.as_ref()));
    let kind = failed.outcome.as_ref().and_then(ErrorKind::of);
    let chain = kind.map(chain).unwrap_or_default();
    let left = chain.iter().filter(|step| !matches!(step, Step::Retry | Step::BackOff));
    let alternatives = left.map(|step| step.as_str().to_owned()).collect();
    let step = decided(kind, Step::Retry, format!("retry: the kernel runs {skill} again"), reasoning, alternatives);
    let SkillDone { request, outcome: first, duration_ms, mut decided } = failed;
    decided.push(step);
    let mut done = call_skill(wiring.clone(), request).await;
    // The failure itself says more than a breaker that it has opened.
    let is_refused = |outcome: &Outcome| ErrorKind::of(outcome) == Some(ErrorKind::BreakerOpen);
    if done.outcome.as_ref().is_some_and(is_refused) {
        done.outcome = first;
    }
    done.duration_ms += duration_ms;
    done.decided = decided;
    done
}

/// Runs another skill in place of a failed one. If that fails too, the failure of the called one counts.
async fn run_instead(wiring: &Arc<Wiring>, failed: SkillDone, stand_in: PlannedSkill) -> SkillDone {
    let (skill, other) = (failed.request.skill.skill.clone(), stand_in.skill.clone());
    let kind = failed.outcome.as_ref().and_then(ErrorKind::of);
    let reasoning =
        format!("{}; {other} may stand in for {skill} and takes the same arguments", failure(failed.outcome.as_ref()));
    let decision = format!("replan: the kernel runs {other} in place of {skill}");
    let step = decided(kind, Step::OtherSkill, decision, reasoning, vec![Step::Report.as_str().to_owned()]);
    let request = RunRequest { skill: stand_in, started_before: false, asked_before: false, ..failed.request.clone() };
    let ran = call_skill(wiring.clone(), request).await;
    let mut done = failed;
    done.duration_ms += ran.duration_ms;
    done.decided.push(step);
    done.outcome = match (done.outcome, ran.outcome) {
        (Some(first), Some(second)) if second.status.is_ok() => Some(second.in_place_of(first, &skill, &other)),
        // Another epoch owns the conversation now.
        (_, None) => None,
        (first, Some(_)) => first,
    };
    done
}

fn failure(outcome: Option<&Outcome>) -> String {
    let kind = outcome.and_then(ErrorKind::of);
    kind.map_or_else(|| "the failure".to_owned(), |kind| kind.as_str().to_owned())
}

/// The event of a step that the kernel takes. It is also counted.
fn decided(
    kind: Option<ErrorKind>,
    step: Step,
    decision: String,
    reasoning: String,
    alternatives: Vec<String>,
) -> EventBody {
    note_step(kind, step, "kernel");
    EventBody::Decided { component: ROUTER.to_owned(), decision, reasoning, alternatives, hook: None }
}

/// The component that the router's decisions name.
pub(crate) const ROUTER: &str = "error_router";

/// Counts a step after a failure.
pub(crate) fn note_step(kind: Option<ErrorKind>, step: Step, by: &'static str) {
    let kind = kind.map_or("other", ErrorKind::as_str);
    metrics::counter!("annie_error_steps_total", "kind" => kind, "step" => step.as_str(), "by" => by).increment(1);
}
