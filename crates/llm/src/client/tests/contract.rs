//! The contract that every protocol fulfils for the kernel: each case runs over both wires.

use super::*;

/// Runs each case over Chat Completions and over Messages.
macro_rules! over_every_wire {
    ($($case:ident),* $(,)?) => { $(
        mod $case {
            use crate::config::Profile;

            #[tokio::test]
            async fn over_completions() {
                super::$case(Profile::Generic).await;
            }

            #[tokio::test]
            async fn over_messages() {
                super::$case(Profile::Anthropic).await;
            }
        }
    )* };
}

over_every_wire!(
    streamed_reply_is_sent_as_drafts_and_returned_whole,
    unstreamed_reply_equals_streamed_reply,
    parallel_calls_are_read_in_every_wire_format,
    reply_is_independent_of_packets_comments_and_line_ends,
    stream_split_at_any_byte_gives_the_same_reply,
    every_refusal_maps_to_its_error_kind,
    oversized_reply_is_a_protocol_error,
    error_never_contains_the_key,
    unparsable_reply_is_quoted_shortened_and_without_the_key,
    client_retries_transient_failures_only,
    long_server_wait_is_returned_to_the_caller,
    client_never_retries_after_the_first_token,
    refused_combination_is_left_out_of_that_call_only,
    client_reconnects_if_connection_breaks_before_first_token,
    waits_are_limited_before_and_after_the_first_token,
    whole_call_times_out_whatever_the_server_does,
    dropping_the_call_closes_the_connection,
    check_queries_server_without_running_a_round,
    call_written_as_text_becomes_a_call_and_is_not_shown,
    client_retries_stream_cut_before_any_text_was_shown,
    reply_is_complete_at_its_end_mark_however_the_connection_ends,
    reply_with_stop_reason_and_unfinished_call_is_incomplete,
    body_without_completion_is_an_error,
    thinking_of_a_repeated_attempt_is_shown_once,
    event_without_end_is_a_protocol_error,
    byte_order_mark_before_a_reply_is_skipped,
);

fn config(profile: Profile, server: &FakeModelServer) -> ModelConfig {
    ModelConfig { profile, ..super::config(server) }
}

/// Sends one request to a server that gives this one reply.
async fn ask_for(profile: Profile, reply: Reply) -> Result<ModelReply, ModelError> {
    let server = FakeModelServer::start(move |_| reply.clone()).await;
    ask(&model(ModelConfig { retries_max: 0, ..config(profile, &server) })).await
}

async fn kind_for(profile: Profile, reply: Reply) -> ModelErrorKind {
    ask_for(profile, reply).await.unwrap_err().kind
}

async fn streamed_reply_is_sent_as_drafts_and_returned_whole(profile: Profile) {
    let text = "Příliš žluťoučký kůň úpěl ďábelské ódy. 日本語 🦀";
    let server = FakeModelServer::start(move |_| Reply::says(text).reasoning("hm").pieces_of_bytes(5)).await;
    let model = model(config(profile, &server));
    let (sender, receiver) = std::sync::mpsc::channel();
    let reply = model.call(&request(), Arc::new(move |d| drop(sender.send(d)))).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.finish, reply.usage.input_tokens), (text, Finish::Stop, 12));
    let drafts: Vec<Draft> = receiver.try_iter().collect();
    let submitted: String =
        drafts.iter().filter_map(|d| if let Draft::Text(t) = d { Some(t.as_str()) } else { None }).collect();
    assert_eq!(submitted, text);
    // An empty draft marks the start of the reply.
    assert!(drafts.len() > 6 && drafts[..2] == [Draft::Text(String::new()), Draft::Reasoning("hm".into())]);
    let seen = &server.requests()[0];
    match profile {
        Profile::Anthropic => {
            assert_eq!((seen.path.as_str(), seen.header("x-api-key")), ("/v1/messages", Some(KEY)));
            assert_eq!((seen.header("anthropic-version"), seen.header("authorization")), (Some("2023-06-01"), None));
        }
        _ => {
            assert_eq!(seen.path, "/v1/chat/completions");
            assert_eq!(seen.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
        }
    }
    assert!(seen.streams());
}

