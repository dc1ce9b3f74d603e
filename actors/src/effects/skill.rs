//! A skill call as its agent sees it: through the breaker's door, and through a new one if the breaker dies over it.

use std::{sync::Arc, time::Duration};

use annie_core::{outcome::Outcome, skill::Effect};
use serde_json::json;
use tokio::sync::oneshot;

use crate::{
    breaker::{BreakerMsg, BreakersMsg, RunAnswer, RunRequest},
    observe::{Addr, Handle, Path, SendError},
    wiring::Wiring,
};

/// Doors tried before the call is given up.
const DOORS_MAX: u32 = 4;

/// What a skill call came to.
#[derive(Debug)]
pub(crate) struct SkillDone {
    /// The call.
    pub request: RunRequest,
    /// The outcome; nothing if somebody else owns the conversation now.
    pub outcome: Option<Outcome>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
}

pub(crate) async fn call_skill(wiring: Arc<Wiring>, mut request: RunRequest) -> SkillDone {
    let from_us = wiring.env.clock.monotonic_us();
    let mut outcome = None;
    for attempt in 0..DOORS_MAX {
        match through_a_door(&wiring, &request).await {
            Ok(RunAnswer::Done(done)) => {
                outcome = Some(done);
                break;
            }
            Ok(RunAnswer::Fenced) => return done(&wiring, request, None, from_us),
            Err(NoAnswer { why, asked }) => {
                tracing::debug!(skill = request.skill.skill, attempt, %why, "the breaker did not answer a call");
                // A dead door may have let the run begin. The intent's compare-and-set knows; a new door asks it, even if
                // it is closed to new calls by then. What was never asked, or only reads, is a new call.
                request.asked_before |= asked && request.skill.effect != Effect::Read;
                tokio::time::sleep(Duration::from_millis(20 << attempt)).await;
            }
        }
    }
    let outcome = outcome.unwrap_or_else(|| given_up(&request));
    done(&wiring, request, Some(outcome), from_us)
}

fn done(wiring: &Wiring, request: RunRequest, outcome: Option<Outcome>, from_us: u64) -> SkillDone {
    let duration_ms = wiring.env.clock.monotonic_us().saturating_sub(from_us) / 1_000;
    SkillDone { request, outcome, duration_ms }
}

fn given_up(request: &RunRequest) -> Outcome {
    let text = format!("{} could not be run: its breaker keeps failing.", request.skill.skill);
    if request.skill.effect == Effect::Once && (request.asked_before || request.started_before) {
        return Outcome::unknown(
            format!("{text} Its effect may or may not have happened."),
            json!({"intent": request.skill.intent}),
        );
    }
    Outcome::transient("breaker_unavailable", text)
}

/// Why a door gave no answer, and whether it was asked at all.
struct NoAnswer {
    why: SendError,
    asked: bool,
}

impl From<SendError> for NoAnswer {
    fn from(why: SendError) -> Self {
        Self { why, asked: matches!(why, SendError::Crashed | SendError::Timeout) }
    }
}

async fn through_a_door(wiring: &Wiring, request: &RunRequest) -> Result<RunAnswer, NoAnswer> {
    let door = door(wiring, &request.skill.skill).await.map_err(|why| NoAnswer { why, asked: false })?;
    let (reply, answer) = oneshot::channel();
    door.cast(BreakerMsg::Run { request: request.clone(), reply })?;
    // The run has its own time limit; beyond it and what surrounds it, the door itself is stuck.
    let wait = Duration::from_millis(request.skill.timeout_ms + 30_000);
    match tokio::time::timeout(wait, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(SendError::Crashed.into()),
        Err(_) => Err(SendError::Timeout.into()),
    }
}

async fn door(wiring: &Wiring, skill: &str) -> Result<Addr<BreakerMsg>, SendError> {
    let path = Path::root().child("breakers").child(&format!("breaker:{skill}"));
    let known: Handle<BreakerMsg> = wiring.breakers.sibling(path);
    if let Ok(addr) = known.resolve() {
        return Ok(addr);
    }
    let asked = wiring
        .breakers
        .call(Duration::from_secs(5), |reply| BreakersMsg::Ensure { skill: skill.to_owned(), reply })
        .await?;
    asked.ok_or(SendError::Unavailable)
}
