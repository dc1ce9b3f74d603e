//! Tests with misbehaving programs: small scripts in a temporary folder, run by a shell that gets the prompt as an
//! argument.

use std::{
    ffi::OsString,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use annie_core::{
    message::{Message, SystemPart},
    ports::Draft,
};
use rustix::process::{Pid, test_kill_process};
use tempfile::TempDir;

use super::*;
use crate::Secret;

const PATIENCE: Duration = Duration::from_secs(20);

/// A script in a folder. The shell reads the script, so no file is executed that was just written (`ETXTBSY`).
struct Script {
    folder: TempDir,
}

impl Script {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("script"), text).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn config(&self) -> CommandConfig {
        CommandConfig {
            name: "coder".to_owned(),
            program: "/bin/sh".into(),
            args: vec![self.path("script").to_str().unwrap().to_owned(), "{prompt}".to_owned()],
            folder: self.folder.path().to_owned(),
            ..CommandConfig::default()
        }
    }

    fn model(&self, change: impl FnOnce(&mut CommandConfig)) -> CommandModel {
        let mut config = self.config();
        change(&mut config);
        CommandModel::new(config, |name| (name == "PATH").then(|| "/usr/bin:/bin".to_owned())).unwrap()
    }

    /// The process ids that the script wrote.
    async fn pids(&self) -> Vec<Pid> {
        let read = || std::fs::read_to_string(self.path("pids")).unwrap_or_default();
        eventually(|| read().ends_with("end\n")).await;
        read().lines().filter_map(|l| Pid::from_raw(l.parse().ok()?)).collect()
    }
}

/// Waits until the condition is true; checks it whenever other tasks have run.
async fn eventually(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the condition did not become true in time");
}

/// Whether the process is running. A zombie that its parent has not yet waited for does not count.
fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|s| s.trim_start().chars().next());
    test_kill_process(pid).is_ok() && !matches!(state, None | Some('Z' | 'X'))
}

fn request(text: &str) -> ModelRequest {
    ModelRequest {
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
    }
}

async fn ask(model: &CommandModel, text: &str) -> Result<ModelReply, ModelError> {
    model.call(&request(text), Arc::new(|_| ())).await
}

#[tokio::test]
async fn successful_run_gives_reply_shown_line_by_line() {
    let script = Script::new("echo first; echo second >&2; printf 'a\\nlast'");
    let (shown, sink) = (Arc::new(Mutex::new(String::new())), Arc::new(Mutex::new(0)));
    let (to, count) = (Arc::clone(&shown), Arc::clone(&sink));
    let drafts: DraftSink = Arc::new(move |d| {
        if let Draft::Text(text) = d {
            to.lock().unwrap().push_str(&text);
            *count.lock().unwrap() += 1;
        }
    });
    let model = script.model(|_| ());
    let reply = model.call(&request("hello"), drafts).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.model.as_str()), ("first\na\nlast", "coder"));
    assert_eq!(*shown.lock().unwrap(), "first\na\nlast");
    assert!(*sink.lock().unwrap() >= 2);
    assert_eq!((model.id(), model.check().await), ("coder", Ok(())));
    assert!(model.about().contains("an agentic program: `sh`"));
}

#[tokio::test]
async fn prompt_arrives_unchanged_and_is_not_executed() {
    let nasty = "two words\nand a line $(touch owned) `touch owned` ; touch owned '\"\\ {prompt} * ~ žluť";
    let script = Script::new("printf '%s|%s' \"$#\" \"$1\"");
    let model = script.model(|_| ());
    assert_eq!(ask(&model, nasty).await.unwrap().text, format!("1|{nasty}"));
    assert!(!script.path("owned").exists());
    let by_stdin = Script::new("printf '%s|' \"$#\"; cat");
    let model = by_stdin.model(|c| drop(c.args.pop()));
    assert_eq!(ask(&model, nasty).await.unwrap().text, format!("0|{nasty}"));
}

#[tokio::test]
async fn prompt_is_never_passed_as_an_option() {
    let script = Script::new("printf '%s' \"$1\"");
    assert_eq!(ask(&script.model(|_| ()), "--do-anything").await.unwrap().text, " --do-anything");
    let model = script.model(|c| c.args.insert(1, "--".to_owned()));
    assert_eq!(ask(&model, "--help").await.unwrap().text, "--");
    assert_eq!(prompt::fill(&["--".to_owned(), "{prompt}".to_owned()], "-x")[1], "-x");
    assert_eq!(prompt::fill(&["--ask={prompt}".to_owned()], "-x\0")[0], "--ask=-x\u{fffd}");
}

