-- The table has the glossary's name for its rows, and so have its indexes.
ALTER TABLE letters RENAME TO dead_letters;
DROP INDEX letters_by_user;
DROP INDEX letters_by_time;
DROP INDEX letters_to_retry;
DROP INDEX letters_to_archive;
CREATE INDEX dead_letters_by_user ON dead_letters (user_id, failed_at, task_id);
CREATE INDEX dead_letters_by_time ON dead_letters (failed_at, task_id);
CREATE INDEX dead_letters_to_retry ON dead_letters (retry_at) WHERE state = 'waiting' AND retry_at IS NOT NULL;
CREATE INDEX dead_letters_to_archive ON dead_letters (since) WHERE state = 'waiting';
