//! Tests of the requests to each kind of server, byte for byte where caches depend on it.

use annie_core::caller::CallOptions;

use super::*;

fn config(profile: Profile) -> ModelConfig {
    ModelConfig { profile, model: "m".to_owned(), ..ModelConfig::default() }
}

fn call(id: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: "get_skill".to_owned(), arguments: arguments.to_owned() }
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
            Message::calling("", vec![call("c1", "{\"domain\":\"tasks\"}")]),
            Message::result("c1", "skills"),
        ],
        stable_messages: 2,
        tools: vec![ToolDef {
            name: "get_skill".into(),
            description: "d".into(),
            parameters: json!({"type": "object", "properties": {"b": {}, "a": {}}}),
            strict: false,
        }],
        skill_names: Vec::new(),
        output_tokens_max: 2_000,
        session_id: "conv_1".into(),
        priority: 3,
        options: CallOptions::default(),
    }
}

fn sent(config: &ModelConfig, request: &ModelRequest) -> Value {
    serde_json::from_slice(&body(config, request, Quirks::default()).unwrap()).unwrap()
}

#[test]
fn openrouter_request_has_parts_breakpoints_and_session() {
    let body = sent(&config(Profile::OpenRouter), &request());
    assert_eq!(body["session_id"], "conv_1");
    let system = &body["messages"][0]["content"];
    assert_eq!(system[0]["cache_control"], json!({"type": "ephemeral", "ttl": "1h"}));
    assert_eq!(system[1]["cache_control"], json!({"type": "ephemeral"}));
    assert_eq!(body["messages"][1]["content"][0]["cache_control"], json!({"type": "ephemeral"}));
    assert_eq!(
        body["messages"][3]["content"],
        json!([{"type": "text", "text": "it is noon"}, {"type": "text", "text": "now"}])
    );
    assert_eq!(body["max_tokens"], 2_000);
    assert!(body["stream_options"].is_null() && body["parallel_tool_calls"].is_null() && body["priority"].is_null());
}

#[test]
fn request_never_exceeds_breakpoint_limit() {
    let mut request = request();
    request.system =
        (0..6).map(|n| SystemPart { text: format!("part {n}"), cache: Some(CacheTtl::FiveMinutes) }).collect();
    let text = sent(&config(Profile::OpenRouter), &request).to_string();
    assert_eq!(text.matches("cache_control").count(), BREAKPOINTS_MAX);
    let off = ModelConfig { cache_breakpoints: false, ..config(Profile::OpenRouter) };
    assert!(!sent(&off, &request).to_string().contains("cache_control"));
}

#[test]
fn request_to_other_servers_has_plain_texts() {
    for profile in [Profile::Vllm, Profile::LlamaCpp, Profile::Ollama, Profile::Generic] {
        let body = sent(&config(profile), &request());
        assert_eq!(body["messages"][0]["content"], "shared\n\nUser: Ann", "{profile:?}");
        assert_eq!(body["messages"][3]["content"], "it is noon\n\nnow");
        assert_eq!(body["messages"][5], json!({"role": "tool", "content": "skills", "tool_call_id": "c1"}));
        assert_eq!(body["stream_options"], json!({"include_usage": true}));
        assert!(body["session_id"].is_null());
        assert_eq!(body["parallel_tool_calls"].as_bool(), (profile == Profile::LlamaCpp).then_some(true));
    }
}

#[test]
fn openai_request_uses_openai_field_names() {
    let body = sent(&config(Profile::OpenAi), &request());
    assert_eq!(body["max_completion_tokens"], 2_000);
    assert_eq!(body["prompt_cache_key"], "conv_1");
    assert!(body["max_tokens"].is_null() && body["session_id"].is_null());
    assert!(!body.to_string().contains("cache_control"));
}

#[test]
fn request_has_priority_only_if_configured() {
    assert!(sent(&config(Profile::Vllm), &request())["priority"].is_null());
    let on = ModelConfig { send_priority: true, ..config(Profile::Vllm) };
    assert_eq!(sent(&on, &request())["priority"], 3);
}

#[test]
fn extra_fields_and_a_requested_model_are_sent() {
    let mut config = config(Profile::OpenRouter);
    config.temperature = Some(0.5);
    config.body.insert("provider".into(), json!({"data_collection": "deny"}));
    let body = sent(&config, &ModelRequest { model: Some("other".into()), ..request() });
    assert_eq!(body["model"], "other");
    assert_eq!(body["temperature"], 0.5);
    assert_eq!(body["provider"], json!({"data_collection": "deny"}));
}

