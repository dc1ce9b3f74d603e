//! Residency: which conversations wait for capacity, which Engines are asked to leave, and which conversations are passive
//! although they have open work.
//!
//! An Engine that only waits (for a time, for another task, for a permit) stays active as long as no other conversation
//! wants its capacity. Then it leaves. Its conversation is activated again when it is due, when something arrives for it, or
//! by turns.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use annie_core::{
    event::ResumeCause,
    ids::{ConversationId, Incarnation, Seq, UserId},
    time::Micros,
};

use super::{Conversations, ConversationsMsg, ConversationsState, Work, new_child, start, steady, wake};
use crate::{
    engine::{EngineMsg, Passivation},
    observe::Context,
};

/// How many Engines are asked at the same time whether they can leave.
const ASKED_MAX: usize = 4;
/// Interval between two rounds of asking all Engines, and between two turns of passive conversations, in milliseconds.
const ROUND_MS: u64 = 1_000;
/// How many passive conversations are activated in one turn while there is capacity.
const BACK_MAX: usize = 100;
/// After this long, a passive conversation queues for capacity like a new one, in milliseconds.
const PASSIVE_MS_MAX: u64 = 60_000;
/// Maximum interval between two checks for due conversations while any is passive, in milliseconds. The wall clock may have
/// been set forward, which a longer timer would miss.
const DUE_CHECK_MS_MAX: u64 = 30_000;

/// The admission queue, the Engines being asked to leave, and the passive conversations. The times of asking and of taking
/// turns are of the monotonic clock.
#[derive(Default)]
pub(super) struct Residency {
    /// Conversations for which there was no capacity, in the order of their arrival.
    waiting: VecDeque<(ConversationId, UserId, Option<ResumeCause>)>,
    /// Engines still to be asked in this round whether they can leave, the oldest first.
    to_ask: VecDeque<ConversationId>,
    /// Engines that have been asked and have not answered.
    asked: BTreeSet<ConversationId>,
    /// When this round of asking began.
    asked_at: Option<Micros>,
    passive: BTreeMap<ConversationId, Passive>,
    /// The passive conversations that are due at a known time.
    due: BTreeSet<(Micros, ConversationId)>,
    /// The passive conversations that are activated by turns, the longest passive first.
    turns: BTreeSet<(Micros, ConversationId)>,
    /// When the timer for due conversations goes off.
    activate_at: Option<Micros>,
    /// How many children have been created, to number the next one.
    children: u64,
}

struct Passive {
    user: UserId,
    until: Option<Micros>,
    /// Since when the conversation has been passive, if it takes turns.
    turn: Option<Micros>,
    /// The last event that the Engine knew when it left.
    seq: Seq,
}

impl Residency {
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn passive_count(&self) -> usize {
        self.passive.len()
    }

    /// Whether a conversation is passive, and its Engine knew all events up to `seq` when it left.
    pub fn is_passive(&self, conversation: ConversationId, seq: Seq) -> bool {
        self.passive.get(&conversation).is_some_and(|passive| passive.seq >= seq)
    }

    /// Removes a conversation from the passive ones and from both indexes.
    fn activate_due(&mut self, conversation: ConversationId) -> Option<Passive> {
        let passive = self.passive.remove(&conversation)?;
        if let Some(until) = passive.until {
            self.due.remove(&(until, conversation));
        }
        if let Some(turn) = passive.turn {
            self.turns.remove(&(turn, conversation));
        }
        Some(passive)
    }

    /// Makes a conversation passive. An earlier entry of it, which may be outdated, is replaced.
    fn passivate(&mut self, conversation: ConversationId, passive: Passive) {
        self.activate_due(conversation);
        if let Some(until) = passive.until {
            self.due.insert((until, conversation));
        }
        if let Some(turn) = passive.turn {
            self.turns.insert((turn, conversation));
        }
        self.passive.insert(conversation, passive);
    }

    /// Removes and returns the next conversation that is due.
    fn next_due(&mut self, now: Micros) -> Option<(ConversationId, UserId)> {
        while self.due.first().is_some_and(|(at, _)| *at <= now) {
            let (_, conversation) = self.due.pop_first()?;
            if let Some(passive) = self.activate_due(conversation) {
                return Some((conversation, passive.user));
            }
        }
        None
    }

