//! Tests of the client against a real server on a loopback port that misbehaves in every known way.

use std::sync::atomic::{AtomicU64, Ordering};

use annie_core::{
    caller::Sampling,
    message::{Finish, Message},
    ports::Draft,
};
use annie_testkit::model_server::{CallShape, FakeModelServer, Reply};
use serde_json::json;

use super::*;
use crate::Secret;

mod contract;
mod describe;
mod notices;

const KEY: &str = "sk-do-not-show-me";

struct Counting(AtomicU64);

impl Entropy for Counting {
    fn next_u64(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

fn config(server: &FakeModelServer) -> ModelConfig {
    ModelConfig {
        name: "test".to_owned(),
        base_url: server.base_url(),
        model: "fake-model".to_owned(),
        api_key: Some(Secret::new(KEY)),
        retry_wait_ms_min: 1,
        retry_wait_ms_max: 20,
        ..ModelConfig::default()
    }
}

fn model(config: ModelConfig) -> OpenAiModel {
    OpenAiModel::new(config, Arc::new(Counting(AtomicU64::new(0)))).unwrap()
}

fn request() -> ModelRequest {
    ModelRequest {
        model: None,
        system: Vec::new(),
        messages: vec![Message::user("hello")],
        stable_messages: 0,
        tools: Vec::new(),
        skill_names: Vec::new(),
        output_tokens_max: 100,
        session_id: "conv_1".to_owned(),
        priority: 2,
        options: annie_core::caller::CallOptions::default(),
    }
}

async fn ask(model: &OpenAiModel) -> Result<ModelReply, ModelError> {
    model.call(&request(), Arc::new(|_| ())).await
}

/// Sends one request to a server that gives this one reply.
async fn ask_for(reply: Reply) -> Result<ModelReply, ModelError> {
    let server = FakeModelServer::start(move |_| reply.clone()).await;
    ask(&model(ModelConfig { retries_max: 0, ..config(&server) })).await
}

#[tokio::test]
async fn client_reads_whole_reply_from_server_that_ignores_stream_flag() {
    let whole = json!({"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]});
    assert_eq!(ask_for(Reply::body(200, whole.to_string())).await.unwrap().text, "whole");
}

#[tokio::test]
async fn client_reports_unavailable_for_address_without_listener() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let config =
        ModelConfig { base_url, model: "m".into(), retries_max: 1, retry_wait_ms_min: 1, ..ModelConfig::default() };
    let error = ask(&model(config.clone())).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Unavailable);
    assert!(error.detail.starts_with("cannot connect"), "{}", error.detail);
    assert_eq!(model(config).check().await.unwrap_err().kind, ModelErrorKind::Unavailable);
}

#[test]
fn client_for_https_endpoint_is_built_without_network_access() {
    let config =
        ModelConfig { base_url: "https://model.invalid/v1".into(), model: "m".into(), ..ModelConfig::default() };
    let built = model(config);
    assert_eq!(built.chat_url, "https://model.invalid/v1/chat/completions");
    assert!(built.about().starts_with("a language model"));
}

#[tokio::test]
async fn client_sends_app_title_to_openrouter_and_configured_headers() {
    let server = FakeModelServer::start(|_| Reply::says("x")).await;
    let mut config = ModelConfig { profile: Profile::OpenRouter, ..config(&server) };
    config.headers.insert("x-tenant".into(), Secret::new("seven"));
    ask(&model(config.clone())).await.unwrap();
    config.app_url = Some("https://example.invalid".into());
    ask(&model(config.clone())).await.unwrap();
    let seen = server.requests();
    assert_eq!((seen[0].header("x-openrouter-title"), seen[0].header("x-tenant")), (None, Some("seven")));
    assert_eq!(seen[1].header("x-openrouter-title"), Some("Annie"));
    assert_eq!(seen[1].header("http-referer"), Some("https://example.invalid"));
    config.headers.insert("bad header".into(), Secret::new("x"));
    assert!(OpenAiModel::new(config, Arc::new(Counting(AtomicU64::new(0)))).is_err());
}

#[tokio::test]
async fn embeddings_are_passed_through_with_the_configured_model() {
    let reply = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":"AAA="}],"model":"x"}"#;
    let server = FakeModelServer::start(move |_| Reply::body(200, reply)).await;
    let embedding = model(ModelConfig { embeddings: Some("vectors".into()), ..config(&server) });
    let asked = json!({"input": ["a"], "encoding_format": "base64"});
    let got = embedding.embed(asked.as_object().cloned().unwrap()).await.unwrap();
    assert_eq!(got["data"][0]["embedding"], "AAA=");
    let seen = &server.requests()[0];
    assert_eq!((seen.path.as_str(), &seen.json()["model"]), ("/v1/embeddings", &json!("vectors")));
    assert_eq!(seen.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    let none = model(config(&server)).embed(serde_json::Map::new()).await.unwrap_err();
    assert_eq!((none.kind, server.request_count()), (ModelErrorKind::InvalidRequest, 1));
    for (reply, kind) in [
        (Reply::rate_limited(None), ModelErrorKind::RateLimited),
        (Reply::body(200, "<html>"), ModelErrorKind::Protocol),
        (Reply::body(200, "{}"), ModelErrorKind::Protocol),
    ] {
        let server = FakeModelServer::start(move |_| reply.clone()).await;
        let broken = model(ModelConfig { embeddings: Some("vectors".into()), ..config(&server) });
        assert_eq!(broken.embed(serde_json::Map::new()).await.unwrap_err().kind, kind);
    }
}

/// A request with a tool and a skill.
fn with_tools() -> ModelRequest {
    let tool = annie_core::message::ToolDef {
        name: "use_skill".to_owned(),
        description: "Runs a skill.".to_owned(),
        parameters: json!({"type": "object"}),
        strict: false,
    };
    ModelRequest { tools: vec![tool], skill_names: vec!["tasks.create".to_owned()], ..request() }
}

#[tokio::test]
async fn client_withholds_thinking_from_second_reply_on_if_template_opens_it() {
    let server = FakeModelServer::start(|_| Reply::says("secret thought\n</think>\n\nHi")).await;
    let model = model(config(&server));
    assert_eq!(ask(&model).await.unwrap().text, "Hi");
    let (sender, receiver) = std::sync::mpsc::channel();
    let reply = model.call(&request(), Arc::new(move |d| drop(sender.send(d)))).await.unwrap();
    assert_eq!(reply.text, "Hi");
    let shown: String =
        receiver.try_iter().map(|d| if let Draft::Text(text) = d { text } else { String::new() }).collect();
    assert_eq!(shown, "Hi");
}

#[tokio::test]
async fn client_recognises_event_stream_under_any_content_type() {
    for kind in ["text/plain", "application/octet-stream", "application/json"] {
        let frame = json!({"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]});
        let body = format!(": ping\n\ndata: {frame}\n\ndata: [DONE]\n\n");
        let reply = Reply::body(200, body).header("content-type", kind);
        assert_eq!(ask_for(reply).await.unwrap().text, "Hi", "{kind}");
    }
}

#[tokio::test]
async fn client_omits_refused_configured_parameter_in_later_requests() {
    for (field, words) in [
        ("stream_options", "Unrecognized request argument supplied: stream_options"),
        (
            "max_tokens",
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'.",
        ),
        ("temperature", "Unsupported value: 'temperature' does not support 0.5 with this model."),
        ("parallel_tool_calls", "extra_forbidden: parallel_tool_calls: Extra inputs are not permitted"),
    ] {
        let server = FakeModelServer::start(move |request| {
            if !request.json()[field].is_null() { Reply::error(400, words) } else { Reply::says("fine") }
        })
        .await;
        let config = ModelConfig { temperature: Some(0.5), profile: Profile::LlamaCpp, ..config(&server) };
        let model = model(config);
        for requests in [2, 3] {
            assert_eq!(model.call(&with_tools(), Arc::new(|_| ())).await.unwrap().text, "fine", "{field}");
            assert_eq!(server.request_count(), requests, "{field}");
        }
    }
    let server = FakeModelServer::start(|_| Reply::error(400, "max_tokens is too large: 9999")).await;
    assert_eq!(ask(&model(config(&server))).await.unwrap_err().kind, ModelErrorKind::InvalidRequest);
    assert_eq!(server.request_count(), 1, "an invalid value is not an unsupported parameter");
}

#[tokio::test]
async fn client_omits_refused_caller_parameter_in_later_requests() {
    let server = FakeModelServer::start(|request| {
        if request.json()["stop"].is_null() {
            Reply::says("fine")
        } else {
            Reply::error(400, "Unsupported parameter: 'stop' is not supported with this model.")
        }
    })
    .await;
    let model = model(config(&server));
    let mut request = with_tools();
    request.options.sampling = Sampling { stop: vec!["END".into()], seed: Some(7), ..Sampling::default() };
    for requests in [2, 3] {
        assert_eq!(model.call(&request, Arc::new(|_| ())).await.unwrap().text, "fine");
        assert_eq!(server.request_count(), requests);
    }
    assert_eq!(server.requests()[2].json()["seed"], 7, "nothing else is left out");
}

#[tokio::test]
async fn client_keeps_parameter_for_other_callers_if_one_value_is_refused() {
    let server = FakeModelServer::start(|request| {
        if request.json()["temperature"] == 2 {
            Reply::error(400, "Unsupported value: 'temperature' does not support 2 with this model.")
        } else {
            Reply::says("fine")
        }
    })
    .await;
    let model = model(ModelConfig { temperature: Some(0.5), ..config(&server) });
    let mut request = with_tools();
    request.options.sampling.temperature = Some(2.into());
    assert_eq!(model.call(&request, Arc::new(|_| ())).await.unwrap().text, "fine");
    assert_eq!(ask(&model).await.unwrap().text, "fine");
    let sent: Vec<_> = server.requests().iter().map(|seen| seen.json()["temperature"].as_f64()).collect();
    assert_eq!(sent, [Some(2.0), Some(0.5), Some(0.5)], "the operator's configured value is sent");
}

#[tokio::test]
async fn client_streams_again_after_reply_without_stray_end_of_thinking() {
    let replies = ["hm</think>Hi", "plain", "streamed"].map(Reply::says);
    let server = FakeModelServer::queue(replies.to_vec()).await;
    let model = model(config(&server));
    let holds = || model.learned.known().begins_thinking;
    assert_eq!(ask(&model).await.unwrap().text, "Hi");
    assert!(holds(), "its template begins thinking");
    assert_eq!(ask(&model).await.unwrap().text, "plain");
    assert!(!holds(), "a reply without thinking resets the flag");
    assert_eq!(ask(&model).await.unwrap().text, "streamed");
}

#[tokio::test]
async fn client_calls_azure_deployment_or_v1_address_with_api_key_header() {
    let server = FakeModelServer::start(|seen| {
        let is_deployment = seen.path == "/openai/deployments/gpt/chat/completions";
        let is_known = match seen.query.as_str() {
            "api-version=2024-10-21" => is_deployment,
            "" => seen.path == "/openai/v1/chat/completions",
            _ => false,
        };
        if !is_known {
            return Reply::error(404, "Resource not found");
        }
        if seen.header("api-key") != Some(KEY) || seen.header("authorization").is_some() {
            return Reply::error(401, "Access denied due to invalid subscription key");
        }
        if seen.json()["max_completion_tokens"] != 100 || !seen.json()["max_tokens"].is_null() {
            return Reply::error(400, "a limit is called otherwise");
        }
        Reply::says("from Azure")
    })
    .await;
    let host = server.base_url().trim_end_matches("/v1").to_owned();
    let azure = |base: &str, version: Option<&str>| ModelConfig {
        profile: Profile::Azure,
        base_url: format!("{host}{base}"),
        api_version: version.map(str::to_owned),
        ..config(&server)
    };
    let deployment = model(azure("/openai/deployments/gpt/", Some("2024-10-21")));
    assert_eq!(ask(&deployment).await.unwrap().text, "from Azure");
    assert_eq!(deployment.check_url, format!("{host}/openai/models?api-version=2024-10-21"));
    let newer = model(azure("/openai/v1", None));
    assert_eq!(ask(&newer).await.unwrap().text, "from Azure");
    assert_eq!(newer.check_url, format!("{host}/openai/v1/models"));
    let elsewhere = model(azure("/openai/v1", Some("preview")));
    assert_eq!(ask(&elsewhere).await.unwrap_err().kind, ModelErrorKind::InvalidRequest);
}

/// The roles of the messages in a request.
fn roles(request: &annie_testkit::model_server::Seen) -> Vec<String> {
    request.messages().iter().map(|m| m["role"].as_str().unwrap_or_default().to_owned()).collect()
}

/// A conversation with a system prompt whose messages begin with the assistant and repeat one role.
fn with_many_roles() -> ModelRequest {
    let system = |text: &str| annie_core::message::SystemPart { text: text.to_owned(), cache: None };
    ModelRequest {
        system: vec![system("Be kind."), system("Be brief.")],
        messages: vec![
            Message::assistant("one"),
            Message::assistant("two"),
            Message::user("three"),
            Message::user("four"),
        ],
        ..request()
    }
}

#[tokio::test]
async fn client_moves_system_text_to_user_message_if_template_has_no_system_role() {
    for (status, words) in [
        (400, "Error rendering prompt with jinja template: System role not supported"),
        (500, "Value is not callable: Only user and assistant roles are supported!"),
        (400, "Unsupported value: 'messages[0].role' does not support 'system' with this model."),
        (400, "Developer instruction is not enabled for models/gemma-3-27b-it"),
    ] {
        let server = FakeModelServer::start(move |seen| {
            if roles(seen).contains(&"system".to_owned()) { Reply::error(status, words) } else { Reply::says("fine") }
        })
        .await;
        let model = model(config(&server));
        let request = ModelRequest { messages: vec![Message::user("hello")], ..with_many_roles() };
        for requests in [2, 3] {
            assert_eq!(model.call(&request, Arc::new(|_| ())).await.unwrap().text, "fine", "{words}");
            assert_eq!(server.request_count(), requests, "{words}");
        }
        assert_eq!(server.requests()[1].texts_of("user"), ["Be kind.\n\nBe brief.\n\nhello"]);
    }
}

#[tokio::test]
async fn client_sends_alternating_roles_if_template_requires_them() {
    let is_in_turns = |roles: &[String]| {
        let turns = roles.iter().filter(|role| *role != "system");
        turns.enumerate().all(|(at, role)| role == ["user", "assistant"][at % 2])
    };
    let words =
        "After the optional system message, conversation roles must alternate user/assistant/user/assistant/...";
    let server =
        FakeModelServer::start(
            move |seen| {
                if is_in_turns(&roles(seen)) { Reply::says("fine") } else { Reply::error(500, words) }
            },
        )
        .await;
    let model = model(config(&server));
    assert_eq!(model.call(&with_many_roles(), Arc::new(|_| ())).await.unwrap().text, "fine");
    let sent = server.requests().pop().unwrap();
    assert_eq!(roles(&sent), ["system", "user", "assistant", "user"]);
    assert_eq!(
        (sent.texts_of("assistant"), sent.last_user_text()),
        (vec!["one\n\ntwo".into()], "three\n\nfour".into())
    );
}

#[tokio::test]
async fn client_reports_tools_unsupported_if_template_has_only_two_roles() {
    let server = FakeModelServer::start(|seen| {
        let is_plain =
            roles(seen).iter().all(|role| role == "user" || role == "assistant") && seen.tool_names().is_empty();
        if is_plain { Reply::says("fine") } else { Reply::error(400, "Only user and assistant roles are supported!") }
    })
    .await;
    let request =
        ModelRequest { messages: vec![Message::user("hello")], tools: with_tools().tools, ..with_many_roles() };
    let model = model(config(&server));
    let error = model.call(&request, Arc::new(|_| ())).await.unwrap_err();
    assert_eq!((error.kind, server.request_count()), (ModelErrorKind::ToolsUnsupported, 2));
    let by_commands = ModelRequest { tools: Vec::new(), ..request };
    assert_eq!(model.call(&by_commands, Arc::new(|_| ())).await.unwrap().text, "fine");
}
