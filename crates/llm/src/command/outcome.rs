//! What a run that ended means: a reply, or a typed failure with the program's own words.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

use annie_core::message::{Finish, ModelError, ModelErrorKind, ModelReply, Usage};
use rustix::process::Signal;

use super::{
    config::CommandConfig,
    run::{Broken, Complaint, Said},
};

/// The reply of a run that went well. A program counts no tokens.
pub(super) fn reply(config: &CommandConfig, said: &Said) -> Result<ModelReply, ModelError> {
    let text = String::from_utf8_lossy(&said.reply.bytes).trim_end().to_owned();
    if text.is_empty() {
        return Err(error(config, ModelErrorKind::Protocol, "it ended well and said nothing", said));
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

/// The failure of a run that ended with a code or by a signal. Unless the shim says that the program never began, it may
/// have had an effect, whatever its exit code: unless the settings know better it is not `unavailable`, which says that
/// another may be asked.
pub(super) fn failed(config: &CommandConfig, status: ExitStatus, never_began: bool, said: &Said) -> ModelError {
    if never_began {
        return error(config, ModelErrorKind::Unavailable, "it never began", said);
    }
    if let Some(signal) = status.signal() {
        let is_out_of_time = signal == Signal::XCPU.as_raw();
        let kind = if is_out_of_time { ModelErrorKind::Timeout } else { ModelErrorKind::Truncated };
        let why = if is_out_of_time { " (its CPU time was used up)" } else { "" };
        return error(config, kind, &format!("it was ended by signal {signal}{why}"), said);
    }
    let code = status.code().unwrap_or_default();
    let words = [&said.complaint.bytes, &said.reply.bytes].map(|b| String::from_utf8_lossy(b).to_lowercase());
    let known = config.failures.iter().find(|f| {
        let by_code = f.exit.is_none_or(|exit| exit == code);
        let by_words = f.contains.as_ref().is_none_or(|c| words.iter().any(|w| w.contains(&c.to_lowercase())));
        by_code && by_words
    });
    let kind = known.map_or(ModelErrorKind::Truncated, |f| f.kind);
    error(config, kind, &format!("it ended with exit code {code}"), said)
}

/// The failure of a run that was broken off.
pub(super) fn broken(config: &CommandConfig, why: &Broken, said: &Said) -> ModelError {
    match why {
        Broken::TooLong => {
            let what = format!("it said more than {} bytes", config.output_bytes_max);
            error(config, ModelErrorKind::Protocol, &what, said)
        }
        Broken::Late => {
            let what = format!("it was not done within {} ms", config.run_ms_max);
            error(config, ModelErrorKind::Timeout, &what, said)
        }
        // It began: another that is asked instead may do a second time what this one has done.
        Broken::Lost(e) => error(config, ModelErrorKind::Truncated, &format!("it could not be waited for: {e}"), said),
    }
}

fn error(config: &CommandConfig, kind: ModelErrorKind, what: &str, said: &Said) -> ModelError {
    let program = config.program.file_name().unwrap_or_default().to_string_lossy();
    let Complaint { bytes, is_cut } = &said.complaint;
    let words = config.scrub(String::from_utf8_lossy(bytes).trim());
    let dots = if *is_cut { "…" } else { "" };
    let words = if words.is_empty() { String::new() } else { format!("; stderr: {dots}{words}") };
    ModelError {
        after_first_token: said.reply.has_shown(),
        ..ModelError::new(kind, format!("`{program}`: {what}{words}"))
    }
}
