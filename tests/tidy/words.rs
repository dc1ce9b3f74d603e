//! Words that may not occur anywhere, and texts that must.

use super::{
    lexer::functions,
    tree::{all_well, files, sources},
};

/// Marks of unfinished work. They are concatenated here so that this list does not find itself.
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
/// Folders that exist on one machine only.
const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk"), concat!("/ro", "ot"), concat!("/tm", "p"), concat!("/Us", "ers")];
/// Hosts of package registries. The choice of a registry belongs to the machine.
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
/// Words about how the project was made. The project describes only itself.
const MAKING: &[&str] = &[
    concat!("later ", "issue"),
    concat!("next ", "issue"),
    concat!("this ", "issue"),
    concat!("as an AI ", "language"),
    concat!("the other ", "helper"),
    concat!("my ", "session"),
];
/// Test helpers that may sleep: those that poll for a state, and those that simulate a slow environment.
const MAY_SLEEP: &[(&str, &str)] = &[
    ("tests/world.rs", "eventually_within"),
    ("crates/mcp/src/source/tests.rs", "until"),
    ("tests/fault/injected.rs", "until"),
    ("tests/world.rs", "final_of"),
    ("tests/world.rs", "sleep_for_ms"),
    ("tests/fault/process.rs", "quiet"),
    ("tests/soak/pace.rs", "pause"),
    ("actors/src/scheduler/tests/world.rs", "pass_ms"),
    ("tests/sim/town.rs", "pass_ms"),
];

/// All occurrences of these words, as `file:line: what`.
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
fn rust_files_each_begin_with_their_purpose() {
    let mute = sources().iter().filter(|s| !s.text.starts_with("//!"));
    all_well("say in the first lines what the file owns and why", &mute.map(|s| s.path.clone()).collect::<Vec<_>>());
}

#[test]
fn code_has_no_marks_of_unfinished_work() {
    all_well("finish these", &found(OPEN_ENDS, |text, at, word| word.ends_with('(') || is_whole_word(text, at, word)));
}

#[test]
fn tests_are_never_ignored_and_no_code_blocks_a_thread_by_sleeping() {
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
    all_well("a test that does not run proves nothing, and a thread that sleeps does no work", &wrong);
}

#[test]
fn tests_wait_for_states_and_not_for_time() {
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
    all_well("use a paused clock, or `eventually` with the state that the test waits for", &wrong);
}

#[test]
fn files_name_no_folder_of_one_machine_and_no_registry() {
    // A folder at the root of a disk, and not the middle of a longer path or word.
    let is_folder = |text: &str, at: usize, word: &str| {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let continues = |c: char| is_part(c) || matches!(c, '.' | '}' | '~' | '*' | '/' | '>');
        !text[..at].chars().next_back().is_some_and(continues)
            && !text[at + word.len()..].chars().next().is_some_and(is_part)
    };
    let mut wrong = found(MACHINE_PATHS, is_folder);
    wrong.extend(found(REGISTRIES, |_, _, _| true));
    all_well("this holds on one machine only", &wrong);
}

#[test]
fn files_describe_only_the_project_itself() {
    all_well("say what is, not how it came about", &found(MAKING, |_, _, _| true));
}
