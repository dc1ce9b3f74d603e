//! Converts arguments as models send them to the declared types: `"1"` and `1.0` become 1, `"true"` becomes true, `due_date`
//! becomes `due`. An invalid argument is answered in the agent's calling style, always with the complete call to copy.

use serde_json::{Map, Value, json};

use super::{ArgKind, ArgSpec, SkillSpec, edit_distance};
use crate::command::quote;

/// Placeholder for a missing value. Rejected as a value.
pub const PLACEHOLDER: &str = "…";

/// The calling style of the agent, which errors use as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStyle {
    /// Commands in fenced blocks.
    Cmd,
    /// The tool `use_skill`.
    UseSkill,
    /// A separate tool for each skill.
    Direct,
}

/// Invalid arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct Misfit {
    /// The error.
    pub what: String,
    /// The valid arguments.
    pub given: Map<String, Value>,
}

impl CallStyle {
    /// An argument's name as written in this style.
    #[must_use]
    pub fn argument(self, name: &str) -> String {
        match self {
            Self::Cmd => format!("--{name}"),
            Self::UseSkill | Self::Direct => format!("\"{name}\""),
        }
    }

    /// A complete call of a skill with these arguments, as the model would write it.
    #[must_use]
    pub fn call(self, skill: &SkillSpec, given: &Map<String, Value>) -> String {
        match self {
            Self::Cmd => {
                let flags = skill.args.iter().filter_map(|arg| Some((arg, given.get(&arg.name)?)));
                flags.fold(skill.name.clone(), |line, (arg, value)| format!("{line} {}", flag(arg, value)))
            }
            Self::UseSkill | Self::Direct => self.json_call(&skill.name, &Value::Object(given.clone())),
        }
    }

    /// A call of a tool with these arguments; for commands, the JSON that corresponds to their flags.
    #[must_use]
    pub fn json_call(self, skill: &str, arguments: &Value) -> String {
        match self {
            Self::Cmd => format!("{skill} {arguments}"),
            Self::UseSkill => format!("use_skill {{\"skill\":{},\"arguments\":{arguments}}}", Value::from(skill)),
            Self::Direct => format!("{} {arguments}", crate::context::direct_tool_name(skill)),
        }
    }

    /// The call to copy after an error: the valid arguments, and placeholders for missing ones.
    #[must_use]
    pub fn right_call(self, skill: &SkillSpec, given: &Map<String, Value>) -> String {
        let mut all = given.clone();
        for arg in skill.args.iter().filter(|a| a.required) {
            all.entry(arg.name.clone()).or_insert_with(|| PLACEHOLDER.into());
        }
        self.call(skill, &all)
    }

    /// The instruction for the model: the right call in its calling style. Small models copy what they see, so a command is
    /// shown in its block.
    #[must_use]
    pub fn instruction(self, skill: &SkillSpec, given: &Map<String, Value>) -> String {
        let call = self.right_call(skill, given);
        match self {
            Self::Cmd => block(&call),
            Self::UseSkill | Self::Direct => format!("Call: {call}"),
        }
    }

    /// The complete error: what is wrong, and the right call.
    #[must_use]
    pub fn error(self, skill: &SkillSpec, misfit: &Misfit) -> String {
        let call = self.right_call(skill, &misfit.given);
        match self {
            Self::Cmd => {
                let name = &skill.name;
                format!("{}\nUsage: {}\nTry `{name} --help`. {}", misfit.what, SkillSpec::synopsis(skill), block(&call))
            }
            Self::UseSkill | Self::Direct => {
                let names: Vec<String> = skill.args.iter().map(|a| self.argument(&a.name)).collect();
                let takes = if names.is_empty() { "no arguments".to_owned() } else { names.join(", ") };
                let fill = fill(&call);
                format!("{}: {}. It takes {takes}. Call{fill}: {call}", skill.name, misfit.what)
            }
        }
    }
}

/// The instruction to write a command. Small models copy what they see.
fn block(call: &str) -> String {
    format!("Write this block{}:\n```cmd\n{call}\n```", fill(call))
}

fn fill(call: &str) -> &'static str {
    if call.contains(PLACEHOLDER) { " (with real values in place of …)" } else { "" }
}

