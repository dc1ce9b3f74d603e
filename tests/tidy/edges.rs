//! Allowed dependencies between packages. The compiler enforces their direction, the manifests declare them, and this
//! test reads the manifests.

use std::collections::BTreeSet;

use toml::Table;

use super::tree::{all_well, files, read, sources};

/// Every package: its folder, the own packages that it may use, and those that its tests may use in addition.
const PACKAGES: &[(&str, &[&str], &[&str])] = &[
    (
        "",
        &[
            "annie-actors",
            "annie-api",
            "annie-channels",
            "annie-chaos",
            "annie-core",
            "annie-llm",
            "annie-mcp",
            "annie-planner",
            "annie-process",
            "annie-skillkit",
            "annie-store",
            "annie-telemetry",
        ],
        &["annie-testkit"],
    ),
    ("actors", &["annie-core"], &["annie-testkit"]),
    (
        "crates/api",
        &["annie-actors", "annie-chaos", "annie-core", "annie-mcp", "annie-proto", "annie-skillkit"],
        &["annie-llm", "annie-store", "annie-testkit"],
    ),
    ("crates/channels", &["annie-core"], &["annie-testkit"]),
    ("crates/chaos", &["annie-core"], &["annie-store", "annie-testkit"]),
    ("crates/core", &[], &[]),
    ("crates/llm", &["annie-core", "annie-process"], &["annie-testkit"]),
    ("crates/mcp", &["annie-core", "annie-process"], &["annie-testkit"]),
    ("crates/planner", &["annie-core"], &["annie-testkit"]),
    ("crates/process", &[], &[]),
    ("crates/proto", &[], &[]),
    ("crates/skillkit", &["annie-core", "annie-process"], &["annie-store", "annie-testkit"]),
    ("crates/store", &["annie-core"], &["annie-testkit"]),
    ("crates/telemetry", &["annie-core"], &["annie-testkit"]),
    ("crates/testkit", &["annie-core"], &[]),
];

/// Libraries that only some packages may use: a name (or its beginning, with a star), and these packages. The testkit's
/// fake model server is a server; no shipped package contains the testkit.
const RESTRICTED: &[(&str, &[&str])] = &[
    ("sqlx*", &["crates/store", ":dev"]),
    ("axum*", &["", "crates/api", "crates/testkit", "crates/llm:dev"]),
    ("tonic*", &["", "crates/api", "crates/proto"]),
    ("prost*", &["crates/api", "crates/proto"]),
    ("utoipa*", &["crates/api"]),
    ("clap*", &[""]),
    ("reqwest", &["", "crates/api:dev", "crates/channels", "crates/llm", "crates/skillkit", "crates/telemetry"]),
    ("ring", &[""]),
    ("mimalloc", &[""]),
    ("rustls", &["crates/llm"]),
    ("ractor*", &["actors"]),
    ("notify", &["crates/skillkit"]),
    ("cap-std", &["crates/skillkit"]),
    ("landlock", &["crates/process"]),
    ("libc", &["crates/process"]),
    ("seccompiler", &["crates/process"]),
    ("anyhow", &[]),
];

/// The dependencies that core may have: plain data and plain functions. No runtime, no I/O.
const CORE_MAY_USE: &[&str] =
    &["chrono", "chrono-tz", "croner", "regex", "serde", "serde_json", "sha2", "thiserror", "uuid"];

