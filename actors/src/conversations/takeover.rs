//! Acts on what the ownership actor found: activates Engines for open work, and gives up Engines whose conversations
//! other nodes own.

use annie_core::{
    event::ResumeCause,
    ids::{ConversationId, Incarnation, UserId},
    ports::{OpenConversation, StoreError},
};

use super::{
    activation::{activate_again, activate_waiting, ensure_child, wake},
    messages::{OpenWork, OwnershipNews},
    state::{Conversations, ConversationsState, Work},
    supervision::{ask_owner, deprived_ms, quarantine, start_again},
};
use crate::{
    engine::EngineMsg,
    hub::Live,
    observe::Context,
    ownership::{Owner, OwnershipMsg},
};

pub(super) async fn learn(ctx: &Context<Conversations>, state: &mut ConversationsState, news: OwnershipNews) {
    match news {
        OwnershipNews::Opened { open, is_complete, started } => {
            // The Engines of the previous incarnation, or of the previous process, ended with it. The first complete
            // scan of this incarnation finds the turns that were interrupted by that, so they are resumed as after a
            // restart.
            let is_first = is_complete && (!state.booted || started == Some(ctx.incarnation));
            state.booted |= is_complete;
            for work in open {
                let cause = (is_first || work.is_orphan).then_some(ResumeCause::Restart);
                take_up(ctx, state, work, cause).await;
            }
        }
        OwnershipNews::ListActive(reply) => {
            let active = state.children.iter();
            let active = active.filter_map(|(id, child)| Some((*id, child.addr.as_ref()?.incarnation))).collect();
            // The ownership actor may have given up.
            let _ = reply.send(active);
        }
        OwnershipNews::Elsewhere(conversations) => elsewhere(state, conversations),
        OwnershipNews::StoredByOthers => {
            // The listeners of a conversation are notified by the log writer of the node that stores its events. For a
            // conversation without an active Engine here that may be another node, so these listeners must read the
            // log.
            let is_here = |id| state.children.get(&id).is_some_and(|child| child.addr.is_some() && !child.is_elsewhere);
            state.wiring.hub.unsure_of(|conversation| !is_here(conversation));
        }
    }
}

/// Activates an open conversation and wakes its Engine. Does nothing if the conversation is passive and nothing was
/// stored since, or if only a new message is a reason to wake the Engine and the Engine was notified of the newest one.
async fn take_up(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    work: OpenWork,
    cause: Option<ResumeCause>,
) {
    let OpenConversation { id, user, last, waiting, .. } = work.found;
    if state.residency.is_passive(id, last) {
        return;
    }
    if let Some(child) = state.children.get_mut(&id) {
        let newest = waiting.unwrap_or_default();
        if work.only_news && child.notified_seq >= newest {
            return;
        }
        child.notified_seq = child.notified_seq.max(newest);
    }
    if ensure_child(ctx, state, id, &user, cause) {
        wake(ctx, state, id, user, None).await;
    }
}

/// Marks the Engines whose conversations another node owns. A marked Engine is not stopped here: it ends when the store
/// fences its next append, or it passivates. The next message for its conversation stops it and goes to a new Engine.
fn elsewhere(state: &mut ConversationsState, conversations: Vec<(ConversationId, Incarnation)>) {
    for (conversation, incarnation) in conversations {
        let Some(child) = state.children.get_mut(&conversation) else { continue };
        if child.addr.as_ref().is_some_and(|addr| addr.incarnation == incarnation) && !child.is_elsewhere {
            child.is_elsewhere = true;
            state.wiring.hub.publish(conversation, Live::Unsure);
        }
    }
}

/// Decides what follows after an Engine ended because it did not own its conversation:
///
/// - This node is the owner: an Engine of an earlier incarnation of this actor made a late claim, which fenced the
///   Engine. The Engine is restarted, and its restart budget is charged as after a crash.
/// - A live node is the owner: it continues the conversation, and is notified of messages that are stored here.
/// - A dead node is the owner: the ownership actor is asked to scan, so that this node may claim the conversation.
/// - This node was declared dead itself: it reloads all of its conversations when it has registered a new incarnation.
pub(super) async fn fenced(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    owner: Result<Owner, StoreError>,
) {
    state.tasks.remove(&Work::Owner(conversation));
    if state.children.get(&conversation).is_none_or(|child| child.addr.is_some()) {
        return;
    }
    match owner {
        Ok(Owner::ThisNode) => {
            if !start_again(ctx, state, conversation).await {
                quarantine(ctx, state, conversation);
                activate_waiting(ctx, state).await;
            }
        }
        Ok(owner) => {
            metrics::counter!("annie_conversations_lost_total").increment(1);
            tracing::info!(%conversation, ?owner, "an Engine without ownership has ended and is not restarted");
            state.children.remove(&conversation);
            if owner == Owner::DeadNode {
                request_scan(state, conversation);
            }
            activate_waiting(ctx, state).await;
        }
        Err(error) => {
            tracing::warn!(%conversation, %error, "cannot read the owner of a conversation, trying again");
            let wait_ms = deprived_ms(ctx, state, conversation);
            ask_owner(ctx, state, conversation, wait_ms);
        }
    }
}

/// Asks the ownership actor to scan for open work of a conversation. If it finds some that this node may continue, it
/// reports it as [`OwnershipNews::Opened`].
fn request_scan(state: &ConversationsState, conversation: ConversationId) {
    // If the ownership actor is dead, its next incarnation scans for all open work.
    state.wiring.ownership.tell(OwnershipMsg::Doubt(vec![conversation]));
}

/// Handles open work that a passivating Engine left. If another node has claimed the conversation meanwhile, that node
/// continues the work.
pub(super) async fn unfinished(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    user: UserId,
) {
    match state.children.get_mut(&conversation) {
        Some(child) if child.is_elsewhere => request_scan(state, conversation),
        Some(child) => {
            // If no Engine runs yet, the next one reads the log when it activates.
            if child.addr.as_ref().is_some_and(|addr| addr.tell(EngineMsg::Wake(None))) {
                child.wakes_sent += 1;
            }
        }
        None => activate_again(ctx, state, conversation, user).await,
    }
}
