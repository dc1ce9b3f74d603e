//! Several backends behind the real binary: rules, names and privacy select the backend, a fallback replaces a failing
//! one, and a message is answered once.

use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::{Value, json};

use crate::server::{Server, Sse};

/// The configuration of a model server as a backend, with `more` keys.
fn backend(name: &str, base_url: &str, more: &str) -> String {
    format!("[[backend]]\nname = {name:?}\nbase_url = {base_url:?}\nmodel = \"m\"\nretries_max = 0\n{more}\n")
}

async fn start(config: &str) -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("annie.toml");
    std::fs::write(&path, config).expect("the configuration is written");
    let path = path.to_str().expect("a path").to_owned();
    let server = Server::start(folder.path(), &["--config", &path], &[]).await;
    (folder, server)
}

/// A plain backend that comes first, and a second one with more capabilities.
struct Two {
    gpu: FakeModelServer,
    claude: FakeModelServer,
    server: Server,
    _folder: tempfile::TempDir,
}

impl Two {
    async fn start(gpu: Reply, more: &str) -> Self {
        let gpu = FakeModelServer::start(move |_| gpu.clone()).await;
        let claude = FakeModelServer::start(|_| Reply::says("Claude did it.")).await;
        // Both are marked as cloud, because a backend on this machine is local by default.
        let config = backend("gpu", &gpu.base_url(), "privacy = \"cloud\"")
            + &backend("claude", &claude.base_url(), "privacy = \"cloud\"\ncapabilities = [\"git\", \"shell\"]")
            + more;
        let (folder, server) = start(&config).await;
        Self { gpu, claude, server, _folder: folder }
    }

    fn asked(&self) -> (u64, u64) {
        (self.gpu.request_count(), self.claude.request_count())
    }
}

fn gpu_says() -> Reply {
    Reply::says("The GPU did it.")
}

async fn ask(server: &Server, body: &Value) -> Value {
    let (status, sent) = server.post("/api/v1/messages?wait=20", body).await.expect("the server answers");
    assert_eq!(status, 200, "{sent}");
    sent
}

async fn log_of(server: &Server, sent: &Value) -> Vec<Sse> {
    let conversation = sent["conversation_id"].as_str().expect("an id");
    server.stream(conversation, 0, |seen| seen.iter().any(Sse::is_final)).await
}

