//! Schedules over HTTP and gRPC: creation, lists, changes, bad input, and the borders between users.

use serde_json::json;

use super::world::{Server, echo};
use crate::{
    auth::KeyScope,
    grpc::v1::{self, schedules_client::SchedulesClient},
};

#[tokio::test]
async fn schedule_is_created_listed_paused_resumed_and_removed() {
    let server = Server::start(echo()).await;
    let (status, made) = server.post("/api/v1/schedules", json!({"text": "digest", "when": "every day at 7:30"})).await;
    assert_eq!((status, &made["number"], &made["cron"]), (200, &json!(1), &json!("30 7 * * *")), "{made}");
    let (_, list) = server.get("/api/v1/schedules").await;
    assert_eq!((list["schedules"].as_array().map(Vec::len), &list["schedules"][0]), (Some(1), &made), "{list}");
    let (_, next) = server.get("/api/v1/schedules/1/next").await;
    assert_eq!((next["times"].as_array().map(Vec::len), &next["times"][0]), (Some(10), &made["next_at"]), "{next}");

    let (_, paused) = server.post("/api/v1/schedules/1/pause", json!({})).await;
    assert_eq!((&paused["paused"], paused.get("next_at")), (&json!("by its user"), None), "{paused}");
    let (_, next) = server.get("/api/v1/schedules/1/next").await;
    assert_eq!(next, json!({"times": []}));
    let (_, again) = server.post("/api/v1/schedules/1/pause", json!({})).await;
    assert_eq!(again, paused, "a schedule that is paused stays as it is");
    let (_, resumed) = server.post("/api/v1/schedules/1/resume", json!({})).await;
    assert_eq!(resumed, made);

    let (status, _) = server.post("/api/v1/schedules/1/remove", json!({})).await;
    assert_eq!(status, 204);
    let (status, problem) = server.post("/api/v1/schedules/1/remove", json!({})).await;
    assert_eq!((status, &problem["detail"]), (404, &json!("there is no such schedule")));
}

#[tokio::test]
async fn schedule_that_is_run_now_submits_its_message_to_its_conversation() {
    let server = Server::start(echo()).await;
    let (_, made) = server.post("/api/v1/schedules", json!({"text": "digest", "when": "@daily"})).await;
    let (status, sent) = server.post("/api/v1/schedules/1/run", json!({})).await;
    assert_eq!((status, &sent["conversation_id"]), (200, &made["conversation_id"]), "{sent}");
    let path = format!("/api/v1/tasks/{}", sent["task_id"].as_str().unwrap());
    let (_, task) = server.get(&path).await;
    assert_eq!((&task["title"], &task["source"]), (&json!("digest"), &json!("schedule")), "{task}");
    let (_, other) = server.post("/api/v1/schedules/1/run", json!({})).await;
    assert_ne!(other["task_id"], sent["task_id"], "each request runs it");
}

#[tokio::test]
async fn schedule_with_bad_input_is_refused_with_the_reason() {
    let server = Server::start(echo()).await;
    for (body, part) in [
        (json!({"text": "x", "when": "* * * * * *"}), "1 s apart"),
        (json!({"text": "x", "when": "0 0 30 2 *"}), "never comes"),
        (json!({"text": "x", "when": "every blue moon"}), "`blue` is not understood"),
        (json!({"text": "x", "when": "@daily", "timezone": "Mars/Olympus"}), "no time zone"),
        (json!({"text": " ", "when": "@daily"}), "1 to 8000 bytes"),
        (json!({"text": "x", "when": "@daily", "reply_to": {"channel": "none", "to": "ann"}}), "none"),
        (json!({"text": "x", "when": "@daily", "often": true}), "often"),
        (json!({"text": "x"}), "when"),
    ] {
        let (status, problem) = server.post("/api/v1/schedules", body.clone()).await;
        let text = problem.to_string();
        assert!((400..500).contains(&status) && text.contains(part), "{body} -> {status} {problem}");
    }
    let missing = json!({"text": "x", "when": "@daily", "conversation_id": "conv_0198c0ffee0070008000000000000001"});
    let (status, problem) = server.post("/api/v1/schedules", missing).await;
    assert_eq!(status, 404, "{problem}");
    let (status, problem) = server.get("/api/v1/schedules/one/next").await;
    assert_eq!((status, &problem["detail"]), (404, &json!("there is no such schedule")));
    let (_, list) = server.get("/api/v1/schedules").await;
    assert_eq!(list, json!({"schedules": []}));
}

#[tokio::test]
async fn schedule_of_another_user_is_not_found_and_grpc_has_the_same_schedules() {
    let server = Server::start(echo()).await;
    let scopes = [KeyScope::Chat, KeyScope::JobsRead, KeyScope::JobsControl];
    let (ann, bob) = (server.key("ann", &scopes).await, server.key("bob", &scopes).await);
    let mut client = SchedulesClient::connect(format!("http://{}", server.at)).await.unwrap();
    let with = |key: &str| -> tonic::metadata::MetadataValue<tonic::metadata::Ascii> {
        format!("Bearer {key}").parse().unwrap()
    };
    let new = v1::CreateScheduleRequest { text: "digest".into(), when: "every hour".into(), ..Default::default() };
    let mut request = tonic::Request::new(new);
    request.metadata_mut().insert("authorization", with(&ann));
    let made = client.create(request).await.unwrap().into_inner();
    assert_eq!((made.number, made.cron.as_str()), (1, "0 * * * *"));

    let mut request = tonic::Request::new(v1::ListSchedulesRequest {});
    request.metadata_mut().insert("authorization", with(&ann));
    assert_eq!(client.list(request).await.unwrap().into_inner().schedules, [made]);
    let mut request = tonic::Request::new(v1::ListSchedulesRequest {});
    request.metadata_mut().insert("authorization", with(&bob));
    assert!(client.list(request).await.unwrap().into_inner().schedules.is_empty());
    for method in ["next", "pause", "resume", "remove", "run"] {
        let mut request = tonic::Request::new(v1::ScheduleRequest { number: 1 });
        request.metadata_mut().insert("authorization", with(&bob));
        let status = match method {
            "next" => client.next(request).await.map(drop),
            "pause" => client.pause(request).await.map(drop),
            "resume" => client.resume(request).await.map(drop),
            "remove" => client.remove(request).await.map(drop),
            _ => client.run_now(request).await.map(drop),
        };
        assert_eq!(status.unwrap_err().code(), tonic::Code::NotFound, "{method}");
    }
}
