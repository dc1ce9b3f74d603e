//! The channel of the front ends (HTTP, gRPC, command line), which deliver in the conversation itself: their clients follow
//! the conversation, or read it when they return.
//!
//! Owns: nothing. Survives its users: the hub and the store.

use std::sync::Arc;

use annie_core::{
    event::Scope,
    ids::{OutboxId, UserId},
    notice::is_delivered_in_conversation,
    ports::{Channel, Delivered, DeliveryError, Fut, OutboxRow, Store, TaskRow},
};

use crate::hub::Hub;

/// Delivers to the clients of a conversation.
pub(crate) struct LiveChannel {
    hub: Arc<Hub>,
    store: Arc<dyn Store>,
}

impl LiveChannel {
    pub fn new(hub: Arc<Hub>, store: Arc<dyn Store>) -> Self {
        Self { hub, store }
    }

    async fn received(&self, text: &OutboxRow) -> Result<Delivered, DeliveryError> {
        let is_following = self.hub.is_followed_by(text.conversation, &text.user);
        if !is_delivered_in_conversation(text, is_following) {
            return Ok(Delivered::NotReachable);
        }
        if is_following || text.id == OutboxId::for_dead_letter(text.task) {
            return Ok(Delivered::Received);
        }
        let row = self.store.task(Scope::Operator, text.task).await;
        let row = row.map_err(|error| DeliveryError::Retry { after_ms: 0, why: error.to_string() })?;
        // A user who scheduled work for later does not wait for it, however urgent it is when it runs.
        let is_awaited = |row: TaskRow| row.not_before.is_none() && row.after.is_empty();
        Ok(if row.is_none_or(is_awaited) { Delivered::Received } else { Delivered::NotReachable })
    }
}

impl Channel for LiveChannel {
    fn name(&self) -> &str {
        "live"
    }

    fn check(&self, _user: &UserId, _to: &str) -> Result<(), String> {
        Err("the front ends deliver in the conversation: leave the address out".to_owned())
    }

    fn deliver<'a>(&'a self, text: &'a OutboxRow) -> Fut<'a, Result<Delivered, DeliveryError>> {
        Box::pin(self.received(text))
    }
}
