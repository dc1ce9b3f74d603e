//! Streams that a SIGKILL of the server interrupts while a client reads them: over HTTP, over gRPC, and by the command
//! line. Each stream is resumed after the restart, without missing or repeated events.

use std::{
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
};

use annie::grpc::v1::{
    FaultSpec, FollowEventsRequest, InjectRequest, PointsRequest, chaos_client::ChaosClient,
    events_client::EventsClient, stream_item::Item,
};
use futures_util::StreamExt;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    sync::Notify,
    task::JoinSet,
};

use crate::{
    server::{Server, Sse},
    world::{PATIENCE, eventually},
};

const REQUEST: &str =
    "Create a task to review PR 42 due tomorrow, remember that Bob prefers email, and then tell me what is due";
const CHAOS: [(&str, &str); 1] = [("ANNIE__CHAOS__ENABLED", "true")];

/// The events that a client has received so far, readable while more arrive.
#[derive(Clone, Default)]
struct ReceivedEvents(Arc<Mutex<Vec<(u64, String)>>>);

impl ReceivedEvents {
    fn add(&self, seq: u64, kind: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((seq, kind.to_owned()));
    }

    fn all(&self) -> Vec<(u64, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn last(&self) -> u64 {
        self.all().last().map_or(0, |(seq, _)| *seq)
    }

    fn has_end(&self) -> bool {
        self.all().iter().any(|(_, kind)| is_end(kind))
    }

    async fn reaches(&self, count: usize) {
        eventually("so many events", async || (self.all().len() >= count).then_some(())).await;
    }

    /// Checks that the events go from the first one to the single final event, each once.
    fn check(&self, what: &str) {
        let all = self.all();
        let numbers: Vec<u64> = all.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "{what}: a gap or a repeat in {all:?}");
        let ends: Vec<&str> = all.iter().map(|(_, kind)| kind.as_str()).filter(|kind| is_end(kind)).collect();
        assert_eq!(ends, ["answered"], "{what}");
    }
}

fn is_end(kind: &str) -> bool {
    ["answered", "failed", "cancelled"].contains(&kind)
}

async fn inject(server: &Server, spec: FaultSpec) {
    let mut chaos = ChaosClient::connect(server.url.clone()).await.expect("the server listens");
    chaos.inject(InjectRequest { spec: Some(spec) }).await.expect("the fault is known");
}

/// A server with a slow store, so that its events do not arrive all at once.
async fn start(folder: &Path) -> Server {
    let server = Server::start(folder, &[], &CHAOS).await;
    let [target, place, kind] = ["store", "commit", "slow"].map(str::to_owned);
    inject(&server, FaultSpec { target, place, kind, wait_ms: 15, ..FaultSpec::default() }).await;
    server
}

/// The number of rounds of the turn. The last round gives the answer.
async fn rounds() -> u64 {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path()).await;
    let (conversation, got) = (say(&server).await, ReceivedEvents::default());
    read_http(server.url.clone(), conversation, got.clone()).await;
    got.check("undisturbed");
    let mut chaos = ChaosClient::connect(server.url.clone()).await.expect("the server listens");
    let points = chaos.points(PointsRequest {}).await.expect("the points").into_inner().points;
    points.iter().filter(|point| point.target == "model").map(|point| point.passed).sum()
}

/// A slow server whose last round also hangs: whenever it is killed, it is in the middle of the turn.
async fn start_endless(folder: &Path, rounds: u64) -> Server {
    let server = start(folder).await;
    let [target, kind] = ["model", "hang"].map(str::to_owned);
    inject(&server, FaultSpec { target, kind, skip: rounds - 1, ..FaultSpec::default() }).await;
    server
}

/// Sends the message and returns its conversation.
async fn say(server: &Server) -> String {
    let (status, sent) = server.post("/api/v1/messages", &json!({"text": REQUEST})).await.expect("an answer");
    assert_eq!(status, 202, "{sent}");
    sent["conversation_id"].as_str().expect("an id").to_owned()
}

/// Reads until the final event or the end of the connection.
async fn read_http(url: String, conversation: String, got: ReceivedEvents) {
    let url = format!("{url}/api/v1/conversations/{conversation}/stream");
    let asked =
        annie_llm::http_client().build().unwrap().get(url).header("last-event-id", got.last().to_string()).send();
    let answer = asked.await.expect("a stream");
    assert_eq!(answer.status(), 200);
    let (mut bytes, mut text) = (answer.bytes_stream(), Vec::new());
    while let Some(Ok(chunk)) = bytes.next().await {
        text.extend_from_slice(&chunk);
        while let Some(end) = text.windows(2).position(|two| two == b"\n\n") {
            let block: Vec<u8> = text.drain(..end + 2).collect();
            if let Some(event) = Sse::parse(&String::from_utf8_lossy(&block)) {
                got.add(event.id, &event.event);
            }
        }
        if got.has_end() {
            return;
        }
    }
}

