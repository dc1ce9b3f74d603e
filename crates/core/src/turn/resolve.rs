//! What a model's reply means: every tool call or command is checked against the skills as they are now, once, and the
//! result is recorded with the reply. Whatever a model gets wrong becomes an answer that it can correct.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::run::{AgentRun, RunKind};
use crate::{
    command::{self, Resolution},
    context::direct_tool_name,
    event::{Action, DispatchSpec, Mode, PlannedSkill, ResolvedCall, SkillManual},
    ids::{AgentId, IntentId, TaskId},
    limits::{SubAgentInterface, TurnLimits},
    message::{Finish, ModelReply, ToolCall},
    skill::{SkillSet, SkillSpec},
};

/// Calls that one reply may hold; what is beyond is left out, and the model is told.
const CALLS_MAX: usize = 32;
/// The longest mission that an agent may be given, in bytes.
const MISSION_BYTES_MAX: usize = 8 * 1024;
/// The longest context beside it, in bytes.
const CONTEXT_BYTES_MAX: usize = 16 * 1024;
/// How much of a name that a model made up is repeated to it, in characters.
const NAME_CHARS_MAX: usize = 80;

/// The calls of a reply, understood. `granted` names the skills of a sub-agent, `None` means all.
#[must_use]
pub fn resolve(
    reply: &ModelReply,
    task: TaskId,
    run: &AgentRun,
    granted: Option<&[String]>,
    skills: &SkillSet,
    limits: &TurnLimits,
) -> Vec<ResolvedCall> {
    let resolver = Resolver { task, run, granted, skills, limits };
    if run.kind.is_cmd() { resolver.commands(reply) } else { resolver.tools(&reply.tool_calls) }
}

struct Resolver<'a> {
    task: TaskId,
    run: &'a AgentRun,
    granted: Option<&'a [String]>,
    skills: &'a SkillSet,
    limits: &'a TurnLimits,
}

fn error(text: &str) -> Action {
    Action::Answer { text: format!("Error: {text}"), is_error: true, is_unknown: false }
}

fn no_such_thing(text: &str) -> Action {
    Action::Answer { text: format!("Error: {text}"), is_error: true, is_unknown: true }
}

fn answer(text: String) -> Action {
    Action::Answer { text, is_error: false, is_unknown: false }
}

