//! The voice gate [S3 5.5]: while it is closed, only voice rounds start on a backend. The gate is a lease: its holder renews
//! it, and a holder that dies frees it within one term. It has one external holder, and in addition every REALTIME task that is
//! under way on the backend.

use std::collections::BTreeMap;

use annie_core::{ids::TaskId, time::Micros};
use serde::Serialize;
use serde_json::{Value, json};

/// The longest term, in milliseconds.
pub const TTL_MS_MAX: i64 = 60_000;
/// The shortest term, in milliseconds.
pub const TTL_MS_MIN: i64 = 500;
/// A granted gate lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GateGrant {
    /// Increases with every new holder.
    pub epoch: u64,
    /// End of the term, unless renewed.
    pub until: Micros,
}

/// Why the gate was not granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateRefusal {
    /// No backend has this name.
    #[error("there is no such backend")]
    UnknownBackend,
    /// Another holder has the gate.
    #[error("the gate is held by {holder} until {until}")]
    Held {
        /// Name of that holder.
        holder: String,
        /// End of that holder's term.
        until: Micros,
    },
}

/// The external holder of a gate.
#[derive(Debug)]
struct Holder {
    name: String,
    epoch: u64,
    until: Micros,
}

/// The voice gate of one backend.
#[derive(Debug)]
pub(super) struct Gate {
    /// The term of a REALTIME task between two of its rounds, in milliseconds.
    voice_ms: i64,
    holder: Option<Holder>,
    voices: BTreeMap<TaskId, Micros>,
    closed_since: Option<Micros>,
    closed_ms: u64,
}

impl Gate {
    /// An open gate. A spoken turn lasts until its hard deadline, and may run skills all that time between two of its rounds.
    /// The term is therefore longer than the latest of those deadlines, so the gate never opens in the middle of a spoken turn.
    /// The term matters only where the end of a turn is lost.
    pub fn new(voice_hard_ms_max: u64) -> Self {
        const AFTER_DEADLINE_MS: i64 = 1_000;
        let voice_ms = i64::try_from(voice_hard_ms_max).unwrap_or(i64::MAX).saturating_add(AFTER_DEADLINE_MS);
        Self { voice_ms, holder: None, voices: BTreeMap::new(), closed_since: None, closed_ms: 0 }
    }

    /// Closes the gate for a holder, or renews its lease. A new holder gets `fresh_epoch`.
    pub fn hold(
        &mut self,
        name: &str,
        ttl_ms: u64,
        fresh_epoch: &mut u64,
        now: Micros,
    ) -> Result<GateGrant, GateRefusal> {
        let ttl_ms = i64::try_from(ttl_ms).unwrap_or(TTL_MS_MAX).clamp(TTL_MS_MIN, TTL_MS_MAX);
        let until = now.plus_ms(ttl_ms);
        let epoch = match &mut self.holder {
            Some(holder) if holder.name != name => {
                return Err(GateRefusal::Held { holder: holder.name.clone(), until: holder.until });
            }
            Some(holder) => {
                holder.until = until;
                holder.epoch
            }
            None => {
                *fresh_epoch += 1;
                self.holder = Some(Holder { name: name.to_owned(), epoch: *fresh_epoch, until });
                *fresh_epoch
            }
        };
        self.closed_since.get_or_insert(now);
        Ok(GateGrant { epoch, until })
    }

    /// Releases the lease of a holder; false if this holder does not have it.
    pub fn release(&mut self, name: &str, now: Micros) -> bool {
        let is_holder = self.holder.as_ref().is_some_and(|h| h.name == name);
        if is_holder {
            self.holder = None;
            self.open_if_free(now);
        }
        is_holder
    }

    /// A REALTIME task is under way: closes the gate for its term.
    pub fn speak(&mut self, task: TaskId, now: Micros) {
        self.voices.insert(task, now.plus_ms(self.voice_ms));
        self.closed_since.get_or_insert(now);
    }

    /// A REALTIME task has ended, or continues on another backend.
    pub fn fall_silent(&mut self, task: TaskId, now: Micros) {
        if self.voices.remove(&task).is_some() {
            self.open_if_free(now);
        }
    }

    /// Number of REALTIME tasks under way.
    pub fn voices(&self) -> usize {
        self.voices.len()
    }

