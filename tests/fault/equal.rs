//! Equal effects: two agents of one turn request the same call at the same moment. The call is made once, whatever dies
//! meanwhile.

use std::{sync::Arc, time::Duration};

use annie_actors::Submitted;
use annie_core::{
    event::{EventBody, ReportStatus, Scope},
    message::ModelRequest,
    outcome::Outcome,
    ports::FaultAction,
};
use annie_testkit::{
    faults::FaultPlan,
    scripted_model::{ScriptedModel, calls, commands, says},
    skills::{FakeBehaviour, FakeSkills},
};
use serde_json::json;

use crate::world::{World, WorldParts, check_log, eventually, is_sub_agent, kill, last_text, sleep_for_ms};

/// Two parallel agents, each of which sends the same mail.
fn twins(request: &ModelRequest) -> annie_core::message::ModelReply {
    let last = last_text(request);
    if is_sub_agent(request) {
        return if last.contains("<result") {
            says(format!("Report: {last}"))
        } else {
            commands(["test.send --what x"])
        };
    }
    if last.contains("\"agents\"") {
        return says(format!("All said. {last}"));
    }
    calls([
        ("dispatch_agent", json!({"agent_id": "one", "mission": "send it", "skills": ["test.send"]})),
        ("dispatch_agent", json!({"agent_id": "two", "mission": "send it", "skills": ["test.send"]})),
        ("get_agent_results", json!({})),
    ])
}

fn parts() -> WorldParts {
    let mut parts = WorldParts::new(|request, _| Ok(twins(request)));
    // Long enough for the other agent to request the same call meanwhile.
    let slow = |_: &_| FakeBehaviour::Slow(Duration::from_secs(2), Outcome::success("Sent mail #1."));
    parts.skills = Arc::new(FakeSkills::new(slow));
    // The virtual clock of these tests stands still while work runs and then jumps, so no handler may count as stuck.
    parts.limits.stuck_ms_max = 1_000_000;
    parts
}

/// One agent that runs these commands.
fn lone(request: &ModelRequest, lines: &[&str], calls_max: u32) -> annie_core::message::ModelReply {
    let last = last_text(request);
    if is_sub_agent(request) {
        return if last.contains("<result") { says("Both are done.") } else { commands(lines.iter().copied()) };
    }
    if last.contains("\"agents\"") {
        return says("That is all.");
    }
    let skills = ["test.look", "test.put", "test.send"];
    let one = json!({"agent_id": "one", "mission": "do it", "skills": skills, "max_tool_calls": calls_max});
    calls([("dispatch_agent", one), ("get_agent_results", json!({}))])
}

/// Waits for the answer. Returns the number of effects that were made, and the whole log as text.
async fn ended(world: &World, parts: &WorldParts, sent: &Submitted) -> (u32, String) {
    let last = world.final_of(sent.conversation, sent.task).await;
    assert!(matches!(last, EventBody::Answered { .. }), "{last:?}");
    let log = world.log(sent.conversation).await;
    check_log(&log);
    (parts.skills.count("test.send"), serde_json::to_string(&log).expect("JSON"))
}

