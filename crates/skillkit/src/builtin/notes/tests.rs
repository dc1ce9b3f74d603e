//! Tests of notes through the runner: confinement, conflicts, repeated intents.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
};

use annie_core::{
    ids::UserId,
    outcome::{Outcome, Status},
    ports::{SkillCall, SkillRunner},
};
use serde_json::{Value, json};

use crate::runner::tests::{World, call, world, world_in};

impl World {
    fn home(&self) -> PathBuf {
        self.folder.path().join("notes/ann")
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.home().join(path)).unwrap()
    }

    async fn as_intent(&self, intent: &str, skill: &str, arguments: Value) -> Outcome {
        self.runner.run(call(intent, skill, arguments)).await
    }
}

fn word(outcome: &Outcome) -> &str {
    outcome.error_type.as_deref().unwrap_or_default()
}

#[tokio::test]
async fn note_is_created_read_edited_and_found() {
    let world = world();
    let new = json!({"title": "work/Groceries", "content": "- milk\n- eggs", "tags": ["Shop", "2026"]});
    assert_eq!(world.data("notes.create", new).await, "Created note 'work/Groceries'.");
    assert_eq!(world.text("work/Groceries.md"), "---\ntags: [shop, \"2026\"]\n---\n\n- milk\n- eggs\n");
    world.data("notes.edit", json!({"title": "groceries", "append": "- bread"})).await;
    world.data("notes.edit", json!({"title": "groceries", "prepend": "For Saturday:"})).await;
    let sent = world.data("notes.edit", json!({"title": "groceries", "replace": "- milk", "with": "- oat milk"})).await;
    assert_eq!(sent, "Replaced text in note 'work/Groceries'.");
    assert_eq!(
        world.data("notes.read", json!({"title": "GROCERIES"})).await,
        "# work/Groceries\n\n---\ntags: [shop, \"2026\"]\n---\n\nFor Saturday:\n- oat milk\n- eggs\n- bread"
    );
    let sent = world.data("notes.read", json!({"title": "groceries", "from_line": 6, "lines": 1})).await;
    assert_eq!(sent, "# work/Groceries\n\n- oat milk\n\n[lines 6 to 6 of 8]");
    world.data("notes.create", json!({"title": "other", "content": "milk, much milk, Milk"})).await;
    assert_eq!(
        world.data("notes.search", json!({"query": "MILK"})).await,
        "Found 2 notes matching 'MILK':\n\n- other: milk, much milk, Milk\n- work/Groceries [shop, 2026]: - oat milk"
    );
    let sent = world.data("notes.search", json!({"tag": "shop", "query": "eggs groceries"})).await;
    assert_eq!(sent, "Found 1 note matching 'eggs groceries' tagged shop:\n\n- work/Groceries [shop, 2026]: - eggs");
    assert_eq!(world.data("notes.search", json!({"query": "tea"})).await, "No notes found matching 'tea'.");
    assert!(world.data("notes.search", json!({"limit": 1})).await.starts_with("Found 2 notes (the first 1):"));
}

#[tokio::test]
async fn notes_are_private_and_permissions_of_earlier_versions_are_tightened() {
    use std::os::unix::fs::PermissionsExt;
    let world = world();
    let all = world.folder.path().join("notes");
    let mode = |path: &str| fs::metadata(all.join(path)).unwrap().permissions().mode() & 0o777;
    let (folders, files) = (["", "ann", "ann/work"], ["ann/work/Groceries.md", "ann/.annie/lock"]);
    world.data("notes.create", json!({"title": "work/Groceries", "content": "milk"})).await;
    assert_eq!((folders.map(mode), files.map(mode)), ([0o700; 3], [0o600; 2]));

    // Files as an earlier version left them, and one that the owner restricted further.
    fs::write(all.join("ann/work/sealed.md"), "kept").unwrap();
    let outside = world.folder.path().join("outside");
    fs::write(&outside, "of somebody else").unwrap();
    symlink(&outside, all.join("ann/link.md")).unwrap();
    let set = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    set(&outside, 0o644);
    set(&all.join("ann/work/sealed.md"), 0o440);
    folders.iter().for_each(|path| set(&all.join(path), 0o755));
    files.iter().for_each(|path| set(&all.join(path), 0o644));
    assert!(world.data("notes.read", json!({"title": "groceries"})).await.ends_with("milk"));
    assert_eq!((folders.map(mode), files.map(mode)), ([0o700; 3], [0o600; 2]));
    assert_eq!(mode("ann/work/sealed.md"), 0o400, "no permission is added");
    assert_eq!(mode("../outside"), 0o644, "the target of a link is not changed");
}

