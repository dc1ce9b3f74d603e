//! What the command line says to a server about work: each wish arrives, and each list and order has its effect there.

use serde_json::Value;

use super::*;

/// Commands against a server, from a folder of their own.
struct Desk {
    url: String,
    folder: tempfile::TempDir,
}

impl Desk {
    fn at(url: String) -> Self {
        Self { url, folder: tempfile::tempdir().unwrap() }
    }

    /// What it says when all is well.
    async fn says(&self, args: &[&str]) -> String {
        let said = annie(self.folder.path(), &[&["--url", &self.url], args].concat()).await;
        assert_eq!(said.done, Ok(()), "{args:?}: {}", said.err);
        said.out
    }

    async fn json(&self, args: &[&str]) -> Value {
        let out = self.says(&[&["--json"], args].concat()).await;
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{args:?}: {e}: {out}"))
    }

    /// Leaves work to the server; its task.
    async fn leaves(&self, args: &[&str]) -> String {
        let accepted = self.json(&[&["ask", "--detach"], args].concat()).await;
        accepted["task_id"].as_str().expect("a task").to_owned()
    }

    async fn job(&self, task: &str) -> Option<Value> {
        let list = self.json(&["jobs", "list"]).await;
        list["jobs"].as_array().unwrap().iter().find(|job| job["task_id"] == task).cloned()
    }
}

async fn with_desk(then: impl AsyncFnOnce(&Desk)) {
    let data = tempfile::tempdir().unwrap();
    with_server(data.path(), async |url| then(&Desk::at(url)).await).await;
}

