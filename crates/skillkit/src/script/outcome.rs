//! Converts the end of a program into the outcome of its skill.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

use annie_core::{
    outcome::Outcome,
    skill::{Effect, SkillSpec},
};
use annie_process::{Broken, Ended, SANDBOX_MISSING, ShimReport, StderrTail};
use serde_json::json;

use crate::error::{SkillError, cut};

/// Exit codes by which a program says that it changed nothing (`sysexits.h`): its arguments are wrong, or it may be tried later.
const USAGE: i32 = 64;
const TRY_LATER: i32 = 75;
/// The signals of the limits of CPU time and file size on Linux.
const SIGXCPU: i32 = 24;
const SIGXFSZ: i32 = 25;

/// The outcome of a program that was started. A program that failed may have had its effect, unless its exit code denies that.
pub(super) fn of(ended: Ended, spec: &SkillSpec, output_bytes_max: usize) -> Result<Outcome, SkillError> {
    let Ended { how, report, stdout, stderr } = ended;
    let detail = text_of(&stderr);
    if report == ShimReport::NeverBegan {
        let code = how.as_ref().ok().and_then(ExitStatus::code);
        let why = detail.trim_start_matches("error: ").to_owned();
        return Err(if code == Some(SANDBOX_MISSING) {
            SkillError::SandboxMissing(why)
        } else {
            SkillError::ProgramMissing(format!("The program never began: {why}."))
        });
    }
    let outcome = match how {
        Ok(status) if status.success() => succeeded(&stdout, spec),
        Ok(status) => failed(status, spec),
        Err(Broken::Late) => broke_off(spec, "timeout", "did not end in time and was stopped"),
        Err(Broken::TooLong) => {
            let what = format!("wrote more than {output_bytes_max} bytes to stdout and was stopped");
            broke_off(spec, "output_too_large", &what)
        }
        Err(Broken::Lost(e)) => broke_off(spec, "program_lost", &format!("could not be waited for: {e}")),
    };
    // What a program prints may be the words of others, whatever its effect is: the operator's rules name such skills. Skills that only
    // read have been read anyway.
    let outcome = if spec.effect == Effect::Read { outcome } else { outcome.with_origins(vec![spec.name.clone()]) };
    Ok(if detail.is_empty() { outcome } else { outcome.with_detail(detail) })
}

fn succeeded(stdout: &[u8], spec: &SkillSpec) -> Outcome {
    let text = String::from_utf8_lossy(stdout).trim_end().to_owned();
    let text = if text.is_empty() { "It ended successfully and wrote no output.".to_owned() } else { text };
    Outcome::success(text).with_evidence(json!({"skill": spec.name, "exit_code": 0}))
}

fn failed(status: ExitStatus, spec: &SkillSpec) -> Outcome {
    let name = &spec.name;
    match (status.code(), status.signal()) {
        (Some(USAGE), _) => {
            let what = format!("{name} refused its arguments (exit code {USAGE}).\nUsage: {}", spec.synopsis());
            Outcome::permanent("invalid_arguments", what)
        }
        (Some(TRY_LATER), _) => {
            let what = format!("{name} cannot do it now (exit code {TRY_LATER}).");
            Outcome::transient("script_unavailable", what)
        }
        (_, Some(SIGXCPU)) => broke_off(spec, "cpu_limit", "used up its CPU time and was stopped"),
        (_, Some(SIGXFSZ)) => broke_off(spec, "file_limit", "wrote a file that is too large and was stopped"),
        (_, Some(signal)) => broke_off(spec, FAILED, &format!("was ended by signal {signal}")),
        (code, None) => broke_off(spec, FAILED, &format!("ended with exit code {}", code.unwrap_or_default())),
    }
}

/// The error type of a program that failed by itself. It says nothing about the health of the skill that runs it.
const FAILED: &str = "program_failed";

fn broke_off(spec: &SkillSpec, error_type: &str, what: &str) -> Outcome {
    let message = format!("The program of {} {what}.", spec.name);
    match (spec.effect, error_type) {
        (Effect::Read, "timeout" | "program_lost") => Outcome::transient(error_type, message),
        (Effect::Read, _) => Outcome::permanent(error_type, message),
        (Effect::Idempotent | Effect::Once, _) => cut(error_type, &message),
    }
}

fn text_of(stderr: &StderrTail) -> String {
    let text = String::from_utf8_lossy(&stderr.bytes);
    let dots = if stderr.is_cut { "…" } else { "" };
    let text = text.trim();
    if text.is_empty() { String::new() } else { format!("{dots}{text}") }
}

#[cfg(test)]
mod tests {
    use annie_core::{outcome::Status, skill::SkillFormat};

    use super::*;

    fn spec(effect: Effect) -> SkillSpec {
        SkillSpec {
            name: "sums.add".to_owned(),
            domain: "sums".to_owned(),
            description: String::new(),
            body: String::new(),
            args: Vec::new(),
            effect,
            external: false,
            timeout_ms: 1_000,
            alternatives: Vec::new(),
            fallback: std::collections::BTreeMap::new(),
            is_ready: false,
            format: SkillFormat::Command,
            source: "x".to_owned(),
        }
    }

    fn ended(how: Result<ExitStatus, Broken>, report: ShimReport) -> Ended {
        let stderr = StderrTail { bytes: b"why\n".to_vec(), is_cut: false };
        Ended { how, report, stdout: b"out\n".to_vec(), stderr }
    }

    #[test]
    fn exit_code_and_effect_decide_the_outcome_of_a_program() {
        let exit = |code: i32| Ok(ExitStatus::from_raw(code << 8));
        for (how, read, once) in [
            (exit(0), Status::Success, Status::Success),
            (exit(1), Status::ErrorPermanent, Status::Unknown),
            (exit(64), Status::ErrorPermanent, Status::ErrorPermanent),
            (exit(75), Status::ErrorTransient, Status::ErrorTransient),
            (Ok(ExitStatus::from_raw(SIGXCPU)), Status::ErrorPermanent, Status::Unknown),
            (Err(Broken::Late), Status::ErrorTransient, Status::Unknown),
        ] {
            let again = match &how {
                Ok(status) => Ok(*status),
                Err(_) => Err(Broken::Late),
            };
            let of = |how, effect| of(ended(how, ShimReport::Nothing), &spec(effect), 9).unwrap();
            let shown = format!("{how:?}");
            let first = of(how, Effect::Read);
            let second = of(again, Effect::Once);
            assert_eq!((first.status, second.status), (read, once), "{shown}");
            assert_eq!(second.origins, ["sums.add"], "{shown}: the text of a program with an effect has an origin");
            assert_eq!(first.error_detail.as_deref(), Some("why"), "{shown}");
            assert!(first.origins.is_empty(), "{shown}");
        }
    }

    #[test]
    fn program_that_never_began_had_no_effect_also_with_a_once_skill() {
        for (code, word) in [(125, "sandbox_unavailable"), (127, "program_missing")] {
            let how = Ok(ExitStatus::from_raw(code << 8));
            let error = of(ended(how, ShimReport::NeverBegan), &spec(Effect::Once), 9).unwrap_err();
            assert_eq!(error.into_outcome(&spec(Effect::Once)).error_type.as_deref(), Some(word));
        }
    }
}
