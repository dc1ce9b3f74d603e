//! The effects of the agents of one turn, shared by agents that run at the same time, so that equal effects happen once. The
//! rules are core's ([`TurnEffects`]). This module adds the lock that orders two simultaneous agents, and the notification
//! of those that wait.

use std::sync::Arc;

use annie_core::{
    event::{EventBody, HookAnswer, ResolvedCall},
    time::Micros,
    turn::{Judged, SubTurn, Turn, TurnEffects},
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The shared effects of one turn. The Engine has one for each turn whose agents run, and rebuilds it from the log.
#[derive(Clone, Default)]
pub(crate) struct SharedEffects(Arc<Shared>);

#[derive(Default)]
struct Shared {
    of_turn: Mutex<TurnEffects>,
    /// The agents that wait for a change, in the order of their arrival. A `watch` channel would wake them in a random
    /// order, and a simulated run could not be repeated. There is one entry for each waiting agent, and the next change
    /// removes all of them.
    waiting: Mutex<Vec<oneshot::Sender<()>>>,
}

impl Shared {
    fn changed(&self) {
        for waiter in std::mem::take(&mut *self.waiting.lock()) {
            // An agent that has ended does not receive it.
            let _ = waiter.send(());
        }
    }
}

impl SharedEffects {
    /// Takes over the effects of a turn's agents from its folded state, reports included.
    pub fn learn(&self, turn: &Turn) {
        self.0.of_turn.lock().learn(turn);
        self.0.changed();
    }

    /// Notes the stored effects of an agent.
    pub fn note(&self, turn: &SubTurn) {
        self.0.of_turn.lock().note(&turn.run);
        self.0.changed();
    }

    /// Lets an agent fold its reply with these calls, and notes the calls under the same lock, so that one of two
    /// simultaneous agents comes second. If another agent is making one of the calls, nothing is folded, and the returned
    /// receiver signals when to try again. An agent that is not patient never waits.
    pub fn take(
        &self,
        turn: &mut SubTurn,
        (now, is_patient): (Micros, bool),
        mut calls: Vec<ResolvedCall>,
        replied: impl FnOnce(&SubTurn, Vec<ResolvedCall>) -> EventBody,
    ) -> Result<EventBody, oneshot::Receiver<()>> {
        let mut of_turn = self.0.of_turn.lock();
        if of_turn.judge(&turn.spec.agent, &mut calls, is_patient) == Judged::Waits {
            // Registered under the lock, so that no change is missed.
            let (waiter, changed) = oneshot::channel();
            self.0.waiting.lock().push(waiter);
            return Err(changed);
        }
        let body = replied(&*turn, calls);
        turn.fold(now, &body);
        of_turn.note(&turn.run);
        Ok(body)
    }

    /// Lets an agent fold the verdict of a hook, which may replace the arguments of a call, and notes its calls under the same
    /// lock.
    pub fn decide(
        &self,
        turn: &mut SubTurn,
        now: Micros,
        decided: impl FnOnce(&SubTurn, &TurnEffects) -> EventBody,
    ) -> EventBody {
        let mut of_turn = self.0.of_turn.lock();
        let body = decided(&*turn, &of_turn);
        turn.fold(now, &body);
        // A refusal frees its effect for other agents only once it is stored: the hook may answer differently if it is asked again.
        let is_refused = matches!(&body, EventBody::Decided { hook: Some(decision), .. }
            if matches!(decision.verdict, HookAnswer::Refuse { .. }));
        if !is_refused {
            of_turn.note(&turn.run);
        }
        body
    }
}
