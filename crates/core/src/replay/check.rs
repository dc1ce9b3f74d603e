//! The comparison of a log with the decisions that the core takes again.

use serde::Serialize;

use crate::{
    event::{Event, EventBody, Recorder},
    ids::{AgentId, Seq, TaskId},
    turn::{Conversation, Decision},
};

/// The most divergences that are listed; the others are counted.
const LISTED_MAX: usize = 100;
/// The most decisions that are tried until the stored one is found. The Engine stored them in another order if it learned of a
/// message only after its decision.
const TRIED_MAX: usize = 50;
/// The most characters of an event in a divergence.
const SHOWN_CHARS_MAX: usize = 600;

/// What differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DivergenceKind {
    /// The core decides another event of the same kind about the same task.
    Decision,
    /// The core decides nothing of this kind about the task.
    Undecided,
    /// The core decides an event after the Engine's last append that is not stored.
    Missing,
    /// A sequence number is missing.
    Gap,
    /// The stored snapshot is not what the log folds to.
    Snapshot,
}

/// A difference between the log and its replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Divergence {
    /// The sequence number of the event.
    pub seq: Seq,
    /// What differs.
    pub kind: DivergenceKind,
    /// The task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// What is stored.
    pub stored: String,
    /// What the replay gives.
    pub replayed: String,
}

/// The result of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The number of events that were folded.
    pub events: u64,
    /// How many of them the core decided again, with the same result.
    pub decisions: u64,
    /// The number of divergences.
    pub diverged: u64,
    /// The first divergences.
    pub divergences: Vec<Divergence>,
    /// An event was redacted, so that decisions that depend on texts are not compared.
    pub is_redacted: bool,
    #[serde(skip)]
    last: Seq,
}

impl Check {
    /// Whether log and replay agree.
    #[must_use]
    pub const fn agrees(&self) -> bool {
        self.diverged == 0
    }

    /// Adds a divergence.
    pub fn add(&mut self, divergence: Divergence) {
        self.diverged += 1;
        if self.divergences.len() < LISTED_MAX {
            self.divergences.push(divergence);
        }
    }

    /// Compares an event with what the core decides in the state before it.
    pub(super) fn see(&mut self, before: &Conversation, event: &Event) {
        self.events += 1;
        if event.seq.0 != self.last.0 + 1 {
            let replayed = format!("event {}", self.last.0 + 1);
            self.add_about(event, DivergenceKind::Gap, format!("event {}", event.seq), replayed);
        }
        self.last = event.seq;
        self.is_redacted |= super::redact::is_redacted(event);
        if !is_recorded_by_the_engine(event) || self.is_redacted {
            return;
        }
        match decided(before, event) {
            Found::Same => self.decisions += 1,
            Found::Other(decision) => {
                let (stored, replayed) = (shown(&event.body), shown(&decision.body));
                self.add_about(event, DivergenceKind::Decision, stored, replayed);
            }
            Found::Nothing if is_always_decided(before, event) => {
                let replayed = before.decide().map_or_else(|| "nothing".to_owned(), |decision| shown(&decision.body));
                self.add_about(event, DivergenceKind::Undecided, shown(&event.body), replayed);
            }
            Found::Nothing => {}
        }
    }

    /// Compares the end of the log with what the core decides.
    pub(super) fn end(&mut self, state: &Conversation, last: Option<&Event>) {
        let Some(last) = last.filter(|last| is_recorded_by_the_engine(last) && !self.is_redacted) else { return };
        // The beginning of a turn is stored with no decision behind it: the next append brings it.
        if matches!(last.body, EventBody::TurnStarted { .. } | EventBody::Decided { .. }) {
            return;
        }
        if let Some(decision) = state.decide() {
            self.add(Divergence {
                seq: Seq(last.seq.0 + 1),
                kind: DivergenceKind::Missing,
                task: Some(decision.task),
                stored: "nothing".to_owned(),
                replayed: shown(&decision.body),
            });
        }
    }

    fn add_about(&mut self, event: &Event, kind: DivergenceKind, stored: String, replayed: String) {
        self.add(Divergence { seq: event.seq, kind, task: Some(event.task), stored, replayed });
    }
}

enum Found {
    Same,
    Other(Box<Decision>),
    Nothing,
}

/// Searches the decisions that follow from a state for a stored event.
fn decided(before: &Conversation, event: &Event) -> Found {
    let Some(first) = before.decide() else { return Found::Nothing };
    if is_about_same(&first, event) {
        return compared(first, event);
    }
    let mut state = before.clone();
    let mut next = Some(first);
    for _ in 0..TRIED_MAX {
        let Some(decision) = next else { return Found::Nothing };
        if is_about_same(&decision, event) {
            return compared(decision, event);
        }
        state.fold(state.at, decision.task, &decision.agent, &decision.body);
        next = state.decide();
    }
    Found::Nothing
}

fn compared(decision: Decision, event: &Event) -> Found {
    if decision.body == event.body { Found::Same } else { Found::Other(Box::new(decision)) }
}

fn is_about_same(decision: &Decision, event: &Event) -> bool {
    decision.task == event.task && decision.agent == event.agent && decision.body.kind() == event.body.kind()
}

/// Whether the core alone records events of this kind in this state.
fn is_always_decided(before: &Conversation, event: &Event) -> bool {
    let is_main = event.agent == AgentId::orchestrator();
    is_main && before.turn(event.task).is_some() && matches!(event.body, EventBody::Answered { .. })
}

fn is_recorded_by_the_engine(event: &Event) -> bool {
    match event.body.recorder() {
        Recorder::Engine => true,
        Recorder::Agent => event.agent.is_orchestrator(),
        Recorder::FrontEnd | Recorder::Round | Recorder::Breaker | Recorder::DeadLetters | Recorder::Several => false,
    }
}

fn shown(body: &EventBody) -> String {
    let text = serde_json::to_string(body).unwrap_or_default();
    text.chars().take(SHOWN_CHARS_MAX).collect()
}
