//! Other processes on the same database: who owns a conversation whose Engine was shut out, and what they have stored.

use std::{
    collections::{BTreeMap, HashSet},
    future::Future,
    time::Duration,
};

use annie_core::{
    event::Scope,
    ids::{ConversationId, Incarnation, NodeIncarnation, Seq, UserId},
    ports::{Before, ConversationRow, Store, StoreError},
};

use super::{
    Conversations, ConversationsMsg, ConversationsState, DEPRIVED_MS_MAX, DEPRIVED_MS_MIN, Work, quarantine,
    room::{self, come_back, make_room, sleep, take_seat},
    scan::{broken, scan},
    start, start_again,
    watch::{Due, steady, watch, watch_for},
};
use crate::{
    engine::{EngineMsg, Sleep},
    hub::Live,
    observe::Context,
    scheduler::{SchedulerMsg, open_tasks},
    tasks::caught,
};

/// How long the store may take to say whose a conversation is, in milliseconds.
const WHOSE_MS_MAX: u64 = 5_000;
/// From one hint of other processes to the next that is heeded, in milliseconds.
const WOKEN_MS_MIN: u64 = 100;
/// How long a process that took a message in has for claiming its conversation, in milliseconds. It takes a few; whoever
/// looked sooner would begin what the other begins, too.
pub(super) const CLAIM_MS_MAX: u64 = 1_000;
/// From one look for what others left lying to the next, in milliseconds.
const STRAYS_MS: u64 = 60_000;
/// Conversations among which it is looked for those that others have taken over lately: the newest of all.
const NEWEST_MAX: u32 = 500;

/// Who owns a conversation whose Engine was shut out.
#[derive(Debug)]
pub enum Whose {
    /// This process: only a former life of it shut the Engine out.
    Ours,
    /// Another process.
    Anothers {
        /// Something is open in it and nothing is begun: it may not know of that.
        is_unaware: bool,
    },
}

/// What the store says of the conversations that are awake here.
#[derive(Debug, Default)]
pub struct Looked {
    /// Those that another process has now, by the life that does not know of it, and whether anything is open in it.
    elsewhere: Vec<(ConversationId, Incarnation, bool)>,
    /// Those that are ours and have something open.
    open: Vec<ConversationId>,
    /// Those that sleep, and do not know of something that is open.
    news: Vec<ConversationId>,
}

/// Asks the store, within a time.
async fn ask<T>(what: &'static str, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    ask_within(WHOSE_MS_MAX, what, call).await
}

/// Asks the store, within so many milliseconds.
pub(super) async fn ask_within<T>(
    ms_max: u64,
    what: &'static str,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(Duration::from_millis(ms_max), caught(call)).await {
        Ok(Ok(said)) => said,
        Ok(Err(panic)) => Err(broken(what, panic)),
        Err(_) => Err(broken(what, format!("no answer within {ms_max} ms"))),
    }
}

/// Asks who shut an Engine out. Until that is known it is not started, unless something arrives for it here.
pub(super) fn ask_whose(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    wait_ms: u64,
) {
    let Some(user) = state.seats.get(&conversation).map(|seat| seat.user.clone()) else { return };
    let (store, node, me) = (state.wiring.store.clone(), state.wiring.node, ctx.me());
    state.tasks.spawn(Work::Whose(conversation), async move {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        let whose = ask("conversation", whose(store.as_ref(), node, conversation, user)).await;
        me.tell(ConversationsMsg::Fenced { conversation, whose });
    });
}

async fn whose(
    store: &dyn Store,
    node: NodeIncarnation,
    conversation: ConversationId,
    user: UserId,
) -> Result<Whose, StoreError> {
    let row = store.conversation(Scope::Operator, conversation).await?;
    if row.and_then(|row| row.owner).is_none_or(|owner| owner == node) {
        return Ok(Whose::Ours);
    }
    let mut open = open_tasks(store, Scope::User(user)).await?;
    open.retain(|task| task.conversation == conversation);
    let is_unaware = !open.is_empty() && open.iter().all(|task| task.started_at.is_none());
    Ok(Whose::Anothers { is_unaware })
}

