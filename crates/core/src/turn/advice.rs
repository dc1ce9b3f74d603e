//! What to try when a skill failed: a chain for each kind of error, tried from left to right [S3 4.4]. The kernel says it, so
//! that a small model need not find out by itself; the same again without a change is never the advice twice.

use crate::outcome::{Outcome, Status};

/// What is said when a chain is at its end.
const REPORT: &str = "Nothing else is left to try here: say what failed.";
/// What is said of a guard's refusal.
const BLOCKED: &str = "This is refused for good: do not try it again, say so.";

/// The chain of a kind of error; nothing if the error itself says what to do (wrong arguments, a name that is not there).
fn chain(error_type: &str) -> Option<&'static [&'static str]> {
    Some(match error_type {
        "http_403" => &["Try another address for the same thing.", "Work it out in another way, without this source."],
        "http_404" => &["Look for the right address first."],
        "http_429" | "rate_limited" => &["Do something else first, then try it once more."],
        "timeout" => &["Try it once more.", "Ask for less at a time."],
        "parse_error" => &["Ask for it in another form.", "Take it as it is, unread."],
        "empty_result" => &["Ask more broadly.", "Look in another place."],
        _ => return None,
    })
}

/// The advice after a failure of this kind that came so often before in the same run.
pub(super) fn advice(outcome: &Outcome, before: u32) -> Option<&'static str> {
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
    fn each_failure_of_a_kind_gets_the_next_advice_until_none_is_left() {
        let failed = Outcome::transient("timeout", "slow");
        let said: Vec<_> = (0..4).map(|before| advice(&failed, before)).collect();
        assert_eq!(said[..2], [Some("Try it once more."), Some("Ask for less at a time.")]);
        assert_eq!(said[2..], [Some(REPORT), Some(REPORT)]);
        assert_eq!(advice(&Outcome::blocked("ssrf", "no"), 0), Some(BLOCKED));
    }

    #[test]
    fn what_went_well_or_says_itself_what_is_wrong_gets_no_advice() {
        assert_eq!(advice(&Outcome::success("done"), 0), None);
        assert_eq!(advice(&Outcome::permanent("invalid_arguments", "no title"), 0), None);
        assert_eq!(advice(&Outcome::unknown("?", serde_json::Value::Null), 0), None, "it is not to be tried again");
    }
}
