//! OpenAI's libraries automatically repeat requests after 408, 409, 429 and 5xx, without an id. Therefore a stored message must
//! not be answered with such a status unless the retry is forbidden, and a request with a retryable status must not be stored.

use annie_core::{
    event::{EventBody, Scope},
    ids::{ConversationId, Seq, UserId},
    message::{Message, ModelError, ModelErrorKind},
    ports::StoreErrorKind,
    time::Micros,
};
use annie_store::{MemoryStore, StoreFault, StorePoint};
use annie_testkit::{
    scripted_model::{ScriptedModel, calls, says},
    skills::FakeSkills,
};
use reqwest::{Method, Response};
use serde_json::{Value, json};

use super::world::{PATIENCE, Server, echo, read};
use crate::api::ApiLimits;

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";

/// The request of one message on each API.
fn requests_on_both_apis(text: &str) -> [(&'static str, Value); 2] {
    [
        (CHAT, json!({ "model": "annie", "messages": [{ "role": "user", "content": text }] })),
        (RESPONSES, json!({ "model": "annie", "input": text })),
    ]
}

async fn post(server: &Server, path: &str, body: &Value, headers: &[(&str, &str)]) -> Response {
    let mut request = server.request(Method::POST, path).json(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap()
}

/// The status, and the headers that control retries: `x-should-retry` and whether `retry-after` is set.
fn repeats(response: &Response) -> (u16, Option<&str>, bool) {
    let should_retry = response.headers().get("x-should-retry").map(|value| value.to_str().unwrap());
    (response.status().as_u16(), should_retry, response.headers().contains_key("retry-after"))
}

/// The number of matching events in all conversations.
async fn count(server: &Server, is_meant: impl Fn(&EventBody) -> bool) -> usize {
    let kernel = &server.state.kernel;
    let all = kernel.conversations(Scope::Operator, Micros(i64::MAX).into(), 100, true).await.unwrap();
    let mut found = 0;
    for row in all {
        let log = kernel.events(Scope::Operator, row.id, Seq(0), 500).await.unwrap();
        found += log.iter().filter(|event| is_meant(&event.body)).count();
    }
    found
}

const fn is_cancelled(body: &EventBody) -> bool {
    matches!(body, EventBody::Cancelled { .. })
}

#[tokio::test]
async fn completion_failed_after_effect_forbids_client_retry() {
    for (kind, status) in
        [(ModelErrorKind::Unavailable, 503), (ModelErrorKind::Timeout, 503), (ModelErrorKind::RateLimited, 429)]
    {
        let model = ScriptedModel::new(move |request, _| match request.messages.last() {
            Some(Message::User { .. }) => {
                Ok(calls([("use_skill", json!({"skill": "test.put", "arguments": {"what": "x"}}))]))
            }
            _ => Err(ModelError::new(kind, "away")),
        });
        let server = Server::hasty(model, FakeSkills::obliging()).await;
        for (n, (path, body)) in requests_on_both_apis("create a task to call Bob").into_iter().enumerate() {
            let response = post(&server, path, &body, &[]).await;
            assert_eq!(repeats(&response), (status, Some("false"), false), "{path} {kind:?}");
            let effects = count(&server, |body| matches!(body, EventBody::SkillFinished { .. })).await;
            assert_eq!(effects, n + 1, "{path} {kind:?}: the turn had an effect");
        }
    }
}

#[tokio::test]
async fn completion_wait_timeout_forbids_client_retry_without_key() {
    let model = ScriptedModel::saying("x").hanging_when(|_, _| true);
    let server = Server::with(model, ApiLimits { wait_s_max: 0, ..ApiLimits::default() }).await;
    for (path, body) in requests_on_both_apis("do it") {
        let response = post(&server, path, &body, &[("x-annie-conversation", "home")]).await;
        assert_eq!(repeats(&response), (504, Some("false"), false), "{path}");
        let error_text = read(response).await.1["error"]["message"].as_str().unwrap().to_owned();
        assert!(error_text.contains("goes on as task_") && error_text.contains("in conv_"), "{error_text}");
        // The answer of a request without a conversation can never be read.
        let before = count(&server, is_cancelled).await;
        let response = post(&server, path, &body, &[]).await;
        assert_eq!(repeats(&response), (504, Some("false"), false), "{path}");
        let error_text = read(response).await.1["error"]["message"].as_str().unwrap().to_owned();
        assert!(error_text.contains("the turn is being cancelled"), "{error_text}");
        let cancelled = async { while count(&server, is_cancelled).await == before {} };
        tokio::time::timeout(PATIENCE, cancelled).await.expect("it is cancelled");
        // A client that numbers its attempts returns for the same turn.
        let response = post(&server, path, &body, &[(ATTEMPT, "0")]).await;
        assert_eq!(repeats(&response), (504, None, false), "{path}");
        // With a key, a repeat continues to wait for the same turn.
        let response = post(&server, path, &body, &[("idempotency-key", path)]).await;
        assert_eq!(repeats(&response), (504, None, false), "{path}");
    }
}

#[tokio::test]
async fn completion_with_lost_acknowledgement_forbids_client_retry_without_key() {
    let hook = |point: StorePoint<'_>| match point {
        StorePoint::Commit(_) => StoreFault::LoseReply(StoreErrorKind::Unavailable),
        _ => StoreFault::Pass,
    };
    let store = MemoryStore::new().with_hook(std::sync::Arc::new(hook));
    let server = Server::on(store, echo(), ApiLimits::default()).await;
    for (path, body) in requests_on_both_apis("do it") {
        assert_eq!(repeats(&post(&server, path, &body, &[]).await), (503, Some("false"), false), "{path}");
        let keyed = post(&server, path, &body, &[("idempotency-key", path)]).await;
        assert_eq!(repeats(&keyed), (503, None, true), "{path}");
    }
}

#[tokio::test]
async fn completion_refused_by_stopping_server_may_be_retried() {
    let server = Server::start(echo()).await;
    server.state.shared.close(Some(&server.state.kernel)).await;
    for (path, body) in requests_on_both_apis("do it") {
        assert_eq!(repeats(&post(&server, path, &body, &[]).await), (503, None, true), "{path}");
    }
    assert_eq!(count(&server, |body| matches!(body, EventBody::Received(_))).await, 0);
}

#[tokio::test]
async fn completion_without_free_stream_slot_is_refused_before_it_is_stored() {
    let server = Server::with(echo(), ApiLimits { streams_per_user_max: 1, ..ApiLimits::default() }).await;
    let sent = server.say(json!({ "text": "hi", "conversation_key": "home" })).await;
    let stream = format!("/api/v1/conversations/{}/stream", sent["conversation_id"].as_str().unwrap());
    let open = server.request(Method::GET, &stream).send().await.unwrap();
    for (path, body) in requests_on_both_apis("do it") {
        for headers in [&[("x-annie-conversation", "home")][..], &[]] {
            assert_eq!(repeats(&post(&server, path, &body, headers).await), (429, None, true), "{path}");
        }
    }
    assert_eq!(count(&server, |body| matches!(body, EventBody::Received(_))).await, 1, "nothing of it was stored");
    drop(open);
}

#[tokio::test]
async fn completion_with_key_continues_after_disconnect_and_answers_the_repeat() {
    let model = ScriptedModel::new(|_, call| Ok(says(format!("answer {call}")))).hanging_when(|_, call| call == 0);
    let server = Server::start(model).await;
    let (path, mut body) = requests_on_both_apis("do it").into_iter().next().unwrap();
    body["stream"] = true.into();
    let cut = post(&server, path, &body, &[("idempotency-key", "k")]).await;
    let conversation: ConversationId = cut.headers()["x-annie-conversation"].to_str().unwrap().parse().unwrap();
    server.model.called(1).await;
    drop(cut);
    let (limits, me) = (ApiLimits { streams_max: 1, ..ApiLimits::default() }, UserId::new("me").unwrap());
    let has_left = async {
        while server.state.shared.slots.take(&me, &limits).is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, has_left).await.expect("the server notices that its client has left");
    server.say(json!({ "text": "something else" })).await;
    assert_eq!(server.model.abandoned_count(), 0, "the turn goes on");
    // The hanging round is started again.
    let engine = json!({ "path": format!("/conversations/engine:{conversation}"), "reason": "a test", "force": true });
    assert_eq!(server.post("/api/v1/actors/kill", engine).await.0, 200);
    body["stream"] = false.into();
    let (status, answer) = read(post(&server, path, &body, &[("idempotency-key", "k")]).await).await;
    assert_eq!((status, &answer["choices"][0]["message"]["content"]), (200, &json!("answer 2")), "{answer}");
}

const ATTEMPT: &str = "x-stainless-retry-count";

/// Disconnects a streamed request in the middle of its first round, which never ends.
async fn leave(server: &Server, path: &str, body: &Value) {
    let calls = server.model.call_count();
    let cut = post(server, path, body, &[(ATTEMPT, "0")]).await;
    server.model.called(calls + 1).await;
    drop(cut);
    let (limits, me) = (ApiLimits { streams_max: 1, ..ApiLimits::default() }, UserId::new("me").unwrap());
    let has_left = async {
        while server.state.shared.slots.take(&me, &limits).is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, has_left).await.expect("the server notices that its client has left");
}

#[tokio::test]
async fn later_attempt_waits_for_answer_of_first_attempt_and_equal_request_does_not() {
    for (path, mut body) in requests_on_both_apis("do it") {
        let model = ScriptedModel::new(|_, call| Ok(says(format!("answer {call}")))).hanging_when(|_, call| call == 2);
        let server = Server::start(model).await;
        let received = async || count(&server, |body| matches!(body, EventBody::Received(_))).await;
        for n in 0..2 {
            let (status, answer) = read(post(&server, path, &body, &[(ATTEMPT, "0")]).await).await;
            assert!(status == 200 && answer.to_string().contains(&format!("answer {n}")), "{path}: {answer}");
        }
        assert_eq!(received().await, 2, "{path}: equal requests are messages of their own");
        body["stream"] = true.into();
        leave(&server, path, &body).await;
        assert_eq!(received().await, 3);
        // The hanging round is started again.
        let mut open = server.state.kernel.tasks(Scope::Operator, true, Micros(i64::MAX).into(), 9).await.unwrap();
        let actor = format!("/conversations/engine:{}", open.remove(0).conversation);
        let engine = json!({ "path": actor, "reason": "a test", "force": true });
        assert_eq!(server.post("/api/v1/actors/kill", engine).await.0, 200);
        let again = post(&server, path, &body, &[(ATTEMPT, "1")]).await.text().await.unwrap();
        assert!(again.contains("answer 3"), "{path}: {again}");
        assert_eq!(received().await, 3, "{path}: the attempt is not stored as a separate message");
        // That answer was written but may not have arrived: a later attempt shows that it did not.
        let more = post(&server, path, &body, &[(ATTEMPT, "2")]).await.text().await.unwrap();
        assert!(more.contains("answer 3"), "{path}: {more}");
        assert_eq!(received().await, 3);
        // An equal request of another user does not join the turn, nor does one with a key.
        let keyed = [(ATTEMPT, "1"), ("idempotency-key", "k")];
        let keyed = post(&server, path, &body, &keyed).await.text().await.unwrap();
        assert!(streamed(&keyed).contains("answer 4"), "{path}: {keyed}");
    }
}

/// The text of a stream of either API. A digit at the end of a draft is withheld, so it is a piece of its own.
fn streamed(stream: &str) -> String {
    let pieces = stream.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let text = |piece: Value| {
        [&piece["choices"][0]["delta"]["content"], &piece["delta"]].map(|text| text.as_str().map(str::to_owned))
    };
    pieces.flat_map(text).flatten().collect()
}

#[tokio::test]
async fn attempt_after_refused_attempt_is_stored_and_found_by_the_next_attempt() {
    for (path, body) in requests_on_both_apis("do it") {
        let limits = ApiLimits { streams_max: 1, ..ApiLimits::default() };
        let model = ScriptedModel::new(|_, call| Ok(says(format!("answer {call}"))));
        let server = Server::with(model, limits.clone()).await;
        let received = async || count(&server, |body| matches!(body, EventBody::Received(_))).await;
        let (_, first) = read(post(&server, path, &body, &[(ATTEMPT, "0")]).await).await;
        assert!(first.to_string().contains("answer 0"), "{path}: {first}");
        let slot = server.state.shared.slots.take(&UserId::new("another").unwrap(), &limits).ok();
        assert!(slot.is_some(), "the first response is over");
        let (status, refused) = read(post(&server, path, &body, &[(ATTEMPT, "0")]).await).await;
        assert_eq!((status, received().await), (503, 1), "{path}: {refused}");
        drop(slot);
        for attempt in ["1", "2"] {
            let (_, answer) = read(post(&server, path, &body, &[(ATTEMPT, attempt)]).await).await;
            assert!(answer.to_string().contains("answer 1"), "{path}, attempt {attempt}: {answer}");
            assert_eq!(received().await, 2, "{path}, attempt {attempt}");
        }
    }
}

#[tokio::test]
async fn turn_is_cancelled_when_no_further_numbered_attempt_arrives() {
    let model = ScriptedModel::saying("x").hanging_when(|_, _| true);
    let server = Server::with(model, ApiLimits { attempt_ms_max: 0, ..ApiLimits::default() }).await;
    for (n, (path, mut body)) in requests_on_both_apis("do it").into_iter().enumerate() {
        body["stream"] = true.into();
        leave(&server, path, &body).await;
        server.model.abandoned(n as u64 + 1).await;
    }
}

#[tokio::test]
async fn repeated_attempt_of_continuation_uses_conversation_of_first_attempt() {
    let model = ScriptedModel::new(|_, call| Ok(says(format!("answer {call}")))).hanging_when(|_, call| call == 1);
    let server = Server::start(model).await;
    let [_, (path, body)] = requests_on_both_apis("one");
    let first = post(&server, path, &body, &[(ATTEMPT, "0")]).await;
    let home = first.headers()["x-annie-conversation"].to_str().unwrap().to_owned();
    let (_, first) = read(first).await;
    let next = json!({ "model": "annie", "input": "two", "stream": true, "previous_response_id": first["id"] });
    leave(&server, path, &next).await;
    let engine = json!({ "path": format!("/conversations/engine:{home}"), "reason": "a test", "force": true });
    assert_eq!(server.post("/api/v1/actors/kill", engine).await.0, 200);
    let again = post(&server, path, &next, &[(ATTEMPT, "1")]).await;
    assert_eq!(again.headers()["x-annie-conversation"], home.as_str());
    assert!(again.text().await.unwrap().contains("answer 2"));
    assert_eq!(count(&server, |body| matches!(body, EventBody::Received(_))).await, 2);
}

#[tokio::test]
async fn completion_open_at_shutdown_is_cancelled_or_reported_as_continuing() {
    let [(path, body), _] = requests_on_both_apis("do it");
    for (headers, error_text) in
        [(&[][..], "the turn is being cancelled"), (&[(ATTEMPT, "0")][..], "the turn goes on as task_")]
    {
        let server = Server::start(ScriptedModel::saying("x").hanging_when(|_, _| true)).await;
        let stopping = async {
            server.model.called(1).await;
            server.state.shared.close(Some(&server.state.kernel)).await;
        };
        let (response, ()) = tokio::join!(post(&server, path, &body, headers), stopping);
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers().contains_key("x-should-retry"), headers.is_empty(), "an attempt finds it again");
        let sent = response.text().await.unwrap();
        assert!(sent.contains("the server is stopping") && sent.contains(error_text), "{sent}");
        if headers.is_empty() {
            let cancelled = async { while count(&server, is_cancelled).await == 0 {} };
            tokio::time::timeout(PATIENCE, cancelled).await.expect("it is cancelled before the server has stopped");
        }
    }
}

#[tokio::test]
async fn completion_refused_by_draining_kernel_may_be_retried() {
    let server = Server::start(echo()).await;
    // The kernel stops accepting messages before the front ends do.
    server.state.kernel.drain();
    for (path, body) in requests_on_both_apis("do it") {
        let response = post(&server, path, &body, &[]).await;
        assert_eq!(repeats(&response), (503, None, true), "{path}");
        let error_text = response.text().await.unwrap();
        assert!(!error_text.contains("may be stored"), "{error_text}");
    }
    assert_eq!(count(&server, |body| matches!(body, EventBody::Received(_))).await, 0);
}
