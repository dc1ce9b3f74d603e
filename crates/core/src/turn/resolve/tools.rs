//! The orchestrator's own tools: `get_skill`, `dispatch_agent` and `get_agent_results`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{ONLY_THANKS, Resolver, RunKind, answer, changes, error, manual_of, no_such_thing, shown};
use crate::{
    event::{Action, DispatchSpec, Mode},
    ids::AgentId,
    limits::SubAgentInterface,
    skill::SkillSet,
};

/// The longest mission of an agent, in bytes.
const MISSION_BYTES_MAX: usize = 8 * 1024;
/// The longest context of a mission, in bytes.
const CONTEXT_BYTES_MAX: usize = 16 * 1024;

impl Resolver<'_> {
    pub(super) fn get_skill(&self, arguments: &Value) -> Action {
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

    pub(super) fn dispatch(&self, arguments: &Value) -> Action {
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
        let named = texts(&arguments["skills"]);
        if named.is_empty() {
            return error("dispatch_agent needs skills: the names of the skills that the agent may use.");
        }
        let mut granted = BTreeMap::new();
        for name in &named {
            let Some(skill) = self.skills.named_like(name) else {
                return no_such_thing(&self.unknown(name));
            };
            if changes(skill.effect) && self.run.only_thanks {
                return error(ONLY_THANKS);
            }
            let manual = manual_of(skill, self.limits.interface == SubAgentInterface::Json);
            granted.insert(skill.name.clone(), manual);
        }
        let (skills, manual) = granted.into_iter().unzip();
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
        let options = match self.options(arguments) {
            Ok(options) => options,
            Err(why) => return error(&why),
        };
        let asked = whole(&arguments["max_tool_calls"]).unwrap_or(self.limits.agent_calls_default);
        Action::Dispatch(DispatchSpec {
            agent,
            mission: mission.to_owned(),
            skills,
            context: context.to_owned(),
            depends_on,
            max_tool_calls: asked.min(self.limits.agent_calls_max).max(1),
            manual,
            options,
        })
    }
}

pub(super) fn collect(arguments: &Value) -> Action {
    let mut agents = Vec::new();
    for name in texts(&arguments["agent_ids"]) {
        match AgentId::sub(&name) {
            Ok(agent) => agents.push(agent),
            Err(_) => return error(&format!("agent_ids names {:?}, which cannot be an agent's name.", shown(&name))),
        }
    }
    Action::Collect { agents }
}

/// Steers or stops an agent. Whether there is such an agent is known when the reply is folded.
pub(super) fn control(tool: &str, arguments: &Value) -> Action {
    let agent = arguments["agent_id"].as_str().unwrap_or_default().trim();
    let Ok(agent) = AgentId::sub(agent) else {
        return error(&format!("{tool} needs agent_id: the name of an agent that was dispatched in this turn."));
    };
    match (tool, arguments["text"].as_str().map(str::trim).filter(|text| !text.is_empty())) {
        ("stop_agent", _) => Action::ControlAgent { agent, text: None },
        (_, Some(text)) => Action::ControlAgent { agent, text: Some(text.to_owned()) },
        (_, None) => error("steer_agent needs text: what the agent is to know or to do differently."),
    }
}

/// A list of strings. Models also send a single string, or several separated by commas.
fn texts(value: &Value) -> Vec<String> {
    let trimmed = |text: &str| Some(text.trim().to_owned()).filter(|t| !t.is_empty());
    match value {
        Value::Array(items) => items.iter().filter_map(Value::as_str).filter_map(trimmed).collect(),
        Value::String(text) => text.split(',').filter_map(trimmed).collect(),
        _ => Vec::new(),
    }
}

/// A whole number. Models also send `"7"` and `7.0`.
pub(super) fn whole(value: &Value) -> Option<u32> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates at both ends")]
    (number >= 0.0).then_some(number as u32)
}

/// The domain summary that an unfiltered `get_skill` returns [S0 3.1].
fn summary(skills: &SkillSet) -> String {
    let mut text = "Available domains:\n".to_owned();
    for domain in skills.domains() {
        text.push_str(&format!("- {} ({} skills): {}\n", domain.name, domain.skills.len(), domain.description));
    }
    text.push_str("\nCall get_skill with a domain to see its skills and their usage.");
    text
}
