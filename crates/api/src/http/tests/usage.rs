//! Usage over HTTP and gRPC: sums, bad input, and the borders between users.

use annie_core::message::Usage;
use annie_testkit::scripted_model::{ScriptedModel, says};
use serde_json::{Value, json};

use super::world::{Server, read};
use crate::{
    auth::KeyScope,
    grpc::v1::{self, usage_client::UsageClient},
};

/// A model whose every reply costs a cent.
fn priced() -> ScriptedModel {
    ScriptedModel::new(|_, _| {
        let usage = Usage {
            input_tokens: 100,
            output_tokens: 20,
            cached_tokens: 60,
            cache_written_tokens: 5,
            reasoning_tokens: 7,
            cost_usd: 0.01,
        };
        Ok(annie_core::message::ModelReply { usage, ..says("Hello.") })
    })
}

async fn get_as(server: &Server, key: &str, path: &str) -> (u16, Value) {
    read(server.request(reqwest::Method::GET, path).bearer_auth(key).send().await.unwrap()).await
}

#[tokio::test]
async fn usage_is_summed_up_over_http_and_grpc() {
    let server = Server::start(priced()).await;
    server.say(json!({"text": "hello"})).await;
    server.say(json!({"text": "hello again"})).await;
    let (status, answer) = server.get("/api/v1/usage?by=backend").await;
    let sum = json!({"key": "main", "rounds": 2, "input_tokens": 200, "cached_tokens": 120, "cache_written_tokens": 10,
        "output_tokens": 40, "reasoning_tokens": 14, "cost_usd": 0.02});
    assert_eq!((status, &answer["usage"]), (200, &json!([sum])), "{answer}");
    let mut total = sum;
    total["key"] = json!("");
    assert_eq!(answer["total"], total);
    for (by, rows) in [("day", 1), ("user", 1), ("conversation", 2), ("skill", 1)] {
        let (_, answer) = server.get(&format!("/api/v1/usage?by={by}")).await;
        assert_eq!(
            (answer["usage"].as_array().map(Vec::len), &answer["total"]),
            (Some(rows), &total),
            "{by}: {answer}"
        );
    }
    let (_, none) = server.get("/api/v1/usage?to=2001-01-01").await;
    assert_eq!((&none["usage"], &none["total"]["rounds"]), (&json!([]), &json!(0)));

    let mut client = UsageClient::connect(format!("http://{}", server.at)).await.unwrap();
    let asked = v1::GetUsageRequest { by: "user".to_owned(), ..Default::default() };
    let got = client.get(asked).await.unwrap().into_inner();
    assert_eq!((got.usage[0].key.as_str(), got.usage[0].rounds, got.total.unwrap().input_tokens), ("me", 2, 200));
}

#[tokio::test]
async fn usage_with_bad_input_is_refused_with_the_reason() {
    let server = Server::start(priced()).await;
    for (query, part) in [
        ("by=planet", "not by \\\"planet\\\""),
        ("by=all", "not by"),
        ("from=yesterday", "is no day"),
        ("to=2026-02-30", "is no day"),
        ("from=2026-02-02&to=2026-02-01", "after the last day"),
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("user=ann", "user"),
    ] {
        let (status, problem) = server.get(&format!("/api/v1/usage?{query}")).await;
        assert_eq!(status, 400, "{query}: {problem}");
        assert!(problem.to_string().contains(part), "{query}: {problem}");
    }
}

#[tokio::test]
async fn usage_of_all_users_needs_the_scope_admin() {
    let server = Server::start(priced()).await;
    server.say(json!({"text": "hello"})).await;
    let ann = server.key("ann", &[KeyScope::JobsRead, KeyScope::OpsRead]).await;
    let (status, own) = get_as(&server, &ann, "/api/v1/usage?by=user").await;
    assert_eq!((status, &own["usage"]), (200, &json!([])), "another user's usage is not shown: {own}");
    let (status, _) = get_as(&server, &ann, "/api/v1/usage?by=user&all=true").await;
    assert_eq!(status, 403);
    let admin = server.key("root", &[KeyScope::Admin]).await;
    let (status, all) = get_as(&server, &admin, "/api/v1/usage?by=user&all=true").await;
    assert_eq!((status, &all["usage"][0]["key"]), (200, &json!("me")), "{all}");
    let chat = server.key("eve", &[KeyScope::Chat]).await;
    assert_eq!(get_as(&server, &chat, "/api/v1/usage").await.0, 403);
}
