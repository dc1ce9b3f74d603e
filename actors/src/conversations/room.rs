//! Room in memory: who waits for it, who is asked to make it, and who sleeps because he only waited there.
//!
//! An Engine that has nothing to do but to wait (for a time, for another task, for a permit) keeps its room as long as nobody
//! wants it. Then it leaves, and comes back when its time has come, when something arrives for it, or by turns.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use annie_core::{
    event::ResumeCause,
    ids::{ConversationId, Incarnation, Seq, UserId},
    time::Micros,
};

use super::{Conversations, ConversationsMsg, ConversationsState, Work, new_seat, start, steady, wake};
use crate::{
    engine::{EngineMsg, Sleep},
    observe::Context,
};

/// Engines that are asked at the same time whether they could leave.
const ASKED_MAX: usize = 4;
/// From one round of asking all to the next, and from one turn of those that sleep to the next, in milliseconds.
const ROUND_MS: u64 = 1_000;
/// Those that come back at one turn while there is room.
const BACK_MAX: usize = 100;
/// Who has slept for so long waits for room like those who come for the first time, in milliseconds.
const ASLEEP_MS_MAX: u64 = 60_000;
/// It is looked whose time has come at least as often while anybody sleeps, in milliseconds: the clock may have been set
/// forward.
const ROUSE_MS_MAX: u64 = 30_000;

/// Who waits, who is asked, who sleeps. The times of asking and of taking turns are the monotonic clock's.
#[derive(Default)]
pub(super) struct Room {
    /// Conversations for which there was no room, in the order of their coming.
    waiting: VecDeque<(ConversationId, UserId, Option<ResumeCause>)>,
    /// Those to ask in this round whether they could leave, the oldest first.
    to_ask: VecDeque<ConversationId>,
    /// Those that have not answered.
    asked: BTreeSet<ConversationId>,
    /// When this round of asking began.
    asked_at: Option<Micros>,
    sleeping: BTreeMap<ConversationId, Sleeper>,
    /// Those of them that come back at a time.
    due: BTreeSet<(Micros, ConversationId)>,
    /// Those of them that come back by turns: who has slept longest goes first.
    turns: BTreeSet<(Micros, ConversationId)>,
    /// When the first of them is roused.
    rouse_at: Option<Micros>,
    /// How many seats there have been.
    seats: u64,
}

struct Sleeper {
    user: UserId,
    until: Option<Micros>,
    /// Since when it sleeps, if it takes turns.
    turn: Option<Micros>,
    /// The last event that it knows.
    seq: Seq,
}

impl Room {
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn sleeping(&self) -> usize {
        self.sleeping.len()
    }

    /// Whether a conversation sleeps, and knows all events up to this one.
    pub fn sleeps(&self, conversation: ConversationId, seq: Seq) -> bool {
        self.sleeping.get(&conversation).is_some_and(|sleeper| sleeper.seq >= seq)
    }

    /// A conversation does not sleep any more.
    fn rouse(&mut self, conversation: ConversationId) -> Option<Sleeper> {
        let sleeper = self.sleeping.remove(&conversation)?;
        if let Some(until) = sleeper.until {
            self.due.remove(&(until, conversation));
        }
        if let Some(turn) = sleeper.turn {
            self.turns.remove(&(turn, conversation));
        }
        Some(sleeper)
    }

    /// A conversation sleeps. It may sleep already, by what is not known any more.
    fn lay_down(&mut self, conversation: ConversationId, sleeper: Sleeper) {
        self.rouse(conversation);
        if let Some(until) = sleeper.until {
            self.due.insert((until, conversation));
        }
        if let Some(turn) = sleeper.turn {
            self.turns.insert((turn, conversation));
        }
        self.sleeping.insert(conversation, sleeper);
    }

    /// The next one whose time has come. It does not sleep any more.
    fn next_due(&mut self, now: Micros) -> Option<(ConversationId, UserId)> {
        while self.due.first().is_some_and(|(at, _)| *at <= now) {
            let (_, conversation) = self.due.pop_first()?;
            if let Some(sleeper) = self.rouse(conversation) {
                return Some((conversation, sleeper.user));
            }
        }
        None
    }

    /// Who has slept longest of those that take turns; if only who slept for long may come back, nobody else. It does not
    /// sleep any more.
    fn next_turn(&mut self, now: Micros, only_long: bool) -> Option<(ConversationId, UserId)> {
        while self.turns.first().is_some_and(|(since, _)| !only_long || now.since_ms(*since) >= ASLEEP_MS_MAX) {
            let (_, conversation) = self.turns.pop_first()?;
            if let Some(sleeper) = self.rouse(conversation) {
                return Some((conversation, sleeper.user));
            }
        }
        None
    }
}

