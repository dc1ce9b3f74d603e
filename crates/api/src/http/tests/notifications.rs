//! Notifications over HTTP and gRPC: stored, streamed, resumed.

use annie_testkit::skills::FakeSkills;
use futures_util::StreamExt;
use reqwest::{Method, Response};
use serde_json::{Value, json};

use super::world::{PATIENCE, Server, echo, read, sse};
use crate::{
    auth::KeyScope,
    grpc::v1::{self, notifications_client::NotificationsClient},
};

const STREAM: &str = "/api/v1/notifications/stream";

async fn server() -> Server {
    Server::hasty(echo(), FakeSkills::obliging()).await
}

async fn work(server: &Server, text: &str) {
    let (status, sent) = server.post("/api/v1/messages", json!({ "text": text, "priority": "normal" })).await;
    assert_eq!(status, 202, "{sent}");
}

/// Reads until this number of notifications has arrived: (id, data).
async fn read_notifications(response: Response, count: usize) -> Vec<(u64, Value)> {
    let mut bytes = response.bytes_stream();
    let mut text = String::new();
    let reading = async {
        loop {
            text.push_str(std::str::from_utf8(&bytes.next().await.unwrap().unwrap()).unwrap());
            let whole = text.rfind("\n\n").map_or("", |at| &text[..at + 2]);
            let events: Vec<_> = sse(whole).into_iter().filter(|(_, kind, _)| kind == "notification").collect();
            if events.len() >= count {
                return events;
            }
        }
    };
    let events = tokio::time::timeout(PATIENCE, reading).await.unwrap();
    events.into_iter().map(|(id, _, data)| (id.unwrap(), serde_json::from_str(&data).unwrap())).collect()
}

#[tokio::test]
async fn notification_is_sent_when_background_work_ends_and_stream_resumes() {
    let server = server().await;
    let live = server.request(Method::GET, STREAM).send().await.unwrap();
    work(&server, "read the book").await;
    let first = read_notifications(live, 1).await.remove(0);
    assert_eq!(
        (first.1["id"].as_u64(), first.1["task_ids"].as_array().unwrap().len()),
        (Some(first.0), 1),
        "{first:?}"
    );
    assert!(first.1["text"].as_str().unwrap().contains("read the book"), "{first:?}");
    work(&server, "read the other").await;
    let resumed = server.request(Method::GET, &format!("{STREAM}?after=0")).header("last-event-id", first.0);
    let second = read_notifications(resumed.send().await.unwrap(), 1).await.remove(0);
    assert!(second.0 > first.0 && second.1["text"].as_str().unwrap().contains("the other"), "{second:?}");
    let (_, list) = server.get("/api/v1/notifications?limit=1").await;
    assert_eq!((&list["notifications"][0], &list["next"]), (&first.1, &json!(first.0.to_string())), "{list}");
    let (_, rest) = server.get(&format!("/api/v1/notifications?next={}&limit=500", first.0)).await;
    assert_eq!((rest["notifications"].as_array().unwrap().len(), rest.get("next")), (1, None), "{rest}");
    let odd = server.request(Method::GET, STREAM).header("last-event-id", "x");
    assert_eq!(odd.send().await.unwrap().status(), 400);
    let bob = server.key("bob", &[KeyScope::Chat]).await;
    let others = server.request(Method::GET, "/api/v1/notifications").bearer_auth(bob).send().await.unwrap();
    assert_eq!(read(others).await.1, json!({ "notifications": [] }));
}

#[tokio::test]
async fn notifications_are_the_same_over_grpc_and_end_with_the_server() {
    let mut server = server().await;
    let mut client = NotificationsClient::connect(format!("http://{}", server.at)).await.unwrap();
    let mut live = client.follow(v1::FollowNotificationsRequest { after: 0 }).await.unwrap().into_inner();
    work(&server, "read the book").await;
    let first = tokio::time::timeout(PATIENCE, live.message()).await.unwrap().unwrap().unwrap();
    assert!(first.text.contains("read the book") && first.task_ids.len() == 1, "{first:?}");
    let list = client.list(v1::ListNotificationsRequest::default()).await.unwrap().into_inner().notifications;
    assert_eq!(list, [first]);
    server.ask_to_stop();
    let end = tokio::time::timeout(PATIENCE, live.message()).await.unwrap().unwrap_err();
    assert_eq!(end.code(), tonic::Code::Unavailable);
}
