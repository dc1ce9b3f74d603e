//! `[guard]`: the guards of input. They are documented in [`annie_core::guard`].

use std::sync::Arc;

use annie_core::guard::{CallCap, Guards, InjectionMode, InjectionRules, TopicRule, Topics};
use serde::{Deserialize, Serialize};

use super::{settings::Config, typed::KeyError};

/// `[guard]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuardSettings {
    /// What follows words that try to change the rules of the agent.
    pub injection: InjectionMode,
    /// The maximum number of model calls of a conversation within the window; 0 means no limit.
    pub model_calls_per_conversation_max: u32,
    /// The window, in milliseconds.
    pub model_calls_window_ms: u64,
    /// The topic rules (`[[guard.topic]]`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub topic: Vec<TopicRule>,
}

impl Default for GuardSettings {
    fn default() -> Self {
        let CallCap { calls_max, window_ms } = CallCap::default();
        Self {
            injection: InjectionMode::default(),
            model_calls_per_conversation_max: calls_max,
            model_calls_window_ms: window_ms,
            topic: Vec::new(),
        }
    }
}

impl GuardSettings {
    /// The compiled guards. Topic rules that are not valid are refused by `Config::check`.
    pub(super) fn compiled(&self) -> Arc<Guards> {
        let patterns = if self.injection == InjectionMode::Off { None } else { InjectionRules::new() };
        Arc::new(Guards {
            injection: self.injection,
            patterns,
            topics: Topics::new(self.topic.clone()).unwrap_or_default(),
            calls: CallCap { calls_max: self.model_calls_per_conversation_max, window_ms: self.model_calls_window_ms },
        })
    }
}

impl Config {
    /// The errors in `[guard]`.
    pub(super) fn guard_problems(&self) -> Vec<KeyError> {
        let mut found = Vec::new();
        if let Err(error) = Topics::new(self.guard.topic.clone()) {
            let index = error.index.to_string();
            let fix = "see `annie config sample` for an example of a topic";
            found.push(KeyError::value(&["guard", "topic", &index, error.key], &error.what, fix));
        }
        let (window, min, max) = (self.guard.model_calls_window_ms, CallCap::WINDOW_MS_MIN, CallCap::WINDOW_MS_MAX);
        if !(min..=max).contains(&window) || window % CallCap::WINDOW_MS_MIN != 0 {
            let what = format!("{window} is not whole minutes between {min} and {max}");
            let fix = "3600000 is an hour, 86400000 a day";
            found.push(KeyError::value(&["guard", "model_calls_window_ms"], &what, fix));
        }
        found
    }
}
