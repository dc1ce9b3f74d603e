//! The skills that a request describes. The planner knows only what the request contains: names in the orchestrator's
//! prompt, synopses in a sub-agent's prompt or in the answer of `get_skill`, JSON Schemas of tools.

use std::collections::{BTreeMap, BTreeSet};

use annie_core::{
    message::{ModelRequest, ToolDef},
    skill::{ArgKind, ArgSpec, args_from_schema},
};
use serde_json::Value;

/// The known data of one skill.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Skill {
    /// `tasks.create`.
    pub name: String,
    /// The skill's description; empty if only the name is known.
    pub about: String,
    /// The arguments; `None` if only the name is known.
    pub args: Option<Vec<ArgSpec>>,
    /// The tool that runs the skill, if each skill is a tool.
    pub tool: Option<String>,
}

impl Skill {
    /// `create` of `tasks.create`.
    pub fn verb(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or_default()
    }

    /// The argument of this name.
    pub fn arg(&self, name: &str) -> Option<&ArgSpec> {
        self.args.as_ref()?.iter().find(|a| a.name == name)
    }

    /// Reads `tasks.create --title TEXT [--due DATE] [--priority low|high] [--recent]`.
    pub fn from_synopsis(line: &str, about: &str) -> Option<Self> {
        let mut tokens = line.split_whitespace().peekable();
        let name = tokens.next().filter(|n| is_name(n))?.to_owned();
        let mut args = Vec::new();
        while let Some(token) = tokens.next() {
            let Some(flag) = token.trim_start_matches('[').strip_prefix("--") else { continue };
            let required = !token.starts_with('[');
            let (flag, closed) = flag.strip_suffix(']').map_or((flag, false), |f| (f, true));
            let value = if closed { None } else { tokens.next_if(|t| !t.trim_start_matches('[').starts_with("--")) };
            let kind = value.map_or(ArgKind::Bool, |v| kind_of(v.trim_end_matches(']')));
            args.push(ArgSpec {
                name: flag.to_owned(),
                kind,
                required,
                help: String::new(),
                minimum: None,
                maximum: None,
                default: Value::Null,
            });
        }
        Some(Self { name, about: about.trim().to_owned(), args: Some(args), tool: None })
    }
}

fn kind_of(placeholder: &str) -> ArgKind {
    match placeholder {
        "DATE" => ArgKind::Date,
        "N" => ArgKind::Number,
        "A,B" => ArgKind::List,
        words if words.contains('|') => ArgKind::Choice(words.split('|').map(str::to_owned).collect()),
        // A choice with a single option is written in lower case, a placeholder in upper case.
        word if word.starts_with(char::is_lowercase) => ArgKind::Choice(vec![word.to_owned()]),
        _ => ArgKind::Text,
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'_'))
}

/// Skills by name, and the domains of which only the name is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Catalog {
    skills: BTreeMap<String, Skill>,
    bare_domains: Vec<String>,
}

impl Catalog {
    /// Whether the catalogue has neither skills nor domains.
    pub fn is_empty(&self) -> bool {
        self.skills.is_empty() && self.bare_domains.is_empty()
    }

    /// The skill of this name.
    pub fn get(&self, name: &str) -> Option<&Skill> {
        self.skills.get(name)
    }

