//! Conversations whose Engine dies too often: parked, shown, and resumable.

use std::time::Duration;

use annie_core::{event::ResumeCause, ids::ConversationId};

use super::{Conversations, ConversationsMsg, ConversationsState, Work, new_seat, start};
use crate::{observe::Context, park::park, tasks::caught};

/// How long a conversation stays parked whose failures could not be stored, in milliseconds.
const PARK_AGAIN_MS: u64 = 1_000;

/// Out of budget: parked, not restarted. What is open in it becomes visible failures.
pub(super) fn quarantine(ctx: &Context<Conversations>, state: &mut ConversationsState, conversation: ConversationId) {
    let Some(seat) = state.seats.remove(&conversation) else { return };
    tracing::error!(%conversation, "the engine dies too often: the conversation is parked");
    metrics::counter!("annie_conversations_quarantined_total").increment(1);
    state.quarantine.insert(conversation, seat.user);
    park_open(ctx, state, conversation);
}

/// Fails what is open in a parked conversation: when it is parked, and when a new message comes for it.
pub(super) fn park_open(ctx: &Context<Conversations>, state: &mut ConversationsState, conversation: ConversationId) {
    let Some(user) = state.quarantine.get(&conversation).cloned() else { return };
    let (wiring, me) = (state.wiring.clone(), ctx.me());
    state.tasks.spawn(Work::Park(conversation), async move {
        let outcome = caught(park(&wiring, conversation, &user)).await.unwrap_or_else(Err);
        if outcome.is_err() {
            tokio::time::sleep(Duration::from_millis(PARK_AGAIN_MS)).await;
        }
        me.tell(ConversationsMsg::Parked { conversation, outcome });
    });
}

/// A store that cannot take the failures is to blame for the deaths as well: the conversation goes on.
pub(super) async fn parked(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    outcome: Result<(), String>,
) {
    state.tasks.remove(&Work::Park(conversation));
    let Err(why) = outcome else { return };
    let Some(user) = state.quarantine.remove(&conversation) else { return };
    tracing::warn!(%conversation, why, "the store does not even take its failures: the conversation is tried again");
    state.seats.insert(conversation, new_seat(user, Some(ResumeCause::Crash), 0));
    start(ctx, state, conversation).await;
}