    /// Removes and returns the conversation that has been passive longest of those that take turns. With `only_long`, only a
    /// conversation that has been passive for [`PASSIVE_MS_MAX`].
    fn next_turn(&mut self, now: Micros, only_long: bool) -> Option<(ConversationId, UserId)> {
        while self.turns.first().is_some_and(|(since, _)| !only_long || now.since_ms(*since) >= PASSIVE_MS_MAX) {
            let (_, conversation) = self.turns.pop_first()?;
            if let Some(passive) = self.activate_due(conversation) {
                return Some((conversation, passive.user));
            }
        }
        None
    }
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
    state.residency.activate_due(conversation);
    if !is_full(state) {
        state.residency.children += 1;
        state.children.insert(conversation, new_child(user.clone(), cause, state.residency.children));
        return true;
    }
    match state.residency.waiting.iter_mut().find(|(waiting, ..)| *waiting == conversation) {
        Some((.., known)) => *known = known.or(cause),
        None => state.residency.waiting.push_back((conversation, user.clone(), cause)),
    }
    ask_engines_to_leave(ctx, state);
    false
}

/// Activates waiting conversations while there is capacity. A waiting conversation that has become active in another way
/// takes up none.
pub(super) async fn activate_waiting(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    while !is_full(state)
        && let Some((conversation, user, cause)) = state.residency.waiting.pop_front()
    {
        ensure_child(ctx, state, conversation, &user, cause);
        wake(ctx, state, conversation, user, None).await;
    }
    ask_engines_to_leave(ctx, state);
}

// Freeing capacity

/// Asks Engines to leave if any conversation waits: the oldest first, a few at a time, each once a round.
pub(super) fn ask_engines_to_leave(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    if state.residency.waiting.is_empty() {
        state.residency.to_ask.clear();
        return;
    }
    let now = steady(ctx);
    if state.residency.to_ask.is_empty() && state.residency.asked.is_empty() {
        if state.residency.asked_at.is_some_and(|at| now < at.later_ms(ROUND_MS)) {
            // All Engines have refused in this round already.
            schedule_round(ctx, state);
            return;
        }
        state.residency.asked_at = Some(now);
        let mut all: Vec<_> =
            state.children.iter().map(|(conversation, child)| (child.number, *conversation)).collect();
        all.sort_unstable();
        state.residency.to_ask = all.into_iter().map(|(_, conversation)| conversation).collect();
    }
    let asked_max = ASKED_MAX.min(state.residency.waiting.len());
    while state.residency.asked.len() < asked_max
        && let Some(conversation) = state.residency.to_ask.pop_front()
    {
        let engine = state.children.get(&conversation).and_then(|child| child.addr.as_ref());
        if engine.is_some_and(|engine| engine.tell(EngineMsg::Evict)) {
            state.residency.asked.insert(conversation);
        }
    }
    if state.residency.to_ask.is_empty() && state.residency.asked.is_empty() {
        schedule_round(ctx, state);
    }
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
    let is_wanted = passivation.is_none() || !state.residency.waiting.is_empty();
    let Some(child) = state.children.get(&conversation) else { return };
    let Some(addr) = child.addr.as_ref().filter(|a| a.incarnation == incarnation) else { return };
    state.residency.asked.remove(&conversation);
    if is_wanted && child.wakes_sent == wakes_seen && addr.tell(EngineMsg::Passivate) {
        // From now on a wake-up activates a new incarnation. Its claim need not wait for the old one, which only has to
        // write its snapshot.
        if let Some(child) = state.children.remove(&conversation)
            && let Some(passivation) = passivation
        {
            self::passivation(ctx, state, (conversation, child.user), passivation);
        }
    } else {
        // If this Engine is dead, the message is lost; its next incarnation has not asked to leave.
        addr.tell(EngineMsg::StayActive);
    }
    activate_waiting(ctx, state).await;
}

/// An Engine does not leave, or died before it answered: ask the next one.
pub(super) fn stays_active(ctx: &Context<Conversations>, state: &mut ConversationsState, conversation: ConversationId) {
    state.residency.asked.remove(&conversation);
    ask_engines_to_leave(ctx, state);
}

// Passive conversations

