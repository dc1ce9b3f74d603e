//! What follows from a conversation's state alone: the next event, if there is one that needs nothing from outside. The
//! caller stores it, applies it and asks again.

use super::{
    Decision,
    conversation::{Conversation, Turn},
    opening::window_note,
    report,
    run::Ending,
};
use crate::{
    event::{AgentReport, EventBody, ReportStatus},
    ids::AgentId,
    message::Usage,
    plan::{Node, NodeState},
    time::Micros,
};

/// Where a decision is made.
#[derive(Clone, Copy)]
struct Now {
    at: Micros,
    /// Skill calls of the conversation within its sliding window, those of running agents not included.
    window_calls: u32,
}

impl Conversation {
    /// The next event that follows from the state, or nothing.
    #[must_use]
    pub fn decide(&self) -> Option<Decision> {
        if let Some(task) = self.cancelled.first() {
            let body = EventBody::Cancelled { text: report::CANCELLED.to_owned() };
            return Some(Decision { task: *task, agent: AgentId::orchestrator(), body });
        }
        let turn = self.turn.as_ref()?;
        turn.decide(Now { at: self.at, window_calls: self.window_calls(&turn.limits) })
    }
}

impl Turn {
    fn main(&self, body: EventBody) -> Decision {
        Decision { task: self.task, agent: AgentId::orchestrator(), body }
    }

    fn failed(&self, code: &str, text: &str, detail: String) -> Decision {
        let text = report::with_progress(text, self);
        self.main(EventBody::Failed { code: code.to_owned(), text, detail, letter: None })
    }

    fn reported(&self, now: Now, node: &Node, status: ReportStatus, result: String) -> Decision {
        let agent = node.spec.agent.clone();
        let run = self.runs.get(&agent);
        let report = AgentReport {
            status,
            result,
            tool_calls_used: run.map_or(0, |r| r.calls_used),
            duration_ms: if let NodeState::Running { since, .. } = node.state { now.at.since_ms(since) } else { 0 },
            usage: run.map(|r| r.usage).unwrap_or_default(),
        };
        Decision { task: self.task, agent, body: EventBody::AgentReported { report } }
    }

    fn usage(&self) -> Usage {
        let mut usage = self.main.usage;
        usage.add(&self.plan.usage());
        usage
    }

    fn decide(&self, now: Now) -> Option<Decision> {
        if self.cancelled {
            return Some(self.end_agents(now, "The turn was cancelled.").unwrap_or_else(|| {
                self.main(EventBody::Cancelled { text: report::with_progress(report::CANCELLED, self) })
            }));
        }
        // A turn that is being given up starts nobody.
        let is_given_up = matches!(self.main.ending(), Some(Ending::GaveUp(_) | Ending::ModelFailed(_)));
        self.poisoned(now)
            .or_else(|| if is_given_up { None } else { self.decide_agents(now) })
            .or_else(|| self.decide_ending(now))
    }

    /// A message that its Engine cannot survive is taken out of the way, so that the conversation goes on.
    fn poisoned(&self, now: Now) -> Option<Decision> {
        let (code, text, detail) = if self.crashes >= self.limits.crashes_max.max(1) {
            (
                "engine_crashed",
                "Something in Annie broke down repeatedly over this message, so I have set it aside.",
                format!("the engine died {} times in this turn", self.crashes),
            )
        } else if self.restarts >= self.limits.restarts_max.max(1) {
            (
                "process_restarted",
                "Annie was restarted too often over this message, so I have set it aside.",
                format!("the process ended {} times in this turn", self.restarts),
            )
        } else {
            return None;
        };
        Some(self.end_agents(now, "The turn was given up.").unwrap_or_else(|| self.failed(code, text, detail)))
    }

    /// A report for an agent that has none, before the turn may end.
    fn end_agents(&self, now: Now, why: &str) -> Option<Decision> {
        let node = self.plan.unreported().next()?;
        let result = match node.state {
            NodeState::Running { .. } => format!("{why} What it had done until then may have taken effect."),
            NodeState::Pending | NodeState::Reported(_) => format!("{why} It had not started."),
        };
        Some(self.reported(now, node, ReportStatus::Cancelled, result))
    }

    fn decide_agents(&self, now: Now) -> Option<Decision> {
        let turn_left = self.limits.skill_calls_max.saturating_sub(self.plan.calls_committed());
        let window_used = now.window_calls.saturating_add(self.plan.calls_granted());
        let window_left = self.limits.window_calls_max.saturating_sub(window_used);
        for (agent, verdict) in self.plan.decidable() {
            let Some(node) = self.plan.node(&agent) else { continue };
            if let Err(why) = verdict {
                return Some(self.reported(now, node, ReportStatus::Skipped, why));
            }
            let granted = node.spec.max_tool_calls.min(turn_left).min(window_left);
            if granted > 0 {
                let body = EventBody::AgentStarted { calls_granted: granted };
                return Some(Decision { task: self.task, agent, body });
            }
            // What is set aside for running agents comes back with their reports; only if none runs is it final.
            if self.plan.running().next().is_none() {
                let why = if turn_left == 0 {
                    format!("Not started: the {} skill calls of this turn are used up.", self.limits.skill_calls_max)
                } else {
                    format!("Not started: {}", window_note(&self.limits))
                };
                return Some(self.reported(now, node, ReportStatus::Skipped, why));
            }
        }
        None
    }

    fn decide_ending(&self, now: Now) -> Option<Decision> {
        let answered = |text: String, paused: bool| EventBody::Answered { text, paused, usage: self.usage() };
        let all_reported = self.plan.unreported().next().is_none();
        match self.main.ending()? {
            Ending::Said(_) if self.owes_results => all_reported.then(|| self.main(EventBody::ResultsGiven)),
            Ending::Said(text) => Some(self.main(answered(text.clone(), false))),
            // What was dispatched may finish: its results belong into the report.
            Ending::Tripped(why) => all_reported.then(|| self.main(answered(report::paused(self, why), true))),
            Ending::GaveUp(why) => Some(
                self.end_agents(now, "The turn was given up.")
                    .unwrap_or_else(|| self.main(answered(report::gave_up(self, why), false))),
            ),
            Ending::ModelFailed(error) => {
                Some(self.end_agents(now, "The orchestrator's model failed.").unwrap_or_else(|| {
                    let (code, text) = report::model_failed(error);
                    self.failed(code, text, error.to_string())
                }))
            }
        }
    }
}
