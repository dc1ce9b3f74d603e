//! Channels: where users get the final texts of their messages.

use super::{Fut, OutboxRow};

/// What became of a text that a channel accepted for delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivered {
    /// The recipient, or the service that forwards the text, has it.
    Received,
    /// The channel does not reach the recipient and has sent nothing. The user is notified instead.
    NotReachable,
}

/// A failed delivery.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    /// Nothing was sent; the delivery may be tried again.
    #[error("{why}")]
    Retry {
        /// The minimum wait before the next attempt, in milliseconds; 0 if the channel has no opinion.
        after_ms: u64,
        /// The reason, for the log.
        why: String,
    },
    /// Nothing was sent, and no other attempt would change that. The text is the reason.
    #[error("{0}")]
    Refused(String),
    /// The text may have been sent. The text is the reason.
    #[error("{0}")]
    Unknown(String),
}

/// A way to reach users, such as a chat service. It must not block the thread.
pub trait Channel: Send + Sync {
    /// The name: 1 to 40 lower-case letters, digits and underscores, different from that of any other channel.
    fn name(&self) -> &str;

    /// Delivers a final text. The id of the text is the same for every attempt.
    ///
    /// # Errors
    /// If the text was not delivered, or may not have been.
    fn deliver<'a>(&'a self, text: &'a OutboxRow) -> Fut<'a, Result<Delivered, DeliveryError>>;
}
