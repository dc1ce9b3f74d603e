-- Final texts that a channel delivers to an address. The address of a task is folded from its message, and copied into the
-- outbox when the task has a final text. The attempts and `diverted` follow from no event: they survive a rebuild, because a
-- text must not be sent twice.

CREATE TABLE addresses (
    task_id         BLOB NOT NULL PRIMARY KEY,
    conversation_id BLOB NOT NULL REFERENCES conversations (id),
    channel         TEXT NOT NULL,
    recipient       TEXT NOT NULL
) STRICT, WITHOUT ROWID;

ALTER TABLE outbox ADD COLUMN seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN channel TEXT;
ALTER TABLE outbox ADD COLUMN recipient TEXT;
ALTER TABLE outbox ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN begun_by BLOB;
ALTER TABLE outbox ADD COLUMN begun_at INTEGER;
ALTER TABLE outbox ADD COLUMN retry_at INTEGER;
ALTER TABLE outbox ADD COLUMN diverted TEXT;

CREATE INDEX outbox_to_notify ON outbox (at, id)
    WHERE delivered_at IS NULL AND (channel IS NULL OR diverted IS NOT NULL);
CREATE INDEX outbox_to_send ON outbox (channel, recipient, at, seq, id)
    WHERE delivered_at IS NULL AND channel IS NOT NULL AND diverted IS NULL;
