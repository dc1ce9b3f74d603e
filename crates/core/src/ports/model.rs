//! Model backends, which run rounds.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Fut, ServerFacts};
use crate::message::{ModelError, ModelErrorKind, ModelReply, ModelRequest};

/// A piece of a reply that is still being generated. Drafts are the only data announced before it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Draft {
    /// More visible text. An empty text means that the reply has begun.
    Text(String),
    /// More reasoning, if the provider exposes it.
    Reasoning(String),
}

/// Receiver of drafts. It never blocks and may drop drafts, because the reply contains the whole text.
pub type DraftSink = Arc<dyn Fn(Draft) + Send + Sync>;

/// One model backend. Dropping the future cancels the call.
pub trait Model: Send + Sync {
    /// The configured name of the model, for events and `/v1/models`.
    fn id(&self) -> &str;

    /// A description for users: `a language model`, or a statement that it is only a planner.
    fn about(&self) -> String;

    /// Runs one round.
    ///
    /// # Errors
    /// A typed error. The adapter has already made the retries that are safe.
    fn call<'a>(&'a self, request: &'a ModelRequest, drafts: DraftSink) -> Fut<'a, Result<ModelReply, ModelError>>;

    /// Whether it can write the summary of a text. A planner cannot.
    fn summarises(&self) -> bool {
        true
    }

    /// The name of its embedding model, if it has one.
    fn embeds(&self) -> Option<&str> {
        None
    }

    /// Computes embeddings. Takes a request in OpenAI's format without the model, and returns the provider's reply.
    ///
    /// # Errors
    /// A typed error, also if there is no embedding model.
    fn embed(&self, _request: Map<String, Value>) -> Fut<'_, Result<Value, ModelError>> {
        let error = ModelError::new(ModelErrorKind::InvalidRequest, "this backend has no embedding model");
        Box::pin(std::future::ready(Err(error)))
    }

    /// Checks whether the backend is reachable, without running a round.
    ///
    /// # Errors
    /// The reason why it is unreachable.
    fn check(&self) -> Fut<'_, Result<(), ModelError>>;

    /// The server's description of itself; `None` if there is no server. A missing fact is not an error.
    fn describe(&self) -> Fut<'_, Option<ServerFacts>> {
        Box::pin(std::future::ready(None))
    }
}
