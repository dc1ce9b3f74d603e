//! The active prompt skill of a conversation [S1 Layer 2]. It begins when a user calls it by `/name` or when the main agent runs
//! it, and its instructions are part of later prompts until it is done or another skill begins.

use serde::{Deserialize, Serialize};

use crate::{
    context::clip,
    event::{EventBody, Inbound, PromptFacts},
    ids::{AgentId, TaskId},
    skill::{ActiveSkill, Confinement, SkillChange},
    turn::conversation::Conversation,
};

/// How many skills are counted in a conversation. The least used one is forgotten first.
const COUNTED_MAX: usize = 200;

/// The active skill of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// The skill.
    pub skill: ActiveSkill,
    /// It began in a private turn, and its instructions contain that turn's arguments.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
}

impl Conversation {
    /// The name of the active skill.
    #[must_use]
    pub fn active_skill(&self) -> Option<&str> {
        self.active_skill.as_ref().map(|carried| carried.skill.skill.as_str())
    }

    /// The skill whose instructions a new turn gets in its system prompt, and the restriction of its calls. The message itself
    /// contains the instructions of a skill that it begins. A turn that is not private does not see instructions of a private
    /// one.
    pub(in crate::turn) fn carry_skill(
        &mut self,
        inbound: &Inbound,
        facts: &PromptFacts,
        bytes_max: usize,
    ) -> (Option<ActiveSkill>, Option<Confinement>) {
        if let Some(change) = facts.skill_change.as_deref() {
            self.change_skill(change, inbound.private);
            return (None, self.active_skill.as_ref().and_then(|carried| carried.skill.confinement()));
        }
        let Some(carried) = self.active_skill.as_ref().filter(|_| inbound.thread().is_none()) else {
            return (None, None);
        };
        let shown = Some(&carried.skill).filter(|_| inbound.private || !carried.private).map(|skill| ActiveSkill {
            instructions: clip(&skill.instructions, bytes_max).into_owned(),
            ..skill.clone()
        });
        (shown, carried.skill.confinement())
    }

    /// Folds what a result of the main agent changes about the active skill. Called before the result itself is folded.
    pub(in crate::turn) fn note_skill_change(&mut self, task: TaskId, agent: &AgentId, body: &EventBody) {
        let EventBody::SkillFinished { intent, outcome, .. } = body else { return };
        let Some(change) = outcome.skill_change.as_deref().filter(|_| agent.is_orchestrator()) else { return };
        let Some(turn) = self.turn(task) else { return };
        let mut open = turn.main.open_calls().iter().filter(|open| open.result.is_none());
        if open.any(|open| open.planned().is_some_and(|planned| planned.intent == *intent)) {
            let private = turn.inbound.private;
            self.change_skill(change, private);
        }
    }

    fn change_skill(&mut self, change: &SkillChange, private: bool) {
        match change {
            SkillChange::Begin(skill) => {
                self.count_use(&skill.skill);
                self.active_skill = Some(Carried { skill: skill.clone(), private });
            }
            SkillChange::End => self.active_skill = None,
            SkillChange::Fork(skill) => self.count_use(&skill.skill),
        }
    }

    fn count_use(&mut self, skill: &str) {
        let uses = self.skill_uses.entry(skill.to_owned()).or_default();
        *uses = uses.saturating_add(1);
        if self.skill_uses.len() > COUNTED_MAX {
            let others = self.skill_uses.iter().filter(|(name, _)| *name != skill);
            let least = others.min_by_key(|(_, uses)| **uses).map(|(name, _)| name.clone());
            if let Some(name) = least {
                self.skill_uses.remove(&name);
            }
        }
    }
}
