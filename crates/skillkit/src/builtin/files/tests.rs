//! `files.*` through the runner, over a real folder.

use std::{fs, os::unix::fs::symlink, path::Path};

use annie_core::{outcome::Outcome, outcome::Status, ports::SkillRunner};
use serde_json::json;

use super::*;
use crate::runner::tests::{World, call, world_with_files};

struct Folders {
    /// Outside of every allowed folder.
    all: tempfile::TempDir,
    world: World,
}

/// `docs` may be read and `out` written; `own` is Bob's.
fn folders() -> Folders {
    let all = tempfile::tempdir().unwrap();
    let folder = |name: &str, writes, users: &[&str]| {
        let path = all.path().join(name);
        fs::create_dir_all(&path).unwrap();
        FileFolder { name: name.to_owned(), path, writes, users: users.iter().map(|user| (*user).to_owned()).collect() }
    };
    let folders = vec![folder("docs", false, &[]), folder("out", true, &["ann"]), folder("own", true, &["bob"])];
    fs::write(all.path().join("secret.txt"), "outside").unwrap();
    let world = world_with_files(FileRules { folders, read_bytes_max: 1_000, write_bytes_max: 100 });
    Folders { all, world }
}

impl Folders {
    fn path(&self, path: &str) -> std::path::PathBuf {
        self.all.path().join(path)
    }