fn manifest(folder: &str) -> Table {
    let path = if folder.is_empty() { "Cargo.toml".to_owned() } else { format!("{folder}/Cargo.toml") };
    toml::from_str(&read(&path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn names(manifest: &Table, section: &str) -> BTreeSet<String> {
    manifest.get(section).and_then(|s| s.as_table()).map(|t| t.keys().cloned().collect()).unwrap_or_default()
}

#[test]
fn packages_are_those_that_the_list_names() {
    let found: BTreeSet<&str> =
        files().iter().filter_map(|f| f.path.strip_suffix("Cargo.toml")).map(|f| f.trim_end_matches('/')).collect();
    let known: BTreeSet<&str> = PACKAGES.iter().map(|(folder, ..)| *folder).collect();
    assert_eq!(found, known, "a new package needs a decision in docs/decisions and a line in tests/tidy/edges.rs");
}

#[test]
fn packages_use_only_packages_below_them() {
    let mut wrong = Vec::new();
    for (folder, uses, tests_use) in PACKAGES {
        let manifest = manifest(folder);
        let mut check = |section: &str, allowed: &[&str]| {
            let ours = names(&manifest, section).into_iter().filter(|n| n.starts_with("annie"));
            wrong.extend(
                ours.filter(|n| !allowed.contains(&n.as_str()))
                    .map(|n| format!("{folder}/Cargo.toml [{section}]: {n}")),
            );
        };
        check("dependencies", uses);
        check("build-dependencies", &[]);
        check("dev-dependencies", &[*uses, *tests_use].concat());
    }
    all_well("a dependency between packages that is not allowed", &wrong);
}

#[test]
fn libraries_are_used_only_by_their_allowed_packages() {
    let mut wrong = Vec::new();
    for (folder, ..) in PACKAGES {
        let manifest = manifest(folder);
        for (section, suffix) in [("dependencies", ""), ("dev-dependencies", ":dev"), ("build-dependencies", "")] {
            for name in names(&manifest, section) {
                let restriction = RESTRICTED.iter().find(|(library, _)| match library.strip_suffix('*') {
                    Some(start) => name.starts_with(start),
                    None => name == *library,
                });
                let Some((_, packages)) = restriction else { continue };
                let here = format!("{folder}{suffix}");
                if !packages.contains(&here.as_str()) && !packages.contains(folder) {
                    wrong.push(format!("{folder}/Cargo.toml [{section}]: {name}"));
                }
            }
        }
    }
    let client = sources().iter().filter(|s| {
        s.path.starts_with("crates/api/src/") || (s.path.starts_with("src/") && !s.path.starts_with("src/cli/"))
    });
    wrong.extend(client.filter(|s| s.shipped().contains("reqwest::")).map(|s| format!("{}: reqwest", s.path)));
    let skills = sources().iter().filter(|s| s.path.starts_with("crates/skillkit/src/"));
    let outside = skills.filter(|s| !s.path.starts_with("crates/skillkit/src/egress/"));
    wrong.extend(outside.filter(|s| s.code.contains("reqwest::")).map(|s| format!("{}: use ctx.send", s.path)));
    all_well("a library outside of its allowed packages", &wrong);
}

#[test]
fn core_uses_no_runtime_and_no_io() {
    let unknown: Vec<String> = names(&manifest("crates/core"), "dependencies")
        .into_iter()
        .filter(|n| !CORE_MAY_USE.contains(&n.as_str()))
        .collect();
    all_well("core may not use", &unknown);
}

#[test]
fn dependency_versions_are_given_once_in_the_workspace() {
    let mut wrong = Vec::new();
    for (folder, ..) in PACKAGES {
        let manifest = manifest(folder);
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(table) = manifest.get(section).and_then(|s| s.as_table()) else { continue };
            let own =
                table.iter().filter(|(_, value)| value.get("workspace").and_then(toml::Value::as_bool) != Some(true));
            wrong.extend(own.map(|(name, _)| format!("{folder}/Cargo.toml [{section}]: {name}")));
        }
    }
    all_well("a version that is not the workspace's", &wrong);
}

#[test]
fn packages_are_built_without_optimisation_for_tests() {
    let root = manifest("");
    let of_dev = |package: &str| root["profile"]["dev"]["package"].get(package)?.get("opt-level")?.as_integer();
    let mut wrong = Vec::new();
    for (folder, ..) in PACKAGES {
        let manifest = manifest(folder);
        let name = manifest["package"]["name"].as_str().expect("a package has a name");
        if of_dev(name) != Some(0) {
            wrong.push(format!("Cargo.toml [profile.dev.package]: no `{name}.opt-level = 0`"));
        }
    }
    all_well("an own package is optimised in the builds of the tests", &wrong);
}

#[test]
fn extensions_use_public_traits_only() {
    const ALLOWED: [&str; 6] =
        ["annie_actors::", "annie_core::", "annie_testkit::", "crate::world::", "serde_json::", "std::"];
    let mut wrong = Vec::new();
    let mut seen = 0;
    for file in sources().iter().filter(|file| file.path.starts_with("tests/extend/")) {
        seen += 1;
        let uses = file.text.lines().filter_map(|line| line.trim().strip_prefix("use "));
        wrong.extend(
            uses.filter(|used| !ALLOWED.iter().any(|allowed| used.starts_with(allowed)))
                .map(|used| format!("{}: {used}", file.path)),
        );
        let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
        for (at, _) in file.code.match_indices("annie").filter(|(at, _)| !file.code[..*at].ends_with(is_part)) {
            let (package, behind) = file.code[at..].split_once(|c: char| !is_part(c)).unwrap_or_default();
            let package = format!("{package}::");
            if behind.starts_with(':') && !ALLOWED.contains(&package.as_str()) {
                wrong.push(format!("{}:{}: {package}", file.path, file.line_of(at)));
            }
        }
    }
    assert!(seen > 2, "no extensions were found");
    all_well("an extension uses something that is not public", &wrong);
}
