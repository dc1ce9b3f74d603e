//! The real process is killed with SIGKILL at every event that its client sees, and its next life finishes the turn: nothing
//! lost, nothing doubled, and the client's stream goes on without a gap or a repeat.

use annie::grpc::v1::{FollowEventsRequest, events_client::EventsClient, stream_item::Item};
use serde_json::json;

use crate::{
    server::{Server, Sse},
    world::PATIENCE,
};

const REQUEST: &str =
    "Create a task to review PR 42 due tomorrow, remember that Bob prefers email, and then tell me what is due";

/// Sends the message until it is acknowledged, as a client with an idempotency key does.
async fn send(server: &Server) -> Option<(String, u64)> {
    let body = json!({"text": REQUEST, "conversation_key": "k", "client_id": "the-message"});
    let (status, said) = server.post("/api/v1/messages", &body).await.ok()?;
    assert_eq!(status, 202, "{said}");
    Some((said["conversation_id"].as_str()?.to_owned(), said["seq"].as_u64()?))
}

async fn undisturbed() -> usize {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &[], &[]).await;
    let (conversation, _) = send(&server).await.expect("taken");
    server.stream(&conversation, 0, |seen| seen.last().is_some_and(Sse::is_final)).await.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sigkill_at_every_event_loses_nothing_doubles_nothing_and_the_stream_goes_on() {
    let events = undisturbed().await;
    assert!(events > 15, "the turn has only {events} events");
    for last in 1..events {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = Server::start(folder.path(), &[], &[]).await;
        let (conversation, _) = send(&first).await.expect("taken");
        let mut seen = first.stream(&conversation, 0, |seen| seen.len() >= last).await;
        first.kill();
        let second = Server::start(folder.path(), &[], &[]).await;
        let after = seen.last().map_or(0, |s| s.id);
        seen.extend(second.stream(&conversation, after, |seen| seen.last().is_some_and(Sse::is_final)).await);
        let ids: Vec<u64> = seen.iter().map(|s| s.id).collect();
        assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>(), "killed at {last}: a gap or a repeat");
        let finals: Vec<&Sse> = seen.iter().filter(|s| s.is_final()).collect();
        assert_eq!(finals.len(), 1, "killed at {last}: {finals:?}");
        let answer = finals[0].data["text"].as_str().unwrap_or_default().to_owned();
        assert!(finals[0].event == "answered" && answer.contains("PR 42"), "killed at {last}: {answer}");
        // The same message again is the same task, and the world holds exactly one of each thing.
        let again = send(&second).await.expect("taken");
        assert_eq!(again.0, conversation);
        let body = json!({"text": "what tasks are open?", "conversation_key": "other"});
        let (_, open) = second.post("/api/v1/messages?wait=15", &body).await.expect("answered");
        let text = open["answer"].as_str().unwrap_or_default();
        assert_eq!(text.matches("PR 42").count(), 1, "killed at {last}: {text}");
    }
}

/// Follows a conversation over gRPC behind a place, until a final event, so many events, or the end of the connection: places
/// and kinds.
async fn follow(server: &Server, conversation: &str, after: u64, enough: usize) -> Vec<(u64, String)> {
    let mut seen: Vec<(u64, String)> = Vec::new();
    let reading = async {
        let mut client = EventsClient::connect(server.url.clone()).await.ok()?;
        let wanted = FollowEventsRequest { conversation_id: conversation.to_owned(), after_seq: after };
        let mut stream = client.follow(wanted).await.ok()?.into_inner();
        while let Ok(Some(item)) = stream.message().await {
            if let Some(Item::Event(event)) = item.item {
                let is_final = ["answered", "failed", "cancelled"].contains(&event.kind.as_str());
                seen.push((event.seq, event.kind));
                if is_final || seen.len() >= enough {
                    break;
                }
            }
        }
        Some(())
    };
    // A connection that breaks ends it as well: what was seen counts.
    let _ = tokio::time::timeout(PATIENCE, reading).await.expect("it ends one way or the other");
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grpc_stream_that_a_sigkill_cut_goes_on_after_the_restart_without_a_gap_or_a_repeat() {
    let events = undisturbed().await;
    for last in (1..events).step_by(2) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = Server::start(folder.path(), &[], &[]).await;
        let (conversation, _) = send(&first).await.expect("taken");
        let mut seen = follow(&first, &conversation, 0, last).await;
        first.kill();
        let second = Server::start(folder.path(), &[], &[]).await;
        let after = seen.last().map_or(0, |(seq, _)| *seq);
        seen.extend(follow(&second, &conversation, after, usize::MAX).await);
        let places: Vec<u64> = seen.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(places, (1..=places.len() as u64).collect::<Vec<_>>(), "killed at {last}: a gap or a repeat");
        assert_eq!(seen.last().map(|(_, kind)| kind.as_str()), Some("answered"), "killed at {last}: {seen:?}");
    }
}
