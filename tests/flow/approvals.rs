//! Calls of skills that wait for a person, decided over HTTP, gRPC and the command line, and by a message.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use annie::grpc::v1::{ApproveRequest, DenyRequest, ListApprovalsRequest, approvals_client::ApprovalsClient};
use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::{Value, json};

use super::bad_models::server_with;
use crate::{server::Server, world::eventually};

const ASK: &str =
    "mode = \"single_loop\"\n[approval]\nrules = [{ mode = \"ask\", when = { skills = [\"tasks.create\"] } }]\n";

/// A model that creates the task that its user names, once for each `and`, and then says what became of it.
async fn creator() -> FakeModelServer {
    FakeModelServer::start(|seen| {
        let last = seen.messages().last().cloned().unwrap_or_default();
        let text = last["content"].as_str().unwrap_or_default().to_owned();
        if last["role"] == "tool" {
            return Reply::says(format!("This came of it: {text}"));
        }
        let Some((_, rest)) = text.rsplit_once("buy ") else { return Reply::says("Hello.") };
        let titles = rest.lines().next().unwrap_or_default();
        Reply::calls(
            titles
                .split(" and ")
                .map(|title| ("use_skill", json!({"skill": "tasks.create", "arguments": {"title": title.trim()}}))),
        )
    })
    .await
}

/// Sends a message in the conversation with this key and does not wait for its answer.
async fn say(server: &Server, key: &str, text: &str) -> (String, String) {
    let body = json!({"text": text, "conversation_key": key});
    let (status, sent) = server.post("/api/v1/messages", &body).await.expect("the server answers");
    assert_eq!(status, 202, "{sent}");
    let id = |name: &str| sent[name].as_str().expect("an id").to_owned();
    (id("task_id"), id("conversation_id"))
}

async fn open(server: &Server, count: usize) -> Vec<Value> {
    eventually("the requests are listed", async || {
        let (_, list) = server.get("/api/v1/approvals").await;
        list["approvals"].as_array().filter(|rows| rows.len() == count).cloned()
    })
    .await
}

async fn ended(server: &Server, task: &str) -> Value {
    eventually("the task ends", async || {
        let (_, row) = server.get(&format!("/api/v1/tasks/{task}")).await;
        row["ended_at"].is_string().then_some(row)
    })
    .await
}

/// The texts of a conversation.
async fn texts(server: &Server, conversation: &str) -> String {
    server.get(&format!("/api/v1/conversations/{conversation}/messages")).await.1.to_string()
}

/// What the model saw in its last request.
fn seen(model: &FakeModelServer) -> String {
    let messages = model.requests().last().expect("a request").messages();
    serde_json::to_string(&messages).expect("JSON")
}

async fn events(server: &Server, conversation: &str, kind: &str) -> Vec<Value> {
    let (_, log) = server.get(&format!("/api/v1/conversations/{conversation}/events")).await;
    let events = log["events"].as_array().cloned().unwrap_or_default();
    events.into_iter().filter(|event| event["kind"] == kind).collect()
}

async fn decide(server: &Server, task: &str, what: &str, body: &Value) -> (u16, Value) {
    server.post(&format!("/api/v1/approvals/{task}/{what}"), body).await.expect("the server answers")
}

