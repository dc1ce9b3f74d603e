//! Conversations that are or may be another process's: watched until their work is done, or they are found to be ours, or to
//! lie there. One task looks at all of them, so that a thousand cost the store little more than one.

use std::{
    collections::{BTreeMap, HashMap, HashSet, btree_map::Entry},
    time::Duration,
};

use annie_core::{
    event::Scope,
    ids::{ConversationId, Epoch, NodeIncarnation, Seq, TaskId, UserId},
    ports::{ConversationRow, Store, StoreError, TaskRow, TaskState},
    time::Micros,
};

use super::{
    Conversations, ConversationsMsg, ConversationsState, DEPRIVED_MS_MAX, Work,
    arrivals::Arrivals,
    others::{self, ask_within, newest},
    wake,
};
use crate::{observe::Context, scheduler::open_tasks};

/// How long the store may take for one look, in milliseconds.
const LOOK_MS_MAX: u64 = 30_000;
/// From one look to the next, at least; what is due that soon is looked at together. In milliseconds.
const LOOKS_MS_MIN: u64 = 1_000;
/// Conversations of one look, of which those that are not among the newest are read one by one. The others wait for the next.
const LOOK_MAX: usize = 1_000;
/// How long a process has for claiming what it may have just taken in, in milliseconds: twice what others leave it.
const CLAIM_MS_MAX: u64 = 2 * others::CLAIM_MS_MAX;
/// How long the owner of a conversation may be silent while a message waits that arrived at this process, in milliseconds.
/// Its user waits for an answer. An owner that lives hears of the message within about a second, and stores something in
/// this time unless it is within one long round: then that round is asked of the model again here, once.
const ARRIVAL_MS_MAX: u64 = 10_000;

/// Those that are watched. All its times are the monotonic clock's: whoever sets the other one back makes nobody wait.
#[derive(Default)]
pub(super) struct Watch {
    all: BTreeMap<ConversationId, Watched>,
    /// When the next look is due, if it is not under way.
    set_at: Option<Micros>,
    /// When the last one began.
    looked_at: Option<Micros>,
}

impl Watch {
    pub fn len(&self) -> usize {
        self.all.len()
    }
}

struct Watched {
    user: UserId,
    /// When it is looked at next.
    due_at: Micros,
    /// Where it was at the last look, if something was due there and nothing was heard of its owner.
    was: Option<Place>,
    /// What is open in it may be a neighbour's that is about to claim it, and is not taken at once.
    is_patient: bool,
    /// Messages that arrived at this process, when its Engine had lost the conversation and did not know.
    arrivals: Arrivals,
}

/// Why a conversation is watched that is nobody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// A message of this process may have been lost on its way: it is brought back at once.
    AtOnce,
    /// Its message came to a process that may be about to claim it: it is brought back if it stays where it is.
    IfItStays,
}

/// Whose turn at writing it is, and the last event.
type Place = (Epoch, Seq);

/// How a watched conversation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Nothing is open in it.
    Done,
    /// It is this process's, or nobody's.
    Ours(Place),
    /// Another's, which lives, as far as is known, or has nothing to do there.
    Theirs,
    /// Another's, of which something was heard elsewhere a moment ago; a message that arrived here waits.
    Heard(Place),
    /// Another's, of which nothing is heard, though something is due there.
    Silent(Place),
}

/// What a look at the watched conversations found: each with the time until the next look, in milliseconds.
#[derive(Debug)]
pub struct Seen(Vec<(ConversationId, Standing, u64)>);

/// Watches a conversation. A process that lives writes something within the time of a round, there if something is due and
/// can run, or at least elsewhere; one that does not has left it lying.
pub(super) fn watch(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    user: UserId,
    due: Due,
) {
    watch_for(ctx, state, (conversation, user), due, Arrivals::default());
}

/// Watches a conversation for messages that arrived at this process.
pub(super) fn watch_for(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    (conversation, user): (ConversationId, UserId),
    due: Due,
    arrivals: Arrivals,
) {
    let (now, is_patient) = (steady(ctx), due == Due::IfItStays);
    match state.watch.all.entry(conversation) {
        Entry::Occupied(mut known) => {
            let known = known.get_mut();
            if arrivals.is_empty() && (is_patient || !known.is_patient) {
                return;
            }
            if !arrivals.is_empty() {
                // What was seen before the message arrived says nothing of what its owner does about it.
                known.was = None;
                known.arrivals.append(arrivals);
            }
            (known.is_patient, known.due_at) = (false, now);
        }
        Entry::Vacant(free) => {
            free.insert(Watched { user, due_at: now, was: None, is_patient, arrivals });
        }
    }
    set(ctx, state, now);
}

