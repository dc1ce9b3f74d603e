//! Who is notified of what the log writer stored, beside the conversation itself: actors that keep or process rows which are
//! stored with an event. A message is never refused for a full mailbox, because another one may not come for long. If the
//! receiver is dead, its next incarnation reads the store first.
//!
//! Owns: nothing. Survives its death: the list, which is made again from the tree.

use std::sync::Arc;

use annie_core::{
    event::{Event, Topics},
    ids::{ConversationId, UserId},
};

use crate::observe::{Handle, Named};

/// An event that was stored.
#[derive(Clone, Copy)]
pub(crate) struct Stored<'a> {
    pub conversation: ConversationId,
    pub user: &'a UserId,
    pub event: &'a Arc<Event>,
}

/// One receiver, and the topics of the events that it is notified of.
pub(crate) struct Subscription {
    pub topics: Topics,
    /// Is called for each event with one of the topics. Must not wait.
    pub stored: Box<dyn Fn(&Stored<'_>) + Send + Sync>,
    /// Is called when rows may have been stored of which the receiver was not notified.
    pub reread: Box<dyn Fn() + Send + Sync>,
}

impl Subscription {
    /// An actor that is sent a message for each event with one of these topics, and another one when rows may have been stored
    /// of which it was not notified.
    pub fn of_actor<M: Named + Send + 'static>(
        topics: Topics,
        actor: Handle<M>,
        stored: impl Fn(&Stored<'_>) -> Option<M> + Send + Sync + 'static,
        reread: impl Fn() -> M + Send + Sync + 'static,
    ) -> Self {
        let to = actor.clone();
        Self {
            topics,
            stored: Box::new(move |event| {
                if let Some(msg) = stored(event) {
                    actor.tell(msg);
                }
            }),
            reread: Box::new(move || {
                to.tell(reread());
            }),
        }
    }
}

/// All receivers, in the order in which they are notified.
#[derive(Clone)]
pub(crate) struct Subscriptions(Arc<[Subscription]>);

impl Subscriptions {
    /// These receivers.
    pub fn new(all: Vec<Subscription>) -> Self {
        Self(all.into())
    }

    /// Notifies the receivers that an event concerns.
    pub fn stored(&self, stored: &Stored<'_>) {
        let topics = stored.event.body.topics();
        for subscription in self.0.iter().filter(|subscription| subscription.topics.intersects(topics)) {
            (subscription.stored)(stored);
        }
    }

    /// Sends a hint to all receivers, because rows may be stored of which none was notified.
    pub fn reread(&self) {
        self.0.iter().for_each(|subscription| (subscription.reread)());
    }
}
