//! Prompt skills that are active: their instructions and the tools that they allow.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{SkillSpec, allows_script, called_script};
use crate::context::clip;

/// What follows from a run of a prompt skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum SkillChange {
    /// The skill begins, and replaces the active one.
    Begin(ActiveSkill),
    /// The active skill is done.
    End,
    /// A new task runs the instructions. The kernel starts this task before it records the skill's result.
    Fork(ActiveSkill),
}

/// A prompt skill whose instructions hold until it is done or another skill begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveSkill {
    /// The name of the skill.
    pub skill: String,
    /// The instructions with the arguments filled in, at most [`ActiveSkill::INSTRUCTIONS_BYTES_MAX`].
    pub instructions: String,
    /// The skills that may run while this one is active: names, and domains such as `tasks` or `tasks.*`. Empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_tools: Vec<String>,
    /// Only the user may invoke the skill, so only the user may end it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_for_users: bool,
}

impl ActiveSkill {
    /// Size limit for stored instructions, in bytes. They are part of the conversation's state and of every prompt.
    pub const INSTRUCTIONS_BYTES_MAX: usize = 16 * 1024;

    /// An active skill that allows all tools and that a model may end. Longer instructions are cut with a notice.
    #[must_use]
    pub fn new(skill: &str, instructions: &str) -> Self {
        Self {
            skill: skill.to_owned(),
            instructions: clip(instructions, Self::INSTRUCTIONS_BYTES_MAX).into_owned(),
            allowed_tools: Vec::new(),
            is_for_users: false,
        }
    }

    /// The restriction of the calls of an agent; `None` if the skill allows all tools.
    #[must_use]
    pub fn confinement(&self) -> Option<Confinement> {
        let (skill, tools) = (self.skill.clone(), self.allowed_tools.clone());
        (!tools.is_empty()).then_some(Confinement { skill, tools })
    }
}

/// The skills that an agent may run because of an active skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// The active skill.
    pub skill: String,
    /// The allowed skills, as in [`ActiveSkill::allowed_tools`].
    pub tools: Vec<String>,
}

/// The help skill. It is always allowed, because a model needs it to learn how to call the allowed skills.
const HELP: &str = "system.help";

impl Confinement {
    /// Whether a skill may run. The active skill itself is always allowed: a model calls it to read the skill's files and to end
    /// the skill.
    #[must_use]
    pub fn allows(&self, skill: &str) -> bool {
        let is_listed = |tool: &String| {
            let domain = tool.strip_suffix(".*").unwrap_or(tool);
            SkillSpec::key(tool) == SkillSpec::key(skill)
                || skill.strip_prefix(domain).is_some_and(|rest| rest.starts_with('.'))
        };
        skill == self.skill || skill == HELP || self.tools.iter().any(is_listed)
    }

    /// Whether a call may be made. The active skill reads its files without being listed. Its scripts must be allowed.
    #[must_use]
    pub fn allows_call(&self, skill: &str, arguments: &Value) -> bool {
        let is_allowed = |script: &str| skill != self.skill || allows_script(&self.tools, script);
        self.allows(skill) && called_script(arguments).is_none_or(is_allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn confined_to(tools: &[&str]) -> Option<Confinement> {
        let allowed_tools = tools.iter().map(|tool| (*tool).to_owned()).collect();
        ActiveSkill { allowed_tools, ..ActiveSkill::new("minutes", "Do it.") }.confinement()
    }

    #[test]
    fn confinement_allows_listed_skills_listed_domains_the_skill_itself_and_help() {
        let confined = confined_to(&["notes.create", "tasks.*", "memory"]).unwrap();
        for skill in ["notes.create", "notes_create", "tasks.search", "memory.save", "minutes", "system.help"] {
            assert!(confined.allows(skill), "{skill}");
        }
        for skill in ["notes.edit", "notes", "tasksother.x", "system.time", "other"] {
            assert!(!confined.allows(skill), "{skill}");
        }
        assert_eq!(confined_to(&[]), None, "no list allows everything");
    }

    #[test]
    fn confinement_allows_scripts_of_the_active_skill_only_if_they_are_listed() {
        let script = serde_json::json!({"script": "scripts/fill.py"});
        let file = serde_json::json!({"file": "scripts/fill.py", "script": null});
        let confined = confined_to(&["notes.create", "other"]).unwrap();
        assert!(confined.allows_call("minutes", &file) && !confined.allows_call("minutes", &script));
        assert!(confined.allows_call("other", &script), "another skill has its own list");
        assert!(confined_to(&["Bash(python:*)"]).unwrap().allows_call("minutes", &script));
    }

    #[test]
    fn active_skill_clips_long_instructions_with_a_notice() {
        let long = ActiveSkill::new("minutes", &"x".repeat(2 * ActiveSkill::INSTRUCTIONS_BYTES_MAX));
        assert!(long.instructions.len() <= ActiveSkill::INSTRUCTIONS_BYTES_MAX);
        assert!(long.instructions.ends_with("bytes]"));
    }

    #[test]
    fn skill_change_round_trips_through_json() {
        for change in [SkillChange::Begin(ActiveSkill::new("minutes", "Do it.")), SkillChange::End] {
            let stored = serde_json::to_string(&change).unwrap();
            assert_eq!(serde_json::from_str::<SkillChange>(&stored).unwrap(), change, "{stored}");
        }
    }
}
