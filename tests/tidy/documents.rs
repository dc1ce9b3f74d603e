//! The documents mention only things that exist: files, tests, metrics, settings.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use annie::config::Sources;

use super::{
    lexer::functions,
    tree::{all_well, files, read, root, sources},
};

/// Endings by which a word between back ticks is recognised as a file name.
const FILE_ENDINGS: &[&str] = &[
    ".rs",
    ".md",
    ".toml",
    ".sql",
    ".sh",
    ".yaml",
    ".proto",
    ".service",
    ".py",
    "justfile",
    "Containerfile",
    ".ci/run",
];
/// Files outside the repository: the documents tell a user to write them, or an installation has them.
const NOT_IN_THE_TREE: &[&str] =
    &["annie.toml", "SKILL.md", "_domain.md", "notes/", "references/", "runs/", "workflows/"];

/// The text between single back ticks outside of fenced blocks, with its line number.
fn ticked(text: &str) -> Vec<(usize, String)> {
    let (mut found, mut is_fenced) = (Vec::new(), false);
    for (n, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            found.extend(line.split('`').skip(1).step_by(2).map(|word| (n, word.to_owned())));
        }
    }
    found
}

fn is_a_file_of_ours(word: &str) -> bool {
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let names_one = word.ends_with('/') || FILE_ENDINGS.iter().any(|e| word.ends_with(e));
    plain && names_one && !word.starts_with(['/', '.', '~']) && !NOT_IN_THE_TREE.contains(&word) || word == ".ci/run"
}

#[test]
fn documents_name_only_files_that_exist() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for document in files().iter().filter(|f| f.path.ends_with(".md") && !f.path.starts_with("skills/")) {
        let folder = PathBuf::from(&document.path).parent().map(|p| root().join(p)).unwrap_or_default();
        for (line, word) in ticked(&document.text).into_iter().filter(|(_, word)| is_a_file_of_ours(word)) {
            seen += 1;
            if !root().join(&word).exists() && !folder.join(&word).exists() {
                wrong.push(format!("{}:{line}: {word}", document.path));
            }
        }
    }
    assert!(seen > 40, "only {seen} names of files were found");
    all_well("there is no such file", &wrong);
}

/// The document that names the tests of each invariant.
const INVARIANT_TESTS: &str = "docs/invariants.md";
/// The macro of `tests/sim/mod.rs` that makes one test of each of its lines.
const TEST_MACRO: &str = "ranges! {";

/// The names of all tests: functions marked as tests, the cases of the store contract, and the seed ranges of the
/// simulation.
fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in sources() {
        let is_case = source.path.starts_with("crates/store/tests/contract/");
        for function in functions(&source.code) {
            let before = &source.code[..function.span.start];
            let attributes = &before[before.rfind(['}', ';', '{']).map_or(0, |n| n + 1)..];
            let is_in_macro = before.rsplit_once(TEST_MACRO).is_some_and(|(_, since)| !since.contains('}'));
            if attributes.contains("#[test]")
                || attributes.contains("#[tokio::test")
                || (is_case && attributes.contains("pub async"))
                || is_in_macro
            {
                names.insert(function.name);
            }
        }
    }
    names
}

/// The words between back ticks that are names of tests.
fn named_tests(text: &str) -> Vec<String> {
    ticked(text).into_iter().map(|(_, word)| word).filter(|word| word.matches('_').count() > 2).collect()
}

/// The items of a document by their numbers 1, 2, 3 and so on. Each item starts with its number between `before` and `after`;
/// every other item is reported.
fn numbered<'a>(
    document: &str,
    items: impl Iterator<Item = &'a str>,
    (before, after): (&str, &str),
    wrong: &mut Vec<String>,
) -> BTreeMap<u32, &'a str> {
    let mut found = BTreeMap::new();
    for (number, item) in (1..).zip(items) {
        if !item.starts_with(&format!("{before}{number}{after}")) {
            let line = item.lines().next().unwrap_or_default();
            wrong.push(format!("{document}: invariant {number} is missing or out of order: {line}"));
        }
        found.insert(number, item);
    }
    found
}

#[test]
fn invariants_each_have_a_section_of_tests_or_are_open() {
    let (page, list) = (read("ARCHITECTURE.md"), read(INVARIANT_TESTS));
    let section =
        page.split("\n## ").find(|s| s.starts_with("Invariants")).expect("ARCHITECTURE.md lists the invariants");
    let mut wrong = Vec::new();
    let invariants = numbered("ARCHITECTURE.md", section.split("\n- ").skip(1), ("**", ".** "), &mut wrong);
    let sections = numbered(INVARIANT_TESTS, list.split("\n## ").skip(1), ("", ". "), &mut wrong);
    for (number, invariant) in &invariants {
        match sections.get(number) {
            None => wrong.push(format!("{INVARIANT_TESTS} has no section for invariant {number}")),
            Some(tests) if named_tests(tests).is_empty() && !invariant.contains("**open**") => {
                wrong.push(format!("{INVARIANT_TESTS}: invariant {number} names no test and is not **open**"));
            }
            Some(_) => {}
        }
    }
    let unknown = sections.keys().filter(|number| !invariants.contains_key(number));
    wrong.extend(unknown.map(|number| format!("ARCHITECTURE.md has no invariant {number}, {INVARIANT_TESTS} has")));
    wrong.extend(named_tests(section).iter().map(|name| format!("{name} belongs into {INVARIANT_TESTS}")));
    assert!(invariants.len() >= 19, "only {} invariants were found", invariants.len());
    all_well("an invariant without a test is unproven", &wrong);
}

