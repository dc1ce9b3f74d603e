-- Long texts that many events have in common, each stored once: its id follows from the text. The body of an event that
-- names one has an empty text in its place. A row is never changed.
CREATE TABLE texts (
    id   BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    text TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Events that were stored before have the whole text in their body.
ALTER TABLE events ADD COLUMN text_id BLOB;
