//! A skill call as its agent sees it: it goes through the skill's breaker, and through a new breaker if the first one dies.

use std::{sync::Arc, time::Duration};

use annie_core::{event::EventBody, outcome::Outcome, ports::Clock, skill::Effect};
use tokio::sync::oneshot;

use crate::{
    breaker::{BreakerMsg, BreakersMsg, NotBegun, RunAnswer, RunRequest, has_begun, in_doubt_if_started},
    observe::{Addr, Handle, Path, SendError},
    wiring::Wiring,
};

/// Breaker incarnations tried before the call is given up.
const BREAKERS_MAX: u32 = 4;

/// How long a call waits for an unavailable store, in milliseconds; as long as a scan of the log may take.
const AWAY_MS_MAX: u64 = 30_000;
/// Maximum back-off between two attempts, in milliseconds.
const TRY_AGAIN_MS_MAX: u64 = 2_000;

/// Time limit of a call in addition to the time of its runs, in milliseconds: the breaker's row is read twice (10 s), two
/// commits are waited for (30 s), and the skill is asked for the state of an earlier run (10 s). After this time the breaker
/// is stuck.
const AROUND_MS_MAX: u64 = 60_000;

/// The result of a skill call.
#[derive(Debug)]
pub(crate) struct SkillDone {
    /// The call.
    pub request: RunRequest,
    /// The outcome; `None` if another epoch owns the conversation now.
    pub outcome: Option<Outcome>,
    /// How long the call took, in milliseconds, without waiting for the store.
    pub duration_ms: u64,
    /// What the kernel decided about failures of the call, in its order.
    pub decided: Vec<EventBody>,
}

pub(crate) async fn call_skill(wiring: Arc<Wiring>, mut request: RunRequest) -> SkillDone {
    let clock = wiring.env.clock.clone();
    let mut from_us = clock.monotonic_us();
    let mut patience = Patience::default();
    let mut breakers = 0;
    let outcome = loop {
        let answer = match check_for_earlier_start(&wiring, &mut request).await {
            Ok(()) if breakers == BREAKERS_MAX => break given_up(&request, "its breaker keeps failing", None),
            Ok(()) => through_a_breaker(&wiring, &request).await,
            Err(why) => Ok(RunAnswer::NotBegun(why)),
        };
        match answer {
            Ok(RunAnswer::Done(outcome)) => break outcome,
            Ok(RunAnswer::Fenced) => return done(&wiring, request, None, from_us),
            Ok(RunAnswer::NotBegun(why)) => {
                tracing::debug!(skill = request.skill.skill, %why, "a call could not begin");
                if !(why.is_passing && patience.wait(clock.as_ref()).await) {
                    break given_up(&request, "the store does not say what is known of it", Some(&why));
                }
                // The skill was not run, and the wait does not count as the call's time.
                from_us = clock.monotonic_us();
            }
            Err(NoAnswer { why, asked }) => {
                tracing::debug!(skill = request.skill.skill, breakers, %why, "the breaker did not answer a call");
                if asked {
                    leave_in_doubt(&mut request, why);
                }
                patience = Patience::default();
                tokio::time::sleep(Duration::from_millis(20 << breakers)).await;
                breakers += 1;
            }
        }
    };
    done(&wiring, request, Some(outcome), from_us)
}

fn done(wiring: &Wiring, request: RunRequest, outcome: Option<Outcome>, from_us: u64) -> SkillDone {
    let duration_ms = wiring.env.clock.monotonic_us().saturating_sub(from_us) / 1_000;
    SkillDone { request, outcome, duration_ms, decided: Vec::new() }
}

/// The back-off of a call while the store is unavailable.
#[derive(Default)]
struct Patience {
    since_us: Option<u64>,
    waits: u32,
}

impl Patience {
    /// Waits before the next attempt. Returns false if the time limit was reached.
    async fn wait(&mut self, clock: &dyn Clock) -> bool {
        let now_us = clock.monotonic_us();
        let since_us = *self.since_us.get_or_insert(now_us);
        if now_us.saturating_sub(since_us) >= AWAY_MS_MAX * 1_000 {
            return false;
        }
        let wait_ms = (20_u64 << self.waits.min(10)).min(TRY_AGAIN_MS_MAX);
        self.waits += 1;
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        true
    }
}

/// Marks a call whose breaker was asked and did not answer. A call of a `read` skill is simply made again.
fn leave_in_doubt(request: &mut RunRequest, why: SendError) {
    match request.skill.effect {
        Effect::Read => {}
        // The breaker is stuck but not dead, so it may still start the run; or the log has no mark that denies the start. Only the
        // skill itself may know.
        Effect::Once if why == SendError::Timeout || request.is_recorded => request.started_before = true,
        Effect::Once | Effect::Idempotent => request.asked_before = true,
    }
}

/// Checks in the log whether a dead breaker started the run. If not, the call is a new one, which an open breaker refuses.
async fn check_for_earlier_start(wiring: &Wiring, request: &mut RunRequest) -> Result<(), NotBegun> {
    if request.asked_before {
        request.started_before |= has_begun(wiring.store.as_ref(), request.task, request.skill.intent).await?;
        request.asked_before = false;
    }
    Ok(())
}

fn given_up(request: &RunRequest, what: &str, why: Option<&NotBegun>) -> Outcome {
    let text = format!("{} could not be run: {what}.", request.skill.skill);
    let outcome = in_doubt_if_started(request, Outcome::transient("breaker_unavailable", text));
    match why {
        Some(why) => outcome.with_detail(why.to_string()),
        None => outcome,
    }
}

/// Why a breaker gave no answer, and whether it received the call.
struct NoAnswer {
    why: SendError,
    asked: bool,
}

impl From<SendError> for NoAnswer {
    fn from(why: SendError) -> Self {
        Self { why, asked: matches!(why, SendError::Crashed | SendError::Timeout) }
    }
}

async fn through_a_breaker(wiring: &Wiring, request: &RunRequest) -> Result<RunAnswer, NoAnswer> {
    let breaker = breaker(wiring, &request.skill.skill).await.map_err(|why| NoAnswer { why, asked: false })?;
    let (reply, answer) = oneshot::channel();
    breaker.cast(BreakerMsg::Run { request: request.clone(), reply })?;
    let run_ms_max = request.skill.timeout_ms.saturating_mul(u64::from(request.skill.effect.runs_max()));
    let wait = Duration::from_millis(run_ms_max.saturating_add(AROUND_MS_MAX));
    match tokio::time::timeout(wait, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(SendError::Crashed.into()),
        Err(_) => Err(SendError::Timeout.into()),
    }
}

async fn breaker(wiring: &Wiring, skill: &str) -> Result<Addr<BreakerMsg>, SendError> {
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