    /// All skills, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Skill> {
        self.skills.values()
    }

    /// Whether the skill exists or may exist: its domain is known, and the skills of the domain are not listed.
    pub fn may_have(&self, name: &str) -> bool {
        self.skills.contains_key(name)
            || name.rsplit_once('.').is_some_and(|(domain, _)| self.bare_domains.iter().any(|d| d == domain))
    }

    /// Adds a skill, or the missing data of a known one.
    pub fn add(&mut self, skill: Skill) {
        match self.skills.get_mut(&skill.name) {
            Some(known) => {
                if known.about.is_empty() {
                    known.about = skill.about;
                }
                known.args = skill.args.or(known.args.take());
            }
            None => drop(self.skills.insert(skill.name.clone(), skill)),
        }
    }

    /// The domains of the command skills as text for people: `memory, notes and tasks`.
    pub fn domains(&self) -> String {
        let named = self.iter().filter_map(|skill| skill.name.rsplit_once('.').map(|(domain, _)| domain));
        let domains: BTreeSet<&str> = named
            .chain(self.bare_domains.iter().map(String::as_str))
            .filter(|d| !matches!(*d, "system" | "prompt"))
            .collect();
        let domains: Vec<&str> = domains.into_iter().collect();
        match domains.as_slice() {
            [many @ .., last] if !many.is_empty() => format!("{} and {last}", many.join(", ")),
            few => few.join(""),
        }
    }

    /// All skills that a request describes in its system prompt and its tools.
    pub fn of(request: &ModelRequest) -> Self {
        let mut catalog = Self::default();
        for part in &request.system {
            if let Some((_, list)) = part.text.split_once("\nAvailable skills:\n") {
                catalog.read_list(list);
            }
            if let Some((_, list)) = part.text.split_once("\nSkills:\n") {
                catalog.read_manual(list);
            }
        }
        for tool in &request.tools {
            match tool.name.as_str() {
                "get_skill" | "dispatch_agent" | "get_agent_results" => {}
                "use_skill" => catalog.read_scoped(&tool.description),
                _ => catalog.add(of_tool(tool)),
            }
        }
        catalog
    }

    /// The orchestrator's list: `- tasks: about`, then `  tasks.create --title TEXT` with `    about` below it, or `
    /// tasks.create: about`, or `  tasks.create, tasks.search`; or only `- tasks (5 skills)`.
    fn read_list(&mut self, list: &str) {
        let mut domain: Option<&str> = None;
        let mut last = String::new();
        for line in list.lines() {
            if let Some(about) = line.strip_prefix("    ") {
                self.name_only(&last, about.trim());
                continue;
            }
            if let Some(rest) = line.strip_prefix("- ") {
                self.bare_domains.extend(domain.take().map(str::to_owned));
                domain = rest.split([':', ' ']).next().filter(|d| is_name(d));
            } else if let Some(rest) = line.strip_prefix("  ") {
                domain = None;
                last = rest.split([' ', ':', ',']).next().unwrap_or_default().to_owned();
                match rest.split_once(": ") {
                    Some((name, about)) if is_name(name) => self.name_only(name, about),
                    _ if rest.contains("--") => self.skills_of(rest),
                    _ => rest
                        .split(", ")
                        .filter_map(|skill| skill.split(' ').next())
                        .filter(|n| is_name(n))
                        .for_each(|n| self.name_only(n, "")),
                }
            }
        }
        self.bare_domains.extend(domain.map(str::to_owned));
    }

    fn skills_of(&mut self, synopsis: &str) {
        if let Some(skill) = Skill::from_synopsis(synopsis, "") {
            self.add(skill);
        }
    }

    fn name_only(&mut self, name: &str, about: &str) {
        self.add(Skill { name: name.to_owned(), about: about.to_owned(), ..Skill::default() });
    }

    /// A sub-agent's manual: synopses, each followed by an indented description.
    fn read_manual(&mut self, list: &str) {
        let mut lines = list.lines().peekable();
        while let Some(line) = lines.next() {
            let about = lines.next_if(|next| next.starts_with("  ")).unwrap_or_default();
            if let Some(skill) = Skill::from_synopsis(line, about) {
                self.add(skill);
            }
        }
    }

    /// The description of a scoped `use_skill`: `Skill:`, `Description:`, `Parameters:` of each skill.
    fn read_scoped(&mut self, description: &str) {
        let mut skill = Skill::default();
        for line in description.lines() {
            if let Some(name) = line.strip_prefix("Skill: ") {
                skill = Skill { name: name.trim().to_owned(), ..Skill::default() };
            } else if let Some(about) = line.strip_prefix("Description: ") {
                skill.about = about.to_owned();
            } else if let Some(schema) = line.strip_prefix("Parameters: ")
                && let Ok(schema) = serde_json::from_str(schema)
            {
                skill.args = Some(args_from_schema(&schema));
                if !skill.name.is_empty() {
                    self.add(std::mem::take(&mut skill));
                }
            }
        }
    }

    /// Adds the skills of an answer of `get_skill`; returns false if the answer is not a list of skills.
    pub fn read_answer(&mut self, answer: &str) -> bool {
        let Ok(json) = serde_json::from_str::<Value>(answer) else { return false };
        let Some(skills) = json["skills"].as_array() else { return false };
        for entry in skills {
            let about = entry["description"].as_str().unwrap_or_default();
            let usage = entry["usage"].as_str().and_then(|line| Skill::from_synopsis(line, about));
            let name = entry["name"].as_str().unwrap_or_default();
            let mut skill =
                usage.unwrap_or_else(|| Skill { name: name.to_owned(), about: about.to_owned(), ..Skill::default() });
            if entry["parameters"].is_object() {
                skill.args = Some(args_from_schema(&entry["parameters"]));
            }
            if is_name(&skill.name) {
                self.add(skill);
            }
        }
        true
    }
}

