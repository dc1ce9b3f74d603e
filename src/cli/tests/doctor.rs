//! `annie doctor` on folders and servers with and without problems.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use annie_core::{
    outcome::Outcome,
    ports::{Fut, SkillCall},
    skill::{Effect, SkillSet},
};
use annie_testkit::{
    model_server::{FakeModelServer, Reply},
    skills::skill,
};

use super::*;

#[tokio::test]
async fn doctor_check_of_an_empty_folder_finds_nothing_and_creates_nothing() {
    let data = tempfile::tempdir().unwrap();
    for how in ["--check", "--repair"] {
        let output = annie(data.path(), &["doctor", how]).await;
        assert_eq!(output.done, Ok(()), "{}{}", output.out, output.err);
        assert!(output.out.contains("there is none yet"), "{}", output.out);
        assert!(!data.path().join("annie.db").exists(), "{how} made a database");
    }
}

#[tokio::test]
async fn doctor_check_of_an_unreadable_database_is_one_error_among_the_findings() {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("annie.db"), "this is no database at all, and never was").unwrap();
    let output = annie(data.path(), &["doctor", "--check"]).await;
    assert_eq!(output.done.unwrap_err().exit, Exit::Failure);
    for part in ["configuration", "data folder", "ERROR    log", "skills", "backend"] {
        assert!(output.out.contains(part), "{part} is not in {}", output.out);
    }
}

#[tokio::test]
async fn doctor_reports_an_unusable_notes_folder_and_a_lost_database() {
    let data = tempfile::tempdir().unwrap();
    assert_eq!(annie(data.path(), &["--quiet", "ask", "what is due?"]).await.done, Ok(()));
    std::fs::write(data.path().join("notes"), "in the way").unwrap();
    let output = annie(data.path(), &["doctor"]).await;
    let line = output.out.lines().find(|line| line.contains("notes cannot be kept in")).unwrap_or_default();
    assert!(line.contains("warning") && line.contains("is no folder"), "{}", output.out);
    for file in ["annie.db", "annie.db-wal", "annie.db-shm"] {
        let _ = std::fs::remove_file(data.path().join(file));
    }
    let lost = annie(data.path(), &["doctor"]).await;
    assert_eq!(lost.done.unwrap_err().exit, Exit::Failure, "a start refuses it too: {}", lost.out);
    assert!(lost.out.contains("the database has no conversations"), "{}", lost.out);
}

#[tokio::test]
async fn doctor_reports_a_key_and_channels_with_which_a_start_fails_on_an_empty_and_on_a_used_folder() {
    let data = tempfile::tempdir().unwrap();
    let channel = r#"[{ name = "x", kind = "webhook", url = "https://example.org/x", secret_env = "HOOK_SECRET" }]"#;
    let unset = ("ANNIE__CHANNEL", channel);
    for is_used in [false, true] {
        assert_eq!(data.path().join("annie.db").exists(), is_used);
        for (variables, what, part) in [
            (vec![("ANNIE__SECRETS__KEY_FILE", "/missing")], "secrets", "/missing"),
            (vec![unset], "channels", "channel `x` reads its secret from here"),
            (vec![unset, ("HOOK_SECRET", "short")], "channels", "channel `x`"),
        ] {
            let output = annie_in(data.path(), &["doctor"], &variables).await;
            let is_error = |line: &&str| line.starts_with(&format!("ERROR    {what}")) && line.contains(part);
            assert_eq!(output.out.lines().filter(is_error).count(), 1, "{what}, {is_used}: {}", output.out);
            assert_eq!(output.done.unwrap_err().exit, Exit::Failure, "{}", output.out);
            let start = annie_in(data.path(), &["--quiet", "ask", "what is due?"], &variables).await;
            assert!(start.done.is_err(), "a start fails too: {}", start.out);
        }
        assert_eq!(annie(data.path(), &["--quiet", "ask", "what is due?"]).await.done, Ok(()));
    }
}

