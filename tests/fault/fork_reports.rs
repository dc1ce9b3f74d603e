//! The worker that reports forked tasks, and its process, die at each step of a report. The conversation gets the report exactly
//! once, also if two processes send it, or if the process is killed between the answer of the forked task and the report.

use std::sync::Arc;

use annie::grpc::{
    chaos::to_wire,
    v1::{self, chaos_client::ChaosClient},
};
use annie_core::{
    event::{Event, EventBody},
    faults::{FaultKind, FaultSpec, Target},
    fork_report::FORK_REPORT,
    ids::ConversationId,
    ports::{Env, FaultAction},
};
use annie_store::MemoryStore;
use annie_testkit::{env::SeededEntropy, faults::FaultPlan, scripted_model::says};
use serde_json::json;
use tonic::transport::Channel;

use crate::{
    flow::{
        fork_reports::{reports, server_of_forks},
        schedules::Nothing,
    },
    world::{World, WorldParts, ann, check_log, eventually, node, sleep_for_ms},
};

/// The named steps of a report.
const STEPS: [&str; 2] = ["read", "stored"];
const HEAD: &str = "\"/code-review the door\" has finished in the background:\n\nTwo findings.";

fn parts() -> WorldParts {
    let mut parts = WorldParts::new(|_, _| Ok(says("Two findings.")));
    // With a source of skills the bundled prompt skills are there, of which code-review is a fork.
    parts.sources.push(Arc::new(Nothing));
    parts.limits.notify.gather_ms = 1;
    parts.limits.notify.every_ms = 0;
    parts
}

async fn review(world: &World) -> ConversationId {
    let sent = world.say("/code-review the door").await;
    let answer = world.answer(&sent).await;
    assert!(answer.starts_with("code-review is spawned"), "{answer}");
    sent.conversation
}

fn sent_in(log: &[Event]) -> usize {
    let is_report = |event: &&Event| matches!(&event.body, EventBody::Received(sent) if sent.source == FORK_REPORT);
    log.iter().filter(is_report).count()
}