impl Resolver<'_> {
    fn tools(&self, called: &[ToolCall]) -> Vec<ResolvedCall> {
        let mut ids = BTreeSet::new();
        let mut calls = Vec::with_capacity(called.len().min(CALLS_MAX + 1));
        for (n, call) in called.iter().enumerate().take(CALLS_MAX + 1) {
            // Unique in the reply, and if the kernel makes it up, in the turn.
            let mut id = if call.id.is_empty() { format!("call_{}_{n}", self.run.round) } else { call.id.clone() };
            while !ids.insert(id.clone()) {
                id.push_str(&format!("_{n}"));
            }
            let action = if n < CALLS_MAX {
                self.tool(call, &id)
            } else {
                error(&format!(
                    "too many calls in one reply: {CALLS_MAX} were taken, this and what came behind it ({} in all) were not run.",
                    called.len() - CALLS_MAX
                ))
            };
            calls.push(ResolvedCall { id, name: call.name.clone(), raw: call.arguments.clone(), action });
        }
        calls
    }

    fn commands(&self, reply: &ModelReply) -> Vec<ResolvedCall> {
        let round = self.run.round;
        let mut calls: Vec<ResolvedCall> = command::extract(&reply.text)
            .into_iter()
            .enumerate()
            .map(|(n, line)| {
                let id = format!("cmd_{round}_{n}");
                let (raw, action) = match line {
                    Ok(line) => {
                        let action = self.command(&line, &id);
                        (line, action)
                    }
                    Err(e) => (String::new(), error(&e.to_string())),
                };
                let name = raw.split_whitespace().next().unwrap_or("command");
                ResolvedCall { id, name: name.chars().take(NAME_CHARS_MAX).collect(), raw, action }
            })
            .collect();
        if let Some(last) = calls.last_mut()
            && reply.finish == Finish::Length
            && ends_in(&reply.text, &last.raw)
        {
            last.action = error("your reply was cut off in this command, so it was not run. Send it again.");
        }
        calls.extend(reply.tool_calls.first().map(|call| ResolvedCall {
            id: format!("cmd_{round}_tool"),
            name: call.name.clone(),
            raw: call.arguments.clone(),
            action: no_such_thing("you have no tools. Run skills by writing commands in ```cmd blocks."),
        }));
        calls
    }

    fn command(&self, line: &str, id: &str) -> Action {
        match command::resolve(line, self.skills, self.granted) {
            Resolution::Run { skill, arguments } => self.planned(&skill, arguments, id),
            Resolution::Help(text) => answer(text),
            Resolution::Error(text) if self.is_known(line) => error(&text),
            Resolution::Error(text) => no_such_thing(&text),
        }
    }

    /// Whether the first word of a command is a skill or a domain.
    fn is_known(&self, line: &str) -> bool {
        let word = line.split_whitespace().next().unwrap_or_default().trim_start_matches('/').to_lowercase();
        self.skills.iter().any(|s| s.name == word || s.domain == word)
    }

    fn planned(&self, skill: &SkillSpec, arguments: Value, call_id: &str) -> Action {
        let key = format!("{}/{call_id}", self.run.round);
        Action::Skill(PlannedSkill {
            intent: IntentId::for_call(self.task, &self.run.agent, &key),
            skill: skill.name.clone(),
            arguments,
            effect: skill.effect,
            external: skill.external,
            timeout_ms: skill.timeout_ms,
        })
    }

    fn tool(&self, call: &ToolCall, id: &str) -> Action {
        let arguments = match arguments_of(call) {
            Ok(arguments) => arguments,
            Err(why) => return error(&why),
        };
        match (self.run.kind, call.name.as_str()) {
            (RunKind::Main(Mode::MultiAgent | Mode::SingleLoop), "get_skill") => self.get_skill(&arguments),
            (RunKind::Main(Mode::MultiAgent), "dispatch_agent") => self.dispatch(&arguments),
            (RunKind::Main(Mode::MultiAgent), "get_agent_results") => collect(&arguments),
            (RunKind::Main(Mode::SingleLoop) | RunKind::Sub(SubAgentInterface::Json), "use_skill") => {
                match arguments["skill"].as_str() {
                    Some(name) => {
                        let inner = arguments.get("arguments").cloned().unwrap_or_else(|| json!({}));
                        let inner = match inner {
                            Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
                            other => other,
                        };
                        self.skill(name, inner, id)
                    }
                    None => error("use_skill needs \"skill\": the name of the skill to run."),
                }
            }
            (RunKind::Main(Mode::Direct), tool) => {
                match self.skills.for_model().find(|s| direct_tool_name(&s.name) == tool) {
                    Some(skill) => self.skill(&skill.name, arguments, id),
                    None => self.no_tool(tool),
                }
            }
            (_, tool) => self.no_tool(tool),
        }
    }

    fn no_tool(&self, tool: &str) -> Action {
        let yours = match self.run.kind {
            RunKind::Main(Mode::MultiAgent) => "dispatch_agent, get_agent_results and get_skill",
            RunKind::Main(Mode::SingleLoop) => "get_skill and use_skill",
            RunKind::Main(Mode::Direct) => "those listed",
            RunKind::Sub(_) => "use_skill",
        };
        no_such_thing(&format!("there is no tool {:?}. Your tools are {yours}.", shown(tool)))
    }

    fn skill(&self, name: &str, arguments: Value, id: &str) -> Action {
        if let Some(granted) = self.granted
            && !granted.iter().any(|g| g == name)
        {
            return error(&format!(
                "skill {:?} is not available to this agent; yours are {}.",
                shown(name),
                granted.join(", ")
            ));
        }
        let Some(skill) = self.skills.get(name).filter(|s| s.is_model_invocable()) else {
            return error(&self.unknown(name));
        };
        match skill.check_arguments(&arguments) {
            Ok(()) => self.planned(skill, arguments, id),
            Err(e) => error(&format!("invalid arguments for {name}: {e}")),
        }
    }

    fn unknown(&self, name: &str) -> String {
        let name = shown(name);
        let near = self.skills.near(&name);
        let mut text = format!("unknown skill {name:?}.");
        if !near.is_empty() {
            text.push_str(&format!(" Did you mean {}?", near.join(" or ")));
        }
        if matches!(self.run.kind, RunKind::Main(Mode::MultiAgent | Mode::SingleLoop)) {
            text.push_str(" Call get_skill to discover the available skills.");
        }
        text
    }

    fn get_skill(&self, arguments: &Value) -> Action {
        let full = self.run.kind == RunKind::Main(Mode::SingleLoop);
        let domain = arguments["domain"].as_str().map(|d| d.trim().to_lowercase()).filter(|d| !d.is_empty());
        let found = if let Some(domain) = domain {
            let found = self.skills.in_domain(&domain);
            if found.is_empty() {
                let domains: Vec<String> = self.skills.domains().into_iter().map(|d| d.name).collect();
                let domain = shown(&domain);
                return error(&format!("there is no domain {domain:?}. The domains are {}.", domains.join(", ")));
            }
            found
        } else if let Some(words) = arguments["search"].as_str().filter(|s| !s.trim().is_empty()) {
            self.skills.search(words).into_iter().take(10).collect()
        } else {
            return answer(summary(self.skills));
        };
        let skills: Vec<Value> = found
            .iter()
            .map(|s| {
                let mut entry = Map::new();
                entry.insert("name".into(), s.name.clone().into());
                entry.insert("description".into(), s.description.clone().into());
                entry.insert("usage".into(), s.synopsis().into());
                if full {
                    entry.insert("parameters".into(), s.schema());
                }
                Value::Object(entry)
            })
            .collect();
        answer(json!({"skills": skills}).to_string())
    }

    fn dispatch(&self, arguments: &Value) -> Action {
        let Some(agent) = arguments["agent_id"].as_str() else {
            return error("dispatch_agent needs agent_id: a name for the agent, unique in this turn.");
        };
        let Ok(agent) = AgentId::sub(agent.trim()) else {
            return error("agent_id must be 1 to 64 letters, digits, _ or - and not \"orchestrator\".");
        };
        let mission = arguments["mission"].as_str().unwrap_or_default().trim();
        if mission.is_empty() {
            return error("dispatch_agent needs a mission: what the agent is to accomplish.");
        }
        let context = arguments["context"].as_str().unwrap_or_default().trim();
        for (what, text, bytes_max) in
            [("mission", mission, MISSION_BYTES_MAX), ("context", context, CONTEXT_BYTES_MAX)]
        {
            if text.len() > bytes_max {
                return error(&format!("the {what} has {} bytes and at most {bytes_max} are allowed.", text.len()));
            }
        }
        let mut skills = texts(&arguments["skills"]);
        skills.sort();
        skills.dedup();
        if skills.is_empty() {
            return error("dispatch_agent needs skills: the names of the skills that the agent may use.");
        }
        let mut manual = Vec::with_capacity(skills.len());
        for name in &skills {
            let Some(skill) = self.skills.get(name).filter(|s| s.is_model_invocable()) else {
                return error(&self.unknown(name));
            };
            manual.push(manual_of(skill, self.limits.interface == SubAgentInterface::Json));
        }
        let mut depends_on = Vec::new();
        for name in texts(&arguments["depends_on"]) {
            match AgentId::sub(&name) {
                Ok(agent) if !depends_on.contains(&agent) => depends_on.push(agent),
                Ok(_) => {}
                Err(_) => {
                    return error(&format!("depends_on names {:?}, which cannot be an agent's name.", shown(&name)));
                }
            }
        }
        let asked = whole(&arguments["max_tool_calls"]).unwrap_or(self.limits.agent_calls_default);
        Action::Dispatch(DispatchSpec {
            agent,
            mission: mission.to_owned(),
            skills,
            context: context.to_owned(),
            depends_on,
            max_tool_calls: asked.min(self.limits.agent_calls_max).max(1),
            manual,
        })
    }
}

