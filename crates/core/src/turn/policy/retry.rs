//! The strategy for another attempt of a turn whose model failed [S3 5.9].

use super::ModelErrorPolicy;
use crate::{
    dead_letter::Strategy,
    message::ModelError,
    turn::{concern::may_succeed_on_retry, conversation::Turn},
};

/// Only classes that are not more urgent than `retry_from` are retried, and only after errors that another attempt may avoid.
pub(super) struct RetryStrategy;

impl ModelErrorPolicy for RetryStrategy {
    fn judge(&self, turn: &Turn, error: &ModelError) -> Option<Strategy> {
        let is_background = turn.inbound.priority >= turn.limits.dead_letters.retry_from;
        if !is_background || !may_succeed_on_retry(error) {
            return None;
        }
        if !turn.retries.strategies.contains(&Strategy::OtherBackend) {
            return Some(Strategy::OtherBackend);
        }
        (turn.next_wait_ms() > 0).then_some(Strategy::Later)
    }
}
