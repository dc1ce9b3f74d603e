//! `system.build_skill` through the router: what it refuses, and what an interrupted call finds out.

use annie_core::{
    ids::UserId,
    outcome::Status,
    ports::{SkillCall, SkillRunner},
    time::Micros,
};
use serde_json::json;

use crate::{
    approved::{ApprovalState, SkillDecision},
    runner::tests::{World, call, world},
};

const CONTENT: &str = "---\nname: standup\ndescription: Write my standup.\n---\nWrite.\n";

fn ann() -> UserId {
    UserId::new("ann").unwrap()
}

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

/// A request that is not listed in this world, where no skill sends requests.
fn request(intent: &str, name: &str, more: serde_json::Value) -> SkillCall {
    let content = format!(
        "---\nname: {name}\ndescription: The weather.\neffect: read\nexternal: true\nrequest:\n  url: https://example.com\n---\nx\n"
    );
    let mut arguments = json!({"name": name, "content": content});
    arguments.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    call(intent, "system.build_skill", arguments)
}

#[tokio::test]
async fn file_that_an_interrupted_build_left_does_not_keep_the_name() {
    let world = world();
    let folder = world.folder.path().join("skills/standup");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(".SKILL.md.annie-tmp"), "half a fi").unwrap();
    let outcome = world.runner.run(build("a")).await;
    assert_eq!(outcome.status, Status::Success, "{outcome:?}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "the file that was left became the skill file");
}

#[tokio::test]
async fn skill_that_the_configuration_does_not_list_is_counted_and_can_be_approved() {
    let world = world();
    let built = world.runner.run(request("a", "weather.now", json!({}))).await;
    assert_eq!(built.status, Status::Success, "{built:?}");
    let outcome = world.runner.run(call("b", "weather.now", json!({}))).await;
    assert_eq!(outcome.error_type.as_deref(), Some("unknown_skill"), "no skill sends requests here");
    let all = world.runner.built(&ann()).await.unwrap();
    assert_eq!(
        all.iter().map(|skill| (skill.name.as_str(), skill.state)).collect::<Vec<_>>(),
        [("weather.now", ApprovalState::Awaiting)]
    );
    let approve = SkillDecision::Approve { hash: all[0].hash.clone() };
    let decided = world.runner.decide(&ann(), "ann", "weather.now", approve, Micros(1)).await.unwrap();
    assert_eq!(decided.state, ApprovalState::Approved);
}

#[tokio::test]
async fn text_with_invisible_characters_is_not_written() {
    let world = world();
    for (flag, text) in
        [("content", CONTENT.replace("Write.", "Wr\u{202e}ite.")), ("script", "rm \u{200b}x".to_owned())]
    {
        let mut building = build("a");
        building.arguments[flag] = json!(text);
        let outcome = world.runner.run(building).await;
        assert!(outcome.data.contains(&format!("of --{flag} has the invisible character <U+20")), "{}", outcome.data);
    }
    assert!(!file(&world).exists());
}

#[tokio::test]
async fn file_in_the_folder_of_skills_that_a_script_names_by_its_path_is_part_of_what_is_approved() {
    let world = world();
    let skills = world.folder.path().join("skills");
    let other = skills.join("sums/other.md");
    world.runner.run(request("a", "sums.other", json!({}))).await;
    let line =
        std::fs::read_to_string(&other).unwrap().lines().find(|line| line.starts_with("built:")).unwrap().to_owned();
    let text = format!(
        "---\nname: sums.add\n{line}\ndescription: d\neffect: read\nexternal: false\nrun: [sh, {}]\n---\nx\n",
        other.display()
    );
    std::fs::write(skills.join("sums/add.md"), text).unwrap();
    let hash = async || {
        world.reload();
        world.runner.built(&ann()).await.unwrap().into_iter().find(|skill| skill.name == "sums.add").unwrap().hash
    };
    let before = hash().await;
    std::fs::write(&other, format!("{}\necho changed\n", std::fs::read_to_string(&other).unwrap())).unwrap();
    assert_ne!(hash().await, before);
}

#[tokio::test]
async fn built_skill_has_its_own_name_and_is_never_the_file_of_a_prompt_skill_of_another() {
    let world = world();
    let folder = world.folder.path().join("skills/hand");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("made.md"), "---\nname: hand.made\ndescription: d\nhandler: system.time\n---\nx\n")
        .unwrap();
    world.reload();
    let prompt = |name: &str| format!("---\nname: {name}\ndescription: d\n---\nx\n");
    for (name, content) in [
        ("commit.skill", prompt("commit")),
        ("hand.skill", prompt("hand")),
        ("help.skill", prompt("help")),
        ("standup", prompt("commit")),
    ] {
        let outcome = world.run("system.build_skill", json!({"name": name, "content": content})).await;
        assert_eq!(outcome.error_type.as_deref(), Some("invalid_arguments"), "{name}: {outcome:?}");
        let why = if name.contains('.') { "the name cannot be a skill's" } else { "the file names the skill `commit`" };
        assert!(outcome.data.contains(why), "{name}: {}", outcome.data);
    }
    assert!(!file(&world).exists() && !folder.join("skill.md").exists());
    assert_eq!(world.run("hand.made", json!({})).await.status, Status::Success, "a person's skill is still there");
}
