//! Residency: which conversations wait for capacity, which Engines are asked to leave, and which conversations are passive
//! although they have open work. Pure data: the parent of the Engines passes the time in and sends the messages.
//!
//! An Engine that only waits (for a time, for another task, for a permit) stays active until a conversation waits for
//! capacity. Then the Engine is asked to leave. Its conversation is passive until a message arrives for it or its due
//! time comes. A passive conversation that waits for something else gets no notification of it. Such conversations are
//! in rotation: the one that has been passive longest is activated first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use annie_core::{
    event::ResumeCause,
    ids::{ConversationId, Seq, UserId},
    time::Micros,
};

use super::messages::Passivation;

/// The most Engines that have been asked to leave and have not answered.
const ASKED_MAX: usize = 4;
/// Interval between two cycles of asking all Engines to leave, and between two activations in rotation, in
/// milliseconds.
pub(super) const ROUND_MS: u64 = 1_000;
/// After this long, a passive conversation queues for capacity like a new one, in milliseconds.
const PASSIVE_MS_MAX: u64 = 60_000;

/// The admission queue, the Engines being asked to leave, and the passive conversations. Due times are of the wall
/// clock, all other times of the monotonic clock.
#[derive(Default)]
pub(super) struct Residency {
    /// Conversations for which there was no capacity, in the order of their arrival.
    waiting: VecDeque<(ConversationId, UserId, Option<ResumeCause>)>,
    /// Engines still to be asked in this cycle to leave, the oldest first.
    to_ask: VecDeque<ConversationId>,
    /// Engines that have been asked and have not answered.
    asked: BTreeSet<ConversationId>,
    /// When this cycle of asking began.
    asked_at: Option<Micros>,
    passive: BTreeMap<ConversationId, Passive>,
    /// The passive conversations that are due at a known time.
    due: BTreeSet<(Micros, ConversationId)>,
    /// The passive conversations in rotation, the longest passive first.
    turns: BTreeSet<(Micros, ConversationId)>,
    /// When the timer for due conversations goes off.
    activate_at: Option<Micros>,
    /// How many children have been created, to number the next one.
    children: u64,
}

struct Passive {
    user: UserId,
    until: Option<Micros>,
    /// Since when the conversation has been passive, if it is in rotation.
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

    /// The number of the next child.
    pub fn next_number(&mut self) -> u64 {
        self.children += 1;
        self.children
    }

    // Conversations that wait for capacity

    /// Whether any conversation waits for capacity.
    pub fn is_wanted(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Adds a conversation to the admission queue, unless it waits there already.
    pub fn wait(&mut self, conversation: ConversationId, user: &UserId, cause: Option<ResumeCause>) {
        match self.waiting.iter_mut().find(|(waiting, ..)| *waiting == conversation) {
            Some((.., known)) => *known = known.or(cause),
            None => self.waiting.push_back((conversation, user.clone(), cause)),
        }
    }

    /// Removes and returns the conversation that has waited longest.
    pub fn next_waiting(&mut self) -> Option<(ConversationId, UserId, Option<ResumeCause>)> {
        self.waiting.pop_front()
    }

    // Engines that are asked to leave

    /// Begins a cycle of asking all Engines to leave, if a conversation waits. A cycle begins only after the one before
    /// has ended, and at least [`ROUND_MS`] after it began. `engines` are all Engines, the oldest first.
    pub fn begin_asking(&mut self, now: Micros, engines: impl FnOnce() -> VecDeque<ConversationId>) {
        if self.waiting.is_empty() {
            self.to_ask.clear();
        } else if self.has_asked_all() && self.asked_at.is_none_or(|at| now >= at.later_ms(ROUND_MS)) {
            self.asked_at = Some(now);
            self.to_ask = engines();
        }
    }

    /// Removes and returns the next Engine to ask: a few at a time, and each once in a cycle.
    pub fn next_to_ask(&mut self) -> Option<ConversationId> {
        let asked_max = ASKED_MAX.min(self.waiting.len());
        if self.asked.len() < asked_max { self.to_ask.pop_front() } else { None }
    }

    /// Records that an Engine was asked.
    pub fn note_asked(&mut self, conversation: ConversationId) {
        self.asked.insert(conversation);
    }

    /// Records that an Engine has answered, or will not answer.
    pub fn note_answered(&mut self, conversation: ConversationId) {
        self.asked.remove(&conversation);
    }

    /// Whether all Engines of this cycle have been asked and have answered.
    pub fn has_asked_all(&self) -> bool {
        self.to_ask.is_empty() && self.asked.is_empty()
    }

    // Passive conversations

    /// Whether a conversation is passive, and its Engine knew all events up to `seq` when it left.
    pub fn is_passive(&self, conversation: ConversationId, seq: Seq) -> bool {
        self.passive.get(&conversation).is_some_and(|passive| passive.seq >= seq)
    }

    /// Whether any conversation is in rotation.
    pub fn has_turns(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Makes a conversation passive until it is due, its place in the rotation is reached, or a message arrives for it.
    pub fn leave(&mut self, conversation: ConversationId, user: UserId, passivation: Passivation, now: Micros) {
        let Passivation { until, takes_turns, seq } = passivation;
        self.passivate(conversation, Passive { user, until, turn: takes_turns.then_some(now), seq });
    }

    /// Removes a conversation from the passive ones, because it is being activated.
    pub fn note_activated(&mut self, conversation: ConversationId) {
        self.activate_due(conversation);
    }

    /// The time to which the timer for due conversations must be set; `None` if the present timer is early enough.
    pub fn new_timer(&mut self) -> Option<Micros> {
        let at = self.due.first().map(|(at, _)| *at)?;
        if self.activate_at.is_some_and(|set| set <= at) {
            return None;
        }
        self.activate_at = Some(at);
        Some(at)
    }

    /// Records that the timer went off.
    pub fn timer_went_off(&mut self) {
        self.activate_at = None;
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
    pub fn next_due(&mut self, now: Micros) -> Option<(ConversationId, UserId)> {
        while self.due.first().is_some_and(|(at, _)| *at <= now) {
            let (_, conversation) = self.due.pop_first()?;
            if let Some(passive) = self.activate_due(conversation) {
                return Some((conversation, passive.user));
            }
        }
        None
    }

    /// Removes and returns the conversation in rotation that has been passive longest. With `only_long`, only one that
    /// has been passive for [`PASSIVE_MS_MAX`].
    pub fn next_turn(&mut self, now: Micros, only_long: bool) -> Option<(ConversationId, UserId)> {
        while self.turns.first().is_some_and(|(since, _)| !only_long || now.since_ms(*since) >= PASSIVE_MS_MAX) {
            let (_, conversation) = self.turns.pop_first()?;
            if let Some(passive) = self.activate_due(conversation) {
                return Some((conversation, passive.user));
            }
        }
        None
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
