//! Skills that conversations write, through the real binary: the model writes the file, a person approves its content over HTTP, gRPC
//! or the command line, and only then it runs.

use std::{
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use annie::grpc::v1::{
    ApproveSkillRequest, FaultSpec, InjectRequest, ListBuiltSkillsRequest, RunSkillRequest, WithdrawSkillRequest,
    chaos_client::ChaosClient, skills_client::SkillsClient,
};
use serde_json::{Value, json};

use super::{
    egress::{Site, response},
    scripts::{Scripted, is_sandboxed, outcome_in},
};
use crate::world::eventually;

const WEATHER: &str = "---\nname: weather.now\ndescription: The weather of a city.\neffect: read\nexternal: true\narguments:\n  \
                       city: {required: true}\nrequest:\n  url: URL/v1/{city}\n---\nx\n";

/// A file of a script with this argument list.
fn running(run: &str) -> String {
    let head = "name: good.one\ndescription: x\neffect: read\nexternal: false";
    format!("---\n{head}\narguments:\n  city: {{required: true}}\nrun: {run}\n---\nx\n")
}

async fn weather_site() -> Site {
    Site::start(|_| response("200 OK", "content-type: application/json\r\n", b"{\"degrees\": 3.5}")).await
}

fn allowing(site: &Site) -> String {
    format!("[egress]\nenabled = true\nallow_private = [\"{}\"]\n", site.address)
}

fn build(name: &str, content: &str, more: &Value) -> String {
    let mut arguments = json!({"name": name, "content": content});
    for (key, value) in more.as_object().into_iter().flatten() {
        arguments[key] = value.clone();
    }
    format!("system.build_skill {arguments}")
}

async fn built(scripted: &Scripted, name: &str) -> Value {
    let (status, list) = scripted.server.get("/api/v1/built-skills").await;
    assert_eq!(status, 200, "{list}");
    let all = list["skills"].as_array().expect("a list");
    all.iter().find(|skill| skill["name"] == name).cloned().unwrap_or_default()
}

async fn decide(scripted: &Scripted, name: &str, what: &str, body: &Value) -> (u16, Value) {
    scripted.server.post(&format!("/api/v1/built-skills/{name}/{what}"), body).await.expect("the server answers")
}

fn annie(scripted: &Scripted, arguments: &[&str]) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_annie"))
        .arg("--data")
        .arg(scripted.data.path())
        .args(["--config", &scripted.config])
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", scripted.data.path())
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code().unwrap_or(-1), text(&out.stdout), text(&out.stderr))
}

