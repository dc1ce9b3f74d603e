//! Texts that reach a person or a program: errors name the field or the next step, and no instruction to a model is among them.

use std::path::Path;

use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::{Value, json};

use super::{bad_models::server_with, command_line::annie};
use crate::server::Server;

/// What only a model is told.
const FOR_MODELS: [&str; 4] = ["Write this block", "```", "ell the user", "--help`"];

fn put(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, text).expect("written");
}

fn assert_plain(text: &str) {
    assert!(FOR_MODELS.iter().all(|words| !text.contains(words)), "a text for models: {text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_texts_are_for_people_and_say_the_next_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let at = |name: &str| data.join(name);
    put(
        &at("skills/my/post.md"),
        "---\nname: my.post\ndescription: Posts.\nrequest:\n  url: https://example.org/\n---\nx\n",
    );
    put(&at("skills/my/broken.md"), "---\nname: my.broken\nrun: [sh, ./none.sh]\n---\nx\n");
    put(&at("workflows/bad.md"), "---\nname: bad\ndescription: x\nsteps: []\n---\n");
    let needs = "---\nname: needs\ndescription: x\narguments:\n  topic: {type: text, required: true}\nsteps:\n  - {id: a, answer: \"{args.topic}\"}\n---\n";
    put(&at("workflows/needs.md"), needs);
    for (arguments, code, wanted) in [
        (&["skills", "run", "tasks.create", "--help"][..], 0, "--title"),
        (&["skills", "test", "tasks.search", "--help"], 0, "--query"),
        (&["skills", "run", "tasks.create"], 2, "Usage: tasks.create"),
        (&["todos", "add", "x", "--priority", "silly"], 2, "possible values: low, medium, high, critical"),
        (&["todos", "add", "x", "--due", "sometimes"], 2, "due"),
        (&["skills", "test", "no.such"], 3, "there is no skill \"no.such\""),
        (&["skills", "show", "my.post"], 3, "requests are off"),
        (&["skills", "test", "my.post"], 3, "requests are off"),
        (&["skills", "test", "my.broken"], 3, "skills validate"),
        (&["skills", "help", "my.broken"], 3, "its file has problems"),
        (&["ask", "/done"], 0, "No skill is active"),
        (&["ask", "/bad"], 6, "so the workflow was not started"),
        (&["ask", "/needs"], 6, "The workflow was not started: missing required flag: --topic"),
        (
            &["replay", &format!("conv_{}", "0".repeat(32)), "--from", "9", "--until", "2"],
            2,
            "--from 9 comes after --until 2",
        ),
        (&["doctor"], 0, "annie workflows validate"),
        (&["config", "init", "-"], 0, "[server]"),
        (&["config", "sample"], 0, "[server]"),
    ] {
        let (found, out, err) = annie(data, arguments, &[]).await;
        assert_eq!(found, code, "{arguments:?}: {out} {err}");
        assert!(out.contains(wanted) || err.contains(wanted), "{arguments:?}: {out} {err}");
        // The help of a skill has examples in the form of a model.
        if !arguments.contains(&"--help") {
            assert_plain(&format!("{out}{err}"));
        }
    }
    assert!(!Path::new("-").exists(), "a dash is stdout");
    let nowhere = data.join("nowhere");
    let (code, _, err) = annie(&nowhere, &["status"], &[("ANNIE__SERVER__BIND", "127.0.0.1:1")]).await;
    assert!(code == 5 && err.contains("there is no folder"), "{code} {err}");
}

/// The status, the field and the detail of a refused request.
async fn refused(server: &Server, path: &str, body: &Value) -> (u16, String, String) {
    let (status, problem) =
        if body.is_null() { server.get(path).await } else { server.post(path, body).await.expect("answered") };
    let text = |key: &str| problem[key].as_str().unwrap_or_default().to_owned();
    (status, text("field"), text("detail"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_with_a_wrong_part_name_it_and_what_belongs_there() {
    let model = FakeModelServer::start(|_| Reply::says("Fine.")).await;
    let (folder, server) = server_with(&model, "mode = \"single_loop\"").await;
    let messages = "/api/v1/messages";
    let unknown = format!("conv_{}", "0".repeat(32));
    for (path, body, status, field, detail) in [
        (messages, json!({"text": "\u{0}\u{200b} "}), 400, "text", "the message is empty"),
        (messages, json!({"text": "hi", "reply_to": ["hook", "x"]}), 400, "reply_to", "expected an object"),
        (messages, json!({"text": "hi", "emotion": []}), 400, "emotion", "expected an object"),
        (messages, json!({"text": "hi", "priority": 5}), 400, "priority", "expected one of `realtime`, `high`"),
        (messages, json!({"text": "hi", "mode": ["direct"]}), 400, "mode", "`single_loop`"),
        (messages, json!({"text": "hi", "client_id": ""}), 400, "client_id", "1 to 200 bytes"),
        (messages, json!({"text": "hi", "conversation_id": unknown}), 404, "conversation_id", "no such conversation"),
        ("/api/v1/events?kind=faild", Value::Null, 400, "kind", "failed"),
        ("/api/v1/actors?under=-1", Value::Null, 404, "under", "no such actor"),
    ] {
        let (found, at, what) = refused(&server, path, &body).await;
        assert_eq!((found, at.as_str()), (status, field), "{body}: {what}");
        assert!(what.contains(detail), "{body}: {what}");
    }
    let format = json!({"model": "annie", "messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_object"}});
    let (status, answer) = server.post("/v1/chat/completions", &format).await.expect("answered");
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert_eq!((status, &answer["error"]["code"]), (500, &json!("answer_format")), "{answer}");
    assert!(
        message.contains("asked for. It is not valid JSON") && message.contains("The answer was: Fine."),
        "{message}"
    );

    // A name of a conversation is understood wherever an id is.
    let url = ["--url", server.url.as_str()];
    let at = async |arguments: &[&str]| annie(folder.path(), &[&url[..], arguments].concat(), &[]).await;
    assert_eq!(at(&["ask", "--conversation", "errands", "hello there"]).await.0, 0);
    let (code, out, err) = at(&["conversations", "show", "errands"]).await;
    assert!(code == 0 && out.contains("hello there"), "{code} {out} {err}");
    let (code, out, err) = at(&["overview"]).await;
    assert!(code == 0 && out.contains("counted since the start of the server"), "{code} {out} {err}");
    let (code, out, err) = at(&["cron", "add", "every day at 9", "/nope"]).await;
    assert!(
        code == 0 && out.contains("schedule 1 is added") && err.contains("no skill or workflow /nope"),
        "{code} {out} {err}"
    );
    let (code, out, _) = at(&["cron", "pause", "1"]).await;
    assert!(code == 0 && out.contains("schedule 1 is paused"), "{code} {out}");
    let (code, out, err) = at(&["cron", "next", "1"]).await;
    assert!(code == 0 && format!("{out}{err}").contains("schedule 1 is paused"), "{code} {out} {err}");

    // The server of another folder is named as such.
    let elsewhere = tempfile::tempdir().expect("a folder");
    let bind = server.url.trim_start_matches("http://");
    let (code, _, err) = annie(elsewhere.path(), &["status"], &[("ANNIE__SERVER__BIND", bind)]).await;
    assert!(code == 5 && err.contains("has another data folder"), "{code} {err}");

    // The first key locks the operator out only if that is confirmed.
    let (code, _, err) = at(&["key", "create", "c1", "--scope", "chat"]).await;
    assert!(code == 2 && err.contains("--scope admin"), "{code} {err}");
    assert_eq!(at(&["key", "create", "c1", "--scope", "chat", "--yes"]).await.0, 0);
    let (code, _, err) = at(&["key", "create", "ops", "--scope", "admin"]).await;
    assert!(code == 4 && err.contains("stop the server"), "{code} {err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offline_planner_ends_the_active_skill_without_repeating_the_instruction() {
    let folder = tempfile::tempdir().expect("a folder");
    put(
        &folder.path().join("skills/minutes/SKILL.md"),
        "---\nname: minutes\ndescription: Keeps minutes.\n---\nWrite all down.\n",
    );
    let (_, out, err) = annie(folder.path(), &["ask", "/minutes the board"], &[]).await;
    assert!(out.contains("minutes"), "{out} {err}");
    let (code, out, err) = annie(folder.path(), &["ask", "/done"], &[]).await;
    assert!(code == 0 && out.contains("The active skill is ended"), "{code} {out} {err}");
    let (code, out, err) = annie(folder.path(), &["ask", "/done"], &[]).await;
    assert!(code == 0 && out.contains("No skill is active"), "{code} {out} {err}");
}
