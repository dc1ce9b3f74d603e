//! The OpenAI-compatible API for programs: parameters, formatted answers, the client's own tools, and the traces of a stateless
//! call.

use std::sync::Arc;

use annie_core::{
    caller::ToolChoice,
    message::{Finish, ModelReply, ModelRequest},
};
use annie_testkit::scripted_model::{ScriptedModel, calls, says};
use reqwest::Method;
use serde_json::{Value, json};

use super::world::{PATIENCE, Server, echo, last_text, sse};
use crate::api::ApiLimits;

const CHAT: &str = "/v1/chat/completions";

fn ask(more: Value) -> Value {
    let mut body = json!({ "model": "annie", "messages": [{ "role": "user", "content": "hi" }] });
    if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
        body.extend(more);
    }
    body
}

fn tools() -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    json!([{ "type": "function", "function": { "name": "weather", "description": "The weather.", "parameters": parameters } }])
}

/// A model that requests the weather and then reports it.
fn weatherman() -> ScriptedModel {
    ScriptedModel::new(|request, _| Ok(tell_weather(request)))
}

fn tell_weather(request: &ModelRequest) -> ModelReply {
    let offers = request.tools.iter().any(|t| t.name == "weather");
    match last_text(request) {
        text if offers && !text.contains("degrees") => calls([("weather", json!({"city": "Prague"}))]),
        text => says(format!("It is {text}.")),
    }
}

#[tokio::test]
async fn completion_parameters_reach_model_and_invalid_ones_are_named() {
    let server = Server::start(echo()).await;
    let asked = json!({"temperature": 0.2, "top_p": 0.9, "seed": 7, "stop": ["END"], "max_tokens": 33,
        "user": "u", "store": false, "service_tier": "auto", "metadata": {"a": "b"}, "n": 1});
    let (status, done) = server.post(CHAT, ask(asked)).await;
    assert_eq!(status, 200, "{done}");
    let sent = server.model.requests().remove(0);
    let sampling = serde_json::to_value(&sent.options.sampling).unwrap();
    assert_eq!(
        sampling,
        json!({"temperature": 0.2, "top_p": 0.9, "seed": 7, "stop": ["END"], "output_tokens_max": 33})
    );
    assert_eq!(sent.output_tokens_max, 33);
    for (wrong, field, code) in [
        (json!({"temperature": "hot"}), "temperature", "invalid_request"),
        (json!({"top_p": 2}), "top_p", "invalid_request"),
        (json!({"max_completion_tokens": 0}), "max_completion_tokens", "invalid_request"),
        (json!({"response_format": {"type": "xml"}}), "response_format.type", "invalid_request"),
        (json!({"tool_choice": "required"}), "tool_choice", "invalid_request"),
        (json!({"parallel_tool_calls": "yes", "tools": tools()}), "parallel_tool_calls", "invalid_request"),
        (json!({"n": 2}), "n", "unsupported_parameter"),
        (json!({"logprobs": true}), "logprobs", "unsupported_parameter"),
    ] {
        let (status, error) = server.post(CHAT, ask(wrong)).await;
        assert_eq!(
            (status, &error["error"]["param"], &error["error"]["code"]),
            (400, &json!(field), &json!(code)),
            "{error}"
        );
    }
    assert_eq!(server.model.call_count(), 1, "the model received no other request");
}

#[tokio::test]
async fn completion_reports_finish_reason_and_usage_of_the_model() {
    for (finish, word) in [(Finish::Stop, "stop"), (Finish::ContentFilter, "content_filter")] {
        let server = Server::start(ScriptedModel::new(move |_, _| Ok(ModelReply { finish, ..says("so") }))).await;
        let (_, done) = server.post(CHAT, ask(json!({}))).await;
        assert_eq!(done["choices"][0]["finish_reason"], word, "{done}");
        let details = &done["usage"]["prompt_tokens_details"]["cached_tokens"];
        assert!(details.is_u64() && done["usage"]["completion_tokens_details"]["reasoning_tokens"].is_u64(), "{done}");
        let streamed = ask(json!({"stream": true}));
        let text = server.request(Method::POST, CHAT).json(&streamed).send().await.unwrap().text().await.unwrap();
        let ends: Vec<Value> = sse(&text).iter().filter_map(|e| serde_json::from_str(&e.2).ok()).collect();
        assert!(ends.iter().any(|c: &Value| c["choices"][0]["finish_reason"] == word), "{text}");
    }
}

