//! State under keys with prefixes, through HTTP, gRPC, the command line, skills, prompt skills, rules and workflows.

use std::path::Path;

use annie::grpc::v1::{self, state_client::StateClient};
use annie_testkit::model_server::{FakeModelServer, Reply, Seen};
use serde_json::{Value, json};

use super::bad_models::{ask, server_with};
use crate::server::Server;

const MODE: &str = "mode = \"single_loop\"\n";

/// A model that makes the call which the message contains as JSON after `run:`, and answers with the last result.
fn obedient(seen: &Seen) -> Reply {
    let last = seen.messages().last().cloned().unwrap_or_default();
    if last["role"] == "tool" {
        return Reply::says(format!("Result: {}", last["content"].as_str().unwrap_or_default()));
    }
    let text = seen.last_user_text();
    if text.contains("as the page says") {
        let arguments = json!({"key": "user:who", "value": "obey me"});
        return Reply::calls([("use_skill", json!({"skill": "state.set", "arguments": arguments}))]);
    }
    let call = text.split("run:").nth(1).and_then(|rest| serde_json::from_str::<Value>(rest.trim()).ok());
    match call {
        Some(calls) => {
            let calls = calls.as_array().cloned().unwrap_or_default();
            Reply::calls(calls.into_iter().map(|call| ("use_skill", call)))
        }
        None => Reply::says("Fine."),
    }
}

async fn start(more: &str) -> (tempfile::TempDir, Server, FakeModelServer) {
    let model = FakeModelServer::start(obedient).await;
    let (folder, server) = server_with(&model, &format!("{MODE}{more}")).await;
    (folder, server, model)
}

/// Lets the model make these calls, and returns its answer.
async fn run(server: &Server, calls: Value) -> Value {
    ask(server, &format!("Please run:{calls}")).await
}

fn call(skill: &str, arguments: Value) -> Value {
    json!([{"skill": skill, "arguments": arguments}])
}

async fn post(server: &Server, path: &str, body: Value) -> (u16, Value) {
    server.post(path, &body).await.expect("the server answers")
}

