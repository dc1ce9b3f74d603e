//! Other processes on the same database: who owns a conversation whose Engine was shut out, and what they have stored.

use std::time::Duration;

use annie_core::{
    event::Scope,
    ids::{ConversationId, UserId},
    ports::StoreError,
};

use super::{Conversations, ConversationsMsg, ConversationsState, Work, broken, make_room, start_again};
use crate::{observe::Context, scheduler::open_tasks, tasks::caught};

/// How long it may take to find out who owns a conversation, in milliseconds.
const WHOSE_MS_MAX: u64 = 5_000;
/// From one look for what other processes stored to the next, in milliseconds.
const WOKEN_MS_MIN: u64 = 100;

/// Asks who shut an Engine out. Until that is known it is not started, unless something arrives for it here.
pub(super) fn ask_whose(ctx: &Context<Conversations>, state: &mut ConversationsState, conversation: ConversationId) {
    let (store, node, me) = (state.wiring.store.clone(), state.wiring.node, ctx.me());
    state.tasks.spawn(Work::Whose(conversation), async move {
        let wait = Duration::from_millis(WHOSE_MS_MAX);
        let row = match tokio::time::timeout(wait, caught(store.conversation(Scope::Operator, conversation))).await {
            Ok(Ok(row)) => row,
            Ok(Err(panic)) => Err(broken("conversation", panic)),
            Err(_) => Err(broken("conversation", format!("no answer within {WHOSE_MS_MAX} ms"))),
        };
        let by_another = row.map(|row| row.and_then(|row| row.owner).is_some_and(|owner| owner != node));
        me.tell(ConversationsMsg::Fenced { conversation, by_another });
    });
}

/// A process that has taken a conversation over keeps it: two that claimed it back from each other would get nothing done.
/// It comes back when something arrives for it here, and what came to the life that was shut out is such a thing: the
/// other process may not know of it. So it does at the next start, or if nothing at all happens there any more. What shut
/// an Engine out of this very process was the last breath of a life before it, whose parent was killed: then it goes on,
/// as after a death.
pub(super) async fn fenced(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    by_another: Result<bool, StoreError>,
) {
    state.tasks.remove(&Work::Whose(conversation));
    let Some(seat) = state.seats.get_mut(&conversation).filter(|seat| seat.addr.is_none()) else { return };
    let (user, has_news) = (seat.user.clone(), std::mem::take(&mut seat.wakes_sent) > 0);
    let is_ours = match by_another {
        Ok(by_another) => !by_another || has_news,
        Err(error) => {
            tracing::warn!(%conversation, %error, "it is not known who owns a conversation now");
            true
        }
    };
    if is_ours && start_again(ctx, state, conversation).await {
        return;
    }
    metrics::counter!("annie_conversations_lost_total").increment(1);
    tracing::info!(%conversation, "another process owns the conversation now");
    state.seats.remove(&conversation);
    watch_lost(ctx, state, conversation, user);
    make_room(ctx, state).await;
}

/// Watches a conversation that another process has taken over, until its work is done or it is ours again. A process that
/// lives writes something within the time of a round; one that does not has left it lying.
fn watch_lost(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    user: UserId,
) {
    let (store, node, me) = (state.wiring.store.clone(), state.wiring.node, ctx.me());
    let own = state.wiring.backends.values().filter_map(|backend| backend.round_ms_max);
    let round_ms_max = own.fold(state.wiring.limits.round_ms_max, u64::max);
    let silence = Duration::from_millis(round_ms_max.saturating_mul(2));
    state.tasks.spawn(Work::Lost(conversation), async move {
        let mut known = None;
        let lies = loop {
            let row = caught(store.conversation(Scope::Operator, conversation)).await;
            let open = caught(open_tasks(store.as_ref(), Scope::User(user.clone()))).await;
            if let (Ok(Ok(Some(row))), Ok(Ok(open))) = (row, open) {
                if row.owner == Some(node) || !open.iter().any(|task| task.conversation == conversation) {
                    break None;
                }
                if known.replace((row.epoch, row.last_seq)) == Some((row.epoch, row.last_seq)) {
                    break Some(user);
                }
            }
            tokio::time::sleep(silence).await;
        };
        // If nobody lives there, its next life scans the log.
        me.tell(ConversationsMsg::Found { conversation, lies });
    });
}

/// Listens for what other processes store. The pause makes one look of many hints.
pub(super) fn listen(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    let (store, me) = (state.wiring.store.clone(), ctx.me());
    state.tasks.spawn(Work::Listen, async move {
        loop {
            store.woken().await;
            me.tell(ConversationsMsg::Woken);
            tokio::time::sleep(Duration::from_millis(WOKEN_MS_MIN)).await;
        }
    });
}
