//! What a client has learned about its server from calls and from what the server says of itself. It counts as long as the
//! server at the address is the same and runs the same model.

use std::sync::{Arc, PoisonError, RwLock};

use annie_core::ports::ServerFacts;

use crate::{
    config::{ModelConfig, Profile},
    wire::{quirks::Quirks, refused::Refused},
};

/// All that is known at one moment.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// The settings for the kind of server that it was found to be. Another kind, or another model, makes new ones, by
    /// which a call sees that what it learned is about a server that is gone.
    pub config: Arc<ModelConfig>,
    pub quirks: Quirks,
    /// Parameters of callers that are refused.
    pub refused: Refused,
    /// Replies begin inside thinking: the model's template opens it.
    pub begins_thinking: bool,
}

/// What tells servers and models apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Identity {
    server: Option<String>,
    version: Option<String>,
    trained_tokens: Option<u32>,
    parameters: Option<u64>,
}

impl Identity {
    fn of(facts: &ServerFacts) -> Self {
        Self {
            server: facts.server.clone(),
            version: facts.version.clone(),
            trained_tokens: facts.trained_tokens_max,
            parameters: facts.parameters,
        }
    }

    /// Whether both say something, and not the same.
    fn contradicts(&self, other: &Self) -> bool {
        fn differ<T: PartialEq>(one: Option<&T>, other: Option<&T>) -> bool {
            one.zip(other).is_some_and(|(one, other)| one != other)
        }
        differ(self.server.as_ref(), other.server.as_ref())
            || differ(self.version.as_ref(), other.version.as_ref())
            || differ(self.trained_tokens.as_ref(), other.trained_tokens.as_ref())
            || differ(self.parameters.as_ref(), other.parameters.as_ref())
    }

    /// What this does not say stays as the other said it.
    fn or(self, other: Self) -> Self {
        Self {
            server: self.server.or(other.server),
            version: self.version.or(other.version),
            trained_tokens: self.trained_tokens.or(other.trained_tokens),
            parameters: self.parameters.or(other.parameters),
        }
    }
}

#[derive(Debug)]
struct Inner {
    known: Known,
    /// What the server said of itself, once it did.
    identity: Option<Identity>,
}

/// The present knowledge.
#[derive(Debug)]
pub(super) struct Learned(RwLock<Inner>);

impl Learned {
    pub fn new(config: &ModelConfig) -> Self {
        Self(RwLock::new(Inner { known: fresh(config.clone(), false), identity: None }))
    }

    pub fn known(&self) -> Known {
        self.0.read().unwrap_or_else(PoisonError::into_inner).known.clone()
    }

    /// The server described itself: what was learned from another server or about another model is forgotten.
    pub fn described(&self, profile: Profile, facts: &ServerFacts, opens_thinking: bool) {
        let mut inner = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Inner { known, identity } = &mut *inner;
        let now = Identity::of(facts);
        let is_other = identity.as_ref().is_some_and(|before| now.contradicts(before));
        if is_other || profile != known.config.profile {
            *known = fresh(ModelConfig { profile, ..(*known.config).clone() }, opens_thinking);
            *identity = Some(now);
            return;
        }
        // Replies that came since the first description know better than the template.
        known.begins_thinking |= opens_thinking && identity.is_none();
        *identity = Some(now.or(identity.take().unwrap_or_default()));
    }

    /// Keeps what a call with this knowledge learned, unless the server has been exchanged meanwhile.
    pub fn keep(&self, by: &Known, learn: impl FnOnce(&mut Known)) {
        let mut inner = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&inner.known.config, &by.config) {
            learn(&mut inner.known);
        }
    }
}

fn fresh(config: ModelConfig, begins_thinking: bool) -> Known {
    Known { config: Arc::new(config), quirks: Quirks::default(), refused: Refused::default(), begins_thinking }
}
