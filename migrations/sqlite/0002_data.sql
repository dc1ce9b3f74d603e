-- What is not folded from the log: the data of the built-in skills, API keys and breaker rows.

CREATE TABLE breakers (
    skill     TEXT    NOT NULL PRIMARY KEY,
    state     TEXT    NOT NULL,
    failures  INTEGER NOT NULL,
    opened_at INTEGER NOT NULL,
    trips     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE api_keys (
    id            TEXT    NOT NULL PRIMARY KEY,
    name          TEXT    NOT NULL,
    user_id       TEXT    NOT NULL,
    secret_sha256 BLOB    NOT NULL,
    scopes        TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    expires_at    INTEGER,
    last_used_at  INTEGER,
    revoked_at    INTEGER
) STRICT, WITHOUT ROWID;

-- `haystack` is title, description and tags in lower case, folded by the store, because SQLite folds ASCII only.
CREATE TABLE todos (
    user_id     TEXT    NOT NULL,
    number      INTEGER NOT NULL,
    intent_id   BLOB    NOT NULL,
    title       TEXT    NOT NULL,
    description TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    priority    INTEGER NOT NULL,
    due         TEXT,
    tags        TEXT    NOT NULL,
    haystack    TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    archived_at INTEGER,
    PRIMARY KEY (user_id, number),
    UNIQUE (user_id, intent_id)
) STRICT, WITHOUT ROWID;

-- `owner` is the user as one search word, so that a search reads the user's own part of the index only.
CREATE TABLE memories (
    id          INTEGER NOT NULL PRIMARY KEY,
    user_id     TEXT    NOT NULL,
    number      INTEGER NOT NULL,
    owner       TEXT    NOT NULL,
    content     TEXT    NOT NULL,
    tags        TEXT    NOT NULL,
    category    TEXT    NOT NULL,
    importance  REAL    NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    accessed_at INTEGER,
    UNIQUE (user_id, number)
) STRICT;

-- Which memory an intent made or was merged into: the same intent again changes nothing more.
CREATE TABLE memory_intents (
    user_id   TEXT    NOT NULL,
    intent_id BLOB    NOT NULL,
    number    INTEGER NOT NULL,
    merged    INTEGER NOT NULL,
    PRIMARY KEY (user_id, intent_id)
) STRICT, WITHOUT ROWID;

CREATE VIRTUAL TABLE memories_fts USING fts5 (
    owner, content, tags,
    content = 'memories', content_rowid = 'id', tokenize = 'porter unicode61'
);

CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN
    INSERT INTO memories_fts (rowid, owner, content, tags) VALUES (new.id, new.owner, new.content, new.tags);
END;

CREATE TRIGGER memories_removed AFTER DELETE ON memories BEGIN
    INSERT INTO memories_fts (memories_fts, rowid, owner, content, tags)
    VALUES ('delete', old.id, old.owner, old.content, old.tags);
END;

CREATE TRIGGER memories_changed AFTER UPDATE OF content, tags ON memories BEGIN
    INSERT INTO memories_fts (memories_fts, rowid, owner, content, tags)
    VALUES ('delete', old.id, old.owner, old.content, old.tags);
    INSERT INTO memories_fts (rowid, owner, content, tags) VALUES (new.id, new.owner, new.content, new.tags);
END;
