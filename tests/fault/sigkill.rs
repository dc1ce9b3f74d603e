//! The real process is killed with SIGKILL at every event that its client receives, and the next run finishes the turn.
//! Nothing is lost or duplicated, and the client's stream continues without a gap or a repeat.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use annie::grpc::v1::{FollowEventsRequest, events_client::EventsClient, stream_item::Item};
use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
};

use crate::{
    server::{Server, Sse},
    world::{PATIENCE, eventually},
};

const REQUEST: &str =
    "Create a task to review PR 42 due tomorrow, remember that Bob prefers email, and then tell me what is due";

/// Sends the message until it is acknowledged, as a client with an idempotency key does.
async fn send(server: &Server) -> Option<(String, u64)> {
    let body = json!({"text": REQUEST, "conversation_key": "k", "client_id": "the-message"});
    let (status, sent) = server.post("/api/v1/messages", &body).await.ok()?;
    assert_eq!(status, 202, "{sent}");
    Some((sent["conversation_id"].as_str()?.to_owned(), sent["seq"].as_u64()?))
}

async fn undisturbed() -> usize {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &[], &[]).await;
    let (conversation, _) = send(&server).await.expect("accepted");
    server.stream(&conversation, 0, |seen| seen.last().is_some_and(Sse::is_final)).await.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_sigkilled_at_every_event_loses_and_duplicates_nothing_and_its_stream_continues() {
    let events = undisturbed().await;
    assert!(events > 15, "the turn has only {events} events");
    for last in 1..events {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = Server::start(folder.path(), &[], &[]).await;
        let (conversation, _) = send(&first).await.expect("accepted");
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
        // The same message again is the same task, and each effect exists exactly once.
        let again = send(&second).await.expect("accepted");
        assert_eq!(again.0, conversation);
        let body = json!({"text": "what tasks are open?", "conversation_key": "other"});
        let (_, open) = second.post("/api/v1/messages?wait=15", &body).await.expect("answered");
        let text = open["answer"].as_str().unwrap_or_default();
        assert_eq!(text.matches("PR 42").count(), 1, "killed at {last}: {text}");
    }
}

/// Follows a conversation over gRPC after a sequence number, until a final event, until `enough` events, or until the
/// connection ends. Returns sequence numbers and kinds.
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
    // A broken connection ends the reading as well. The events received so far count.
    let _ = tokio::time::timeout(PATIENCE, reading).await.expect("the reading ends");
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_stream_cut_by_a_sigkill_continues_after_the_restart_without_gap_or_repeat() {
    let events = undisturbed().await;
    for last in (1..events).step_by(2) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = Server::start(folder.path(), &[], &[]).await;
        let (conversation, _) = send(&first).await.expect("accepted");
        let mut seen = follow(&first, &conversation, 0, last).await;
        first.kill();
        let second = Server::start(folder.path(), &[], &[]).await;
        let after = seen.last().map_or(0, |(seq, _)| *seq);
        seen.extend(follow(&second, &conversation, after, usize::MAX).await);
        let numbers: Vec<u64> = seen.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "killed at {last}: a gap or a repeat");
        assert_eq!(seen.last().map(|(_, kind)| kind.as_str()), Some("answered"), "killed at {last}: {seen:?}");
    }
}

