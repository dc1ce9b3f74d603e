//! The ids that log lines of the work for a task have. The front end's span of a request has the id of the request, and gets the
//! conversation and the task when the message is accepted.
//!
//! Owns: nothing. Survives its users: nothing.

use annie_core::ids::{AgentId, ConversationId, TaskId};
use tracing::{Span, field::display};

/// The work of an agent: a round, a call, a hook.
pub(crate) fn of_agent(conversation: ConversationId, task: TaskId, agent: &AgentId) -> Span {
    tracing::info_span!("work", %conversation, %task, %agent)
}

/// The work of an Engine, for a task unless it concerns the whole conversation.
pub(crate) fn of_engine(conversation: ConversationId, task: Option<TaskId>) -> Span {
    tracing::info_span!("engine", %conversation, task = task.map(display))
}

/// Adds the ids of an accepted message to the span of its request.
pub(crate) fn note_accepted(conversation: ConversationId, task: TaskId) {
    let request = Span::current();
    request.record("conversation", display(conversation));
    request.record("task", display(task));
    tracing::info!("message accepted");
}
