//! An actor together with the actors that it started.
//!
//! Ractor also ends the children of a dead actor, but in the order of a map that is hashed differently in every run. The
//! kernel ends them first, in the order in which they were started, so that a seed of the simulation gives the same run each
//! time.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use ractor::{ActorCell, ActorId};

use super::node::IncarnationRecord;

/// The running children of an actor. Ids increase, so the child that was started first comes first.
#[derive(Clone, Default)]
pub(crate) struct Children(Arc<Mutex<BTreeMap<ActorId, IncarnationRecord>>>);

impl Children {
    pub(super) fn insert(&self, id: ActorId, child: IncarnationRecord) {
        self.0.lock().insert(id, child);
    }

    pub(super) fn remove(&self, id: ActorId) -> Option<IncarnationRecord> {
        self.0.lock().remove(&id)
    }

    /// Kills all children and everything below them.
    pub fn kill(&self) {
        for child in self.0.lock().values() {
            child.branch.kill();
        }
    }
}

/// An actor that can be killed together with everything below it.
#[derive(Clone)]
pub(crate) struct Branch {
    pub cell: ActorCell,
    pub children: Children,
}

impl Branch {
    pub fn kill(&self) {
        self.cell.kill();
        self.children.kill();
    }
}

/// Kills an actor's children when dropped: the actor's handler panicked, or was cut short because the actor was killed.
pub(super) struct KillsOnDrop(Option<Children>);

impl KillsOnDrop {
    pub fn new(children: Children) -> Self {
        Self(Some(children))
    }

    pub fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for KillsOnDrop {
    fn drop(&mut self) {
        if let Some(children) = &self.0 {
            children.kill();
        }
    }
}
