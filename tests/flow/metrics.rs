//! The metrics for operators: the lines of `/metrics` of a real server that has worked.

use std::collections::BTreeMap;

use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::json;

use super::bad_models::{ask, server_with};
use crate::{server::Server, world::eventually};

/// Every sample by its name with labels.
async fn samples(server: &Server) -> BTreeMap<String, f64> {
    let answer = server.http.get(format!("{}/metrics", server.url)).send().await.expect("an answer");
    let text = answer.text().await.expect("text");
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect()
}

/// The sum of all samples of a name over all labels.
fn sum(samples: &BTreeMap<String, f64>, name: &str) -> Option<f64> {
    let of = |key: &&String| key.as_str() == name || key.starts_with(&format!("{name}{{"));
    let found: Vec<f64> = samples.iter().filter(|(key, _)| of(key)).map(|(_, value)| *value).collect();
    (!found.is_empty()).then(|| found.iter().sum())
}

async fn say(server: &Server, body: serde_json::Value) -> (u16, serde_json::Value) {
    server.post("/api/v1/messages?wait=20", &body).await.expect("an answer")
}

#[tokio::test]
async fn metrics_of_a_fresh_server_have_help_zeros_and_process_values() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &[], &[]).await;
    let fresh = samples(&server).await;
    for name in [
        "annie_conversations_quarantined_total",
        "annie_actors_stuck_total{kind=\"engine\"}",
        "annie_actors_stuck_total{kind=\"scheduler\"}",
        "annie_api_panics_total",
        "annie_tasks_refused_total{priority=\"high\"}",
        "annie_llm_requests_total{backend=\"offline\",outcome=\"auth\"}",
    ] {
        assert_eq!(fresh.get(name), Some(&0.0), "{name}: {fresh:#?}");
    }
    assert_eq!(fresh.get("annie_backend_up{backend=\"offline\"}"), Some(&1.0));
    for (name, wanted) in [
        ("annie_actors_alive{kind=\"engine\"}", 0.0),
        ("annie_actors_alive{kind=\"sub_agent\"}", 0.0),
        ("annie_actors_alive{kind=\"breaker\"}", 0.0),
        ("annie_actors_alive{kind=\"scheduler\"}", 1.0),
        ("annie_conversations_in_memory", 0.0),
    ] {
        assert_eq!(fresh.get(name), Some(&wanted), "{name}: {fresh:#?}");
    }
    for (name, more_than) in [
        ("process_cpu_seconds_total", -1.0),
        ("process_max_fds", -1.0),
        ("process_open_fds", 3.0),
        ("process_resident_memory_bytes", 1e6),
        ("process_start_time_seconds", 1e9),
        ("process_threads", 1.0),
        ("process_virtual_memory_bytes", 1e6),
        ("process_virtual_memory_max_bytes", -1.0),
    ] {
        assert!(fresh.get(name).is_some_and(|value| *value > more_than), "{name}: {fresh:#?}");
    }
    let sent = server.http.get(format!("{}/metrics", server.url)).send().await.expect("an answer");
    let text = sent.text().await.expect("text");
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    for family in families {
        assert!(text.contains(&format!("# HELP {family} ")), "{family} has no help");
    }
}

#[tokio::test]
async fn metrics_count_actors_by_kind_and_conversations_in_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &[], &[("ANNIE__LIMITS__PASSIVATE_AFTER_MS", "100")]).await;
    let hold = json!({ "holder": "ann", "ttl_ms": 60_000 });
    assert_eq!(server.post("/api/v1/gate/hold", &hold).await.expect("an answer").0, 200);
    for key in ["a", "b"] {
        let body = json!({ "text": "what is due?", "conversation_key": key });
        assert_eq!(server.post("/api/v1/messages", &body).await.expect("an answer").0, 202);
    }
    let counted = async |wanted: f64| {
        eventually("so many conversations are in memory", async || {
            let now = samples(&server).await;
            let both =
                ["annie_actors_alive{kind=\"engine\"}", "annie_conversations_in_memory"].map(|name| now.get(name));
            (both == [Some(&wanted); 2]).then_some(())
        })
        .await;
    };
    counted(2.0).await;
    assert_eq!(server.post("/api/v1/gate/release", &json!({ "holder": "ann" })).await.expect("an answer").0, 200);
    counted(0.0).await;
}

