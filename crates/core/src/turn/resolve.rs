//! What a model's reply means: every tool call or command is checked against the skills as they are now, once, and the
//! result is recorded with the reply. Whatever a model gets wrong becomes an answer that it can correct.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::run::{AgentRun, RunKind};
use crate::{
    command::{self, Resolution},
    context::skill_name_of_tool,
    event::{Action, DispatchSpec, Mode, PlannedSkill, ResolvedCall, SkillManual},
    ids::{AgentId, IntentId, TaskId},
    limits::{SubAgentInterface, TurnLimits},
    message::{ModelReply, ToolCall},
    skill::{SkillSet, SkillSpec},
};

/// Calls that one reply may hold; what is beyond gets an error.
const CALLS_MAX: usize = 32;

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
    if run.kind.is_cmd() {
        let mut calls = resolver.commands(&reply.text);
        calls.extend(reply.tool_calls.iter().enumerate().map(|(n, call)| ResolvedCall {
            id: format!("cmd_{}_t{n}", run.round),
            name: call.name.clone(),
            raw: call.arguments.clone(),
            action: error("You have no tools. Run skills by writing commands in ```cmd blocks."),
        }));
        return calls;
    }
    let mut ids = BTreeSet::new();
    let mut calls = Vec::with_capacity(reply.tool_calls.len());
    for (n, call) in reply.tool_calls.iter().enumerate() {
        let mut id = if call.id.is_empty() { format!("call_{n}") } else { call.id.clone() };
        while !ids.insert(id.clone()) {
            id.push_str(&format!("_{n}"));
        }
        let action = if n < CALLS_MAX {
            resolver.tool(call, &id)
        } else {
            error(&format!("Too many calls in one reply: at most {CALLS_MAX}."))
        };
        calls.push(ResolvedCall { id, name: call.name.clone(), raw: call.arguments.clone(), action });
    }
    calls
}

struct Resolver<'a> {
    task: TaskId,
    run: &'a AgentRun,
    granted: Option<&'a [String]>,
    skills: &'a SkillSet,
    limits: &'a TurnLimits,
}

fn error(text: &str) -> Action {
    Action::Answer { text: format!("Error: {text}"), is_error: true }
}

fn answer(text: String) -> Action {
    Action::Answer { text, is_error: false }
}

impl Resolver<'_> {
    fn commands(&self, text: &str) -> Vec<ResolvedCall> {
        let round = self.run.round;
        command::extract(text)
            .into_iter()
            .enumerate()
            .map(|(n, line)| {
                let id = format!("cmd_{round}_{n}");
                let (raw, action) = match line {
                    Ok(line) => {
                        let action = match command::resolve(&line, self.skills, self.granted) {
                            Resolution::Run { skill, arguments } => self.planned(&skill, arguments, &id),
                            Resolution::Help(text) => answer(text),
                            Resolution::Error(text) => error(&text),
                        };
                        (line, action)
                    }
                    Err(e) => (String::new(), error(&e.to_string())),
                };
                let name = raw.split_whitespace().next().unwrap_or("command").to_owned();
                ResolvedCall { id, name, raw, action }
            })
            .collect()
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
            (RunKind::Main(Mode::Direct), tool) => self.skill(&skill_name_of_tool(tool), arguments, id),
            (_, tool) => error(&format!("There is no tool {tool:?}. Your tools are {}.", self.tool_names())),
        }
    }

    const fn tool_names(&self) -> &'static str {
        match self.run.kind {
            RunKind::Main(Mode::MultiAgent) => "dispatch_agent, get_agent_results and get_skill",
            RunKind::Main(Mode::SingleLoop) => "get_skill and use_skill",
            RunKind::Main(Mode::Direct) => "those listed",
            RunKind::Sub(_) => "use_skill",
        }
    }

    fn skill(&self, name: &str, arguments: Value, id: &str) -> Action {
        if let Some(granted) = self.granted
            && !granted.iter().any(|g| g == name)
        {
            return error(&format!("Skill {name:?} is not available to this agent; yours are {}.", granted.join(", ")));
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
        let near = self.skills.near(name);
        let hint = if near.is_empty() { String::new() } else { format!(" Did you mean {}?", near.join(" or ")) };
        format!("Unknown skill {name:?}.{hint} Call get_skill to discover the available skills.")
    }

    fn get_skill(&self, arguments: &Value) -> Action {
        let full = self.run.kind == RunKind::Main(Mode::SingleLoop);
        let found = if let Some(domain) = arguments["domain"].as_str().filter(|d| !d.is_empty()) {
            let found = self.skills.in_domain(domain);
            if found.is_empty() {
                let domains: Vec<String> = self.skills.domains().into_iter().map(|d| d.name).collect();
                return error(&format!("There is no domain {domain:?}. The domains are {}.", domains.join(", ")));
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
        let agent = match AgentId::sub(agent) {
            Ok(agent) => agent,
            Err(_) => return error("agent_id must be 1 to 64 letters, digits, _ or - and not \"orchestrator\"."),
        };
        let mission = arguments["mission"].as_str().unwrap_or_default().trim();
        if mission.is_empty() {
            return error("dispatch_agent needs a mission: what the agent is to accomplish.");
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
                Err(_) => return error(&format!("depends_on names {name:?}, which cannot be an agent's name.")),
            }
        }
        let asked = arguments["max_tool_calls"]
            .as_u64()
            .map_or(self.limits.agent_calls_default, |n| u32::try_from(n).unwrap_or(u32::MAX));
        Action::Dispatch(DispatchSpec {
            agent,
            mission: mission.to_owned(),
            skills,
            context: arguments["context"].as_str().unwrap_or_default().trim().to_owned(),
            depends_on,
            max_tool_calls: asked.clamp(1, self.limits.agent_calls_max),
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
            Err(_) => return error(&format!("agent_ids names {name:?}, which cannot be an agent's name.")),
        }
    }
    Action::Collect { agents }
}

/// A list of texts; models also send one text, or several with commas.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Value::String(text) => text.split(',').map(str::trim).filter(|t| !t.is_empty()).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// The arguments as an object. Empty means none (interfaces 1.2).
fn arguments_of(call: &ToolCall) -> Result<Value, String> {
    let text = call.arguments.trim();
    if text.is_empty() {
        return Ok(json!({}));
    }
    match serde_json::from_str::<Value>(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(Value::Null) => Ok(json!({})),
        Ok(_) => Err(format!("the arguments of {} must be a JSON object.", call.name)),
        Err(e) => Err(format!("the arguments of {} are not valid JSON ({e}). Send the call again.", call.name)),
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
