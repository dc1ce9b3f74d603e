-- A report belongs to the dispatch that was accepted. The other dispatches of the same name in its task were refused.
--
-- The log does not say which dispatch was accepted, but a name is accepted once in a task. A dispatch is therefore refused
-- if it came after its agent had begun, or if it repeats an accepted one that still waited: one whose dependencies had all
-- been dispatched by then, validly themselves. Of the others, the newest before the agent began was accepted, and those
-- before it were invalid. Migration 0009 required that the dependencies had begun, so that a repetition counted as accepted
-- while a dependency still waited.

DROP VIEW agents;

CREATE VIEW agents AS
WITH dispatches AS NOT MATERIALIZED (
    SELECT
        e.conversation_id, e.task_id, e.seq, e.at, c.key AS place, c.value AS call,
        c.value ->> '$.action.agent' AS agent_id
    FROM events e
    JOIN json_each(e.body, '$.calls') c ON c.value ->> '$.action.action' = 'dispatch'
    WHERE e.kind = 'model_replied'
), begun AS (
    SELECT conversation_id, task_id, agent_id, min(seq) AS seq
    FROM events
    WHERE kind IN ('agent_started', 'agent_reported')
    GROUP BY conversation_id, task_id, agent_id
)
SELECT
    'task_' || lower(hex(d.task_id)) || '/' || d.agent_id AS id,
    'conv_' || lower(hex(d.conversation_id)) AS conversation_id,
    'task_' || lower(hex(d.task_id)) AS task_id,
    d.agent_id AS agent_id,
    d.call ->> '$.id' AS call_id,
    d.call ->> '$.action.mission' AS mission,
    d.call -> '$.action.skills' AS skills,
    coalesce(d.call -> '$.action.depends_on', '[]') AS depends_on,
    d.call ->> '$.action.max_tool_calls' AS max_tool_calls,
    d.at AS dispatched_at,
    s.at AS started_at,
    r.at AS ended_at,
    coalesce(r.body ->> '$.report.status', CASE WHEN s.at IS NOT NULL THEN 'running' WHEN t.state IN ('completed', 'failed', 'cancelled') THEN 'refused' ELSE 'waiting' END) AS status,
    r.body ->> '$.report.result' AS result,
    r.body ->> '$.report.tool_calls_used' AS tool_calls_used,
    r.body ->> '$.report.duration_ms' AS duration_ms
FROM dispatches d
LEFT JOIN begun b ON b.conversation_id = d.conversation_id AND b.task_id = d.task_id AND b.agent_id = d.agent_id
    AND d.seq = (
        SELECT max(x.seq) FROM dispatches x
        WHERE x.conversation_id = b.conversation_id AND x.task_id = b.task_id AND x.agent_id = b.agent_id
          AND x.seq < b.seq
          AND NOT EXISTS (
            SELECT 1 FROM dispatches y
            WHERE y.conversation_id = x.conversation_id AND y.task_id = x.task_id AND y.agent_id = x.agent_id
              AND y.seq < x.seq
              AND NOT EXISTS (
                SELECT 1 FROM json_each(y.call, '$.action.depends_on') n
                WHERE NOT EXISTS (
                    SELECT 1 FROM dispatches z
                    WHERE z.conversation_id = y.conversation_id AND z.task_id = y.task_id AND z.seq <= y.seq
                      AND z.agent_id = n.value
                      AND NOT EXISTS (
                        SELECT 1 FROM json_each(z.call, '$.action.depends_on') m
                        WHERE NOT EXISTS (
                            SELECT 1 FROM dispatches w
                            WHERE w.conversation_id = z.conversation_id AND w.task_id = z.task_id AND w.seq <= z.seq
                              AND w.agent_id = m.value
                        )
                      )
                )
              )
          )
    )
    -- Of several dispatches of a name in one reply, only the first can be accepted.
    AND d.place = (
        SELECT min(x.place) FROM dispatches x
        WHERE x.conversation_id = d.conversation_id AND x.seq = d.seq AND x.agent_id = d.agent_id
    )
LEFT JOIN events s ON s.conversation_id = b.conversation_id AND s.task_id = b.task_id AND s.kind = 'agent_started'
    AND s.agent_id = b.agent_id
LEFT JOIN events r ON r.conversation_id = b.conversation_id AND r.task_id = b.task_id AND r.kind = 'agent_reported'
    AND r.agent_id = b.agent_id
LEFT JOIN tasks t ON t.id = d.task_id;
