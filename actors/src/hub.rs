//! Live events for streams: what was just stored, and drafts. Bounded: who falls behind misses nothing, because a stream
//! notices the gap and reads the log (see [`crate::kernel`]).

use std::{collections::HashMap, hash::Hash, sync::Arc};

use annie_core::{
    event::{Event, Scope},
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

/// A conversation that somebody listens to.
struct Topic {
    live: broadcast::Sender<Live>,
    /// Which users listen for themselves, and how often; operators who look on are not among them.
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

/// One channel per conversation that somebody listens to, and one per user who wants to be notified.
#[derive(Default)]
pub struct Hub {
    topics: DashMap<ConversationId, Topic>,
    /// What travels is only that there is something new: it is read from the store, in its order.
    users: DashMap<UserId, watch::Sender<u64>>,
    /// Commits that stored something, for work that follows the log as a whole.
    commits: watch::Sender<u64>,
}

impl Hub {
    /// Tells those who listen; costs next to nothing if nobody does.
    pub fn publish(&self, conversation: ConversationId, live: Live) {
        let deserted = match self.topics.get(&conversation) {
            Some(topic) => topic.live.send(live).is_err(),
            None => false,
        };
        if deserted {
            self.topics.remove_if(&conversation, |_, topic| topic.live.receiver_count() == 0);
        }
    }

    /// Whether anybody listens.
    #[must_use]
    pub fn has_listeners(&self, conversation: ConversationId) -> bool {
        self.topics.contains_key(&conversation)
    }

    /// Whoever was to tell died in between: everybody reads the log.
    pub fn unsure(&self) {
        self.unsure_of(|_| true);
    }

    /// Something may be stored in these that nobody here was told of: who listens reads the log.
    pub fn unsure_of(&self, is_meant: impl Fn(ConversationId) -> bool) {
        for conversation in sorted_keys(&self.topics).into_iter().filter(|conversation| is_meant(*conversation)) {
            self.publish(conversation, Live::Unsure);
        }
    }

    /// Whether this user listens: not whoever looks on as an operator.
    #[must_use]
    pub fn is_heard_by(&self, conversation: ConversationId, user: &UserId) -> bool {
        self.topics.get(&conversation).is_some_and(|topic| topic.users.contains_key(user))
    }

    /// Listens from now on: as a user for themselves, or as an operator. [`Hub::leave`] goes with it.
    #[must_use]
    pub fn subscribe(&self, conversation: ConversationId, scope: &Scope) -> broadcast::Receiver<Live> {
        let mut topic = self.topics.entry(conversation).or_insert_with(Topic::new);
        if let Scope::User(user) = scope {
            *topic.users.entry(user.clone()).or_default() += 1;
        }
        topic.live.subscribe()
    }

    /// Whoever listened has dropped its receiver; a conversation that nobody listens to any more is forgotten.
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

    /// Receives the number of commits; those before this call count as seen.
    #[must_use]
    pub fn listen_for_commits(&self) -> watch::Receiver<u64> {
        self.commits.subscribe()
    }

    /// Tells whoever listens for a user that there is a new notification.
    pub fn announce_notice(&self, user: &UserId) {
        if let Some(topic) = self.users.get(user) {
            topic.send_modify(|changes| *changes += 1);
        }
    }

    /// There may be notifications that nobody was told of: everybody looks.
    pub fn unsure_of_notices(&self) {
        for user in sorted_keys(&self.users) {
            self.announce_notice(&user);
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
