-- The processes that share the database, each with a lease. `conversations.owner_node` names an incarnation: the owner lives
-- as long as its row is here and has not ended. On SQLite the lock of the data folder is the lease, and the table stays
-- empty: no other owner lives.

CREATE TABLE nodes (
    node_id      BLOB    NOT NULL PRIMARY KEY CHECK (length(node_id) = 16),
    incarnation  BLOB    NOT NULL UNIQUE CHECK (length(incarnation) = 16),
    started_at   INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    -- When it left, or was declared dead. It never comes back: a process that finds this takes a new incarnation.
    ended_at     INTEGER
) STRICT, WITHOUT ROWID;