/// The time by the monotonic clock.
pub(super) fn steady(ctx: &Context<Conversations>) -> Micros {
    Micros(i64::try_from(ctx.env().clock.monotonic_us()).unwrap_or(i64::MAX))
}

/// Sets the timer of the next look, unless it goes off in time already.
fn set(ctx: &Context<Conversations>, state: &mut ConversationsState, at: Micros) {
    if state.tasks.contains(&Work::Watch) {
        return;
    }
    let least = state.watch.looked_at.map_or(at, |last| last.later_ms(LOOKS_MS_MIN));
    let at = at.max(least);
    if state.watch.set_at.is_some_and(|set| set <= at) {
        return;
    }
    state.watch.set_at = Some(at);
    let (me, wait) = (ctx.me(), Duration::from_millis(at.since_ms(steady(ctx))));
    state.tasks.spawn(Work::WatchLater, async move {
        tokio::time::sleep(wait).await;
        // If nobody lives there, its next life scans the log.
        me.tell(ConversationsMsg::Watch);
    });
}

/// Sets it for whoever is due first.
fn set_for_all(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    if let Some(at) = state.watch.all.values().map(|watched| watched.due_at).min() {
        set(ctx, state, at);
    }
}

/// Looks at those that are due. What is awake here finds out by itself whose it is.
pub(super) fn look(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    state.tasks.remove(&Work::WatchLater);
    state.watch.set_at = None;
    let now = steady(ctx);
    let seats = &state.seats;
    let is_here = |id: &ConversationId| seats.get(id).is_some_and(|seat| seat.addr.is_some() && !seat.is_elsewhere);
    state.watch.all.retain(|id, _| !is_here(id));
    let soon = now.later_ms(LOOKS_MS_MIN);
    let due = state.watch.all.iter().map(|(id, watched)| (watched.due_at, *id)).filter(|(at, _)| *at <= soon);
    let mut due: Vec<(Micros, ConversationId)> = due.collect();
    due.sort_unstable();
    due.truncate(LOOK_MAX);
    let arrivals = |id: ConversationId| state.watch.all.get(&id).map_or_else(Arrivals::default, |w| w.arrivals.clone());
    let due: Vec<(ConversationId, Arrivals)> = due.into_iter().map(|(_, id)| (id, arrivals(id))).collect();
    if due.is_empty() {
        set_for_all(ctx, state);
        return;
    }
    state.watch.looked_at = Some(now);
    let (store, node, me) = (state.wiring.store.clone(), state.wiring.node, ctx.me());
    let (wall, patience_ms) = (ctx.now(), patience_ms(state));
    state.tasks.spawn(Work::Watch, async move {
        let look = seen(store.as_ref(), node, due, wall, patience_ms);
        let seen = ask_within(LOOK_MS_MAX, "what others do", look).await;
        me.tell(ConversationsMsg::Watched(seen));
    });
}

/// One look has come back.
pub(super) async fn looked(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    seen: Result<Seen, StoreError>,
) {
    state.tasks.remove(&Work::Watch);
    let now = steady(ctx);
    let Seen(seen) = seen.unwrap_or_else(|error| {
        tracing::warn!(%error, "it is not known what other processes do");
        let soon = now.later_ms(DEPRIVED_MS_MAX);
        for watched in state.watch.all.values_mut() {
            watched.due_at = watched.due_at.max(soon);
        }
        Seen(Vec::new())
    });
    for (conversation, standing, wait_ms) in seen {
        let Some(watched) = state.watch.all.get_mut(&conversation) else { continue };
        watched.due_at = now.later_ms(wait_ms);
        let is_done = match standing {
            Standing::Done => true,
            Standing::Ours((_, seq)) if state.room.sleeps(conversation, seq) => true,
            Standing::Ours(place) if watched.is_patient && watched.was.replace(place) != Some(place) => {
                watched.due_at = now.later_ms(CLAIM_MS_MAX);
                continue;
            }
            Standing::Ours(_) => false,
            Standing::Theirs => {
                watched.was = None;
                continue;
            }
            Standing::Heard(place) => {
                watched.was = Some(place);
                continue;
            }
            Standing::Silent(place) if watched.was.replace(place) == Some(place) => false,
            Standing::Silent(_) => continue,
        };
        let Some(Watched { user, .. }) = state.watch.all.remove(&conversation) else { continue };
        if !is_done {
            wake(ctx, state, conversation, user, None).await;
        }
    }
    set_for_all(ctx, state);
}

