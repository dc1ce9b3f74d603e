//! Conversations and their owners: what the ownership actor found, and what follows for the Engines here.

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
            // The conversations that were open when this incarnation started were interrupted by its start.
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
            // No local Engine announces events of conversations that are not active here, so their listeners must read the
            // log.
            let is_here = |id| state.children.get(&id).is_some_and(|child| child.addr.is_some() && !child.is_elsewhere);
            state.wiring.hub.unsure_of(|conversation| !is_here(conversation));
        }
    }
}

/// Takes up an open conversation unless its Engine is at work on it already.
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

/// Marks the conversations that another node owns. Their Engines are left to notice the fence or to passivate; the next
/// message for such a conversation goes to a new Engine.
fn elsewhere(state: &mut ConversationsState, conversations: Vec<(ConversationId, Incarnation)>) {
    for (conversation, incarnation) in conversations {
        let Some(child) = state.children.get_mut(&conversation) else { continue };
        if child.addr.as_ref().is_some_and(|addr| addr.incarnation == incarnation) && !child.is_elsewhere {
            child.is_elsewhere = true;
            state.wiring.hub.publish(conversation, Live::Unsure);
        }
    }
}

/// A conversation that a live node owns is left to that node, which is notified of messages stored here. If this node is the
/// owner, an earlier incarnation whose parent was killed made a last write that fenced the Engine; the Engine is then
/// restarted as after a crash.
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
            tracing::info!(%conversation, ?owner, "another node owns the conversation now");
            state.children.remove(&conversation);
            if owner == Owner::DeadNode {
                doubt(state, conversation);
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

/// Takes up a conversation if it has open work that this node may continue.
fn doubt(state: &ConversationsState, conversation: ConversationId) {
    // If the ownership actor is dead, its next incarnation scans for all open work.
    state.wiring.ownership.tell(OwnershipMsg::Doubt(vec![conversation]));
}

/// Handles open work that a passivating Engine left. This is not a message that arrived on this node: if another node has
/// claimed the conversation meanwhile, that node continues it.
pub(super) async fn unfinished(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    user: UserId,
) {
    match state.children.get_mut(&conversation) {
        Some(child) if child.is_elsewhere => doubt(state, conversation),
        Some(child) => {
            // If no Engine runs yet, the next one reads the log when it activates.
            if child.addr.as_ref().is_some_and(|addr| addr.tell(EngineMsg::Wake(None))) {
                child.wakes_sent += 1;
            }
        }
        None => activate_again(ctx, state, conversation, user).await,
    }
}
