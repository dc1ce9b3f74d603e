//! Looks at everything that is stored, begun, done and announced, at the moment when it is, and says what must not be.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use annie_core::{
    event::{Event, NewEvent, Scope},
    ids::{ConversationId, Epoch, IntentId, Seq, UserId},
    message::{Message, ModelRequest},
    ports::{Append, Breakers, Clock, Fence, Log, Records, SkillCall},
    skill::Effect,
    turn::Conversation,
};
use annie_store::MemoryStore;
use annie_testkit::{
    env::TestClock,
    sim::{RoundBegins, Strike},
};
use futures_util::FutureExt;

use super::{doors::Doors, forces::SKILLS, trace::Trace};

/// Every so many events of a conversation its state makes a journey through JSON.
const JOURNEY_EVERY: u64 = 40;
/// Events of one conversation; more is a circle.
const EVENTS_MAX: u64 = 5_000;

/// What is known of a conversation.
struct Known {
    state: Conversation,
    trace: Trace,
    epoch: Epoch,
    snapshot_seq: Seq,
}

/// An append on its way into the store.
struct OnItsWay {
    conversation: ConversationId,
    events: Vec<NewEvent>,
    is_stale: bool,
}

/// A gate that somebody holds.
struct Held {
    since_us: u64,
    until: annie_core::time::Micros,
    life: u32,
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
    deeds: BTreeSet<IntentId>,
    /// Rounds that were no voice, by the life of the process and the backend.
    others_begun: BTreeMap<(u32, String), u64>,
    stored: u64,
    fenced: u64,
    journal: Vec<String>,
}

/// The watch over one run.
pub struct Watch {
    data: MemoryStore,
    clock: Arc<TestClock>,
    users: Vec<UserId>,
    slots: BTreeMap<String, u32>,
    inner: Mutex<Inner>,
    doors: Mutex<Doors>,
}

