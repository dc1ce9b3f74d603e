//! Steering: messages that are added to a running turn instead of being queued behind it.

use serde::{Deserialize, Serialize};

use super::{Lane, Pending, joins::same_final};
use crate::{
    classify::spoken,
    event::{EventBody, FinalEvent},
    ids::TaskId,
    time::Micros,
    turn::{
        conversation::{Conversation, Turn},
        interface::USER_ADDS,
        truth,
    },
};

/// The answer to a steering message, once its turn is answered.
const STEERING_ANSWER: &str = "Taken up in the answer to your earlier message.";

/// The steering messages of a turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Steering {
    /// Messages that its model has not seen yet.
    pub(in crate::turn) unseen: Vec<Pending>,
    /// The tasks of the messages that its model has seen.
    pub(in crate::turn) seen: Vec<TaskId>,
    /// Of the messages in `seen`, those for which a finished answer waits for one more round, until that round's reply arrives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::turn) awaited: Vec<Pending>,
    /// The channels of the messages that are or were in `seen`, and of the paused turn that this turn continues. The channel of a
    /// message that leaves `seen` stays here, because a further channel can only restrict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::turn) channels: Vec<String>,
    /// Messages accepted from this time on may steer the turn; `None` while no message may.
    pub(in crate::turn) accepts_from: Option<Micros>,
}

impl Conversation {
    /// The turn that a message steers: the newest of its own lane, otherwise the newest of all. A private message steers no
    /// turn that may run on cloud backends. A message with its own address steers no turn whose answer goes elsewhere.
    pub(in crate::turn) fn steered_by(&self, pending: &Pending) -> Option<TaskId> {
        let Pending { inbound, accepted_at, is_suspended, .. } = pending;
        let accepts = |t: &&Turn| t.steering.accepts_from.is_some_and(|from| from <= *accepted_at);
        let fits_privacy = |t: &&Turn| !inbound.private || t.inbound.private;
        let fits_address = |t: &&Turn| inbound.reply_to.is_none() || inbound.reply_to == t.inbound.reply_to;
        let fits = |t: &&Turn| accepts(t) && fits_privacy(t) && fits_address(t);
        let fitting = || self.turns.iter().rev().filter(|t| inbound.steer && !is_suspended && fits(t));
        let own = fitting().find(|t| t.lane == Lane::of(inbound.priority));
        own.or_else(|| fitting().next()).map(|t| t.task)
    }

    /// Returns steering messages that the model has not seen to the inbox, so that suspending or deferring this turn does not
    /// suspend them.
    pub(in crate::turn) fn return_unseen_steering(&mut self, task: TaskId) {
        let turn = self.turns.iter_mut().find(|t| t.task == task);
        for unseen in turn.map(|t| std::mem::take(&mut t.steering.unseen)).unwrap_or_default() {
            self.return_to_inbox(unseen);
        }
    }
}

impl Turn {
    /// Updates whether messages may steer the turn: it must be running and have another round soon. A message that was accepted
    /// before that gets a turn of its own, even if it is received later.
    pub(in crate::turn) fn update_steerable(&mut self, at: Micros) {
        let works = !self.control.is_suspended && !self.control.is_cancelled && !self.may_wait_for_others();
        // A person may take a day to approve a call, and a message must not wait for that.
        let works = works && !self.awaits_approval();
        // The steps of a workflow do not read messages.
        let works = works && self.main.workflow.is_none();
        let accepts = works && !self.clock.hard_passed && self.main.ending().is_none();
        let deferred_until = self.deferral.until.filter(|until| *until > at);
        let from = || deferred_until.unwrap_or_else(|| self.steering.accepts_from.map_or(at, |from| from.min(at)));
        self.steering.accepts_from = accepts.then(from);
    }

    /// Whether the turn works on a task: its own, or one that steers it.
    #[must_use]
    pub fn works_on(&self, task: TaskId) -> bool {
        self.task == task || self.is_steered_by(task)
    }

    /// Whether a message steers the turn.
    pub(in crate::turn) fn is_steered_by(&self, task: TaskId) -> bool {
        self.steering.seen.contains(&task) || self.steering.unseen.iter().any(|p| p.task == task)
    }

    /// Removes a steering message that ends on its own. Text that the model has seen stays in the context.
    pub(in crate::turn) fn drop_steering(&mut self, task: TaskId) -> bool {
        let steered = self.is_steered_by(task);
        self.steering.seen.retain(|seen| *seen != task);
        self.steering.unseen.retain(|p| p.task != task);
        steered
    }

    /// Moves steering messages back to the unseen ones if the turn was answered without the round that its answer waited for,
    /// because its time was up. The model never saw these messages, so they get turns of their own.
    pub(in crate::turn) fn requeue_unseen_steering(&mut self) {
        for unseen in std::mem::take(&mut self.steering.awaited).into_iter().rev() {
            if let Some(at) = self.steering.seen.iter().position(|task| *task == unseen.task) {
                self.steering.seen.remove(at);
                let text = self.inbound.text.strip_suffix(&unseen.inbound.text).and_then(|t| t.strip_suffix("\n\n"));
                self.inbound.text = text.unwrap_or(&self.inbound.text).to_owned();
                self.steering.unseen.insert(0, unseen);
            }
        }
    }

    /// Adds the steering messages that its model has not seen to the model's context.
    pub(in crate::turn) fn deliver_steering(&mut self) {
        for Pending { task, inbound, .. } in std::mem::take(&mut self.steering.unseen) {
            // Later turns see these words with the message. A retry reads the original message from the log.
            self.inbound.text.push_str("\n\n");
            self.inbound.text.push_str(&inbound.text);
            self.main.add_user_message(&format!("{USER_ADDS}, while you work on this:]\n{}", inbound.text));
            self.main.provenance.add_user_text(&inbound.text);
            // The addition may request a change where the first message only asked a question.
            self.facts.spoken_as = self.facts.spoken_as.map(|kind| kind.max(spoken(&inbound.text)));
            self.main.is_requested |= truth::requests_change(&inbound.text);
            self.main.has_request |= truth::has_request(&inbound.text);
            self.main.only_thanks &= truth::only_thanks(&inbound.text);
            self.main.is_asked &= truth::asks_what_was(&inbound.text);
            self.main.asks_only &= spoken(&inbound.text).reads_only();
            self.steering.seen.push(task);
            if !self.steering.channels.iter().any(|channel| channel == inbound.channel()) {
                self.steering.channels.push(inbound.channel().to_owned());
            }
        }
    }
}

/// The final event of a message that steered a turn.
pub(in crate::turn) fn steering_final(end: FinalEvent<'_>) -> EventBody {
    match end {
        FinalEvent::Answered { .. } => EventBody::answered(STEERING_ANSWER),
        FinalEvent::Failed { .. } | FinalEvent::Cancelled { .. } => same_final(end),
    }
}
