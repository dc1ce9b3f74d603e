//! Live events for streams: what was just stored, and drafts. Bounded: who falls behind misses nothing, because a stream
//! notices the gap and reads the log (see [`crate::kernel`]).

use std::sync::Arc;

use annie_core::{
    event::Event,
    ids::{ConversationId, TaskId, UserId},
    ports::Draft,
};
use dashmap::DashMap;
use tokio::sync::{broadcast, watch};

/// Something live.
#[derive(Debug, Clone)]
pub enum Live {
    /// An event that is stored.
    Event(Arc<Event>),
    /// Something may be stored that nobody was told of: read the log.
    Unsure,
    /// A piece of a round that is still being written; the only thing announced before it is stored.
    Draft {
        /// Of which task.
        task: TaskId,
        /// Of which round of its main agent.
        round: u32,
        /// The piece.
        draft: Draft,
    },
}

/// Live items that a slow subscriber may be behind before it has to read the log.
const BEHIND_MAX: usize = 1_024;

/// One channel per conversation that somebody listens to, and one per user who wants to be notified.
#[derive(Default)]
pub struct Hub {
    topics: DashMap<ConversationId, broadcast::Sender<Live>>,
    /// What travels is only that there is something new: it is read from the store, in its order.
    users: DashMap<UserId, watch::Sender<u64>>,
}

impl Hub {
    /// Tells those who listen; costs next to nothing if nobody does.
    pub fn publish(&self, conversation: ConversationId, live: Live) {
        let deserted = match self.topics.get(&conversation) {
            Some(topic) => topic.send(live).is_err(),
            None => false,
        };
        if deserted {
            self.topics.remove_if(&conversation, |_, topic| topic.receiver_count() == 0);
        }
    }

    /// Whether anybody listens.
    #[must_use]
    pub fn has_listeners(&self, conversation: ConversationId) -> bool {
        self.topics.contains_key(&conversation)
    }

    /// Whoever was to tell died in between: everybody reads the log.
    pub fn unsure(&self) {
        for topic in &self.topics {
            // Nobody may listen any more.
            let _ = topic.send(Live::Unsure);
        }
    }

    /// Listens from now on.
    #[must_use]
    pub fn subscribe(&self, conversation: ConversationId) -> broadcast::Receiver<Live> {
        self.topics.entry(conversation).or_insert_with(|| broadcast::channel(BEHIND_MAX).0).subscribe()
    }

    /// Forgets a conversation that nobody listens to any more.
    pub fn sweep(&self, conversation: ConversationId) {
        self.topics.remove_if(&conversation, |_, topic| topic.receiver_count() == 0);
    }

    /// Tells whoever listens for a user that there is a new notification.
    pub fn announce_notice(&self, user: &UserId) {
        if let Some(topic) = self.users.get(user) {
            topic.send_modify(|changes| *changes += 1);
        }
    }

    /// There may be notifications that nobody was told of: everybody looks.
    pub fn unsure_of_notices(&self) {
        for topic in &self.users {
            topic.send_modify(|changes| *changes += 1);
        }
    }

    /// Listens for a user's notifications from now on.
    #[must_use]
    pub fn listen_for_notices(&self, user: &UserId) -> watch::Receiver<u64> {
        self.users.entry(user.clone()).or_insert_with(|| watch::channel(0).0).subscribe()
    }

    /// Forgets a user for whom nobody listens any more.
    pub fn sweep_user(&self, user: &UserId) {
        self.users.remove_if(user, |_, topic| topic.receiver_count() == 0);
    }
}
