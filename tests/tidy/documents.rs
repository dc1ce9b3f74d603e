//! The documents mention only things that exist: files, tests, metrics, settings.

use std::{collections::BTreeSet, path::PathBuf};

use annie::config::Sources;

use super::{
    lexer::{code_of, functions},
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
const NOT_IN_THE_TREE: &[&str] = &["annie.toml", "SKILL.md", "_domain.md", "notes/", "references/"];

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

/// The names of all tests: functions marked as tests, and the cases of the store contract.
fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in sources() {
        let is_case = source.path.starts_with("crates/store/tests/contract/");
        for function in functions(&code_of(&source.text)) {
            let before = &source.code[..function.span.start];
            let attributes = &before[before.rfind(['}', ';', '{']).map_or(0, |n| n + 1)..];
            if attributes.contains("#[test]")
                || attributes.contains("#[tokio::test")
                || (is_case && attributes.contains("pub async"))
            {
                names.insert(function.name);
            }
        }
    }
    names
}

#[test]
fn invariants_each_name_a_test_that_exists() {
    let page = read("ARCHITECTURE.md");
    let section =
        page.split("\n## ").find(|s| s.starts_with("Invariants")).expect("ARCHITECTURE.md lists the invariants");
    let tests = tests();
    let (mut wrong, mut number) = (Vec::new(), 0);
    for item in section.split("\n- ").skip(1) {
        number += 1;
        if !item.starts_with(&format!("**{number}.** ")) {
            wrong.push(format!(
                "number {number} is missing or out of order: {}",
                item.lines().next().unwrap_or_default()
            ));
        }
        let named: Vec<String> =
            ticked(item).into_iter().map(|(_, w)| w).filter(|w| w.matches('_').count() > 2).collect();
        if named.is_empty() && !item.contains("**open**") {
            wrong.push(format!("invariant {number} names no test"));
        }
        wrong.extend(
            named.iter().filter(|n| !tests.contains(*n)).map(|n| format!("invariant {number}: there is no test {n}")),
        );
    }
    assert!(number >= 19, "only {number} invariants were found");
    all_well("an invariant without a test is unproven", &wrong);
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
    let described = metrics_in(&read("src/telemetry.rs"));
    wrong.extend(counted.difference(&described).map(|m| format!("src/telemetry.rs has no help text for {m}")));
    wrong.extend(
        described.difference(&counted).map(|m| format!("src/telemetry.rs describes {m}, which is not counted")),
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