#[tokio::test]
async fn doctor_warns_of_a_hook_that_names_no_skill() {
    let data = tempfile::tempdir().unwrap();
    let when = r#"{ skills = ["tasks.*", "mail.nowhere"] }"#;
    let hooks = format!(r#"[{{ name = "x", point = "before_skill", kind = "refuse", text = "No.", when = {when} }}]"#);
    let output = annie_in(data.path(), &["doctor"], &[("ANNIE__HOOK", &hooks)]).await;
    assert_eq!(output.done, Ok(()), "{}{}", output.out, output.err);
    let lines: Vec<&str> = output.out.lines().filter(|line| line.contains("hook `x` names")).collect();
    let [line] = lines[..] else { panic!("one line about the hook: {}", output.out) };
    assert!(line.contains("warning") && line.contains("`mail.nowhere`, and there is no such skill"), "{line}");
}

#[tokio::test]
async fn doctor_warns_of_a_hook_whose_program_cannot_be_executed() {
    let data = tempfile::tempdir().unwrap();
    let hooks = r#"[{ name = "x", point = "before_turn", kind = "program", program = "/no/such/program" }]"#;
    let output = annie_in(data.path(), &["doctor"], &[("ANNIE__HOOK", hooks)]).await;
    assert_eq!(output.done, Ok(()), "{}{}", output.out, output.err);
    let line = output.out.lines().find(|line| line.contains("hook `x` fails")).expect("a line about the hook");
    assert!(line.contains("warning") && line.contains("/no/such/program is no executable file"), "{line}");
}

#[tokio::test]
async fn doctor_names_a_backend_whose_rounds_fail_in_the_running_server() {
    let data = tempfile::tempdir().unwrap();
    let is_broken = Arc::new(AtomicBool::new(false));
    let breaks = is_broken.clone();
    let model = FakeModelServer::start(move |_| match breaks.load(Relaxed) {
        false => Reply::says("Good morning."),
        true => Reply::error(500, "the GPU fell off the bus"),
    })
    .await;
    let base = model.base_url();
    let variables = [("ANNIE_MODEL", "m"), ("OPENAI_BASE_URL", &base), ("ANNIE__BACKEND__0__RETRIES_MAX", "0")];
    with_server_of(data.path(), &variables, async |url| {
        let well = annie_in(data.path(), &["--url", &url, "ask", "good morning"], &variables).await;
        assert_eq!(well.done, Ok(()), "{}", well.err);
        let before = annie_in(data.path(), &["--url", &url, "doctor"], &variables).await;
        assert!(before.done.is_ok() && before.out.contains("ok       backend"), "{}", before.out);
        is_broken.store(true, Relaxed);
        let asked = annie_in(data.path(), &["--url", &url, "ask", "and now?"], &variables).await;
        assert!(asked.done.is_err(), "{}", asked.out);
        let output = annie_in(data.path(), &["--url", &url, "doctor"], &variables).await;
        assert_eq!(
            output.done.unwrap_err().exit,
            Exit::Failure,
            "the backend lists its models, but its rounds fail: {}",
            output.out
        );
        let line = output.out.lines().find(|line| line.starts_with("ERROR")).unwrap_or_default();
        for part in ["backend", "generic", "FAILING since", "the GPU fell off the bus"] {
            assert!(line.contains(part), "{part} is not in {}", output.out);
        }
        assert!(!output.out.contains("ok       backend"), "{}", output.out);
    })
    .await;
}

#[tokio::test]
async fn migrate_with_an_unusable_notes_folder_prints_a_fix() {
    let data = tempfile::tempdir().unwrap();
    assert_eq!(annie(data.path(), &["--quiet", "ask", "what is due?"]).await.done, Ok(()));
    std::fs::write(data.path().join("notes"), "in the way").unwrap();
    let wanted = ["migrate", "--from", "sqlite", "--to", "postgres"];
    let env = [("ANNIE__STORE__URL", "postgres://someone@127.0.0.1:1/none")];
    let failure = annie_in(data.path(), &wanted, &env).await.done.unwrap_err();
    assert!(failure.what.contains("notes cannot be kept in"), "{failure:?}");
    let fix = failure.fix.unwrap_or_default();
    assert!(fix.contains("owner and rights") && fix.contains("--without-notes") && !fix.contains("cp -a"), "{fix}");
}

/// A source with a skill of its own, and one with the name of a bundled skill.
struct Ledger;

impl SkillSource for Ledger {
    fn name(&self) -> &str {
        "ledger"
    }

    fn specs(&self) -> Result<Arc<SkillSet>, String> {
        let skills = ["ledger.show", "tasks.create"].map(|name| skill(name, Effect::Read, false));
        Ok(Arc::new(SkillSet::new(skills, [], 1)))
    }

    fn run(&self, call: SkillCall) -> Fut<'_, Outcome> {
        Box::pin(std::future::ready(Outcome::success(call.skill)))
    }
}

#[tokio::test]
async fn doctor_and_status_show_problems_of_skill_sources_of_the_running_server() {
    let data = tempfile::tempdir().unwrap();
    let when = r#"{ skills = ["ledger.show", "mail.nowhere"] }"#;
    let hooks = format!(r#"[{{ name = "x", point = "before_skill", kind = "refuse", text = "No.", when = {when} }}]"#);
    let variables = [("ANNIE__HOOK", hooks.as_str())];
    with_server_and(data.path(), &variables, vec![Arc::new(Ledger)], async |url| {
        let output = annie_in(data.path(), &["--url", &url, "doctor"], &variables).await;
        assert_eq!(output.done, Ok(()), "{}{}", output.out, output.err);
        let warned = |what: &str, part: &str| {
            let is_it = |line: &str| line.starts_with(&format!("warning  {what}")) && line.contains(part);
            output.out.lines().any(is_it)
        };
        assert!(warned("skills", "skill source `ledger` also has `tasks.create`"), "{}", output.out);
        assert!(output.out.contains("fix: the server's log has the details"), "{}", output.out);
        assert!(warned("hooks", "`mail.nowhere`, and there is no such skill"), "{}", output.out);
        assert!(!output.out.contains("ledger.show"), "the server has this skill: {}", output.out);
        let status = annie_in(data.path(), &["--url", &url, "status"], &variables).await;
        assert!(status.out.contains("warning   skill source `ledger` also has `tasks.create`"), "{}", status.out);
    })
    .await;
}
