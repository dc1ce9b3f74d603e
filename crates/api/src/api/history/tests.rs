//! The history of logs with one and with several answers.

use annie_core::{
    event::{AgentReport, DispatchSpec, Inbound, ResolvedCall},
    ids::{AgentId, IntentId},
    message::{Finish, Usage},
    outcome::Outcome,
};

use super::*;

fn log(bodies: Vec<(u8, &str, EventBody)>) -> Vec<Event> {
    let event = |(n, (task, agent, body)): (usize, (u8, &str, EventBody))| Event {
        conversation: ConversationId::from_uuid(uuid::Uuid::nil()),
        seq: Seq(n as u64 + 1),
        at: Micros(0),
        task: TaskId::from_uuid(uuid::Uuid::from_bytes([task; 16])),
        agent: serde_json::from_value(agent.into()).unwrap(),
        body,
    };
    bodies.into_iter().enumerate().map(event).collect()
}

fn received(text: &str) -> EventBody {
    EventBody::Received(Inbound {
        client_id: text.into(),
        text: text.into(),
        source: "test".into(),
        ..Inbound::default()
    })
}

fn answered(text: &str) -> EventBody {
    EventBody::answered(text)
}

fn turn_log() -> Vec<Event> {
    let spec = DispatchSpec {
        agent: AgentId::sub("s").unwrap(),
        mission: "look".into(),
        skills: vec![],
        context: String::new(),
        depends_on: vec![],
        max_tool_calls: 1,
        manual: vec![],
        options: Default::default(),
    };
    let call = ResolvedCall {
        id: "c".into(),
        name: "dispatch_agent".into(),
        raw: "{}".into(),
        action: Action::Dispatch(spec),
    };
    let task = TaskId::from_uuid(uuid::Uuid::from_bytes([1; 16]));
    let report = AgentReport { tool_calls_used: 1, duration_ms: 7, ..AgentReport::bare(ReportStatus::Completed, "ok") };
    log(vec![
        (1, "orchestrator", received("one")),
        (2, "orchestrator", received("two")),
        (
            1,
            "orchestrator",
            EventBody::ModelReplied {
                round: 1,
                text: String::new(),
                calls: vec![call],
                finish: Finish::ToolCalls,
                usage: Usage::default(),
                model: String::new(),
                backend: String::new(),
                declined: false,
                provider_state: None,
                repairs: Vec::new(),
                cached: false,
                waited_ms: 0,
                prefill_ms: 0,
                judged: None,
            },
        ),
        (
            1,
            "s",
            EventBody::SkillFinished {
                intent: IntentId::for_call(task, &AgentId::orchestrator(), "c"),
                call_id: "c".into(),
                skill: "tasks.search".into(),
                outcome: Outcome::success("x"),
                duration_ms: 3,
                route: None,
            },
        ),
        (1, "s", EventBody::AgentReported { report }),
        (1, "orchestrator", answered("first")),
        (2, "orchestrator", EventBody::Cancelled { text: "stopped".into() }),
    ])
}

#[test]
fn history_answer_lists_agents_and_skills_of_its_own_task_only() {
    let (messages, _) = fold(&turn_log(), true);
    let texts: Vec<&str> = messages.iter().map(|m| m.text.as_str()).collect();
    assert_eq!(texts, ["one", "two", "first", "stopped"]);
    let first = &messages[2];
    assert_eq!((first.agents[0].agent.as_str(), first.agents[0].status), ("s", Some(AgentStatus::Completed)));
    assert_eq!((first.skills[0].skill.as_str(), first.skills[0].status), ("tasks.search", Status::Success));
    assert_eq!(messages[3].state, Some(TaskState::Cancelled));
    assert!(messages[3].agents.is_empty());
}

#[test]
fn history_shows_dispatch_without_report_as_refused_when_turn_has_ended() {
    let unreported = turn_log().into_iter().filter(|e| !matches!(e.body, EventBody::AgentReported { .. }));
    let (messages, _) = fold(&unreported.collect::<Vec<_>>(), true);
    assert_eq!(messages[2].agents[0].status, Some(AgentStatus::Refused));
}

#[test]
fn history_gives_report_to_the_dispatch_that_started() {
    let log = turn_log();
    let again = || log[2].clone();
    let mut twice = again();
    if let EventBody::ModelReplied { calls, .. } = &mut twice.body {
        calls.push(calls[0].clone());
    }
    let started =
        Event { agent: AgentId::sub("s").unwrap(), body: EventBody::AgentStarted { calls_granted: 1 }, ..again() };
    for (dispatches, statuses) in [
        (vec![again(), again(), started.clone()], [AgentStatus::Refused, AgentStatus::Completed]),
        (vec![twice, started.clone()], [AgentStatus::Completed, AgentStatus::Refused]),
        (vec![again(), started, again()], [AgentStatus::Completed, AgentStatus::Refused]),
    ] {
        let events = [&log[..2], &dispatches, &log[3..]].concat();
        assert!(fold(&events, true).0[2].agents.iter().map(|a| a.status).eq(statuses.map(Some)));
    }
}

#[test]
fn history_leaves_out_answer_whose_question_is_not_in_the_window() {
    let log = turn_log();
    assert_eq!(fold(&log[2..], false), (vec![], Some(Seq(7))));
    assert_eq!(fold(&log[2..], true).0.len(), 2);
}
