//! The messages of the log writer, and the only way to send it an append.

use std::time::Duration;

use annie_core::{
    ids::ConversationId,
    ports::{Append, AppendError, Appended},
};
use tokio::sync::oneshot;

use crate::observe::{Handle, Named, SendError};

/// Time limit of an append, in milliseconds, including the appends before it.
const APPEND_MS_MAX: u64 = 120_000;

/// Why an append failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The store refused the append; nothing of it is stored.
    #[error(transparent)]
    Refused(#[from] AppendError),
    /// The log writer died or is overloaded; whether the append is stored is unknown.
    #[error("the log writer did not answer: {0}")]
    Lost(#[from] SendError),
}

impl LogError {
    /// Whether the same append may succeed later, because the writer or the store is unavailable for now.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        match self {
            Self::Lost(_) => true,
            Self::Refused(AppendError::Store(error)) => error.is_retryable(),
            Self::Refused(_) => false,
        }
    }
}

/// Messages of the log writer.
pub enum LogMsg {
    /// Store these events.
    Append {
        /// The events.
        append: Append,
        /// Receives the result.
        reply: oneshot::Sender<Result<Appended, AppendError>>,
    },
    /// The commit under way has ended.
    Flushed {
        /// Conversations whose messages may be stored although the commit failed, or may be stored later.
        in_doubt: Vec<ConversationId>,
    },
    /// Time to check commits whose fate is unknown.
    CheckLate,
    /// Other nodes have ended. The rows that they stored have no background worker any more that was notified of them.
    NodesEnded,
}

impl Named for LogMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Append { .. } => "Append",
            Self::Flushed { .. } => "Flushed",
            Self::CheckLate => "CheckLate",
            Self::NodesEnded => "NodesEnded",
        }
    }
}

/// Appends through the writer and waits for the commit, within a time.
///
/// # Errors
/// As [`LogError`]; after `Lost` the append may or may not be stored.
pub async fn append(log: &Handle<LogMsg>, append: Append) -> Result<Appended, LogError> {
    let (reply, answer) = oneshot::channel();
    log.cast(LogMsg::Append { append, reply })?;
    match tokio::time::timeout(Duration::from_millis(APPEND_MS_MAX), answer).await {
        Ok(Ok(stored)) => Ok(stored?),
        Ok(Err(_)) => Err(LogError::Lost(SendError::Crashed)),
        Err(_) => Err(LogError::Lost(SendError::Timeout)),
    }
}