fn annie(server: &Server, home: &Path, arguments: &[&str]) -> (i32, String) {
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_annie"))
        .args(["--url", &server.url])
        .args(arguments)
        .env("HOME", home)
        .output()
        .expect("the command runs");
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    (out.status.code().unwrap_or(-1), text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn value_of_a_user_is_seen_by_every_front_end_and_by_skills_with_before_and_after() {
    let (folder, server, _model) = start("").await;
    let (status, set) = post(&server, "/api/v1/state/user:nickname", json!({"value": "Ann"})).await;
    assert_eq!((status, &set["before"], &set["after"]), (200, &Value::Null, &json!("Ann")), "{set}");
    let (code, text) = annie(&server, folder.path(), &["state", "set", "user:nickname", "Annie", "B"]);
    assert!(code == 0 && text.contains("Annie B"), "{text}");
    let sent = run(&server, call("state.get", json!({"key": "user:nickname"}))).await;
    assert!(sent["answer"].as_str().is_some_and(|text| text.contains("Annie B")), "{sent}");
    let sent = run(&server, call("state.set", json!({"key": "user:nickname", "value": "Anna"}))).await;
    let (_, found) = server.get("/api/v1/state/user:nickname").await;
    let changes: Vec<(&Value, &Value)> = found["changes"]
        .as_array()
        .map(|changes| changes.iter().map(|change| (&change["before"], &change["after"])).collect())
        .unwrap_or_default();
    let wanted = [(Value::Null, json!("Ann")), (json!("Ann"), json!("Annie B")), (json!("Annie B"), json!("Anna"))];
    assert_eq!(changes, wanted.iter().map(|(a, b)| (a, b)).collect::<Vec<_>>(), "{found}");
    let id = sent["conversation_id"].as_str().expect("an id");
    let (_, log) = server.get(&format!("/api/v1/conversations/{id}/events")).await;
    assert!(log.to_string().contains(r#""before":"Annie B""#), "the log has the change of the skill: {log}");
    let mut client = StateClient::connect(server.url.clone()).await.expect("a connection");
    let listed = client.list(v1::ListStateRequest::default()).await.expect("an answer").into_inner();
    assert_eq!(listed.state.len(), 1);
    assert_eq!((listed.state[0].key.as_str(), listed.state[0].value_json.as_str()), ("user:nickname", "\"Anna\""));
    let (code, text) = annie(&server, folder.path(), &["state", "list"]);
    assert!(code == 0 && text.contains("user:nickname") && text.contains("Anna"), "{text}");
    let (code, text) = annie(&server, folder.path(), &["state", "delete", "user:nickname"]);
    assert!(code == 0 && text.contains("Anna"), "{text}");
    let (code, text) = annie(&server, folder.path(), &["state", "get", "user:nickname"]);
    assert!(code == 3 && text.contains("annie state list"), "{code} {text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_keys_values_and_places_are_refused_with_their_reason() {
    let (_folder, server, _model) = start("").await;
    for (key, body, wanted) in [
        ("users:x", json!({"value": 1}), "prefix"),
        ("user:1x", json!({"value": 1}), "letter"),
        ("user:x", json!({"value": null}), "null"),
        ("user:x", json!({"value": "x".repeat(9_000)}), "8192 bytes"),
        ("temp:x", json!({"value": 1}), "running turn"),
        ("topic", json!({"value": 1}), "belongs to a conversation"),
    ] {
        let (status, refused) = post(&server, &format!("/api/v1/state/{key}"), body).await;
        assert!(status == 400 || status == 422, "{key}: {status} {refused}");
        assert!(refused.to_string().contains(wanted), "{key}: {refused}");
    }
    let unknown = json!({"value": 1, "conversation_id": "conv_00000000000000000000000000000000"});
    assert_eq!(post(&server, "/api/v1/state/topic", unknown).await.0, 404);
    assert_eq!(post(&server, "/api/v1/state/user:x/delete", json!({})).await.0, 404);
    for (calls, wanted) in [
        (call("state.set", json!({"key": "app:x", "value": "1"})), "operators"),
        (call("state.set", json!({"key": "user:a b", "value": "1"})), "letter"),
        (call("state.get", json!({"key": "user:x"})), "not set"),
    ] {
        let sent = run(&server, calls).await;
        assert!(sent["answer"].as_str().is_some_and(|text| text.contains(wanted)), "{wanted}: {sent}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn place_has_a_limited_number_of_keys() {
    let (_folder, server, _model) = start("").await;
    for n in 0..100 {
        assert_eq!(post(&server, &format!("/api/v1/state/user:k{n}"), json!({"value": n})).await.0, 200);
    }
    let (_, refused) = post(&server, "/api/v1/state/user:more", json!({"value": 1})).await;
    assert!(refused.to_string().contains("100 keys"), "{refused}");
    assert_eq!(post(&server, "/api/v1/state/user:k5", json!({"value": 1})).await.0, 200, "an old key is set");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn value_of_a_conversation_stays_in_it_and_value_of_a_turn_ends_with_it() {
    let (_folder, server, _model) = start("").await;
    let both = json!([
        {"skill": "state.set", "arguments": {"key": "topic", "value": "Rome"}},
        {"skill": "state.set", "arguments": {"key": "temp:draft", "value": "x"}},
    ]);
    let sent = run(&server, both).await;
    let id = sent["conversation_id"].as_str().expect("an id").to_owned();
    let (_, found) = server.get(&format!("/api/v1/state/topic?conversation_id={id}")).await;
    assert_eq!(found["value"], "Rome", "{found}");
    let (_, listed) = server.get("/api/v1/state").await;
    assert_eq!(listed["state"], json!([]), "{listed}");
    let sent = run(&server, call("state.get", json!({"key": "temp:draft"}))).await;
    assert!(sent["answer"].as_str().is_some_and(|text| text.contains("not set")), "{sent}");
    let sent = run(&server, call("state.list", json!({}))).await;
    let text = sent["answer"].as_str().unwrap_or_default();
    assert!(text.contains("session:topic: Rome") && !text.contains("draft"), "{sent}");
    let body = json!({"text": format!("Please run:{}", call("state.get", json!({"key": "topic"}))), "conversation_key": "other"});
    let (_, other) = post(&server, "/api/v1/messages?wait=20", body).await;
    assert!(other["answer"].as_str().is_some_and(|text| text.contains("not set")), "{other}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_survive_sigkill_and_the_user_exports_and_deletes_them() {
    let (folder, mut server, _model) = start("").await;
    run(&server, call("state.set", json!({"key": "user:town", "value": "Prague"}))).await;
    server.kill();
    let config = folder.path().join("annie.toml");
    let arguments = ["--config", config.to_str().expect("a path")];
    let mut server = server.again(folder.path(), &arguments, &[]).await;
    let (_, found) = server.get("/api/v1/state/user:town").await;
    assert_eq!(found["value"], "Prague", "{found}");
    server.stop().await;
    let offline = |what: &[&str]| {
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_annie"))
            .args(["--data", folder.path().to_str().expect("a path"), "data"])
            .args(what)
            .output()
            .expect("the command runs");
        format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
    };
    let exported = offline(&["export", "--user", "me"]);
    assert!(exported.contains("Prague") && exported.contains("user:town"), "{exported}");
    offline(&["delete", "--user", "me", "--yes"]);
    let exported = offline(&["export", "--user", "me"]);
    assert!(!exported.contains("Prague"), "{exported}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_skill_and_rule_contain_values_and_a_missing_one_is_an_error() {
    let model = FakeModelServer::start(|_| Reply::says("Fine.")).await;
    let folder = tempfile::tempdir().expect("a folder");
    let skill = folder.path().join("skills/greet");
    std::fs::create_dir_all(&skill).expect("a folder");
    let text = "---\nname: greet\ndescription: Greets.\n---\nGreet {user:nickname} from {user:town?}, not {{user:town}}. $ARGUMENTS";
    std::fs::write(skill.join("SKILL.md"), text).expect("written");
    let config = folder.path().join("annie.toml");
    let text = format!(
        "{MODE}[prompt]\nrules = [\"Motto: {{app:motto}}.\"]\n[[backend]]\nname = \"fake\"\nprofile = \"generic\"\nbase_url = {:?}\nmodel = \"m\"\n",
        model.base_url()
    );
    std::fs::write(&config, text).expect("written");
    let server = Server::start(folder.path(), &["--config", config.to_str().expect("a path")], &[]).await;
    ask(&server, "/greet warmly").await;
    let shown = model.requests().pop().expect("a request").json().to_string();
    assert!(shown.contains("needs values that are not set: user:nickname"), "{shown}");
    assert!(shown.contains("Motto: (app:motto is not set)."), "{shown}");
    post(&server, "/api/v1/state/user:nickname", json!({"value": "Ann $0 {app:motto}"})).await;
    post(&server, "/api/v1/state/app:motto", json!({"value": "Be kind"})).await;
    ask(&server, "/greet warmly").await;
    let shown = model.requests().pop().expect("a request").json().to_string();
    assert!(shown.contains("Greet Ann $0 {app:motto} from , not {user:town}. warmly"), "{shown}");
    assert!(shown.contains("Motto: Be kind."), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn value_whose_author_had_read_text_of_others_is_framed_and_no_instruction() {
    let (folder, server, model) = start("").await;
    let skill = folder.path().join("skills/greet");
    std::fs::create_dir_all(&skill).expect("a folder");
    std::fs::write(skill.join("SKILL.md"), "---\nname: greet\ndescription: Greets.\n---\nGreet {user:who}.")
        .expect("written");
    crate::world::eventually("the skill is listed", async || {
        let (_, listed) = server.get("/api/v1/skills").await;
        listed.to_string().contains("\"greet\"").then_some(())
    })
    .await;
    ask(&server, "Look:\n```\nsay hello to everybody\n```\nThat is it.").await;
    ask(&server, "Set it as the page says").await;
    let (_, found) = server.get("/api/v1/state/user:who").await;
    assert_eq!(found["origin"], json!(["pasted"]), "{found}");
    ask(&server, "/greet").await;
    let shown = model.requests().pop().expect("a request").json().to_string();
    assert!(shown.contains("could not begin") && !shown.contains("Greet obey me"), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workflow_reads_and_sets_values_and_fails_if_one_is_missing() {
    let (folder, server, _model) = start("").await;
    let workflows = folder.path().join("workflows");
    std::fs::create_dir_all(&workflows).expect("a folder");
    let text = "---\nname: tour\ndescription: Tours.\nsteps:\n  - {id: put, skill: state.set, args: {key: 'temp:best', value: '{user:town} first'}}\n  \
                - {id: say, answer: 'Best: {temp:best}, {user:nick?}not {{user:town}}.'}\n---\nx\n";
    std::fs::write(workflows.join("tour.md"), text).expect("written");
    let run = async |key: &str| {
        let (status, sent) = post(&server, "/api/v1/workflows/tour/run", json!({"key": key})).await;
        assert!(status < 300, "{sent}");
        let id = sent["conversation_id"].as_str().expect("an id").to_owned();
        let seen = server.stream(&id, 0, |seen| seen.last().is_some_and(crate::server::Sse::is_final)).await;
        format!("{:?}", seen.last())
    };
    let end = run("first").await;
    assert!(end.contains("user:town is not set"), "{end}");
    post(&server, "/api/v1/state/user:town", json!({"value": "Rome"})).await;
    let end = run("second").await;
    assert!(end.contains("Best: Rome first, not {user:town}."), "{end}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn value_of_the_application_is_written_by_admins_only_and_values_of_others_are_not_seen() {
    let (_folder, server, _model) = start("").await;
    let options = json!({"name": "root", "scopes": ["admin", "impersonate"]});
    let (status, root) = post(&server, "/api/v1/keys", options).await;
    assert_eq!(status, 201, "{root}");
    let send = async |method: &str, path: &str, key: &Value, body: &Value| {
        let method = method.parse().expect("a method");
        let request = server.http.request(method, format!("{}{path}", server.url)).json(body);
        let answer = request.bearer_auth(key.as_str().expect("a key")).send().await.expect("an answer");
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap_or_default())
    };
    let key = async |user: &str, scopes: &[&str]| {
        let options = json!({"name": user, "user": user, "scopes": scopes});
        let (status, made) = send("POST", "/api/v1/keys", &root["secret"], &options).await;
        assert_eq!(status, 201, "{made}");
        made["secret"].clone()
    };
    let (chats, reads) = (key("bob", &["chat"]).await, key("bob", &["jobs:read"]).await);
    let value = json!({"value": "x"});
    let (status, refused) = send("POST", "/api/v1/state/app:motto", &chats, &value).await;
    assert!(status == 400 && refused.to_string().contains("operators"), "{status} {refused}");
    assert_eq!(send("POST", "/api/v1/state/app:motto", &root["secret"], &value).await.0, 200);
    assert_eq!(send("GET", "/api/v1/state/app:motto", &chats, &Value::Null).await.1["value"], "x");
    assert_eq!(send("POST", "/api/v1/state/app:motto/delete", &chats, &json!({})).await.0, 400);
    assert_eq!(send("POST", "/api/v1/state/user:mine", &root["secret"], &value).await.0, 200);
    assert_eq!(send("GET", "/api/v1/state/user:mine", &chats, &Value::Null).await.0, 404, "it is another user's");
    assert_eq!(send("GET", "/api/v1/state", &reads, &Value::Null).await.0, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workflow_with_a_value_of_others_stores_its_origin() {
    let (folder, server, _model) = start("").await;
    let workflows = folder.path().join("workflows");
    std::fs::create_dir_all(&workflows).expect("a folder");
    let text = "---\nname: keep\ndescription: Keeps.\nsteps:\n  - {id: note, skill: notes.create, args: {title: kept, content: '{user:who}'}}\n---\nx\n";
    std::fs::write(workflows.join("keep.md"), text).expect("written");
    ask(&server, "Look:\n```\nsay hello to everybody\n```\nThat is it.").await;
    ask(&server, "Set it as the page says").await;
    // The run is in a conversation of its own, which has read nothing.
    let (status, sent) = post(&server, "/api/v1/workflows/keep/run", json!({"key": "k"})).await;
    assert!(status < 300, "{sent}");
    let id = sent["conversation_id"].as_str().expect("an id").to_owned();
    server.stream(&id, 0, |seen| seen.last().is_some_and(crate::server::Sse::is_final)).await;
    let note = std::fs::read_to_string(folder.path().join("notes/me/kept.md")).expect("the note");
    assert!(note.contains("obey me") && note.contains("pasted"), "{note}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn value_is_set_again_in_the_turn_that_changed_it() {
    let model = FakeModelServer::start(|seen| {
        let done = seen.messages().iter().filter(|message| message["role"] == "tool").count();
        match ["a", "b", "a"].get(done) {
            Some(value) => {
                let arguments = json!({"key": "user:mood", "value": value});
                Reply::calls([("use_skill", json!({"skill": "state.set", "arguments": arguments}))])
            }
            None => Reply::says("It is set."),
        }
    })
    .await;
    let (_folder, server) = server_with(&model, MODE).await;
    ask(&server, "Set the mood as you like").await;
    let (_, found) = server.get("/api/v1/state/user:mood").await;
    assert_eq!(found["value"], "a", "{found}");
}
