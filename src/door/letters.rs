//! Which dead letters a caller means: by state, error, class, user and age.

use annie_core::{
    event::{Priority, Scope},
    ids::UserId,
    letter::LetterState,
    ports::LetterFilter,
    time::Micros,
};
use chrono::DateTime;

use crate::{
    auth::{Caller, KeyScope},
    error::Fault,
};

/// What a caller asks for, before it is checked.
#[derive(Debug, Default)]
pub struct LetterWish {
    pub state: Option<LetterState>,
    /// The failure's code; a text that is empty is none.
    pub error: Option<String>,
    pub priority: Option<Priority>,
    /// Failed at this instant or later, RFC 3339.
    pub failed_from: Option<String>,
    /// Failed before this instant, RFC 3339.
    pub failed_before: Option<String>,
}

impl LetterWish {
    /// # Errors
    /// If a time is none.
    pub fn filter(self) -> Result<LetterFilter, Fault> {
        Ok(LetterFilter {
            state: self.state,
            code: self.error.filter(|code| !code.is_empty()),
            class: self.priority,
            failed_from: instant("failed_from", self.failed_from)?,
            failed_before: instant("failed_before", self.failed_before)?,
        })
    }
}

fn instant(field: &'static str, text: Option<String>) -> Result<Option<Micros>, Fault> {
    let read = |text: String| {
        let at = DateTime::parse_from_rfc3339(&text);
        let wrong = |e| Fault::invalid(format!("it must be a time such as 2026-09-27T09:00:00Z: {e}")).at(field);
        at.map(|at| Micros::from_utc(at.to_utc())).map_err(wrong)
    };
    text.map(read).transpose()
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
