//! The client against a real server on a loopback port that misbehaves in every known way.

use std::sync::atomic::{AtomicU64, Ordering};

use annie_core::{
    caller::Sampling,
    message::{Finish, Message},
    ports::Draft,
};
use annie_testkit::model_server::{CallShape, FakeModelServer, Reply};
use serde_json::json;

use super::*;
use crate::secret::Secret;

mod describe;

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

/// Asks once against a server with this one reply.
async fn ask_for(reply: Reply) -> Result<ModelReply, ModelError> {
    let server = FakeModelServer::start(move |_| reply.clone()).await;
    ask(&model(ModelConfig { retries_max: 0, ..config(&server) })).await
}

async fn kind_for(reply: Reply) -> ModelErrorKind {
    ask_for(reply).await.unwrap_err().kind
}

#[tokio::test]
async fn a_streamed_reply_comes_as_drafts_and_whole() {
    let text = "Příliš žluťoučký kůň úpěl ďábelské ódy. 日本語 🦀";
    let server = FakeModelServer::start(move |_| Reply::says(text).reasoning("hm").pieces_of_bytes(5)).await;
    let model = model(config(&server));
    let (sender, receiver) = std::sync::mpsc::channel();
    let reply = model.call(&request(), Arc::new(move |d| drop(sender.send(d)))).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.finish, reply.usage.input_tokens), (text, Finish::Stop, 12));
    let drafts: Vec<Draft> = receiver.try_iter().collect();
    let said: String =
        drafts.iter().filter_map(|d| if let Draft::Text(t) = d { Some(t.as_str()) } else { None }).collect();
    assert_eq!(said, text);
    assert!(drafts.len() > 5 && drafts[0] == Draft::Reasoning("hm".into()));
    let seen = &server.requests()[0];
    assert_eq!(seen.path, "/v1/chat/completions");
    assert_eq!(seen.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert!(seen.streams());
}

#[tokio::test]
async fn a_reply_at_once_is_the_same_reply() {
    let server = FakeModelServer::start(|_| Reply::says_and_calls("ok", [("a", json!({"x": 1}))])).await;
    let reply = ask(&model(ModelConfig { stream: false, ..config(&server) })).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.tool_calls[0].arguments.as_str()), ("ok", "{\"x\":1}"));
    assert!(!server.requests()[0].streams());
}

#[tokio::test]
async fn parallel_calls_come_through_in_every_shape() {
    let tools = || [("get_skill", json!({"search": "žluť"})), ("use_skill", json!({"skill": "tasks.create"}))];
    for shape in [
        CallShape::Fragments,
        CallShape::Interleaved,
        CallShape::Whole,
        CallShape::ObjectArguments,
        CallShape::SameIndex,
        CallShape::NoIndex,
        CallShape::NoIds,
    ] {
        let reply = ask_for(Reply::calls(tools()).shape(shape).pieces_of_bytes(4)).await.unwrap();
        let got: Vec<(&str, serde_json::Value)> =
            reply.tool_calls.iter().map(|c| (c.name.as_str(), serde_json::from_str(&c.arguments).unwrap())).collect();
        assert_eq!(got, tools(), "{shape:?}");
        assert_ne!(reply.tool_calls[0].id, reply.tool_calls[1].id, "{shape:?}");
        assert_eq!(reply.finish, Finish::ToolCalls);
    }
}

#[tokio::test]
async fn packets_comments_and_line_ends_do_not_matter() {
    let plain = Reply::says("žluťoučký\r\nkůň: 🦀");
    for reply in [
        plain.clone().split_every_bytes(1),
        plain.clone().crlf().split_every_bytes(3),
        plain.clone().with_comments().crlf(),
        plain.clone().without_done(),
        plain.clone().without_finish(),
    ] {
        assert_eq!(ask_for(reply.clone()).await.unwrap().text, "žluťoučký\r\nkůň: 🦀", "{reply:?}");
    }
}

