//! Command skills: `<domain>/<verb>.md`, and `<domain>/_domain.md`, which describes the domain.

use std::collections::BTreeMap;

use annie_core::{
    error_route::{ErrorKind, ErrorRules, Step},
    skill::{Effect, valid_skill_name},
};
use serde_yaml_ng::Value;

use super::{
    built::{BUILT, Built},
    frontmatter::{Frontmatter, scalar},
    problem::Report,
    request::{self, RequestFile},
    script::{self, Place, ScriptFile},
    times::{self, Times},
};

/// Length limit for a description, in characters (the limit of the Agent Skills format, used for both kinds).
pub(crate) const DESCRIPTION_CHARS_MAX: usize = 1_024;
/// The largest time limit that a file may set, in milliseconds.
pub(crate) const TIMEOUT_MS_MAX: u64 = 600_000;
/// The file that describes a domain.
pub(crate) const DOMAIN_FILE: &str = "_domain.md";

/// Says that the skill's result is an answer for a person as it is.
const ANSWER: &str = "answer";
/// The only value of that key.
const READY: &str = "ready";
const KEYS: [&str; 17] = [
    "name",
    "description",
    "effect",
    "external",
    "timeout_ms",
    "handler",
    "run",
    "request",
    "response",
    "arguments",
    "network",
    "alternatives",
    "fallback",
    ANSWER,
    times::SCHEDULE,
    times::TIMEZONE,
    BUILT,
];
/// The domain whose skills the kernel and the prompts rely on. Only handlers are in it.
const KERNEL_DOMAIN: &str = "system";
/// The keys that say what a skill does. One of them at most may be given.
const WAYS: [&str; 3] = ["handler", "run", "request"];

/// The content of a command skill's file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CommandFile {
    pub(crate) name: String,
    pub(crate) domain: String,
    pub(crate) description: String,
    pub(crate) effect: Option<Effect>,
    pub(crate) external: Option<bool>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) alternatives: Vec<String>,
    pub(crate) fallback: BTreeMap<ErrorKind, Vec<Step>>,
    pub(crate) is_ready: bool,
    pub(crate) handler: Option<String>,
    pub(crate) script: Option<ScriptFile>,
    pub(crate) request: Option<RequestFile>,
    pub(crate) times: Option<Times>,
    pub(crate) built: Option<Built>,
    pub(crate) body: String,
}

/// Reads `<domain>/<verb>.md`.
pub(crate) fn read(
    domain: &str,
    verb: &str,
    text: &str,
    place: &Place<'_>,
    report: &mut Report,
) -> Option<CommandFile> {
    let front = Frontmatter::read(text, report)?;
    let own = format!("{domain}.{verb}");
    if !valid_skill_name(&own) {
        let fix = "rename folder and file: lower case letters, digits, `-` and `_`, at most 64 bytes together";
        report.error(None, format!("`{own}` cannot be a skill's name"), fix);
    }
    match front.text("name", report) {
        None => report.lenient(None, "`name` is missing", format!("write `name: {own}`")),
        Some(name) if name != own => {
            let fix = format!("write `name: {own}`, or move the file to where its name says");
            report.error(front.line_of("name"), format!("`name: {name}` does not fit the file's place"), fix);
        }
        Some(_) => {}
    }
    let description = description(&front, report);
    let effect = effect(&front, report);
    if front.get("external").is_none() {
        report.lenient(None, "`external` is missing", "write `external: false`, or true if it reaches other machines");
    }
    let external = front.flag("external", report);
    let timeout_ms = timeout_ms(&front, report);
    let (alternatives, fallback) = (alternatives(&front, &own, report), fallback(&front, report));
    let is_ready = is_ready(&front, external, report);
    let handler = front.text("handler", report);
    let script = script::read(&front, place, report);
    let request = request::read(&front, effect, report);
    let times = times::read(&front, report);
    let built = Built::read(&front, text, report);
    check_ways(&front, domain, report);
    for key in front.keys().filter(|k| !KEYS.contains(&k.as_str())) {
        report.lenient(front.line_of(&key), format!("unknown key `{key}`"), format!("known are {}", KEYS.join(", ")));
    }
    if front.body.is_empty() {
        report.lenient(None, "the body is empty", "show at least one example: it is what `--help` prints");
    }
    if report.is_broken() {
        return None;
    }
    let body = front.body;
    Some(CommandFile {
        name: own,
        domain: domain.to_owned(),
        description: description?,
        effect,
        external,
        timeout_ms,
        alternatives,
        fallback,
        is_ready,
        handler,
        script,
        request,
        times,
        built,
        body,
    })
}

