//! API keys: made, listed, revoked.

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
    auth::{self, Caller, KeyScope, NewKey},
    door::AppState,
    error::{Code, Fault},
};

/// A key, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub struct Key {
    /// Its public part.
    id: String,
    name: String,
    /// Whose data it opens.
    user: String,
    scopes: Vec<String>,
    /// RFC 3339.
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    /// To the minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_used_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
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

/// All keys.
#[utoipa::path(
    get, path = "/api/v1/keys", tag = "keys",
    responses((status = 200, body = Keys), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn list_keys(State(state): State<AppState>) -> Result<Json<Keys>, Fault> {
    Ok(Json(Keys { keys: state.auth.list().await?.into_iter().map(Into::into).collect() }))
}

/// A key to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyWish {
    /// A name for people.
    #[schema(min_length = 1, max_length = 100)]
    name: String,
    /// Whose data it opens; yours if absent.
    #[serde(default)]
    #[schema(value_type = Option<schema::UserId>)]
    user: Option<UserId>,
    /// What it may do.
    #[schema(value_type = Vec<schema::KeyScope>, min_items = 1)]
    scopes: Vec<String>,
    /// Ends in so many days; never if absent.
    #[serde(default, deserialize_with = "whole_option")]
    #[schema(minimum = 1)]
    expires_in_days: Option<u32>,
}

/// A key with its secret, shown this once.
#[derive(Debug, Serialize, ToSchema)]
pub struct MadeKey {
    #[serde(flatten)]
    key: Key,
    /// What to send; it cannot be had again.
    secret: String,
    /// Whom this key locks out, if it is the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

/// Make a key; one for another user takes the scope `impersonate`. The first one ends the time in which callers on this machine need none.
#[utoipa::path(
    post, path = "/api/v1/keys", tag = "keys", request_body = KeyWish,
    responses((status = 201, body = MadeKey), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn create_key(
    State(state): State<AppState>,
    caller: Caller,
    Body(wish): Body<KeyWish>,
) -> Result<(StatusCode, Json<MadeKey>), Fault> {
    let scopes = wish.scopes.iter().map(|s| s.parse::<KeyScope>().map_err(|e| Fault::invalid(e).at("scopes")));
    let scopes = scopes.collect::<Result<Vec<_>, _>>()?;
    // Nobody hands out what they do not have.
    for scope in &scopes {
        caller.must(*scope)?;
    }
    let user = wish.user.unwrap_or_else(|| caller.user.clone());
    // A key for another user's data is a way to speak for that user.
    if user != caller.user && !caller.grants.has(KeyScope::Impersonate) {
        let why = format!(
            "a key for another user ({user}) takes the scope `impersonate`, which this key of {} does not have",
            caller.user
        );
        return Err(Fault::new(Code::Forbidden, why).at("user"));
    }
    let new = NewKey {
        name: wish.name,
        user,
        scopes,
        expires_at: wish.expires_in_days.map(|days| state.kernel.now().plus_ms(i64::from(days) * 86_400_000)),
    };
    if wish.expires_in_days == Some(0) {
        return Err(Fault::invalid("give at least 1 day, or leave it out").at("expires_in_days"));
    }
    let auth::MadeKey { key, secret, warning } = state.auth.create(new).await?;
    tracing::warn!(key = key.id, user = %key.user, by = caller.name(), "a key was made");
    Ok((StatusCode::CREATED, Json(MadeKey { key: key.into(), secret, warning })))
}

/// Revoke a key for good.
#[utoipa::path(
    post, path = "/api/v1/keys/{id}/revoke", tag = "keys", params(("id" = String, Path)),
    responses((status = 200, body = Key), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn revoke_key(State(state): State<AppState>, caller: Caller, Name(id): Name) -> Result<Json<Key>, Fault> {
    let key = state.auth.revoke(&id).await?;
    tracing::warn!(key = key.id, by = caller.name(), "a key was revoked");
    Ok(Json(key.into()))
}