#[tokio::test]
async fn a_server_that_ignores_the_wish_for_a_stream_is_understood() {
    let whole = json!({"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]});
    assert_eq!(ask_for(Reply::body(200, whole.to_string())).await.unwrap().text, "whole");
}

#[tokio::test]
async fn every_refusal_has_its_kind() {
    for (reply, wanted) in [
        (Reply::error(401, "bad key"), ModelErrorKind::Auth),
        (Reply::error(402, "no credit"), ModelErrorKind::Payment),
        (Reply::error(403, "no"), ModelErrorKind::Auth),
        (Reply::error(422, "odd"), ModelErrorKind::InvalidRequest),
        (Reply::error(500, "boom"), ModelErrorKind::Unavailable),
        (Reply::rate_limited(None), ModelErrorKind::RateLimited),
        (Reply::overflow_openrouter(), ModelErrorKind::Overflow),
        (Reply::overflow_vllm(), ModelErrorKind::Overflow),
        (Reply::overflow_llamacpp(), ModelErrorKind::Overflow),
        (Reply::body(200, r#"{"error": {"code": 502, "message": "upstream"}}"#), ModelErrorKind::Unavailable),
        (Reply::body(200, "this is not JSON"), ModelErrorKind::Protocol),
        (Reply::body(302, "").header("location", "http://127.0.0.1:1/"), ModelErrorKind::InvalidRequest),
        (Reply::events([json!({"error": {"message": "maximum context length"}})]), ModelErrorKind::Overflow),
        (Reply::says("half").without_done().without_finish(), ModelErrorKind::Truncated),
    ] {
        assert_eq!(kind_for(reply.clone()).await, wanted, "{:?}", reply);
    }
}

#[tokio::test]
async fn a_reply_without_measure_is_given_up() {
    assert_eq!(kind_for(Reply::of_size(5 * 1024 * 1024)).await, ModelErrorKind::Protocol);
    let small = |server: &FakeModelServer| ModelConfig { reply_bytes_max: 10_000, ..config(server) };
    let endless = [
        Reply::endless("words without end "),
        Reply::events((0..90_000).map(|n| json!({"ping": n}))),
        Reply::of_size(3_000_000).pieces_of_bytes(3_000_000),
    ];
    for reply in endless {
        let server = FakeModelServer::start(move |_| reply.clone()).await;
        for stream in [true, false] {
            let outcome = ask(&model(ModelConfig { stream, ..small(&server) })).await;
            assert!(matches!(outcome.unwrap_err().kind, ModelErrorKind::Protocol), "stream {stream}");
        }
        assert_eq!(server.request_count(), 2);
    }
}

#[tokio::test]
async fn an_error_never_shows_the_key() {
    let server = FakeModelServer::start(|_| Reply::error(401, &format!("Incorrect API key provided: {KEY}"))).await;
    let error = ask(&model(config(&server))).await.unwrap_err();
    assert!(error.detail.contains("[secret]") && !error.detail.contains(KEY), "{}", error.detail);
    assert!(!format!("{:?}", model(config(&server))).contains(KEY));
}

#[tokio::test]
async fn what_passes_is_tried_again_and_what_does_not_is_not() {
    let server =
        FakeModelServer::queue([Reply::error(503, "loading"), Reply::rate_limited(None), Reply::says("there")]).await;
    assert_eq!(ask(&model(config(&server))).await.unwrap().text, "there");
    assert_eq!(server.request_count(), 3);
    let bodies: Vec<_> = server.requests().into_iter().map(|r| r.body).collect();
    assert!(bodies.windows(2).all(|w| w[0] == w[1]));

    let server = FakeModelServer::start(|_| Reply::error(500, "for ever")).await;
    assert_eq!(ask(&model(config(&server))).await.unwrap_err().kind, ModelErrorKind::Unavailable);
    assert_eq!(server.request_count(), 3);

    for lasting in
        [Reply::error(400, "no"), Reply::error(401, "no"), Reply::error(500, "no").header("x-should-retry", "false")]
    {
        let server = FakeModelServer::start(move |_| lasting.clone()).await;
        assert!(ask(&model(config(&server))).await.is_err());
        assert_eq!(server.request_count(), 1);
    }
}

#[tokio::test]
async fn a_long_wish_to_wait_is_handed_to_the_caller() {
    let server = FakeModelServer::start(|_| Reply::rate_limited(Some(120))).await;
    let error = ask(&model(config(&server))).await.unwrap_err();
    assert_eq!((error.kind, error.retry_after_ms), (ModelErrorKind::RateLimited, Some(120_000)));
    assert_eq!(server.request_count(), 1);
}

#[tokio::test]
async fn nothing_is_repeated_after_the_first_token() {
    for broken in [
        Reply::says("one two three").pieces_of_bytes(3).cut_after_events(3),
        Reply::says("half").without_done().without_finish(),
        Reply::events([
            json!({"choices": [{"delta": {"content": "Hel"}}]}),
            json!({"error": {"code": 502, "message": "died"}, "choices": [{"finish_reason": "error"}]}),
        ]),
    ] {
        let server = FakeModelServer::start(move |_| broken.clone()).await;
        let error = ask(&model(config(&server))).await.unwrap_err();
        assert!(error.is_retryable() && error.after_first_token, "{error:?}");
        assert_eq!(server.request_count(), 1);
    }
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_first_token_is_made_again() {
    let server = FakeModelServer::queue([Reply::says("x").reset_after_events(0), Reply::says("second")]).await;
    assert_eq!(ask(&model(config(&server))).await.unwrap().text, "second");
}

#[tokio::test]
async fn waits_have_limits_before_and_after_the_first_token() {
    let limits = |server: &FakeModelServer| ModelConfig { first_token_ms_max: 60, idle_ms_max: 60, ..config(server) };
    for slow in [
        Reply::says("late").first_after(Duration::from_secs(60)),
        Reply::says("late").stall_after_events(1),
        Reply::says("late").with_comments().stall_after_events(1),
    ] {
        let server = FakeModelServer::start(move |_| slow.clone()).await;
        let error = ask(&model(limits(&server))).await.unwrap_err();
        assert_eq!((error.kind, error.after_first_token), (ModelErrorKind::Timeout, false), "{error:?}");
        assert_eq!(server.request_count(), 1, "a caller that has waited its time is not kept waiting again");
    }
    let server = FakeModelServer::start(|_| Reply::says("begun and").pieces_of_bytes(2).stall_after_events(3)).await;
    let error = ask(&model(limits(&server))).await.unwrap_err();
    assert_eq!((error.kind, error.after_first_token), (ModelErrorKind::Timeout, true));
    assert!(error.detail.contains("60 ms"), "{}", error.detail);
    server.hung_up(1).await;
}

#[tokio::test]
async fn a_whole_call_has_a_limit_whatever_the_server_does() {
    let server = FakeModelServer::start(|_| Reply::says("x").stall_after_events(0)).await;
    let config = ModelConfig { stream: false, call_ms_max: 60, ..config(&server) };
    assert_eq!(ask(&model(config)).await.unwrap_err().kind, ModelErrorKind::Timeout);
}

#[tokio::test]
async fn dropping_the_call_closes_the_connection() {
    let server = FakeModelServer::start(|_| Reply::says("some words").pieces_of_bytes(2).stall_after_events(3)).await;
    let model = model(config(&server));
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let request = request();
    let call = model.call(&request, Arc::new(move |d| drop(sender.send(d))));
    tokio::select! {
        _ = call => panic!("a stalled reply ended"),
        draft = receiver.recv() => assert!(draft.is_some()),
    }
    server.hung_up(1).await;
}

#[tokio::test]
async fn an_address_where_nobody_listens_is_unavailable() {
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

#[tokio::test]
async fn a_check_asks_without_running_a_round() {
    let server = FakeModelServer::start(|_| Reply::says("x")).await;
    let model = model(config(&server));
    model.check().await.unwrap();
    server.answer_probes_with(Reply::error(503, "Loading model"));
    assert_eq!(model.check().await.unwrap_err().kind, ModelErrorKind::Unavailable);
    server.answer_probes_with(Reply::error(401, "bad key"));
    assert_eq!(model.check().await.unwrap_err().kind, ModelErrorKind::Auth);
    assert_eq!(server.request_count(), 0);
}

#[test]
fn a_client_for_an_encrypted_endpoint_is_built_without_touching_the_network() {
    let config =
        ModelConfig { base_url: "https://model.invalid/v1".into(), model: "m".into(), ..ModelConfig::default() };
    let built = model(config);
    assert_eq!(built.chat_url, "https://model.invalid/v1/chat/completions");
    assert!(built.about().starts_with("a language model"));
}

#[tokio::test]
async fn the_app_is_named_to_openrouter_and_headers_are_added() {
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
async fn call_written_as_text_becomes_a_call_and_is_not_shown() {
    let text = "<think>hm</think><tool_call>{\"name\": \"tasks_create\", \"arguments\": {\"title\": \"x\"}}</tool_call><|im_end|>";
    for bytes in [1, 7, 1_000] {
        let server = FakeModelServer::start(move |_| Reply::says(text).pieces_of_bytes(bytes)).await;
        let (sender, receiver) = std::sync::mpsc::channel();
        let reply = model(config(&server)).call(&with_tools(), Arc::new(move |d| drop(sender.send(d)))).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.finish), ("", Finish::ToolCalls));
        assert_eq!(reply.tool_calls[0].name, "tasks.create");
        assert_eq!(reply.tool_calls[0].arguments, "{\"title\":\"x\"}");
        assert!(receiver.try_iter().all(|draft| matches!(draft, Draft::Reasoning(_))));
    }
    let server = FakeModelServer::start(move |_| Reply::says(text)).await;
    let reply = ask(&model(config(&server))).await.unwrap();
    assert!(reply.tool_calls.is_empty(), "no tool was offered, so nothing is a call");
}

#[tokio::test]
async fn thinking_of_a_template_that_opens_it_is_held_back_from_the_second_reply_on() {
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
async fn stream_that_is_cut_before_any_text_was_shown_is_asked_for_again() {
    let cut = || Reply::calls([("use_skill", json!({"skill": "tasks.create", "arguments": {"title": "x"}}))]);
    for broken in [
        cut().pieces_of_bytes(4).cut_after_events(4),
        Reply::says("hidden").reasoning("I think about it").pieces_of_bytes(4).cut_after_events(3),
        Reply::says("{\"name\": \"use_skill\", \"argum").without_done().without_finish(),
    ] {
        let server = FakeModelServer::queue([broken.clone(), Reply::says("whole")]).await;
        let reply = model(config(&server)).call(&with_tools(), Arc::new(|_| ())).await.unwrap();
        assert_eq!((reply.text.as_str(), server.request_count()), ("whole", 2), "{broken:?}");
    }
}

#[tokio::test]
async fn events_are_recognised_whatever_their_content_type() {
    for kind in ["text/plain", "application/octet-stream", "application/json"] {
        let frame = json!({"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]});
        let body = format!(": ping\n\ndata: {frame}\n\ndata: [DONE]\n\n");
        let reply = Reply::body(200, body).header("content-type", kind);
        assert_eq!(ask_for(reply).await.unwrap().text, "Hi", "{kind}");
    }
}

#[tokio::test]
async fn parameter_that_the_server_refuses_is_left_out_and_that_is_remembered() {
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
    assert_eq!(server.request_count(), 1, "a wrong value is not a refused parameter");
}

#[tokio::test]
async fn parameter_of_a_caller_that_the_server_refuses_is_left_out_from_then_on() {
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
async fn value_of_one_caller_that_the_server_refuses_changes_nothing_for_others() {
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
    assert_eq!(sent, [Some(2.0), Some(0.5), Some(0.5)], "the operator's own is sent");
}

#[tokio::test]
async fn backend_that_once_ended_thinking_unbegun_streams_again_after_a_reply_without_it() {
    let replies = ["hm</think>Hi", "plain", "streamed"].map(Reply::says);
    let server = FakeModelServer::queue(replies.to_vec()).await;
    let model = model(config(&server));
    let holds = || model.begins_thinking.load(Ordering::Relaxed);
    assert_eq!(ask(&model).await.unwrap().text, "Hi");
    assert!(holds(), "its template begins thinking");
    assert_eq!(ask(&model).await.unwrap().text, "plain");
    assert!(!holds(), "the first was an accident");
    assert_eq!(ask(&model).await.unwrap().text, "streamed");
}