    fn put(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn failed(outcome: &Outcome) -> (Status, &str) {
    (outcome.status, outcome.error_type.as_deref().unwrap_or_default())
}

#[tokio::test]
async fn files_of_no_allowed_folder_are_refused_with_the_key_to_set() {
    let world = world_with_files(FileRules::default());
    for (skill, arguments) in [
        ("files.list", json!({})),
        ("files.read", json!({"path": "/etc/passwd"})),
        ("files.search", json!({"query": "x"})),
        ("files.write", json!({"path": "a", "content": "b"})),
    ] {
        let outcome = world.run(skill, arguments).await;
        assert_eq!(failed(&outcome), (Status::ErrorBlocked, "not_allowed"), "{skill}");
        assert!(outcome.data.contains("[[files.folder]]"), "{skill}: {}", outcome.data);
    }
}

#[tokio::test]
async fn files_are_listed_read_and_found_in_the_folders_of_their_user() {
    let folders = folders();
    folders.put("docs/letters/bank.txt", "Dear bank,\nyour Invoice 4711\n");
    folders.put("docs/letters/.hidden", "invoice 4711");
    folders.put("own/bob.txt", "invoice of Bob");
    let world = &folders.world;
    assert_eq!(world.data("files.list", json!({})).await, "Folders: docs (read only), out (read and write).");
    assert!(world.data("files.list", json!({"path": "docs"})).await.ends_with("has 1 entries:\n\n- letters/"));
    let listed = world.data("files.list", json!({"path": "docs/letters"})).await;
    assert!(listed.contains("- bank.txt (29 bytes, "), "{listed}");
    let text = "Text of the file docs/letters/bank.txt:\n\nDear bank,\nyour Invoice 4711";
    assert_eq!(world.data("files.read", json!({"path": "docs/letters/bank.txt"})).await, text);
    let whole = folders.path("docs/letters/bank.txt");
    assert_eq!(world.data("files.read", json!({"path": whole.to_str().unwrap()})).await, text);
    let portion = world.data("files.read", json!({"path": "docs/letters/bank.txt", "from_line": 2})).await;
    assert!(portion.ends_with("[lines 2 to 2 of 2]\n\nyour Invoice 4711"), "{portion}");
    let found = world.data("files.search", json!({"query": "INVOICE"})).await;
    assert_eq!(found, "Found in 1 files:\n\n- docs/letters/bank.txt:2: your Invoice 4711");
    let found = world.data("files.search", json!({"name": "BANK", "path": "docs"})).await;
    assert!(found.ends_with("- docs/letters/bank.txt"), "{found}");
    assert_eq!(failed(&world.run("files.search", json!({"query": "nothing"})).await).1, "empty_result");
    let missing = world.run("files.read", json!({"path": "docs/letters/banks.txt"})).await;
    assert_eq!(failed(&missing), (Status::ErrorPermanent, "not_found"));
    assert_eq!(missing.alternatives, ["docs/letters/bank.txt"]);
    let of_bob = world.run("files.read", json!({"path": "own/bob.txt"})).await;
    assert_eq!(failed(&of_bob), (Status::ErrorBlocked, "not_allowed"), "{of_bob:?}");
    assert!(!of_bob.data.contains("own ("), "{}", of_bob.data);
}

#[tokio::test]
async fn file_outside_of_its_folder_is_refused_by_every_way() {
    let folders = folders();
    symlink(folders.path("secret.txt"), folders.path("docs/link.txt")).unwrap();
    symlink(folders.all.path(), folders.path("out/up")).unwrap();
    symlink("../secret.txt", folders.path("out/file.txt")).unwrap();
    folders.put("docs/letters/bank.txt", "inside");
    let world = &folders.world;
    for (skill, path, error_type) in [
        ("files.read", "docs/../secret.txt", "outside_folder"),
        // Where `..` leads depends on links, so it is refused within the folder as well.
        ("files.read", "docs/letters/../letters/bank.txt", "outside_folder"),
        ("files.read", "docs/link.txt", "outside_folder"),
        ("files.read", "out/up/secret.txt", "outside_folder"),
        ("files.list", "out/up", "outside_folder"),
        ("files.read", "/etc/passwd", "not_allowed"),
        ("files.read", "secret.txt", "not_allowed"),
        ("files.list", "..", "not_allowed"),
        ("files.write", "out/up/new.txt", "outside_folder"),
        ("files.write", "out/file.txt", "conflict"),
        ("files.write", "docs/new.txt", "not_allowed"),
        ("files.write", "out/.profile", "not_allowed"),
        ("files.write", "out/.annie-trash/x", "not_allowed"),
        ("files.write", "own/new.txt", "not_allowed"),
    ] {
        let mut arguments = json!({"path": path});
        if skill == "files.write" {
            arguments["content"] = json!("x");
        }
        let outcome = world.run(skill, arguments).await;
        assert_eq!(failed(&outcome).1, error_type, "{skill} {path}: {outcome:?}");
    }
    let found = world.run("files.search", json!({"query": "outside"})).await;
    assert_eq!(failed(&found).1, "empty_result", "links are not followed");
    assert_eq!(fs::read_to_string(folders.path("secret.txt")).unwrap(), "outside");
    assert!(!folders.path("new.txt").exists());
}

#[tokio::test]
async fn file_that_is_no_text_or_too_large_is_not_shown() {
    let folders = folders();
    folders.put("docs/image.png", b"\x89PNG\0\0");
    folders.put("docs/latin.txt", b"Gr\xfc\xdfe");
    folders.put("docs/large.txt", "x".repeat(1_001));
    folders.put("docs/empty.txt", "");
    for (path, error_type) in [
        ("docs/image.png", "binary_file"),
        ("docs/latin.txt", "binary_file"),
        ("docs/large.txt", "invalid_arguments"),
        ("docs/empty.txt", "empty_result"),
        ("docs", "invalid_arguments"),
    ] {
        let outcome = folders.world.run("files.read", json!({"path": path})).await;
        assert_eq!(failed(&outcome).1, error_type, "{path}: {outcome:?}");
    }
    let write = json!({"path": "out/a.txt", "content": "x".repeat(101)});
    assert_eq!(failed(&folders.world.run("files.write", write).await).1, "invalid_arguments");
}

#[tokio::test]
async fn file_that_is_replaced_keeps_its_former_version_and_a_repeated_run_changes_nothing() {
    let folders = folders();
    let world = &folders.world;
    let write = |content: &str| json!({"path": "out/new/a.txt", "content": content});
    assert_eq!(world.data("files.write", write("one")).await, "Wrote the new file out/new/a.txt.");
    let same = world.runner.run(call("same", "files.write", write("one"))).await;
    assert!(same.data.contains("this content already"), "{}", same.data);
    let changed = call("second", "files.write", write("two"));
    let outcome = world.runner.run(changed.clone()).await;
    assert!(outcome.data.contains("kept for 30 days as out/.annie-trash/"), "{}", outcome.data);
    assert_eq!(world.runner.run(changed).await.data, outcome.data, "the repeated run says what the first one did");
    assert_eq!(fs::read_to_string(folders.path("out/new/a.txt")).unwrap(), "two");
    let kept = |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let mut records: Vec<_> =
        kept(&folders.path("out/.annie-trash")).iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    records.sort();
    assert_eq!(records, ["", "", "one"], "records of the new and of the unchanged file, and the former version");
    assert_eq!(kept(&folders.path("out/new")).len(), 1, "no temporary file is left");
    let at = call("x", "files.list", json!({})).now;
    assert_eq!(world.purge_files(at), 0);
    assert_eq!(world.purge_files(at.plus_ms(1_000)), 3);
    assert!(kept(&folders.path("out/.annie-trash")).is_empty());
}

#[tokio::test]
async fn file_that_is_changed_after_an_interrupted_write_keeps_the_change_when_the_write_is_run_again() {
    let folders = folders();
    folders.put("out/old.txt", "former");
    for name in ["old.txt", "new.txt", &"文".repeat(70)] {
        let path = format!("out/{name}");
        let write = call(name, "files.write", json!({"path": path, "content": "of Annie"}));
        let first = folders.world.runner.run(write.clone()).await;
        assert_eq!(first.status, Status::Success, "{first:?}");
        folders.put(&path, "by hand");
        let second = folders.world.runner.run(write).await;
        assert_eq!((second.status, &second.data), (Status::Success, &first.data), "{name}");
        assert_eq!(fs::read_to_string(folders.path(&path)).unwrap(), "by hand", "{name}");
    }
}

#[tokio::test]
async fn file_whose_write_was_interrupted_before_it_took_effect_is_written_again_over_its_present_version() {
    use std::os::unix::fs::PermissionsExt as _;
    let folders = folders();
    folders.put("out/a.txt", "by hand");
    fs::set_permissions(folders.path("out/a.txt"), fs::Permissions::from_mode(0o600)).unwrap();
    let write = call("cut", "files.write", json!({"path": "out/a.txt", "content": "of Annie"}));
    let intent = write.intent;
    folders.put(&format!("out/.annie-trash/7-{intent}-a.txt"), "an older version");
    // What the interrupted run left is a pipe here: opening a pipe would block.
    let left = folders.path(&format!("out/.annie-{intent}.tmp"));
    assert!(std::process::Command::new("mkfifo").arg(&left).status().unwrap().success());
    let outcome = folders.world.runner.run(write).await;
    assert_eq!(outcome.status, Status::Success, "{outcome:?}");
    assert_eq!(fs::read_to_string(folders.path("out/a.txt")).unwrap(), "of Annie");
    assert_eq!(fs::metadata(folders.path("out/a.txt")).unwrap().permissions().mode() & 0o777, 0o600);
    let kept: Vec<_> = fs::read_dir(folders.path("out/.annie-trash")).unwrap().map(|e| e.unwrap().path()).collect();
    let [kept] = &kept[..] else { panic!("{kept:?}") };
    assert_eq!(fs::read_to_string(kept).unwrap(), "by hand", "the version before the write");
    assert!(!left.exists());
}

#[tokio::test]
async fn file_that_had_the_content_already_is_not_written_by_a_repeated_run() {
    let folders = folders();
    folders.put("out/a.txt", "new");
    let write = call("a", "files.write", json!({"path": "out/a.txt", "content": "new"}));
    let outcome = folders.world.runner.run(write.clone()).await;
    assert!(outcome.data.contains("has this content already"), "{}", outcome.data);
    folders.put("out/a.txt", "changed afterwards");
    let again = folders.world.runner.run(write).await;
    assert_eq!(again.data, outcome.data);
    assert_eq!(fs::read_to_string(folders.path("out/a.txt")).unwrap(), "changed afterwards");
}

#[test]
fn former_version_is_kept_if_the_folder_of_a_replaced_file_cannot_be_synchronised() {
    let folders = folders();
    folders.put("out/a.txt", "old");
    let folder = FileFolder { name: "out".to_owned(), path: folders.path("out"), writes: true, users: Vec::new() };
    let place = place::Place::find(&[&folder], "out/a.txt").unwrap();
    let call = call("a", "files.write", json!({}));
    let written = write::write(&place, "new", call.now, call.intent, |_, _| Err(std::io::ErrorKind::Other.into()));
    let Ok(write::Written::Replaced(kept)) = written else { panic!("{written:?}") };
    assert_eq!(fs::read_to_string(folders.path("out/a.txt")).unwrap(), "new");
    assert_eq!(fs::read_to_string(folders.path(&kept)).unwrap(), "old");
}

#[test]
fn former_versions_are_purged_in_every_folder_although_one_folder_fails() {
    let folders = folders();
    folders.put("out/.annie-trash/1-a/b", "a folder, which is no record");
    folders.put("own/.annie-trash/1-a", "old");
    assert_eq!(folders.world.purge_files(call("a", "files.list", json!({})).now), 1);
    assert!(!folders.path("own/.annie-trash/1-a").exists());
}