async fn unstreamed_reply_equals_streamed_reply(profile: Profile) {
    let server = FakeModelServer::start(|_| Reply::says_and_calls("ok", [("a", json!({"x": 1}))])).await;
    let reply = ask(&model(ModelConfig { stream: false, ..config(profile, &server) })).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.tool_calls[0].arguments.as_str()), ("ok", "{\"x\":1}"));
    assert!(!server.requests()[0].streams());
}

async fn parallel_calls_are_read_in_every_wire_format(profile: Profile) {
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
        let reply = ask_for(profile, Reply::calls(tools()).shape(shape).pieces_of_bytes(4)).await.unwrap();
        let got: Vec<(&str, serde_json::Value)> =
            reply.tool_calls.iter().map(|c| (c.name.as_str(), serde_json::from_str(&c.arguments).unwrap())).collect();
        assert_eq!(got, tools(), "{shape:?}");
        assert_ne!(reply.tool_calls[0].id, reply.tool_calls[1].id, "{shape:?}");
        assert_eq!(reply.finish, Finish::ToolCalls);
    }
}

async fn reply_is_independent_of_packets_comments_and_line_ends(profile: Profile) {
    let plain = Reply::says("žluťoučký\r\nkůň: 🦀");
    for reply in [
        plain.clone().split_every_bytes(1),
        plain.clone().crlf().split_every_bytes(3),
        plain.clone().with_comments().crlf(),
        plain.clone().without_done(),
        plain.clone().without_finish(),
    ] {
        assert_eq!(ask_for(profile, reply.clone()).await.unwrap().text, "žluťoučký\r\nkůň: 🦀", "{reply:?}");
    }
}

async fn every_refusal_maps_to_its_error_kind(profile: Profile) {
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
        (Reply::overflow_anthropic(), ModelErrorKind::Overflow),
        (Reply::overloaded(), ModelErrorKind::Unavailable),
        (Reply::body(200, r#"{"error": {"code": 502, "message": "upstream"}}"#), ModelErrorKind::Unavailable),
        (Reply::body(200, "this is not JSON"), ModelErrorKind::Protocol),
        (Reply::body(302, "").header("location", "http://127.0.0.1:1/"), ModelErrorKind::InvalidRequest),
        (Reply::events([json!({"error": {"message": "maximum context length"}})]), ModelErrorKind::Overflow),
        (Reply::says("half").without_done().without_finish(), ModelErrorKind::Truncated),
    ] {
        assert_eq!(kind_for(profile, reply.clone()).await, wanted, "{:?}", reply);
    }
}

async fn oversized_reply_is_a_protocol_error(profile: Profile) {
    assert_eq!(kind_for(profile, Reply::of_size(5 * 1024 * 1024)).await, ModelErrorKind::Protocol);
    let small = |server: &FakeModelServer| ModelConfig { reply_bytes_max: 10_000, ..config(profile, server) };
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

async fn error_never_contains_the_key(profile: Profile) {
    let server = FakeModelServer::start(|_| Reply::error(401, &format!("Incorrect API key provided: {KEY}"))).await;
    let error = ask(&model(config(profile, &server))).await.unwrap_err();
    assert!(error.detail.contains("[secret]") && !error.detail.contains(KEY), "{}", error.detail);
    assert!(!format!("{:?}", model(config(profile, &server))).contains(KEY));
}

/// The error quotes a body that cannot be parsed, and a server may have put the key into it.
async fn unparsable_reply_is_quoted_shortened_and_without_the_key(profile: Profile) {
    for body in [
        format!("\"Invalid key {KEY}\""),
        format!("\"{}{KEY}\"", "x".repeat(190)),
        format!("\"{}{KEY}\"", format!("{KEY} ").repeat(9)),
        format!("\"{}\"", "long ".repeat(100_000)),
    ] {
        let error = ask_for(profile, Reply::body(200, body)).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Protocol);
        assert!(!error.detail.contains(&KEY[..10]), "{}", error.detail);
        assert!(error.detail.chars().count() < 1_000, "{} characters", error.detail.chars().count());
    }
}

async fn reply_is_complete_at_its_end_mark_however_the_connection_ends(profile: Profile) {
    // Far more events than the reply has.
    let all = 1_000;
    let whole = || Reply::says_and_calls("x", [("get_skill", json!({"domain": "tasks"}))]);
    for ended in [whole(), whole().without_done(), whole().without_finish()] {
        for reply in [
            ended.clone().stall_after_events(all),
            ended.clone().cut_after_events(all),
            ended.clone().crlf().stall_after_events(all),
        ] {
            let server = FakeModelServer::start({
                let reply = reply.clone();
                move |_| reply.clone()
            })
            .await;
            let config = ModelConfig { idle_ms_max: 300, retries_max: 0, ..config(profile, &server) };
            let got = ask(&model(config)).await.unwrap_or_else(|error| panic!("{error:?} for {reply:?}"));
            assert_eq!((got.text.as_str(), got.tool_calls.len(), got.usage.input_tokens), ("x", 1, 12), "{reply:?}");
        }
    }
}

/// The end of the connection does not complete a call whose arguments are incomplete.
async fn reply_with_stop_reason_and_unfinished_call_is_incomplete(profile: Profile) {
    let events = match profile {
        Profile::Anthropic => vec![
            json!({"type": "content_block_start", "index": 0, "content_block":
                {"type": "tool_use", "id": "a", "name": "get_skill", "input": {}}}),
            json!({"type": "content_block_delta", "index": 0, "delta":
                {"type": "input_json_delta", "partial_json": "{\"domain\": \"ta"}}),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
        ],
        _ => vec![json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "a", "function":
                {"name": "get_skill", "arguments": "{\"domain\": \"ta"}}]}, "finish_reason": "tool_calls"}]})],
    };
    let reply = Reply::events(events).without_done().cut_after_events(1_000);
    assert_eq!(kind_for(profile, reply).await, ModelErrorKind::Truncated);
}

