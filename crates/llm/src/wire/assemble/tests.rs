//! Tests of the rules by which streamed parts become one reply.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use serde_json::json;

use super::*;

struct Counting(AtomicU64);

impl Entropy for Counting {
    fn next_u64(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

fn assembled_with(config: &ModelConfig, events: &[Value], done: bool) -> Result<ModelReply, Failure> {
    let sink: DraftSink = Arc::new(|_| ());
    let names = Names::default();
    let mut assembler = Assembler::new(config, &names, false, &sink);
    for event in events {
        assembler.event(&event.to_string())?;
    }
    if done {
        assembler.event("[DONE]")?;
    }
    assembler.finish("asked-for", &Counting(AtomicU64::new(1))).map(|assembled| assembled.reply)
}

fn assembled(events: &[Value]) -> Result<ModelReply, Failure> {
    assembled_with(&ModelConfig::default(), events, true)
}

fn calls(fragments: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": {"tool_calls": fragments}, "finish_reason": null}]})
}

fn text(piece: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": null}]})
}

fn end(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn brief(reply: &ModelReply) -> Vec<(&str, &str, &str)> {
    reply.tool_calls.iter().map(|c| (c.id.as_str(), c.name.as_str(), c.arguments.as_str())).collect()
}

#[test]
fn rule_1_interleaved_fragments_are_assigned_by_index() {
    let reply = assembled(&[
        calls(json!([{"index": 0, "id": "call_a", "type": "function", "function": {"name": "get_skill", "arguments": ""}}])),
        calls(json!([{"index": 0, "function": {"arguments": "{\"name\":\"em"}}])),
        calls(json!([{"index": 1, "id": "call_b", "function": {"name": "use_skill", "arguments": "{}"}}])),
        calls(json!([{"index": 0, "function": {"arguments": "ail\"}"}}])),
        end("tool_calls"),
    ])
    .unwrap();
    assert_eq!(brief(&reply), [("call_a", "get_skill", "{\"name\":\"email\"}"), ("call_b", "use_skill", "{}")]);
}

#[test]
fn rule_1_new_id_under_same_index_begins_another_call() {
    let reply = assembled(&[
        calls(json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{\"n\""}}])),
        calls(json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": ":1}"}}])),
        calls(json!([{"index": 0, "id": "b", "function": {"name": "y", "arguments": "{}"}}])),
        end("tool_calls"),
    ])
    .unwrap();
    assert_eq!(brief(&reply), [("a", "x", "{\"n\":1}"), ("b", "y", "{}")]);
}

#[test]
fn rule_1_missing_index_is_the_position_and_missing_id_is_generated() {
    let reply = assembled(&[
        calls(json!([{"function": {"name": "x", "arguments": "{}"}}, {"function": {"name": "y", "arguments": "{}"}}])),
        calls(json!([{"id": "", "function": {"name": "z", "arguments": "{\"a\":1}"}}])),
        end("tool_calls"),
    ])
    .unwrap();
    assert_eq!(reply.tool_calls.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["x", "y", "z"]);
    let ids: std::collections::BTreeSet<&str> = reply.tool_calls.iter().map(|c| c.id.as_str()).collect();
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| id.starts_with("call_") && id.len() == 37), "{ids:?}");
}

#[test]
fn rule_1_duplicate_id_is_made_unique() {
    let reply = assembled(&[
        calls(json!([{"index": 0, "id": "same", "function": {"name": "x", "arguments": "{}"}}])),
        calls(json!([{"index": 1, "id": "same", "function": {"name": "y", "arguments": "{}"}}])),
        end("tool_calls"),
    ])
    .unwrap();
    assert_eq!(reply.tool_calls.len(), 2);
    assert_ne!(reply.tool_calls[0].id, reply.tool_calls[1].id);
}

#[test]
fn rule_2_whole_call_with_object_arguments_in_one_chunk_is_accepted() {
    let reply = assembled(&[
        calls(json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": {"title": "Milk", "n": 2}}}])),
        end("tool_calls"),
    ])
    .unwrap();
    let arguments: Value = serde_json::from_str(&reply.tool_calls[0].arguments).unwrap();
    assert_eq!(arguments, json!({"title": "Milk", "n": 2}));
}

#[test]
fn rule_3_empty_arguments_are_an_empty_object() {
    for nothing in [json!(""), json!(null), json!("  "), json!("null")] {
        let reply = assembled(&[
            calls(json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": nothing}}])),
            end("tool_calls"),
        ])
        .unwrap();
        assert_eq!(reply.tool_calls[0].arguments, "{}");
    }
}

#[test]
fn rule_4_tool_calls_override_the_stop_reason() {
    let reply = assembled(&[
        calls(json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}}])),
        end("stop"),
    ])
    .unwrap();
    assert_eq!(reply.finish, Finish::ToolCalls);
    assert_eq!(assembled(&[text("hi"), end("tool_calls")]).unwrap().finish, Finish::Stop);
}

