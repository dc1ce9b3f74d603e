//! The limit on the calls of a run.

use super::{CallPolicy, Candidate};
use crate::event::{CallVerdict, Refusal};

pub(super) struct CallLimit;

impl CallPolicy for CallLimit {
    fn judge(&self, at: &Candidate<'_>) -> Option<CallVerdict> {
        let is_above = at.run.counts(&at.call.action) && at.so_far.calls_used >= at.budget.calls_max;
        is_above.then(|| CallVerdict::Refuse { why: Refusal::CallLimit, text: format!("[not run] {}", at.budget.note) })
    }
}