async fn body_without_completion_is_an_error(profile: Profile) {
    for body in [
        "{}",
        r#"{"message": "Not Found"}"#,
        r#"{"status": "ok"}"#,
        r#"{"choices": []}"#,
        r#"{"type": "about:blank", "title": "Not Found", "status": 404}"#,
        r#"{"type": "ping"}"#,
    ] {
        assert_eq!(kind_for(profile, Reply::body(200, body)).await, ModelErrorKind::Protocol, "{body}");
    }
    let empty = Reply::events([json!({"status": "ok", "type": "ping"})]);
    assert_eq!(kind_for(profile, empty).await, ModelErrorKind::Truncated, "a stream of other events");
}

async fn thinking_of_a_repeated_attempt_is_shown_once(profile: Profile) {
    let thinks = |thought: &str| Reply::says("whole").reasoning(thought).pieces_of_bytes(4);
    for (again, shown) in [
        ("I think about it", "I think about it"),
        ("I think of it", "I think abou\n\nI think of it"),
        ("Hm", "I think abou\n\nHm"),
    ] {
        // Three pieces of the thinking arrive. Messages sends two events before them, Completions one.
        let events = if profile == Profile::Anthropic { 5 } else { 4 };
        let server = FakeModelServer::queue([thinks("I think about it").cut_after_events(events), thinks(again)]).await;
        let (sender, receiver) = std::sync::mpsc::channel();
        let model = model(config(profile, &server));
        let reply = model.call(&request(), Arc::new(move |d| drop(sender.send(d)))).await.unwrap();
        let thought: String =
            receiver.try_iter().map(|d| if let Draft::Reasoning(text) = d { text } else { String::new() }).collect();
        assert_eq!((thought.as_str(), reply.text.as_str(), server.request_count()), (shown, "whole", 2));
    }
}

