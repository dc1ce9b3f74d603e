//! The OpenAI-compatible API as its clients use it.

use annie_actors::DeleteOptions;
use annie_core::{
    event::Scope,
    ids::ConversationId,
    message::{ModelError, ModelErrorKind},
};
use annie_testkit::scripted_model::ScriptedModel;
use reqwest::Method;
use serde_json::{Value, json};

use super::world::{Server, delegating, echo, read, sse};
use crate::auth::KeyScope;

fn ask(text: &str) -> Value {
    json!({ "model": "annie", "messages": [{ "role": "user", "content": text }] })
}

const PATH: &str = "/v1/chat/completions";

#[tokio::test]
async fn models_have_descriptions() {
    let server = Server::start(echo()).await;
    let (_, list) = server.get("/v1/models").await;
    let ids: Vec<&str> = list["data"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["annie", "annie/multi_agent", "annie/single_loop", "annie/direct"]);
    assert_eq!(list["data"][0]["description"], "scripted: a script in a test");
    for path in ["/v1/models/annie/direct", "/v1/models/annie%2Fdirect"] {
        assert_eq!(server.get(path).await.1["id"], "annie/direct");
    }
    let (status, error) = server.get("/v1/models/gpt-4o").await;
    assert_eq!((status, &error["error"]["code"]), (404, &json!("model_not_found")));
}

#[tokio::test]
async fn completion_without_stream_returns_whole_answer() {
    let server = Server::start(echo()).await;
    let (status, done) = server.post(PATH, ask("hi")).await;
    assert_eq!((status, &done["object"]), (200, &json!("chat.completion")));
    assert_eq!(done["choices"][0]["message"], json!({"role": "assistant", "content": "You said: hi", "refusal": null}));
    assert_eq!(done["choices"][0]["finish_reason"], "stop");
    assert!(done["id"].as_str().unwrap().starts_with("chatcmpl-") && done["usage"]["total_tokens"].is_u64());
}

