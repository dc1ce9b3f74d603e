//! A result that may not answer the request is flagged, so that the model does not believe it.

use super::{ResultPolicy, ResultVerdict, SkillResult};

pub(super) struct Confidence;

impl ResultPolicy for Confidence {
    fn judge(&self, at: &SkillResult<'_>) -> Option<ResultVerdict> {
        let doubts = &at.outcome.doubts;
        (!doubts.is_empty()).then(|| {
            ResultVerdict::Note(format!(
                "\n[confidence {:.2}] This may not answer the request: {}. Check it, go another way, or say so to the user.",
                at.outcome.confidence,
                doubts.join("; ")
            ))
        })
    }
}
