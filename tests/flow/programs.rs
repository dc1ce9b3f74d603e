//! A program as a backend, started through the real binary: its limits hold, and it does not outlive who started it.

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

use crate::world::eventually;

const ANNIE: &str = env!("CARGO_BIN_EXE_annie");

/// A shell that reads its script from a file in this folder and has the prompt as `$1`.
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
        output_tokens_max: 100,
        session_id: "conv_1".to_owned(),
        priority: 2,
        options: annie_core::caller::CallOptions::default(),
    };
    model.call(&request, Arc::new(|_| ())).await
}

#[tokio::test]
async fn a_program_has_its_limits_and_its_prompt_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = ProcessLimits {
        address_bytes_max: Some(4 << 30),
        cpu_s_max: Some(77),
        files_max: Some(55),
        processes_max: None,
    };
    let text = "--json $(id)\n\"two  words\"";
    let script = r#"ulimit -n; ulimit -t; ulimit -c; ulimit -v; printf '%s' "$1""#;
    let reply = run(folder.path(), script, text, limits).await.expect("a reply");
    assert_eq!(reply.text, format!("55\n77\n0\n4194304\n {text}"));
}

#[tokio::test]
async fn a_program_that_uses_up_its_cpu_time_is_ended_and_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = ProcessLimits { cpu_s_max: Some(1), ..ProcessLimits::default() };
    let error = run(folder.path(), "while :; do :; done", "x", limits).await.expect_err("a limit");
    assert_eq!(error.kind, ModelErrorKind::Timeout);
    assert!(error.detail.contains("CPU time"), "{error}");
}

#[tokio::test]
async fn a_program_that_is_not_there_never_began() {
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
    assert!(error.detail.contains("cannot run") && error.detail.contains("127"), "{error}");
}

/// The first letter of its state and its name, while it is there.
fn process(pid: &str) -> Option<(char, String)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    Some((rest.trim_start().chars().next()?, name.to_owned()))
}

#[tokio::test]
async fn a_program_and_what_it_started_die_with_whoever_started_it() {
    let program = "sleep 1000 & echo $$ $!; exec sleep 1000";
    let script = r#""$0" run-limited --parent $$ -- /bin/sh -c "$1" & wait"#;
    let mut parent =
        Command::new("/bin/sh").args(["-c", script, ANNIE, program]).stdout(Stdio::piped()).spawn().expect("a shell");
    let mut pids = String::new();
    // Open to the end: nobody shall die of a broken pipe.
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

#[test]
fn a_program_whose_starter_is_another_already_is_not_run() {
    let out =
        Command::new(ANNIE).args(["run-limited", "--parent", "1", "--", "/bin/echo", "ran"]).output().expect("run");
    assert_eq!(out.status.code(), Some(125));
    assert!(out.stdout.is_empty() && String::from_utf8_lossy(&out.stderr).contains("the parent is gone"));
}
