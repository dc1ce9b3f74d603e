//! Quarantine: conversations whose Engine dies too often are stopped, shown to operators, and resumable.

use std::time::Duration;

use annie_core::{event::ResumeCause, ids::ConversationId};

use super::{Conversations, ConversationsMsg, ConversationsState, Work, new_child, start};
use crate::{fail_open::fail_open_turns, observe::Context, tasks::caught};

/// Wait before a conversation is resumed whose failures could not be stored, in milliseconds.
const RESUME_DELAY_MS: u64 = 1_000;

/// Quarantines a conversation whose restart budget is used up, and turns its open work into visible failures.
pub(super) fn quarantine(ctx: &Context<Conversations>, state: &mut ConversationsState, conversation: ConversationId) {
    let Some(child) = state.children.remove(&conversation) else { return };
    tracing::error!(%conversation, "the Engine exceeded its restart budget, the conversation is quarantined");
    metrics::counter!("annie_conversations_quarantined_total").increment(1);
    state.quarantine.insert(conversation, child.user);
    quarantine_open(ctx, state, conversation);
}

/// Fails the open turns of a quarantined conversation: when it enters quarantine, and when a new message arrives for it.
pub(super) fn quarantine_open(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
) {
    let Some(user) = state.quarantine.get(&conversation).cloned() else { return };
    let (wiring, me) = (state.wiring.clone(), ctx.me());
    state.tasks.spawn(Work::FailOpen(conversation), async move {
        let outcome = caught(fail_open_turns(&wiring, conversation, &user)).await.unwrap_or_else(Err);
        if outcome.is_err() {
            tokio::time::sleep(Duration::from_millis(RESUME_DELAY_MS)).await;
        }
        me.tell(ConversationsMsg::Quarantined { conversation, outcome });
    });
}

/// Handles the result of failing the open turns. If the store cannot take the failures, it probably caused the crashes as
/// well, so the conversation leaves quarantine and is tried again.
pub(super) async fn quarantined(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    outcome: Result<(), String>,
) {
    state.tasks.remove(&Work::FailOpen(conversation));
    let Err(why) = outcome else { return };
    let Some(user) = state.quarantine.remove(&conversation) else { return };
    tracing::warn!(%conversation, why, "cannot store the failures of a quarantined conversation, resuming it");
    state.children.insert(conversation, new_child(user, Some(ResumeCause::Crash), 0));
    start(ctx, state, conversation).await;
}
