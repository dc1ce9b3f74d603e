//! Questions to hooks outside the kernel, such as programs and persons.

use std::{sync::Arc, time::Duration};

use annie_core::{
    approval::ApprovalMode,
    event::{HookAnswer, PlannedSkill},
    hooks::{HookQuestion, OutsideHook},
    ids::{AgentId, TaskId},
    turn::DirectiveId,
};
use tokio::sync::oneshot;

use crate::{observe::task_point, tasks::caught, wiring::Wiring};

/// A question about a call.
#[derive(Debug)]
pub(crate) struct HookRequest {
    pub task: TaskId,
    pub agent: AgentId,
    /// The name of the hook.
    pub hook: String,
    /// The planned run, which waits for the verdict.
    pub skill: PlannedSkill,
    pub question: HookQuestion,
}

impl HookRequest {
    /// The id of the directive.
    pub fn id(&self) -> DirectiveId {
        DirectiveId::Hook(self.task, self.agent.clone(), self.skill.intent.to_string(), self.hook.clone())
    }
}

/// A call that waits for a person. The Engine answers.
#[derive(Debug)]
pub(crate) struct ApprovalAsk {
    pub task: TaskId,
    pub agent: AgentId,
    /// The planned run, which waits for the verdict.
    pub skill: PlannedSkill,
    /// Why the call waits.
    pub mode: ApprovalMode,
    /// Receives the verdict.
    pub reply: oneshot::Sender<HookAnswer>,
}

/// The end of a question about a call.
#[derive(Debug)]
pub(crate) struct HookDone {
    pub request: HookRequest,
    /// The answer, or why there is none.
    pub result: Result<HookAnswer, String>,
    /// How long the question took, in milliseconds.
    pub duration_ms: u64,
}

pub(crate) async fn ask_hook(wiring: Arc<Wiring>, request: HookRequest) -> HookDone {
    let clock = wiring.env.clock.clone();
    let from_us = clock.monotonic_us();
    let result = match (task_point(&wiring.env, "hook", "asking").await, wiring.hooks.outside_named(&request.hook)) {
        (Ok(()), Some(hook)) => answer_of(&wiring, hook, &request.question).await,
        (Ok(()), None) => Err("there is no such hook any more".to_owned()),
        (Err(why), _) => Err(why.to_string()),
    };
    let result = match task_point(&wiring.env, "hook", "decided").await {
        Ok(()) => result,
        Err(why) => Err(why.to_string()),
    };
    let duration_ms = clock.monotonic_us().saturating_sub(from_us) / 1_000;
    HookDone { request, result, duration_ms }
}

/// The answer of a hook, or why there is none. A hook that panics or is late fails, and one that fails again and again for
/// this user is not asked for a while, so that no turn waits for it.
pub(crate) async fn answer_of(
    wiring: &Wiring,
    hook: &OutsideHook,
    question: &HookQuestion,
) -> Result<HookAnswer, String> {
    let breakers = &wiring.hook_breakers;
    let asked = (hook.name.clone(), question.user.clone());
    let is_probe = breakers.admit(&asked, wiring.env.now())?;
    let probe = is_probe.then(|| breakers.probe(&asked));
    let answer = ask(hook, question).await;
    breakers.record(&asked, answer.is_ok(), is_probe, wiring.env.now());
    drop(probe);
    answer
}

async fn ask(hook: &OutsideHook, question: &HookQuestion) -> Result<HookAnswer, String> {
    let asked = caught(async { hook.runner.ask(question).await });
    match tokio::time::timeout(Duration::from_millis(hook.ms_max), asked).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(panic)) => Err(format!("it panicked: {panic}")),
        Err(_) => Err(format!("it did not answer within {} ms", hook.ms_max)),
    }
}