#[test]
fn request_prefix_is_identical_between_rounds() {
    for profile in [Profile::OpenRouter, Profile::OpenAi, Profile::Vllm, Profile::Generic] {
        let mut config = config(profile);
        config.body.insert("top_p".into(), json!(0.9));
        let first = request();
        let mut second = first.clone();
        second.messages.push(Message::calling("more", vec![call("c2", "{}")]));
        second.messages.push(Message::result("c2", "result"));
        let (a, b) =
            (body(&config, &first, Quirks::default()).unwrap(), body(&config, &second, Quirks::default()).unwrap());
        let common = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
        let prefix = String::from_utf8_lossy(&a[..common]).into_owned();
        let last = "\"tool_call_id\":\"c1\"}";
        assert!(prefix.ends_with(last), "{profile:?}: the common prefix ends with {:?}", &prefix[prefix.len() - 60..]);
        assert!(prefix.contains("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_skill\""));
        assert_eq!(
            body(&config, &first, Quirks::default()).unwrap(),
            a,
            "{profile:?}: the same request gives the same bytes"
        );
    }
}

#[test]
fn moved_breakpoint_changes_only_the_mark() {
    let first = request();
    let second = ModelRequest { stable_messages: 5, ..first.clone() };
    let strip = |request: &ModelRequest| {
        let text = String::from_utf8(body(&config(Profile::OpenRouter), request, Quirks::default()).unwrap()).unwrap();
        text.replace(",\"cache_control\":{\"type\":\"ephemeral\"}", "")
    };
    assert_eq!(strip(&first), strip(&second));
    let marked = sent(&config(Profile::OpenRouter), &second);
    assert_eq!(marked["messages"][5]["content"][0]["cache_control"], json!({"type": "ephemeral"}));
}

#[test]
fn request_answers_every_call_and_has_no_orphan_results() {
    let mut request = request();
    request.messages = vec![
        Message::result("gone", "late"),
        Message::calling("", vec![call("a", "{}"), call("b", "{}")]),
        Message::result("b", "done"),
        Message::user("and now?"),
        Message::calling("x", vec![call("c", "{}")]),
    ];
    let body = sent(&config(Profile::Generic), &request);
    let lines: Vec<(String, String)> = body["messages"].as_array().unwrap()[1..]
        .iter()
        .map(|m| (m["role"].as_str().unwrap().to_owned(), m["tool_call_id"].as_str().unwrap_or_default().to_owned()))
        .collect();
    let wanted =
        [("user", ""), ("assistant", ""), ("tool", "b"), ("tool", "a"), ("user", ""), ("assistant", ""), ("tool", "c")];
    assert_eq!(lines, wanted.map(|(r, i)| (r.to_owned(), i.to_owned())));
    assert_eq!(body["messages"][2]["content"], Value::Null);
    assert_eq!(body["messages"][5]["content"], "and now?");
}

#[test]
fn request_replaces_malformed_arguments_with_valid_json() {
    let mut request = request();
    request.messages = vec![
        Message::calling("", vec![call("a", "{\"x\": "), call("b", "[1]")]),
        Message::result("a", "bad JSON"),
        Message::result("b", "not an object"),
    ];
    let body = sent(&config(Profile::Generic), &request);
    for n in 0..2 {
        let arguments = body["messages"][1]["tool_calls"][n]["function"]["arguments"].as_str().unwrap();
        assert!(serde_json::from_str::<Value>(arguments).unwrap()["invalid_json"].is_string());
    }
}

#[test]
fn long_session_id_is_cut_at_a_character_boundary() {
    let request = ModelRequest { session_id: "ž".repeat(300), ..request() };
    assert_eq!(sent(&config(Profile::OpenRouter), &request)["session_id"], "ž".repeat(256));
}

#[test]
fn kernel_note_is_appended_to_preceding_user_message() {
    let mut request = request();
    request.messages.truncate(3);
    request.messages.push(Message::note("[Hurry.]"));
    let lines = sent(&config(Profile::Generic), &request)["messages"].clone();
    assert_eq!(lines.as_array().unwrap().last().unwrap()["content"], "it is noon\n\nnow\n\n[Hurry.]");
    let parts = sent(&config(Profile::OpenRouter), &request)["messages"].clone();
    assert_eq!(parts.as_array().unwrap().last().unwrap()["content"][2]["text"], "[Hurry.]");
    request.messages.insert(3, Message::assistant("hm"));
    let lines = sent(&config(Profile::Generic), &request)["messages"].clone();
    let last = lines.as_array().unwrap().last().unwrap().clone();
    assert_eq!((last["role"].as_str(), last["content"].as_str()), (Some("user"), Some("[Hurry.]")));
}

fn options() -> CallOptions {
    CallOptions {
        sampling: Sampling {
            temperature: Number::from_f64(0.1),
            top_p: Some(1.into()),
            presence_penalty: Some((-1).into()),
            frequency_penalty: Some(2.into()),
            seed: Some(7),
            stop: vec!["END".into()],
            output_tokens_max: None,
        },
        format: Some(AnswerFormat::JsonObject),
        tool_choice: Some(ToolChoice::Tool("get_skill".into())),
        parallel_tool_calls: Some(false),
        is_thread: false,
        has_more_output: false,
        effort: None,
    }
}

