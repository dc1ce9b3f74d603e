//! What a model server says of itself fills in what the configuration leaves out.

use annie_testkit::model_server::{Description, FakeModelServer, Reply, Seen};
use serde_json::{Value, json};

use super::bad_models::ask;
use crate::{server::Server, world::eventually};

/// A server of Annie's with this fake as its only backend, with more keys, once the fake has been asked what it is.
async fn server_of(model: &FakeModelServer, more: &str) -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("annie.toml");
    let config =
        format!("[[backend]]\nname = \"here\"\nbase_url = {:?}\nmodel = \"fake-model\"\n{more}\n", model.base_url());
    std::fs::write(&path, config).expect("written");
    let server = Server::start(folder.path(), &["--config", path.to_str().expect("a path")], &[]).await;
    eventually("its server was asked", async || backend(&server).await["profile"].is_object().then_some(())).await;
    (folder, server)
}

async fn backend(server: &Server) -> Value {
    server.get("/api/v1/status").await.1["backends"][0].clone()
}

/// The last of several requests of a conversation that grows: its texts in bytes, and the longest answer that it asks for.
async fn last_prompt(model: &FakeModelServer, server: &Server) -> (usize, u64) {
    for n in 0..12 {
        let said =
            ask(server, &format!("What do you think of number {n}? {}", "It is a fine day here. ".repeat(80))).await;
        assert_eq!(said["status"], "completed", "{said}");
    }
    let last: Seen = model.requests().pop().expect("a request");
    let texts = ["system", "user", "assistant"].iter().flat_map(|role| last.texts_of(role)).map(|t| t.len()).sum();
    (texts, last.json()["max_tokens"].as_u64().expect("a limit"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn window_that_the_server_says_limits_the_prompt_and_a_configured_one_wins() {
    let model = FakeModelServer::start(|_| Reply::says("I see.")).await;
    model.describe_as(Description::llama_cpp("fake-model", 4_096, 2));
    let (_folder, server) = server_of(&model, "").await;
    let said = backend(&server).await;
    assert_eq!(said["context_tokens_max"], json!({"value": 4_096, "from": "server"}), "{said}");
    assert_eq!(said["slots"], json!({"value": 2, "from": "server"}), "{said}");
    assert_eq!(said["profile"], json!({"value": "llamacpp", "from": "server"}), "{said}");
    assert_eq!(said["server"], "llama.cpp b5200-0123abc", "{said}");
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
    let said = backend(&server).await;
    assert_eq!(said["context_tokens_max"], json!({"value": 30_000, "from": "configured"}), "{said}");
    assert_eq!(said["slots"], json!({"value": 3, "from": "configured"}), "{said}");
    assert_eq!(said["profile"], json!({"value": "generic", "from": "configured"}), "{said}");
    let (bytes, output) = last_prompt(&model, &server).await;
    assert!(bytes > 4 * 4_096, "the operator's word counts: {bytes}");
    assert_eq!(output, 2_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn window_of_a_model_that_is_loaded_by_the_first_round_is_learned_after_it() {
    let model = FakeModelServer::start(|_| Reply::says("Hello.")).await;
    model.describe_as(Description::ollama("fake-model", 8_192, true).without("/api/ps"));
    let (_folder, server) = server_of(&model, "").await;
    let said = backend(&server).await;
    assert_eq!(said["context_tokens_max"], json!({"value": 4_096, "from": "default"}), "{said}");
    model.describe_as(Description::ollama("fake-model", 8_192, true));
    assert_eq!(ask(&server, "hi").await["answer"], "Hello.");
    let is_known = async || {
        let said = backend(&server).await;
        (said["context_tokens_max"] == json!({"value": 8_192, "from": "server"})).then_some(())
    };
    eventually("the window of the loaded model is known", is_known).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_request_runs_on_a_server_of_this_machine_that_nobody_described() {
    let model = FakeModelServer::start(|_| Reply::says("It stays here.")).await;
    let folder = tempfile::tempdir().expect("a folder");
    let url = model.base_url();
    let env = [("ANNIE_MODEL", "fake-model"), ("OPENAI_BASE_URL", url.as_str())];
    let server = Server::start(folder.path(), &[], &env).await;
    let body = json!({"text": "hello", "private": true});
    let (status, said) = server.post("/api/v1/messages?wait=20", &body).await.expect("an answer");
    assert_eq!((status, &said["answer"]), (200, &json!("It stays here.")), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_without_tools_by_its_servers_word_is_run_by_commands_from_the_first_round() {
    let model = FakeModelServer::start(|seen| {
        if seen.tool_names().is_empty() { Reply::says("Hello.") } else { Reply::error(400, "does not support tools") }
    })
    .await;
    model.describe_as(Description::ollama("fake-model", 8_192, false));
    let (_folder, server) = server_of(&model, "").await;
    let said = ask(&server, "hi").await;
    assert_eq!((&said["answer"], model.request_count()), (&json!("Hello."), 1), "{said}");
}
