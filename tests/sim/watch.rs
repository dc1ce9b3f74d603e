//! Checks everything that is stored, begun, done and announced at the moment when it happens, and records violations.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use annie_core::{
    event::{Event, NewEvent, Scope},
    faults::{FaultKind, Target},
    ids::{ConversationId, Epoch, IntentId, Seq, UserId},
    message::{Message, ModelRequest},
    ports::{Append, Breakers, Clock, Fence, Log, Records, SkillCall},
    skill::Effect,
    turn::Conversation,
};
use annie_store::MemoryStore;
use annie_testkit::{
    env::TestClock,
    sim::{Injection, RoundBegins},
};
use futures_util::FutureExt;

use super::{breakers::BreakerWatch, forces::SKILLS, trace::Trace};

/// The state of a conversation is written to JSON and read back after every n-th event.
const ROUND_TRIP_EVERY: u64 = 40;
/// Most events of one conversation. More of them mean an endless loop.
const EVENTS_MAX: u64 = 5_000;

/// The known facts of a conversation.
struct Known {
    state: Conversation,
    trace: Trace,
    epoch: Epoch,
    snapshot_seq: Seq,
}

/// An append that has reached the store but was not seen in the log yet.
struct OnItsWay {
    conversation: ConversationId,
    events: Vec<NewEvent>,
    is_stale: bool,
}

/// A voice gate that is held.
struct Held {
    since_us: u64,
    until: annie_core::time::Micros,
    run: u32,
}

#[derive(Default)]
struct Inner {
    known: BTreeMap<ConversationId, Known>,
    on_its_way: Vec<OnItsWay>,
    wrong: Vec<String>,
    gates: BTreeMap<String, Held>,
    begun: BTreeSet<(u32, IntentId)>,
    /// Intents that were run at least once.
    runs: BTreeSet<IntentId>,
    /// Intents whose skill took effect.
    effects: BTreeSet<IntentId>,
    /// Rounds of classes other than voice, by run of the process and backend.
    others_begun: BTreeMap<(u32, String), u64>,
    stored: u64,
    fenced: u64,
    journal: Vec<String>,
}

/// The checks of one run.
pub struct Watch {
    data: MemoryStore,
    clock: Arc<TestClock>,
    users: Vec<UserId>,
    slots: BTreeMap<String, u32>,
    inner: Mutex<Inner>,
    breakers: Mutex<BreakerWatch>,
}

/// The reply of the bare store, which never waits.
pub fn now<T>(read: impl Future<Output = Result<T, annie_core::ports::StoreError>>) -> T {
    read.now_or_never().expect("the bare store answers at once").expect("and does not fail")
}

