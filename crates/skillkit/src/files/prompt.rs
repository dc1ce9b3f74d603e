//! Prompt skills: `<name>/SKILL.md` in the Agent Skills format. Loading is lenient: it uses what it can. Every deviation
//! from the format is reported, and strict validation refuses it.

use annie_core::{
    effort::Effort,
    skill::{Effect, PromptContext, ScriptRules, allows_script, valid_skill_name},
};
use serde_yaml_ng::Value;
use unicode_normalization::UnicodeNormalization;

use super::{
    built::{BUILT, Built},
    command::{DESCRIPTION_CHARS_MAX, TIMEOUT_MS_MAX},
    frontmatter::{Frontmatter, scalar, truth},
    problem::Report,
    times::{self, Times},
};
use crate::builtin;

/// Length limit for a name, in characters.
const NAME_CHARS_MAX: usize = 64;
/// Length limit for `compatibility`, in characters.
const COMPATIBILITY_CHARS_MAX: usize = 500;
/// Recommended limit for a body, in lines, so that it does not fill a context window.
const BODY_LINES_WISE: usize = 500;

const FORMAT_KEYS: [&str; 6] = ["name", "description", "license", "compatibility", "metadata", "allowed-tools"];
/// Extensions that are read, or that only describe the skill.
const EXTENSION_KEYS: [&str; 15] = [
    EFFORT_KEY,
    SCRIPT_KEYS[0],
    SCRIPT_KEYS[1],
    SCRIPT_KEYS[2],
    BUILT,
    times::SCHEDULE,
    times::TIMEZONE,
    "user-invocable",
    "disable-model-invocation",
    "argument-hint",
    "context",
    "when_to_use",
    "version",
    "author",
    "tags",
];
/// Extensions of other programs that have no effect here [S1 Frontmatter Fields].
const UNREAD_KEYS: [&str; 5] = ["agent", "hooks", "paths", "shell", "disallowed-tools"];
/// The extension that names a backend. The catalogue reports a name that no backend has.
const MODEL_KEY: &str = "model";
/// The extension that says how hard the model should think.
const EFFORT_KEY: &str = "effort";
/// The extensions that say what the skill's scripts do: effect, network, time limit.
const SCRIPT_KEYS: [&str; 3] = ["effect", "network", "timeout_ms"];
/// Time limit for one run of a script unless the file sets another, in milliseconds [S0 5.1].
const SCRIPT_MS: u64 = 30_000;
/// The values of `agent`, `model` and `effort` that request nothing special.
const DEFAULTS: [&str; 3] = ["general", "default", "inherit"];
/// The tools of other programs that read files: every skill may read its own ones.
const READERS: [&str; 2] = ["Read", "read_file"];
/// The tool of another program that is a skill here, and the skill.
const FETCH: (&str, &str) = ("WebFetch", "web.fetch");

/// The content of a prompt skill's file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PromptFile {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) context: PromptContext,
    pub(crate) user_invocable: bool,
    pub(crate) model_invocable: bool,
    pub(crate) allowed_tools: Vec<String>,
    pub(crate) argument_hint: Option<String>,
    /// The backend that the file requests.
    pub(crate) model: Option<String>,
    pub(crate) effort: Option<Effort>,
    /// What its scripts may do; `None` if it has none.
    pub(crate) scripts: Option<ScriptRules>,
    pub(crate) times: Option<Times>,
    pub(crate) built: Option<Built>,
    pub(crate) body: String,
}

