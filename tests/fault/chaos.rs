//! The scenarios of `annie chaos run`, short: the real program breaks a server of its own, starts it again, and counts what
//! became of every message and every effect.

use std::{path::Path, process::Stdio};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use tokio::process::Command;

use crate::world::eventually;

/// The program with a folder for everything that it makes.
fn annie(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_annie"));
    command
        .args(args)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home)
        .env("TMPDIR", home)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Runs scenarios; gives one report for each. A run that finds something lost, doubled or repeated fails by its exit code.
async fn run(scenario: &str, more: &[&str]) -> Vec<Value> {
    let home = tempfile::tempdir().expect("a folder");
    let short = ["--json", "chaos", "run", scenario, "--users", "3", "--messages", "4", "--window-ms", "700"];
    let done = annie(home.path(), &[&short, more].concat()).output().await.expect("the program runs");
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{scenario}: {}\n{out}\n{err}", done.status);
    let left = std::fs::read_dir(home.path()).expect("readable").count();
    assert_eq!(left, 0, "{scenario} left something in its folder for throwaway things");
    out.lines().map(|line| serde_json::from_str(line).expect("a report")).collect()
}

fn check(report: &Value) {
    let number = |key: &str| report[key].as_u64().unwrap_or_else(|| panic!("{key} in {report}"));
    for key in ["lost", "doubled", "gaps", "repeated", "untrue", "not_taken"] {
        assert_eq!(number(key), 0, "{report}");
    }
    assert!(number("acknowledged") >= 12 && number("strikes") > 0 && number("effects") > 0, "{report}");
    assert_eq!(number("answered") + number("failed"), number("acknowledged"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn actors_that_are_killed_and_ports_that_fail_lose_double_and_repeat_nothing() {
    for scenario in ["kill-everything", "kill-supervisors", "mail-lost", "store-flaky", "model-flaky", "skills-crash"] {
        let reports = run(scenario, &["--seed", "3"]).await;
        assert_eq!(reports.len(), 1);
        check(&reports[0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_ends_at_every_boundary_loses_doubles_and_repeats_nothing() {
    let report = run("process-abort", &["--seed", "1"]).await.remove(0);
    check(&report);
    assert_eq!((report["deaths"].as_u64(), report["strikes"].as_u64()), (Some(14), Some(14)), "each struck: {report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_freezes_and_a_clock_that_jumps_lose_double_and_repeat_nothing() {
    for scenario in [
        "process-kill",
        "process-freeze",
        "clock-jumps",
        "gate-holder-dies",
        "files-gone",
        "folder-removed",
        "kill-engines",
    ] {
        check(&run(scenario, &["--seed", "2"]).await.remove(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_ended_by_a_signal_leaves_no_server_and_no_folder() {
    let home = tempfile::tempdir().expect("a folder");
    let run = ["chaos", "run", "kill-engines", "--window-ms", "600000"];
    let run = annie(home.path(), &run).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    let server = eventually("its server is ready", async || {
        let folder = std::fs::read_dir(home.path()).ok()?.next()?.ok()?.path();
        let said: Value = serde_json::from_slice(&std::fs::read(folder.join("ready.json")).ok()?).ok()?;
        Pid::from_raw(i32::try_from(said["pid"].as_i64()?).ok()?)
    });
    let server = server.await;
    let pid = run.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).expect("it runs");
    kill_process(pid, Signal::TERM).expect("it runs");
    let ended = run.wait_with_output().await.expect("it ends");
    assert!(!ended.status.success(), "it was not carried out");
    assert!(test_kill_process(server).is_err(), "its server lives on");
    assert_eq!(std::fs::read_dir(home.path()).expect("readable").count(), 0, "it left something");
}

#[tokio::test]
async fn a_run_does_not_break_what_somebody_keeps() {
    let home = tempfile::tempdir().expect("a folder");
    let kept = home.path().join("kept");
    std::fs::create_dir(&kept).expect("made");
    std::fs::write(kept.join("annie.db"), "dear").expect("written");
    let at = kept.to_str().expect("a path");
    for (args, wanted) in [
        (&["chaos", "run", "all", "--keep", at][..], "not empty"),
        (&["--data", at, "chaos", "run", "all", "--keep", at][..], "leave out --keep"),
    ] {
        let refused = annie(home.path(), args).output().await.expect("it ends");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && said.contains(wanted), "{said}");
    }
    assert_eq!(std::fs::read_dir(&kept).expect("readable").count(), 1);
}
