//! Values that a model server reports fill in what the configuration leaves out.

use annie_testkit::model_server::{Description, FakeModelServer, Reply, Seen};
use serde_json::{Value, json};

use super::bad_models::ask;
use crate::{server::Server, world::eventually};

/// An Annie server whose only backend is this fake, with `more` configuration keys, once the fake has described itself.
async fn server_of(model: &FakeModelServer, more: &str) -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("annie.toml");
    let config = format!(
        "[[backend]]\nname = \"here\"\nbase_url = {:?}\nmodel = \"fake-model\"\n{more}\n[turn]\ncompaction_messages = 0\n",
        model.base_url()
    );
    std::fs::write(&path, config).expect("written");
    let server = Server::start(folder.path(), &["--config", path.to_str().expect("a path")], &[]).await;
    eventually("the model server was queried", async || backend(&server).await["profile"].is_object().then_some(()))
        .await;
    (folder, server)
}

async fn backend(server: &Server) -> Value {
    server.get("/api/v1/status").await.1["backends"][0].clone()
}

/// Sends several messages in a growing conversation. Returns the size of the texts in the last request, in bytes, and its
/// output limit in tokens.
async fn last_prompt(model: &FakeModelServer, server: &Server) -> (usize, u64) {
    for n in 0..12 {
        let sent =
            ask(server, &format!("What do you think of number {n}? {}", "It is a fine day here. ".repeat(80))).await;
        assert_eq!(sent["status"], "completed", "{sent}");
    }
    let last: Seen = model.requests().pop().expect("a request");
    let texts = ["system", "user", "assistant"].iter().flat_map(|role| last.texts_of(role)).map(|t| t.len()).sum();
    (texts, last.json()["max_tokens"].as_u64().expect("a limit"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn context_window_of_the_model_server_limits_the_prompt_and_a_configured_one_wins() {
    let model = FakeModelServer::start(|_| Reply::says("I see.")).await;
    model.describe_as(Description::llama_cpp("fake-model", 4_096, 2));
    let (_folder, server) = server_of(&model, "").await;
    let sent = backend(&server).await;
    assert_eq!(sent["context_tokens_max"], json!({"value": 4_096, "from": "server"}), "{sent}");
    assert_eq!(sent["slots"], json!({"value": 2, "from": "server"}), "{sent}");
    assert_eq!(sent["profile"], json!({"value": "llamacpp", "from": "server"}), "{sent}");
    assert_eq!(sent["server"], "llama.cpp b5200-0123abc", "{sent}");
    let (bytes, output) = last_prompt(&model, &server).await;
    assert!(bytes < 4 * 4_096, "{bytes} bytes do not fit into 4096 tokens");
    assert!(output <= 1_024, "a small window keeps a quarter for the answer: {output}");
    let (_, queue) = server.get("/api/v1/queue").await;
    let line = &queue["backends"][0];
    assert_eq!((&line["slots"], &line["slots_from"]), (&json!(2), &json!("server")), "{line}");
    drop(server);

    model.describe_as(Description::llama_cpp("fake-model", 30_000, 2));
    let (_folder, server) = server_of(&model, "").await;
    let (bytes, _) = last_prompt(&model, &server).await;
    assert!(bytes > 4 * 4_096, "a large window is used as well: {bytes}");
    drop(server);

    model.describe_as(Description::llama_cpp("fake-model", 4_096, 2));
    let (_folder, server) = server_of(&model, "context_tokens_max = 30000\nslots = 3\nprofile = \"generic\"").await;
    let sent = backend(&server).await;
    assert_eq!(sent["context_tokens_max"], json!({"value": 30_000, "from": "configured"}), "{sent}");
    assert_eq!(sent["slots"], json!({"value": 3, "from": "configured"}), "{sent}");
    assert_eq!(sent["profile"], json!({"value": "generic", "from": "configured"}), "{sent}");
    let (bytes, output) = last_prompt(&model, &server).await;
    assert!(bytes > 4 * 4_096, "the configured value counts: {bytes}");
    assert_eq!(output, 2_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn context_window_of_a_model_loaded_by_the_first_round_is_learned_afterwards() {
    let model = FakeModelServer::start(|_| Reply::says("Hello.")).await;
    model.describe_as(Description::ollama("fake-model", 8_192, true).without("/api/ps"));
    let (_folder, server) = server_of(&model, "").await;
    let sent = backend(&server).await;
    assert_eq!(sent["context_tokens_max"], json!({"value": 4_096, "from": "default"}), "{sent}");
    model.describe_as(Description::ollama("fake-model", 8_192, true));
    assert_eq!(ask(&server, "hi").await["answer"], "Hello.");
    let is_known = async || {
        let sent = backend(&server).await;
        (sent["context_tokens_max"] == json!({"value": 8_192, "from": "server"})).then_some(())
    };
    eventually("the window of the loaded model is known", is_known).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_request_runs_on_an_unconfigured_model_server_of_this_machine() {
    let model = FakeModelServer::start(|_| Reply::says("It stays here.")).await;
    let folder = tempfile::tempdir().expect("a folder");
    let url = model.base_url();
    let env = [("ANNIE_MODEL", "fake-model"), ("OPENAI_BASE_URL", url.as_str())];
    let server = Server::start(folder.path(), &[], &env).await;
    let body = json!({"text": "hello", "private": true});
    let (status, sent) = server.post("/api/v1/messages?wait=20", &body).await.expect("an answer");
    assert_eq!((status, &sent["answer"]), (200, &json!("It stays here.")), "{sent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_reported_as_without_tools_is_run_by_commands_from_the_first_round() {
    let model = FakeModelServer::start(|seen| {
        if seen.tool_names().is_empty() { Reply::says("Hello.") } else { Reply::error(400, "does not support tools") }
    })
    .await;
    model.describe_as(Description::ollama("fake-model", 8_192, false));
    let (_folder, server) = server_of(&model, "").await;
    let sent = ask(&server, "hi").await;
    assert_eq!((&sent["answer"], model.request_count()), (&json!("Hello."), 1), "{sent}");
}