fn files_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => found.extend(files_below(&entry.path())),
            false => found.push(entry.path().display().to_string()),
        }
    }
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_skill_of_a_conversation_runs_only_with_the_content_that_a_person_approved() {
    let site = weather_site().await;
    let scripted = Scripted::start(&allowing(&site)).await;
    let content = WEATHER.replace("URL", &site.url(""));
    let outcome = scripted.outcome(&build("weather.now", &content, &json!({}))).await;
    assert_eq!(outcome["status"], "success", "{outcome}");
    assert!(outcome["data"].to_string().contains("annie skills approve weather.now"), "{outcome}");
    assert!(scripted.knows("weather.now").await, "the skill is known at once");

    let call = r#"weather.now {"city": "Berlin"}"#;
    let refused = scripted.outcome(call).await;
    assert_eq!((&refused["status"], &refused["error_type"]), (&json!("error_blocked"), &json!("awaiting_approval")));
    let command = json!({"command": "weather.now --city Berlin", "key": "k", "test": true});
    let (_, tried) = scripted.server.post("/api/v1/run", &command).await.expect("the server answers");
    assert_eq!(tried["error"], "awaiting_approval", "{tried}");
    assert!(site.heads().is_empty(), "nothing was sent: {:?}", site.heads());

    let skill = built(&scripted, "weather.now").await;
    assert_eq!((&skill["state"], &skill["kind"]), (&json!("awaiting_approval"), &json!("request")), "{skill}");
    assert!(skill["conversation_id"].is_string() && skill["task_id"].is_string() && skill["by"].is_string(), "{skill}");
    assert!(skill["text"].to_string().contains("request:"), "a person sees the whole file: {skill}");
    assert!(refused["data"].to_string().contains(skill["hash"].as_str().expect("a hash")), "{refused}");
    for (name, body, status) in [
        ("weather.now", json!({"hash": "0".repeat(64)}), 409),
        ("weather.now", json!({"hash": ""}), 409),
        ("weather.now", json!({}), 400),
        ("weather.now", json!({"hash": skill["hash"], "all": true}), 400),
        ("tasks.create", json!({"hash": skill["hash"]}), 404),
    ] {
        assert_eq!(decide(&scripted, name, "approve", &body).await.0, status, "{name} {body}");
    }
    assert_eq!(scripted.outcome(call).await["error_type"], "awaiting_approval", "a wrong approval changes nothing");

    let (status, done) = decide(&scripted, "weather.now", "approve", &json!({"hash": skill["hash"]})).await;
    assert_eq!((status, &done["state"]), (200, &json!("approved")), "{done}");
    let outcome = scripted.outcome(call).await;
    assert!(outcome["status"] == "success" && outcome["data"].to_string().contains("3.5"), "{outcome}");
    assert_eq!(site.heads().len(), 1);

    // A person's change of the file asks again, although the file is valid.
    let file = scripted.data.path().join("skills/weather/now.md");
    let text = std::fs::read_to_string(&file).expect("the file");
    std::fs::write(&file, text.replace("The weather of", "The present weather of")).expect("written");
    eventually("the changed file awaits an approval", async || {
        let skill = built(&scripted, "weather.now").await;
        (skill["state"] == "awaiting_approval").then_some(())
    })
    .await;
    assert_eq!(scripted.outcome(call).await["error_type"], "awaiting_approval");
    assert_eq!(site.heads().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_of_a_skill_over_grpc_and_the_command_line_survives_a_restart_and_can_be_withdrawn() {
    let site = weather_site().await;
    let mut scripted = Scripted::start(&allowing(&site)).await;
    let content = WEATHER.replace("URL", &site.url(""));
    scripted.outcome(&build("weather.now", &content, &json!({}))).await;
    let mut skills = SkillsClient::connect(scripted.server.url.clone()).await.expect("connected");
    let listed = skills.list_built(ListBuiltSkillsRequest {}).await.expect("listed").into_inner().skills;
    assert_eq!((listed.len(), listed[0].state.as_str()), (1, "awaiting_approval"));
    let wrong = ApproveSkillRequest { name: "weather.now".to_owned(), hash: "x".to_owned() };
    assert_eq!(skills.approve(wrong).await.expect_err("refused").code(), tonic::Code::FailedPrecondition);
    let approve = ApproveSkillRequest { name: "weather.now".to_owned(), hash: listed[0].hash.clone() };
    assert_eq!(skills.approve(approve).await.expect("approved").into_inner().state, "approved");
    let run = |accepts_once| RunSkillRequest {
        command: "weather.now --city Berlin".to_owned(),
        key: "k".to_owned(),
        test: true,
        accepts_once,
    };
    assert_eq!(skills.run(run(false)).await.expect("ran").into_inner().status, "success");

    let arguments = ["--config", scripted.config.as_str()];
    scripted.server.kill();
    scripted.server = scripted.server.again(scripted.data.path(), &arguments, &[]).await;
    let (code, out, err) = annie(&scripted, &["skills", "test", "weather.now", "--city", "Berlin"]);
    assert!(code == 0 && out.contains("3.5"), "{code} {out} {err}");
    let (code, out, err) = annie(&scripted, &["skills", "show", "weather.now"]);
    assert!(code == 0 && out.contains("approved") && out.contains("request:"), "{code} {out} {err}");
    let (code, out, err) = annie(&scripted, &["skills", "withdraw", "weather.now"]);
    assert!(code == 0 && out.contains("awaiting_approval"), "{code} {out} {err}");
    let (code, _, err) = annie(&scripted, &["skills", "test", "weather.now", "--city", "Berlin"]);
    assert!(code != 0 && err.contains("was not run"), "{code} {err}");
    let (code, _, err) = annie(&scripted, &["skills", "approve", "weather.now", "--hash", "1234"]);
    assert!(code != 0 && err.contains("read it again"), "{code} {err}");
    let (code, out, err) = annie(&scripted, &["skills", "approve", "weather.now"]);
    assert!(code != 0 && err.contains("--hash HASH"), "no content is approved unseen: {code} {out} {err}");
    let (code, out, err) = annie(&scripted, &["skills", "approve", "weather.now", "--hash", &listed[0].hash]);
    assert!(code == 0 && out.contains("approved"), "{code} {out} {err}");
    let mut skills = SkillsClient::connect(scripted.server.url.clone()).await.expect("connected");
    let withdraw = WithdrawSkillRequest { name: "weather.now".to_owned() };
    assert_eq!(skills.withdraw(withdraw).await.expect("withdrawn").into_inner().state, "awaiting_approval");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_of_a_skill_needs_the_scope_and_the_owner() {
    let site = weather_site().await;
    let scripted = Scripted::start(&allowing(&site)).await;
    let content = WEATHER.replace("URL", &site.url(""));
    scripted.outcome(&build("weather.now", &content, &json!({}))).await;
    let hash = built(&scripted, "weather.now").await["hash"].clone();
    let key = |name: &str, user: &[&str], scopes: &str| {
        let file = scripted.data.path().join("first.key");
        let known = file.to_str().filter(|_| file.exists()).map_or(Vec::new(), |path| vec!["--key-file", path]);
        let arguments = [&known[..], &["--json", "key", "create", name, "--scope", scopes], user].concat();
        let (code, out, err) = annie(&scripted, &arguments);
        assert_eq!(code, 0, "{err}");
        let made: Value = serde_json::from_str(&out).expect("JSON");
        let secret = made["secret"].as_str().expect("a key").to_owned();
        if !file.exists() {
            std::fs::write(&file, &secret).expect("written");
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("set");
        }
        secret
    };
    let keys = [
        (key("own", &[], "chat,jobs:read,jobs:control,admin,impersonate"), 200),
        (key("reader", &[], "chat,jobs:read"), 403),
        (key("other", &["--user", "mallory"], "chat,jobs:read,jobs:control,admin"), 403),
    ];
    let post = async |key: &str, what: &str, body: &Value| {
        let path = match what {
            "approve" => "/api/v1/built-skills/weather.now/approve",
            _ => "/api/v1/built-skills/weather.now/withdraw",
        };
        let url = format!("{}{path}", scripted.server.url);
        let sent = scripted.server.http.post(url).bearer_auth(key).json(body).send().await.expect("sent");
        sent.status().as_u16()
    };
    for (key, status) in keys.iter().rev() {
        assert_eq!(post(key, "approve", &json!({"hash": hash})).await, *status, "approve");
        assert_eq!(post(key, "withdraw", &json!({})).await, *status, "withdraw");
    }
    let url = format!("{}/api/v1/built-skills", scripted.server.url);
    let list = scripted.server.http.get(url).bearer_auth(&keys[2].0).send().await.expect("sent");
    let list: Value = list.json().await.expect("JSON");
    assert_eq!(list["skills"], json!([]), "another user sees nothing of the owner's conversations");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_skill_of_a_conversation_works_at_once_and_is_replaced_only_on_request() {
    let scripted = Scripted::start("").await;
    let content = "---\nname: standup\ndescription: Write my standup.\n---\nWrite three lines about $ARGUMENTS.\n";
    let outcome = scripted.outcome(&build("standup", content, &json!({}))).await;
    assert!(outcome["data"].to_string().contains("Write three lines about an example."), "{outcome}");
    let outcome = scripted.outcome(r#"standup {"args": "tea"}"#).await;
    assert!(outcome["data"].to_string().contains("Write three lines about tea."), "{outcome}");
    assert_eq!(built(&scripted, "standup").await["state"], "not_needed");
    let again = scripted.outcome(&build("standup", content, &json!({}))).await;
    assert_eq!(again["error_type"], "conflict", "{again}");
    let changed = content.replace("three", "four");
    let outcome = scripted.outcome(&build("standup", &changed, &json!({"replace": true}))).await;
    assert_eq!(outcome["status"], "success", "{outcome}");
    let outcome = scripted.outcome(r#"standup {"args": "tea"}"#).await;
    assert!(outcome["data"].to_string().contains("Write four lines"), "{outcome}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_skill_files_are_refused_with_all_problems_and_nothing_is_written() {
    let site = weather_site().await;
    let scripted = Scripted::start(&allowing(&site)).await;
    let by_hand = WEATHER.replace("URL", &site.url("")).replace("weather.now", "hand.made");
    scripted.write("hand/made.md", &by_hand);
    eventually("the skill is known", async || scripted.knows("hand.made").await.then_some(())).await;
    let outcome = scripted.outcome(r#"hand.made {"city": "Berlin"}"#).await;
    assert_eq!(outcome["status"], "success", "a person's file needs no approval: {outcome}");
    std::fs::create_dir_all(scripted.data.path().join("outside")).expect("made");
    std::os::unix::fs::symlink("../outside", scripted.data.path().join("skills/linked")).expect("linked");
    let skills = scripted.data.path().join("skills");
    let before = files_below(&skills);
    let of = |name: &str| WEATHER.replace("URL", "https://example.com").replace("weather.now", name);
    let prompt = |name: &str| format!("---\nname: {name}\ndescription: x\n---\nx\n");
    for (name, content, more, part) in [
        ("../evil", prompt("../evil"), json!({}), "the name cannot be a skill's"),
        ("a/b.c", of("a/b.c"), json!({}), "the name cannot be a skill's"),
        ("a.b.c", of("a.b.c"), json!({}), "the name cannot be a skill's"),
        ("system.help", of("system.help"), json!({}), "is a name of the kernel"),
        ("system.mine", of("system.mine"), json!({}), "is a name of the kernel"),
        ("commit.skill", prompt("commit"), json!({}), "the name cannot be a skill's"),
        ("hand.skill", prompt("hand"), json!({}), "the name cannot be a skill's"),
        ("hand.skill", of("hand.skill"), json!({}), "the name cannot be a skill's"),
        ("good", prompt("commit"), json!({}), "the file names the skill `commit`"),
        ("good.one", of("good.two"), json!({}), "good.two"),
        ("x._y", of("x._y"), json!({}), "the name cannot be a skill's"),
        ("tasks.create", of("tasks.create"), json!({}), "another skill or command"),
        ("commit", prompt("commit"), json!({"replace": true}), "another skill or command"),
        ("help", prompt("help"), json!({}), "another skill or command"),
        ("tasks", prompt("tasks"), json!({}), "is a domain"),
        ("hand.made", of("hand.made"), json!({"replace": true}), "another skill or command"),
        ("hand", prompt("hand"), json!({}), "is a domain"),
        ("linked.now", of("linked.now"), json!({}), "is a link or a file"),
        ("good", "no head".to_owned(), json!({}), "does not begin with a head"),
        ("good", "---\nname: [x\n---\n".to_owned(), json!({}), "not YAML"),
        ("good", format!("{}{}", prompt("good"), "x".repeat(70_000)), json!({}), "more than 65536 bytes"),
        (
            "good",
            prompt("good").replace("---\nx", "schedule: every day at 8\n---\nx"),
            json!({}),
            "`schedule` cannot be built",
        ),
        (
            "good",
            prompt("good").replace("---\nx", "built: null\n---\nx"),
            json!({}),
            "`built` is written by the kernel",
        ),
        (
            "good.one",
            of("good.one").replace("request:\n  url: https://example.com/v1/{city}\n", "handler: tasks.search\n"),
            json!({}),
            "a handler cannot be built",
        ),
        ("good.one", of("good.one"), json!({"script": "print(1)"}), "nothing runs `--script`"),
        ("good.one", running("[sh, /data/skills/hand/made.md]"), json!({}), "that the approval does not cover"),
        ("good.one", running("[sh, \"{city}\"]"), json!({}), "chooses what `sh` runs"),
        ("good", prompt("good").replace("---\nx", "---\n\u{202e}x"), json!({}), "invisible character <U+202E>"),
        ("good", "{name: good, description: x}".to_owned(), json!({}), "does not begin with a head"),
        ("good", "---\n{name: good, description: x}\n---\nx\n".to_owned(), json!({}), "the head is not plain"),
    ] {
        let outcome = scripted.outcome(&build(name, &content, &more)).await;
        assert!(outcome["status"].as_str().is_some_and(|s| s.starts_with("error_")), "{name}: {outcome}");
        assert!(outcome["data"].to_string().contains(part), "{name}, {part}: {outcome}");
    }
    let several = "---\nname: other.name\neffect: sometimes\n---\n";
    let outcome = scripted.outcome(&build("good.one", several, &json!({}))).await;
    let count = outcome["evidence"]["problems"].as_array().map_or(0, Vec::len);
    assert!(count >= 4, "all problems at once: {outcome}");
    assert_eq!(files_below(&skills), before);
    assert!(files_below(&scripted.data.path().join("outside")).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn script_of_a_conversation_runs_after_the_approval_and_never_with_a_changed_program() {
    if !is_sandboxed() {
        return;
    }
    let scripted = Scripted::start("").await;
    let content = "---\nname: text.count\ndescription: Count words.\neffect: read\nexternal: false\narguments:\n  text: {required: \
                   true}\nrun: [sh, ./SCRIPT, \"{text}\"]\n---\nx\n";
    let script = json!({"script": "echo \"counted $1\"\n"});
    let outcome = scripted.outcome(&build("text.count", content, &script)).await;
    assert_eq!(outcome["status"], "success", "{outcome}");
    let call = r#"text.count {"text": "tea"}"#;
    assert_eq!(scripted.outcome(call).await["error_type"], "awaiting_approval");
    let skill = built(&scripted, "text.count").await;
    assert!(skill["text"].to_string().contains("echo"), "a person sees the program: {skill}");
    assert_eq!(decide(&scripted, "text.count", "approve", &json!({"hash": skill["hash"]})).await.0, 200);
    let outcome = scripted.outcome(call).await;
    assert!(outcome["data"].to_string().contains("counted tea"), "{outcome}");
    let program = files_below(&scripted.data.path().join("skills/text")).into_iter().find(|f| f.ends_with(".script"));
    std::fs::write(program.expect("a program"), "echo \"changed $1\"\n").expect("written");
    assert_eq!(scripted.outcome(call).await["error_type"], "awaiting_approval");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_between_the_file_and_its_receipt_leaves_one_file_and_one_receipt() {
    let mut scripted = Scripted::start("[chaos]\nenabled = true\n").await;
    let mut chaos = ChaosClient::connect(scripted.server.url.clone()).await.expect("connected");
    let [target, place, kind] = ["skill", "system.build_skill", "hang_after"].map(str::to_owned);
    let spec = FaultSpec { target, place, kind, ..FaultSpec::default() };
    chaos.inject(InjectRequest { spec: Some(spec) }).await.expect("the fault is known");
    let content = "---\nname: standup\ndescription: Write my standup.\n---\nWrite.\n";
    let text = format!("run={}", build("standup", content, &json!({})));
    let body = json!({"text": text, "conversation_key": "k"});
    let (_, sent) = scripted.server.post("/api/v1/messages", &body).await.expect("the server answers");
    let file = scripted.data.path().join("skills/standup/SKILL.md");
    eventually("the file is written", async || file.exists().then_some(())).await;
    let before = std::fs::metadata(&file).and_then(|found| found.modified()).expect("the file");
    let arguments = ["--config", scripted.config.as_str()];
    scripted.server.kill();
    scripted.server = scripted.server.again(scripted.data.path(), &arguments, &[]).await;
    let outcome =
        eventually("the interrupted call has its receipt", async || outcome_in(&scripted.server, &sent).await).await;
    assert_eq!(outcome["status"], "success", "{outcome}");
    assert!(outcome["data"].to_string().contains("Wrote the skill standup"), "{outcome}");
    let after = std::fs::metadata(&file).and_then(|found| found.modified()).expect("the file");
    assert_eq!(before, after, "the file was not written again");
    assert_eq!(files_below(&scripted.data.path().join("skills")).len(), 1, "no second and no temporary file");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_skill_of_the_command_line_is_valid_and_never_replaces_a_file() {
    let scripted = Scripted::start("").await;
    for (name, kind, file) in [
        ("standup", "prompt", "standup/SKILL.md"),
        ("weather.now", "request", "weather/now.md"),
        ("text.count", "script", "text/count.md"),
    ] {
        let (code, out, err) = annie(&scripted, &["skills", "new", name, "--kind", kind]);
        assert!(code == 0 && out.contains(file), "{code} {out} {err}");
        let (code, _, err) = annie(&scripted, &["skills", "new", name, "--kind", kind]);
        assert!(code != 0 && err.contains("exists") || err.contains("already"), "{code} {err}");
    }
    let (code, out, err) = annie(&scripted, &["skills", "validate"]);
    assert_eq!(code, 0, "{out} {err}");
    for (name, kind) in [
        ("../x", "prompt"),
        ("a.b", "prompt"),
        ("word", "request"),
        ("system.x", "script"),
        ("hand.skill", "request"),
        ("tasks.create", "request"),
    ] {
        let (code, _, err) = annie(&scripted, &["skills", "new", name, "--kind", kind]);
        assert!(code != 0 && !err.is_empty(), "{name}");
    }
    eventually("the server has read the new file", async || {
        let (code, out, _) = annie(&scripted, &["skills", "show", "standup"]);
        (code == 0 && out.contains("a person wrote the file")).then_some(())
    })
    .await;
}
