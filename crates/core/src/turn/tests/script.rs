//! Replies of the scripted model, and the skills that it may request.

use serde_json::{Value, json};

use crate::{
    ids::AgentId,
    message::{Finish, ModelReply, ToolCall, Usage},
    skill::{ArgKind, ArgSpec, Effect, SkillFormat, SkillSet, SkillSpec},
};

pub const USAGE: Usage = Usage {
    input_tokens: 100,
    output_tokens: 10,
    cached_tokens: 50,
    cache_written_tokens: 5,
    reasoning_tokens: 1,
    cost_usd: 0.1,
};

pub fn skill(name: &str, effect: Effect, args: &[(&str, bool)]) -> SkillSpec {
    SkillSpec {
        name: name.to_owned(),
        domain: name.split('.').next().unwrap_or_default().to_owned(),
        description: format!("Does {name}."),
        body: format!("More about {name}."),
        args: args
            .iter()
            .map(|(name, required)| ArgSpec {
                name: (*name).to_owned(),
                kind: ArgKind::Text,
                required: *required,
                help: format!("The {name}."),
                minimum: None,
                maximum: None,
                default: Value::Null,
            })
            .collect(),
        effect,
        external: effect == Effect::Once,
        timeout_ms: 30_000,
        alternatives: Vec::new(),
        fallback: std::collections::BTreeMap::new(),
        is_ready: false,
        format: SkillFormat::Command,
        source: "bundled".to_owned(),
    }
}

pub fn skills() -> SkillSet {
    let all = [
        skill("tasks.create", Effect::Idempotent, &[("title", true), ("due", false)]),
        skill("tasks.search", Effect::Read, &[("query", false)]),
        skill("email.send", Effect::Once, &[("to", true), ("body", true)]),
        skill("mcp.files.read__all", Effect::Read, &[]),
    ];
    let domains = [("tasks", "To-do list"), ("email", "Mail"), ("mcp", "Other servers")];
    SkillSet::new(all, domains.map(|(name, about)| (name.to_owned(), about.to_owned())), 1)
}

pub fn agent(name: &str) -> AgentId {
    AgentId::sub(name).unwrap()
}

pub fn tool(id: &str, name: &str, arguments: &Value) -> ToolCall {
    ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_string() }
}

/// A `dispatch_agent` with this name, for an agent that only reads.
pub fn dispatch(name: &str, depends_on: &[&str]) -> ToolCall {
    dispatch_with(name, depends_on, &["tasks.search", "mcp.files.read__all"])
}

/// A `dispatch_agent` with this name, for an agent that changes something.
pub fn dispatch_to_act(name: &str, depends_on: &[&str]) -> ToolCall {
    dispatch_with(name, depends_on, &["tasks.search", "tasks.create"])
}

fn dispatch_with(name: &str, depends_on: &[&str], skills: &[&str]) -> ToolCall {
    let arguments = json!({
        "agent_id": name, "mission": format!("Do {name}"), "skills": skills, "depends_on": depends_on
    });
    tool(&format!("d_{name}"), "dispatch_agent", &arguments)
}

pub fn collect(names: &[&str]) -> ToolCall {
    tool("c", "get_agent_results", &json!({"agent_ids": names}))
}

pub fn use_skill(id: &str, skill: &str, arguments: &Value) -> ToolCall {
    tool(id, "use_skill", &json!({"skill": skill, "arguments": arguments}))
}

pub fn cmd(commands: &str) -> String {
    format!("On it.\n```cmd\n{commands}\n```")
}

pub fn reply(text: &str, calls: &[ToolCall]) -> ModelReply {
    ModelReply {
        text: text.to_owned(),
        tool_calls: calls.to_vec(),
        finish: if calls.is_empty() { Finish::Stop } else { Finish::ToolCalls },
        usage: USAGE,
        model: "scripted".to_owned(),
        ..ModelReply::default()
    }
}