#[tokio::test]
async fn environment_contains_only_passed_variables() {
    let script = Script::new("env | sort; pwd");
    let model = script.model(|c| drop(c.env.insert("TOKEN".to_owned(), Secret::new("sk-secret"))));
    let sent = ask(&model, "x").await.unwrap().text;
    let names: Vec<&str> = sent.lines().filter_map(|l| Some(l.split_once('=')?.0)).collect();
    // A shell may set some variables itself.
    assert!(names.iter().all(|n| ["PATH", "TOKEN", "PWD", "OLDPWD", "SHLVL", "_"].contains(n)), "{sent}");
    assert!(sent.contains("PATH=/usr/bin:/bin") && sent.contains("TOKEN=sk-secret"));
    assert!(sent.ends_with(script.folder.path().canonicalize().unwrap().to_str().unwrap()), "{sent}");
}

#[tokio::test]
async fn exit_code_becomes_typed_failure_with_stderr() {
    let words = |kind, exit, contains: Option<&str>| FailureWords { exit, contains: contains.map(str::to_owned), kind };
    let script = Script::new("echo \"key sk-secret: $1\" >&2; exit 3");
    let model = script.model(|c| {
        c.env.insert("TOKEN".to_owned(), Secret::new("sk-secret"));
        c.failures = vec![
            words(ModelErrorKind::Auth, Some(4), None),
            words(ModelErrorKind::RateLimited, None, Some("Usage Limit")),
            words(ModelErrorKind::InvalidRequest, Some(3), Some("bad words")),
        ];
    });
    for (text, kind) in [
        ("usage limit reached", ModelErrorKind::RateLimited),
        ("bad words", ModelErrorKind::InvalidRequest),
        ("oh", ModelErrorKind::Truncated),
    ] {
        let error = ask(&model, text).await.unwrap_err();
        assert_eq!(error.kind, kind);
        assert_eq!(error.detail, format!("`sh`: it ended with exit code 3; stderr: key [secret]: {text}"));
        assert!(!error.after_first_token);
    }
    let killed = ask(&Script::new("echo begun; kill -TERM $$").model(|_| ()), "x").await.unwrap_err();
    assert!(killed.detail.contains("signal 15") && killed.after_first_token, "{killed}");
    let mute = ask(&Script::new("exit 0").model(|_| ()), "x").await.unwrap_err();
    assert_eq!(mute.kind, ModelErrorKind::Protocol);
}

#[tokio::test]
async fn stdout_is_limited_and_end_of_stderr_is_kept() {
    let script = Script::new("while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done");
    let error = ask(&script.model(|c| c.output_bytes_max = 100_000), "x").await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Protocol);
    assert!(error.detail.contains("more than 100000 bytes") && error.after_first_token, "{error}");
    let script = Script::new("i=0; while [ $i -lt 500 ]; do echo line $i >&2; i=$((i+1)); done; exit 1");
    let error = ask(&script.model(|c| c.stderr_bytes_max = 100), "x").await.unwrap_err();
    assert!(error.detail.ends_with("line 499") && error.detail.contains('…') && error.detail.len() < 200, "{error}");
}

/// Starts a grandchild, writes both process ids to a file, and waits for ever.
const FAMILY: &str = "tail -f /dev/null & echo $$ > pids; echo $! >> pids; echo end >> pids; echo begun; wait";

/// The paused clock advances only when all tasks are idle, which is not before both processes exist.
#[tokio::test(start_paused = true)]
async fn timed_out_run_ends_with_all_its_children() {
    let script = Script::new(FAMILY);
    let model = script.model(|c| c.run_ms_max = 60_000);
    let (error, pids) = tokio::join!(ask(&model, "x"), script.pids());
    let error = error.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Timeout);
    assert!(error.detail.contains("not done within 60000 ms"), "{error}");
    assert_eq!(pids.len(), 2);
    eventually(|| !pids.iter().any(|pid| is_alive(*pid))).await;
}

#[tokio::test]
async fn dropped_call_ends_with_all_its_children() {
    let script = Script::new(FAMILY);
    let model = script.model(|_| ());
    let pids = tokio::select! {
        reply = ask(&model, "x") => panic!("it ended: {reply:?}"),
        pids = script.pids() => pids,
    };
    assert_eq!(pids.len(), 2);
    eventually(|| !pids.iter().any(|pid| is_alive(*pid))).await;
}