fn flag(arg: &ArgSpec, value: &Value) -> String {
    let text = match value {
        Value::String(text) => quote(text),
        Value::Array(items) => {
            let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            quote(&items.join(","))
        }
        Value::Bool(true) => return format!("--{}", arg.name),
        other => other.to_string(),
    };
    if value == &Value::Bool(false) { format!("--{}={text}", arg.name) } else { format!("--{} {text}", arg.name) }
}

/// The result of looking up an argument by the name that a model wrote.
#[derive(Debug, PartialEq)]
pub enum Found<'a> {
    /// The argument with this name.
    Is(&'a ArgSpec),
    /// No argument has this name; this one was probably intended.
    Near(&'a ArgSpec),
    /// No argument has this name.
    No,
}

/// Finds an argument by its name, or by a synonym (`due_date` for `due`, `task_id` for `id` of a task) if only one argument
/// matches. A misspelt name is not corrected.
#[must_use]
pub fn find_argument<'a>(args: &'a [ArgSpec], domain: &str, name: &str) -> Found<'a> {
    let name = snake(name);
    if let Some(arg) = args.iter().find(|a| snake(&a.name) == name) {
        return Found::Is(arg);
    }
    let words = meaning(&name, domain);
    let mut same = args.iter().filter(|a| !words.is_empty() && meaning(&snake(&a.name), domain) == words);
    if let (Some(arg), None) = (same.next(), same.next()) {
        return Found::Is(arg);
    }
    let near = args.iter().filter_map(|a| {
        let distance = edit_distance(&name, &a.name);
        let part = name.len() > 2 && (a.name.contains(&name) || name.contains(a.name.as_str()));
        (distance <= 2 || part).then_some((distance, a))
    });
    near.min_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.name.cmp(&b.1.name))).map_or(Found::No, |(_, a)| Found::Near(a))
}

/// Converts `dueDate`, `due-date` and `Due_Date` to `due_date`.
fn snake(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 2);
    let mut after_small = false;
    for c in name.trim().trim_start_matches('-').chars() {
        if c.is_uppercase() && after_small {
            out.push('_');
        }
        after_small = c.is_lowercase() || c.is_ascii_digit();
        match c {
            '-' | ' ' | '.' => out.push('_'),
            c => out.extend(c.to_lowercase()),
        }
    }
    out
}

/// The significant words of a name, sorted: without the skill's domain and without words for the type of the value.
fn meaning(name: &str, domain: &str) -> Vec<String> {
    const EMPTY: [&str; 5] = ["date", "text", "string", "value", "the"];
    let singular = |word: &str| match word.strip_suffix('s') {
        Some(one) if one.len() > 2 => one.to_owned(),
        _ => word.to_owned(),
    };
    let domain = singular(domain);
    let words = name.split('_').filter(|w| !w.is_empty()).map(singular);
    let mut words: Vec<String> = words.filter(|w| *w != domain && !EMPTY.contains(&w.as_str())).collect();
    words.sort_unstable();
    words
}

impl ArgSpec {
    /// Converts a JSON value as sent by a model. Returns `None` for an empty value.
    ///
    /// # Errors
    /// The expected value, as the rest of a sentence that begins with the argument's name.
    pub fn read(&self, value: &Value) -> Result<Option<Value>, String> {
        let text = value.as_str().map(str::trim);
        let is_placeholder = text.is_some_and(|t| t == PLACEHOLDER || t == "...");
        let is_empty = text == Some("") && !matches!(self.kind, ArgKind::Text | ArgKind::Date);
        if value.is_null() || is_placeholder || is_empty {
            return Ok(None);
        }
        let read = match (&self.kind, value) {
            (ArgKind::Integer | ArgKind::Id, Value::Number(n)) => whole(n.as_f64()).unwrap_or_else(|| value.clone()),
            (ArgKind::Integer | ArgKind::Id, Value::String(text)) => {
                let number = text.trim().trim_start_matches('#').parse::<f64>().ok();
                whole(number).unwrap_or_else(|| value.clone())
            }
            (ArgKind::Number, Value::String(text)) => self.parse_text(text)?,
            (ArgKind::Bool, Value::String(text)) => self.parse_text(text)?,
            (ArgKind::Bool, Value::Number(n)) if n.as_f64() == Some(0.0) => Value::Bool(false),
            (ArgKind::Bool, Value::Number(n)) if n.as_f64() == Some(1.0) => Value::Bool(true),
            // A flag without a value becomes true, which is not a text.
            (ArgKind::Text | ArgKind::Date, Value::Number(_)) => value.to_string().into(),
            (ArgKind::Choice(words), Value::String(text)) => choice(words, text),
            (ArgKind::List, Value::String(text)) => self.parse_text(text)?,
            (ArgKind::List, Value::Number(_)) => json!([value.to_string()]),
            (ArgKind::List, Value::Array(items)) => {
                let as_text = |item: &Value| if item.is_number() { item.to_string().into() } else { item.clone() };
                items.iter().map(as_text).collect()
            }
            _ => value.clone(),
        };
        self.check(&read)?;
        Ok(Some(read))
    }
}

