//! Streams that a SIGKILL of the server cuts while somebody reads them: over HTTP, over gRPC, and by the command line. Each is
//! taken up after the restart, and nothing is missing and nothing is there twice.

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

/// What a client has got so far; it is read while more comes.
#[derive(Clone, Default)]
struct Got(Arc<Mutex<Vec<(u64, String)>>>);

impl Got {
    fn add(&self, place: u64, kind: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((place, kind.to_owned()));
    }

    fn all(&self) -> Vec<(u64, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn last(&self) -> u64 {
        self.all().last().map_or(0, |(place, _)| *place)
    }

    fn has_end(&self) -> bool {
        self.all().iter().any(|(_, kind)| is_end(kind))
    }

    async fn reaches(&self, count: usize) {
        eventually("so many events", async || (self.all().len() >= count).then_some(())).await;
    }

    /// From the first event to the one end, each once.
    fn check(&self, what: &str) {
        let all = self.all();
        let places: Vec<u64> = all.iter().map(|(place, _)| *place).collect();
        assert_eq!(places, (1..=places.len() as u64).collect::<Vec<_>>(), "{what}: a gap or a repeat in {all:?}");
        let ends: Vec<&str> = all.iter().map(|(_, kind)| kind.as_str()).filter(|kind| is_end(kind)).collect();
        assert_eq!(ends, ["answered"], "{what}");
    }
}

fn is_end(kind: &str) -> bool {
    ["answered", "failed", "cancelled"].contains(&kind)
}

async fn inject(server: &Server, spec: FaultSpec) {
    let mut chaos = ChaosClient::connect(server.url.clone()).await.expect("it listens");
    chaos.inject(InjectRequest { spec: Some(spec) }).await.expect("it is on the list");
}

/// A server that takes its time, so that what it tells does not come all at once.
async fn start(folder: &Path) -> Server {
    let server = Server::start(folder, &[], &CHAOS).await;
    let [target, place, deed] = ["store", "commit", "slow"].map(str::to_owned);
    inject(&server, FaultSpec { target, place, deed, wait_ms: 15, ..FaultSpec::default() }).await;
    server
}

/// How many rounds the turn has; the last one gives its answer.
async fn rounds() -> u64 {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path()).await;
    let (conversation, got) = (say(&server).await, Got::default());
    read_http(server.url.clone(), conversation, got.clone()).await;
    got.check("undisturbed");
    let mut chaos = ChaosClient::connect(server.url.clone()).await.expect("it listens");
    let points = chaos.points(PointsRequest {}).await.expect("the places").into_inner().points;
    points.iter().filter(|point| point.target == "model").map(|point| point.passed).sum()
}

/// One that also never comes to the last round: wherever it is killed, it is in the middle of the turn.
async fn start_endless(folder: &Path, rounds: u64) -> Server {
    let server = start(folder).await;
    let [target, deed] = ["model", "hang"].map(str::to_owned);
    inject(&server, FaultSpec { target, deed, skip: rounds - 1, ..FaultSpec::default() }).await;
    server
}

/// Says it; its conversation.
async fn say(server: &Server) -> String {
    let (status, said) = server.post("/api/v1/messages", &json!({"text": REQUEST})).await.expect("an answer");
    assert_eq!(status, 202, "{said}");
    said["conversation_id"].as_str().expect("an id").to_owned()
}

