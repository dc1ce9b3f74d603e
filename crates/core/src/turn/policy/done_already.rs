//! A call whose effect has a receipt is not made again: its result is the receipt.

use super::{CallPolicy, Candidate};
use crate::{
    event::{CallVerdict, PlannedSkill, Refusal},
    receipt::{self, Receipt},
    turn::{calls::done_already, run::AgentRun},
};

pub(super) struct DoneAlready;

impl CallPolicy for DoneAlready {
    fn judge(&self, at: &Candidate<'_>) -> Option<CallVerdict> {
        let text = done_already(receipt_of(at.run, at.effect()?)?);
        Some(CallVerdict::Refuse { why: Refusal::DoneAlready, text })
    }
}

/// The receipt of an equal effect of this turn, or of the turn that it continues or tries again. A workflow that makes an equal call
/// again means it, so only the receipts of an attempt before count.
pub(super) fn receipt_of<'a>(run: &'a AgentRun, planned: &PlannedSkill) -> Option<&'a Receipt> {
    let own: &[Receipt] = if run.workflow.is_some() { &[] } else { &run.receipts };
    receipt::standing(run.known.iter().chain(own), &planned.skill, &planned.arguments)
}
