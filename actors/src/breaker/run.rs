//! One run behind the door: mark it started, run it under its time limit, and never repeat what must not be repeated.

use std::time::Duration;

use annie_core::{
    event::{EventBody, NewEvent},
    outcome::Outcome,
    ports::{Append, AppendError, Env, Fence, SkillCall},
    skill::Effect,
};
use serde_json::json;

use super::{BreakerArgs, RunAnswer, RunRequest};
use crate::{
    log_writer::{LogError, append},
    observe::task_point,
    tasks::caught,
};

/// How long a reconcile hook may take, in milliseconds.
const RECONCILE_MS_MAX: u64 = 10_000;

/// An answer, and whether the skill itself was asked.
pub struct Ran {
    pub answer: RunAnswer,
    ran: bool,
}

impl Ran {
    /// Whether it counts as a failure of the skill; nothing if the skill was not asked.
    pub fn counts(&self) -> Option<bool> {
        match &self.answer {
            RunAnswer::Done(outcome) if self.ran => Some(outcome.counts_against_the_skill()),
            _ => None,
        }
    }
}

pub async fn run(args: &BreakerArgs, env: &Env, request: RunRequest) -> Ran {
    let effect = request.skill.effect;
    let not_run = |answer| Ran { answer, ran: false };
    if effect == Effect::Once && request.started_before {
        return not_run(RunAnswer::Done(find_out(args, env, &request).await));
    }
    if effect != Effect::Read {
        let marked = match task_point(env, "run", "starting").await {
            Ok(()) => mark_started(args, env, &request).await,
            Err(why) => return not_run(RunAnswer::Done(not_started(&request, why.to_string()))),
        };
        match marked {
            Ok(()) => {}
            Err(LogError::Refused(AppendError::Fenced)) => return not_run(RunAnswer::Fenced),
            Err(LogError::Refused(AppendError::AlreadyStarted(_))) => {
                return not_run(RunAnswer::Done(find_out(args, env, &request).await));
            }
            Err(e) => return not_run(RunAnswer::Done(not_started(&request, e.to_string()))),
        }
    }
    if let Err(why) = task_point(env, "run", "started").await {
        return Ran { answer: RunAnswer::Done(broke_off(&request, "broke_off", &why.to_string())), ran: true };
    }
    let wait = Duration::from_millis(request.skill.timeout_ms);
    let ran = tokio::time::timeout(wait, caught(args.runner.run(call(args, env, &request)))).await;
    let outcome = match ran {
        Ok(Ok(outcome)) => outcome.clipped(),
        Ok(Err(panic)) => broke_off(&request, "panic", &format!("{} broke down: {panic}", request.skill.skill)),
        Err(_) => {
            let text = format!("{} did not finish within {} s.", request.skill.skill, wait.as_secs());
            broke_off(&request, "timeout", &text)
        }
    };
    let outcome = match task_point(env, "run", "ran").await {
        Ok(()) => outcome,
        Err(why) => broke_off(&request, "broke_off", &why.to_string()),
    };
    metrics::counter!(
        "annie_skill_runs_total", "skill" => request.skill.skill.clone(), "status" => outcome.status.as_str()
    )
    .increment(1);
    Ran { answer: RunAnswer::Done(outcome), ran: true }
}

fn call(args: &BreakerArgs, env: &Env, request: &RunRequest) -> SkillCall {
    SkillCall {
        intent: request.skill.intent,
        skill: request.skill.skill.clone(),
        arguments: request.skill.arguments.clone(),
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

/// A run whose mark may or may not be stored. This door did not run it, whatever the log says, and that can be told; nor did
/// one before it, or it would be known as started.
fn not_started(request: &RunRequest, why: String) -> Outcome {
    let text = format!("{} was not run: its intent could not be recorded.", request.skill.skill);
    Outcome::transient("not_started", text).with_detail(why)
}

/// A run that broke off in the middle: what may have had an effect once is unknown, the rest may be tried again.
fn broke_off(request: &RunRequest, error_type: &str, text: &str) -> Outcome {
    match request.skill.effect {
        Effect::Once => Outcome::unknown(
            format!("{text} Its effect may or may not have happened."),
            json!({"intent": request.skill.intent, "broke_off": error_type}),
        ),
        Effect::Read | Effect::Idempotent => Outcome::transient(error_type, text),
    }
}

/// A `once` run was started and its receipt is missing: the skill may know, otherwise nobody does.
async fn find_out(args: &BreakerArgs, env: &Env, request: &RunRequest) -> Outcome {
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
