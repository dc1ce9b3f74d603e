//! One run of a skill: mark it started, run it under its time limit, and never repeat what must not be repeated.

use std::time::Duration;

use annie_core::{
    event::{EventBody, NewEvent},
    outcome::{Outcome, Status},
    ports::{Append, AppendError, Env, Fence, SkillCall},
    skill::Effect,
};
use serde_json::json;

use super::{BreakerArgs, RunAnswer, RunRequest};
use crate::{
    log_writer::{LogError, append},
    observe::{NodeError, task_point},
    tasks::caught,
};

/// Time limit of a reconcile function, in milliseconds.
const RECONCILE_MS_MAX: u64 = 10_000;

/// An answer, and whether the skill itself was run.
pub struct RunResult {
    pub answer: RunAnswer,
    was_run: bool,
}

impl RunResult {
    /// Whether the run counts as a failure of the skill; `None` if the skill was not run.
    pub fn counts_as_failure(&self) -> Option<bool> {
        match &self.answer {
            RunAnswer::Done(outcome) if self.was_run => Some(outcome.counts_against_the_skill()),
            _ => None,
        }
    }
}

pub async fn run(args: &BreakerArgs, env: &Env, request: RunRequest) -> RunResult {
    let (effect, holder) = (request.skill.effect, args.lease.incarnation());
    let not_run = |answer| RunResult { answer, was_run: false };
    if effect == Effect::Once && request.started_before {
        return not_run(RunAnswer::Done(reconcile_or_unknown(args, env, &request).await));
    }
    if effect != Effect::Read && !request.is_recorded {
        let marked = match task_point(env, "run", "starting").await {
            Ok(()) => mark_started(args, env, &request).await,
            Err(why) => return not_run(RunAnswer::Done(not_started(&request, why.to_string()))),
        };
        match marked {
            Ok(()) => {}
            Err(LogError::Refused(AppendError::Fenced)) => return not_run(RunAnswer::Fenced),
            Err(LogError::Refused(AppendError::AlreadyStarted(_))) => {
                return not_run(RunAnswer::Done(reconcile_or_unknown(args, env, &request).await));
            }
            Err(e) => return not_run(RunAnswer::Done(not_started(&request, e.to_string()))),
        }
    }
    // A process that was frozen after it stored `SkillStarted` may have been declared dead since. The new owner then reports the
    // run as unknown.
    if effect == Effect::Once && !args.lease.holds(holder, env.clock.as_ref()).await {
        return not_run(RunAnswer::Done(not_started(&request, "the lease of this process has run out".to_owned())));
    }
    let mut runs = 0;
    let outcome = loop {
        runs += 1;
        match run_once(args, env, &request).await {
            Ok(outcome) if outcome.status == Status::Unknown && runs < effect.runs_max() => {
                tracing::info!(skill = request.skill.skill, "a run of unknown outcome is repeated under its intent");
            }
            // A failure does not say whether an earlier run under this intent took effect.
            Ok(outcome) if runs > 1 => break in_doubt(&request, outcome),
            Ok(outcome) => break in_doubt_if_started(&request, outcome),
            Err(interrupted) if runs < effect.runs_max() => {
                tracing::info!(
                    skill = request.skill.skill,
                    why = interrupted.text,
                    "an interrupted run is repeated under its intent"
                );
            }
            Err(interrupted) => break interrupted.outcome(&request),
        }
    };
    metrics::counter!(
        "annie_skill_runs_total", "skill" => request.skill.skill.clone(), "status" => outcome.status.as_str()
    )
    .increment(1);
    RunResult { answer: RunAnswer::Done(outcome), was_run: true }
}

/// A run that ended without an outcome.
struct Interrupted {
    error_type: &'static str,
    text: String,
}

impl Interrupted {
    /// The outcome for the caller. The effect may have happened, so only a `read` skill may be called again under another
    /// intent.
    fn outcome(&self, request: &RunRequest) -> Outcome {
        match request.skill.effect {
            Effect::Once | Effect::Idempotent => Outcome::unknown(
                format!("{} Its effect may or may not have happened.", self.text),
                json!({"intent": request.skill.intent, "broke_off": self.error_type}),
            ),
            Effect::Read => Outcome::transient(self.error_type, &self.text),
        }
    }
}

