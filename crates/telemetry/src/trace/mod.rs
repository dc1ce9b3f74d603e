//! The fold of a task's events into the spans of its trace.
//!
//! The spans of a task: its message (from the acceptance to the final event), below it the wait in the queue and the agent that
//! answers, below the agent its rounds, its runs of skills and its sub-agents, and so on. The page folds the same events into its
//! waterfall (`web/lib/story.js`).

mod agent;
mod content;
mod fold;
mod marks;

use std::collections::BTreeMap;

use annie_core::{
    event::{Event, EventBody},
    ids::TaskId,
};

use crate::span::Span;

/// What traces call a backend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackendNames {
    /// The provider, in the words of the semantic conventions.
    pub provider: String,
    /// The model that requests name.
    pub model: String,
}

/// What traces contain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceRules {
    /// The backends, by name.
    pub backends: BTreeMap<String, BackendNames>,
    /// Whether spans contain texts of users, models and skills. Those of local-only tasks never do.
    pub content: bool,
}

/// The spans of a task, that of its message first. `events` are those of its conversation from the task's message to its final
/// event; events of other tasks are ignored. Empty if the caller of the task does not record its trace.
#[must_use]
pub fn spans_of(task: TaskId, events: &[Event], rules: &TraceRules) -> Vec<Span> {
    let mut own = events.iter().filter(|event| event.task == task);
    let Some(first) = own.clone().next() else { return Vec::new() };
    let message =
        own.clone().find_map(|event| if let EventBody::Received(inbound) = &event.body { Some(inbound) } else { None });
    let parent = message.and_then(|message| message.traceparent);
    if parent.is_some_and(|parent| !parent.is_sampled) {
        return Vec::new();
    }
    let rules = TraceRules { content: rules.content && message.is_some_and(|m| !m.private), ..rules.clone() };
    let mut fold = fold::Fold::new(task, first.at, parent, &rules);
    own.by_ref().for_each(|event| fold.see(event));
    fold.finish()
}

#[cfg(test)]
mod tests;
