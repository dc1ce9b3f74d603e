//! Which failures of a backend are a reason to ask another one.

use super::facts::BackendFacts;
use crate::message::{ModelError, ModelErrorKind as Kind};

/// What a failure means for the other candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailOver {
    /// The next one may be asked.
    Next,
    /// One that can hold more may be asked.
    Larger,
    /// Another would say the same, or text has been shown already: the failure stands.
    No,
}

/// What this failure of this backend means. One that acts by itself is followed by another only if it never began: what it
/// had done would be done twice.
const fn fail_over(error: &ModelError, by: &BackendFacts) -> FailOver {
    match error.kind {
        _ if error.after_first_token => FailOver::No,
        Kind::Auth | Kind::Payment | Kind::RateLimited | Kind::Unavailable => FailOver::Next,
        Kind::Overflow => FailOver::Larger,
        Kind::Timeout | Kind::Truncated | Kind::Protocol if !by.acts => FailOver::Next,
        Kind::Timeout
        | Kind::Truncated
        | Kind::Protocol
        | Kind::InDoubt
        | Kind::Content
        | Kind::InvalidRequest
        | Kind::ToolsUnsupported => FailOver::No,
    }
}

/// Whether a backend that acts by itself did nothing before this failure, so that another backend may run the round.
#[must_use]
pub const fn is_without_effect(error: &ModelError) -> bool {
    let refused =
        matches!(error.kind, Kind::Auth | Kind::Payment | Kind::RateLimited | Kind::Unavailable | Kind::Overflow);
    refused && !error.after_first_token
}

/// Who of a route may run a round that this backend has failed, in the route's order: also one that stands before it, since
/// a round may have been given to a stand-in because that one was busy.
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
