-- The data of skills: one table for all namespaces. `body` is the skill's JSON. The other columns are copies of the fields that
-- the namespace declares as keys and as search text, made by the store at each write. `haystack` is folded to lower case by
-- the store, because SQLite folds ASCII only. `owner` is the user and the namespace as one search word, so that a search reads only its own
-- part of the index; it is empty if there are no words.
CREATE TABLE documents (
    id          INTEGER NOT NULL PRIMARY KEY,
    user_id     TEXT    NOT NULL,
    namespace   TEXT    NOT NULL,
    number      INTEGER NOT NULL,
    body        TEXT    NOT NULL,
    text_1      TEXT,
    text_2      TEXT,
    text_3      TEXT,
    number_1    REAL,
    number_2    REAL,
    tags        TEXT    NOT NULL,
    haystack    TEXT    NOT NULL,
    owner       TEXT    NOT NULL,
    words       TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    accessed_at INTEGER,
    archived_at INTEGER,
    UNIQUE (user_id, namespace, number)
) STRICT;

-- Which document an intent created, replaced or archived: the same intent again changes nothing more.
CREATE TABLE document_intents (
    user_id   TEXT    NOT NULL,
    namespace TEXT    NOT NULL,
    intent_id BLOB    NOT NULL,
    number    INTEGER NOT NULL,
    kind      TEXT    NOT NULL,
    PRIMARY KEY (user_id, namespace, intent_id)
) STRICT, WITHOUT ROWID;

-- Only documents with words are in the index, so that the others do not change the ranks.
CREATE VIRTUAL TABLE documents_fts USING fts5 (
    owner, words,
    content = 'documents', content_rowid = 'id', tokenize = 'porter unicode61'
);

CREATE TRIGGER documents_added AFTER INSERT ON documents WHEN new.words <> '' BEGIN
    INSERT INTO documents_fts (rowid, owner, words) VALUES (new.id, new.owner, new.words);
END;

CREATE TRIGGER documents_removed AFTER DELETE ON documents WHEN old.words <> '' BEGIN
    INSERT INTO documents_fts (documents_fts, rowid, owner, words) VALUES ('delete', old.id, old.owner, old.words);
END;

CREATE TRIGGER documents_lost_words AFTER UPDATE OF owner, words ON documents WHEN old.words <> '' BEGIN
    INSERT INTO documents_fts (documents_fts, rowid, owner, words) VALUES ('delete', old.id, old.owner, old.words);
    INSERT INTO documents_fts (rowid, owner, words) SELECT new.id, new.owner, new.words WHERE new.words <> '';
END;

CREATE TRIGGER documents_got_words AFTER UPDATE OF owner, words ON documents WHEN old.words = '' AND new.words <> '' BEGIN
    INSERT INTO documents_fts (rowid, owner, words) VALUES (new.id, new.owner, new.words);
END;
