-- Deletions of conversations. `deletions` has one row for each deleted conversation; `record_seq` is the event that records its
-- erasure, which covers all events before it.
ALTER TABLE conversations ADD COLUMN deleted_at INTEGER;

CREATE TABLE deletions (
    conversation_id BLOB    NOT NULL PRIMARY KEY REFERENCES conversations (id),
    user_id         TEXT    NOT NULL,
    deleted_by      TEXT    NOT NULL,
    reason          TEXT    NOT NULL,
    deleted_at      INTEGER NOT NULL,
    erase_at        INTEGER NOT NULL,
    record_seq      INTEGER,
    -- The last event that is erased.
    erased_seq      INTEGER NOT NULL DEFAULT 0,
    erased_at       INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX deletions_due ON deletions (erase_at) WHERE erased_at IS NULL;
CREATE INDEX deletions_by_user ON deletions (user_id, deleted_at);

-- The SHA-256 of the body that an event had before its content was erased.
ALTER TABLE events ADD COLUMN erased_sha256 BLOB CHECK (erased_sha256 IS NULL OR length(erased_sha256) = 32);

-- When the text was last written. An append may name a text that was written in the hour before.
ALTER TABLE texts ADD COLUMN stored_at INTEGER NOT NULL DEFAULT 0;
