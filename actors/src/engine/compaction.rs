//! The compaction of the conversation: starts the effect that makes the summary, and records the result. If the Engine dies
//! before, the next incarnation starts it again under the same id.

use annie_core::{
    event::EventBody,
    ids::{AgentId, TaskId},
    turn::{DirectiveId, Summarised},
};

use super::{
    messages::EngineMsg,
    record,
    state::{Engine, EngineState, EngineTask},
};
use crate::{
    effects::summarise,
    observe::{Context, NodeError},
    spend::Payer,
};

pub(super) fn start(ctx: &Context<Engine>, state: &mut EngineState, id: DirectiveId, task: TaskId, number: u32) {
    let Some(work) = state.conv.compaction_work() else { return };
    let (wiring, me) = (state.wiring.clone(), ctx.me());
    let payer = Payer {
        task,
        conversation: state.conv.id,
        user: state.conv.user.clone(),
        epoch: state.epoch,
        spent_in_turn: annie_core::spend::Spent::default(),
        is_first_round: false,
        // The cap on model calls is about the rounds of agents.
        calls: None,
    };
    state.spawn(id, async move {
        let summarised = summarise(&wiring, payer, work).await;
        // If the message is lost, this incarnation has ended, and the next one starts the compaction again.
        me.tell(EngineMsg::Summarised { task, number, summarised });
    });
}

pub(super) async fn summarised(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    task: TaskId,
    number: u32,
    summarised: Summarised,
) -> Result<(), NodeError> {
    state.tasks.remove(&EngineTask::Effect(DirectiveId::Compact(task, number)));
    // A turn whose prompt was too long may have compacted the conversation meanwhile.
    let Some(body) = state.conv.compacted_event(number, summarised) else {
        return record::record_decisions(ctx, state).await;
    };
    record::record(ctx, state, task, AgentId::orchestrator(), body).await
}

/// Counts a compaction that is recorded.
pub(super) fn count(body: &EventBody) {
    if let EventBody::Compacted(compacted) = body {
        let by = if compacted.without_model.is_empty() { "model" } else { "kernel" };
        metrics::counter!("annie_compactions_total", "cause" => compacted.cause.as_str(), "by" => by).increment(1);
    }
}
