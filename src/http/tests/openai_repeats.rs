//! OpenAI's libraries repeat 408, 409, 429 and 5xx by themselves, and send no id with it: what is stored must not be of that
//! kind, and what is of that kind must not be stored.

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
use crate::door::DoorLimits;

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";

/// One message, as each surface takes it.
fn asked(text: &str) -> [(&'static str, Value); 2] {
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

/// The status, and what the headers say of repeating.
fn repeats(response: &Response) -> (u16, Option<&str>, bool) {
    let should_retry = response.headers().get("x-should-retry").map(|value| value.to_str().unwrap());
    (response.status().as_u16(), should_retry, response.headers().contains_key("retry-after"))
}

/// How many events of all conversations are like this.
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
async fn completion_that_fails_after_an_effect_is_not_to_be_repeated() {
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
        for (n, (path, body)) in asked("create a task to call Bob").into_iter().enumerate() {
            let response = post(&server, path, &body, &[]).await;
            assert_eq!(repeats(&response), (status, Some("false"), false), "{path} {kind:?}");
            let effects = count(&server, |body| matches!(body, EventBody::SkillFinished { .. })).await;
            assert_eq!(effects, n + 1, "{path} {kind:?}: the turn had an effect");
        }
    }
}

#[tokio::test]
async fn completion_that_is_not_waited_for_to_its_end_is_not_to_be_repeated_without_a_key() {
    let model = ScriptedModel::saying("x").hanging_when(|_, _| true);
    let server = Server::with(model, DoorLimits { wait_s_max: 0, ..DoorLimits::default() }).await;
    for (path, body) in asked("do it") {
        let response = post(&server, path, &body, &[("x-annie-conversation", "home")]).await;
        assert_eq!(repeats(&response), (504, Some("false"), false), "{path}");
        let told = read(response).await.1["error"]["message"].as_str().unwrap().to_owned();
        assert!(told.contains("goes on as task_") && told.contains("in conv_"), "{told}");
        // Nobody will ever read the answer of a request without a conversation.
        let before = count(&server, is_cancelled).await;
        let response = post(&server, path, &body, &[]).await;
        assert_eq!(repeats(&response), (504, Some("false"), false), "{path}");
        let told = read(response).await.1["error"]["message"].as_str().unwrap().to_owned();
        assert!(told.contains("the turn is being cancelled"), "{told}");
        let cancelled = async { while count(&server, is_cancelled).await == before {} };
        tokio::time::timeout(PATIENCE, cancelled).await.expect("it is cancelled");
        // A client that numbers its attempts comes back for the same turn.
        let response = post(&server, path, &body, &[(ATTEMPT, "0")]).await;
        assert_eq!(repeats(&response), (504, None, false), "{path}");
        // With a key, a repeat waits on for the same turn.
        let response = post(&server, path, &body, &[("idempotency-key", path)]).await;
        assert_eq!(repeats(&response), (504, None, false), "{path}");
    }
}

#[tokio::test]
async fn completion_whose_acknowledgement_is_lost_is_not_to_be_repeated_without_a_key() {
    let hook = |point: StorePoint<'_>| match point {
        StorePoint::Commit(_) => StoreFault::LoseReply(StoreErrorKind::Unavailable),
        _ => StoreFault::Pass,
    };
    let store = MemoryStore::new().with_hook(std::sync::Arc::new(hook));
    let server = Server::on(store, echo(), DoorLimits::default()).await;
    for (path, body) in asked("do it") {
        assert_eq!(repeats(&post(&server, path, &body, &[]).await), (503, Some("false"), false), "{path}");
        let keyed = post(&server, path, &body, &[("idempotency-key", path)]).await;
        assert_eq!(repeats(&keyed), (503, None, true), "{path}");
    }
}

#[tokio::test]
async fn completion_that_a_stopping_server_does_not_take_may_be_repeated() {
    let server = Server::start(echo()).await;
    server.state.doors.close(&server.state.kernel).await;
    for (path, body) in asked("do it") {
        assert_eq!(repeats(&post(&server, path, &body, &[]).await), (503, None, true), "{path}");
    }
    assert_eq!(count(&server, |body| matches!(body, EventBody::Received(_))).await, 0);
}

