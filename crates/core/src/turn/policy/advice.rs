//! Advice to the model after a failed skill: one chain of suggestions per kind of error, used from left to right [S3 4.4]. The
//! kernel gives the advice so that a small model need not find it. No chain suggests an unchanged retry twice.

use super::{ResultPolicy, ResultVerdict, SkillResult};
use crate::outcome::{Outcome, Status};

/// The advice at the end of a chain.
const REPORT: &str = "Nothing else is left to try here: say what failed.";
/// The advice after a refusal by a guard.
const BLOCKED: &str = "This is refused for good: do not try it again, say so.";

pub(super) struct Advice;

impl ResultPolicy for Advice {
    fn judge(&self, at: &SkillResult<'_>) -> Option<ResultVerdict> {
        let kind = at.outcome.error_type.as_deref().filter(|_| !at.outcome.status.is_ok())?;
        let before = at.run.failures.get(kind).copied().unwrap_or(0);
        advice(at.outcome, before).map(|advice| ResultVerdict::Note(format!("\nNext: {advice}")))
    }
}

/// The chain of a kind of error; `None` if the error text itself says what to do (wrong arguments, an unknown name).
fn chain(error_type: &str) -> Option<&'static [&'static str]> {
    Some(match error_type {
        "http_403" | "site_403" => {
            &["Try another address for the same thing.", "Work it out in another way, without this source."]
        }
        "http_404" | "site_404" => &["Look for the right address first."],
        "http_429" | "rate_limited" | "site_429" => &["Do something else first, then try it once more."],
        "timeout" | "site_timeout" => &["Try it once more.", "Ask for less at a time."],
        "parse_error" => &["Ask for it in another form.", "Take it as it is, unread."],
        "empty_result" => &["Ask more broadly.", "Look in another place."],
        _ => return None,
    })
}

/// The advice after a failure of a kind that has occurred `before` times in the same run.
fn advice(outcome: &Outcome, before: u32) -> Option<&'static str> {
    match outcome.status {
        Status::Success | Status::Partial | Status::Pending | Status::Unknown => None,
        Status::ErrorBlocked => Some(BLOCKED),
        Status::ErrorTransient | Status::ErrorPermanent => {
            let chain = chain(outcome.error_type.as_deref()?)?;
            Some(chain.get(before as usize).copied().unwrap_or(REPORT))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_repeated_failure_gets_next_advice_until_chain_ends() {
        let failed = Outcome::transient("timeout", "slow");
        let advices: Vec<_> = (0..4).map(|before| advice(&failed, before)).collect();
        assert_eq!(advices[..2], [Some("Try it once more."), Some("Ask for less at a time.")]);
        assert_eq!(advices[2..], [Some(REPORT), Some(REPORT)]);
        assert_eq!(advice(&Outcome::blocked("ssrf", "no"), 0), Some(BLOCKED));
    }

    #[test]
    fn advice_is_empty_for_success_and_self_explanatory_errors() {
        assert_eq!(advice(&Outcome::success("done"), 0), None);
        assert_eq!(advice(&Outcome::permanent("invalid_arguments", "no title"), 0), None);
        assert_eq!(
            advice(&Outcome::unknown("?", serde_json::Value::Null), 0),
            None,
            "an unknown outcome must not be retried"
        );
    }
}
