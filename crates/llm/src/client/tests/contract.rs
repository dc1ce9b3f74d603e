//! What every protocol must do for the kernel, whatever its wire: each case runs over both.

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
    a_streamed_reply_comes_as_drafts_and_whole,
    a_reply_at_once_is_the_same_reply,
    parallel_calls_come_through_in_every_shape,
    packets_comments_and_line_ends_do_not_matter,
    stream_cut_at_any_byte_is_the_same_reply,
    every_refusal_has_its_kind,
    a_reply_without_measure_is_given_up,
    an_error_never_shows_the_key,
    what_passes_is_tried_again_and_what_does_not_is_not,
    a_long_wish_to_wait_is_handed_to_the_caller,
    nothing_is_repeated_after_the_first_token,
    a_connection_that_breaks_before_the_first_token_is_made_again,
    waits_have_limits_before_and_after_the_first_token,
    a_whole_call_has_a_limit_whatever_the_server_does,
    dropping_the_call_closes_the_connection,
    a_check_asks_without_running_a_round,
    call_written_as_text_becomes_a_call_and_is_not_shown,
    stream_that_is_cut_before_any_text_was_shown_is_asked_for_again,
);

fn config(profile: Profile, server: &FakeModelServer) -> ModelConfig {
    ModelConfig { profile, ..super::config(server) }
}

/// Asks once against a server with this one reply.
async fn ask_for(profile: Profile, reply: Reply) -> Result<ModelReply, ModelError> {
    let server = FakeModelServer::start(move |_| reply.clone()).await;
    ask(&model(ModelConfig { retries_max: 0, ..config(profile, &server) })).await
}

async fn kind_for(profile: Profile, reply: Reply) -> ModelErrorKind {
    ask_for(profile, reply).await.unwrap_err().kind
}

async fn a_streamed_reply_comes_as_drafts_and_whole(profile: Profile) {
    let text = "Příliš žluťoučký kůň úpěl ďábelské ódy. 日本語 🦀";
    let server = FakeModelServer::start(move |_| Reply::says(text).reasoning("hm").pieces_of_bytes(5)).await;
    let model = model(config(profile, &server));
    let (sender, receiver) = std::sync::mpsc::channel();
    let reply = model.call(&request(), Arc::new(move |d| drop(sender.send(d)))).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.finish, reply.usage.input_tokens), (text, Finish::Stop, 12));
    let drafts: Vec<Draft> = receiver.try_iter().collect();
    let said: String =
        drafts.iter().filter_map(|d| if let Draft::Text(t) = d { Some(t.as_str()) } else { None }).collect();
    assert_eq!(said, text);
    assert!(drafts.len() > 5 && drafts[0] == Draft::Reasoning("hm".into()));
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

async fn a_reply_at_once_is_the_same_reply(profile: Profile) {
    let server = FakeModelServer::start(|_| Reply::says_and_calls("ok", [("a", json!({"x": 1}))])).await;
    let reply = ask(&model(ModelConfig { stream: false, ..config(profile, &server) })).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.tool_calls[0].arguments.as_str()), ("ok", "{\"x\":1}"));
    assert!(!server.requests()[0].streams());
}

async fn parallel_calls_come_through_in_every_shape(profile: Profile) {
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

async fn packets_comments_and_line_ends_do_not_matter(profile: Profile) {
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

async fn every_refusal_has_its_kind(profile: Profile) {
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

async fn a_reply_without_measure_is_given_up(profile: Profile) {
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

async fn an_error_never_shows_the_key(profile: Profile) {
    let server = FakeModelServer::start(|_| Reply::error(401, &format!("Incorrect API key provided: {KEY}"))).await;
    let error = ask(&model(config(profile, &server))).await.unwrap_err();
    assert!(error.detail.contains("[secret]") && !error.detail.contains(KEY), "{}", error.detail);
    assert!(!format!("{:?}", model(config(profile, &server))).contains(KEY));
}

async fn what_passes_is_tried_again_and_what_does_not_is_not(profile: Profile) {
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

async fn a_long_wish_to_wait_is_handed_to_the_caller(profile: Profile) {
    let server = FakeModelServer::start(|_| Reply::rate_limited(Some(120))).await;
    let error = ask(&model(config(profile, &server))).await.unwrap_err();
    assert_eq!((error.kind, error.retry_after_ms), (ModelErrorKind::RateLimited, Some(120_000)));
    assert_eq!(server.request_count(), 1);
}

async fn nothing_is_repeated_after_the_first_token(profile: Profile) {
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
}

async fn a_connection_that_breaks_before_the_first_token_is_made_again(profile: Profile) {
    let server = FakeModelServer::queue([Reply::says("x").reset_after_events(0), Reply::says("second")]).await;
    assert_eq!(ask(&model(config(profile, &server))).await.unwrap().text, "second");
}

async fn waits_have_limits_before_and_after_the_first_token(profile: Profile) {
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
        assert_eq!(server.request_count(), 1, "a caller that has waited its time is not kept waiting again");
    }
    let server = FakeModelServer::start(|_| Reply::says("begun and").pieces_of_bytes(2).stall_after_events(3)).await;
    let error = ask(&model(limits(&server))).await.unwrap_err();
    assert_eq!((error.kind, error.after_first_token), (ModelErrorKind::Timeout, true));
    assert!(error.detail.contains("60 ms"), "{}", error.detail);
    server.hung_up(1).await;
}

async fn a_whole_call_has_a_limit_whatever_the_server_does(profile: Profile) {
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

async fn a_check_asks_without_running_a_round(profile: Profile) {
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
        assert!(receiver.try_iter().all(|draft| matches!(draft, Draft::Reasoning(_))));
    }
    let server = FakeModelServer::start(move |_| Reply::says(text)).await;
    let reply = ask(&model(config(profile, &server))).await.unwrap();
    assert!(reply.tool_calls.is_empty(), "no tool was offered, so nothing is a call");
}

async fn stream_that_is_cut_before_any_text_was_shown_is_asked_for_again(profile: Profile) {
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

/// The first packet ends at every byte of the stream once.
async fn stream_cut_at_any_byte_is_the_same_reply(profile: Profile) {
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
