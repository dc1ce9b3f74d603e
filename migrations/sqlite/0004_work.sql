-- What is kept of work besides its tasks. `letters` and `operations` are folded from the log like the tables of 0001;
-- `notifications` and `secrets` are not.

ALTER TABLE tasks ADD COLUMN not_before INTEGER;
-- Ids of the tasks that go before, as a JSON list; nothing if there are none.
ALTER TABLE tasks ADD COLUMN after_ids TEXT;
-- When it was last held back or let go on.
ALTER TABLE tasks ADD COLUMN held_at INTEGER;
-- It is an order about tasks, which takes no place in the queue.
ALTER TABLE tasks ADD COLUMN is_order INTEGER NOT NULL DEFAULT 0;
-- It takes no place unless it finds no turn to steer.
ALTER TABLE tasks ADD COLUMN is_steer INTEGER NOT NULL DEFAULT 0;
-- The task whose answer is its answer too.
ALTER TABLE tasks ADD COLUMN joins BLOB;

DROP INDEX tasks_open;
CREATE INDEX tasks_open ON tasks (received_at, id) WHERE state IN ('queued', 'running', 'suspended');

-- Dead letters. `seq` is the place of the failure: only what comes after it in the same conversation moves the letter.
CREATE TABLE letters (
    task_id         BLOB    NOT NULL PRIMARY KEY,
    user_id         TEXT    NOT NULL,
    conversation_id BLOB    NOT NULL REFERENCES conversations (id),
    seq             INTEGER NOT NULL,
    code            TEXT    NOT NULL,
    text            TEXT    NOT NULL,
    detail          TEXT    NOT NULL,
    tried           TEXT    NOT NULL,
    since           INTEGER NOT NULL,
    retry_at        INTEGER,
    state           TEXT    NOT NULL,
    retried_by      BLOB,
    failed_at       INTEGER NOT NULL,
    changed_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX letters_by_user ON letters (user_id, failed_at, task_id);
CREATE INDEX letters_by_time ON letters (failed_at, task_id);
CREATE INDEX letters_to_retry ON letters (retry_at) WHERE state = 'waiting' AND retry_at IS NOT NULL;
CREATE INDEX letters_to_archive ON letters (since) WHERE state = 'waiting';

-- Long-running operations. `seq` is the place of the receipt that opened it.
CREATE TABLE operations (
    id              BLOB    NOT NULL PRIMARY KEY,
    user_id         TEXT    NOT NULL,
    conversation_id BLOB    NOT NULL REFERENCES conversations (id),
    seq             INTEGER NOT NULL,
    task_id         BLOB    NOT NULL,
    intent_id       BLOB    NOT NULL,
    skill           TEXT    NOT NULL,
    opened_at       INTEGER NOT NULL,
    expires_at      INTEGER NOT NULL,
    closed_by       BLOB,
    closed_at       INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX operations_by_user ON operations (user_id, opened_at, id);
CREATE INDEX operations_by_time ON operations (opened_at, id);
CREATE INDEX operations_open ON operations (expires_at, id) WHERE closed_by IS NULL;

-- A word that was swept keeps its row without its text: so it is known as delivered after a rebuild too.
CREATE INDEX outbox_to_sweep ON outbox (delivered_at) WHERE delivered_at IS NOT NULL AND text <> '';

-- AUTOINCREMENT: a place is never given again, also when the last one was swept.
CREATE TABLE notifications (
    id      INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    user_id TEXT    NOT NULL,
    text    TEXT    NOT NULL,
    tasks   TEXT    NOT NULL,
    at      INTEGER NOT NULL
) STRICT;

CREATE INDEX notifications_by_user ON notifications (user_id, id);
CREATE INDEX notifications_by_time ON notifications (at);

CREATE TABLE secrets (
    name  TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;
