//! Which class a task gets: from where it came and its words, never from a model, which would cost seconds for every
//! message [S3 5.2.2] [S3 13]. And what a person's mood changes of it.

mod mood;
mod phrases;
mod spoken;
#[cfg(test)]
mod tests;

pub use mood::{Brevity, Emotion, INTENSITY_MIN, INTENSITY_SURE, Mood, ORDER_SHIFT_MS_MAX, mood};

pub(crate) use spoken::wishes;
pub use spoken::{Spoken, spoken};

use crate::event::Priority;

/// Sources that are voice: their messages are answered at once, outside the queue.
const VOICE: &[&str] = &["voice"];
/// Sources behind which a person waits. An unknown source counts as one of them.
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
/// Sources by which the system asks something of itself.
const SYSTEM: &[&str] = &["cron", "system", "omi", "watcher", "schedule", "proactive", "reflection", "webhook"];
/// Sources of upkeep.
const UPKEEP: &[&str] = &["maintenance", "evolution", "consolidation", "dead_letter", "learning"];

/// What a class was decided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Basis {
    /// Whoever sent it asked for it.
    Asked,
    /// Where it came from.
    Source,
    /// What the person said of hurry.
    Words,
    /// The kind of work that it asks for.
    Work,
    /// How the person feels.
    Mood,
}

/// A class with its reason, as the log wants it [S3 11.2].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classified {
    /// The class.
    pub priority: Priority,
    /// What decided.
    pub basis: Basis,
    /// Why, in words.
    pub reason: String,
    /// Which other classes were considered, and why they were not taken.
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

    /// The class as this mood has it: lifts long work that a person wants done, never above HIGH; never what was asked
    /// for expressly or is said to have time, never what the system asked.
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

/// The class of a message: an expressly asked one wins, except REALTIME, which only voice may have; then the source; then,
/// for people, clear phrases [S3 5.2.2]. `source` is the door or channel, with or without a part behind `:` or `/`
/// (`cron:daily`). Looks at the first and last 400 bytes of the text, so that its cost is bounded.
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
        return of(Priority::Realtime, "somebody speaks and waits");
    }
    if UPKEEP.contains(&kind) {
        return of(Priority::Background, "upkeep").but(Priority::Low, "nobody asked for it");
    }
    if SYSTEM.contains(&kind) {
        return of(Priority::Low, "the system asked").but(Priority::Normal, "no person asked");
    }
    by_words(kind, text)
}

fn by_words(kind: &str, text: &str) -> Classified {
    let said = phrases::Said::of(text);
    let waits = if PEOPLE.contains(&kind) { "a person waits" } else { "not a known source, so a person may wait" };
    let by_source = format!("source {kind}: {waits}");
    if let Some(phrase) = said.unhurried {
        let lower = Classified::new(Priority::Normal, Basis::Words, format!("a person asked, and said {phrase:?}"));
        return match said.urgent {
            Some(urgent) => Classified::new(Priority::High, Basis::Words, format!("a person said {urgent:?}"))
                .but(Priority::Normal, format!("{phrase:?} was said too")),
            None => lower.but(Priority::High, by_source),
        };
    }
    match (said.urgent, said.long_work) {
        (Some(urgent), _) => {
            let high = Classified::new(Priority::High, Basis::Words, format!("a person said {urgent:?}"));
            match said.long_work {
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
