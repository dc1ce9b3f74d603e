//! Folding the events of an agent's rounds and calls into its run.

#![deny(clippy::wildcard_enum_match_arm)]

use super::{AgentRun, Phase, Reply};
use crate::{event::EventBody, time::Micros};

impl AgentRun {
    /// Whether all calls of the current round have results and the next round has not begun. No fold ends in such a state.
    #[must_use]
    pub(in crate::turn) fn awaits_nothing(&self) -> bool {
        matches!(&self.phase, Phase::Acting(calls) if calls.iter().all(|call| call.result.is_some()))
    }

    /// Folds an event of this agent with this timestamp. Returns true if it was the awaited result of a skill.
    pub fn fold(&mut self, at: Micros, body: &EventBody) -> bool {
        let mut is_result = false;
        if let Some(end) = body.round_end()
            && self.awaits(end.round)
        {
            self.model_calls = self.model_calls.saturating_add(u32::from(body.is_model_call()));
            self.waited_ms = self.waited_ms.saturating_add(end.waited_ms);
            self.prefill_ms = self.prefill_ms.saturating_add(end.prefill_ms);
        }
        match body {
            EventBody::ModelReplied { .. } => {
                if let Some(reply) = Reply::of(body) {
                    self.replied(&reply);
                }
            }
            EventBody::ModelFailed { round, error, .. } => self.failed(*round, error),
            EventBody::RoundBegan { round, .. } => self.round_began(*round),
            EventBody::RoundNotBegun { round, .. } => self.round_not_begun(*round),
            EventBody::SkillStarted { intent, .. } => self.skill_started(*intent),
            EventBody::SkillFinished { intent, outcome, route, .. } => {
                is_result = self.skill_finished(at, *intent, outcome, route.as_deref());
            }
            EventBody::Decided { hook: Some(decision), .. } => self.hook_decided(decision),
            // The other kinds are facts about the turn, not about the rounds and calls of one agent.
            EventBody::Received(_)
            | EventBody::Joined { .. }
            | EventBody::TurnStarted { .. }
            | EventBody::InterfaceChanged { .. }
            | EventBody::LoopDetected { .. }
            | EventBody::AgentStarted { .. }
            | EventBody::AgentReported { .. }
            | EventBody::AgentSteered { .. }
            | EventBody::SteeringTaken { .. }
            | EventBody::AgentStopRequested { .. }
            | EventBody::CancelRequested { .. }
            | EventBody::Decided { hook: None, .. }
            | EventBody::ApprovalRequested { .. }
            | EventBody::ApprovalDecided { .. }
            | EventBody::ResultsGiven
            | EventBody::Resumed { .. }
            | EventBody::Suspended { .. }
            | EventBody::Continued { .. }
            | EventBody::Reprioritised { .. }
            | EventBody::DeadlinePassed { .. }
            | EventBody::Deferred { .. }
            | EventBody::Retried { .. }
            | EventBody::Ordered { .. }
            | EventBody::DeadLetterDue { .. }
            | EventBody::DeadLetterMoved { .. }
            | EventBody::Answered { .. }
            | EventBody::Failed { .. }
            | EventBody::Cancelled { .. }
            | EventBody::Copied(_)
            | EventBody::Compacted(_) => {}
        }
        self.settle();
        is_result
    }

    fn round_began(&mut self, round: u32) {
        if self.awaits(round) {
            self.began = Some(round);
        }
    }

    fn round_not_begun(&mut self, round: u32) {
        if self.awaits(round) {
            (self.began, self.acts_in) = (None, None);
        }
    }
}
