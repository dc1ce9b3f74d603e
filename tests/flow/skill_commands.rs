//! Commands about skills through the real binary: strict validation, problems and notices, runs that a person asks for, the help of
//! the chat, and the test run of a skill that a conversation writes.

use std::process::Stdio;

use annie::grpc::v1::{ListSkillProblemsRequest, skills_client::SkillsClient};
use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::{
    bad_models::server_with,
    command_line::annie,
    egress::{Site, response},
    prompt_skills::put,
    scripts::{Scripted, is_sandboxed},
};
use crate::{server::Server, world::eventually};

async fn run(server: &Server, command: &str, key: &str, accepts_once: bool) -> (u16, Value) {
    let body = json!({"command": command, "key": key, "accepts_once": accepts_once});
    server.post("/api/v1/run", &body).await.expect("the server answers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn validation_fails_for_errors_and_if_strict_for_warnings_all_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let write = |path: &str, text: &str| {
        let path = data.join("skills").join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    write("loose/SKILL.md", "---\ndescription: d\nhooks: x\ncolour: red\n---\nx\n");
    let (code, out, err) = annie(data, &["skills", "validate"], &[]).await;
    assert!(code == 0 && out.contains("with 3 warning(s), which --strict refuses"), "{code} {out} {err}");
    let (code, out, err) = annie(data, &["skills", "validate", "--strict"], &[]).await;
    assert!(code == 1 && err.contains("has 3 problem(s)"), "{code} {out} {err}");
    for wanted in ["`name` is missing", "`hooks` is not read", "unknown key `colour`"] {
        assert!(out.contains(wanted), "{wanted}: {out}");
    }
    write("loose/SKILL.md", "---\nname: loose\ndescription: d\n---\nx\n");
    assert_eq!(annie(data, &["skills", "validate", "--strict"], &[]).await.0, 0);
    write("bad/now.md", "---\nname: bad.now\n---\n");
    let (code, out, _) = annie(data, &["skills", "validate"], &[]).await;
    assert!(code == 1 && out.contains("error: ") && out.contains("not strict: "), "{code} {out}");
    let (code, out, _) = annie(data, &["--json", "skills", "validate", "--strict"], &[]).await;
    let found: Value = serde_json::from_str(&out).expect("JSON");
    assert!(code == 1 && found["valid"] == false && found["strict"] == true, "{code} {out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn problems_and_notices_of_skills_are_listed_by_every_front_end_with_their_fix() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let write = |path: &str, text: &str| {
        let path = data.join("skills").join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    write("commit/SKILL.md", "---\nname: commit\ndescription: d\n---\nx\n");
    write(
        "my/post.md",
        "---\nname: my.post\ndescription: d\neffect: once\nexternal: true\nrequest:\n  method: POST\n  url: https://example.org/\n---\nx\n",
    );
    write("my/broken.md", "---\nname: my.broken\nrun: [sh, ./none.sh]\n---\nx\n");
    let parts = [
        ("commit/SKILL.md", "replaces the bundled skill `commit`", "rename it if that is not meant"),
        ("my/post.md", "it sends a request to another machine, which is switched off", "[egress]"),
        ("my/broken.md", "there is no file `my/none.sh`", "put the script beside this file"),
    ];
    let server = Server::start(data, &[], &[]).await;
    let (status, list) = server.get("/api/v1/skill-problems").await;
    assert_eq!(status, 200, "{list}");
    let mut client = SkillsClient::connect(server.url.clone()).await.expect("connected");
    let over_grpc = client.list_problems(ListSkillProblemsRequest {}).await.expect("listed").into_inner().problems;
    let rows = list["problems"].as_array().expect("a list");
    assert_eq!(rows.len(), over_grpc.len());
    assert_eq!(rows[0]["severity"], "error", "the worst is the first: {list}");
    for (file, what, fix) in parts {
        let is_it = |row: &&Value| row["file"] == file && row["what"].as_str().is_some_and(|text| text.contains(what));
        let row = rows.iter().find(is_it).unwrap_or_else(|| panic!("{file} {what}: {list}"));
        assert!(row["fix"].as_str().is_some_and(|text| text.contains(fix)), "{row}");
        assert!(over_grpc.iter().any(|row| row.file == file && row.what.contains(what) && row.fix.contains(fix)));
    }
    let mut server = Some(server);
    for command in [&["skills", "problems"][..], &["skills", "list"], &["doctor"]] {
        for _ in 0..2 {
            let (code, out, err) = annie(data, command, &[]).await;
            assert_eq!(code, 0, "{command:?}: {out} {err}");
            for (file, what, fix) in parts {
                let all = format!("{out}{err}");
                assert!(all.contains(file) && all.contains(what) && all.contains(fix), "{command:?} {what}: {all}");
            }
            // The second time without a server.
            if command[0] == "skills" && command[1] == "list" {
                drop(server.take());
            }
        }
    }
    let (_, out, _) = annie(data, &["--json", "skills", "list"], &[]).await;
    let listed: Value = serde_json::from_str(&out).expect("JSON");
    assert!(listed["problems"].as_array().is_some_and(|rows| rows.len() == over_grpc.len()), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_skill_run_by_command_starts_its_fork_once_per_key_or_says_what_to_send() {
    let model = FakeModelServer::start(|_| Reply::says("Two findings.")).await;
    let (folder, server) = server_with(&model, "mode = \"single_loop\"").await;
    let skills = [
        ("audit", "context: fork\ndisable-model-invocation: true", "Audit $ARGUMENTS."),
        ("minutes", "", "Write down every decision of $ARGUMENTS."),
        ("hidden", "context: fork\nuser-invocable: false", "x"),
    ];
    put(&folder, &server, &skills).await;
    let (status, begun) = run(&server, "audit the attic", "k", false).await;
    assert_eq!((status, &begun["status"]), (200, &json!("success")), "{begun}");
    let task = begun["evidence"]["task_id"].as_str().expect("an id").to_owned();
    assert!(begun["text"].as_str().is_some_and(|text| text.contains(&task)), "{begun}");
    assert_eq!(run(&server, "audit the attic", "k", false).await.1["evidence"]["task_id"], task, "the same task");
    let row = eventually("the task ends", async || {
        let (_, row) = server.get(&format!("/api/v1/tasks/{task}")).await;
        row["ended_at"].is_string().then_some(row)
    })
    .await;
    assert_eq!(row["status"], "completed", "{row}");
    assert_eq!(model.request_count(), 1);
    assert!(model.requests()[0].last_user_text().contains("Audit the attic."));
    for (command, part) in [
        ("minutes the board", "annie ask \\\"/minutes the board\\\""),
        ("minutes --done", "`/done`"),
        ("hidden", "only models begin hidden"),
    ] {
        let (status, refused) = run(&server, command, "k", true).await;
        assert!(status == 400 && refused.to_string().contains(part), "{command}: {status} {refused}");
    }
    let (code, out, err) = annie(folder.path(), &["skills", "run", "audit", "the", "roof"], &[]).await;
    assert!(code == 0 && out.contains("background task task_"), "{code} {out} {err}");
    drop(server);
    let (code, _, err) = annie(folder.path(), &["skills", "run", "audit", "the", "roof"], &[]).await;
    assert!(code == 2 && err.contains("annie serve"), "{code} {err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_that_must_not_be_repeated_is_sent_once_per_key_and_only_if_asked_for_expressly() {
    let site = Site::start(|_| response("200 OK", "content-type: application/json\r\n", b"{\"id\": 7}")).await;
    let more = format!("[egress]\nenabled = true\nallow_private = [\"{}\"]\n", site.address);
    let mut scripted = Scripted::start(&more).await;
    let text = format!(
        "---\nname: my.post\ndescription: Posts.\neffect: once\nexternal: true\nrequest:\n  method: POST\n  url: {}\n---\nx\n",
        site.url("/posts")
    );
    scripted.write("my/post.md", &text);
    eventually("the skill is known", async || scripted.knows("my.post").await.then_some(())).await;
    let (status, refused) = run(&scripted.server, "my.post", "k", false).await;
    assert!(status == 400 && refused.to_string().contains("--yes"), "{status} {refused}");
    let (status, first) = run(&scripted.server, "my.post", "k", true).await;
    assert_eq!((status, &first["status"]), (200, &json!("success")), "{first}");
    let arguments = ["--config", scripted.config.as_str()];
    scripted.server.kill();
    scripted.server = scripted.server.again(scripted.data.path(), &arguments, &[]).await;
    assert_eq!(run(&scripted.server, "my.post", "k", true).await, (200, first), "the recorded outcome");
    assert_eq!(site.heads().len(), 1, "the request was sent once");
    let (code, _, err) = annie(scripted.data.path(), &["skills", "run", "my.post", "--yes"], &[]).await;
    assert_eq!((code, site.heads().len()), (0, 2), "{err}");

    let send = async |path: &str, key: &Value, body: &Value| {
        let request = scripted.server.http.post(format!("{}{path}", scripted.server.url)).json(body);
        let answer = request.bearer_auth(key.as_str().expect("a key")).send().await.expect("an answer");
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap_or_default())
    };
    let root = json!({"name": "root", "scopes": ["admin", "impersonate"]});
    let (_, root) = scripted.server.post("/api/v1/keys", &root).await.expect("an answer");
    let talks = json!({"name": "talks", "scopes": ["chat"]});
    let (_, talks) = send("/api/v1/keys", &root["secret"], &talks).await;
    for test in [false, true] {
        let body = json!({"command": "my.post", "key": "t", "accepts_once": true, "test": test});
        let (status, refused) = send("/api/v1/run", &talks["secret"], &body).await;
        assert!(status == 403 && refused.to_string().contains("jobs:control"), "{status} {refused}");
    }
    assert_eq!(site.heads().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_run_by_command_that_a_kill_interrupts_is_not_run_again() {
    if !is_sandboxed() {
        return;
    }
    let mut scripted = Scripted::start("").await;
    let text = "---\nname: effects.wait\ndescription: d\nexternal: false\nrun: [sleep, \"25\"]\n---\nx\n";
    scripted.write("effects/wait.md", text);
    eventually("the skill is known", async || scripted.knows("effects.wait").await.then_some(())).await;
    let url = format!("{}/api/v1/run", scripted.server.url);
    let body = json!({"command": "effects.wait", "key": "k", "accepts_once": true});
    let request = scripted.server.http.post(url).json(&body).send();
    let runs = scripted.data.path().join("runs");
    let kill = async {
        eventually("the program runs", async || {
            std::fs::read_dir(&runs).is_ok_and(|mut found| found.next().is_some()).then_some(())
        })
        .await;
        scripted.server.kill();
    };
    let (answered, ()) = tokio::join!(request, kill);
    assert!(answered.is_err(), "the first caller gets no answer");
    let arguments = ["--config", scripted.config.as_str()];
    scripted.server = scripted.server.again(scripted.data.path(), &arguments, &[]).await;
    let (status, again) = run(&scripted.server, "effects.wait", "k", true).await;
    assert_eq!((status, &again["status"]), (200, &json!("unknown")), "{again}");
    assert!(again["text"].as_str().is_some_and(|text| text.contains("It was not run again.")), "{again}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chat_help_lists_the_prompt_skills_with_and_without_a_server() {
    let model = FakeModelServer::start(|_| Reply::says("Fine.")).await;
    let (folder, server) = server_with(&model, "").await;
    put(
        &folder,
        &server,
        &[("minutes", "argument-hint: \"[meeting]\"", "x"), ("hidden", "user-invocable: false", "x")],
    )
    .await;
    let mut server = Some(server);
    for is_served in [true, false] {
        if !is_served {
            drop(server.take());
        }
        let config = folder.path().join("annie.toml");
        let mut chat = tokio::process::Command::new(env!("CARGO_BIN_EXE_annie"))
            .arg("--data")
            .arg(folder.path())
            .arg("--config")
            .arg(config)
            .arg("chat")
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the binary runs");
        chat.stdin.take().expect("its stdin").write_all(b"/help\n").await.expect("written");
        let done = chat.wait_with_output().await.expect("it ends");
        let shown = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(shown.contains("/steer TEXT"), "{is_served}: {shown}");
        assert!(shown.contains("- /minutes [meeting]: Does minutes well."), "{is_served}: {shown}");
        assert!(shown.contains("- /commit") && !shown.contains("/hidden"), "{is_served}: {shown}");
    }
    assert_eq!(model.request_count(), 0, "no model was asked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn skill_that_a_conversation_writes_is_tried_before_it_is_kept_and_the_result_is_said() {
    let site = Site::start(|_| response("200 OK", "", b"x")).await;
    let more = format!("[egress]\nenabled = true\nallow_private = [\"{}\"]\n", site.address);
    let scripted = Scripted::start(&more).await;
    let head = "description: x\neffect: once\nexternal: false\narguments:\n  text: {required: true}\n";
    let script =
        |name: &str, body: &str| format!("---\nname: {name}\n{head}run: [sh, ./SCRIPT, \"{{text}}\"]\n---\n{body}\n");
    let build = |name: &str, content: &str, script: Option<&str>| {
        format!("system.build_skill {}", json!({"name": name, "content": content, "script": script}))
    };
    let url = site.url("/v1/{text}");
    let request = format!("---\nname: my.ask\n{head}request:\n  url: {url}\n---\nmy.ask --text tea\n")
        .replace("external: false", "external: true");
    let outcome = scripted.outcome(&build("my.ask", &request, None)).await;
    assert_eq!(outcome["status"], "success", "{outcome}");
    assert!(
        outcome["data"].to_string().contains("Nothing was sent.") && outcome["data"].to_string().contains("/v1/tea"),
        "{outcome}"
    );
    assert!(site.heads().is_empty(), "{:?}", site.heads());
    let bad = scripted.outcome(&build("my.bad", &script("my.bad", "my.bad --words tea"), Some("echo"))).await;
    assert_eq!(bad["error_type"], "test_failed", "the example does not fit: {bad}");
    assert!(!scripted.knows("my.bad").await);

    let kept = scripted
        .outcome(&build("my.count", &script("my.count", "my.count --text tea"), Some("echo \"<$1>\"; touch $HOME/x")))
        .await;
    assert_eq!(kept["status"], "success", "{kept}");
    if !is_sandboxed() {
        assert!(kept["data"].to_string().contains("It was not tried"), "{kept}");
        return;
    }
    assert!(kept["data"].to_string().contains("it succeeded with the output: <tea>"), "{kept}");
    let failing = script("my.fail", "Use it like this:\n`my.fail --text tea`");
    let failed = scripted.outcome(&build("my.fail", &failing, Some("echo why >&2; exit 3"))).await;
    assert_eq!(failed["error_type"], "test_failed", "{failed}");
    assert!(
        failed["data"].to_string().contains("exit code 3") && failed["data"].to_string().contains("why"),
        "{failed}"
    );
    assert!(!scripted.knows("my.fail").await && !scripted.data.path().join("skills/my/fail.md").exists());
    let made_up = scripted.outcome(&build("my.fail", &script("my.fail", "x"), Some("exit 3"))).await;
    assert_eq!(made_up["status"], "success", "{made_up}");
    assert!(made_up["data"].to_string().contains("the arguments were made up"), "{made_up}");
    let out = script("my.out", "my.out --text tea").replace("run: [sh,", "network: false\nrun: [bash,");
    let call = format!("echo x > /dev/tcp/{}", site.address.to_string().replace(':', "/"));
    let refused = scripted.outcome(&build("my.out", &out, Some(&call))).await;
    assert_eq!(refused["error_type"], "test_failed", "a test run has no network: {refused}");
    assert!(site.heads().is_empty(), "{:?}", site.heads());
}
