//! What operators do, the same through every door.

use annie_actors::KernelError;
use annie_core::ids::ConversationId;

use super::AppState;
use crate::{
    auth::{Caller, KeyScope},
    error::Fault,
};

/// Takes a conversation out of quarantine. Who operates the actors may do this for another user too: it shows nothing of
/// what was said.
///
/// # Errors
/// If it is not parked, or neither the caller's nor the caller an operator.
pub async fn resume_conversation(state: &AppState, caller: &Caller, id: ConversationId) -> Result<(), Fault> {
    if !caller.grants.has(KeyScope::OpsControl) {
        state.kernel.conversation(caller.scope(), id).await?;
    }
    state.kernel.resume_conversation(id).await?;
    tracing::warn!(conversation = %id, by = caller.name(), "a conversation was taken out of quarantine");
    Ok(())
}

/// Closes a skill's breaker.
///
/// # Errors
/// If there is no such skill, or its breaker does not live yet.
pub fn reset_breaker(state: &AppState, caller: &Caller, skill: &str) -> Result<(), Fault> {
    match state.kernel.reset_breaker(skill) {
        Err(KernelError::NotFound(_)) => {
            let skills = state.kernel.catalog().skills();
            if skills.get(skill).is_none() {
                return Err(unknown_skill(&skills.near(skill)));
            }
            let mut fault = Fault::not_found("breaker");
            fault.detail = format!("{skill} was not called since the start, and its first call wakes its breaker");
            return Err(fault);
        }
        done => done?,
    }
    tracing::warn!(skill, by = caller.name(), "an operator closed a breaker");
    Ok(())
}

/// There is no such skill, but perhaps one of these is meant.
pub fn unknown_skill(near: &[String]) -> Fault {
    let mut fault = Fault::not_found("skill");
    if !near.is_empty() {
        fault.detail = format!("there is no such skill; did you mean {}?", near.join(" or "));
    }
    fault
}
