//! Message options: steering, delays, names, voice and others.

use annie_testkit::scripted_model::ScriptedModel;
use reqwest::Method;
use serde_json::{Value, json};
use tonic_types::StatusExt;

use super::world::{Server, echo, read};
use crate::{
    auth::KeyScope,
    grpc::v1::{self, chat_client::ChatClient},
};

fn endless() -> ScriptedModel {
    ScriptedModel::saying("x").hanging_when(|_, _| true)
}

#[tokio::test]
async fn acknowledgement_has_class_and_job_command_flag() {
    let server = Server::start(echo()).await;
    let (_, sent) = server.post("/api/v1/messages", json!({ "text": "hello" })).await;
    assert_eq!((&sent["priority"], &sent["is_job_command"]), (&json!("high"), &json!(false)), "{sent}");
    let (_, slow) = server.post("/api/v1/messages", json!({ "text": "hello", "priority": "background" })).await;
    assert_eq!(slow["priority"], "background");
    let calls = server.model.call_count();
    let command = server.say(json!({ "text": "What are you working on?" })).await;
    assert_eq!((&command["is_job_command"], &command["status"]), (&json!(true), &json!("completed")), "{command}");
    assert!(server.model.call_count() <= calls + 2, "a job command needs no model");
    let sent = server.say(json!({ "text": "What are you working on?", "verbatim": true })).await;
    assert_eq!(
        (&sent["is_job_command"], &sent["answer"]),
        (&json!(false), &json!("You said: What are you working on?"))
    );
}

#[tokio::test]
async fn invalid_message_options_are_refused_with_field() {
    let server = Server::start(echo()).await;
    let unknown_id = annie_core::ids::TaskId::from_uuid(uuid::Uuid::nil()).to_string();
    let many: Vec<&str> = std::iter::repeat_n(unknown_id.as_str(), 65).collect();
    let cases = [
        (json!({ "delay_ms": 1, "not_before": "2030-01-01T00:00:00Z" }), 400, "delay_ms"),
        (json!({ "not_before": "tomorrow" }), 400, "not_before"),
        (json!({ "delay_ms": 40_000_000_000_u64 }), 400, "delay_ms"),
        (json!({ "emotion": { "name": "happy", "intensity": 1.5 } }), 400, "emotion.intensity"),
        (json!({ "emotion": { "name": "purple", "intensity": 0.5 } }), 400, "emotion.name"),
        (json!({ "after": ["x"] }), 400, "after[0]"),
        (json!({ "after": [unknown_id] }), 404, "after[0]"),
        (json!({ "after": many }), 400, "after"),
        (json!({ "steer": true, "delay_ms": 5 }), 400, "steer"),
        (json!({ "source": "cron" }), 400, "source"),
        (json!({ "reply_to": { "channel": "radio", "to": "x" } }), 400, "reply_to"),
        (json!({ "priority": "realtime" }), 400, "priority"),
    ];
    for name in ["", "a\u{7}b"] {
        let (answered, problem) = server.post("/api/v1/messages", json!({ "text": "x", "name": name })).await;
        assert_eq!((answered, &problem["code"]), (400, &json!("invalid_request")), "{name:?} {problem}");
    }
    for (mut body, status, field) in cases {
        body["text"] = "x".into();
        let (answered, problem) = server.post("/api/v1/messages", body.clone()).await;
        assert_eq!((answered, &problem["field"]), (status, &json!(field)), "{body} {problem}");
    }
    let fine = json!({ "text": "x", "private": true, "emotion": { "name": "happy", "intensity": 0.9 },
        "not_before": "2020-01-01T00:00:00+01:00" });
    assert_eq!(server.post("/api/v1/messages", fine).await.0, 202);
}

#[tokio::test]
async fn delayed_message_waits_for_its_time_and_for_other_tasks() {
    let server = Server::start(echo()).await;
    let (_, later) = server.post("/api/v1/messages", json!({ "text": "later", "delay_ms": 600_000 })).await;
    let after = json!({ "text": "then", "after": [later["task_id"]] });
    let (status, then) = server.post("/api/v1/messages", after).await;
    assert_eq!(status, 202, "{then}");
    let (_, list) = server.get("/api/v1/jobs").await;
    assert_eq!(list["jobs"].as_array().unwrap().len(), 2, "{list}");
    assert_eq!(server.model.call_count(), 0);
    let cancel = format!("/api/v1/tasks/{}/cancel", later["task_id"].as_str().unwrap());
    assert_eq!(server.post(&cancel, json!({})).await.1, json!({ "cancelled": true }));
    server.model.called(1).await;
}

