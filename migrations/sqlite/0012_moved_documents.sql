-- To-dos and memories become documents of the namespaces `tasks` and `memory`. Numbers, times and intents stay as they are. The
-- body has the fields that the skills read; the keys are those that the skills declare.

INSERT INTO documents (user_id, namespace, number, body, text_1, text_2, number_1, tags, haystack, owner, words, created_at,
    updated_at, archived_at)
SELECT user_id, 'tasks', number,
    json_object('title', title, 'description', description, 'status', status, 'priority', priority, 'due', due,
        'tags', json(tags)),
    due, status, priority, tags, haystack, '', '', created_at, updated_at, archived_at
FROM todos ORDER BY user_id, number;

INSERT INTO document_intents (user_id, namespace, intent_id, number, kind)
SELECT user_id, 'tasks', intent_id, number, 'inserted' FROM todos;

-- `owner` is a hash of the user, to which a document adds the name of its namespace.
INSERT INTO documents (user_id, namespace, number, body, text_1, number_1, tags, haystack, owner, words, created_at, updated_at,
    accessed_at)
SELECT user_id, 'memory', number,
    json_object('content', content, 'tags', json(tags), 'category', category, 'importance', importance),
    category, importance, tags, '', owner || 'memory',
    content || coalesce((SELECT group_concat(char(10) || tag.value, '') FROM json_each(memories.tags) AS tag), ''),
    created_at, updated_at, accessed_at
FROM memories ORDER BY id;

INSERT INTO document_intents (user_id, namespace, intent_id, number, kind)
SELECT user_id, 'memory', intent_id, number, CASE WHEN merged THEN 'replaced' ELSE 'inserted' END FROM memory_intents;

DROP TABLE memory_intents;
DROP TABLE memories_fts;
DROP TABLE memories;
DROP TABLE todos;