#[test]
fn caller_options_override_configuration_and_are_sent_once() {
    let mut config = config(Profile::Generic);
    config.temperature = Some(0.9);
    for (field, value) in [("top_p", json!(0.5)), ("seed", json!(1)), ("top_k", json!(40))] {
        config.body.insert(field.into(), value);
    }
    let bytes = body(&config, &ModelRequest { options: options(), ..request() }, Quirks::default()).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!((text.matches("\"top_p\"").count(), text.matches("\"seed\"").count()), (1, 1), "{text}");
    let body: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&body["temperature"], &body["top_p"], &body["seed"]), (&json!(0.1), &json!(1), &json!(7)));
    assert_eq!((&body["presence_penalty"], &body["frequency_penalty"]), (&json!(-1), &json!(2)));
    assert_eq!((&body["stop"], &body["top_k"]), (&json!(["END"]), &json!(40)));
    assert_eq!(body["tool_choice"], json!({"type": "function", "function": {"name": "get_skill"}}));
    assert_eq!(body["parallel_tool_calls"], false);
    let without = ModelRequest { tools: Vec::new(), options: options(), ..request() };
    assert!(sent(&config, &without)["tool_choice"].is_null(), "no tools are offered");
}

#[test]
fn answer_format_is_requested_only_if_it_allows_tool_calls() {
    let schema = AnswerFormat::JsonSchema {
        name: "n".into(),
        description: None,
        schema: json!({"type": "object"}),
        strict: true,
    };
    let with = |profile, tool_choice, tools| {
        let options = CallOptions { format: Some(schema.clone()), tool_choice, ..CallOptions::default() };
        let tools = if tools { request().tools } else { Vec::new() };
        sent(&config(profile), &ModelRequest { options, tools, ..request() })["response_format"].clone()
    };
    let wanted =
        json!({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": true}});
    assert_eq!(with(Profile::LlamaCpp, None, false), wanted);
    assert_eq!(with(Profile::LlamaCpp, Some(ToolChoice::None), true), wanted);
    assert_eq!(with(Profile::OpenAi, None, true), wanted);
    assert_eq!(with(Profile::LlamaCpp, None, true), Value::Null);
}

#[test]
fn provider_state_is_returned_only_to_its_own_backend() {
    let state = json!({
        "by": "default/m",
        "reasoning_content": "I look.",
        "reasoning_details": [{"type": "reasoning.text", "text": "I look."}],
        "calls": [{"id": "c1", "extra_content": {"google": {"thought_signature": "c2ln"}}}]
    });
    let mut request = request();
    request.messages[3] =
        Message::Assistant { text: String::new(), tool_calls: vec![call("c1", "{}")], provider_state: Some(state) };
    let body = sent(&config(Profile::Generic), &request);
    let line = &body["messages"][4];
    assert_eq!(line["reasoning_content"], "I look.");
    assert_eq!(line["reasoning_details"][0]["text"], "I look.");
    assert_eq!(line["tool_calls"][0]["extra_content"]["google"]["thought_signature"], "c2ln");
    let other = ModelConfig { name: "other".into(), ..config(Profile::Generic) };
    assert!(!sent(&other, &request).to_string().contains("c2ln"));
    let other = ModelRequest { model: Some("m2".into()), ..request };
    assert!(!sent(&config(Profile::Generic), &other).to_string().contains("c2ln"));
}

#[test]
fn effort_is_sent_where_the_protocol_has_it_and_replaces_the_configured_one() {
    let request = || {
        let options = CallOptions { effort: Some(annie_core::effort::Effort::Low), ..CallOptions::default() };
        ModelRequest { options, ..request() }
    };
    let with = |profile, model: &str, body: &[(&str, Value)]| {
        let body = body.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let config = ModelConfig { model: model.to_owned(), body, ..config(profile) };
        let sent = sent(&config, &request());
        (sent["reasoning_effort"].clone(), sent["reasoning"].clone())
    };
    assert_eq!(with(Profile::OpenAi, "gpt-5", &[]), (json!("low"), Value::Null));
    assert_eq!(with(Profile::OpenAi, "gpt-4o", &[]), (Value::Null, Value::Null), "the model does not reason");
    assert_eq!(with(Profile::Vllm, "gpt-5", &[]), (Value::Null, Value::Null), "the server may refuse it");
    let high = [("reasoning_effort", json!("high"))];
    assert_eq!(with(Profile::Vllm, "m", &high), (json!("low"), Value::Null));
    let body = [("reasoning", json!({"effort": "high", "max_tokens": 9, "exclude": true}))];
    assert_eq!(with(Profile::OpenRouter, "m", &body), (Value::Null, json!({"effort": "low", "exclude": true})));
    let config =
        ModelConfig { body: high.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect(), ..config(Profile::Vllm) };
    let plain = ModelRequest { options: CallOptions::default(), ..request() };
    assert_eq!(sent(&config, &plain)["reasoning_effort"], "high", "without a request the configured one holds");
}
