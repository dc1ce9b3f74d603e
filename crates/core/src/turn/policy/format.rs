//! The format that a program requested for its answer. A final text that does not match is corrected by the model once. A cut
//! answer is delivered as it is, with the finish reason `length`.

use super::{AnswerPolicy, AnswerVerdict};
use crate::turn::conversation::Turn;

/// How often the model is asked to correct an answer that does not have the requested format.
const REPAIRS_MAX: u32 = 1;

pub(super) struct RequestedFormat;

impl AnswerPolicy for RequestedFormat {
    fn judge(&self, turn: &Turn, text: &str) -> Option<AnswerVerdict> {
        let format = turn.format()?;
        if turn.agents.owes_results || !turn.main.finish.is_stop() {
            return None;
        }
        Some(match format.check(text) {
            Ok(json) => AnswerVerdict::Replace(json),
            Err(why) if turn.format_repairs < REPAIRS_MAX && turn.main.round < turn.main.rounds_max => {
                let why = why.join("; ");
                AnswerVerdict::Correct(format!(
                    "[Your answer does not have the form that was asked for: {why}.\n{}]",
                    format.instruction()
                ))
            }
            Err(why) => AnswerVerdict::Refuse(why.join("; ")),
        })
    }
}
