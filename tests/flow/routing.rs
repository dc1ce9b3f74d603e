//! Several backends behind the real binary: rules, names and privacy decide who is asked, a broken one is stood in for, and a
//! message is answered once whoever answers it.

use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::{Value, json};

use crate::server::{Server, Sse};

/// A model server as a backend, with more keys.
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

/// A plain backend that comes first, and one that can do more.
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
        // Both stand for services elsewhere: what is on this machine is local unasked.
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
    let (status, said) = server.post("/api/v1/messages?wait=20", body).await.expect("the server answers");
    assert_eq!(status, 200, "{said}");
    said
}

async fn log_of(server: &Server, said: &Value) -> Vec<Sse> {
    let conversation = said["conversation_id"].as_str().expect("an id");
    server.stream(conversation, 0, |seen| seen.iter().any(Sse::is_final)).await
}

/// What was decided about the backend, and why.
fn decided(log: &[Sse]) -> String {
    let of_route = |s: &&Sse| s.event == "decided" && s.data.to_string().contains("\"route\"");
    log.iter().find(of_route).unwrap_or_else(|| panic!("nothing was decided in {log:#?}")).data.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_goes_to_the_backend_that_can_do_it_and_all_else_to_the_first() {
    let two = Two::start(gpu_says(), "").await;
    let git = ask(&two.server, &json!({"text": "Please run git status and tell me what has changed."})).await;
    assert_eq!((git["answer"].as_str(), two.asked()), (Some("Claude did it."), (0, 1)), "{git}");
    let said = decided(&log_of(&two.server, &git).await);
    assert!(said.contains("git") && said.contains("run on claude"), "{said}");
    let plain = ask(&two.server, &json!({"text": "How are you today?"})).await;
    assert_eq!((plain["answer"].as_str(), two.asked()), (Some("The GPU did it."), (1, 1)), "{plain}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_that_is_called_by_name_is_asked_without_its_name() {
    let two = Two::start(gpu_says(), "[routing]\nmode = \"shadow\"\n").await;
    let said = ask(&two.server, &json!({"text": "Claude, hello to you"})).await;
    assert_eq!((said["answer"].as_str(), two.asked()), (Some("Claude did it."), (0, 1)), "{said}");
    let heard = two.claude.requests().remove(0).last_user_text();
    assert!(heard.contains("hello to you") && !heard.contains("Claude"), "{heard}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_shadow_the_first_answers_and_the_log_has_what_the_rules_would_choose() {
    let two = Two::start(gpu_says(), "[routing]\nmode = \"shadow\"\n").await;
    let said = ask(&two.server, &json!({"text": "git status"})).await;
    assert_eq!((said["answer"].as_str(), two.asked()), (Some("The GPU did it."), (1, 0)), "{said}");
    let why = decided(&log_of(&two.server, &said).await);
    assert!(why.contains("run on gpu") && why.contains("rule `git`") && why.contains("`claude`"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_suggest_mode_the_user_is_told_who_would_do_it_by_the_rules() {
    let two = Two::start(gpu_says(), "[routing]\nmode = \"suggest\"\n").await;
    let git = ask(&two.server, &json!({"text": "Please run git status and tell me what has changed."})).await;
    let answer = git["answer"].as_str().expect("an answer");
    assert!(answer.starts_with("The GPU did it.\n\n(") && answer.contains("claude"), "{answer}");
    let plain = ask(&two.server, &json!({"text": "How are you today?"})).await;
    assert_eq!((plain["answer"].as_str(), two.asked()), (Some("The GPU did it."), (2, 0)), "{plain}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_of_the_configuration_decides_before_the_built_in_ones() {
    let rule = "[[route]]\nname = \"invoices\"\nwhen = { any_words = [\"invoice\"] }\nto = { backend = \"claude\" }\n";
    let two = Two::start(gpu_says(), rule).await;
    let said = ask(&two.server, &json!({"text": "Remember that the invoice is paid"})).await;
    assert_eq!((said["answer"].as_str(), two.asked()), (Some("Claude did it."), (0, 1)), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_that_fails_is_stood_in_for_and_the_message_is_answered_once() {
    let two = Two::start(Reply::error(500, "oops"), "").await;
    let said = ask(&two.server, &json!({"text": "How are you today?"})).await;
    assert_eq!((said["answer"].as_str(), two.asked()), (Some("Claude did it."), (1, 1)), "{said}");
    let log = log_of(&two.server, &said).await;
    assert_eq!(log.iter().filter(|s| s.is_final()).count(), 1, "{log:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_that_is_not_there_is_stood_in_for() {
    let claude = FakeModelServer::start(|_| Reply::says("Claude did it.")).await;
    // Nobody listens where a listener has just been let go.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port");
    let config = backend("gpu", &format!("http://{gone}/v1"), "") + &backend("claude", &claude.base_url(), "");
    let (_folder, server) = start(&config).await;
    let said = ask(&server, &json!({"text": "How are you today?"})).await;
    assert_eq!(said["answer"], "Claude did it.", "{said}");
    let log = log_of(&server, &said).await;
    assert_eq!(log.iter().filter(|s| s.is_final()).count(), 1, "{log:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_private_stays_in_the_house_or_fails_visibly() {
    let private = json!({"text": "my diary of today", "private": true});
    let two = Two::start(gpu_says(), "").await;
    let said = ask(&two.server, &private).await;
    assert_eq!((said["status"].as_str(), said["error"].as_str()), (Some("failed"), Some("no_backend")), "{said}");
    assert_eq!(two.asked(), (0, 0), "nothing left the house");
    let next = ask(&two.server, &json!({"text": "hello", "conversation_id": said["conversation_id"]})).await;
    assert_eq!(next["status"], "completed", "the conversation goes on: {next}");

    let cloud = FakeModelServer::start(|_| Reply::says("From the cloud.")).await;
    let own = FakeModelServer::start(|_| Reply::says("From the house.")).await;
    let config = backend("cloud", &cloud.base_url(), "privacy = \"cloud\"")
        + &backend("own", &own.base_url(), "profile = \"vllm\"");
    let (_folder, server) = start(&config).await;
    let said = ask(&server, &private).await;
    assert_eq!((said["answer"].as_str(), cloud.request_count()), (Some("From the house."), 0), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_request_never_leaves_through_the_proxy_of_a_server_of_ones_own() {
    let proxy = FakeModelServer::start(|_| Reply::says("Read by the proxy.")).await;
    let via = format!("profile = \"vllm\"\nproxy = {:?}", proxy.base_url().trim_end_matches("/v1"));
    let (_folder, server) = start(&backend("own", "http://127.0.0.1:9/v1", &via)).await;
    let said = ask(&server, &json!({"text": "my diary of today", "private": true})).await;
    assert_eq!((said["status"].as_str(), said["error"].as_str()), (Some("failed"), Some("no_backend")), "{said}");
    assert_eq!(proxy.request_count(), 0, "the proxy was sent the diary");
    let public = ask(&server, &json!({"text": "hello"})).await;
    assert_eq!((public["answer"].as_str(), proxy.request_count()), (Some("Read by the proxy."), 1), "{public}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_is_a_backend_with_its_limits_and_only_its_own_environment() {
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
    let said = ask(&server, &json!({"text": "git status of $(id) \"here\""})).await;
    let answer = said["answer"].as_str().unwrap_or_default();
    let wanted = format!("in {} with 55 files, HOME none, TOKEN t-1: ", work.path().display());
    assert!(answer.starts_with(&wanted) && answer.contains("git status of $(id) \"here\""), "{said}");
    assert_eq!(gpu.request_count(), 0);
}
