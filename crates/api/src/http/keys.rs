//! API keys: create, list, revoke.

use annie_actors::ActRequest;
use annie_core::{ids::UserId, ports::ApiKey, time::Micros};
use axum::{Json, extract::State, http::StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    extract::{Body, Name, whole_option},
    problem::Problem,
    schema,
};
use crate::{
    api::AppState,
    auth::{self, Caller, KeyScope, NewKey},
    error::{ApiError, Code},
    ops::acts::recording,
};

/// A key, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub struct Key {
    /// The public id.
    id: String,
    name: String,
    /// The user for whom the key acts.
    user: String,
    scopes: Vec<String>,
    /// RFC 3339.
    #[schema(format = DateTime)]
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    expires_at: Option<String>,
    /// Accurate to one minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    last_used_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    revoked_at: Option<String>,
}

impl From<ApiKey> for Key {
    fn from(key: ApiKey) -> Self {
        let text = |at: Option<Micros>| at.map(|at| at.to_string());
        Self {
            id: key.id,
            name: key.name,
            user: key.user.to_string(),
            scopes: key.scopes,
            created_at: key.created_at.to_string(),
            expires_at: text(key.expires_at),
            last_used_at: text(key.last_used_at),
            revoked_at: text(key.revoked_at),
        }
    }
}

/// Keys, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Keys {
    keys: Vec<Key>,
}

/// List all keys.
#[utoipa::path(
    get, path = "/api/v1/keys", tag = "keys",
    responses((status = 200, body = Keys), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn list_keys(State(state): State<AppState>) -> Result<Json<Keys>, ApiError> {
    Ok(Json(Keys { keys: state.auth.list().await?.into_iter().map(Into::into).collect() }))
}

/// The options of a new key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyOptions {
    /// A name for people.
    #[schema(min_length = 1, max_length = 100)]
    name: String,
    /// The user for whom the key acts; yours if absent.
    #[serde(default)]
    #[schema(value_type = Option<schema::UserId>)]
    user: Option<UserId>,
    /// The scopes of the key.
    #[schema(value_type = Vec<schema::KeyScope>, min_items = 1)]
    scopes: Vec<String>,
    /// The key expires after this number of days; never if absent.
    #[serde(default, deserialize_with = "whole_option")]
    #[schema(minimum = 1)]
    expires_in_days: Option<u32>,
}

/// A new key with its secret, which is returned only once.
#[derive(Debug, Serialize, ToSchema)]
pub struct MadeKey {
    #[serde(flatten)]
    key: Key,
    /// The key to send in requests. It cannot be retrieved later.
    secret: String,
    /// A warning about callers that are locked out, if this is the first key.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

/// Create a key. A key for another user requires the scope `impersonate`. The first key ends the access without a key from this
/// machine.
#[utoipa::path(
    post, path = "/api/v1/keys", tag = "keys", request_body = KeyOptions,
    responses((status = 201, body = MadeKey), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn create_key(
    State(state): State<AppState>,
    caller: Caller,
    Body(options): Body<KeyOptions>,
) -> Result<(StatusCode, Json<MadeKey>), ApiError> {
    let scopes = options.scopes.iter().map(|s| s.parse::<KeyScope>().map_err(|e| ApiError::invalid(e).at("scopes")));
    let scopes = scopes.collect::<Result<Vec<_>, _>>()?;
    // A caller can grant only scopes that it has itself.
    for scope in &scopes {
        caller.must(*scope)?;
    }
    let user = options.user.unwrap_or_else(|| caller.user.clone());
    // A key for another user's data is a way to act for that user.
    if user != caller.user && !caller.grants.has(KeyScope::Impersonate) {
        let why = format!(
            "a key for another user ({user}) takes the scope `impersonate`, which this key of {} does not have",
            caller.user
        );
        return Err(ApiError::new(Code::Forbidden, why).at("user"));
    }
    let new = NewKey {
        name: options.name,
        user,
        scopes,
        expires_at: options.expires_in_days.map(|days| state.kernel.now().plus_ms(i64::from(days) * 86_400_000)),
    };
    if options.expires_in_days == Some(0) {
        return Err(ApiError::invalid("give at least 1 day, or leave it out").at("expires_in_days"));
    }
    let asked = ActRequest {
        act: "key.create",
        target: format!("key {}", new.name),
        reason: format!("for {}, scopes {}", new.user, options.scopes.join(", ")),
        by: caller.name(),
        channel: "http",
    };
    let made = recording(&state.kernel, asked, state.auth.create(new)).await?;
    let auth::MadeKey { key, secret, warning } = made;
    Ok((StatusCode::CREATED, Json(MadeKey { key: key.into(), secret, warning })))
}

/// Revoke a key permanently.
#[utoipa::path(
    post, path = "/api/v1/keys/{id}/revoke", tag = "keys", params(("id" = String, Path)),
    responses((status = 200, body = Key), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn revoke_key(State(state): State<AppState>, caller: Caller, Name(id): Name) -> Result<Json<Key>, ApiError> {
    let target = format!("key {id}");
    let asked = ActRequest { act: "key.revoke", target, reason: String::new(), by: caller.name(), channel: "http" };
    let key = recording(&state.kernel, asked, state.auth.revoke(&id)).await?;
    Ok(Json(key.into()))
}
