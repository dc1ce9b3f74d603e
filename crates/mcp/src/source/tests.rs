//! A source over the fake server: connections, calls, failures, changed tools, and secrets.

use std::path::PathBuf;

use annie_core::{
    ids::{AgentId, ConversationId, IntentId, OperationId, TaskId, UserId},
    outcome::Status,
    ports::{OperationGrant, SecretError},
    secret::Secret,
    skill::Effect,
    time::Micros,
};
use annie_process::ProcessLimits;
use annie_testkit::mcp::arguments;

use super::*;
use crate::{McpToolView, ProtocolChoice};

/// A source over the fake server with these tools as `read` skills.
fn source(revision: &str, reads: &[&str], env: &[(&str, &str)]) -> McpSource {
    let program = McpProgram {
        program: PathBuf::from("/bin/sh"),
        args: arguments(revision),
        folder: PathBuf::from("/"),
        env: env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        secret_env: BTreeMap::from([("TOKEN".to_owned(), "fake".to_owned())]),
        limits: ProcessLimits::default(),
        shim: None,
    };
    let config = McpConfig {
        name: "fake".to_owned(),
        transport: McpTransport::Stdio(program),
        protocol: ProtocolChoice::Auto,
        timeout_ms: 20_000,
        message_bytes_max: 64 * 1024,
        refresh_ms: 3_600_000,
        trust_annotations: false,
        effects: reads.iter().map(|tool| ((*tool).to_owned(), Effect::Read)).collect(),
        external: true,
        pins: BTreeMap::new(),
    };
    McpSource::new(config, Some(Arc::new(OneSecret)))
}

/// Has the secret `fake`.
struct OneSecret;

impl Secrets for OneSecret {
    fn secret(&self, _user: Option<UserId>, name: String) -> Fut<'_, Result<Option<Secret>, SecretError>> {
        let secret = (name == "fake").then(|| Secret::new("a-secret-value"));
        Box::pin(std::future::ready(Ok(secret)))
    }

    fn scrubbed(&self, text: &str) -> String {
        text.replace("a-secret-value", "[secret]")
    }
}

fn call(tool: &str, arguments: Value) -> SkillCall {
    let task = TaskId::from_uuid(uuid(1));
    let intent = IntentId::for_call(task, &AgentId::orchestrator(), tool);
    SkillCall {
        intent,
        skill: format!("mcp.fake.{tool}"),
        arguments,
        origin: Vec::new(),
        user: UserId::local(),
        conversation: ConversationId::from_uuid(uuid(2)),
        task,
        agent: AgentId::orchestrator(),
        now: Micros(0),
        timezone: "UTC".to_owned(),
        operation: OperationGrant { id: OperationId::for_intent(intent), key: String::new(), path: String::new() },
    }
}

fn uuid(n: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(n)
}

/// Runs a test while the source follows its server.
async fn while_followed<T>(source: &McpSource, test: impl Future<Output = T>) -> T {
    tokio::select! {
        followed = source.changes() => panic!("{followed:?}"),
        done = test => done,
    }
}

async fn until(source: &McpSource, what: &str, is_so: impl Fn(&McpServerView) -> bool) -> McpServerView {
    let wait = async {
        loop {
            let view = source.view();
            if is_so(&view) {
                return view;
            }
            sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), wait).await;
    waited.unwrap_or_else(|_| panic!("never: {what}: {:?}", source.view()))
}

async fn connected(source: &McpSource) -> McpServerView {
    until(source, "connected", |view| view.state == ServerState::Connected).await
}

fn tool<'a>(view: &'a McpServerView, name: &str) -> &'a McpToolView {
    view.tools.iter().find(|tool| tool.tool == name).expect("the tool is listed")
}

#[tokio::test]
async fn mcp_source_agrees_on_either_revision_and_calls_tools() {
    for (revision, version) in [("modern", "2026-07-28"), ("legacy", "2025-11-25")] {
        let source = source(revision, &[], &[]);
        assert!(source.specs().unwrap().iter().next().is_none());
        let test = async {
            let view = connected(&source).await;
            assert_eq!((view.protocol.as_str(), view.server.as_str(), view.error.as_str()), (version, "fake 1", ""));
            let skills = source.specs().unwrap();
            let echo = skills.get("mcp.fake.echo").expect("a skill");
            assert_eq!((echo.effect, echo.external, skills.version()), (Effect::Once, true, 1));
            let echoed = source.run(call("echo", json!({"text": "hello"}))).await;
            assert_eq!((echoed.status, echoed.data.as_str()), (Status::Success, "hello"));
            let failed = source.run(call("fail", json!({}))).await;
            assert_eq!(failed.error_type.as_deref(), Some("tool_error"));
            let unknown = source.run(call("nothing", json!({}))).await;
            assert_eq!(unknown.error_type.as_deref(), Some("not_found"));
        };
        while_followed(&source, test).await;
        let away = source.run(call("echo", json!({"text": "hello"}))).await;
        assert_eq!(away.error_type.as_deref(), Some("mcp_unavailable"), "nothing was sent: {away:?}");
        assert_eq!(source.view().state, ServerState::Idle);
    }
}

