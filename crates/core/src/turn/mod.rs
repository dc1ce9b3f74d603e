//! The turn machine. A [`Conversation`] is a fold over its events ([`Conversation::apply`]); what follows from its state is
//! decided ([`Conversation::decide`]: the next event that needs nothing from outside) and what it wants from the world is
//! read off it ([`Conversation::outstanding`]: the directives that have no result yet).
//!
//! Nothing here performs anything. An Engine applies an event, decides until there is nothing left to decide, stores all of
//! it in one append, and then starts those outstanding directives that are not under way. After a crash it does the same
//! from the log: the directives come back under the same ids.

mod advice;
mod caller;
mod calls;
mod conversation;
mod dates;
mod decide;
mod directive;
mod effects;
mod fold;
mod inbox;
mod interface;
mod markup;
mod messages;
mod numbers;
mod opening;
mod output;
mod overflow;
mod provenance;
mod quotes;
mod report;
mod request;
mod resolve;
mod retried;
mod run;
mod sub;
mod truth;
mod withheld;

pub use caller::resolve_main;
pub use conversation::{Clock, Conversation, Deferral, Lane, Paused, STATE_VERSION, Turn};
pub use directive::{Directive, DirectiveId};
pub use effects::{Judged, TurnEffects};
pub use inbox::{Joined, Meant, Order, Pending};
pub use provenance::Provenance;
pub use resolve::{manual_of, resolve};
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
    /// Which task it belongs to.
    pub task: TaskId,
    /// Which agent it is about.
    pub agent: AgentId,
    /// What was decided.
    pub body: EventBody,
}

#[cfg(test)]
mod tests;