fn of_tool(tool: &ToolDef) -> Skill {
    Skill {
        name: tool.name.replace("__", "."),
        about: tool.description.clone(),
        args: Some(args_from_schema(&tool.parameters)),
        tool: Some(tool.name.clone()),
    }
}

#[cfg(test)]
mod tests {
    use annie_core::message::SystemPart;
    use serde_json::json;

    use super::*;

    fn request(system: &str, tools: Vec<ToolDef>) -> ModelRequest {
        ModelRequest {
            model: None,
            system: vec![SystemPart { text: system.to_owned(), cache: None }],
            messages: Vec::new(),
            stable_messages: 0,
            tools,
            skill_names: Vec::new(),
            output_tokens_max: 1,
            session_id: String::new(),
            priority: 0,
            options: annie_core::caller::CallOptions::default(),
        }
    }

    #[test]
    fn synopsis_gives_flags_with_kind_and_requirement() {
        let line = "tasks.create --title TEXT [--due DATE] [--priority low|high] [--tags A,B] [--recent] [--limit N]";
        let skill = Skill::from_synopsis(line, "  Create a task.").unwrap();
        assert_eq!((skill.verb(), skill.about.as_str()), ("create", "Create a task."));
        let kinds: Vec<(&str, &ArgKind, bool)> =
            skill.args.as_ref().unwrap().iter().map(|a| (a.name.as_str(), &a.kind, a.required)).collect();
        assert_eq!(
            kinds,
            [
                ("title", &ArgKind::Text, true),
                ("due", &ArgKind::Date, false),
                ("priority", &ArgKind::Choice(vec!["low".into(), "high".into()]), false),
                ("tags", &ArgKind::List, false),
                ("recent", &ArgKind::Bool, false),
                ("limit", &ArgKind::Number, false),
            ]
        );
        assert_eq!(Skill::from_synopsis("Not a skill --x TEXT", ""), None);
    }

    #[test]
    fn catalog_reads_three_formats_of_the_skill_list() {
        for list in [
            "- tasks: To-dos.\n  tasks.create: Create a task.\n  tasks.search: Find tasks.\n",
            "- tasks: To-dos.\n  tasks.create, tasks.search\n",
        ] {
            let catalog = Catalog::of(&request(&format!("Rules.\n\nAvailable skills:\n{list}"), Vec::new()));
            assert!(catalog.get("tasks.create").is_some() && catalog.may_have("tasks.search"));
            assert!(!catalog.may_have("tasks.update"));
            assert_eq!(catalog.domains(), "tasks");
        }
        let bare = Catalog::of(&request("x\nAvailable skills:\n- memory (2 skills)\n- tasks (5 skills)\n", Vec::new()));
        assert!(bare.may_have("tasks.update") && !bare.may_have("notes.read"));
        assert_eq!(bare.domains(), "memory and tasks");
    }

    #[test]
    fn catalog_reads_the_same_skill_from_manual_scoped_tool_and_direct_tools() {
        let manual = "Rules\n\nSkills:\nnotes.create --content TEXT --title TEXT [--tags A,B]\n  Write a note.\n";
        let schema = json!({"type": "object", "properties": {"title": {"type": "string"}, "content": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["title", "content"]});
        let tool = |name: &str, description: String, parameters| ToolDef {
            name: name.into(),
            description,
            parameters,
            strict: false,
        };
        let scoped = format!("Run a skill.\n\nSkill: notes.create\nDescription: Write a note.\nParameters: {schema}\n");
        for request in [
            request(manual, Vec::new()),
            request("", vec![tool("use_skill", scoped, json!({}))]),
            request("", vec![tool("notes__create", "Write a note.".into(), schema.clone())]),
        ] {
            let catalog = Catalog::of(&request);
            let skill = catalog.get("notes.create").unwrap();
            assert_eq!(skill.about, "Write a note.");
            assert!(skill.arg("title").unwrap().required && !skill.arg("tags").unwrap().required);
        }
    }

    #[test]
    fn catalog_adds_missing_data_from_get_skill_answer() {
        let mut catalog = Catalog::of(&request("x\nAvailable skills:\n- t: d\n  t.x\n", Vec::new()));
        let answer = json!({"skills": [{"name": "t.x", "description": "Does x.", "usage": "t.x --a TEXT"}]});
        assert!(catalog.read_answer(&answer.to_string()));
        assert!(catalog.get("t.x").unwrap().arg("a").unwrap().required);
        assert!(!catalog.read_answer("Error: There is no domain"));
    }
}
