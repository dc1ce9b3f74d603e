//! The plan: the sub-agents of a turn, from their dispatch to their reports.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Now;
use crate::{
    context::{clip, escape},
    event::{Action, AgentReport, DispatchSpec, EventBody, ReportStatus},
    ids::{AgentId, TaskId},
    plan::{NOT_STARTED, Node, NodeState, Plan},
    time::Micros,
    turn::{
        Decision,
        conversation::{Conversation, Turn},
        opening::window_note,
        run::{AgentRun, Ending, Phase},
        sub,
        sub::SubTurn,
    },
};

/// The sub-agents of a turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Agents {
    /// The agents and the dependencies between them.
    pub plan: Plan,
    /// The states of the running agents according to the log. Agents are started or resumed with these.
    pub runs: BTreeMap<AgentId, AgentRun>,
    /// The progress of the live agents, as they report it to their Engine. If the turn ends an agent, the agent's report is made
    /// from its progress. A replay has it in `runs`.
    #[serde(skip)]
    pub(in crate::turn) progress: BTreeMap<AgentId, AgentReport>,
    /// The main agent answered before it saw its agents' results, and must receive them before the turn ends.
    pub owes_results: bool,
}

impl Agents {
    /// Whether every run belongs to an agent of the plan that runs.
    pub(in crate::turn) fn are_in_plan(&self) -> bool {
        let runs = |agent: &AgentId| self.plan.running().any(|node| node.spec.agent == *agent);
        self.runs.keys().all(runs) && self.progress.keys().all(runs)
    }
}

impl Conversation {
    /// Records the progress of a live sub-agent. A live Engine does not fold the events of its agents, so it calls this before
    /// [`Self::decide`]. If the turn then ends the agent, the agent's report contains its progress.
    pub fn agent_progress(&mut self, task: TaskId, agent: &AgentId, progress: AgentReport) {
        let Some(turn) = self.turns.iter_mut().find(|t| t.task == task) else { return };
        if turn.agents.runs.contains_key(agent) {
            turn.agents.progress.insert(agent.clone(), progress);
        }
    }

    /// The state with which a sub-agent runs.
    #[must_use]
    pub fn sub_turn(&self, task: TaskId, agent: &AgentId) -> Option<SubTurn> {
        let turn = self.turn(task)?;
        let node = turn.agents.plan.node(agent)?;
        let NodeState::Running { calls_granted, since } = node.state else { return None };
        let backends = &node.spec.options.backends;
        Some(SubTurn {
            task: turn.task,
            user: self.user.clone(),
            conversation: self.id,
            spec: node.spec.clone(),
            facts: turn.facts.clone(),
            channels: turn.channels(),
            is_private: turn.inbound.private,
            limits: turn.limits.clone(),
            priority: turn.inbound.priority,
            shift_ms: turn.inbound.mood.map_or(0, |mood| mood.shift_ms()),
            route: if backends.is_empty() { turn.route.clone() } else { backends.clone() },
            run: turn.agents.runs.get(agent)?.clone(),
            steering: node.steering.clone(),
            calls_granted,
            since,
        })
    }
}

/// The text of the report of an agent that ends before its own end.
pub(super) fn ended_by(node: &Node, why: &str) -> String {
    match node.state {
        NodeState::Running { .. } => format!("{why} What it had done until then may have taken effect."),
        NodeState::Pending | NodeState::Reported(_) => format!("{why} It had not started."),
    }
}

impl Turn {
    /// Adds all dispatches of the reply to the plan at once, because they may depend on each other.
    pub(in crate::turn) fn dispatch(&mut self) {
        let (ids, specs): (Vec<String>, Vec<DispatchSpec>) = self
            .main
            .open_calls()
            .iter()
            .filter(|o| o.result.is_none())
            .filter_map(|o| match &o.call.action {
                Action::Dispatch(spec) => Some((o.call.id.clone(), spec.clone())),
                _ => None,
            })
            .unzip();
        let verdicts = self.agents.plan.add(&specs, self.limits.agents_max);
        for ((call_id, spec), verdict) in ids.into_iter().zip(&specs).zip(verdicts) {
            let text = match verdict {
                Ok(()) => serde_json::json!({"agent_id": spec.agent, "status": "accepted"}).to_string(),
                Err(why) => format!("Error: {why}"),
            };
            self.main.answer(&call_id, text);
        }
    }

    pub(in crate::turn) fn agent_started(&mut self, agent: &AgentId, calls_granted: u32, at: Micros) {
        if self.agents.plan.started(agent, calls_granted, at)
            && let Some(node) = self.agents.plan.node(agent)
        {
            let run = sub::first_run(node, self, calls_granted);
            self.agents.runs.insert(agent.clone(), run);
        }
    }

