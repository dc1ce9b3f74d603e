//! `annie doctor` on damaged data: it restores what is folded from the log, names what is wrong in the log itself, and
//! does not touch the data of a running server. The tests change the bytes of the database file, as a failing disk does.

use std::{path::Path, time::Duration};

use serde_json::{Value, json};

use crate::{
    server::Server,
    world::{eventually, eventually_within},
};

/// Runs `annie doctor` and returns its findings and its exit code.
async fn doctor(folder: &Path, how: &[&str]) -> (Vec<Value>, i32) {
    let done = tokio::process::Command::new(env!("CARGO_BIN_EXE_annie"))
        .arg("--data")
        .arg(folder)
        .args(["--json", "doctor"])
        .args(how)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", folder)
        .output();
    let done = done.await.expect("the program runs");
    let sent = String::from_utf8_lossy(&done.stdout).lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    (sent, done.status.code().expect("the program exits"))
}

fn of<'a>(found: &'a [Value], what: &str) -> Vec<&'a Value> {
    found.iter().filter(|f| f["what"] == what).collect()
}

/// A folder in which a server answered two messages and was stopped by SIGTERM, so that all data is in one file.
async fn used() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(folder.path(), &[], &[]).await;
    let mut conversation = String::new();
    for (text, key) in [("what time is it?", "a"), ("what tasks are open?", "b")] {
        let body = json!({"text": text, "conversation_key": key});
        let (status, sent) = server.post("/api/v1/messages?wait=20", &body).await.expect("answered");
        assert_eq!(status, 200, "{sent}");
        conversation = sent["conversation_id"].as_str().expect("an id").to_owned();
    }
    server.stop().await;
    assert!(!folder.path().join("annie.db-wal").exists(), "all is in one file");
    (folder, conversation)
}

