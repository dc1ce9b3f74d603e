//! What a careless model does and says, through the HTTP front end: flags with a colon, promises that Annie does not
//! keep, replies that were truncated.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::json;

use super::bad_models::{ask, server_with};
use crate::world::eventually;

const BY_COMMANDS: &str = "[turn]\nmain_interface = \"cmd\"";

fn cmd(command: &str) -> Reply {
    Reply::says(format!("```cmd\n{command}\n```"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_flag_with_a_colon_is_a_flag_and_a_title_with_a_colon_is_a_title() {
    let model = FakeModelServer::queue([
        cmd("tasks.create title: \"Buy milk\" priority: high"),
        cmd("tasks.create Buy: bread"),
        cmd("tasks.create titel: \"Buy eggs\""),
        cmd("tasks.create --title \"Buy eggs\""),
        cmd("tasks.search"),
        Reply::says("These are your tasks."),
    ])
    .await;
    let (_folder, server) = server_with(&model, BY_COMMANDS).await;
    ask(&server, "add milk, bread and eggs to my tasks").await;
    let requests = model.requests();
    let shown = |n: usize| requests[n].messages().last().cloned().unwrap_or_default()["content"].to_string();
    assert!(shown(1).contains("Created task #1 Buy milk") && shown(1).contains("priority high"), "{}", shown(1));
    assert!(shown(2).contains("Created task #2 Buy: bread"), "{}", shown(2));
    assert!(
        shown(3).contains("Did you mean --title?") && shown(3).contains("```cmd\\ntasks.create --title"),
        "{}",
        shown(3)
    );
    assert!(shown(4).contains("Created task #3 Buy eggs"), "{}", shown(4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_that_promises_a_reminder_is_corrected_and_a_title_about_reminding_is_not() {
    let create =
        |title: &str| Reply::calls([("use_skill", json!({"skill": "tasks.create", "arguments": {"title": title}}))]);
    let model = FakeModelServer::queue([
        create("Buy milk"),
        Reply::says("I created the task. I will remind you on Friday!"),
        create("remind Bob"),
        Reply::says("The task 'remind Bob' was created."),
        create("Brot kaufen"),
        Reply::says("Die Aufgabe ist angelegt. Ich werde dich am Freitag daran erinnern."),
    ])
    .await;
    // The words of the model are checked, so they must not be replaced by the text of the skill.
    let config = "mode = \"single_loop\"\n[turn]\nready_answers = false\n";
    let (_folder, server) = server_with(&model, config).await;
    let sent = ask(&server, "remind me to buy milk").await;
    let answer = sent["answer"].as_str().unwrap_or_default();
    assert!(answer.contains("(No reminder is set:"), "{sent}");
    let sent = ask(&server, "a task: remind Bob").await;
    assert_eq!(sent["answer"], "The task 'remind Bob' was created.", "{sent}");
    let sent = ask(&server, "Erinnere mich ans Brot").await;
    let answer = sent["answer"].as_str().unwrap_or_default();
    assert!(answer.contains("(Es ist keine Erinnerung gestellt:"), "{sent}");
}

/// The output limit of each request.
fn limits(model: &FakeModelServer) -> Vec<u64> {
    let limit = |body: &serde_json::Value| body["max_tokens"].as_u64().or(body["max_completion_tokens"].as_u64());
    model.requests().iter().map(|seen| limit(&seen.json()).unwrap_or_default()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reply_truncated_without_usable_content_is_requested_again_with_twice_the_output_limit() {
    let cut = "{\"name\": \"tasks.create\", \"arguments\": {\"title\": \"Buy";
    for unusable in [Reply::says("").reasoning("SECRET plan"), Reply::says(cut), Reply::calls_raw("use_skill", cut)] {
        let model = FakeModelServer::queue([unusable.finish("length"), Reply::says("Hello Ann!")]).await;
        let (_folder, server) = server_with(&model, "mode = \"single_loop\"").await;
        let sent = ask(&server, "hello").await;
        assert_eq!((&sent["answer"], model.request_count()), (&json!("Hello Ann!"), 2), "{sent}");
        let limits = limits(&model);
        assert!(limits[0] > 0 && limits[1] == 2 * limits[0], "{limits:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_limit_that_was_doubled_and_refused_is_reverted() {
    let refused =
        Reply::error(400, "max_tokens is too large: 4000. This model supports at most 2048 completion tokens");
    let model = FakeModelServer::queue([
        Reply::says("").reasoning("SECRET plan").finish("length"),
        refused,
        Reply::says("Hello Ann!"),
    ])
    .await;
    let (_folder, server) = server_with(&model, "mode = \"single_loop\"").await;
    let sent = ask(&server, "hello").await;
    assert_eq!(sent["answer"], "Hello Ann!", "{sent}");
    let limits = limits(&model);
    assert_eq!(limits.len(), 3, "{limits:?}");
    assert_eq!((limits[1], limits[2]), (2 * limits[0], limits[0]), "{limits:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deferred_task_shows_its_model_failure_and_resumes_when_the_model_answers() {
    let is_well = Arc::new(AtomicBool::new(false));
    let answers = is_well.clone();
    let model = FakeModelServer::start(move |_| {
        if answers.load(Ordering::SeqCst) { Reply::says("Here I am.") } else { Reply::error(500, "out of order") }
    })
    .await;
    let (_folder, server) = server_with(&model, "").await;
    let body = json!({"text": "look it up", "conversation_key": "job", "priority": "normal"});
    let (_, sent) = server.post("/api/v1/messages", &body).await.expect("the server answers");
    let task = sent["task_id"].as_str().expect("a task").to_owned();
    let why = eventually("the queue gives the reason for the wait", async || {
        let (_, queue) = server.get("/api/v1/queue").await;
        let waiting = queue["waiting"].as_array().cloned().unwrap_or_default();
        let own = waiting.into_iter().find(|waiting| waiting["task_id"] == task.as_str())?;
        own["why"].as_str().filter(|why| why.contains("model failed")).map(str::to_owned)
    })
    .await;
    assert!(why.contains("tried again when the model answers, or at 20"), "{why}");
    is_well.store(true, Ordering::SeqCst);
    let sent = ask(&server, "are you there?").await;
    assert_eq!(sent["answer"], "Here I am.", "{sent}");
    let row = eventually("the task is answered", async || {
        let (_, row) = server.get(&format!("/api/v1/tasks/{task}")).await;
        (row["status"] == "completed").then_some(row)
    })
    .await;
    // Without the answer it would continue too, when its wait is over.
    let conversation = row["conversation_id"].as_str().expect("a conversation");
    let (_, page) = server.get(&format!("/api/v1/conversations/{conversation}/events")).await;
    let events = page["events"].as_array().expect("events");
    let is_continued = |event: &serde_json::Value| event["kind"] == "continued" && event["by"] == "model";
    assert!(events.iter().any(is_continued), "{page}");
}