fn is_full(state: &ConversationsState) -> bool {
    state.seats.len() >= state.wiring.limits.engines_max
}

/// Gives a conversation its seat, with the cause that a life before it ended by. False if there is no room: then it waits.
pub(super) fn take_seat(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    user: &UserId,
    cause: Option<ResumeCause>,
) -> bool {
    if state.seats.contains_key(&conversation) || state.quarantine.contains_key(&conversation) {
        return true;
    }
    state.room.rouse(conversation);
    if !is_full(state) {
        state.room.seats += 1;
        state.seats.insert(conversation, new_seat(user.clone(), cause, state.room.seats));
        return true;
    }
    match state.room.waiting.iter_mut().find(|(waits, ..)| *waits == conversation) {
        Some((.., known)) => *known = known.or(cause),
        None => state.room.waiting.push_back((conversation, user.clone(), cause)),
    }
    press(ctx, state);
    false
}

/// Lets in who waits, while there is room. One that came in by another way meanwhile takes up none.
pub(super) async fn make_room(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    while !is_full(state)
        && let Some((conversation, user, cause)) = state.room.waiting.pop_front()
    {
        take_seat(ctx, state, conversation, &user, cause);
        wake(ctx, state, conversation, user, None).await;
    }
    press(ctx, state);
}

// Who makes room

/// Asks Engines to leave, if somebody waits: the oldest first, a few at a time, all of them once a round.
pub(super) fn press(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    if state.room.waiting.is_empty() {
        state.room.to_ask.clear();
        return;
    }
    let now = steady(ctx);
    if state.room.to_ask.is_empty() && state.room.asked.is_empty() {
        if state.room.asked_at.is_some_and(|at| now < at.later_ms(ROUND_MS)) {
            // They have all just said no.
            set_round(ctx, state);
            return;
        }
        state.room.asked_at = Some(now);
        let mut all: Vec<_> = state.seats.iter().map(|(conversation, seat)| (seat.number, *conversation)).collect();
        all.sort_unstable();
        state.room.to_ask = all.into_iter().map(|(_, conversation)| conversation).collect();
    }
    let asked_max = ASKED_MAX.min(state.room.waiting.len());
    while state.room.asked.len() < asked_max
        && let Some(conversation) = state.room.to_ask.pop_front()
    {
        let engine = state.seats.get(&conversation).and_then(|seat| seat.addr.as_ref());
        if engine.is_some_and(|engine| engine.tell(EngineMsg::Vacate)) {
            state.room.asked.insert(conversation);
        }
    }
    if state.room.to_ask.is_empty() && state.room.asked.is_empty() {
        set_round(ctx, state);
    }
}

/// An Engine would leave: it may if no wake-up is on its way to it, and somebody wants its room or it needs none.
pub(super) async fn may_leave(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    (conversation, incarnation): (ConversationId, Incarnation),
    wakes_seen: u64,
    sleep: Option<Sleep>,
) {
    let is_wanted = sleep.is_none() || !state.room.waiting.is_empty();
    let Some(seat) = state.seats.get(&conversation) else { return };
    let Some(addr) = seat.addr.as_ref().filter(|a| a.incarnation == incarnation) else { return };
    state.room.asked.remove(&conversation);
    if is_wanted && seat.wakes_sent == wakes_seen && addr.tell(EngineMsg::Hibernate) {
        // From now on a wake-up thaws a new life, whose claim waits for nothing: the old one only has its snapshot to write.
        if let Some(seat) = state.seats.remove(&conversation)
            && let Some(sleep) = sleep
        {
            self::sleep(ctx, state, (conversation, seat.user), sleep);
        }
    } else {
        // If it is dead, its next life has nothing to take back.
        addr.tell(EngineMsg::Stay);
    }
    make_room(ctx, state).await;
}

/// An Engine does not leave, or has died over the question: the next one is asked.
pub(super) fn stays(ctx: &Context<Conversations>, state: &mut ConversationsState, conversation: ConversationId) {
    state.room.asked.remove(&conversation);
    press(ctx, state);
}

// Who sleeps

/// A conversation sleeps until its time has come, or its turn, or something arrives for it.
pub(super) fn sleep(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    (conversation, user): (ConversationId, UserId),
    sleep: Sleep,
) {
    let Sleep { until, takes_turns, seq } = sleep;
    let turn = takes_turns.then(|| steady(ctx));
    state.room.lay_down(conversation, Sleeper { user, until, turn, seq });
    if takes_turns {
        set_round(ctx, state);
    }
    set_rouse(ctx, state);
}

