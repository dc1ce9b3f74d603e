//! Fault injection through the front door: what an operator asks for strikes the parts of a running kernel, at the places where
//! the world strikes them. Built only if `[chaos] enabled = true`; otherwise nothing of it is there, and the kernel is made of
//! its own parts ([ADR 0014](../../docs/decisions/0014-faults-are-a-switch-and-not-a-build.md)).
//!
//! One [`Injector`] holds the list of faults. It is core's [`Faults`] for the actors, and a wrapper around each port (store,
//! models, skills, catalogue, clock) asks it before and after every call. [`effects`] counts what is done once, in a file
//! outside of everything that is being killed.

mod clock;
pub(crate) mod effects;
mod fault;
mod injector;
mod load;
mod model;
mod skills;
mod store;
#[cfg(test)]
mod tests;

use std::{path::Path, sync::Arc};

use annie_actors::Parts;
use annie_core::ports::{Clock, Store};
pub use fault::{Deed, FaultSpec, Target};
pub use injector::{FAULTS_MAX, FaultLine, Injector, PointLine};
pub(crate) use load::counted;
pub use load::{MARK, SKILL};

use effects::EffectLog;

/// Chaos as a server holds it. Cheap to clone.
#[derive(Clone)]
pub struct Chaos {
    /// The faults.
    pub injector: Arc<Injector>,
    /// What was done once.
    pub effects: Arc<EffectLog>,
}

impl Chaos {
    /// An empty list of faults, and what was done once in this data folder.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, folder: &Path) -> Self {
        tracing::warn!(
            "CHAOS IS ENABLED: an admin may inject faults into this server. Do not keep anything dear on it"
        );
        Self { injector: Arc::new(Injector::new(clock)), effects: Arc::new(EffectLog::in_folder(folder)) }
    }

    /// A store behind its faults: for everything that uses it, the built-in skills too.
    #[must_use]
    pub fn store(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(store::ChaosStore::new(store, self.injector.clone()))
    }

    /// Puts itself around the other parts of a kernel that is about to start.
    pub fn around(&self, parts: &mut Parts) {
        let (injector, effects) = (&self.injector, &self.effects);
        parts.env.clock = Arc::new(clock::ChaosClock::new(parts.env.clock.clone(), injector.clone()));
        parts.env.faults = Some(injector.clone());
        parts.runner = Arc::new(skills::ChaosRunner::new(parts.runner.clone(), injector.clone(), effects.clone()));
        parts.catalog = Arc::new(skills::ChaosCatalog::new(parts.catalog.clone(), injector.clone()));
        for backend in &mut parts.backends {
            backend.model = Arc::new(model::ChaosModel::new(&backend.name, backend.model.clone(), injector.clone()));
        }
    }
}
