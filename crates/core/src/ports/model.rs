//! A backend that runs rounds.

use std::sync::Arc;

use super::Fut;
use crate::message::{ModelError, ModelReply, ModelRequest};

/// A piece of a reply that is still being written. Drafts are the only thing announced before it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Draft {
    /// More visible text.
    Text(String),
    /// More reasoning, where a provider shows it.
    Reasoning(String),
}

/// Where drafts go. It never blocks and may drop: the reply has the whole text.
pub type DraftSink = Arc<dyn Fn(Draft) + Send + Sync>;

/// One model backend. Dropping the future cancels the call.
pub trait Model: Send + Sync {
    /// The configured name of the model, for events and `/v1/models`.
    fn id(&self) -> &str;

    /// What it is, said plainly where users look: `a language model`, or that it is only a planner.
    fn about(&self) -> String;

    /// Runs one round.
    ///
    /// # Errors
    /// A typed failure; retries where they are safe have been made.
    fn call<'a>(&'a self, request: &'a ModelRequest, drafts: DraftSink) -> Fut<'a, Result<ModelReply, ModelError>>;

    /// Asks whether the backend is reachable, without running a round.
    ///
    /// # Errors
    /// Why it is not.
    fn check(&self) -> Fut<'_, Result<(), ModelError>>;
}
