//! A program as a backend (command backend), started through the real binary: its limits hold, and it does not outlive
//! its parent.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use annie_core::{
    message::{Message, ModelError, ModelErrorKind, ModelReply, ModelRequest},
    ports::Model,
};
use annie_llm::{CommandConfig, CommandModel, ProcessLimits};
use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::{Value, json};

use crate::{
    server::{Server, Sse},
    world::eventually,
};

const ANNIE: &str = env!("CARGO_BIN_EXE_annie");

/// Runs a shell whose script is in a file in this folder and that gets the prompt as `$1`.
async fn run(folder: &Path, script: &str, text: &str, limits: ProcessLimits) -> Result<ModelReply, ModelError> {
    let file = folder.join("script");
    std::fs::write(&file, script).expect("written");
    let config = CommandConfig {
        program: "/bin/sh".into(),
        args: vec![file.to_string_lossy().into_owned(), "{prompt}".to_owned()],
        folder: folder.to_owned(),
        limits,
        shim: Some(ANNIE.into()),
        ..CommandConfig::default()
    };
    ask(config, text).await
}

async fn ask(config: CommandConfig, text: &str) -> Result<ModelReply, ModelError> {
    let model = CommandModel::new(config, |_| None).expect("a good config");
    let request = ModelRequest {
        model: None,
        system: Vec::new(),
        messages: vec![Message::user(text)],
        stable_messages: 0,
        tools: Vec::new(),
        skill_names: Vec::new(),
        output_tokens_max: 100,
        session_id: "conv_1".to_owned(),
        priority: 2,
        options: annie_core::caller::CallOptions::default(),
    };
    model.call(&request, Arc::new(|_| ())).await
}

#[tokio::test]
async fn command_backend_gets_its_limits_and_its_unchanged_prompt() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = ProcessLimits {
        address_bytes_max: Some(4 << 30),
        cpu_s_max: Some(77),
        files_max: Some(55),
        ..ProcessLimits::default()
    };
    let text = "--json $(id)\n\"two  words\"";
    let script = r#"ulimit -n; ulimit -t; ulimit -c; ulimit -v; printf '%s' "$1""#;
    let reply = run(folder.path(), script, text, limits).await.expect("a reply");
    assert_eq!(reply.text, format!("55\n77\n0\n4194304\n {text}"));
}

#[tokio::test]
async fn command_backend_beyond_its_cpu_limit_ends_with_a_timeout_and_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = ProcessLimits { cpu_s_max: Some(1), ..ProcessLimits::default() };
    let error = run(folder.path(), "while :; do :; done", "x", limits).await.expect_err("a limit");
    assert_eq!(error.kind, ModelErrorKind::Timeout);
    assert!(error.detail.contains("CPU time"), "{error}");
}

#[tokio::test]
async fn command_backend_without_its_program_is_unavailable_and_never_began() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("nothing");
    let config = CommandConfig {
        program,
        folder: folder.path().to_owned(),
        shim: Some(ANNIE.into()),
        ..CommandConfig::default()
    };
    let error = ask(config, "x").await.expect_err("no program");
    assert_eq!(error.kind, ModelErrorKind::Unavailable);
    assert!(error.detail.contains("it never began") && error.detail.contains("cannot run"), "{error}");
}

#[tokio::test]
async fn command_backend_that_exits_like_a_failed_exec_counts_as_begun() {
    let folder = tempfile::tempdir().expect("a folder");
    let effects = folder.path().join("effects");
    for code in [125, 126, 127] {
        let script = format!("echo {code} >> {}; exit {code}", effects.display());
        let error = run(folder.path(), &script, "x", ProcessLimits::default()).await.expect_err("an exit code");
        // Any error kind but `unavailable`, because after `unavailable` another backend may be called.
        assert_eq!(error.kind, ModelErrorKind::Truncated, "{error}");
    }
    assert_eq!(std::fs::read_to_string(&effects).expect("the effects"), "125\n126\n127\n");
}

