//! A call whose effect has a receipt is not made again: its result is the receipt.

use serde_json::Value;

use super::{CallPolicy, Candidate};
use crate::{
    event::{CallVerdict, PlannedSkill, Refusal},
    plan::first_line,
    receipt::{self, Receipt},
    turn::{
        calls::{DONE_ALREADY, done_already},
        run::AgentRun,
    },
};

pub(super) struct DoneAlready;

impl CallPolicy for DoneAlready {
    fn judge(&self, at: &Candidate<'_>) -> Option<CallVerdict> {
        let planned = at.effect()?;
        let text = match &at.run.workflow {
            Some(workflow) => {
                let earlier = at.so_far.done_before.iter().filter(|call| is_equal(call, planned)).count();
                let done = workflow.done_before(&planned.skill, &planned.arguments, earlier)?;
                format!("{DONE_ALREADY} {}", first_line(&done.text))
            }
            None => done_already(receipt_of(at.run, planned)?),
        };
        Some(CallVerdict::Refuse { why: Refusal::DoneAlready, text })
    }
}

fn is_equal((skill, arguments): &(String, Value), planned: &PlannedSkill) -> bool {
    *skill == planned.skill && *arguments == planned.arguments
}

/// The beginning of the names of the skills of the state.
const STATE_SKILLS: &str = "state.";

/// The receipt of an equal effect of this turn, or of the turn that it continues or tries again. There is none for a workflow: if it
/// makes an equal call again, it means that, and each effect of an attempt before answers one call.
pub(super) fn receipt_of<'a>(run: &'a AgentRun, planned: &PlannedSkill) -> Option<&'a Receipt> {
    // A value may have been set to another one since, by a front end too, and setting it again does no harm.
    if run.workflow.is_some() || planned.skill.starts_with(STATE_SKILLS) {
        return None;
    }
    receipt::standing(run.known.iter().chain(&run.receipts), &planned.skill, &planned.arguments)
}
