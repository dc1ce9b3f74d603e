//! Tests of requests to Messages and of its replies.

use std::sync::{Arc, Mutex};

use annie_core::{
    caller::{AnswerFormat, CallOptions, Sampling, ToolChoice},
    message::{
        CacheTtl, Finish, Message, ModelErrorKind, ModelReply, ModelRequest, Repair, SystemPart, ToolCall, ToolDef,
    },
    ports::{Draft, DraftSink, Entropy},
};
use annie_testkit::model_server::refusal_of_messages;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    config::{ModelConfig, Price, Profile},
    repair::Names,
    wire::{self, assemble::Assembler, failure::Failure, quirks::Quirks},
};

struct Zero;

impl Entropy for Zero {
    fn next_u64(&self) -> u64 {
        0
    }
}

fn config() -> ModelConfig {
    ModelConfig { name: "claude".into(), profile: Profile::Anthropic, model: "m".into(), ..ModelConfig::default() }
}

fn call(id: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.into(), name: "get_skill".into(), arguments: arguments.into() }
}

fn tool() -> ToolDef {
    let parameters = json!({"type": "object", "properties": {"domain": {"type": "string"}}});
    ToolDef { name: "get_skill".into(), description: "d".into(), parameters, strict: false }
}

/// The second round of a turn: a past exchange, a request with its context, a call and its result.
fn request() -> ModelRequest {
    ModelRequest {
        model: None,
        system: vec![
            SystemPart { text: "shared".into(), cache: Some(CacheTtl::OneHour) },
            SystemPart { text: "User: Ann".into(), cache: Some(CacheTtl::FiveMinutes) },
        ],
        messages: vec![
            Message::user("earlier"),
            Message::assistant("answered"),
            Message::User { context: Some("it is noon".into()), text: "now".into() },
            Message::calling("", vec![call("c1", "{\"domain\":\"tasks\"}"), call("c2", "{\"x\": ")]),
            Message::result("c1", "skills"),
            Message::Tool { call_id: "c2".into(), text: "Error: no JSON".into(), is_error: true },
            Message::note("[Hurry.]"),
        ],
        stable_messages: 2,
        tools: vec![tool()],
        skill_names: Vec::new(),
        output_tokens_max: 2_000,
        session_id: "conv_1".into(),
        priority: 3,
        options: CallOptions::default(),
    }
}

fn sent_by(config: &ModelConfig, request: &ModelRequest) -> Value {
    let body = wire::of(Profile::Anthropic).body(config, request, Quirks::default()).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(refusal_of_messages(&body), None, "{body:#}");
    body
}

fn sent(request: &ModelRequest) -> Value {
    sent_by(&config(), request)
}

#[test]
fn messages_request_has_blocks_with_breakpoints() {
    let body = sent(&request());
    assert_eq!(
        body,
        json!({
            "model": "m", "max_tokens": 2_000, "stream": true,
            "tools": [{"name": "get_skill", "description": "d", "input_schema": tool().parameters,
                "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
            "system": [
                {"type": "text", "text": "shared", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
                {"type": "text", "text": "User: Ann", "cache_control": {"type": "ephemeral"}},
            ],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "earlier", "cache_control": {"type": "ephemeral"}}]},
                {"role": "assistant", "content": [{"type": "text", "text": "answered"}]},
                {"role": "user", "content": [{"type": "text", "text": "it is noon"}, {"type": "text", "text": "now"}]},
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": "c1", "name": "get_skill", "input": {"domain": "tasks"}},
                    {"type": "tool_use", "id": "c2", "name": "get_skill", "input": {"invalid_json": "{\"x\": "}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "skills"},
                    {"type": "tool_result", "tool_use_id": "c2", "content": "Error: no JSON", "is_error": true},
                    {"type": "text", "text": "[Hurry.]"},
                ]},
            ],
        })
    );
}

#[test]
fn breakpoints_are_at_most_four_and_can_be_switched_off() {
    let mut request = request();
    request.system =
        (0..6).map(|n| SystemPart { text: format!("part {n}"), cache: Some(CacheTtl::FiveMinutes) }).collect();
    assert_eq!(sent(&request).to_string().matches("cache_control").count(), 4);
    let off = ModelConfig { cache_breakpoints: false, ..config() };
    assert!(!sent_by(&off, &request).to_string().contains("cache_control"));
}

