//! Answers without a model round: if a reply calls only skills whose texts are ready for a person, and the message is one simple
//! request that these calls fulfil, the texts are the answer (ADR 0059).
//!
//! Whether they may be is judged when the reply is recorded, and stored with it. What the outcomes say decides in the fold.

use serde::{Deserialize, Serialize};

use super::{
    Decision,
    agent::AgentView,
    conversation::Turn,
    report,
    run::{AgentRun, Ending, OpenCall, Phase},
};
use crate::{
    aloud::VoiceChange,
    classify::{Fulfilment, fulfils},
    event::{Action, EventBody, JudgedCalls, PlannedSkill, ResolvedCall},
    outcome::{Outcome, Status},
    skill::{Effect, SkillSet, SkillSpec},
};

/// The longest text that is shown as it is, in bytes. A person wants a longer one summarised.
const TEXT_BYTES_MAX: usize = 4 * 1024;
/// The most reading calls whose texts make up one answer.
const READS_MAX: usize = 3;

/// The text of a call as a part of the answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadyText {
    /// The text is for the model only.
    #[default]
    Unwanted,
    /// The text is a part of the answer if the call succeeds.
    Awaited,
    /// The text.
    Is(String),
}

impl ReadyText {
    pub(super) const fn is_unwanted(&self) -> bool {
        matches!(self, Self::Unwanted)
    }

    /// The same once the call of this skill has this outcome. Anything but a plain success is explained by the model.
    pub(super) fn with(self, skill: &str, outcome: &Outcome) -> Self {
        let is_plain = outcome.status == Status::Success
            && outcome.doubts.is_empty()
            && outcome.injection.is_none()
            && outcome.origins.iter().all(|origin| origin == skill)
            && outcome.instead.is_none()
            && outcome.skill_change.is_none()
            && !outcome.escalate;
        let text = outcome.data.trim();
        let fits = !text.is_empty() && text.len() <= TEXT_BYTES_MAX;
        match self {
            Self::Awaited if is_plain && fits => Self::Is(text.to_owned()),
            Self::Unwanted | Self::Awaited | Self::Is(_) => Self::Unwanted,
        }
    }
}

/// The answer that these calls make up; `None` if one of them has no text that is ready.
pub(super) fn answer_of(calls: &[OpenCall]) -> Option<String> {
    let text = |open: &OpenCall| match &open.ready {
        ReadyText::Is(text) => Some(text.clone()),
        ReadyText::Unwanted | ReadyText::Awaited => None,
    };
    let texts: Option<Vec<String>> = calls.iter().map(text).collect();
    texts.filter(|texts| !texts.is_empty()).map(|texts| texts.join("\n\n"))
}

impl AgentView<'_> {
    /// Whether the texts of these calls, if all of them succeed, are the answer. In doubt they are not: then the model reads them
    /// and answers. The caller must also make sure that the agent has read no untrusted text.
    #[must_use]
    pub fn are_answer(self, calls: &[ResolvedCall], judged: &JudgedCalls, skills: &SkillSet) -> bool {
        let Self::Main { turn, .. } = self else { return false };
        if !turn.may_end_ready() || !judged.verdicts.is_empty() || !judged.hooks.is_empty() {
            return false;
        }
        let found: Option<Vec<(&SkillSpec, &PlannedSkill)>> =
            calls.iter().map(|call| ready_call(call, skills)).collect();
        let Some(found) = found.filter(|found| !found.is_empty()) else { return false };
        let only_reads = found.iter().all(|(_, planned)| planned.effect == Effect::Read);
        if found.len() > if only_reads { READS_MAX } else { 1 } {
            return false;
        }
        let calls: Vec<Fulfilment<'_>> =
            found.iter().map(|(skill, planned)| Fulfilment { skill, arguments: &planned.arguments }).collect();
        fulfils(&turn.inbound.text, &calls)
    }
}

/// The run that a call plans, with its skill, if its text is ready for a person and comes from this installation.
fn ready_call<'a>(call: &'a ResolvedCall, skills: &'a SkillSet) -> Option<(&'a SkillSpec, &'a PlannedSkill)> {
    let Action::Skill(planned) = &call.action else { return None };
    let skill = skills.get(&planned.skill)?;
    let is_trusted = !planned.external && !skill.external && !planned.skill.starts_with("mcp.");
    (skill.is_ready && is_trusted).then_some((skill.as_ref(), planned))
}

impl Turn {
    /// Whether nothing but its calls may have to be in its answer, and no person or program wants it in a form of their own.
    fn may_end_ready(&self) -> bool {
        let (inbound, facts, main) = (&self.inbound, &self.facts, &self.main);
        let is_plain_message = inbound.request.as_deref().is_none_or(|request| *request == Default::default())
            && inbound.resumes.is_none()
            && inbound.retry.is_none()
            && inbound.after.is_empty()
            && inbound.origins.is_empty()
            && inbound.preamble.is_empty();
        let has_own_rules = facts.spoken.is_some()
            || facts.is_flagged
            || !facts.rules.is_empty()
            || !facts.tone.is_empty()
            || !facts.memories.is_empty()
            || facts.recalled.iter().any(|memory| matches!(memory.category.as_str(), "instruction" | "preference"))
            || self.active_skill.is_some();
        let is_alone =
            self.agents.plan.nodes().is_empty() && self.steering.unseen.is_empty() && self.steering.seen.is_empty();
        self.limits.ready_answers && is_plain_message && !has_own_rules && is_alone && main.is_plain()
    }

    /// The answer that is the text of its skills. They claim nothing beyond what the skills report, so nothing is checked against the
    /// receipts or added from them.
    pub(in crate::turn) fn show_ready(&self, text: &str) -> Decision {
        let mut body = EventBody::answered(report::ready_answer(self, text));
        if let EventBody::Answered { usage, .. } = &mut body {
            *usage = self.usage();
        }
        self.main(body)
    }

    /// Lets the model answer after all, if the user has added something or if the text cannot be read aloud as it is.
    pub(in crate::turn) fn judge_ready(&mut self) {
        let Phase::Ended(Ending::Ready(text)) = &self.main.phase else { return };
        let is_for_ears = self.voice().is_none_or(|voice| {
            let (_, changes) = voice.spoken(text);
            text.lines().count() == 1 && !changes.contains(&VoiceChange::Sentences)
        });
        if (!self.steering.unseen.is_empty() || !is_for_ears) && self.main.round < self.main.rounds_max {
            self.steering.awaited.clone_from(&self.steering.unseen);
            self.main.next_round();
        }
    }
}

impl AgentRun {
    /// Whether the run has done nothing so far but read.
    fn is_plain(&self) -> bool {
        self.workflow.is_none()
            && self.undone.is_empty()
            && self.in_doubt.is_empty()
            && self.receipts.is_empty()
            && self.known.is_empty()
            && self.confined.is_none()
            && !self.programs_ran
            && !self.wrapping_up
            && !self.only_thanks
    }
}
