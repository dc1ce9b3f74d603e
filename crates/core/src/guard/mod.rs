//! Guards of input: what a message, or a text that an agent reads, may not contain or is flagged for, and how many model calls a
//! conversation may make. Everything is compiled once, at boot. A verdict is recorded as an event, so that a replay needs no rules.
//!
//! A guard is a net with holes: a model may be steered by words that no pattern knows. What holds is the rule that an effect
//! outside after untrusted text waits for a person; a finding makes a text untrusted.

mod calls;
mod injection;
mod topic;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use self::{
    calls::{CallCap, CallRefusal, CallTimes},
    injection::{Injection, InjectionRules},
    topic::{Topic, TopicAction, TopicError, TopicRule, Topics},
};

/// The origin of text in which a guard found something. Effects outside after it wait for a person.
pub const FLAGGED: &str = "flagged";

/// The name of the guard against injected instructions.
pub const INJECTION: &str = "injection";

/// The component of the events of what a guard found.
#[must_use]
pub fn component(guard: &str) -> String {
    format!("guard {guard}")
}

/// The most text of a message or a result that the guards examine, in bytes: the largest message by default.
pub const EXAMINED_BYTES_MAX: usize = 256 * 1024;

/// What follows words that try to change the rules of the agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InjectionMode {
    /// Texts are not examined.
    Off,
    /// The finding is an event, and the text counts as untrusted.
    #[default]
    Flag,
    /// A message is refused, and a result is withheld from the model.
    Refuse,
}

/// The guards of a kernel.
#[derive(Debug, Clone, Default)]
pub struct Guards {
    /// The mode of the guard against injected instructions.
    pub injection: InjectionMode,
    /// The patterns of injected instructions. Absent if the mode is off.
    pub patterns: Option<InjectionRules>,
    /// The topic rules.
    pub topics: Topics,
    /// The cap on model calls of a conversation.
    pub calls: CallCap,
}

/// A finding of a guard in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The guard: `injection`, or `topic NAME`.
    pub guard: String,
    /// Why, for people.
    pub reason: String,
    /// The answer to the user if the message is refused.
    pub refusal: Option<String>,
    /// Whether the text counts as untrusted.
    pub is_untrusted: bool,
}

impl Guards {
    /// Whether no guard examines messages.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.patterns.is_none() && self.topics.is_empty()
    }

    /// The findings in a message of a user. The first one with a refusal is the last one.
    #[must_use]
    pub fn examine_message(&self, text: &str) -> Vec<Finding> {
        let mut found = Vec::new();
        if let Some(injection) = self.patterns.as_ref().and_then(|patterns| patterns.find_in_message(text)) {
            let is_refused = self.injection == InjectionMode::Refuse;
            found.push(Finding {
                guard: INJECTION.to_owned(),
                reason: injection.reason(),
                refusal: is_refused.then(|| injection.refusal()),
                is_untrusted: true,
            });
            if is_refused {
                return found;
            }
        }
        for topic in self.topics.in_text(text) {
            let refusal = topic.refusal();
            let is_last = refusal.is_some();
            found.push(Finding {
                guard: format!("topic {}", topic.name()),
                reason: "the message is about this topic".to_owned(),
                refusal,
                is_untrusted: false,
            });
            if is_last {
                break;
            }
        }
        found
    }

    /// The words in the result of a skill that look like instructions.
    #[must_use]
    pub fn examine_result(&self, text: &str) -> Option<Injection> {
        self.patterns.as_ref()?.find_in_result(text)
    }

    /// Whether a message would be refused.
    #[must_use]
    pub fn refuses(&self, text: &str) -> bool {
        !self.is_empty() && self.examine_message(text).iter().any(|finding| finding.refusal.is_some())
    }
}