/// Reports keys that exclude each other, and keys that nothing reads.
fn check_ways(front: &Frontmatter, domain: &str, report: &mut Report) {
    let given: Vec<&str> = WAYS.into_iter().filter(|key| front.get(key).is_some()).collect();
    for other in given.iter().skip(1) {
        let what = format!("`{}` and `{other}` exclude each other", given[0]);
        report.error(front.line_of(given[0]), what, "leave one of them out");
    }
    let has = |key: &str| given.contains(&key);
    if domain == KERNEL_DOMAIN && (has("run") || has("request")) {
        report.error(None, "the domain `system` is the kernel's", "move the file into another folder");
    }
    for (key, is_read, ways) in
        [("arguments", has("run") || has("request"), "`run` or `request`"), ("network", has("run"), "`run`")]
    {
        if front.get(key).is_some() && !is_read {
            let fix = "name the program with `run:`, or leave it out";
            report.lenient(front.line_of(key), format!("`{key}` has a meaning only beside {ways}"), fix);
        }
    }
}

/// Reads the description in `<domain>/_domain.md`.
pub(crate) fn read_domain(domain: &str, text: &str, report: &mut Report) -> Option<String> {
    let front = Frontmatter::read(text, report)?;
    if let Some(name) = front.text("name", report).filter(|n| n != domain) {
        let fix = format!("write `name: {domain}` or leave it out");
        report.lenient(front.line_of("name"), format!("`name: {name}` does not fit the folder"), fix);
    }
    description(&front, report)
}

fn description(front: &Frontmatter, report: &mut Report) -> Option<String> {
    let text = front.text("description", report).filter(|t| !t.is_empty());
    match &text {
        None => report.error(
            front.line_of("description"),
            "`description` is missing",
            "say in one sentence what it does and when to use it: planners and models choose by it",
        ),
        Some(text) if text.chars().count() > DESCRIPTION_CHARS_MAX => report.lenient(
            front.line_of("description"),
            format!("`description` has more than {DESCRIPTION_CHARS_MAX} characters"),
            "shorten it and put the rest into the body",
        ),
        Some(_) => {}
    }
    text
}

fn effect(front: &Frontmatter, report: &mut Report) -> Option<Effect> {
    let fix = "write `effect: read`, `idempotent` or `once`";
    let Some(word) = front.text("effect", report) else {
        report.lenient(None, "`effect` is missing", fix);
        return None;
    };
    let effect = [Effect::Read, Effect::Idempotent, Effect::Once].into_iter().find(|e| e.as_str() == word);
    if effect.is_none() {
        report.error(front.line_of("effect"), format!("`effect: {word}` is unknown"), fix);
    }
    effect
}

/// Whether the result is an answer for a person as it is. A text from another machine is never shown in Annie's own words.
fn is_ready(front: &Frontmatter, external: Option<bool>, report: &mut Report) -> bool {
    let Some(word) = front.text(ANSWER, report) else { return false };
    let line = front.line_of(ANSWER);
    if word != READY {
        report.error(line, format!("`answer: {word}` is unknown"), "write `answer: ready`, or leave it out");
    }
    let is_outside = external == Some(true)
        || front.get("request").is_some()
        || front.get("network").and_then(scalar).as_deref() == Some("true");
    if is_outside {
        report.error(line, "`answer: ready` does not go with results from other machines", "leave it out");
    }
    word == READY && !is_outside
}

/// The skills that may stand in for this one: a name, or a list of names.
fn alternatives(front: &Frontmatter, own: &str, report: &mut Report) -> Vec<String> {
    let Some(value) = front.get("alternatives") else { return Vec::new() };
    let names = names(value).filter(|names| names.iter().all(|name| valid_skill_name(name) && name != own));
    if names.is_none() {
        let fix = "write names of other skills: `alternatives: [notes.search, web.fetch]`";
        report.error(front.line_of("alternatives"), "`alternatives` must list names of other skills", fix);
    }
    names.unwrap_or_default()
}

