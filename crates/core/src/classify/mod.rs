//! Classification: the scheduling class of a task, derived from its source and words, never by a model, which would take
//! seconds for every message [S3 5.2.2] [S3 13]. Also the influence of the user's mood on the class.

mod fulfilled;
mod intent;
mod mood;
mod phrases;
mod spoken;
#[cfg(test)]
mod tests;

pub use fulfilled::{Fulfilment, fulfils};
pub use intent::{Intent, intent};
pub use mood::{Brevity, Emotion, INTENSITY_MIN, INTENSITY_SURE, Mood, QUEUE_SHIFT_MS_MAX, mood};

pub(crate) use spoken::user_requests;
pub use spoken::{Spoken, spoken};

use crate::event::Priority;

/// Voice sources. Their messages bypass the queue.
const VOICE: &[&str] = &["voice"];
/// Interactive sources, where a person waits. Unknown sources count as interactive.
const PEOPLE: &[&str] = &[
    "chat",
    "http",
    "cli",
    "grpc",
    "telegram",
    "openai",
    "ws",
    "websocket",
    "web",
    "page",
    "discord",
    "slack",
    "matrix",
    "whatsapp",
    "signal",
    "email",
    "sms",
    "mcp",
];
/// Sources of the system's own requests.
const SYSTEM: &[&str] =
    &["cron", "system", "omi", "watcher", "schedule", "proactive", "reflection", "reminder", "fork_report", "webhook"];
/// Sources of maintenance work.
const UPKEEP: &[&str] = &["maintenance", "evolution", "consolidation", "dead_letter", "learning"];

/// The basis of a classification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Basis {
    /// The sender requested the class.
    Asked,
    /// The source of the message.
    Source,
    /// Words of urgency, or of its absence, in the message.
    Words,
    /// The kind of work that the message requests.
    Work,
    /// The user's mood.
    Mood,
}

/// A class with its reasons, as the log records them [S3 11.2].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classified {
    /// The class.
    pub priority: Priority,
    /// The basis of the decision.
    pub basis: Basis,
    /// The reason, in words.
    pub reason: String,
    /// The other classes considered, each with the reason against it.
    pub alternatives: Vec<String>,
}

impl Classified {
    fn new(priority: Priority, basis: Basis, reason: impl Into<String>) -> Self {
        Self { priority, basis, reason: reason.into(), alternatives: Vec::new() }
    }

    fn but(mut self, priority: Priority, why: impl std::fmt::Display) -> Self {
        self.alternatives.push(format!("{}: {why}", priority.as_str()));
        self
    }

    /// Adjusts the class to the user's mood: raises long work that a person requested, but never above HIGH. Does not change
    /// a class that was requested explicitly, work described as not urgent, or requests of the system.
    #[must_use]
    pub fn felt(self, mood: &Mood) -> Self {
        match mood.lift.map(|lift| lift.max(Priority::High)) {
            Some(lift) if lift < self.priority && self.basis == Basis::Work => {
                let mut lifted = Self::new(lift, Basis::Mood, "the person is in distress and does not want to wait");
                lifted.alternatives = self.alternatives;
                lifted.but(self.priority, self.reason)
            }
            _ => self,
        }
    }
}

/// The class of a message. An explicitly requested class has priority, except REALTIME, which is reserved for voice. Next is
/// the source; then, for interactive sources, clear phrases [S3 5.2.2]. `source` is the front end or channel, with or
/// without a suffix after `:` or `/` (`cron:daily`). Examines only the first and last 400 bytes of the text, so that its
/// cost is bounded.
#[must_use]
pub fn classify(source: &str, text: &str, asked: Option<Priority>) -> Classified {
    let source = source.trim().to_lowercase();
    let kind = source.split([':', '/']).next().unwrap_or_default();
    let is_voice = VOICE.contains(&kind);
    match asked {
        Some(Priority::Realtime) if !is_voice => {
            let by_itself = by_source(kind, is_voice, text);
            let reason = "REALTIME was asked for, and only voice may have it: the next best";
            return Classified::new(Priority::High, Basis::Asked, reason)
                .but(Priority::Realtime, "the source is not voice")
                .but(by_itself.priority, by_itself.reason);
        }
        Some(asked) => {
            let by_itself = by_source(kind, is_voice, text);
            let chosen = Classified::new(asked, Basis::Asked, "asked for expressly");
            return if by_itself.priority == asked { chosen } else { chosen.but(by_itself.priority, by_itself.reason) };
        }
        None => {}
    }
    by_source(kind, is_voice, text)
}

fn by_source(kind: &str, is_voice: bool, text: &str) -> Classified {
    let of = |priority, reason: &str| Classified::new(priority, Basis::Source, format!("source {kind}: {reason}"));
    if is_voice {
        return of(Priority::Realtime, "a voice session waits");
    }
    if UPKEEP.contains(&kind) {
        return of(Priority::Background, "upkeep").but(Priority::Low, "no request of a user");
    }
    if SYSTEM.contains(&kind) {
        return of(Priority::Low, "the system asked").but(Priority::Normal, "no person asked");
    }
    by_words(kind, text)
}

fn by_words(kind: &str, text: &str) -> Classified {
    let phrases_found = phrases::Phrases::of(text);
    let waits = if PEOPLE.contains(&kind) { "a person waits" } else { "not a known source, so a person may wait" };
    let by_source = format!("source {kind}: {waits}");
    if let Some(phrase) = phrases_found.unhurried {
        let lower = Classified::new(Priority::Normal, Basis::Words, format!("a person asked, and said {phrase:?}"));
        return match phrases_found.urgent {
            Some(urgent) => Classified::new(Priority::High, Basis::Words, format!("a person said {urgent:?}"))
                .but(Priority::Normal, format!("{phrase:?} was said too")),
            None => lower.but(Priority::High, by_source),
        };
    }
    match (phrases_found.urgent, phrases_found.long_work) {
        (Some(urgent), _) => {
            let high = Classified::new(Priority::High, Basis::Words, format!("a person said {urgent:?}"));
            match phrases_found.long_work {
                Some(work) => high.but(Priority::Normal, format!("{work} takes long")),
                None => high,
            }
        }
        (None, Some(work)) => {
            Classified::new(Priority::Normal, Basis::Work, format!("a person asked for {work}, which takes long"))
                .but(Priority::High, by_source)
        }
        (None, None) => Classified::new(Priority::High, Basis::Source, by_source)
            .but(Priority::Normal, "no word of there being no hurry, and no long work"),
    }
}