#[tokio::test]
async fn notes_skills_refuse_if_the_notes_are_on_another_node() {
    let world = world_in(tempfile::tempdir().unwrap(), false);
    for (skill, arguments) in [
        ("notes.create", json!({"title": "shop", "content": "milk"})),
        ("notes.edit", json!({"title": "shop", "append": "eggs"})),
        ("notes.read", json!({"title": "shop"})),
        ("notes.search", json!({})),
    ] {
        let outcome = world.run(skill, arguments).await;
        assert_eq!((outcome.status, word(&outcome)), (Status::ErrorBlocked, "elsewhere"), "{skill}: {outcome:?}");
    }
    assert!(!world.folder.path().join("notes").exists(), "no notes folder is created on this node");
}

#[tokio::test]
async fn processes_sharing_a_notes_folder_lose_no_lines() {
    let (one, two) = (world(), world());
    one.data("notes.create", json!({"title": "list", "content": "begun"})).await;
    let notes = two.folder.path().join("notes");
    symlink(one.folder.path().join("notes"), &notes).unwrap();
    let append = async |world: &World, author: &str| {
        for n in 0..30 {
            world.data("notes.edit", json!({"title": "list", "append": format!("{author} {n}")})).await;
        }
    };
    tokio::join!(append(&one, "one"), append(&two, "two"));
    assert_eq!(one.text("list.md").lines().count(), 61);
}

#[tokio::test]
async fn note_titles_cannot_leave_the_folder() {
    let world = world();
    fs::create_dir_all(world.home()).unwrap();
    fs::write(world.folder.path().join("secret.md"), "secret").unwrap();
    fs::create_dir_all(world.folder.path().join("notes/bob")).unwrap();
    fs::write(world.folder.path().join("notes/bob/diary.md"), "secret").unwrap();
    let secret = world.folder.path().join("secret.md").to_string_lossy().into_owned();
    for title in ["../../secret", "../bob/diary", "a/../../bob/diary", "..\\bob\\diary", secret.as_str(), "/etc/passwd"]
    {
        for (skill, arguments) in [
            ("notes.read", json!({"title": title})),
            ("notes.create", json!({"title": title, "content": "x"})),
            ("notes.edit", json!({"title": title, "append": "x"})),
        ] {
            let outcome = world.run(skill, arguments).await;
            assert_eq!((outcome.status, word(&outcome)), (Status::ErrorBlocked, "outside_folder"), "{skill} {title}");
        }
    }
    assert_eq!(fs::read_to_string(world.folder.path().join("notes/bob/diary.md")).unwrap(), "secret");
}

