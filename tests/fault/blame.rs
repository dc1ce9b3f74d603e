//! When an Engine dies, the blame falls on the turn that it was working on and on no other turn.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use annie_actors::Submission;
use annie_core::{
    event::{EventBody, Priority, ReportStatus},
    message::Message,
    ports::FaultAction,
};
use annie_testkit::{
    env::TestClock,
    faults::FaultPlan,
    scripted_model::{ScriptedModel, calls, commands, says},
};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::world::{WorldParts, ann, check_log, eventually, kill};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engine_crash_in_one_turn_does_not_fail_the_other_turn() {
    let reply_is_next = AtomicBool::new(false);
    let plan = FaultPlan::by(move |kind, point, _| {
        if (kind, point) == ("engine", "before:ModelReplied") {
            reply_is_next.store(true, Relaxed);
        }
        let is_in_it = (kind, point) == ("engine", "deciding") && reply_is_next.swap(false, Relaxed);
        if is_in_it { FaultAction::Panic } else { FaultAction::Pass }
    });
    let plan = Arc::new(plan);
    plan.disarm();
    let gate = Arc::new(Semaphore::new(0));
    let is_long = |request: &annie_core::message::ModelRequest| matches!(request.messages.last(), Some(Message::User { text, .. }) if text.contains("the long one"));
    let is_let = gate.clone();
    let model = ScriptedModel::new(|_, _| Ok(says("done")))
        .hanging_when(move |request, _| is_long(request) && is_let.available_permits() == 0);
    let parts = WorldParts::with_model(Arc::new(model)).faults(plan.clone());
    let world = parts.start().await;
    let mut message = Submission::new(ann(), "test", "the long one");
    message.priority = Some(Priority::Normal);
    let long = world.kernel.submit(message).await.expect("accepted");
    eventually("the long turn has started", async || {
        world.kinds(long.conversation).await.iter().any(|k| k.ends_with("turn_started")).then_some(())
    })
    .await;
    plan.arm();
    let mut message = Submission::new(ann(), "test", "the deadly one").within(long.conversation);
    message.priority = Some(Priority::High);
    let deadly = world.kernel.submit(message).await.expect("accepted");
    let last = world.final_of(deadly.conversation, deadly.task).await;
    assert!(matches!(&last, EventBody::Failed { code, .. } if code == "engine_crashed"), "{last:?}");
    plan.disarm();
    // The round of the long turn was restarted in each incarnation. The next attempt ends.
    gate.add_permits(1);
    kill(&world, &format!("/conversations/engine:{}", long.conversation)).await;
    let last = world.final_of(long.conversation, long.task).await;
    assert!(matches!(last, EventBody::Answered { .. }), "{last:?}\n{:#?}", world.kinds(long.conversation).await);
    check_log(&world.log(long.conversation).await);
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_report_after_a_kill_has_its_run_time_and_call_count() {
    const RAN_MS: i64 = 1_500;
    let is_result = |text: &str| text.contains("<result");
    let last = |request: &annie_core::message::ModelRequest| match request.messages.last() {
        Some(Message::User { text, .. } | Message::Tool { text, .. }) => text.clone(),
        _ => String::new(),
    };
    let is_agent_with_result =
        move |request: &annie_core::message::ModelRequest| request.tools.is_empty() && is_result(&last(request));
    let model = ScriptedModel::new(move |request, _| {
        Ok(match request.tools.is_empty() {
            true => commands(["test.put --what x"]),
            false if last(request).contains("\"agents\"") => says("It crashed."),
            false => calls([
                ("dispatch_agent", json!({"agent_id": "doer", "mission": "do it", "skills": ["test.put"]})),
                ("get_agent_results", json!({})),
            ]),
        })
    })
    .hanging_when(move |request, _| is_agent_with_result(request));
    let mut parts = WorldParts::with_model(Arc::new(model));
    let clock = Arc::new(TestClock::new());
    parts.env.clock = clock.clone();
    let world = parts.start().await;
    let sent = world.say("have it done").await;
    eventually("the agent has run its skill", async || {
        world.kinds(sent.conversation).await.contains(&"doer skill_finished".to_owned()).then_some(())
    })
    .await;
    clock.set_by_ms(RAN_MS);
    kill(&world, &format!("/conversations/engine:{}/agent:doer", sent.conversation)).await;
    world.answer(&sent).await;
    let log = world.log(sent.conversation).await;
    let report = log.iter().find_map(|event| {
        let EventBody::AgentReported { report } = &event.body else { return None };
        Some(report)
    });
    let report = report.expect("the agent's report");
    assert_eq!((report.status, report.tool_calls_used), (ReportStatus::Crashed, 1), "{report:?}");
    assert!(report.duration_ms >= RAN_MS as u64, "{report:?}");
    world.kernel.stop().await;
}
