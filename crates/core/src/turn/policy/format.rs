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
            // The answer says what the reason does not: that the offline planner, for example, is no language model.
            Err(why) => {
                let why = why.join("; ");
                let is_prose = !text.trim_start().starts_with(['{', '[', '`']) && !text.trim().is_empty();
                let said = is_prose.then(|| format!(". The answer was: {}", first_chars(text.trim(), SAID_CHARS_MAX)));
                AnswerVerdict::Refuse(format!("{why}{}", said.unwrap_or_default()))
            }
        })
    }
}

/// How much of an answer without the requested form its failure repeats, in characters.
const SAID_CHARS_MAX: usize = 300;

fn first_chars(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some((at, _)) => format!("{} …", text[..at].trim_end()),
    }
}
