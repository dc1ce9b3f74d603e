//! The requests of a probe: the prompts of real turns with one everyday task.

use std::collections::BTreeMap;

use annie_core::{
    caller::CallOptions,
    context::{Frames, main_system, main_system_cmd, main_tools, skills_list, turn_context},
    event::{Mode, PromptFacts},
    ids::TaskId,
    limits::TurnLimits,
    message::{Message, ModelRequest},
};
use chrono_tz::Tz;

use super::Probe;

/// The task for the model. It needs one skill, whose name and flags are in the prompt.
const EVERYDAY: &str = "remind me to call the bank on Friday";
/// The maximum answer of a model that does not reason, in tokens: enough for a call and a sentence.
pub(super) const OUTPUT_TOKENS_MAX: u32 = 200;

pub(super) struct Requests {
    facts: PromptFacts,
    context: Option<String>,
    skill_names: Vec<String>,
    /// Unique per probe, so that no server has the prompts of this probe in its cache.
    session: String,
}

impl Requests {
    pub fn new(probe: &Probe<'_>, window: Option<u32>) -> Self {
        let zone: Tz = probe.timezone.parse().unwrap_or(Tz::UTC);
        let now = probe.env.now().to_utc().with_timezone(&zone);
        let task = TaskId::from_uuid(probe.env.uuid());
        let facts = PromptFacts {
            skills: skills_list(&probe.skills, TurnLimits::skill_list_chars_max(window), &BTreeMap::new()).text,
            domains: probe.skills.domains().into_iter().map(|domain| domain.name).collect(),
            timezone: probe.timezone.clone(),
            local_now: now.format("%Y-%m-%d %H:%M %A").to_string(),
            channel: "cli".to_owned(),
            ..PromptFacts::default()
        };
        Self {
            context: turn_context(&facts, &Frames::of(task)),
            skill_names: probe.skills.for_model().map(|skill| skill.name.clone()).collect(),
            session: task.to_string(),
            facts,
        }
    }

    fn request(&self, text: String) -> ModelRequest {
        ModelRequest {
            model: None,
            system: Vec::new(),
            messages: vec![Message::User { context: self.context.clone(), text }],
            stable_messages: 0,
            tools: Vec::new(),
            skill_names: self.skill_names.clone(),
            output_tokens_max: OUTPUT_TOKENS_MAX,
            session_id: self.session.clone(),
            priority: 1,
            options: CallOptions::default(),
        }
    }

    /// A plain answer of some length, on which the speed is measured. The first words differ, so that no prompt is in a cache.
    pub fn plain(&self, number: u32) -> ModelRequest {
        let mut system = main_system_cmd(&self.facts);
        if let Some(first) = system.first_mut() {
            first.text = format!("Probe {} {number}.\n{}", self.session, first.text);
        }
        ModelRequest { system, ..self.request("Say in three sentences what the moon is.".to_owned()) }
    }

    /// A request for a tool call.
    pub fn by_tools(&self, output_tokens_max: u32) -> ModelRequest {
        let mode = Mode::SingleLoop;
        let (system, tools) = (main_system(mode, &self.facts), main_tools(mode, &self.facts));
        ModelRequest { system, tools, output_tokens_max, ..self.request(EVERYDAY.to_owned()) }
    }

    /// A request for a command in a fenced block.
    pub fn by_commands(&self, output_tokens_max: u32) -> ModelRequest {
        ModelRequest { system: main_system_cmd(&self.facts), output_tokens_max, ..self.request(EVERYDAY.to_owned()) }
    }
}
