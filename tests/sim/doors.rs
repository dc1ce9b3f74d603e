//! The breakers as they look from outside: what begins behind an open door, or beside a probe (invariant 14).
//!
//! Only what is sure is judged: a row is known from the moment when it was seen in the store, a run from when it was planned.
//! Whatever may have changed a breaker without its row makes all of that unsure.

use std::collections::BTreeMap;

use annie_core::{
    breaker::{BreakerRow, BreakerState},
    event::{Action, Event, EventBody},
    ids::IntentId,
    time::Micros,
};

/// A row, and since when it is known.
struct Row {
    row: BreakerRow,
    seen_at: Micros,
    /// A run that was planned behind it has ended: the breaker may have moved on, and its row may follow later.
    is_passed: bool,
}

/// What is known of the doors.
pub struct Doors {
    open_ms: u64,
    rows: BTreeMap<String, Row>,
    planned: BTreeMap<IntentId, Micros>,
    running: BTreeMap<IntentId, String>,
    /// Two processes have doors of their own: nothing is sure any more.
    is_blind: bool,
}

impl Doors {
    pub const fn new(open_ms: u64) -> Self {
        Self { open_ms, rows: BTreeMap::new(), planned: BTreeMap::new(), running: BTreeMap::new(), is_blind: false }
    }

    /// What was known is not sure any more.
    pub fn doubt(&mut self) {
        self.rows.clear();
        self.planned.clear();
        self.running.clear();
    }

    /// From now on nothing is sure.
    pub fn blind(&mut self) {
        self.is_blind = true;
    }

    /// Something was planned.
    pub fn take(&mut self, event: &Event) {
        let EventBody::ModelReplied { calls, .. } = &event.body else { return };
        for call in calls {
            if let Action::Skill(skill) = &call.action {
                self.plans(skill.intent, event.at);
            }
        }
    }

    fn plans(&mut self, intent: IntentId, at: Micros) {
        self.planned.insert(intent, at);
    }

    /// A row as it is stored now.
    pub fn see(&mut self, skill: &str, row: BreakerRow, now: Micros) {
        let known = self.rows.get(skill);
        if known.is_none_or(|known| known.row != row) {
            let is_passed = known.is_some_and(|known| known.is_passed && known.row.opened_at == row.opened_at);
            self.rows.insert(skill.to_owned(), Row { row, seen_at: now, is_passed });
        }
    }

    /// A run begins for the first time; what is wrong with that.
    pub fn begins(&mut self, skill: &str, intent: IntentId, now: Micros) -> Option<String> {
        self.running.insert(intent, skill.to_owned());
        let planned = *self.planned.get(&intent).filter(|_| !self.is_blind)?;
        let Row { row, seen_at, is_passed } = self.rows.get(skill)?;
        let opened_at = row.opened_at;
        if row.state == BreakerState::Open && *seen_at <= planned && now.since_ms(opened_at) < self.open_ms {
            return Some(format!("{skill} begins for {intent}, and its breaker has been open since {opened_at}"));
        }
        if row.state == BreakerState::Closed || *is_passed || planned < opened_at {
            return None;
        }
        let is_probe = |other: &IntentId| self.planned.get(other).is_some_and(|at| *at >= opened_at);
        let probe = self.running.iter().find(|(other, s)| *s == skill && **other != intent && is_probe(other));
        probe.map(|(other, _)| format!("{skill} begins for {intent} while the probe {other} of its breaker is out"))
    }

    /// A run is over.
    pub fn ends(&mut self, skill: &str, intent: IntentId) {
        self.running.remove(&intent);
        if let Some(known) = self.rows.get_mut(skill)
            && self.planned.get(&intent).is_none_or(|at| *at >= known.row.opened_at)
        {
            known.is_passed = true;
        }
    }
}

/// The watch itself is watched: each of these must be noticed, or must not be.
#[test]
fn what_begins_behind_an_open_door_or_beside_a_probe_is_noticed() {
    let ms = |ms: i64| Micros(ms * 1_000);
    let intent = |n: u128| IntentId::from_uuid(uuid::Uuid::from_u128(n));
    let row = |state| BreakerRow { state, opened_at: ms(100), ..BreakerRow::default() };
    let seen = |state| {
        let mut doors = Doors::new(1_000);
        doors.plans(intent(1), ms(90));
        doors.see("s", row(state), ms(110));
        doors.plans(intent(2), ms(120));
        doors.plans(intent(3), ms(130));
        doors
    };
    let mut doors = seen(BreakerState::Open);
    assert_eq!(doors.begins("s", intent(1), ms(140)), None, "it was let in before");
    assert!(doors.begins("s", intent(2), ms(140)).is_some());
    assert_eq!(seen(BreakerState::Open).begins("s", intent(2), ms(1_100)), None, "its time is up");
    let mut doors = seen(BreakerState::HalfOpen);
    assert_eq!(doors.begins("s", intent(2), ms(1_200)), None, "it is the probe");
    assert!(doors.begins("s", intent(3), ms(1_200)).is_some());
    let mut doors = seen(BreakerState::HalfOpen);
    assert_eq!(doors.begins("s", intent(2), ms(1_200)), None);
    doors.ends("s", intent(2));
    assert_eq!(doors.begins("s", intent(3), ms(1_200)), None, "the probe has decided");
    let mut doors = seen(BreakerState::Open);
    doors.doubt();
    assert_eq!(doors.begins("s", intent(2), ms(140)), None);
}
