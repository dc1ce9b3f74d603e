//! Tests of the catalogue over a data folder: precedence, kept versions, reported problems, reloads.

mod wild;

use std::{fs, os::unix::fs::symlink, path::Path, sync::Arc, time::Duration};

use annie_core::{
    ports::Catalog,
    skill::{Effect, SkillFormat},
};
use serde_json::json;

use super::*;

fn put(root: &Path, path: &str, text: &str) {
    let file = root.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

fn problem_texts(catalog: &FileCatalog) -> Vec<String> {
    catalog.problems().iter().map(ToString::to_string).collect()
}

const SEARCH: &str =
    "---\nname: tasks.search\ndescription: Mine.\neffect: read\nexternal: false\ntimeout_ms: 500\n---\nx\n";

#[test]
fn skill_in_data_folder_replaces_bundled_one_with_a_notice() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "tasks/search.md", SEARCH);
    put(folder.path(), "errands/_domain.md", "---\ndescription: Errands.\n---\n");
    let alias =
        "---\nname: errands.list\ndescription: d\neffect: read\nexternal: true\nhandler: tasks.search\n---\nx\n";
    put(folder.path(), "errands/list.md", alias);
    put(folder.path(), "deep/er/greet/SKILL.md", "---\nname: greet\ndescription: Greet.\n---\nHello $0!\n");
    let catalog = FileCatalog::open(folder.path().to_owned());
    let skills = catalog.skills();
    let search = skills.get("tasks.search").unwrap();
    assert_eq!((search.description.as_str(), search.timeout_ms), ("Mine.", 500));
    assert_eq!(search.source, "skills/tasks/search.md");
    let alias = skills.get("errands.list").unwrap();
    assert_eq!((alias.args.len(), alias.external, alias.effect), (search.args.len(), true, Effect::Read));
    assert!(matches!(skills.get("greet").unwrap().format, SkillFormat::Prompt { model_invocable: true, .. }));
    assert!(skills.domains().iter().any(|d| d.name == "errands" && d.description == "Errands."));
    assert_eq!(
        problem_texts(&catalog),
        ["tasks/search.md: notice: replaces the bundled skill `tasks.search`; rename it if that is not meant"]
    );
}

#[test]
fn prompt_skill_that_requests_an_unknown_backend_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    for (name, model) in [("known", "gpu"), ("unknown", "opus"), ("any", "default")] {
        let text = format!("---\nname: {name}\ndescription: d\nmetadata:\n  model: {model}\n---\nx\n");
        put(folder.path(), &format!("{name}/SKILL.md"), &text);
    }
    let catalog = FileCatalog::open(folder.path().to_owned()).knowing_backends(["gpu".to_owned()]);
    assert_eq!(
        problem_texts(&catalog),
        ["unknown/SKILL.md: not supported: no backend is called `opus`, so any backend runs the skill; name a \
          `[[backend]]` of the configuration, or leave `model` out"]
    );
}

#[test]
fn prompt_skill_with_scripts_has_the_arguments_that_run_them_and_others_have_not() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "tidy/SKILL.md", "---\nname: tidy\ndescription: d\n---\nx\n");
    put(folder.path(), "tidy/scripts/run.sh", "rm -r .\n");
    put(folder.path(), "greet/SKILL.md", "---\nname: greet\ndescription: d\n---\nx\n");
    let catalog = FileCatalog::open(folder.path().to_owned());
    let synopsis = |name: &str| catalog.skills().get(name).unwrap().synopsis();
    assert!(synopsis("tidy").contains("--script") && !synopsis("greet").contains("--script"), "{}", synopsis("tidy"));
    let tidy = catalog.skills().get("tidy").unwrap().clone();
    let effect = |arguments| tidy.as_called(&arguments).effect;
    assert_eq!(effect(json!({"script": "scripts/run.sh"})), Effect::Once);
    assert_eq!(effect(json!({"file": "scripts/run.sh", "script": null})), Effect::Read);
    assert_eq!(problem_texts(&catalog), Vec::<String>::new());
}