#[tokio::test]
async fn mcp_server_that_starts_slowly_is_asked_again_for_the_newest_revision() {
    let mut source = source("late", &[], &[]);
    source.config.timeout_ms = 500;
    let view = while_followed(&source, connected(&source)).await;
    assert_eq!((view.protocol.as_str(), view.connections), ("2026-07-28", 1), "{view:?}");
}

#[tokio::test]
async fn mcp_program_gets_only_the_variables_of_its_configuration() {
    let source = source("modern", &[], &[]);
    let test = async {
        connected(&source).await;
        source.run(call("env", json!({}))).await
    };
    // The router masks the secret in the outcome.
    assert_eq!(while_followed(&source, test).await.data, "token=a-secret-value home=none");
}

#[tokio::test]
async fn mcp_server_that_repeats_a_secret_shows_it_in_no_description() {
    let source = source("legacy", &[], &[("FAKE_ABOUT", " My key is a-secret-value.")]);
    while_followed(&source, connected(&source)).await;
    let skills = source.specs().unwrap();
    let echo = skills.get("mcp.fake.echo").expect("a skill");
    assert_eq!(echo.description, "Says a text. My key is [secret].");
    assert!(!echo.body.contains("a-secret-value"), "{}", echo.body);
}

#[tokio::test]
async fn mcp_server_that_dies_leaves_a_once_call_in_doubt_and_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let puts = folder.path().join("puts");
    let path = puts.to_string_lossy().into_owned();
    let source = source("legacy", &[], &[("FAKE_PUTS", path.as_str())]);
    let test = async {
        connected(&source).await;
        let died = source.run(call("die", json!({}))).await;
        assert_eq!(died.status, Status::Unknown, "{died:?}");
        let waiting = until(&source, "the error is shown", |view| !view.error.is_empty()).await;
        assert!(waiting.error.contains("ended"), "{}", waiting.error);
        let again = until(&source, "again", |view| view.state == ServerState::Connected && view.connections == 2).await;
        assert_eq!(again.tools.len(), 8);
        assert_eq!(source.run(call("echo", json!({"text": "back"}))).await.data, "back");
    };
    while_followed(&source, test).await;
    assert_eq!(std::fs::read_to_string(puts).unwrap(), "put\n", "the call was not repeated");
}

#[tokio::test]
async fn mcp_server_that_writes_without_end_gets_a_typed_error_and_is_started_again() {
    let source = source("modern", &["flood"], &[]);
    let test = async {
        connected(&source).await;
        let flooded = source.run(call("flood", json!({}))).await;
        assert_eq!((flooded.status, flooded.error_type.as_deref()), (Status::ErrorTransient, Some("mcp_too_large")));
        until(&source, "again", |view| view.state == ServerState::Connected && view.connections == 2).await;
    };
    while_followed(&source, test).await;
}

#[tokio::test]
async fn mcp_server_that_hangs_delays_no_other_call() {
    let source = source("modern", &["hang"], &[]);
    let test = async {
        connected(&source).await;
        let hanging = source.run(call("hang", json!({})));
        let others = async {
            for _ in 0..3 {
                assert_eq!(source.run(call("echo", json!({"text": "on"}))).await.data, "on");
            }
        };
        tokio::select! {
            outcome = hanging => panic!("{outcome:?}"),
            () = others => {}
        }
    };
    while_followed(&source, test).await;
}

#[tokio::test]
async fn mcp_tool_that_changes_is_withheld_and_the_others_stay() {
    let source = source("modern", &[], &[]);
    let test = async {
        connected(&source).await;
        assert_eq!(source.run(call("change", json!({}))).await.data, "Changed.");
        let view = until(&source, "withheld", |view| tool(view, "echo").state == ToolState::Withheld).await;
        assert!(tool(&view, "echo").reason.contains("has changed since the start"));
        let skills = source.specs().unwrap();
        assert!(skills.get("mcp.fake.echo").is_none() && skills.get("mcp.fake.put").is_some() && skills.version() == 2);
        let refused = source.run(call("echo", json!({"text": "x"}))).await;
        assert_eq!((refused.status, refused.error_type.as_deref()), (Status::ErrorBlocked, Some("mcp_withheld")));
    };
    while_followed(&source, test).await;
}

#[tokio::test]
async fn mcp_program_that_cannot_be_started_is_tried_again() {
    let mut source = source("modern", &[], &[]);
    let McpTransport::Stdio(program) = &mut source.config.transport else { panic!("a program") };
    program.program = PathBuf::from("/nonexistent/server");
    let test = until(&source, "tried twice", |view| view.connections == 2);
    let view = while_followed(&source, test).await;
    assert!(view.error.contains("/nonexistent/server"), "{}", view.error);
    let McpTransport::Stdio(program) = &mut source.config.transport else { panic!("a program") };
    program.secret_env = BTreeMap::from([("TOKEN".to_owned(), "absent".to_owned())]);
    let test = until(&source, "the secret", |view| view.error.contains("annie secret set absent"));
    while_followed(&source, test).await;
}
