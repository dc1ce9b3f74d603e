//! Snapshots: the part of the log that the next incarnation need not read again.
//!
//! While the Engine is active, a separate task makes snapshots from the log alone. The Engine's own state cannot be used: it
//! is ahead of what is stored, and behind what front ends and agents store beside it, so it may match the log at no single
//! sequence number. When the Engine passivates nothing is under way, and its own state matches the log, unless another node
//! stored a message whose hint did not arrive here.

use std::sync::Arc;

use annie_core::{
    event::{Event, EventBody},
    ids::{ConversationId, Epoch, Seq, UserId},
    ports::{Snapshot, Store},
    turn::STATE_VERSION,
};

use super::{
    messages::{EngineMsg, Kept},
    read_log,
    state::{Engine, EngineState, EngineTask, fold_message, mark_known_up_to},
};
use crate::{
    observe::{Context, NodeError},
    tasks::caught,
};

/// Events between two snapshots of an active Engine, and between a failed attempt and the next one. Reading and folding an
/// event takes about 0.03 ms (`just recovery`), so after a crash reading the rest takes under 10 ms of the 50 ms that an
/// Engine has until it answers again. A state of tens of kilobytes is then written once for some fifty plain turns.
const AWAKE_EVENTS: u64 = 256;
/// Events since the last snapshot for which a passivating Engine saves a new one.
const LEAVING_EVENTS: u64 = 100;

/// Starts a snapshot task if enough was stored since the last one. The Engine does not wait for it.
pub(super) fn save_if_due(ctx: &Context<Engine>, state: &mut EngineState) {
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
        // If the message is lost, this incarnation has ended; the snapshot is saved or not.
        me.tell(EngineMsg::SnapshotKept(kept));
    });
}

/// Folds the log from its last snapshot on, and saves the result. The store refuses the snapshot of a fenced Engine. The
/// last snapshot may be newer than the Engine knows, if its confirmation was lost. Messages since `read_to` that such a
/// snapshot contains are therefore read as well.
async fn make(
    store: Arc<dyn Store>,
    id: ConversationId,
    user: UserId,
    epoch: Epoch,
    read_to: Seq,
) -> Result<Kept, NodeError> {
    let folded = read_log::fold(store.as_ref(), id, user.clone()).await?;
    let seq = folded.conv.seq;
    let state = serde_json::to_string(&folded.conv).map_err(|e| NodeError::new(e.to_string()))?;
    let snapshot = Snapshot { seq, v: STATE_VERSION, state };
    read_log::ask("cannot save the snapshot", store.put_snapshot(id, epoch, snapshot)).await?;
    let mut received = if folded.snapshot_at > read_to {
        read_log::read_after(store.as_ref(), id, &user, read_to).await?
    } else {
        folded.tail
    };
    received.retain(|e| matches!(e.body, EventBody::Received(_)));
    Ok(Kept { seq, received })
}

/// Handles the end of a snapshot task. If it failed, the next snapshot is attempted when it is due. Returns true if the task
/// read messages that this incarnation did not know: decisions may follow from them.
pub(super) fn kept(state: &mut EngineState, kept: Result<Kept, String>) -> bool {
    state.tasks.remove(&EngineTask::Snapshot);
    let Kept { seq, received } = match kept {
        Ok(kept) => kept,
        Err(error) => {
            tracing::warn!(conversation = %state.conv.id, error, "a snapshot could not be saved");
            return false;
        }
    };
    state.snapshot_at = seq.max(state.snapshot_at);
    let mut has_news = false;
    for event in &received {
        has_news |= fold_message(state, event);
    }
    mark_known_up_to(state, seq);
    has_news
}

/// Saves a snapshot of a state in which nothing is under way, if enough happened since the last one. No wake-up is on its
/// way, so the state holds everything up to its sequence number, except a message that another node stored and whose hint
/// was lost. The next incarnation handles that message, and then the result is false.
pub(super) async fn save_on_passivate(ctx: &Context<Engine>, state: &mut EngineState) -> Result<bool, NodeError> {
    let seq = state.conv.seq;
    if seq.0 < state.snapshot_at.0 + LEAVING_EVENTS {
        return Ok(true);
    }
    let id = state.conv.id;
    let is_known = |event: &Event| event.seq <= state.read_to || state.woken.contains(&event.seq);
    match read_log::received_since(ctx, state).await {
        Ok(read) if read.messages.iter().all(is_known) => {}
        Ok(_) => return Ok(false),
        Err(error) => {
            tracing::warn!(conversation = %id, %error, "the log could not be read, no snapshot is saved");
            return Ok(true);
        }
    }
    let Ok(json) = serde_json::to_string(&state.conv) else { return Ok(true) };
    ctx.fault_point("snapshot").await?;
    let snapshot = Snapshot { seq, v: STATE_VERSION, state: json };
    let keep = state.wiring.store.put_snapshot(id, state.epoch, snapshot);
    if let Err(error) = ctx.wait_for(read_log::ask("cannot save the snapshot", keep)).await {
        tracing::warn!(conversation = %id, %error, "a snapshot could not be saved");
    }
    ctx.fault_point("snapshot_kept").await?;
    Ok(true)
}