#[test]
fn messages_prefix_of_a_round_is_identical_in_the_next_round() {
    let first = request();
    let mut second = first.clone();
    second.messages.push(Message::calling("more", vec![call("c3", "{}")]));
    second.messages.push(Message::result("c3", "result"));
    let bytes =
        |request: &ModelRequest| wire::of(Profile::Anthropic).body(&config(), request, Quirks::default()).unwrap();
    let (a, b) = (bytes(&first), bytes(&second));
    let common = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let prefix = String::from_utf8_lossy(&a[..common]).into_owned();
    assert!(prefix.ends_with("{\"type\":\"text\",\"text\":\"[Hurry.]\"}]}"), "{prefix}");
}

#[test]
fn messages_request_answers_every_call_and_puts_orphan_results_last() {
    let mut request = request();
    request.messages = vec![
        Message::assistant("the window begins here"),
        Message::calling("", vec![call("a", "{}"), call("b", "{}")]),
        Message::result("gone", "late"),
        Message::result("b", ""),
        Message::user("and now?"),
        Message::calling("x", vec![call("chatcmpl:1", "{}")]),
    ];
    let messages = sent(&request)["messages"].clone();
    assert_eq!(messages[0]["content"][0]["text"], "[earlier messages are left out]");
    assert_eq!(
        messages[2]["content"],
        json!([
            {"type": "tool_result", "tool_use_id": "b"},
            {"type": "tool_result", "tool_use_id": "a", "content": "[no result: the call was interrupted]", "is_error": true},
            {"type": "text", "text": "late"},
            {"type": "text", "text": "and now?"},
        ])
    );
    assert_eq!(messages[3]["content"][1]["id"], "chatcmpl_1");
    assert_eq!(messages[4]["content"][0]["tool_use_id"], "chatcmpl_1");
}

#[test]
fn messages_request_declares_tools_of_past_calls_if_none_are_offered() {
    let request = ModelRequest { tools: Vec::new(), ..request() };
    let body = sent(&request);
    assert_eq!(body["tools"], json!([{"name": "get_skill", "input_schema": {"type": "object"}}]));
    assert_eq!(body["tool_choice"], json!({"type": "none"}));
    let plain = ModelRequest { messages: vec![Message::user("hi")], ..request };
    let body = sent(&plain);
    assert!(body["tools"].is_null() && body["tool_choice"].is_null());
}

#[test]
fn messages_request_maps_caller_options_and_lists_unsupported_ones() {
    let sampling = Sampling {
        temperature: serde_json::Number::from_f64(0.1),
        top_p: Some(1.into()),
        seed: Some(7),
        presence_penalty: Some(1.into()),
        stop: vec!["END".into(), "\n".into()],
        ..Sampling::default()
    };
    let options = CallOptions {
        sampling,
        format: Some(AnswerFormat::JsonObject),
        tool_choice: Some(ToolChoice::Tool("get_skill".into())),
        parallel_tool_calls: Some(false),
        is_thread: false,
        has_more_output: false,
        effort: None,
    };
    let asked = ModelRequest { options, ..request() };
    let mut config = ModelConfig { temperature: Some(0.7), ..config() };
    config.body.insert("top_p".into(), json!(0.5));
    config.body.insert("top_k".into(), json!(40));
    let body = sent_by(&config, &asked);
    assert_eq!((&body["temperature"], &body["top_p"], &body["top_k"]), (&json!(0.1), &json!(1), &json!(40)));
    assert_eq!(body["stop_sequences"], json!(["END"]));
    let choice = json!({"type": "tool", "name": "get_skill", "disable_parallel_tool_use": true});
    assert_eq!(body["tool_choice"], choice);
    assert_eq!(wire::of(Profile::Anthropic).left_out(&asked), ["seed", "presence_penalty", "response_format", "stop"]);
    assert_eq!(sent_by(&config, &request())["temperature"], 0.7);
    assert!(wire::of(Profile::Anthropic).left_out(&request()).is_empty());
    for (choice, sent_as) in [
        (ToolChoice::Auto, json!({"type": "auto"})),
        (ToolChoice::Required, json!({"type": "any"})),
        (ToolChoice::None, json!({"type": "none"})),
    ] {
        let options = CallOptions { tool_choice: Some(choice), ..CallOptions::default() };
        assert_eq!(sent(&ModelRequest { options, ..request() })["tool_choice"], sent_as);
    }
}

