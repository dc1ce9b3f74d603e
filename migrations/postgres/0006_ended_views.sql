-- What a limit or a mistake kept from beginning ends with its turn: it was refused, or not run, and waits no more.

-- Replaced in place: an operator's own views and grants on them stay.

CREATE OR REPLACE VIEW agents AS
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
    coalesce(shown_body(r.body) #>> '{report,status}', CASE WHEN s.at IS NOT NULL THEN 'running' WHEN t.state IN ('completed', 'failed', 'cancelled') THEN 'refused' ELSE 'waiting' END) AS status,
    shown_body(r.body) #>> '{report,result}' AS result,
    (shown_body(r.body) #>> '{report,tool_calls_used}')::bigint AS tool_calls_used,
    (shown_body(r.body) #>> '{report,duration_ms}')::bigint AS duration_ms
FROM events e
JOIN LATERAL json_array_elements(shown_body(e.body) -> 'calls') c ON c.value #>> '{action,action}' = 'dispatch'
LEFT JOIN events s ON s.conversation_id = e.conversation_id AND s.task_id = e.task_id
    AND s.kind = 'agent_started' AND s.agent_id = c.value #>> '{action,agent}'
LEFT JOIN events r ON r.conversation_id = e.conversation_id AND r.task_id = e.task_id
    AND r.kind = 'agent_reported' AND r.agent_id = c.value #>> '{action,agent}'
LEFT JOIN tasks t ON t.id = e.task_id
WHERE e.kind = 'model_replied';

CREATE OR REPLACE VIEW skill_executions AS
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
    coalesce(shown_body(f.body) #>> '{outcome,status}', CASE WHEN s.at IS NOT NULL THEN 'started' WHEN t.state IN ('completed', 'failed', 'cancelled') THEN 'not_run' ELSE 'planned' END),
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
LEFT JOIN tasks t ON t.id = e.task_id
WHERE e.kind = 'model_replied';
