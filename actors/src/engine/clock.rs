//! What happens when time passes: a deadline of a task, or a message that is due. One timer, for the earliest of them.

use std::time::Duration;

use annie_core::{
    event::EventBody,
    ids::{AgentId, TaskId},
    time::Micros,
    turn::{DirectiveId, Turn},
};

use super::{Engine, EngineMsg, EngineState, EngineTask, record};
use crate::observe::{Context, NodeError};

/// What a message that has not begun is given after a thaw, in milliseconds: nobody could begin it before.
const THAW_MS: i64 = 30_000;

/// While a round waits for its permit, its task's deadline is looked at again after this long at the earliest, in milliseconds.
const WAIT_MS_MIN: i64 = 250;

/// The next deadline. The time that a round waits for its permit is not the task's, up to a limit: the event that ends the
/// round will say how long that was, and the report of a sub-agent how long its rounds waited.
fn next(state: &EngineState, now: Micros) -> Option<(Micros, TaskId, bool)> {
    let moved = |turn: &Turn, at: Micros, hard: bool| {
        let id = DirectiveId::Model(turn.task, AgentId::orchestrator(), turn.main.round);
        let (waited_ms, is_waiting) = match state.asked.get(&id) {
            Some(asked) => (asked.waits.ms_until(now), asked.waits.is_waiting()),
            None => {
                let agents = || state.agents.values().filter(|seat| seat.task == turn.task).map(|seat| &seat.waits);
                let longest_ms = agents().map(|waits| waits.ms_until(now)).max().unwrap_or(0);
                let is_waiting = agents().any(super::Waits::is_waiting);
                (longest_ms.saturating_sub(turn.clock.agents_waited_ms), is_waiting)
            }
        };
        let credit_ms = turn.permit_credit_ms(&state.wiring.limits.deadlines, waited_ms);
        let at = at.later_ms(credit_ms);
        // Beyond the limit the wait is the task's own time.
        let at = if is_waiting && credit_ms == waited_ms { at.max(now.plus_ms(WAIT_MS_MIN)) } else { at };
        if hard {
            return at;
        }
        // Nor can a model come to an end before its first token.
        let (read_ms, is_reading) = read(state, turn, &id, now);
        let at = at.later_ms(read_ms);
        if is_reading { at.max(now.plus_ms(WAIT_MS_MIN)) } else { at }
    };
    let (at, task, hard) = state.conv.next_deadline_but(&state.wiring.limits.deadlines, moved)?;
    let has_begun = state.conv.turn(task).is_some();
    Some((if has_begun { at } else { at.max(state.born_at.plus_ms(THAW_MS)) }, task, hard))
}

/// How long models have read before their first tokens of which the log does not say so yet, in milliseconds, and whether one
/// reads now.
fn read(state: &EngineState, turn: &Turn, id: &DirectiveId, now: Micros) -> (u64, bool) {
    match state.asked.get(id) {
        Some(asked) => (asked.waits.read_ms_until(now), asked.waits.is_reading()),
        None => {
            let agents = || state.agents.values().filter(|seat| seat.task == turn.task).map(|seat| &seat.waits);
            let longest_ms = agents().map(|waits| waits.read_ms_until(now)).max().unwrap_or(0);
            let is_reading = agents().any(super::Waits::is_reading);
            (longest_ms.saturating_sub(turn.clock.agents_prefill_ms), is_reading)
        }
    }
}

/// When the clock strikes next.
pub(super) fn next_at(state: &EngineState, now: Micros) -> Option<Micros> {
    next(state, now).map(|(at, ..)| at).into_iter().chain(state.conv.next_due(now)).min()
}

/// Sets the timer, unless one goes off in time already.
pub(super) fn wind(ctx: &Context<Engine>, state: &mut EngineState) {
    let now = ctx.now();
    let Some(at) = next_at(state, now) else {
        state.clock_at = None;
        state.tasks.remove(&EngineTask::Clock);
        return;
    };
    // One that goes off too early only looks and is set again: a deadline that is pushed back costs nothing.
    if state.clock_at.is_some_and(|set| set <= at) {
        return;
    }
    state.clock_at = Some(at);
    let (me, wait) = (ctx.me(), Duration::from_millis(at.since_ms(now) + 1));
    state.tasks.spawn(EngineTask::Clock, async move {
        tokio::time::sleep(wait).await;
        // If it fails this life is over, and the next one winds its own.
        me.tell(EngineMsg::Clock);
    });
}

/// Records every deadline that has passed, and begins what is due.
pub(super) async fn strike(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    state.clock_at = None;
    state.tasks.remove(&EngineTask::Clock);
    let now: Micros = ctx.now();
    match next(state, now) {
        Some((at, task, hard)) if at <= now => {
            let letters = state.conv.turn(task).is_none().then(|| state.wiring.limits.turn.letters.clone());
            let body = EventBody::DeadlinePassed { hard, letters };
            record::record(ctx, state, task, AgentId::orchestrator(), body).await
        }
        _ => record::go_on(ctx, state).await,
    }
}