impl Watch {
    pub fn new(
        data: MemoryStore,
        clock: Arc<TestClock>,
        users: Vec<UserId>,
        slots: BTreeMap<String, u32>,
        open_ms: u64,
    ) -> Self {
        Self { data, clock, users, slots, inner: Mutex::default(), breakers: Mutex::new(BreakerWatch::new(open_ms)) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn breakers(&self) -> MutexGuard<'_, BreakerWatch> {
        self.breakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a violation.
    pub fn wrong(&self, what: String) {
        let at = self.clock.now();
        self.inner().wrong.push(format!("{at} {what}"));
    }

    /// All violations in order.
    pub fn all_wrong(&self) -> Vec<String> {
        self.inner().wrong.clone()
    }

    pub fn is_well(&self) -> bool {
        self.inner().wrong.is_empty()
    }

    /// Writes down what happened, in order.
    pub fn note(&self, what: &str) {
        let ms = self.clock.monotonic_us() / 1_000;
        self.inner().journal.push(format!("{ms:>8} {what}"));
    }

    /// Everything that happened.
    pub fn journal(&self) -> Vec<String> {
        self.inner().journal.clone()
    }

    /// The number of appends that were stored, and of those that came from a former owner.
    pub fn counts(&self) -> (u64, u64) {
        let inner = self.inner();
        (inner.stored, inner.fenced)
    }

    // The log

    /// Records a batch that goes into the store now. `fails`: the store refuses it.
    pub fn commits(&self, batch: &[Append], fails: bool) {
        self.settle();
        let mut inner = self.inner();
        for append in batch {
            let row = now(self.data.conversation(Scope::Operator, append.conversation));
            let epoch = row.map_or(Epoch(0), |r| r.epoch);
            let is_stale = fails || matches!(append.fence, Fence::Owner(e) if e != epoch);
            inner.fenced += u64::from(is_stale && !fails);
            let events = append.events.clone();
            inner.on_its_way.push(OnItsWay { conversation: append.conversation, events, is_stale });
        }
    }

    /// Checks what has been stored since the last call.
    pub fn settle(&self) {
        for skill in SKILLS {
            let row = now(self.data.breaker(skill.to_owned())).unwrap_or_default();
            self.breakers().see(skill, row, self.clock.now());
        }
        let mut inner = self.inner();
        let on_its_way = std::mem::take(&mut inner.on_its_way);
        let touched: BTreeSet<ConversationId> = on_its_way.iter().map(|o| o.conversation).collect();
        for id in touched {
            let mut appends = on_its_way.iter().filter(|o| o.conversation == id);
            let mut wrong = Vec::new();
            let new = self.take_in(&mut inner, id, &mut wrong);
            let mut rest = new.as_slice();
            while !rest.is_empty() {
                let is_this = |o: &&OnItsWay| is_beginning(rest, &o.events);
                let Some(append) = appends.find(is_this) else {
                    wrong.push(format!("{id}: stored, and no append contains it: {:?}", rest[0]));
                    break;
                };
                inner.stored += 1;
                if append.is_stale {
                    wrong.push(format!("{id}: a former owner, or the writer of a refused append, wrote {:?}", rest[0]));
                }
                rest = &rest[append.events.len()..];
            }
            let at = self.clock.now();
            inner.wrong.extend(wrong.into_iter().map(|w| format!("{at} {w}")));
        }
    }

    fn take_in(&self, inner: &mut Inner, id: ConversationId, wrong: &mut Vec<String>) -> Vec<Event> {
        let Some(row) = now(self.data.conversation(Scope::Operator, id)) else { return Vec::new() };
        let known = inner.known.entry(id).or_insert_with(|| Known {
            state: Conversation::new(id, row.user.clone()),
            trace: Trace::default(),
            epoch: Epoch(0),
            snapshot_seq: Seq(0),
        });
        if row.epoch < known.epoch {
            wrong.push(format!("{id}: epoch {} after {}", row.epoch, known.epoch));
        }
        known.epoch = row.epoch;
        let new = now(self.data.events(Scope::Operator, id, known.state.seq, 10_000));
        for event in &new {
            if event.seq.0 != known.state.seq.0 + 1 {
                wrong.push(format!("{id}: event {} behind {}", event.seq, known.state.seq));
            }
            if event.seq.0 == EVENTS_MAX {
                wrong.push(format!("{id}: has {EVENTS_MAX} events"));
            }
            let ms = self.clock.monotonic_us() / 1_000;
            inner.journal.push(format!("{ms:>8} {}", serde_json::to_string(event).unwrap_or_default()));
            known.trace.take(event, &inner.effects, wrong);
            self.breakers().take(event);
            known.state.apply(event);
            if event.seq.0 % ROUND_TRIP_EVERY == 0 {
                round_trip(&known.state, wrong);
            }
        }
        new
    }

    /// Checks that the snapshots equal the folded log and that every state survives its JSON round trip.
    pub fn compare_snapshots(&self) {
        self.settle();
        let mut inner = self.inner();
        let mut wrong = Vec::new();
        for (id, known) in &mut inner.known {
            round_trip(&known.state, &mut wrong);
            let Some(snapshot) = now(self.data.snapshot(*id)) else { continue };
            if snapshot.seq == known.snapshot_seq {
                continue;
            }
            known.snapshot_seq = snapshot.seq;
            let mut replayed = Conversation::new(*id, known.state.user.clone());
            for event in now(self.data.events(Scope::Operator, *id, Seq(0), u32::MAX)) {
                if event.seq <= snapshot.seq {
                    replayed.apply(&event);
                }
            }
            match serde_json::from_str::<Conversation>(&snapshot.state) {
                Ok(kept) if kept == replayed => {}
                Ok(kept) => wrong.push(format!(
                    "{id}: the Engine's state at {} differs from the folded log: {}",
                    snapshot.seq,
                    difference(&kept, &replayed)
                )),
                Err(e) => wrong.push(format!("{id}: a snapshot cannot be read: {e}")),
            }
        }
        inner.wrong.extend(wrong);
    }

    /// Checks what must hold when everything has ended.
    pub fn finish(&self) {
        self.compare_snapshots();
        let mut inner = self.inner();
        let mut wrong = Vec::new();
        for (id, known) in &inner.known {
            known.trace.finish(*id, &mut wrong);
            if !known.state.is_idle() {
                wrong.push(format!("{id}: the log ends in the middle of something"));
            }
        }
        inner.wrong.extend(wrong);
    }

    /// Checks an event that a listener received.
    pub fn announced(&self, event: &Event) {
        let before = Seq(event.seq.0.saturating_sub(1));
        let stored = now(self.data.events(Scope::Operator, event.conversation, before, 1));
        if stored.first() != Some(event) {
            self.wrong(format!("announced and not stored: {event:?}"));
        }
    }

    // The outside

    /// Records that a backend's gate is closed for everything but voice.
    pub fn gate_closes(&self, backend: &str, until: annie_core::time::Micros, run: u32) {
        let since_us = self.clock.monotonic_us();
        self.inner().gates.insert(backend.to_owned(), Held { since_us, until, run });
    }

    /// Discards all knowledge of the gates, because they were opened or the wall clock was set.
    pub fn gates_open(&self) {
        self.inner().gates.clear();
    }

    pub fn round_begins(&self, round: &RoundBegins<'_>) {
        let RoundBegins { backend, run, request, running } = round;
        self.note(&format!("round of {} begins on {backend} in run {run}", request.session_id));
        if request.priority != 0 {
            *self.inner().others_begun.entry((*run, (*backend).to_owned())).or_default() += 1;
        }
        if self.slots.get(*backend).is_some_and(|slots| running > slots) {
            self.wrong(format!("{running} rounds run on {backend}, which has {:?} slots", self.slots.get(*backend)));
        }
        let (us, now) = (self.clock.monotonic_us(), self.clock.now());
        let is_closed = self
            .inner()
            .gates
            .get(*backend)
            .is_some_and(|held| held.run == *run && held.since_us < us && now < held.until);
        if is_closed && request.priority != 0 {
            self.wrong(format!("a round of class {} begins on {backend} while its gate is closed", request.priority));
        }
        self.check_strangers(request);
    }

    /// Checks that no request contains text of another user.
    fn check_strangers(&self, request: &ModelRequest) {
        let Ok(id) = request.session_id.parse() else {
            return self.wrong(format!("a round of no conversation: {}", request.session_id));
        };
        let Some(row) = now(self.data.conversation(Scope::Operator, id)) else {
            return self.wrong(format!("a round of a conversation that is not stored: {id}"));
        };
        for stranger in self.users.iter().filter(|u| **u != row.user) {
            let mark = format!("@{stranger}#");
            let holds = |message: &Message| match message {
                Message::User { context, text } => {
                    text.contains(&mark) || context.as_ref().is_some_and(|c| c.contains(&mark))
                }
                Message::Assistant { text, .. } | Message::Tool { text, .. } | Message::Note { text } => {
                    text.contains(&mark)
                }
            };
            if request.messages.iter().any(holds) || request.system.iter().any(|part| part.text.contains(&mark)) {
                self.wrong(format!("a round of {} contains text of {stranger}", row.user));
            }
        }
    }

    /// Checks the beginning of a skill run. A skill that does more than read must have been marked as started before, and
    /// once in each run of the process. No run begins behind an open breaker.
    pub fn skill_begins(&self, call: &SkillCall, run: u32) {
        self.note(&format!("{} runs for {} in run {run}", call.skill, call.intent));
        self.settle();
        let is_new = self.inner().runs.insert(call.intent);
        if is_new && let Some(wrong) = self.breakers().begins(&call.skill, call.intent, self.clock.now()) {
            self.wrong(wrong);
        }
        if matches!(call.skill.as_str(), "sim.look" | "sim.fetch") {
            return;
        }
        let intents = now(self.data.intents(call.task));
        let Some(intent) = intents.into_iter().find(|i| i.id == call.intent) else {
            return self.wrong(format!("{} runs without an intent: {}", call.skill, call.intent));
        };
        if intent.attempts == 0 {
            self.wrong(format!("{} runs and was never marked as started: {}", call.skill, call.intent));
        }
        let is_new = self.inner().begun.insert((run, call.intent));
        if !is_new && intent.effect == Effect::Once {
            self.wrong(format!("{} is begun twice for {}", call.skill, call.intent));
        }
    }

    /// A skill took effect.
    pub fn takes_effect(&self, call: &SkillCall) {
        self.inner().effects.insert(call.intent);
    }

    pub fn skill_ends(&self, call: &SkillCall) {
        self.breakers().ends(&call.skill, call.intent);
    }

    // Uncertainty

    /// A fault was injected.
    pub fn injected(&self, fault: &Injection) {
        self.note(&format!("INJECTED {fault}"));
        // A hanging breaker dies later, and the calls in its mailbox are sent again to any incarnation.
        let spec = &fault.spec;
        let is_of_breakers = spec.target == Target::Actor && ["breaker", "breakers"].contains(&spec.place.as_str());
        if is_of_breakers && spec.kind == FaultKind::Hang {
            self.breakers().blind();
        }
        // The behaviour of a model or of the other side of a skill changes no breaker without its row.
        if spec.target != Target::Model && spec.point != "outage" {
            self.breakers_uncertain();
        }
    }

    /// Two processes have breakers of their own.
    pub fn two_processes(&self) {
        self.breakers().blind();
    }

    /// A breaker may have changed its state or died without its row.
    pub fn breakers_uncertain(&self) {
        self.breakers().doubt();
    }

    // Voice

    /// Whether a voice task waits for an answer.
    pub fn has_open_voice(&self) -> bool {
        self.inner().known.values().any(|known| known.trace.has_open_voice())
    }

    /// Rounds of other classes that have begun on a backend in this run of the process.
    pub fn others_begun(&self, run: u32, backend: &str) -> u64 {
        self.inner().others_begun.get(&(run, backend.to_owned())).copied().unwrap_or(0)
    }

    pub fn slots(&self, backend: &str) -> u32 {
        self.slots.get(backend).copied().unwrap_or(1)
    }
}

fn is_beginning(stored: &[Event], append: &[NewEvent]) -> bool {
    stored.len() >= append.len()
        && stored
            .iter()
            .zip(append)
            .all(|(s, a)| (s.at, s.task, &s.agent, &s.body) == (a.at, a.task, &a.agent, &a.body))
}

fn round_trip(state: &Conversation, wrong: &mut Vec<String>) {
    let back = serde_json::to_string(state).ok().and_then(|json| serde_json::from_str::<Conversation>(&json).ok());
    if back.as_ref() != Some(state) {
        wrong.push(format!("{}: the state at {} does not survive its JSON", state.id, state.seq));
    }
}

fn difference(one: &Conversation, other: &Conversation) -> String {
    let text = |c: &Conversation| serde_json::to_string_pretty(c).unwrap_or_default();
    let (one, other) = (text(one), text(other));
    let differ = one.lines().zip(other.lines()).find(|(a, b)| a != b);
    format!("{differ:?}")
}
