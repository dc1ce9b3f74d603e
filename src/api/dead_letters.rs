//! The filter of dead letters that a caller selects: state, error, class, user and age.

use crate::{
    auth::{Caller, KeyScope},
    error::ApiError,
};
use annie_core::{
    dead_letter::DeadLetterState,
    event::{Priority, Scope},
    ids::UserId,
    ports::DeadLetterFilter,
    time::Micros,
};

/// The filter as the caller gave it.
#[derive(Debug, Default)]
pub struct DeadLetterOptions {
    pub state: Option<DeadLetterState>,
    /// The failure's code; an empty text means any.
    pub error: Option<String>,
    pub priority: Option<Priority>,
    /// The start of the range of failure times, inclusive.
    pub failed_from: Option<Micros>,
    /// The end of the range of failure times, exclusive.
    pub failed_before: Option<Micros>,
}

impl DeadLetterOptions {
    pub fn filter(self) -> DeadLetterFilter {
        let Self { state, error, priority, failed_from, failed_before } = self;
        let code = error.filter(|code| !code.is_empty());
        DeadLetterFilter { state, code, class: priority, failed_from, failed_before, not_due_at: None }
    }
}

/// The user whose rows are listed: the caller, or a user for whom the caller may act.
///
/// # Errors
/// `forbidden` for another user without the scope `impersonate`.
pub fn scope_of(caller: &Caller, user: Option<&str>) -> Result<Scope, ApiError> {
    let Some(user) = user else { return Ok(caller.scope()) };
    let user = UserId::new(user).map_err(|e| ApiError::from(e).at("user"))?;
    if user != caller.user {
        caller.must(KeyScope::Impersonate).map_err(|error| error.at("user"))?;
    }
    Ok(Scope::User(user))
}
