//! Workflows whose Engine or process dies within a step and between steps: no effect happens twice, and the run finishes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use annie_actors::RunWorkflow;
use annie_core::workflow::WorkflowLimits;
use annie_skillkit::WorkflowFolder;
use annie_testkit::scripted_model::{ScriptedModel, says};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::watch,
    task::JoinSet,
};

use crate::{
    flow::workflows::{end_of, ended, put, start},
    server::{Server, Sse},
    world::{World, WorldParts, ann, check_log, eventually, kill},
};

/// Two effects that must not be repeated, one that may be, two at once, and an agent.
const LONG: &str = "\
name: long
description: All kinds of steps.
steps:
  - {id: first, skill: test.send, args: {what: one}, next: {on: any, to: both}}
  - id: both
    parallel:
      - {id: a, skill: test.put, args: {what: two}}
      - {id: b, skill: test.send, args: {what: three}}
    next: {on: any, to: again}
  - id: again
    loop: {max: 2, steps: [{id: put, skill: test.put, args: {what: same}}]}
  - {id: sum, agent: \"Say that it is done.\"}
  - {id: say, answer: \"the end: {steps.sum.result}\"}
";

fn parts(folder: &tempfile::TempDir) -> WorldParts {
    put(folder.path(), &[LONG]);
    let mut parts = WorldParts::with_model(Arc::new(ScriptedModel::new(|_, _| Ok(says("It is done.")))));
    let files = WorkflowFolder::new(folder.path().join("workflows"), WorkflowLimits::default());
    parts.workflows = Arc::new(files);
    parts
}

async fn begin(world: &World) -> annie_actors::Submitted {
    let asked = RunWorkflow { name: "long".to_owned(), key: Some("k".to_owned()), ..RunWorkflow::default() };
    world.kernel.run_workflow(ann(), asked).await.expect("the run is accepted")
}

async fn undisturbed() -> usize {
    let folder = tempfile::tempdir().expect("a folder");
    let world = parts(&folder).start().await;
    let sent = begin(&world).await;
    assert_eq!(world.answer(&sent).await, "the end: It is done.");
    let events = world.log(sent.conversation).await.len();
    world.kernel.stop().await;
    events
}

/// Asserts that the run has finished and that no intent took effect twice, except one that may be repeated.
async fn finishes(world: &World, parts: &WorldParts, sent: &annie_actors::Submitted, killed_at: usize) {
    // An effect that was cut off is in doubt, and the answer says so.
    let answer = world.answer(sent).await;
    assert!(answer.starts_with("the end: It is done."), "killed at {killed_at}: {answer}");
    check_log(&world.log(sent.conversation).await);
    assert_eq!(parts.skills.most("test.send"), 1, "killed at {killed_at}");
    let effects = parts.skills.effects();
    let count = |skill: &str| effects.values().filter(|(name, _)| name == skill).count();
    assert_eq!(count("test.put"), 3, "killed at {killed_at}: {effects:?}");
    // A run that died right before its effect is in doubt, and is not begun again.
    let sent_count = count("test.send");
    let is_in_doubt = answer.contains("It is not known whether this happened: test.send");
    assert!(sent_count == 2 || (sent_count < 2 && is_in_doubt), "killed at {killed_at}: {answer} {effects:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workflow_whose_engine_is_killed_at_every_event_finishes_and_repeats_no_effect() {
    let events = undisturbed().await;
    assert!(events > 15, "the run has only {events} events");
    for last in 1..events {
        let folder = tempfile::tempdir().expect("a folder");
        let parts = parts(&folder);
        let world = parts.start().await;
        let sent = begin(&world).await;
        eventually("the run is so far", async || (world.log(sent.conversation).await.len() >= last).then_some(()))
            .await;
        kill(&world, &format!("/conversations/engine:{}", sent.conversation)).await;
        finishes(&world, &parts, &sent, last).await;
        world.kernel.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workflow_continues_in_the_next_process_after_a_crash_at_every_event() {
    let events = undisturbed().await;
    for last in 1..events {
        let folder = tempfile::tempdir().expect("a folder");
        let parts = parts(&folder);
        let first = parts.start().await;
        let sent = begin(&first).await;
        eventually("the run is so far", async || (first.log(sent.conversation).await.len() >= last).then_some(()))
            .await;
        first.kernel.crash().await;
        // A changed or removed file does not change a run that has begun.
        if last > 2 {
            std::fs::write(folder.path().join("workflows/long.md"), "broken").expect("written");
        }
        let next = parts.start().await;
        finishes(&next, &parts, &sent, last).await;
        next.kernel.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_sigkilled_between_and_within_steps_finishes_its_workflow_without_a_repeat() {
    let errands = "\
name: errands
description: Three to-dos.
steps:
  - {id: a, skill: tasks.create, args: {title: apple}}
  - id: p
    parallel:
      - {id: b, skill: tasks.create, args: {title: banana}}
      - {id: c, skill: tasks.create, args: {title: cherry}}
  - {id: say, answer: \"all are there\"}
";
    for last in 1..12 {
        let folder = tempfile::tempdir().expect("a folder");
        put(folder.path(), &[errands]);
        let mut first = Server::start(folder.path(), &[], &[]).await;
        let (task, conversation) = start(&first, "errands", json!({})).await;
        first.stream(&conversation, 0, |seen| seen.len() >= last || seen.last().is_some_and(Sse::is_final)).await;
        first.kill();
        let second = Server::start(folder.path(), &[], &[]).await;
        let shown = ended(&second, &task).await;
        assert_eq!(shown["status"], "completed", "killed at {last}: {shown}");
        assert_eq!(end_of(&second, &conversation).await["text"], "all are there", "killed at {last}");
        let body = json!({"command": "tasks.search --status open", "key": "k"});
        let (_, open) = second.post("/api/v1/run", &body).await.expect("an answer");
        for title in ["apple", "banana", "cherry"] {
            assert_eq!(open["text"].to_string().matches(title).count(), 1, "killed at {last}: {open}");
        }
    }
}

/// A site that counts requests and never answers.
async fn silent_site() -> (String, watch::Receiver<usize>, JoinSet<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let (seen, requests) = watch::channel(0);
    let mut serving = JoinSet::new();
    let count = Arc::new(AtomicUsize::new(0));
    serving.spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 1];
            // A connection without a request does not count.
            if stream.read_exact(&mut head).await.is_ok() {
                let _ = seen.send(count.fetch_add(1, SeqCst) + 1);
            }
            let _ = stream.flush().await;
            open.push(stream);
        }
    });
    (address, requests, serving)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn step_in_doubt_after_a_sigkill_is_not_repeated_and_is_routed_as_unknown() {
    let (address, mut requests, _serving) = silent_site().await;
    let folder = tempfile::tempdir().expect("a folder");
    let order = format!(
        "---\nname: shop.order\ndescription: Orders.\nexternal: true\neffect: once\nrequest:\n  method: POST\n  url: \
         http://{address}/orders\n---\nx\n"
    );
    std::fs::create_dir_all(folder.path().join("skills/shop")).expect("made");
    std::fs::write(folder.path().join("skills/shop/order.md"), order).expect("written");
    let buy = "\
name: buy
description: Orders once.
steps:
  - id: order
    skill: shop.order
    next: [{on: unknown, to: doubt}]
  - {id: say, answer: \"ordered\"}
  - {id: doubt, answer: \"the order is {steps.order.status}\"}
";
    put(folder.path(), &[buy]);
    let config = folder.path().join("annie.toml");
    std::fs::write(&config, format!("[egress]\nenabled = true\nallow_private = [\"{address}\"]\n")).expect("written");
    let arguments = ["--config", config.to_str().expect("a path")];
    let mut first = Server::start(folder.path(), &arguments, &[]).await;
    let (task, conversation) = start(&first, "buy", json!({})).await;
    requests.wait_for(|count| *count == 1).await.expect("the request arrives");
    first.kill();
    let second = Server::start(folder.path(), &arguments, &[]).await;
    let shown = ended(&second, &task).await;
    assert_eq!(shown["steps"][0]["outcome"], "unknown", "{shown}");
    let end = end_of(&second, &conversation).await;
    assert!(end["text"].as_str().is_some_and(|text| text.starts_with("the order is unknown")), "{end}");
    assert_eq!(*requests.borrow(), 1, "the order was sent once");
}
