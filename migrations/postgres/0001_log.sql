-- The log, and the tables that are folded from it in the transaction of the append. Times are microseconds UTC, ids are
-- UUIDs (the same 16 bytes in the same order as SQLite's blobs), bodies are JSON text: JSONB would put keys in another
-- order, and bodies feed prompts and hashes. Texts compare byte by byte, as SQLite does. Only `conversations` (whose, who
-- owns it) and `events` are authority; everything else here can be thrown away and folded again.

CREATE TABLE conversations (
    id          UUID   NOT NULL PRIMARY KEY,
    user_id     TEXT   COLLATE "C" NOT NULL,
    owner_node  UUID,
    owner_epoch BIGINT NOT NULL CHECK (owner_epoch >= 0),
    next_seq    BIGINT NOT NULL CHECK (next_seq >= 1),
    title       TEXT   NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    CHECK (owner_epoch = 0 OR owner_node IS NOT NULL)
) WITH (fillfactor = 80);

CREATE INDEX conversations_by_user ON conversations (user_id, updated_at, id);

CREATE TABLE events (
    conversation_id UUID   NOT NULL REFERENCES conversations (id),
    seq             BIGINT NOT NULL CHECK (seq >= 1),
    at              BIGINT NOT NULL,
    task_id         UUID   NOT NULL,
    agent_id        TEXT   COLLATE "C" NOT NULL,
    kind            TEXT   COLLATE "C" NOT NULL,
    v               BIGINT NOT NULL CHECK (v BETWEEN 0 AND 65535),
    body            TEXT   COLLATE "C" NOT NULL,
    PRIMARY KEY (conversation_id, seq)
);

CREATE TABLE snapshots (
    conversation_id UUID   NOT NULL PRIMARY KEY REFERENCES conversations (id),
    seq             BIGINT NOT NULL CHECK (seq >= 0),
    v               BIGINT NOT NULL CHECK (v BETWEEN 0 AND 65535),
    state           TEXT   COLLATE "C" NOT NULL
);

-- Also the inbox: the front end's id is unique per user, so that a repeated message is recognised.
CREATE TABLE tasks (
    id              UUID   NOT NULL PRIMARY KEY,
    user_id         TEXT   COLLATE "C" NOT NULL,
    conversation_id UUID   NOT NULL REFERENCES conversations (id),
    seq             BIGINT NOT NULL CHECK (seq >= 1),
    client_id       TEXT   COLLATE "C" NOT NULL,
    text_sha256     BYTEA  NOT NULL CHECK (octet_length(text_sha256) = 32),
    state           TEXT   COLLATE "C" NOT NULL
        CHECK (state IN ('queued', 'running', 'suspended', 'completed', 'failed', 'cancelled')),
    priority        TEXT   COLLATE "C" NOT NULL,
    source          TEXT   COLLATE "C" NOT NULL,
    title           TEXT   COLLATE "C" NOT NULL,
    received_at     BIGINT NOT NULL,
    started_at      BIGINT,
    ended_at        BIGINT,
    error           TEXT   COLLATE "C",
    UNIQUE (user_id, client_id)
) WITH (fillfactor = 80);

CREATE INDEX tasks_by_user ON tasks (user_id, received_at, id);
CREATE INDEX tasks_open ON tasks (received_at, id) WHERE state IN ('queued', 'running');

CREATE TABLE intents (
    id              UUID   NOT NULL PRIMARY KEY,
    conversation_id UUID   NOT NULL REFERENCES conversations (id),
    task_id         UUID   NOT NULL,
    seq             BIGINT NOT NULL CHECK (seq >= 1),
    place           BIGINT NOT NULL,
    skill           TEXT   COLLATE "C" NOT NULL,
    effect          TEXT   COLLATE "C" NOT NULL CHECK (effect IN ('read', 'idempotent', 'once')),
    state           TEXT   COLLATE "C" NOT NULL CHECK (state IN ('planned', 'started', 'done', 'unknown')),
    attempts        BIGINT NOT NULL CHECK (attempts >= 0),
    planned_at      BIGINT NOT NULL,
    changed_at      BIGINT NOT NULL
) WITH (fillfactor = 80);

CREATE INDEX intents_by_task ON intents (task_id, seq, place);

CREATE TABLE outbox (
    id              UUID   NOT NULL PRIMARY KEY,
    user_id         TEXT   COLLATE "C" NOT NULL,
    conversation_id UUID   NOT NULL REFERENCES conversations (id),
    task_id         UUID   NOT NULL,
    text            TEXT   COLLATE "C" NOT NULL,
    at              BIGINT NOT NULL,
    delivered_at    BIGINT
) WITH (fillfactor = 80);

CREATE INDEX outbox_waiting ON outbox (at, id) WHERE delivered_at IS NULL;
