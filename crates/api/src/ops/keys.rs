//! The caller's own key.

use serde::Serialize;
use utoipa::ToSchema;

use super::row::{Call, Operation, Verb::Get, route};
use crate::{
    auth::{Caller, KeyScope, Need::AnyKey},
    error::ApiError,
    grpc::v1,
    http::schema,
};

/// The operations on the caller's own key.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/keys/self", AnyKey, own_key, OwnKey::from)
            .about("get_own_key", "keys", "Get the user and the scopes of the key that the request has.", "key self")
            .rpc("/annie.v1.Keys/Own", |_: v1::OwnKeyRequest| Ok(()), own),
    ]
}

/// The key of a request.
#[derive(Debug, Serialize, ToSchema)]
pub struct OwnKey {
    /// The public id; absent for a caller on this machine while there are no keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// The user for whom the caller acts.
    user: String,
    /// The scopes, with those that they imply.
    #[schema(value_type = Vec<schema::KeyScope>)]
    scopes: Vec<&'static str>,
}

impl From<Caller> for OwnKey {
    fn from(caller: Caller) -> Self {
        let scopes = KeyScope::ALL.into_iter().filter(|scope| caller.grants.has(*scope)).map(KeyScope::as_str);
        Self { scopes: scopes.collect(), id: caller.key, user: caller.user.to_string() }
    }
}

fn own(caller: Caller) -> v1::OwnKeyResponse {
    let OwnKey { id, user, scopes } = caller.into();
    let scopes = scopes.into_iter().map(str::to_owned).collect();
    v1::OwnKeyResponse { id: id.unwrap_or_default(), user, scopes }
}

async fn own_key(call: Call, (): ()) -> Result<Caller, ApiError> {
    Ok(call.caller)
}
