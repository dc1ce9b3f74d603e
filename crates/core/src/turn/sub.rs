//! A sub-agent's turn: one mission, a narrower profile, its own context. The Engine hands it over, the SubAgent runs
//! it, and it ends in one report.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    conversation::Turn,
    directive::Directive,
    report,
    run::{AgentRun, RunKind, RunLimits},
};
use crate::{
    context::{agent_context, agent_mission},
    event::{AgentReport, DispatchSpec, EventBody, Priority, PromptFacts, ReportStatus},
    ids::{ConversationId, IntentId, TaskId, UserId},
    limits::TurnLimits,
    message::{Message, ModelRequest},
    time::Micros,
};

/// Everything that a sub-agent needs to run or go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubTurn {
    /// In which turn.
    pub task: TaskId,
    /// For whom.
    pub user: UserId,
    /// In which conversation.
    pub conversation: ConversationId,
    /// What it was dispatched with.
    pub spec: DispatchSpec,
    /// What the turn's prompts are made of.
    pub facts: PromptFacts,
    /// What the turn may use up.
    pub limits: TurnLimits,
    /// The turn's class.
    pub priority: Priority,
    /// The backends that may run its rounds, the one meant first.
    pub route: Vec<String>,
    /// Its loop.
    pub run: AgentRun,
    /// Tool calls set aside for it.
    pub calls_granted: u32,
    /// Since when it runs.
    pub since: Micros,
}

/// The loop of an agent that has just been allowed to start.
pub(super) fn first_run(spec: &DispatchSpec, turn: &Turn, calls: u32) -> AgentRun {
    let (limits, frames) = (&turn.limits, turn.main.frames.clone());
    let text = agent_mission(spec, turn.plan.dependencies(spec), &frames);
    let mission = Message::User { context: agent_context(&turn.facts), text };
    let run_limits = RunLimits {
        // Help and corrections use rounds without using calls: twice as many rounds, one to report and one spare.
        rounds_max: calls.saturating_mul(2).saturating_add(2),
        calls_max: calls,
        calls_note: format!("Reached the tool call limit ({calls})."),
        result_bytes_max: limits.result_bytes_max(),
    };
    let kind = RunKind::Sub(limits.interface);
    let mut run = AgentRun::new(spec.agent.clone(), kind, vec![mission], 0, run_limits).with_frames(frames);
    run.is_to_act = spec.manual.iter().any(|skill| skill.changes);
    // Its mission's numbers count only where they were named to whoever wrote it.
    run.provenance = turn.main.provenance.inherited();
    for (_, report) in turn.plan.dependencies(spec) {
        run.provenance.reported(report);
    }
    run
}

impl SubTurn {
    /// Takes in an event of this agent, of this time.
    pub fn fold(&mut self, at: Micros, body: &EventBody) {
        self.run.fold(at, body);
    }

    /// What is wanted from the world and has no result yet.
    #[must_use]
    pub fn outstanding(&self) -> Vec<Directive> {
        let (task, agent) = (self.task, self.spec.agent.clone());
        if self.run.awaits(self.run.round) {
            return vec![Directive::CallModel { task, agent, round: self.run.round }];
        }
        self.run
            .wanted_skills()
            .map(|(open, skill)| Directive::CallSkill {
                task,
                agent: agent.clone(),
                call_id: open.call.id.clone(),
                skill: skill.clone(),
                started_before: open.started,
            })
            .collect()
    }

    /// What is to be recorded of a round that a former life began and whose end nobody knows.
    #[must_use]
    pub fn interrupted(&self) -> Option<EventBody> {
        self.run.interrupted()
    }

    /// The request of the current round.
    #[must_use]
    pub fn request(&self) -> ModelRequest {
        super::request::sub(self)
    }

    /// Its report, once its loop has ended.
    #[must_use]
    pub fn report(&self, now: Micros) -> Option<AgentReport> {
        let ending = self.run.ending()?;
        let (status, result) = report::of_agent(&self.run, ending);
        Some(self.reported(status, result, now))
    }

    /// A report with what is known of it so far.
    #[must_use]
    pub fn reported(&self, status: ReportStatus, result: String, now: Micros) -> AgentReport {
        self.run.report(status, result, self.since, now)
    }

    /// Effects that may have happened, where it is known which of the calls without a result may have begun.
    #[must_use]
    pub fn doubts(&self, may_have_begun: &dyn Fn(IntentId) -> bool) -> Vec<(String, Value)> {
        self.run.doubts_of(may_have_begun)
    }

    /// What it got done before its time was up. Its time is looked at before its calls are begun: only those of which it is
    /// known may have happened.
    #[must_use]
    pub fn timed_out(&mut self, now: Micros, may_have_begun: &dyn Fn(IntentId) -> bool) -> AgentReport {
        self.run.give_up_unbegun(may_have_begun);
        let ms = self.limits.agent_ms_max(self.calls_granted);
        let text = report::of_run(&format!("Ran out of time after {} s.", ms / 1_000), &self.run);
        self.reported(ReportStatus::Timeout, text, now)
    }
}