#[tokio::test]
async fn streamed_completion_is_complete_and_well_formed() {
    let server = Server::start(delegating()).await;
    let mut body = ask("do it");
    body["stream"] = true.into();
    body["stream_options"] = json!({ "include_usage": true });
    let text = server.request(Method::POST, PATH).json(&body).send().await.unwrap().text().await.unwrap();
    let data: Vec<String> = sse(&text).into_iter().map(|e| e.2).collect();
    assert_eq!(data.last().unwrap(), "[DONE]");
    let chunks: Vec<Value> = data[..data.len() - 1].iter().map(|d| serde_json::from_str(d).unwrap()).collect();
    let all = |field: &str| -> String {
        chunks.iter().filter_map(|c| c["choices"][0]["delta"][field].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(all("content"), "I have it done.\n\nAll is done.");
    assert!(all("reasoning_content").contains("doer: test.put (success)"), "{}", all("reasoning_content"));
    assert!(chunks.iter().all(|c| c["id"] == chunks[0]["id"] && c["created"] == chunks[0]["created"]));
    assert!(chunks.iter().all(|c| c["choices"][0]["delta"].get("tool_calls").is_none()));
    assert_eq!(chunks.last().unwrap()["choices"], json!([]));
}

#[tokio::test]
async fn completion_continues_named_conversation_and_starts_new_one_without_name() {
    let server = Server::start(echo()).await;
    let named = |text: &str| {
        let body = json!({ "model": "annie", "messages": [
            { "role": "user", "content": "old" }, { "role": "assistant", "content": "older" },
            { "role": "user", "content": text }
        ]});
        server.request(Method::POST, PATH).header("x-openwebui-chat-id", "chat-1").json(&body).send()
    };
    let first = named("1").await.unwrap();
    let second = named("2").await.unwrap();
    assert_eq!(first.headers()["x-annie-conversation"], second.headers()["x-annie-conversation"]);
    let requests = server.model.requests();
    let request_messages = |n: usize| serde_json::to_string(&requests[n].messages).unwrap();
    assert!(request_messages(0).contains("older"), "a new conversation starts with the posted history");
    assert_eq!(
        request_messages(1).matches("older").count(),
        1,
        "a continued conversation does not repeat the posted history"
    );
    assert!(request_messages(1).contains("You said: 1"));
    let plain = server.request(Method::POST, PATH).json(&ask("3")).send().await.unwrap();
    assert_ne!(plain.headers()["x-annie-conversation"], first.headers()["x-annie-conversation"]);
}

#[tokio::test]
async fn completion_continues_the_next_conversation_of_a_name_whose_first_one_was_deleted() {
    let server = Server::start(echo()).await;
    let named = async |text: &str| {
        let body = json!({ "model": "annie", "messages": [
            { "role": "user", "content": "old" }, { "role": "assistant", "content": "older" },
            { "role": "user", "content": text }
        ]});
        let sent = server.request(Method::POST, PATH).header("x-openwebui-chat-id", "chat-1").json(&body).send();
        let response = sent.await.unwrap();
        let id: ConversationId = response.headers()["x-annie-conversation"].to_str().unwrap().parse().unwrap();
        assert_eq!(read(response).await.0, 200);
        id
    };
    let first = named("1").await;
    let options = DeleteOptions { by: "me".to_owned(), ..DeleteOptions::default() };
    server.state.kernel.delete_conversation(Scope::Operator, first, options).await.unwrap();
    let next = named("2").await;
    assert_ne!(next, first);
    assert_eq!(named("3").await, next);
    let requests = server.model.requests();
    let count = |n: usize| serde_json::to_string(&requests[n].messages).unwrap().matches("older").count();
    assert_eq!((count(1), count(2)), (1, 1), "only a new conversation starts with the posted history");
}

#[tokio::test]
async fn openai_errors_have_the_shape_that_libraries_expect() {
    let failing =
        |_: &annie_core::message::ModelRequest, _| Err(ModelError::new(ModelErrorKind::Overflow, "inner words"));
    let server = Server::start(ScriptedModel::new(failing)).await;
    let mut tools = ask("x");
    tools["functions"] = json!([{ "name": "f" }]);
    let mut unknown = ask("x");
    unknown["model"] = "gpt-4o".into();
    for (body, status, code) in [
        (tools, 400, "unsupported_parameter"),
        (unknown, 404, "model_not_found"),
        (json!({ "model": "annie" }), 400, "invalid_request"),
        (json!({ "model": "annie", "messages": [] }), 400, "invalid_request"),
        (ask("x"), 400, "context_length_exceeded"),
    ] {
        let (got, error) = server.post(PATH, body).await;
        assert_eq!((got, &error["error"]["code"]), (status, &json!(code)), "{error}");
        assert!(!error.to_string().contains("inner words"));
    }
    let mut streamed = ask("x");
    streamed["stream"] = true.into();
    let text = server.request(Method::POST, PATH).json(&streamed).send().await.unwrap().text().await.unwrap();
    let last: Value = serde_json::from_str(&sse(&text).last().unwrap().2).unwrap();
    assert_eq!(last["error"]["code"], "context_length_exceeded");
    server.key("ann", &[KeyScope::Chat]).await;
    let (status, error) = server.post(PATH, ask("x")).await;
    assert_eq!((status, &error["error"]["code"]), (401, &json!("invalid_api_key")));
}

#[tokio::test]
async fn completion_without_conversation_is_cancelled_when_client_disconnects() {
    let server = Server::start(ScriptedModel::saying("x").hanging_when(|_, _| true)).await;
    let mut body = ask("x");
    body["stream"] = true.into();
    let response = server.request(Method::POST, PATH).json(&body).send().await.unwrap();
    server.model.called(1).await;
    drop(response);
    tokio::time::timeout(super::world::PATIENCE, server.model.abandoned(1)).await.unwrap();
}

#[tokio::test]
async fn openwebui_user_header_requires_scope_impersonate() {
    let server = Server::start(echo()).await;
    let page = server.key("page", &[KeyScope::Chat, KeyScope::Impersonate]).await;
    let plain = server.key("plain", &[KeyScope::Chat]).await;
    for (key, owner) in [(&page, "ann"), (&plain, "plain")] {
        let request = server.request(Method::POST, PATH).bearer_auth(key).header("x-openwebui-user-id", "ann");
        let response = request.json(&ask("hi")).send().await.unwrap();
        let id = response.headers()["x-annie-conversation"].to_str().unwrap().to_owned();
        read(response).await;
        let row = server.state.kernel.conversation(annie_core::event::Scope::Operator, id.parse().unwrap()).await;
        assert_eq!(row.unwrap().user.as_str(), owner);
    }
}

#[tokio::test]
async fn trusted_page_continues_only_responses_of_the_user_it_names() {
    let server = Server::start(echo()).await;
    let page = server.key("page", &[KeyScope::Chat, KeyScope::Impersonate]).await;
    let respond = async |user: &str, previous: Option<&Value>| {
        let body = json!({"model": "annie", "input": "hi", "previous_response_id": previous});
        let request = server.request(Method::POST, "/v1/responses").bearer_auth(&page);
        let response = request.header("x-openwebui-user-id", user).json(&body).send().await.unwrap();
        read(response).await
    };
    let (_, first) = respond("ann", None).await;
    let id = &first["id"];
    assert_eq!(respond("ann", Some(id)).await.0, 200);
    assert_eq!(respond("bob", Some(id)).await.0, 404);
}
