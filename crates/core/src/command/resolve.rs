//! What a command means: checked against the skills as they are and the ones that an agent was granted.

use std::{fmt::Write as _, sync::Arc};

use serde_json::{Map, Value};

use super::parse::{Parsed, parse};
use crate::skill::{ArgError, ArgKind, ArgSpec, SkillFormat, SkillSet, SkillSpec, edit_distance};

/// What a command came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Resolution {
    /// Run this skill.
    Run {
        /// The skill.
        skill: Arc<SkillSpec>,
        /// Its arguments: a JSON object that fits them.
        arguments: Value,
    },
    /// A question about a skill, a domain or everything, and its answer.
    Help(String),
    /// What is wrong and how it would be right, for whoever wrote it.
    Error(String),
}

/// Resolves one command. `granted` is what the agent may use; nothing means every skill that a model may call.
#[must_use]
pub fn resolve(line: &str, skills: &SkillSet, granted: Option<&[String]>) -> Resolution {
    match parse(line) {
        Ok(parsed) => View { skills, granted }.resolve(parsed),
        Err(error) => Resolution::Error(error.to_string()),
    }
}

/// The skills as one agent sees them.
struct View<'a> {
    skills: &'a SkillSet,
    granted: Option<&'a [String]>,
}

impl View<'_> {
    fn resolve(&self, mut parsed: Parsed) -> Resolution {
        if parsed.help && parsed.name.is_empty() {
            return Resolution::Help(self.overview());
        }
        let Some(skill) = self.named(&mut parsed) else {
            return self.no_such_skill(&parsed);
        };
        if !self.sees(&skill) {
            return Resolution::Error(self.not_granted(&skill.name));
        }
        let form = Form::of(&skill);
        if parsed.help {
            return Resolution::Help(form.help());
        }
        match form.arguments(&parsed) {
            Ok(arguments) => Resolution::Run { arguments: Value::Object(arguments), skill },
            Err(what) => {
                Resolution::Error(ArgError { what, usage: form.usage(), skill: form.skill.name.clone() }.to_string())
            }
        }
    }

    fn sees(&self, skill: &SkillSpec) -> bool {
        self.granted.map_or_else(|| skill.is_model_invocable(), |names| names.contains(&skill.name))
    }

    fn visible(&self) -> impl Iterator<Item = &Arc<SkillSpec>> {
        self.skills.iter().filter(|s| self.sees(s))
    }

    /// The skill that the name means, also written `tasks create` or `Tasks.Create`; takes the words it used.
    fn named(&self, parsed: &mut Parsed) -> Option<Arc<SkillSpec>> {
        let mut name = parsed.name.trim_start_matches('/').to_lowercase();
        for used in 0..=parsed.name_words.min(2) {
            if used > 0 {
                name = format!("{name}.{}", parsed.positional[used - 1].to_lowercase());
            }
            if let Some(skill) = self.skills.get(&name) {
                parsed.positional.drain(..used);
                return Some(Arc::clone(skill));
            }
        }
        None
    }

    fn no_such_skill(&self, parsed: &Parsed) -> Resolution {
        let domain = parsed.name.to_lowercase();
        let in_domain: Vec<_> = self.visible().filter(|s| s.domain == domain).collect();
        if in_domain.is_empty() {
            return Resolution::Error(self.unknown(&parsed.name));
        }
        let help = self.domain_help(&domain, &in_domain);
        match parsed.positional.first() {
            None if parsed.help || parsed.flags.is_empty() => Resolution::Help(help),
            None => Resolution::Error(format!("{domain} is a domain, not a skill.\n{help}")),
            Some(verb) => {
                let near = self.near(&format!("{domain}.{}", verb.to_lowercase()));
                Resolution::Error(format!("{domain} has no skill {verb:?}.{near}\n{help}"))
            }
        }
    }

    fn domain_help(&self, domain: &str, skills: &[&Arc<SkillSpec>]) -> String {
        let about = self.skills.domains().into_iter().find(|d| d.name == domain).map(|d| d.description);
        let mut text = match about.filter(|a| !a.is_empty()) {
            Some(about) => format!("{domain}: {about}\n"),
            None => format!("{domain}:\n"),
        };
        for skill in skills {
            let _ = writeln!(text, "  {}\n      {}", Form::of(skill).usage(), skill.description);
        }
        text.push_str("Details: `<skill> --help`.");
        text
    }

    fn overview(&self) -> String {
        let mut text = String::from("Skills:\n");
        for skill in self.visible() {
            let _ = writeln!(text, "  {}: {}", skill.name, skill.description);
        }
        text.push_str("Details: `<skill> --help`, `<domain> --help`.");
        text
    }

    fn unknown(&self, name: &str) -> String {
        format!("unknown skill {name:?}.{} Try `help`.", self.near(name))
    }

    fn near(&self, name: &str) -> String {
        let near: Vec<String> = self
            .skills
            .near(&name.to_lowercase())
            .into_iter()
            .filter(|n| self.skills.get(n).is_some_and(|s| self.sees(s)))
            .collect();
        if near.is_empty() { String::new() } else { format!(" Did you mean {}?", near.join(", ")) }
    }

    fn not_granted(&self, name: &str) -> String {
        let yours: Vec<&str> = self.visible().map(|s| s.name.as_str()).collect();
        if self.granted.is_none() {
            return self.unknown(name);
        }
        let yours = if yours.is_empty() { "none".to_owned() } else { yours.join(", ") };
        format!("{name} is not available to this agent; yours are: {yours}")
    }
}