async fn event_without_end_is_a_protocol_error(profile: Profile) {
    for line in ["data: x\n", "data: x\r\n", ": no event\ndata: x\r"] {
        let lines =
            Reply::body(200, line.repeat(2 * 1024 * 1024 / line.len())).header("content-type", "text/event-stream");
        assert_eq!(kind_for(profile, lines).await, ModelErrorKind::Protocol, "{line:?}");
    }
}

async fn byte_order_mark_before_a_reply_is_skipped(profile: Profile) {
    let (events, whole) = match profile {
        Profile::Anthropic => (
            vec![
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi"}}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
            ],
            json!({"type": "message", "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"}),
        ),
        _ => (
            vec![json!({"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]})],
            json!({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}),
        ),
    };
    let frames: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let stream = Reply::body(200, format!("\u{feff}{frames}"));
    for reply in [
        stream.clone().header("content-type", "text/event-stream"),
        stream.clone().header("content-type", "text/event-stream").split_every_bytes(1),
        stream.header("content-type", "text/plain"),
        Reply::body(200, format!("\u{feff}{whole}")),
    ] {
        assert_eq!(ask_for(profile, reply.clone()).await.unwrap().text, "Hi", "{reply:?}");
    }
}

async fn client_retries_transient_failures_only(profile: Profile) {
    let server =
        FakeModelServer::queue([Reply::error(503, "loading"), Reply::rate_limited(None), Reply::says("there")]).await;
    assert_eq!(ask(&model(config(profile, &server))).await.unwrap().text, "there");
    assert_eq!(server.request_count(), 3);
    let bodies: Vec<_> = server.requests().into_iter().map(|r| r.body).collect();
    assert!(bodies.windows(2).all(|w| w[0] == w[1]));

    let server = FakeModelServer::start(|_| Reply::error(500, "for ever")).await;
    assert_eq!(ask(&model(config(profile, &server))).await.unwrap_err().kind, ModelErrorKind::Unavailable);
    assert_eq!(server.request_count(), 3);

    for lasting in
        [Reply::error(400, "no"), Reply::error(401, "no"), Reply::error(500, "no").header("x-should-retry", "false")]
    {
        let server = FakeModelServer::start(move |_| lasting.clone()).await;
        assert!(ask(&model(config(profile, &server))).await.is_err());
        assert_eq!(server.request_count(), 1);
    }
}

async fn long_server_wait_is_returned_to_the_caller(profile: Profile) {
    let server = FakeModelServer::start(|_| Reply::rate_limited(Some(120))).await;
    let error = ask(&model(config(profile, &server))).await.unwrap_err();
    assert_eq!((error.kind, error.retry_after_ms), (ModelErrorKind::RateLimited, Some(120_000)));
    assert_eq!(server.request_count(), 1);
}

async fn client_never_retries_after_the_first_token(profile: Profile) {
    for broken in [
        Reply::says("one two three").pieces_of_bytes(3).cut_after_events(3),
        Reply::says("half").without_done().without_finish(),
        match profile {
            Profile::Anthropic => Reply::events([
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hel"}}),
                json!({"type": "error", "error": {"type": "overloaded_error", "message": "died"}}),
            ]),
            _ => Reply::events([
                json!({"choices": [{"delta": {"content": "Hel"}}]}),
                json!({"error": {"code": 502, "message": "died"}, "choices": [{"finish_reason": "error"}]}),
            ]),
        },
    ] {
        let server = FakeModelServer::start(move |_| broken.clone()).await;
        let error = ask(&model(config(profile, &server))).await.unwrap_err();
        assert!(error.is_retryable() && error.after_first_token, "{error:?}");
        assert_eq!(server.request_count(), 1);
    }
    for words in ["Unsupported parameter: 'top_p' is not supported", "`temperature` is deprecated for this model."] {
        let refusal = json!({"type": "error", "error": {"type": "invalid_request_error", "message": words}});
        let begun = match profile {
            Profile::Anthropic => {
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hel"}})
            }
            _ => json!({"choices": [{"delta": {"content": "Hel"}}]}),
        };
        let server = FakeModelServer::start(move |_| Reply::events([begun.clone(), refusal.clone()])).await;
        let model = model(ModelConfig { temperature: Some(0.5), ..config(profile, &server) });
        let mut request = request();
        request.options.sampling.top_p = serde_json::Number::from_f64(0.5);
        let error = model.call(&request, Arc::new(|_| ())).await.unwrap_err();
        assert_eq!((error.kind, error.after_first_token), (ModelErrorKind::InvalidRequest, true), "{words}");
        assert_eq!(server.request_count(), 1, "{words}");
    }
}

async fn refused_combination_is_left_out_of_that_call_only(profile: Profile) {
    let server = FakeModelServer::start(|seen| {
        let body = seen.json();
        if body["temperature"].is_null() || body["top_p"].is_null() {
            Reply::says("fine")
        } else {
            Reply::error(400, "`temperature` and `top_p` cannot both be specified for this model. Please use only one.")
        }
    })
    .await;
    let model = model(config(profile, &server));
    let with = |temperature: Option<f64>, top_p: Option<f64>| {
        let mut request = request();
        request.options.sampling.temperature = temperature.and_then(serde_json::Number::from_f64);
        request.options.sampling.top_p = top_p.and_then(serde_json::Number::from_f64);
        request
    };
    for (temperature, top_p) in [(Some(0.5), Some(0.25)), (Some(0.5), None), (None, Some(0.25))] {
        assert_eq!(model.call(&with(temperature, top_p), Arc::new(|_| ())).await.unwrap().text, "fine");
    }
    let sent: Vec<_> = server
        .requests()
        .iter()
        .map(|seen| (seen.json()["temperature"].as_f64(), seen.json()["top_p"].as_f64()))
        .collect();
    let wanted = [(Some(0.5), Some(0.25)), (Some(0.5), None), (Some(0.5), None), (None, Some(0.25))];
    assert_eq!(sent, wanted, "the first call without top_p, and the others as they were asked");
}

async fn client_reconnects_if_connection_breaks_before_first_token(profile: Profile) {
    let server = FakeModelServer::queue([Reply::says("x").reset_after_events(0), Reply::says("second")]).await;
    assert_eq!(ask(&model(config(profile, &server))).await.unwrap().text, "second");
}

async fn waits_are_limited_before_and_after_the_first_token(profile: Profile) {
    let limits =
        |server: &FakeModelServer| ModelConfig { first_token_ms_max: 60, idle_ms_max: 60, ..config(profile, server) };
    for slow in [
        Reply::says("late").first_after(Duration::from_secs(60)),
        Reply::says("late").stall_after_events(1),
        Reply::says("late").with_comments().stall_after_events(1),
    ] {
        let server = FakeModelServer::start(move |_| slow.clone()).await;
        let error = ask(&model(limits(&server))).await.unwrap_err();
        assert_eq!((error.kind, error.after_first_token), (ModelErrorKind::Timeout, false), "{error:?}");
        assert_eq!(server.request_count(), 1, "a caller that has waited its full limit does not wait again");
    }
    let server = FakeModelServer::start(|_| Reply::says("begun and").pieces_of_bytes(2).stall_after_events(3)).await;
    let error = ask(&model(limits(&server))).await.unwrap_err();
    assert_eq!((error.kind, error.after_first_token), (ModelErrorKind::Timeout, true));
    assert!(error.detail.contains("60 ms"), "{}", error.detail);
    server.hung_up(1).await;
}

async fn whole_call_times_out_whatever_the_server_does(profile: Profile) {
    let server = FakeModelServer::start(|_| Reply::says("x").stall_after_events(0)).await;
    let config = ModelConfig { stream: false, call_ms_max: 60, ..config(profile, &server) };
    assert_eq!(ask(&model(config)).await.unwrap_err().kind, ModelErrorKind::Timeout);
}

async fn dropping_the_call_closes_the_connection(profile: Profile) {
    let server = FakeModelServer::start(|_| Reply::says("some words").pieces_of_bytes(2).stall_after_events(3)).await;
    let model = model(config(profile, &server));
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let request = request();
    let call = model.call(&request, Arc::new(move |d| drop(sender.send(d))));
    tokio::select! {
        _ = call => panic!("a stalled reply ended"),
        draft = receiver.recv() => assert!(draft.is_some()),
    }
    server.hung_up(1).await;
}

async fn check_queries_server_without_running_a_round(profile: Profile) {
    let server = FakeModelServer::start(|_| Reply::says("x")).await;
    let model = model(config(profile, &server));
    model.check().await.unwrap();
    server.answer_probes_with(Reply::error(503, "Loading model"));
    assert_eq!(model.check().await.unwrap_err().kind, ModelErrorKind::Unavailable);
    server.answer_probes_with(Reply::error(401, "bad key"));
    assert_eq!(model.check().await.unwrap_err().kind, ModelErrorKind::Auth);
    assert_eq!(server.request_count(), 0);
}

async fn call_written_as_text_becomes_a_call_and_is_not_shown(profile: Profile) {
    let text = "<think>hm</think><tool_call>{\"name\": \"tasks_create\", \"arguments\": {\"title\": \"x\"}}</tool_call><|im_end|>";
    for bytes in [1, 7, 1_000] {
        let server = FakeModelServer::start(move |_| Reply::says(text).pieces_of_bytes(bytes)).await;
        let (sender, receiver) = std::sync::mpsc::channel();
        let reply =
            model(config(profile, &server)).call(&with_tools(), Arc::new(move |d| drop(sender.send(d)))).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.finish), ("", Finish::ToolCalls));
        assert_eq!(reply.tool_calls[0].name, "tasks.create");
        assert_eq!(reply.tool_calls[0].arguments, "{\"title\":\"x\"}");
        let is_shown = |draft: Draft| matches!(draft, Draft::Text(text) if !text.is_empty());
        assert!(!receiver.try_iter().any(is_shown));
    }
    let server = FakeModelServer::start(move |_| Reply::says(text)).await;
    let reply = ask(&model(config(profile, &server))).await.unwrap();
    assert!(reply.tool_calls.is_empty(), "no tool was offered, so nothing is a call");
}

async fn client_retries_stream_cut_before_any_text_was_shown(profile: Profile) {
    let cut = || Reply::calls([("use_skill", json!({"skill": "tasks.create", "arguments": {"title": "x"}}))]);
    for broken in [
        cut().pieces_of_bytes(4).cut_after_events(4),
        Reply::says("hidden").reasoning("I think about it").pieces_of_bytes(4).cut_after_events(3),
        Reply::says("{\"name\": \"use_skill\", \"argum").without_done().without_finish(),
    ] {
        let server = FakeModelServer::queue([broken.clone(), Reply::says("whole")]).await;
        let reply = model(config(profile, &server)).call(&with_tools(), Arc::new(|_| ())).await.unwrap();
        assert_eq!((reply.text.as_str(), server.request_count()), ("whole", 2), "{broken:?}");
    }
}

/// The first packet ends once at every byte of the stream.
async fn stream_split_at_any_byte_gives_the_same_reply(profile: Profile) {
    let arguments = json!({"skill": "tasks.create", "arguments": {"title": "Příliš 🦀"}});
    let whole = Reply::says_and_calls("žluťoučký 🦀", [("use_skill", arguments)]).reasoning("hm, ó").crlf();
    let expected = ask_for(profile, whole.clone()).await.unwrap();
    assert_eq!(expected.tool_calls.len(), 1);
    let cut = whole.clone();
    let server = FakeModelServer::start(move |seen| {
        let bytes = usize::try_from(seen.number).unwrap_or(0) + 1;
        cut.clone().split_every_bytes(bytes)
    })
    .await;
    let model = model(ModelConfig { retries_max: 0, ..config(profile, &server) });
    // Longer than any frame of the stream.
    for bytes in 1..400 {
        assert_eq!(ask(&model).await.unwrap(), expected, "packets of {bytes} bytes");
    }
}
