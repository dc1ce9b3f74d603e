//! Activation: claim the conversation, read the log, take up what was open.

use std::sync::Arc;

use annie_core::{
    event::{Event, EventBody, NewEvent, ResumeCause},
    ids::{AgentId, Epoch},
    ports::{Claimed, StoreError},
    turn::{Deferral, Turn},
};

use super::{
    read_log::{ask, fold},
    record,
    state::{Engine, EngineState},
};
use crate::{
    hub::Live,
    observe::{Context, NodeError},
    scheduler::{SchedulerMsg, StatusMsg},
};

pub(super) async fn activate(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    let opened = state.opening.take().and_then(|opening| opening.take(state.wiring.lease.incarnation()));
    if let Some(events) = opened {
        return activate_opened(ctx, state, &events).await;
    }
    let (store, id) = (state.wiring.store.clone(), state.conv.id);
    let claim = match ctx.wait_for(ask("cannot claim the conversation", claim(state))).await? {
        Claimed::Ours(claim) => claim,
        // A wake-up for a conversation that has no events: nothing to do.
        Claimed::Unknown => return Ok(()),
        Claimed::Refused => {
            tracing::debug!(conversation = %id, "a live node owns the conversation");
            state.fenced = true;
            ctx.stop();
            return Ok(());
        }
    };
    ctx.fault_point("claimed").await?;
    state.epoch = claim.epoch;
    let folded = ctx.wait_for(fold(store.as_ref(), id, state.conv.user.clone())).await?;
    (state.conv, state.snapshot_at, state.read_at_birth) = (folded.conv, folded.snapshot_at, folded.tail.len());
    state.read_to = state.conv.seq;
    if state.wiring.limits.guards.calls.calls_max > 0 {
        state.wiring.spend.know_calls(id, state.conv.call_times());
    }
    // The previous owner may have stored an event and died before the listeners were notified.
    state.wiring.hub.publish(id, Live::Unsure);
    notify_scheduler(state);
    ctx.fault_point("folded").await?;
    // A suspended turn had no part in the crash.
    let resumed = state.cause.into_iter().flat_map(|cause| {
        let turns = state.conv.turns.iter().filter(|t| !t.control.is_suspended);
        let is_bystander = |turn: &Turn| state.blamed.is_some_and(|blamed| !turn.works_on(blamed));
        turns.map(move |turn| match cause {
            ResumeCause::Crash if is_bystander(turn) => (turn.task, ResumeCause::Bystander),
            cause => (turn.task, cause),
        })
    });
    let at = ctx.now();
    let events = resumed.map(|(task, cause)| NewEvent {
        at,
        task,
        agent: AgentId::orchestrator(),
        body: EventBody::Resumed { cause },
    });
    let events = events.collect();
    record::record_all(ctx, state, events).await
}

/// Begins a conversation that this node has just opened: the append of its first message was also the claim, and these are all
/// its events. The log writer that sent them has notified listeners and Scheduler.
async fn activate_opened(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    events: &[Arc<Event>],
) -> Result<(), NodeError> {
    ctx.fault_point("claimed").await?;
    state.epoch = Epoch::FIRST;
    events.iter().for_each(|event| state.conv.apply(event));
    (state.read_at_birth, state.read_to) = (events.len(), state.conv.seq);
    ctx.fault_point("folded").await?;
    record::record_decisions(ctx, state).await
}

/// Claims the conversation; from a live node only if `takes_over` is set.
async fn claim(state: &EngineState) -> Result<Claimed, StoreError> {
    let (store, by) = (&state.wiring.store, state.wiring.lease.incarnation());
    if !state.takes_over {
        return store.claim_free(state.conv.id, by).await;
    }
    Ok(store.claim(state.conv.id, by).await?.map_or(Claimed::Unknown, Claimed::Ours))
}

/// Notifies the Scheduler of what is stored. The log writer does that after each commit, but may have died before it did.
fn notify_scheduler(state: &EngineState) {
    let tell = |news| state.wiring.scheduler.tell(news);
    for task in &state.conv.finished {
        tell(SchedulerMsg::Status(StatusMsg::Ended { task: *task }));
    }
    let turns = state.conv.turns.iter().map(|t| (t.task, t.control.is_suspended, Some(t.deferral), t.inbound.priority));
    let inbox = state.conv.inbox.iter().map(|p| (p.task, p.is_suspended, None, p.inbound.priority));
    for (task, held, deferral, priority) in turns.chain(inbox) {
        tell(SchedulerMsg::Status(StatusMsg::Hold { task, held }));
        tell(SchedulerMsg::Status(StatusMsg::Reprioritise { task, priority }));
        if let Some(Deferral { until: Some(until), after_failure, .. }) = deferral {
            tell(SchedulerMsg::Status(StatusMsg::Defer { task, until, after_failure }));
        }
    }
}
