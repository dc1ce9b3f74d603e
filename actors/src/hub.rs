//! Live events for streams: events that were just stored, and drafts. The channels are bounded. A stream that falls behind
//! misses nothing, because it notices the gap and reads the log (see [`crate::kernel`]).

use std::{collections::HashMap, hash::Hash, sync::Arc};

use annie_core::{
    event::{Event, Scope},
    ids::{ConversationId, TaskId, UserId},
    ports::Draft,
};
use dashmap::DashMap;
use tokio::sync::{broadcast, watch};

use crate::pulse::Pulse;

/// An item that is published to listeners.
#[derive(Debug, Clone)]
pub enum Live {
    /// An event that is stored.
    Event(Arc<Event>),
    /// Events may be stored of which the listeners were not notified: read the log.
    Unsure,
    /// A piece of a round that is still being written; the only thing announced before it is stored.
    Draft {
        /// The task of the round.
        task: TaskId,
        /// The round of its orchestrator.
        round: u32,
        /// The piece.
        draft: Draft,
    },
}

/// How many live items a slow subscriber may be behind before it has to read the log.
const BEHIND_MAX: usize = 1_024;

/// The channel of a conversation with at least one listener.
struct Topic {
    live: broadcast::Sender<Live>,
    /// The users that listen for themselves, with the number of their listeners; operators are not among them.
    users: HashMap<UserId, usize>,
}

impl Topic {
    fn new() -> Self {
        Self { live: broadcast::channel(BEHIND_MAX).0, users: HashMap::new() }
    }
}

/// The keys of a map in their own order: listeners are woken in the same order in every run of a seed.
fn sorted_keys<K: Clone + Eq + Hash + Ord, V>(map: &DashMap<K, V>) -> Vec<K> {
    let mut keys: Vec<K> = map.iter().map(|entry| entry.key().clone()).collect();
    keys.sort_unstable();
    keys
}

/// One channel per conversation with listeners, and one per user who follows notifications.
#[derive(Default)]
pub struct Hub {
    topics: DashMap<ConversationId, Topic>,
    /// Only the fact that there is something new is sent; notifications are read from the store, in its order.
    users: DashMap<UserId, watch::Sender<u64>>,
    /// The number of commits that stored something, for work that follows the log as a whole.
    commits: watch::Sender<u64>,
    /// Counts what was stored, for people who watch.
    pulse: Arc<Pulse>,
}

impl Hub {
    /// A hub that counts the tasks that end.
    #[must_use]
    pub fn counting(pulse: Arc<Pulse>) -> Self {
        Self { pulse, ..Self::default() }
    }

    /// The counts of the last hour.
    #[must_use]
    pub const fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }

    /// Sends an item to the listeners of a conversation; costs next to nothing without listeners.
    pub fn publish(&self, conversation: ConversationId, live: Live) {
        let is_abandoned = match self.topics.get(&conversation) {
            Some(topic) => topic.live.send(live).is_err(),
            None => false,
        };
        if is_abandoned {
            self.topics.remove_if(&conversation, |_, topic| topic.live.receiver_count() == 0);
        }
    }

    /// Whether a conversation has listeners.
    #[must_use]
    pub fn has_listeners(&self, conversation: ConversationId) -> bool {
        self.topics.contains_key(&conversation)
    }

    /// The log writer may have died before it notified the listeners: all of them must read the log.
    pub fn unsure(&self) {
        self.unsure_of(|_| true);
    }

    /// Events may be stored in these conversations of which no listener here was notified: their listeners must read the
    /// log.
    pub fn unsure_of(&self, is_affected: impl Fn(ConversationId) -> bool) {
        for conversation in sorted_keys(&self.topics).into_iter().filter(|conversation| is_affected(*conversation)) {
            self.publish(conversation, Live::Unsure);
        }
    }

    /// Whether this user listens to a conversation. Operators do not count.
    #[must_use]
    pub fn is_followed_by(&self, conversation: ConversationId, user: &UserId) -> bool {
        self.topics.get(&conversation).is_some_and(|topic| topic.users.contains_key(user))
    }

    /// Starts to listen: as a user for themselves, or as an operator. Every call must be followed by [`Hub::leave`].
    #[must_use]
    pub fn subscribe(&self, conversation: ConversationId, scope: &Scope) -> broadcast::Receiver<Live> {
        let mut topic = self.topics.entry(conversation).or_insert_with(Topic::new);
        if let Scope::User(user) = scope {
            *topic.users.entry(user.clone()).or_default() += 1;
        }
        topic.live.subscribe()
    }

    /// Ends a subscription whose receiver has been dropped. A conversation without listeners is removed.
    pub fn leave(&self, conversation: ConversationId, scope: &Scope) {
        if let Scope::User(user) = scope
            && let Some(mut topic) = self.topics.get_mut(&conversation)
            && let Some(count) = topic.users.get_mut(user)
        {
            *count -= 1;
            if *count == 0 {
                topic.users.remove(user);
            }
        }
        self.topics.remove_if(&conversation, |_, topic| topic.live.receiver_count() == 0);
    }

    /// Counts a commit that stored something, or may have.
    pub fn note_commit(&self) {
        self.commits.send_modify(|commits| *commits += 1);
    }

    /// Receives the number of commits. Commits before this call count as seen.
    #[must_use]
    pub fn listen_for_commits(&self) -> watch::Receiver<u64> {
        self.commits.subscribe()
    }

    /// Notifies the followers of a user that there is a new notification.
    pub fn announce_notice(&self, user: &UserId) {
        if let Some(topic) = self.users.get(user) {
            topic.send_modify(|changes| *changes += 1);
        }
    }

    /// Notifications may be stored of which the followers were not notified: all of them must read the store.
    pub fn unsure_of_notices(&self) {
        for user in sorted_keys(&self.users) {
            self.announce_notice(&user);
        }
    }

    /// Starts to listen for a user's notifications.
    #[must_use]
    pub fn listen_for_notices(&self, user: &UserId) -> watch::Receiver<u64> {
        self.users.entry(user.clone()).or_insert_with(|| watch::channel(0).0).subscribe()
    }

    /// Removes a user without followers.
    pub fn sweep_user(&self, user: &UserId) {
        self.users.remove_if(user, |_, topic| topic.receiver_count() == 0);
    }
}
