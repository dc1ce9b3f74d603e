-- What a limit or a mistake kept from beginning ends with its turn: it was refused, or not run, and waits no more.

DROP VIEW skill_executions;
DROP VIEW agents;

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
    coalesce(r.body ->> '$.report.status', CASE WHEN s.at IS NOT NULL THEN 'running' WHEN t.state IN ('completed', 'failed', 'cancelled') THEN 'refused' ELSE 'waiting' END) AS status,
    r.body ->> '$.report.result' AS result,
    r.body ->> '$.report.tool_calls_used' AS tool_calls_used,
    r.body ->> '$.report.duration_ms' AS duration_ms
FROM events e
JOIN json_each(e.body, '$.calls') c ON c.value ->> '$.action.action' = 'dispatch'
LEFT JOIN events s ON s.conversation_id = e.conversation_id AND s.task_id = e.task_id
    AND s.kind = 'agent_started' AND s.agent_id = c.value ->> '$.action.agent'
LEFT JOIN events r ON r.conversation_id = e.conversation_id AND r.task_id = e.task_id
    AND r.kind = 'agent_reported' AND r.agent_id = c.value ->> '$.action.agent'
LEFT JOIN tasks t ON t.id = e.task_id
WHERE e.kind = 'model_replied';

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
    coalesce(f.body ->> '$.outcome.status', CASE WHEN s.at IS NOT NULL THEN 'started' WHEN t.state IN ('completed', 'failed', 'cancelled') THEN 'not_run' ELSE 'planned' END),
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
LEFT JOIN tasks t ON t.id = e.task_id
WHERE e.kind = 'model_replied';