/// Sets the timer for whose time comes first, unless it goes off in time already.
fn set_rouse(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    let Some(at) = state.room.due.first().map(|(at, _)| *at) else { return };
    if state.room.rouse_at.is_some_and(|set| set <= at) {
        return;
    }
    state.room.rouse_at = Some(at);
    let wait_ms = (at.since_ms(ctx.now()) + 1).min(ROUSE_MS_MAX);
    let (me, wait) = (ctx.me(), Duration::from_millis(wait_ms));
    state.tasks.spawn(Work::Rouse, async move {
        tokio::time::sleep(wait).await;
        // If nobody lives there, its next life scans the log.
        me.tell(ConversationsMsg::Rouse);
    });
}

/// Those whose time has come, come back.
pub(super) async fn rouse(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    state.tasks.remove(&Work::Rouse);
    state.room.rouse_at = None;
    let now = ctx.now();
    while let Some((conversation, user)) = state.room.next_due(now) {
        come_back(ctx, state, conversation, user).await;
    }
    set_rouse(ctx, state);
}

fn set_round(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    if state.tasks.contains(&Work::Round) {
        return;
    }
    let me = ctx.me();
    state.tasks.spawn(Work::Round, async move {
        tokio::time::sleep(Duration::from_millis(ROUND_MS)).await;
        me.tell(ConversationsMsg::Round);
    });
}

/// Once in a while all are asked again; or if nobody waits those come back that sleep and take turns: as many as there is room
/// for, and otherwise one. Who has slept long comes back all the same.
pub(super) async fn round(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    state.tasks.remove(&Work::Round);
    rouse(ctx, state).await;
    let (now, is_wanted) = (steady(ctx), !state.room.waiting.is_empty());
    let free = state.wiring.limits.engines_max.saturating_sub(state.seats.len());
    for _ in 0..free.clamp(1, BACK_MAX) {
        let Some((conversation, user)) = state.room.next_turn(now, is_wanted) else { break };
        come_back(ctx, state, conversation, user).await;
    }
    press(ctx, state);
    if !state.room.turns.is_empty() || !state.room.waiting.is_empty() {
        set_round(ctx, state);
    }
}

/// A conversation comes back that slept, or whose life left something open; unless another process took it over meanwhile,
/// which its claim finds out.
pub(super) async fn come_back(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    user: UserId,
) {
    if take_seat(ctx, state, conversation, &user, None)
        && state.seats.get(&conversation).is_some_and(|seat| seat.addr.is_none())
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

    /// The books agree: who is due or has a turn sleeps, and by that time.
    fn check(room: &Room) {
        let due = room.sleeping.iter().filter_map(|(id, sleeper)| Some((sleeper.until?, *id)));
        assert_eq!(room.due, due.collect());
        let turns = room.sleeping.iter().filter_map(|(id, sleeper)| Some((sleeper.turn?, *id)));
        assert_eq!(room.turns, turns.collect());
    }

    #[test]
    fn in_whatever_order_conversations_go_to_sleep_and_come_back_nothing_is_left_of_who_came_back() {
        for seed in 0..50 {
            let (random, mut room) = (SeededEntropy::new(seed), Room::default());
            let below = |n: u64| random.next_u64() % n;
            let time = || Micros(i64::try_from(below(200)).unwrap() * 1_000_000);
            for _ in 0..200 {
                let id = conversation(below(5));
                match below(5) {
                    0 | 1 => {
                        let (until, turn) = ((below(2) == 0).then(time), (below(2) == 0).then(time));
                        let user = UserId::new("ann").unwrap();
                        room.lay_down(id, Sleeper { user, until, turn, seq: Seq(0) });
                        assert!(room.sleeps(id, Seq(0)));
                    }
                    2 => {
                        room.rouse(id);
                        assert!(!room.sleeps(id, Seq(0)));
                    }
                    3 => {
                        let now = time();
                        while let Some((id, _)) = room.next_due(now) {
                            assert!(!room.sleeps(id, Seq(0)));
                        }
                        assert!(room.due.first().is_none_or(|(at, _)| *at > now));
                    }
                    _ => {
                        let (now, before) = (time(), room.sleeping());
                        let back = room.next_turn(now, true);
                        assert_eq!(room.sleeping(), before - usize::from(back.is_some()));
                    }
                }
                check(&room);
            }
        }
    }
}
