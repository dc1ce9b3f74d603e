-- To-dos and memories become documents of the namespaces `tasks` and `memory`. Numbers, times and intents stay as they are. The
-- body has the fields that the skills read; the keys are those that the skills declare. The words get into the search index when
-- the store is opened.
--
-- The store writes the character zero of a text as U+10FFFF and 0. Within the JSON of a body it is an escape sequence.

INSERT INTO documents (user_id, namespace, number, body, text_1, text_2, number_1, tags, haystack, owner, words, created_at,
    updated_at, archived_at)
SELECT user_id, 'tasks', number,
    replace(json_build_object('title', title, 'description', description, 'status', status, 'priority', priority, 'due', due,
        'tags', tags::json)::text, chr(1114111) || '0', '\u0000'),
    due, status, priority, tags, haystack, '', '', created_at, updated_at, archived_at
FROM todos ORDER BY user_id, number;

INSERT INTO document_intents (user_id, namespace, intent_id, number, kind)
SELECT user_id, 'tasks', intent_id, number, 'inserted' FROM todos;

-- `owner` is a hash of the user, to which a document adds the name of its namespace.
INSERT INTO documents (user_id, namespace, number, body, text_1, number_1, tags, haystack, owner, words, created_at, updated_at,
    accessed_at)
SELECT user_id, 'memory', number,
    replace(json_build_object('content', content, 'tags', tags::json, 'category', category, 'importance', importance)::text,
        chr(1114111) || '0', '\u0000'),
    category, importance, tags, '', owner || 'memory',
    content || coalesce((SELECT string_agg(chr(10) || tag.word, '' ORDER BY tag.place)
        FROM json_array_elements_text(shown_body(tags)) WITH ORDINALITY AS tag (word, place)), ''),
    created_at, updated_at, accessed_at
FROM memories ORDER BY id;

INSERT INTO document_intents (user_id, namespace, intent_id, number, kind)
SELECT user_id, 'memory', intent_id, number, CASE WHEN merged THEN 'replaced' ELSE 'inserted' END FROM memory_intents;

DROP TABLE memory_intents;
DROP TABLE _memory_terms;
DROP TABLE _memory_totals;
DROP FUNCTION _count_memories();
DROP TABLE memories;
DROP TABLE todos;
