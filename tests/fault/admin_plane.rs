//! The admin plane of a server of which every worker thread is blocked: operators see the tree and the actor that blocks it, and
//! kill it. Messages that were accepted before are answered afterwards.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{server::Server, world::eventually};

/// How long the only worker is blocked, in milliseconds.
const BLOCK_MS: &str = "20000";
/// How long a server that works needs at most for an answer.
const AT_ONCE: Duration = Duration::from_millis(1_500);

fn annie(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_annie"))
        .args(["--data".as_ref(), folder.as_os_str()])
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", folder)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code().unwrap_or(-1), text(&out.stdout), text(&out.stderr))
}

fn admin_url(folder: &Path) -> Option<String> {
    let text = std::fs::read(folder.join("server.json")).expect("the address of the server");
    serde_json::from_slice::<Value>(&text).expect("JSON")["admin_url"].as_str().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_plane_answers_and_kills_while_every_worker_thread_is_blocked() {
    let folder = tempfile::tempdir().expect("a folder");
    let env = [("TOKIO_WORKER_THREADS", "1"), ("ANNIE__CHAOS__ENABLED", "true")];
    let server = Server::start(folder.path(), &[], &env).await;
    let admin = admin_url(folder.path()).expect("there is an admin plane");
    let get = async |url: &str, path: &str| {
        let asked = server.http.get(format!("{url}{path}")).timeout(AT_ONCE).send().await.ok()?;
        asked.text().await.ok()
    };
    assert!(get(&admin, "/api/v1/actors").await.is_some_and(|tree| tree.contains("/scheduler")));
    let block =
        ["chaos", "inject", "actor", "block", "--at", "engine", "--point", "before:*", "--wait-ms", BLOCK_MS, "--once"];
    let (code, out, err) = annie(folder.path(), &block);
    assert_eq!(code, 0, "{out} {err}");
    // The answer to this request may come only when the worker is free again.
    let (url, http) = (format!("{}/api/v1/messages", server.url), server.http.clone());
    let mut sent = tokio::task::JoinSet::new();
    sent.spawn(async move { http.post(url).json(&json!({"text": "what is due?"})).send().await });
    eventually("no worker answers", async || get(&server.url, "/healthz").await.is_none().then_some(())).await;

    let tree: Value = serde_json::from_str(&get(&admin, "/api/v1/actors").await.expect("the tree")).expect("JSON");
    assert!(tree.to_string().contains("engine:"), "{tree}");
    eventually("the metrics of the admin plane show it", async || {
        let metrics = get(&admin, "/metrics").await?;
        let line = metrics.lines().find(|line| line.starts_with("annie_workers_blocked_seconds "))?;
        line.rsplit(' ').next()?.parse::<f64>().ok().filter(|blocked_s| *blocked_s >= 3.0)
    })
    .await;
    let (code, out, err) = annie(folder.path(), &["actors", "tree"]);
    assert!(code == 0 && out.contains("scheduler") && err.contains("its admin plane does"), "{out} {err}");
    let (code, out, err) = annie(folder.path(), &["actors", "kill", "/scheduler", "--force", "--reason", "a test"]);
    assert_eq!(code, 0, "{out} {err}");
    assert!(get(&server.url, "/healthz").await.is_none(), "the worker was blocked all the time");

    let answer = sent
        .join_next()
        .await
        .expect("a request")
        .expect("it ends")
        .expect("an answer")
        .json::<Value>()
        .await
        .expect("JSON");
    let task = answer["task_id"].as_str().expect("a task").to_owned();
    eventually("the message is answered", async || {
        let (_, row) = server.get(&format!("/api/v1/tasks/{task}")).await;
        (row["status"] == "completed").then_some(())
    })
    .await;
    eventually("the log says that they were blocked and work again", async || {
        let log = server.log().join("\n");
        (log.contains("all worker threads are blocked") && log.contains("the worker threads work again")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_plane_needs_the_same_keys_is_off_if_configured_and_its_address_is_checked() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &[], &[]).await;
    let admin = admin_url(folder.path()).expect("there is an admin plane");
    let status = async |url: &str| {
        let asked = server.http.get(format!("{url}/api/v1/actors")).timeout(Duration::from_secs(20)).send().await;
        asked.expect("it answers").status().as_u16()
    };
    assert_eq!(status(&admin).await, 200);
    let (code, _, err) = annie(folder.path(), &["key", "create", "ops", "--scope", "admin"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!((status(&admin).await, status(&server.url).await), (401, 401));
    drop(server);

    let folder = tempfile::tempdir().expect("a folder");
    let _server = Server::start(folder.path(), &[], &[("ANNIE__SERVER__ADMIN_BIND", "off")]).await;
    assert_eq!(admin_url(folder.path()), None);
    let wrong = tempfile::tempdir().expect("a folder");
    std::fs::write(wrong.path().join("annie.toml"), "[server]\nadmin_bind = \"nowhere\"\n").expect("written");
    let config = wrong.path().join("annie.toml");
    let (code, _, err) = annie(wrong.path(), &["--config", config.to_str().expect("a path"), "serve"]);
    assert!(code != 0 && err.contains("admin_bind") && err.contains("nowhere") && err.contains("`off`"), "{err}");
    std::fs::write(&config, "[server]\nbind = \"127.0.0.1:0\"\nadmin_bind = \"0.0.0.0:0\"\n").expect("written");
    let (code, _, err) = annie(wrong.path(), &["--config", config.to_str().expect("a path"), "serve"]);
    assert!(code == 2 && err.contains("reached from other machines and there is no key"), "{code} {err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_plane_of_a_process_that_is_gone_is_not_used_although_another_server_answers_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut gone = Server::start(folder.path(), &[], &[]).await;
    gone.kill();
    let other_folder = tempfile::tempdir().expect("a folder");
    let _other = Server::start(other_folder.path(), &[], &[]).await;
    let file = folder.path().join("server.json");
    let mut address: Value = serde_json::from_slice(&std::fs::read(&file).expect("read")).expect("JSON");
    address["admin_url"] = json!(admin_url(other_folder.path()).expect("there is an admin plane"));
    std::fs::write(&file, address.to_string()).expect("written");
    let (code, out, err) = annie(folder.path(), &["actors", "tree"]);
    assert!(code == 5 && err.contains("no server runs"), "{code} {out} {err}");
}
