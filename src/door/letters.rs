//! Which dead letters a caller means: by state, error, class, user and age.

use crate::{
    auth::{Caller, KeyScope},
    error::Fault,
};
use annie_core::{
    event::{Priority, Scope},
    ids::UserId,
    letter::LetterState,
    ports::LetterFilter,
    time::Micros,
};

/// What a caller asks for.
#[derive(Debug, Default)]
pub struct LetterWish {
    pub state: Option<LetterState>,
    /// The failure's code; a text that is empty is none.
    pub error: Option<String>,
    pub priority: Option<Priority>,
    /// Failed at this instant or later.
    pub failed_from: Option<Micros>,
    /// Failed before this instant.
    pub failed_before: Option<Micros>,
}

impl LetterWish {
    pub fn filter(self) -> LetterFilter {
        let Self { state, error, priority, failed_from, failed_before } = self;
        let code = error.filter(|code| !code.is_empty());
        LetterFilter { state, code, class: priority, failed_from, failed_before, not_due_at: None }
    }
}

/// Whose rows are meant: the caller's own, or those of a user that the caller may speak for.
///
/// # Errors
/// `forbidden` for another user without the scope `impersonate`.
pub fn scope_of(caller: &Caller, user: Option<&str>) -> Result<Scope, Fault> {
    let Some(user) = user else { return Ok(caller.scope()) };
    let user = UserId::new(user).map_err(|e| Fault::from(e).at("user"))?;
    if user != caller.user {
        caller.must(KeyScope::Impersonate).map_err(|fault| fault.at("user"))?;
    }
    Ok(Scope::User(user))
}
