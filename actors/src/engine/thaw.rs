//! Coming to life: claim the conversation, read the log, take up what was open. And going: keep a snapshot.

use annie_core::{
    event::{Event, EventBody, NewEvent, Scope},
    ids::{AgentId, Seq},
    ports::{Snapshot, StoreError},
    turn::{Conversation, STATE_VERSION},
};

use super::{Engine, EngineState, record};
use crate::{
    hub::Live,
    observe::{Context, NodeError},
    scheduler::SchedulerMsg,
};

/// Events read at a time.
const PAGE: u32 = 500;
/// Events since the last snapshot that are worth a new one.
const SNAPSHOT_EVERY: u64 = 100;

fn in_doubt(what: &str, error: &StoreError) -> NodeError {
    let what = format!("{what}: {error}");
    if error.is_retryable() { NodeError::deprived(what) } else { NodeError::new(what) }
}

pub(super) async fn thaw(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    let (store, id) = (state.wiring.store.clone(), state.conv.id);
    let claim = store.claim(id, state.wiring.node).await.map_err(|e| in_doubt("cannot claim the conversation", &e))?;
    let Some(claim) = claim else {
        // Woken for a conversation that nobody has written to: nothing to do.
        return Ok(());
    };
    ctx.fault_point("claimed").await?;
    state.epoch = claim.epoch;
    let snapshot = store.snapshot(id).await.map_err(|e| in_doubt("cannot read the snapshot", &e))?;
    if let Some(known) = snapshot.filter(|s| s.v == STATE_VERSION) {
        match serde_json::from_str::<Conversation>(&known.state) {
            Ok(conv) => {
                state.conv = conv;
                state.snapshot_at = known.seq;
            }
            // The log has everything; a snapshot only saves time.
            Err(e) => tracing::warn!(conversation = %id, error = %e, "unreadable snapshot, reading the whole log"),
        }
    }
    for event in read_after(state, state.conv.seq).await? {
        state.conv.apply(&event);
    }
    state.read_to = state.conv.seq;
    // The former life may have stored an event and died before anybody was told.
    state.wiring.hub.publish(id, Live::Unsure);
    if state.cause.is_some() {
        // The former life may have stored the end of a task and died before the scheduler heard of it: who waits for that
        // task would wait for ever.
        for task in &state.conv.finished {
            state.wiring.scheduler.tell(SchedulerMsg::Ended { task: *task });
        }
    }
    ctx.fault_point("folded").await?;
    // A turn that only waits to be let go on had no part in the death.
    let resumed = state.cause.into_iter().flat_map(|cause| {
        let turns = state.conv.turns.iter().filter(|t| !t.suspended);
        turns.map(move |turn| (turn.task, cause))
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

async fn read_after(state: &EngineState, mut after: Seq) -> Result<Vec<Event>, NodeError> {
    let mut all = Vec::new();
    loop {
        let scope = Scope::User(state.conv.user.clone());
        let page = state.wiring.store.events(scope, state.conv.id, after, PAGE).await;
        let page = page.map_err(|e| in_doubt("cannot read the log", &e))?;
        let full = page.len() == PAGE as usize;
        after = page.last().map_or(after, |e| e.seq);
        all.extend(page);
        if !full {
            return Ok(all);
        }
    }
}

/// The messages behind the place up to which this life has read.
pub(super) async fn received_since(state: &EngineState) -> Result<Vec<Event>, NodeError> {
    let mut events = read_after(state, state.read_to).await?;
    events.retain(|e| matches!(e.body, EventBody::Received(_)));
    Ok(events)
}

/// Keeps a snapshot if enough has happened since the last one. Only called when no wake-up is on its way, so that the state
/// holds everything up to its place.
pub(super) async fn keep_snapshot(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    let seq = state.conv.seq;
    if seq.0 < state.snapshot_at.0 + SNAPSHOT_EVERY {
        return Ok(());
    }
    let Ok(json) = serde_json::to_string(&state.conv) else { return Ok(()) };
    ctx.fault_point("snapshot").await?;
    let snapshot = Snapshot { seq, v: STATE_VERSION, state: json };
    if let Err(e) = state.wiring.store.put_snapshot(state.conv.id, state.epoch, snapshot).await {
        tracing::warn!(conversation = %state.conv.id, error = %e, "the snapshot could not be kept");
    }
    ctx.fault_point("snapshot_kept").await
}
