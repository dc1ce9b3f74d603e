//! Stores the events of an agent under the epoch of its owner.

use annie_core::{
    ids::Seq,
    ports::{Append, AppendError},
};

use crate::{
    log_writer::{LogError, LogMsg, append},
    observe::{Context, Handle, Node, NodeError},
};

/// The result of an append.
pub(crate) enum Stored {
    /// Stored; the number of the first event.
    At(Seq),
    /// Another epoch owns the conversation now. The actor stops and starts nothing more.
    Fenced,
}

/// Stores events. If another epoch owns the conversation, the actor is stopped.
///
/// # Errors
/// If they are not stored, or may not be: the state of the actor is ahead of the log, and its next incarnation reads the log. A
/// log that is unavailable is no failure of the actor.
pub(crate) async fn append_owned<N: Node>(
    ctx: &Context<N>,
    log: &Handle<LogMsg>,
    what: Append,
) -> Result<Stored, NodeError> {
    let conversation = what.conversation;
    match ctx.wait_for(append(log, what)).await {
        Ok(stored) => Ok(Stored::At(stored.first)),
        Err(LogError::Refused(AppendError::Fenced)) => {
            tracing::info!(%conversation, path = %ctx.path, "another epoch owns the conversation now");
            ctx.stop();
            Ok(Stored::Fenced)
        }
        Err(e) if e.is_passing() => Err(NodeError::deprived(format!("an event could not be stored: {e}"))),
        Err(e) => Err(NodeError::new(format!("an event could not be stored: {e}"))),
    }
}
