//! What is done with tasks from outside: by an operator, by a door, or by an order that the user spoke.

use annie_core::{
    event::EventBody,
    ids::{AgentId, TaskId},
    turn::{DirectiveId, Meant},
};
use tokio::sync::oneshot;

use super::{Control, Controlled, Engine, EngineState, EngineTask, record};
use crate::observe::{Context, NodeError};

pub(super) async fn control(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    task: TaskId,
    control: Control,
    by: String,
    reply: oneshot::Sender<Controlled>,
) -> Result<(), NodeError> {
    if !state.conv.is_open(task) && !state.conv.finished.contains(&task) {
        // Its wake-up may have been lost. What follows from what is found follows with the control.
        super::read_on(ctx, state).await?;
    }
    // A message that joined another, or an order, has no rounds of its own to hold back or to hurry.
    let is_open = match control {
        Control::Cancel => state.conv.is_open(task),
        // What a person suspended waits for a person.
        Control::TryAgain => state.conv.turn(task).is_some_and(|turn| !turn.suspended),
        Control::Suspend | Control::Continue | Control::Reprioritise(_) => {
            state.conv.turn(task).is_some() || state.conv.inbox.iter().any(|p| p.task == task)
        }
    };
    if is_open {
        let body = match control {
            Control::Cancel => EventBody::CancelRequested { by },
            Control::Suspend => EventBody::Suspended { by },
            Control::Continue | Control::TryAgain => EventBody::Continued { by },
            Control::Reprioritise(priority) => EventBody::Reprioritised { priority, by },
        };
        record::record(ctx, state, task, AgentId::orchestrator(), body).await?;
        if state.fenced {
            // It is not done. Whoever asked gets no answer, and asks the life that owns the conversation.
            return Ok(());
        }
    }
    if !is_open {
        record::go_on(ctx, state).await?;
    }
    // Whoever asked may have left.
    let _ = reply.send(if is_open { Controlled::Done } else { Controlled::TooLate });
    Ok(())
}

pub(super) async fn understood(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    task: TaskId,
    meant: Meant,
) -> Result<(), NodeError> {
    state.tasks.remove(&EngineTask::Effect(DirectiveId::Understand(task)));
    if !state.conv.orders.iter().any(|o| o.task == task && o.meant.is_none()) {
        return Ok(());
    }
    let Meant { verb, targets, text } = meant;
    record::record(ctx, state, task, AgentId::orchestrator(), EventBody::Ordered { verb, targets, text }).await
}

pub(super) async fn carried_out(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    task: TaskId,
    text: String,
) -> Result<(), NodeError> {
    state.tasks.remove(&EngineTask::Effect(DirectiveId::CarryOut(task)));
    if !state.conv.orders.iter().any(|o| o.task == task) {
        return Ok(());
    }
    let body = EventBody::answered(text);
    record::record(ctx, state, task, AgentId::orchestrator(), body).await
}
