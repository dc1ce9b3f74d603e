//! The voice gate (S3 5.5): while somebody speaks, no round but voice starts on a backend. A lease: whoever holds it renews
//! it, and a holder that dies frees it within one term.

use annie_core::time::Micros;
use serde::Serialize;
use serde_json::{Value, json};

/// The longest term, in milliseconds.
pub const TTL_MS_MAX: u64 = 60_000;
/// The shortest term, in milliseconds.
pub const TTL_MS_MIN: u64 = 500;

/// The gate is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GateGrant {
    /// Rises with every new holder and every life of the scheduler.
    pub epoch: u64,
    /// Until when, unless renewed.
    pub until: Micros,
}

/// The gate is not held.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateRefusal {
    /// There is no such backend.
    #[error("there is no such backend")]
    UnknownBackend,
    /// Somebody else speaks.
    #[error("the gate is held by {holder} until {until}")]
    Held {
        /// Who.
        holder: String,
        /// Until when.
        until: Micros,
    },
}

/// A closed gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateState {
    /// Who holds it.
    pub holder: String,
    /// Under which epoch.
    pub epoch: u64,
    /// Since when.
    pub since: Micros,
    /// Until when, unless renewed.
    pub until: Micros,
}

/// The gates of all backends.
pub struct Gates {
    gates: Vec<Option<GateState>>,
    closed_ms: Vec<u64>,
    life: u64,
    holders: u64,
}

impl Gates {
    pub fn new(backends: usize, life: u64) -> Self {
        Self { gates: vec![None; backends], closed_ms: vec![0; backends], life, holders: 0 }
    }

    pub fn hold(
        &mut self,
        backend: Option<usize>,
        holder: &str,
        ttl_ms: u64,
        now: Micros,
    ) -> Result<GateGrant, GateRefusal> {
        self.expire(now);
        let Some(slot) = backend.and_then(|b| self.gates.get_mut(b)) else { return Err(GateRefusal::UnknownBackend) };
        let ttl_ms = i64::try_from(ttl_ms.clamp(TTL_MS_MIN, TTL_MS_MAX)).unwrap_or(i64::MAX);
        let until = now.plus_ms(ttl_ms);
        match slot {
            Some(gate) if gate.holder != holder => {
                Err(GateRefusal::Held { holder: gate.holder.clone(), until: gate.until })
            }
            Some(gate) => {
                gate.until = until;
                Ok(GateGrant { epoch: gate.epoch, until })
            }
            None => {
                self.holders += 1;
                // A later life of the scheduler always counts higher than an earlier one.
                let epoch = (self.life << 32) | self.holders;
                *slot = Some(GateState { holder: holder.to_owned(), epoch, since: now, until });
                Ok(GateGrant { epoch, until })
            }
        }
    }

    pub fn release(&mut self, backend: Option<usize>, holder: &str, now: Micros) -> bool {
        self.expire(now);
        let Some(at) = backend.filter(|b| *b < self.gates.len()) else { return false };
        if self.gates[at].as_ref().is_none_or(|g| g.holder != holder) {
            return false;
        }
        self.open(at, now);
        true
    }

    pub fn expire(&mut self, now: Micros) {
        for at in 0..self.gates.len() {
            if let Some(until) = self.gates[at].as_ref().map(|g| g.until).filter(|until| *until <= now) {
                self.open(at, until);
            }
        }
    }

    fn open(&mut self, at: usize, when: Micros) {
        if let Some(gate) = self.gates[at].take() {
            let closed_ms = when.since_ms(gate.since);
            self.closed_ms[at] += closed_ms;
            metrics::counter!("annie_voice_gate_closed_ms_total").increment(closed_ms);
        }
    }

    pub fn is_closed(&self, backend: usize, now: Micros) -> bool {
        self.gates.get(backend).and_then(Option::as_ref).is_some_and(|g| g.until > now)
    }

    pub fn next_expiry(&self) -> Option<Micros> {
        self.gates.iter().flatten().map(|g| g.until).min()
    }

    pub fn view(&self, backend: usize) -> Value {
        let gate = self.gates.get(backend).and_then(Option::as_ref);
        json!({
            "closed": gate.is_some(), "holder": gate.map(|g| &g.holder), "epoch": gate.map(|g| g.epoch),
            "until": gate.map(|g| g.until), "closed_ms_total": self.closed_ms.get(backend)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_that_dies_frees_the_gate_within_one_term() {
        let mut gates = Gates::new(1, 1);
        assert!(gates.hold(Some(0), "ann", 5_000, Micros(0)).is_ok());
        assert!(matches!(gates.hold(Some(0), "bob", 5_000, Micros(1)), Err(GateRefusal::Held { .. })));
        assert!(gates.is_closed(0, Micros(0).plus_ms(4_999)));
        assert!(!gates.is_closed(0, Micros(0).plus_ms(5_000)));
        assert!(gates.hold(Some(0), "bob", 5_000, Micros(0).plus_ms(5_000)).is_ok());
    }

    #[test]
    fn only_its_holder_opens_it_and_epochs_rise() {
        let mut gates = Gates::new(1, 1);
        let first = gates.hold(Some(0), "ann", 5_000, Micros(0)).map(|g| g.epoch);
        assert!(!gates.release(Some(0), "bob", Micros(1)));
        assert!(gates.release(Some(0), "ann", Micros(1)));
        let second = gates.hold(Some(0), "bob", 5_000, Micros(2)).map(|g| g.epoch);
        assert!(second.ok() > first.ok());
        let mut next_life = Gates::new(1, 2);
        assert!(next_life.hold(Some(0), "cid", 5_000, Micros(3)).map(|g| g.epoch).ok() > second_epoch(&gates));
    }

    fn second_epoch(gates: &Gates) -> Option<u64> {
        gates.gates[0].as_ref().map(|g| g.epoch)
    }
}
