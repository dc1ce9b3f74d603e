//! Scripts in the folder of a prompt skill, run by the model and by a person through the real binary: in the sandbox, with the effect
//! that the skill's file declares, and only if its list of tools allows them.

use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::{Value, json};

use super::{
    bad_models::{ask, server_with},
    command_line::annie,
    prompt_skills::put,
    scripts::{Scripted, is_sandboxed, outcome_in},
};
use crate::{server::Server, world::eventually};

const SHOW: &str = "cat\necho \" $1|$2|$#\"\n";

/// Puts a prompt skill with these scripts into the user's folder, and waits until it is known.
async fn tidy(scripted: &Scripted, name: &str, head: &str, files: &[(&str, &str)]) {
    for (path, text) in files {
        scripted.write(&format!("{name}/{path}"), text);
    }
    let text = format!("---\nname: {name}\ndescription: Tidies.\n{head}---\nRun what fits.\n");
    scripted.write(&format!("{name}/SKILL.md"), &text);
    eventually("the skill is known", async || scripted.knows(name).await.then_some(())).await;
}

async fn kinds(server: &Server, sent: &Value) -> Vec<String> {
    let conversation = sent["conversation_id"].as_str().expect("a conversation");
    let (_, log) = server.get(&format!("/api/v1/conversations/{conversation}/events")).await;
    let events = log["events"].as_array().expect("events");
    events.iter().filter_map(|event| event["kind"].as_str().map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn script_of_a_prompt_skill_runs_in_the_sandbox_with_the_effect_of_its_file() {
    let scripted = Scripted::start("").await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let call = format!("echo x > /dev/tcp/{}\n", port.local_addr().expect("bound").to_string().replace(':', "/"));
    let files = [("scripts/show.sh", SHOW), ("scripts/call.sh", &call), ("references/a.md", "Read me.")];
    tidy(&scripted, "tidy", "", &files).await;
    tidy(&scripted, "look", "metadata:\n  effect: read\n", &files).await;
    let begun = scripted.outcome("tidy").await["data"].to_string();
    assert!(begun.contains("(read one with --file PATH):\\n- references/a.md"), "{begun}");
    assert!(begun.contains("read one with --file PATH):\\n- scripts/call.sh\\n- scripts/show.sh"), "{begun}");

    let show = r#"{"script": "scripts/show.sh", "args": "--n=3 'a; b $(id)'", "stdin": "words"}"#;
    let sent = scripted.say(&format!("run=tidy {show}"), "once").await;
    let outcome = outcome_in(&scripted.server, &sent).await.expect("the script was called");
    if !is_sandboxed() {
        assert_eq!(outcome["error_type"], "sandbox_unavailable", "{outcome}");
        return;
    }
    assert_eq!((&outcome["status"], &outcome["data"]), (&json!("success"), &json!("words --n=3|a; b $(id)|2")));
    assert!(kinds(&scripted.server, &sent).await.contains(&"skill_started".to_owned()), "the intent is recorded");
    let sent = scripted.say(&format!("run=look {show}"), "read").await;
    assert_eq!(outcome_in(&scripted.server, &sent).await.expect("an outcome")["status"], "success");
    assert!(!kinds(&scripted.server, &sent).await.contains(&"skill_started".to_owned()), "reading needs no mark");

    let outcome = scripted.outcome(r#"look {"script": "scripts/call.sh"}"#).await;
    assert_eq!(outcome["status"], "error_permanent", "{outcome}");
    assert!(outcome["error_detail"].to_string().contains("Operation not permitted"), "no network: {outcome}");
    let outcome = scripted.outcome(r#"tidy {"script": "scripts/call.sh"}"#).await;
    assert_eq!(outcome["status"], "unknown", "an effect may have happened: {outcome}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn script_that_is_no_script_of_the_skill_or_not_allowed_is_refused_with_the_reason() {
    let scripted = Scripted::start("").await;
    let files = [("scripts/show.sh", SHOW), ("scripts/data.bin", "x"), ("references/run.sh", SHOW)];
    tidy(&scripted, "other", "", &[("scripts/x.sh", SHOW)]).await;
    let link = scripted.data.path().join("skills/tidy/scripts/link.sh");
    std::fs::create_dir_all(link.parent().expect("a folder")).expect("made");
    std::os::unix::fs::symlink("../../other/scripts/x.sh", &link).expect("linked");
    tidy(&scripted, "tidy", "", &files).await;
    tidy(&scripted, "listed", "allowed-tools: notes.* Bash(git:*)\n", &files).await;
    tidy(&scripted, "online", "metadata:\n  network: true\n", &files).await;
    let content = "---\nname: made\ndescription: x\n---\nx\n";
    scripted.outcome(&format!("system.build_skill {}", json!({"name": "made", "content": content}))).await;
    scripted.write("made/scripts/show.sh", SHOW);
    eventually("the script is known", async || {
        let (_, skill) = scripted.server.get("/api/v1/skills/made").await;
        skill["synopsis"].as_str().is_some_and(|line| line.contains("--script")).then_some(())
    })
    .await;
    for (skill, script, error, part) in [
        ("tidy", "references/run.sh", "outside_folder", "only files below scripts/"),
        ("tidy", "../other/scripts/x.sh", "outside_folder", "only files below scripts/"),
        ("tidy", "scripts/../references/run.sh", "outside_folder", "only files below scripts/"),
        ("tidy", "/bin/sh", "outside_folder", "only files below scripts/"),
        ("tidy", "scripts/link.sh", "outside_folder", "only files below scripts/"),
        ("tidy", "scripts/none.sh", "not_found", "has no file"),
        ("tidy", "scripts/data.bin", "program_missing", "is not executable"),
        ("tidy", "", "outside_folder", "only files below scripts/"),
        ("listed", "scripts/show.sh", "not_allowed", "allows only: notes.*, Bash(git:*)"),
        ("online", "scripts/show.sh", "not_allowed", "sandbox.network"),
        ("made", "scripts/show.sh", "not_allowed", "a conversation wrote the skill made"),
    ] {
        let outcome = scripted.outcome(&format!("{skill} {}", json!({"script": script}))).await;
        assert_eq!(outcome["error_type"], error, "{skill} {script}: {outcome}");
        assert!(outcome["data"].to_string().contains(part), "{skill} {script}: {outcome}");
    }
}

/// A model that runs the script of the skill `tidy` and then says what it read.
async fn runner() -> FakeModelServer {
    FakeModelServer::start(|seen| {
        let last = seen.messages().last().cloned().unwrap_or_default();
        if last["role"] == "tool" {
            return Reply::says(format!("Read: {}", last["content"].as_str().unwrap_or_default()));
        }
        let arguments = json!({"script": "scripts/show.sh", "args": "a b"});
        Reply::calls([("use_skill", json!({"skill": "tidy", "arguments": arguments}))])
    })
    .await
}

async fn with_script(folder: &tempfile::TempDir, server: &Server, head: &str) {
    let scripts = folder.path().join("skills/tidy/scripts");
    std::fs::create_dir_all(&scripts).expect("made");
    std::fs::write(scripts.join("show.sh"), SHOW).expect("written");
    put(folder, server, &[("tidy", head, "Run scripts/show.sh.")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn active_skill_runs_its_scripts_only_if_its_list_of_tools_allows_them() {
    for (head, is_allowed) in [
        ("allowed-tools: Read notes.*", false),
        ("allowed-tools: Read Bash(bash:*)", true),
        ("allowed-tools: run_script", true),
    ] {
        let model = runner().await;
        let (folder, server) = server_with(&model, "mode = \"single_loop\"").await;
        with_script(&folder, &server, head).await;
        let sent = ask(&server, "/tidy").await;
        let answer = sent["answer"].as_str().unwrap_or_default().to_owned();
        let ran = kinds(&server, &sent).await.contains(&"skill_finished".to_owned());
        assert_eq!(ran, is_allowed, "{head}: {sent}");
        if is_allowed && is_sandboxed() {
            assert!(answer.contains(" a|b|2"), "{head}: {sent}");
        } else if !is_allowed {
            let wanted = "scripts/show.sh of tidy was not run";
            assert!(model.requests().iter().any(|seen| format!("{:?}", seen.messages()).contains(wanted)), "{sent}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_about_effects_asks_a_person_before_a_script_and_not_before_the_instructions() {
    let model = runner().await;
    let rules = "mode = \"single_loop\"\n[approval]\nrules = [{ mode = \"ask\", effects = [\"once\"] }]\n";
    let (folder, server) = server_with(&model, rules).await;
    with_script(&folder, &server, "").await;
    let (status, sent) = server.post("/api/v1/messages", &json!({"text": "/tidy"})).await.expect("the server answers");
    assert_eq!(status, 202, "{sent}");
    let task = sent["task_id"].as_str().expect("a task").to_owned();
    let request = eventually("the call waits for a person", async || {
        let (_, list) = server.get("/api/v1/approvals").await;
        list["approvals"].as_array().and_then(|rows| rows.first().cloned())
    })
    .await;
    assert_eq!(request["arguments"]["script"], "scripts/show.sh", "{request}");
    for changed in [json!({"script": "scripts/other.sh"}), json!({"args": "x"})] {
        let body = json!({"arguments": changed});
        let (status, refused) = server.post(&format!("/api/v1/approvals/{task}/approve"), &body).await.expect("sent");
        assert!(status == 400 && refused.to_string().contains("they name another script"), "{status} {refused}");
    }
    let same = json!({"arguments": {"script": "scripts/show.sh", "args": "c"}});
    let (status, done) = server.post(&format!("/api/v1/approvals/{task}/approve"), &same).await.expect("sent");
    assert_eq!(status, 200, "{done}");
    let outcome = eventually("the script has run", async || outcome_in(&server, &sent).await).await;
    let wanted = if is_sandboxed() { " c||1" } else { "was not run" };
    assert!(outcome["data"].to_string().contains(wanted), "{outcome}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn person_runs_a_script_of_a_prompt_skill_expressly() {
    let scripted = Scripted::start("").await;
    tidy(&scripted, "tidy", "", &[("scripts/show.sh", SHOW)]).await;
    let call = ["skills", "run", "tidy", "--script", "scripts/show.sh", "--args=--n=3 x"];
    let data = scripted.data.path();
    let (code, _, err) = annie(data, &call, &[]).await;
    assert!(code == 2 && err.contains("must not be repeated") && err.contains("--yes"), "{code} {err}");
    let (code, out, err) = annie(data, &[&call[..], &["--yes"]].concat(), &[]).await;
    if is_sandboxed() {
        assert!(code == 0 && out.contains("--n=3|x|2"), "{code} {out} {err}");
    } else {
        assert!(code != 0 && err.contains("was not run"), "{code} {err}");
    }
}