#[test]
fn rule_6_error_inside_status_200_is_a_failure() {
    let early = assembled(&[json!({"error": {"code": 429, "message": "busy"}})]).unwrap_err();
    assert_eq!(early.error.kind, ModelErrorKind::RateLimited);
    let late = assembled(&[
        text("Hel"),
        json!({"error": {"code": 502, "message": "upstream died"}, "choices": [{"delta": {}, "finish_reason": "error"}]}),
    ])
    .unwrap_err();
    assert_eq!(late.error.kind, ModelErrorKind::Unavailable);
    assert!(late.error.detail.contains("upstream died"));
    assert_eq!(assembled(&[end("error")]).unwrap_err().error.kind, ModelErrorKind::Unavailable);
    let old = assembled(&[json!({"object": "error", "message": "maximum context length is 10", "code": 400})]);
    assert_eq!(old.unwrap_err().error.kind, ModelErrorKind::Overflow);
}

#[test]
fn rule_7_stream_without_end_mark_is_truncated_and_runs_no_call() {
    let config = ModelConfig::default();
    let half = calls(json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{\"n\":"}}]));
    for (events, done) in
        [(vec![text("hi")], false), (vec![half.clone()], false), (vec![half.clone()], true), (vec![], false)]
    {
        let failure = assembled_with(&config, &events, done).unwrap_err();
        assert_eq!(failure.error.kind, ModelErrorKind::Truncated, "{events:?}");
        assert!(failure.may_retry);
    }
    assert!(assembled_with(&config, &[text("hi"), end("stop")], false).is_ok());
    assert!(assembled_with(&config, &[text("hi")], true).is_ok());
    let cut = assembled(&[
        calls(json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}}])),
        calls(json!([{"index": 1, "id": "b", "function": {"name": "y", "arguments": ""}}])),
        end("length"),
    ])
    .unwrap();
    assert_eq!(brief(&cut), [("a", "x", "{}")]);
    assert_eq!(cut.finish, Finish::Length);
}

#[test]
fn rule_8_reasoning_is_read_under_each_name_and_kept_separate() {
    let drafts: Arc<std::sync::Mutex<Vec<Draft>>> = Arc::default();
    let kept = Arc::clone(&drafts);
    let sink: DraftSink = Arc::new(move |d| kept.lock().unwrap().push(d));
    let config = ModelConfig::default();
    let names = Names::default();
    let mut assembler = Assembler::new(&config, &names, false, &sink);
    for delta in [
        json!({"reasoning": "one"}),
        json!({"reasoning_content": "two"}),
        json!({"reasoning": null, "reasoning_details": [{"type": "x"}], "content": "answer"}),
    ] {
        assembler.event(&json!({"choices": [{"delta": delta}]}).to_string()).unwrap();
    }
    assembler.event(&end("stop").to_string()).unwrap();
    assert_eq!(assembler.finish("m", &Counting(AtomicU64::new(0))).unwrap().reply.text, "answer");
    // The first draft marks the start of the reply.
    let begins = Draft::Text(String::new());
    let wanted = [begins, Draft::Reasoning("one".into()), Draft::Reasoning("two".into()), Draft::Text("answer".into())];
    assert_eq!(*drafts.lock().unwrap(), wanted);
}

#[test]
fn rule_9_unknown_fields_and_unexpected_types_never_fail() {
    let reply = assembled(&[
        json!({"id": 7, "zzz": [1], "choices": null}),
        json!({"choices": [{"index": "zero", "delta": {"role": "assistant", "content": null, "audio": {}, "tool_calls": null}}]}),
        json!({"choices": [{"delta": {"content": [{"type": "text", "text": "par"}, {"type": "text", "text": "ts"}]}}]}),
        json!({"choices": [{"delta": null, "finish_reason": "weird_new_reason", "logprobs": null}], "service_tier": "x"}),
        json!({"choices": [], "usage": {"prompt_tokens": 3, "novel": {"a": []}}, "model": "real-name"}),
    ])
    .unwrap();
    assert_eq!((reply.text.as_str(), reply.finish, reply.usage.input_tokens), ("parts", Finish::Stop, 3));
    assert_eq!(reply.model, "real-name");
}

