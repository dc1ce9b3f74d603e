//! The processes that share a database. Each process registers as a node under a new incarnation and holds a lease that it
//! renews. A conversation's owner is an incarnation. All times are read from the database's clock, so that the machines'
//! clocks need not agree.
//!
//! A node is alive until it is declared dead. Only a node with an expired lease is declared dead, and this is permanent: its
//! next renewal reports it, and other nodes may claim what it owned. An incarnation that is not registered counts as dead. A
//! store with a single writing process needs none of this: no node is registered there, and no owner other than the claimer
//! is alive.

use serde::{Deserialize, Serialize};

use super::{Claim, Fut, StoreError};
use crate::{
    ids::{ConversationId, NodeId, NodeIncarnation, Seq, UserId},
    time::Micros,
};

/// A node's row in the database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow {
    /// The node.
    pub node: NodeId,
    /// The incarnation.
    pub incarnation: NodeIncarnation,
    /// Time of this incarnation's registration.
    pub started_at: Micros,
    /// Time of the last renewal of its lease.
    pub heartbeat_at: Micros,
    /// Time from which it may be declared dead.
    pub expires_at: Micros,
    /// Time at which it left or was declared dead.
    pub ended_at: Option<Micros>,
}

/// The result of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewal {
    /// Whether the incarnation still holds its lease. If not, it is permanently dead, and other nodes may own its
    /// conversations.
    pub is_held: bool,
    /// The number of registered nodes that are dead, and the time at which the last of them ended. If either has changed
    /// since the previous renewal, there may be work of a dead node to take over.
    pub ended: (u64, Option<Micros>),
}

/// The result of a claim that takes nothing from a living node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// The claimer owns it.
    Ours(Claim),
    /// Another node that is alive owns it, or the claimer itself is dead.
    Refused,
    /// The conversation does not exist.
    Unknown,
}

/// A conversation with open work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenConversation {
    /// The conversation.
    pub id: ConversationId,
    /// The owner.
    pub user: UserId,
    /// Sequence number of the last event.
    pub last: Seq,
    /// Sequence number of its newest message whose turn has not begun.
    pub waiting: Option<Seq>,
    /// The incarnation that owns it: the requester, a dead one, or `None` before the first claim.
    pub owner: Option<NodeIncarnation>,
}

/// The nodes, and their ownership of conversations.
pub trait Nodes: Send + Sync {
    /// Registers a new incarnation of a node with a lease, whose length is given in milliseconds. Earlier incarnations of
    /// the node are dead from now on. Nodes that ended long ago are deleted.
    fn register_node(
        &self,
        node: NodeId,
        incarnation: NodeIncarnation,
        lease_ms: u64,
    ) -> Fut<'_, Result<(), StoreError>>;

    /// Renews a lease, unless the incarnation is dead. With `may_end_others`, every node whose lease has expired is also
    /// declared dead, provided that the caller's own last renewal is less than half a lease ago by the store's clock. So
    /// after an outage of the store, or a step of its clock, the other nodes have time to renew their leases first.
    fn renew_node(
        &self,
        incarnation: NodeIncarnation,
        lease_ms: u64,
        may_end_others: bool,
    ) -> Fut<'_, Result<Renewal, StoreError>>;

    /// Ends a node gracefully: it is dead from now on.
    fn end_node(&self, incarnation: NodeIncarnation) -> Fut<'_, Result<(), StoreError>>;

    /// All registered nodes, ordered by id.
    fn nodes(&self) -> Fut<'_, Result<Vec<NodeRow>, StoreError>>;

    /// Takes ownership like [`super::Log::claim`], but never from another living node.
    fn claim_free(&self, conversation: ConversationId, by: NodeIncarnation) -> Fut<'_, Result<Claimed, StoreError>>;

    /// Conversations with open tasks that this incarnation owns or may claim, the oldest work first. `settled` waits until
    /// each write that this process has given up on is either stored or never will be.
    fn open_for(&self, by: NodeIncarnation, settled: bool) -> Fut<'_, Result<Vec<OpenConversation>, StoreError>>;
}
