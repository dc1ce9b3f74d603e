-- Deletions of conversations. `deletions` has one row for each deleted conversation; `record_seq` is the event that records its
-- erasure, which covers all events before it.
ALTER TABLE conversations ADD COLUMN deleted_at BIGINT;

CREATE TABLE deletions (
    conversation_id UUID   NOT NULL PRIMARY KEY REFERENCES conversations (id),
    user_id         TEXT   COLLATE "C" NOT NULL,
    deleted_by      TEXT   NOT NULL,
    reason          TEXT   NOT NULL,
    deleted_at      BIGINT NOT NULL,
    erase_at        BIGINT NOT NULL,
    record_seq      BIGINT,
    -- The last event that is erased.
    erased_seq      BIGINT NOT NULL DEFAULT 0,
    erased_at       BIGINT
);

CREATE INDEX deletions_due ON deletions (erase_at) WHERE erased_at IS NULL;
CREATE INDEX deletions_by_user ON deletions (user_id, deleted_at);

-- The SHA-256 of the body that an event had before its content was erased.
ALTER TABLE events ADD COLUMN erased_sha256 BYTEA CHECK (octet_length(erased_sha256) = 32);

-- When the text was last written. An append may name a text that was written in the hour before.
ALTER TABLE texts ADD COLUMN stored_at BIGINT NOT NULL DEFAULT 0;
