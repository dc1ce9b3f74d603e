//! The rule that an operator configures: under its conditions a turn does not begin, or a skill is not called.

use serde::{Deserialize, Serialize};

use super::{Hook, HookContext, HookLevel, HookPoint, HookSubject, HookVerdict};
use crate::inbound::{DEAD_LETTER, OPERATION};

/// Sources of the kernel's own messages. They record the channel of the user's message whose work they continue. Logs of
/// earlier versions lack it. Such a message meets every condition on channels before a skill, so that a retry does not evade a
/// rule. Before a turn it meets none, because a refused result would be lost.
const WITHOUT_CHANNEL: [&str; 2] = [DEAD_LETTER, OPERATION];

/// The agents that a rule holds for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Agents {
    /// All agents.
    #[default]
    Any,
    /// The agent that answers the user.
    Main,
    /// The sub-agents.
    Sub,
}

/// The conditions of a rule. Conditions of different kinds must all hold; within one kind, any value is enough. An empty
/// list is no condition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Conditions {
    /// The skill matches one of these patterns: a name, `domain.*` or `*`. Never holds before a turn, which has no skill.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// The user is one of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// One of the channels of the turn's messages is one of these: `http`, `voice` … A retry of a dead letter and the result
    /// of an operation have the channel of the first message.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<String>,
    /// The agent is one of these.
    pub agents: Agents,
}

impl Conditions {
    /// The maximum number of values of one condition. All of them are compared for every call of a skill.
    pub const VALUES_MAX: usize = 64;
    /// The maximum length of one value, in bytes. No user id, channel or name of a command skill is longer.
    pub const VALUE_BYTES_MAX: usize = 128;

    /// The level of a hook with these conditions.
    #[must_use]
    pub fn level(&self) -> HookLevel {
        if !self.skills.is_empty() {
            HookLevel::Skill
        } else if self.agents != Agents::Any {
            HookLevel::Agent
        } else {
            HookLevel::Global
        }
    }

    /// Whether all conditions hold.
    #[must_use]
    pub fn hold(&self, at: &HookContext<'_>) -> bool {
        let skill = match at.subject {
            HookSubject::Skill(skill) => Some(skill.skill.as_str()),
            HookSubject::Turn(_) => None,
        };
        let is_agent = match self.agents {
            Agents::Any => true,
            Agents::Main => at.agent.is_orchestrator(),
            Agents::Sub => !at.agent.is_orchestrator(),
        };
        is_agent
            && holds(&self.users, |user| user == at.user.as_str())
            && holds(&self.channels, |wanted| at.channels.iter().any(|channel| is_channel(wanted, channel, at.point)))
            && holds(&self.skills, |pattern| skill.is_some_and(|skill| skill_matches(pattern, skill)))
    }
}

fn is_channel(wanted: &str, channel: &str, point: HookPoint) -> bool {
    wanted == channel || point == HookPoint::BeforeSkill && WITHOUT_CHANNEL.contains(&channel)
}

/// Whether a condition holds.
fn holds(values: &[String], is_met: impl Fn(&str) -> bool) -> bool {
    values.is_empty() || values.iter().any(|value| is_met(value))
}

/// Whether a skill matches a valid pattern: its name, `domain.*` or `*`.
#[must_use]
pub fn skill_matches(pattern: &str, skill: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => skill.starts_with(beginning),
        None => skill == pattern,
    }
}

/// Whether a text is a pattern of skills: a name, `domain.*` or `*`. The parts of a name have letters, digits, `-` and `_`.
#[must_use]
pub fn valid_skill_pattern(pattern: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let name = pattern.strip_suffix(".*").unwrap_or(pattern);
    pattern == "*" || name.split('.').all(|part| !part.is_empty() && part.chars().all(is_part))
}

/// Whether a text can be the name of a hook: 1 to [`RefuseRule::NAME_BYTES_MAX`] bytes of `a-z 0-9 - _`.
#[must_use]
pub fn valid_hook_name(name: &str) -> bool {
    let is_part = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    !name.is_empty() && name.len() <= RefuseRule::NAME_BYTES_MAX && name.bytes().all(is_part)
}

/// A hook that refuses under fixed conditions. The fields must keep the limits below; the configuration checks them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefuseRule {
    /// The name, for records and people.
    pub name: String,
    /// The point at which the rule refuses.
    pub point: HookPoint,
    /// The reason, which the model or the user receives.
    pub text: String,
    /// The conditions.
    pub when: Conditions,
}

impl RefuseRule {
    /// The maximum length of a name, in bytes. Names are labels of metrics.
    pub const NAME_BYTES_MAX: usize = 64;
    /// The maximum length of the reason, in characters. A refused call puts the reason into the prompt of its agent.
    pub const TEXT_CHARS_MAX: usize = 1_000;
}

impl Hook for RefuseRule {
    fn name(&self) -> &str {
        &self.name
    }

    fn points(&self) -> &[HookPoint] {
        std::slice::from_ref(&self.point)
    }

    fn level(&self) -> HookLevel {
        self.when.level()
    }

    fn judge(&self, at: &HookContext<'_>) -> HookVerdict {
        if self.when.hold(at) { HookVerdict::Refuse { text: self.text.clone() } } else { HookVerdict::Continue }
    }
}
