//! Computes the wait before a failed call is repeated.

use crate::{config::ModelConfig, wire::failure::Failure};

/// The wait before the next attempt, in milliseconds. Returns `None` if there must be no further attempt: the failure is
/// not transient, the attempts are used up, or the server asks for a wait longer than `retry_wait_ms_max`. In the last case
/// the caller gets the server's hint with the error, and can release its permit meanwhile. The wait doubles with each
/// attempt. Jitter subtracts at most half of it, so that many callers that failed together do not retry together.
pub(super) fn wait_ms(config: &ModelConfig, failure: &Failure, attempt: u32, random: u64) -> Option<u64> {
    if !failure.may_retry || attempt >= config.retries_max {
        return None;
    }
    let server_wait_ms = failure.error.retry_after_ms.unwrap_or(0);
    if server_wait_ms > config.retry_wait_ms_max {
        return None;
    }
    let full = config.retry_wait_ms_min.saturating_mul(1 << attempt.min(32)).min(config.retry_wait_ms_max);
    let jittered = full - random % (full / 2 + 1);
    Some(jittered.max(server_wait_ms))
}

#[cfg(test)]
mod tests {
    use annie_core::message::ModelErrorKind;

    use super::*;

    fn failure(may_retry: bool, retry_after_ms: Option<u64>) -> Failure {
        let mut failure = Failure::new(ModelErrorKind::Unavailable, "", may_retry);
        failure.error.retry_after_ms = retry_after_ms;
        failure
    }

    #[test]
    fn backoff_doubles_up_to_limit_with_at_most_half_jitter() {
        let config = ModelConfig { retries_max: 100, ..ModelConfig::default() };
        let waits = |random| (0..6).map(|n| wait_ms(&config, &failure(true, None), n, random)).collect::<Vec<_>>();
        assert_eq!(waits(0), [500, 1_000, 2_000, 4_000, 8_000, 8_000].map(Some));
        for random in [1, 77, u64::MAX] {
            for (jittered, full) in waits(random).into_iter().zip(waits(0)) {
                assert!(jittered <= full && jittered >= full.map(|f| f / 2), "{jittered:?} of {full:?}");
            }
        }
        assert_eq!(wait_ms(&config, &failure(true, None), 99, 0), Some(8_000));
    }

    #[test]
    fn backoff_honours_server_wait_or_returns_no_wait() {
        let config = ModelConfig::default();
        assert_eq!(wait_ms(&config, &failure(true, Some(3_000)), 0, 5), Some(3_000));
        assert_eq!(wait_ms(&config, &failure(true, Some(60_000)), 0, 5), None);
    }

    #[test]
    fn backoff_returns_no_wait_for_permanent_failure_or_after_last_attempt() {
        let config = ModelConfig::default();
        assert_eq!(wait_ms(&config, &failure(false, None), 0, 0), None);
        assert_eq!(wait_ms(&config, &failure(true, None), 2, 0), None);
    }
}
