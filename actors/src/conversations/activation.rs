//! Activation and passivation: gives a conversation an Engine if there is capacity, wakes the Engine, and lets Engines leave.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use annie_core::{
    event::{Event, ResumeCause},
    ids::{ConversationId, Incarnation, UserId},
};

use super::{
    messages::{ConversationsMsg, Passivation, ResidencyMsg},
    residency::ROUND_MS,
    state::{Child, Conversations, ConversationsState, Work, new_child, steady},
    supervision::{quarantine_open, start},
};
use crate::{
    engine::{EngineMsg, EngineResidencyMsg},
    fixed::FixedMap,
    observe::{Addr, Context},
    opening::Opening,
};

/// How many passive conversations in rotation are activated each second while there is capacity.
const BACK_MAX: usize = 100;
/// Maximum interval between two checks for due conversations while any is passive, in milliseconds. The wall clock may have
/// been set forward, which a longer timer would miss.
const DUE_CHECK_MS_MAX: u64 = 30_000;

/// Gives a conversation that this node has opened to the Engine that is activated next. If the conversation has a child already,
/// it is activated, and its Engine reads the log.
pub(super) fn expect_opened(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    user: &UserId,
    opening: Option<Opening>,
) {
    if opening.is_some()
        && !state.children.contains_key(&conversation)
        && ensure_child(ctx, state, conversation, user, None)
        && let Some(child) = state.children.get_mut(&conversation)
    {
        child.opening = opening;
    }
}

/// Wakes the Engine of a conversation, and activates it if necessary.
pub(super) async fn wake(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    user: UserId,
    event: Option<Arc<Event>>,
) {
    let is_active = state.children.get(&conversation).is_some_and(|s| s.addr.is_some() && !s.is_elsewhere);
    let seq = event.as_ref().map(|event| event.seq);
    let Some(engine) = engine(ctx, state, conversation, user, false).await else { return };
    let Some(child) = state.children.get_mut(&conversation) else { return };
    // An Engine that is activated by a message reads that message from the log.
    if is_active {
        child.wakes_sent += u64::from(engine.tell(EngineMsg::Wake(event)));
    }
    child.notified_seq = child.notified_seq.max(seq.unwrap_or_default());
}

/// Returns the Engine of a conversation and activates it if necessary. Returns `None` if the conversation is quarantined,
/// backing off, or waiting for capacity.
pub(super) async fn engine(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    user: UserId,
    takes_over: bool,
) -> Option<Addr<EngineMsg>> {
    if state.quarantine.contains_key(&conversation) {
        quarantine_open(ctx, state, conversation);
        return None;
    }
    if !ensure_child(ctx, state, conversation, &user, None) {
        return None;
    }
    if let Some(child) = state.children.get_mut(&conversation).filter(|child| child.is_elsewhere)
        && let Some(fenced_engine) = child.addr.take()
    {
        // The store refuses everything that the fenced Engine writes from now on.
        state.cells.remove(&fenced_engine.cell.get_id());
        fenced_engine.cell.stop(None);
        stays_active(ctx, state, conversation);
    }
    if let Some(child) = state.children.get_mut(&conversation).filter(|child| child.addr.is_none()) {
        child.takes_over |= takes_over;
    }
    if state.children.get(&conversation).is_some_and(|s| s.addr.is_none())
        && !state.tasks.contains(&Work::Backoff(conversation))
    {
        start(ctx, state, conversation).await;
    }
    state.children.get(&conversation).and_then(|s| s.addr.clone())
}

fn is_full(state: &ConversationsState) -> bool {
    state.children.len() >= state.wiring.limits.engines_max
}

/// Creates the child of a conversation, with the cause of its last incarnation's end. Returns false if there is no capacity;
/// the conversation then waits in the admission queue.
pub(super) fn ensure_child(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    user: &UserId,
    cause: Option<ResumeCause>,
) -> bool {
    if state.children.contains_key(&conversation) || state.quarantine.contains_key(&conversation) {
        return true;
    }
    state.residency.note_activated(conversation);
    if !is_full(state) {
        let number = state.residency.next_number();
        state.children.insert(conversation, new_child(user.clone(), cause, number));
        return true;
    }
    state.residency.wait(conversation, user, cause);
    ask_engines_to_leave(ctx, state);
    false
}

/// Activates waiting conversations while there is capacity. A waiting conversation that has become active in another way
/// takes up none.
pub(super) async fn activate_waiting(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    while !is_full(state)
        && let Some((conversation, user, cause)) = state.residency.next_waiting()
    {
        ensure_child(ctx, state, conversation, &user, cause);
        wake(ctx, state, conversation, user, None).await;
    }
    ask_engines_to_leave(ctx, state);
}

/// Asks Engines to leave if any conversation waits for capacity: the oldest first, a few at a time, each once in a
/// cycle.
fn ask_engines_to_leave(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    let ConversationsState { children, residency, .. } = state;
    residency.begin_asking(steady(ctx), || oldest_first(children));
    while let Some(conversation) = residency.next_to_ask() {
        let engine = children.get(&conversation).and_then(|child| child.addr.as_ref());
        if engine.is_some_and(|engine| engine.tell(EngineMsg::Residency(EngineResidencyMsg::Evict))) {
            residency.note_asked(conversation);
        }
    }
    if residency.is_wanted() && residency.has_asked_all() {
        schedule_round(ctx, state);
    }
}

