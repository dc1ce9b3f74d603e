//! The end of a sub-agent's run with a final text: the report may have to fit a schema.

use super::{AgentRun, Ending, RunKind};
use crate::caller::AnswerFormat;

/// How much of a report that does not fit its schema the parent sees, in characters.
const UNFIT_CHARS_MAX: usize = 2_000;

impl AgentRun {
    /// Ends the run with this final text, or starts another round, in which the model corrects a report that does not fit its
    /// schema. It is asked once.
    pub(super) fn finish_with(&mut self, text: String, has_rounds: bool) {
        if has_rounds && !self.steered.is_empty() {
            // The model has not seen what was added to its mission.
            self.next_round();
            return;
        }
        let Some(format) = self.report_format.as_ref().filter(|_| matches!(self.kind, RunKind::Sub(_))) else {
            self.end(Ending::Output(text));
            return;
        };
        match format.check(&text) {
            Ok(json) => self.end(Ending::Output(json)),
            Err(why) if has_rounds && !self.corrected_report => {
                let note = format!(
                    "[Your report does not have the form that was asked for: {}.\n{}]",
                    why.join("; "),
                    format.instruction()
                );
                self.corrected_report = true;
                self.note(&note);
                self.next_round();
            }
            Err(why) => {
                let shown: String = text.chars().take(UNFIT_CHARS_MAX).collect();
                let asked = if self.corrected_report { ", also after a correction" } else { "" };
                let why = why.join("; ");
                self.end(Ending::Unfit(format!(
                    "The report does not fit output_schema{asked}: {why}. The report was:\n{shown}"
                )));
            }
        }
    }
}

/// The format of a report that must fit this schema.
pub(in crate::turn) fn report_format(schema: serde_json::Value) -> AnswerFormat {
    AnswerFormat::JsonSchema { name: "report".to_owned(), description: None, schema, strict: false }
}
