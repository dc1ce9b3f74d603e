-- The processes that share the database, each with a lease. `conversations.owner_node` names an incarnation: the owner lives
-- as long as its row is here and has not ended. Times are the server's clock. Nothing of this is folded from the log, and
-- nothing of it is worth keeping: a row that is gone means that its process is dead.

CREATE TABLE nodes (
    node_id      UUID   NOT NULL PRIMARY KEY,
    incarnation  UUID   NOT NULL UNIQUE,
    started_at   BIGINT NOT NULL,
    heartbeat_at BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    -- When it left, or was declared dead. It never comes back: a process that finds this takes a new incarnation.
    ended_at     BIGINT
) WITH (fillfactor = 50);
