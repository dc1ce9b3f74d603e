//! A conversation that this node has opened: the events of the append that created it and made this node its owner. With them
//! its first Engine needs no claim and reads nothing.
//!
//! Owns: the events, until one Engine has taken them. Survives its users: nothing; without it an Engine claims the conversation
//! and reads the log.

use std::sync::Arc;

use annie_core::{event::Event, ids::NodeIncarnation};
use parking_lot::Mutex;

/// The opening of a conversation. All copies of it can be taken once together: a second Engine with the same epoch would not be
/// fenced by the first.
#[derive(Clone)]
pub(crate) struct Opening(Arc<Mutex<Option<Opened>>>);

/// What an opening holds.
struct Opened {
    by: NodeIncarnation,
    events: Vec<Arc<Event>>,
}

impl Opening {
    /// These events, from the first one on, were stored by the append with which this node opened the conversation.
    pub fn new(by: NodeIncarnation, events: Vec<Arc<Event>>) -> Self {
        Self(Arc::new(Mutex::new(Some(Opened { by, events }))))
    }

    /// The events; `None` if they were taken before, or if `now` is no longer the incarnation that opened the conversation.
    pub fn take(&self, now: NodeIncarnation) -> Option<Vec<Arc<Event>>> {
        self.0.lock().take().filter(|opened| opened.by == now).map(|opened| opened.events)
    }
}

#[cfg(test)]
mod tests {
    use annie_testkit::env::env;

    use super::*;

    #[test]
    fn opening_is_taken_once_and_only_by_the_incarnation_that_opened() {
        let env = env(1);
        let (one, two) = (NodeIncarnation::from_uuid(env.uuid()), NodeIncarnation::from_uuid(env.uuid()));
        let opening = Opening::new(one, Vec::new());
        let repeated = opening.clone();
        assert!(opening.take(one).is_some());
        assert!(repeated.take(one).is_none(), "it was taken");
        assert!(Opening::new(one, Vec::new()).take(two).is_none(), "the lease was lost meanwhile");
    }
}
