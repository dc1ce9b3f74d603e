//! The failures of a backend after which another backend is tried.

use super::facts::BackendFacts;
use crate::message::{ModelError, ModelErrorKind as Kind};

/// The consequence of a failure for the other candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailOver {
    /// The next candidate may be tried.
    Next,
    /// A candidate with a larger context window may be tried.
    Larger,
    /// The failure is final: another backend would fail in the same way, or text has already been shown.
    No,
}

/// The consequence of this failure of this backend. After an agentic backend, another one is tried only if the round never
/// began, because otherwise its effects would be repeated.
const fn fail_over(error: &ModelError, by: &BackendFacts) -> FailOver {
    match error.kind {
        _ if error.after_first_token => FailOver::No,
        Kind::Auth | Kind::Payment | Kind::RateLimited | Kind::Unavailable => FailOver::Next,
        Kind::Overflow => FailOver::Larger,
        Kind::Timeout | Kind::Truncated | Kind::Protocol | Kind::MalformedCall if !by.acts => FailOver::Next,
        Kind::Timeout
        | Kind::Truncated
        | Kind::Protocol
        | Kind::MalformedCall
        | Kind::InDoubt
        | Kind::Content
        | Kind::InvalidRequest
        | Kind::ToolsUnsupported
        | Kind::TurnSpendCap
        | Kind::SpendCap
        | Kind::CallCap => FailOver::No,
    }
}

/// Whether an agentic backend did nothing before this failure, so that another backend may run the round.
#[must_use]
pub const fn is_without_effect(error: &ModelError) -> bool {
    let refused =
        matches!(error.kind, Kind::Auth | Kind::Payment | Kind::RateLimited | Kind::Unavailable | Kind::Overflow);
    refused && !error.after_first_token
}

/// The candidates of a route that may run a round after this backend failed, in the route's order. This includes candidates
/// before the failed one, because a fallback may have run the round while a preferred backend was busy.
#[must_use]
pub fn stand_ins(route: &[String], failed: &str, error: &ModelError, facts: &[BackendFacts]) -> Vec<String> {
    let of = |name: &str| facts.iter().find(|f| f.name == name);
    let Some(by) = of(failed) else { return Vec::new() };
    let size = |name: &str| of(name).map_or(0, |f| f.context_tokens_max.unwrap_or(u32::MAX));
    let how = fail_over(error, by);
    let may = |name: &&String| match how {
        FailOver::No => false,
        FailOver::Next => true,
        FailOver::Larger => size(name) > size(failed),
    };
    route.iter().filter(|name| *name != failed).filter(may).cloned().collect()
}
