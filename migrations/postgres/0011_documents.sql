-- The data of skills: one table for all namespaces. `body` is the skill's JSON. The other columns are copies of the fields that
-- the namespace declares as keys and as search text, made by the store at each write. `haystack` is folded to lower case by
-- the store, because what the database folds depends on its locale. `owner` is the user and the namespace as one search word; it is empty if
-- there are no words.
CREATE TABLE documents (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id     TEXT   COLLATE "C" NOT NULL,
    namespace   TEXT   COLLATE "C" NOT NULL,
    number      BIGINT NOT NULL CHECK (number >= 1),
    body        TEXT   COLLATE "C" NOT NULL,
    text_1      TEXT   COLLATE "C",
    text_2      TEXT   COLLATE "C",
    text_3      TEXT   COLLATE "C",
    number_1    FLOAT8,
    number_2    FLOAT8,
    tags        TEXT   COLLATE "C" NOT NULL,
    haystack    TEXT   COLLATE "C" NOT NULL,
    owner       TEXT   COLLATE "C" NOT NULL,
    words       TEXT   COLLATE "C" NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    accessed_at BIGINT,
    archived_at BIGINT,
    UNIQUE (user_id, namespace, number)
);

-- Which document an intent created, replaced or archived: the same intent again changes nothing more.
CREATE TABLE document_intents (
    user_id   TEXT   COLLATE "C" NOT NULL,
    namespace TEXT   COLLATE "C" NOT NULL,
    intent_id UUID   NOT NULL,
    number    BIGINT NOT NULL,
    kind      TEXT   COLLATE "C" NOT NULL CHECK (kind IN ('inserted', 'replaced', 'archived')),
    PRIMARY KEY (user_id, namespace, intent_id)
);

-- The search index: the stems of the words as the store makes them, the same as SQLite's index has, and the owner as one more
-- word, which no stem can be, so that a search reads its own part of the index only. `words` says how many there are.
-- PostgreSQL's own configurations are not used: their words depend on the server's locale and dictionaries. A document with
-- words that is not in here is put here when the store is opened.
CREATE TABLE _document_terms (
    document_id BIGINT   NOT NULL PRIMARY KEY REFERENCES documents (id) ON DELETE CASCADE,
    terms       TSVECTOR NOT NULL,
    words       BIGINT   NOT NULL CHECK (words >= 1)
);

CREATE INDEX _document_terms_by_term ON _document_terms USING GIN (terms);

-- How many documents are indexed and how many words they have: what a rank is measured by. One row, moved by the trigger in the
-- transaction of the document.
CREATE TABLE _document_totals (
    alone     BOOLEAN NOT NULL PRIMARY KEY CHECK (alone),
    documents BIGINT  NOT NULL,
    words     BIGINT  NOT NULL
) WITH (fillfactor = 10);

INSERT INTO _document_totals VALUES (true, 0, 0);

CREATE FUNCTION _count_documents() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _document_totals SET
        documents = documents + CASE TG_OP WHEN 'INSERT' THEN 1 WHEN 'DELETE' THEN -1 ELSE 0 END,
        words = words + CASE WHEN TG_OP = 'DELETE' THEN 0 ELSE new.words END
            - CASE WHEN TG_OP = 'INSERT' THEN 0 ELSE old.words END;
    RETURN NULL;
END $$;

CREATE TRIGGER documents_counted AFTER INSERT OR DELETE OR UPDATE OF words ON _document_terms
    FOR EACH ROW EXECUTE FUNCTION _count_documents();
