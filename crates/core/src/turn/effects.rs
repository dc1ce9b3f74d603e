//! Equal effects of the agents of one turn: agents that run concurrently and request the same call (skill and resolved
//! arguments) make it once. The decision is stored in the event of the reply that requested the call. A call that another
//! agent has made, or may have made, is answered there and never planned. While another agent is making the call, the reply
//! is not recorded.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    calls::{IN_DOUBT, done_already},
    conversation::Turn,
    run::AgentRun,
};
use crate::{
    event::{Action, AgentReport, PlannedSkill, ResolvedCall},
    ids::AgentId,
    plan::NodeState,
    receipt::{self, Receipt},
    skill::Effect,
};

/// Whether a reply can be recorded now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// Yes: its calls are in the form to record.
    Settled,
    /// No: another agent is making a call that equals one of this reply. The reply is judged again when that call has ended.
    Waits,
}

/// The calls that the agents of one turn have made, may have made and are making. When an Engine starts agents, this is
/// rebuilt from the turn's state, that is from the log. While the agents run, each notes its own calls before it stores a
/// reply.
#[derive(Debug, Default)]
pub struct TurnEffects {
    agents: BTreeMap<AgentId, Effects>,
}

#[derive(Debug, Default)]
struct Effects {
    /// Planned calls without a result.
    open: Vec<(String, Value)>,
    receipts: Vec<Receipt>,
    in_doubt: Vec<(String, Value)>,
}

enum Elsewhere {
    Open,
    Done(Receipt),
    InDoubt,
}

impl TurnEffects {
    /// Adds all agents of a turn at once, so that no reply is judged before all running agents are known.
    pub fn learn(&mut self, turn: &Turn) {
        let main = &turn.main;
        let of_main = Effects {
            open: Vec::new(),
            // The receipts of the turn that this turn continues are older.
            receipts: main.known.iter().chain(&main.receipts).cloned().collect(),
            in_doubt: main.in_doubt.clone(),
        };
        self.agents.insert(main.agent.clone(), of_main);
        for node in turn.agents.plan.nodes() {
            let agent = &node.spec.agent;
            match (&node.state, turn.agents.runs.get(agent)) {
                (NodeState::Reported(report), _) => self.ended(agent, report),
                // A live agent notes its own calls. The Engine only has its state from when it started.
                (NodeState::Running { .. }, Some(run)) if !self.agents.contains_key(agent) => self.note(run),
                (NodeState::Running { .. } | NodeState::Pending, _) => {}
            }
        }
    }

    /// Judges the calls of a reply of `agent` against the calls of the other agents. Calls that must not be made get their
    /// result. An agent that is no longer patient does not wait: a call that another agent is making counts as in doubt.
    pub fn judge(&self, agent: &AgentId, calls: &mut [ResolvedCall], is_patient: bool) -> Judged {
        let mut answers = Vec::new();
        for (at, call) in calls.iter().enumerate() {
            let Action::Skill(planned) = &call.action else { continue };
            if planned.effect == Effect::Read {
                continue;
            }
            match self.elsewhere(agent, planned) {
                Some(Elsewhere::Open) if is_patient => return Judged::Waits,
                Some(Elsewhere::Done(receipt)) => answers.push((at, done_already(&receipt), false)),
                Some(Elsewhere::InDoubt | Elsewhere::Open) => answers.push((at, IN_DOUBT.to_owned(), true)),
                None => {}
            }
        }
        for (at, text, is_error) in answers {
            calls[at].action = Action::Answer { text, is_error, is_unknown: false, is_malformed: false };
        }
        Judged::Settled
    }

    fn elsewhere(&self, agent: &AgentId, planned: &PlannedSkill) -> Option<Elsewhere> {
        let (skill, arguments) = (&planned.skill, &planned.arguments);
        let is_same_call = |other: &(String, Value)| other.0 == *skill && other.1 == *arguments;
        let others = || self.agents.iter().filter(|(other, _)| *other != agent).map(|(_, effects)| effects);
        let own = self.agents.get(agent).map_or(&[][..], |effects| &effects.receipts);
        let standing = receipt::standing(others().flat_map(|e| &e.receipts).chain(own), skill, arguments);
        // The agent itself answers calls that have one of its own receipts.
        if let Some(receipt) = standing.filter(|receipt| !own.iter().any(|own| std::ptr::eq(own, *receipt))) {
            return Some(Elsewhere::Done(receipt.clone()));
        }
        if others().any(|e| e.in_doubt.iter().any(is_same_call)) {
            return Some(Elsewhere::InDoubt);
        }
        others().any(|e| e.open.iter().any(is_same_call)).then_some(Elsewhere::Open)
    }

    /// Notes the calls that an agent has made, may have made and is making.
    pub fn note(&mut self, run: &AgentRun) {
        let open = run.open_calls().iter().filter(|open| open.has_open_effect());
        let open = open.filter_map(|o| o.planned().map(|p| (p.skill.clone(), p.arguments.clone()))).collect();
        let effects = Effects { open, receipts: run.receipts.clone(), in_doubt: run.in_doubt.clone() };
        self.agents.insert(run.agent.clone(), effects);
    }

    /// Notes the end of an agent. Its report lists the calls that it was making as in doubt.
    fn ended(&mut self, agent: &AgentId, report: &AgentReport) {
        let (receipts, in_doubt) = (report.receipts.clone(), report.in_doubt.clone());
        self.agents.insert(agent.clone(), Effects { open: Vec::new(), receipts, in_doubt });
    }
}
