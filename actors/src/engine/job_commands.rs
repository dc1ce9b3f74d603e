//! Controls of tasks from outside a turn: by an operator, by a front end, or by a job command of the user.

use annie_core::{
    event::EventBody,
    ids::{AgentId, TaskId},
    turn::{DirectiveId, Meant},
};
use tokio::sync::oneshot;

use super::{
    control::{Control, Controlled},
    read_log::read_new_messages,
    record,
    state::{Engine, EngineState, EngineTask},
};
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
        // The wake-up for this task may have been lost. Decisions that follow from newly read messages are stored together
        // with the control.
        read_new_messages(ctx, state).await?;
    }
    // A message that joined another task, and a job command, have no rounds of their own to suspend or reprioritise.
    let is_open = match control {
        Control::Cancel => state.conv.is_open(task),
        // A task that a person suspended is continued only by a person.
        Control::TryAgain => state.conv.turn(task).is_some_and(|turn| !turn.control.is_suspended),
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
            // The control is not stored. The requester gets no answer, and asks the Engine that owns the conversation.
            return Ok(());
        }
    }
    if !is_open {
        record::record_decisions(ctx, state).await?;
    }
    // The requester may be gone.
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
    if !state.conv.job_commands.iter().any(|o| o.task == task && o.meant.is_none()) {
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
    if !state.conv.job_commands.iter().any(|o| o.task == task) {
        return Ok(());
    }
    let body = EventBody::answered(text);
    record::record(ctx, state, task, AgentId::orchestrator(), body).await
}
