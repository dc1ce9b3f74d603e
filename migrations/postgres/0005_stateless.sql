-- Conversations of stateless calls, to which nobody comes back: lists leave them out.

ALTER TABLE conversations ADD COLUMN stateless BOOLEAN NOT NULL DEFAULT FALSE;
