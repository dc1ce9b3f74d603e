//! The nodes that share the data. Their times come from tokio's clock, which a paused runtime pauses too: all kernels of a test
//! see the same times, whatever their own clocks show.

use std::collections::BTreeMap;

use annie_core::{
    ids::{ConversationId, NodeId, NodeIncarnation, Seq, TaskId},
    ports::{Claim, Claimed, Fut, NodeRow, Nodes, OpenConversation, Renewal, StoreError},
    time::Micros,
};
use tokio::time::Instant;

use super::{
    MemoryStore, StorePoint,
    data::{Conversation, Data},
};

/// The database's clock: the time since the store was created.
pub(super) struct DatabaseClock(Instant);

impl Default for DatabaseClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl DatabaseClock {
    fn now(&self) -> Micros {
        Micros(i64::try_from(self.0.elapsed().as_micros()).unwrap_or(i64::MAX))
    }
}

impl Data {
    fn node_mut(&mut self, incarnation: NodeIncarnation) -> Option<&mut NodeRow> {
        self.nodes.values_mut().find(|row| row.incarnation == incarnation)
    }

    /// Whether an incarnation is registered and has not ended.
    fn is_live(&self, incarnation: NodeIncarnation) -> bool {
        self.nodes.values().any(|row| row.incarnation == incarnation && row.ended_at.is_none())
    }

    fn may_be_claimed(&self, conversation: &Conversation, by: NodeIncarnation) -> bool {
        conversation.owner.is_none_or(|owner| owner == by || !self.is_live(owner))
    }
}

impl Nodes for MemoryStore {
    fn register_node(
        &self,
        node: NodeId,
        incarnation: NodeIncarnation,
        lease_ms: u64,
    ) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(self.write("register_node", move |data| {
            let now = data.clock.now();
            let expires_at = now.later_ms(lease_ms);
            let row = NodeRow { node, incarnation, started_at: now, heartbeat_at: now, expires_at, ended_at: None };
            data.nodes.insert(node, row);
        }))
    }

    fn renew_node(
        &self,
        incarnation: NodeIncarnation,
        lease_ms: u64,
        may_end_others: bool,
    ) -> Fut<'_, Result<Renewal, StoreError>> {
        Box::pin(self.write("renew_node", move |data| {
            let now = data.clock.now();
            let held = data.node_mut(incarnation).filter(|row| row.ended_at.is_none());
            let (is_held, mut is_steady) = (held.is_some(), false);
            if let Some(row) = held {
                is_steady = now.since_ms(row.heartbeat_at) < lease_ms / 2;
                (row.heartbeat_at, row.expires_at) = (now, now.later_ms(lease_ms));
            }
            if is_steady && may_end_others {
                let has_expired = |row: &&mut NodeRow| row.ended_at.is_none() && row.expires_at <= now;
                data.nodes.values_mut().filter(has_expired).for_each(|row| row.ended_at = Some(now));
            }
            let ended: Vec<Micros> = data.nodes.values().filter_map(|row| row.ended_at).collect();
            Renewal { is_held, ended: (ended.len() as u64, ended.into_iter().max()) }
        }))
    }

    fn end_node(&self, incarnation: NodeIncarnation) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(self.write("end_node", move |data| {
            let now = data.clock.now();
            if let Some(row) = data.node_mut(incarnation) {
                row.ended_at.get_or_insert(now);
            }
        }))
    }

    fn nodes(&self) -> Fut<'_, Result<Vec<NodeRow>, StoreError>> {
        Box::pin(self.read("nodes", |data| data.nodes.values().cloned().collect()))
    }

    fn claim_free(&self, conversation: ConversationId, by: NodeIncarnation) -> Fut<'_, Result<Claimed, StoreError>> {
        Box::pin(self.at(StorePoint::Claim(conversation), move |data| {
            let Some(c) = data.conversations.get(&conversation) else { return Claimed::Unknown };
            let is_dead = data.nodes.values().any(|row| row.incarnation == by && row.ended_at.is_some());
            if is_dead || !data.may_be_claimed(c, by) {
                return Claimed::Refused;
            }
            let Some(c) = data.conversations.get_mut(&conversation) else { return Claimed::Unknown };
            c.owner = Some(by);
            c.epoch.0 += 1;
            Claimed::Ours(Claim { epoch: c.epoch, last: c.last() })
        }))
    }

    fn open_for(&self, by: NodeIncarnation, _settled: bool) -> Fut<'_, Result<Vec<OpenConversation>, StoreError>> {
        Box::pin(self.read("open_for", move |data| {
            let is_waiting = |task: &TaskId| {
                data.tasks.get(task).is_some_and(|row| !row.state.is_ended() && row.started_at.is_none())
            };
            let mut waiting: BTreeMap<ConversationId, Seq> = BTreeMap::new();
            for message in data.messages.values().filter(|message| is_waiting(&message.task)) {
                let newest = waiting.entry(message.conversation).or_default();
                *newest = (*newest).max(message.seq);
            }
            let open = data.open().into_iter().filter_map(|(id, user)| {
                let c = data.conversations.get(&id).filter(|c| data.may_be_claimed(c, by))?;
                let waiting = waiting.get(&id).copied();
                Some(OpenConversation { id, user, last: c.last(), waiting, owner: c.owner })
            });
            open.collect()
        }))
    }
}
