//! Short runs of the scenarios of `annie chaos run`. The real program breaks a server of its own, restarts it, and counts
//! the outcome of every message and of every effect.

use std::{path::Path, process::Stdio};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use tokio::process::Command;

use crate::world::eventually;

/// The program, with one folder for all files that it creates.
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

/// Runs scenarios and returns one report for each. A run that finds something lost, doubled or repeated has a failure
/// exit code.
async fn run(scenario: &str, more: &[&str]) -> Vec<Value> {
    let home = tempfile::tempdir().expect("a folder");
    let short = ["--json", "chaos", "run", "--users", "3", "--messages", "4", "--window-ms", "700", scenario];
    let done = annie(home.path(), &[&short, more].concat()).output().await.expect("the program runs");
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{scenario}: {}\n{out}\n{err}", done.status);
    let left = std::fs::read_dir(home.path()).expect("readable").count();
    assert_eq!(left, 0, "{scenario} left files in its temporary folder");
    out.lines().map(|line| serde_json::from_str(line).expect("a report")).collect()
}

fn check(report: &Value) {
    let number = |key: &str| report[key].as_u64().unwrap_or_else(|| panic!("{key} in {report}"));
    for key in ["lost", "doubled", "gaps", "repeated", "untrue", "not_taken"] {
        assert_eq!(number(key), 0, "{report}");
    }
    assert!(number("acknowledged") >= 12 && number("effects") > 0, "{report}");
    // A fault that ends the process is lost with its count.
    let may_end = ["kill-everything", "kill-supervisors"].contains(&report["scenario"].as_str().unwrap_or_default());
    assert!(number("injections") > 0 || may_end && number("deaths") > 0, "{report}");
    assert_eq!(number("answered") + number("failed"), number("acknowledged"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chaos_run_with_killed_actors_and_failing_ports_loses_duplicates_and_repeats_nothing() {
    for scenario in ["kill-everything", "kill-supervisors", "mail-lost", "store-flaky", "model-flaky", "skills-crash"] {
        let reports = run(scenario, &["--seed", "3"]).await;
        assert_eq!(reports.len(), 1);
        check(&reports[0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chaos_run_with_abort_at_every_boundary_loses_duplicates_and_repeats_nothing() {
    let report = run("process-abort", &["--seed", "1"]).await.remove(0);
    check(&report);
    assert_eq!(
        (report["deaths"].as_u64(), report["injections"].as_u64()),
        (Some(14), Some(14)),
        "each boundary was injected: {report}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chaos_run_with_kills_freezes_and_clock_jumps_loses_duplicates_and_repeats_nothing() {
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
async fn chaos_run_of_a_plan_file_injects_its_faults_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = folder.path().join("plan");
    let steps = "actor kill --at engine --point stored --injections 2\nwait 300\nprocess kill # and once more:\nwait 300\n\
                 process freeze --wait-ms 100\ntask abort --at commit --point after --skip 1 --once\n";
    std::fs::write(&plan, steps).expect("written");
    let report = run("--plan", &[plan.to_str().expect("a path")]).await.remove(0);
    check(&report);
    assert_eq!(report["deaths"].as_u64(), Some(2), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chaos_run_ended_by_a_signal_leaves_no_server_and_no_folder() {
    let home = tempfile::tempdir().expect("a folder");
    let run = ["chaos", "run", "kill-engines", "--window-ms", "600000"];
    let run = annie(home.path(), &run).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the run starts");
    let server = eventually("its server is ready", async || {
        let folder = std::fs::read_dir(home.path()).ok()?.next()?.ok()?.path();
        let sent: Value = serde_json::from_slice(&std::fs::read(folder.join("ready.json")).ok()?).ok()?;
        Pid::from_raw(i32::try_from(sent["pid"].as_i64()?).ok()?)
    });
    let server = server.await;
    let pid = run.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).expect("the run has a process id");
    kill_process(pid, Signal::TERM).expect("the run can be signalled");
    let ended = run.wait_with_output().await.expect("the run ends");
    assert!(!ended.status.success(), "the run reported success");
    assert!(test_kill_process(server).is_err(), "its server is still running");
    assert_eq!(std::fs::read_dir(home.path()).expect("readable").count(), 0, "the run left files");
}

#[tokio::test]
async fn chaos_run_refuses_a_folder_with_existing_data() {
    let home = tempfile::tempdir().expect("a folder");
    let kept = home.path().join("kept");
    std::fs::create_dir(&kept).expect("made");
    std::fs::write(kept.join("annie.db"), "dear").expect("written");
    let at = kept.to_str().expect("a path");
    for (args, wanted) in [
        (&["chaos", "run", "all", "--keep", at][..], "not empty"),
        (&["--data", at, "chaos", "run", "all", "--keep", at][..], "leave out --keep"),
    ] {
        let refused = annie(home.path(), args).output().await.expect("the run ends");
        let sent = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && sent.contains(wanted), "{sent}");
    }
    assert_eq!(std::fs::read_dir(&kept).expect("readable").count(), 1);
}
