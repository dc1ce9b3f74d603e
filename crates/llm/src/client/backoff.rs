//! How long to wait before the same call is made again, if at all.

use crate::{config::ModelConfig, wire::failure::Failure};

/// The wait before the next attempt, or none if there should be no other: the failure is not of the kind that passes, the
/// attempts are used up, or the server wants a longer wait than is allowed here (then its hint goes to the caller, who
/// can give the permit back meanwhile). Waits double from attempt to attempt; the jitter takes away up to a half, so that
/// many callers that failed together do not come back together.
pub(super) fn wait_ms(config: &ModelConfig, failure: &Failure, attempt: u32, random: u64) -> Option<u64> {
    if !failure.may_retry || attempt >= config.retries_max {
        return None;
    }
    let asked = failure.error.retry_after_ms.unwrap_or(0);
    if asked > config.retry_wait_ms_max {
        return None;
    }
    let full = config.retry_wait_ms_min.saturating_mul(1 << attempt.min(32)).min(config.retry_wait_ms_max);
    let jittered = full - random % (full / 2 + 1);
    Some(jittered.max(asked))
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
    fn waits_double_up_to_the_limit_and_jitter_takes_at_most_a_half() {
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
    fn a_servers_wish_is_kept_or_handed_on_but_never_cut_short() {
        let config = ModelConfig::default();
        assert_eq!(wait_ms(&config, &failure(true, Some(3_000)), 0, 5), Some(3_000));
        assert_eq!(wait_ms(&config, &failure(true, Some(60_000)), 0, 5), None);
    }

    #[test]
    fn nothing_is_repeated_that_may_not_or_too_often() {
        let config = ModelConfig::default();
        assert_eq!(wait_ms(&config, &failure(false, None), 0, 0), None);
        assert_eq!(wait_ms(&config, &failure(true, None), 2, 0), None);
    }
}
