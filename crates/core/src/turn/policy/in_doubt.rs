//! A call whose effect may have happened already is not made again.

use serde_json::Value;

use super::{CallPolicy, Candidate};
use crate::{
    event::{CallVerdict, Refusal},
    turn::{calls::IN_DOUBT, run::AgentRun},
};

pub(super) struct InDoubt;

impl CallPolicy for InDoubt {
    fn judge(&self, at: &Candidate<'_>) -> Option<CallVerdict> {
        let planned = at.effect()?;
        may_have_happened(at.run, &planned.skill, &planned.arguments)
            .then(|| CallVerdict::Refuse { why: Refusal::InDoubt, text: IN_DOUBT.to_owned() })
    }
}

/// Whether an equal effect may have happened.
pub(super) fn may_have_happened(run: &AgentRun, skill: &str, arguments: &Value) -> bool {
    run.in_doubt.iter().any(|(s, a)| s == skill && a == arguments)
}
