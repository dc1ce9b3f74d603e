//! The strategy for another attempt of a turn whose model failed, as the router decides it.

use super::ModelErrorPolicy;
use crate::{dead_letter::Strategy, error_route::after_model_error, message::ModelError, turn::conversation::Turn};

/// Only classes that are not more urgent than `retry_from` are retried.
pub(super) struct RetryStrategy;

impl ModelErrorPolicy for RetryStrategy {
    fn judge(&self, turn: &Turn, error: &ModelError) -> Option<Strategy> {
        let is_background = turn.inbound.priority >= turn.limits.dead_letters.retry_from;
        after_model_error(error, is_background, &turn.retries.strategies, turn.next_wait_ms() > 0)
    }
}
