//! Commands about work against a server: every message option is stored, and every list and command takes effect.

use serde_json::Value;

use super::*;

/// Runs commands against a server, from a separate data folder.
struct Fixture {
    url: String,
    folder: tempfile::TempDir,
}

impl Fixture {
    fn at(url: String) -> Self {
        Self { url, folder: tempfile::tempdir().unwrap() }
    }

    /// The output of a command that must succeed.
    async fn output(&self, args: &[&str]) -> String {
        let output = annie(self.folder.path(), &[&["--url", &self.url], args].concat()).await;
        assert_eq!(output.done, Ok(()), "{args:?}: {}", output.err);
        output.out
    }

    async fn json(&self, args: &[&str]) -> Value {
        let out = self.output(&[&["--json"], args].concat()).await;
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{args:?}: {e}: {out}"))
    }

    /// Sends a message with `--detach`; returns its task id.
    async fn detach(&self, args: &[&str]) -> String {
        let accepted = self.json(&[&["ask", "--detach"], args].concat()).await;
        accepted["task_id"].as_str().expect("a task").to_owned()
    }

    async fn job(&self, task: &str) -> Option<Value> {
        let list = self.json(&["jobs", "list"]).await;
        list["jobs"].as_array().unwrap().iter().find(|job| job["task_id"] == task).cloned()
    }
}

async fn with_fixture(then: impl AsyncFnOnce(&Fixture)) {
    let data = tempfile::tempdir().unwrap();
    with_server(data.path(), async |url| then(&Fixture::at(url)).await).await;
}

#[tokio::test]
async fn ask_stores_every_message_option_in_the_log() {
    with_fixture(async |fixture| {
        let first = fixture.detach(&["--delay", "3600", "hello"]).await;
        let options = [
            "--priority",
            "low",
            "--private",
            "--name",
            "daily",
            "--delay",
            "60",
            "--after",
            &first,
            "--verbatim",
            "--mode",
            "single_loop",
            "--conversation",
            "own",
            "cancel that",
        ];
        let accepted = fixture.json(&[&["ask", "--detach"], &options[..]].concat()).await;
        let conversation = accepted["conversation_id"].as_str().unwrap();
        let url = format!("{}/api/v1/conversations/{conversation}/events", fixture.url);
        let events: Value = reqwest::get(url).await.unwrap().json().await.unwrap();
        let body = &events["events"][0]["body"];
        let body = if body.is_null() { &events["events"][0] } else { body };
        for (key, wanted) in [
            ("text", Value::from("cancel that")),
            ("priority", "low".into()),
            ("private", true.into()),
            ("mode", "single_loop".into()),
            ("after", serde_json::json!([first])),
        ] {
            assert_eq!(body[key], wanted, "{key}: {events}");
        }
        assert!(body["not_before"].is_number() || body["not_before"].is_string(), "{events}");
        assert!(body.get("order").is_none(), "the text is not a job command: {events}");
    })
    .await;
}

#[tokio::test]
async fn jobs_are_listed_reprioritised_suspended_resumed_and_cancelled() {
    with_fixture(async |fixture| {
        let task = fixture.detach(&["--priority", "low", "--delay", "3600", "sum up the day"]).await;
        assert!(fixture.output(&["jobs"]).await.contains("sum up the day"));
        assert_eq!(fixture.job(&task).await.unwrap()["priority"], "low");
        assert!(fixture.output(&["jobs", "priority", &task, "normal"]).await.contains("normal"));
        assert_eq!(fixture.job(&task).await.unwrap()["priority"], "normal");
        assert!(fixture.output(&["jobs", "pause", "1"]).await.contains("suspended"));
        assert_eq!(fixture.job(&task).await.unwrap()["status"], "suspended");
        assert!(fixture.output(&["jobs", "resume", &task]).await.contains("resumed"));
        assert_ne!(fixture.job(&task).await.unwrap()["status"], "suspended");
        assert!(fixture.output(&["jobs", "cancel", &task]).await.contains("cancelled"));
        assert_eq!(fixture.job(&task).await, None);
        assert!(fixture.output(&["jobs", "cancel", &task]).await.contains("ended before"));
        let none = annie(fixture.folder.path(), &["--url", &fixture.url, "jobs", "pause", "7"]).await;
        assert_eq!(none.done.unwrap_err().exit, Exit::NotFound, "{}", none.err);
    })
    .await;
}

