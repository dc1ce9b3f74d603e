-- Whether a task was last deferred because its model failed. Then it resumes when the model answers, if this is sooner. Stored
-- tasks are not looked up in the log: they resume at their time.

ALTER TABLE tasks ADD COLUMN has_model_failed BOOLEAN NOT NULL DEFAULT false;
