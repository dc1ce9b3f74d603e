-- Long texts that many events have in common, each stored once: its id follows from the text. The body of an event that
-- names one has an empty text in its place. A row is never changed.
CREATE TABLE texts (
    id   uuid NOT NULL PRIMARY KEY,
    text text NOT NULL
);

-- Events that were stored before have the whole text in their body. There is no foreign key: each new event would lock the one
-- row that nearly all events name.
ALTER TABLE events ADD COLUMN text_id uuid;
