//! Other processes on the same database: who owns a conversation whose Engine was shut out, and what they have stored.

use std::{
    collections::{BTreeMap, HashSet},
    future::Future,
    time::Duration,
};

use annie_core::{
    event::Scope,
    ids::{ConversationId, Incarnation, NodeIncarnation, UserId},
    ports::{ConversationRow, Store, StoreError, TaskRow, TaskState},
    time::Micros,
};

use super::{
    Conversations, ConversationsMsg, ConversationsState, DEPRIVED_MS_MAX, DEPRIVED_MS_MIN, Work, broken, make_room,
    quarantine, start, start_again,
};
use crate::{engine::EngineMsg, hub::Live, observe::Context, scheduler::open_tasks, tasks::caught};

/// How long the store may take to say whose a conversation is, in milliseconds.
const WHOSE_MS_MAX: u64 = 5_000;
/// From one hint of other processes to the next that is heeded, in milliseconds.
const WOKEN_MS_MIN: u64 = 100;
/// How long a process that took a message in has for claiming its conversation, in milliseconds. It takes a few; whoever
/// looked sooner would begin what the other begins, too.
const CLAIM_MS_MAX: u64 = 1_000;
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
}

/// Asks the store, within a time.
async fn ask<T>(what: &'static str, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    match tokio::time::timeout(Duration::from_millis(WHOSE_MS_MAX), caught(call)).await {
        Ok(Ok(said)) => said,
        Ok(Err(panic)) => Err(broken(what, panic)),
        Err(_) => Err(broken(what, format!("no answer within {WHOSE_MS_MAX} ms"))),
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
/// other process is at work in it: that one hears of it soon. So it does if nothing at all happens there any more. What shut
/// an Engine out of this very process was the last breath of a life before it, whose parent was killed: then it goes on, as
/// after a death.
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
            let user = seat.user.clone();
            state.seats.remove(&conversation);
            watch(ctx, state, conversation, user);
            make_room(ctx, state).await;
        }
        Err(error) => {
            tracing::warn!(%conversation, %error, "it is not known who owns a conversation now");
            let wait_ms = seat.waits.died(ctx.now()).unwrap_or(DEPRIVED_MS_MAX);
            ask_whose(ctx, state, conversation, wait_ms.clamp(DEPRIVED_MS_MIN, DEPRIVED_MS_MAX));
        }
    }
}

/// Watches a conversation that is or may be another process's, until its work is done or it is found to be ours. A process
/// that lives writes something within the time of a round, there if something is due and can run, or at least elsewhere; one
/// that does not has left it lying.
pub(super) fn watch(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    user: UserId,
) {
    if state.tasks.contains(&Work::Lost(conversation)) {
        return;
    }
    let (store, env, me) = (state.wiring.store.clone(), state.wiring.env.clone(), ctx.me());
    let (node, patience_ms) = (state.wiring.node, patience_ms(state));
    state.tasks.spawn(Work::Lost(conversation), async move {
        let mut known = None;
        let lies = loop {
            let row = ask("conversation", store.conversation(Scope::Operator, conversation)).await;
            let open = ask("tasks", open_tasks(store.as_ref(), Scope::User(user.clone()))).await;
            let newest = ask("conversations", newest(store.as_ref())).await;
            let mut wait_ms = DEPRIVED_MS_MAX;
            if let (Ok(Some(row)), Ok(open), Ok(newest)) = (row, open, newest) {
                if !open.iter().any(|task| task.conversation == conversation) {
                    break None;
                }
                if row.owner.is_none_or(|owner| owner == node) {
                    break Some(user);
                }
                wait_ms = patience_ms;
                let now = env.now();
                let is_heard_of = |other: &ConversationRow| {
                    other.owner == row.owner && other.id != row.id && now.since_ms(other.updated_at) < patience_ms
                };
                let place = (row.epoch, row.last_seq);
                if !is_due(&open, conversation, now) || newest.iter().any(is_heard_of) {
                    known = None;
                } else if known.replace(place) == Some(place) {
                    break Some(user);
                }
            }
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        };
        // If nobody lives there, its next life scans the log.
        me.tell(ConversationsMsg::Found { conversation, lies });
    });
}

/// How long a process that lives may be silent, in milliseconds: twice a round that falls over along the longest route.
fn patience_ms(state: &ConversationsState) -> u64 {
    let default_ms = state.wiring.limits.round_ms_max;
    let rounds = state.wiring.backends.values().map(|backend| backend.round_ms_max.unwrap_or(default_ms));
    rounds.fold(0, u64::saturating_add).saturating_mul(2)
}

