//! Replay: the fold of a stored log, event by event, for people and for checks. A replay shows the state at any event, compares two
//! states, takes the decisions of the core again and compares them with the stored ones, and makes what a copy of a conversation
//! begins with. It has no effects: directives are listed and never carried out.

mod check;
mod copy;
mod diff;
mod redact;
mod state;

pub use check::{Check, Divergence, DivergenceKind};
pub use copy::{EXCHANGES_MAX, history_of, summary_of};
pub use diff::{DIFFERENCES_MAX, Difference, differences};
pub use redact::redacted;
pub(crate) use redact::replace_texts;
pub use state::{AgentState, CallState, ReplayState, RunState, TurnState, WaitingState};

use std::borrow::Cow;

use crate::{
    event::{Event, EventBody},
    ids::{ConversationId, Seq, TaskId, UserId},
    turn::Conversation,
};

/// How often a copied event may itself contain a copied event. Each import of an exported import adds one.
const NESTED_MAX: usize = 8;

/// A replay of one conversation. It folds the events as they were stored. In an imported conversation it folds the events of the
/// original, until the event that begins the copy.
#[derive(Debug, Clone)]
pub struct Replay {
    state: Conversation,
    check: Check,
    last: Option<Event>,
    /// The rounds of main agents that run on an agentic backend, as the Engine knows them.
    acting: Vec<(TaskId, u32)>,
}

impl Replay {
    /// A replay from the first event on.
    #[must_use]
    pub fn new(id: ConversationId, user: UserId) -> Self {
        Self { state: Conversation::new(id, user), check: Check::default(), last: None, acting: Vec::new() }
    }

    /// Folds the next event of the log, and compares it with what the core decides.
    pub fn see(&mut self, event: &Event) {
        let unwrapped = original(event);
        let event = unwrapped.as_ref().unwrap_or(event);
        if matches!(event.body, EventBody::Copied(_)) {
            // The copy begins: what was before is the state of the original.
            self.state = Conversation::new(self.state.id, self.state.user.clone());
        }
        if matches!(event.body, EventBody::Resumed { .. }) {
            // A new incarnation knows of the round only what the log says.
            self.acting.retain(|(task, _)| *task != event.task);
        }
        self.check.see(&as_the_engine_knows(&self.state, &self.acting), event);
        self.state.apply(event);
        let is_over = event.body.round_end().is_some() || event.body.is_final();
        if !event.agent.is_orchestrator() {
            // A sub-agent's own actor knows of its rounds.
        } else if let EventBody::RoundBegan { round, .. } = &event.body {
            self.acting.push((event.task, *round));
        } else if is_over || matches!(event.body, EventBody::RoundNotBegun { .. }) {
            self.acting.retain(|(task, _)| *task != event.task);
        }
        self.last = Some(event.clone());
    }

    /// The folded state.
    #[must_use]
    pub const fn state(&self) -> &Conversation {
        &self.state
    }

    /// The last event that was folded.
    #[must_use]
    pub const fn last(&self) -> Option<&Event> {
        self.last.as_ref()
    }

    /// The sequence number of the last event that was folded.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.last.as_ref().map_or(Seq(0), |event| event.seq)
    }

    /// The result of the comparison so far.
    #[must_use]
    pub fn so_far(self) -> Check {
        self.check
    }

    /// The result of the comparison. Nothing is reported about decisions that the Engine still has to store, because messages of
    /// front ends may be newer than its last append.
    #[must_use]
    pub fn finish(self) -> Check {
        let Self { state, mut check, last, acting } = self;
        check.end(&as_the_engine_knows(&state, &acting), last.as_ref());
        check
    }
}

/// The state as the Engine has it while rounds of it run on agentic backends.
fn as_the_engine_knows<'a>(state: &'a Conversation, acting: &[(TaskId, u32)]) -> Cow<'a, Conversation> {
    if acting.is_empty() {
        return Cow::Borrowed(state);
    }
    let mut state = state.clone();
    acting.iter().for_each(|(task, round)| state.round_is_under_way(*task, *round));
    Cow::Owned(state)
}

/// The event that a copied event contains; nothing for other events.
fn original(event: &Event) -> Option<Event> {
    let mut found: Option<Event> = None;
    for _ in 0..NESTED_MAX {
        let EventBody::Copied(copied) = found.as_ref().map_or(&event.body, |event| &event.body) else { break };
        let Some(inner) = &copied.event else { break };
        let Ok(inner) = serde_json::from_value::<Event>(inner.clone()) else { break };
        found = Some(Event { seq: event.seq, conversation: event.conversation, ..inner });
    }
    found
}

#[cfg(test)]
mod tests;
