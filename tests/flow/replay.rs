//! Replays, forks, exports and imports of conversations through the front ends.

use std::path::Path;

use serde_json::{Value, json};

use super::command_line::annie;
use crate::server::Server;

/// A conversation with one answered turn that created a to-do.
async fn conversation(data: &Path, server: &Server) -> String {
    let (code, _, err) = annie(data, &["ask", "--conversation", "home", "create a task to call Bob"], &[]).await;
    assert_eq!(code, 0, "{err}");
    let (_, list) = server.get("/api/v1/conversations").await;
    list["conversations"][0]["id"].as_str().expect("a conversation").to_owned()
}

async fn todos(data: &Path) -> String {
    annie(data, &["todos", "list"], &[]).await.1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_shows_states_differences_and_agreement_on_every_front_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let server = Server::start(data, &[], &[]).await;
    let id = conversation(data, &server).await;
    let (code, out, err) = annie(data, &["replay", &id, "--check"], &[]).await;
    assert!(code == 0 && out.contains("log and replay agree"), "{out} {err}");
    let (code, out, err) = annie(data, &["replay", &id, "--until", "1"], &[]).await;
    assert!(code == 0 && out.contains("waiting 1 task_") && out.contains("outstanding: begin"), "{out} {err}");
    let (_, out, _) = annie(data, &["replay", &id, "--from", "1", "--until", "2"], &[]).await;
    assert!(out.contains("-> absent") && out.contains("absent ->"), "{out}");
    let (code, _, err) = annie(data, &["replay", &id, "--until", "9999"], &[]).await;
    assert!(code == 2 && err.contains("there is no event 9999: the events are 1 to"), "{code} {err}");
    let (status, view) = server.get(&format!("/api/v1/conversations/{id}/replay?check=true")).await;
    assert_eq!((status, &view["check"]["diverged"], &view["seq"]), (200, &json!(0), &view["last_seq"]), "{view}");
    assert!(view["check"]["decisions"].as_u64() > Some(0), "{view}");
    let unknown = "/api/v1/conversations/conv_01980000000070008000000000000000/replay";
    assert_eq!(server.get(unknown).await.0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fork_goes_on_with_the_history_and_repeats_no_effect() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let server = Server::start(data, &[], &[]).await;
    let id = conversation(data, &server).await;
    let before = todos(data).await;
    for at in [&[][..], &["--at", "2"][..]] {
        let (code, out, err) = annie(data, &[&["conversations", "fork", &id], at].concat(), &[]).await;
        assert_eq!(code, 0, "{err}");
        let copy = out.trim().to_owned();
        let (code, _, err) = annie(data, &["ask", "--conversation", &copy, "what is due?"], &[]).await;
        assert_eq!(code, 0, "{err}");
        let (code, out, _) = annie(data, &["replay", &copy, "--check"], &[]).await;
        assert!(code == 0 && out.contains("log and replay agree"), "{out}");
        let (_, events) = server.get(&format!("/api/v1/conversations/{copy}/events")).await;
        assert_eq!(
            (&events["events"][0]["kind"], &events["events"][0]["of"]),
            (&json!("copied"), &json!(id)),
            "{events}"
        );
        if at.len() == 2 {
            assert!(events["events"][0]["history"].to_string().contains("not answered here"), "{events}");
        }
    }
    assert_eq!(todos(data).await, before, "a fork repeats no effect");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exported_conversation_is_imported_by_another_installation_and_replays_there() {
    let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    let [data, elsewhere] = [folders[0].path(), folders[1].path()];
    let server = Server::start(data, &[], &[]).await;
    let id = conversation(data, &server).await;
    let other = Server::start(elsewhere, &[], &[]).await;
    for redact in [false, true] {
        let mut arguments = vec!["conversations", "export", &id, "--events"];
        arguments.extend(redact.then_some("--redact"));
        let (code, lines, err) = annie(data, &arguments, &[]).await;
        assert_eq!(code, 0, "{err}");
        assert_eq!(lines.contains("call Bob"), !redact, "{lines}");
        let file = elsewhere.join(format!("export-{redact}.ndjson"));
        std::fs::write(&file, &lines).expect("written");
        let (code, out, err) =
            annie(elsewhere, &["conversations", "import", file.to_str().expect("a path")], &[]).await;
        assert_eq!(code, 0, "{err}");
        let copy = out.trim().to_owned();
        assert_ne!(copy, id);
        let (_, view) = other.get(&format!("/api/v1/conversations/{copy}/replay?check=true&until=2")).await;
        assert_eq!((&view["check"]["diverged"], &view["check"]["is_redacted"]), (&json!(0), &json!(redact)), "{view}");
        assert!(view["state"]["turns"][0]["task"].is_string(), "the state of the original is shown: {view}");
        let (_, log) = other.get(&format!("/api/v1/conversations/{copy}/events")).await;
        let begin = log["events"].as_array().and_then(|events| events.last()).expect("an event");
        assert_eq!(begin["history"][0]["is_outside"], true, "others wrote it: {begin}");
        let (code, _, err) = annie(elsewhere, &["ask", "--conversation", &copy, "what is due?"], &[]).await;
        assert_eq!(code, 0, "{err}");
        assert_eq!(annie(elsewhere, &["replay", &copy, "--check"], &[]).await.0, 0);
    }
    assert!(!todos(elsewhere).await.contains("Bob"), "an import carries nothing out");
    let send = |lines: &str| json!({"lines": lines});
    for (lines, wanted) in [
        ("", "contains no event"),
        ("nonsense", "line 1: it is no JSON"),
        ("{\"annie_conversation\": 7}", "line 1: this Annie reads exports of version 1, not 7"),
        ("{}", "line 1: it is no event"),
    ] {
        let (status, refused) = other.post("/api/v1/conversations/import", &send(lines)).await.expect("an answer");
        assert!(status == 400 && refused.to_string().contains(wanted), "{lines}: {status} {refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn import_in_parts_continues_where_the_last_part_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &[], &[]).await;
    let id = conversation(folder.path(), &server).await;
    let (_, page) = server.get(&format!("/api/v1/conversations/{id}/export?limit=500")).await;
    let lines: Vec<String> = page["lines"].as_array().expect("lines").iter().map(Value::to_string).collect();
    let import = async |body: Value| server.post("/api/v1/conversations/import", &body).await.expect("an answer");
    let (_, first) = import(json!({"lines": lines[..2].join("\n"), "is_partial": true})).await;
    let copy = &first["conversation_id"];
    assert_eq!(first["last_seq"], 1, "{first}");
    let (status, refused) = import(json!({"lines": lines[3], "conversation_id": copy})).await;
    assert!(status == 400 && refused.to_string().contains("event 2 must follow"), "{refused}");
    let (status, last) = import(json!({"lines": lines[2..].join("\n"), "conversation_id": copy})).await;
    assert_eq!((status, last["last_seq"].as_u64()), (200, Some(lines.len() as u64)), "{last}");
    let (status, refused) = import(json!({"lines": lines[1], "conversation_id": copy})).await;
    assert!(status == 409 || status == 412, "{status} {refused}");
    assert!(refused.to_string().contains("no unfinished import"), "{refused}");
}
