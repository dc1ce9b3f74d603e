//! The breakers as seen from outside: checks which runs begin behind an open breaker or beside a probe (invariant 14).
//!
//! Only certain facts are judged. A row is known from the moment when it was seen in the store, a run from the moment
//! when it was planned. Anything that may have changed a breaker without its row makes all of that uncertain.

use std::collections::BTreeMap;

use annie_core::{
    breaker::{BreakerRow, BreakerState},
    event::{Action, Event, EventBody},
    ids::IntentId,
    time::Micros,
};

/// A row, and the time since which it is known.
struct Row {
    row: BreakerRow,
    seen_at: Micros,
    /// A run that was planned after this row has ended: the breaker may have changed its state before its row does.
    is_passed: bool,
}

/// The known state of the breakers.
pub struct BreakerWatch {
    open_ms: u64,
    rows: BTreeMap<String, Row>,
    planned: BTreeMap<IntentId, Micros>,
    running: BTreeMap<IntentId, String>,
    /// Two processes have breakers of their own: nothing is certain any more.
    is_blind: bool,
}

impl BreakerWatch {
    pub const fn new(open_ms: u64) -> Self {
        Self { open_ms, rows: BTreeMap::new(), planned: BTreeMap::new(), running: BTreeMap::new(), is_blind: false }
    }

    /// Discards all knowledge, because something may have changed a breaker without its row.
    pub fn doubt(&mut self) {
        self.rows.clear();
        self.planned.clear();
        self.running.clear();
    }

    /// Stops judging for the rest of the run.
    pub fn blind(&mut self) {
        self.is_blind = true;
    }

    /// Records the runs that a model reply plans.
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

    /// Records a row as it is stored now.
    pub fn see(&mut self, skill: &str, row: BreakerRow, now: Micros) {
        let known = self.rows.get(skill);
        if known.is_none_or(|known| known.row != row) {
            let is_passed = known.is_some_and(|known| known.is_passed && known.row.opened_at == row.opened_at);
            self.rows.insert(skill.to_owned(), Row { row, seen_at: now, is_passed });
        }
    }

    /// Records the first beginning of a run. Returns what is wrong with it, if anything.
    pub fn begins(&mut self, skill: &str, intent: IntentId, now: Micros) -> Option<String> {
        self.running.insert(intent, skill.to_owned());
        let planned = *self.planned.get(&intent).filter(|_| !self.is_blind)?;
        let Row { row, seen_at, is_passed } = self.rows.get(skill)?;
        let opened_at = row.opened_at;
        if row.state == BreakerState::Open && *seen_at < planned && now.since_ms(opened_at) < self.open_ms {
            return Some(format!("{skill} begins for {intent}, and its breaker has been open since {opened_at}"));
        }
        if row.state == BreakerState::Closed || *is_passed || planned < opened_at {
            return None;
        }
        let is_probe = |other: &IntentId| self.planned.get(other).is_some_and(|at| *at >= opened_at);
        let probe = self.running.iter().find(|(other, s)| *s == skill && **other != intent && is_probe(other));
        probe.map(|(other, _)| format!("{skill} begins for {intent} while the probe {other} of its breaker is out"))
    }

    /// Records the end of a run.
    pub fn ends(&mut self, skill: &str, intent: IntentId) {
        self.running.remove(&intent);
        if let Some(known) = self.rows.get_mut(skill)
            && self.planned.get(&intent).is_none_or(|at| *at >= known.row.opened_at)
        {
            known.is_passed = true;
        }
    }
}

/// A test of the watch itself: it must report exactly these violations.
#[test]
fn breaker_watch_notices_a_run_behind_an_open_breaker_or_beside_a_probe() {
    let ms = |ms: i64| Micros(ms * 1_000);
    let intent = |n: u128| IntentId::from_uuid(uuid::Uuid::from_u128(n));
    let row = |state| BreakerRow { state, opened_at: ms(100), ..BreakerRow::default() };
    let seen = |state| {
        let mut watch = BreakerWatch::new(1_000);
        watch.plans(intent(1), ms(90));
        watch.see("s", row(state), ms(110));
        watch.plans(intent(2), ms(120));
        watch.plans(intent(3), ms(130));
        watch
    };
    let mut watch = seen(BreakerState::Open);
    assert_eq!(watch.begins("s", intent(1), ms(140)), None, "it was admitted before");
    assert!(watch.begins("s", intent(2), ms(140)).is_some());
    let mut watch = seen(BreakerState::Open);
    watch.plans(intent(4), ms(110));
    assert_eq!(
        watch.begins("s", intent(4), ms(140)),
        None,
        "planned when the row was seen: it may have been admitted before"
    );
    assert_eq!(seen(BreakerState::Open).begins("s", intent(2), ms(1_100)), None, "the open time is over");
    let mut watch = seen(BreakerState::HalfOpen);
    assert_eq!(watch.begins("s", intent(2), ms(1_200)), None, "this run is the probe");
    assert!(watch.begins("s", intent(3), ms(1_200)).is_some());
    let mut watch = seen(BreakerState::HalfOpen);
    assert_eq!(watch.begins("s", intent(2), ms(1_200)), None);
    watch.ends("s", intent(2));
    assert_eq!(watch.begins("s", intent(3), ms(1_200)), None, "the probe has decided");
    let mut watch = seen(BreakerState::Open);
    watch.doubt();
    assert_eq!(watch.begins("s", intent(2), ms(140)), None);
}
