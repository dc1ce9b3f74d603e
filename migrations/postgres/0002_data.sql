-- What is not folded from the log: the data of the built-in skills, API keys and breaker rows.

CREATE TABLE breakers (
    skill     TEXT   COLLATE "C" NOT NULL PRIMARY KEY,
    state     TEXT   COLLATE "C" NOT NULL,
    failures  BIGINT NOT NULL CHECK (failures >= 0),
    opened_at BIGINT NOT NULL,
    trips     BIGINT NOT NULL CHECK (trips >= 0)
);

CREATE TABLE api_keys (
    id            TEXT   COLLATE "C" NOT NULL PRIMARY KEY,
    name          TEXT   COLLATE "C" NOT NULL,
    user_id       TEXT   COLLATE "C" NOT NULL,
    secret_sha256 BYTEA  NOT NULL,
    scopes        TEXT   COLLATE "C" NOT NULL,
    created_at    BIGINT NOT NULL,
    expires_at    BIGINT,
    last_used_at  BIGINT,
    revoked_at    BIGINT
);

-- `haystack` is title, description and tags in lower case, folded by the store, because what the database folds depends on
-- its locale.
CREATE TABLE todos (
    user_id     TEXT   COLLATE "C" NOT NULL,
    number      BIGINT NOT NULL CHECK (number >= 1),
    intent_id   UUID   NOT NULL,
    title       TEXT   COLLATE "C" NOT NULL,
    description TEXT   COLLATE "C" NOT NULL,
    status      TEXT   COLLATE "C" NOT NULL
        CHECK (status IN ('todo', 'in_progress', 'blocked', 'done', 'cancelled')),
    priority    BIGINT NOT NULL CHECK (priority BETWEEN 0 AND 3),
    due         TEXT   COLLATE "C",
    tags        TEXT   COLLATE "C" NOT NULL,
    haystack    TEXT   COLLATE "C" NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    archived_at BIGINT,
    PRIMARY KEY (user_id, number),
    UNIQUE (user_id, intent_id)
);

-- `owner` is the user as one search word.
CREATE TABLE memories (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id     TEXT   COLLATE "C" NOT NULL,
    number      BIGINT NOT NULL CHECK (number >= 1),
    owner       TEXT   COLLATE "C" NOT NULL,
    content     TEXT   COLLATE "C" NOT NULL,
    tags        TEXT   COLLATE "C" NOT NULL,
    category    TEXT   COLLATE "C" NOT NULL,
    importance  FLOAT8 NOT NULL CHECK (importance BETWEEN 0 AND 1),
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    accessed_at BIGINT,
    UNIQUE (user_id, number)
);

-- The search index: the stems of content and tags as the store makes them, the same as SQLite's index has, and the owner as
-- one more word, which no stem can be, so that a search reads the user's own part of the index only. `words` says how many
-- there are. PostgreSQL's own configurations are not used: their words depend on the server's locale and dictionaries. A
-- memory that is not in here is put here when the store is opened.
CREATE TABLE _memory_terms (
    memory_id BIGINT   NOT NULL PRIMARY KEY REFERENCES memories (id) ON DELETE CASCADE,
    terms     TSVECTOR NOT NULL,
    words     BIGINT   NOT NULL CHECK (words >= 1)
);

CREATE INDEX _memory_terms_by_term ON _memory_terms USING GIN (terms);

-- How many memories are indexed and how many words they have: what a rank is measured by. One row, moved by the trigger in
-- the transaction of the memory.
CREATE TABLE _memory_totals (
    alone    BOOLEAN NOT NULL PRIMARY KEY CHECK (alone),
    memories BIGINT  NOT NULL,
    words    BIGINT  NOT NULL
) WITH (fillfactor = 10);

INSERT INTO _memory_totals VALUES (true, 0, 0);

CREATE FUNCTION _count_memories() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _memory_totals SET
        memories = memories + CASE TG_OP WHEN 'INSERT' THEN 1 WHEN 'DELETE' THEN -1 ELSE 0 END,
        words = words + CASE WHEN TG_OP = 'DELETE' THEN 0 ELSE new.words END
            - CASE WHEN TG_OP = 'INSERT' THEN 0 ELSE old.words END;
    RETURN NULL;
END $$;

CREATE TRIGGER memories_counted AFTER INSERT OR DELETE OR UPDATE OF words ON _memory_terms
    FOR EACH ROW EXECUTE FUNCTION _count_memories();

-- Which memory an intent made or was merged into: the same intent again changes nothing more.
CREATE TABLE memory_intents (
    user_id   TEXT    COLLATE "C" NOT NULL,
    intent_id UUID    NOT NULL,
    number    BIGINT  NOT NULL,
    merged    BOOLEAN NOT NULL,
    PRIMARY KEY (user_id, intent_id)
);
