//! `system.build_skill` through the router: what it refuses, and what an interrupted call finds out.

use annie_core::{
    ids::UserId,
    outcome::Status,
    ports::{SkillCall, SkillRunner},
};
use serde_json::json;

use crate::runner::tests::{World, call, world};

const CONTENT: &str = "---\nname: standup\ndescription: Write my standup.\n---\nWrite.\n";

fn build(intent: &str) -> SkillCall {
    call(intent, "system.build_skill", json!({"name": "standup", "content": CONTENT}))
}

fn file(world: &World) -> std::path::PathBuf {
    world.folder.path().join("skills/standup/SKILL.md")
}

#[tokio::test]
async fn skill_is_not_built_from_texts_of_others_or_for_another_user() {
    let world = world();
    let read = SkillCall { origin: vec!["web.fetch".to_owned()], ..build("a") };
    let other = SkillCall { user: UserId::new("bob").unwrap(), ..build("b") };
    for (refused, error) in [(read, "outside_text"), (other, "not_allowed")] {
        let outcome = world.runner.run(refused).await;
        assert_eq!((outcome.status, outcome.error_type.as_deref()), (Status::ErrorBlocked, Some(error)));
    }
    assert!(!file(&world).exists());
}

#[tokio::test]
async fn skill_file_of_a_person_is_never_replaced_even_if_it_is_broken() {
    let world = world();
    std::fs::create_dir_all(file(&world).parent().unwrap()).unwrap();
    std::fs::write(file(&world), "half a fi").unwrap();
    let mut replacing = build("a");
    replacing.arguments["replace"] = json!(true);
    let outcome = world.runner.run(replacing).await;
    assert_eq!(outcome.error_type.as_deref(), Some("conflict"), "{outcome:?}");
    assert_eq!(std::fs::read_to_string(file(&world)).unwrap(), "half a fi");
}

#[tokio::test]
async fn interrupted_build_finds_out_whether_its_own_file_is_there() {
    let world = world();
    let before = world.runner.reconcile(build("a")).await.unwrap();
    assert_eq!((before.status, before.error_type.as_deref()), (Status::ErrorTransient, Some("interrupted")));
    assert!(!file(&world).exists(), "finding out writes nothing");
    assert_eq!(world.runner.run(build("a")).await.status, Status::Success);
    let written = std::fs::read_to_string(file(&world)).unwrap();
    let after = world.runner.reconcile(build("a")).await.unwrap();
    assert_eq!(after.status, Status::Success, "{after:?}");
    let of_another = world.runner.reconcile(build("b")).await.unwrap();
    assert_eq!(of_another.error_type.as_deref(), Some("interrupted"), "the file is of another call");
    assert_eq!(std::fs::read_to_string(file(&world)).unwrap(), written);
}

#[tokio::test]
async fn unreadable_provenance_does_not_make_a_file_a_persons() {
    let world = world();
    let text = "---\nname: weather.now\ndescription: x\neffect: read\nexternal: true\nbuilt: yes\nrequest:\n  url: https://example.com\n---\nx\n";
    let folder = world.folder.path().join("skills/weather");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("now.md"), text).unwrap();
    let outcome = world.runner.run(call("a", "weather.now", json!({}))).await;
    assert_eq!(outcome.error_type.as_deref(), Some("unknown_skill"));
}