#[tokio::test]
async fn equal_named_messages_are_run_once() {
    let server = Server::start(echo()).await;
    // While the voice gate is closed, new messages wait.
    assert_eq!(server.post("/api/v1/gate/hold", json!({ "holder": "ann", "ttl_ms": 60_000 })).await.0, 200);
    let work = json!({ "text": "sum up the day", "name": "summary" });
    let (_, first) = server.post("/api/v1/messages", work.clone()).await;
    assert!(first.get("same_as").is_none(), "{first}");
    let (_, second) = server.post("/api/v1/messages", work).await;
    assert_eq!(second["same_as"], first["task_id"], "{second}");
    server.post("/api/v1/gate/release", json!({ "holder": "ann" })).await;
    server.model.called(1).await;
}

#[tokio::test]
async fn second_steering_message_within_interval_is_refused() {
    let server = Server::start(endless()).await;
    let (_, first) = server.post("/api/v1/messages", json!({ "text": "x", "conversation_key": "k" })).await;
    server.model.called(1).await;
    let steer = |text: &str| json!({ "text": text, "conversation_id": first["conversation_id"], "steer": true });
    let (status, taken) = server.post("/api/v1/messages", steer("the red one")).await;
    assert_eq!((status, taken.get("position")), (202, None), "{taken}");
    let again = server.request(Method::POST, "/api/v1/messages").json(&steer("the blue one")).send().await.unwrap();
    let retry = again.headers()["retry-after"].to_str().unwrap().to_owned();
    let (status, soon) = read(again).await;
    assert_eq!((status, &soon["code"], soon["retry_after_ms"].is_u64()), (429, &json!("too_soon"), true), "{soon}");
    assert!(["1", "2"].contains(&retry.as_str()), "{retry}");
    let mut chat = ChatClient::connect(format!("http://{}", server.at)).await.unwrap();
    let id = first["conversation_id"].as_str().unwrap().to_owned();
    let conversation = Some(v1::submit_request::Conversation::ConversationId(id));
    let options = v1::SubmitRequest { text: "no".into(), steer: true, conversation, ..Default::default() };
    let refused = chat.submit(options).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    assert!(refused.get_error_details().retry_info().is_some());
}

#[tokio::test]
async fn steering_message_without_running_turn_counts_against_queue_depth() {
    let server = Server::start(echo()).await;
    // While the voice gate is closed, new messages wait.
    assert_eq!(server.post("/api/v1/gate/hold", json!({ "holder": "ann", "ttl_ms": 60_000 })).await.0, 200);
    let mut refused = None;
    for n in 1..200 {
        let steer = json!({ "text": "x", "conversation_key": format!("k{n}"), "steer": true });
        let (status, answer) = server.post("/api/v1/messages", steer).await;
        if status != 202 {
            refused = Some((status, answer));
            break;
        }
    }
    let (status, answer) = refused.expect("the queue depth of a user is limited");
    assert_eq!((status, &answer["code"]), (429, &json!("queue_full")), "{answer}");
}

#[tokio::test]
async fn voice_message_requires_scope_and_is_realtime() {
    let server = Server::start(echo()).await;
    let spoken = json!({ "text": "hello", "source": "voice" });
    let say = async |scopes: &[KeyScope], body: &Value| {
        let key = server.key("ann", scopes).await;
        let request = server.request(Method::POST, "/api/v1/messages").bearer_auth(key);
        read(request.json(body).send().await.unwrap()).await
    };
    let (status, refused) = say(&[KeyScope::Chat], &spoken).await;
    assert_eq!((status, &refused["code"]), (403, &json!("forbidden")), "{refused}");
    let both = [KeyScope::Chat, KeyScope::Voice];
    let (status, taken) = say(&both, &spoken).await;
    assert_eq!((status, &taken["priority"], &taken["position"]), (202, &json!("realtime"), &json!(1)), "{taken}");
    let mut asked = spoken.clone();
    asked["priority"] = "realtime".into();
    assert_eq!(say(&both, &asked).await.0, 202);
    asked["source"] = Value::Null;
    assert_eq!(say(&both, &asked).await.0, 400, "only voice is realtime");
    let key = server.key("ann", &both).await;
    let mut chat = ChatClient::connect(format!("http://{}", server.at)).await.unwrap();
    let options = v1::SubmitRequest { text: "hello".into(), source: "voice".into(), ..Default::default() };
    let mut request = tonic::Request::new(options);
    request.metadata_mut().insert("x-api-key", key.parse().unwrap());
    assert_eq!(chat.submit(request).await.unwrap().into_inner().priority(), v1::Priority::Realtime);
}

