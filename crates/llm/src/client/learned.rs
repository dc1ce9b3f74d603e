//! State that a client has learned about its server, from calls and from the server's description of itself. The state is
//! valid as long as the server at the address and its model are the same.

use std::sync::{Arc, PoisonError, RwLock};

use annie_core::ports::ServerFacts;

use crate::{
    config::{ModelConfig, Profile},
    wire::{quirks::Quirks, refused::Refused},
};

/// A consistent copy of the learned state.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// The settings for the kind of server that was found. If the kind of server or the model changes, a new `Arc` replaces
    /// this one. By that a call notices that what it learned is about a server that is gone.
    pub config: Arc<ModelConfig>,
    pub quirks: Quirks,
    /// Callers' parameters that the server refuses.
    pub refused: Refused,
    /// Replies begin inside a thinking block, because the model's chat template opens one.
    pub begins_thinking: bool,
}

/// The facts by which servers and models are distinguished.
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

    /// Whether some field is known on both sides and differs.
    fn contradicts(&self, other: &Self) -> bool {
        fn differ<T: PartialEq>(one: Option<&T>, other: Option<&T>) -> bool {
            one.zip(other).is_some_and(|(one, other)| one != other)
        }
        differ(self.server.as_ref(), other.server.as_ref())
            || differ(self.version.as_ref(), other.version.as_ref())
            || differ(self.trained_tokens.as_ref(), other.trained_tokens.as_ref())
            || differ(self.parameters.as_ref(), other.parameters.as_ref())
    }

    /// Fills the fields that are unknown in `self` from `other`.
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
    /// The server's last description of itself; `None` before the first.
    identity: Option<Identity>,
}

/// The current learned state, shared by all calls of one client.
#[derive(Debug)]
pub(super) struct Learned(RwLock<Inner>);

impl Learned {
    pub fn new(config: &ModelConfig) -> Self {
        Self(RwLock::new(Inner { known: fresh(config.clone(), false), identity: None }))
    }

    pub fn known(&self) -> Known {
        self.0.read().unwrap_or_else(PoisonError::into_inner).known.clone()
    }

    /// Records a description by the server. If the server or the model is another than before, the state learned so far is
    /// discarded.
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
        // After the first description, real replies are better evidence than the template.
        known.begins_thinking |= opens_thinking && identity.is_none();
        *identity = Some(now.or(identity.take().unwrap_or_default()));
    }

    /// Stores what a call learned that ran with the state `by`, unless the server has been replaced meanwhile.
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
