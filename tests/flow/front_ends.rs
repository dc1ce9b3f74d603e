//! One conversation through every front end of one server: HTTP, server-sent events, the OpenAI-compatible API and the
//! command line. Each of them also gets invalid input.

use std::process::Command;

use serde_json::{Value, json};

use crate::{
    server::{Server, Sse},
    world::eventually,
};

fn annie(server: &Server, arguments: &[&str]) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_annie"))
        .args(["--url", &server.url])
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", std::env::temp_dir())
        .output()
        .expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code().unwrap_or(-1), text(&out.stdout), text(&out.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn front_ends_http_openai_and_command_line_share_one_conversation() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &[], &[]).await;
    let body = json!({"text": "remember that Bob prefers email", "conversation_key": "shared"});
    let (status, first) = server.post("/api/v1/messages?wait=20", &body).await.expect("answered");
    assert_eq!((status, first["status"].as_str()), (200, Some("completed")), "{first}");
    let conversation = first["conversation_id"].as_str().expect("an id").to_owned();

    let chat = json!({
        "model": "annie", "metadata": {"conversation_id": "shared"},
        "messages": [{"role": "user", "content": "create a task to call Bob tomorrow"}]
    });
    let (status, sent) = server.post("/v1/chat/completions", &chat).await.expect("answered");
    assert_eq!(status, 200, "{sent}");
    assert!(sent["choices"][0]["message"]["content"].as_str().unwrap_or_default().contains("all Bob"), "{sent}");

    let (code, out, err) = annie(&server, &["ask", "--conversation", &conversation, "what do you know about Bob?"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("Bob prefers email"), "{out}");

    let (status, history) = server.get(&format!("/api/v1/conversations/{conversation}/messages")).await;
    assert_eq!(status, 200);
    let text = history.to_string();
    for sent in ["remember that Bob", "create a task to call Bob", "what do you know about Bob?"] {
        assert!(text.contains(sent), "{sent} is missing in {text}");
    }
    let stream = server.stream(&conversation, 0, |seen| seen.iter().filter(|s| s.is_final()).count() == 3).await;
    let ids: Vec<u64> = stream.iter().map(|s| s.id).collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
    assert!(stream.iter().any(|s: &Sse| s.event == "skill_finished"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_line_pages_through_the_actor_tree_and_the_notifications() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &[], &[]).await;
    for text in ["read the book", "read the other"] {
        let body = json!({"text": text, "priority": "normal"});
        let (status, sent) = server.post("/api/v1/messages", &body).await.expect("accepted");
        assert_eq!(status, 202, "{sent}");
    }
    let list = |arguments: &[&str]| -> Value {
        let (code, out, err) = annie(&server, &[&["--json"], arguments].concat());
        assert_eq!(code, 0, "{arguments:?}: {err}");
        serde_json::from_str(&out).expect("JSON")
    };
    eventually("a notification", async || {
        list(&["notifications"])["notifications"]
            .as_array()
            .filter(|notifications| !notifications.is_empty())
            .map(|_| ())
    })
    .await;
    for (command, rows, id) in
        [(&["notifications"][..], "notifications", "id"), (&["actors", "tree", "--under", "/infra"], "actors", "path")]
    {
        let ids = |answer: &Value| -> Vec<String> {
            answer[rows].as_array().expect("rows").iter().map(|row| row[id].to_string()).collect()
        };
        let (mut walked, mut next) = (Vec::new(), None::<String>);
        loop {
            let cursor: Vec<&str> = next.iter().flat_map(|next| ["--next", next]).collect();
            let page = list(&[command, &["--limit", "1"], &cursor].concat());
            walked.extend(ids(&page));
            next = page["next"].as_str().map(str::to_owned);
            if next.is_none() {
                break;
            }
        }
        assert_eq!(walked, ids(&list(command)), "{command:?}");
        let (code, _, err) = annie(&server, &[command, &["--next", "rubbish"]].concat());
        assert!(code == 2 && err.contains("`next` of an earlier page"), "{command:?}: {code} {err}");
    }
    let (_, _, err) = annie(&server, &["actors", "tree", "--limit", "1"]);
    assert!(err.contains("the rest with --next /"), "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn front_ends_answer_invalid_input_with_a_clear_error_and_keep_working() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &[], &[]).await;
    let cases = [
        (json!({"text": ""}), 400, "empty"),
        (json!({"text": "x".repeat(300_000)}), 400, "at most"),
        (json!({"text": "hi", "colour": "red"}), 400, "colour"),
        (json!({"txt": "hi"}), 400, "txt"),
        (json!({"text": "hi", "conversation_id": "conv_zz"}), 400, "conversation"),
        (json!({"text": "hi", "mode": "wild"}), 400, "wild"),
        (json!("just a text"), 400, "object"),
    ];
    for (body, wanted, word) in cases {
        let (status, problem) = server.post("/api/v1/messages", &body).await.expect("answered");
        let shown = problem.to_string();
        assert_eq!(status, wanted, "{body:.100}: {shown}");
        assert!(shown.contains(word), "{word} is missing in {shown}");
    }
    for raw in [&b"{\"text\": \"\xff\xfe\"}"[..], b"{", b""] {
        let request = server.http.post(format!("{}/api/v1/messages", server.url));
        let answer =
            request.header("content-type", "application/json").body(raw.to_vec()).send().await.expect("answered");
        assert_eq!(answer.status().as_u16(), 400, "{raw:?}");
    }
    let unknown = "conv_00000000000070008000000000000000";
    for path in [
        format!("/api/v1/conversations/{unknown}"),
        format!("/api/v1/conversations/{unknown}/stream"),
        "/api/v1/tasks/task_00000000000070008000000000000000".to_owned(),
        "/api/v1/actors/view?path=/nowhere".to_owned(),
        "/nowhere".to_owned(),
    ] {
        assert_eq!(server.get(&path).await.0, 404, "{path}");
    }
    let (code, _, err) = annie(&server, &["tasks", "show", "task_zz"]);
    assert!(code != 0 && err.contains("task"), "{code} {err}");
    let (status, sent) =
        server.post("/api/v1/messages?wait=20", &json!({"text": "what time is it?"})).await.expect("answered");
    assert_eq!((status, sent["status"].as_str()), (200, Some("completed")), "{sent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_kill_needs_the_expected_incarnation_and_the_conversation_continues() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &[], &[]).await;
    let body = json!({"text": "what time is it?", "conversation_key": "k"});
    let (_, sent) = server.post("/api/v1/messages?wait=20", &body).await.expect("answered");
    let path = format!("/conversations/engine:{}", sent["conversation_id"].as_str().expect("an id"));
    let wrong = json!({"path": path, "incarnation": 999_999, "reason": "a test"});
    assert_eq!(server.post("/api/v1/actors/kill", &wrong).await.expect("answered").0, 409);
    let (code, out, err) = annie(&server, &["actors", "tree"]);
    assert!(code == 0 && out.contains("engine:conv_"), "{out} {err}");
    let kill = json!({"path": path, "reason": "a test", "force": true});
    let (status, done) = server.post("/api/v1/actors/kill", &kill).await.expect("answered");
    assert_eq!(status, 200, "{done}");
    let body = json!({"text": "and now?  what time is it?", "conversation_key": "k"});
    let (status, sent) = server.post("/api/v1/messages?wait=20", &body).await.expect("answered");
    assert_eq!((status, sent["status"].as_str()), (200, Some("completed")), "{sent}");
    let (_, crashes) = server.get("/api/v1/actors/crashes").await;
    assert_eq!(crashes["crashes"], json!([]), "an operator's kill is no crash");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_on_a_folder_in_use_does_not_start_and_gives_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &[], &[]).await;
    let out = Command::new(env!("CARGO_BIN_EXE_annie"))
        .args(["--data".as_ref(), folder.path().as_os_str(), "serve".as_ref(), "--port".as_ref(), "0".as_ref()])
        .env_clear()
        .env("HOME", folder.path())
        .output()
        .expect("the binary runs");
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && err.contains("use"), "{err}");
    assert_eq!(server.get("/readyz").await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_database_refuses_messages_and_keeps_the_acknowledged_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    let limit = [("ANNIE__STORE__DATABASE_BYTES_MAX", "400000")];
    let server = Server::start(folder.path(), &[], &limit).await;
    let mut accepted = Vec::new();
    let refused = loop {
        let body = json!({"text": format!("remember that {} {}", accepted.len(), "x".repeat(20_000))});
        let (status, sent) = server.post("/api/v1/messages", &body).await.expect("answered");
        if status != 202 {
            break (status, sent);
        }
        accepted.push(sent["task_id"].as_str().expect("a task").to_owned());
        assert!(accepted.len() < 1_000, "the disk never fills");
    };
    assert!(refused.0 == 503 || refused.0 == 507 || refused.0 == 429, "{refused:?}");
    for task in &accepted {
        assert_eq!(server.get(&format!("/api/v1/tasks/{task}")).await.0, 200, "an acknowledged message is lost");
    }
    assert_eq!(server.get("/healthz").await.0, 200, "the process is alive");
}
