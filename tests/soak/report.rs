//! The report of a soak: a table, and the same as JSON.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Value, json};

use super::{
    check::{Violation, Wrong},
    history::{Found, History},
    nemesis::Injected,
};

/// The results of a soak.
#[derive(Debug)]
pub struct Report {
    pub name: String,
    pub seed: u64,
    pub seconds: u64,
    pub fsync_ms: f64,
    /// Acknowledged messages.
    pub acknowledged: usize,
    /// Messages without an acknowledgement: refused, or unknown to the end.
    pub not_acknowledged: usize,
    /// Final events by kind, failures by code.
    pub ends: BTreeMap<String, u32>,
    pub sent: usize,
    pub noted: usize,
    pub reads: usize,
    pub trespasses: usize,
    pub cancels: usize,
    pub events_streamed: usize,
    pub connections: u64,
    pub injected: Injected,
    pub violations: Vec<Violation>,
}

impl Report {
    pub fn new(name: &str, seed: u64, history: &History, found: &Found, injected: Injected) -> Self {
        let mut ends: BTreeMap<String, u32> = BTreeMap::new();
        for event in found.logs.values().flat_map(|l| &l.events).filter(|e| e.is_final()) {
            let end =
                if event.code.is_empty() { event.kind.clone() } else { format!("{} ({})", event.kind, event.code) };
            *ends.entry(end).or_default() += 1;
        }
        let mut violations = super::check::check(history, found);
        violations.extend(injected.wrong.iter().map(|detail| Violation {
            wrong: Wrong::TwoOwners,
            about: "the process".to_owned(),
            detail: detail.clone(),
        }));
        let acknowledged = history.submits.iter().filter(|s| !s.acks.is_empty()).count();
        Self {
            name: name.to_owned(),
            seed,
            seconds: 0,
            fsync_ms: 0.0,
            acknowledged,
            not_acknowledged: history.submits.len() - acknowledged,
            ends,
            sent: found.sent.len(),
            noted: found.noted.len(),
            reads: history.reads.len(),
            trespasses: history.foreigns.len(),
            cancels: history.cancels.len(),
            events_streamed: history.streams.iter().map(|s| s.seen.len()).sum(),
            connections: history.streams.iter().map(|s| u64::from(s.connections)).sum(),
            injected,
            violations,
        }
    }

    pub fn is_good(&self) -> bool {
        self.violations.is_empty()
    }

    fn count(&self, wrong: Wrong) -> usize {
        self.violations.iter().filter(|v| v.wrong == wrong).count()
    }

    pub fn table(&self) -> String {
        let mut text = format!(
            "soak on {}: {} s, seed {}, fdatasync of 8 kB {:.2} ms\n\n| what | |\n|---|---|\n",
            self.name, self.seconds, self.seed, self.fsync_ms
        );
        let mut line = |what: &str, value: String| {
            let _ = writeln!(text, "| {what} | {value} |");
        };
        for (disruption, times) in &self.injected.disruptions {
            line(disruption.name(), times.to_string());
        }
        let actors: Vec<String> = self.injected.actors.iter().map(|(kind, n)| format!("{kind} {n}")).collect();
        line("actors killed, by kind", actors.join(", "));
        line("unexpected ends of the process", self.injected.unexpected_ends.to_string());
        line("acknowledged", self.acknowledged.to_string());
        line("never acknowledged", self.not_acknowledged.to_string());
        for (end, times) in &self.ends {
            line(&format!("ended: {end}"), times.to_string());
        }
        line("`once` effects outside the process", self.sent.to_string());
        line("`idempotent` effects in files", self.noted.to_string());
        line("events streamed, connections", format!("{}, {}", self.events_streamed, self.connections));
        line(
            "reads, requests for conversations of others, cancellations",
            format!("{}, {}, {}", self.reads, self.trespasses, self.cancels),
        );
        for wrong in Wrong::ALL {
            line(&format!("**{}**", wrong.name()), format!("**{}**", self.count(wrong)));
        }
        text.push_str("\n| recovery | times | p50 ms | p99 ms | longest ms |\n|---|---|---|---|---|\n");
        for (what, times) in &self.injected.times_ms {
            let [p50, p99, max] = quantiles(times);
            let _ = writeln!(text, "| {what} | {} | {p50:.1} | {p99:.1} | {max:.1} |", times.len());
        }
        text
    }

    pub fn json(&self) -> Value {
        let recovery: BTreeMap<&str, Value> = self
            .injected
            .times_ms
            .iter()
            .map(|(what, times)| {
                let [p50, p99, max] = quantiles(times);
                (*what, json!({"times": times.len(), "p50_ms": p50, "p99_ms": p99, "max_ms": max}))
            })
            .collect();
        let disruptions: BTreeMap<&str, u32> = self.injected.disruptions.iter().map(|(s, n)| (s.name(), *n)).collect();
        let wrong: BTreeMap<&str, usize> = Wrong::ALL.iter().map(|w| (w.name(), self.count(*w))).collect();
        json!({
            "store": self.name, "seed": self.seed, "seconds": self.seconds, "fdatasync_ms": self.fsync_ms,
            "strokes": disruptions, "actors": self.injected.actors, "unasked_ends": self.injected.unexpected_ends,
            "acknowledged": self.acknowledged, "never_acknowledged": self.not_acknowledged, "ends": self.ends,
            "once_effects": self.sent, "idempotent_effects": self.noted, "wrong": wrong, "recovery": recovery,
            "violations": self.violations.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    }
}

/// Median, 99th percentile, maximum.
pub fn quantiles(times: &[f64]) -> [f64; 3] {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let n = (sorted.len().saturating_sub(1) as f64 * share).ceil() as usize;
        sorted.get(n).copied().unwrap_or(0.0)
    };
    [at(0.5), at(0.99), at(1.0)]
}
