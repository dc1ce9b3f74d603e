//! Equal effects: two agents of one turn ask for the same call at the same moment. Whatever dies meanwhile, it is made once.

use std::{sync::Arc, time::Duration};

use annie_actors::Submitted;
use annie_core::{event::EventBody, message::ModelRequest, outcome::Outcome, ports::FaultAction};
use annie_testkit::{
    faults::FaultPlan,
    scripted_model::{calls, commands, says},
    skills::{Deed, FakeSkills},
};
use serde_json::json;

use crate::{
    flow::kernel::{is_sub_agent, last_text},
    world::{World, WorldParts, check_log, eventually, kill},
};

/// Two agents side by side, each of which sends the same mail.
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
    // Long enough for the other agent to ask meanwhile.
    let slow = |_: &_| Deed::Slow(Duration::from_secs(2), Outcome::success("Sent mail #1."));
    parts.skills = Arc::new(FakeSkills::new(slow));
    // The time of these tests stands still while nothing happens, and then jumps.
    parts.limits.stuck_ms_max = 1_000_000;
    parts
}

/// The effects that were made, and the whole log as text.
async fn ended(world: &World, parts: &WorldParts, said: &Submitted) -> (u32, String) {
    let last = world.final_of(said.conversation, said.task).await;
    assert!(matches!(last, EventBody::Answered { .. }), "{last:?}");
    let log = world.log(said.conversation).await;
    check_log(&log);
    (parts.skills.count("test.send"), serde_json::to_string(&log).expect("JSON"))
}

#[tokio::test(start_paused = true)]
async fn equal_effect_of_two_agents_at_once_is_made_once_and_both_report_it() {
    let parts = parts();
    let world = parts.start().await;
    let said = world.say("send it").await;
    let (made, log) = ended(&world, &parts, &said).await;
    assert_eq!(made, 1, "{log}");
    assert!(log.contains("[done already] Sent mail #1."), "{log}");
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn equal_effect_is_made_once_though_an_agent_or_the_engine_is_killed_in_it() {
    for dies in ["/agent:one", "/agent:two", ""] {
        let parts = parts();
        let world = parts.start().await;
        let said = world.say("send it").await;
        eventually("the effect is made", async || (parts.skills.count("test.send") > 0).then_some(())).await;
        kill(&world, &format!("/conversations/engine:{}{dies}", said.conversation)).await;
        let (made, log) = ended(&world, &parts, &said).await;
        assert_eq!(made, 1, "killed {dies:?}: {log}");
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn equal_effect_is_made_at_most_once_though_an_agent_dies_behind_any_of_its_appends() {
    for nth in 0..3 {
        let plan = Arc::new(FaultPlan::once_at("sub_agent", "stored", nth, FaultAction::Panic));
        let parts = parts().faults(plan.clone());
        let world = parts.start().await;
        let said = world.say("send it").await;
        let (made, log) = ended(&world, &parts, &said).await;
        assert_eq!(plan.struck().len(), 1, "death {nth} happens");
        let is_made = log.contains("Sent mail #1.");
        assert!(made <= 1 && (made == 1 || !is_made), "death {nth}: {log}");
        world.kernel.stop().await;
    }
}
