//! Models that misbehave, against the real binary. Each misbehaviour has one defined end that the user can read, the
//! conversation continues afterwards, and the process stays alive.

use annie_testkit::model_server::{FakeModelServer, Reply, Seen};
use serde_json::{Value, json};

use crate::server::Server;

/// A server whose only backend is this fake model.
pub(super) async fn server_with(model: &FakeModelServer, more: &str) -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("annie.toml");
    let text = format!(
        "{more}\n[[backend]]\nname = \"fake\"\nprofile = \"generic\"\nbase_url = \"{}\"\nmodel = \"m\"\nretries_max = 1\n\
         retry_wait_ms_min = 1\nretry_wait_ms_max = 5\nfirst_token_ms_max = 400\nidle_ms_max = 400\n\
         reply_bytes_max = 200000\n[limits]\nround_ms_max = 3000\n",
        model.base_url()
    );
    std::fs::write(&config, text).expect("the configuration is written");
    let path = config.to_str().expect("a path").to_owned();
    let server = Server::start(folder.path(), &["--config", &path], &[]).await;
    (folder, server)
}

pub(super) async fn ask(server: &Server, text: &str) -> Value {
    let body = json!({"text": text, "conversation_key": "k"});
    let (status, sent) = server.post("/api/v1/messages?wait=20", &body).await.expect("the server answers");
    assert_eq!(status, 200, "{sent}");
    sent
}

fn is_second(seen: &Seen) -> bool {
    seen.last_user_text().contains("and now?")
}

async fn fails_with(misbehave: impl Fn() -> Reply + Send + Sync + 'static, code: &str) {
    let model =
        FakeModelServer::start(move |seen| if is_second(seen) { Reply::says("Fine.") } else { misbehave() }).await;
    let (_folder, server) = server_with(&model, "").await;
    let sent = ask(&server, "hello").await;
    assert_eq!(sent["status"], "failed", "{sent}");
    assert_eq!(sent["error"], code, "{sent}");
    let next = ask(&server, "and now?").await;
    assert_eq!(next["answer"], "Fine.", "the conversation continues: {next}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_that_refuses_its_key_fails_the_turn_with_model_auth() {
    fails_with(|| Reply::error(401, "bad key"), "model_auth").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_with_an_empty_account_fails_the_turn_with_model_payment() {
    fails_with(|| Reply::error(402, "no credit"), "model_payment").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_with_a_lasting_rate_limit_fails_the_turn_with_model_rate_limited() {
    fails_with(|| Reply::rate_limited(None), "model_rate_limited").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_server_that_is_broken_fails_the_turn_with_model_unavailable() {
    fails_with(|| Reply::error(500, "oops"), "model_unavailable").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_prompt_that_does_not_fit_fails_the_turn_with_context_overflow() {
    fails_with(Reply::overflow_vllm, "context_overflow").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_stream_cut_in_the_middle_fails_the_turn_with_model_truncated() {
    fails_with(|| Reply::says("half an answer that never").cut_after_events(2), "model_truncated").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_stream_that_stalls_fails_the_turn_with_model_timeout() {
    fails_with(|| Reply::says("half an answer that never").stall_after_events(2), "model_timeout").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_stream_without_end_fails_the_turn_with_model_protocol() {
    fails_with(|| Reply::endless("and so on "), "model_protocol").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_answer_outside_the_protocol_fails_the_turn_with_model_protocol() {
    fails_with(|| Reply::body(200, "<html>hello</html>"), "model_protocol").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_corrects_its_invented_tools_and_broken_arguments_after_errors() {
    let model = FakeModelServer::start(|seen| {
        let last = seen.messages().last().cloned().unwrap_or_default();
        let text = last["content"].to_string();
        if text.contains("there is no tool") {
            Reply::calls_raw("get_skill", "{broken")
        } else if text.contains("not valid JSON") {
            Reply::says("I found my way.")
        } else {
            Reply::calls([("launch_rockets", json!({"at": "once"}))])
        }
    })
    .await;
    let (_folder, server) = server_with(&model, "").await;
    assert_eq!(ask(&server, "hello").await["answer"], "I found my way.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_that_never_stops_calling_tools_is_paused_with_a_report() {
    let model = FakeModelServer::start(|seen| {
        let round = seen.messages().len();
        Reply::calls([("get_skill", json!({"search": format!("word{round}")}))])
    })
    .await;
    let (_folder, server) = server_with(&model, "").await;
    let sent = ask(&server, "hello").await;
    assert_eq!(sent["paused"], true, "{sent}");
    assert!(sent["answer"].as_str().unwrap_or_default().contains("Would you like me to continue?"), "{sent}");
    assert_eq!(model.request_count(), 6, "six rounds and no more [S4 7.2]");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_that_repeats_one_call_is_stopped_with_an_explanation() {
    let model = FakeModelServer::start(|_| Reply::calls([("get_skill", json!({"search": "mail"}))])).await;
    let (_folder, server) = server_with(&model, "[turn]\niterations_max = 30\n").await;
    let sent = ask(&server, "hello").await;
    assert!(sent["answer"].as_str().unwrap_or_default().starts_with("I had to stop"), "{sent}");
    assert!(model.request_count() < 12, "{} rounds", model.request_count());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backend_that_changes_its_state_is_logged_once_for_each_change() {
    let model = FakeModelServer::start(|seen| match seen.last_user_text() {
        text if text.contains("one") => Reply::error(401, "bad key"),
        text if text.contains("two") => Reply::error(402, "no credit"),
        text if text.contains("three") => Reply::rate_limited(Some(1)),
        _ => Reply::says("Fine."),
    })
    .await;
    let (_folder, server) = server_with(&model, "[log]\nformat = \"json\"\n[turn]\ncompaction_messages = 0\n").await;
    for text in ["well", "one", "one again", "one once more", "two", "two again", "well", "well again"] {
        ask(&server, text).await;
    }
    for text in ["three", "three again", "well", "well again"] {
        ask(&server, text).await;
    }
    let lines = server.log();
    let lines = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_backend = lines.filter(|line| line["fields"]["backend"] == "fake");
    let logged: Vec<String> = of_backend
        .filter(|line| {
            let is_of_limit = line["fields"]["message"].as_str().is_some_and(|text| text.contains("rate limit"));
            line["level"] == "WARN" || line["fields"]["failed_rounds"].is_number() || is_of_limit
        })
        .map(|line| {
            let field = |name: &str| line["fields"][name].as_str().unwrap_or_default().to_owned();
            let about = line["fields"]["closed_ms"].as_u64().map_or_else(|| field("kind"), |ms| format!("{ms} ms"));
            format!("{} {} {about}", line["level"].as_str().unwrap_or_default(), field("message"))
        })
        .collect();
    let fails = "WARN the backend fails; `annie status` says since when";
    let wanted = [
        format!("{fails} auth"),
        format!("{fails} payment"),
        "INFO the backend answers again ".to_owned(),
        "WARN the provider's rate limit refuses rounds; those that can wait do so until the rate window opens 1000 ms"
            .to_owned(),
        "INFO the backend accepts rounds again after its rate limit ".to_owned(),
    ];
    assert_eq!(logged, wanted);
}
