//! What follows the failure of a model [S3 5.9].

use crate::{
    dead_letter::Strategy,
    message::{ModelError, ModelErrorKind},
};

/// Whether the same request may succeed on another backend or at a later time.
#[must_use]
pub const fn may_succeed_on_retry(error: &ModelError) -> bool {
    !matches!(
        error.kind,
        ModelErrorKind::Content
            | ModelErrorKind::InvalidRequest
            | ModelErrorKind::ToolsUnsupported
            | ModelErrorKind::Overflow
            | ModelErrorKind::InDoubt
            | ModelErrorKind::TurnSpendCap
            | ModelErrorKind::SpendCap
            | ModelErrorKind::CallCap
    )
}

/// The strategy for another attempt of a turn whose model failed, if there is to be one: first another backend, then later,
/// as long as there is time for waits. A user who waits retries the work themselves, so only background work is retried.
#[must_use]
pub fn after_model_error(
    error: &ModelError,
    is_background: bool,
    tried: &[Strategy],
    has_time_left: bool,
) -> Option<Strategy> {
    if !is_background || !may_succeed_on_retry(error) {
        return None;
    }
    if !tried.contains(&Strategy::OtherBackend) {
        return Some(Strategy::OtherBackend);
    }
    has_time_left.then_some(Strategy::Later)
}