#[test]
fn invariants_name_only_tests_that_exist() {
    let (tests, list) = (tests(), read(INVARIANT_TESTS));
    let mut wrong = Vec::new();
    for (number, line) in (1..).zip(list.lines()) {
        let item = line.strip_prefix("- ");
        let only = item.map(|item| item.strip_prefix('`').and_then(|name| name.strip_suffix('`')).unwrap_or_default());
        let names = only.map_or_else(|| named_tests(line), |name| vec![name.to_owned()]);
        let missing = names.iter().filter(|name| !tests.contains(*name));
        wrong
            .extend(missing.map(|name| format!("{INVARIANT_TESTS}:{number}: there is no test `{name}` in \"{line}\"")));
    }
    assert!(named_tests(&list).len() > 100, "only {} names of tests were found", named_tests(&list).len());
    all_well("a list item is the name of one existing test between back ticks", &wrong);
}

/// Packages and a metadata key of requests that are named like metrics.
const NO_METRICS: &[&str] =
    &["annie_skills", "annie_core", "annie_llm", "annie_store", "annie_skillkit", "annie_actors", "annie_testkit"];

/// Names that look like metrics, without the suffixes that Prometheus adds to histograms.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let starts = text.match_indices("annie_").filter(|(at, _)| !text[..*at].chars().next_back().is_some_and(is_part));
    let names = starts.map(|(at, _)| text[at..].chars().take_while(|c| is_part(*c)).collect::<String>());
    let plain =
        names.map(|n| ["_bucket", "_sum", "_count"].iter().find_map(|s| n.strip_suffix(s)).unwrap_or(&n).to_owned());
    plain.filter(|n| !NO_METRICS.contains(&n.as_str())).collect()
}

/// The metrics that the code counts.
fn counted() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in sources().iter().filter(|s| !s.is_for_tests()) {
        for macro_name in ["counter!(", "gauge!(", "histogram!("] {
            for (at, _) in source.code.match_indices(macro_name) {
                let rest = source.text[at + macro_name.len()..].trim_start();
                names.extend(rest.strip_prefix('"').and_then(|r| r.split('"').next()).map(str::to_owned));
            }
        }
    }
    names
}

#[test]
fn metrics_are_explained_and_alerts_watch_only_counted_metrics() {
    let counted = counted();
    assert!(counted.len() > 10, "only {} metrics were found", counted.len());
    let explained = metrics_in(&read("docs/operating.md"));
    let watched = metrics_in(&read("deploy/prometheus-alerts.yaml"));
    let mut wrong: Vec<String> =
        counted.difference(&explained).map(|m| format!("docs/operating.md does not explain {m}")).collect();
    wrong.extend(
        explained
            .difference(&counted)
            .map(|m| format!("docs/operating.md explains {m}, which the code does not count")),
    );
    wrong.extend(
        watched
            .difference(&counted)
            .map(|m| format!("deploy/prometheus-alerts.yaml watches {m}, which the code does not count")),
    );
    let described = metrics_in(&read("crates/api/src/telemetry.rs"));
    wrong.extend(
        counted.difference(&described).map(|m| format!("crates/api/src/telemetry.rs has no help text for {m}")),
    );
    wrong.extend(
        described
            .difference(&counted)
            .map(|m| format!("crates/api/src/telemetry.rs describes {m}, which is not counted")),
    );
    all_well("metrics", &wrong);
}

#[test]
fn decisions_are_numbered_and_have_context_choice_and_price() {
    let mut wrong = Vec::new();
    let decisions = files().iter().filter(|f| f.path.starts_with("docs/decisions/"));
    for (n, decision) in (0..).zip(decisions) {
        let name = decision.path.trim_start_matches("docs/decisions/");
        if !name.starts_with(&format!("{n:04}-")) {
            wrong.push(format!("{name} should have number {n:04}"));
        }
        for part in ["## Context", "## Choice", "## Price"] {
            if !decision.text.contains(part) {
                wrong.push(format!("{name} has no `{part}`"));
            }
        }
        if decision.text.lines().count() > 60 {
            wrong.push(format!("{name} is longer than a page"));
        }
    }
    all_well("docs/decisions", &wrong);
}

#[test]
fn deployed_configuration_is_accepted() {
    let loaded = Sources::only(root().join("deploy/annie.toml")).load();
    if let Err(e) = loaded {
        panic!("deploy/annie.toml: {e}; {}", e.fix);
    }
}

#[test]
fn continuous_integration_runs_the_test_script_of_the_readme() {
    let (ci, readme) = (read(".ci/run"), read("README.md"));
    let commands: Vec<&str> = ci.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
    assert!(commands.last().is_some_and(|c| c.contains("scripts/test.sh")), "{commands:?}");
    assert!(commands.len() <= 3 && readme.contains("scripts/test.sh"), "{commands:?}");
}
