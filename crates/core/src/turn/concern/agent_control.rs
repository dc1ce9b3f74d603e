//! Control of single sub-agents by a person or by the main agent: texts that reach an agent in its next round, and its end.

use super::Now;
use crate::{
    event::{Action, EventBody, ReportStatus},
    ids::AgentId,
    plan::AgentSteer,
    turn::{
        Decision,
        conversation::Turn,
        interface::USER_ADDS,
        run::{AgentRun, Phase},
    },
};

/// The beginning of a text by which the main agent steers an agent.
const PARENT_ADDS: &str = "[The agent that gave you the mission adds:]";
/// Why an agent ends that the main agent stopped.
const STOPPED_BY_PARENT: &str = "Cancelled by the orchestrator.";

/// Why an agent ends that a person stopped.
fn stopped_by(by: &str, reason: &str) -> String {
    if reason.is_empty() { format!("Cancelled by {by}.") } else { format!("Cancelled by {by}: {reason}.") }
}

impl Turn {
    /// Folds the control of one of its agents by a person.
    pub(in crate::turn) fn controlled(&mut self, agent: &AgentId, body: &EventBody) {
        if let EventBody::AgentSteered { by, text } = body {
            self.agents.plan.steer(agent, AgentSteer { by: Some(by.clone()), text: text.clone(), origins: Vec::new() });
        } else if let EventBody::AgentStopRequested { by, reason } = body {
            self.agents.plan.stop(agent, stopped_by(by, reason));
        }
    }

    /// Carries out the calls by which the main agent steers or stops its agents.
    pub(in crate::turn) fn control_agents(&mut self) {
        let open = self.main.open_calls().iter().filter(|open| open.result.is_none());
        let asked: Vec<(String, AgentId, Option<String>)> = open
            .filter_map(|open| match &open.call.action {
                Action::ControlAgent { agent, text } => Some((open.call.id.clone(), agent.clone(), text.clone())),
                _ => None,
            })
            .collect();
        for (call_id, agent, text) in asked {
            let result = self.control_agent(&agent, text);
            let answer = match result {
                Ok(status) => serde_json::json!({"agent_id": agent, "status": status}).to_string(),
                Err(why) => format!("Error: {why}."),
            };
            self.main.answer(&call_id, answer);
        }
    }

    fn control_agent(&mut self, agent: &AgentId, text: Option<String>) -> Result<&'static str, String> {
        let plan = &mut self.agents.plan;
        let node = plan.node(agent).ok_or_else(|| format!("no agent {agent} was dispatched in this turn"))?;
        if !node.is_open() {
            return Err(format!("agent {agent} has ended already"));
        }
        match text {
            Some(text) => match AgentSteer::refusal(&text, node.steering.len()) {
                Some(why) => Err(why),
                None => {
                    let origins = self.main.provenance.origins().to_vec();
                    plan.steer(agent, AgentSteer { by: None, text, origins });
                    Ok("steered")
                }
            },
            None => {
                plan.stop(agent, STOPPED_BY_PARENT.to_owned());
                Ok("stopped")
            }
        }
    }

    /// The report of an agent that was stopped.
    pub(in crate::turn) fn end_stopped_agent(&self, now: Now) -> Option<Decision> {
        let (node, why) = self.agents.plan.stopped()?;
        Some(self.reported(now, node, ReportStatus::Cancelled, super::plan::ended_by(node, why)))
    }
}

impl AgentRun {
    /// Takes up the first `count` of these texts, if it has not yet. They are in its context from its next round on, and each
    /// gives it a further round.
    pub(in crate::turn) fn take_steering(&mut self, all: &[AgentSteer], count: u32) {
        let until = all.len().min(count as usize);
        for steer in all.get(self.steering_taken as usize..until).unwrap_or_default() {
            self.steered.push(steer.clone());
            self.steering_taken += 1;
            self.rounds_max = self.rounds_max.saturating_add(1);
        }
    }

    /// How many texts the agent has taken up.
    #[must_use]
    pub const fn steering_taken(&self) -> u32 {
        self.steering_taken
    }

    /// Adds the texts that were taken up to the context of the round that begins.
    pub(in crate::turn) fn deliver_steered(&mut self) {
        debug_assert!(
            self.steered.is_empty() || self.phase == Phase::Thinking,
            "texts are added to a round that begins"
        );
        for AgentSteer { by, text, origins } in std::mem::take(&mut self.steered) {
            match by {
                Some(_) => {
                    self.add_user_message(&format!("{USER_ADDS}, while you work on this:]\n{text}"));
                    self.provenance.add_user_text(&text);
                }
                None => {
                    self.add_user_message(&format!("{PARENT_ADDS}\n{text}"));
                    self.provenance.passed_on(&text, &origins);
                }
            }
        }
    }
}