/// Reads `<folder>/SKILL.md`; `folder` is the last part of the folder's path. `scripts` are the paths of its scripts below the
/// folder.
pub(crate) fn read(folder: &str, scripts: &[&str], text: &str, report: &mut Report) -> Option<PromptFile> {
    let front = Frontmatter::read(text, report)?;
    let name = name(folder, &front, report);
    let description = description(&front, report);
    compatibility(&front, report);
    metadata(&front, report);
    let allowed_tools = allowed_tools(&front, report);
    foreign_keys(&front, report);
    let context = context(&front, report);
    unsupported(&front, (&allowed_tools, scripts), report);
    let rules = script_rules(&front, !scripts.is_empty(), report);
    let user_invocable = extension_flag(&front, "user-invocable", report).unwrap_or(true);
    let model_invocable = !extension_flag(&front, "disable-model-invocation", report).unwrap_or(false);
    let argument_hint = extension(&front, "argument-hint").and_then(hint);
    let effort = effort(&front, report);
    let times = times::read(&front, report);
    let built = Built::read(&front, text, report);
    if front.body.lines().count() > BODY_LINES_WISE {
        let fix = "move details into files beside it and name them in the text";
        report.notice(None, format!("the body has more than {BODY_LINES_WISE} lines"), fix);
    }
    if report.is_broken() {
        return None;
    }
    Some(PromptFile {
        name: name?,
        description: description?,
        context,
        user_invocable,
        model_invocable,
        allowed_tools,
        argument_hint,
        model: model(&front),
        effort,
        scripts: rules,
        times,
        built,
        body: front.body,
    })
}

/// What the scripts of the folder may do. A script that says nothing must not be repeated, as a command skill with `run:`.
fn script_rules(front: &Frontmatter, has_scripts: bool, report: &mut Report) -> Option<ScriptRules> {
    if !has_scripts {
        for key in SCRIPT_KEYS.into_iter().filter(|key| extension(front, key).is_some()) {
            let what = format!("`{key}` is about scripts, and the folder has none in `scripts/`");
            report.unsupported(front.line_of(key), what, "leave it out");
        }
        return None;
    }
    let [effect_key, network_key, timeout_key] = SCRIPT_KEYS;
    let effect = extension(front, effect_key).map(|value| scalar(value).unwrap_or_default());
    let known =
        |word: &String| [Effect::Read, Effect::Idempotent, Effect::Once].into_iter().find(|e| e.as_str() == word);
    if let Some(word) = effect.as_ref().filter(|word| known(word).is_none()) {
        let fix = "write `effect: read`, `idempotent` or `once`";
        report.error(front.line_of(effect_key), format!("`effect: {word}` is unknown"), fix);
    }
    let timeout_ms = extension(front, timeout_key).map(|value| value.as_u64().unwrap_or_default());
    if timeout_ms.is_some_and(|ms| !(1..=TIMEOUT_MS_MAX).contains(&ms)) {
        let fix = format!("write milliseconds from 1 to {TIMEOUT_MS_MAX}, or leave it out for {SCRIPT_MS}");
        report.error(front.line_of(timeout_key), "`timeout_ms` is out of range", fix);
    }
    Some(ScriptRules {
        effect: effect.as_ref().and_then(known).unwrap_or_default(),
        network: extension_flag(front, network_key, report).unwrap_or(false),
        timeout_ms: timeout_ms.unwrap_or(SCRIPT_MS),
    })
}

fn name(folder: &str, front: &Frontmatter, report: &mut Report) -> Option<String> {
    let line = front.line_of("name");
    let folder: String = folder.nfkc().collect();
    let name = match front.text("name", report).filter(|n| !n.is_empty()) {
        Some(name) => name.nfkc().collect::<String>(),
        None => {
            report.lenient(line, "`name` is missing", format!("write `name: {folder}`"));
            folder.clone()
        }
    };
    if name.chars().any(|c| !(c.is_alphanumeric() || c == '-' || c == '_')) || name.is_empty() {
        let fix = "use lower case letters, digits and single hyphens";
        report.error(line, format!("`{name}` cannot be a skill's name"), fix);
        return None;
    }
    if name != folder {
        let fix = "give folder and skill the same name";
        report.lenient(line, format!("`name: {name}` differs from the folder `{folder}`"), fix);
    }
    if name.chars().count() > NAME_CHARS_MAX {
        report.lenient(line, format!("the name has more than {NAME_CHARS_MAX} characters"), "shorten it");
    }
    if name.chars().any(|c| c == '_' || c.is_uppercase()) {
        let fix = "use lower case letters, digits and single hyphens";
        report.lenient(line, format!("`{name}` has upper case letters or underscores"), fix);
    }
    if name.starts_with('-') || name.ends_with('-') || name.contains("--") {
        report.lenient(
            line,
            format!("`{name}` has a hyphen at an end or a double one"),
            "keep hyphens single and inside",
        );
    }
    Some(name)
}

