-- Whether a task was last deferred because its model failed. Then it resumes when the model answers, if this is sooner.

ALTER TABLE tasks ADD COLUMN has_model_failed BOOLEAN NOT NULL DEFAULT false;

UPDATE tasks SET has_model_failed = true WHERE (id, conversation_id) IN (
    SELECT e.task_id, e.conversation_id FROM events e
    WHERE e.kind = 'deferred' AND (shown_body(e.body) ->> 'after_failure')::boolean
      AND NOT EXISTS (
        SELECT 1 FROM events x
        WHERE x.conversation_id = e.conversation_id AND x.seq > e.seq AND x.task_id = e.task_id AND x.kind = 'deferred'
      )
);
