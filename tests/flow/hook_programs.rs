//! Programs that decide before a turn or a skill, started by the real binary through its configuration.

use std::path::Path;

use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::{Value, json};

use super::bad_models::{ask, server_with};
use crate::server::Server;

/// Writes every question to a file, then decides by what it contains.
const SCRIPT: &str = r#"question=$(cat)
printf '%s\n' "$question" >> QUESTIONS
case "$question" in
    *before_turn*secret*) echo '{"do": "refuse", "text": "Secrets stay with you."}' ;;
    *before_turn*) ;;
    *weekly-review*) echo 'No reviews today.' >&2; exit 2 ;;
    *milk*) echo '{"do": "replace", "arguments": {"title": "oat milk"}}' ;;
    *rum*) echo 'Not for children.' >&2; exit 2 ;;
    *slow*) sleep 30 ;;
    *flood*) printf '{"do": "continue"%20000s}' '' ;;
    *) echo 'half an ans'; exit 7 ;;
esac
"#;

/// The configuration of a program that decides at a point, with further keys.
fn hook(folder: &Path, name: &str, point: &str, more: &str) -> String {
    let file = folder.join("decide");
    let script = SCRIPT.replace("QUESTIONS", &folder.join("questions").to_string_lossy());
    std::fs::write(&file, script).expect("written");
    format!(
        "[[hook]]\nname = \"{name}\"\npoint = \"{point}\"\nkind = \"program\"\nprogram = \"/bin/sh\"\nargs = [{file:?}]\n{more}\n"
    )
}

fn questions(folder: &Path) -> Vec<Value> {
    let lines = std::fs::read_to_string(folder.join("questions")).unwrap_or_default();
    lines.lines().map(|line| serde_json::from_str(line).expect("each question is one line of JSON")).collect()
}

/// A model that creates a task with the title that the user says, and then ends.
async fn creator() -> FakeModelServer {
    FakeModelServer::start(|seen| {
        let last = seen.messages().last().cloned().unwrap_or_default();
        if last["role"] == "user" {
            let said = last["content"].to_string();
            let title = ["rum", "slow", "bread", "milk", "flood"]
                .into_iter()
                .find(|title| said.contains(&format!("buy {title}")));
            match title {
                Some(title) => {
                    Reply::calls([("use_skill", json!({"skill": "tasks.create", "arguments": {"title": title}}))])
                }
                None => Reply::says("Fine."),
            }
        } else {
            Reply::says("So be it.")
        }
    })
    .await
}

/// The last message that the model saw.
fn last_seen(model: &FakeModelServer) -> String {
    let seen = model.requests().last().expect("a request").messages().last().cloned().unwrap_or_default();
    seen["content"].as_str().unwrap_or_default().to_owned()
}

async fn metrics(server: &Server) -> String {
    let metrics = server.http.get(format!("{}/metrics", server.url)).send().await.expect("an answer");
    metrics.text().await.expect("text")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hook_program_replaces_arguments_or_refuses_by_its_exit_code() {
    let (work, model) = (tempfile::tempdir().expect("a folder"), creator().await);
    let when = "when = { skills = [\"tasks.*\"] }";
    let config = format!("mode = \"single_loop\"\n{}", hook(work.path(), "family", "before_skill", when));
    let (_folder, server) = server_with(&model, &config).await;
    let sent = ask(&server, "Remind me to buy milk").await;
    let seen = last_seen(&model);
    assert!(
        seen.contains("oat milk") && seen.contains("[changed] The rule \"family\" changed the arguments"),
        "{seen}"
    );
    let question = questions(work.path()).remove(0);
    assert_eq!(
        (&question["v"], &question["point"], &question["skill"], &question["arguments"]["title"], &question["agent"]),
        (&json!(1), &json!("before_skill"), &json!("tasks.create"), &json!("milk"), &json!("orchestrator")),
        "{question}"
    );
    ask(&server, "Remind me to buy rum").await;
    let seen = last_seen(&model);
    assert_eq!(
        seen,
        "[refused] The rule \"family\" does not allow tasks.create here: Not for children. Do not try it again; tell the user."
    );
    let conversation = sent["conversation_id"].as_str().expect("a conversation");
    let (_, log) = server.get(&format!("/api/v1/conversations/{conversation}/events")).await;
    let events = log["events"].as_array().expect("events");
    let decided: Vec<&Value> = events.iter().filter(|event| event["component"] == "hook family").collect();
    assert_eq!(decided.len(), 2, "{log}");
    assert_eq!(decided[0]["hook"]["arguments"], json!({"title": "oat milk"}), "{log}");
    assert_eq!(
        (&decided[1]["decision"], &decided[1]["reasoning"]),
        (&json!("refuse tasks.create"), &json!("Not for children."))
    );
    let judged = events.iter().filter(|event| event["judged"]["hooks"][0]["hooks"] == json!(["family"])).count();
    assert_eq!(judged, 2, "the replies name the hook for which their calls wait: {log}");
    let metrics = metrics(&server).await;
    for verdict in ["replace", "refuse"] {
        let line = "annie_hook_verdicts_total{hook=\"family\",point=\"before_skill\",verdict=\"VERDICT\"} 1";
        assert!(metrics.contains(&line.replace("VERDICT", verdict)), "{verdict}: {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hook_program_that_fails_or_is_late_refuses_or_lets_through_as_configured() {
    for (on_failure, is_created) in [("refuse", false), ("continue", true)] {
        let (work, model) = (tempfile::tempdir().expect("a folder"), creator().await);
        let more =
            format!("on_failure = \"{on_failure}\"\nanswer_ms_max = 1000\nwhen = {{ skills = [\"tasks.create\"] }}");
        let config = format!("mode = \"single_loop\"\n{}", hook(work.path(), "flaky", "before_skill", &more));
        let (_folder, server) = server_with(&model, &config).await;
        for title in ["bread", "slow", "flood"] {
            ask(&server, &format!("Remind me to buy {title}")).await;
            let seen = last_seen(&model);
            assert_eq!(seen.starts_with("[refused]"), !is_created, "{title}: {seen}");
            assert_eq!(seen.contains("Created task"), is_created, "{title}: {seen}");
        }
        let metrics = metrics(&server).await;
        assert!(metrics.contains("annie_hook_failures_total{hook=\"flaky\"} 3"), "{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hook_program_decides_before_a_turn_and_for_slash_name() {
    let (work, model) = (tempfile::tempdir().expect("a folder"), creator().await);
    let config = [
        hook(work.path(), "private", "before_turn", ""),
        hook(work.path(), "reviews", "before_skill", "when = { skills = [\"weekly-review\"] }"),
    ];
    let (_folder, server) = server_with(&model, &format!("mode = \"single_loop\"\n{}", config.concat())).await;
    let sent = ask(&server, "Here is my secret").await;
    assert_eq!((&sent["answer"], &sent["outcome"]), (&json!("Secrets stay with you."), &json!("declined")), "{sent}");
    let sent = ask(&server, "/weekly-review").await;
    assert_eq!(sent["answer"], "No reviews today.", "{sent}");
    assert_eq!(model.request_count(), 0, "no round began");
    assert_eq!(ask(&server, "hello").await["answer"], "Fine.");
    let points: Vec<Value> = questions(work.path()).iter().map(|question| question["point"].clone()).collect();
    assert_eq!(points, ["before_turn", "before_turn", "before_skill", "before_turn"]);
    let text = "annie_hook_verdicts_total{hook=\"private\",point=\"before_turn\",verdict=\"refuse\"} 1";
    let metrics = metrics(&server).await;
    assert!(metrics.contains(text), "{metrics}");
}