fn oldest_first(children: &FixedMap<ConversationId, Child>) -> VecDeque<ConversationId> {
    let mut all: Vec<_> = children.iter().map(|(conversation, child)| (child.number, *conversation)).collect();
    all.sort_unstable();
    all.into_iter().map(|(_, conversation)| conversation).collect()
}

/// Handles an Engine's request to leave. It may leave if no wake-up is on its way to it, and if it is idle or its capacity
/// is wanted.
pub(super) async fn handle_leave_request(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    (conversation, incarnation): (ConversationId, Incarnation),
    wakes_seen: u64,
    passivation: Option<Passivation>,
) {
    let is_wanted = passivation.is_none() || state.residency.is_wanted();
    let Some(child) = state.children.get(&conversation) else { return };
    let Some(addr) = child.addr.as_ref().filter(|a| a.incarnation == incarnation) else { return };
    state.residency.note_answered(conversation);
    if is_wanted && child.wakes_sent == wakes_seen && addr.tell(EngineMsg::Residency(EngineResidencyMsg::Passivate)) {
        // From now on a wake-up activates a new incarnation. Its claim need not wait for the old one, which only has to
        // write its snapshot.
        if let Some(child) = state.children.remove(&conversation)
            && let Some(passivation) = passivation
        {
            passivate(ctx, state, (conversation, child.user), passivation);
        }
    } else {
        // If this Engine is dead, the message is lost; its next incarnation has not asked to leave.
        addr.tell(EngineMsg::Residency(EngineResidencyMsg::StayActive));
    }
    activate_waiting(ctx, state).await;
}

/// An Engine does not leave, or died before it answered: ask the next one.
pub(super) fn stays_active(ctx: &Context<Conversations>, state: &mut ConversationsState, conversation: ConversationId) {
    state.residency.note_answered(conversation);
    ask_engines_to_leave(ctx, state);
}

/// Records a conversation as passive until it is due, its place in the rotation is reached, or a message arrives for
/// it.
fn passivate(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    (conversation, user): (ConversationId, UserId),
    passivation: Passivation,
) {
    state.residency.leave(conversation, user, passivation, steady(ctx));
    if passivation.takes_turns {
        schedule_round(ctx, state);
    }
    set_activation(ctx, state);
}

/// Sets the timer for the conversation that is due first, unless the present timer is early enough.
fn set_activation(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    let Some(at) = state.residency.new_timer() else { return };
    let wait_ms = (at.since_ms(ctx.now()) + 1).min(DUE_CHECK_MS_MAX);
    let (me, wait) = (ctx.me(), Duration::from_millis(wait_ms));
    state.tasks.spawn(Work::ActivateDue, async move {
        tokio::time::sleep(wait).await;
        // If the parent is dead, its next incarnation scans the log.
        me.tell(ConversationsMsg::Residency(ResidencyMsg::ActivateDue));
    });
}

/// Activates the conversations that are due.
pub(super) async fn activate_due(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    state.tasks.remove(&Work::ActivateDue);
    state.residency.timer_went_off();
    let now = ctx.now();
    while let Some((conversation, user)) = state.residency.next_due(now) {
        activate_again(ctx, state, conversation, user).await;
    }
    set_activation(ctx, state);
}

fn schedule_round(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    if state.tasks.contains(&Work::Round) {
        return;
    }
    let me = ctx.me();
    state.tasks.spawn(Work::Round, async move {
        tokio::time::sleep(Duration::from_millis(ROUND_MS)).await;
        me.tell(ConversationsMsg::Residency(ResidencyMsg::Round));
    });
}

/// Once per interval: asks all Engines again to leave, if a conversation waits for capacity; and activates passive
/// conversations in rotation, as many as there is capacity for, at least one and at most [`BACK_MAX`]. While
/// conversations wait for capacity, only those that have been passive for a minute are activated.
pub(super) async fn round(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    state.tasks.remove(&Work::Round);
    activate_due(ctx, state).await;
    let (now, is_wanted) = (steady(ctx), state.residency.is_wanted());
    let free = state.wiring.limits.engines_max.saturating_sub(state.children.len());
    for _ in 0..free.clamp(1, BACK_MAX) {
        let Some((conversation, user)) = state.residency.next_turn(now, is_wanted) else { break };
        activate_again(ctx, state, conversation, user).await;
    }
    ask_engines_to_leave(ctx, state);
    if state.residency.has_turns() || state.residency.is_wanted() {
        schedule_round(ctx, state);
    }
}

/// Activates a conversation that was passive, or whose last incarnation left open work. If another node has claimed it
/// meanwhile, the claim is refused.
pub(super) async fn activate_again(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    user: UserId,
) {
    if ensure_child(ctx, state, conversation, &user, None)
        && state.children.get(&conversation).is_some_and(|child| child.addr.is_none())
        && !state.tasks.contains(&Work::Backoff(conversation))
    {
        start(ctx, state, conversation).await;
    }
}