fn annie(server: &Server, data: &Path, arguments: &[&str]) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_annie"))
        .args(["--url", &server.url])
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", data)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code().unwrap_or(-1), text(&out.stdout), text(&out.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_over_http_lists_edits_and_runs_the_call_and_refuses_wrong_decisions() {
    let model = creator().await;
    let (_folder, server) = server_with(&model, ASK).await;
    let (task, conversation) = say(&server, "k", "Remind me to buy milk").await;
    let request = open(&server, 1).await.remove(0);
    assert_eq!(
        (&request["task_id"], &request["skill"], &request["arguments"], &request["mode"], &request["status"]),
        (&json!(task), &json!("tasks.create"), &json!({"title": "milk"}), &json!("ask"), &json!("waiting")),
    );
    assert!(texts(&server, &conversation).await.contains("May I run tasks.create"), "the history shows the request");
    assert_eq!(events(&server, &conversation, "skill_started").await.len(), 0);
    eventually("a user who does not follow the conversation is notified", async || {
        let (_, notices) = server.get("/api/v1/notifications").await;
        notices.to_string().contains("I need your approval for").then_some(())
    })
    .await;

    let (_, jobs) = server.get("/api/v1/jobs").await;
    assert_eq!(
        (&jobs["jobs"][0]["awaits_approval"], &jobs["jobs"][0]["reason"]),
        (&json!(true), &json!("a call needs your approval")),
        "a job that waits for its user does not run: {jobs}"
    );
    let (_, words) = server.get("/api/v1/jobs?text=detailed").await;
    assert!(words.to_string().contains("Waiting for you"), "{words}");

    for (what, body, wanted, text) in [
        ("approve", json!({"number": 7}), 404, "no such request"),
        ("approve", json!({"arguments": {"titel": "x"}}), 400, "do not fit tasks.create"),
        ("approve", json!({"arguments": "x"}), 400, ""),
        ("deny", json!({"reason": "x".repeat(1_001)}), 400, "more than 1000 characters"),
        ("deny", json!({"why": "x"}), 400, "why"),
    ] {
        let (status, problem) = decide(&server, &task, what, &body).await;
        assert_eq!(status, wanted, "{what} {body}: {problem}");
        assert!(problem.to_string().contains(text), "{what} {body}: {problem}");
    }
    let unknown = "task_01980000000070008000000000000000";
    assert_eq!(decide(&server, unknown, "approve", &json!({})).await.0, 404);
    assert_eq!(decide(&server, "task_x", "approve", &json!({})).await.0, 400);

    let (status, done) = decide(&server, &task, "approve", &json!({"arguments": {"title": "oat milk"}})).await;
    assert_eq!((status, &done["status"]), (200, &json!("approved")), "{done}");
    ended(&server, &task).await;
    let shown = seen(&model);
    assert!(shown.contains("Created task #1 oat milk") && shown.contains("The person who approved this"), "{shown}");
    let (status, late) = decide(&server, &task, "deny", &json!({})).await;
    assert_eq!(status, 409, "{late}");
    assert!(late.to_string().contains("has ended"), "{late}");
    assert_eq!(open(&server, 0).await.len(), 0);
    assert_eq!(events(&server, &conversation, "skill_started").await.len(), 1, "the call ran once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_of_two_calls_needs_their_numbers_and_a_second_decision_is_refused() {
    let model = creator().await;
    let (_folder, server) = server_with(&model, ASK).await;
    let (task, conversation) = say(&server, "k", "buy milk and rum").await;
    open(&server, 2).await;
    let (status, problem) = decide(&server, &task, "approve", &json!({})).await;
    assert_eq!(status, 400, "{problem}");
    assert!(problem.to_string().contains("give the number of one (1, 2)"), "{problem}");
    assert_eq!(decide(&server, &task, "deny", &json!({"number": 2, "reason": "No rum."})).await.0, 200);
    let (status, problem) = decide(&server, &task, "approve", &json!({"number": 2})).await;
    assert_eq!(status, 409, "{problem}");
    assert!(problem.to_string().contains("has been denied by me (local) already"), "{problem}");
    assert_eq!(decide(&server, &task, "approve", &json!({})).await.0, 200, "only one is left");
    ended(&server, &task).await;
    assert_eq!(events(&server, &conversation, "skill_finished").await.len(), 1);
    let shown = seen(&model);
    assert!(shown.contains("[refused] A person did not approve tasks.create here: No rum."), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_for_the_conversation_is_asked_once_there_and_again_elsewhere() {
    let model = creator().await;
    let (_folder, server) = server_with(&model, ASK).await;
    let (task, conversation) = say(&server, "k", "buy milk").await;
    open(&server, 1).await;
    assert_eq!(decide(&server, &task, "approve", &json!({"for_conversation": true})).await.0, 200);
    ended(&server, &task).await;
    let (again, _) = say(&server, "k", "buy bread").await;
    ended(&server, &again).await;
    assert_eq!(events(&server, &conversation, "approval_requested").await.len(), 1);
    let (elsewhere, _) = say(&server, "other", "buy eggs").await;
    assert_eq!(open(&server, 1).await[0]["task_id"], json!(elsewhere));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_by_a_plain_yes_or_no_in_the_conversation() {
    for (word, is_made) in [("Yes", true), ("no.", false)] {
        let model = creator().await;
        let (_folder, server) = server_with(&model, ASK).await;
        let (task, conversation) = say(&server, "k", "buy milk").await;
        open(&server, 1).await;
        let (other, _) = say(&server, "k", "Are you there?").await;
        ended(&server, &other).await;
        assert_eq!(open(&server, 1).await.len(), 1, "another message decides nothing and does not wait");
        let (answer, _) = say(&server, "k", word).await;
        ended(&server, &answer).await;
        ended(&server, &task).await;
        assert_eq!(events(&server, &conversation, "skill_finished").await.len(), usize::from(is_made), "{word}");
        let decided = events(&server, &conversation, "approval_decided").await;
        assert_eq!((decided.len(), &decided[0]["message"]), (1, &json!(answer)), "{decided:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_over_grpc_and_the_command_line() {
    let model = creator().await;
    let (folder, server) = server_with(&model, ASK).await;
    let (task, conversation) = say(&server, "k", "buy milk").await;
    open(&server, 1).await;
    let mut client = ApprovalsClient::connect(server.url.clone()).await.expect("the server listens");
    let list = client.list(ListApprovalsRequest {}).await.expect("a list").into_inner().approvals;
    assert_eq!((list[0].task_id.as_str(), list[0].arguments_json.as_str()), (task.as_str(), "{\"title\":\"milk\"}"));
    let wrong = ApproveRequest { task_id: task.clone(), arguments_json: "{".to_owned(), ..ApproveRequest::default() };
    assert_eq!(client.approve(wrong).await.expect_err("no JSON").code(), tonic::Code::InvalidArgument);
    let deny = DenyRequest { task_id: task.clone(), reason: "Not now.".to_owned(), ..DenyRequest::default() };
    assert_eq!(client.deny(deny.clone()).await.expect("decided").into_inner().status, "denied");
    ended(&server, &task).await;
    assert_eq!(client.deny(deny).await.expect_err("late").code(), tonic::Code::FailedPrecondition);
    assert!(seen(&model).contains("Not now."), "{}", seen(&model));
    assert!(texts(&server, &conversation).await.contains("Request 1 was denied by me (local)."));

    let (task, _) = say(&server, "k", "buy bread").await;
    open(&server, 1).await;
    let (code, out, err) = annie(&server, folder.path(), &["approvals"]);
    assert!(code == 0 && out.contains("tasks.create") && out.contains("bread"), "{out} {err}");
    assert_eq!(annie(&server, folder.path(), &["approvals", "approve", &task, "--arguments", "{"]).0, 2);
    let (code, out, err) = annie(&server, folder.path(), &["approvals", "approve", &task, "--number", "1"]);
    assert!(code == 0 && out.contains("tasks.create is approved"), "{out} {err}");
    ended(&server, &task).await;
    let (code, _, err) = annie(&server, folder.path(), &["approvals", "deny", &task, "too", "late"]);
    assert!(code != 0 && err.contains("has ended"), "{code} {err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_rule_of_kind_ask_and_the_mode_always_and_a_short_expiry_come_from_the_configuration() {
    let model = creator().await;
    let hook = "mode = \"single_loop\"\n[approval]\nexpires_ms = 1000\n[[hook]]\nname = \"writes\"\n\
                point = \"before_skill\"\nkind = \"ask\"\nwhen = { skills = [\"tasks.*\"] }\n";
    let (_folder, server) = server_with(&model, hook).await;
    let (task, conversation) = say(&server, "k", "buy milk").await;
    ended(&server, &task).await;
    assert!(seen(&model).contains("It was not approved in time."), "{}", seen(&model));
    let shown = texts(&server, &conversation).await;
    assert!(shown.contains("Request 1 has expired"), "{shown}");
    assert_eq!(events(&server, &conversation, "approval_decided").await[0]["verdict"]["do"], "expire");

    let always = ASK.replace(
        "rules = [{ mode = \"ask\", ",
        "rules = [{ mode = \"always\", effects = [\"idempotent\", \"once\"], external = false, ",
    );
    let (_folder, server) = server_with(&model, &always).await;
    let (task, _) = say(&server, "k", "buy milk").await;
    open(&server, 1).await;
    let (status, problem) = decide(&server, &task, "approve", &json!({"for_conversation": true})).await;
    assert_eq!(status, 400, "{problem}");
    assert!(problem.to_string().contains("needs an approval of its own"), "{problem}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_by_command_of_a_skill_that_a_person_must_approve_needs_a_caller_that_may_approve() {
    let model = creator().await;
    let rules = "mode = \"single_loop\"\n[approval]\nrules = [{ mode = \"ask\", when = { skills = [\"tasks.*\"] }, effects = [\"idempotent\"] }]\n";
    for config in [ASK, rules] {
        let (folder, server) = server_with(&model, config).await;
        // Without keys the person at this machine may do everything.
        let (code, out, err) = annie(&server, folder.path(), &["skills", "run", "tasks.create", "--title", "milk"]);
        assert!(
            code == 0 && out.contains("Created task #1"),
            "the person has decided by writing it: {code} {out} {err}"
        );
        let root = json!({"name": "root", "scopes": ["admin", "impersonate"]});
        let (status, root) = server.post("/api/v1/keys", &root).await.expect("an answer");
        assert_eq!(status, 201, "{root}");
        let send = async |path: &str, key: &Value, body: &Value| {
            let request = server.http.post(format!("{}{path}", server.url)).json(body);
            let answer = request.bearer_auth(key.as_str().expect("a key")).send().await.expect("an answer");
            (answer.status().as_u16(), answer.json::<Value>().await.unwrap_or_default())
        };
        let key = async |name: &str, scopes: &[&str]| {
            let (status, made) = send("/api/v1/keys", &root["secret"], &json!({"name": name, "scopes": scopes})).await;
            assert_eq!(status, 201, "{made}");
            made["secret"].clone()
        };
        let (talks, decides) = (key("talks", &["chat"]).await, key("decides", &["chat", "jobs:control"]).await);
        for test in [false, true] {
            let body = json!({"command": "tasks.create --title tea", "key": "k", "test": test});
            let (status, refused) = send("/api/v1/run", &talks, &body).await;
            assert!(status == 400 && refused.to_string().contains("a person must approve it"), "{status} {refused}");
            let (status, ran) = send("/api/v1/run", &decides, &body).await;
            assert!(status == 200 && ran["status"] == "success", "{status} {ran}");
        }
        let body = json!({"command": "tasks.search --query coffee", "key": "s"});
        let (status, ran) = send("/api/v1/run", &talks, &body).await;
        assert!(
            status == 200 && ran.to_string().contains("No open tasks"),
            "a skill that no rule covers: {status} {ran}"
        );
    }
}