/// Sends a request as OpenAI's libraries do. After a lost connection they send the request again by themselves, without
/// an id and with the number of the attempt in a header; this client waits until the server is back. Returns the answer
/// and the number of failed attempts.
async fn as_their_library(
    (url, http): (String, reqwest::Client),
    (path, body): (&str, &Value),
    mut is_back: watch::Receiver<bool>,
) -> (Value, u32) {
    for attempt in 0..3 {
        let request = http.post(format!("{url}{path}")).header("x-stainless-retry-count", attempt.to_string());
        if let Ok(answer) = request.json(body).send().await
            && let Ok(answer) = answer.json().await
        {
            return (answer, attempt);
        }
        is_back.wait_for(|is_back| *is_back).await.expect("the server comes back");
    }
    panic!("the libraries give up after three attempts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_without_a_key_repeated_by_a_library_after_a_sigkill_has_its_effect_once() {
    for (path, body) in [
        (
            "/v1/chat/completions",
            json!({"model": "annie", "messages": [{"role": "user", "content": "Add the task milk"}]}),
        ),
        ("/v1/responses", json!({"model": "annie", "input": "Add the task milk"})),
    ] {
        let is_killed = Arc::new(AtomicBool::new(false));
        let answers = is_killed.clone();
        let model = FakeModelServer::start(move |seen| {
            if !seen.last_user_text().contains("<result") {
                return Reply::says("```cmd\ntasks.create --title milk\n```");
            }
            // The effect is stored, and no answer comes before the server is killed.
            if answers.load(SeqCst) { Reply::says("It is added.") } else { Reply::says("x").stall_after_events(0) }
        })
        .await;
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("annie.toml");
        let backend = format!(
            "[[backend]]\nname = \"here\"\nbase_url = {:?}\nmodel = \"fake\"\ninterface = \"cmd\"\nmode = \"single_loop\"\n\
             [turn]\nready_answers = false\n",
            model.base_url()
        );
        std::fs::write(&config, backend).expect("written");
        let arguments = ["--config", config.to_str().expect("a path")];
        let mut first = Server::start(folder.path(), &arguments, &[]).await;
        let (back, is_back) = watch::channel(false);
        let client = as_their_library((first.url.clone(), first.http.clone()), (path, &body), is_back);
        let server = async {
            tokio::time::timeout(PATIENCE, model.arrived(2)).await.expect("the model receives the effect");
            first.kill();
            is_killed.store(true, SeqCst);
            let second = first.again(folder.path(), &arguments, &[]).await;
            back.send_replace(true);
            second
        };
        let ((answer, attempts), second) = tokio::join!(client, server);
        assert!(attempts > 0 && answer.to_string().contains("It is added."), "{path}: {answer}");
        let (_, tasks) = second.get("/api/v1/tasks").await;
        assert_eq!(tasks["tasks"].as_array().map(Vec::len), Some(1), "{path}: one message: {tasks}");
        let creates = model.requests().iter().filter(|seen| !seen.last_user_text().contains("<result")).count();
        assert_eq!(creates, 1, "{path}: the model was asked once to add it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_whose_root_actor_is_killed_ends_without_waiting_for_open_requests() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(folder.path(), &[], &[("ANNIE__API__DRAIN_MS_MAX", "600000")]).await;
    let (conversation, _) = send(&server).await.expect("accepted");
    let stream = format!("{}/api/v1/conversations/{conversation}/stream", server.url);
    let waiting = server.http.get(stream).send().await.expect("a stream");
    let root = json!({"path": "/", "force": true, "reason": "a test"});
    // The listener may die before it has sent the answer.
    if let Ok((status, killed)) = server.post("/api/v1/actors/kill", &root).await {
        assert_eq!(status, 200, "{killed}");
    }
    assert!(!server.ended().await.success(), "the end of the kernel was reported as success");
    drop(waiting);
}

/// Sends the head of a request, and returns its connection when the server waits for the body.
async fn request_without_body(server: &Server, path: &str, body_bytes: usize) -> TcpStream {
    let host = server.url.strip_prefix("http://").expect("the address of the server");
    let mut connection = TcpStream::connect(host).await.expect("the server listens");
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {body_bytes}\r\n\
         expect: 100-continue\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).await.expect("the head is sent");
    let wanted = b"HTTP/1.1 100 Continue\r\n\r\n";
    let mut answer = [0; 25];
    connection.read_exact(&mut answer).await.expect("the server asks for the body");
    assert_eq!(&answer, wanted, "{}", String::from_utf8_lossy(&answer));
    connection
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_whose_root_actor_is_killed_while_it_drains_ends_without_waiting_for_open_requests() {
    let folder = tempfile::tempdir().expect("a folder");
    let patient = [("ANNIE__API__DRAIN_MS_MAX", "600000"), ("ANNIE__API__BODY_MS_MAX", "600000")];
    let mut server = Server::start(folder.path(), &[], &patient).await;
    let kill_root = json!({"path": "/", "force": true, "reason": "a test"}).to_string();
    let waiting = request_without_body(&server, "/api/v1/messages", 100).await;
    let mut killing = request_without_body(&server, "/api/v1/actors/kill", kill_root.len()).await;
    server.signal(rustix::process::Signal::TERM);
    // The server removes the file with its address right before it drains.
    let address = folder.path().join("server.json");
    eventually("the server drains", async || (!address.exists()).then_some(())).await;
    killing.write_all(kill_root.as_bytes()).await.expect("the body is sent");
    assert!(!server.ended().await.success(), "the end of the kernel was reported as success");
    drop((waiting, killing));
}
