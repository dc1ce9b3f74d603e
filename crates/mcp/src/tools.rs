//! The tools of a server as skills: names, effects, and the definitions that are approved.

use std::{collections::BTreeMap, sync::Arc};

use annie_core::skill::{Effect, SkillFormat, SkillSpec};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    McpConfig, McpToolView, ToolState,
    names::{DOMAIN, hex, skill_names},
    reads::Method,
    schema::Arguments,
    text::{lines, one_line},
};

/// The most skills of a server: more would fill every prompt.
const SKILLS_MAX: usize = 128;
/// The most definitions that are remembered since the start. A server that always invents new names gets no further.
const PINS_MAX: usize = 2_048;
/// Length limit of a description in lists of skills, in bytes.
const ABOUT_BYTES_MAX: usize = 300;
/// Length limit of a description in a skill's help, in bytes.
const BODY_BYTES_MAX: usize = 4_000;
/// Length limit of a tool's name, in bytes.
const NAME_BYTES_MAX: usize = 200;
/// Added to the time limit of a request, so that the run reports a late answer itself.
const SPARE_MS: u64 = 2_000;
/// The fields of a tool that models or Annie read, and whose hash is approved.
const DEFINITION: [&str; 5] = ["name", "title", "description", "inputSchema", "annotations"];

/// A tool that is a skill.
pub(crate) struct Tool {
    /// The server's name of the tool.
    pub(crate) name: String,
    pub(crate) spec: SkillSpec,
    pub(crate) arguments: Arguments,
    /// What a call of the skill requests.
    pub(crate) method: Method,
}

/// The tools of a server, checked.
#[derive(Default)]
pub(crate) struct Toolbox {
    /// By the names of their skills.
    pub(crate) tools: BTreeMap<String, Arc<Tool>>,
    pub(crate) views: Vec<McpToolView>,
}

/// The hash of a tool's definition.
pub(crate) fn hash_of(tool: &Value) -> String {
    let mut text = String::new();
    for field in DEFINITION {
        canonical(&tool[field], &mut text);
        text.push('\n');
    }
    hex(&Sha256::digest(text.as_bytes()))
}

/// JSON with the members of objects in the order of their names. The depth is limited by the parser.
fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Array(items) => {
            text.push('[');
            for item in items {
                canonical(item, text);
                text.push(',');
            }
            text.push(']');
        }
        Value::Object(fields) => {
            let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
            text.push('{');
            for (name, item) in sorted {
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                canonical(item, text);
                text.push(',');
            }
            text.push('}');
        }
        plain => text.push_str(&plain.to_string()),
    }
}

impl Toolbox {
    /// Checks the tools that a server lists. `pins` are the hashes of the definitions seen first since the start, by the
    /// server's name of the tool; those of new tools are added.
    pub(crate) fn of(config: &McpConfig, listed: &[Value], pins: &mut BTreeMap<String, String>) -> Self {
        let names: Vec<&str> = listed.iter().map(|tool| tool["name"].as_str().unwrap_or_default()).collect();
        let skills = skill_names(&config.name, &names);
        let mut toolbox = Self::default();
        for ((tool, name), skill) in listed.iter().zip(&names).zip(skills) {
            let hash = hash_of(tool);
            let effect = effect_of(config, name, tool);
            let found = toolbox.to_skill(config, tool, name, &skill, effect);
            let approved = found.and_then(|tool| match approve(config, name, &hash, pins) {
                Ok(()) => Ok(tool),
                Err(why) => Err((ToolState::Withheld, why)),
            });
            toolbox.add(name, skill, effect, hash, approved);
        }
        toolbox
    }

    /// Adds the methods that read what the server has beside tools. A tool of the server keeps its name.
    pub(crate) fn with_reads(mut self, config: &McpConfig, methods: &[Method]) -> Self {
        for method in methods {
            let tool = method.definition();
            let name = tool["name"].as_str().unwrap_or_default();
            let skill = format!("{DOMAIN}.{}.{name}", config.name);
            let found = self.to_skill(config, &tool, name, &skill, Effect::Read);
            let found = found.map(|found| Tool { method: *method, ..found });
            self.add(method.wire(), skill, Effect::Read, hash_of(&tool), found);
        }
        self
    }