#[tokio::test]
async fn completion_without_a_place_among_the_streams_is_refused_before_it_is_stored() {
    let server = Server::with(echo(), DoorLimits { streams_per_user_max: 1, ..DoorLimits::default() }).await;
    let said = server.say(json!({ "text": "hi", "conversation_key": "home" })).await;
    let stream = format!("/api/v1/conversations/{}/stream", said["conversation_id"].as_str().unwrap());
    let open = server.request(Method::GET, &stream).send().await.unwrap();
    for (path, body) in asked("do it") {
        for headers in [&[("x-annie-conversation", "home")][..], &[]] {
            assert_eq!(repeats(&post(&server, path, &body, headers).await), (429, None, true), "{path}");
        }
    }
    assert_eq!(count(&server, |body| matches!(body, EventBody::Received(_))).await, 1, "nothing of it was stored");
    drop(open);
}

#[tokio::test]
async fn completion_with_a_key_goes_on_when_its_client_leaves_and_answers_the_repeat() {
    let model = ScriptedModel::new(|_, call| Ok(says(format!("answer {call}")))).hanging_when(|_, call| call == 0);
    let server = Server::start(model).await;
    let (path, mut body) = asked("do it").into_iter().next().unwrap();
    body["stream"] = true.into();
    let cut = post(&server, path, &body, &[("idempotency-key", "k")]).await;
    let conversation: ConversationId = cut.headers()["x-annie-conversation"].to_str().unwrap().parse().unwrap();
    server.model.called(1).await;
    drop(cut);
    let (limits, me) = (DoorLimits { streams_max: 1, ..DoorLimits::default() }, UserId::new("me").unwrap());
    let has_left = async {
        while server.state.doors.slots.take(&me, &limits).is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, has_left).await.expect("the server notices that its client has left");
    server.say(json!({ "text": "something else" })).await;
    assert_eq!(server.model.abandoned_count(), 0, "the turn goes on");
    // The round that hangs is begun anew.
    let engine = json!({ "path": format!("/conversations/engine:{conversation}") });
    assert_eq!(server.post("/api/v1/actors/kill", engine).await.0, 200);
    body["stream"] = false.into();
    let (status, answer) = read(post(&server, path, &body, &[("idempotency-key", "k")]).await).await;
    assert_eq!((status, &answer["choices"][0]["message"]["content"]), (200, &json!("answer 2")), "{answer}");
}

const ATTEMPT: &str = "x-stainless-retry-count";

/// Leaves a streamed request in the middle of its first round, which never ends.
async fn leave(server: &Server, path: &str, body: &Value) {
    let calls = server.model.call_count();
    let cut = post(server, path, body, &[(ATTEMPT, "0")]).await;
    server.model.called(calls + 1).await;
    drop(cut);
    let (limits, me) = (DoorLimits { streams_max: 1, ..DoorLimits::default() }, UserId::new("me").unwrap());
    let has_left = async {
        while server.state.doors.slots.take(&me, &limits).is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, has_left).await.expect("the server notices that its client has left");
}

#[tokio::test]
async fn later_attempt_of_a_request_waits_for_the_answer_of_the_first_and_an_equal_request_does_not() {
    for (path, mut body) in asked("do it") {
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
        // The round that hangs is begun anew.
        let mut open = server.state.kernel.tasks(Scope::Operator, true, Micros(i64::MAX).into(), 9).await.unwrap();
        let engine = json!({ "path": format!("/conversations/engine:{}", open.remove(0).conversation) });
        assert_eq!(server.post("/api/v1/actors/kill", engine).await.0, 200);
        let again = post(&server, path, &body, &[(ATTEMPT, "1")]).await.text().await.unwrap();
        assert!(again.contains("answer 3"), "{path}: {again}");
        assert_eq!(received().await, 3, "{path}: the attempt is no message of its own");
        // That answer was written, and may not have arrived: a later attempt says so.
        let more = post(&server, path, &body, &[(ATTEMPT, "2")]).await.text().await.unwrap();
        assert!(more.contains("answer 3"), "{path}: {more}");
        assert_eq!(received().await, 3);
        // Another user's equal request is not joined, nor one with a key.
        let keyed = [(ATTEMPT, "1"), ("idempotency-key", "k")];
        let keyed = post(&server, path, &body, &keyed).await.text().await.unwrap();
        assert!(keyed.contains("answer 4"), "{path}: {keyed}");
    }
}