/// Whether there is something in a conversation that its owner would do now: not what is held back, put off, or waits for
/// another task; nor what waits behind such a thing.
fn is_due(open: &[TaskRow], conversation: ConversationId, now: Micros) -> bool {
    let can_run = |task: &TaskRow| {
        let waits = task.after.iter().any(|other| open.iter().any(|task| task.id == *other));
        task.state != TaskState::Suspended && task.not_before.is_none_or(|at| at <= now) && !waits
    };
    let here = || open.iter().filter(|task| task.conversation == conversation);
    let is_begun = here().any(|task| task.started_at.is_some());
    here().any(|task| can_run(task) && (task.started_at.is_some() || !is_begun))
}

async fn newest(store: &dyn Store) -> Result<Vec<ConversationRow>, StoreError> {
    store.conversations(Scope::Operator, Micros(i64::MAX), NEWEST_MAX).await
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
    if state.tasks.contains(&Work::Look) {
        state.look_again = true;
    } else {
        look(ctx, state);
    }
}

/// Looks what others did to the conversations that are awake here: one of them may have taken it over, or have died before it
/// could. What nobody here is awake for is its own process's, or is found at the next start.
fn look(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    state.look_again = false;
    let awake = state.seats.iter().filter_map(|(id, seat)| Some((*id, seat.addr.as_ref()?.incarnation)));
    let awake: BTreeMap<ConversationId, Incarnation> = awake.collect();
    if awake.is_empty() {
        return;
    }
    let (store, node, me) = (state.wiring.store.clone(), state.wiring.node, ctx.me());
    state.tasks.spawn(Work::Look, async move {
        // A life that is older than this has its claim.
        tokio::time::sleep(Duration::from_millis(CLAIM_MS_MAX)).await;
        let seen = ask("conversations", seen(store.as_ref(), node, awake)).await;
        me.tell(ConversationsMsg::Looked(seen));
    });
}

async fn seen(
    store: &dyn Store,
    node: NodeIncarnation,
    mut awake: BTreeMap<ConversationId, Incarnation>,
) -> Result<Looked, StoreError> {
    let open: HashSet<ConversationId> = store.open_conversations().await?.into_iter().map(|(id, _)| id).collect();
    let mut looked = Looked::default();
    for row in newest(store).await?.iter().filter(|row| row.owner.is_some_and(|owner| owner != node)) {
        if let Some(incarnation) = awake.remove(&row.id) {
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
        let user = seat.user.clone();
        state.wiring.hub.publish(conversation, Live::Unsure);
        if is_open {
            watch(ctx, state, conversation, user);
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
    if state.look_again {
        look(ctx, state);
    }
}

#[cfg(test)]
mod tests {
    use annie_core::ids::TaskId;

    use super::*;

    const NOW: Micros = Micros(1_000_000);

    fn conversation(key: &str) -> ConversationId {
        ConversationId::for_key(&UserId::new("ann").unwrap(), key)
    }

    fn here() -> ConversationId {
        conversation("here")
    }

    fn id(n: u32) -> TaskId {
        TaskId::from_uuid(conversation(&n.to_string()).uuid())
    }

    /// A task of the conversation that is looked at, begun or not.
    fn task(n: u32, is_begun: bool) -> TaskRow {
        TaskRow {
            id: id(n),
            user: UserId::new("ann").unwrap(),
            conversation: here(),
            state: if is_begun { TaskState::Running } else { TaskState::Queued },
            priority: annie_core::event::Priority::Normal,
            source: "test".to_owned(),
            title: String::new(),
            received_at: Micros(0),
            not_before: None,
            after: Vec::new(),
            is_order: false,
            is_steer: false,
            joins: None,
            held_at: None,
            started_at: is_begun.then_some(Micros(1)),
            ended_at: None,
            error: None,
        }
    }

    fn due(open: &[TaskRow]) -> bool {
        is_due(open, here(), NOW)
    }

    #[test]
    fn what_runs_or_could_begin_is_due() {
        assert!(due(&[task(1, true)]));
        assert!(due(&[task(1, false)]));
        assert!(!due(&[]));
        assert!(!due(&[TaskRow { conversation: conversation("elsewhere"), ..task(1, true) }]));
    }

    #[test]
    fn what_is_held_back_or_put_off_or_waits_for_another_task_is_not_due_nor_what_is_behind_it() {
        for is_begun in [true, false] {
            let task = || task(1, is_begun);
            assert!(!due(&[TaskRow { state: TaskState::Suspended, ..task() }]));
            assert!(!due(&[TaskRow { not_before: Some(NOW.plus_ms(1)), ..task() }]));
            assert!(due(&[TaskRow { not_before: Some(NOW), ..task() }]));
            let waits = TaskRow { after: vec![id(2)], ..task() };
            assert!(due(std::slice::from_ref(&waits)), "what it waited for has ended");
            let other = TaskRow { conversation: conversation("elsewhere"), ..self::task(2, true) };
            assert!(!due(&[waits, other]));
        }
        let held = TaskRow { state: TaskState::Suspended, ..task(1, true) };
        assert!(!due(&[held, task(2, false)]));
    }
}