/// A process that has taken a conversation over keeps it: two that claimed it back from each other would get nothing done.
/// It comes back when something arrives for it here, and what came to the life that was shut out is such a thing, unless the
/// other process is at work in it: that one hears of it soon. If it does not, because it is frozen or dead, the watch brings
/// the conversation back: soon for a message that came here, and late for anything else. What shut an Engine out of this very
/// process was the last breath of a life before it, whose parent was killed: then it goes on, as after a death.
pub(super) async fn fenced(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    whose: Result<Whose, StoreError>,
) {
    state.tasks.remove(&Work::Whose(conversation));
    let Some(seat) = state.seats.get_mut(&conversation).filter(|seat| seat.addr.is_none()) else { return };
    match whose {
        Ok(Whose::Ours) => {
            if !start_again(ctx, state, conversation).await {
                quarantine(ctx, state, conversation);
                make_room(ctx, state).await;
            }
        }
        Ok(Whose::Anothers { is_unaware: true }) if seat.has_news => start(ctx, state, conversation).await,
        Ok(Whose::Anothers { .. }) => {
            metrics::counter!("annie_conversations_lost_total").increment(1);
            tracing::info!(%conversation, "another process owns the conversation now");
            let (user, arrivals) = (seat.user.clone(), std::mem::take(&mut seat.arrivals));
            state.seats.remove(&conversation);
            watch_for(ctx, state, (conversation, user), Due::AtOnce, arrivals);
            make_room(ctx, state).await;
        }
        Err(error) => {
            tracing::warn!(%conversation, %error, "it is not known who owns a conversation now");
            let wait_ms = seat.waits.died(ctx.now()).unwrap_or(DEPRIVED_MS_MAX);
            ask_whose(ctx, state, conversation, wait_ms.clamp(DEPRIVED_MS_MIN, DEPRIVED_MS_MAX));
        }
    }
}

/// A life left something open when it left memory. That is no message for this process: if another one has taken the
/// conversation over meanwhile, it goes on there.
pub(super) fn unfinished(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    user: UserId,
) {
    match state.seats.get_mut(&conversation) {
        Some(seat) if seat.is_elsewhere => watch(ctx, state, conversation, user, Due::AtOnce),
        Some(seat) => {
            // Where nobody lives yet, whoever comes reads the log.
            if seat.addr.as_ref().is_some_and(|addr| addr.tell(EngineMsg::Wake(None))) {
                seat.wakes_sent += 1;
            }
        }
        None => come_back(ctx, state, conversation, user),
    }
}

/// Asks whose a conversation is that slept and would come back.
pub(super) fn ask_back(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    user: UserId,
) {
    let (store, node, me) = (state.wiring.store.clone(), state.wiring.node, ctx.me());
    state.tasks.spawn(Work::Back(conversation), async move {
        let row = ask("conversation", store.conversation(Scope::Operator, conversation)).await;
        let is_ours = row.map(|row| row.and_then(|row| row.owner).is_none_or(|owner| owner == node));
        me.tell(ConversationsMsg::Back { conversation, user, is_ours });
    });
}

/// A conversation that slept comes back, unless another process took it over meanwhile.
pub(super) async fn back(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    (conversation, user): (ConversationId, UserId),
    is_ours: Result<bool, StoreError>,
) {
    if !state.tasks.remove(&Work::Back(conversation)) || state.seats.contains_key(&conversation) {
        // A message brought it back, and it may even sleep again.
        return;
    }
    match is_ours {
        Ok(true) => {
            if take_seat(ctx, state, conversation, &user, None) && state.seats.contains_key(&conversation) {
                start(ctx, state, conversation).await;
            }
        }
        Ok(false) => watch(ctx, state, conversation, user, Due::AtOnce),
        Err(error) => {
            tracing::warn!(%conversation, %error, "it is not known whose a conversation is that slept");
            let until = Some(ctx.now().later_ms(DEPRIVED_MS_MAX));
            sleep(ctx, state, (conversation, user), Sleep { until, ..Sleep::default() });
        }
    }
}

pub(super) async fn newest(store: &dyn Store) -> Result<Vec<ConversationRow>, StoreError> {
    store.conversations(Scope::Operator, Before::NEWEST, NEWEST_MAX).await
}

/// Listens for what other processes store. The pause makes one hint of many.
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