#[tokio::test]
async fn later_attempt_of_a_refused_request_is_stored_and_the_one_after_it_finds_that() {
    for (path, body) in asked("do it") {
        let limits = DoorLimits { streams_max: 1, ..DoorLimits::default() };
        let model = ScriptedModel::new(|_, call| Ok(says(format!("answer {call}"))));
        let server = Server::with(model, limits.clone()).await;
        let received = async || count(&server, |body| matches!(body, EventBody::Received(_))).await;
        let (_, first) = read(post(&server, path, &body, &[(ATTEMPT, "0")]).await).await;
        assert!(first.to_string().contains("answer 0"), "{path}: {first}");
        let slot = server.state.doors.slots.take(&UserId::new("another").unwrap(), &limits).ok();
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
async fn turn_whose_client_numbers_its_attempts_and_does_not_come_back_is_cancelled() {
    let model = ScriptedModel::saying("x").hanging_when(|_, _| true);
    let server = Server::with(model, DoorLimits { attempt_ms_max: 0, ..DoorLimits::default() }).await;
    for (n, (path, mut body)) in asked("do it").into_iter().enumerate() {
        body["stream"] = true.into();
        leave(&server, path, &body).await;
        server.model.abandoned(n as u64 + 1).await;
    }
}

#[tokio::test]
async fn continuation_that_is_attempted_again_belongs_where_its_first_attempt_was_stored() {
    let model = ScriptedModel::new(|_, call| Ok(says(format!("answer {call}")))).hanging_when(|_, call| call == 1);
    let server = Server::start(model).await;
    let [_, (path, body)] = asked("one");
    let first = post(&server, path, &body, &[(ATTEMPT, "0")]).await;
    let home = first.headers()["x-annie-conversation"].to_str().unwrap().to_owned();
    let (_, first) = read(first).await;
    let next = json!({ "model": "annie", "input": "two", "stream": true, "previous_response_id": first["id"] });
    leave(&server, path, &next).await;
    let engine = json!({ "path": format!("/conversations/engine:{home}") });
    assert_eq!(server.post("/api/v1/actors/kill", engine).await.0, 200);
    let again = post(&server, path, &next, &[(ATTEMPT, "1")]).await;
    assert_eq!(again.headers()["x-annie-conversation"], home.as_str());
    assert!(again.text().await.unwrap().contains("answer 2"));
    assert_eq!(count(&server, |body| matches!(body, EventBody::Received(_))).await, 2);
}

#[tokio::test]
async fn completion_that_a_stopping_server_no_longer_waits_for_is_cancelled_or_told_to_go_on() {
    let [(path, body), _] = asked("do it");
    for (headers, told) in
        [(&[][..], "the turn is being cancelled"), (&[(ATTEMPT, "0")][..], "the turn goes on as task_")]
    {
        let server = Server::start(ScriptedModel::saying("x").hanging_when(|_, _| true)).await;
        let stopping = async {
            server.model.called(1).await;
            server.state.doors.close(&server.state.kernel).await;
        };
        let (response, ()) = tokio::join!(post(&server, path, &body, headers), stopping);
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers().contains_key("x-should-retry"), headers.is_empty(), "an attempt finds it again");
        let said = response.text().await.unwrap();
        assert!(said.contains("the server is stopping") && said.contains(told), "{said}");
        if headers.is_empty() {
            let cancelled = async { while count(&server, is_cancelled).await == 0 {} };
            tokio::time::timeout(PATIENCE, cancelled).await.expect("it is cancelled before the server has stopped");
        }
    }
}

#[tokio::test]
async fn completion_that_a_draining_kernel_does_not_take_may_be_repeated() {
    let server = Server::start(echo()).await;
    // The kernel stops taking messages before the doors close.
    server.state.kernel.drain();
    for (path, body) in asked("do it") {
        let response = post(&server, path, &body, &[]).await;
        assert_eq!(repeats(&response), (503, None, true), "{path}");
        let told = response.text().await.unwrap();
        assert!(!told.contains("may be stored"), "{told}");
    }
    assert_eq!(count(&server, |body| matches!(body, EventBody::Received(_))).await, 0);
}
