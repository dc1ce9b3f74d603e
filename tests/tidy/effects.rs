//! Rules about effects: the structural half of invariants 5, 7 and 10.

use std::ops::Range;

use super::{
    lexer::functions,
    tree::{Source, all_well, sources},
};

/// Names that core may not use. Time, randomness, files and tasks reach core through its ports.
const NOT_IN_CORE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::io",
    "std::env",
    "std::process",
    "std::thread",
    "SystemTime",
    "Instant",
    "Utc::now",
    "Local::now",
    "now_v4",
    "now_v7",
    "rand::",
    "tokio",
    "println!",
    "eprintln!",
    "static mut",
    "RandomState",
];
/// The calls in the actors that wait for a model, a skill, a context source or a hook, and the files that may contain them.
const WAITERS: &[(&str, &[&str])] = &[
    (".model.call(", &["actors/src/effects/model.rs", "actors/src/effects/compact.rs"]),
    (".runner.run(", &["actors/src/breaker/run.rs", "actors/src/effects/facts.rs"]),
    (".runner.reconcile(", &["actors/src/breaker/run.rs"]),
    ("source.read(", &["actors/src/effects/context.rs"]),
    (".runner.ask(", &["actors/src/effects/hook.rs"]),
    ("call_skill(", &["actors/src/effects/skill.rs", "actors/src/effects/fallback.rs"]),
];
/// Calls that lead to the calls above. They may only be made in a tracked task.
const LEAD_TO_WAITERS: &[&str] =
    &["call_model(", "call_with_fallback(", "read_facts(", "run::run(", "ask_hook(", "judge_turn("];
/// Functions that only front ends call, in the task of their request: no actor waits for them.
const OF_FRONT_ENDS: &str = "actors/src/kernel/skills.rs";
/// The files that may spawn tasks and threads. Each of them tracks what it spawns.
const SPAWNERS: &[(&str, &[&str])] = &[
    ("actors/", &["actors/src/tasks.rs", "actors/src/watchdog.rs"]),
    ("crates/core/", &[]),
    ("crates/llm/", &[]),
    ("crates/process/", &[]),
    ("crates/store/", &[]),
];
/// The files that may start programs: the package for it, the shim and the sandbox that it starts, and the server of `annie chaos`.
const STARTERS: &[&str] =
    &["crates/process/src/run.rs", "src/cli/limited.rs", "src/cli/sandboxed.rs", "src/cli/chaos/own.rs"];
/// Allowed endings of numeric fields in limit structs: a unit, or what is counted with `_max`.
const UNITS: &[&str] =
    &["_max", "_min", "_ms", "_ms_per_class", "_default", "_reserve", "_calls", "_laps", "_messages", "slots"];

fn shipped_of(folder: &str) -> impl Iterator<Item = (&'static Source, String)> {
    sources().iter().filter(move |s| s.path.starts_with(folder) && !s.is_for_tests()).map(|s| (s, s.shipped()))
}

fn occurrences(source: &Source, code: &str, word: &str) -> Vec<String> {
    code.match_indices(word).map(|(at, _)| format!("{}:{}: {word}", source.path, source.line_of(at))).collect()
}

#[test]
fn core_performs_no_effect_and_reads_no_clock() {
    let mut wrong = Vec::new();
    for (source, code) in shipped_of("crates/core/src/") {
        for word in NOT_IN_CORE {
            wrong.extend(occurrences(source, &code, word));
        }
    }
    all_well("core decides; the world comes in through its ports", &wrong);
}

#[test]
fn environment_is_read_only_by_the_configuration() {
    let mut wrong = Vec::new();
    for (source, code) in shipped_of("") {
        let is_build_script = source.path.ends_with("build.rs");
        if source.path.starts_with("src/config/") || is_build_script || source.path.starts_with("crates/testkit/") {
            continue;
        }
        for word in ["env::var", "env::vars", "env::set_var"] {
            wrong.extend(occurrences(source, &code, word));
        }
    }
    all_well("take it from the configuration", &wrong);
}

#[test]
fn models_and_skills_are_waited_for_by_tracked_tasks_only() {
    let mut wrong = Vec::new();
    for (source, code) in shipped_of("actors/src/").filter(|(source, _)| source.path != OF_FRONT_ENDS) {
        for (call, files) in WAITERS.iter().filter(|(_, files)| !files.contains(&source.path.as_str())) {
            wrong.extend(occurrences(source, &code, call).into_iter().map(|p| format!("{p} belongs into {files:?}")));
        }
        let tasks = arguments_of(&code, ".spawn(");
        for call in LEAD_TO_WAITERS {
            let waits = code.match_indices(call).filter(|(at, _)| !code[..*at].ends_with("fn "));
            let outside = waits.filter(|(at, _)| !tasks.iter().any(|t| t.contains(at)));
            wrong.extend(outside.map(|(at, _)| format!("{}:{}: {call} in a handler", source.path, source.line_of(at))));
        }
    }
    all_well("a handler never waits for a model or a skill", &wrong);
    // Each of these names must exist in the code, because a renamed function would switch the rule off.
    let all: String = shipped_of("actors/src/").map(|(_, code)| code).collect();
    for name in WAITERS.iter().map(|(call, _)| *call).chain(LEAD_TO_WAITERS.iter().copied()) {
        assert!(all.contains(name), "{name} is gone: put its new name into tests/tidy/effects.rs");
    }
}