#[tokio::test(start_paused = true)]
async fn equal_effect_of_two_agents_at_once_is_made_once_and_both_report_it() {
    let parts = parts();
    let world = parts.start().await;
    let sent = world.say("send it").await;
    let (made, log) = ended(&world, &parts, &sent).await;
    assert_eq!(made, 1, "{log}");
    assert!(log.contains("[done already] Sent mail #1."), "{log}");
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn equal_effect_is_made_once_though_an_agent_or_the_engine_is_killed_in_it() {
    for dies in ["/agent:one", "/agent:two", ""] {
        let parts = parts();
        let world = parts.start().await;
        let sent = world.say("send it").await;
        eventually("the effect is made", async || (parts.skills.count("test.send") > 0).then_some(())).await;
        kill(&world, &format!("/conversations/engine:{}{dies}", sent.conversation)).await;
        let (made, log) = ended(&world, &parts, &sent).await;
        assert_eq!(made, 1, "killed {dies:?}: {log}");
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn equal_effect_is_made_at_most_once_though_an_agent_dies_after_any_of_its_appends() {
    for nth in 0..3 {
        let plan = Arc::new(FaultPlan::once_at("sub_agent", "stored", nth, FaultAction::Panic));
        let parts = parts().faults(plan.clone());
        let world = parts.start().await;
        let sent = world.say("send it").await;
        let (made, log) = ended(&world, &parts, &sent).await;
        assert_eq!(plan.injected().len(), 1, "death {nth} happens");
        let is_made = log.contains("Sent mail #1.");
        assert!(made <= 1 && (made == 1 || !is_made), "death {nth}: {log}");
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn call_not_begun_before_the_timeout_of_its_agent_is_not_in_doubt() {
    let lines = ["test.put --what a", "test.send --what b"];
    let model = ScriptedModel::new(move |request, _| Ok(lone(request, &lines, 2))).taking(Duration::from_secs(8));
    let slow = |_: &_| FakeBehaviour::Slow(Duration::from_millis(1_500), Outcome::success("Put a."));
    let mut parts = WorldParts { model: Arc::new(model), skills: Arc::new(FakeSkills::new(slow)), ..parts() };
    // The agent has 9 s: enough for one model round, but not for the whole of its first call.
    parts.limits.turn.agent_round_ms_max = 3_000;
    let world = parts.start().await;
    // "No rush" puts the message into a class without a deadline, so the turn itself has time.
    let sent = world.say("No rush: do both").await;
    let last = world.final_of(sent.conversation, sent.task).await;
    let log = world.log(sent.conversation).await;
    let report = log.iter().find_map(|e| {
        let EventBody::AgentReported { report } = &e.body else { return None };
        Some(report.clone())
    });
    let report = report.unwrap_or_else(|| panic!("{log:#?}"));
    assert_eq!((report.status, report.receipts.len()), (ReportStatus::Timeout, 1), "{report:?}");
    assert_eq!(parts.skills.count("test.send"), 0);
    assert!(report.in_doubt.is_empty(), "the call never began: {report:?}");
    assert!(!report.result.contains("May or may not"), "{report:?}");
    assert!(!format!("{last:?}").contains("not known"), "{last:?}");
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn agent_waits_only_for_a_limited_time_for_the_equal_call_of_another() {
    let model = |request: &ModelRequest, _| {
        let last = last_text(request);
        if is_sub_agent(request) {
            let all = serde_json::to_string(&request.messages).unwrap_or_default();
            return Ok(match (last.contains("<result"), all.contains("all of it")) {
                // The first agent has planned its calls by then.
                (false, false) => commands(["test.look --what pause"]),
                (true, false) if !all.contains("test.send --what x") => commands(["test.send --what x"]),
                (true, _) => says(format!("Report: {last}")),
                // Eight calls of one second each come before the call that the other agent also wants.
                (false, true) => {
                    let looks: Vec<String> = (1..=8).map(|n| format!("test.look --what {n}")).collect();
                    commands(looks.iter().map(String::as_str).chain(["test.send --what x"]))
                }
            });
        }
        if last.contains("\"agents\"") {
            return Ok(says("All said."));
        }
        let one = json!({"agent_id": "one", "mission": "do all of it", "skills": ["test.look", "test.send"], "max_tool_calls": 10});
        let two = json!({"agent_id": "two", "mission": "send it", "skills": ["test.look", "test.send"]});
        Ok(calls([("dispatch_agent", one), ("dispatch_agent", two), ("get_agent_results", json!({}))]))
    };
    let slow = |_: &_| FakeBehaviour::Slow(Duration::from_secs(1), Outcome::success("Fine."));
    let model = Arc::new(ScriptedModel::new(model));
    let mut parts = WorldParts { skills: Arc::new(FakeSkills::new(slow)), model, ..parts() };
    // An agent waits for the equal call of another for the time of six rounds.
    parts.limits.turn.agent_round_ms_max = 1_000;
    let world = parts.start().await;
    let sent = world.say("No rush: send it").await;
    let last = world.final_of(sent.conversation, sent.task).await;
    let log = serde_json::to_string(&world.log(sent.conversation).await).expect("JSON");
    assert_eq!(parts.skills.count("test.send"), 1, "{last:?} {log}");
    assert!(log.contains("This may have happened already"), "the second agent was notified: {log}");
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn agent_goes_on_at_once_if_the_agent_whose_equal_call_it_waits_for_is_stopped() {
    let mut parts = parts();
    parts.skills =
        Arc::new(FakeSkills::new(|_: &_| FakeBehaviour::Slow(Duration::from_secs(3_600), Outcome::success("Sent."))));
    let world = parts.start().await;
    let sent = world.say("send it").await;
    let engine = format!("/conversations/engine:{}", sent.conversation);
    let first = eventually("one agent makes the effect and the other waits", async || {
        let mut is_waiting = [false; 2];
        for (n, agent) in ["one", "two"].iter().enumerate() {
            let (_, view) = world.kernel.view(&format!("{engine}/agent:{agent}")).await.ok()?;
            is_waiting[n] = view?["waits_for_equal_since"].is_string();
        }
        match is_waiting {
            [false, true] => Some("one"),
            [true, false] => Some("two"),
            _ => None,
        }
    })
    .await;
    let stopped_at = world.kernel.now();
    let agent = (first, None);
    let reason = "not needed".to_owned();
    world.kernel.stop_agent(Scope::Operator, sent.conversation, agent, reason, "ann").await.expect("stopped");
    let (made, log) = ended(&world, &parts, &sent).await;
    assert_eq!(made, 1, "{log}");
    assert!(log.contains("This may have happened already"), "{log}");
    let waited_ms = world.kernel.now().since_ms(stopped_at);
    assert!(waited_ms < 60_000, "the other agent waited {waited_ms} ms");
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn agent_that_is_steered_again_and_again_still_ends_at_its_time_limit() {
    let model = |request: &ModelRequest, _| {
        let last = last_text(request);
        if is_sub_agent(request) {
            return Ok(commands(["test.send --what x"]));
        }
        if last.contains("\"agents\"") {
            return Ok(says("All said."));
        }
        let one = json!({"agent_id": "one", "mission": "send it", "skills": ["test.send"], "timeout_s": 1});
        Ok(calls([("dispatch_agent", one), ("get_agent_results", json!({}))]))
    };
    let slow = |_: &_| FakeBehaviour::Slow(Duration::from_secs(300), Outcome::success("Sent."));
    let model = Arc::new(ScriptedModel::new(model));
    let parts = WorldParts { skills: Arc::new(FakeSkills::new(slow)), model, ..parts() };
    let world = parts.start().await;
    let sent = world.say("send it").await;
    eventually("the call runs", async || (parts.skills.count("test.send") == 1).then_some(())).await;
    let began_at = world.kernel.now();
    for n in 0..3 {
        sleep_for_ms(300).await;
        let text = format!("Hurry ({n}).");
        let steered = world.kernel.steer_agent(Scope::Operator, sent.conversation, ("one", None), text, "ann").await;
        assert!(steered.is_ok(), "{steered:?}");
    }
    let (_, log) = ended(&world, &parts, &sent).await;
    assert!(log.contains("Ran out of time after 1 s."), "{log}");
    let ran_ms = world.kernel.now().since_ms(began_at);
    assert!(ran_ms < 1_500, "the agent ended after {ran_ms} ms");
    world.kernel.stop().await;
}