/// The state character and the name of a process, while the process exists.
fn process(pid: &str) -> Option<(char, String)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    Some((rest.trim_start().chars().next()?, name.to_owned()))
}

#[tokio::test]
async fn command_backend_processes_die_with_the_parent_of_the_shim() {
    let program = "sleep 1000 & echo $$ $!; exec sleep 1000";
    let script = r#""$0" run-limited --parent $$ -- /bin/sh -c "$1" & wait"#;
    let mut parent =
        Command::new("/bin/sh").args(["-c", script, ANNIE, program]).stdout(Stdio::piped()).spawn().expect("a shell");
    let mut pids = String::new();
    // The pipe stays open to the end, so that no process dies of a broken pipe.
    let mut stdout = BufReader::new(parent.stdout.take().expect("its stdout"));
    stdout.read_line(&mut pids).expect("two process ids");
    let pids: Vec<&str> = pids.split_whitespace().collect();
    assert_eq!(pids.len(), 2);
    for pid in &pids {
        let runs = || process(pid).filter(|(state, name)| name == "sleep" && !matches!(state, 'Z' | 'X'));
        eventually("the program runs", async || runs()).await;
    }
    parent.kill().expect("killed");
    parent.wait().expect("gone");
    for pid in &pids {
        let is_gone = || process(pid).is_none_or(|(state, _)| matches!(state, 'Z' | 'X'));
        eventually("the program is gone", async || is_gone().then_some(())).await;
    }
    drop(stdout);
}

/// A server whose only backend is a program that runs this script. The script counts its effects in a file.
struct Programmed {
    server: Server,
    work: tempfile::TempDir,
    _data: tempfile::TempDir,
}

impl Programmed {
    async fn start(script: &str) -> Self {
        let (work, data) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let file = work.path().join("agent");
        std::fs::write(&file, format!("echo effect >> effects\n{script}\n")).expect("written");
        let config = format!(
            "[[backend]]\nname = \"agent\"\nkind = \"command\"\nprogram = \"/bin/sh\"\nargs = [{file:?}]\nfolder = {:?}\n\
             env_pass = [\"PATH\"]\n",
            work.path()
        );
        let path = data.path().join("annie.toml");
        std::fs::write(&path, config).expect("the configuration is written");
        let server = Server::start(data.path(), &["--config", path.to_str().expect("a path")], &[]).await;
        Self { server, work, _data: data }
    }

    fn effects(&self) -> usize {
        std::fs::read_to_string(self.work.path().join("effects")).unwrap_or_default().lines().count()
    }

    async fn say(&self, body: &Value) -> Value {
        let (status, sent) = self.server.post("/api/v1/messages", body).await.expect("the server answers");
        assert_eq!(status, 202, "{sent}");
        sent
    }