#[test]
fn prompt_skill_help_shows_the_argument_hint() {
    let folder = tempfile::tempdir().unwrap();
    let text = "---\nname: greet\ndescription: Greet.\nmetadata:\n  argument-hint: \"[name]\"\n---\nHello $0!\n";
    put(folder.path(), "greet/SKILL.md", text);
    let catalog = FileCatalog::open(folder.path().to_owned());
    let help = catalog.skills().get("greet").unwrap().help();
    assert!(help.contains("Expected: [name]"), "{help}");
    assert_eq!(problem_texts(&catalog), Vec::<String>::new());
}

#[test]
fn broken_file_keeps_its_last_good_version_until_removal() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "tasks/search.md", SEARCH);
    put(folder.path(), "greet/SKILL.md", "---\nname: greet\ndescription: Greet.\n---\nHello!\n");
    let catalog = FileCatalog::open(folder.path().to_owned());
    let version = catalog.skills().version();
    put(folder.path(), "tasks/search.md", &SEARCH[..30]);
    put(folder.path(), "greet/SKILL.md", "");
    assert_eq!(catalog.reload(), version + 1);
    let skills = catalog.skills();
    assert_eq!(skills.get("tasks.search").unwrap().description, "Mine.");
    assert_eq!(skills.get("greet").unwrap().body, "Hello!");
    let errors: Vec<Problem> = catalog.problems().into_iter().filter(|p| p.severity == Severity::Error).collect();
    let files: Vec<&str> = errors.iter().map(|p| p.file.as_str()).collect();
    assert_eq!(files, ["greet/SKILL.md", "tasks/search.md"]);
    fs::remove_dir_all(folder.path().join("greet")).unwrap();
    fs::remove_file(folder.path().join("tasks/search.md")).unwrap();
    catalog.reload();
    assert!(catalog.skills().get("greet").is_none());
    assert_eq!(catalog.skills().get("tasks.search").unwrap().source, "bundled");
    assert!(catalog.problems().is_empty());
}

#[test]
fn command_file_must_have_a_handler_and_match_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, more: &str| format!("---\nname: {name}\ndescription: d\nexternal: false\n{more}---\nx\n");
    put(folder.path(), "mail/send.md", &file("mail.send", "effect: once\n"));
    put(folder.path(), "tasks/delete.md", &file("tasks.delete", "effect: read\n"));
    put(folder.path(), "tasks/get.md", &file("tasks.other", "effect: read\n"));
    put(folder.path(), "a/b/c.md", "text");
    put(folder.path(), "README.md", "text");
    let catalog = FileCatalog::open(folder.path().to_owned());
    assert!(catalog.skills().get("mail.send").is_none());
    assert_eq!(catalog.skills().get("tasks.delete").unwrap().effect, Effect::Idempotent);
    assert_eq!(
        problem_texts(&catalog),
        [
            "a/b/c.md: notice: no skill can be here; a command skill is `<domain>/<verb>.md`, a prompt skill \
             `<name>/SKILL.md`",
            "mail/send.md: error: there is no built-in handler `mail.send`; name one with `handler: tasks.search`, or \
             write `run:`, `request:` or a prompt skill (`<name>/SKILL.md`)",
            "tasks/delete.md: error: `effect: read` is not what the handler does; write `effect: idempotent`",
            "tasks/get.md:2: error: `name: tasks.other` does not fit the file's place; write `name: tasks.get`, or move \
             the file to where its name says",
        ]
    );
}

#[test]
fn catalog_refuses_links_outside_huge_files_and_deep_folders() {
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    put(outside.path(), "evil/SKILL.md", "---\nname: evil\ndescription: d\n---\nx\n");
    symlink(outside.path().join("evil"), folder.path().join("evil")).unwrap();
    put(folder.path(), "real/SKILL.md", "---\nname: real\ndescription: d\n---\nx\n");
    symlink(outside.path().join("evil/SKILL.md"), folder.path().join("real/leak.md")).unwrap();
    put(folder.path(), "big/SKILL.md", &"x".repeat(1024 * 1024 + 1));
    put(folder.path(), "1/2/3/4/5/6/ok/SKILL.md", "---\nname: ok\ndescription: d\n---\nx\n");
    fs::write(folder.path().join("real/binary"), [0xff, 0xfe]).unwrap();
    let catalog = FileCatalog::open(folder.path().to_owned());
    let skills = catalog.skills();
    assert!(skills.get("evil").is_none() && skills.get("big").is_none() && skills.get("ok").is_none());
    assert!(skills.get("real").is_some());
    assert_eq!(
        problem_texts(&catalog),
        [
            "1/2/3/4/5/6/ok: error: lies more than 6 folders deep; move it up",
            "evil: error: the link leaves the folder or leads nowhere; put the file itself here",
            "real/leak.md: error: the link leaves the folder or leads nowhere; put the file itself here",
            "big/SKILL.md: error: big/SKILL.md is larger than 1048576 bytes; make it a readable UTF-8 text file of at \
             most 1 MiB",
        ]
    );
}