fn description(front: &Frontmatter, report: &mut Report) -> Option<String> {
    let line = front.line_of("description");
    let fix = "say in one or two sentences what it does and when to use it";
    if let Some(text) = front.text("description", report).filter(|t| !t.is_empty()) {
        if text.chars().count() > DESCRIPTION_CHARS_MAX {
            report.lenient(line, format!("`description` has more than {DESCRIPTION_CHARS_MAX} characters"), fix);
        }
        return Some(match extension(front, "when_to_use").and_then(scalar) {
            Some(when) => format!("{text} {}", when.trim()),
            None => text,
        });
    }
    let paragraph = front
        .body
        .split("\n\n")
        .map(|p| p.split_whitespace().collect::<Vec<_>>().join(" "))
        .find(|p| !p.is_empty() && !p.starts_with('#'));
    match &paragraph {
        Some(_) => report.lenient(line, "`description` is missing, the first paragraph stands in", fix),
        None => report.error(line, "`description` is missing and there is no paragraph to stand in", fix),
    }
    paragraph
}

fn compatibility(front: &Frontmatter, report: &mut Report) {
    for key in ["license", "compatibility"] {
        let too_long = match front.get(key) {
            Some(Value::String(text)) => key == "compatibility" && text.chars().count() > COMPATIBILITY_CHARS_MAX,
            None => false,
            Some(_) => {
                report.lenient(front.line_of(key), format!("`{key}` must be text"), "put it in double quotes");
                false
            }
        };
        if too_long {
            let what = format!("`{key}` has more than {COMPATIBILITY_CHARS_MAX} characters");
            report.lenient(front.line_of(key), what, "shorten it");
        }
    }
}

fn metadata(front: &Frontmatter, report: &mut Report) {
    let flat = match front.get("metadata") {
        None => true,
        Some(Value::Mapping(map)) => map.iter().all(|(k, v)| scalar(k).is_some() && scalar(v).is_some()),
        Some(_) => false,
    };
    if !flat {
        let fix = "write `  key: value` lines below `metadata:`";
        report.lenient(front.line_of("metadata"), "`metadata` must map texts to texts", fix);
    }
}

/// Splits `allowed-tools`. Tools may be separated by commas [S1 Frontmatter Fields] or spaces (the published format), also
/// inside a YAML list; text in parentheses belongs to its tool.
fn allowed_tools(front: &Frontmatter, report: &mut Report) -> Vec<String> {
    let line = front.line_of("allowed-tools");
    let fix = "write one line: `allowed-tools: Read Bash(git:*)`";
    match front.get("allowed-tools") {
        None => Vec::new(),
        Some(Value::String(text)) => split_tools(text),
        Some(Value::Sequence(items)) => {
            report.lenient(line, "`allowed-tools` must be one text", fix);
            items.iter().filter_map(scalar).flat_map(|t| split_tools(&t)).collect()
        }
        Some(_) => {
            report.error(line, "`allowed-tools` must be one text", fix);
            Vec::new()
        }
    }
}

fn split_tools(text: &str) -> Vec<String> {
    let mut tools = vec![String::new()];
    let mut depth = 0_u32;
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match tools.last_mut() {
            Some(tool) if depth > 0 || !(c == ',' || c.is_whitespace()) => tool.push(c),
            _ => tools.push(String::new()),
        }
    }
    tools.retain(|t| !t.is_empty());
    for tool in tools.iter_mut().filter(|tool| tool.as_str() == FETCH.0) {
        FETCH.1.clone_into(tool);
    }
    tools
}

/// Whether an entry of `allowed-tools` may name a skill, a domain, what every skill may do, or one of the skill's scripts.
fn may_allow(tool: &str, scripts: &[&str]) -> bool {
    let name = tool.strip_suffix(".*").unwrap_or(tool);
    let is_domain = || builtin::ALL.iter().any(|b| b.name.split_once('.').is_some_and(|(domain, _)| domain == name));
    let is_script = || scripts.iter().any(|script| allows_script(&[tool.to_owned()], script));
    READERS.contains(&tool) || is_script() || valid_skill_name(name) && (tool.contains('.') || is_domain())
}

