-- Final texts that a channel delivers to an address. The address of a task is folded from its message, and copied into the
-- outbox when the task has a final text. The attempts and `diverted` follow from no event: they survive a rebuild, because a
-- text must not be sent twice.

CREATE TABLE addresses (
    task_id         UUID NOT NULL PRIMARY KEY,
    conversation_id UUID NOT NULL REFERENCES conversations (id),
    channel         TEXT COLLATE "C" NOT NULL,
    recipient       TEXT COLLATE "C" NOT NULL
);

ALTER TABLE outbox ADD COLUMN seq BIGINT NOT NULL DEFAULT 0 CHECK (seq >= 0);
ALTER TABLE outbox ADD COLUMN channel TEXT COLLATE "C";
ALTER TABLE outbox ADD COLUMN recipient TEXT COLLATE "C";
ALTER TABLE outbox ADD COLUMN attempts BIGINT NOT NULL DEFAULT 0 CHECK (attempts >= 0);
ALTER TABLE outbox ADD COLUMN begun_by UUID;
ALTER TABLE outbox ADD COLUMN begun_at BIGINT;
ALTER TABLE outbox ADD COLUMN retry_at BIGINT;
ALTER TABLE outbox ADD COLUMN diverted TEXT COLLATE "C"
    CHECK (diverted IN ('in_doubt', 'refused', 'given_up', 'no_channel'));

CREATE INDEX outbox_to_notify ON outbox (at, id)
    WHERE delivered_at IS NULL AND (channel IS NULL OR diverted IS NOT NULL);
CREATE INDEX outbox_to_send ON outbox (channel, recipient, at, seq, id)
    WHERE delivered_at IS NULL AND channel IS NOT NULL AND diverted IS NULL;
