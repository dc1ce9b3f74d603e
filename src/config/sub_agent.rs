//! `[sub_agent]`: how sub-agents work.

use annie_core::{
    limits::{SubAgentInterface, TurnLimits},
    route::BackendFacts,
};
use serde::{Deserialize, Serialize};

use super::{settings::Config, typed::KeyError};

/// `[sub_agent]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SubAgent {
    /// How sub-agents call skills: by commands in fenced blocks (`cmd`) or by the scoped tool (`json`).
    pub interface: SubAgentInterface,
    /// The backend, or the capability, that sub-agents prefer unless their dispatch names one; empty means that of the turn.
    pub model: String,
    /// The maximum time that a dispatch may request for its agent, in milliseconds.
    pub timeout_ms_max: u64,
    /// Gives the orchestrator tools to steer and to stop its agents.
    pub control: bool,
}

impl Default for SubAgent {
    fn default() -> Self {
        let turn = TurnLimits::default();
        Self {
            interface: turn.interface,
            model: String::new(),
            timeout_ms_max: turn.agent_timeout_ms_max,
            control: turn.agent_control,
        }
    }
}

impl Config {
    /// A preferred backend that does not exist would be ignored by every dispatch, and by every advice.
    pub(super) fn preferred_model_problems(&self, facts: &[BackendFacts]) -> Vec<KeyError> {
        let keys = [
            (["sub_agent", "model"], self.sub_agent.model.trim()),
            (["error_router", "alternatives_model"], self.error_router.alternatives_model.trim()),
        ];
        keys.into_iter().filter_map(|(path, word)| model_problem(path, word, facts)).collect()
    }
}

fn model_problem(path: [&str; 2], word: &str, facts: &[BackendFacts]) -> Option<KeyError> {
    let is_known = |facts: &BackendFacts| {
        facts.name.eq_ignore_ascii_case(word) || facts.capabilities.iter().any(|capability| capability == word)
    };
    if word.is_empty() || facts.iter().any(is_known) {
        return None;
    }
    let names: Vec<&str> = facts.iter().map(|facts| facts.name.as_str()).collect();
    let what = format!("there is no backend `{word}`, and none has this capability; there are: {}", names.join(", "));
    Some(KeyError::value(&path, &what, "name one of them, or leave it out"))
}
