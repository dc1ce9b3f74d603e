//! A result that the model has just read and requested again is marked, so that the model answers from it.

use super::{ResultPolicy, ResultVerdict, SkillResult};
use crate::{
    skill::Effect,
    turn::calls::{SAME_RESULT, guarded},
};

pub(super) struct SameResult;

impl ResultPolicy for SameResult {
    fn judge(&self, at: &SkillResult<'_>) -> Option<ResultVerdict> {
        let is_read = at.open.planned().is_some_and(|planned| planned.effect == Effect::Read);
        let (skill, arguments) = guarded(&at.open.call);
        (is_read && at.outcome.status.is_ok() && at.run.guard.repeats_result(&skill, &arguments, at.text))
            .then(|| ResultVerdict::Note(SAME_RESULT.to_owned()))
    }
}
