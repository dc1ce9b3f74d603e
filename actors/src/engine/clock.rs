//! What happens when time passes: a deadline of a task, or a message that is due. One timer, for the earliest of them.

use std::time::Duration;

use annie_core::{
    event::EventBody,
    ids::{AgentId, TaskId},
    time::Micros,
};

use super::{Engine, EngineMsg, EngineState, EngineTask, record};
use crate::observe::{Context, NodeError};

/// What a message that has not begun is given after a thaw, in milliseconds: nobody could begin it before.
const THAW_MS: i64 = 30_000;

/// The next deadline.
fn next(state: &EngineState) -> Option<(Micros, TaskId, bool)> {
    let (at, task, hard) = state.conv.next_deadline(&state.wiring.limits.deadlines)?;
    let has_begun = state.conv.turn(task).is_some();
    Some((if has_begun { at } else { at.max(state.born_at.plus_ms(THAW_MS)) }, task, hard))
}

/// When the clock strikes next.
pub(super) fn next_at(state: &EngineState, now: Micros) -> Option<Micros> {
    next(state).map(|(at, ..)| at).into_iter().chain(state.conv.next_due(now)).min()
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
    match next(state) {
        Some((at, task, hard)) if at <= now => {
            let letters = state.conv.turn(task).is_none().then(|| state.wiring.limits.turn.letters.clone());
            let body = EventBody::DeadlinePassed { hard, letters };
            record::record(ctx, state, task, AgentId::orchestrator(), body).await
        }
        _ => record::go_on(ctx, state).await,
    }
}