/// Another process has stored something. What it says in a conversation that is not awake here is announced by nobody else.
pub(super) fn heard(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    let is_here =
        |id: ConversationId| state.seats.get(&id).is_some_and(|seat| seat.addr.is_some() && !seat.is_elsewhere);
    state.wiring.hub.unsure_of(|conversation| !is_here(conversation));
    // What they ended keeps no place here, and nobody waits for it. If nobody lives there, its next life reads the table.
    state.wiring.scheduler.tell(SchedulerMsg::Woken);
    if state.tasks.contains(&Work::Look) {
        state.look_again = true;
    } else {
        look(ctx, state);
    }
    let now = steady(ctx);
    if state.strays_at.is_none_or(|at| now.since_ms(at) >= STRAYS_MS) {
        state.strays_at = Some(now);
        state.wanted.others = true;
        scan(ctx, state);
    }
}

/// Looks what others did to the conversations that are awake or sleep here: one of them may have taken it over, or have died
/// before it could. What is neither is its own process's, or is found by a scan.
fn look(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    state.look_again = false;
    let awake = state.seats.iter().filter_map(|(id, seat)| Some((*id, seat.addr.as_ref()?.incarnation)));
    let awake: BTreeMap<ConversationId, Incarnation> = awake.collect();
    let asleep = state.room.asleep();
    if awake.is_empty() && asleep.is_empty() {
        return;
    }
    let (store, node, me) = (state.wiring.store.clone(), state.wiring.node, ctx.me());
    state.tasks.spawn(Work::Look, async move {
        // A life that is older than this has its claim.
        tokio::time::sleep(Duration::from_millis(CLAIM_MS_MAX)).await;
        let seen = ask("conversations", seen(store.as_ref(), node, awake, asleep)).await;
        me.tell(ConversationsMsg::Looked(seen));
    });
}

async fn seen(
    store: &dyn Store,
    node: NodeIncarnation,
    mut awake: BTreeMap<ConversationId, Incarnation>,
    asleep: BTreeMap<ConversationId, Seq>,
) -> Result<Looked, StoreError> {
    let open: HashSet<ConversationId> = store.open_conversations().await?.into_iter().map(|(id, _)| id).collect();
    let mut looked = Looked::default();
    for row in newest(store).await? {
        let has_news = asleep.get(&row.id).is_some_and(|known| row.last_seq > *known);
        if has_news && open.contains(&row.id) {
            looked.news.push(row.id);
        }
        if row.owner.is_some_and(|owner| owner != node)
            && let Some(incarnation) = awake.remove(&row.id)
        {
            looked.elsewhere.push((row.id, incarnation, open.contains(&row.id)));
        }
    }
    looked.open = awake.into_keys().filter(|id| open.contains(id)).collect();
    Ok(looked)
}

/// A life that was shut out is left to find that out, or to leave memory; the next message for it goes to a new one.
pub(super) fn looked(ctx: &Context<Conversations>, state: &mut ConversationsState, seen: Result<Looked, StoreError>) {
    state.tasks.remove(&Work::Look);
    let seen = seen.unwrap_or_else(|error| {
        tracing::warn!(%error, "it is not known what other processes did");
        state.look_again = true;
        Looked::default()
    });
    for (conversation, incarnation, is_open) in seen.elsewhere {
        let Some(seat) = state.seats.get_mut(&conversation) else { continue };
        if seat.is_elsewhere || seat.addr.as_ref().is_none_or(|addr| addr.incarnation != incarnation) {
            continue;
        }
        seat.is_elsewhere = true;
        state.wiring.hub.publish(conversation, Live::Unsure);
        // What arrives while nothing is open yet is asked about when the Engine finds out that it is fenced.
        if is_open {
            let (user, arrivals) = (seat.user.clone(), std::mem::take(&mut seat.arrivals));
            watch_for(ctx, state, (conversation, user), Due::AtOnce, arrivals);
        }
    }
    for conversation in seen.open {
        // Its message came to another process: if that one claims it now all the same, it keeps it.
        if let Some(seat) = state.seats.get_mut(&conversation)
            && seat.addr.as_ref().is_some_and(|addr| addr.tell(EngineMsg::Wake(None)))
        {
            seat.wakes_sent += 1;
        }
    }
    for conversation in seen.news {
        room::rouse_one(ctx, state, conversation);
    }
    if state.look_again {
        look(ctx, state);
    }
}
