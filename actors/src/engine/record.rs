//! The one way in which an Engine's state moves: fold, decide, store, and only then act.

use annie_core::{
    event::{EventBody, NewEvent},
    ids::{AgentId, Seq, TaskId},
    ports::{Append, AppendError, Fence},
};

use super::{Engine, EngineState, perform, rest};
use crate::{
    log_writer::{LogError, append},
    observe::{Context, NodeError},
    scheduler::SchedulerMsg,
};

/// Decisions in a row without anything from outside; more would be a circle in the core.
const DECISIONS_MAX: usize = 1_000;

/// Records one event and what follows from it.
pub(super) async fn record(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    task: TaskId,
    agent: AgentId,
    body: EventBody,
) -> Result<(), NodeError> {
    let event = NewEvent { at: ctx.now(), task, agent, body };
    record_all(ctx, state, vec![event]).await
}

/// Records nothing new, but what follows from the state as it is.
pub(super) async fn go_on(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    record_all(ctx, state, Vec::new()).await
}

pub(super) async fn record_all(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    mut events: Vec<NewEvent>,
) -> Result<(), NodeError> {
    for event in &events {
        state.conv.fold(event.at, event.task, &event.agent, &event.body);
    }
    let now = ctx.now();
    while let Some(decision) = state.conv.decide() {
        state.conv.fold(now, decision.task, &decision.agent, &decision.body);
        events.push(NewEvent { at: now, task: decision.task, agent: decision.agent, body: decision.body });
        if events.len() > DECISIONS_MAX {
            return Err(NodeError::new("the core decides in a circle"));
        }
    }
    if !events.is_empty() {
        let ended: Vec<TaskId> = events.iter().filter(|e| e.body.is_final()).map(|e| e.task).collect();
        ctx.fault_point("deciding").await?;
        let count = events.len() as u64;
        let what = Append {
            conversation: state.conv.id,
            user: state.conv.user.clone(),
            fence: Fence::Owner(state.epoch),
            events,
        };
        match append(&state.wiring.log, what).await {
            Ok(stored) => state.conv.placed(Seq(stored.first.0 + count - 1)),
            Err(LogError::Refused(AppendError::Fenced)) => {
                tracing::info!(conversation = %state.conv.id, "another life owns the conversation now");
                ctx.stop();
                return Ok(());
            }
            // The state says more than the log, or the log more than is known: the next life reads it.
            Err(e) => return Err(NodeError::new(format!("an append failed: {e}"))),
        }
        ctx.fault_point("stored").await?;
        for task in ended {
            // If it is lost, the scheduler's next life learns from the task table.
            let _ = state.wiring.scheduler.cast(SchedulerMsg::Ended { task });
        }
    }
    perform::perform(ctx, state).await?;
    if state.conv.is_idle() {
        rest(ctx, state);
    }
    Ok(())
}
