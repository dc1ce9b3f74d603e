-- Documents whose second number key is the time at which they are due, such as schedules: background workers read those of all users.
CREATE INDEX documents_due ON documents (namespace, number_2, user_id, number)
    WHERE number_2 IS NOT NULL AND archived_at IS NULL;
