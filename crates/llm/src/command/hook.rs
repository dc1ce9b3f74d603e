//! A program as a hook. It gets the question as JSON on stdin and answers with JSON on stdout. An exit code of 2 refuses, and
//! stderr is the reason, as hooks of other agents do it.

use std::sync::Arc;

use annie_core::{
    event::HookAnswer,
    hooks::HookQuestion,
    ports::{DraftSink, Fut, HookRunner},
};
use annie_process::ShimReport;

use super::{
    CommandConfig, CommandModel, outcome,
    run::{Ended, execute},
};
use crate::error::LlmError;

/// The exit code that refuses.
const REFUSES: i32 = 2;
/// The reason of a program that gives none.
const NO_REASON: &str = "The rule's program refused it.";

/// A hook that is a program on this machine. It is started like the program of a backend, under the same limits.
#[derive(Debug)]
pub struct ProgramHook {
    program: CommandModel,
}

impl ProgramHook {
    /// Creates a hook for one configured program. `lookup` reads the variables of this process that are passed on. Does not
    /// start the program.
    ///
    /// # Errors
    /// Fails if a setting is invalid.
    pub fn new(config: CommandConfig, lookup: impl Fn(&str) -> Option<String>) -> Result<Self, LlmError> {
        Ok(Self { program: CommandModel::new(config, lookup)? })
    }

    async fn run(&self, question: &HookQuestion) -> Result<HookAnswer, String> {
        let config = self.program.config();
        let input = serde_json::to_string(question).map_err(|e| e.to_string())?;
        if input.len() > config.prompt_bytes_max {
            return Err(format!("the question has {} bytes, {} are allowed", input.len(), config.prompt_bytes_max));
        }
        // Nothing of the output is shown before the answer is whole.
        let drafts: DraftSink = Arc::new(|_| ());
        let ended = execute(&self.program, input, &drafts).await;
        let Ended { how, report, output } = ended.map_err(|e| e.detail)?;
        let status = how.map_err(|why| outcome::broken(config, &why, &output).detail)?;
        if status.success() {
            return answer(&output.reply.bytes);
        }
        let never_began = report == ShimReport::NeverBegan;
        if status.code() != Some(REFUSES) || never_began {
            return Err(outcome::failed(config, status, never_began, &output).detail);
        }
        let reason = config.scrub(String::from_utf8_lossy(&output.stderr.bytes).trim());
        Ok(HookAnswer::Refuse { text: if reason.is_empty() { NO_REASON.to_owned() } else { reason } })
    }
}

/// The answer that a program wrote. Success without output means that the program has no objection.
fn answer(stdout: &[u8]) -> Result<HookAnswer, String> {
    if stdout.trim_ascii().is_empty() {
        return Ok(HookAnswer::Continue);
    }
    serde_json::from_slice(stdout).map_err(|e| format!("its output is no answer: {e}"))
}

impl HookRunner for ProgramHook {
    fn ask<'a>(&'a self, question: &'a HookQuestion) -> Fut<'a, Result<HookAnswer, String>> {
        Box::pin(self.run(question))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_hook_output_is_read_as_an_answer_or_is_a_failure() {
        let refuse = HookAnswer::Refuse { text: "No.".to_owned() };
        let replace = HookAnswer::Replace { arguments: serde_json::json!({"title": "x"}) };
        assert_eq!(answer(b" \n"), Ok(HookAnswer::Continue));
        assert_eq!(answer(br#"{"do": "continue"}"#), Ok(HookAnswer::Continue));
        assert_eq!(answer(br#"{"do": "refuse", "text": "No."}"#), Ok(refuse));
        assert_eq!(answer(br#"{"do": "replace", "arguments": {"title": "x"}}"#), Ok(replace));
        for wrong in ["yes", "{}", r#"{"do": "ask"}"#, r#"{"do": "refuse"}"#, r#"{"do": "continue"} {}"#] {
            let failure = answer(wrong.as_bytes()).unwrap_err();
            assert!(failure.starts_with("its output is no answer: "), "{wrong}: {failure}");
        }
    }
}