#[tokio::test]
async fn note_links_cannot_leave_the_folder() {
    let world = world();
    fs::create_dir_all(world.home()).unwrap();
    let outside = world.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret.md"), "secret").unwrap();
    symlink(outside.join("secret.md"), world.home().join("file.md")).unwrap();
    symlink(&outside, world.home().join("folder")).unwrap();
    symlink("../../outside", world.home().join("relative")).unwrap();
    for title in ["file", "folder/secret", "relative/secret"] {
        let read = world.run("notes.read", json!({"title": title})).await;
        assert!(!read.status.is_ok() && !read.data.contains("secret\n"), "{title}: {read:?}");
        let edit = world.run("notes.edit", json!({"title": title, "append": "x"})).await;
        assert!(!edit.status.is_ok(), "{title}: {edit:?}");
    }
    for title in ["folder/new", "relative/new", "folder/secret"] {
        let created = world.run("notes.create", json!({"title": title, "content": "x"})).await;
        assert_eq!((created.status, word(&created)), (Status::ErrorBlocked, "outside_folder"), "{title}: {created:?}");
    }
    let found = world.run("notes.search", json!({"query": "secret"})).await;
    assert_eq!(found.evidence["count"], 0, "{found:?}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(outside.join("secret.md")).unwrap(), "secret");
}

#[tokio::test]
async fn creating_the_same_note_succeeds_and_another_of_that_title_conflicts() {
    let world = world();
    let new = json!({"title": "plan", "content": "one"});
    let first = world.as_intent("a", "notes.create", new.clone()).await;
    assert_eq!(world.as_intent("a", "notes.create", new.clone()).await, first);
    let other = world.as_intent("b", "notes.create", new).await;
    assert_eq!(other.data, "The note 'plan' is there already with this content.");
    for title in ["plan", "Plan"] {
        let taken = world.run("notes.create", json!({"title": title, "content": "two"})).await;
        assert_eq!((taken.status, word(&taken)), (Status::ErrorPermanent, "conflict"), "{taken:?}");
    }
    assert_eq!(world.text("plan.md"), "one\n");
    let blocked = world.run("notes.create", json!({"title": "plan.md/x", "content": "y"})).await;
    assert!(!blocked.status.is_ok(), "{blocked:?}");
}

#[tokio::test]
async fn edit_repeated_under_its_intent_happens_once() {
    let world = world();
    world.data("notes.create", json!({"title": "list", "content": "- a"})).await;
    let append = json!({"title": "list", "append": "- b"});
    for _ in 0..3 {
        let outcome = world.as_intent("e", "notes.edit", append.clone()).await;
        assert_eq!(outcome.data, "Appended to note 'list'.");
    }
    assert_eq!(world.text("list.md"), "- a\n- b\n");
    assert_eq!(world.as_intent("f", "notes.edit", append).await.status, Status::Success);
    assert_eq!(world.text("list.md"), "- a\n- b\n- b\n");
}

#[tokio::test]
async fn interrupted_edit_is_completed_by_the_repetition() {
    let world = world();
    world.data("notes.create", json!({"title": "list", "content": "- a"})).await;
    let append = json!({"title": "list", "append": "- b"});
    world.as_intent("e", "notes.edit", append.clone()).await;
    fs::write(world.home().join("list.md"), "- a\n").unwrap();
    assert_eq!(world.as_intent("e", "notes.edit", append).await.status, Status::Success);
    assert_eq!(world.text("list.md"), "- a\n- b\n");
}

#[tokio::test]
async fn interrupted_edit_of_a_note_changed_since_is_unknown_and_not_repeated() {
    let world = world();
    world.data("notes.create", json!({"title": "list", "content": "- a"})).await;
    let append = json!({"title": "list", "append": "- b"});
    world.as_intent("e", "notes.edit", append.clone()).await;
    fs::write(world.home().join("list.md"), "- c\n").unwrap();
    let outcome = world.as_intent("e", "notes.edit", append).await;
    assert_eq!((outcome.status, outcome.evidence), (Status::Unknown, json!({"path": "list.md"})));
    assert_eq!(world.text("list.md"), "- c\n");
}

#[tokio::test]
async fn replaced_text_must_occur_exactly_once() {
    let world = world();
    world.data("notes.create", json!({"title": "list", "content": "a b a"})).await;
    for (old, expected) in [("c", "is not in the note"), ("a", "is in the note 2 times")] {
        let outcome = world.run("notes.edit", json!({"title": "list", "replace": old, "with": "x"})).await;
        assert_eq!(word(&outcome), "invalid_arguments");
        assert!(outcome.data.contains(expected), "{}", outcome.data);
    }
    world.data("notes.edit", json!({"title": "list", "replace": " b", "with": ""})).await;
    assert_eq!(world.text("list.md"), "a a\n");
}

#[tokio::test]
async fn missing_note_suggests_similar_titles_and_ambiguous_title_lists_candidates() {
    let world = world();
    for title in ["work/plan", "home/plan", "plans for spring"] {
        world.data("notes.create", json!({"title": title, "content": "x"})).await;
    }
    let outcome = world.run("notes.read", json!({"title": "spring cleaning"})).await;
    assert_eq!(
        (word(&outcome), outcome.alternatives.as_slice()),
        ("not_found", ["plans for spring".to_owned()].as_slice())
    );
    let outcome = world.run("notes.read", json!({"title": "Plan"})).await;
    assert!(outcome.data.contains("could be several notes: home/plan, work/plan"), "{}", outcome.data);
}

#[tokio::test]
async fn note_size_is_limited() {
    let world = world();
    let outcome = world.run("notes.create", json!({"title": "big", "content": "x".repeat(1024 * 1024)})).await;
    assert!(outcome.data.contains("at most 1048576 bytes"), "{}", outcome.data);
    fs::write(world.home().join("huge.md"), "x".repeat(1024 * 1024 + 1)).unwrap();
    assert_eq!(word(&world.run("notes.read", json!({"title": "huge"})).await), "invalid_arguments");
    let found = world.run("notes.search", json!({})).await;
    assert_eq!(found.status, Status::Partial);
    assert!(found.data.ends_with("1 note could not be looked through."), "{}", found.data);
}

#[tokio::test]
async fn notes_of_another_user_are_never_visible() {
    let world = world();
    world.data("notes.create", json!({"title": "diary", "content": "secret"})).await;
    for user in ["bob", "Ann", "ann/", "../ann"] {
        for (skill, arguments) in [("notes.search", json!({})), ("notes.read", json!({"title": "diary"}))] {
            let user = UserId::new(user).unwrap();
            let outcome = world.runner.run(SkillCall { user, ..call("x", skill, arguments) }).await;
            assert!(!outcome.data.contains("secret") && !outcome.data.starts_with("Found"), "{outcome:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_edits_lose_nothing() {
    let world = Arc::new(world());
    world.data("notes.create", json!({"title": "list", "content": "start"})).await;
    let mut edits = tokio::task::JoinSet::new();
    for n in 0..16 {
        let world = Arc::clone(&world);
        let append = json!({"title": "list", "append": format!("- item {n}")});
        edits.spawn(async move { world.data("notes.edit", append).await });
    }
    edits.join_all().await;
    let text = world.text("list.md");
    assert!((0..16).all(|n| text.lines().any(|line| line == format!("- item {n}"))), "{text}");
}

#[tokio::test]
async fn journal_keeps_a_limited_number_of_markers_and_stays_hidden() {
    let world = world();
    world.data("notes.create", json!({"title": "list", "content": "x"})).await;
    let markers = world.home().join(".annie/intents");
    for n in 0..600 {
        fs::write(markers.join(format!("old{n}.json")), "{}").unwrap();
    }
    world.data("notes.edit", json!({"title": "list", "append": "y"})).await;
    assert_eq!(fs::read_dir(&markers).unwrap().count(), 512);
    assert_eq!(world.run("notes.search", json!({})).await.evidence["paths"], json!(["list.md"]));
}

#[tokio::test]
async fn note_is_renamed_deleted_and_restored_once_per_intent() {
    let world = world();
    world.data("notes.create", json!({"title": "plan", "content": "one"})).await;
    let rename = json!({"title": "plan", "to": "work/Plan 2"});
    for _ in 0..2 {
        let sent = world.as_intent("m", "notes.rename", rename.clone()).await;
        assert_eq!(sent.data, "Renamed note 'plan' to 'work/Plan 2'.");
    }
    assert_eq!(world.text("work/Plan 2.md"), "one\n");
    let by_title = json!({"title": "plan 2"});
    let deleted = world.as_intent("d", "notes.delete", by_title.clone()).await;
    assert_eq!(deleted.status, Status::Success, "{deleted:?}");
    assert_eq!(world.as_intent("d", "notes.delete", by_title.clone()).await, deleted);
    assert!(!world.home().join("work/Plan 2.md").exists());
    let restored = world.as_intent("r", "notes.restore", by_title.clone()).await;
    assert_eq!(restored.data, "Restored note 'work/Plan 2'.");
    assert_eq!(
        world.as_intent("d", "notes.delete", by_title.clone()).await,
        deleted,
        "a repetition deletes nothing more"
    );
    assert_eq!(world.as_intent("r", "notes.restore", by_title).await, restored);
    assert_eq!(world.text("work/Plan 2.md"), "one\n");
    assert_eq!(world.data("notes.list", json!({})).await, "1 note:\n\n- work/Plan 2");
}

#[tokio::test]
async fn interrupted_deletion_of_a_note_is_completed_or_unknown() {
    let world = world();
    world.data("notes.create", json!({"title": "plan", "content": "one"})).await;
    let delete = json!({"title": "plan"});
    world.as_intent("d", "notes.delete", delete.clone()).await;
    let intent = call("d", "notes.delete", delete.clone()).intent;
    let marker = world.home().join(format!(".annie/intents/{intent}.json"));
    let note = world.home().join(format!(".annie/trash/{intent}.md"));
    let unfinished = fs::read_to_string(&marker).unwrap().replace("\"is_done\":true", "\"is_done\":false");
    // Cut short after the note was moved, and before it was.
    for was_moved in [true, false] {
        fs::write(&marker, &unfinished).unwrap();
        if !was_moved {
            fs::rename(&note, world.home().join("plan.md")).unwrap();
        }
        assert_eq!(world.as_intent("d", "notes.delete", delete.clone()).await.status, Status::Success);
        assert!(note.exists() && !world.home().join("plan.md").exists(), "{was_moved}");
    }
    fs::write(&marker, &unfinished).unwrap();
    fs::remove_file(&note).unwrap();
    fs::write(world.home().join("plan.md"), "another").unwrap();
    assert_eq!(world.as_intent("d", "notes.delete", delete).await.status, Status::Unknown);
    assert_eq!(world.text("plan.md"), "another");
}

#[tokio::test]
async fn note_is_not_moved_over_another_nor_out_of_the_folder() {
    let world = world();
    for title in ["a", "b", "home/list", "work/list"] {
        world.data("notes.create", json!({"title": title, "content": title})).await;
    }
    let outside = world.folder.path().join("outside.md");
    fs::write(&outside, "secret").unwrap();
    symlink(&outside, world.home().join("link.md")).unwrap();
    for (skill, arguments, kind) in [
        ("notes.rename", json!({"title": "a", "to": "B"}), "conflict"),
        ("notes.rename", json!({"title": "a", "to": "../bob/a"}), "outside_folder"),
        ("notes.rename", json!({"title": "a", "to": ".annie/a"}), "invalid_arguments"),
        ("notes.rename", json!({"title": "a", "to": "A"}), "invalid_arguments"),
        ("notes.rename", json!({"title": "link", "to": "c"}), "outside_folder"),
        ("notes.delete", json!({"title": "link"}), "outside_folder"),
        ("notes.delete", json!({"title": "../../outside"}), "outside_folder"),
        ("notes.delete", json!({"title": "list"}), "invalid_arguments"),
        ("notes.restore", json!({"title": "a"}), "not_found"),
    ] {
        let outcome = world.run(skill, arguments.clone()).await;
        assert_eq!(word(&outcome), kind, "{skill} {arguments}: {outcome:?}");
    }
    world.data("notes.delete", json!({"title": "a"})).await;
    world.data("notes.create", json!({"title": "a", "content": "new"})).await;
    assert_eq!(word(&world.run("notes.restore", json!({"title": "a"})).await), "conflict");
    assert_eq!((world.text("a.md"), world.text("b.md")), ("new\n".to_owned(), "b\n".to_owned()));
    assert_eq!(fs::read_to_string(outside).unwrap(), "secret");
    let bob = SkillCall { user: UserId::new("bob").unwrap(), ..call("b", "notes.restore", json!({"title": "a"})) };
    assert_eq!(word(&world.runner.run(bob).await), "not_found");
}

#[test]
fn edited_note_keeps_the_origins_of_its_text_and_adds_those_of_the_new_one() {
    let web = || vec!["web.fetch".to_owned(), "mcp.mail.read".to_owned()];
    let of = |text: &str| crate::text::origins_in(&super::tags_of(text));
    let plain = super::with_origins("a\n", "a\nb\n".to_owned(), &[]);
    assert_eq!(plain, "a\nb\n", "the user's own words need no frontmatter");
    let first = super::with_origins("a\n", "a\nb\n".to_owned(), &web());
    assert_eq!(first, "---\norigins: [\"web.fetch\", \"mcp.mail.read\"]\n---\n\na\nb\n");
    let tagged = "---\ntags: [shop, \"from:pasted\"]\n# a comment\n---\n\na\n";
    let second = super::with_origins(tagged, tagged.replace("a\n", "b\n"), &web()[..1]);
    assert_eq!(of(&second), ["pasted", "web.fetch"]);
    assert!(second.contains("# b comment\n") || second.contains("# a comment\n"), "{second}");
    let third = super::with_origins(&second, second.clone(), &web());
    assert_eq!((of(&third).len(), third.matches("origins:").count()), (3, 1), "{third}");
    // Neither a text that takes the tags away nor a frontmatter that cannot be read hides an origin.
    for new in [
        "a\n",
        "---\ntags: [shop]\n---\n\na\n",
        "---\n: [\n---\na\n",
        "---\n---\na\n",
        "---\norigins:\n  - x\n---\na\n",
    ] {
        let kept = super::with_origins(&third, new.to_owned(), &[]);
        assert!(
            ["pasted", "web.fetch", "mcp.mail.read"].iter().all(|o| of(&kept).contains(&(*o).to_owned())),
            "{kept}"
        );
        assert!(kept.ends_with("a\n"), "{kept}");
    }
}
