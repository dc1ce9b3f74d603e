//! The nodes that share the database: several only in tests, because the lock of the data folder admits one process.

use annie_core::{
    ids::NodeIncarnation,
    ports::{Renewal, StoreError},
};

use super::Sqlite;
use crate::sql::{Columns, Database};

pub(super) const FORGET: &str =
    "DELETE FROM nodes WHERE ended_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - $1";
pub(super) const REGISTER: &str = "INSERT INTO nodes (node_id, incarnation, started_at, heartbeat_at, expires_at) \
     SELECT $1, $2, clock.now, clock.now, clock.now + $3 \
     FROM (SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now) clock WHERE true \
     ON CONFLICT (node_id) DO UPDATE SET incarnation = excluded.incarnation, started_at = excluded.started_at, \
     heartbeat_at = excluded.heartbeat_at, expires_at = excluded.expires_at, ended_at = NULL";
pub(super) const END: &str = "UPDATE nodes SET ended_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) \
     WHERE incarnation = $1 AND ended_at IS NULL";
const STEADY: &str = "SELECT 1 FROM nodes WHERE incarnation = $1 \
     AND abs(CAST(unixepoch('subsec') * 1000000 AS INTEGER) - heartbeat_at) < $2 / 2";
const RENEW: &str = "UPDATE nodes SET heartbeat_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), \
     expires_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + $2 \
     WHERE incarnation = $1 AND ended_at IS NULL RETURNING incarnation";
const DECLARE_DEAD: &str = "UPDATE nodes SET ended_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) \
     WHERE ended_at IS NULL AND expires_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) AND incarnation <> $1";
const ENDED: &str = "SELECT count(*), max(ended_at) FROM nodes WHERE ended_at IS NOT NULL";

impl Sqlite {
    pub(super) async fn renew_lease(
        &self,
        incarnation: NodeIncarnation,
        lease_us: i64,
        may_end_others: bool,
    ) -> Result<Renewal, StoreError> {
        let me = || incarnation.uuid().into();
        let is_steady = !self.query("looking at a lease", STEADY, vec![me(), lease_us.into()]).await?.is_empty();
        let is_held = !self.execute("renewing a lease", RENEW, vec![me(), lease_us.into()]).await?.is_empty();
        if is_held && may_end_others && is_steady {
            self.execute("ending nodes", DECLARE_DEAD, vec![me()]).await?;
        }
        let rows = self.query("counting nodes", ENDED, Vec::new()).await?;
        let Some(row) = rows.first() else { return Ok(Renewal { is_held, ended: (0, None) }) };
        let mut row = Columns::of(row);
        Ok(Renewal { is_held, ended: (row.count()?, row.maybe_at()?) })
    }
}