#[tokio::test]
async fn job_command_text_is_recognised_only_with_scope_jobs_control() {
    let server = Server::start(echo()).await;
    let say = async |scopes: &[KeyScope]| {
        let key = server.key("ann", scopes).await;
        let body = json!({ "text": "what are you working on?" });
        let request = server.request(Method::POST, "/api/v1/messages").bearer_auth(key).json(&body);
        read(request.send().await.unwrap()).await
    };
    assert_eq!(say(&[KeyScope::Chat, KeyScope::JobsControl]).await.1["is_job_command"], true);
    assert_eq!(say(&[KeyScope::Chat]).await.1["is_job_command"], false);
    assert_eq!(say(&[KeyScope::Chat, KeyScope::JobsRead]).await.1["is_job_command"], false);
}

#[tokio::test]
async fn message_options_reach_the_log_equally_over_http_and_grpc() {
    let server = Server::start(echo()).await;
    let (_, later) = server.post("/api/v1/messages", json!({ "text": "later", "delay_ms": 600_000 })).await;
    let first = later["task_id"].as_str().unwrap().to_owned();
    let not_before = "2026-12-01T00:00:00Z";
    let by_http = json!({
        "text": "cancel that", "conversation_key": "http", "priority": "low", "mode": "direct", "client_id": "h",
        "name": "daily", "private": true, "emotion": { "name": "frustrated", "intensity": 0.9 },
        "not_before": not_before, "after": [first], "verbatim": true,
    });
    let (status, taken) = server.post("/api/v1/messages", by_http).await;
    assert_eq!(status, 202, "{taken}");
    let mut chat = ChatClient::connect(format!("http://{}", server.at)).await.unwrap();
    let by_grpc = v1::SubmitRequest {
        text: "cancel that".into(),
        conversation: Some(v1::submit_request::Conversation::ConversationKey("grpc".into())),
        mode: v1::Mode::Direct.into(),
        priority: v1::Priority::Low.into(),
        client_id: "g".into(),
        name: "weekly".into(),
        private: true,
        emotion: Some(v1::Feeling { name: "frustrated".into(), intensity: 0.9 }),
        not_before: not_before.into(),
        after: vec![first.clone()],
        verbatim: true,
        ..Default::default()
    };
    let accepted = chat.submit(by_grpc).await.unwrap().into_inner();
    let received = async |conversation: &str| {
        let (_, log) = server.get(&format!("/api/v1/conversations/{conversation}/events")).await;
        let mut event = log["events"][0].clone();
        let body = event["body"].take();
        if body.is_null() { event } else { body }
    };
    let http = received(taken["conversation_id"].as_str().unwrap()).await;
    let grpc = received(&accepted.conversation_id).await;
    for key in ["text", "priority", "mode", "private", "mood", "not_before", "after", "order"] {
        assert_eq!(http.get(key), grpc.get(key), "{key}: {http} {grpc}");
    }
    assert_eq!((&http["private"], &http["after"], &http["mode"]), (&json!(true), &json!([first]), &json!("direct")));
    assert_eq!(
        (&http["mood"]["brevity"], &http["priority"]),
        (&json!("short"), &json!("low")),
        "the requested class takes precedence"
    );
    assert!(http.get("order").is_none() && !http["not_before"].is_null(), "{http}");
    let named = |id: &str| v1::SubmitRequest {
        text: "x".into(),
        name: "weekly".into(),
        client_id: id.into(),
        ..Default::default()
    };
    let (one, two) = (chat.submit(named("1")).await.unwrap(), chat.submit(named("2")).await.unwrap());
    assert_eq!(
        one.get_ref().conversation_id,
        two.get_ref().conversation_id,
        "named work has a conversation of its own"
    );
    let delayed = v1::SubmitRequest { text: "x".into(), delay_ms: 600_000, ..Default::default() };
    let delayed = chat.submit(delayed).await.unwrap().into_inner();
    assert!(!received(&delayed.conversation_id).await["not_before"].is_null());
}
