//! Prevents concurrent agents of one turn from causing the same effect twice. Two calls are equal if their skill and
//! their resolved arguments are. Before the reply of an agent is recorded, its calls are compared with those of the
//! other agents:
//!
//! - If another agent has made an equal call, or may have made it, the call is not planned. The event of the reply has
//!   an answer in its place.
//! - If another agent is making an equal call now, the reply is not recorded. It is judged again when that call has
//!   ended.
//!
//! The verdict is a part of the recorded event, so that a replay does not judge again.

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
    /// The reply can be recorded, with its calls as they are now.
    Settled,
    /// The reply must wait: another agent is making a call that equals one of its calls.
    Waits,
}

/// The calls with effects of the agents of one turn: those that were made, those that may have been made, and those
/// that are being made. When an Engine starts agents, this is built from the folded state of the turn. While the agents
/// run, each of them adds its own calls before it stores a reply.
#[derive(Debug, Default)]
pub struct TurnEffects {
    agents: BTreeMap<AgentId, Effects>,
}

/// The calls with effects of one agent.
#[derive(Debug, Default)]
struct Effects {
    /// Planned calls without a result.
    open: Vec<(String, Value)>,
    receipts: Vec<Receipt>,
    in_doubt: Vec<(String, Value)>,
}

/// What other agents have to do with a call.
enum Elsewhere {
    /// One of them is making an equal call.
    Open,
    /// An equal call has this receipt.
    Done(Receipt),
    /// One of them may have made an equal call.
    InDoubt,
}

impl TurnEffects {
    /// Adds all agents of a turn at once, so that no reply is judged before all running agents are known.
    pub fn learn(&mut self, turn: &Turn) {
        let main = &turn.main;
        let of_main = Effects {
            open: Vec::new(),
            // In the order of their age: the receipts of the turn that this turn continues are older.
            receipts: main.known.iter().chain(&main.receipts).cloned().collect(),
            in_doubt: main.in_doubt.clone(),
        };
        self.agents.insert(main.agent.clone(), of_main);
        for node in turn.agents.plan.nodes() {
            let agent = &node.spec.agent;
            match (&node.state, turn.agents.runs.get(agent)) {
                (NodeState::Reported(report), _) => self.ended(agent, report),
                // A running agent that is known here adds its own calls. The Engine's state of it may be older.
                (NodeState::Running { .. }, Some(run)) if !self.agents.contains_key(agent) => self.note(run),
                (NodeState::Running { .. } | NodeState::Pending, _) => {}
            }
        }
    }

    /// Judges the calls of a reply of `agent` against the calls of the other agents. A call that must not be made is
    /// replaced by its answer. With `is_patient` false the reply does not wait any longer: a call that another agent is
    /// making counts as in doubt.
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

    /// The result with which a call of `agent` is not made, because another agent has made an equal call, may have made it, or is
    /// making it. The call waits for no other agent.
    #[must_use]
    pub fn refusal(&self, agent: &AgentId, planned: &PlannedSkill) -> Option<String> {
        if planned.effect == Effect::Read {
            return None;
        }
        Some(match self.elsewhere(agent, planned)? {
            Elsewhere::Done(receipt) => done_already(&receipt),
            Elsewhere::InDoubt | Elsewhere::Open => IN_DOUBT.to_owned(),
        })
    }

    fn elsewhere(&self, agent: &AgentId, planned: &PlannedSkill) -> Option<Elsewhere> {
        let (skill, arguments) = (&planned.skill, &planned.arguments);
        let is_same_call = |other: &(String, Value)| other.0 == *skill && other.1 == *arguments;
        let others = || self.agents.iter().filter(|(other, _)| *other != agent).map(|(_, effects)| effects);
        let own = self.agents.get(agent).map_or(&[][..], |effects| &effects.receipts);
        let standing = receipt::standing(others().flat_map(|e| &e.receipts).chain(own), skill, arguments);
        // A call with a receipt of the agent itself is answered when the agent folds its reply.
        if let Some(receipt) = standing.filter(|receipt| !own.iter().any(|own| std::ptr::eq(own, *receipt))) {
            return Some(Elsewhere::Done(receipt.clone()));
        }
        if others().any(|e| e.in_doubt.iter().any(is_same_call)) {
            return Some(Elsewhere::InDoubt);
        }
        others().any(|e| e.open.iter().any(is_same_call)).then_some(Elsewhere::Open)
    }

    /// Replaces what is known of an agent by the calls in its run.
    pub fn note(&mut self, run: &AgentRun) {
        let open = run.open_calls().iter().filter(|open| open.has_open_effect());
        let open = open.filter_map(|o| o.planned().map(|p| (p.skill.clone(), p.arguments.clone()))).collect();
        let effects = Effects { open, receipts: run.receipts.clone(), in_doubt: run.in_doubt.clone() };
        self.agents.insert(run.agent.clone(), effects);
    }

    /// Replaces what is known of an agent by its report, which has the calls that it was making as in doubt.
    fn ended(&mut self, agent: &AgentId, report: &AgentReport) {
        let (receipts, in_doubt) = (report.receipts.clone(), report.in_doubt.clone());
        self.agents.insert(agent.clone(), Effects { open: Vec::new(), receipts, in_doubt });
    }
}
