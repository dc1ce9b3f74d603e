-- The log read as the tables that people expect. Views, because the log is the authority and these are for looking, not
-- for the kernel's own way. Ids are shown with their prefixes.

CREATE FUNCTION shown_id(prefix TEXT, id UUID) RETURNS TEXT LANGUAGE sql IMMUTABLE AS
$$ SELECT prefix || replace(id::text, '-', '') $$;

-- A body as JSON that can be looked into: PostgreSQL cannot give a text with the character zero, so it is shown as the sign
-- for what cannot be shown. An escaped backslash before it is left alone.
CREATE FUNCTION shown_body(body TEXT) RETURNS JSON LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE WHEN strpos(body, '\u0000') = 0 THEN body
    ELSE regexp_replace(body, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g') END::json $$;

-- What was said, as a conversation's history shows it: the orchestrator's dispatches and the agents' reports are part of
-- it, the agents' own skill calls are not (they are in `skill_executions`).
CREATE VIEW messages AS
SELECT
    shown_id('conv_', conversation_id) AS conversation_id,
    seq,
    at,
    shown_id('task_', task_id) AS task_id,
    CASE kind WHEN 'received' THEN 'user' WHEN 'agent_reported' THEN 'tool' ELSE 'assistant' END AS role,
    agent_id,
    CASE kind WHEN 'agent_reported' THEN shown_body(body) #>> '{report,result}' ELSE shown_body(body) ->> 'text' END AS text,
    CASE kind WHEN 'model_replied' THEN shown_body(body) -> 'calls' END AS tool_calls
FROM events
WHERE CASE kind
    WHEN 'model_replied' THEN agent_id = 'orchestrator' AND json_array_length(shown_body(body) -> 'calls') > 0
    ELSE kind IN ('received', 'answered', 'failed', 'cancelled', 'agent_reported') END;

-- One row for each dispatched sub-agent.
CREATE VIEW agents AS
SELECT
    shown_id('task_', e.task_id) || '/' || (c.value #>> '{action,agent}') AS id,
    shown_id('conv_', e.conversation_id) AS conversation_id,
    shown_id('task_', e.task_id) AS task_id,
    c.value #>> '{action,agent}' AS agent_id,
    c.value ->> 'id' AS call_id,
    c.value #>> '{action,mission}' AS mission,
    (c.value #> '{action,skills}')::text AS skills,
    coalesce((c.value #> '{action,depends_on}')::text, '[]') AS depends_on,
    (c.value #>> '{action,max_tool_calls}')::bigint AS max_tool_calls,
    e.at AS dispatched_at,
    s.at AS started_at,
    r.at AS ended_at,
    coalesce(shown_body(r.body) #>> '{report,status}', CASE WHEN s.at IS NULL THEN 'waiting' ELSE 'running' END) AS status,
    shown_body(r.body) #>> '{report,result}' AS result,
    (shown_body(r.body) #>> '{report,tool_calls_used}')::bigint AS tool_calls_used,
    (shown_body(r.body) #>> '{report,duration_ms}')::bigint AS duration_ms
FROM events e
JOIN LATERAL json_array_elements(shown_body(e.body) -> 'calls') c ON c.value #>> '{action,action}' = 'dispatch'
LEFT JOIN events s ON s.conversation_id = e.conversation_id AND s.task_id = e.task_id
    AND s.kind = 'agent_started' AND s.agent_id = c.value #>> '{action,agent}'
LEFT JOIN events r ON r.conversation_id = e.conversation_id AND r.task_id = e.task_id
    AND r.kind = 'agent_reported' AND r.agent_id = c.value #>> '{action,agent}'
WHERE e.kind = 'model_replied';

-- Parents are agents (no skill), children are the skill calls that they made; a call of the orchestrator's own has no
-- parent.
CREATE VIEW skill_executions AS
SELECT
    id, NULL AS parent_execution_id, conversation_id, task_id, agent_id, mission AS agent_mission, NULL AS skill_id,
    NULL AS parameters, NULL AS effect, status, dispatched_at AS planned_at, started_at, ended_at, duration_ms,
    result AS outcome
FROM agents
UNION ALL
SELECT
    c.value #>> '{action,intent}',
    CASE WHEN e.agent_id = 'orchestrator' THEN NULL ELSE shown_id('task_', e.task_id) || '/' || e.agent_id END,
    shown_id('conv_', e.conversation_id),
    shown_id('task_', e.task_id),
    e.agent_id,
    NULL,
    c.value #>> '{action,skill}',
    (c.value #> '{action,arguments}')::text,
    c.value #>> '{action,effect}',
    coalesce(shown_body(f.body) #>> '{outcome,status}', CASE WHEN s.at IS NULL THEN 'planned' ELSE 'started' END),
    e.at,
    s.at,
    f.at,
    (shown_body(f.body) ->> 'duration_ms')::bigint,
    (shown_body(f.body) -> 'outcome')::text
FROM events e
JOIN LATERAL json_array_elements(shown_body(e.body) -> 'calls') c ON c.value #>> '{action,action}' = 'skill'
LEFT JOIN LATERAL (
    SELECT x.at FROM events x
    WHERE x.conversation_id = e.conversation_id AND x.kind = 'skill_started'
      AND shown_body(x.body) ->> 'intent' = c.value #>> '{action,intent}'
    ORDER BY x.seq LIMIT 1
) s ON true
LEFT JOIN LATERAL (
    SELECT x.at, x.body FROM events x
    WHERE x.conversation_id = e.conversation_id AND x.kind = 'skill_finished'
      AND shown_body(x.body) ->> 'intent' = c.value #>> '{action,intent}'
    ORDER BY x.seq DESC LIMIT 1
) f ON true
WHERE e.kind = 'model_replied';

-- What each model call cost.
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
    (shown_body(e.body) #>> '{usage,cost_usd}')::float8 AS cost_usd
FROM events e
JOIN conversations c ON c.id = e.conversation_id
WHERE e.kind = 'model_replied';