#[tokio::test]
async fn metrics_of_a_used_server_count_its_work() {
    let folder = tempfile::tempdir().expect("a folder");
    let few = [("ANNIE__QUEUE__DEPTH_PER_USER__LOW_MAX", "1"), ("ANNIE__NOTIFY__GATHER_MS", "1")];
    let server = Server::start(folder.path(), &[], &few).await;
    for text in ["create a task to call Bob", "what is due?"] {
        let (status, sent) = say(&server, json!({ "text": text })).await;
        assert_eq!((status, &sent["status"]), (200, &json!("completed")), "{sent}");
    }
    let gate = json!({ "holder": "ann", "ttl_ms": 60_000 });
    assert_eq!(server.post("/api/v1/gate/hold", &gate).await.expect("an answer").0, 200);
    let low = |n: u32| json!({ "text": format!("sum up day {n}"), "priority": "low" });
    let (_, first) = server.post("/api/v1/messages", &low(1)).await.expect("an answer");
    eventually("the task waits", async || {
        (samples(&server).await.get("annie_queue_depth{priority=\"low\"}") == Some(&1.0)).then_some(())
    })
    .await;
    assert_eq!(server.post("/api/v1/messages", &low(2)).await.expect("an answer").0, 429);
    assert_eq!(server.post("/api/v1/gate/release", &json!({ "holder": "ann" })).await.expect("an answer").0, 200);
    assert_eq!(server.post("/api/v1/actors/kill", &json!({ "path": "/scheduler" })).await.expect("an answer").0, 200);
    let task = first["task_id"].as_str().expect("a task").to_owned();
    eventually("the background task ends", async || {
        (server.get(&format!("/api/v1/tasks/{task}")).await.1["status"] == "completed").then_some(())
    })
    .await;
    let counted = eventually("all work is counted", async || {
        let now = samples(&server).await;
        sum(&now, "annie_notifications_total").filter(|count| *count >= 1.0).map(|_| now)
    })
    .await;
    for (name, least) in [
        ("annie_build_info", 1.0),
        ("annie_messages_total", 3.0),
        ("annie_tasks_refused_total", 1.0),
        ("annie_queue_wait_seconds_count", 3.0),
        ("annie_voice_gate_closed_seconds_count", 1.0),
        ("annie_llm_requests_total", 3.0),
        ("annie_llm_request_seconds_count", 3.0),
        ("annie_skill_runs_total", 2.0),
        ("annie_log_appends_total", 3.0),
        ("annie_log_commits_total", 3.0),
        ("annie_log_commit_seconds_count", 3.0),
        ("annie_actor_restarts_total", 1.0),
        ("annie_operations_total", 1.0),
        ("annie_notifications_total", 1.0),
        ("annie_request_seconds_count", 5.0),
    ] {
        assert!(sum(&counted, name).is_some_and(|n| n >= least), "{name} >= {least}: {counted:#?}");
    }
    assert_eq!(counted.get("annie_queue_depth{priority=\"low\"}"), Some(&0.0));
    assert_eq!(sum(&counted, "annie_backend_up"), Some(1.0));
    let (_, dump) = (0, counted.keys().cloned().collect::<String>());
    assert!(!dump.contains("call Bob") && !dump.contains("task_"), "no label holds a text or a task");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_count_cached_tokens_apart_from_other_input_tokens() {
    let usage = json!({
        "prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105, "prompt_tokens_details": {"cached_tokens": 60},
    });
    let model = FakeModelServer::queue([Reply::says("Hello Ann!").usage(usage)]).await;
    let (_folder, server) = server_with(&model, "mode = \"single_loop\"").await;
    let sent = ask(&server, "hello").await;
    assert_eq!((&sent["answer"], model.request_count()), (&json!("Hello Ann!"), 1), "{sent}");
    let counted = samples(&server).await;
    for (kind, tokens) in [("input", 40.0), ("cached", 60.0), ("cache_written", 0.0), ("output", 5.0)] {
        let name = format!("annie_llm_tokens_total{{type=\"{kind}\"}}");
        assert_eq!(counted.get(&name), Some(&tokens), "{name}: {counted:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_show_backend_down_after_a_failed_round_and_up_after_an_answered_one() {
    let model = FakeModelServer::start(|seen| match seen.last_user_text().contains("and now?") {
        true => Reply::says("Fine."),
        false => Reply::error(500, "out of order"),
    })
    .await;
    let (_folder, server) = server_with(&model, "").await;
    let shows = async |wanted: f64, state: &str| {
        eventually(state, async || {
            (samples(&server).await.get("annie_backend_up{backend=\"fake\"}") == Some(&wanted)).then_some(())
        })
        .await;
    };
    shows(1.0, "the backend is up at the start").await;
    let sent = ask(&server, "hello").await;
    assert_eq!((&sent["status"], &sent["error"]), (&json!("failed"), &json!("model_unavailable")), "{sent}");
    shows(0.0, "the backend is down after a failed round").await;
    let sent = ask(&server, "and now?").await;
    assert_eq!(sent["answer"], "Fine.", "{sent}");
    shows(1.0, "the backend is up after an answered round").await;
}