    pub(in crate::turn) fn agent_reported(&mut self, at: Micros, agent: &AgentId, report: &AgentReport) -> u32 {
        let result = clip(&report.result, self.limits.result_bytes_max()).into_owned();
        let shown = AgentReport { result, failed_calls: Vec::new(), ..report.clone() };
        if !self.agents.plan.reported(agent, shown) {
            return 0;
        }
        self.agents.runs.remove(agent);
        self.agents.progress.remove(agent);
        let more_ms = report.waited_ms.saturating_sub(self.clock.agents_waited_ms);
        self.clock.credit(more_ms, at);
        self.clock.agents_waited_ms += more_ms;
        let more_ms = report.prefill_ms.saturating_sub(self.clock.agents_prefill_ms);
        self.clock.credit_prefill(more_ms, at);
        self.clock.agents_prefill_ms += more_ms;
        self.main.learn_failures(report);
        self.main.guard.learn(&report.failed_calls);
        self.main.provenance.add_ids(report.ids.iter().copied());
        self.main.provenance.reported(report);
        self.settle();
        self.agents.plan.node(agent).map_or(0, Node::charged)
    }

    /// Gives the orchestrator, which answered before it saw its agents' results, these results and another round.
    pub(in crate::turn) fn give_results(&mut self) {
        if !self.agents.owes_results || self.agents.plan.unreported().next().is_some() {
            return;
        }
        debug_assert!(matches!(self.main.ending(), Some(Ending::Output(_))), "only an answer owes results");
        self.agents.owes_results = false;
        let results = escape(&self.agents.plan.collect(&[])).into_owned();
        self.main.note(&format!("[Agent results]\n{results}\n[Answer the user from these.]"));
        self.main.next_round();
    }

    /// Updates whether the answer must wait for agents whose results the model has not seen.
    pub(in crate::turn) fn note_owed_results(&mut self) {
        self.agents.owes_results =
            matches!(self.main.phase, Phase::Ended(Ending::Output(_))) && self.agents.plan.has_uncollected();
    }

    pub(in crate::turn) fn decide_agents(&self, now: Now) -> Option<Decision> {
        let turn_left = self.limits.skill_calls_max.saturating_sub(self.agents.plan.calls_committed());
        let window_left = self.limits.window_calls_max.saturating_sub(now.window_used);
        for (agent, verdict) in self.agents.plan.decidable() {
            let Some(node) = self.agents.plan.node(&agent) else { continue };
            if let Err(why) = verdict {
                return Some(self.reported(now, node, ReportStatus::Skipped, why));
            }
            let granted = node.spec.max_tool_calls.min(turn_left).min(window_left);
            if granted > 0 {
                let body = EventBody::AgentStarted { calls_granted: granted };
                return Some(Decision { task: self.task, agent, body });
            }
            // Running agents return their unused calls with their reports, so a used-up limit is final only if no agent runs.
            if self.agents.plan.running().next().is_none() {
                let why = if turn_left == 0 {
                    format!("{NOT_STARTED}the {} skill calls of this turn are used up.", self.limits.skill_calls_max)
                } else {
                    format!("{NOT_STARTED}{}", window_note(&self.limits))
                };
                return Some(self.reported(now, node, ReportStatus::Skipped, why));
            }
        }
        None
    }

    /// Reports an agent without a report as cancelled. A turn ends only after all its agents have reports.
    pub(in crate::turn) fn end_agents(&self, now: Now, why: &str) -> Option<Decision> {
        let node = self.agents.plan.unreported().next()?;
        Some(self.reported(now, node, ReportStatus::Cancelled, ended_by(node, why)))
    }

    pub(in crate::turn) fn reported(&self, now: Now, node: &Node, status: ReportStatus, result: String) -> Decision {
        let agent = node.spec.agent.clone();
        let since = if let NodeState::Running { since, .. } = node.state { since } else { now.at };
        // The progress of a live agent is newer than the state that the Engine read from the log when it started.
        let report = match (self.agents.progress.get(&agent), self.agents.runs.get(&agent)) {
            (Some(progress), _) => {
                AgentReport { status, result, duration_ms: now.at.since_ms(since), ..progress.clone() }
            }
            (None, Some(run)) => run.report(status, result, since, now.at),
            (None, None) => AgentReport { duration_ms: now.at.since_ms(since), ..AgentReport::bare(status, result) },
        };
        Decision { task: self.task, agent, body: EventBody::AgentReported { report } }
    }
}
