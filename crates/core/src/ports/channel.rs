//! Channels: where users get the final texts of their messages.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Fut, OutboxRow};
use crate::{
    ids::{NodeId, TaskId, UserId},
    time::Micros,
};

/// Where the final text of a message is delivered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Address {
    /// The name of the channel.
    pub channel: String,
    /// The recipient, in the channel's own form, such as `chat:42`: 1 to [`Address::TO_BYTES_MAX`] bytes without control
    /// characters.
    pub to: String,
}

impl Address {
    /// The longest recipient, in bytes.
    pub const TO_BYTES_MAX: usize = 256;

    /// Whether the recipient has the form that every channel accepts.
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        !self.to.is_empty() && self.to.len() <= Self::TO_BYTES_MAX && !self.to.chars().any(char::is_control)
    }
}

/// Why the channel of a final text does not deliver it. The user is notified of the text instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Diverted {
    /// The text may have been sent: an attempt began, and its end is not known. It is never sent again.
    InDoubt,
    /// The channel refused the text or the recipient.
    Refused,
    /// The channel failed for too long.
    GivenUp,
    /// No channel has this name any more.
    NoChannel,
}

impl Diverted {
    /// The name in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InDoubt => "in_doubt",
            Self::Refused => "refused",
            Self::GivenUp => "given_up",
            Self::NoChannel => "no_channel",
        }
    }
}

/// A final text that waits for its channel, with the attempts to deliver it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryRow {
    /// The text and its address.
    pub text: OutboxRow,
    /// The number of attempts that have begun.
    pub attempts: u32,
    /// Set while an attempt has begun and its end is not stored: the node that made it, and when it began.
    pub begun: Option<(NodeId, Micros)>,
    /// The next attempt is not made before this time.
    pub retry_at: Option<Micros>,
}

/// The end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryEnd {
    /// The text was delivered at this time.
    Delivered(Micros),
    /// Nothing was sent, or sending it again does no harm. The next attempt is not made before this time.
    Retry(Micros),
    /// The channel does not deliver the text.
    Diverted(Diverted),
}

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

/// A message that a channel received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    /// The sender. The channel has verified that the message is from this user.
    pub user: UserId,
    /// The channel's name for the conversation. The same name is the same conversation of the same user.
    pub conversation: String,
    /// The text.
    pub text: String,
    /// The channel's id of the message, at most 128 bytes without control characters. A message with the same id of the same
    /// user is acknowledged again and not run again.
    pub id: String,
    /// The recipient of the answer, as in [`Address::to`].
    pub reply_to: String,
}

/// A message that was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InboxError {
    /// The message is not acceptable, and will not be. The text is the reason and the fix.
    #[error("{0}")]
    Refused(String),
    /// There is no capacity. Nothing was stored.
    #[error("too many tasks wait: send the message again in {retry_after_ms} ms")]
    Busy {
        /// When to send the message again, in milliseconds.
        retry_after_ms: u64,
    },
    /// The message may have been stored: send it again with the same id.
    #[error("{0}; send the message again")]
    Unavailable(String),
}

/// Accepts the messages of one channel.
pub trait Inbox: Send + Sync {
    /// Stores a message. When this returns the task, the message will get exactly one final text, which is delivered to its
    /// address.
    ///
    /// # Errors
    /// If the message was not stored, or may not have been.
    fn submit(&self, message: Incoming) -> Fut<'_, Result<TaskId, InboxError>>;
}

/// A way to reach users, such as a chat service. It must not block the thread.
pub trait Channel: Send + Sync {
    /// The name: 1 to 40 lower-case letters, digits and underscores, different from that of any other channel.
    fn name(&self) -> &str;

    /// Checks whether a user may have texts delivered to a recipient. Called before a message with such an address is accepted.
    /// A channel that serves several users must accept only the recipients of this user.
    ///
    /// # Errors
    /// The reason and the fix, for the sender of the message.
    fn check(&self, user: &UserId, to: &str) -> Result<(), String>;

    /// Whether the recipient recognises a text by its id, so that a text that is sent again is received once. Then a text is
    /// sent again if it is not known whether it was sent. Otherwise it is not, and the user is notified of the doubt.
    fn is_idempotent(&self) -> bool {
        false
    }

    /// Delivers a final text to its address. The id of the text is the same for every attempt. The texts of one address are
    /// delivered one after the other, in the order in which their tasks ended. An attempt that takes longer than 30 s is cut
    /// off; then, and after a panic, it is not known whether the text was sent.
    ///
    /// # Errors
    /// If the text was not delivered, or may not have been.
    fn deliver<'a>(&'a self, text: &'a OutboxRow) -> Fut<'a, Result<Delivered, DeliveryError>>;

    /// Receives messages until the kernel stops. Runs as `/listeners/service:channel:NAME`, and starts again after an error or a
    /// panic. A channel whose messages come in through a front end returns at once.
    ///
    /// # Errors
    /// The reason, for the log.
    fn receive(&self, inbox: Arc<dyn Inbox>) -> Fut<'_, Result<(), String>> {
        let _ = inbox;
        Box::pin(std::future::ready(Ok(())))
    }
}
