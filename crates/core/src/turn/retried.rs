//! What a task had done before it failed: a new try of its dead letter is told, and does not do it again (invariant 3).

use std::collections::BTreeMap;

use serde_json::Value;

use super::run::AgentRun;
use crate::{
    event::{Action, Event, EventBody, PlannedSkill, Retry},
    ids::IntentId,
    outcome::Status,
    receipt::Receipt,
    skill::Effect,
};

/// Effects of each kind that are carried into a new try; the newest stay.
const EFFECTS_MAX: usize = 1_000;

/// The effects of one task, its sub-agents' too, read off its events: the log has them also where no Engine lived to tell.
#[derive(Debug, Default)]
pub struct TaskEffects {
    /// Planned and without a result, with whether a breaker let it begin.
    open: BTreeMap<IntentId, (PlannedSkill, bool)>,
    receipts: Vec<Receipt>,
    in_doubt: Vec<(String, Value)>,
}

impl TaskEffects {
    /// Takes in the next event of the task.
    pub fn take(&mut self, event: &Event) {
        match &event.body {
            // What the tries before it did, it was told itself.
            EventBody::Received(inbound) => {
                if let Some(retry) = &inbound.retry {
                    self.receipts.extend(retry.receipts.iter().cloned());
                    self.in_doubt.extend(retry.in_doubt.iter().cloned());
                }
            }
            EventBody::ModelReplied { calls, .. } => {
                for call in calls {
                    if let Action::Skill(planned) = &call.action
                        && planned.effect != Effect::Read
                    {
                        self.open.insert(planned.intent, (planned.clone(), false));
                    }
                }
            }
            EventBody::SkillStarted { intent, .. } => {
                if let Some((_, is_begun)) = self.open.get_mut(intent) {
                    *is_begun = true;
                }
            }
            EventBody::SkillFinished { intent, outcome, .. } => {
                let Some((planned, _)) = self.open.remove(intent) else { return };
                if outcome.status == Status::Unknown {
                    self.in_doubt.push((planned.skill, planned.arguments));
                } else {
                    self.receipts.extend(Receipt::of(&planned.skill, &planned.arguments, outcome, event.at));
                }
            }
            _ => {}
        }
    }

    /// The effects that took place, oldest first, and those that may have, as (skill, arguments).
    #[must_use]
    pub fn all(self) -> (Vec<Receipt>, Vec<(String, Value)>) {
        let (mut receipts, mut in_doubt) = (self.receipts, Vec::new());
        receipts.sort_by_key(|receipt| receipt.at);
        let begun = self.open.into_values().filter(|(_, is_begun)| *is_begun);
        let begun = begun.map(|(planned, _)| (planned.skill, planned.arguments));
        for doubt in self.in_doubt.into_iter().chain(begun) {
            if !in_doubt.contains(&doubt) {
                in_doubt.push(doubt);
            }
        }
        receipts.drain(..receipts.len().saturating_sub(EFFECTS_MAX));
        in_doubt.drain(..in_doubt.len().saturating_sub(EFFECTS_MAX));
        (receipts, in_doubt)
    }
}

impl AgentRun {
    /// Begins as a new try of a task that failed.
    pub(super) fn goes_on_after(&mut self, retry: &Retry) {
        self.provenance.add_ids(retry.receipts.iter().flat_map(|receipt| receipt.ids.iter().copied()));
        self.known.extend(retry.receipts.iter().cloned());
        self.in_doubt.extend(retry.in_doubt.iter().cloned());
        let mut note = String::new();
        let done: Vec<String> = retry.receipts.iter().map(|receipt| format!("- {}", receipt.summary())).collect();
        if !done.is_empty() {
            let done = self.frames.wrap("result", &[("status", "ok")], &done.join("\n"));
            note =
                format!("[An earlier try of this request failed after it had done this. Do not do it again.]\n{done}");
        }
        let doubts: Vec<String> = retry.in_doubt.iter().map(|(skill, call)| format!("- {skill} {call}")).collect();
        if !doubts.is_empty() {
            let doubts = self.frames.wrap("result", &[("status", "unknown")], &doubts.join("\n"));
            let heading = "[An earlier try may have done this. Do not do it again, and say that it is not known.]";
            note = format!("{note}\n{heading}\n{doubts}").trim().to_owned();
        }
        if !note.is_empty() {
            self.note(&note);
        }
    }
}
