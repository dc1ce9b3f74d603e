//! What operators do, the same through every door.

use annie_actors::{GateGrant, KernelError, NodeInfo, Operation};
use annie_core::ids::{ConversationId, Incarnation};
use futures_util::future::join_all;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{AppState, actor_path};
use crate::{
    auth::{Caller, KeyScope},
    error::Fault,
};

/// The longest name of a gate's holder, in bytes.
const HOLDER_BYTES_MAX: usize = 128;
/// Where the breakers stand, before the skill's name.
const BREAKERS: &str = "/breakers/breaker:";

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

/// The actor that an operation is for.
pub struct Target {
    /// Its path, `/scheduler`.
    pub path: String,
    /// Refused if the actor has another incarnation by now.
    pub incarnation: Option<Incarnation>,
    /// For the log; may be empty.
    pub reason: String,
    /// The caller knows that the whole server ends with the root.
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
) -> Result<NodeInfo, Fault> {
    const REASON_CHARS_MAX: usize = 200;
    let path = actor_path(&target.path);
    if path.trim_matches('/').is_empty() && !target.force {
        let why = "`/` is the root: the whole server ends with it; set `force` (--force) if that is meant, or name an \
                   actor below it";
        return Err(Fault::invalid(why).at("force"));
    }
    let reason: String = target.reason.chars().take(REASON_CHARS_MAX).collect();
    let by = if reason.is_empty() { caller.name() } else { format!("{}: {reason}", caller.name()) };
    Ok(state.kernel.operate(&path, target.incarnation, operation, &by).await?)
}

/// A skill's breaker: of a skill that was called since the start, or one that was left open before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct BreakerLine {
    /// The skill.
    pub skill: String,
    /// `closed`, `open` or `half_open`; absent if it is too busy to tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Failures in a row.
    pub failures: u64,
    /// How often it opened since it last closed.
    pub trips: u64,
    /// Since when it is open, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opened_at: Option<String>,
    /// Runs under way.
    pub runs: u64,
}

/// The breakers that live, by skill, as each of them sees itself.
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
    let opened_at = view["opened_at"].as_str().filter(|_| view["state"] != "closed").map(str::to_owned);
    BreakerLine {
        skill,
        state: view["state"].as_str().map(str::to_owned),
        failures: number("failures"),
        trips: number("trips"),
        opened_at,
        runs: number("runs"),
    }
}

/// Closes the voice gate of a backend (the first if empty) for everything but voice, or renews it.
///
/// # Errors
/// If the holder has no proper name, there is no such backend, or somebody else holds it.
pub async fn hold_gate(state: &AppState, backend: &str, by: &str, ttl_ms: u64) -> Result<GateGrant, Fault> {
    Ok(state.kernel.hold_gate(backend, holder(by)?, ttl_ms).await?)
}

/// Opens the voice gate again; false if this holder did not hold it.
///
/// # Errors
/// If the holder has no proper name, or the scheduler does not answer.
pub async fn release_gate(state: &AppState, backend: &str, by: &str) -> Result<bool, Fault> {
    Ok(state.kernel.release_gate(backend, holder(by)?).await?)
}

fn holder(name: &str) -> Result<&str, Fault> {
    if name.is_empty() || name.len() > HOLDER_BYTES_MAX || name.chars().any(char::is_control) {
        let why = format!("a holder's name has 1 to {HOLDER_BYTES_MAX} bytes and no control characters");
        return Err(Fault::invalid(why).at("holder"));
    }
    Ok(name)
}

/// Closes a skill's breaker.
///
/// # Errors
/// If there is no such skill, or it was never called.
pub async fn reset_breaker(state: &AppState, caller: &Caller, skill: &str) -> Result<(), Fault> {
    match state.kernel.reset_breaker(skill).await {
        Err(KernelError::NotFound(_)) => {
            let skills = state.kernel.catalog().skills();
            if skills.get(skill).is_none() {
                return Err(unknown_skill(&skills.near(skill)));
            }
            let mut fault = Fault::not_found("breaker");
            fault.detail = format!("{skill} was never called and failed: there is nothing to close");
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
