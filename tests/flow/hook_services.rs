//! Services that decide before a turn or a skill: signed questions, answers, failures, and a service that fails again and again.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use annie_testkit::model_server::{FakeModelServer, Reply};
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

use super::{
    bad_models::{ask, server_with},
    channels::hmac_sha256,
    command_line::annie,
};
use crate::server::Server;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A service of rules, and what it was asked.
#[derive(Clone, Default)]
struct Rules {
    questions: Arc<Mutex<Vec<(HeaderMap, String)>>>,
    count: Arc<AtomicUsize>,
    fails: Arc<AtomicBool>,
}

impl Rules {
    async fn start(&self) -> (String, JoinSet<()>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let url = format!("http://{}/rules?token=hidden", listener.local_addr().expect("bound"));
        let app = Router::new().route("/rules", post(decide)).with_state(self.clone());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let _ = axum::serve(listener, app).await;
        });
        (url, serving)
    }
}

async fn decide(State(rules): State<Rules>, headers: HeaderMap, body: Bytes) -> Response {
    let text = String::from_utf8_lossy(&body).into_owned();
    rules.questions.lock().unwrap().push((headers, text.clone()));
    rules.count.fetch_add(1, Relaxed);
    if rules.fails.load(Relaxed) {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    match text {
        text if text.contains("milk") => r#"{"do": "replace", "arguments": {"title": "oat milk"}}"#.into_response(),
        text if text.contains("rum") => r#"{"do": "refuse", "text": "Not for children."}"#.into_response(),
        text if text.contains("bread") => StatusCode::NO_CONTENT.into_response(),
        text if text.contains("soap") => "x".repeat(20_000).into_response(),
        _ => "no JSON".into_response(),
    }
}

/// A model that creates a task with the title that the user says, and then says what came of it.
async fn creator() -> FakeModelServer {
    FakeModelServer::start(|seen| {
        let last = seen.messages().last().cloned().unwrap_or_default();
        let text = last["content"].as_str().unwrap_or_default().to_owned();
        if last["role"] != "user" {
            return Reply::says(format!("This came of it: {text}"));
        }
        let title = text.rsplit_once("buy ").map_or("", |(_, title)| title.trim()).to_owned();
        Reply::calls([("use_skill", json!({"skill": "tasks.create", "arguments": {"title": title}}))])
    })
    .await
}

async fn server(model: &FakeModelServer, url: &str, more: &str) -> (tempfile::TempDir, tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, SECRET).expect("written");
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("private");
    let config = format!(
        "mode = \"single_loop\"\n[[hook]]\nname = \"rules\"\npoint = \"before_skill\"\nkind = \"webhook\"\n\
         url = \"{url}\"\nsecret_file = {secret:?}\nanswer_ms_max = 1500\n{more}\n"
    );
    let (data, server) = server_with(model, &config).await;
    (folder, data, server)
}

