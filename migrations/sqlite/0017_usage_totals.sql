-- The sums of recorded usage, folded from `model_replied`: by conversation, day (days since 1970 in UTC), backend, and the skills
-- that the rounds called. Money is in whole nanodollars.

CREATE TABLE usage_totals (
    conversation_id      BLOB    NOT NULL REFERENCES conversations (id),
    day                  INTEGER NOT NULL,
    backend              TEXT    NOT NULL,
    skills               TEXT    NOT NULL,
    user_id              TEXT    NOT NULL,
    rounds               INTEGER NOT NULL,
    input_tokens         INTEGER NOT NULL,
    cached_tokens        INTEGER NOT NULL,
    cache_written_tokens INTEGER NOT NULL,
    output_tokens        INTEGER NOT NULL,
    reasoning_tokens     INTEGER NOT NULL,
    nanodollars          INTEGER NOT NULL,
    PRIMARY KEY (conversation_id, day, backend, skills)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_totals_by_user ON usage_totals (user_id, day);

INSERT INTO usage_totals
SELECT conversation_id, day, backend, skills, user_id, count(*), sum(input_tokens), sum(cached_tokens),
    sum(cache_written_tokens), sum(output_tokens), sum(reasoning_tokens), sum(nanodollars)
FROM (
    SELECT
        e.conversation_id,
        (e.at - (e.at % 86400000000 + 86400000000) % 86400000000) / 86400000000 AS day,
        coalesce(e.body ->> '$.backend', '') AS backend,
        coalesce((
            SELECT group_concat(s.skill, ', ')
            FROM (
                SELECT DISTINCT c.value ->> '$.action.skill' AS skill
                FROM json_each(e.body, '$.calls') c
                WHERE c.value ->> '$.action.action' = 'skill'
                ORDER BY 1
            ) s
        ), '') AS skills,
        c.user_id,
        coalesce(e.body ->> '$.usage.input_tokens', 0) AS input_tokens,
        coalesce(e.body ->> '$.usage.cached_tokens', 0) AS cached_tokens,
        coalesce(e.body ->> '$.usage.cache_written_tokens', 0) AS cache_written_tokens,
        coalesce(e.body ->> '$.usage.output_tokens', 0) AS output_tokens,
        coalesce(e.body ->> '$.usage.reasoning_tokens', 0) AS reasoning_tokens,
        CAST(round(coalesce(e.body ->> '$.usage.cost_usd', 0) * 1e9) AS INTEGER) AS nanodollars
    FROM events e
    JOIN conversations c ON c.id = e.conversation_id
    WHERE e.kind = 'model_replied'
)
WHERE input_tokens + cached_tokens + cache_written_tokens + output_tokens + reasoning_tokens + nanodollars > 0
GROUP BY conversation_id, day, backend, skills;

DROP VIEW usage;

CREATE VIEW usage AS
SELECT
    'conv_' || lower(hex(e.conversation_id)) AS conversation_id,
    e.seq,
    e.at,
    c.user_id,
    'task_' || lower(hex(e.task_id)) AS task_id,
    e.agent_id,
    e.body ->> '$.round' AS round,
    e.body ->> '$.model' AS model,
    e.body ->> '$.backend' AS backend,
    e.body ->> '$.usage.input_tokens' AS input_tokens,
    e.body ->> '$.usage.output_tokens' AS output_tokens,
    e.body ->> '$.usage.cached_tokens' AS cached_tokens,
    e.body ->> '$.usage.cache_written_tokens' AS cache_written_tokens,
    e.body ->> '$.usage.reasoning_tokens' AS reasoning_tokens,
    e.body ->> '$.usage.cost_usd' AS cost_usd
FROM events e
JOIN conversations c ON c.id = e.conversation_id
WHERE e.kind = 'model_replied';
