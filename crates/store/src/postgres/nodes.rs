//! The nodes that share the database. Their times are the server's clock, read when a statement runs and not when its
//! transaction began.

use annie_core::{
    ids::NodeIncarnation,
    ports::{Renewal, StoreError},
};

use super::Postgres;
use crate::sql::{Columns, Database};

pub(super) const FORGET: &str = "DELETE FROM nodes \
     WHERE ended_at < CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT) - CAST($1 AS BIGINT)";
pub(super) const REGISTER: &str = "INSERT INTO nodes (node_id, incarnation, started_at, heartbeat_at, expires_at) \
     SELECT $1, $2, clock.now, clock.now, clock.now + CAST($3 AS BIGINT) \
     FROM (SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT) AS now) clock \
     ON CONFLICT (node_id) DO UPDATE SET incarnation = excluded.incarnation, started_at = excluded.started_at, \
     heartbeat_at = excluded.heartbeat_at, expires_at = excluded.expires_at, ended_at = NULL";
pub(super) const END: &str = "UPDATE nodes \
     SET ended_at = CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT) \
     WHERE incarnation = $1 AND ended_at IS NULL";
/// One statement: renews the lease of an incarnation that has not ended; declares the nodes with expired leases dead, if the
/// caller may and its own last heartbeat is less than half a lease ago; and returns the dead ones. A row that another node
/// renews or ends at the same time is skipped, so that no two nodes wait for each other.
const RENEW: &str = "WITH clock AS MATERIALIZED \
         (SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT) AS now), \
     steady AS (SELECT 1 FROM nodes, clock WHERE incarnation = $1 AND abs(clock.now - heartbeat_at) < CAST($2 AS BIGINT) / 2), \
     held AS (UPDATE nodes SET heartbeat_at = clock.now, expires_at = clock.now + CAST($2 AS BIGINT) FROM clock \
         WHERE incarnation = $1 AND ended_at IS NULL RETURNING 1), \
     expired AS (SELECT n.incarnation FROM nodes n WHERE CAST($3 AS BOOLEAN) AND EXISTS (SELECT 1 FROM steady) AND n.ended_at IS NULL \
         AND n.expires_at <= (SELECT now FROM clock) AND n.incarnation <> $1 FOR UPDATE SKIP LOCKED), \
     declared AS (UPDATE nodes SET ended_at = clock.now FROM clock WHERE EXISTS (SELECT 1 FROM held) \
         AND incarnation IN (SELECT incarnation FROM expired) AND ended_at IS NULL RETURNING 1) \
     SELECT (SELECT count(*) FROM held), \
         (SELECT count(*) FROM nodes WHERE ended_at IS NOT NULL) + (SELECT count(*) FROM declared), \
         greatest((SELECT max(ended_at) FROM nodes), (SELECT max(clock.now) FROM clock, declared))";

impl Postgres {
    pub(super) async fn renew_lease(
        &self,
        incarnation: NodeIncarnation,
        lease_us: i64,
        may_end_others: bool,
    ) -> Result<Renewal, StoreError> {
        let bound = vec![incarnation.uuid().into(), lease_us.into(), may_end_others.into()];
        let rows = self.execute("renewing a lease", RENEW, bound).await?;
        let Some(row) = rows.first() else { return Ok(Renewal { is_held: false, ended: (0, None) }) };
        let mut row = Columns::of(row);
        Ok(Renewal { is_held: row.count()? > 0, ended: (row.count()?, row.maybe_at()?) })
    }
}
