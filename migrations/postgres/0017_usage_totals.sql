-- The sums of recorded usage, folded from `model_replied`: by conversation, day (days since 1970 in UTC), backend, and the skills
-- that the rounds called. Money is in whole nanodollars.

CREATE TABLE usage_totals (
    conversation_id      UUID             NOT NULL REFERENCES conversations (id),
    day                  BIGINT           NOT NULL,
    backend              TEXT COLLATE "C" NOT NULL,
    skills               TEXT COLLATE "C" NOT NULL,
    user_id              TEXT COLLATE "C" NOT NULL,
    rounds               BIGINT           NOT NULL,
    input_tokens         BIGINT           NOT NULL,
    cached_tokens        BIGINT           NOT NULL,
    cache_written_tokens BIGINT           NOT NULL,
    output_tokens        BIGINT           NOT NULL,
    reasoning_tokens     BIGINT           NOT NULL,
    nanodollars          BIGINT           NOT NULL,
    PRIMARY KEY (conversation_id, day, backend, skills)
);

CREATE INDEX usage_totals_by_user ON usage_totals (user_id, day);

INSERT INTO usage_totals
SELECT conversation_id, day, backend, skills, user_id, count(*), sum(input_tokens), sum(cached_tokens),
    sum(cache_written_tokens), sum(output_tokens), sum(reasoning_tokens), sum(nanodollars)
FROM (
    SELECT
        e.conversation_id,
        floor(e.at / 86400000000.0)::bigint AS day,
        coalesce(e.body ->> 'backend', '') COLLATE "C" AS backend,
        coalesce((
            SELECT string_agg(s.skill, ', ' ORDER BY s.skill COLLATE "C")
            FROM (
                SELECT DISTINCT c #>> '{action,skill}' AS skill
                FROM json_array_elements(coalesce(e.body -> 'calls', '[]')) c
                WHERE c #>> '{action,action}' = 'skill'
            ) s
        ), '') COLLATE "C" AS skills,
        e.user_id,
        coalesce((e.body #>> '{usage,input_tokens}')::bigint, 0) AS input_tokens,
        coalesce((e.body #>> '{usage,cached_tokens}')::bigint, 0) AS cached_tokens,
        coalesce((e.body #>> '{usage,cache_written_tokens}')::bigint, 0) AS cache_written_tokens,
        coalesce((e.body #>> '{usage,output_tokens}')::bigint, 0) AS output_tokens,
        coalesce((e.body #>> '{usage,reasoning_tokens}')::bigint, 0) AS reasoning_tokens,
        coalesce(round((e.body #>> '{usage,cost_usd}')::numeric * 1000000000)::bigint, 0) AS nanodollars
    FROM (
        SELECT e.conversation_id, e.at, c.user_id, shown_body(e.body) AS body
        FROM events e
        JOIN conversations c ON c.id = e.conversation_id
        WHERE e.kind = 'model_replied'
    ) e
) u
WHERE input_tokens + cached_tokens + cache_written_tokens + output_tokens + reasoning_tokens + nanodollars > 0
GROUP BY conversation_id, day, backend, skills, user_id;

DROP VIEW usage;

CREATE VIEW usage AS
SELECT
    shown_id('conv_', e.conversation_id) AS conversation_id,
    e.seq,
    e.at,
    c.user_id,
    shown_id('task_', e.task_id) AS task_id,
    e.agent_id,
    (shown_body(e.body) ->> 'round')::bigint AS round,
    shown_body(e.body) ->> 'model' AS model,
    shown_body(e.body) ->> 'backend' AS backend,
    (shown_body(e.body) #>> '{usage,input_tokens}')::bigint AS input_tokens,
    (shown_body(e.body) #>> '{usage,output_tokens}')::bigint AS output_tokens,
    (shown_body(e.body) #>> '{usage,cached_tokens}')::bigint AS cached_tokens,
    (shown_body(e.body) #>> '{usage,cache_written_tokens}')::bigint AS cache_written_tokens,
    (shown_body(e.body) #>> '{usage,reasoning_tokens}')::bigint AS reasoning_tokens,
    (shown_body(e.body) #>> '{usage,cost_usd}')::float8 AS cost_usd
FROM events e
JOIN conversations c ON c.id = e.conversation_id
WHERE e.kind = 'model_replied';
