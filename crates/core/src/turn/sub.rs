//! A sub-agent's turn: one mission, a narrower profile, its own context. The Engine passes it to a SubAgent actor, which runs
//! it to exactly one report.

use serde_json::Value;

use super::{
    alternatives::Advising,
    conversation::Turn,
    directive::Directive,
    report,
    run::{AgentRun, RunKind, RunLimits, report_format},
};
use crate::{
    context::{agent_context, agent_mission},
    event::{AgentReport, DispatchSpec, EventBody, Priority, PromptFacts, ReportStatus},
    ids::{ConversationId, IntentId, TaskId, UserId},
    limits::TurnLimits,
    message::Message,
    plan::{AgentSteer, Node},
    time::Micros,
};

/// Everything that a sub-agent needs to start or to resume.
#[derive(Debug, Clone, PartialEq)]
pub struct SubTurn {
    /// The task of the turn.
    pub task: TaskId,
    /// The user that the turn runs for.
    pub user: UserId,
    /// The conversation of the turn.
    pub conversation: ConversationId,
    /// The dispatch that created the agent.
    pub spec: DispatchSpec,
    /// The facts that the turn's prompts are built from.
    pub facts: PromptFacts,
    /// The channels of the messages of the turn.
    pub channels: Vec<String>,
    /// The turn is local only: the agent may not run skills that reach other machines.
    pub is_private: bool,
    /// The limits of the turn.
    pub limits: TurnLimits,
    /// The turn's class.
    pub priority: Priority,
    /// How much earlier its rounds stand in the queue because of how the message was spoken, in milliseconds, at most 0.
    pub shift_ms: i64,
    /// The backends that may run its rounds, the preferred one first.
    pub route: Vec<String>,
    /// The state of its loop.
    pub run: AgentRun,
    /// The number of tool calls reserved for it.
    pub calls_granted: u32,
    /// When it started.
    pub since: Micros,
    /// The texts that were added to its mission, as far as they are known.
    pub steering: Vec<AgentSteer>,
}

/// The initial state of an agent that was just allowed to start.
pub(super) fn first_run(node: &Node, turn: &Turn, calls: u32) -> AgentRun {
    let spec = &node.spec;
    let (limits, frames) = (&turn.limits, turn.main.frames.clone());
    let filled = turn.agents.plan.filled(spec, &frames);
    let text = agent_mission(&filled, turn.agents.plan.dependencies(&filled), &frames);
    let mission = Message::User { context: agent_context(&turn.facts), text };
    let run_limits = RunLimits {
        // Help and corrections use rounds but no calls: twice as many rounds as calls, one for the report and one spare.
        rounds_max: calls.saturating_mul(2).saturating_add(2),
        calls_max: calls,
        calls_note: format!("Reached the tool call limit ({calls})."),
        result_bytes_max: limits.result_bytes_max(),
    };
    let kind = RunKind::Sub(limits.interface);
    let mut run = AgentRun::new(spec.agent.clone(), kind, vec![mission], 0, run_limits).with_frames(frames);
    // The agent works for the goal of the turn, and what failed for it need not fail again.
    run.failures.clone_from(&turn.main.failures);
    run.failed_skills.clone_from(&turn.main.failed_skills);
    run.guard = turn.main.guard.begin(limits.loop_guard.clone());
    let others = turn.agents.runs.values().map(|run| &run.advising);
    run.advising = Advising::of_sub(&turn.limits.error_router, &turn.main.advising, others);
    run.confined.clone_from(&turn.main.confined);
    run.report_format = spec.options.output_schema.clone().map(report_format);
    run.is_to_act = spec.manual.iter().any(|skill| skill.changes);
    // Numbers in the mission count only if they were named to the main agent, which wrote the mission.
    run.provenance = turn.main.provenance.inherited();
    for (_, report) in turn.agents.plan.dependencies(spec) {
        run.provenance.reported(report);
    }
    // The first round has not begun, so it contains what was added before.
    run.take_steering(&node.steering, u32::MAX);
    run.deliver_steered();
    run
}

impl SubTurn {
    /// Folds an event of this agent with this timestamp.
    pub fn fold(&mut self, at: Micros, body: &EventBody) {
        if let EventBody::SteeringTaken { count } = body {
            self.run.take_steering(&self.steering, *count);
        } else {
            self.run.fold(at, body);
        }
    }

    /// Learns the texts that were added to the mission. Returns the event by which a running agent takes up new ones.
    pub fn steered(&mut self, steering: Vec<AgentSteer>) -> Option<EventBody> {
        self.steering = steering;
        self.untaken()
    }

    /// The event by which the agent takes up the texts that it has not taken up.
    #[must_use]
    pub fn untaken(&self) -> Option<EventBody> {
        let count = u32::try_from(self.steering.len()).unwrap_or(u32::MAX);
        let is_new = count > self.run.steering_taken() && self.run.ending().is_none();
        is_new.then_some(EventBody::SteeringTaken { count })
    }

    /// The directives that have no result yet.
    #[must_use]
    pub fn outstanding(&self) -> Vec<Directive> {
        self.run.outstanding(self.task)
    }

    /// The failure to record for a round that a previous incarnation began on an agentic backend and whose end is unknown.
    #[must_use]
    pub fn interrupted(&self) -> Option<EventBody> {
        self.run.interrupted()
    }

    /// Its report, once its loop has ended.
    #[must_use]
    pub fn report(&self, now: Micros) -> Option<AgentReport> {
        let ending = self.run.ending()?;
        let (status, result) = report::of_agent(&self.run, ending);
        Some(self.reported(status, result, now))
    }

    /// How long the agent may work, in milliseconds.
    #[must_use]
    pub fn ms_max(&self) -> u64 {
        self.spec.options.timeout_ms.unwrap_or_else(|| self.limits.agent_ms_max(self.calls_granted))
    }

    /// The agent's report with the state so far.
    #[must_use]
    pub fn reported(&self, status: ReportStatus, result: String, now: Micros) -> AgentReport {
        self.run.report(status, result, self.since, now)
    }

    /// Effects that may have happened, for a caller that knows which calls without a result may have begun.
    #[must_use]
    pub fn doubts(&self, may_have_begun: &dyn Fn(IntentId) -> bool) -> Vec<(String, Value)> {
        self.run.doubts_of(may_have_begun)
    }

    /// The report of an agent whose time is up. The time is checked before calls are started, so only calls for which
    /// `may_have_begun` returns true may have happened.
    #[must_use]
    pub fn timed_out(&mut self, now: Micros, may_have_begun: &dyn Fn(IntentId) -> bool) -> AgentReport {
        self.run.give_up_not_begun(may_have_begun);
        let ms = self.ms_max();
        let text = report::of_run(&format!("Ran out of time after {} s.", ms / 1_000), &self.run);
        self.reported(ReportStatus::Timeout, text, now)
    }
}