#[test]
fn whole_completion_equals_streamed_completion() {
    let reply = assembled(&[json!({"object": "chat.completion", "model": "m", "choices": [{"index": 0,
        "message": {"role": "assistant", "content": "x", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "p", "arguments": "{}"}},
            {"id": "b", "type": "function", "function": {"name": "q", "arguments": "{\"k\":1}"}}]},
        "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})])
    .unwrap();
    assert_eq!(brief(&reply), [("a", "p", "{}"), ("b", "q", "{\"k\":1}")]);
    assert_eq!((reply.text.as_str(), reply.usage.output_tokens), ("x", 2));
}

#[test]
fn oversized_reply_or_invalid_json_is_a_protocol_error() {
    let small = ModelConfig { reply_bytes_max: 10, ..ModelConfig::default() };
    let kind = |r: Result<ModelReply, Failure>| r.unwrap_err().error.kind;
    assert_eq!(kind(assembled_with(&small, &[text("123456"), text("78901")], true)), ModelErrorKind::Protocol);
    let many = (0..200).map(|n| json!({"index": n, "function": {"name": "x"}})).collect();
    assert_eq!(kind(assembled(&[calls(many)])), ModelErrorKind::Protocol);
    let sink: DraftSink = Arc::new(|_| ());
    let config = ModelConfig::default();
    let names = Names::default();
    let failure = Assembler::new(&config, &names, false, &sink).event("<html>").unwrap_err();
    assert_eq!((failure.error.kind, failure.may_retry), (ModelErrorKind::Protocol, false));
}

#[test]
fn refusal_becomes_text_and_content_filter_is_reported() {
    let reply = assembled(&[json!({"choices": [{"delta": {"refusal": "I cannot."}}]}), end("content_filter")]).unwrap();
    assert_eq!((reply.text.as_str(), reply.finish), ("I cannot.", Finish::ContentFilter));
}

#[test]
fn cut_reply_is_recognised_by_stop_reason_of_any_provider() {
    for (reason, finish) in [
        ("length", Finish::Length),
        ("max_tokens", Finish::Length),
        ("MAX_TOKENS", Finish::Length),
        ("model_length", Finish::Length),
        ("SAFETY", Finish::ContentFilter),
        ("content_filter", Finish::ContentFilter),
        ("refusal", Finish::ContentFilter),
        ("STOP", Finish::Stop),
        ("end_turn", Finish::Stop),
    ] {
        assert_eq!(assembled(&[text("x"), end(reason)]).unwrap().finish, finish, "{reason}");
    }
}

#[test]
fn legacy_function_call_is_read_as_tool_call() {
    let piece = |function: Value| json!({"choices": [{"delta": {"function_call": function}}]});
    let reply = assembled(&[
        piece(json!({"name": "get_skill", "arguments": "{\"domain\":"})),
        piece(json!({"arguments": "\"tasks\"}"})),
        end("function_call"),
    ])
    .unwrap();
    assert_eq!(reply.finish, Finish::ToolCalls);
    assert_eq!(
        (reply.tool_calls[0].name.as_str(), reply.tool_calls[0].arguments.as_str()),
        ("get_skill", "{\"domain\":\"tasks\"}")
    );
}

#[test]
fn arguments_with_one_error_are_repaired_and_reported() {
    let reply = assembled(&[
        calls(json!([{"id": "a", "function": {"name": "x", "arguments": "{\"n\": {\"m\": 1}"}}])),
        end("tool_calls"),
    ])
    .unwrap();
    assert_eq!(brief(&reply), [("a", "x", "{\"n\":{\"m\":1}}")]);
    assert_eq!(reply.repairs, [Repair::Arguments]);
}

#[test]
fn provider_state_is_kept_with_calls_up_to_its_limit() {
    let config = ModelConfig { name: "b".into(), model: "deepseek-chat".into(), ..ModelConfig::default() };
    let signed = |signature: &str| {
        vec![
            json!({"choices": [{"delta": {"reasoning_content": "I look."}}]}),
            json!({"choices": [{"delta": {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "I "}]}}]}),
            json!({"choices": [{"delta": {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "look", "signature": signature}]}}]}),
            calls(
                json!([{"id": "a", "function": {"name": "x", "arguments": "{}"}, "extra_content": {"google": {"thought_signature": signature}}}]),
            ),
            end("tool_calls"),
        ]
    };
    let reply = assembled_with(&config, &signed("c2ln"), true).unwrap();
    assert_eq!(
        reply.provider_state,
        Some(json!({
            "by": "b/asked-for",
            "reasoning_content": "I look.",
            "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "I look", "signature": "c2ln"}],
            "calls": [{"id": "a", "extra_content": {"google": {"thought_signature": "c2ln"}}}]
        }))
    );
    assert_eq!(assembled_with(&config, &signed(&"x".repeat(40_000)), true).unwrap().provider_state, None);
    let answer = [json!({"choices": [{"delta": {"reasoning_content": "hm", "content": "Hi"}}]}), end("stop")];
    assert_eq!(assembled_with(&config, &answer, true).unwrap().provider_state, None, "an answer ends the turn");
}

#[test]
fn call_with_name_in_every_fragment_is_one_call_until_arguments_end() {
    let argument = format!("{{\"t\":\"}}{{\\\"{}\",\"n\":[{{}}]}}", "x".repeat(1_000));
    let mut events: Vec<Value> = argument
        .chars()
        .map(|c| calls(json!([{"index": 0, "function": {"name": "x", "arguments": c.to_string()}}])))
        .collect();
    events.push(calls(json!([{"index": 0, "function": {"name": "y", "arguments": "null"}}])));
    events.push(calls(json!([{"index": 0, "function": {"name": "z", "arguments": "{}"}}])));
    events.push(end("tool_calls"));
    let reply = assembled(&events).unwrap();
    let names: Vec<&str> = reply.tool_calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!((names.as_slice(), &reply.tool_calls[0].arguments), (["x", "y", "z"].as_slice(), &argument));
}