/// The answer of the bare store, which never waits.
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
        Self { data, clock, users, slots, inner: Mutex::default(), doors: Mutex::new(Doors::new(open_ms)) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn doors(&self) -> MutexGuard<'_, Doors> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is not as it must be.
    pub fn wrong(&self, what: String) {
        let at = self.clock.now();
        self.inner().wrong.push(format!("{at} {what}"));
    }

    /// What was not as it must be, in order.
    pub fn all_wrong(&self) -> Vec<String> {
        self.inner().wrong.clone()
    }

    pub fn is_well(&self) -> bool {
        self.inner().wrong.is_empty()
    }

    /// Writes down what happened, in the order in which it did.
    pub fn note(&self, what: &str) {
        let ms = self.clock.monotonic_us() / 1_000;
        self.inner().journal.push(format!("{ms:>8} {what}"));
    }

    /// Everything that happened.
    pub fn journal(&self) -> Vec<String> {
        self.inner().journal.clone()
    }

    /// Appends that were stored, and those that came from a former owner.
    pub fn counts(&self) -> (u64, u64) {
        let inner = self.inner();
        (inner.stored, inner.fenced)
    }

    // The log

    /// A batch goes into the store now, unless it `fails`.
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

    /// Looks at what has been stored since the last time.
    pub fn settle(&self) {
        for skill in SKILLS {
            let row = now(self.data.breaker(skill.to_owned())).unwrap_or_default();
            self.doors().see(skill, row, self.clock.now());
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
                    wrong.push(format!("{id}: stored, and nobody wrote it: {:?}", rest[0]));
                    break;
                };
                inner.stored += 1;
                if append.is_stale {
                    wrong
                        .push(format!("{id}: a former owner, or one who was told that it failed, wrote {:?}", rest[0]));
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
            known.trace.take(event, &inner.deeds, wrong);
            self.doors().take(event);
            known.state.apply(event);
            if event.seq.0 % JOURNEY_EVERY == 0 {
                journey(&known.state, wrong);
            }
        }
        new
    }

    /// Whether the snapshots are what the log says, and every state survives its own JSON.
    pub fn compare_snapshots(&self) {
        self.settle();
        let mut inner = self.inner();
        let mut wrong = Vec::new();
        for (id, known) in &mut inner.known {
            journey(&known.state, &mut wrong);
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
                    "{id}: the Engine's state at {} is not what the log says: {}",
                    snapshot.seq,
                    difference(&kept, &replayed)
                )),
                Err(e) => wrong.push(format!("{id}: a snapshot cannot be read: {e}")),
            }
        }
        inner.wrong.extend(wrong);
    }

    /// What must be so when everything has come to its end.
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

    /// A listener was told of an event.
    pub fn announced(&self, event: &Event) {
        let before = Seq(event.seq.0.saturating_sub(1));
        let stored = now(self.data.events(Scope::Operator, event.conversation, before, 1));
        if stored.first() != Some(event) {
            self.wrong(format!("announced and not stored: {event:?}"));
        }
    }

    // The outside

    /// A backend's gate is closed for everything but voice.
    pub fn gate_closes(&self, backend: &str, until: annie_core::time::Micros, life: u32) {
        let since_us = self.clock.monotonic_us();
        self.inner().gates.insert(backend.to_owned(), Held { since_us, until, life });
    }

    /// Nothing is known of the gates any more: opened, or the wall clock was set.
    pub fn gates_open(&self) {
        self.inner().gates.clear();
    }

    pub fn round_begins(&self, round: &RoundBegins<'_>) {
        let RoundBegins { backend, life, request, running } = round;
        self.note(&format!("round of {} begins on {backend} in life {life}", request.session_id));
        if request.priority != 0 {
            *self.inner().others_begun.entry((*life, (*backend).to_owned())).or_default() += 1;
        }
        if self.slots.get(*backend).is_some_and(|slots| running > slots) {
            self.wrong(format!("{running} rounds run on {backend}, which has {:?} slots", self.slots.get(*backend)));
        }
        let (us, now) = (self.clock.monotonic_us(), self.clock.now());
        let is_closed = self
            .inner()
            .gates
            .get(*backend)
            .is_some_and(|held| held.life == *life && held.since_us < us && now < held.until);
        if is_closed && request.priority != 0 {
            self.wrong(format!("a round of class {} begins on {backend} while its gate is closed", request.priority));
        }
        self.check_strangers(request);
    }

    /// No request holds another user's words.
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
                self.wrong(format!("a round of {} is told words of {stranger}", row.user));
            }
        }
    }

    /// A skill begins: what is not only read must have been marked as started before, and once in each life. None begins
    /// behind an open breaker.
    pub fn skill_begins(&self, call: &SkillCall, life: u32) {
        self.note(&format!("{} runs for {} in life {life}", call.skill, call.intent));
        self.settle();
        let is_new = self.inner().runs.insert(call.intent);
        if is_new && let Some(wrong) = self.doors().begins(&call.skill, call.intent, self.clock.now()) {
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
        let is_new = self.inner().begun.insert((life, call.intent));
        if !is_new && intent.effect == Effect::Once {
            self.wrong(format!("{} is begun twice for {}", call.skill, call.intent));
        }
    }

    /// A skill did what it is for.
    pub fn takes_effect(&self, call: &SkillCall) {
        self.inner().deeds.insert(call.intent);
    }

    pub fn skill_ends(&self, call: &SkillCall) {
        self.doors().ends(&call.skill, call.intent);
    }

    // What is not sure

    /// A fault strikes.
    pub fn struck(&self, strike: &Strike) {
        self.note(&format!("STRUCK {strike}"));
        // A breaker that hangs dies later, and what lay in its mailbox is asked again through any door.
        if ["breaker ", "breakers "].iter().any(|actor| strike.site.starts_with(actor)) && strike.what == "Hang" {
            self.doors().blind();
        }
        // What a model or the other side of a skill does is no change that its breaker's row might not tell.
        if !["outage ", "model "].iter().any(|outside| strike.site.starts_with(outside)) {
            self.doors_unsure();
        }
    }

    /// Two processes have breakers of their own.
    pub fn two_processes(&self) {
        self.doors().blind();
    }

    /// A breaker may have moved or died without its row.
    pub fn doors_unsure(&self) {
        self.doors().doubt();
    }

    // Voice

    /// Whether somebody who speaks waits for an answer.
    pub fn hears_voice(&self) -> bool {
        self.inner().known.values().any(|known| known.trace.hears_voice())
    }

    /// Rounds of others that have begun on a backend in this life of the process.
    pub fn others_begun(&self, life: u32, backend: &str) -> u64 {
        self.inner().others_begun.get(&(life, backend.to_owned())).copied().unwrap_or(0)
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

fn journey(state: &Conversation, wrong: &mut Vec<String>) {
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