/// Waits until nothing is to be delivered any more, and checks that the conversation has one report and its user one notification.
async fn reported_once(world: &World, conversation: ConversationId, context: &str) {
    eventually(&format!("the report is answered: {context}"), async || {
        let log = world.log(conversation).await;
        log.iter().any(|e| matches!(&e.body, EventBody::Answered { text, .. } if text == HEAD)).then_some(())
    })
    .await;
    eventually(&format!("the outbox is empty: {context}"), async || {
        world.kernel.store().outbox(10).await.ok()?.is_empty().then_some(())
    })
    .await;
    let log = world.log(conversation).await;
    assert_eq!(sent_in(&log), 1, "{context}: {log:#?}");
    check_log(&log);
    let all = world.kernel.notifications(&ann(), 0, 100).await.expect("readable");
    let about: Vec<&str> =
        all.iter().map(|one| one.text.as_str()).filter(|text| text.contains("Two findings")).collect();
    // A client that still follows the conversation has received the report, so its user is not notified.
    let wanted = ["I finished \"/code-review the door\": Two findings."];
    assert!(about.is_empty() || about == wanted, "{context}: {about:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fork_report_worker_that_dies_at_any_step_reports_once() {
    let at_steps = STEPS
        .iter()
        .flat_map(|step| [FaultAction::Panic, FaultAction::Fail].map(|action| ("fork_report", *step, action)));
    let in_messages = ["before:New", "after:New", "before:PassEnded", "after:PassEnded"]
        .into_iter()
        .flat_map(|point| [FaultAction::Panic, FaultAction::Kill].map(|action| ("channel", point, action)));
    for (kind, point, action) in at_steps.chain(in_messages) {
        let context = format!("{action:?} in {kind} at {point}");
        let plan = Arc::new(FaultPlan::once_at(kind, point, 0, action));
        let world = parts().faults(plan.clone()).start().await;
        let conversation = review(&world).await;
        reported_once(&world, conversation, &context).await;
        eventually(&format!("injected: {context}"), async || (!plan.injected().is_empty()).then_some(())).await;
        world.kernel.stop().await;
    }
}

#[tokio::test]
async fn process_that_dies_at_any_step_of_a_fork_report_reports_once() {
    for step in STEPS {
        let plan = Arc::new(FaultPlan::by(move |kind, at, _| match (kind, at) {
            ("fork_report", at) if at == step => FaultAction::Fail,
            _ => FaultAction::Pass,
        }));
        let mut parts = parts().faults(plan.clone());
        let world = parts.start().await;
        let conversation = review(&world).await;
        eventually("the step is reached", async || (!plan.injected().is_empty()).then_some(())).await;
        world.kernel.crash().await;
        parts.env.faults = None;
        let world = parts.start().await;
        reported_once(&world, conversation, step).await;
        world.kernel.stop().await;
    }
}

#[tokio::test]
async fn fork_report_of_two_processes_is_stored_once() {
    let (mut first, mut second) = (parts(), parts());
    let store = MemoryStore::new();
    second.env = Env { entropy: Arc::new(SeededEntropy::new(8)), ..first.env.clone() };
    second.node = node(8);
    for parts in [&mut first, &mut second] {
        parts.store = Arc::new(store.with_wakes(Arc::new(|| Box::pin(sleep_for_ms(50)))));
    }
    let worlds: [World; 2] = [first.start().await, second.start().await];
    let conversation = review(&worlds[0]).await;
    // Every final text makes the worker of its process read the outbox.
    let other = worlds[1].say("hello").await;
    worlds[1].answer(&other).await;
    for world in &worlds {
        reported_once(world, conversation, "two processes").await;
    }
    for world in worlds {
        world.kernel.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fork_report_survives_a_sigkill_between_the_answer_of_the_fork_and_the_report() {
    for step in STEPS {
        let (folder, mut server, _model) = server_of_forks("[chaos]\nenabled = true\n").await;
        // The worker stands still at this step until the process is killed.
        let mut chaos = ChaosClient::connect(server.url.clone()).await.expect("the server answers");
        let fault =
            FaultSpec { wait_ms: 60_000, ..FaultSpec::new(Target::Task, FaultKind::Slow).at(FORK_REPORT, step) };
        chaos.inject(v1::InjectRequest { spec: Some(to_wire(fault)) }).await.expect("injected");
        let body = json!({"text": "/audit", "conversation_key": "k"});
        let (_, sent) = server.post("/api/v1/messages?wait=20", &body).await.expect("the server answers");
        let conversation = sent["conversation_id"].as_str().expect("an id").to_owned();
        stands(&mut chaos, step).await;
        server.kill();
        let config = folder.path().join("annie.toml").to_string_lossy().into_owned();
        let server = server.again(folder.path(), &["--config", &config], &[]).await;
        let found =
            reports(&server, &conversation, "\"/audit\" has finished in the background:\n\nTwo findings.").await;
        assert_eq!(found.len(), 1, "{step}: {found:?}");
        eventually("the delivery is counted", async || {
            let metrics = server.http.get(format!("{}/metrics", server.url)).send().await.ok()?.text().await.ok()?;
            metrics.contains("annie_deliveries_total{channel=\"fork-report\",end=\"delivered\"} 1").then_some(())
        })
        .await;
        let found = reports(&server, &conversation, "\"/audit\" has finished").await;
        assert_eq!(found.len(), 1, "{step}: {found:?}");
    }
}

/// Waits until the fault is injected.
async fn stands(chaos: &mut ChaosClient<Channel>, step: &str) {
    eventually(&format!("the report stands still: {step}"), async || {
        let list = chaos.list_faults(v1::ListFaultsRequest {}).await.ok()?.into_inner();
        list.faults.iter().any(|fault| fault.injected > 0).then_some(())
    })
    .await;
}
