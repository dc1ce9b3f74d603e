//! The nodes that share the database, and claims that spare live owners.

use annie_core::{
    ids::{ConversationId, NodeId, NodeIncarnation, Seq},
    ports::{Claim, Claimed, Fut, NodeRow, Nodes, OpenConversation, Renewal, StoreError},
};

use super::{Columns, Database, SqlStore, signed};

/// Claims a conversation that no other live node owns, unless the claimer is known to be dead.
pub const CLAIM_FREE: &str = "UPDATE conversations SET owner_node = $1, owner_epoch = owner_epoch + 1 WHERE id = $2 \
     AND NOT EXISTS (SELECT 1 FROM nodes WHERE incarnation = $1 AND ended_at IS NOT NULL) \
     AND (owner_node = $1 OR NOT EXISTS \
         (SELECT 1 FROM nodes WHERE incarnation = conversations.owner_node AND ended_at IS NULL)) \
     AND deleted_at IS NULL RETURNING user_id, owner_epoch, next_seq, deleted_at";
const IS_THERE: &str = "SELECT owner_epoch FROM conversations WHERE id = $1";
pub const OPEN_FOR: &str = "SELECT t.conversation_id, t.user_id, c.next_seq - 1, \
     max(CASE WHEN t.started_at IS NULL THEN t.seq END), c.owner_node FROM tasks t \
     JOIN conversations c ON c.id = t.conversation_id WHERE t.state IN ('queued', 'running', 'suspended') \
     AND (c.owner_node IS NULL OR c.owner_node = $1 OR NOT EXISTS \
         (SELECT 1 FROM nodes WHERE incarnation = c.owner_node AND ended_at IS NULL)) \
     GROUP BY t.conversation_id, t.user_id, c.next_seq, c.owner_node \
     ORDER BY min(t.received_at), t.conversation_id";
const NODES: &str = "SELECT node_id, incarnation, started_at, heartbeat_at, expires_at, ended_at FROM nodes \
     ORDER BY node_id";
/// An incarnation that ended this long ago is deleted, because every other node has noticed its end; in milliseconds.
const FORGET_AFTER_MS: u64 = 86_400_000;

impl<D: Database> Nodes for SqlStore<D> {
    fn register_node(
        &self,
        node: NodeId,
        incarnation: NodeIncarnation,
        lease_ms: u64,
    ) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.execute("forgetting nodes", D::FORGET_NODES, vec![micros(FORGET_AFTER_MS).into()]).await?;
            let bound = vec![node.uuid().into(), incarnation.uuid().into(), micros(lease_ms).into()];
            self.execute("registering a node", D::REGISTER_NODE, bound).await?;
            Ok(())
        })
    }

    fn renew_node(
        &self,
        incarnation: NodeIncarnation,
        lease_ms: u64,
        may_end_others: bool,
    ) -> Fut<'_, Result<Renewal, StoreError>> {
        Box::pin(self.db.renew_node(incarnation, micros(lease_ms), may_end_others))
    }

    fn end_node(&self, incarnation: NodeIncarnation) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.execute("ending a node", D::END_NODE, vec![incarnation.uuid().into()]).await?;
            Ok(())
        })
    }

    fn nodes(&self) -> Fut<'_, Result<Vec<NodeRow>, StoreError>> {
        Box::pin(self.list("listing nodes", NODES, Vec::new(), node_of))
    }

    fn claim_free(&self, conversation: ConversationId, by: NodeIncarnation) -> Fut<'_, Result<Claimed, StoreError>> {
        Box::pin(async move {
            if let Some(head) = self.db.claim(CLAIM_FREE, conversation, by).await? {
                return Ok(Claimed::Ours(Claim { epoch: head.epoch, last: Seq(head.next.0.saturating_sub(1)) }));
            }
            let bound = vec![conversation.uuid().into()];
            let found = self.one("reading a conversation", IS_THERE, bound, |row| row.epoch()).await?;
            Ok(found.map_or(Claimed::Unknown, |_| Claimed::Refused))
        })
    }

    fn open_for(&self, by: NodeIncarnation, settled: bool) -> Fut<'_, Result<Vec<OpenConversation>, StoreError>> {
        let open = |row: &mut Columns<'_>| {
            Ok(OpenConversation {
                id: row.id(ConversationId::from_uuid)?,
                user: row.user()?,
                last: row.seq()?,
                waiting: row.maybe_seq()?,
                owner: row.maybe_id(NodeIncarnation::from_uuid)?,
            })
        };
        Box::pin(async move {
            if settled {
                self.db.settle().await?;
            }
            self.list("reading open conversations", OPEN_FOR, vec![by.uuid().into()], open).await
        })
    }
}

fn micros(ms: u64) -> i64 {
    signed(ms.saturating_mul(1_000))
}

fn node_of(row: &mut Columns<'_>) -> Result<NodeRow, StoreError> {
    Ok(NodeRow {
        node: row.id(NodeId::from_uuid)?,
        incarnation: row.id(NodeIncarnation::from_uuid)?,
        started_at: row.at()?,
        heartbeat_at: row.at()?,
        expires_at: row.at()?,
        ended_at: row.maybe_at()?,
    })
}