#[tokio::test]
async fn empty_answer_reports_content_filter_or_length() {
    for (finish, word, status) in
        [(Finish::ContentFilter, "content_filter", "content_filter"), (Finish::Length, "length", "max_output_tokens")]
    {
        let server = Server::start(ScriptedModel::new(move |_, _| Ok(ModelReply { finish, ..says("") }))).await;
        let (code, done) = server.post(CHAT, ask(json!({"max_tokens": 1}))).await;
        assert_eq!((code, &done["choices"][0]["finish_reason"]), (200, &json!(word)), "{done}");
        let asked = json!({"model": "annie", "input": "hi", "max_output_tokens": 1});
        let (code, done) = server.post(RESPONSES, asked).await;
        assert_eq!((code, &done["incomplete_details"]["reason"]), (200, &json!(status)), "{done}");
        assert_eq!((&done["status"], server.model.call_count()), (&json!("incomplete"), 2), "asked once each");
        let asked = json!({"model": "annie", "input": "hi", "max_output_tokens": 1, "stream": true});
        let text = server.request(Method::POST, RESPONSES).json(&asked).send().await.unwrap().text().await.unwrap();
        let events: Vec<Value> = sse(&text).iter().map(|e| serde_json::from_str(&e.2).unwrap()).collect();
        let item = events.iter().find(|e| e["type"] == "response.output_item.done").unwrap();
        assert_eq!(item["item"]["status"], "incomplete", "{item}");
    }
}

#[tokio::test]
async fn formatted_answer_is_retried_once_and_then_fails() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": true}});
    let mending = ScriptedModel::new(|request, _| {
        let is_mending = request.options.tool_choice == Some(ToolChoice::None);
        Ok(says(if is_mending { "```json\n{\"n\": 3}\n```" } else { "Three." }))
    });
    let server = Server::start(mending).await;
    let (status, done) = server.post(CHAT, ask(json!({"response_format": format}))).await;
    assert_eq!((status, &done["choices"][0]["message"]["content"]), (200, &json!("{\"n\": 3}")), "{done}");
    let streamed = ask(json!({"response_format": format, "stream": true}));
    let text = server.request(Method::POST, CHAT).json(&streamed).send().await.unwrap().text().await.unwrap();
    assert!(text.contains("{\\\"n\\\": 3}") && !text.contains("Three."), "only the valid answer is sent: {text}");

    let stubborn = Server::start(ScriptedModel::saying("Three.")).await;
    let (status, error) = stubborn.post(CHAT, ask(json!({"response_format": format}))).await;
    assert!(status >= 500 && error["error"]["message"].as_str().unwrap().contains("form"), "{error}");
    assert_eq!(stubborn.model.call_count(), 2, "once, and once more");
    let unusable = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "text"}}});
    let (status, error) = stubborn.post(CHAT, ask(json!({"response_format": unusable}))).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("response_format.json_schema.schema")));
}

#[tokio::test]
async fn completion_hands_client_tool_calls_over_and_takes_their_results() {
    let server = Server::start(weatherman()).await;
    let mut messages =
        vec![json!({"role": "system", "content": "Be kind."}), json!({"role": "user", "content": "Weather?"})];
    let body = json!({"model": "annie", "messages": messages, "tools": tools(), "tool_choice": "auto"});
    let (status, asked) = server.post(CHAT, body.clone()).await;
    let choice = &asked["choices"][0];
    assert_eq!((status, &choice["finish_reason"]), (200, &json!("tool_calls")), "{asked}");
    assert_eq!(choice["message"]["content"], Value::Null);
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!((&call["type"], &call["function"]["name"]), (&json!("function"), &json!("weather")));
    assert_eq!(
        serde_json::from_str::<Value>(call["function"]["arguments"].as_str().unwrap()).unwrap()["city"],
        "Prague"
    );

    messages.push(choice["message"].clone());
    messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "21 degrees"}));
    let (_, final_answer) = server.post(CHAT, json!({"model": "annie", "messages": messages, "tools": tools()})).await;
    assert_eq!(final_answer["choices"][0]["message"]["content"], "It is 21 degrees.", "{final_answer}");
    assert_eq!(final_answer["choices"][0]["finish_reason"], "stop");

    let first = server.model.requests().remove(0);
    assert_eq!(first.tools.len(), 1, "the client's tools alone");
    assert_eq!(first.system.len(), 1, "the client's instructions alone");

    let mut streamed = body;
    streamed["stream"] = true.into();
    let text = server.request(Method::POST, CHAT).json(&streamed).send().await.unwrap().text().await.unwrap();
    let chunks: Vec<Value> = sse(&text).iter().filter_map(|e| serde_json::from_str(&e.2).ok()).collect();
    let delta = chunks.iter().find_map(|c| c["choices"][0]["delta"].get("tool_calls").cloned()).expect("a call");
    assert_eq!((&delta[0]["index"], &delta[0]["function"]["name"]), (&json!(0), &json!("weather")));
    assert!(chunks.iter().any(|c| c["choices"][0]["finish_reason"] == "tool_calls"));
}