/// What follows failures, by their kinds: `http_403: [use_alternative_skill, try_alternative_url]`.
fn fallback(front: &Frontmatter, report: &mut Report) -> BTreeMap<ErrorKind, Vec<Step>> {
    let mut chains = BTreeMap::new();
    let Some(value) = front.get("fallback") else { return chains };
    let line = front.line_of("fallback");
    let Some(map) = value.as_mapping() else {
        let fix = "write `fallback: {http_403: [use_alternative_skill]}`";
        report.error(line, "`fallback` must name steps for kinds of errors", fix);
        return chains;
    };
    for (kind, steps) in map {
        let name = scalar(kind).unwrap_or_default();
        let Some(kind) = ErrorKind::named(&name) else {
            let known = ErrorKind::ALL.map(ErrorKind::as_str).join(", ");
            report.error(line, format!("`fallback`: {name:?} is no kind of error"), format!("known are {known}"));
            continue;
        };
        let found: Option<Vec<Step>> = names(steps)
            .filter(|steps| steps.len() <= ErrorRules::STEPS_MAX)
            .and_then(|steps| steps.iter().map(|step| Step::named(step)).collect());
        match found {
            Some(steps) => {
                chains.insert(kind, steps);
            }
            None => {
                let (known, steps_max) = (Step::ALL.map(Step::as_str).join(", "), ErrorRules::STEPS_MAX);
                let what = format!("`fallback.{name}` must be a list of at most {steps_max} steps");
                report.error(line, what, format!("known are {known}"));
            }
        }
    }
    chains
}

/// A text or a list of texts.
fn names(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Sequence(items) => items.iter().map(scalar).collect(),
        one => scalar(one).map(|one| vec![one]),
    }
}

fn timeout_ms(front: &Frontmatter, report: &mut Report) -> Option<u64> {
    let value = front.get("timeout_ms")?;
    let ms = value.as_u64().filter(|ms| (1..=TIMEOUT_MS_MAX).contains(ms));
    if ms.is_none() {
        let fix = format!("write milliseconds from 1 to {TIMEOUT_MS_MAX}, or leave it out for 30000");
        report.error(front.line_of("timeout_ms"), "`timeout_ms` is out of range", fix);
    }
    ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tree::Bundled;

    fn read_head(head: &str) -> (Option<CommandFile>, Vec<String>) {
        let mut report = Report::new("f.md");
        let place = Place { tree: &Bundled, paths: &[], folder: "web" };
        let text = format!(
            "---\nname: web.find\ndescription: Finds.\neffect: read\nexternal: true\nhandler: web.fetch\n{head}---\nx\n"
        );
        let file = read("web", "find", &text, &place, &mut report);
        (file, report.into_problems().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn file_declares_alternatives_and_steps_for_kinds_of_errors() {
        let (file, problems) = read_head(
            "alternatives: [web.mirror, notes.search]\nfallback:\n  http_403: [use_alternative_skill]\n  timeout: retry_once\n",
        );
        assert_eq!(problems, Vec::<String>::new());
        let file = file.expect("it is read");
        assert_eq!(file.alternatives, ["web.mirror", "notes.search"]);
        assert_eq!(file.fallback[&ErrorKind::Http403], [Step::OtherSkill]);
        assert_eq!(file.fallback[&ErrorKind::Timeout], [Step::Retry]);
    }

    #[test]
    fn file_with_unknown_steps_kinds_or_alternatives_is_refused_with_what_is_known() {
        for (head, what, known) in [
            ("alternatives: [web.find]\n", "`alternatives` must list names of other skills", "write names"),
            ("alternatives: [Not A Name]\n", "`alternatives` must list names of other skills", "write names"),
            ("fallback: often\n", "`fallback` must name steps for kinds of errors", "http_403"),
            ("fallback: {http_999: [retry_once]}\n", "\"http_999\" is no kind of error", "http_403, http_404"),
            ("fallback: {timeout: [hope]}\n", "`fallback.timeout` must be a list of at most 8 steps", "retry_once"),
        ] {
            let (file, problems) = read_head(head);
            assert!(file.is_none(), "{head}");
            assert!(problems[0].contains(what) && problems[0].contains(known), "{head}: {problems:?}");
        }
    }
}