/// Replaces these bytes of the database by others of the same length, at the first or at every occurrence.
fn damage(folder: &Path, from: &str, to: &str, everywhere: bool) {
    assert_eq!(from.len(), to.len());
    let file = folder.join("annie.db");
    let mut bytes = std::fs::read(&file).expect("the database");
    let offsets: Vec<usize> =
        (0..bytes.len() - from.len()).filter(|at| bytes[*at..].starts_with(from.as_bytes())).collect();
    assert!(!offsets.is_empty(), "{from:?} is nowhere in it");
    for at in offsets.into_iter().take(if everywhere { usize::MAX } else { 1 }) {
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    std::fs::write(&file, bytes).expect("written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_check_names_a_changed_table_and_repair_restores_it() {
    let (folder, _) = used().await;
    let (found, exit) = doctor(folder.path(), &["--check"]).await;
    assert_eq!((exit, of(&found, "tasks")[0]["state"].as_str()), (0, Some("ok")), "{found:#?}");
    // A row of `tasks` stores the state directly before the class. No other table does.
    for (from, to) in [("completednormal", "cancellednormal"), ("completedhigh", "cancelledhigh")] {
        if std::fs::read(folder.path().join("annie.db"))
            .expect("readable")
            .windows(from.len())
            .any(|w| w == from.as_bytes())
        {
            damage(folder.path(), from, to, true);
        }
    }
    for _ in 0..2 {
        // A check changes nothing.
        let (found, exit) = doctor(folder.path(), &["--check"]).await;
        let tasks = of(&found, "tasks")[0];
        assert_eq!((exit, tasks["state"].as_str()), (1, Some("error")), "{found:#?}");
        let (detail, fix) = (tasks["detail"].as_str().expect("text"), tasks["fix"].as_str().expect("text"));
        assert!(detail.contains("2 different (task_") && fix.contains("--repair"), "{tasks}");
    }
    let (found, exit) = doctor(folder.path(), &["--repair"]).await;
    assert_eq!((exit, of(&found, "repair").len()), (0, 1), "{found:#?}");
    let (found, exit) = doctor(folder.path(), &["--check"]).await;
    assert_eq!((exit, of(&found, "tasks")[0]["state"].as_str()), (0, Some("ok")), "{found:#?}");
    let server = Server::start(folder.path(), &[], &[]).await;
    let (_, tasks) = server.get("/api/v1/tasks").await;
    let states: Vec<&str> =
        tasks["tasks"].as_array().expect("tasks").iter().filter_map(|t| t["status"].as_str()).collect();
    assert_eq!(states, ["completed", "completed"]);
    // A repair is refused while a server is running.
    let (found, exit) = doctor(folder.path(), &["--repair"]).await;
    assert_eq!((exit, found.len()), (5, 0), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_names_an_unreadable_event_without_deleting_it_and_other_conversations_continue() {
    let (folder, conversation) = used().await;
    let whole = doctor(folder.path(), &["--check"]).await.0;
    // The final event of the last conversation: `b` was answered last.
    damage(folder.path(), "\"kind\":\"answered\"", "\"kind\":\"answerex\"", true);
    let (found, exit) = doctor(folder.path(), &["--check"]).await;
    let log = of(&found, "log");
    assert_eq!((exit, log.len()), (1, 2), "{found:#?}\n{whole:#?}");
    let details: Vec<&str> = log.iter().filter_map(|f| f["detail"].as_str()).collect();
    assert!(details.iter().any(|d| d.contains(&conversation) && d.contains(" event ")), "{details:?}");
    let (again, exit) = doctor(folder.path(), &["--repair"]).await;
    assert_eq!((exit, of(&again, "log")), (1, log), "the event is reported and not replaced");
    let server = Server::start(folder.path(), &[], &[]).await;
    // The conversation is quarantined with a visible failure. Other conversations are not affected.
    let sick = json!({"text": "hello?", "conversation_key": "b"});
    let (_, sent) = server.post("/api/v1/messages?wait=20", &sick).await.expect("an end");
    assert_eq!(sent["status"], "failed", "{sent}");
    let well = json!({"text": "what time is it?", "conversation_key": "c"});
    let (status, sent) = server.post("/api/v1/messages?wait=20", &well).await.expect("answered");
    assert_eq!((status, sent["status"].as_str()), (200, Some("completed")), "{sent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_check_reports_a_lost_end_of_the_log() {
    let (folder, _) = used().await;
    let (database, earlier) = (folder.path().join("annie.db"), folder.path().join("earlier.db"));
    std::fs::copy(&database, &earlier).expect("copied");
    let mut server = Server::start(folder.path(), &[], &[]).await;
    let body = json!({"text": "what time is it?", "conversation_key": "later"});
    assert_eq!(server.post("/api/v1/messages?wait=20", &body).await.expect("answered").0, 200);
    server.stop().await;
    let (found, exit) = doctor(folder.path(), &["--check"]).await;
    assert_eq!((exit, of(&found, "database file")[0]["state"].as_str()), (0, Some("ok")), "{found:#?}");
    std::fs::copy(&earlier, &database).expect("copied back");
    let (found, exit) = doctor(folder.path(), &["--check"]).await;
    let lost = of(&found, "log").into_iter().find(|f| f["state"] == "error").expect("an error");
    assert!(lost["detail"].as_str().is_some_and(|d| d.contains("the end is lost")), "{lost}");
    assert_eq!(exit, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_check_reads_every_page_of_the_database_file() {
    let (folder, _) = used().await;
    let file = folder.path().join("annie.db");
    let mut bytes = std::fs::read(&file).expect("the database");
    // The header of the last page, which belongs to some table or index.
    let last = bytes.len() - 4096;
    bytes[last..last + 8].copy_from_slice(&[0xff; 8]);
    std::fs::write(&file, bytes).expect("written");
    let (found, exit) = doctor(folder.path(), &["--check"]).await;
    assert_eq!(exit, 1, "{found:#?}");
    let faults = of(&found, "database file");
    assert!(faults.iter().any(|f| f["state"] == "error"), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_notices_a_lost_write_ahead_log_with_just_acknowledged_messages() {
    let (folder, _) = used().await;
    let mark = || -> Value {
        let text = std::fs::read(folder.path().join("database.mark")).expect("the mark");
        serde_json::from_slice(&text).expect("JSON")
    };
    let before = mark();
    let mut server = Server::start(folder.path(), &[], &[]).await;
    let body = json!({"text": "what time is it?", "conversation_key": "later"});
    assert_eq!(server.post("/api/v1/messages?wait=20", &body).await.expect("answered").0, 200);
    // The mark moves within about a second, unless the machine is busy.
    eventually_within(Duration::from_secs(15), "the mark has moved behind the commits", async || {
        (mark() != before).then_some(())
    })
    .await;
    server.kill();
    assert!(folder.path().join("annie.db-wal").exists(), "the acknowledged events are in the write-ahead log");
    for file in ["annie.db-wal", "annie.db-shm"] {
        std::fs::remove_file(folder.path().join(file)).expect("removed");
    }
    let (found, exit) = doctor(folder.path(), &["--check"]).await;
    let lost =
        of(&found, "log").into_iter().any(|f| f["detail"].as_str().is_some_and(|d| d.contains("the end is lost")));
    assert!(exit == 1 && lost, "{found:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_names_a_damaged_schema_with_its_column_and_remedy() {
    let (folder, _) = used().await;
    // Simulates flipped bits in the definition of the table `operations`. Every page is still well-formed.
    damage(folder.path(), "closed_at", "closed_ax", true);
    let (found, exit) = doctor(folder.path(), &["--check"]).await;
    let operations = of(&found, "operations")[0];
    let text = |key: &str| operations[key].as_str().unwrap_or_default();
    assert_eq!((exit, text("state")), (1, "error"), "{found:#?}");
    assert!(text("detail").contains("no such column: closed_at"), "{operations}");
    assert!(text("fix").contains("annie doctor --repair") && text("fix").contains("restore a backup"), "{operations}");
    let (found, exit) = doctor(folder.path(), &["--repair"]).await;
    assert_eq!(exit, 1, "only a backup repairs a schema: {found:#?}");

    // The table with which every check begins.
    damage(folder.path(), "updated_at", "updated_ax", true);
    let (found, exit) = doctor(folder.path(), &["--check"]).await;
    assert_eq!(exit, 1, "{found:#?}");
    for what in ["database", "log"] {
        let fault = of(&found, what)[0];
        let text = |key: &str| fault[key].as_str().unwrap_or_default();
        assert_eq!(text("state"), "error", "{found:#?}");
        assert!(text("detail").contains("damaged") && text("detail").contains("updated_at"), "{fault}");
        assert!(text("fix").contains("restore a backup"), "{fault}");
        assert!(!text("detail").contains("request's id"), "a command has no server whose log has more: {fault}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_with_a_damaged_schema_is_not_ready_and_gives_the_reason() {
    let (folder, _) = used().await;
    damage(folder.path(), "closed_at", "closed_ax", true);
    // Work on operations reads this table at every start, in the background.
    let server = Server::start(folder.path(), &[], &[]).await;
    let ready = eventually("the server is not ready", async || {
        let (status, ready) = server.get("/readyz").await;
        (status == 503).then_some(ready)
    });
    let ready = ready.await;
    assert_eq!(ready["ready"], false, "{ready}");
    assert!(ready["problems"].to_string().contains("no such column: closed_at"), "{ready}");
    assert_eq!(server.get("/healthz").await.0, 200, "the process is alive");
}
