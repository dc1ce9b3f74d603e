//! The list of mechanisms that keep the invariants matches the code: each text that is to be replaced exists once.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::tree::{all_well, read, sources};

const LAST: u32 = 21;

#[derive(Deserialize)]
struct List {
    mechanism: Vec<Mechanism>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mechanism {
    invariant: u32,
    what: String,
    file: String,
    old: String,
    new: String,
    package: String,
    tests: Vec<String>,
}

#[test]
fn mechanisms_of_invariants_can_be_removed_as_listed() {
    let list: List = toml::from_str(&read("tests/without/mechanisms.toml")).expect("a list");
    let mut wrong = Vec::new();
    for one in &list.mechanism {
        let occurrences = read(&one.file).matches(&one.old).count();
        if occurrences != 1 || one.new == one.old {
            wrong.push(format!("{}: `old` of \"{}\" occurs {occurrences} times", one.file, one.what));
        }
        let folders: &[&str] = match one.package.as_str() {
            "annie" => &["src/", "tests/"],
            "annie-actors" => &["actors/"],
            "annie-api" => &["crates/api/"],
            "annie-chaos" => &["crates/chaos/"],
            "annie-core" => &["crates/core/"],
            "annie-store" => &["crates/store/"],
            "annie-channels" => &["crates/channels/"],
            "annie-llm" => &["crates/llm/"],
            "annie-mcp" => &["crates/mcp/"],
            "annie-planner" => &["crates/planner/"],
            "annie-process" => &["crates/process/"],
            "annie-skillkit" => &["crates/skillkit/"],
            "annie-telemetry" => &["crates/telemetry/"],
            _ => &[],
        };
        for test in &one.tests {
            let name = test.rsplit("::").find(|part| !part.is_empty()).expect("a name");
            let is_there = sources()
                .iter()
                .filter(|s| folders.iter().any(|folder| s.path.starts_with(folder)))
                .any(|s| s.text.contains(&format!("fn {name}(")) || s.path.ends_with(&format!("/{name}.rs")));
            if !is_there {
                wrong.push(format!("there is no test {test} in {}", one.package));
            }
        }
    }
    let kept: BTreeSet<u32> = list.mechanism.iter().map(|m| m.invariant).collect();
    let missing = (1..=LAST).filter(|n| !kept.contains(n));
    wrong.extend(missing.map(|n| format!("invariant {n} has no mechanism")));
    all_well("tests/without/mechanisms.toml", &wrong);
}
