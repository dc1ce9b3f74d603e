//! Fault injection through the public front end. Operators inject faults into a running kernel at its boundaries to the
//! outside. It exists only if `[chaos] enabled = true`; otherwise the kernel is assembled without any of it ([ADR
//! 0014](../../../docs/decisions/0014-faults-are-a-switch-and-not-a-build.md)).
//!
//! Core has the plan grammar of the faults ([`annie_core::faults`]). One [`Injector`] holds the list of faults. It implements
//! core's [`Faults`](annie_core::ports::Faults) for the actors. A wrapper around each port (store, models, skills, catalogue,
//! clock) queries it before and after every call. [`EffectLog`] counts effects that must happen once, in a file outside of
//! everything that faults kill.

mod clock;
mod effects;
mod injector;
mod load;
mod model;
mod skills;
mod store;

use std::{path::Path, sync::Arc};

pub use annie_core::faults::{FaultKind, FaultLine, FaultSpec, Target};
use annie_core::ports::{Catalog, Clock, Env, Model, SkillRunner, Storage};
pub use effects::{EffectLog, Effects};
pub use injector::{FAULTS_MAX, Injector, PointLine};
pub use load::{MARK, SKILL, counted};

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
    pub fn store(&self, store: Arc<dyn Storage>) -> Arc<dyn Storage> {
        Arc::new(store::ChaosStore::new(store, self.injector.clone()))
    }

    /// Adds the faults to an environment, and wraps its clock.
    #[must_use]
    pub fn env(&self, env: Env) -> Env {
        let clock = Arc::new(clock::ChaosClock::new(env.clock, self.injector.clone()));
        Env { clock, faults: Some(self.injector.clone()), ..env }
    }

    /// Wraps the runner of the skills.
    #[must_use]
    pub fn runner(&self, runner: Arc<dyn SkillRunner>) -> Arc<dyn SkillRunner> {
        Arc::new(skills::ChaosRunner::new(runner, self.injector.clone(), self.effects.clone()))
    }

    /// Wraps the catalogue, and adds the skill whose effects are counted.
    #[must_use]
    pub fn catalog(&self, catalog: Arc<dyn Catalog>) -> Arc<dyn Catalog> {
        Arc::new(skills::ChaosCatalog::new(catalog, self.injector.clone()))
    }

    /// Wraps the model of the backend with this name.
    #[must_use]
    pub fn model(&self, backend: &str, model: Arc<dyn Model>) -> Arc<dyn Model> {
        Arc::new(model::ChaosModel::new(backend, model, self.injector.clone()))
    }
}
