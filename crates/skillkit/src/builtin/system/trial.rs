//! The test run of a skill that a conversation writes, before its file is kept. A script runs in the sandbox, without the network
//! and in a folder that is removed, so that the run changes nothing. Of a request it is only shown what would be sent.

use std::sync::Arc;

use annie_core::{
    command::{Resolution, resolve},
    outcome::Outcome,
    ports::SkillCall,
    skill::{ArgKind, ArgSpec, Effect, SkillSet, SkillSpec},
};
use serde_json::{Map, Value, json};

use crate::{
    error::SkillError,
    files::{Entry, Kind, Script},
    request,
    runner::Tools,
    text::brief,
};

/// Time limit of a test run, in milliseconds. The call that writes the skill has 30 s in all.
const TRIAL_MS_MAX: u64 = 10_000;
/// How much of the output of a test run is shown, in bytes.
const SHOWN_BYTES_MAX: usize = 400;
/// Outcomes of programs that did not run, which say nothing about them.
const NOT_RUN: [&str; 3] = ["sandbox_unavailable", "programs_off", "io"];
/// Outcomes by which a program says that it changed nothing: it refuses its arguments, or works later.
const DECLINED: [&str; 2] = ["invalid_arguments", "script_unavailable"];

/// The result of a test run.
#[derive(Debug, PartialEq)]
pub(super) enum Trial {
    /// The file may be kept; the text says what was found.
    Keep(String),
    /// The file is not kept, because its own example fails; the text says why.
    Refuse(String),
}

/// The arguments of a test run.
struct Example {
    arguments: Value,
    /// The command as a person would write it.
    shown: String,
    /// The author wrote it. Otherwise the values are made up, and a failure may be theirs.
    is_authors: bool,
}

/// Tries a skill with the example of its file.
pub(super) async fn run(tools: &Tools, call: &SkillCall, entry: &Entry, script: Option<&(String, String)>) -> Trial {
    if matches!(entry.kind, Kind::Command(_) | Kind::Prompt { .. }) {
        return Trial::Keep(String::new());
    }
    let example = match example(&entry.spec) {
        Ok(example) => example,
        Err(why) => return Trial::Refuse(format!("The example in its text cannot be run: {why}")),
    };
    match &entry.kind {
        Kind::Script(program) => try_script(tools, call, (&entry.spec, program, script), &example).await,
        Kind::Request(template) => match request::preview(template, &entry.spec, example.arguments.clone()) {
            Ok(text) => Trial::Keep(format!(
                "Nothing was sent. {} would send: {}",
                example.shown,
                brief(text.trim(), SHOWN_BYTES_MAX)
            )),
            Err(error) if example.is_authors => Trial::Refuse(format!("{} cannot be sent: {error}", example.shown)),
            Err(error) => {
                Trial::Keep(format!("It was not tried, because values that were made up do not fit: {error}"))
            }
        },
        Kind::Command(_) | Kind::Prompt { .. } => Trial::Keep(String::new()),
    }
}

async fn try_script(
    tools: &Tools,
    call: &SkillCall,
    (spec, program, script): (&Arc<SkillSpec>, &Script, Option<&(String, String)>),
    example: &Example,
) -> Trial {
    // What the run writes is removed, so that it has no effect.
    let timeout_ms = spec.timeout_ms.min(TRIAL_MS_MAX);
    let tried = SkillSpec { effect: Effect::Read, external: false, timeout_ms, ..SkillSpec::clone(spec) };
    let ran = match &tools.programs {
        Some(programs) => {
            let script = script.map(|(path, text)| (path.rsplit('/').next().unwrap_or(path), text.as_str()));
            programs.try_out(program, script, example.arguments.clone(), (&tried, call)).await
        }
        None => Err(SkillError::ProgramsOff),
    };
    let outcome = ran.unwrap_or_else(|error| error.into_outcome(&tried));
    let result = shown(&outcome);
    let kind = outcome.error_type.as_deref().unwrap_or_default();
    let command = &example.shown;
    if outcome.status.is_ok() {
        return Trial::Keep(format!("Test run in the sandbox ({command}): it succeeded with the output: {result}"));
    }
    if NOT_RUN.contains(&kind) {
        return Trial::Keep(format!("It was not tried: {result}"));
    }
    let reason = match () {
        () if program.network => "a test run has no network",
        () if !example.is_authors => "its text has no example, so that the arguments were made up",
        () if DECLINED.contains(&kind) => "the program says that it changed nothing",
        () => return Trial::Refuse(format!("Test run in the sandbox ({command}): {result}")),
    };
    Trial::Keep(format!("Test run in the sandbox ({command}) failed, and {reason}: {result}"))
}

fn shown(outcome: &Outcome) -> String {
    let detail = outcome.error_detail.as_deref().map_or(String::new(), |detail| format!("\n{detail}"));
    brief(&format!("{}{detail}", outcome.data), SHOWN_BYTES_MAX)
}

/// The first command of the skill in its text, or else made-up values of its required arguments.
fn example(spec: &SkillSpec) -> Result<Example, String> {
    let is_call = |line: &&str| line.split_whitespace().next() == Some(spec.name.as_str());
    let line = spec.body.lines().map(|line| line.trim().trim_matches('`').trim()).find(is_call);
    if let Some(line) = line {
        return match resolve(line, &SkillSet::new([spec.clone()], [], 0), None) {
            Resolution::Run { arguments, .. } => Ok(Example { arguments, shown: line.to_owned(), is_authors: true }),
            Resolution::Help(_) => Err(format!("`{line}` only asks for help")),
            Resolution::Error(why) => Err(why),
        };
    }
    let required = spec.args.iter().filter(|arg| arg.required);
    let arguments: Map<String, Value> = required.map(|arg| (arg.name.clone(), made_up(arg))).collect();
    let arguments = Value::Object(arguments);
    Ok(Example { shown: format!("{} {arguments}", spec.name), arguments, is_authors: false })
}

fn made_up(arg: &ArgSpec) -> Value {
    match &arg.kind {
        ArgKind::Text => json!("example"),
        ArgKind::Integer | ArgKind::Id => {
            let least = arg.minimum.map(|least| format!("{:.0}", least.ceil()));
            json!(least.and_then(|least| least.parse::<i64>().ok()).unwrap_or(1))
        }
        ArgKind::Number => json!(arg.minimum.unwrap_or(1.0)),
        ArgKind::Bool => json!(true),
        ArgKind::Choice(words) => json!(words.first()),
        ArgKind::List => json!(["example"]),
        ArgKind::Date => json!("2026-01-01"),
    }
}
