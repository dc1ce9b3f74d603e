//! The program as scripts use it: exit codes, and what goes to stdout and to stderr.

use std::{
    path::Path,
    process::{Output, Stdio},
};

use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::json;

use super::bad_models::server_with;
use crate::{server::Server, world::eventually};

fn command(data: &Path, arguments: &[&str], env: &[(&str, &str)]) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_annie"));
    command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", data);
    command.envs(env.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.kill_on_drop(true);
    command
}

pub(super) async fn annie(data: &Path, arguments: &[&str], env: &[(&str, &str)]) -> (i32, String, String) {
    let data_flag = ["--data", data.to_str().expect("a path")];
    let done = command(data, &[&data_flag[..], arguments].concat(), env).output().await.expect("the binary starts");
    sent(done)
}

fn sent(done: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (done.status.code().expect("an exit code"), text(done.stdout), text(done.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ask_exit_code_shows_the_result_of_the_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let key_file = data.join("key");
    let unknown = "conv_01980000000070008000000000000000";
    for (arguments, wanted, wanted_text) in [
        (&["ask", "create a task to call Bob"][..], 0, "Call Bob"),
        (&["ask", "what is due?"], 0, ""),
        (&["ask", "gibberish"], 6, "not done"),
        (&["ask", "delete it"], 6, "not done"),
        (&["ask", "  "], 2, "error:"),
        (&["ask", "--priority", "soon", "x"], 2, "invalid value"),
        (&["ask", "--conversation", unknown, "x"], 3, "error:"),
        (&["--url", "http://127.0.0.1:1", "ask", "x"], 5, "error:"),
        (&["ask", "--detach", "x"], 5, "annie serve"),
    ] {
        let (code, out, err) = annie(data, arguments, &[]).await;
        assert_eq!(code, wanted, "{arguments:?}: {out} {err}");
        assert!(out.contains(wanted_text) || err.contains(wanted_text), "{arguments:?}: {out} {err}");
    }
    let made = annie(data, &["key", "create", "laptop", "--out", key_file.to_str().expect("a path")], &[]).await;
    assert_eq!(made.0, 0, "{}", made.2);
    let server = Server::start(data, &[], &[]).await;
    let (code, _, err) = annie(data, &["ask", "what is due?"], &[]).await;
    assert_eq!(code, 4, "{err}");
    let keyed = ["--key-file", key_file.to_str().expect("a path"), "ask", "what is due?"];
    assert_eq!(annie(data, &keyed, &[]).await.0, 0, "the same over a server");
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ask_exits_1_when_the_turn_fails_and_130_when_it_is_cancelled_or_interrupted() {
    let model = FakeModelServer::start(|seen| match seen.last_user_text().contains("fail") {
        true => Reply::error(400, "no"),
        false => Reply::says("Never.").stall_after_events(0),
    })
    .await;
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("annie.toml");
    let text =
        format!("[[backend]]\nname = \"gpu\"\nbase_url = {:?}\nmodel = \"m\"\nretries_max = 0\n", model.base_url());
    std::fs::write(&config, text).expect("written");
    let server = Server::start(folder.path(), &["--config", config.to_str().expect("a path")], &[]).await;
    let elsewhere = tempfile::tempdir().expect("a folder");
    let (code, out, err) = annie(elsewhere.path(), &["--url", &server.url, "ask", "fail"], &[]).await;
    assert!(code == 1 && !out.is_empty() && err.contains("the turn failed"), "{code} {out} {err}");

    let waiting = |text: &'static str| {
        let url = server.url.clone();
        command(elsewhere.path(), &["--url", &url, "--json", "ask", "--new", text], &[]).spawn().expect("it starts")
    };
    let running_task = async |title: &str| {
        eventually("the task runs", async || {
            let (_, tasks) = server.get("/api/v1/tasks?open=true").await;
            let list = tasks["tasks"].as_array()?.clone();
            let task = list.into_iter().find(|task| task["title"] == title && task["status"] == "running")?;
            Some(task["id"].as_str()?.to_owned())
        })
        .await
    };
    let cancelled = waiting("wait for one");
    let task = running_task("wait for one").await;
    let (status, done) = server.post(&format!("/api/v1/tasks/{task}/cancel"), &json!({})).await.expect("answered");
    assert_eq!((status, &done["cancelled"]), (200, &json!(true)));
    let (code, out, _) = sent(cancelled.wait_with_output().await.expect("the program ends"));
    assert!(code == 130 && out.contains("cancelled"), "{code} {out}");

    let pressed = waiting("wait for two");
    running_task("wait for two").await;
    let id = i32::try_from(pressed.id().expect("the program runs"))
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .expect("an id");
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("the program runs");
    assert_eq!(sent(pressed.wait_with_output().await.expect("the program ends")).0, 130);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ask_exits_6_when_the_answer_is_cut_off_twice_by_the_length_limit() {
    let cut = |text: &str| Reply::says(text).finish("length");
    let model = FakeModelServer::queue([cut("Once upon a"), cut("time there")]).await;
    let (_folder, server) = server_with(&model, "mode = \"single_loop\"").await;
    let elsewhere = tempfile::tempdir().expect("a folder");
    let (code, out, err) = annie(elsewhere.path(), &["--url", &server.url, "ask", "a long story"], &[]).await;
    assert!(code == 6 && err.contains("not done (incomplete)"), "{code} {out} {err}");
    assert!(out.contains("Once upon a") && out.contains("cut off at the model's length limit"), "{out} {err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detached_message_is_reported_by_a_notification_because_nothing_waits_for_its_answer() {
    let model = FakeModelServer::start(|_| Reply::says("Fine.")).await;
    let (_folder, server) = server_with(&model, "mode = \"single_loop\"").await;
    let elsewhere = tempfile::tempdir().expect("a folder");
    let (code, task, err) = annie(elsewhere.path(), &["--url", &server.url, "ask", "--detach", "hi there"], &[]).await;
    assert_eq!(code, 0, "{err}");
    eventually("the end is reported", async || {
        let (_, sent) = server.get("/api/v1/notifications").await;
        sent.to_string().contains(task.trim()).then_some(())
    })
    .await;
    let (_, view) = server.get(&format!("/api/v1/tasks/{}", task.trim())).await;
    assert_eq!(view["priority"], "normal", "{view}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_for_the_command_line_holds_also_when_a_server_runs() {
    let model = FakeModelServer::start(|_| Reply::says("Fine.")).await;
    let rule = "mode = \"single_loop\"\n[[hook]]\nname = \"typed\"\npoint = \"before_turn\"\nkind = \"refuse\"\n\
                when = { channels = [\"cli\"] }\ntext = \"Not from the command line.\"\n";
    let (_folder, server) = server_with(&model, rule).await;
    let elsewhere = tempfile::tempdir().expect("a folder");
    let (code, out, err) = annie(elsewhere.path(), &["--url", &server.url, "ask", "hi there"], &[]).await;
    assert!(code == 6 && out.contains("Not from the command line."), "{code} {out} {err}");
    let (_, sent) = server.post("/api/v1/messages?wait=20", &json!({"text": "hi there"})).await.expect("answered");
    assert_eq!(sent["answer"], "Fine.", "{sent}");
    let (status, sent) =
        server.post("/api/v1/messages", &json!({"text": "hi there", "source": "fax"})).await.expect("answered");
    assert!(status == 400 && sent.to_string().contains("`cli` for typed commands"), "{status} {sent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn program_without_a_command_prints_help_and_exits_2() {
    let folder = tempfile::tempdir().expect("a folder");
    for (arguments, wanted_text) in [(&[][..], "Examples:"), (&["tasks"], "Usage: annie tasks")] {
        let done = command(folder.path(), arguments, &[]).output().await.expect("the binary starts");
        let (code, out, err) = sent(done);
        assert_eq!((code, out.as_str()), (2, ""), "{err}");
        assert!(
            err.contains(wanted_text) && !err.contains("run-limited") && !err.contains("error:"),
            "{arguments:?}: {err}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_whose_port_is_busy_exits_5_and_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port().to_string();
    let (code, _, err) = annie(folder.path(), &["serve", "--port", &port], &[]).await;
    assert!(code == 5 && err.contains(&format!("port {port} is busy")) && err.contains("--port N"), "{code} {err}");
}

#[test]
fn log_write_failure_does_not_stop_work() {
    let folder = tempfile::tempdir().expect("a folder");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device that is always full");
    let done = std::process::Command::new(env!("CARGO_BIN_EXE_annie"))
        .arg("--data")
        .arg(folder.path())
        .args(["ask", "--plain", "create a task to call Bob"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", folder.path())
        .env("ANNIE__LOG__LEVEL", "trace")
        .stdin(std::process::Stdio::null())
        .stderr(full)
        .output()
        .expect("the binary runs");
    let out = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success() && out.contains("Call Bob"), "{:?} {out}", done.status);
}