async fn tasks(server: &Server) -> String {
    let (_, found) = server.get("/api/v1/conversations").await;
    let mut text = String::new();
    for row in found["conversations"].as_array().into_iter().flatten() {
        let id = row["id"].as_str().unwrap_or_default();
        text += &server.get(&format!("/api/v1/conversations/{id}/events")).await.1.to_string();
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhook_hook_continues_refuses_and_replaces_by_signed_questions() {
    let (model, rules) = (creator().await, Rules::default());
    let (url, _serving) = rules.start().await;
    let (_folder, _data, server) = server(&model, &url, "").await;
    let sent = ask(&server, "buy milk").await;
    assert!(sent["answer"].as_str().is_some_and(|text| text.contains("oat milk")), "{sent}");
    let sent = ask(&server, "buy bread").await;
    assert!(sent["answer"].as_str().is_some_and(|text| text.contains("bread")), "{sent}");
    let sent = ask(&server, "buy rum").await;
    assert!(sent["answer"].as_str().is_some_and(|text| text.contains("Not for children.")), "{sent}");
    for wrong in ["buy soap", "buy nails"] {
        let sent = ask(&server, wrong).await;
        assert!(sent["answer"].as_str().is_some_and(|text| text.contains("does not allow")), "it refuses: {sent}");
    }
    let (headers, body) = rules.questions.lock().unwrap()[0].clone();
    let question: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(
        (&question["v"], &question["skill"], &question["hook"]),
        (&json!(1), &json!("tasks.create"), &json!("rules"))
    );
    assert_eq!(headers["annie-question"], question["id"].as_str().expect("an id"));
    let timestamp = headers["annie-timestamp"].to_str().expect("text").to_owned();
    let signed = hmac_sha256(SECRET.as_bytes(), format!("{timestamp}.{body}").as_bytes());
    assert_eq!(headers["annie-signature"], format!("v1={signed}"));
    let log = tasks(&server).await;
    assert!(log.contains("its answer has more than 16384 bytes") && log.contains("its reply is no answer"), "{log}");
    assert!(!log.contains("hidden") && !log.contains(SECRET), "neither the token nor the secret is stored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhook_hook_that_fails_again_and_again_is_disabled_and_shown_in_the_status() {
    let (model, rules) = (creator().await, Rules::default());
    rules.fails.store(true, Relaxed);
    let (url, _serving) = rules.start().await;
    let (_folder, _data, server) = server(&model, &url, "on_failure = \"continue\"").await;
    for n in 0..7 {
        let sent = ask(&server, &format!("buy thing number {n}")).await;
        assert!(
            sent["answer"].as_str().is_some_and(|text| text.contains("thing number")),
            "its failure continues: {sent}"
        );
    }
    assert_eq!(rules.count.load(Relaxed), 5, "after five failures it is not asked");
    let (_, status) = server.get("/api/v1/status").await;
    let warnings = status["warnings"].to_string();
    assert!(warnings.contains("\"hooks\"") && warnings.contains("is disabled since"), "{status}");
    assert!(!warnings.contains("hidden"), "{warnings}");
    assert!(warnings.contains("lets everything through"), "a guard does not fail open silently: {warnings}");
    let shown = live_status(&server).await;
    assert!(shown["warnings"].to_string().contains("hook \\\"rules\\\" is disabled"), "the page shows it: {shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hook_that_fails_for_one_user_still_guards_others() {
    let (model, rules) = (creator().await, Rules::default());
    let (url, _serving) = rules.start().await;
    let (_folder, data, server) = server(&model, &url, "on_failure = \"continue\"").await;
    let key = async |name: &str, user: &str| {
        let path = data.path().join(name);
        let file = path.to_str().expect("a path");
        let scope = if name == "admin" { "admin,chat,impersonate" } else { "chat" };
        let mut arguments = vec!["key", "create", name, "--user", user, "--scope", scope, "--out", file];
        let admin = data.path().join("admin");
        if admin.exists() {
            arguments.splice(0..0, ["--key-file", admin.to_str().expect("a path")]);
        }
        let (code, _, err) = annie(data.path(), &arguments, &[]).await;
        assert_eq!(code, 0, "{err}");
        std::fs::read_to_string(&path).expect("a key").trim().to_owned()
    };
    let (_, ann, bob) = (key("admin", "root").await, key("ann", "ann").await, key("bob", "bob").await);
    let say = async |key: &str, text: &str| {
        let body = json!({"text": text, "conversation_key": "k"});
        let url = format!("{}/api/v1/messages?wait=20", server.url);
        let sent = server.http.post(url).bearer_auth(key).json(&body).send().await.expect("sent");
        sent.json::<Value>().await.expect("JSON")
    };
    for n in 0..6 {
        say(&ann, &format!("buy soap number {n}")).await;
    }
    assert_eq!(rules.count.load(Relaxed), 5, "for this user the hook is disabled");
    let sent = say(&bob, "buy rum").await;
    assert!(sent["answer"].as_str().is_some_and(|text| text.contains("Not for children.")), "{sent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disabled_hook_that_guards_refuses_everything_and_the_status_says_so() {
    let (model, rules) = (creator().await, Rules::default());
    rules.fails.store(true, Relaxed);
    let (url, _serving) = rules.start().await;
    let (_folder, _data, server) = server(&model, &url, "").await;
    for n in 0..7 {
        ask(&server, &format!("buy thing number {n}")).await;
    }
    assert_eq!(rules.count.load(Relaxed), 5, "after five failures it is not asked");
    let log = tasks(&server).await;
    assert!(!log.contains("Created task"), "nothing gets past a guard that does not answer: {log}");
    let (_, status) = server.get("/api/v1/status").await;
    assert!(status["warnings"].to_string().contains("refuses everything"), "{status}");
}

/// The state of the server as the page gets it.
async fn live_status(server: &Server) -> Value {
    let url = format!("{}/api/v1/live?topics=status", server.url);
    let mut reply = server.http.get(url).send().await.expect("the server answers");
    let mut text = String::new();
    loop {
        let chunk = reply.chunk().await.expect("a stream").expect("it goes on");
        text.push_str(&String::from_utf8_lossy(&chunk));
        let block = text.split("\n\n").find(|block| block.contains("event: status") && block.contains("data: "));
        let data = block.and_then(|block| block.lines().find_map(|line| line.strip_prefix("data: ")));
        if let Some(data) = data.and_then(|data| serde_json::from_str(data).ok()) {
            return data;
        }
    }
}
