//! Which failures of a backend are a reason to ask another one.

use super::{choose::Route, facts::BackendFacts};
use crate::message::{ModelError, ModelErrorKind as Kind};

/// What a failure means for the other candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailOver {
    /// The next one may be asked.
    Next,
    /// One that can hold more may be asked.
    Larger,
    /// Another would say the same, or text has been shown already: the failure stands.
    No,
}

/// What this failure of this backend means. One that acts by itself is followed by another only if it never began: what it
/// had done would be done twice.
#[must_use]
pub const fn fail_over(error: &ModelError, by: &BackendFacts) -> FailOver {
    match error.kind {
        _ if error.after_first_token => FailOver::No,
        Kind::Auth | Kind::Payment | Kind::RateLimited | Kind::Unavailable => FailOver::Next,
        Kind::Overflow => FailOver::Larger,
        Kind::Timeout | Kind::Truncated | Kind::Protocol if !by.acts => FailOver::Next,
        Kind::Timeout | Kind::Truncated | Kind::Protocol | Kind::InDoubt | Kind::Content | Kind::InvalidRequest => {
            FailOver::No
        }
    }
}

impl Route {
    /// The candidate after the one that failed so, if one may be asked.
    #[must_use]
    pub fn after(&self, failed: &str, error: &ModelError, facts: &[BackendFacts]) -> Option<&str> {
        let of = |name: &str| facts.iter().find(|f| f.name == name);
        let by = of(failed)?;
        let size = |f: &BackendFacts| f.context_tokens_max.unwrap_or(u32::MAX);
        let how = fail_over(error, by);
        let mut later = self.candidates.iter().skip_while(|n| *n != failed).skip(1).map(String::as_str);
        match how {
            FailOver::No => None,
            FailOver::Next => later.next(),
            FailOver::Larger => later.find(|n| of(n).is_some_and(|f| size(f) > size(by))),
        }
    }
}