fn whole(number: Option<f64>) -> Option<Value> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    let number = number.filter(|n| n.fract() == 0.0 && n.abs() <= EXACT_MAX)?;
    #[expect(clippy::cast_possible_truncation, reason = "a whole number within what a float holds exactly")]
    Some(Value::from(number as i64))
}

/// The listed word that a text matches, otherwise the text itself.
fn choice(words: &[String], text: &str) -> Value {
    let meant = snake(text);
    words.iter().find(|w| **w == text || snake(w) == meant).map_or(text, String::as_str).into()
}

/// Converts arguments in the form of a JSON object to the declared types.
///
/// # Errors
/// The first invalid argument, together with the valid ones.
pub fn fit(skill: &SkillSpec, arguments: &Map<String, Value>, style: CallStyle) -> Result<Map<String, Value>, Misfit> {
    let mut given = Map::new();
    let mut wrong = None;
    let found = |name: &str| find_argument(&skill.args, &skill.domain, name);
    // Exact names first: a synonym must not replace the value given under the argument's own name.
    let is_exact = |name: &str| skill.args.iter().any(|a| a.name == name);
    let (exact, other): (Vec<_>, Vec<_>) = arguments.iter().partition(|(name, _)| is_exact(name));
    for (name, value) in exact.into_iter().chain(other) {
        let what = match found(name) {
            Found::Is(arg) => match arg.read(value) {
                Ok(None) => continue,
                Ok(Some(read)) if given.get(&arg.name).is_none_or(|before| *before == read) => {
                    given.insert(arg.name.clone(), read);
                    continue;
                }
                Ok(Some(_)) => {
                    format!("{} and {} say different things", style.argument(&arg.name), style.argument(name))
                }
                Err(what) => format!("{} {what}", style.argument(&arg.name)),
            },
            _ if value.is_null() => continue,
            Found::Near(arg) => {
                let (name, near) = (style.argument(&shown(name)), style.argument(&arg.name));
                format!("it has no argument {name}. Did you mean {near}?")
            }
            Found::No => format!("it has no argument {}", style.argument(&shown(name))),
        };
        wrong.get_or_insert(what);
    }
    let wrong = wrong.or_else(|| missing(skill, &given, style));
    match wrong {
        Some(what) => Err(Misfit { what, given }),
        None => Ok(given),
    }
}

/// The error for missing required arguments.
fn missing(skill: &SkillSpec, given: &Map<String, Value>, style: CallStyle) -> Option<String> {
    let names: Vec<String> = skill
        .args
        .iter()
        .filter(|a| a.required && !given.contains_key(&a.name))
        .map(|a| style.argument(&a.name))
        .collect();
    (!names.is_empty()).then(|| format!("{} is missing", names.join(" and ")))
}

