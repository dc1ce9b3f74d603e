//! What skills and extensions add to the prompt of a turn.

use super::Fut;
use crate::{event::Recalled, ids::UserId, time::Micros};

/// The turn for which a source is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextQuery {
    /// The user.
    pub user: UserId,
    /// The text of the user's message.
    pub text: String,
    /// The message may be processed by local backends only: a source must not send it to other systems.
    pub is_private: bool,
    /// The time at which the turn begins.
    pub now: Micros,
    /// IANA name of the user's time zone.
    pub timezone: String,
}

/// One part of a prompt's context. It is data and never an instruction: the prompt escapes it and encloses it in a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContextPart {
    /// One line about the user's open to-dos. At most 2,000 bytes from an extension.
    TodoSummary(String),
    /// A memory that fits the message. From an extension: at most 2,000 bytes of text, and 200 of category and of origin. If the
    /// origin is empty, it is the name of the source.
    Memory(Recalled),
    /// Any other text. The prompt shows it under the name of its source, to a cloud backend too unless the message is private.
    /// At most 2,000 bytes; a longer text is cut with a notice. Once less than 2,000 of the 16,000 bytes for all sources are
    /// left, further texts are left out.
    Text(String),
}

/// Adds parts to the prompt of each turn, such as the memories that fit the message.
///
/// The kernel asks all sources once when a turn begins, and records their parts with the turn. A replay asks no source.
pub trait ContextSource: Send + Sync {
    /// The name: 1 to 40 lower-case letters, digits and underscores, different from that of any other source. Data that a
    /// turn stores names the sources of the texts that the turn had read.
    fn name(&self) -> &'static str;

    /// Returns the parts for one turn, at most 16; further parts are left out. A source that takes longer than 2 s or panics
    /// adds nothing to this turn. Sources are asked at the same time, and by several turns at once. Must not block the
    /// thread.
    ///
    /// # Errors
    /// The reason, for the log. The source adds nothing to this turn.
    fn read<'a>(&'a self, query: &'a ContextQuery) -> Fut<'a, Result<Vec<ContextPart>, String>>;
}
