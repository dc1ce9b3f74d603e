//! Tests of several sources of skills behind one router.

use std::{fs, sync::mpsc, thread, time::Duration};

use annie_core::{
    outcome::Status,
    skill::{Effect, SkillChange, SkillSpec},
};
use annie_testkit::skills::skill;
use serde_json::json;

use super::*;
use crate::runner::tests::{World, call, world_with};

/// A source whose list the test sets. The failure `panic` is a panic.
struct Fake {
    name: &'static str,
    specs: Mutex<Result<Arc<SkillSet>, String>>,
}

fn fake(name: &'static str, skills: &[&str]) -> Arc<Fake> {
    Arc::new(Fake { name, specs: Mutex::new(Ok(set(skills, 1))) })
}

fn set(skills: &[&str], version: u64) -> Arc<SkillSet> {
    let skills: Vec<SkillSpec> = skills.iter().map(|name| skill(name, Effect::Once, false)).collect();
    Arc::new(SkillSet::new(skills, [("mail".to_owned(), "Mail.".to_owned())], version))
}

impl Fake {
    fn lists(&self, specs: Result<Arc<SkillSet>, String>) {
        *self.specs.lock().unwrap() = specs;
    }

    fn fails(&self, why: &str) {
        self.lists(Err(why.to_owned()));
    }
}

impl SkillSource for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn specs(&self) -> Result<Arc<SkillSet>, String> {
        let specs = self.specs.lock().unwrap().clone();
        assert_ne!(specs, Err("panic".to_owned()), "the source panics");
        specs
    }

    fn run(&self, call: SkillCall) -> Fut<'_, Outcome> {
        let outcome = Outcome::success(format!("{} ran {}", self.name, call.skill));
        Box::pin(std::future::ready(outcome.with_skill_change(SkillChange::End)))
    }

    fn reconcile(&self, call: SkillCall) -> Fut<'_, Option<Outcome>> {
        Box::pin(std::future::ready(Some(Outcome::success(format!("{} had run {}", self.name, call.skill)))))
    }
}

#[tokio::test]
async fn router_lets_only_the_skills_of_files_change_the_active_skill() {
    let world = world_with(vec![fake("one", &["mail.send"])]);
    assert_eq!(world.run("mail.send", json!({"what": "x"})).await.skill_change, None);
    assert!(world.run("weekly-review", json!({})).await.skill_change.is_some());
}

fn error_of(outcome: &Outcome) -> (Status, &str) {
    (outcome.status, outcome.error_type.as_deref().unwrap_or_default())
}

fn has(world: &World, skill: &str) -> bool {
    world.runner.skills().get(skill).is_some()
}

#[tokio::test]
async fn router_runs_and_reconciles_a_skill_in_the_source_that_lists_it() {
    let world = world_with(vec![fake("one", &["mail.send"]), fake("two", &["mail.read"])]);
    assert_eq!(world.data("mail.send", json!({"what": "x"})).await, "one ran mail.send");
    assert_eq!(world.data("mail.read", json!({})).await, "two ran mail.read");
    assert!(world.data("system.time", json!({})).await.starts_with("Saturday"));
    let reconciled = world.runner.reconcile(call("r", "mail.read", json!({}))).await;
    assert_eq!(reconciled.map(|outcome| outcome.data).as_deref(), Some("two had run mail.read"));
    assert_eq!(world.runner.problems(), Vec::<String>::new());
}

#[tokio::test]
async fn router_refuses_unknown_skills_and_invalid_arguments_before_any_source() {
    let world = world_with(vec![fake("one", &["mail.send"])]);
    let outcome = world.run("mail.sendd", json!({})).await;
    assert_eq!(error_of(&outcome), (Status::ErrorPermanent, "unknown_skill"));
    assert_eq!(outcome.alternatives[0], "mail.send");
    let outcome = world.run("mail.send", json!({"to": "bob"})).await;
    assert_eq!(error_of(&outcome), (Status::ErrorPermanent, "invalid_arguments"));
    assert!(outcome.data.contains("mail.send has no flag --to"), "{}", outcome.data);
    assert_eq!(world.runner.reconcile(call("r", "mail.sendd", json!({}))).await, None);
}

#[tokio::test]
async fn router_keeps_the_skill_of_the_earlier_source_and_names_both() {
    let world = world_with(vec![fake("one", &["mail.send", "system.time"]), fake("two", &["mail.send"])]);
    assert!(world.data("system.time", json!({})).await.starts_with("Saturday"), "a bundled skill is not replaced");
    assert_eq!(world.data("mail.send", json!({})).await, "one ran mail.send");
    assert_eq!(world.runner.skills().get("system.time").unwrap().source, "bundled");
    assert_eq!(
        world.runner.problems(),
        [
            "skill source `one` also has `system.time`, and that of `files` is used: rename one of them",
            "skill source `two` also has `mail.send`, and that of `one` is used: rename one of them",
        ]
    );
}