async fn run_once(args: &BreakerArgs, env: &Env, request: &RunRequest) -> Result<Outcome, Interrupted> {
    let broke_off = |why: NodeError| Interrupted { error_type: "broke_off", text: why.to_string() };
    task_point(env, "run", "started").await.map_err(broke_off)?;
    let wait = Duration::from_millis(request.skill.timeout_ms);
    let ran = tokio::time::timeout(wait, caught(args.runner.run(call(args, env, request)))).await;
    let skill = &request.skill.skill;
    let outcome = match ran {
        Ok(Ok(outcome)) => Ok(outcome.clipped()),
        Ok(Err(panic)) => Err(Interrupted { error_type: "panic", text: format!("{skill} panicked: {panic}") }),
        Err(_) => {
            let text = format!("{skill} did not finish within {} s.", wait.as_secs());
            Err(Interrupted { error_type: "timeout", text })
        }
    };
    task_point(env, "run", "ran").await.map_err(broke_off)?;
    outcome
}

fn call(args: &BreakerArgs, env: &Env, request: &RunRequest) -> SkillCall {
    SkillCall {
        intent: request.skill.intent,
        skill: request.skill.skill.clone(),
        arguments: request.skill.arguments.clone(),
        origin: request.skill.origin.clone(),
        user: request.user.clone(),
        conversation: request.conversation,
        task: request.task,
        agent: request.agent.clone(),
        now: env.now(),
        timezone: request.timezone.clone(),
        operation: args.operations.grant(request.skill.intent),
    }
}

async fn mark_started(args: &BreakerArgs, env: &Env, request: &RunRequest) -> Result<(), LogError> {
    let started = NewEvent {
        at: env.now(),
        task: request.task,
        agent: request.agent.clone(),
        body: EventBody::SkillStarted {
            intent: request.skill.intent,
            call_id: request.call_id.clone(),
            skill: request.skill.skill.clone(),
        },
    };
    let what = Append {
        conversation: request.conversation,
        user: request.user.clone(),
        fence: Fence::Owner(request.epoch),
        events: vec![started],
    };
    append(&args.log, what).await.map(|_| ())
}

/// The outcome of a run whose mark may or may not be stored. This breaker did not run the skill, so the outcome says that,
/// unless the intent was started before.
fn not_started(request: &RunRequest, why: String) -> Outcome {
    let text = format!("{} was not run: its intent could not be recorded.", request.skill.skill);
    in_doubt_if_started(request, Outcome::transient("not_started", text)).with_detail(why)
}

/// The outcome of a call that failed or was not run now. If its intent was started before, its effect may have happened
/// then.
pub(crate) fn in_doubt_if_started(request: &RunRequest, outcome: Outcome) -> Outcome {
    if request.started_before || request.asked_before { in_doubt(request, outcome) } else { outcome }
}

/// The outcome of a call whose earlier run may have taken effect. A plain failure would make the caller repeat the call
/// under a new intent, and the effect could happen twice. Only a success is proof, and a `read` skill has no effect.
fn in_doubt(request: &RunRequest, outcome: Outcome) -> Outcome {
    if request.skill.effect == Effect::Read || outcome.status.is_ok() || outcome.status == Status::Unknown {
        return outcome;
    }
    let text = format!("{} Its effect may or may not have happened.", outcome.data);
    let unknown = Outcome::unknown(text, json!({"intent": request.skill.intent, "broke_off": outcome.error_type}));
    Outcome { error_detail: outcome.error_detail, ..unknown }
}

/// Determines the outcome of a `once` run that was started and has no receipt. Only the skill itself may know it.
async fn reconcile_or_unknown(args: &BreakerArgs, env: &Env, request: &RunRequest) -> Outcome {
    let wait = Duration::from_millis(RECONCILE_MS_MAX);
    match tokio::time::timeout(wait, caught(args.runner.reconcile(call(args, env, request)))).await {
        Ok(Ok(Some(outcome))) => outcome.clipped(),
        Ok(_) | Err(_) => Outcome::unknown(
            format!(
                "{} was started before an interruption, and it is not known whether it took effect. It was not run again.",
                request.skill.skill
            ),
            json!({"intent": request.skill.intent, "arguments": request.skill.arguments}),
        ),
    }
}