    /// The final event of the conversation's first task.
    async fn final_event(&self, sent: &Value) -> Sse {
        let conversation = sent["conversation_id"].as_str().expect("an id");
        let log = self.server.stream(conversation, 0, |seen| seen.iter().any(Sse::is_final)).await;
        log.into_iter().find(Sse::is_final).expect("a final event")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_backend_exiting_127_after_its_effect_is_not_rerun_and_the_doubt_is_reported() {
    let programmed = Programmed::start("a-command-that-is-not-there").await;
    let sent = programmed.say(&json!({"text": "commit what has changed", "priority": "normal"})).await;
    let last = programmed.final_event(&sent).await;
    assert!(last.data["text"].as_str().is_some_and(|t| t.contains("may have taken effect")), "{last:?}");
    let task = format!("/api/v1/tasks/{}", sent["task_id"].as_str().expect("an id"));
    let task = programmed.server.get(&task).await.1;
    assert_eq!((task["status"].as_str(), task["error"].as_str()), (Some("failed"), Some("model_in_doubt")), "{task}");
    assert_eq!(programmed.effects(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fallback_reply_after_program_that_never_began_is_not_programs_work() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("agent");
    std::fs::write(&program, "#!/no/such/interpreter\n").expect("written");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("an executable");
    let gpu = FakeModelServer::start(|_| Reply::says("I created the task.")).await;
    let config = format!(
        "[[backend]]\nname = \"gpu\"\nbase_url = {:?}\nmodel = \"m\"\n[[backend]]\nname = \"agent\"\nkind = \"command\"\n\
         program = {program:?}\nfolder = {:?}\n[[route]]\nname = \"tasks\"\nwhen = {{ any_words = [\"task\"] }}\n\
         to = {{ backend = \"agent\" }}\nfallback = \"allow\"\n",
        gpu.base_url(),
        folder.path()
    );
    let path = folder.path().join("annie.toml");
    std::fs::write(&path, config).expect("the configuration is written");
    let server = Server::start(folder.path(), &["--config", path.to_str().expect("a path")], &[]).await;
    let body = json!({"text": "Create a task to call Bob."});
    let (status, sent) = server.post("/api/v1/messages?wait=20", &body).await.expect("the server answers");
    assert_eq!(status, 200, "{sent}");
    let answer = sent["answer"].as_str().unwrap_or_default();
    assert!(answer.starts_with("I created the task.") && answer.contains("Nothing was changed"), "{sent}");
    let conversation = sent["conversation_id"].as_str().expect("an id");
    let log = server.stream(conversation, 0, |seen| seen.iter().any(Sse::is_final)).await;
    let rounds = log.iter().map(|sse| sse.event.as_str()).filter(|kind| kind.starts_with("round_"));
    assert_eq!(rounds.collect::<Vec<_>>(), ["round_began", "round_not_begun"], "{log:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_backend_gets_no_request_with_client_tools_or_a_response_format() {
    let programmed = Programmed::start("echo done").await;
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    for (field, value) in [("tools", tools), ("response_format", json!({"type": "json_object"}))] {
        let mut body = json!({"model": "annie", "messages": [{"role": "user", "content": "x"}]});
        body[field] = value;
        let (status, error) = programmed.server.post("/v1/chat/completions", &body).await.expect("answered");
        let message = error["error"]["message"].as_str().unwrap_or_default();
        assert!(status >= 400 && message.contains("No language model here"), "{error}");
    }
    assert_eq!(programmed.effects(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancellation_after_the_effect_of_a_program_reports_what_may_have_happened() {
    let programmed = Programmed::start("exec tail -f /dev/null").await;
    let sent = programmed.say(&json!({"text": "commit what has changed"})).await;
    eventually("the effect", async || (programmed.effects() == 1).then_some(())).await;
    let cancel = format!("/api/v1/tasks/{}/cancel", sent["task_id"].as_str().expect("an id"));
    assert_eq!(programmed.server.post(&cancel, &json!({})).await.expect("answered").0, 200);
    let last = programmed.final_event(&sent).await;
    let text = last.data["text"].as_str().unwrap_or_default();
    assert!(text.starts_with("Cancelled.") && text.contains("May or may not have happened:"), "{text}");
}

/// Whether a process is alive and not only waiting to be reaped.
fn is_alive(pid: &str) -> bool {
    process(pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
}

/// A script that leaves its session and its parent, writes its process id to `pid`, and runs for long.
const DETACHED_CHILD: &str = "setsid sh -c 'echo $$ > pid.new; mv pid.new pid; exec sleep 1000' > /dev/null 2>&1 &
while ! [ -e pid ]; do :; done\n";

#[tokio::test]
async fn child_that_called_setsid_ends_with_its_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let reply = run(folder.path(), &format!("{DETACHED_CHILD}echo done"), "x", ProcessLimits::default()).await;
    assert_eq!(reply.expect("a reply").text, "done");
    let pid = std::fs::read_to_string(folder.path().join("pid")).expect("its process id");
    eventually("the child is gone", async || (!is_alive(pid.trim())).then_some(())).await;
}

#[tokio::test]
async fn child_that_called_setsid_ends_with_a_dropped_round() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pid");
    let script = format!("{DETACHED_CHILD}touch ready; sleep 1000");
    let ready = eventually("the child runs", async || folder.path().join("ready").exists().then_some(()));
    tokio::select! {
        reply = run(folder.path(), &script, "x", ProcessLimits::default()) => panic!("the program ended: {reply:?}"),
        () = ready => {}
    }
    let pid = std::fs::read_to_string(file).expect("its process id");
    eventually("the child is gone", async || (!is_alive(pid.trim())).then_some(())).await;
}

#[tokio::test]
async fn child_that_called_setsid_ends_when_the_parent_of_the_shim_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = format!("{DETACHED_CHILD}touch ready; sleep 1000");
    let script = r#""$0" run-limited --parent $$ -- /bin/sh -c "$1" & wait"#;
    let mut parent = Command::new("/bin/sh")
        .args(["-c", script, ANNIE, &program])
        .current_dir(folder.path())
        .spawn()
        .expect("a shell");
    eventually("the child runs", async || folder.path().join("ready").exists().then_some(())).await;
    let pid = std::fs::read_to_string(folder.path().join("pid")).expect("its process id");
    assert!(is_alive(pid.trim()));
    parent.kill().expect("killed");
    parent.wait().expect("gone");
    eventually("the child is gone", async || (!is_alive(pid.trim())).then_some(())).await;
}

/// A signal that a program sends to its own process group, and the signal number with which the program then ends.
const GROUP_SIGNALS: [(&str, i32); 3] = [("kill 0", 15), ("kill -TERM 0", 15), ("kill -KILL 0", 9)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn program_that_signals_its_process_group_leaves_no_process_and_its_signal_is_reported() {
    for (kill, signal) in GROUP_SIGNALS {
        let programmed =
            Programmed::start(&format!("{DETACHED_CHILD}sleep 1000 & echo $! > same; {kill}; exec sleep 1000")).await;
        let sent = programmed.say(&json!({"text": "commit what has changed", "priority": "normal"})).await;
        let last = programmed.final_event(&sent).await;
        assert!(last.data["text"].as_str().is_some_and(|t| t.contains("may have taken effect")), "{kill}: {last:?}");
        let detail = last.data["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(&format!("ended by signal {signal}")), "{kill}: {last:?}");
        for file in ["pid", "same"] {
            let pid = std::fs::read_to_string(programmed.work.path().join(file)).expect("a process id");
            eventually("what the program started is gone", async || (!is_alive(pid.trim())).then_some(())).await;
        }
        assert_eq!((programmed.effects(), programmed.server.get("/readyz").await.0), (1, 200), "{kill}");
    }
}

#[tokio::test]
async fn program_that_kills_its_shim_ends_too() {
    let folder = tempfile::tempdir().expect("a folder");
    // The shim watches the parent once it has reported the process group. From then on its stdout is no pipe.
    let script = "while [ \"$(readlink /proc/$PPID/fd/1)\" != /dev/null ]; do :; done
        sleep 1000 & echo $$ $! > pids; kill -KILL $PPID; exec sleep 1000";
    let error = run(folder.path(), script, "x", ProcessLimits::default()).await.expect_err("a signal");
    assert_eq!(error.kind, ModelErrorKind::Truncated, "{error}");
    let pids = std::fs::read_to_string(folder.path().join("pids")).expect("its process ids");
    for pid in pids.split_whitespace() {
        eventually("the process is gone", async || (!is_alive(pid)).then_some(())).await;
    }
}

#[test]
fn shim_whose_parent_is_gone_does_not_run_the_program() {
    let out =
        Command::new(ANNIE).args(["run-limited", "--parent", "1", "--", "/bin/echo", "ran"]).output().expect("run");
    assert_eq!(out.status.code(), Some(125));
    assert!(out.stdout.is_empty() && String::from_utf8_lossy(&out.stderr).contains("the parent is gone"));
}
