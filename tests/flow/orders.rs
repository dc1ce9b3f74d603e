//! What operators do through the front ends of a real server: the record of their actions, and the orders that they give.

use std::path::Path;

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, Executor, SqliteConnection};

use super::command_line::annie;
use crate::{server::Server, world::eventually};

async fn post(server: &Server, path: &str, body: Value) -> (u16, Value) {
    server.post(path, &body).await.expect("answered")
}

/// Changes the database of a server that does not run, as a person with access to the file can do.
async fn change(data: &Path, sql: &str) -> u64 {
    let url = format!("sqlite://{}", data.join("annie.db").display());
    let mut database = SqliteConnection::connect(&url).await.expect("the database");
    let changed =
        database.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await.expect("changed").rows_affected();
    database.close().await.expect("closed");
    changed
}

async fn incarnation(server: &Server, path: &str) -> u64 {
    let (_, view) = server.get(&format!("/api/v1/actors/view?path={path}")).await;
    view["actor"]["incarnation"].as_u64().expect("it runs")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dangerous_command_needs_a_reason_and_the_incarnation_or_force_and_says_what_it_would_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let server = Server::start(data, &[], &[]).await;
    let before = incarnation(&server, "/scheduler").await;
    for what in ["kill", "restart"] {
        let (code, _, err) = annie(data, &["actors", what, "/scheduler", "--force"], &[]).await;
        assert!(code == 2 && err.contains("--reason"), "{what}: {code} {err}");
        let (code, _, err) = annie(data, &["actors", what, "/scheduler", "--reason", "it hangs"], &[]).await;
        assert!(code == 2 && err.contains(&format!("--incarnation {before}")), "{what}: {code} {err}");
        let (status, problem) = post(
            &server,
            &format!("/api/v1/actors/{what}"),
            json!({"path": "/scheduler", "force": true, "reason": " "}),
        )
        .await;
        assert_eq!((status, &problem["field"]), (400, &json!("reason")), "{problem}");
        let long = json!({"path": "/scheduler", "force": true, "reason": "x".repeat(201)});
        assert_eq!(post(&server, &format!("/api/v1/actors/{what}"), long).await.0, 400);
    }
    let (code, out, err) = annie(data, &["actors", "kill", "/scheduler", "--dry-run"], &[]).await;
    assert!(code == 0 && out.contains("nothing was done") && out.contains("/scheduler"), "{out} {err}");
    let wrong = json!({"path": "/scheduler", "dry_run": true, "incarnation": before + 9});
    assert_eq!(post(&server, "/api/v1/actors/kill", wrong).await.0, 409);
    assert_eq!(incarnation(&server, "/scheduler").await, before, "nothing was done");
    let kill = ["actors", "kill", "/scheduler", "--incarnation", &before.to_string(), "--reason", "it hangs"];
    let (code, out, err) = annie(data, &kill, &[]).await;
    assert!(code == 0 && out.starts_with("killed /scheduler"), "{out} {err}");
    eventually("its next incarnation", async || {
        let (_, view) = server.get("/api/v1/actors/view?path=/scheduler").await;
        view["actor"]["incarnation"].as_u64().filter(|now| *now > before)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn actions_of_operators_survive_a_restart_and_a_changed_one_is_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let mut server = Server::start(data, &[], &[]).await;
    let kill = json!({"path": "/scheduler", "force": true, "reason": "to see who did it"});
    assert_eq!(post(&server, "/api/v1/actors/kill", kill).await.0, 200);
    assert_eq!(post(&server, "/api/v1/actors/stop", json!({"path": "/nowhere", "reason": "gone"})).await.0, 404);
    let release = json!({"holder": "ann"});
    assert_eq!(post(&server, "/api/v1/gate/release", release).await.0, 200);
    server.stop().await;
    let mut server = server.again(data, &[], &[]).await;

    let (_, list) = server.get("/api/v1/actions").await;
    let actions = list["actions"].as_array().expect("a list");
    let of =
        |action: &str| actions.iter().find(|one| one["action"] == action).unwrap_or_else(|| panic!("{action}: {list}"));
    let killed = of("actor.kill");
    assert_eq!(
        (&killed["target"], &killed["reason"], &killed["result"], &killed["channel"]),
        (&json!("/scheduler"), &json!("to see who did it"), &json!("done"), &json!("http"))
    );
    assert!(killed["by"].as_str().is_some_and(|by| by.contains("local")) && killed["node"].is_string(), "{killed}");
    assert!(killed["ended_at"].is_string(), "{killed}");
    assert_eq!((&of("actor.stop")["result"], &of("gate.release")["result"]), (&json!("refused"), &json!("done")));
    assert!(of("actor.stop")["detail"].as_str().is_some_and(|why| why.contains("not_found")), "{list}");

    // Filters, pages and bad input.
    let (_, part) = server.get("/api/v1/actions?under=/scheduler").await;
    assert_eq!(part["actions"].as_array().map(Vec::len), Some(1), "{part}");
    let (_, none) = server.get("/api/v1/actions?under=/sched").await;
    assert_eq!(none["actions"], json!([]), "a path is compared by segments: {none}");
    let (_, later) = server.get("/api/v1/actions?from=2100-01-01T00:00:00Z").await;
    assert_eq!(later["actions"], json!([]));
    let (_, first) = server.get("/api/v1/actions?limit=1").await;
    let next = first["next"].as_str().expect("more");
    let (_, second) = server.get(&format!("/api/v1/actions?limit=1&next={next}")).await;
    assert!(second["actions"][0]["number"].as_u64() < first["actions"][0]["number"].as_u64(), "{first} {second}");
    for wrong in ["from=15:02", "limit=0", "next=x", "colour=red"] {
        assert_eq!(server.get(&format!("/api/v1/actions?{wrong}")).await.0, 400, "{wrong}");
    }
    let (code, out, err) = annie(data, &["actions", "--under", "/scheduler", "--newer-than", "1h"], &[]).await;
    assert!(code == 0 && out.contains("actor.kill") && out.contains("to see who did it"), "{out} {err}");
    let (code, out, err) = annie(data, &["audit", "verify"], &[]).await;
    assert!(code == 0 && out.contains("6 entries of operators' actions were verified"), "{out} {err}");

    // A person with access to the database removes the reason, and later a whole entry.
    server.stop().await;
    let changed = "UPDATE documents SET body = replace(body, 'to see who did it', 'a routine restart') \
                   WHERE namespace = 'operatoracts'";
    assert!(change(data, changed).await > 0);
    let mut server = server.again(data, &[], &[]).await;
    let (code, out, _) = annie(data, &["audit", "verify"], &[]).await;
    assert!(code == 1 && out.contains("entry 1: the entry was changed"), "{out}");
    server.stop().await;
    assert_eq!(change(data, "DELETE FROM documents WHERE namespace = 'operatoracts' AND number = 3").await, 1);
    let server = server.again(data, &[], &[]).await;
    let (_, page) = server.get("/api/v1/actions/verify").await;
    assert!(page["broken"].to_string().contains("missing"), "{page}");
}

async fn state_of(server: &Server, task: &Value) -> String {
    let (_, task) = server.get(&format!("/api/v1/tasks/{}", task.as_str().expect("a task"))).await;
    task["status"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_class_starts_no_round_over_a_restart_and_everything_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let mut server = Server::start(data, &[], &[]).await;
    for wrong in [
        json!({"priority": "realtime", "reason": "x"}),
        json!({"priority": "low", "reason": ""}),
        json!({"priority": "low"}),
        json!({"priority": "lowest", "reason": "x"}),
    ] {
        assert_eq!(post(&server, "/api/v1/classes/pause", wrong.clone()).await.0, 400, "{wrong}");
    }
    let (code, out, err) = annie(data, &["classes", "pause", "low", "--reason", "the GPU", "--dry-run"], &[]).await;
    assert!(code == 0 && out.contains("nothing was done"), "{out} {err}");
    assert_eq!(server.get("/api/v1/orders").await.1["orders"], json!([]));
    let (code, out, err) = annie(data, &["classes", "pause", "low", "--reason", "the GPU is needed"], &[]).await;
    assert!(code == 0 && out.contains("until the class is resumed"), "{out} {err}");

    let (_, sent) = post(&server, "/api/v1/messages", json!({"text": "what time is it?", "priority": "low"})).await;
    let (_, urgent) = post(&server, "/api/v1/messages?wait=20", json!({"text": "what time is it?"})).await;
    assert_eq!(urgent["status"], "completed", "other classes go on: {urgent}");
    server.stop().await;
    let server = server.again(data, &[], &[]).await;
    let task = &sent["task_id"];
    let waiting = eventually("the task waits", async || {
        let (_, queue) = server.get("/api/v1/queue").await;
        let waiting = queue["waiting"].as_array()?.iter().find(|one| one["task_id"] == *task)?.clone();
        assert_eq!(queue["orders"][0]["kind"], "paused_class", "{queue}");
        Some(waiting)
    })
    .await;
    assert!(waiting["why"].as_str().is_some_and(|why| why.contains("class low is paused by")), "{waiting}");
    let (_, status) = server.get("/api/v1/status").await;
    assert!(status["warnings"].to_string().contains("the GPU is needed"), "{status}");
    let (ready, answer) = server.get("/readyz").await;
    assert!(ready == 200 && answer["warnings"].to_string().contains("class low is paused"), "{answer}");
    assert!(!answer.to_string().contains("GPU"), "the route is public: {answer}");
    let (code, out, _) = annie(data, &["status"], &[]).await;
    assert!(code == 0 && out.contains("class low is paused"), "{out}");
    let (code, out, _) = annie(data, &["orders"], &[]).await;
    assert!(code == 0 && out.contains("paused_class") && out.contains("the GPU is needed"), "{out}");
    let metrics = server.http.get(format!("{}/metrics", server.url)).send().await.expect("answered");
    let metrics = metrics.text().await.expect("a text");
    assert!(metrics.contains("annie_class_paused{priority=\"low\"} 1"), "{metrics}");
    assert_ne!(state_of(&server, task).await, "completed");

    let (code, out, err) = annie(data, &["classes", "resume", "low"], &[]).await;
    assert!(code == 0 && out.contains("class low goes on"), "{out} {err}");
    eventually("the task is done", async || (state_of(&server, task).await == "completed").then_some(())).await;
    assert_eq!(post(&server, "/api/v1/classes/resume", json!({"priority": "low"})).await.1, json!({"lifted": false}));
    let (_, status) = server.get("/api/v1/status").await;
    assert!(!status["warnings"].to_string().contains("paused"), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drained_server_accepts_no_message_over_a_restart_until_it_is_undrained() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let mut server = Server::start(data, &[], &[]).await;
    assert_eq!(annie(data, &["drain"], &[]).await.0, 2, "a reason is needed");
    assert_eq!(post(&server, "/api/v1/drain", json!({"reason": ""})).await.0, 400);
    let (code, out, _) = annie(data, &["drain", "--reason", "the disk", "--dry-run"], &[]).await;
    assert!(code == 0 && out.contains("nothing was done"), "{out}");
    assert_eq!(server.get("/readyz").await.0, 200);
    let (code, out, err) = annie(data, &["drain", "--reason", "the disk is replaced"], &[]).await;
    assert!(code == 0 && out.contains("accepts no messages"), "{out} {err}");
    server.stop().await;
    let server = server.again(data, &[], &[]).await;
    let (status, refused) = post(&server, "/api/v1/messages", json!({"text": "hello"})).await;
    assert!(status == 503 && refused.to_string().contains("drained"), "{status} {refused}");
    let (status, ready) = server.get("/readyz").await;
    assert!(status == 503 && ready["problems"].to_string().contains("drained by an operator"), "{ready}");
    assert!(!ready.to_string().contains("disk"), "the route is public: {ready}");
    let (_, shown) = server.get("/api/v1/status").await;
    assert!(shown["warnings"].to_string().contains("the disk is replaced"), "{shown}");
    assert_eq!(post(&server, "/api/v1/undrain", json!({"reason": "x".repeat(201)})).await.0, 400);
    let (code, out, err) = annie(data, &["undrain", "--reason", "done"], &[]).await;
    assert!(code == 0 && out.contains("the server goes on"), "{out} {err}");
    let (_, sent) = post(&server, "/api/v1/messages?wait=20", json!({"text": "what time is it?"})).await;
    assert_eq!(sent["status"], "completed", "{sent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspended_conversation_waits_until_it_is_continued() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let server = Server::start(data, &[], &[]).await;
    let (_, first) = post(&server, "/api/v1/messages?wait=20", json!({"text": "what time is it?"})).await;
    let id = first["conversation_id"].as_str().expect("an id");
    let (code, out, err) = annie(data, &["conversations", "suspend", id, "--reason", "not now"], &[]).await;
    assert!(code == 0 && out.contains("no round of"), "{out} {err}");
    let (_, sent) = post(&server, "/api/v1/messages", json!({"text": "and now?", "conversation_id": id})).await;
    eventually("its message waits for the order", async || {
        let (_, queue) = server.get("/api/v1/queue").await;
        let waiting = queue["waiting"].as_array()?.iter().find(|one| one["task_id"] == sent["task_id"])?.clone();
        waiting["why"].as_str()?.contains("is suspended by").then_some(())
    })
    .await;
    assert_eq!(post(&server, &format!("/api/v1/conversations/{id}/suspend"), json!({"reason": ""})).await.0, 400);
    let unknown = "conv_00000000000070008000000000000000";
    let asked = json!({"reason": "x"});
    assert_eq!(post(&server, &format!("/api/v1/conversations/{unknown}/suspend"), asked).await.0, 404);
    let go_on = format!("/api/v1/conversations/{unknown}/continue");
    assert_eq!(post(&server, &go_on, json!({})).await.0, 404);
    let (code, out, err) = annie(data, &["conversations", "continue", id], &[]).await;
    assert!(code == 0 && out.contains("goes on"), "{out} {err}");
    eventually("its message is answered", async || {
        (state_of(&server, &sent["task_id"]).await == "completed").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversation_in_quarantine_by_a_person_fails_its_messages_over_a_restart_until_it_is_resumed() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let mut server = Server::start(data, &[], &[]).await;
    let (_, first) = post(&server, "/api/v1/messages?wait=20", json!({"text": "what time is it?"})).await;
    let id = first["conversation_id"].as_str().expect("an id").to_owned();
    let path = format!("/api/v1/conversations/{id}/quarantine");
    let (status, problem) = post(&server, &path, json!({"reason": "it floods"})).await;
    assert_eq!((status, &problem["field"]), (400, &json!("force")), "{problem}");
    let (status, tried) = post(&server, &path, json!({"reason": "it floods", "dry_run": true})).await;
    assert_eq!((status, &tried["dry_run"]), (200, &json!(true)), "{tried}");
    let order = ["conversations", "quarantine", &id, "--force", "--reason", "it floods"];
    let (code, out, err) = annie(data, &order, &[]).await;
    assert!(code == 0 && out.contains("fail"), "{out} {err}");
    for round in 0..2 {
        let say = json!({"text": format!("hello {round}"), "conversation_id": id});
        let (_, sent) = post(&server, "/api/v1/messages?wait=20", say).await;
        assert_eq!(sent["status"], "failed", "{sent}");
        assert!(sent.to_string().contains("The operator has put this conversation in quarantine"), "{sent}");
        if round == 0 {
            server.stop().await;
            server = server.again(data, &[], &[]).await;
        }
    }
    let (code, _, err) = annie(data, &["conversations", "resume", &id], &[]).await;
    assert_eq!(code, 0, "{err}");
    let say = json!({"text": "what time is it?", "conversation_id": id});
    let (_, sent) = post(&server, "/api/v1/messages?wait=20", say).await;
    assert_eq!(sent["status"], "completed", "{sent}");
    assert_eq!(server.get("/api/v1/orders").await.1["orders"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn breaker_that_a_person_holds_open_admits_no_call_over_a_restart_until_it_is_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let mut server = Server::start(data, &[], &[]).await;
    assert_eq!(post(&server, "/api/v1/breakers/tasks.create/open", json!({"reason": ""})).await.0, 400);
    let (code, _, err) = annie(data, &["breakers", "open", "tasks.creat", "--reason", "x"], &[]).await;
    assert!(code != 0 && err.contains("tasks.create"), "{err}");
    let (code, out, err) = annie(data, &["breakers", "open", "tasks.create", "--reason", "out of service"], &[]).await;
    assert!(code == 0 && out.contains("no call of tasks.create"), "{out} {err}");
    server.stop().await;
    let server = server.again(data, &[], &[]).await;
    let create = || json!({"text": "create a task to call Bob"});
    let (_, sent) = post(&server, "/api/v1/messages?wait=20", create()).await;
    let id = sent["conversation_id"].as_str().expect("an id");
    let (_, events) = server.get(&format!("/api/v1/conversations/{id}/events?limit=500")).await;
    assert!(events.to_string().contains("breaker_open"), "{events}");
    let (_, list) = server.get("/api/v1/breakers").await;
    let line = list["breakers"].as_array().and_then(|all| all.iter().find(|one| one["skill"] == "tasks.create"));
    let line = line.unwrap_or_else(|| panic!("{list}"));
    assert!(
        line["state"] == "open" && line["held"].as_str().is_some_and(|held| held.contains("out of service")),
        "{line}"
    );
    let (code, _, err) = annie(data, &["breakers", "reset", "tasks.create"], &[]).await;
    assert_eq!(code, 0, "{err}");
    let (_, sent) = post(&server, "/api/v1/messages?wait=20", create()).await;
    let id = sent["conversation_id"].as_str().expect("an id");
    let (_, events) = server.get(&format!("/api/v1/conversations/{id}/events?limit=500")).await;
    assert!(!events.to_string().contains("breaker_open"), "{events}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_level_is_set_while_the_server_runs_and_the_configured_one_returns() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let server = Server::start(data, &[], &[("ANNIE__LOG__LEVEL", "info")]).await;
    for wrong in
        [json!({"level": "loud", "reason": "x"}), json!({"level": "debug"}), json!({"level": "debug", "reason": ""})]
    {
        assert_eq!(post(&server, "/api/v1/log-level", wrong.clone()).await.0, 400, "{wrong}");
    }
    let released = |server: &Server| server.log().iter().filter(|line| line.contains("gate.release")).count();
    let release = async || post(&server, "/api/v1/gate/release", json!({"holder": "ann"})).await.0;
    assert_eq!(release().await, 200);
    eventually("a warning at the configured level", async || (released(&server) == 1).then_some(())).await;
    let (code, out, err) = annie(data, &["log", "level", "error", "--reason", "too many lines"], &[]).await;
    assert!(code == 0 && out.contains("log level error until the next start; configured: info"), "{out} {err}");
    assert_eq!(release().await, 200);
    let (code, out, err) = annie(data, &["log", "level", "", "--reason", "found it"], &[]).await;
    assert!(code == 0 && out.trim() == "log level info", "{out} {err}");
    assert_eq!(release().await, 200);
    eventually("the next warning", async || (released(&server) > 1).then_some(())).await;
    assert_eq!(released(&server), 2, "the action at the level error is no line of the log");
    let (_, shown) = server.get("/api/v1/log-level").await;
    assert_eq!(shown, json!({"level": "info", "configured": "info"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_budget_is_reset_for_a_supervisor_and_an_engine_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let server = Server::start(data, &[], &[]).await;
    let (_, first) = post(&server, "/api/v1/messages?wait=20", json!({"text": "what time is it?"})).await;
    let reset = "/api/v1/actors/reset-budget";
    let (code, out, err) = annie(data, &["actors", "reset-budget", "/infra", "--reason", "mended"], &[]).await;
    assert!(code == 0 && out.contains("10 restarts are left below /infra"), "{out} {err}");
    let engine = format!("/conversations/engine:{}", first["conversation_id"].as_str().expect("an id"));
    let (status, left) = post(&server, reset, json!({"path": engine, "reason": "mended"})).await;
    assert_eq!((status, &left["restarts_left"]), (200, &json!(5)), "{left}");
    let (status, problem) = post(&server, reset, json!({"path": "/scheduler", "reason": "x"})).await;
    assert_eq!((status, &problem["field"]), (400, &json!("path")), "{problem}");
    assert_eq!(post(&server, reset, json!({"path": "/nowhere", "reason": "x"})).await.0, 404);
    assert_eq!(post(&server, reset, json!({"path": "/infra", "reason": ""})).await.0, 400);
    assert_eq!(post(&server, reset, json!({"path": "/infra", "reason": "x", "incarnation": 999_999})).await.0, 409);
}
