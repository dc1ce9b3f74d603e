//! A backend that runs rounds.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Fut, ServerFacts};
use crate::message::{ModelError, ModelErrorKind, ModelReply, ModelRequest};

/// A piece of a reply that is still being written. Drafts are the only thing announced before it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Draft {
    /// More visible text; an empty one says that the reply has begun.
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

    /// The name of its embedding model, if it has one.
    fn embeds(&self) -> Option<&str> {
        None
    }

    /// Makes vectors: a request of OpenAI's shape without its model, and the reply as the provider gives it.
    ///
    /// # Errors
    /// A typed failure; also if it has no embedding model.
    fn embed(&self, _request: Map<String, Value>) -> Fut<'_, Result<Value, ModelError>> {
        let error = ModelError::new(ModelErrorKind::InvalidRequest, "this backend has no embedding model");
        Box::pin(std::future::ready(Err(error)))
    }

    /// Asks whether the backend is reachable, without running a round.
    ///
    /// # Errors
    /// Why it is not.
    fn check(&self) -> Fut<'_, Result<(), ModelError>>;

    /// What its server says of itself; nothing if there is no server to ask. A server that does not say something is no error.
    fn describe(&self) -> Fut<'_, Option<ServerFacts>> {
        Box::pin(std::future::ready(None))
    }
}
