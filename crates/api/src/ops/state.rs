//! State: values under keys of a conversation, of a user and of the application (ADR 0059).

use annie_actors::StateChanged;
use annie_core::{
    ids::ConversationId,
    state::{StateDelta, StateEntry},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::row::{
    Call, Operation,
    Verb::{Get, Post},
    route,
};
use crate::{
    auth::{
        KeyScope::{Admin, Chat},
        Need::Scope,
    },
    error::ApiError,
    grpc::v1,
    http::extract::{Args, Body, Name},
};

/// The operations on state.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/state", Scope(Chat), list_state, StateEntries::from)
            .about("list_state", "state", "List the values that you see, by key.", "state list")
            .rpc("/annie.v1.State/List", asked_list, listed),
        route(Get, "/api/v1/state/{key}", Scope(Chat), get_state, StateValue::from)
            .about("get_state", "state", "Get the value of a key, with its last changes.", "state get")
            .rpc("/annie.v1.State/Get", asked_get, message_of),
        route(Post, "/api/v1/state/{key}", Scope(Chat), set_state, StateChange::from)
            .about("set_state", "state", SET, "state set")
            .rpc("/annie.v1.State/Set", asked_set, changed),
        route(Post, "/api/v1/state/{key}/delete", Scope(Chat), delete_state, StateChange::from)
            .about("delete_state", "state", "Delete a key.", "state delete")
            .rpc("/annie.v1.State/Delete", asked_delete, changed),
    ]
}

const SET: &str = "Set the value of a key. Keys with `app:` need a key of scope admin.";

/// One change of a value.
#[derive(Debug, Serialize, ToSchema)]
pub struct StateEntryChange {
    /// RFC 3339.
    #[schema(format = DateTime)]
    at: String,
    /// What wrote it.
    by: String,
    /// The value before; null if there was none. A long one is cut.
    before: Value,
    /// The value after. A long one is cut.
    after: Value,
}

/// The value of a key.
#[derive(Debug, Serialize, ToSchema)]
pub struct StateValue {
    /// The key with its prefix.
    key: String,
    /// The value.
    value: Value,
    /// The sources other than your words that its author had read.
    origin: Vec<String>,
    /// RFC 3339.
    #[schema(format = DateTime)]
    updated_at: String,
    /// Its last changes, the oldest first.
    changes: Vec<StateEntryChange>,
}

impl From<StateEntry> for StateValue {
    fn from(StateEntry { key, value, origin, updated_at, changes }: StateEntry) -> Self {
        let change = |StateDelta { at, by, before, after }: StateDelta| StateEntryChange {
            at: at.to_string(),
            by,
            before,
            after,
        };
        Self {
            key: key.to_string(),
            value,
            origin,
            updated_at: updated_at.to_string(),
            changes: changes.into_iter().map(change).collect(),
        }
    }
}

fn message_of(StateEntry { key, value, origin, updated_at, changes }: StateEntry) -> v1::StateValue {
    let change = |StateDelta { at, by, before, after }: StateDelta| v1::StateEntryChange {
        at_us: at.0,
        by,
        before_json: before.to_string(),
        after_json: after.to_string(),
    };
    v1::StateValue {
        key: key.to_string(),
        value_json: value.to_string(),
        origin,
        updated_at_us: updated_at.0,
        changes: changes.into_iter().map(change).collect(),
    }
}

/// The values that a user sees.
#[derive(Debug, Serialize, ToSchema)]
pub struct StateEntries {
    /// By key.
    state: Vec<StateValue>,
}

impl From<Vec<StateEntry>> for StateEntries {
    fn from(all: Vec<StateEntry>) -> Self {
        Self { state: all.into_iter().map(Into::into).collect() }
    }
}

fn listed(all: Vec<StateEntry>) -> v1::ListStateResponse {
    v1::ListStateResponse { state: all.into_iter().map(message_of).collect() }
}

/// The conversation of the values.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StateQuery {
    /// The conversation; without one, keys with `session:` are not seen.
    conversation_id: Option<String>,
}

fn conversation(text: Option<String>) -> Result<Option<ConversationId>, ApiError> {
    text.filter(|text| !text.is_empty()).map(|text| text.parse().map_err(ApiError::from)).transpose()
}

fn asked_list(asked: v1::ListStateRequest) -> Result<Args<StateQuery>, ApiError> {
    Ok(Args(StateQuery { conversation_id: Some(asked.conversation_id) }))
}

async fn list_state(call: Call, Args(query): Args<StateQuery>) -> Result<Vec<StateEntry>, ApiError> {
    Ok(call.state.kernel.state(&call.caller.user, conversation(query.conversation_id)?).await?)
}

fn asked_get(asked: v1::GetStateRequest) -> Result<(Name, Args<StateQuery>), ApiError> {
    Ok((Name(asked.key), Args(StateQuery { conversation_id: Some(asked.conversation_id) })))
}

async fn get_state(call: Call, (Name(key), Args(query)): (Name, Args<StateQuery>)) -> Result<StateEntry, ApiError> {
    Ok(call.state.kernel.state_entry(&call.caller.user, &key, conversation(query.conversation_id)?).await?)
}

/// A value to set.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewState {
    /// The value: any JSON but null, at most 8 KiB.
    value: Value,
    /// The conversation of a key without a prefix or with `session:`.
    #[serde(default)]
    conversation_id: Option<String>,
}

/// A key to delete.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OldState {
    /// The conversation of a key without a prefix or with `session:`.
    #[serde(default)]
    conversation_id: Option<String>,
}

/// What a write changed.
#[derive(Debug, Serialize, ToSchema)]
pub struct StateChange {
    /// The key with its prefix.
    key: String,
    /// The value before; null if there was none.
    before: Value,
    /// The value now; null if it was deleted.
    after: Value,
}

impl From<StateChanged> for StateChange {
    fn from(StateChanged { key, before, after }: StateChanged) -> Self {
        Self { key: key.to_string(), before, after }
    }
}

fn changed(StateChanged { key, before, after }: StateChanged) -> v1::StateChange {
    v1::StateChange { key: key.to_string(), before_json: before.to_string(), after_json: after.to_string() }
}

fn asked_set(asked: v1::SetStateRequest) -> Result<(Name, Body<NewState>), ApiError> {
    let value = serde_json::from_str(&asked.value_json)
        .map_err(|error| ApiError::invalid(format!("value_json is no JSON: {error}")))?;
    Ok((Name(asked.key), Body(NewState { value, conversation_id: Some(asked.conversation_id) })))
}

async fn set_state(call: Call, (Name(key), Body(new)): (Name, Body<NewState>)) -> Result<StateChanged, ApiError> {
    let is_operator = call.caller.must(Admin).is_ok();
    let author = (&call.caller.user, is_operator, call.channel);
    Ok(call.state.kernel.set_state(author, &key, conversation(new.conversation_id)?, new.value).await?)
}

fn asked_delete(asked: v1::DeleteStateRequest) -> Result<(Name, Body<OldState>), ApiError> {
    Ok((Name(asked.key), Body(OldState { conversation_id: Some(asked.conversation_id) })))
}

async fn delete_state(call: Call, (Name(key), Body(old)): (Name, Body<OldState>)) -> Result<StateChanged, ApiError> {
    let is_operator = call.caller.must(Admin).is_ok();
    let author = (&call.caller.user, is_operator, call.channel);
    Ok(call.state.kernel.delete_state(author, &key, conversation(old.conversation_id)?).await?)
}
