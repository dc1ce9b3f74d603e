-- The log read as the tables that people expect. Views, because the log is the authority and these are for looking, not
-- for the kernel's own way. Ids are shown with their prefixes.

-- What was said, as a conversation's history shows it: the orchestrator's dispatches and the agents' reports are part of
-- it, the agents' own skill calls are not (they are in `skill_executions`).
CREATE VIEW messages AS
SELECT
    'conv_' || lower(hex(conversation_id)) AS conversation_id,
    seq,
    at,
    'task_' || lower(hex(task_id)) AS task_id,
    CASE kind WHEN 'received' THEN 'user' WHEN 'agent_reported' THEN 'tool' ELSE 'assistant' END AS role,
    agent_id,
    CASE kind WHEN 'agent_reported' THEN body ->> '$.report.result' ELSE body ->> '$.text' END AS text,
    CASE kind WHEN 'model_replied' THEN body -> '$.calls' END AS tool_calls
FROM events
WHERE kind IN ('received', 'answered', 'failed', 'cancelled', 'agent_reported')
   OR (kind = 'model_replied' AND agent_id = 'orchestrator' AND json_array_length(body, '$.calls') > 0);

-- One row for each dispatched sub-agent.
CREATE VIEW agents AS
SELECT
    'task_' || lower(hex(e.task_id)) || '/' || (c.value ->> '$.action.agent') AS id,
    'conv_' || lower(hex(e.conversation_id)) AS conversation_id,
    'task_' || lower(hex(e.task_id)) AS task_id,
    c.value ->> '$.action.agent' AS agent_id,
    c.value ->> '$.id' AS call_id,
    c.value ->> '$.action.mission' AS mission,
    c.value -> '$.action.skills' AS skills,
    coalesce(c.value -> '$.action.depends_on', '[]') AS depends_on,
    c.value ->> '$.action.max_tool_calls' AS max_tool_calls,
    e.at AS dispatched_at,
    s.at AS started_at,
    r.at AS ended_at,
    coalesce(r.body ->> '$.report.status', iif(s.at IS NULL, 'waiting', 'running')) AS status,
    r.body ->> '$.report.result' AS result,
    r.body ->> '$.report.tool_calls_used' AS tool_calls_used,
    r.body ->> '$.report.duration_ms' AS duration_ms
FROM events e
JOIN json_each(e.body, '$.calls') c ON c.value ->> '$.action.action' = 'dispatch'
LEFT JOIN events s ON s.conversation_id = e.conversation_id AND s.task_id = e.task_id
    AND s.kind = 'agent_started' AND s.agent_id = c.value ->> '$.action.agent'
LEFT JOIN events r ON r.conversation_id = e.conversation_id AND r.task_id = e.task_id
    AND r.kind = 'agent_reported' AND r.agent_id = c.value ->> '$.action.agent'
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
    c.value ->> '$.action.intent',
    iif(e.agent_id = 'orchestrator', NULL, 'task_' || lower(hex(e.task_id)) || '/' || e.agent_id),
    'conv_' || lower(hex(e.conversation_id)),
    'task_' || lower(hex(e.task_id)),
    e.agent_id,
    NULL,
    c.value ->> '$.action.skill',
    c.value -> '$.action.arguments',
    c.value ->> '$.action.effect',
    coalesce(f.body ->> '$.outcome.status', iif(s.at IS NULL, 'planned', 'started')),
    e.at,
    s.at,
    f.at,
    f.body ->> '$.duration_ms',
    f.body -> '$.outcome'
FROM events e
JOIN json_each(e.body, '$.calls') c ON c.value ->> '$.action.action' = 'skill'
LEFT JOIN events s ON s.conversation_id = e.conversation_id AND s.kind = 'skill_started'
    AND s.seq = (
        SELECT min(x.seq) FROM events x
        WHERE x.conversation_id = e.conversation_id AND x.kind = 'skill_started'
          AND x.body ->> '$.intent' = c.value ->> '$.action.intent'
    )
LEFT JOIN events f ON f.conversation_id = e.conversation_id AND f.kind = 'skill_finished'
    AND f.seq = (
        SELECT max(x.seq) FROM events x
        WHERE x.conversation_id = e.conversation_id AND x.kind = 'skill_finished'
          AND x.body ->> '$.intent' = c.value ->> '$.action.intent'
    )
WHERE e.kind = 'model_replied';

-- What each model call cost.
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
    e.body ->> '$.usage.cost_usd' AS cost_usd
FROM events e
JOIN conversations c ON c.id = e.conversation_id
WHERE e.kind = 'model_replied';
