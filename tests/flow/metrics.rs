//! The metrics for operators: the lines of `/metrics` of a real server that has worked.

use std::collections::{BTreeMap, BTreeSet};

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
    let kill = json!({ "path": "/scheduler", "reason": "a test", "force": true });
    assert_eq!(server.post("/api/v1/actors/kill", &kill).await.expect("an answer").0, 200);
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

/// A selection of a query: the name of a metric, and the labels that it compares.
#[derive(Debug, PartialEq, Eq)]
struct Selected {
    name: String,
    labels: Vec<String>,
}

/// The metrics that a query selects, and the labels by which it groups.
fn read_query(query: &str) -> (Vec<Selected>, Vec<String>) {
    const GROUPING: [&str; 2] = ["by", "without"];
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let names_in = |text: &str| -> Vec<String> {
        text.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
    };
    let (mut selected, mut groups, mut rest) = (Vec::new(), Vec::new(), query);
    while let Some(at) = rest.find(|c: char| c.is_ascii_alphabetic() || c == '_') {
        let before = rest[..at].chars().next_back();
        rest = &rest[at..];
        let (word, behind) = rest.split_at(rest.find(|c| !is_part(c)).unwrap_or(rest.len()));
        let next = behind.trim_start();
        rest = behind;
        if GROUPING.contains(&word) && next.starts_with('(') {
            let (list, behind) = next[1..].split_once(')').expect("a closed list of labels");
            groups.extend(names_in(list));
            rest = behind;
        } else if let Some(matchers) = next.strip_prefix('{') {
            let (list, behind) = matchers.split_once('}').expect("closed matchers");
            let label = |matcher: &str| matcher.trim().split(['=', '!', '~']).next().map(str::to_owned);
            selected.push(Selected { name: word.to_owned(), labels: list.split(',').filter_map(label).collect() });
            rest = behind;
        } else if !next.starts_with('(') && word.starts_with("annie_") && before != Some('$') {
            selected.push(Selected { name: word.to_owned(), labels: Vec::new() });
        }
    }
    (selected, groups)
}

/// The labels of each exposed series, by the name of the series.
fn exposed(samples: &BTreeMap<String, f64>) -> BTreeMap<String, BTreeSet<String>> {
    let mut labels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for key in samples.keys() {
        let (name, own) = key.split_once('{').unwrap_or((key, ""));
        let names = own.trim_end_matches('}').split("\",").filter_map(|label| label.split('=').next());
        let names = names.filter(|label| !label.is_empty()).map(str::to_owned);
        labels.entry(name.to_owned()).or_default().extend(names);
    }
    labels
}

/// Every query of a dashboard, with the title of its panel and the labels in its legend.
fn queries(dashboard: &serde_json::Value) -> Vec<(String, String, Vec<String>)> {
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.flat_map(|panel| {
        let title = panel["title"].as_str().expect("a title").to_owned();
        panel["targets"].as_array().into_iter().flatten().map(move |target| (title.clone(), target))
    });
    let legend_labels = |legend: &str| {
        legend.split("{{").skip(1).filter_map(|part| part.split("}}").next().map(|l| l.trim().to_owned())).collect()
    };
    let one = |(title, target): (String, &serde_json::Value)| {
        let text = |key: &str| target[key].as_str().unwrap_or_default().to_owned();
        (title, text("expr"), legend_labels(&text("legendFormat")))
    };
    targets.map(one).collect()
}

#[test]
fn query_reader_finds_metrics_labels_and_groups() {
    let query = "histogram_quantile(0.99, sum by (le, kind) (rate(annie_a_bucket{kind!=\"x\",instance=~\"$i\"}[5m]))) / annie_b > 0";
    let (selected, groups) = read_query(query);
    let of = |name: &str, labels: &[&str]| Selected {
        name: name.to_owned(),
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
    };
    assert_eq!(selected, [of("annie_a_bucket", &["kind", "instance"]), of("annie_b", &[])]);
    assert_eq!(groups, ["le", "kind"]);
}