#[tokio::test]
async fn completion_with_tools_repeated_under_its_key_is_not_run_again() {
    let server = Server::start(weatherman()).await;
    let body = ask(json!({"tools": tools()}));
    let mut answers = Vec::new();
    for _ in 0..2 {
        let request = server.request(Method::POST, CHAT).header("idempotency-key", "k-1").json(&body);
        answers.push(request.send().await.unwrap().json::<Value>().await.unwrap());
    }
    assert_eq!(answers[0]["id"], answers[1]["id"]);
    assert_eq!(answers[0]["choices"], answers[1]["choices"]);
    assert_eq!(server.model.call_count(), 1);
}

#[tokio::test]
async fn completion_with_invalid_posted_conversation_is_refused() {
    let server = Server::start(echo()).await;
    let user = json!({"role": "user", "content": "x"});
    let call = json!({"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]});
    let many: Vec<Value> =
        (0..129).map(|n| json!({"type": "function", "function": {"name": format!("f{n}")}})).collect();
    let huge = json!([{"type": "function", "function": {"name": "f", "description": "x".repeat(20_000)}}]);
    for (body, field) in [
        (json!({"messages": [{"role": "wizard", "content": "x"}]}), "messages[0].role"),
        (
            json!({"messages": [user, {"role": "tool", "tool_call_id": "c", "content": "3"}]}),
            "messages[1].tool_call_id",
        ),
        (json!({"messages": [user, call, user], "tools": tools()}), "messages[2]"),
        (json!({"messages": [user, call], "tools": tools()}), "messages"),
        (json!({"messages": [user], "tools": many}), "tools"),
        (json!({"messages": [user], "tools": huge}), "tools[0].function.description"),
    ] {
        let (status, error) = server.post(CHAT, ask(body)).await;
        assert_eq!((status, &error["error"]["param"]), (400, &json!(field)), "{error}");
    }
    assert_eq!(server.model.call_count(), 0);
}

#[tokio::test]
async fn completion_offers_annie_skills_beside_client_tools_on_request() {
    let server = Server::start(weatherman()).await;
    let body = ask(json!({"tools": tools(), "metadata": {"annie_skills": "on"}}));
    let (status, asked) = server.post(CHAT, body).await;
    assert_eq!((status, &asked["choices"][0]["finish_reason"]), (200, &json!("tool_calls")), "{asked}");
    let names: Vec<String> = server.model.requests().remove(0).tools.into_iter().map(|t| t.name).collect();
    assert!(names.len() > 1 && names.contains(&"weather".to_owned()), "{names:?}");
}

#[tokio::test]
async fn stateless_completion_is_not_listed_and_leaves_no_engine_in_memory() {
    let server = Server::start(echo()).await;
    server.post(CHAT, ask(json!({}))).await;
    let named = server.request(Method::POST, CHAT).header("x-annie-conversation", "kept").json(&ask(json!({})));
    assert!(named.send().await.unwrap().status().is_success());
    let listed = async |query: &str| -> usize {
        let (_, list) = server.get(&format!("/api/v1/conversations{query}")).await;
        list["conversations"].as_array().unwrap().len()
    };
    assert_eq!((listed("").await, listed("?stateless=true").await), (1, 2));
    let engines = async || {
        let (_, tree) = server.get("/api/v1/actors").await;
        tree.to_string().matches("/conversations/engine:").count()
    };
    let gone = async { while engines().await != 1 {} };
    tokio::time::timeout(PATIENCE, gone).await.expect("the stateless call's engine leaves memory");
}

#[tokio::test]
async fn unknown_openai_route_is_not_found_in_openai_shape() {
    let server = Server::start(echo()).await;
    let (status, error) = server.post("/v1/completions", json!({"model": "annie", "prompt": "x"})).await;
    assert_eq!(status, 404);
    assert!(error["error"]["message"].is_string() && error["error"]["type"] == "invalid_request_error", "{error}");
}

#[tokio::test]
async fn embeddings_are_forwarded_to_backend_that_supports_them() {
    const PATH: &str = "/v1/embeddings";
    let server = Server::start(echo().embedding("vectors")).await;
    for model in ["annie", "vectors"] {
        let body = json!({"model": model, "input": ["a", "b"], "encoding_format": "base64", "dimensions": 2});
        let (status, made) = server.post(PATH, body).await;
        assert_eq!((status, &made["data"][0]["embedding"]), (200, &json!([0.5, 1.0])), "{made}");
        assert_eq!(made["asked"], json!({"input": ["a", "b"], "encoding_format": "base64", "dimensions": 2}));
    }
    for tokens in [json!(vec![1; 3_000]), json!([[1, 2], [3]])] {
        assert_eq!(server.post(PATH, json!({"model": "annie", "input": tokens})).await.0, 200);
    }
    for (body, status, field) in [
        (json!({"model": "annie", "input": vec![[1]; 2_049]}), 400, "input"),
        (json!({"model": "ada", "input": "x"}), 404, "model"),
        (json!({"model": "annie", "input": ""}), 400, "input"),
        (json!({"model": "annie"}), 400, "input"),
        (json!({"model": "annie", "input": ["a", 1]}), 400, "input"),
        (json!({"model": "annie", "input": vec!["a"; 2_049]}), 400, "input"),
        (json!({"model": "annie", "input": "x", "dimensions": 0}), 400, "dimensions"),
        (json!({"model": "annie", "input": "x", "encoding_format": "hex"}), 400, "encoding_format"),
    ] {
        let (got, error) = server.post(PATH, body).await;
        assert_eq!((got, &error["error"]["param"]), (status, &json!(field)), "{error}");
    }
    let none = Server::start(echo()).await;
    let (status, error) = none.post(PATH, json!({"model": "annie", "input": "x"})).await;
    assert_eq!((status, &error["error"]["code"]), (400, &json!("unsupported_parameter")), "{error}");
}

#[tokio::test]
async fn embeddings_beyond_user_limit_are_refused_with_retry_time() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let server = Server::start(echo().embedding("vectors").embedding_behind(gate.clone())).await;
    let ask = || async {
        let (status, reply) = server.post("/v1/embeddings", json!({"model": "annie", "input": "x"})).await;
        // The other requests wait at the gate until one is refused.
        if status != 200 {
            gate.add_permits(100);
        }
        (status, reply)
    };
    let asked = futures_util::future::join_all((0..17).map(|_| ask()));
    let answers = tokio::time::timeout(PATIENCE, asked).await.expect("one of them is refused");
    let refused: Vec<_> = answers.iter().filter(|(status, _)| *status != 200).collect();
    assert!(matches!(refused[..], [(429, _)]), "{refused:?}");
    assert!(refused[0].1["error"]["message"].as_str().is_some_and(|m| m.contains("try again in")), "{refused:?}");
}

#[tokio::test]
async fn posted_conversation_has_size_limit() {
    let limits = ApiLimits { body_bytes_max: 4 * 1024 * 1024, ..ApiLimits::default() };
    let server = Server::with(echo(), limits).await;
    let long = json!([{"role": "user", "content": "x".repeat(1_100_000)}]);
    let (status, error) = server.post(CHAT, json!({"model": "annie", "messages": long, "tools": tools()})).await;
    assert!(status == 400 && error["error"]["message"].as_str().unwrap().contains("at most"), "{error}");
}

// Responses.

const RESPONSES: &str = "/v1/responses";

fn response_tools() -> Value {
    let function = tools()[0]["function"].clone();
    json!([{"type": "function", "name": function["name"], "parameters": function["parameters"], "strict": false}])
}

#[tokio::test]
async fn response_is_continued_by_previous_response_id() {
    let server = Server::start(echo()).await;
    let (status, first) =
        server.post(RESPONSES, json!({"model": "annie", "input": "one", "instructions": "Be kind."})).await;
    assert_eq!((status, &first["object"], &first["status"]), (200, &json!("response"), &json!("completed")), "{first}");
    assert_eq!(first["output"][0]["content"][0]["text"], "You said: one");
    assert!(first["usage"]["input_tokens_details"]["cached_tokens"].is_u64());
    let next = json!({"model": "annie", "input": [{"role": "user", "content": [{"type": "input_text", "text": "two"}]}],
        "previous_response_id": first["id"]});
    let (_, second) = server.post(RESPONSES, next).await;
    assert_eq!(second["output"][0]["content"][0]["text"], "You said: two", "{second}");
    let requests = server.model.requests();
    assert!(serde_json::to_string(&requests[1].messages).unwrap().contains("You said: one"));
    assert!(serde_json::to_string(&requests[0].system).unwrap().contains("Be kind."));
    let lost = json!({"model": "annie", "input": "x", "previous_response_id": "resp_0"});
    let (status, error) = server.post(RESPONSES, lost).await;
    assert_eq!((status, &error["error"]["param"]), (404, &json!("previous_response_id")));
}

/// The messages and system texts of the newest request to the model.
fn newest_request(server: &Server) -> (String, String) {
    let request = server.model.requests().pop().unwrap();
    (serde_json::to_string(&request.messages).unwrap(), serde_json::to_string(&request.system).unwrap())
}

#[tokio::test]
async fn response_continued_twice_forks_into_independent_threads() {
    let server = Server::start(echo()).await;
    let continue_from = async |from: Option<&Value>, text: &str| {
        let body = json!({"model": "annie", "input": text, "previous_response_id": from});
        let (status, made) = server.post(RESPONSES, body).await;
        assert_eq!(status, 200, "{made}");
        made["id"].clone()
    };
    let one = continue_from(None, "one").await;
    let two = continue_from(Some(&one), "two").await;
    continue_from(Some(&one), "other").await;
    let (messages, _) = newest_request(&server);
    assert!(messages.contains("You said: one") && !messages.contains("two"), "{messages}");
    continue_from(Some(&two), "three").await;
    let (messages, _) = newest_request(&server);
    assert!(messages.contains("You said: one") && messages.contains("You said: two"), "{messages}");
    assert!(!messages.contains("other"), "{messages}");
    // With tools the client keeps the conversation; all of it is moved into the thread.
    let body = json!({"model": "annie", "input": "four", "previous_response_id": two, "tools": response_tools()});
    assert_eq!(server.post(RESPONSES, body).await.0, 200);
    let (messages, _) = newest_request(&server);
    assert!(messages.contains("You said: one") && messages.contains("You said: two"), "{messages}");
    assert!(!messages.contains("three"), "{messages}");
}

#[tokio::test]
async fn response_keeps_system_items_of_its_thread_and_not_the_instructions_of_earlier_requests() {
    let server = Server::start(weatherman()).await;
    let begin = json!({"model": "annie", "tools": response_tools(), "instructions": "Be kind.",
        "input": [{"role": "developer", "content": "Answer in verse."}, {"role": "user", "content": "Weather?"}]});
    let (_, asked) = server.post(RESPONSES, begin).await;
    let (_, system) = newest_request(&server);
    assert!(system.contains("Be kind.") && system.contains("Answer in verse."), "{system}");
    let result =
        json!({"type": "function_call_output", "call_id": asked["output"][0]["call_id"], "output": "21 degrees"});
    let next = json!({"model": "annie", "input": [result], "previous_response_id": asked["id"]});
    assert_eq!(server.post(RESPONSES, next).await.0, 200);
    let (_, system) = newest_request(&server);
    assert!(!system.contains("Be kind.") && system.contains("Answer in verse."), "{system}");
}

#[tokio::test]
async fn system_messages_instruct_every_turn_of_a_named_conversation() {
    let server = Server::start(echo()).await;
    for manner in ["Be kind.", "Be brief."] {
        let body = json!({"model": "annie", "metadata": {"conversation_id": "c"}, "messages": [
            {"role": "system", "content": manner}, {"role": "user", "content": "hi"}]});
        assert_eq!(server.post(CHAT, body).await.0, 200);
        let (messages, system) = newest_request(&server);
        assert!(system.contains(manner) && !messages.contains(manner), "{system} {messages}");
    }
    let long = json!({"model": "annie", "messages": [
        {"role": "system", "content": "x".repeat(300_000)}, {"role": "user", "content": "hi"}]});
    let (status, error) = server.post(CHAT, long).await;
    assert!(status >= 400 && error["error"]["message"].as_str().unwrap().contains("at most"), "{error}");
}

#[tokio::test]
async fn response_hands_calls_over_and_takes_results_by_id_or_items() {
    let server = Server::start(weatherman()).await;
    let begin = json!({"model": "annie", "input": "Weather?", "tools": response_tools()});
    let (_, asked) = server.post(RESPONSES, begin).await;
    let call = &asked["output"][0];
    assert_eq!((&call["type"], &call["name"]), (&json!("function_call"), &json!("weather")), "{asked}");
    let result = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "21 degrees"});
    for body in [
        json!({"model": "annie", "input": [result], "previous_response_id": asked["id"], "tools": response_tools()}),
        json!({"model": "annie", "input": [{"role": "user", "content": "Weather?"}, call, result], "tools": response_tools()}),
    ] {
        let (status, final_answer) = server.post(RESPONSES, body).await;
        assert_eq!(
            (status, &final_answer["output"][0]["content"][0]["text"]),
            (200, &json!("It is 21 degrees.")),
            "{final_answer}"
        );
    }
    for (body, field) in [
        (json!({"input": [result]}), "input[0].call_id"),
        (json!({"input": [{"role": "wizard", "content": "x"}]}), "input[0].role"),
        (json!({"input": [{"type": "item_reference", "id": "x"}]}), "input[0].type"),
        (json!({"input": 3}), "input"),
        (json!({"input": "x", "tools": [{"type": "web_search"}]}), "tools[0].type"),
        (json!({"input": "x", "background": true}), "background"),
        (json!({"input": "x", "temperature": "hot"}), "temperature"),
    ] {
        let mut body = body;
        body["model"] = "annie".into();
        let (status, error) = server.post(RESPONSES, body).await;
        assert_eq!((status, &error["error"]["param"]), (400, &json!(field)), "{error}");
    }
}

