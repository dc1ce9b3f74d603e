//! Operator commands, independent of the front end.

use annie_actors::{GateGrant, KernelError, NodeInfo, Operation};
use annie_core::{
    breaker::BreakerState,
    ids::{ConversationId, Incarnation},
};
use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::Value;

use super::{AppState, actor_path};
use crate::{
    auth::{Caller, KeyScope},
    error::ApiError,
};

/// The maximum length of a gate holder's name, in bytes.
const HOLDER_BYTES_MAX: usize = 128;
/// The path prefix of the breaker actors, before the skill's name.
const BREAKERS: &str = "/breakers/breaker:";

/// Takes a conversation out of quarantine. A caller with `ops:control` may do this for another user's conversation, because the
/// command reveals nothing of its content.
///
/// # Errors
/// If the conversation is not quarantined, or the caller neither owns it nor has `ops:control`.
pub async fn resume_conversation(state: &AppState, caller: &Caller, id: ConversationId) -> Result<(), ApiError> {
    if !caller.grants.has(KeyScope::OpsControl) {
        state.kernel.conversation(caller.scope(), id).await?;
    }
    state.kernel.resume_conversation(id).await?;
    tracing::warn!(conversation = %id, by = caller.name(), "a conversation was taken out of quarantine");
    Ok(())
}

/// The actor that a command addresses.
pub struct Target {
    /// The path of the actor, such as `/scheduler`.
    pub path: String,
    /// The expected incarnation. The command is refused if the actor has another one.
    pub incarnation: Option<Incarnation>,
    /// A reason for the log; may be empty.
    pub reason: String,
    /// Confirms a command on the root, which ends the whole server.
    pub force: bool,
}

/// Stops, kills or restarts an actor.
///
/// # Errors
/// If there is no such actor, it has another incarnation, or it is the root and `force` is not set.
pub async fn operate_actor(
    state: &AppState,
    caller: &Caller,
    target: Target,
    operation: Operation,
) -> Result<NodeInfo, ApiError> {
    const REASON_CHARS_MAX: usize = 200;
    let path = actor_path(&target.path);
    if path.trim_matches('/').is_empty() && !target.force {
        let why = "`/` is the root: the whole server ends with it; set `force` (--force) if that is meant, or name an \
                   actor below it";
        return Err(ApiError::invalid(why).at("force"));
    }
    let reason: String = target.reason.chars().take(REASON_CHARS_MAX).collect();
    let by = if reason.is_empty() { caller.name() } else { format!("{}: {reason}", caller.name()) };
    Ok(state.kernel.operate(&path, target.incarnation, operation, &by).await?)
}

/// The state of a skill's breaker. Listed are skills that were called since the start, and skills whose breaker was open before
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerLine {
    /// The name of the skill.
    pub skill: String,
    /// Absent if the breaker is too busy to answer.
    pub state: Option<BreakerState>,
    /// Consecutive failures.
    pub failures: u64,
    /// How often the breaker opened since it last closed.
    pub trips: u64,
    /// When the breaker opened, RFC 3339.
    pub opened_at: Option<String>,
    /// Runs in progress.
    pub runs: u64,
}

/// The live breakers in the order of their skills, each with its own view of its state.
pub async fn list_breakers(state: &AppState) -> Vec<BreakerLine> {
    let paths: Vec<String> = state.kernel.tree().into_iter().map(|a| a.path.to_string()).collect();
    let asked = paths.iter().filter_map(|path| {
        let skill = path.strip_prefix(BREAKERS).filter(|rest| !rest.contains('/'))?.to_owned();
        Some(async move {
            let view = state.kernel.view(path).await.ok().and_then(|(_, view)| view).unwrap_or_default();
            breaker(skill, &view)
        })
    });
    join_all(asked).await
}

fn breaker(skill: String, view: &Value) -> BreakerLine {
    let number = |key: &str| view[key].as_u64().unwrap_or(0);
    let state = BreakerState::deserialize(&view["state"]).ok();
    let opened_at = view["opened_at"].as_str().filter(|_| state != Some(BreakerState::Closed)).map(str::to_owned);
    BreakerLine { skill, state, failures: number("failures"), trips: number("trips"), opened_at, runs: number("runs") }
}

/// Closes the voice gate of a backend (the first one if the name is empty) for everything except voice, or renews it.
///
/// # Errors
/// If the holder's name is not valid, the backend does not exist, or the gate has another holder.
pub async fn hold_gate(state: &AppState, backend: &str, by: &str, ttl_ms: u64) -> Result<GateGrant, ApiError> {
    Ok(state.kernel.hold_gate(backend, holder(by)?, ttl_ms).await?)
}

/// Opens the voice gate. False if this holder did not hold it.
///
/// # Errors
/// If the holder's name is not valid, or the scheduler does not answer.
pub async fn release_gate(state: &AppState, backend: &str, by: &str) -> Result<bool, ApiError> {
    Ok(state.kernel.release_gate(backend, holder(by)?).await?)
}

fn holder(name: &str) -> Result<&str, ApiError> {
    if name.is_empty() || name.len() > HOLDER_BYTES_MAX || name.chars().any(char::is_control) {
        let why = format!("a holder's name has 1 to {HOLDER_BYTES_MAX} bytes and no control characters");
        return Err(ApiError::invalid(why).at("holder"));
    }
    Ok(name)
}

/// Closes the breaker of a skill.
///
/// # Errors
/// If the skill does not exist, or was never called.
pub async fn reset_breaker(state: &AppState, caller: &Caller, skill: &str) -> Result<(), ApiError> {
    match state.kernel.reset_breaker(skill).await {
        Err(KernelError::NotFound(_)) => {
            let skills = state.kernel.catalog().skills();
            if skills.get(skill).is_none() {
                return Err(unknown_skill(&skills.near(skill)));
            }
            let mut error = ApiError::not_found("breaker");
            error.detail = format!("{skill} has not failed since the start: there is nothing to close");
            return Err(error);
        }
        done => done?,
    }
    tracing::warn!(skill, by = caller.name(), "an operator closed a breaker");
    Ok(())
}

/// The error for an unknown skill, with similar names as suggestions.
pub fn unknown_skill(near: &[String]) -> ApiError {
    let mut error = ApiError::not_found("skill");
    if !near.is_empty() {
        error.detail = format!("there is no such skill; did you mean {}?", near.join(" or "));
    }
    error
}