#[test]
fn messages_request_fits_thinking_budget_to_provider_limits() {
    let mut config = config();
    config.body.insert("thinking".into(), json!({"type": "enabled", "budget_tokens": 4_000}));
    let begin = ModelRequest { messages: vec![Message::user("hi")], output_tokens_max: 8_000, ..request() };
    assert_eq!(sent_by(&config, &begin)["thinking"]["budget_tokens"], 4_000);
    let short = ModelRequest { output_tokens_max: 3_000, ..begin.clone() };
    assert_eq!(sent_by(&config, &short)["thinking"]["budget_tokens"], 1_500);
    let tiny = ModelRequest { output_tokens_max: 300, ..begin.clone() };
    assert!(sent_by(&config, &tiny)["thinking"].is_null());
    let options = CallOptions { tool_choice: Some(ToolChoice::Required), ..CallOptions::default() };
    assert!(sent_by(&config, &ModelRequest { options, ..begin })["thinking"].is_null());
    let of_another_backend = ModelRequest { output_tokens_max: 8_000, ..request() };
    assert!(sent_by(&config, &of_another_backend)["thinking"].is_null());
    config.body.insert("thinking".into(), json!({"type": "adaptive"}));
    assert_eq!(sent_by(&config, &of_another_backend)["thinking"], json!({"type": "adaptive"}));
}

fn read_by(config: &ModelConfig, events: &[Value]) -> Result<(ModelReply, Vec<Draft>), Failure> {
    let drafts: Arc<Mutex<Vec<Draft>>> = Arc::default();
    let kept = Arc::clone(&drafts);
    let sink: DraftSink = Arc::new(move |draft| kept.lock().unwrap().push(draft));
    let names = Names::of(&request());
    let mut assembler = Assembler::new(config, &names, false, &sink);
    for event in events {
        assembler.event(&event.to_string())?;
    }
    let reply = assembler.finish("asked-for", &Zero)?.reply;
    let mut drafts = drafts.lock().unwrap().clone();
    assert!(
        drafts.is_empty() || drafts[0] == Draft::Text(String::new()),
        "the first draft marks the start of the reply: {drafts:?}"
    );
    drafts.retain(|draft| *draft != Draft::Text(String::new()));
    Ok((reply, drafts))
}

fn read(events: &[Value]) -> Result<ModelReply, Failure> {
    read_by(&config(), events).map(|(reply, _)| reply)
}

fn begin(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn end(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn stopped(reason: &str) -> [Value; 2] {
    let delta = json!({"stop_reason": reason, "stop_sequence": null});
    [json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 42}}), json!({"type": "message_stop"})]
}

fn says(text: &str) -> Vec<Value> {
    vec![begin(0, json!({"type": "text", "text": ""})), delta(0, json!({"type": "text_delta", "text": text})), end(0)]
}

/// A thought, text and two calls, in the format of Claude.
fn thoughtful() -> Vec<Value> {
    let usage = json!({"input_tokens": 100, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 50,
        "cache_creation": {"ephemeral_5m_input_tokens": 50, "ephemeral_1h_input_tokens": 0}, "output_tokens": 1});
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": [],
        "stop_reason": null, "usage": usage});
    let mut events = vec![
        json!({"type": "message_start", "message": message}),
        begin(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        json!({"type": "ping"}),
        delta(0, json!({"type": "thinking_delta", "thinking": "I "})),
        delta(0, json!({"type": "thinking_delta", "thinking": "look."})),
        delta(0, json!({"type": "signature_delta", "signature": "c2ln0000003c299040f1"})),
        end(0),
        begin(1, json!({"type": "redacted_thinking", "data": "b3BhcXVl"})),
        end(1),
        begin(2, json!({"type": "text", "text": ""})),
        delta(2, json!({"type": "text_delta", "text": "Let me "})),
        delta(2, json!({"type": "text_delta", "text": "look."})),
        delta(2, json!({"type": "citations_delta", "citation": {}})),
        end(2),
        begin(3, json!({"type": "tool_use", "id": "toolu_1", "name": "get_skill", "input": {}})),
        delta(3, json!({"type": "input_json_delta", "partial_json": ""})),
        delta(3, json!({"type": "input_json_delta", "partial_json": "{\"domain\": \"ta"})),
        delta(3, json!({"type": "input_json_delta", "partial_json": "sks\"}"})),
        end(3),
        begin(4, json!({"type": "tool_use", "id": "toolu_2", "name": "get_skill", "input": {}})),
        end(4),
        begin(5, json!({"type": "yet_unknown", "data": 1})),
        end(5),
        json!({"type": "yet_unknown_event"}),
    ];
    events.extend(stopped("tool_use"));
    events
}

