//! The scenarios of `annie chaos run`, short: the real program breaks a server of its own, starts it again, and counts what
//! became of every message and every effect.

use std::process::Stdio;

use serde_json::Value;

/// Runs scenarios; gives one report for each. A run that finds something lost, doubled or repeated fails by its exit code.
async fn run(scenario: &str, more: &[&str]) -> Vec<Value> {
    let home = tempfile::tempdir().expect("a folder");
    let done = tokio::process::Command::new(env!("CARGO_BIN_EXE_annie"))
        .args(["--json", "chaos", "run", scenario, "--users", "3", "--messages", "4", "--window-ms", "700"])
        .args(more)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home.path())
        .env("TMPDIR", home.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let done = done.await.expect("the program runs");
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
    for scenario in ["kill-everything", "mail-lost", "store-flaky", "model-flaky", "skills-crash"] {
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
    for scenario in ["process-kill", "process-freeze", "clock-jumps", "gate-holder-dies", "files-gone", "kill-engines"]
    {
        check(&run(scenario, &["--seed", "2"]).await.remove(0));
    }
}