fn shown(name: &str) -> String {
    name.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skill::{Effect, SkillFormat};

    fn skill() -> SkillSpec {
        let arg = |name: &str, kind, required| ArgSpec {
            name: name.to_owned(),
            kind,
            required,
            help: String::new(),
            minimum: None,
            maximum: None,
            default: Value::Null,
        };
        SkillSpec {
            name: "tasks.update".to_owned(),
            domain: "tasks".to_owned(),
            description: String::new(),
            body: String::new(),
            args: vec![
                arg("id", ArgKind::Id, true),
                arg("due", ArgKind::Date, false),
                arg("priority", ArgKind::Choice(vec!["low".to_owned(), "in_progress".to_owned()]), false),
                arg("tags", ArgKind::List, false),
                arg("title", ArgKind::Text, false),
                arg("urgent", ArgKind::Bool, false),
            ],
            effect: Effect::Idempotent,
            external: false,
            timeout_ms: 1,
            alternatives: Vec::new(),
            fallback: std::collections::BTreeMap::new(),
            is_ready: false,
            format: SkillFormat::Command,
            source: "bundled".to_owned(),
        }
    }

    fn read(arguments: &Value) -> Result<Value, Misfit> {
        fit(&skill(), arguments.as_object().unwrap(), CallStyle::UseSkill).map(Value::Object)
    }

    #[test]
    fn fit_converts_values_to_declared_type() {
        for (sent, meant) in [
            (json!({"id": "1"}), json!({"id": 1})),
            (json!({"id": 1.0}), json!({"id": 1})),
            (json!({"id": "#7", "urgent": "true"}), json!({"id": 7, "urgent": true})),
            (json!({"id": 1, "urgent": 0, "title": 42}), json!({"id": 1, "urgent": false, "title": "42"})),
            (json!({"id": 1, "priority": "In-Progress"}), json!({"id": 1, "priority": "in_progress"})),
            (json!({"id": 1, "tags": "a, b"}), json!({"id": 1, "tags": ["a", "b"]})),
            (json!({"id": 1, "tags": ["a", 2]}), json!({"id": 1, "tags": ["a", "2"]})),
            (json!({"id": 1, "title": null, "urgent": "", "due": "…"}), json!({"id": 1})),
        ] {
            assert_eq!(read(&sent).unwrap(), meant, "{sent}");
        }
        for wrong in [json!({"id": "3 items"}), json!({"id": 1.5}), json!({"id": 1, "urgent": "maybe"})] {
            assert!(read(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn fit_accepts_synonym_and_rejects_misspelt_name() {
        assert_eq!(read(&json!({"task_id": 1, "dueDate": "friday"})).unwrap(), json!({"id": 1, "due": "friday"}));
        assert_eq!(read(&json!({"taskId": 1, "tag": "a"})).unwrap(), json!({"id": 1, "tags": ["a"]}));
        assert_eq!(read(&json!({"id": 1, "due_date": "friday", "due": "friday"})).unwrap()["due"], "friday");
        let twice = read(&json!({"id": 1, "due_date": "monday", "due": "friday"})).unwrap_err();
        assert_eq!(twice.what, "\"due\" and \"due_date\" say different things");
        let misspelt = read(&json!({"id": 1, "titel": "x"})).unwrap_err();
        assert_eq!(misspelt.what, "it has no argument \"titel\". Did you mean \"title\"?");
        assert!(read(&json!({"user_id": 1})).is_err(), "the id of something else is not the task's");
    }

    #[test]
    fn fit_error_contains_complete_call_in_calling_style() {
        let skill = skill();
        let sent = json!({"due_date": "tomorrow", "colour": "red"});
        let misfit = read(&sent).unwrap_err();
        let text = CallStyle::UseSkill.error(&skill, &misfit);
        let call = r#"use_skill {"skill":"tasks.update","arguments":{"due":"tomorrow","id":"…"}}"#;
        assert!(text.starts_with("tasks.update: it has no argument \"colour\"") && text.ends_with(call), "{text}");
        assert!(!text.contains("--"), "{text}");
        let text = CallStyle::Direct.error(&skill, &misfit);
        assert!(text.ends_with(r#"tasks__update {"due":"tomorrow","id":"…"}"#), "{text}");
        let text = CallStyle::Cmd.error(&skill, &misfit);
        assert!(text.ends_with("```cmd\ntasks.update --id \"…\" --due tomorrow\n```"), "{text}");
        assert_eq!(read(&json!({"id": "…"})).unwrap_err().what, "\"id\" is missing", "a placeholder is not a value");
    }

    #[test]
    fn schema_of_dates_has_no_format_and_bounds_are_whole_numbers() {
        let mut skill = skill();
        skill.args.iter_mut().for_each(|arg| (arg.minimum, arg.maximum) = (Some(1.0), Some(5.0)));
        let schema = skill.schema().to_string();
        assert!(skill.args.iter().any(|arg| arg.kind == ArgKind::Date) && !schema.contains("\"format\""), "{schema}");
        assert!(schema.contains("\"minimum\":1,") && !schema.contains("1.0") && !schema.contains("5.0"), "{schema}");
    }
}
