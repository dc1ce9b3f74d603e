//! Converts a finished run into a reply, or into a typed failure that quotes the program.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

use annie_core::message::{Finish, ModelError, ModelErrorKind, ModelReply, Usage};
use annie_process::{Broken, StderrTail};
use rustix::process::Signal;

use super::{config::CommandConfig, run::Output};

/// The reply of a successful run. A program reports no token counts.
pub(super) fn reply(config: &CommandConfig, output: &Output) -> Result<ModelReply, ModelError> {
    let text = String::from_utf8_lossy(&output.reply.bytes).trim_end().to_owned();
    if text.is_empty() {
        return Err(error(config, ModelErrorKind::Protocol, "it ended successfully without output", output));
    }
    Ok(ModelReply {
        text,
        tool_calls: Vec::new(),
        finish: Finish::Stop,
        usage: Usage::default(),
        model: config.name.clone(),
        ..ModelReply::default()
    })
}

/// The failure of a run that ended with an exit code or by a signal. `Unavailable` means that another backend may be asked
/// instead. Unless the shim reports that the program never began, the program may have had an effect, whatever its exit
/// code:
/// then the failure is `Unavailable` only if the settings say so.
pub(super) fn failed(config: &CommandConfig, status: ExitStatus, never_began: bool, output: &Output) -> ModelError {
    if never_began {
        return error(config, ModelErrorKind::Unavailable, "it never began", output);
    }
    if let Some(signal) = status.signal() {
        let is_out_of_time = signal == Signal::XCPU.as_raw();
        let kind = if is_out_of_time { ModelErrorKind::Timeout } else { ModelErrorKind::Truncated };
        let why = if is_out_of_time { " (its CPU time was used up)" } else { "" };
        return error(config, kind, &format!("it was ended by signal {signal}{why}"), output);
    }
    let code = status.code().unwrap_or_default();
    let words = [&output.stderr.bytes, &output.reply.bytes].map(|b| String::from_utf8_lossy(b).to_lowercase());
    let known = config.failures.iter().find(|f| {
        let by_code = f.exit.is_none_or(|exit| exit == code);
        let by_words = f.contains.as_ref().is_none_or(|c| words.iter().any(|w| w.contains(&c.to_lowercase())));
        by_code && by_words
    });
    let kind = known.map_or(ModelErrorKind::Truncated, |f| f.kind);
    error(config, kind, &format!("it ended with exit code {code}"), output)
}

/// The failure of a run that was broken off.
pub(super) fn broken(config: &CommandConfig, why: &Broken, output: &Output) -> ModelError {
    match why {
        Broken::TooLong => {
            let what = format!("it wrote more than {} bytes to stdout", config.output_bytes_max);
            error(config, ModelErrorKind::Protocol, &what, output)
        }
        Broken::Late => {
            let what = format!("it was not done within {} ms", config.run_ms_max);
            error(config, ModelErrorKind::Timeout, &what, output)
        }
        // Not `Unavailable`: the program began, and another backend might repeat its effects.
        Broken::Lost(e) => {
            error(config, ModelErrorKind::Truncated, &format!("it could not be waited for: {e}"), output)
        }
    }
}

fn error(config: &CommandConfig, kind: ModelErrorKind, what: &str, output: &Output) -> ModelError {
    let program = config.program.file_name().unwrap_or_default().to_string_lossy();
    let StderrTail { bytes, is_cut } = &output.stderr;
    let words = config.scrub(String::from_utf8_lossy(bytes).trim());
    let dots = if *is_cut { "…" } else { "" };
    let words = if words.is_empty() { String::new() } else { format!("; stderr: {dots}{words}") };
    ModelError {
        after_first_token: output.reply.has_shown(),
        ..ModelError::new(kind, format!("`{program}`: {what}{words}"))
    }
}
