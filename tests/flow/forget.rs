//! The user's own data through the front ends: to-dos, memories and notes are listed, changed, deleted and brought back.

use serde_json::{Value, json};

use super::command_line::annie;
use crate::server::Server;

/// The result of a skill run by command over HTTP.
async fn run(server: &Server, command: &str, key: &str) -> (u16, Value) {
    let body = json!({"command": command, "key": key});
    server.post("/api/v1/run", &body).await.expect("the server answers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_data_commands_list_change_delete_and_restore_with_and_without_a_server() {
    for with_server in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path();
        let server = if with_server { Some(Server::start(data, &[], &[]).await) } else { None };
        for (arguments, wanted_code, wanted_text) in [
            (
                &["todos", "add", "Call", "Bob", "--due", "tomorrow", "--tags", "phone"][..],
                0,
                "Created task #1 Call Bob",
            ),
            (&["todos", "add", "Find the number", "--parent", "1"], 0, "(part of #1)"),
            (&["todos", "list", "bob"], 0, "#1 Call Bob"),
            (&["todos", "done", "1"], 0, "1 part of it is still open: #2 Find the number"),
            (&["todos", "delete", "1"], 0, "Deleted task #1 Call Bob"),
            (&["todos", "list", "bob", "--status", "all"], 0, "No tasks found"),
            (&["todos", "list", "--status", "deleted"], 0, "#1 Call Bob (deleted"),
            (&["todos", "restore", "call", "bob"], 0, "Restored task #1 Call Bob"),
            (&["todos", "restore", "1"], 3, "There is no deleted task #1."),
            (&["todos", "delete", "9"], 3, "There is no task #9."),
            (&["memory", "add", "User likes green tea"], 0, "Saved: User likes green tea"),
            (&["memory", "add", "Bob drinks black tea only"], 0, "Saved"),
            (&["memory", "delete", "tea"], 2, "fits several"),
            (&["memory", "list"], 0, "2 memories"),
            (&["memory", "delete", "I", "like", "tea"], 0, "Forgot memory #1 User likes green tea"),
            (&["memory", "list", "--deleted"], 0, "#1 User likes green tea (forgotten"),
            (&["memory", "restore", "#1"], 0, "Restored memory #1"),
            (&["memory", "update", "1", "User likes mint tea"], 0, "Changed memory #1: User likes mint tea"),
            (
                &["skills", "run", "notes.create", "--title", "plan", "--content", "first line"],
                0,
                "Created note 'plan'.",
            ),
            (&["notes", "rename", "plan", "work/plan"], 0, "Renamed note 'plan' to 'work/plan'."),
            (&["notes", "show", "plan"], 0, "first line"),
            (&["notes", "delete", "plan"], 0, "Deleted note 'work/plan'."),
            (&["notes", "list"], 0, "There are no notes."),
            (&["notes", "list", "--deleted"], 0, "- work/plan (deleted"),
            (&["notes", "restore", "plan"], 0, "Restored note 'work/plan'."),
            (&["notes", "delete", "../plan"], 2, "leads outside the notes folder"),
            (&["skills", "run", "tasks.search --status open"], 0, "#2 Find the number"),
            (&["skills", "run", "tasks.nothing"], 3, "tasks.nothing"),
            (&["skills", "run", "system.await", "--what", "Bob"], 2, "in a conversation only"),
        ] {
            let (code, out, err) = annie(data, arguments, &[]).await;
            assert_eq!(code, wanted_code, "{arguments:?} with a server: {with_server}: {out} {err}");
            assert!(out.contains(wanted_text) || err.contains(wanted_text), "{arguments:?}: {out} {err}");
        }
        drop(server);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_data_change_is_made_once_per_key_although_the_server_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(folder.path(), &[], &[]).await;
    let create = "tasks.create --title \"Call Bob\"";
    let (status, first) = run(&server, create, "one").await;
    assert_eq!((status, &first["status"]), (200, &json!("success")), "{first}");
    let (_, deleted) = run(&server, "tasks.delete --id 1", "two").await;
    server.kill();
    let server = server.again(folder.path(), &[], &[]).await;
    assert_eq!(run(&server, create, "one").await, (200, first));
    assert_eq!(run(&server, "tasks.delete --id 1", "two").await, (200, deleted));
    let (_, tree) = server.get("/api/v1/actors").await;
    assert!(tree.to_string().contains("/infra/extensions/chore:trash"), "the trash is purged: {tree}");
    let (_, listed) = run(&server, "tasks.search --status deleted", "three").await;
    assert!(listed["text"].as_str().is_some_and(|text| text.starts_with("Found 1 deleted task")), "{listed}");
    let (_, again) = run(&server, create, "four").await;
    assert!(again["text"].as_str().is_some_and(|text| text.contains("#2")), "another key is another task: {again}");
    for (command, key) in [("tasks.create", "k"), ("nonsense", "k"), ("", "k"), ("tasks.search", "")] {
        let (status, problem) = run(&server, command, key).await;
        assert_eq!(status, 400, "{command:?} {problem}");
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{problem}");
    }
    let more = server.post("/api/v1/run", &json!({"command": "tasks.search", "key": "k", "user": "bob"})).await;
    assert_eq!(more.expect("the server answers").0, 400, "an unknown field is refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversation_is_shown_and_exported_oldest_message_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    assert_eq!(annie(data, &["ask", "create a task to call Bob"], &[]).await.0, 0);
    let unknown = "conv_01980000000070008000000000000000";
    let (code, _, err) = annie(data, &["conversations", "show", unknown], &[]).await;
    assert!(code == 5 && err.contains("annie serve"), "{code} {err}");
    let server = Server::start(data, &[], &[]).await;
    let (_, list) = server.get("/api/v1/conversations").await;
    let id = list["conversations"][0]["id"].as_str().expect("an id").to_owned();
    let (code, out, err) = annie(data, &["conversations", "show", &id], &[]).await;
    assert!(code == 0 && out.contains("user: create a task to call Bob"), "{code} {out} {err}");
    let (code, out, err) = annie(data, &["conversations", "export", &id], &[]).await;
    assert_eq!(code, 0, "{err}");
    let messages: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let roles: Vec<&str> = messages.iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, ["user", "assistant"], "{out}");
    for command in ["show", "export"] {
        let (code, _, err) = annie(data, &["conversations", command, unknown], &[]).await;
        assert_eq!(code, 3, "{command}: {err}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_data_of_another_user_is_not_found_by_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let mut files = Vec::new();
    for user in ["ann", "bob"] {
        let file = data.join(user).to_string_lossy().into_owned();
        let (code, _, err) = annie(data, &["key", "create", user, "--user", user, "--out", &file], &[]).await;
        assert_eq!(code, 0, "{err}");
        files.push(file);
    }
    let _server = Server::start(data, &[], &[]).await;
    let of =
        async |file: &str, arguments: &[&str]| annie(data, &[&["--key-file", file], arguments].concat(), &[]).await;
    for arguments in [
        &["todos", "add", "Call Bob"][..],
        &["memory", "add", "User likes tea"],
        &["skills", "run", "notes.create", "--title", "plan", "--content", "secret"],
        &["todos", "delete", "1"],
    ] {
        let (code, _, err) = of(&files[0], arguments).await;
        assert_eq!(code, 0, "{arguments:?}: {err}");
    }
    for arguments in [
        &["todos", "restore", "1"][..],
        &["todos", "restore", "Call", "Bob"],
        &["memory", "delete", "tea"],
        &["memory", "update", "1", "User hates tea"],
        &["notes", "show", "plan"],
        &["notes", "delete", "plan"],
    ] {
        let (code, out, err) = of(&files[1], arguments).await;
        assert_eq!(code, 3, "{arguments:?}: {out} {err}");
    }
    let (code, out, _) = of(&files[1], &["todos", "list", "--status", "deleted"]).await;
    assert_eq!((code, out.trim()), (0, "No deleted tasks found."));
    assert_eq!(annie(data, &["todos", "list"], &[]).await.0, 4, "without a key");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refuse_rule_holds_for_a_skill_that_is_run_by_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("annie.toml");
    let rule = "[[hook]]\nname = \"keep\"\npoint = \"before_skill\"\nkind = \"refuse\"\nwhen = { skills = [\"tasks.delete\"] }\n\
                text = \"Nothing is deleted this week.\"\n";
    std::fs::write(&config, rule).expect("written");
    let server = Server::start(folder.path(), &["--config", config.to_str().expect("a path")], &[]).await;
    assert_eq!(run(&server, "tasks.create --title milk", "one").await.0, 200);
    let (status, problem) = run(&server, "tasks.delete --id 1", "two").await;
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(status == 400 && detail.contains("Nothing is deleted this week."), "{status} {problem}");
    let (_, listed) = run(&server, "tasks.search", "three").await;
    assert!(listed["text"].as_str().is_some_and(|text| text.contains("#1 milk")), "{listed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_data_settings_and_events_are_listed_as_rows() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let server = Server::start(data, &[], &[]).await;
    for (command, key) in [
        ("tasks.create --title \"Call Bob\" --due 2999-01-02", "one"),
        ("tasks.create --title \"Find the number\"", "two"),
        ("tasks.delete --id 2", "three"),
        ("memory.save --content \"User likes green tea\" --category preference", "four"),
    ] {
        let (status, ran) = run(&server, command, key).await;
        assert_eq!((status, &ran["status"]), (200, &json!("success")), "{command}: {ran}");
    }
    let (_, found) = run(&server, "tasks.search --status open", "five").await;
    assert_eq!(found["evidence"]["numbers"], json!([1]), "programs read the numbers: {found}");

    let list = async |query: &str| server.get(&format!("/api/v1/data?{query}")).await.1["documents"].clone();
    let todos = list("kind=todos").await;
    assert_eq!(
        (&todos[0]["number"], &todos[0]["body"]["title"], todos.as_array().map(Vec::len)),
        (&json!(1), &json!("Call Bob"), Some(1))
    );
    assert_eq!(list("kind=todos&query=bob").await, todos);
    let trash = list("kind=todos&deleted=true").await;
    assert_eq!((&trash[0]["number"], trash[0]["deleted_at"].is_string()), (&json!(2), true), "{trash}");
    assert_eq!(list("kind=memories&query=tea").await[0]["body"]["category"], json!("preference"));

    for (arguments, wanted) in [
        (&["data", "list", "todos"][..], "Call Bob"),
        (&["data", "list", "todos", "--deleted"], "Find the number"),
        (&["data", "list", "memories", "tea"], "User likes green tea"),
        (&["config", "running"], "server.bind"),
        (&["events", "--kind", "answered"], "no event matches"),
    ] {
        let (code, out, err) = annie(data, arguments, &[]).await;
        assert!(code == 0 && (out.contains(wanted) || err.contains(wanted)), "{arguments:?}: {code} {out} {err}");
    }
    let (_, settings) = server.get("/api/v1/settings").await;
    let lines = settings["settings"].as_array().expect("settings");
    let port = lines.iter().find(|line| line["key"] == "server.bind").expect("the address is a setting");
    assert_ne!(port["origin"], json!("default"), "the test starts the server with an address of its own: {port}");
}