/// Reads until the end of the turn or of the connection.
async fn read_http(url: String, conversation: String, got: Got) {
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
async fn read_grpc(url: String, conversation: String, got: Got) {
    let mut client = EventsClient::connect(url).await.expect("it listens");
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

/// The stream is open when the server is killed, after so many events and wherever it is then.
async fn cut_and_resume<R: Future<Output = ()>>(read: impl Fn(String, String, Got) -> R) {
    let rounds = rounds().await;
    for count in [1, 3, 6, 9, 12, 15] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = start_endless(folder.path(), rounds).await;
        let (conversation, got) = (say(&first).await, Got::default());
        let reading = read(first.url.clone(), conversation.clone(), got.clone());
        let killing = async {
            got.reaches(count).await;
            first.kill();
        };
        let (read_on, ()) = tokio::join!(tokio::time::timeout(PATIENCE, reading), killing);
        read_on.expect("the connection ends");
        assert!(!got.has_end(), "it was not cut at {count}: {:?}", got.all());
        let second = first.again(folder.path(), &[], &[]).await;
        let rest = read(second.url.clone(), conversation, got.clone());
        tokio::time::timeout(PATIENCE, rest).await.expect("it ends");
        got.check(&format!("killed after {count}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_over_http_that_is_open_when_the_server_is_killed_goes_on_without_a_gap_or_a_repeat() {
    cut_and_resume(read_http).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_over_grpc_that_is_open_when_the_server_is_killed_goes_on_without_a_gap_or_a_repeat() {
    cut_and_resume(read_grpc).await;
}

/// The command line, which is left alone to find its way.
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
async fn ask_shows_a_turn_whose_server_is_killed_in_the_middle_to_its_one_end() {
    let rounds = rounds().await;
    for count in [1, 5, 10, 15] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = start_endless(folder.path(), rounds).await;
        let mut asking = annie(folder.path(), &["--json", "ask", REQUEST]).spawn().expect("it runs");
        let mut lines = BufReader::new(asking.stdout.take().expect("its stdout")).lines();
        let (got, mut results) = (Got::default(), Vec::new());
        let reading = async {
            while let Ok(Some(line)) = lines.next_line().await {
                let line: Value = serde_json::from_str(&line).expect("JSON");
                match (line["seq"].as_u64(), line["kind"].as_str()) {
                    (Some(place), Some(kind)) => got.add(place, kind),
                    (None, Some("result")) => results.push(line),
                    _ => {}
                }
            }
        };
        let killing = async {
            got.reaches(count).await;
            first.kill();
            assert!(!got.has_end(), "it was not cut at {count}: {:?}", got.all());
            first.again(folder.path(), &[], &[]).await
        };
        let ending = tokio::time::timeout(PATIENCE, asking.wait_with_output());
        let ((), _second, ended) = tokio::join!(reading, killing, ending);
        let ended = ended.expect("it ends").expect("it ran");
        assert!(ended.status.success(), "killed after {count}: {}", String::from_utf8_lossy(&ended.stderr));
        got.check(&format!("killed after {count}"));
        assert!(results.len() == 1 && results[0]["status"] == "completed", "{results:?}");
    }
}

/// A chat of two lines whose first is being worked on when `meanwhile` happens: what stands on its stdout.
async fn chat(folder: &Path, meanwhile: impl AsyncFnOnce()) -> String {
    let mut chat = annie(folder, &["chat"]).stdin(Stdio::piped()).spawn().expect("it runs");
    let mut input = chat.stdin.take().expect("its stdin");
    let mut told = BufReader::new(chat.stderr.take().expect("its stderr")).lines();
    input.write_all(format!("{REQUEST}\nwhat tasks are open?\n").as_bytes()).await.expect("it is said");
    drop(input);
    // It shows what the turn does.
    let working =
        async { while !told.next_line().await.expect("readable").expect("it goes on").contains("tasks.create") {} };
    tokio::time::timeout(PATIENCE, working).await.expect("it works on it");
    meanwhile().await;
    // Read to its end: nobody shall wait for a full pipe.
    let draining = async { while let Ok(Some(_)) = told.next_line().await {} };
    let (ended, ()) = tokio::join!(tokio::time::timeout(PATIENCE, chat.wait_with_output()), draining);
    let ended = ended.expect("it ends").expect("it ran");
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{text}");
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_whose_server_is_killed_in_an_answer_says_what_it_says_otherwise() {
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let undisturbed = start(folders[0].path()).await;
    let wanted = chat(folders[0].path(), async || ()).await;
    assert!(wanted.contains("PR 42"), "{wanted}");
    drop(undisturbed);
    let mut first = start_endless(folders[1].path(), rounds().await).await;
    let mut second = None;
    let told = chat(folders[1].path(), async || {
        first.kill();
        second = Some(first.again(folders[1].path(), &[], &[]).await);
    });
    assert_eq!(told.await, wanted);
    drop(second);
}

/// A server that is silent when something is said, and when it is asked what it told before; it knows nothing else.
async fn silent(listener: TcpListener, heard: &Notify) {
    async fn serve(mut stream: TcpStream) -> Option<TcpStream> {
        let mut seen = Vec::new();
        // Whoever ends may end the connection as it likes.
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
                // Whoever says something waits.
                kept.push(stream);
                heard.notify_one();
            },
        }
    }
}

/// Ctrl-C.
fn press(child: &Child) {
    let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).expect("it runs");
    kill_process(pid, Signal::INT).expect("it runs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_while_the_server_is_away_waits_for_it_and_the_second_one_leaves_and_names_the_task() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = start_endless(folder.path(), rounds().await).await;
    let mut asking = annie(folder.path(), &["ask", REQUEST]).spawn().expect("it runs");
    let mut told = BufReader::new(asking.stderr.take().expect("its stderr")).lines();
    let ending = async {
        while !told.next_line().await.expect("readable").expect("it goes on").contains("tasks.create") {}
        server.kill();
        press(&asking);
        while !told.next_line().await.expect("readable").expect("it goes on").contains("stopping") {}
        press(&asking);
        let mut last = String::new();
        while let Some(line) = told.next_line().await.expect("readable") {
            last += &line;
        }
        (last, asking.wait().await.expect("it ran").code())
    };
    let (last, code) = tokio::time::timeout(PATIENCE, ending).await.expect("it ends");
    assert!(code == Some(130) && last.contains("annie tasks show task_"), "{code:?}: {last}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_is_heard_at_once_while_nobody_acknowledges_a_message() {
    for command in [&["ask", "hello"][..], &["chat"]] {
        let folder = tempfile::tempdir().expect("a folder");
        let (listener, heard) = (TcpListener::bind("127.0.0.1:0").await.expect("a port"), Notify::new());
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let mut child = annie(folder.path(), &[&["--quiet", "--url", &url], command].concat());
        let mut child = child.stdin(Stdio::piped()).spawn().expect("it runs");
        let mut input = child.stdin.take().expect("its stdin");
        input.write_all(b"hello\n").await.expect("it is said");
        let ending = async {
            heard.notified().await;
            press(&child);
            // Far less than it would wait for an answer.
            tokio::time::timeout(std::time::Duration::from_secs(15), child.wait_with_output()).await
        };
        let ended = tokio::select! {
            ended = ending => ended.expect("at once").expect("it ran"),
            () = silent(listener, &heard) => unreachable!("it serves for ever"),
        };
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(130), "{command:?}: {said}");
        assert!(said.contains("whether the message was heard is not known"), "{command:?}: {said}");
        drop(input);
    }
}