#[tokio::test]
async fn streamed_response_events_are_ordered_and_numbered() {
    let server = Server::start(weatherman()).await;
    let stream = async |body: Value| -> Vec<Value> {
        let text = server.request(Method::POST, RESPONSES).json(&body).send().await.unwrap().text().await.unwrap();
        sse(&text).iter().map(|e| serde_json::from_str(&e.2).unwrap()).collect()
    };
    let kinds = |events: &[Value]| -> Vec<String> {
        let mut kinds: Vec<String> =
            events.iter().map(|e| e["type"].as_str().unwrap().replace("response.", "")).collect();
        kinds.dedup();
        kinds
    };
    let words =
        stream(json!({"model": "annie", "input": "21 degrees", "stream": true, "tools": response_tools()})).await;
    assert_eq!(
        kinds(&words),
        [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "completed"
        ]
    );
    let delta: String = words.iter().filter_map(|e| e["delta"].as_str()).collect();
    assert_eq!(delta, "It is 21 degrees.");
    assert_eq!(words.last().unwrap()["response"]["output"][0]["content"][0]["text"], "It is 21 degrees.");
    let numbers: Vec<u64> = words.iter().map(|e| e["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..words.len() as u64).collect::<Vec<_>>());
    let called =
        stream(json!({"model": "annie", "input": "Weather?", "stream": true, "tools": response_tools()})).await;
    assert_eq!(
        kinds(&called),
        [
            "created",
            "in_progress",
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
            "completed"
        ]
    );
    assert_eq!(called.last().unwrap()["response"]["output"][0]["name"], "weather");
}
