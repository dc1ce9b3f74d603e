//! The Engine's timers: deadlines of tasks and messages that become due, for the earliest of which one timer is set; and the
//! quiet period after which the Engine asks to leave memory.

use std::time::Duration;

use annie_core::{
    ids::{AgentId, TaskId},
    time::Micros,
    turn::{DirectiveId, Turn},
};

use super::{
    messages::{EngineMsg, EngineResidencyMsg},
    state::{Engine, EngineState, EngineTask},
};
use crate::{effects::Waits, observe::Context};

/// Minimum time that a message that has not begun gets after activation, in milliseconds: nothing could begin it before.
const ACTIVATION_GRACE_MS: i64 = 30_000;

/// While a round waits for its permit, its task's deadline is checked again after this time at the earliest, in
/// milliseconds.
const WAIT_MS_MIN: i64 = 250;

/// The next deadline. The time that a round waits for its permit does not count against the task, up to a limit. The event
/// that ends the round will record that time, and a sub-agent's report will record how long its rounds waited.
pub(super) fn next(state: &EngineState, now: Micros) -> Option<(Micros, TaskId, bool)> {
    let extended = |turn: &Turn, at: Micros, hard: bool| {
        let id = DirectiveId::Model(turn.task, AgentId::orchestrator(), turn.main.round);
        let (waited_ms, is_waiting) = match state.asked.get(&id) {
            Some(asked) => (asked.waits.ms_until(now), asked.waits.is_waiting()),
            None => {
                let agents = || state.agents.values().filter(|child| child.task == turn.task).map(|child| &child.waits);
                let longest_ms = agents().map(|waits| waits.ms_until(now)).max().unwrap_or(0);
                let is_waiting = agents().any(Waits::is_waiting);
                (longest_ms.saturating_sub(turn.clock.agents_waited_ms), is_waiting)
            }
        };
        let credit_ms = turn.permit_credit_ms(&state.wiring.limits.deadlines, waited_ms);
        let at = at.later_ms(credit_ms);
        // Beyond the limit the wait counts against the task.
        let at = if is_waiting && credit_ms == waited_ms { at.max(now.plus_ms(WAIT_MS_MIN)) } else { at };
        if hard {
            return at;
        }
        // The soft deadline does not pass while a model reads the prompt, because the model cannot finish before its first
        // token.
        let (read_ms, is_reading) = read(state, turn, &id, now);
        let at = at.later_ms(read_ms);
        if is_reading { at.max(now.plus_ms(WAIT_MS_MIN)) } else { at }
    };
    let (at, task, hard) = state.conv.next_deadline_adjusted(&state.wiring.limits.deadlines, extended)?;
    let has_begun = state.conv.turn(task).is_some();
    Some((if has_begun { at } else { at.max(state.born_at.plus_ms(ACTIVATION_GRACE_MS)) }, task, hard))
}

/// The prefill time that the log does not contain yet, in milliseconds, and whether a model is reading a prompt now.
fn read(state: &EngineState, turn: &Turn, id: &DirectiveId, now: Micros) -> (u64, bool) {
    match state.asked.get(id) {
        Some(asked) => (asked.waits.read_ms_until(now), asked.waits.is_reading()),
        None => {
            let agents = || state.agents.values().filter(|child| child.task == turn.task).map(|child| &child.waits);
            let longest_ms = agents().map(|waits| waits.read_ms_until(now)).max().unwrap_or(0);
            let is_reading = agents().any(Waits::is_reading);
            (longest_ms.saturating_sub(turn.clock.agents_prefill_ms), is_reading)
        }
    }
}

/// The time of the next deadline, due message or expiry of a request for an approval.
pub(super) fn next_at(state: &EngineState, now: Micros) -> Option<Micros> {
    let expiry = state.conv.next_approval_expiry();
    next(state, now).map(|(at, ..)| at).into_iter().chain(state.conv.next_due(now)).chain(expiry).min()
}

/// Sets the timer, unless the present one is early enough.
pub(super) fn set_timer(ctx: &Context<Engine>, state: &mut EngineState) {
    let now = ctx.now();
    let Some(at) = next_at(state, now) else {
        state.clock_at = None;
        state.tasks.remove(&EngineTask::Clock);
        return;
    };
    // A timer that goes off too early only checks and is set again, so a deadline that moves back costs nothing.
    if state.clock_at.is_some_and(|set| set <= at) {
        return;
    }
    state.clock_at = Some(at);
    let (me, wait) = (ctx.me(), Duration::from_millis(at.since_ms(now) + 1));
    state.tasks.spawn(EngineTask::Clock, async move {
        tokio::time::sleep(wait).await;
        // If the message is lost, this incarnation has ended, and the next one sets its own timer.
        me.tell(EngineMsg::Clock);
    });
}

/// Starts the idle timer of a new quiet period.
pub(super) fn start_idle_timer(ctx: &Context<Engine>, state: &mut EngineState) {
    state.quiet_periods += 1;
    let (period, me) = (state.quiet_periods, ctx.me());
    // A stateless conversation gets no further message, so it passivates at once.
    let wait_ms = if !state.conv.is_listed { 0 } else { state.wiring.limits.passivate_after_ms };
    let wait = Duration::from_millis(wait_ms);
    state.tasks.spawn(EngineTask::IdleTimer, async move {
        tokio::time::sleep(wait).await;
        me.tell(EngineMsg::Residency(EngineResidencyMsg::Idle { period }));
    });
}