    /// Ends the terms that have run out, except those of tasks whose round is running. If the clock was set back, no remaining
    /// term becomes longer than its maximum.
    pub fn tick(&mut self, now: Micros, is_running: impl Fn(TaskId) -> bool) {
        if self.closed_since.is_none() {
            return;
        }
        let mut last = Micros(i64::MIN);
        if let Some(holder) = &mut self.holder {
            holder.until = holder.until.min(now.plus_ms(TTL_MS_MAX));
            if holder.until <= now {
                last = holder.until;
                self.holder = None;
            }
        }
        let term = now.plus_ms(self.voice_ms);
        self.voices.retain(|task, until| {
            *until = if is_running(*task) { term } else { (*until).min(term) };
            if *until <= now {
                last = last.max(*until);
            }
            *until > now
        });
        self.open_if_free(last);
    }

    fn open_if_free(&mut self, when: Micros) {
        if self.holder.is_some() || !self.voices.is_empty() {
            return;
        }
        if let Some(since) = self.closed_since.take() {
            let closed_ms = when.since_ms(since);
            self.closed_ms += closed_ms;
            #[expect(clippy::cast_precision_loss, reason = "a duration in a histogram")]
            metrics::histogram!("annie_voice_gate_closed_seconds").record(closed_ms as f64 / 1e3);
        }
    }

    /// Whether the gate is closed, as of the last tick.
    pub fn is_closed(&self) -> bool {
        self.closed_since.is_some()
    }

    /// When the next term runs out.
    pub fn next_expiry(&self) -> Option<Micros> {
        self.holder.iter().map(|h| h.until).chain(self.voices.values().copied()).min()
    }

    /// The gate as shown to operators.
    pub fn view(&self, now: Micros) -> Value {
        let holder = self.holder.as_ref();
        json!({
            "closed": self.is_closed(), "holder": holder.map(|h| &h.name), "epoch": holder.map(|h| h.epoch),
            "until": holder.map(|h| h.until.to_string()), "voices": self.voices.keys().collect::<Vec<_>>(),
            "closed_ms_total": self.closed_ms + self.closed_since.map_or(0, |since| now.since_ms(since)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: i64) -> Micros {
        Micros(0).plus_ms(ms)
    }

    fn quiet(_: TaskId) -> bool {
        false
    }

    #[test]
    fn gate_opens_within_one_term_after_its_holder_dies() {
        let (mut gate, mut epoch) = (Gate::new(12_000), 0);
        assert!(gate.hold("ann", 5_000, &mut epoch, at_ms(0)).is_ok());
        assert!(matches!(gate.hold("bob", 5_000, &mut epoch, at_ms(1)), Err(GateRefusal::Held { .. })));
        gate.tick(at_ms(4_999), quiet);
        assert!(gate.is_closed());
        gate.tick(at_ms(5_000), quiet);
        assert!(!gate.is_closed());
        assert!(gate.hold("bob", 5_000, &mut epoch, at_ms(5_000)).is_ok());
    }

    #[test]
    fn gate_is_released_only_by_its_holder_and_its_epochs_rise() {
        let (mut gate, mut epoch) = (Gate::new(12_000), 0);
        let first = gate.hold("ann", 5_000, &mut epoch, at_ms(0)).map(|g| g.epoch);
        assert!(!gate.release("bob", at_ms(1)));
        assert!(gate.release("ann", at_ms(1)));
        assert!(gate.hold("bob", 5_000, &mut epoch, at_ms(2)).map(|g| g.epoch).ok() > first.ok());
    }

    #[test]
    fn gate_opens_after_the_last_voice_ends_and_counts_its_closed_time_once() {
        let (mut gate, mut epoch) = (Gate::new(12_000), 0);
        let (one, two) = (task(1), task(2));
        gate.speak(one, at_ms(0));
        gate.speak(two, at_ms(100));
        assert!(gate.hold("ann", 500, &mut epoch, at_ms(200)).is_ok());
        gate.fall_silent(one, at_ms(300));
        gate.tick(at_ms(800), |speaker| speaker == two);
        assert!(gate.is_closed(), "the second one speaks");
        gate.fall_silent(two, at_ms(1_000));
        assert!(!gate.is_closed());
        assert_eq!(gate.closed_ms, 1_000);
    }

    #[test]
    fn gate_stays_closed_for_one_term_at_most_when_the_clock_is_set_back() {
        let mut gate = Gate::new(12_000);
        gate.speak(task(1), at_ms(3_600_000));
        gate.tick(at_ms(0), quiet);
        gate.tick(at_ms(13_000), quiet);
        assert!(!gate.is_closed());
    }

    fn task(n: u8) -> TaskId {
        format!("task_{n:032x}").parse().expect("an id")
    }
}