#[test]
fn messages_reply_is_read_with_thinking_calls_and_usage() {
    let price = Price { input: 3.0, cached_input: Some(0.3), cache_write: Some(3.75), output: 15.0 };
    let (reply, drafts) = read_by(&ModelConfig { price: Some(price), ..config() }, &thoughtful()).unwrap();
    assert_eq!(
        (reply.text.as_str(), reply.finish, reply.model.as_str()),
        ("Let me look.", Finish::ToolCalls, "claude-x")
    );
    let calls: Vec<_> = reply.tool_calls.iter().map(|c| (c.id.as_str(), c.arguments.as_str())).collect();
    assert_eq!(calls, [("toolu_1", "{\"domain\": \"tasks\"}"), ("toolu_2", "{}")]);
    let usage = reply.usage;
    assert_eq!((usage.input_tokens, usage.cached_tokens, usage.cache_written_tokens), (1_050, 900, 50));
    assert_eq!(usage.output_tokens, 42);
    let cost = (100.0 * 3.0 + 900.0 * 0.3 + 50.0 * 3.75 + 42.0 * 15.0) / 1e6;
    assert!((usage.cost_usd - cost).abs() < 1e-12, "{}", usage.cost_usd);
    assert_eq!(drafts[..2], [Draft::Reasoning("I ".into()), Draft::Reasoning("look.".into())]);
    let shown: String =
        drafts.iter().filter_map(|d| if let Draft::Text(t) = d { Some(t.as_str()) } else { None }).collect();
    assert_eq!(shown, "Let me look.");
}

#[test]
fn messages_request_returns_thinking_with_its_calls_in_order() {
    let reply = read(&thoughtful()).unwrap();
    let mut request = request();
    request.model = Some("asked-for".into());
    request.output_tokens_max = 9_000;
    let assistant = |provider_state| Message::Assistant {
        text: reply.text.clone(),
        tool_calls: reply.tool_calls.clone(),
        provider_state,
    };
    let results = [Message::result("toolu_1", "a"), Message::result("toolu_2", "b")];
    request.messages = vec![Message::user("hi"), assistant(reply.provider_state.clone())];
    request.messages.extend(results.clone());
    let mut config = config();
    config.body.insert("thinking".into(), json!({"type": "enabled", "budget_tokens": 2_000}));
    let body = sent_by(&config, &request);
    let kinds: Vec<&str> =
        body["messages"][1]["content"].as_array().unwrap().iter().map(|b| b["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["thinking", "redacted_thinking", "text", "tool_use", "tool_use"]);
    let thought = &body["messages"][1]["content"][0];
    assert_eq!((&thought["thinking"], &thought["signature"]), (&json!("I look."), &json!("c2ln0000003c299040f1")));
    assert_eq!(body["thinking"]["budget_tokens"], 2_000);
    let elsewhere = ModelConfig { name: "another".into(), ..config.clone() };
    assert!(!sent_by(&elsewhere, &request).to_string().contains("c2ln"), "a state is only its own backend's");
    let plain = read(&[says("Hi"), stopped("end_turn").to_vec()].concat()).unwrap();
    assert_eq!(plain.provider_state, None);
}

#[test]
fn messages_decoder_distinguishes_stop_reasons() {
    for (reason, finish) in [
        ("end_turn", Finish::Stop),
        ("stop_sequence", Finish::Stop),
        ("max_tokens", Finish::Length),
        ("model_context_window_exceeded", Finish::Length),
        ("pause_turn", Finish::Length),
        ("refusal", Finish::ContentFilter),
    ] {
        let reply = read(&[says("x"), stopped(reason).to_vec()].concat()).unwrap();
        assert_eq!((reply.text.as_str(), reply.finish), ("x", finish), "{reason}");
    }
    let cut = [
        begin(0, json!({"type": "tool_use", "id": "a", "name": "get_skill", "input": {}})),
        delta(0, json!({"type": "input_json_delta", "partial_json": "{\"domain\": \"ta"})),
        end(0),
    ];
    let reply = read(&[cut.to_vec(), stopped("max_tokens").to_vec()].concat()).unwrap();
    assert!(reply.tool_calls.is_empty(), "a call that was cut off never runs");
    assert_eq!(reply.finish, Finish::Length);
}

#[test]
fn messages_error_event_maps_to_its_kind() {
    for (kind, message, wanted) in [
        ("overloaded_error", "Overloaded", ModelErrorKind::Unavailable),
        ("api_error", "Internal server error", ModelErrorKind::Unavailable),
        ("rate_limit_error", "slow down", ModelErrorKind::RateLimited),
        ("invalid_request_error", "messages: odd", ModelErrorKind::InvalidRequest),
        ("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", ModelErrorKind::Overflow),
        (
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 9 + 9 > 10",
            ModelErrorKind::Overflow,
        ),
        ("invalid_request_error", "Your credit balance is too low to access the API.", ModelErrorKind::Payment),
        ("request_too_large", "too large", ModelErrorKind::Overflow),
        ("authentication_error", "invalid x-api-key", ModelErrorKind::Auth),
        ("permission_error", "no", ModelErrorKind::Auth),
        ("billing_error", "no", ModelErrorKind::Payment),
        ("timeout_error", "no", ModelErrorKind::Timeout),
    ] {
        let mut events = says("Hel");
        events.push(json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "r"}));
        let failure = read(&events).unwrap_err();
        assert_eq!(failure.error.kind, wanted, "{kind}: {message}");
    }
}