/// Reports requested features that are not supported, so that authors do not rely on them.
fn unsupported(front: &Frontmatter, (allowed_tools, scripts): (&[String], &[&str]), report: &mut Report) {
    let is_default = |value: &Value| scalar(value).is_some_and(|text| DEFAULTS.contains(&text.as_str()));
    let is_requested = |key: &&str| extension(front, key).is_some_and(|value| !is_default(value));
    for key in UNREAD_KEYS.into_iter().filter(is_requested) {
        report.unsupported(front.line_of(key), format!("`{key}` is not read"), "leave it out");
    }
    for tool in allowed_tools.iter().filter(|tool| !may_allow(tool, scripts)) {
        let what = format!("`allowed-tools` names `{tool}`, which is no skill here and allows nothing");
        report.unsupported(
            front.line_of("allowed-tools"),
            what,
            "name skills or domains, such as `tasks.search` or `notes.*`",
        );
    }
    if front.body.lines().any(|line| line.trim_start().starts_with("!`")) {
        let what = "a line begins with !`…`, and no command is run while the instructions are read";
        report.unsupported(None, what, "tell the model in words what to look up");
    }
    if front.body.contains("${CLAUDE_") {
        let what = "`${CLAUDE_…}` is not filled in";
        report.unsupported(None, what, "name files relative to the folder of the skill");
    }
}

fn foreign_keys(front: &Frontmatter, report: &mut Report) {
    let known =
        |key: &String| FORMAT_KEYS.contains(&key.as_str()) || UNREAD_KEYS.contains(&key.as_str()) || key == MODEL_KEY;
    for key in front.keys().filter(|key| !known(key)) {
        let line = front.line_of(&key);
        if EXTENSION_KEYS.contains(&key.as_str()) {
            let fix = "move it below `metadata:`, where it is read as well";
            report.lenient(line, format!("`{key}` is an extension that other programs refuse"), fix);
        } else {
            report.lenient(line, format!("unknown key `{key}`"), format!("known are {}", FORMAT_KEYS.join(", ")));
        }
    }
}

/// An extension's value, from the top level or from below `metadata:`.
fn extension<'a>(front: &'a Frontmatter, key: &str) -> Option<&'a Value> {
    front.get(key).or_else(|| front.get("metadata")?.as_mapping()?.get(key))
}

/// `argument-hint: [pr-number]` is a YAML list to the parser and a text to its author.
fn hint(value: &Value) -> Option<String> {
    match value {
        Value::Sequence(items) => Some(format!("[{}]", items.iter().filter_map(scalar).collect::<Vec<_>>().join(", "))),
        other => scalar(other),
    }
}

/// The backend that a file requests, unless any may run the skill.
fn model(front: &Frontmatter) -> Option<String> {
    extension(front, MODEL_KEY).and_then(scalar).filter(|name| !DEFAULTS.contains(&name.as_str()))
}

/// How hard the model should think, unless the file requests nothing special.
fn effort(front: &Frontmatter, report: &mut Report) -> Option<Effort> {
    let word = extension(front, EFFORT_KEY).map(|value| scalar(value).unwrap_or_default())?;
    let effort = Effort::named(&word);
    if effort.is_none() && !DEFAULTS.contains(&word.as_str()) {
        let what = format!("`effort: {word}` is none of low, medium and high");
        report.unsupported(front.line_of(EFFORT_KEY), what, "write one of them, or leave it out");
    }
    effort
}

fn extension_flag(front: &Frontmatter, key: &str, report: &mut Report) -> Option<bool> {
    let value = extension(front, key)?;
    let flag = truth(value);
    if flag.is_none() {
        report.error(front.line_of(key), format!("`{key}` must be true or false"), format!("write `{key}: true`"));
    }
    flag
}

fn context(front: &Frontmatter, report: &mut Report) -> PromptContext {
    match extension(front, "context").map(|v| scalar(v).unwrap_or_default()).as_deref() {
        None | Some("inline") => PromptContext::Inline,
        Some("fork") => PromptContext::Fork,
        Some(other) => {
            let what = format!("`context: {other}` is unknown");
            report.error(front.line_of("context"), what, "write `inline` or `fork`");
            PromptContext::Inline
        }
    }
}

#[cfg(test)]
mod tests;