    fn add(
        &mut self,
        name: &str,
        skill: String,
        effect: Effect,
        hash: String,
        found: Result<Tool, (ToolState, String)>,
    ) {
        let (state, reason) = match found {
            Ok(tool) => {
                self.tools.insert(skill.clone(), Arc::new(tool));
                (ToolState::Listed, String::new())
            }
            Err(refused) => refused,
        };
        let tool = one_line(name, NAME_BYTES_MAX);
        self.views.push(McpToolView { tool, skill, state, reason, effect: effect.as_str(), hash });
    }

    /// The tool as a skill, or why it is none.
    fn to_skill(
        &self,
        config: &McpConfig,
        tool: &Value,
        name: &str,
        skill: &str,
        effect: Effect,
    ) -> Result<Tool, (ToolState, String)> {
        let left_out = |why: String| (ToolState::LeftOut, why);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(left_out(format!(
                "its name does not have 1 to {NAME_BYTES_MAX} bytes without control characters"
            )));
        }
        if self.tools.contains_key(skill) {
            return Err(left_out("another tool of the server has the same name".to_owned()));
        }
        if self.tools.len() >= SKILLS_MAX {
            return Err(left_out(format!("the server has more than {SKILLS_MAX} tools")));
        }
        let arguments = Arguments::read(&tool["inputSchema"]).map_err(left_out)?;
        let about =
            tool["description"].as_str().or_else(|| tool["title"].as_str()).unwrap_or("A tool without a description.");
        let spec = SkillSpec {
            name: skill.to_owned(),
            domain: DOMAIN.to_owned(),
            description: one_line(about, ABOUT_BYTES_MAX),
            body: help_of(config, name, about),
            args: arguments.specs.clone(),
            effect,
            external: config.external,
            timeout_ms: config.timeout_ms.saturating_add(SPARE_MS),
            alternatives: Vec::new(),
            fallback: std::collections::BTreeMap::new(),
            is_ready: false,
            format: SkillFormat::Command,
            source: format!("MCP server {}", config.name),
        };
        Ok(Tool { name: name.to_owned(), spec, arguments, method: Method::CallTool })
    }
}

/// Compares a definition with the approved one: that of the configuration, or else the first one since the start.
fn approve(config: &McpConfig, name: &str, hash: &str, pins: &mut BTreeMap<String, String>) -> Result<(), String> {
    if let Some(approved) = config.pins.get(name) {
        return if approved == hash {
            Ok(())
        } else {
            Err("its definition is not the one that the configuration approves by its pin".to_owned())
        };
    }
    if pins.len() >= PINS_MAX && !pins.contains_key(name) {
        return Err(format!("the server has named more than {PINS_MAX} tools since the start"));
    }
    let first = pins.entry(name.to_owned()).or_insert_with(|| hash.to_owned());
    if first == hash {
        return Ok(());
    }
    Err("its definition has changed since the start; read it, then set its hash as a pin or restart Annie".to_owned())
}

/// The effect of a tool. What a server says is a hint only.
fn effect_of(config: &McpConfig, name: &str, tool: &Value) -> Effect {
    let says_read = tool["annotations"]["readOnlyHint"] == Value::Bool(true);
    match config.effects.get(name) {
        Some(effect) => *effect,
        None if config.trust_annotations && says_read => Effect::Read,
        None => Effect::Once,
    }
}

fn help_of(config: &McpConfig, name: &str, about: &str) -> String {
    let marked: Vec<String> =
        lines(about, BODY_BYTES_MAX).lines().map(|line| format!("> {}", one_line(line, BODY_BYTES_MAX))).collect();
    let name = one_line(name, NAME_BYTES_MAX);
    format!("The tool `{name}` of the MCP server `{}`, which describes it so:\n{}", config.name, marked.join("\n"))
}

#[cfg(test)]
mod tests;