#[test]
fn messages_stream_without_end_is_truncated_and_other_data_is_refused() {
    let half = [
        begin(0, json!({"type": "tool_use", "id": "a", "name": "get_skill", "input": {}})),
        delta(0, json!({"type": "input_json_delta", "partial_json": "{\"dom"})),
    ];
    for events in [says("hi"), half.to_vec(), Vec::new()] {
        assert_eq!(read(&events).unwrap_err().error.kind, ModelErrorKind::Truncated, "{events:?}");
    }
    for odd in [json!({"choices": [{"delta": {"content": "hi"}}]}), json!("text")] {
        assert_eq!(read(&[odd]).unwrap_err().error.kind, ModelErrorKind::Protocol);
    }
}

#[test]
fn messages_decoder_accepts_whole_call_and_call_written_as_text() {
    let whole = begin(0, json!({"type": "tool_use", "id": "a", "name": "get_skill", "input": {"domain": "tasks"}}));
    let reply = read(&[vec![whole, end(0)], stopped("tool_use").to_vec()].concat()).unwrap();
    assert_eq!(reply.tool_calls[0].arguments, "{\"domain\":\"tasks\"}");
    let text = "<think>hm</think><tool_call>{\"name\": \"get_skill\", \"arguments\": {\"domain\": \"x\"}}</tool_call>";
    let reply = read(&[says(text), stopped("end_turn").to_vec()].concat()).unwrap();
    assert_eq!((reply.text.as_str(), reply.tool_calls[0].name.as_str()), ("", "get_skill"));
    assert!(reply.repairs.contains(&Repair::TextCall) && reply.repairs.contains(&Repair::Thinking));
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just(" \n".to_owned()), Just("words ".to_owned()), Just("žluť".to_owned())]
}

fn any_message() -> impl Strategy<Value = Message> {
    let id = prop_oneof![Just("a".to_owned()), Just("b".to_owned()), Just("call:č".to_owned())];
    let calls = prop::collection::btree_set(id.clone(), 0..3)
        .prop_map(|ids| ids.iter().map(|id| call(id, "{\"n\": 1}")).collect::<Vec<_>>());
    prop_oneof![
        (prop::option::of(any_text()), any_text()).prop_map(|(context, text)| Message::User { context, text }),
        (any_text(), calls).prop_map(|(text, calls)| Message::calling(text, calls)),
        (id, any_text(), any::<bool>()).prop_map(|(call_id, text, is_error)| Message::Tool { call_id, text, is_error }),
        any_text().prop_map(Message::note),
    ]
}

proptest! {
    /// The provider accepts any window of a conversation.
    #[test]
    fn messages_request_is_valid_for_any_window(
        messages in prop::collection::vec(any_message(), 0..12),
        stable_messages in 0_usize..14,
        has_tools in any::<bool>(),
        thinks in any::<bool>(),
        output_tokens_max in 0_u32..5_000,
    ) {
        let tools = if has_tools { vec![tool()] } else { Vec::new() };
        let mut config = config();
        if thinks {
            config.body.insert("thinking".into(), json!({"type": "enabled", "budget_tokens": 2_000}));
        }
        sent_by(&config, &ModelRequest { messages, stable_messages, tools, output_tokens_max, ..request() });
    }
}
