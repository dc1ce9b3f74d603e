//! Command skills: `<domain>/<verb>.md`, and `<domain>/_domain.md`, which describes the domain.

use annie_core::skill::{Effect, valid_skill_name};

use super::{
    frontmatter::Frontmatter,
    problem::Report,
    script::{self, Place, ScriptFile},
    times::{self, Times},
};

/// Length limit for a description, in characters (the limit of the Agent Skills format, used for both kinds).
pub(crate) const DESCRIPTION_CHARS_MAX: usize = 1_024;
/// The largest time limit that a file may set, in milliseconds.
pub(crate) const TIMEOUT_MS_MAX: u64 = 600_000;
/// The file that describes a domain.
pub(crate) const DOMAIN_FILE: &str = "_domain.md";

const KEYS: [&str; 11] = [
    "name",
    "description",
    "effect",
    "external",
    "timeout_ms",
    "handler",
    "run",
    "arguments",
    "network",
    times::SCHEDULE,
    times::TIMEZONE,
];

/// The content of a command skill's file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CommandFile {
    pub(crate) name: String,
    pub(crate) domain: String,
    pub(crate) description: String,
    pub(crate) effect: Option<Effect>,
    pub(crate) external: Option<bool>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) handler: Option<String>,
    pub(crate) script: Option<ScriptFile>,
    pub(crate) times: Option<Times>,
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
    let handler = front.text("handler", report);
    let script = script::read(&front, place, report);
    let times = times::read(&front, report);
    if handler.is_some() && script.is_some() {
        report.error(front.line_of("handler"), "`handler` and `run` exclude each other", "leave one of them out");
    }
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
        handler,
        script,
        times,
        body,
    })
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

fn timeout_ms(front: &Frontmatter, report: &mut Report) -> Option<u64> {
    let value = front.get("timeout_ms")?;
    let ms = value.as_u64().filter(|ms| (1..=TIMEOUT_MS_MAX).contains(ms));
    if ms.is_none() {
        let fix = format!("write milliseconds from 1 to {TIMEOUT_MS_MAX}, or leave it out for 30000");
        report.error(front.line_of("timeout_ms"), "`timeout_ms` is out of range", fix);
    }
    ms
}
