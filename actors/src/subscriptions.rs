//! The subscribers of the log: actors outside of the conversation that are notified of stored events. They keep the
//! order of tasks, or process rows that were stored with an event. The log writer itself wakes the Engine and notifies
//! the listeners.
//!
//! A notification may be lost if its receiver is dead. The next incarnation of the receiver begins with reading the
//! store.
//!
//! Owns: nothing. Survives its death: nothing; each incarnation of the log writer makes the list again.

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
    /// Is called when rows may have been stored without a notification. The receiver must read the store. Must not
    /// wait.
    pub reread: Box<dyn Fn() + Send + Sync>,
}

impl Subscription {
    /// An actor of the kernel. It is sent the message `stored` for each event with one of these topics, and `reread`
    /// when rows may have been stored without a notification. Its mailbox limit is ignored: if a message were refused,
    /// the next event that makes the actor read the store might come much later.
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

    /// Makes all receivers read the store, because rows may have been stored without a notification.
    pub fn reread(&self) {
        self.0.iter().for_each(|subscription| (subscription.reread)());
    }
}
