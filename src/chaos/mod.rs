//! Fault injection through the public front end. Operators inject faults into a running kernel at its boundaries to the
//! outside. It exists only if `[chaos] enabled = true`; otherwise the kernel is assembled without any of it ([ADR
//! 0014](../../docs/decisions/0014-faults-are-a-switch-and-not-a-build.md)).
//!
//! One [`Injector`] holds the list of faults. It implements core's [`Faults`] for the actors. A wrapper around each port
//! (store, models, skills, catalogue, clock) queries it before and after every call. [`effects`] counts effects that must
//! happen once, in a file outside of everything that faults kill.

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
pub use fault::{FaultKind, FaultSpec, Target};
pub use injector::{FAULTS_MAX, FaultLine, Injector, PointLine};
pub(crate) use load::counted;
pub use load::{MARK, SKILL};

use effects::EffectLog;

/// The fault injection of a server. Cheap to clone.
#[derive(Clone)]
pub struct Chaos {
    /// The list of faults.
    pub injector: Arc<Injector>,
    /// The log of effects that must happen once.
    pub effects: Arc<EffectLog>,
}

impl Chaos {
    /// An empty list of faults, with the effect log of this data folder.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, folder: &Path) -> Self {
        tracing::warn!(
            "CHAOS IS ENABLED: an admin may inject faults into this server. Do not keep anything dear on it"
        );
        Self { injector: Arc::new(Injector::new(clock)), effects: Arc::new(EffectLog::in_folder(folder)) }
    }

    /// Wraps a store, for all its users including the built-in skills.
    #[must_use]
    pub fn store(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(store::ChaosStore::new(store, self.injector.clone()))
    }

    /// Wraps the other parts of a kernel that is about to start.
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