/// What a prompt says of one skill; the schema only where it is shown.
#[must_use]
pub fn manual_of(skill: &SkillSpec, with_schema: bool) -> SkillManual {
    SkillManual {
        name: skill.name.clone(),
        description: skill.description.clone(),
        synopsis: skill.synopsis(),
        schema: if with_schema { skill.schema().to_string() } else { String::new() },
    }
}

fn collect(arguments: &Value) -> Action {
    let mut agents = Vec::new();
    for name in texts(&arguments["agent_ids"]) {
        match AgentId::sub(&name) {
            Ok(agent) => agents.push(agent),
            Err(_) => return error(&format!("agent_ids names {:?}, which cannot be an agent's name.", shown(&name))),
        }
    }
    Action::Collect { agents }
}

/// A list of texts; models also send one text, or several with commas.
fn texts(value: &Value) -> Vec<String> {
    let trimmed = |text: &str| Some(text.trim().to_owned()).filter(|t| !t.is_empty());
    match value {
        Value::Array(items) => items.iter().filter_map(Value::as_str).filter_map(trimmed).collect(),
        Value::String(text) => text.split(',').filter_map(trimmed).collect(),
        _ => Vec::new(),
    }
}

/// A whole number; models also send `"7"` and `7.0`.
fn whole(value: &Value) -> Option<u32> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates at both ends")]
    (number >= 0.0).then_some(number as u32)
}

/// A name that a model made up, as it is repeated to it.
fn shown(name: &str) -> String {
    name.chars().take(NAME_CHARS_MAX).collect()
}

/// Whether a reply ends with this command, and not with the end of its block.
fn ends_in(reply: &str, command: &str) -> bool {
    let last = |text: &str| text.trim_end().lines().next_back().map(|line| line.trim().to_owned());
    last(command).is_some_and(|line| Some(line) == last(reply))
}

/// The arguments as an object. Empty means none (interfaces 1.2).
fn arguments_of(call: &ToolCall) -> Result<Value, String> {
    let (text, name) = (call.arguments.trim(), shown(&call.name));
    if text.is_empty() {
        return Ok(json!({}));
    }
    match serde_json::from_str::<Value>(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(Value::Null) => Ok(json!({})),
        Ok(_) => Err(format!("the arguments of {name} must be a JSON object.")),
        Err(e) => Err(format!("the arguments of {name} are not valid JSON ({e}). Send the call again.")),
    }
}

/// The domain summary that an unfiltered `get_skill` gives (S0 3.1).
fn summary(skills: &SkillSet) -> String {
    let mut text = "Available domains:\n".to_owned();
    for domain in skills.domains() {
        text.push_str(&format!("- {} ({} skills): {}\n", domain.name, domain.skills.len(), domain.description));
    }
    text.push_str("\nCall get_skill with a domain to see its skills and their usage.");
    text
}
