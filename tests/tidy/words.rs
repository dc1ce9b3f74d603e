//! What may not be written anywhere, and what must be.

use super::{
    lexer::functions,
    tree::{all_well, files, sources},
};

/// Marks of work that was left lying. Put together here so that this list does not find itself.
const OPEN_ENDS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
    concat!("todo", "!("),
    concat!("unimpl", "emented!("),
    concat!("not yet ", "implemented"),
    concat!("work in ", "progress"),
];
/// Folders that only one machine has.
const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk"), concat!("/ro", "ot"), concat!("/tm", "p"), concat!("/Us", "ers")];
/// Hosts of package registries: which one is used is the machine's business.
const REGISTRIES: &[&str] = &[
    concat!("crates", ".io"),
    concat!("static.rust", "-lang.org"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("registry.npm", "js.org"),
    concat!("deb.", "debian.org"),
    concat!("docker", ".io"),
    concat!("ghcr", ".io"),
    concat!("quay", ".io"),
];
/// Words about how the project was made. It speaks of itself alone.
const MAKING: &[&str] = &[
    concat!("later ", "issue"),
    concat!("next ", "issue"),
    concat!("this ", "issue"),
    concat!("as an AI ", "language"),
    concat!("the other ", "helper"),
    concat!("my ", "session"),
];
/// Helpers in tests that look again and again until something is so, and those that play a slow world: the only test code
/// that may sleep.
const MAY_SLEEP: &[(&str, &str)] = &[
    ("tests/world.rs", "eventually_within"),
    ("src/chaos/tests.rs", "until"),
    ("tests/world.rs", "final_of"),
    ("tests/world.rs", "come_back_after"),
    ("tests/fault/process.rs", "quiet"),
    ("tests/soak/pace.rs", "pause"),
    ("actors/src/scheduler/tests/world.rs", "pass_ms"),
    ("tests/sim/town.rs", "pass_ms"),
];

/// Every place where one of these stands, as `file:line: what`.
fn found(words: &[&str], is_meant: impl Fn(&str, usize, &str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for file in files() {
        for word in words {
            let hits = file.text.match_indices(word).filter(|(at, _)| is_meant(&file.text, *at, word));
            found.extend(
                hits.map(|(at, _)| format!("{}:{}: {word}", file.path, file.text[..at].matches('\n').count() + 1)),
            );
        }
    }
    found
}

fn is_whole_word(text: &str, at: usize, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    !text[..at].chars().next_back().is_some_and(is_part) && !text[at + word.len()..].chars().next().is_some_and(is_part)
}

#[test]
fn every_rust_file_begins_by_saying_what_it_is_for() {
    let mute = sources().iter().filter(|s| !s.text.starts_with("//!"));
    all_well("say in the first lines what the file owns and why", &mute.map(|s| s.path.clone()).collect::<Vec<_>>());
}

#[test]
fn nothing_is_left_lying() {
    all_well("finish these", &found(OPEN_ENDS, |text, at, word| word.ends_with('(') || is_whole_word(text, at, word)));
}

#[test]
fn no_test_is_ignored_and_nothing_blocks_a_thread_by_sleeping() {
    let mut wrong = Vec::new();
    for source in sources() {
        for word in ["#[ignore", "thread::sleep("] {
            wrong.extend(
                source
                    .code
                    .match_indices(word)
                    .map(|(at, _)| format!("{}:{}: {word}", source.path, source.line_of(at))),
            );
        }
    }
    all_well("a test that does not run proves nothing, and a thread that sleeps serves nobody", &wrong);
}

#[test]
fn tests_wait_for_facts_and_not_for_time() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|s| !s.path.starts_with("benches/") && !s.path.contains("/examples/")) {
        let (functions, shipped) = (functions(&source.code), source.shipped());
        for (at, _) in source.code.match_indices("sleep(") {
            if shipped.get(at..).is_some_and(|s| s.starts_with("sleep(")) {
                continue;
            }
            let around = functions.iter().filter(|f| f.span.contains(&at)).max_by_key(|f| f.span.start);
            let name = around.map_or("", |f| f.name.as_str());
            if !MAY_SLEEP.contains(&(source.path.as_str(), name)) {
                wrong.push(format!("{}:{}: {name} sleeps", source.path, source.line_of(at)));
            }
        }
    }
    all_well("use a paused clock, or `eventually` with what is waited for", &wrong);
}

#[test]
fn nothing_names_a_folder_of_one_machine_or_a_registry() {
    // A folder of its own at the root of a disk, and not the middle of a longer path or word.
    let is_folder = |text: &str, at: usize, word: &str| {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let goes_on = |c: char| is_part(c) || matches!(c, '.' | '}' | '~' | '*' | '/' | '>');
        !text[..at].chars().next_back().is_some_and(goes_on)
            && !text[at + word.len()..].chars().next().is_some_and(is_part)
    };
    let mut wrong = found(MACHINE_PATHS, is_folder);
    wrong.extend(found(REGISTRIES, |_, _, _| true));
    all_well("this holds on one machine only", &wrong);
}

#[test]
fn the_project_speaks_of_itself_alone() {
    all_well("say what is, not how it came about", &found(MAKING, |_, _, _| true));
}
