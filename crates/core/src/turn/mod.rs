//! The turn state machine. A [`Conversation`] is a fold over its events ([`Conversation::apply`]).
//! [`Conversation::decide`] returns the next event that follows from the state alone. [`Conversation::outstanding`] returns
//! the directives that have no result yet.
//!
//! This module performs no effects. An Engine applies an event, calls `decide` until no decision is left, stores all these
//! events in one append, and then starts the outstanding directives that are not already running. After a crash the Engine
//! does the same from the log, and the directives get the same ids.

mod agent;
mod alternatives;
mod caller;
mod calls;
mod concern;
mod conversation;
mod cut;
mod dates;
mod directive;
mod effects;
mod failures;
mod hooked;
mod interface;
mod machine;
mod markup;
mod messages;
mod numbers;
mod opening;
mod output;
mod overflow;
mod policy;
mod provenance;
mod quotes;
mod ready;
mod rejected;
mod report;
mod request;
mod resolve;
mod retried;
mod run;
mod sub;
mod truth;
mod withheld;

pub use agent::{AgentView, Shows};
pub use calls::refused_by;
pub use concern::{
    Agents, Approval, ApprovalStep, ApprovedSkill, Carried, Clock, Compaction, CompactionWork, Control, Deferral,
    JobCommand, Joined, Lane, Meant, Paused, Pending, Recovery, Retries, Steering, Summarised, workflow_not_started,
};
pub use conversation::{Conversation, STATE_VERSION, Turn};
pub use directive::{Directive, DirectiveId};
pub use effects::{Judged, TurnEffects};
pub use provenance::Provenance;
pub use resolve::manual_of;
pub use retried::TaskEffects;
pub use run::{AgentRun, Ending, OpenCall, Phase, Reply, RunKind, RunLimits};
pub use sub::SubTurn;
pub use withheld::Withheld;

use crate::{
    event::EventBody,
    ids::{AgentId, TaskId},
};

/// An event that follows from the state alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The task that the event belongs to.
    pub task: TaskId,
    /// The agent that the event is about.
    pub agent: AgentId,
    /// The decided event.
    pub body: EventBody,
}

#[cfg(test)]
mod tests;
