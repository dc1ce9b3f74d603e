//! Resolves a command against the current skills and an agent's granted skills.

use std::{fmt::Write as _, sync::Arc};

use serde_json::{Map, Value};

use super::{
    labels::{Flag, labelled},
    parse::{Loose, Parsed, parse},
};
use crate::skill::{
    ArgKind, ArgSpec, CallStyle, Effect, Found, Misfit, PLACEHOLDER, SkillFormat, SkillSet, SkillSpec, called,
    find_argument, fit,
};

/// The result of resolving a command.
#[derive(Debug, Clone, PartialEq)]
pub enum Resolution {
    /// Run this skill.
    Run {
        /// The skill.
        skill: Arc<SkillSpec>,
        /// Its arguments: a JSON object that conforms to the skill's declaration.
        arguments: Value,
    },
    /// The command asks for help on a skill, a domain or all skills. Contains the help text.
    Help(String),
    /// The command is invalid. Contains the error and the right usage, for the command's author.
    Error(String),
}

/// Resolves one command. `granted` are the skills that the agent may use; `None` means every skill that a model may call.
#[must_use]
pub fn resolve(line: &str, skills: &SkillSet, granted: Option<&[String]>) -> Resolution {
    let view = View { skills, granted };
    if let Some((name, arguments)) = json_after_name(line) {
        return view.with_json(name, arguments);
    }
    match parse(line) {
        Ok(parsed) => view.resolve(parsed),
        Err(error) => Resolution::Error(error.to_string()),
    }
}

/// Parses a command whose arguments are one JSON object, as in `tasks.create {"title": "Buy milk"}`.
fn json_after_name(line: &str) -> Option<(&str, Value)> {
    let (name, _) = line.split_once(|c: char| c.is_whitespace() || c == '{' || c == '(')?;
    let rest = line[name.len()..].trim();
    let rest = rest.strip_prefix('(').and_then(|r| r.strip_suffix(')')).unwrap_or(rest).trim();
    let arguments: Value = rest.starts_with('{').then(|| serde_json::from_str(rest).ok())??;
    Some((name, arguments))
}

/// The run of a skill with these arguments, on which its effect may depend.
fn run(skill: &Arc<SkillSpec>, given: Map<String, Value>) -> Resolution {
    let arguments = Value::Object(given);
    Resolution::Run { skill: called(skill, &arguments), arguments }
}