#[tokio::test]
async fn queue_and_voice_gate_are_shown_closed_and_opened() {
    with_fixture(async |fixture| {
        assert!(fixture.output(&["queue"]).await.contains("no task waits"));
        assert!(fixture.output(&["overview"]).await.contains("first token (p95)"));
        assert_eq!(fixture.json(&["overview"]).await["minutes"].as_array().unwrap().len(), 60);
        assert!(fixture.output(&["gate", "show"]).await.contains("open"));
        let hold = serde_json::json!({"holder": "the command line", "ttl_ms": 60_000});
        let client = annie_llm::http_client().build().unwrap();
        let held = client.post(format!("{}/api/v1/gate/hold", fixture.url)).json(&hold).send().await.unwrap();
        assert!(held.status().is_success());
        assert!(fixture.output(&["gate", "show"]).await.contains("closed"));
        let task = fixture.detach(&["what is due?"]).await;
        let waits = async || {
            let queue = fixture.json(&["queue"]).await;
            queue["waiting"].as_array().unwrap().iter().any(|one| one["task_id"] == task.as_str())
        };
        while !waits().await {
            tokio::task::yield_now().await;
        }
        assert!(fixture.output(&["queue"]).await.contains("voice gate closed"));
        let before = fixture.json(&["queue"]).await["waiting"].as_array().unwrap().len();
        for _ in 0..2 {
            fixture.detach(&["--name", "daily", "sum up the day"]).await;
        }
        let after = fixture.json(&["queue"]).await["waiting"].as_array().unwrap().len();
        assert_eq!(after, before + 1, "equal work of one name is done once");
        assert!(fixture.output(&["gate", "release"]).await.contains("is open"));
        assert!(fixture.output(&["gate", "release"]).await.contains("not held"));
        while fixture.json(&["tasks", "show", &task]).await["status"] != "completed" {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn operation_is_listed_finished_by_its_key_and_notified() {
    with_fixture(async |fixture| {
        let asked = fixture.output(&["ask", "let me know when the nightly backup is done"]).await;
        let open = fixture.json(&["operations", "list", "--open"]).await;
        let Some(id) = open["operations"][0]["id"].as_str() else { panic!("no operation: {asked} {open}") };
        assert!(fixture.output(&["operations", "show", id]).await.contains("system.await"));
        let key = fixture.json(&["operations", "key", id]).await;
        let file = fixture.folder.path().join("operation.key");
        std::fs::write(&file, key["key"].as_str().unwrap()).unwrap();
        let finish = ["operations", "finish", id, "--operation-key-file", file.to_str().unwrap(), "all", "is", "well"];
        assert!(fixture.output(&finish).await.contains("the result is delivered, as task_"));
        assert!(fixture.output(&finish).await.contains("delivered before"));
        let still = fixture.json(&["operations", "list", "--open"]).await;
        assert_eq!(still["operations"], serde_json::json!([]));
        let notified = async || fixture.json(&["notifications"]).await["notifications"].as_array().unwrap().len();
        while notified().await == 0 {
            tokio::task::yield_now().await;
        }
        assert!(fixture.output(&["notifications"]).await.contains("  1  "));
    })
    .await;
}

#[tokio::test]
async fn dead_letters_are_listed_shown_retried_and_discarded() {
    let data = tempfile::tempdir().unwrap();
    let unreachable =
        [("OPENAI_BASE_URL", "http://127.0.0.1:1/v1"), ("ANNIE_MODEL", "away"), ("OPENAI_API_KEY", "sk-x")];
    let hasty = [
        ("ANNIE__TURN__DEFER_MS", "5"),
        ("ANNIE__BACKEND__0__RETRIES_MAX", "0"),
        ("ANNIE__BREAKER__FAILURES_MAX", "1000"),
    ];
    with_server_of(data.path(), &[&unreachable[..], &hasty[..]].concat(), async |url| {
        let fixture = Fixture::at(url);
        let failed =
            annie(fixture.folder.path(), &["--url", &fixture.url, "ask", "--new", "--priority", "normal", "hello"])
                .await;
        assert_eq!(failed.done.unwrap_err().exit, Exit::Failure, "{}", failed.out);
        let list = fixture.json(&["dlq", "list", "--state", "waiting"]).await;
        let task = list["dead_letters"][0]["task_id"].as_str().unwrap_or_else(|| panic!("{list}"));
        assert!(fixture.output(&["dlq", "list"]).await.contains(task));
        assert!(fixture.output(&["dlq", "show", task]).await.contains("hello"));
        for what in ["show", "retry", "discard"] {
            let foreign = ["--url", &fixture.url, "dlq", what, task, "--user", "bob"];
            let refused = annie(fixture.folder.path(), &foreign).await.done.unwrap_err();
            assert_eq!(refused.exit, Exit::NotFound, "{what}: bob has no such dead letter");
        }
        for what in ["show", "retry", "discard"] {
            let unnamed = ["--url", &fixture.url, "dlq", what, task, "--user", "žofie"];
            let refused = annie(fixture.folder.path(), &unnamed).await.done.unwrap_err();
            assert!(refused.exit == Exit::Usage && refused.what.contains("žofie"), "{what}: {refused:?}");
        }
        assert!(fixture.output(&["dlq", "retry", task]).await.contains("it is retried, as task_"));
        assert!(fixture.output(&["dlq", "retry", task]).await.contains("a retry is under way already"));
        assert!(fixture.output(&["dlq", "discard", task]).await.contains("was not waiting"));
        let all = ["dlq", "discard", "--all", "--error", "model_unavailable"];
        let counted = fixture.output(&[&all[..], &["--dry-run"]].concat()).await;
        assert!(counted.contains("waiting dead letters match; nothing was done"), "{counted}");
        for text in ["one", "two", "three"] {
            let args = ["--url", &fixture.url, "ask", "--new", "--priority", "normal", text];
            assert_eq!(annie(fixture.folder.path(), &args).await.done.unwrap_err().exit, Exit::Failure);
        }
        let list =
            annie(fixture.folder.path(), &["--url", &fixture.url, "dlq", "list", "-n", "1", "--state", "waiting"])
                .await;
        assert!(list.err.contains("1 of ") && list.err.contains("the rest with --next "), "{}", list.err);
        let unasked = annie(fixture.folder.path(), &[&["--url", &fixture.url], &all[..]].concat()).await;
        assert_eq!(unasked.done.unwrap_err().exit, Exit::Usage, "no terminal, no --yes: {}", unasked.err);
        let done = fixture.output(&[&all[..], &["--yes", "--limit", "2", "--newer-than", "1h"]].concat()).await;
        assert!(done.starts_with("2 of ") && done.contains("discarded"), "{done}");
        let gone = annie(fixture.folder.path(), &["--url", &fixture.url, "dlq", "list", "--state", "archived"]).await;
        assert!(gone.err.contains("no dead letters"), "{}", gone.err);
    })
    .await;
}

#[test]
fn command_line_without_a_subcommand_prints_the_help_of_the_named_command() {
    let help = |args: &[&str]| help_of(&args.iter().map(OsString::from).collect::<Vec<_>>()).to_string();
    let top = help(&["annie", "--data", "x"]);
    assert!(top.contains("serve ") && top.contains("Examples:") && !top.contains("run-limited"), "{top}");
    let tasks = help(&["annie", "tasks", "--json"]);
    assert!(tasks.contains("Usage: annie tasks") && !tasks.contains("serve "), "{tasks}");
}