/// A server that has done what the panels of the dashboard show.
async fn used_server(folder: &std::path::Path) -> Server {
    let collector = FakeModelServer::start(|_| Reply::body(200, "{}")).await;
    let endpoint = collector.base_url().trim_end_matches("/v1").to_owned();
    let settings = [("ANNIE__TELEMETRY__OTLP_ENDPOINT", endpoint.as_str()), ("ANNIE__TELEMETRY__DELAY_MS", "1")];
    let server = Server::start(folder, &[], &settings).await;
    let (status, sent) = say(&server, json!({ "text": "create a task to call Bob" })).await;
    assert_eq!((status, &sent["status"]), (200, &json!("completed")), "{sent}");
    let gate = json!({ "holder": "ann", "ttl_ms": 60_000 });
    assert_eq!(server.post("/api/v1/gate/hold", &gate).await.expect("an answer").0, 200);
    assert_eq!(server.post("/api/v1/gate/release", &json!({ "holder": "ann" })).await.expect("an answer").0, 200);
    let kill = json!({ "path": "/scheduler", "reason": "a test", "force": true });
    assert_eq!(server.post("/api/v1/actors/kill", &kill).await.expect("an answer").0, 200);
    eventually("all of it is counted", async || {
        let now = samples(&server).await;
        let is_sent = sum(&now, "annie_telemetry_spans_total").is_some_and(|spans| spans > 0.0);
        (is_sent && sum(&now, "annie_actor_restarts_total").is_some()).then_some(())
    })
    .await;
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_of_the_dashboard_are_exposed_with_their_labels() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/grafana/annie.json"));
    let dashboard: serde_json::Value = serde_json::from_str(&text.expect("the dashboard")).expect("JSON");
    let folder = tempfile::tempdir().expect("a folder");
    let server = used_server(folder.path()).await;
    let exposed = exposed(&samples(&server).await);
    // Prometheus adds these to each series that it scrapes.
    let known = |name: &str, label: &str| {
        ["instance", "job"].contains(&label) || exposed.get(name).is_some_and(|labels| labels.contains(label))
    };
    let queries = queries(&dashboard);
    let mut wrong = Vec::new();
    for (title, query, legend) in &queries {
        let (selected, groups) = read_query(query);
        if selected.is_empty() {
            wrong.push(format!("{title}: no metric in {query}"));
        }
        for Selected { name, labels } in &selected {
            if !exposed.contains_key(name) {
                wrong.push(format!("{title}: {name} is not exposed"));
            }
            let unknown = labels.iter().chain(&groups).filter(|label| !known(name, label));
            wrong.extend(unknown.map(|label| format!("{title}: {name} has no label {label}")));
        }
        let kept = |label: &&String| groups.contains(label) || (groups.is_empty() && label.as_str() == "instance");
        wrong.extend(legend.iter().filter(|l| !kept(l)).map(|label| format!("{title}: the legend's {label} is lost")));
    }
    assert!(queries.len() > 40 && wrong.is_empty(), "{wrong:#?}");
    assert_loads(&dashboard);
}

/// What Grafana needs to load a dashboard: ids that are unique, panels that do not overlap, and the data source of the variable.
fn assert_loads(dashboard: &serde_json::Value) {
    assert_eq!(dashboard["schemaVersion"], 39, "the schema of Grafana 11");
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let kinds: Vec<&str> = variables.iter().filter_map(|variable| variable["type"].as_str()).collect();
    assert_eq!((kinds, &variables[0]["name"]), (vec!["datasource", "query"], &json!("datasource")));
    let source = json!({ "type": "prometheus", "uid": "${datasource}" });
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().expect("panels") {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "an id is used twice: {panel}");
        let place = |key: &str| panel["gridPos"][key].as_u64().expect("a place");
        assert!(place("x") + place("w") <= 24, "{panel}");
        for cell in (0..place("w")).flat_map(|x| (0..place("h")).map(move |y| (x, y))) {
            assert!(cells.insert((place("x") + cell.0, place("y") + cell.1)), "panels overlap: {panel}");
        }
        let targets = panel["targets"].as_array();
        assert!(panel["type"] == "row" || (panel["datasource"] == source && targets.is_some()), "{panel}");
        for target in targets.into_iter().flatten() {
            assert_eq!(target["datasource"], source, "{target}");
        }
    }
}