/// The skills that are visible to one agent.
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
        let mut given = Map::new();
        match form.arguments(&parsed, &mut given) {
            Ok(()) => run(&skill, given),
            Err(what) => match self.sibling(&skill, &parsed) {
                Some((other, call)) => {
                    let name = &other.name;
                    Resolution::Error(format!("{what}\n{name} takes it. {}", CallStyle::Cmd.instruction(&other, &call)))
                }
                None => Resolution::Error(form.error(&Misfit { what, given })),
            },
        }
    }

    /// The only other skill of the domain without effects that accepts these arguments, if the skill itself has none: a model
    /// that reads with `tasks.get --status open` means `tasks.search`.
    fn sibling(&self, skill: &SkillSpec, parsed: &Parsed) -> Option<(Arc<SkillSpec>, Map<String, Value>)> {
        let reads = |s: &&Arc<SkillSpec>| s.domain == skill.domain && s.effect == Effect::Read && s.name != skill.name;
        let accepts = |s: &Arc<SkillSpec>| {
            let mut given = Map::new();
            Form::of(s).arguments(parsed, &mut given).ok().map(|()| (Arc::clone(s), given))
        };
        let mut others = self.visible().filter(|s| skill.effect == Effect::Read && reads(s)).filter_map(accepts);
        let only = others.next()?;
        others.next().is_none().then_some(only)
    }

    fn with_json(&self, name: &str, arguments: Value) -> Resolution {
        let mut parsed = Parsed { name: name.to_owned(), ..Parsed::default() };
        let (Some(skill), Value::Object(arguments)) = (self.named(&mut parsed), arguments) else {
            return self.no_such_skill(&parsed);
        };
        if !self.sees(&skill) {
            return Resolution::Error(self.not_granted(&skill.name));
        }
        let form = Form::of(&skill);
        match fit(&form.spec(), &arguments, CallStyle::Cmd) {
            Ok(given) => run(&skill, given),
            Err(misfit) => Resolution::Error(form.error(&misfit)),
        }
    }

    fn sees(&self, skill: &SkillSpec) -> bool {
        self.granted.map_or_else(|| skill.is_model_invocable(), |names| names.contains(&skill.name))
    }

    fn visible(&self) -> impl Iterator<Item = &Arc<SkillSpec>> {
        self.skills.iter().filter(|s| self.sees(s))
    }

    /// The skill with this name, also written `tasks create` or `Tasks.Create`. Removes the words that belong to the name.
    fn named(&self, parsed: &mut Parsed) -> Option<Arc<SkillSpec>> {
        let mut name = parsed.name.trim_start_matches('/').trim_end_matches(':').to_lowercase();
        for used in 0..=parsed.name_words.min(2) {
            if used > 0 {
                name = format!("{name}.{}", parsed.positional[used - 1].text.to_lowercase());
            }
            if let Some(skill) = self.skills.get(&name) {
                parsed.positional.drain(..used);
                return Some(Arc::clone(skill));
            }
        }
        self.skills.named_like(parsed.name.trim_start_matches('/')).filter(|s| self.sees(s)).map(Arc::clone)
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
                let verb = &verb.text;
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

/// A skill with its flags. A prompt skill without declared arguments takes `--args TEXT`.
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

    /// The body of a prompt skill contains its instructions, and is not its help.
    fn help(&self) -> String {
        if self.is_prompt() {
            format!("{}\n\nUsage: {}\n", self.skill.description, self.usage())
        } else {
            self.skill.help()
        }
    }

    /// The skill with the arguments used for parsing and help.
    fn spec(&self) -> std::borrow::Cow<'a, SkillSpec> {
        match &self.args {
            std::borrow::Cow::Borrowed(_) => std::borrow::Cow::Borrowed(self.skill),
            std::borrow::Cow::Owned(args) => {
                std::borrow::Cow::Owned(SkillSpec { args: args.clone(), ..self.skill.clone() })
            }
        }
    }

    fn error(&self, misfit: &Misfit) -> String {
        CallStyle::Cmd.error(&self.spec(), misfit)
    }

    fn arguments(&self, parsed: &Parsed, given: &mut Map<String, Value>) -> Result<(), String> {
        let mut wrong = None;
        for (name, value) in &parsed.flags {
            if let Err(what) = self.take_flag(given, name, value.as_deref()) {
                wrong.get_or_insert(what);
            }
        }
        for (name, value) in &parsed.assigned {
            if let Err(what) = self.take_assigned(given, name, value) {
                wrong.get_or_insert(what);
            }
        }
        if let Some(what) = wrong {
            return Err(what);
        }
        self.take_loose(given, &parsed.positional)?;
        let missing: Vec<String> = self.missing(given).map(|a| format!("--{}", a.name)).collect();
        match missing.as_slice() {
            [] => Ok(()),
            [one] => Err(format!("missing required flag: {one}")),
            several => Err(format!("missing required flags: {}", several.join(", "))),
        }
    }

    /// Handles `title="Buy milk"`: a flag without its dashes, if a flag with this name exists.
    fn take_assigned(&self, given: &mut Map<String, Value>, name: &str, value: &str) -> Result<(), String> {
        match find_argument(&self.args, &self.skill.domain, name) {
            Found::Is(_) => self.take_flag(given, name, Some(value)),
            Found::Near(_) | Found::No => Err(unexpected(&format!("{name}={value}"))),
        }
    }

    fn missing<'m>(&'m self, given: &'m Map<String, Value>) -> impl Iterator<Item = &'m ArgSpec> {
        self.args.iter().filter(|a| a.required && !given.contains_key(&a.name))
    }

    fn take_flag(&self, given: &mut Map<String, Value>, name: &str, value: Option<&str>) -> Result<(), String> {
        let find = |wanted: &str| match find_argument(&self.args, &self.skill.domain, wanted) {
            Found::Is(arg) => Some(arg),
            Found::Near(_) | Found::No => None,
        };
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

    /// Handles the words without a flag: flags written with a colon, and a text.
    fn take_loose(&self, given: &mut Map<String, Value>, words: &[Loose]) -> Result<(), String> {
        let read = labelled(&self.args, &self.skill.domain, words);
        let mut wrong = None;
        for Flag { name, arg, is_near, value } in &read.flags {
            if let Err(what) = self.take_flag(given, &arg.name, value.as_deref()) {
                wrong.get_or_insert(what);
            } else if *is_near {
                let hint = "A text with a colon in it stands in quotes.";
                let what = format!("{} has no flag {name}. Did you mean --{}? {hint}", self.skill.name, arg.name);
                wrong.get_or_insert(what);
            }
        }
        let is_text_missing = self.missing(given).next().is_some();
        let before: Vec<String> = read.before.iter().map(|word| word.text.clone()).collect();
        // An error contains the call that was probably intended.
        let taken = self.take_positional(given, &before);
        if let Some(what) = wrong {
            return Err(what);
        }
        taken?;
        if let Some(flag) = read.flags.first()
            && is_text_missing
            && read.before.iter().any(|word| !word.is_quoted)
        {
            let name = flag.name;
            return Err(format!(
                "{name:?} before a colon may be the flag --{} or a part of the text: flags have two dashes, and a text with a \
                 colon in it stands in quotes",
                flag.arg.name
            ));
        }
        if read.behind.is_empty() { Ok(()) } else { Err(unexpected(&read.behind.join(" "))) }
    }

    /// Assigns words without a flag if they have only one meaning: the single missing required text, or the arguments of a
    /// prompt skill.
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
        // Words that look like the syntax of a call are not a sentence of the user's.
        let is_syntax =
            words.iter().any(|w| w.starts_with(['{', '[', '(', '<', '—', '–', '`', '|']) || w.ends_with("=>"));
        let Some(arg) = target.filter(|_| !is_syntax) else { return Err(unexpected(&text)) };
        let value = arg.parse_text(&text).map_err(|what| format!("--{} {what}", arg.name))?;
        given.insert(arg.name.clone(), value);
        Ok(())
    }

    fn unknown_flag(&self, name: &str) -> String {
        let hint = match find_argument(&self.args, &self.skill.domain, name) {
            Found::Near(best) | Found::Is(best) => format!(" Did you mean --{}?", best.name),
            Found::No if self.args.is_empty() => " It takes none.".to_owned(),
            Found::No => String::new(),
        };
        format!("{} has no flag --{name}.{hint}", self.skill.name)
    }
}

fn unexpected(text: &str) -> String {
    let shown: String = text.chars().take(80).collect();
    format!("unexpected text {shown:?}: every value follows its flag, in quotes if it has spaces")
}

fn read_value(arg: &ArgSpec, value: Option<&str>) -> Result<Value, String> {
    match value {
        Some(text) if text == PLACEHOLDER => {
            Err(format!("--{} needs a real value in place of {PLACEHOLDER}", arg.name))
        }
        Some(text) => {
            let read = if matches!(arg.kind, ArgKind::Choice(_)) { arg.read(&text.into()) } else { Ok(None) };
            let read = read.and_then(|read| read.map_or_else(|| arg.parse_text(text), Ok));
            read.map_err(|what| format!("--{} {what}", arg.name))
        }
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