async fn seen(
    store: &dyn Store,
    node: NodeIncarnation,
    due: Vec<(ConversationId, Arrivals)>,
    now: Micros,
    patience_ms: u64,
) -> Result<Seen, StoreError> {
    let open = open_tasks(store, Scope::Operator).await?;
    let newest = newest(store).await?;
    let open_ids: HashSet<TaskId> = open.iter().map(|task| task.id).collect();
    let mut by_conversation: HashMap<ConversationId, Vec<&TaskRow>> = HashMap::new();
    for task in &open {
        by_conversation.entry(task.conversation).or_default().push(task);
    }
    let mut seen = Vec::with_capacity(due.len());
    for (id, arrivals) in due {
        let Some(here) = by_conversation.get(&id) else {
            seen.push((id, Standing::Done, patience_ms));
            continue;
        };
        let has_arrival = here.iter().any(|task| arrivals.contains(task.id) && waits(task, &open_ids, now));
        let patience_ms = if has_arrival { patience_ms.min(ARRIVAL_MS_MAX) } else { patience_ms };
        let row = match newest.iter().find(|row| row.id == id).cloned() {
            Some(row) => Some(row),
            None => store.conversation(Scope::Operator, id).await?,
        };
        let standing = row.map_or(Standing::Theirs, |row| {
            let is_heard_of = |other: &ConversationRow| {
                // What is said to come from a far future was written before somebody set the clock back.
                let apart_ms = now.since_ms(other.updated_at).max(other.updated_at.since_ms(now));
                other.owner == row.owner && other.id != id && apart_ms < patience_ms
            };
            let place = (row.epoch, row.last_seq);
            if row.owner.is_none_or(|owner| owner == node) {
                Standing::Ours(place)
            } else if !is_due(here, &open_ids, now) {
                Standing::Theirs
            } else if newest.iter().any(is_heard_of) {
                if has_arrival { Standing::Heard(place) } else { Standing::Theirs }
            } else {
                Standing::Silent(place)
            }
        });
        seen.push((id, standing, patience_ms));
    }
    Ok(Seen(seen))
}

/// How long a process that lives may be silent, in milliseconds: twice a round that falls over along the longest route.
fn patience_ms(state: &ConversationsState) -> u64 {
    let default_ms = state.wiring.limits.round_ms_max;
    let rounds = state.wiring.backends.values().map(|backend| backend.round_ms_max.unwrap_or(default_ms));
    rounds.fold(0, u64::saturating_add).saturating_mul(2)
}

/// Whether there is something in a conversation that its owner would do now: not what is held back, put off, or waits for
/// another task; nor what waits behind such a thing.
fn is_due(here: &[&TaskRow], open: &HashSet<TaskId>, now: Micros) -> bool {
    let is_begun = here.iter().any(|task| task.started_at.is_some());
    here.iter().any(|task| can_run(task, open, now) && (task.started_at.is_some() || !is_begun))
}

fn can_run(task: &TaskRow, open: &HashSet<TaskId>, now: Micros) -> bool {
    let waits = task.after.iter().any(|other| open.contains(other));
    task.state != TaskState::Suspended && task.not_before.is_none_or(|at| at <= now) && !waits
}

/// Whether a task could run and has not begun.
fn waits(task: &TaskRow, open: &HashSet<TaskId>, now: Micros) -> bool {
    task.started_at.is_none() && can_run(task, open, now)
}

#[cfg(test)]
mod tests {
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
        let here: Vec<&TaskRow> = open.iter().filter(|task| task.conversation == here()).collect();
        is_due(&here, &open.iter().map(|task| task.id).collect(), NOW)
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