#[tokio::test]
async fn remaining_children_are_killed_and_do_not_delay_the_reply() {
    let script = Script::new("tail -f /dev/null & echo $! > pids; echo end >> pids; echo done");
    assert_eq!(ask(&script.model(|_| ()), "x").await.unwrap().text, "done");
    let pids = script.pids().await;
    assert_eq!(pids.len(), 1);
    eventually(|| !is_alive(pids[0])).await;
}

#[tokio::test]
async fn missing_program_is_reported_as_unavailable() {
    let script = Script::new("");
    let model = script.model(|c| c.program = script.path("nothing"));
    assert_eq!(model.check().await.unwrap_err().kind, ModelErrorKind::Unavailable);
    let error = ask(&model, "x").await.unwrap_err();
    assert!(error.kind == ModelErrorKind::Unavailable && error.detail.starts_with("cannot start"), "{error}");
    let folder = script.model(|c| c.folder = script.path("script"));
    assert!(folder.check().await.unwrap_err().detail.starts_with("folder"));
}

#[tokio::test]
async fn oversized_prompt_is_refused_as_overflow() {
    let script = Script::new("cat");
    let model = script.model(|c| c.prompt_bytes_max = 100);
    assert_eq!(ask(&model, &"x".repeat(101)).await.unwrap_err().kind, ModelErrorKind::Overflow);
    let wide = script.model(|c| drop((c.args.pop(), c.prompt_bytes_max = 4 << 20)));
    let long = "x".repeat(800_000);
    assert_eq!(ask(&wide, &long).await.unwrap().text, long);
}

#[test]
fn prompt_is_one_text_and_marks_speakers_of_several_messages() {
    let mut request = request("do it");
    request.system = vec![SystemPart { text: "You are Annie.".to_owned(), cache: None }];
    assert_eq!(prompt::text_of(&request), "You are Annie.\n\ndo it");
    request.messages.insert(0, Message::assistant("hello"));
    assert_eq!(prompt::text_of(&request), "You are Annie.\n\nAssistant: hello\n\nUser: do it");
}

#[test]
fn argv_with_shim_sets_limits_and_names_program() {
    let script = Script::new("");
    let model = script.model(|c| {
        c.shim = Some("/opt/annie".into());
        c.limits.cpu_s_max = Some(60);
        c.args = vec!["-p".to_owned(), "{prompt}".to_owned()];
    });
    let (program, args) = model.launch("hello".to_owned()).argv(Some(7));
    let me = std::process::id().to_string();
    assert_eq!(program, "/opt/annie");
    let shim = ["run-limited", "--cpu-s", "60", "--files", "1024", "--parent", &me, "--tell-fd", "7", "--"];
    let wanted = shim.into_iter().chain(["/bin/sh", "-p", "hello"]).collect::<Vec<_>>();
    assert_eq!(args, wanted.into_iter().map(OsString::from).collect::<Vec<_>>());
}

#[test]
fn config_names_the_invalid_setting() {
    let script = Script::new("");
    let wrong = |change: &dyn Fn(&mut CommandConfig)| {
        let mut config = script.config();
        change(&mut config);
        CommandModel::new(config, |_| None).unwrap_err().to_string()
    };
    assert!(wrong(&|c| c.program = "claude".into()).contains("program \"claude\" is not a whole path"));
    assert!(wrong(&|c| c.folder = PathBuf::new()).contains("folder is missing"));
    assert!(wrong(&|c| c.args = vec!["-c".into(), "{prompt}".into()]).contains("a shell must not"));
    assert!(wrong(&|c| c.args = vec!["{prompt}".into(), "{prompt}".into()]).contains("more than once"));
    assert!(wrong(&|c| c.env_pass = vec!["A=B".into()]).contains("no name of a variable"));
    assert!(wrong(&|c| c.run_ms_max = 0).contains("run_ms_max"));
    assert!(wrong(&|c| c.prompt_bytes_max = 1 << 20).contains("use stdin"));
    let vague = FailureWords { exit: None, contains: None, kind: ModelErrorKind::Auth };
    assert!(wrong(&|c| c.failures = vec![vague.clone()]).contains("neither `exit` nor `contains`"));
    let read: CommandConfig = serde_json::from_str(
        r#"{"name": "c", "program": "/usr/bin/c", "folder": "/srv/c", "env": {"K": "sk-hidden"}}"#,
    )
    .unwrap();
    read.validate().unwrap();
    assert!(!read.is_prompt_an_argument(), "by default the prompt is not on a command line");
    assert!(!format!("{read:?}").contains("sk-hidden"));
}
