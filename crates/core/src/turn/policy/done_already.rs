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

/// The receipt of an equal effect of this turn, or of the turn that it continues or tries again. There is none for a workflow: if it
/// makes an equal call again, it means that, and each effect of an attempt before answers one call.
pub(super) fn receipt_of<'a>(run: &'a AgentRun, planned: &PlannedSkill) -> Option<&'a Receipt> {
    if run.workflow.is_some() {
        return None;
    }
    receipt::standing(run.known.iter().chain(&run.receipts), &planned.skill, &planned.arguments)
}
