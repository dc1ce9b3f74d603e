-- The log, and the tables that are folded from it in the transaction of the append. Times are microseconds UTC, ids are
-- the 16 bytes of their UUID, bodies are JSON text. Only `conversations` (whose, who owns it) and `events` are authority;
-- everything else here can be thrown away and folded again.

CREATE TABLE conversations (
    id          BLOB    NOT NULL PRIMARY KEY,
    user_id     TEXT    NOT NULL,
    owner_node  BLOB,
    owner_epoch INTEGER NOT NULL,
    next_seq    INTEGER NOT NULL,
    title       TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX conversations_by_user ON conversations (user_id, updated_at, id);

CREATE TABLE events (
    conversation_id BLOB    NOT NULL REFERENCES conversations (id),
    seq             INTEGER NOT NULL,
    at              INTEGER NOT NULL,
    task_id         BLOB    NOT NULL,
    agent_id        TEXT    NOT NULL,
    kind            TEXT    NOT NULL,
    v               INTEGER NOT NULL,
    body            TEXT    NOT NULL,
    PRIMARY KEY (conversation_id, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE snapshots (
    conversation_id BLOB    NOT NULL PRIMARY KEY REFERENCES conversations (id),
    seq             INTEGER NOT NULL,
    v               INTEGER NOT NULL,
    state           TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- Also the inbox: the front end's id is unique per user, so that a repeated message is recognised.
CREATE TABLE tasks (
    id              BLOB    NOT NULL PRIMARY KEY,
    user_id         TEXT    NOT NULL,
    conversation_id BLOB    NOT NULL REFERENCES conversations (id),
    seq             INTEGER NOT NULL,
    client_id       TEXT    NOT NULL,
    text_sha256     BLOB    NOT NULL,
    state           TEXT    NOT NULL,
    priority        TEXT    NOT NULL,
    source          TEXT    NOT NULL,
    title           TEXT    NOT NULL,
    received_at     INTEGER NOT NULL,
    started_at      INTEGER,
    ended_at        INTEGER,
    error           TEXT,
    UNIQUE (user_id, client_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX tasks_by_user ON tasks (user_id, received_at, id);
CREATE INDEX tasks_open ON tasks (received_at, id) WHERE state IN ('queued', 'running');

CREATE TABLE intents (
    id              BLOB    NOT NULL PRIMARY KEY,
    conversation_id BLOB    NOT NULL REFERENCES conversations (id),
    task_id         BLOB    NOT NULL,
    seq             INTEGER NOT NULL,
    place           INTEGER NOT NULL,
    skill           TEXT    NOT NULL,
    effect          TEXT    NOT NULL,
    state           TEXT    NOT NULL,
    attempts        INTEGER NOT NULL,
    planned_at      INTEGER NOT NULL,
    changed_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX intents_by_task ON intents (task_id, seq, place);

CREATE TABLE outbox (
    id              BLOB    NOT NULL PRIMARY KEY,
    user_id         TEXT    NOT NULL,
    conversation_id BLOB    NOT NULL REFERENCES conversations (id),
    task_id         BLOB    NOT NULL,
    text            TEXT    NOT NULL,
    at              INTEGER NOT NULL,
    delivered_at    INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX outbox_waiting ON outbox (at, id) WHERE delivered_at IS NULL;