#[test]
fn duplicate_prompt_skill_is_reported_and_the_first_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let greet = |text: &str| format!("---\nname: greet\ndescription: d\n---\n{text}\n");
    put(folder.path(), "a/greet/SKILL.md", &greet("first"));
    put(folder.path(), "b/greet/SKILL.md", &greet("second"));
    let catalog = FileCatalog::open(folder.path().to_owned());
    assert_eq!(catalog.skills().get("greet").unwrap().body, "first");
    assert_eq!(
        problem_texts(&catalog),
        ["b/greet/SKILL.md: error: the name `greet` is taken by a/greet/SKILL.md; rename one of the two"]
    );
}

#[test]
fn catalog_reports_folder_that_cannot_be_created_and_continues() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "file", "x");
    let catalog = FileCatalog::open(folder.path().join("file/skills"));
    assert!(catalog.skills().get("tasks.create").is_some());
    assert_eq!(catalog.problems().len(), 1);
}

/// Waits until the catalogue is as wanted; the test fails if no reload happens in time.
async fn until(catalog: &FileCatalog, wanted: impl Fn(&FileCatalog) -> bool) {
    let mut versions = catalog.versions();
    let seen = async {
        while !wanted(catalog) {
            versions.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(20), seen).await.expect("no reload happened in time");
}

#[tokio::test]
async fn watch_reloads_when_files_stop_changing() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = Arc::new(FileCatalog::open(folder.path().to_owned()));
    let watching = Arc::clone(&catalog).watch();
    let story = async {
        // The watch begins with a reload; later changes are reported.
        until(&catalog, |c| c.skills().version() >= 2).await;
        put(folder.path(), "greet/SKILL.md", "---\nname: greet\ndescription: d\n---\none\n");
        until(&catalog, |c| c.skills().get("greet").is_some()).await;
        let version = catalog.skills().version();
        put(folder.path(), "greet/SKILL.md", "---\nname: greet\ndescr");
        until(&catalog, |c| c.problems().iter().any(|p| p.severity == Severity::Error)).await;
        assert_eq!(catalog.skills().get("greet").unwrap().body, "one");
        put(folder.path(), "greet/SKILL.md", "---\nname: greet\ndescription: d\n---\ntwo\n");
        until(&catalog, |c| c.skills().get("greet").unwrap().body == "two").await;
        assert!(catalog.problems().is_empty() && catalog.skills().version() > version);
        fs::remove_dir_all(folder.path().join("greet")).unwrap();
        until(&catalog, |c| c.skills().get("greet").is_none()).await;
    };
    tokio::select! {
        ended = watching => panic!("the watch ended: {ended:?}"),
        () = story => {}
    }
}

#[tokio::test]
async fn watch_ends_with_an_error_when_its_folder_is_removed() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("skills");
    let catalog = Arc::new(FileCatalog::open(folder.clone()));
    let watching = Arc::clone(&catalog).watch();
    let story = async {
        until(&catalog, |c| c.skills().version() >= 2).await;
        fs::remove_dir_all(&folder).unwrap();
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        ended = tokio::time::timeout(Duration::from_secs(20), watching) => ended,
        () = story => unreachable!(),
    };
    assert!(ended.expect("the watch did not end in time").is_err());
}

#[tokio::test]
async fn watch_ends_when_its_folder_is_replaced_before_removal_is_noticed() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("skills");
    let catalog = Arc::new(FileCatalog::open(folder.clone()));
    let watching = Arc::clone(&catalog).watch();
    let story = async {
        until(&catalog, |c| c.skills().version() >= 2).await;
        fs::remove_dir_all(&folder).unwrap();
        fs::create_dir_all(&folder).unwrap();
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        ended = tokio::time::timeout(Duration::from_secs(20), watching) => ended,
        () = story => unreachable!(),
    };
    assert!(ended.expect("the watch did not notice that its folder was replaced").is_err());
}
