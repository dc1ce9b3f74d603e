//! Models that repeat themselves, against the real binary: the loop guard stops them, tells every front end, and leaves honest
//! work alone.

use annie::grpc::v1::{FollowEventsRequest, events_client::EventsClient, stream_item::Item};
use annie_testkit::model_server::{FakeModelServer, Reply, Seen};
use serde_json::{Value, json};

use super::{
    bad_models::{ask, server_with},
    command_line::annie,
    egress::{Site, refusal},
};
use crate::server::Server;

/// The number of results that the model has been shown since the last message of the user.
fn results(seen: &Seen) -> usize {
    let messages = seen.messages();
    messages.iter().rev().take_while(|message| message["role"] != "user").filter(|m| m["role"] == "tool").count()
}

fn fetch(url: &str) -> Reply {
    Reply::calls([("use_skill", json!({"skill": "web.fetch", "arguments": {"url": url}}))])
}

fn read(name: &str) -> Reply {
    Reply::calls([("use_skill", json!({"skill": "notes.read", "arguments": {"title": name}}))])
}

fn settings(site: &Site, more: &str) -> String {
    format!(
        "mode = \"single_loop\"\n{more}[turn]\nsingle_loop_calls_max = 40\n[egress]\nenabled = true\nallow_private = [\"{}\"]\n",
        site.address
    )
}

/// A site that refuses every page.
async fn closed_site() -> Site {
    Site::start(|_| refusal(403)).await
}

async fn log(server: &Server, sent: &Value) -> Vec<Value> {
    let conversation = sent["conversation_id"].as_str().expect("a conversation");
    let (_, log) = server.get(&format!("/api/v1/conversations/{conversation}/events?limit=500")).await;
    log["events"].as_array().expect("events").clone()
}

fn loops(log: &[Value]) -> Vec<&Value> {
    log.iter().filter(|event| event["kind"] == "loop_detected").collect()
}

