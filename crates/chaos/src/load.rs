//! The load of a chaos run: messages that each request one effect, and the script with which a model would answer them. A run
//! therefore costs no tokens, behaves the same on every backend, and uses the whole path of a message.

use annie_core::{
    message::{Finish, Message, ModelReply, ModelRequest, ToolCall},
    skill::{ArgKind, ArgSpec, Effect, SkillFormat, SkillSpec},
};
use serde_json::{Value, json};

/// The skill that has one effect per marker.
pub const SKILL: &str = "chaos.count";
/// The prefix of a load message; its marker follows.
pub const MARK: &str = "chaos-load:";
/// The maximum length of a result that is repeated in a reply, in bytes.
const REPEATED_BYTES_MAX: usize = 200;

/// The skill as the catalogue lists it.
pub(super) fn skill() -> SkillSpec {
    SkillSpec {
        name: SKILL.to_owned(),
        domain: "chaos".to_owned(),
        description: "Counts an effect of a chaos run. Never call it for anything else.".to_owned(),
        body: String::new(),
        args: vec![ArgSpec {
            name: "marker".to_owned(),
            kind: ArgKind::Text,
            required: true,
            help: "Which effect.".to_owned(),
            minimum: None,
            maximum: None,
            default: Value::Null,
        }],
        effect: Effect::Once,
        external: false,
        timeout_ms: 10_000,
        alternatives: Vec::new(),
        fallback: std::collections::BTreeMap::new(),
        is_ready: false,
        format: SkillFormat::Command,
        source: "chaos".to_owned(),
    }
}

/// The scripted reply to a load message; nothing for any other message.
pub(super) fn reply(request: &ModelRequest) -> Option<ModelReply> {
    let marker = request.messages.iter().rev().find_map(marker_of)?;
    let last = request.messages.last()?;
    let has = |tool: &str| request.tools.iter().any(|t| t.name == tool);
    let result = match last {
        Message::Tool { text, .. } => Some(text.as_str()),
        Message::User { text, .. } if text.contains("<result") => Some(text.as_str()),
        _ => None,
    };
    Some(if has("dispatch_agent") {
        if let Some(result) = result.filter(|text| text.contains("\"agents\"")) {
            // Repeats only what the agent reported.
            let is_counted = result.contains(&counted(marker));
            says(if is_counted { counted(marker) } else { format!("{marker} may or may not be counted.") })
        } else {
            let mission = format!("{MARK} {marker} count it");
            calls([
                ("dispatch_agent", json!({"agent_id": "counter", "mission": mission, "skills": [SKILL]})),
                ("get_agent_results", json!({})),
            ])
        }
    } else if let Some(result) = result {
        says(format!("{marker}: {}", annie_core::context::clip(result, REPEATED_BYTES_MAX)))
    } else if has("use_skill") {
        calls([("use_skill", json!({"skill": SKILL, "arguments": {"marker": marker}}))])
    } else if request.tools.is_empty() {
        says(format!("```cmd\n{SKILL} --marker {marker}\n```"))
    } else {
        says(format!("{marker} cannot be counted without its skill."))
    })
}

/// The text that states that an effect happened.
#[must_use]
pub fn counted(marker: &str) -> String {
    format!("{marker} is counted.")
}

fn marker_of(message: &Message) -> Option<&str> {
    let Message::User { text, .. } = message else { return None };
    text.split_once(MARK)?.1.split_whitespace().next()
}

/// A reply that contains only text.
pub(super) fn says(text: impl Into<String>) -> ModelReply {
    ModelReply { text: text.into(), model: "chaos-load".to_owned(), ..ModelReply::default() }
}

fn calls<const N: usize>(tools: [(&str, Value); N]) -> ModelReply {
    let tool_calls = tools.into_iter().enumerate().map(|(n, (name, arguments))| ToolCall {
        id: format!("call_{n}"),
        name: name.to_owned(),
        arguments: arguments.to_string(),
    });
    ModelReply { tool_calls: tool_calls.collect(), finish: Finish::ToolCalls, ..says("") }
}
