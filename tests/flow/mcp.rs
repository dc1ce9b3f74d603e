//! Tools of MCP servers as skills, through the real binary and its configuration.

use std::{
    collections::BTreeMap,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use annie_core::{
    ids::{AgentId, ConversationId, IntentId, OperationId, TaskId, UserId},
    outcome::Status,
    ports::{OperationGrant, SkillCall, SkillSource},
    time::Micros,
};
use annie_mcp::{McpConfig, McpProgram, McpSource, McpTransport, ProtocolChoice, ServerState};
use annie_process::ProcessLimits;
use annie_testkit::{
    mcp::arguments,
    model_server::{FakeModelServer, Reply},
};
use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

use super::bad_models::{ask, server_with};
use crate::{server::Server, world::eventually};

/// The fake server as a program, with further keys.
pub(super) fn program(name: &str, revision: &str, more: &str) -> String {
    let command: Vec<String> = std::iter::once("/bin/sh".to_owned()).chain(arguments(revision)).collect();
    format!("[[mcp]]\nname = \"{name}\"\ncommand = {command:?}\n{more}\n")
}

/// A model that calls the tool that the user names, and then says what the tool returned.
async fn caller() -> FakeModelServer {
    FakeModelServer::start(|seen| {
        let last = seen.messages().last().cloned().unwrap_or_default();
        if last["role"] != "user" {
            return Reply::says(format!("It returned: {}", last["content"].as_str().unwrap_or_default()));
        }
        let said = seen.last_user_text();
        let mut words = said.split("call ").skip(1).filter_map(|rest| rest.split_whitespace().next());
        let Some(skill) = words.find(|word| word.starts_with("mcp.")) else { return Reply::says("Fine.") };
        let arguments = if skill.ends_with(".echo") { json!({"text": "over the wire"}) } else { json!({}) };
        Reply::calls([("use_skill", json!({"skill": skill, "arguments": arguments}))])
    })
    .await
}

/// The row of a server of the list, once it satisfies a condition.
async fn listed(server: &Server, name: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    eventually(what, async || {
        let (_, list) = server.get("/api/v1/mcp").await;
        let row = list["servers"].as_array()?.iter().find(|row| row["name"] == name)?.clone();
        is_so(&row).then_some(row)
    })
    .await
}

pub(super) async fn connected(server: &Server, name: &str) -> Value {
    listed(server, name, "the MCP server is connected", |row| row["state"] == "connected").await
}

async fn events(server: &Server, conversation: &str) -> Vec<Value> {
    let (_, log) = server.get(&format!("/api/v1/conversations/{conversation}/events")).await;
    log["events"].as_array().cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mcp_tool_of_a_program_is_called_in_a_turn_whatever_another_server_does() {
    let model = caller().await;
    let broken = "[[mcp]]\nname = \"broken\"\ncommand = [\"/bin/false\"]\n";
    // Without the trust, the call that makes the server die would wait for a person, because the one before has read from it.
    let trust = "[approval]\ntrusted = [\"mcp.fake.*\"]\n";
    let fake = program("fake", "modern", "effects = { echo = \"read\" }");
    let config = format!("mode = \"single_loop\"\n{trust}{broken}{fake}");
    let (folder, server) = server_with(&model, &config).await;
    let row = connected(&server, "fake").await;
    assert_eq!((&row["protocol"], &row["transport"]), (&json!("2026-07-28"), &json!("stdio")), "{row}");
    let sent = ask(&server, "call mcp.fake.echo please").await;
    assert!(sent["answer"].as_str().is_some_and(|text| text.contains("over the wire")), "{sent}");
    let failed = ask(&server, "call mcp.fake.die please").await;
    assert!(failed["answer"].is_string(), "the conversation goes on: {failed}");
    listed(&server, "fake", "it is started again", |row| row["state"] == "connected" && row["connections"] == 2).await;
    let sent = ask(&server, "call mcp.fake.echo again").await;
    assert!(sent["answer"].as_str().is_some_and(|text| text.contains("over the wire")), "{sent}");
    let row = listed(&server, "broken", "it is tried again", |row| row["connections"].as_u64() > Some(1)).await;
    assert!(row["error"].as_str().is_some_and(|why| !why.is_empty()) && row["tools"] == json!([]), "{row}");
    let shown = |arguments: &[&str]| {
        let done = Command::new(env!("CARGO_BIN_EXE_annie"))
            .args(["--data".as_ref(), folder.path().as_os_str()])
            .args(arguments)
            .env_clear()
            .env("HOME", folder.path())
            .output()
            .expect("the command runs");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    assert!(shown(&["skills", "list"]).contains("mcp.fake.echo"));
    assert!(shown(&["skills", "help", "mcp.fake.echo"]).contains("--text"));
    let shown = shown(&["mcp", "list", "--tools"]);
    assert!(shown.contains("mcp.fake.echo") && !shown.contains("withheld"), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mcp_call_that_a_kill_of_the_process_cuts_off_is_in_doubt_and_is_not_repeated() {
    let (model, work) = (caller().await, tempfile::tempdir().expect("a folder"));
    let puts = work.path().join("puts");
    let more = format!("env = {{ FAKE_PUTS = {puts:?} }}");
    let config = format!("mode = \"single_loop\"\n{}", program("fake", "legacy", &more));
    let (folder, mut server) = server_with(&model, &config).await;
    connected(&server, "fake").await;
    let body = json!({"text": "call mcp.fake.hang please", "conversation_key": "k"});
    let (_, sent) = server.post("/api/v1/messages", &body).await.expect("the server answers");
    let conversation = sent["conversation_id"].as_str().expect("a conversation").to_owned();
    eventually("the tool is running", async || std::fs::read_to_string(&puts).ok().filter(|text| text == "put\n"))
        .await;
    server.kill();
    let config = folder.path().join("annie.toml").to_string_lossy().into_owned();
    let server = server.again(folder.path(), &["--config", &config], &[]).await;
    let finished = eventually("the run has an outcome", async || {
        events(&server, &conversation).await.into_iter().find(|event| event["kind"] == "skill_finished")
    });
    let finished = finished.await;
    assert!(finished.to_string().contains("outcome_unknown"), "{finished}");
    connected(&server, "fake").await;
    assert_eq!(std::fs::read_to_string(&puts).expect("the file"), "put\n", "the call was not repeated");
}

/// A model that reads a resource of the server, then a prompt, then what is not there, and then repeats all of it.
async fn reader() -> FakeModelServer {
    FakeModelServer::start(|seen| {
        let read = |skill: &str, arguments: Value| {
            Reply::calls([("use_skill", json!({"skill": format!("mcp.fake.{skill}"), "arguments": arguments}))])
        };
        let messages = seen.messages();
        let results: Vec<&Value> = messages.iter().filter(|message| message["role"] == "tool").collect();
        match results.len() {
            0 => read("list_resources", json!({})),
            1 => read("read_resource", json!({"uri": "note://gate"})),
            2 => read("get_prompt", json!({"name": "greet", "arguments": "{\"who\": \"Bob\"}"})),
            3 => read("read_resource", json!({"uri": "note://none"})),
            _ => {
                let texts = results.iter().filter_map(|message| message["content"].as_str());
                Reply::says(texts.collect::<Vec<_>>().join("\n"))
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mcp_resources_and_prompts_of_a_server_are_read_in_a_turn() {
    for revision in ["modern", "legacy"] {
        let model = reader().await;
        let fake = program("fake", revision, "env = { FAKE_READS = \"yes\" }");
        let (_folder, server) = server_with(&model, &format!("mode = \"single_loop\"\n{fake}")).await;
        let row = connected(&server, "fake").await;
        let effects: Vec<&Value> =
            row["tools"].as_array().expect("tools").iter().skip(8).map(|tool| &tool["effect"]).collect();
        assert_eq!(effects, ["read"; 4], "{row}");
        let sent = ask(&server, "What is in the notes?").await;
        let answer = sent["answer"].as_str().unwrap_or_default();
        for part in ["- note://gate (Gate): About the gate.", "note://{name}", "The gate squeaks.", "Greet Bob."] {
            assert!(answer.contains(part), "{revision}, {part}: {sent}");
        }
        assert!(answer.contains("no such resource"), "{revision}: {sent}");
    }
    // A server that has neither gets no skills for them.
    let model = caller().await;
    let (_folder, server) = server_with(&model, &program("fake", "modern", "")).await;
    let row = connected(&server, "fake").await;
    assert_eq!(row["tools"].as_array().map(Vec::len), Some(8), "{row}");
}

/// A service that speaks one revision.
#[derive(Clone)]
struct Service {
    is_modern: bool,
    /// The session that is valid, for the older revision.
    session: Arc<AtomicUsize>,
}

impl Service {
    /// Serves on a loopback port until the set is dropped.
    async fn start(is_modern: bool) -> (Self, String, JoinSet<()>) {
        let service = Self { is_modern, session: Arc::new(AtomicUsize::new(1)) };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("bound"));
        let (router, mut serving) =
            (Router::new().route("/mcp", post(answer)).with_state(service.clone()), JoinSet::new());
        serving.spawn(async move {
            axum::serve(listener, router).await.expect("it serves");
        });
        (service, url, serving)
    }
}

async fn answer(State(service): State<Service>, headers: HeaderMap, Json(request): Json<Value>) -> Response {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let (method, session) = (request["method"].as_str().unwrap_or_default(), service.session.load(Relaxed).to_string());
    if request["id"].is_null() {
        return StatusCode::ACCEPTED.into_response();
    }
    let is_begin = matches!(method, "initialize" | "server/discover");
    if service.is_modern && (header("mcp-method") != method || header("mcp-protocol-version") != "2026-07-28") {
        return StatusCode::BAD_REQUEST.into_response();
    }
    if !service.is_modern && method == "server/discover" {
        return (StatusCode::BAD_REQUEST, "no session").into_response();
    }
    if !service.is_modern && !is_begin && header("mcp-session-id") != session {
        return StatusCode::NOT_FOUND.into_response();
    }
    let result = match method {
        "server/discover" => json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}),
        "initialize" => json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "service"}}),
        "tools/list" => {
            let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
            json!({"tools": [{"name": "echo", "description": "Says a text.", "inputSchema": schema}]})
        }
        _ => json!({"content": [{"type": "text", "text": request["params"]["arguments"]["text"]}]}),
    };
    let message = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
    if method == "tools/call" {
        let events = format!("event: message\ndata: {message}\n\n");
        return ([("content-type", "text/event-stream")], events).into_response();
    }
    ([("mcp-session-id", session)], Json(message)).into_response()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mcp_tool_of_a_service_is_called_by_either_revision_and_after_the_session_was_lost() {
    for is_modern in [true, false] {
        let (service, url, _serving) = Service::start(is_modern).await;
        let model = caller().await;
        let config = format!(
            "mode = \"single_loop\"\n[[mcp]]\nname = \"web\"\nurl = \"{url}\"\nallow_private = true\n\
             effects = {{ echo = \"read\" }}\n"
        );
        let (_folder, server) = server_with(&model, &config).await;
        let row = connected(&server, "web").await;
        assert_eq!(row["protocol"] == "2026-07-28", is_modern, "{row}");
        let sent = ask(&server, "call mcp.web.echo please").await;
        assert!(sent["answer"].as_str().is_some_and(|text| text.contains("over the wire")), "{sent}");
        let log = events(&server, sent["conversation_id"].as_str().expect("a conversation")).await;
        let finished = log.iter().find(|event| event["kind"] == "skill_finished").expect("the run").to_string();
        assert!(finished.contains("127.0.0.1"), "the outcome records the requests: {finished}");
        if is_modern {
            continue;
        }
        service.session.store(2, Relaxed);
        let lost = ask(&server, "call mcp.web.echo now").await;
        assert!(lost["answer"].is_string(), "{lost}");
        listed(&server, "web", "a new session", |row| row["state"] == "connected" && row["connections"] == 2).await;
        let sent = ask(&server, "call mcp.web.echo once more").await;
        assert!(sent["answer"].as_str().is_some_and(|text| text.contains("over the wire")), "{sent}");
    }
}

/// A client of `annie mcp serve` in front of the server of this folder.
fn client_of(folder: &Path, protocol: ProtocolChoice) -> McpSource {
    let folder = folder.to_string_lossy().into_owned();
    let program = McpProgram {
        program: env!("CARGO_BIN_EXE_annie").into(),
        args: ["--data", &folder, "mcp", "serve"].map(str::to_owned).into(),
        env: vec![("HOME".to_owned(), folder.clone())],
        folder: folder.into(),
        secret_env: BTreeMap::new(),
        limits: ProcessLimits::default(),
        shim: None,
    };
    let config = McpConfig {
        name: "annie".to_owned(),
        transport: McpTransport::Stdio(program),
        protocol,
        timeout_ms: 20_000,
        message_bytes_max: 1_000_000,
        refresh_ms: 3_600_000,
        trust_annotations: false,
        effects: BTreeMap::new(),
        external: true,
        pins: BTreeMap::new(),
    };
    McpSource::new(config, None)
}

/// A call of the tool `annie` with this message.
fn message(text: &str) -> SkillCall {
    call_of("mcp.annie.annie", json!({"message": text}))
}

fn call_of(skill: &str, arguments: Value) -> SkillCall {
    let task = TaskId::from_uuid(uuid::Uuid::from_u128(1));
    let intent = IntentId::for_call(task, &AgentId::orchestrator(), &format!("{skill} {arguments}"));
    SkillCall {
        intent,
        skill: skill.to_owned(),
        arguments,
        origin: Vec::new(),
        user: UserId::local(),
        conversation: ConversationId::from_uuid(uuid::Uuid::from_u128(2)),
        task,
        agent: AgentId::orchestrator(),
        now: Micros(0),
        timezone: "UTC".to_owned(),
        operation: OperationGrant { id: OperationId::for_intent(intent), key: String::new(), path: String::new() },
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mcp_client_gets_the_answer_of_annie_by_either_revision() {
    let model = caller().await;
    let (folder, _server) = server_with(&model, "mode = \"single_loop\"\n").await;
    for protocol in [ProtocolChoice::Modern, ProtocolChoice::Legacy] {
        let client = client_of(folder.path(), protocol);
        let calls = async {
            let is_connected = async || (client.view().state == ServerState::Connected).then_some(());
            eventually("the client is connected", is_connected).await;
            let title = format!("Buy milk by {protocol:?}");
            let made = client.run(call_of("mcp.annie.tasks__create", json!({"title": title}))).await;
            assert!(made.status == Status::Success && made.data.contains(&title), "{made:?}");
            (client.run(message("hello")).await, client.run(message(" ")).await)
        };
        let (answer, refused) = tokio::select! {
            ended = client.changes() => panic!("{ended:?}"),
            outcomes = calls => outcomes,
        };
        assert_eq!((answer.status, answer.data.as_str()), (Status::Success, "Fine."), "{answer:?}");
        assert_eq!(refused.error_type.as_deref(), Some("invalid_arguments"), "{refused:?}");
    }
}

#[test]
fn mcp_servers_of_another_program_are_printed_as_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("claude.json");
    std::fs::write(&file, r#"{"mcpServers": {"My Shell": {"command": "sh", "args": ["-c", "x"]}}}"#).expect("written");
    let import = |file: &Path| {
        let annie = Command::new(env!("CARGO_BIN_EXE_annie"))
            .args(["--data".as_ref(), folder.path().as_os_str(), "mcp".as_ref(), "import".as_ref(), file.as_os_str()])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", folder.path())
            .output();
        annie.expect("the command runs")
    };
    let printed = String::from_utf8(import(&file).stdout).expect("text");
    let is_whole = printed.contains("\"/usr/bin/sh\"") || printed.contains("\"/bin/sh\"");
    assert!(printed.contains("name = \"my_shell\"") && is_whole, "{printed}");
    let missing = import(Path::new("/nonexistent.json"));
    assert_eq!(missing.status.code(), Some(3), "{missing:?}");
}