/// The same over gRPC.
async fn read_grpc(url: String, conversation: String, got: ReceivedEvents) {
    let mut client = EventsClient::connect(url).await.expect("the server listens");
    let wanted = FollowEventsRequest { conversation_id: conversation, after_seq: got.last() };
    let mut stream = client.follow(wanted).await.expect("a stream").into_inner();
    while let Ok(Some(item)) = stream.message().await {
        if let Some(Item::Event(event)) = item.item {
            got.add(event.seq, &event.kind);
        }
        if got.has_end() {
            return;
        }
    }
}

/// Kills the server while a stream is open, after different numbers of events, and resumes the stream.
async fn cut_and_resume<R: Future<Output = ()>>(read: impl Fn(String, String, ReceivedEvents) -> R) {
    let rounds = rounds().await;
    for count in [1, 3, 6, 9, 12, 15] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = start_endless(folder.path(), rounds).await;
        let (conversation, got) = (say(&first).await, ReceivedEvents::default());
        let reading = read(first.url.clone(), conversation.clone(), got.clone());
        let killing = async {
            got.reaches(count).await;
            first.kill();
        };
        let (read_on, ()) = tokio::join!(tokio::time::timeout(PATIENCE, reading), killing);
        read_on.expect("the connection ends");
        assert!(!got.has_end(), "the turn had ended at {count}: {:?}", got.all());
        let second = first.again(folder.path(), &[], &[]).await;
        let rest = read(second.url.clone(), conversation, got.clone());
        tokio::time::timeout(PATIENCE, rest).await.expect("the stream ends");
        got.check(&format!("killed after {count}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_stream_open_at_a_server_kill_continues_without_gap_or_repeat() {
    cut_and_resume(read_http).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_stream_open_at_a_server_kill_continues_without_gap_or_repeat() {
    cut_and_resume(read_grpc).await;
}

/// The command line, which finds the server by itself.
fn annie(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_annie"));
    command
        .arg("--data")
        .arg(folder)
        .args(args)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ask_command_shows_a_turn_to_its_single_end_although_the_server_is_killed() {
    let rounds = rounds().await;
    for count in [1, 5, 10, 15] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = start_endless(folder.path(), rounds).await;
        let mut asking = annie(folder.path(), &["--json", "ask", REQUEST]).spawn().expect("the command runs");
        let mut lines = BufReader::new(asking.stdout.take().expect("its stdout")).lines();
        let (got, mut results) = (ReceivedEvents::default(), Vec::new());
        let reading = async {
            while let Ok(Some(line)) = lines.next_line().await {
                let line: Value = serde_json::from_str(&line).expect("JSON");
                match (line["seq"].as_u64(), line["kind"].as_str()) {
                    (Some(seq), Some(kind)) => got.add(seq, kind),
                    (None, Some("result")) => results.push(line),
                    _ => {}
                }
            }
        };
        let killing = async {
            got.reaches(count).await;
            first.kill();
            assert!(!got.has_end(), "the turn had ended at {count}: {:?}", got.all());
            first.again(folder.path(), &[], &[]).await
        };
        let ending = tokio::time::timeout(PATIENCE, asking.wait_with_output());
        let ((), _second, ended) = tokio::join!(reading, killing, ending);
        let ended = ended.expect("the command ends").expect("the command ran");
        assert!(ended.status.success(), "killed after {count}: {}", String::from_utf8_lossy(&ended.stderr));
        got.check(&format!("killed after {count}"));
        assert!(results.len() == 1 && results[0]["status"] == "completed", "{results:?}");
    }
}

/// A chat with two lines. `meanwhile` runs while the first line is worked on. Returns the stdout of the chat.
async fn chat(folder: &Path, meanwhile: impl AsyncFnOnce()) -> String {
    let mut chat = annie(folder, &["chat"]).stdin(Stdio::piped()).spawn().expect("the command runs");
    let mut input = chat.stdin.take().expect("its stdin");
    let mut errors = BufReader::new(chat.stderr.take().expect("its stderr")).lines();
    input.write_all(format!("{REQUEST}\nwhat tasks are open?\n").as_bytes()).await.expect("the lines are written");
    drop(input);
    // The chat shows the skills that the turn runs.
    let working = async {
        while !errors.next_line().await.expect("readable").expect("stderr is open").contains("tasks.create") {}
    };
    tokio::time::timeout(PATIENCE, working).await.expect("the turn is under way");
    meanwhile().await;
    // Reads stderr to its end, so that the chat never waits for a full pipe.
    let draining = async { while let Ok(Some(_)) = errors.next_line().await {} };
    let (ended, ()) = tokio::join!(tokio::time::timeout(PATIENCE, chat.wait_with_output()), draining);
    let ended = ended.expect("the chat ends").expect("the command ran");
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{text}");
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chat_command_prints_the_same_text_although_the_server_is_killed_in_an_answer() {
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let undisturbed = start(folders[0].path()).await;
    let wanted = chat(folders[0].path(), async || ()).await;
    assert!(wanted.contains("PR 42"), "{wanted}");
    drop(undisturbed);
    let mut first = start_endless(folders[1].path(), rounds().await).await;
    let mut second = None;
    let output = chat(folders[1].path(), async || {
        first.kill();
        second = Some(first.again(folders[1].path(), &[], &[]).await);
    });
    assert_eq!(output.await, wanted);
    drop(second);
}

/// A server that never answers a message or a request for notifications, and knows no other path.
async fn silent(listener: TcpListener, received: &Notify) {
    async fn serve(mut stream: TcpStream) -> Option<TcpStream> {
        let mut seen = Vec::new();
        // A client may close its connection at any time.
        while stream.read_buf(&mut seen).await.is_ok_and(|count| count > 0) {
            if seen.starts_with(b"POST /api/v1/messages ") {
                return Some(stream);
            }
            if seen.starts_with(b"GET /api/v1/notifications") {
                std::future::pending::<()>().await;
            }
            if seen.ends_with(b"\r\n\r\n") {
                stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await.ok()?;
                seen.clear();
            }
        }
        None
    }
    let (mut connections, mut kept) = (JoinSet::new(), Vec::new());
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted.expect("a connection");
                connections.spawn(serve(stream));
            }
            Some(ended) = connections.join_next() => if let Some(stream) = ended.expect("no panic") {
                // The sender of a message waits without an answer.
                kept.push(stream);
                received.notify_one();
            },
        }
    }
}

/// Sends SIGINT, as Ctrl-C does.
fn press(child: &Child) {
    let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).expect("the command runs");
    kill_process(pid, Signal::INT).expect("the command runs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_waits_for_an_unavailable_server_and_a_second_one_exits_naming_the_task() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = start_endless(folder.path(), rounds().await).await;
    let mut asking = annie(folder.path(), &["ask", REQUEST]).spawn().expect("the command runs");
    let mut errors = BufReader::new(asking.stderr.take().expect("its stderr")).lines();
    let ending = async {
        while !errors.next_line().await.expect("readable").expect("stderr is open").contains("tasks.create") {}
        server.kill();
        press(&asking);
        while !errors.next_line().await.expect("readable").expect("stderr is open").contains("stopping") {}
        press(&asking);
        let mut last = String::new();
        while let Some(line) = errors.next_line().await.expect("readable") {
            last += &line;
        }
        (last, asking.wait().await.expect("the command ran").code())
    };
    let (last, code) = tokio::time::timeout(PATIENCE, ending).await.expect("the command ends");
    assert!(code == Some(130) && last.contains("annie tasks show task_"), "{code:?}: {last}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_before_an_acknowledgement_exits_at_once() {
    for command in [&["ask", "hello"][..], &["chat"]] {
        let folder = tempfile::tempdir().expect("a folder");
        let (listener, received) = (TcpListener::bind("127.0.0.1:0").await.expect("a port"), Notify::new());
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let mut child = annie(folder.path(), &[&["--quiet", "--url", &url], command].concat());
        let mut child = child.stdin(Stdio::piped()).spawn().expect("the command runs");
        let mut input = child.stdin.take().expect("its stdin");
        input.write_all(b"hello\n").await.expect("the line is written");
        let ending = async {
            received.notified().await;
            press(&child);
            // Far less than the command would wait for an answer.
            tokio::time::timeout(std::time::Duration::from_secs(15), child.wait_with_output()).await
        };
        let ended = tokio::select! {
            ended = ending => ended.expect("at once").expect("the command ran"),
            () = silent(listener, &received) => unreachable!("the server never ends"),
        };
        let sent = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(130), "{command:?}: {sent}");
        assert!(sent.contains("it is not known whether the message was received"), "{command:?}: {sent}");
        drop(input);
    }
}