#[test]
fn tasks_are_spawned_only_where_they_are_tracked() {
    let mut wrong = Vec::new();
    for (folder, allowed) in SPAWNERS {
        for (source, code) in shipped_of(folder).filter(|(s, _)| !allowed.contains(&s.path.as_str())) {
            for word in ["tokio::spawn(", "task::spawn(", "spawn_blocking(", "thread::spawn(", "thread::Builder"] {
                wrong.extend(occurrences(source, &code, word));
            }
        }
    }
    all_well("an untracked task outlives its actor and hides its panic", &wrong);
}

#[test]
fn programs_are_started_in_one_place_only() {
    let mut wrong = Vec::new();
    for folder in ["src/", "actors/", "crates/"] {
        let others = shipped_of(folder).filter(|(s, _)| !s.path.starts_with("crates/testkit/"));
        for (source, code) in others.filter(|(s, _)| !STARTERS.contains(&s.path.as_str())) {
            wrong.extend(occurrences(source, &code, "Command::new("));
        }
    }
    all_well("start it with annie_process::execute or annie_process::spawn", &wrong);
}

#[test]
fn queues_are_all_bounded() {
    let mut wrong = Vec::new();
    for (source, code) in shipped_of("") {
        wrong.extend(occurrences(source, &code, "unbounded"));
    }
    all_well("a queue without a bound only moves the problem", &wrong);
    let node = sources().iter().find(|s| s.path == "actors/src/observe/node.rs").expect("the actors' trait");
    assert!(node.code.contains("const MAILBOX_MAX: usize"), "every actor's mailbox has a bound");
}

#[test]
fn limits_have_their_unit_in_their_name() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (source, code) in shipped_of("") {
        for (name, body) in structs(&code).into_iter().filter(|(name, _)| name.ends_with("Limits")) {
            for field in number_fields(&code[body]) {
                seen += 1;
                if !UNITS.iter().any(|unit| field.ends_with(unit)) {
                    wrong.push(format!("{}: {name}.{field}", source.path));
                }
            }
        }
    }
    assert!(seen > 30, "only {seen} limits were found");
    all_well("end these with a unit", &wrong);
}

#[test]
fn actor_modules_document_what_they_own_and_what_survives_their_death() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|s| s.path.starts_with("actors/src/") && s.code.contains("impl Node for ")) {
        if source.path.ends_with("tests.rs") {
            continue;
        }
        let head: String = source.text.lines().take_while(|l| l.starts_with("//!")).collect::<Vec<_>>().join(" ");
        for word in ["Owns:", "Supervised by:", "urvives its"] {
            if !head.contains(word) {
                wrong.push(format!("{}: {word}", source.path));
            }
        }
    }
    all_well("say it in the module's first lines", &wrong);
}

/// The byte ranges of the arguments of these calls.
fn arguments_of(code: &str, call: &str) -> Vec<Range<usize>> {
    let end = |from: usize| {
        let mut depth = 1;
        for (n, byte) in code.as_bytes().iter().enumerate().skip(from) {
            match byte {
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return n;
            }
        }
        code.len()
    };
    code.match_indices(call).map(|(at, _)| at + call.len()..end(at + call.len())).collect()
}

/// Structs with named fields: their names and the byte ranges of their fields.
fn structs(code: &str) -> Vec<(String, Range<usize>)> {
    // A struct parses like a function without arguments.
    let as_functions = code.replace("struct ", "    fn ");
    debug_assert_eq!(as_functions.len(), code.len());
    let are_structs = |f: &super::lexer::Function| code[f.span.start - 4..].starts_with("struct ");
    functions(&as_functions)
        .into_iter()
        .filter(|f| f.span.start >= 4 && are_structs(f))
        .map(|f| (f.name, f.body))
        .collect()
}

fn number_fields(fields: &str) -> Vec<String> {
    let number = ["u8", "u16", "u32", "u64", "usize", "i64"];
    let field = |line: &str| {
        let (name, kind) = line.trim().trim_start_matches("pub ").split_once(": ")?;
        let kind = kind.trim_end_matches(',').trim_start_matches("Option<").trim_end_matches('>');
        number.contains(&kind).then(|| name.to_owned())
    };
    fields.lines().filter_map(field).collect()
}