async fn metrics(server: &Server) -> String {
    let reply = server.http.get(format!("{}/metrics", server.url)).send().await.expect("the server answers");
    reply.text().await.expect("metrics")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_that_alternates_two_failing_skills_is_stopped_with_a_report() {
    let site = closed_site().await;
    let url = site.url("/watch");
    let model =
        FakeModelServer::start(move |seen| if results(seen).is_multiple_of(2) { fetch(&url) } else { read("gone") })
            .await;
    let (_folder, server) = server_with(&model, &settings(&site, "")).await;
    let sent = ask(&server, "Summarise that video").await;
    let answer = sent["answer"].as_str().unwrap_or_default();
    assert!(answer.starts_with("I had to stop"), "{sent}");
    assert!(answer.contains("web.fetch") && answer.contains("403"), "the report says what failed: {answer}");
    let log = log(&server, &sent).await;
    let loops = loops(&log);
    let last = loops.last().expect("the loop is an event");
    assert_eq!((&last["level"], &last["ends_run"]), (&json!("critical"), &json!(true)), "{last}");
    assert!(model.request_count() <= 9, "{} rounds", model.request_count());
    assert!(metrics(&server).await.contains("annie_loops_detected_total{"), "it is counted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_that_changes_one_character_per_call_is_stopped_in_view_of_every_front_end() {
    let site = closed_site().await;
    let url = site.url("/watch");
    let model = FakeModelServer::start(move |seen| fetch(&format!("{url}{}", "x".repeat(results(seen))))).await;
    let (folder, server) = server_with(&model, &settings(&site, "")).await;
    let sent = ask(&server, "Summarise that video").await;
    assert!(sent["answer"].as_str().unwrap_or_default().starts_with("I had to stop"), "{sent}");
    assert!(site.heads().len() <= 8, "{} requests", site.heads().len());
    let conversation = sent["conversation_id"].as_str().expect("an id").to_owned();

    let stream = server.stream(&conversation, 0, |seen| seen.iter().any(|s| s.is_final())).await;
    let events: Vec<&str> = stream.iter().map(|seen| seen.event.as_str()).collect();
    assert!(events.contains(&"loop_detected"), "server-sent events: {events:?}");

    let mut events = EventsClient::connect(server.url.clone()).await.expect("gRPC answers");
    let wanted = FollowEventsRequest { conversation_id: conversation, after_seq: 0 };
    let mut stream = events.follow(wanted).await.expect("a stream").into_inner();
    loop {
        let item = stream.message().await.expect("the stream goes on").expect("the event comes before its end");
        if matches!(item.item, Some(Item::Event(event)) if event.kind == "loop_detected") {
            break;
        }
    }
    let (_, _, watched) = annie(folder.path(), &["ask", "Summarise it again"], &[]).await;
    assert!(watched.contains("loop detected (near_identical, "), "the command line: {watched}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_guard_thresholds_preset_and_switch_act() {
    let site = closed_site().await;
    let hits = async |more: &str| {
        let (url, before) = (site.url("/watch"), site.heads().len());
        let model = FakeModelServer::start(move |seen| match results(seen) {
            12.. => Reply::says("I give up."),
            n => fetch(&format!("{url}{}", "x".repeat(n))),
        })
        .await;
        let (_folder, server) = server_with(&model, &settings(&site, more)).await;
        ask(&server, "Summarise that video").await;
        site.heads().len() - before
    };
    let usual = hits("").await;
    let early = hits("[loop_guard]\nnear_warning_calls = 1\nnear_critical_calls = 2\n").await;
    assert!(early < usual, "{early} requests and not {usual}");
    let patient = hits("[loop_guard]\npreset = \"openclaw\"\n").await;
    assert!(patient > usual, "{patient} requests and not {usual}");
    let off = hits("[loop_guard.detectors]\nnear_identical = false\n").await;
    assert!(off > usual, "{off} requests and not {usual}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_guard_remembers_failures_in_the_next_turn_and_after_a_restart() {
    let site = closed_site().await;
    let url = site.url("/watch");
    let model = FakeModelServer::start(move |seen| match results(seen) {
        0..4 => fetch(&format!("{url}{}", "x".repeat(results(seen)))),
        _ => Reply::says("I could not read it."),
    })
    .await;
    let (folder, mut server) = server_with(&model, &settings(&site, "")).await;
    let first = ask(&server, "Summarise that video").await;
    let before = loops(&log(&server, &first).await).len();
    server.kill();
    let config = folder.path().join("annie.toml");
    let server = server.again(folder.path(), &["--config", config.to_str().expect("a path")], &[]).await;
    let second = ask(&server, "Try again").await;
    let log = log(&server, &second).await;
    let detected = loops(&log);
    assert!(detected.len() > before, "the failures of the first turn count: {detected:?}");
    assert_eq!(detected[before]["level"], "warning", "the first call of a turn is not refused: {detected:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pass_over_fifteen_notes_is_not_disturbed() {
    let site = closed_site().await;
    // Five calls in each reply, so that the test has few rounds.
    let call = |skill: &str, arguments: Value| ("use_skill", json!({"skill": skill, "arguments": arguments}));
    let model = FakeModelServer::start(move |seen| match results(seen) {
        n @ 0..15 => Reply::calls((n + 1..n + 6).map(|n| {
            call("notes.create", json!({"title": format!("file-{n}"), "content": format!("Text of file {n}")}))
        })),
        n @ 15..30 => Reply::calls((n - 14..n - 9).map(|n| call("notes.read", json!({"title": format!("file-{n}")})))),
        _ => Reply::says("I have read all of them."),
    })
    .await;
    let (_folder, server) = server_with(&model, &settings(&site, "")).await;
    let sent = ask(&server, "Create a note for each of the fifteen files, and read them").await;
    assert_eq!(sent["answer"], "I have read all of them.", "{sent}");
    let log = log(&server, &sent).await;
    assert_eq!(loops(&log), Vec::<&Value>::new());
    let ok = log.iter().filter(|event| event["kind"] == "skill_finished" && event["outcome"]["status"] == "success");
    assert_eq!(ok.count(), 30, "every call ran");
}
