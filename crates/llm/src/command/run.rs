//! One round on a program: its prompt goes in, its stdout is the reply.

use std::process::ExitStatus;

use annie_core::{
    message::{ModelError, ModelErrorKind, ModelReply, ModelRequest},
    ports::{Draft, DraftSink},
};
use annie_process::{Broken, ShimReport, StderrTail};

use super::{CommandConfig, CommandModel, outcome, prompt};

/// The output of a program so far.
#[derive(Default)]
pub(super) struct Output {
    pub(super) reply: Reply,
    pub(super) stderr: StderrTail,
}

/// The program's stdout.
#[derive(Default)]
pub(super) struct Reply {
    pub(super) bytes: Vec<u8>,
    /// How many of the bytes were shown as drafts.
    shown: usize,
}

impl Reply {
    pub(super) const fn has_shown(&self) -> bool {
        self.shown > 0
    }
}

/// Shows the complete lines that have arrived after the first `shown` bytes; at the end, everything.
fn show(bytes: &[u8], shown: &mut usize, drafts: &DraftSink, is_end: bool) {
    let rest = bytes.get(*shown..).unwrap_or_default();
    let until = if is_end { rest.len() } else { rest.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1) };
    if let Some(whole) = rest.get(..until).filter(|w| !w.is_empty()) {
        drafts(Draft::Text(String::from_utf8_lossy(whole).into_owned()));
        *shown += until;
    }
}

pub(super) async fn run(
    model: &CommandModel,
    request: &ModelRequest,
    drafts: DraftSink,
) -> Result<ModelReply, ModelError> {
    let config = &model.config;
    let prompt = prompt::text_of(request);
    if prompt.len() > config.prompt_bytes_max {
        let detail = format!("the prompt has {} bytes, {} are allowed", prompt.len(), config.prompt_bytes_max);
        return Err(ModelError::new(ModelErrorKind::Overflow, detail));
    }
    let Ended { how, report, mut output } = execute(model, prompt, &drafts).await?;
    match how {
        Ok(status) if status.success() => {
            let Reply { bytes, shown } = &mut output.reply;
            show(bytes, shown, &drafts, true);
            outcome::reply(config, &output)
        }
        Ok(status) => Err(outcome::failed(config, status, report == ShimReport::NeverBegan, &output)),
        Err(why) => Err(outcome::broken(config, &why, &output)),
    }
}

/// The end of a program that was started.
pub(super) struct Ended {
    /// Its exit status, or why it was broken off.
    pub(super) how: Result<ExitStatus, Broken>,
    pub(super) report: ShimReport,
    pub(super) output: Output,
}

/// Runs the program with this input until it ends or reaches a limit. No process of it is left.
///
/// # Errors
/// If it cannot be started.
pub(super) async fn execute(model: &CommandModel, input: String, drafts: &DraftSink) -> Result<Ended, ModelError> {
    let mut shown = 0;
    let mut on_output = |bytes: &[u8]| show(bytes, &mut shown, drafts, false);
    let ended = annie_process::execute(model.launch(input), &mut on_output).await;
    let ended = ended.map_err(|e| cannot_start(&model.config, &e))?;
    let reply = Reply { bytes: ended.stdout, shown };
    Ok(Ended { how: ended.how, report: ended.report, output: Output { reply, stderr: ended.stderr } })
}

fn cannot_start(config: &CommandConfig, why: &std::io::Error) -> ModelError {
    ModelError::new(ModelErrorKind::Unavailable, format!("cannot start {}: {why}", config.program.display()))
}
