//! `[[hook]]`: the operator's decisions before a turn or a skill runs. The hooks are documented in [`annie_core::hooks`].

use std::{collections::BTreeSet, sync::Arc};

use annie_core::{
    hooks::{
        Agents, Conditions, Hook, HookPoint, HookSet, RefuseRule, skill_matches, valid_hook_name, valid_skill_pattern,
    },
    ids::UserId,
    skill::SkillSet,
};
use serde::{Deserialize, Serialize};

use super::{settings::Config, typed::KeyError};

/// The channels of messages: the front ends, and `voice` for spoken messages, which arrive through any front end.
const CHANNELS: [&str; 5] = ["cli", "grpc", "http", "openai", "voice"];

/// The kind of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookKind {
    /// A rule that refuses.
    Refuse,
}

/// `[[hook]]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookConfig {
    /// The name, for records and people.
    pub name: String,
    /// The point at which the hook decides.
    pub point: HookPoint,
    /// The kind.
    pub kind: HookKind,
    /// The conditions under which the hook refuses.
    #[serde(default)]
    pub when: Conditions,
    /// The reason, which the model or the user receives.
    #[serde(default)]
    pub text: String,
}

impl HookConfig {
    fn hook(&self) -> Arc<dyn Hook> {
        let Self { name, point, kind, when, text } = self.clone();
        match kind {
            HookKind::Refuse => Arc::new(RefuseRule { name, point, text, when }),
        }
    }

    /// All errors in this hook's keys.
    fn problems(&self, index: &str) -> Vec<KeyError> {
        let mut found = Vec::new();
        if !valid_hook_name(&self.name) {
            let fix = "use 1 to 64 small letters, digits, dashes and underscores";
            found.push(KeyError::value(&["hook", index, "name"], &format!("{:?} is no name", self.name), fix));
        }
        found.extend(self.skill_problem(index));
        found.extend(self.caller_problems(index));
        let (chars, chars_max) = (self.text.chars().count(), RefuseRule::TEXT_CHARS_MAX);
        let path = ["hook", index, "text"];
        if self.text.trim().is_empty() {
            found.push(KeyError::value(&path, "it is empty", "say what the user is to be told"));
        } else if chars > chars_max {
            let what = format!("it has {chars} characters, at most {chars_max} are allowed");
            found.push(KeyError::value(&path, &what, "shorten it"));
        }
        found
    }

    /// The first error in the patterns of skills.
    fn skill_problem(&self, index: &str) -> Option<KeyError> {
        let path = ["hook", index, "when", "skills"];
        let skills = &self.when.skills;
        if self.point == HookPoint::BeforeTurn && !skills.is_empty() {
            let what = "a turn begins before its skills are known";
            return Some(KeyError::value(&path, what, "use point = \"before_skill\""));
        }
        first_problem(&path, skills, "write `tasks.create`, `tasks.*` or `*`", |pattern| {
            (!valid_skill_pattern(pattern)).then(|| format!("{pattern:?} is no skill pattern"))
        })
    }

    /// The errors in the conditions on users, channels and agents.
    fn caller_problems(&self, index: &str) -> Vec<KeyError> {
        let path = |key: &'static str| ["hook", index, "when", key];
        let Conditions { users, channels, agents, .. } = &self.when;
        let mut found = Vec::new();
        found.extend(first_problem(&path("users"), users, "use 1 to 128 bytes without control characters", |user| {
            UserId::new(user).is_err().then(|| format!("{user:?} cannot be a user id"))
        }));
        let known = format!("known are {}", CHANNELS.join(", "));
        found.extend(first_problem(&path("channels"), channels, &known, |channel| {
            (!CHANNELS.contains(&channel)).then(|| format!("there is no channel {channel:?}"))
        }));
        if self.point == HookPoint::BeforeTurn && *agents == Agents::Sub {
            let what = "a turn begins before its sub-agents";
            found.push(KeyError::value(&path("agents"), what, "use point = \"before_skill\""));
        }
        found
    }
}

/// The first error in the values of a condition.
fn first_problem(
    path: &[&str],
    values: &[String],
    fix: &str,
    problem: impl Fn(&str) -> Option<String>,
) -> Option<KeyError> {
    let (count, count_max, bytes_max) = (values.len(), Conditions::VALUES_MAX, Conditions::VALUE_BYTES_MAX);
    if count > count_max {
        let what = format!("it has {count} values, at most {count_max} are allowed");
        return Some(KeyError::value(path, &what, "divide them between several hooks"));
    }
    if values.iter().any(|value| value.len() > bytes_max) {
        let what = format!("a value has more than {bytes_max} bytes");
        return Some(KeyError::value(path, &what, "shorten it"));
    }
    values.iter().find_map(|value| problem(value)).map(|what| KeyError::value(path, &what, fix))
}

impl Config {
    /// The configured hooks.
    #[must_use]
    pub fn hook_set(&self) -> HookSet {
        HookSet::new(self.hook.iter().map(HookConfig::hook).collect())
    }

    /// The patterns that match none of these skills, each with the name of its hook, as (hook, pattern).
    #[must_use]
    pub fn idle_hooks(&self, skills: &SkillSet) -> Vec<(String, String)> {
        let is_idle = |pattern: &str| pattern != "*" && !skills.iter().any(|skill| skill_matches(pattern, &skill.name));
        let patterns =
            self.hook.iter().flat_map(|hook| hook.when.skills.iter().map(move |pattern| (&hook.name, pattern)));
        let idle = patterns.filter(|(_, pattern)| is_idle(pattern));
        idle.map(|(name, pattern)| (name.clone(), pattern.clone())).collect()
    }

    /// The errors of all hooks.
    pub(super) fn hook_problems(&self) -> Vec<KeyError> {
        let (count, count_max) = (self.hook.len(), HookSet::HOOKS_MAX);
        if count > count_max {
            let what = format!("there are {count} hooks, at most {count_max} are allowed");
            return vec![KeyError::value(&["hook"], &what, "combine some of them")];
        }
        let (mut found, mut names) = (Vec::new(), BTreeSet::new());
        for (at, hook) in self.hook.iter().enumerate() {
            let index = at.to_string();
            found.extend(hook.problems(&index));
            if !names.insert(hook.name.as_str()) {
                let what = format!("another hook is named {:?} too", hook.name);
                found.push(KeyError::value(&["hook", &index, "name"], &what, "give each its own name"));
            }
        }
        found
    }
}