#[tokio::test]
async fn router_leaves_out_skills_that_stand_for_others_or_have_names_of_the_kernel() {
    let names =
        ["tasks__create", "tasks-create", "system.fetch", "fetch", "mail.Show me", "mail.a_b", "mail.a-b", "mail.send"];
    let world = world_with(vec![fake("one", &names), fake("one", &["mail.read"]), fake("a b", &["mail.list"])]);
    for left_out in names[..6].iter().chain(&["mail.list"]) {
        assert!(!has(&world, left_out), "{left_out}");
    }
    assert!(has(&world, "mail.send") && has(&world, "mail.a-b") && has(&world, "tasks.create"));
    let problems = world.runner.problems().join("\n");
    for part in [
        "skill source `one` also has `tasks__create`, and that of `files` is used",
        "skill source `one`: its skill `system.fetch` is left out: the domain `system`",
        "its skill `fetch` is left out: its name needs a domain",
        "its skill `mail.Show me` is left out: a name has lower-case letters",
        "its skill `mail.a_b` is left out: to a model its skill `mail.a-b` has the same name",
        "two skill sources are named `one`",
        "skill source `a b` is left out: a name has 1 to 64",
    ] {
        assert!(problems.contains(part), "{part}: {problems}");
    }
}

#[tokio::test]
async fn router_keeps_the_last_skills_of_a_source_that_cannot_list_them() {
    let (source, other) = (fake("one", &["mail.send"]), fake("two", &["mail.read"]));
    let world = world_with(vec![source.clone(), other.clone()]);
    let version = world.runner.skills().version();
    for (why, shown) in [("no connection", "no connection"), ("panic", "it panicked")] {
        source.fails(why);
        other.lists(Ok(set(&["mail.read", "mail.list"], 2)));
        assert!(has(&world, "mail.send") && has(&world, "mail.list") && has(&world, "tasks.create"));
        assert_eq!(world.data("mail.send", json!({})).await, "one ran mail.send");
        let text = format!("skill source `one` cannot list its skills, and its last ones are used: {shown}");
        assert_eq!(world.runner.problems(), [text]);
        source.lists(Ok(set(&["mail.send"], 1)));
        assert_eq!(world.runner.problems(), Vec::<String>::new());
    }
    assert_eq!(world.runner.skills().version(), version + 1, "only one source has a new version");
}

/// A source that reports each request for its list, and waits while the gate is locked.
struct Waiting {
    asked: mpsc::Sender<()>,
    gate: Mutex<()>,
}

impl SkillSource for Waiting {
    fn name(&self) -> &str {
        "waiting"
    }

    fn specs(&self) -> Result<Arc<SkillSet>, String> {
        self.asked.send(()).unwrap();
        drop(self.gate.lock());
        Ok(set(&["mail.send"], 1))
    }

    fn run(&self, call: SkillCall) -> Fut<'_, Outcome> {
        Box::pin(std::future::ready(Outcome::success(call.skill)))
    }
}

#[test]
fn router_gives_the_last_skills_while_a_source_waits_that_another_thread_asks() {
    const PATIENCE: Duration = Duration::from_secs(10);
    let (asked, is_asked) = mpsc::channel();
    let source = Arc::new(Waiting { asked, gate: Mutex::default() });
    let world = world_with(vec![source.clone()]);
    is_asked.recv_timeout(PATIENCE).unwrap();
    let router = &world.runner;
    let (to, from) = mpsc::channel();
    thread::scope(|scope| {
        let gate = source.gate.lock().unwrap();
        scope.spawn(|| router.skills());
        let first = is_asked.recv_timeout(PATIENCE);
        scope.spawn(move || to.send(router.skills().get("mail.send").is_some()));
        let second = from.recv_timeout(PATIENCE);
        // The threads end before the test fails.
        drop(gate);
        assert_eq!((first, second), (Ok(()), Ok(true)), "the second thread waits for the source");
    });
}

#[tokio::test]
async fn router_shows_changed_skills_at_once_and_help_describes_those_of_all_sources() {
    let source = fake("one", &["mail.send"]);
    let world = world_with(vec![source.clone()]);
    let sent = world.data("system.help", json!({})).await;
    assert!(sent.contains("- mail: Mail.\n  mail.send") && sent.contains("- tasks: "), "{sent}");
    source.lists(Ok(set(&["mail.read"], 2)));
    assert!(world.data("system.help", json!({"topic": "mail"})).await.contains("mail.read"));
    assert_eq!(error_of(&world.run("mail.send", json!({})).await), (Status::ErrorPermanent, "unknown_skill"));
    let folder = world.folder.path().join("skills/greet");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("SKILL.md"), "---\nname: greet\ndescription: Greet.\n---\nHello!\n").unwrap();
    assert!(!has(&world, "greet"));
    world.reload();
    assert!(has(&world, "greet") && world.data("greet", json!({})).await.contains("Hello!"));
}

#[tokio::test]
async fn router_keeps_the_list_of_a_source_whose_version_is_unchanged() {
    let source = fake("one", &["mail.send"]);
    let world = world_with(vec![source.clone()]);
    source.lists(Ok(set(&["mail.read"], 1)));
    assert!(has(&world, "mail.send") && !has(&world, "mail.read"));
}

#[tokio::test]
async fn router_reports_that_a_source_without_any_list_so_far_has_no_skill() {
    let source = fake("one", &["mail.send"]);
    source.fails("no connection");
    let world = world_with(vec![source]);
    let text = "skill source `one` cannot list its skills, and none of them is available: no connection";
    assert_eq!(world.runner.problems(), [text]);
}
