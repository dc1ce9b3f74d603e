//! Snapshots: how much of the log the next life does not have to read again.
//!
//! While the Engine is awake a task makes them, from the log alone: this life's state runs ahead of what is stored, and behind
//! what doors and agents store beside it, so it is not always what the log says at any one place. When the Engine leaves
//! memory nothing is under way, and its own state is that; unless another process stored a message that nobody told here.

use std::sync::Arc;

use annie_core::{
    event::{Event, EventBody},
    ids::{ConversationId, Epoch, Seq, UserId},
    ports::{Snapshot, Store},
    turn::STATE_VERSION,
};

use super::{Engine, EngineMsg, EngineState, EngineTask, all_known, leave, record, take_in, thaw};
use crate::{
    observe::{Context, NodeError},
    tasks::caught,
};

/// Events from one snapshot of an Engine that is awake to the next, and from a try that failed to the next one. To read and
/// fold an event takes about 0.03 ms (`just recovery`), so what a crash leaves to be read takes under 10 ms of the 50 that an
/// Engine has until it answers again; and a state, tens of kilobytes, is written once for some fifty plain turns.
const AWAKE_EVENTS: u64 = 256;
/// Events since the last snapshot that are worth a new one when the Engine leaves memory.
const LEAVING_EVENTS: u64 = 100;

/// A snapshot that is kept.
pub struct Kept {
    /// The last event in it.
    seq: Seq,
    /// The messages that were read for it: all that this life may not know.
    received: Vec<Event>,
}

/// Has one made, if enough was stored since the last one. Nobody waits for it.
pub(super) fn keep_now_and_then(ctx: &Context<Engine>, state: &mut EngineState) {
    let seq = state.conv.seq;
    let from = state.snapshot_at.max(state.snapshot_tried);
    if seq.0 < from.0 + AWAKE_EVENTS || state.tasks.contains(&EngineTask::Snapshot) {
        return;
    }
    state.snapshot_tried = seq;
    let (store, me) = (state.wiring.store.clone(), ctx.me());
    let (id, user, epoch, read_to) = (state.conv.id, state.conv.user.clone(), state.epoch, state.read_to);
    state.tasks.spawn(EngineTask::Snapshot, async move {
        let kept = caught(make(store, id, user, epoch, read_to)).await;
        let kept = kept.and_then(|kept| kept.map_err(|e| e.to_string()));
        // If it does not arrive this life is over, and its snapshot is kept or not.
        me.tell(EngineMsg::SnapshotKept(kept));
    });
}

/// Folds the log from its last snapshot on, and keeps what comes of it. A store refuses it of a life that was shut out.
/// The last one may be a later one than its Engine knows of, whose keeping was not answered: what that has swallowed since
/// `read_to` is read, too.
async fn make(
    store: Arc<dyn Store>,
    id: ConversationId,
    user: UserId,
    epoch: Epoch,
    read_to: Seq,
) -> Result<Kept, NodeError> {
    let folded = thaw::fold(store.as_ref(), id, user.clone()).await?;
    let seq = folded.conv.seq;
    let state = serde_json::to_string(&folded.conv).map_err(|e| NodeError::new(e.to_string()))?;
    let snapshot = Snapshot { seq, v: STATE_VERSION, state };
    thaw::ask("cannot keep the snapshot", store.put_snapshot(id, epoch, snapshot)).await?;
    let mut received = if folded.snapshot_at > read_to {
        thaw::read_after(store.as_ref(), id, &user, read_to).await?
    } else {
        folded.tail
    };
    received.retain(|e| matches!(e.body, EventBody::Received(_)));
    Ok(Kept { seq, received })
}

/// One is kept, or could not be: then the next one is.
pub(super) async fn kept(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    kept: Result<Kept, String>,
) -> Result<(), NodeError> {
    state.tasks.remove(&EngineTask::Snapshot);
    let Kept { seq, received } = match kept {
        Ok(kept) => kept,
        Err(error) => {
            tracing::warn!(conversation = %state.conv.id, error, "a snapshot could not be kept");
            return Ok(());
        }
    };
    state.snapshot_at = seq.max(state.snapshot_at);
    let mut has_news = false;
    for event in &received {
        has_news |= take_in(state, event);
    }
    all_known(state, seq);
    if has_news { record::go_on(ctx, state).await } else { Ok(()) }
}

/// Keeps one of a state in which nothing is under way, if enough has happened since the last one. No wake-up is on its way,
/// so the state holds everything up to its place; but for what another process stored while its hint was lost, and that is
/// the next life's work.
pub(super) async fn keep_at_leave(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    let seq = state.conv.seq;
    if seq.0 < state.snapshot_at.0 + LEAVING_EVENTS {
        return Ok(());
    }
    let id = state.conv.id;
    let is_known = |event: &Event| event.seq <= state.read_to || state.woken.contains(&event.seq);
    match thaw::received_since(ctx, state).await {
        Ok(read) if read.messages.iter().all(is_known) => {}
        Ok(_) => {
            leave::leave_open(state);
            return Ok(());
        }
        Err(error) => {
            tracing::warn!(conversation = %id, %error, "no snapshot is kept");
            return Ok(());
        }
    }
    let Ok(json) = serde_json::to_string(&state.conv) else { return Ok(()) };
    ctx.fault_point("snapshot").await?;
    let snapshot = Snapshot { seq, v: STATE_VERSION, state: json };
    let keep = state.wiring.store.put_snapshot(id, state.epoch, snapshot);
    if let Err(error) = ctx.wait_for(thaw::ask("cannot keep the snapshot", keep)).await {
        tracing::warn!(conversation = %id, %error, "a snapshot could not be kept");
    }
    ctx.fault_point("snapshot_kept").await
}
