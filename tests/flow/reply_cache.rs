//! Replies of models that are used again for an equal request of the same user.

use std::sync::Arc;

use annie_actors::{CacheLimits, Submission};
use annie_core::ids::UserId;
use annie_testkit::{
    model_server::{FakeModelServer, Reply},
    scripted_model::{ScriptedModel, says},
};
use serde_json::{Value, json};

use super::bad_models::{ask, server_with};
use crate::world::{WorldParts, ann};

const ON: &str = "mode = \"single_loop\"\n[cache]\nseconds = 300\n";

/// A model whose replies are numbered.
async fn counting() -> FakeModelServer {
    let count = std::sync::atomic::AtomicU64::new(0);
    FakeModelServer::start(move |_| {
        Reply::says(format!("Reply {}.", count.fetch_add(1, std::sync::atomic::Ordering::SeqCst)))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_small_talk_is_answered_from_the_cache_at_no_cost_and_the_log_says_so() {
    let model = counting().await;
    let (_folder, server) = server_with(&model, &format!("{ON}[prompt]\nshort_for_small_talk = true\n")).await;
    let say = async |key: &str, text: &str| {
        let body = json!({"text": text, "conversation_key": key});
        server.post("/api/v1/messages?wait=20", &body).await.expect("the server answers").1
    };
    // The prompt contains the minute of the user's clock, so the two messages may fall into two minutes once, but not twice.
    let (mut hit, mut first) = (Value::Null, Value::Null);
    for key in ["a", "b", "c"] {
        first = hit;
        hit = say(key, "Hello!").await;
        if first["answer"] == hit["answer"] {
            break;
        }
    }
    assert_eq!(first["answer"], hit["answer"], "{hit}");
    let replied = async |sent: &Value| {
        let id = sent["conversation_id"].as_str().expect("an id");
        let (_, log) = server.get(&format!("/api/v1/conversations/{id}/events")).await;
        log["events"].as_array().and_then(|all| all.iter().find(|e| e["kind"] == "model_replied").cloned()).expect("it")
    };
    let (of_first, of_hit) = (replied(&first).await, replied(&hit).await);
    assert_eq!((&of_first["cached"], &of_hit["cached"]), (&Value::Null, &json!(true)), "{of_hit}");
    assert!(of_first["usage"]["input_tokens"] != json!(0) && of_hit["usage"]["input_tokens"] == json!(0), "{of_hit}");
    let metrics = server.http.get(format!("{}/metrics", server.url)).send().await.expect("an answer");
    let metrics = metrics.text().await.expect("text");
    assert!(metrics.contains("annie_reply_cache_total{result=\"hit\"} 1"), "{metrics}");
    let before = model.request_count();
    ask(&server, "What is due?").await;
    ask(&server, "What is due?").await;
    assert_eq!(model.request_count(), before + 2, "rounds with tools are never cached");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_is_off_by_default() {
    let model = counting().await;
    let settings = ON.replace("300", "0") + "[prompt]\nshort_for_small_talk = true\n";
    let (_folder, server) = server_with(&model, &settings).await;
    for key in ["a", "b", "c"] {
        let body = json!({"text": "Hello!", "conversation_key": key});
        server.post("/api/v1/messages?wait=20", &body).await.expect("the server answers");
    }
    assert_eq!(model.request_count(), 3);
}

#[tokio::test]
async fn cached_reply_is_for_its_own_user() {
    let model = Arc::new(ScriptedModel::new(|_, call| Ok(says(format!("Reply {call}.")))));
    let mut parts = WorldParts::with_model(model.clone());
    parts.limits.cache = CacheLimits { kept_ms: 300_000, ..CacheLimits::default() };
    parts.limits.is_small_talk_short = true;
    let world = parts.start().await;
    let say = async |user: UserId, text: &str| {
        world.kernel.submit(Submission::new(user, "test", text)).await.expect("accepted")
    };
    let mut calls = 0;
    // The prompt contains the minute, so another text is tried if that has changed meanwhile.
    for text in ["Hello!", "Thanks!", "Good morning!"] {
        let first = world.answer(&say(ann(), text).await).await;
        say(UserId::new("bob").expect("an id"), text).await;
        model.called(calls + 2).await;
        if world.answer(&say(ann(), text).await).await == first {
            world.kernel.stop().await;
            return;
        }
        calls += 3;
    }
    panic!("the reply is never used again");
}