/// A skill with its flags: a prompt skill that declares none takes `--args TEXT`.
struct Form<'a> {
    skill: &'a SkillSpec,
    args: std::borrow::Cow<'a, [ArgSpec]>,
}

impl<'a> Form<'a> {
    fn of(skill: &'a SkillSpec) -> Self {
        let args = match skill.format {
            SkillFormat::Prompt { .. } if skill.args.is_empty() => vec![prompt_arg()].into(),
            SkillFormat::Prompt { .. } | SkillFormat::Command => skill.args.as_slice().into(),
        };
        Self { skill, args }
    }

    fn is_prompt(&self) -> bool {
        matches!(self.skill.format, SkillFormat::Prompt { .. })
    }

    fn usage(&self) -> String {
        self.args.iter().fold(self.skill.name.clone(), |line, arg| line + " " + &arg.usage())
    }

    /// A prompt skill's body is what it does when it is run, and not its help.
    fn help(&self) -> String {
        if self.is_prompt() {
            format!("{}\n\nUsage: {}\n", self.skill.description, self.usage())
        } else {
            self.skill.help()
        }
    }

    fn arguments(&self, parsed: &Parsed) -> Result<Map<String, Value>, String> {
        let mut arguments = Map::new();
        for (name, value) in &parsed.flags {
            self.take_flag(&mut arguments, name, value.as_deref())?;
        }
        self.take_positional(&mut arguments, &parsed.positional)?;
        let missing: Vec<String> = self.missing(&arguments).map(|a| format!("--{}", a.name)).collect();
        match missing.as_slice() {
            [] => Ok(arguments),
            [one] => Err(format!("missing required flag: {one}")),
            several => Err(format!("missing required flags: {}", several.join(", "))),
        }
    }

    fn missing<'m>(&'m self, given: &'m Map<String, Value>) -> impl Iterator<Item = &'m ArgSpec> {
        self.args.iter().filter(|a| a.required && !given.contains_key(&a.name))
    }

    fn take_flag(&self, given: &mut Map<String, Value>, name: &str, value: Option<&str>) -> Result<(), String> {
        let find = |wanted: &str| self.args.iter().find(|a| a.name.replace('-', "_").eq_ignore_ascii_case(wanted));
        let negated = || name.strip_prefix("no_").and_then(find).filter(|a| a.kind == ArgKind::Bool);
        let (arg, read) = match (find(name), negated()) {
            (Some(arg), _) => (arg, read_value(arg, value)?),
            (None, Some(arg)) if value.is_none() => (arg, Value::Bool(false)),
            (None, Some(arg)) => return Err(format!("--no-{} takes no value", arg.name)),
            (None, None) => return Err(self.unknown_flag(name)),
        };
        match (given.get_mut(&arg.name), read) {
            (Some(Value::Array(items)), Value::Array(more)) => items.extend(more),
            (Some(_), _) => return Err(format!("--{} is given more than once and takes one value", arg.name)),
            (None, read) => {
                given.insert(arg.name.clone(), read);
            }
        }
        Ok(())
    }

    /// Loose words are taken where they can only mean one thing: the one required text that is missing, or a prompt
    /// skill's arguments.
    fn take_positional(&self, given: &mut Map<String, Value>, words: &[String]) -> Result<(), String> {
        if words.is_empty() {
            return Ok(());
        }
        let text = words.join(" ");
        let missing: Vec<&ArgSpec> = self.missing(given).collect();
        let target = match missing.as_slice() {
            [arg] if arg.kind == ArgKind::Text => Some(*arg),
            [] if self.is_prompt() => self.args.iter().find(|a| a.name == "args" && !given.contains_key(&a.name)),
            _ => None,
        };
        let Some(arg) = target else {
            let shown: String = text.chars().take(80).collect();
            return Err(format!("unexpected text {shown:?}: every value follows its flag, in quotes if it has spaces"));
        };
        let (name, value) = (arg.name.clone(), arg.parse_text(&text)?);
        given.insert(name, value);
        Ok(())
    }

    fn unknown_flag(&self, name: &str) -> String {
        let mut near: Vec<(usize, &str)> = self
            .args
            .iter()
            .filter_map(|a| {
                let distance = edit_distance(name, &a.name);
                let part = name.len() > 2 && (a.name.contains(name) || name.contains(a.name.as_str()));
                (distance <= 2 || part).then_some((distance, a.name.as_str()))
            })
            .collect();
        near.sort_unstable();
        let hint = match near.first() {
            Some((_, best)) => format!(" Did you mean --{best}?"),
            None if self.args.is_empty() => " It takes none.".to_owned(),
            None => String::new(),
        };
        format!("{} has no flag --{name}.{hint}", self.skill.name)
    }
}

fn read_value(arg: &ArgSpec, value: Option<&str>) -> Result<Value, String> {
    match value {
        Some(text) => arg.parse_text(text),
        None if arg.kind == ArgKind::Bool => Ok(Value::Bool(true)),
        None => Err(format!("--{} needs a value: {}", arg.name, arg.usage().trim_matches(['[', ']']))),
    }
}

fn prompt_arg() -> ArgSpec {
    ArgSpec {
        name: "args".to_owned(),
        kind: ArgKind::Text,
        required: false,
        help: "What to do it with or on.".to_owned(),
        minimum: None,
        maximum: None,
        default: Value::Null,
    }
}
