//! The verdict of the loop guard on a call: a warning, or a veto.

use super::{CallPolicy, Candidate};
use crate::{
    event::{Action, CallVerdict, Refusal},
    loop_guard::LoopLevel,
    turn::calls::guarded,
};

pub(super) struct NoProgress;

impl CallPolicy for NoProgress {
    fn judge(&self, at: &Candidate<'_>) -> Option<CallVerdict> {
        let (name, arguments) = guarded(at.call);
        let is_unknown = matches!(at.call.action, Action::Answer { is_unknown: true, .. });
        let verdict = at.so_far.guard.verdict(&name, &arguments, is_unknown);
        match verdict.level {
            LoopLevel::Ok => None,
            LoopLevel::Warning => Some(CallVerdict::Warn { text: verdict.message }),
            LoopLevel::Critical => {
                Some(CallVerdict::Refuse { why: Refusal::NoProgress, text: format!("[blocked] {}", verdict.message) })
            }
        }
    }
}
