//! Advice to the model after a failed skill: the step that the router decided [S3 4.4]. The kernel gives the advice so that a
//! small model need not find it. An error that says what to do itself has none.

use super::{ResultPolicy, ResultVerdict, SkillResult};

pub(super) struct Advice;

impl ResultPolicy for Advice {
    fn judge(&self, at: &SkillResult<'_>) -> Option<ResultVerdict> {
        let routed = at.routed.filter(|routed| !routed.hint.is_empty())?;
        Some(ResultVerdict::Note(format!("\nNext: {}", routed.hint)))
    }
}