/// The routing decision in the log, with its reason.
fn decided(log: &[Sse]) -> String {
    let of_route = |s: &&Sse| s.event == "decided" && s.data.to_string().contains("\"route\"");
    log.iter().find(of_route).unwrap_or_else(|| panic!("no routing decision in {log:#?}")).data.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn route_sends_work_to_a_capable_backend_and_the_rest_to_the_first() {
    let two = Two::start(gpu_says(), "").await;
    let git = ask(&two.server, &json!({"text": "Please run git status and tell me what has changed."})).await;
    assert_eq!((git["answer"].as_str(), two.asked()), (Some("Claude did it."), (0, 1)), "{git}");
    let sent = decided(&log_of(&two.server, &git).await);
    assert!(sent.contains("git") && sent.contains("run on claude"), "{sent}");
    let plain = ask(&two.server, &json!({"text": "How are you today?"})).await;
    assert_eq!((plain["answer"].as_str(), two.asked()), (Some("The GPU did it."), (1, 1)), "{plain}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn route_by_backend_name_removes_the_name_from_the_request() {
    let two = Two::start(gpu_says(), "[routing]\nmode = \"shadow\"\n").await;
    let sent = ask(&two.server, &json!({"text": "Claude, hello to you"})).await;
    assert_eq!((sent["answer"].as_str(), two.asked()), (Some("Claude did it."), (0, 1)), "{sent}");
    let text = two.claude.requests().remove(0).last_user_text();
    assert!(text.contains("hello to you") && !text.contains("Claude"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shadow_mode_uses_the_first_backend_and_logs_the_choice_of_the_rules() {
    let two = Two::start(gpu_says(), "[routing]\nmode = \"shadow\"\n").await;
    let sent = ask(&two.server, &json!({"text": "git status"})).await;
    assert_eq!((sent["answer"].as_str(), two.asked()), (Some("The GPU did it."), (1, 0)), "{sent}");
    let why = decided(&log_of(&two.server, &sent).await);
    assert!(why.contains("run on gpu") && why.contains("rule `git`") && why.contains("`claude`"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suggest_mode_names_the_backend_that_the_rules_would_choose() {
    let two = Two::start(gpu_says(), "[routing]\nmode = \"suggest\"\n").await;
    let git = ask(&two.server, &json!({"text": "Please run git status and tell me what has changed."})).await;
    let answer = git["answer"].as_str().expect("an answer");
    assert!(answer.starts_with("The GPU did it.\n\n(") && answer.contains("claude"), "{answer}");
    let plain = ask(&two.server, &json!({"text": "How are you today?"})).await;
    assert_eq!((plain["answer"].as_str(), two.asked()), (Some("The GPU did it."), (2, 0)), "{plain}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configured_rule_is_applied_before_the_built_in_rules() {
    let rule = "[[route]]\nname = \"invoices\"\nwhen = { any_words = [\"invoice\"] }\nto = { backend = \"claude\" }\n";
    let two = Two::start(gpu_says(), rule).await;
    let sent = ask(&two.server, &json!({"text": "Remember that the invoice is paid"})).await;
    assert_eq!((sent["answer"].as_str(), two.asked()), (Some("Claude did it."), (0, 1)), "{sent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backend_that_fails_is_replaced_by_the_fallback_and_the_message_is_answered_once() {
    let two = Two::start(Reply::error(500, "oops"), "").await;
    let sent = ask(&two.server, &json!({"text": "How are you today?"})).await;
    assert_eq!((sent["answer"].as_str(), two.asked()), (Some("Claude did it."), (1, 1)), "{sent}");
    let log = log_of(&two.server, &sent).await;
    assert_eq!(log.iter().filter(|s| s.is_final()).count(), 1, "{log:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backend_that_is_unreachable_is_replaced_by_the_fallback() {
    let claude = FakeModelServer::start(|_| Reply::says("Claude did it.")).await;
    // A port without a listener: the listener has just been dropped.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port");
    let config = backend("gpu", &format!("http://{gone}/v1"), "") + &backend("claude", &claude.base_url(), "");
    let (_folder, server) = start(&config).await;
    let sent = ask(&server, &json!({"text": "How are you today?"})).await;
    assert_eq!(sent["answer"], "Claude did it.", "{sent}");
    let log = log_of(&server, &sent).await;
    assert_eq!(log.iter().filter(|s| s.is_final()).count(), 1, "{log:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_request_runs_on_a_local_backend_or_fails_visibly() {
    let private = json!({"text": "my diary of today", "private": true});
    let two = Two::start(gpu_says(), "").await;
    let sent = ask(&two.server, &private).await;
    assert_eq!((sent["status"].as_str(), sent["error"].as_str()), (Some("failed"), Some("no_backend")), "{sent}");
    assert_eq!(two.asked(), (0, 0), "no backend received the request");
    let next = ask(&two.server, &json!({"text": "hello", "conversation_id": sent["conversation_id"]})).await;
    assert_eq!(next["status"], "completed", "the conversation continues: {next}");

    let cloud = FakeModelServer::start(|_| Reply::says("From the cloud.")).await;
    let own = FakeModelServer::start(|_| Reply::says("From the local server.")).await;
    let config = backend("cloud", &cloud.base_url(), "privacy = \"cloud\"")
        + &backend("own", &own.base_url(), "profile = \"vllm\"");
    let (_folder, server) = start(&config).await;
    let sent = ask(&server, &private).await;
    assert_eq!((sent["answer"].as_str(), cloud.request_count()), (Some("From the local server."), 0), "{sent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_request_is_never_sent_through_the_proxy_of_a_local_model_server() {
    let proxy = FakeModelServer::start(|_| Reply::says("Read by the proxy.")).await;
    let via = format!("profile = \"vllm\"\nproxy = {:?}", proxy.base_url().trim_end_matches("/v1"));
    let (_folder, server) = start(&backend("own", "http://127.0.0.1:9/v1", &via)).await;
    let sent = ask(&server, &json!({"text": "my diary of today", "private": true})).await;
    assert_eq!((sent["status"].as_str(), sent["error"].as_str()), (Some("failed"), Some("no_backend")), "{sent}");
    assert_eq!(proxy.request_count(), 0, "the proxy received the diary");
    let public = ask(&server, &json!({"text": "hello"})).await;
    assert_eq!((public["answer"].as_str(), proxy.request_count()), (Some("Read by the proxy."), 1), "{public}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_backend_runs_with_its_limits_and_only_its_own_environment() {
    let work = tempfile::tempdir().expect("a folder");
    let script = work.path().join("agent");
    let text =
        r#"printf 'in %s with %s files, HOME %s, TOKEN %s: %s' "$(pwd)" "$(ulimit -n)" "${HOME-none}" "$TOKEN" "$1""#;
    std::fs::write(&script, text).expect("written");
    let gpu = FakeModelServer::start(|_| gpu_says()).await;
    let config = backend("gpu", &gpu.base_url(), "")
        + &format!(
            "[[backend]]\nname = \"agent\"\nkind = \"command\"\nprogram = \"/bin/sh\"\nargs = [{script:?}, \"{{prompt}}\"]\n\
             folder = {:?}\nenv_pass = [\"PATH\"]\nenv = {{ TOKEN = \"t-1\" }}\nlimits = {{ files_max = 55 }}\nslots = 1\n\
             capabilities = [\"git\"]\n",
            work.path()
        );
    let (_folder, server) = start(&config).await;
    let sent = ask(&server, &json!({"text": "git status of $(id) \"here\""})).await;
    let answer = sent["answer"].as_str().unwrap_or_default();
    let wanted = format!("in {} with 55 files, HOME none, TOKEN t-1: ", work.path().display());
    assert!(answer.starts_with(&wanted) && answer.contains("git status of $(id) \"here\""), "{sent}");
    assert_eq!(gpu.request_count(), 0);
}