/// Records a conversation as passive until it is due, its turn comes, or something arrives for it.
pub(super) fn passivation(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    (conversation, user): (ConversationId, UserId),
    passivation: Passivation,
) {
    let Passivation { until, takes_turns, seq } = passivation;
    let turn = takes_turns.then(|| steady(ctx));
    state.residency.passivate(conversation, Passive { user, until, turn, seq });
    if takes_turns {
        schedule_round(ctx, state);
    }
    set_activation(ctx, state);
}

/// Sets the timer for the conversation that is due first, unless the present timer is early enough.
fn set_activation(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    let Some(at) = state.residency.due.first().map(|(at, _)| *at) else { return };
    if state.residency.activate_at.is_some_and(|set| set <= at) {
        return;
    }
    state.residency.activate_at = Some(at);
    let wait_ms = (at.since_ms(ctx.now()) + 1).min(DUE_CHECK_MS_MAX);
    let (me, wait) = (ctx.me(), Duration::from_millis(wait_ms));
    state.tasks.spawn(Work::ActivateDue, async move {
        tokio::time::sleep(wait).await;
        // If the parent is dead, its next incarnation scans the log.
        me.tell(ConversationsMsg::ActivateDue);
    });
}

/// Activates the conversations that are due.
pub(super) async fn activate_due(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    state.tasks.remove(&Work::ActivateDue);
    state.residency.activate_at = None;
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
        me.tell(ConversationsMsg::Round);
    });
}

/// Once per interval: asks all Engines again; and activates passive conversations by turns, as many as there is capacity for,
/// at least one and at most [`BACK_MAX`]. While conversations wait for capacity, only those that have been passive for
/// [`PASSIVE_MS_MAX`] are activated.
pub(super) async fn round(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    state.tasks.remove(&Work::Round);
    activate_due(ctx, state).await;
    let (now, is_wanted) = (steady(ctx), !state.residency.waiting.is_empty());
    let free = state.wiring.limits.engines_max.saturating_sub(state.children.len());
    for _ in 0..free.clamp(1, BACK_MAX) {
        let Some((conversation, user)) = state.residency.next_turn(now, is_wanted) else { break };
        activate_again(ctx, state, conversation, user).await;
    }
    ask_engines_to_leave(ctx, state);
    if !state.residency.turns.is_empty() || !state.residency.waiting.is_empty() {
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

#[cfg(test)]
mod tests {
    use annie_core::ports::Entropy;
    use annie_testkit::env::SeededEntropy;

    use super::*;

    fn conversation(n: u64) -> ConversationId {
        ConversationId::for_key(&UserId::new("ann").unwrap(), &n.to_string())
    }

    /// The indexes agree with the map: they hold exactly the passive conversations with a due time or a turn, under that
    /// time.
    fn check(residency: &Residency) {
        let due = residency.passive.iter().filter_map(|(id, passive)| Some((passive.until?, *id)));
        assert_eq!(residency.due, due.collect());
        let turns = residency.passive.iter().filter_map(|(id, passive)| Some((passive.turn?, *id)));
        assert_eq!(residency.turns, turns.collect());
    }

    #[test]
    fn residency_indexes_match_passive_map_after_random_changes() {
        for seed in 0..50 {
            let (random, mut residency) = (SeededEntropy::new(seed), Residency::default());
            let below = |n: u64| random.next_u64() % n;
            let time = || Micros(i64::try_from(below(200)).unwrap() * 1_000_000);
            for _ in 0..200 {
                let id = conversation(below(5));
                match below(5) {
                    0 | 1 => {
                        let (until, turn) = ((below(2) == 0).then(time), (below(2) == 0).then(time));
                        let user = UserId::new("ann").unwrap();
                        residency.passivate(id, Passive { user, until, turn, seq: Seq(0) });
                        assert!(residency.is_passive(id, Seq(0)));
                    }
                    2 => {
                        residency.activate_due(id);
                        assert!(!residency.is_passive(id, Seq(0)));
                    }
                    3 => {
                        let now = time();
                        while let Some((id, _)) = residency.next_due(now) {
                            assert!(!residency.is_passive(id, Seq(0)));
                        }
                        assert!(residency.due.first().is_none_or(|(at, _)| *at > now));
                    }
                    _ => {
                        let (now, before) = (time(), residency.passive_count());
                        let back = residency.next_turn(now, true);
                        assert_eq!(residency.passive_count(), before - usize::from(back.is_some()));
                    }
                }
                check(&residency);
            }
        }
    }
}
