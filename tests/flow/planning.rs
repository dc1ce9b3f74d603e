//! Plan first, then act: the plan of a model is an event, and neither answers nor drafts contain it.

use annie_testkit::model_server::{FakeModelServer, Reply, Seen};
use serde_json::{Value, json};

use super::{
    bad_models::{ask, server_with},
    command_line::annie,
};
use crate::server::Server;

const PLANNED: &str = "mode = \"single_loop\"\n[turn]\nplanning = \"plan_react\"\n";
const ASKED: &str = "Add a task to call the bank and tell me what else is open";

fn has_prefix(seen: &Seen) -> bool {
    seen.texts_of("system").join("\n").contains("write a numbered plan")
}

fn create() -> (&'static str, Value) {
    ("use_skill", json!({"skill": "tasks.create", "arguments": {"title": "Call the bank"}}))
}

/// A model that plans, calls, changes its plan, and answers.
async fn planner() -> FakeModelServer {
    FakeModelServer::start(|seen| match seen.messages().last() {
        Some(last) if last["role"] == "tool" => Reply::says(
            "/*REASONING*/ It is there.\n/*REPLANNING*/\n1. Answer at once\n/*FINAL_ANSWER*/\nThe task to call the bank is there.",
        ),
        _ => Reply::says_and_calls(
            "/*PLANNING*/\n1. Create the task\n2. Look for open tasks\n/*ACTION*/ tasks.create",
            [create()],
        ),
    })
    .await
}

async fn plans(server: &Server, sent: &Value) -> Vec<Value> {
    let conversation = sent["conversation_id"].as_str().expect("a conversation");
    let (_, log) = server.get(&format!("/api/v1/conversations/{conversation}/events?limit=500")).await;
    let events = log["events"].as_array().expect("events").iter();
    events.filter(|event| event["component"] == "plan").map(|event| event["alternatives"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_is_an_event_and_not_in_the_answer() {
    let model = planner().await;
    let (folder, server) = server_with(&model, PLANNED).await;
    let sent = ask(&server, ASKED).await;
    assert_eq!(sent["answer"], "The task to call the bank is there.", "{sent}");
    assert!(model.requests().iter().all(has_prefix));
    let wanted = [json!(["Create the task", "Look for open tasks"]), json!(["Answer at once"])];
    assert_eq!(plans(&server, &sent).await, wanted);
    let (_, messages) = server
        .get(&format!("/api/v1/conversations/{}/messages", sent["conversation_id"].as_str().expect("an id")))
        .await;
    assert!(!messages.to_string().contains("PLANNING"), "{messages}");
    // The command line shows drafts on stdout, and the plan beside them.
    let (code, out, err) = annie(folder.path(), &["ask", ASKED], &[]).await;
    assert_eq!(code, 0, "{out}{err}");
    assert!(!format!("{out}{err}").contains("/*"), "{out}{err}");
    assert!(out.contains("The task to call the bank is there.") && !out.contains("It is there."), "{out}");
    assert!(err.contains("1. Create the task"), "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turn_without_planning_has_no_prefix_and_keeps_its_text() {
    let model = FakeModelServer::start(|_| Reply::says("A comment is /*ACTION*/ here.")).await;
    let (_folder, server) = server_with(&model, "mode = \"single_loop\"\n").await;
    let sent = ask(&server, ASKED).await;
    assert_eq!(sent["answer"], "A comment is /*ACTION*/ here.", "{sent}");
    assert!(!model.requests().iter().any(has_prefix));
    assert_eq!(plans(&server, &sent).await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_plan_shows_no_marks_and_loses_no_answer() {
    for (reply, answer, rounds) in [
        ("/* planning */\n1. look\n/*Final Answer*/ It is four.", "It is four.", 1),
        ("/*PLANNING\n1. look\n/*REASONING*/ It is four.", "It is four.", 1),
        ("It is four.", "It is four.", 1),
        // The model is told once to carry out its plan. What it wrote is the answer at last.
        ("/*PLANNING*/\n1. look it up\n2. say it", "1. look it up\n2. say it", 2),
    ] {
        let model = FakeModelServer::start(move |_| Reply::says(reply)).await;
        let (_folder, server) = server_with(&model, PLANNED).await;
        let sent = ask(&server, "What is two and two, and why?").await;
        assert_eq!((&sent["answer"], model.request_count()), (&json!(answer), rounds), "{reply:?}: {sent}");
    }
}
