//! The processes that share a database. Each registers as a node under a new incarnation and holds a lease that it renews; a
//! conversation's owner is an incarnation. All times are the database's clock, so that machines need not agree.
//!
//! A node lives until it is declared dead, which happens to one whose lease has expired, and then for good: its renewal says
//! so, and what it owned may be claimed. An incarnation that is not registered is dead: others may take what it owns. A store that only one process writes
//! needs none of this: no node is registered there, and no owner but the claimer lives.

use serde::{Deserialize, Serialize};

use super::{Claim, Fut, StoreError};
use crate::{
    ids::{ConversationId, NodeId, NodeIncarnation, Seq, UserId},
    time::Micros,
};

/// A node as the database knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow {
    /// Which.
    pub node: NodeId,
    /// Which run of it.
    pub incarnation: NodeIncarnation,
    /// When this incarnation was registered.
    pub started_at: Micros,
    /// When its lease was last renewed.
    pub heartbeat_at: Micros,
    /// From then on it may be declared dead.
    pub expires_at: Micros,
    /// When it left, or was declared dead.
    pub ended_at: Option<Micros>,
}

/// What a renewal found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewal {
    /// Whether the incarnation still holds its lease. If not it is dead for good: whatever it owned may be another's.
    pub is_held: bool,
    /// How many of the registered nodes are dead, and when the last of them ended: when either differs from the time before,
    /// there may be work of a dead node to take over.
    pub ended: (u64, Option<Micros>),
}

/// What became of a claim that takes nothing from a living node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// The claimer owns it.
    Ours(Claim),
    /// A living node owns it, or the claimer itself is dead.
    Refused,
    /// There is no such conversation.
    Unknown,
}

/// A conversation with open work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenConversation {
    /// Which.
    pub id: ConversationId,
    /// Whose.
    pub user: UserId,
    /// The last event's place.
    pub last: Seq,
    /// The place of its newest message whose turn has not begun.
    pub waiting: Option<Seq>,
    /// The incarnation that owns it: the one that asks, a dead one, or none yet.
    pub owner: Option<NodeIncarnation>,
}

/// The nodes, and who owns what among them.
pub trait Nodes: Send + Sync {
    /// Registers a new incarnation of a node with a lease of so many milliseconds. An earlier incarnation of it is dead from
    /// now on. Nodes that ended long ago are forgotten.
    fn register_node(
        &self,
        node: NodeId,
        incarnation: NodeIncarnation,
        lease_ms: u64,
    ) -> Fut<'_, Result<(), StoreError>>;

    /// Renews a lease, unless the incarnation is dead. With `may_end_others` every node whose lease has expired is declared
    /// dead by the way, if the caller's own last renewal is less than half a lease ago by the store's clock: after a pause of
    /// the store, or a step of its clock, the others have time to renew theirs first.
    fn renew_node(
        &self,
        incarnation: NodeIncarnation,
        lease_ms: u64,
        may_end_others: bool,
    ) -> Fut<'_, Result<Renewal, StoreError>>;

    /// A node leaves in good order: it is dead from now on.
    fn end_node(&self, incarnation: NodeIncarnation) -> Fut<'_, Result<(), StoreError>>;

    /// All that are registered, by their id.
    fn nodes(&self) -> Fut<'_, Result<Vec<NodeRow>, StoreError>>;

    /// Takes ownership as [`super::Log::claim`] does, but never from another node that lives.
    fn claim_free(&self, conversation: ConversationId, by: NodeIncarnation) -> Fut<'_, Result<Claimed, StoreError>>;

    /// Conversations with tasks that are not ended which this incarnation owns or may claim, the oldest work first. With
    /// `settled` what this process gave up before it was answered is stored, or never will be.
    fn open_for(&self, by: NodeIncarnation, settled: bool) -> Fut<'_, Result<Vec<OpenConversation>, StoreError>>;
}
