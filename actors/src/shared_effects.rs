//! The effects of the agents of one turn, shared by those that run beside each other: equal ones happen once. The rules are
//! core's ([`TurnEffects`]); here is the lock that makes one of two agents the second, and the bell for those that wait.

use std::sync::Arc;

use annie_core::{
    event::{EventBody, ResolvedCall},
    time::Micros,
    turn::{Judged, SubTurn, Turn, TurnEffects},
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// See the module. An Engine has one for each turn whose agents run, and rebuilds it from the log.
#[derive(Clone, Default)]
pub(crate) struct SharedEffects(Arc<Shared>);

#[derive(Default)]
struct Shared {
    of_turn: Mutex<TurnEffects>,
    /// The agents that wait for a change, in the order in which they came: a `watch` channel would wake them in a random order,
    /// and a simulated run could not be repeated. One entry for each waiting agent, all gone with the next change.
    waiting: Mutex<Vec<oneshot::Sender<()>>>,
}

impl Shared {
    fn changed(&self) {
        for waits in std::mem::take(&mut *self.waiting.lock()) {
            // An agent that has ended does not hear it.
            let _ = waits.send(());
        }
    }
}

impl SharedEffects {
    /// Takes in what the log tells of a turn's agents, reports included.
    pub fn learn(&self, turn: &Turn) {
        self.0.of_turn.lock().learn(turn);
        self.0.changed();
    }

    /// Notes what an agent has stored.
    pub fn note(&self, turn: &SubTurn) {
        self.0.of_turn.lock().note(&turn.run);
        self.0.changed();
    }

    /// Has an agent take in its reply with these calls, and notes the calls in the same moment: of two agents that ask at
    /// once, one comes second. If another agent is making one of them, nothing happens, and the receiver hears when to try
    /// again. An agent that is not patient any more never waits.
    pub fn take(
        &self,
        turn: &mut SubTurn,
        (now, is_patient): (Micros, bool),
        mut calls: Vec<ResolvedCall>,
        replied: impl FnOnce(Vec<ResolvedCall>) -> EventBody,
    ) -> Result<EventBody, oneshot::Receiver<()>> {
        let mut of_turn = self.0.of_turn.lock();
        if of_turn.judge(&turn.spec.agent, &mut calls, is_patient) == Judged::Waits {
            // Still under the lock: no change is missed.
            let (waits, changed) = oneshot::channel();
            self.0.waiting.lock().push(waits);
            return Err(changed);
        }
        let body = replied(calls);
        turn.fold(now, &body);
        of_turn.note(&turn.run);
        Ok(body)
    }
}
