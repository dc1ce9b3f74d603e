//! What follows from a conversation's state alone: the next event, if there is one that needs nothing from outside. The
//! caller stores it, applies it and asks again.

use super::{
    Decision,
    conversation::{Conversation, Turn},
    report,
    run::Ending,
};
use crate::{
    event::{AgentReport, EventBody, ReportStatus},
    ids::AgentId,
    message::Usage,
    plan::NodeState,
};

impl Conversation {
    /// The next event that follows from the state, or nothing.
    #[must_use]
    pub fn decide(&self) -> Option<Decision> {
        if let Some(task) = self.cancelled.first() {
            return Some(Decision { task: *task, agent: AgentId::orchestrator(), body: cancelled() });
        }
        let turn = self.turn.as_ref()?;
        turn.decide(self.window_calls(turn))
    }

    /// Skill calls within the sliding window, and those set aside for running agents.
    fn window_calls(&self, turn: &Turn) -> u32 {
        let from = self.at.plus_ms(-i64::try_from(turn.limits.window_ms).unwrap_or(i64::MAX));
        let past = self.window.iter().filter(|t| **t >= from).count();
        let granted: u32 = turn
            .plan
            .nodes()
            .iter()
            .map(|n| if let NodeState::Running { calls_granted, .. } = n.state { calls_granted } else { 0 })
            .sum();
        u32::try_from(past).unwrap_or(u32::MAX).saturating_add(granted)
    }
}

fn cancelled() -> EventBody {
    EventBody::Cancelled { text: "Cancelled.".to_owned() }
}

impl Turn {
    fn main(&self, body: EventBody) -> Decision {
        Decision { task: self.task, agent: AgentId::orchestrator(), body }
    }

    fn reported(&self, agent: &AgentId, status: ReportStatus, result: String) -> Decision {
        let tool_calls_used = self.runs.get(agent).map_or(0, |r| r.calls_used);
        let usage = self.runs.get(agent).map(|r| r.usage).unwrap_or_default();
        let report = AgentReport { status, result, tool_calls_used, duration_ms: 0, usage };
        Decision { task: self.task, agent: agent.clone(), body: EventBody::AgentReported { report } }
    }

    fn usage(&self) -> Usage {
        let mut usage = self.main.usage;
        usage.add(&self.plan.usage());
        usage
    }

    fn decide(&self, window_calls: u32) -> Option<Decision> {
        if self.cancelled {
            return Some(self.end_agents("The turn was cancelled.").unwrap_or_else(|| self.main(cancelled())));
        }
        if let Some(body) = self.poisoned() {
            return Some(self.end_agents("The turn was given up.").unwrap_or_else(|| self.main(body)));
        }
        self.decide_agents(window_calls).or_else(|| self.decide_ending())
    }

    /// A message that its Engine cannot survive is taken out of the way, so that the conversation goes on.
    fn poisoned(&self) -> Option<EventBody> {
        let (code, text, detail) = if self.crashes > self.limits.crashes_max {
            let detail = format!("the engine died {} times in this turn", self.crashes);
            (
                "engine_crashed",
                "Something in Annie broke down repeatedly over this message, so I have set it aside.",
                detail,
            )
        } else if self.restarts > self.limits.restarts_max {
            let detail = format!("the process ended {} times in this turn", self.restarts);
            ("process_restarted", "Annie was restarted too often over this message, so I have set it aside.", detail)
        } else {
            return None;
        };
        Some(EventBody::Failed { code: code.to_owned(), text: text.to_owned(), detail })
    }

    /// A report for an agent that has none, before the turn may end.
    fn end_agents(&self, why: &str) -> Option<Decision> {
        let node = self.plan.unreported().next()?;
        Some(self.reported(&node.spec.agent, ReportStatus::Cancelled, why.to_owned()))
    }

    fn decide_agents(&self, window_calls: u32) -> Option<Decision> {
        for (agent, verdict) in self.plan.decidable() {
            if let Err(why) = verdict {
                return Some(self.reported(&agent, ReportStatus::Skipped, why));
            }
            let wanted = self.plan.node(&agent).map_or(0, |n| n.spec.max_tool_calls);
            let turn_left = self.limits.skill_calls_max.saturating_sub(self.plan.calls_committed());
            let window_left = self.limits.window_calls_max.saturating_sub(window_calls);
            let granted = wanted.min(turn_left).min(window_left);
            if granted > 0 {
                let body = EventBody::AgentStarted { calls_granted: granted };
                return Some(Decision { task: self.task, agent, body });
            }
            // What is set aside for running agents comes back with their reports; only if none runs is it final.
            if !self.plan.nodes().iter().any(|n| matches!(n.state, NodeState::Running { .. })) {
                let why = if turn_left == 0 {
                    format!("Not started: the {} skill calls of this turn are used up.", self.limits.skill_calls_max)
                } else {
                    format!(
                        "Not started: this conversation has made {} skill calls within {} s; try again later.",
                        self.limits.window_calls_max,
                        self.limits.window_ms / 1_000
                    )
                };
                return Some(self.reported(&agent, ReportStatus::Skipped, why));
            }
        }
        None
    }

    fn decide_ending(&self) -> Option<Decision> {
        let usage = self.usage();
        match self.main.ending()? {
            Ending::Said(_) if self.owes_results => {
                self.plan.unreported().next().is_none().then(|| self.main(EventBody::ResultsGiven))
            }
            Ending::Said(text) => {
                let text = text.clone();
                Some(self.main(EventBody::Answered { text, paused: false, usage }))
            }
            // What runs may finish: its results belong into the report.
            Ending::Tripped(why) => self
                .plan
                .unreported()
                .next()
                .is_none()
                .then(|| self.main(EventBody::Answered { text: report::paused(self, why), paused: true, usage })),
            Ending::GaveUp(why) => Some(self.end_agents("The turn was given up.").unwrap_or_else(|| {
                self.main(EventBody::Answered { text: report::gave_up(self, why), paused: false, usage })
            })),
            Ending::ModelFailed(error) => {
                Some(self.end_agents("The orchestrator's model failed.").unwrap_or_else(|| {
                    let (code, text) = report::model_failed(error);
                    self.main(EventBody::Failed {
                        code: code.to_owned(),
                        text: text.to_owned(),
                        detail: error.to_string(),
                    })
                }))
            }
        }
    }
}
