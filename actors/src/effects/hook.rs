//! Questions to hooks outside the kernel, such as programs and persons.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use annie_core::{
    approval::ApprovalMode,
    breaker::{Admission, BreakerLimits, BreakerRow, BreakerState},
    event::{HookAnswer, PlannedSkill},
    hooks::{HookQuestion, OutsideHook},
    ids::{AgentId, TaskId},
    time::Micros,
    turn::DirectiveId,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{observe::task_point, tasks::caught, wiring::Wiring};

/// When a hook is disabled, and for how long: as the breaker of a skill by default.
const LIMITS: BreakerLimits = BreakerLimits { failures_max: 5, open_ms: 60_000 };

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

/// The hooks that failed lately, each with its breaker.
#[derive(Default)]
pub(crate) struct HookBreakers(Mutex<BTreeMap<String, BreakerRow>>);

impl HookBreakers {
    /// Whether the hook may be asked, and whether this is the probe after it was disabled.
    fn admit(&self, hook: &str, now: Micros) -> Result<bool, String> {
        let mut rows = self.0.lock();
        let Some(row) = rows.get_mut(hook) else { return Ok(false) };
        match row.admit(&LIMITS, now).0 {
            Admission::Pass => Ok(false),
            Admission::Probe => Ok(true),
            Admission::Refuse { retry_after_ms } => Err(format!(
                "it is disabled after {} failures in a row, and is asked again in {} s",
                LIMITS.failures_max,
                retry_after_ms.div_ceil(1_000)
            )),
        }
    }

    fn record(&self, hook: &str, is_ok: bool, is_probe: bool, now: Micros) {
        let mut rows = self.0.lock();
        if is_ok {
            if let Some(row) = rows.get_mut(hook)
                && row.succeeded(is_probe)
                && row.state == BreakerState::Closed
            {
                rows.remove(hook);
            }
            return;
        }
        let row = rows.entry(hook.to_owned()).or_default();
        if row.failed(&LIMITS, is_probe, now) && row.state == BreakerState::Open {
            tracing::warn!(hook, "the hook is disabled, because it failed again and again");
        }
    }

    /// The disabled hooks, for people.
    pub fn disabled(&self) -> Vec<String> {
        let rows = self.0.lock();
        let disabled = rows.iter().filter(|(_, row)| row.state != BreakerState::Closed);
        disabled
            .map(|(hook, row)| {
                format!(
                    "hook {hook:?} is disabled since {} after {} failures in a row; it is asked again after {} s, and until then \
                     its on_failure decides",
                    row.opened_at,
                    LIMITS.failures_max,
                    LIMITS.open_ms / 1_000
                )
            })
            .collect()
    }
}

/// The answer of a hook, or why there is none. A hook that panics or is late fails, and one that fails again and again is not
/// asked for a while, so that no turn waits for it.
pub(crate) async fn answer_of(
    wiring: &Wiring,
    hook: &OutsideHook,
    question: &HookQuestion,
) -> Result<HookAnswer, String> {
    let breakers = &wiring.hook_breakers;
    let is_probe = breakers.admit(&hook.name, wiring.env.now())?;
    let probe = is_probe.then(|| Probe { breakers, hook: &hook.name });
    let answer = ask(hook, question).await;
    breakers.record(&hook.name, answer.is_ok(), is_probe, wiring.env.now());
    drop(probe);
    answer
}

/// The question that decides whether a disabled hook is asked again. If it is dropped with its turn, the next one decides.
struct Probe<'a> {
    breakers: &'a HookBreakers,
    hook: &'a str,
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        // After an answer the breaker is no longer half-open, and this changes nothing.
        if let Some(row) = self.breakers.0.lock().get_mut(self.hook) {
            row.probe_lost();
        }
    }
}

async fn ask(hook: &OutsideHook, question: &HookQuestion) -> Result<HookAnswer, String> {
    let asked = caught(async { hook.runner.ask(question).await });
    match tokio::time::timeout(Duration::from_millis(hook.ms_max), asked).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(panic)) => Err(format!("it panicked: {panic}")),
        Err(_) => Err(format!("it did not answer within {} ms", hook.ms_max)),
    }
}