#[tokio::test]
async fn every_wish_of_ask_arrives_in_the_log() {
    with_desk(async |desk| {
        let first = desk.leaves(&["--delay", "3600", "hello"]).await;
        let wishes = [
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
        let accepted = desk.json(&[&["ask", "--detach"], &wishes[..]].concat()).await;
        let conversation = accepted["conversation_id"].as_str().unwrap();
        let url = format!("{}/api/v1/conversations/{conversation}/events", desk.url);
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
        assert!(body.get("order").is_none(), "its words are no order: {events}");
    })
    .await;
}

#[tokio::test]
async fn jobs_are_listed_held_back_let_go_on_lifted_and_ended() {
    with_desk(async |desk| {
        let task = desk.leaves(&["--priority", "low", "--delay", "3600", "sum up the day"]).await;
        assert!(desk.says(&["jobs"]).await.contains("sum up the day"));
        assert_eq!(desk.job(&task).await.unwrap()["priority"], "low");
        assert!(desk.says(&["jobs", "priority", &task, "normal"]).await.contains("normal"));
        assert_eq!(desk.job(&task).await.unwrap()["priority"], "normal");
        assert!(desk.says(&["jobs", "pause", "1"]).await.contains("held back"));
        assert_eq!(desk.job(&task).await.unwrap()["status"], "suspended");
        assert!(desk.says(&["jobs", "resume", &task]).await.contains("goes on"));
        assert_ne!(desk.job(&task).await.unwrap()["status"], "suspended");
        assert!(desk.says(&["jobs", "cancel", &task]).await.contains("stopped"));
        assert_eq!(desk.job(&task).await, None);
        assert!(desk.says(&["jobs", "cancel", &task]).await.contains("ended before"));
        let none = annie(desk.folder.path(), &["--url", &desk.url, "jobs", "pause", "7"]).await;
        assert_eq!(none.done.unwrap_err().exit, Exit::NotFound, "{}", none.err);
    })
    .await;
}

#[tokio::test]
async fn the_queue_and_its_gate_are_shown_closed_and_opened() {
    with_desk(async |desk| {
        assert!(desk.says(&["queue"]).await.contains("no task waits"));
        assert!(desk.says(&["gate", "show"]).await.contains("open"));
        let hold = serde_json::json!({"holder": "the command line", "ttl_ms": 60_000});
        let client = annie_llm::http_client().build().unwrap();
        let held = client.post(format!("{}/api/v1/gate/hold", desk.url)).json(&hold).send().await.unwrap();
        assert!(held.status().is_success());
        assert!(desk.says(&["gate", "show"]).await.contains("closed"));
        let task = desk.leaves(&["what is due?"]).await;
        let waits = async || {
            let queue = desk.json(&["queue"]).await;
            queue["waiting"].as_array().unwrap().iter().any(|one| one["task_id"] == task.as_str())
        };
        while !waits().await {
            tokio::task::yield_now().await;
        }
        assert!(desk.says(&["queue"]).await.contains("voice gate closed"));
        let before = desk.json(&["queue"]).await["waiting"].as_array().unwrap().len();
        for _ in 0..2 {
            desk.leaves(&["--name", "daily", "sum up the day"]).await;
        }
        let after = desk.json(&["queue"]).await["waiting"].as_array().unwrap().len();
        assert_eq!(after, before + 1, "equal work of one name is done once");
        assert!(desk.says(&["gate", "release"]).await.contains("is open"));
        assert!(desk.says(&["gate", "release"]).await.contains("not held"));
        while desk.json(&["tasks", "show", &task]).await["status"] != "completed" {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_operation_is_listed_finished_by_its_key_and_then_told() {
    with_desk(async |desk| {
        let asked = desk.says(&["ask", "let me know when the nightly backup is done"]).await;
        let open = desk.json(&["operations", "list", "--open"]).await;
        let Some(id) = open["operations"][0]["id"].as_str() else { panic!("no operation: {asked} {open}") };
        assert!(desk.says(&["operations", "show", id]).await.contains("system.await"));
        let key = desk.json(&["operations", "key", id]).await;
        let file = desk.folder.path().join("operation.key");
        std::fs::write(&file, key["key"].as_str().unwrap()).unwrap();
        let finish = ["operations", "finish", id, "--operation-key-file", file.to_str().unwrap(), "all", "is", "well"];
        assert!(desk.says(&finish).await.contains("it is brought, as task_"));
        assert!(desk.says(&finish).await.contains("brought before"));
        let still = desk.json(&["operations", "list", "--open"]).await;
        assert_eq!(still["operations"], serde_json::json!([]));
        let told = async || desk.json(&["notifications"]).await["notifications"].as_array().unwrap().len();
        while told().await == 0 {
            tokio::task::yield_now().await;
        }
        assert!(desk.says(&["notifications"]).await.contains("  1  "));
    })
    .await;
}

#[tokio::test]
async fn dead_letters_are_listed_shown_tried_again_and_put_aside() {
    let data = tempfile::tempdir().unwrap();
    let nobody = [("OPENAI_BASE_URL", "http://127.0.0.1:1/v1"), ("ANNIE_MODEL", "away"), ("OPENAI_API_KEY", "sk-x")];
    let hasty = [
        ("ANNIE__TURN__DEFER_MS", "5"),
        ("ANNIE__BACKEND__0__RETRIES_MAX", "0"),
        ("ANNIE__BREAKER__FAILURES_MAX", "1000"),
    ];
    with_server_of(data.path(), &[&nobody[..], &hasty[..]].concat(), async |url| {
        let desk = Desk::at(url);
        let failed =
            annie(desk.folder.path(), &["--url", &desk.url, "ask", "--new", "--priority", "normal", "hello"]).await;
        assert_eq!(failed.done.unwrap_err().exit, Exit::Failure, "{}", failed.out);
        let list = desk.json(&["dlq", "list", "--state", "waiting"]).await;
        let task = list["dead_letters"][0]["task_id"].as_str().unwrap_or_else(|| panic!("{list}"));
        assert!(desk.says(&["dlq", "list"]).await.contains(task));
        assert!(desk.says(&["dlq", "show", task]).await.contains("hello"));
        for what in ["show", "retry", "discard"] {
            let foreign = ["--url", &desk.url, "dlq", what, task, "--user", "bob"];
            let refused = annie(desk.folder.path(), &foreign).await.done.unwrap_err();
            assert_eq!(refused.exit, Exit::NotFound, "{what}: it is asked for bob, who has no such letter");
        }
        for what in ["show", "retry", "discard"] {
            let unnamed = ["--url", &desk.url, "dlq", what, task, "--user", "žofie"];
            let refused = annie(desk.folder.path(), &unnamed).await.done.unwrap_err();
            assert!(refused.exit == Exit::Usage && refused.what.contains("žofie"), "{what}: {refused:?}");
        }
        assert!(desk.says(&["dlq", "retry", task]).await.contains("it is tried again, as task_"));
        assert!(desk.says(&["dlq", "retry", task]).await.contains("being tried again already"));
        assert!(desk.says(&["dlq", "discard", task]).await.contains("did not wait"));
        let all = ["dlq", "discard", "--all", "--error", "model_unavailable"];
        let counted = desk.says(&[&all[..], &["--dry-run"]].concat()).await;
        assert!(counted.contains("waiting dead letters match; nothing was done"), "{counted}");
        for text in ["one", "two", "three"] {
            let args = ["--url", &desk.url, "ask", "--new", "--priority", "normal", text];
            assert_eq!(annie(desk.folder.path(), &args).await.done.unwrap_err().exit, Exit::Failure);
        }
        let list =
            annie(desk.folder.path(), &["--url", &desk.url, "dlq", "list", "-n", "1", "--state", "waiting"]).await;
        assert!(list.err.contains("1 of ") && list.err.contains("the rest with --next "), "{}", list.err);
        let unasked = annie(desk.folder.path(), &[&["--url", &desk.url], &all[..]].concat()).await;
        assert_eq!(unasked.done.unwrap_err().exit, Exit::Usage, "no terminal, no --yes: {}", unasked.err);
        let done = desk.says(&[&all[..], &["--yes", "--limit", "2", "--newer-than", "1h"]].concat()).await;
        assert!(done.starts_with("2 of ") && done.contains("put aside"), "{done}");
        let gone = annie(desk.folder.path(), &["--url", &desk.url, "dlq", "list", "--state", "archived"]).await;
        assert!(gone.err.contains("no dead letters"), "{}", gone.err);
    })
    .await;
}

#[test]
fn command_line_without_a_command_gets_the_help_of_what_it_names() {
    let help = |args: &[&str]| help_of(&args.iter().map(OsString::from).collect::<Vec<_>>()).to_string();
    let top = help(&["annie", "--data", "x"]);
    assert!(top.contains("serve ") && top.contains("Examples:") && !top.contains("run-limited"), "{top}");
    let tasks = help(&["annie", "tasks", "--json"]);
    assert!(tasks.contains("Usage: annie tasks") && !tasks.contains("serve "), "{tasks}");
}
