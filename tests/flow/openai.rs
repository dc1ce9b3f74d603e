//! The OpenAI-compatible API of the real binary, with a model server behind it, across a SIGKILL.

use std::path::Path;

use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::{Value, json};

use crate::{server::Server, world::eventually};

/// Writes a configuration with this model server as the only backend and returns its path.
fn configured(folder: &Path, model: &FakeModelServer) -> String {
    let config = format!("[[backend]]\nname = \"fake\"\nbase_url = {:?}\nmodel = \"fake\"\n", model.base_url());
    let path = folder.join("annie.toml");
    std::fs::write(&path, config).expect("the configuration is written");
    path.to_str().expect("a path").to_owned()
}

fn request() -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    json!({
        "model": "annie", "messages": [{"role": "user", "content": "Weather?"}],
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": parameters}}],
    })
}

async fn complete(server: &Server, body: &Value) -> Option<Value> {
    let request = server.http.post(format!("{}/v1/chat/completions", server.url)).header("idempotency-key", "one");
    request.json(body).send().await.ok()?.json().await.ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_tool_call_survives_a_sigkill_and_a_repeat_calls_no_model_again() {
    let model = FakeModelServer::start(|_| Reply::calls([("weather", json!({"city": "Prague"}))])).await;
    let folder = tempfile::tempdir().expect("a folder");
    let config = configured(folder.path(), &model);
    let arguments = ["--config", config.as_str()];
    let mut server = Server::start(folder.path(), &arguments, &[]).await;
    let first = complete(&server, &request()).await.expect("an answer");
    assert_eq!(first["choices"][0]["finish_reason"], "tool_calls", "{first}");
    server.kill();
    let server = server.again(folder.path(), &arguments, &[]).await;
    let second = complete(&server, &request()).await.expect("an answer");
    assert_eq!((&second["id"], &second["choices"]), (&first["id"], &first["choices"]));
    assert_eq!(model.request_count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_tool_round_interrupted_by_a_sigkill_is_repeated_with_the_same_request() {
    let replies = [Reply::says("x").stall_after_events(1), Reply::calls([("weather", json!({"city": "Prague"}))])];
    let model = FakeModelServer::queue(replies).await;
    let folder = tempfile::tempdir().expect("a folder");
    let config = configured(folder.path(), &model);
    let arguments = ["--config", config.as_str()];
    let mut server = Server::start(folder.path(), &arguments, &[]).await;
    let (url, http) = (format!("{}/v1/chat/completions", server.url), server.http.clone());
    let cut = http.post(url).header("idempotency-key", "one").json(&request()).send();
    tokio::select! {
        _ = cut => panic!("the model never answers"),
        () = model.arrived(1) => server.kill(),
    }
    let server = server.again(folder.path(), &arguments, &[]).await;
    let answer = eventually("the turn is answered", async || complete(&server, &request()).await).await;
    assert_eq!(answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "weather", "{answer}");
    let asked: Vec<Value> = model.requests().iter().map(|seen| seen.json()).collect();
    assert_eq!(
        (asked.len(), &asked[0]["messages"], &asked[0]["tools"]),
        (2, &asked[1]["messages"], &asked[1]["tools"])
    );
}
