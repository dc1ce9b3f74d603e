-- Whether a task was last deferred because its model failed. Then it resumes when the model answers, if this is sooner.

ALTER TABLE tasks ADD COLUMN has_model_failed INTEGER NOT NULL DEFAULT 0;

UPDATE tasks SET has_model_failed = 1 WHERE (id, conversation_id) IN (
    SELECT e.task_id, e.conversation_id FROM events e
    WHERE e.kind = 'deferred' AND e.body ->> '$.after_failure'
      AND NOT EXISTS (
        SELECT 1 FROM events x
        WHERE x.conversation_id = e.conversation_id AND x.seq > e.seq AND x.task_id = e.task_id AND x.kind = 'deferred'
      )
);
