//! Authentication and authorisation of callers, the same for HTTP and gRPC, deny by default.
//!
//! While no key exists, only callers on this machine are admitted, as the default user. The first key ends that.

mod access;
mod key;
mod key_table;
mod origin;
mod policy;
mod rate;
mod scope;

use std::{path::PathBuf, sync::Arc};

pub(crate) use access::Access;
use annie_core::{
    event::Scope,
    ids::UserId,
    ports::{ApiKey, Env, Store, StoreError},
    trace_parent::TraceParent,
};
use axum::http::{HeaderMap, header::AUTHORIZATION};
use key::Presented;
pub use key::{MadeKey, NewKey, create_key, list_keys, revoke_key};
use key_table::KeyTable;
pub use origin::{OriginRules, check_origin};
pub(crate) use policy::OTHER_RULES;
pub use policy::{Need, Rule};
pub use rate::{Left, Rate, Rates};
pub use scope::{Grants, KeyScope};
use tokio::sync::watch;

use crate::{
    error::{ApiError, Code},
    folder::Mark,
};

/// The header in which a trusted front end names the user for whom it acts.
pub const USER_HEADER: &str = "x-annie-user";
/// The header of the W3C trace context. In gRPC it is a metadata key.
const TRACEPARENT: &str = "traceparent";

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The user for whom the caller acts.
    pub user: UserId,
    /// The key id; absent for a caller on this machine while there are no keys.
    pub key: Option<String>,
    /// The granted scopes.
    pub grants: Grants,
    /// The trace in which the caller made the request, if it named one.
    pub traceparent: Option<TraceParent>,
}

impl Caller {
    /// The scope of the caller's data access: its own user, whatever scopes it has (invariant 17).
    #[must_use]
    pub fn scope(&self) -> Scope {
        Scope::User(self.user.clone())
    }

    /// Requires a scope.
    ///
    /// # Errors
    /// `forbidden`, naming the missing scope.
    pub fn must(&self, scope: KeyScope) -> Result<(), ApiError> {
        if self.grants.has(scope) {
            return Ok(());
        }
        Err(ApiError::new(Code::Forbidden, format!("this key does not have the scope `{scope}`")))
    }

    /// The caller's name in the log of operations.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.key {
            Some(key) => format!("{} (key {key})", self.user),
            None => format!("{} (local)", self.user),
        }
    }
}

/// Which keys a server without keys accepts without checking them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placeholder {
    /// None: a caller that sends a key expects it to be checked.
    Refused,
    /// Any text that does not look like one of Annie's keys: OpenAI's libraries cannot omit the key.
    Allowed,
}

/// Authenticates callers by their keys.
pub struct Auth {
    store: Arc<dyn Store>,
    env: Env,
    default_user: UserId,
    table: KeyTable,
    /// The data folder, whose mark records that keys exist.
    folder: Option<PathBuf>,
    /// Counts the key changes that this process made. After each change, open streams check their key again.
    changes: watch::Sender<u64>,
}

impl Auth {
    /// Reads the keys.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn load(store: Arc<dyn Store>, env: Env, default_user: UserId) -> Result<Arc<Self>, StoreError> {
        Self::load_in(store, env, default_user, None).await
    }

    /// Like [`Self::load`], with the data folder whose mark records that keys exist.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn load_in(
        store: Arc<dyn Store>,
        env: Env,
        default_user: UserId,
        folder: Option<PathBuf>,
    ) -> Result<Arc<Self>, StoreError> {
        let table = KeyTable::load(store.as_ref(), &env).await?;
        Ok(Arc::new(Self { store, env, default_user, table, folder, changes: watch::channel(0).0 }))
    }

    /// Whether callers need a key. While they do not, the server may listen on loopback addresses only.
    #[must_use]
    pub fn needs_keys(&self) -> bool {
        !self.table.is_empty()
    }

    /// Authenticates a request by its headers. `local` means a direct connection from this machine.
    ///
    /// # Errors
    /// `unauthenticated`, or `forbidden` if the headers name a user for whom the caller may not act.
    pub async fn identify(
        self: &Arc<Self>,
        headers: &HeaderMap,
        local: bool,
        placeholder: Placeholder,
    ) -> Result<Caller, ApiError> {
        self.table.refresh_if_older(self.store.as_ref(), &self.env, key_table::BELIEVED_US).await?;
        let mut caller = if self.needs_keys() {
            self.by_key(headers).await?
        } else if !local {
            return Err(unauthenticated("no key exists, so only callers on this machine are admitted"));
        } else if shown(headers).is_some_and(|key| placeholder == Placeholder::Refused || key::is_ours(key)) {
            return Err(unauthenticated(
                "this server has no keys, so the key that was sent cannot be checked: leave it out, or make one with \
                 `annie key create`",
            ));
        } else {
            Caller { user: self.default_user.clone(), key: None, grants: Grants::all(), traceparent: None }
        };
        // As the specification demands, a header that is not valid counts as absent.
        caller.traceparent = headers.get(TRACEPARENT).and_then(|header| header.to_str().ok()?.parse().ok());
        if let Some(other) = headers.get(USER_HEADER) {
            caller.must(KeyScope::Impersonate)?;
            let other = other.to_str().unwrap_or_default();
            caller.user = UserId::new(other).map_err(|e| ApiError::from(e).at(USER_HEADER))?;
        }
        Ok(caller)
    }

    async fn by_key(self: &Arc<Self>, headers: &HeaderMap) -> Result<Caller, ApiError> {
        let Some(text) = shown(headers) else {
            return Err(unauthenticated("send a key as `Authorization: Bearer annie_…` or `x-api-key: annie_…`"));
        };
        // The same answer for every invalid key, so that it reveals nothing about the existing keys.
        let wrong = || unauthenticated("this key is not valid: it is unknown, has expired or was revoked");
        let presented = Presented::parse(text).ok_or_else(wrong)?;
        let key = match self.opened_by(&presented) {
            Some(key) => key,
            // Another process may have created the key a moment ago. Every wrong key takes this path, whether its id is known
            // or not, so that the response time reveals nothing.
            None => {
                self.table.refresh_if_older(self.store.as_ref(), &self.env, key_table::WRONG_KEY_US).await?;
                self.opened_by(&presented).ok_or_else(wrong)?
            }
        };
        self.note_use(&key);
        let (user, grants) = (key.user.clone(), Grants::of_words(&key.scopes));
        Ok(Caller { user, key: Some(key.id.clone()), grants, traceparent: None })
    }

    /// The key that the presented text matches. The work is the same for an unknown id and a wrong secret.
    fn opened_by(&self, presented: &Presented<'_>) -> Option<Arc<ApiKey>> {
        let found = self.table.get(presented.id);
        let secret: &[u8] = found.as_ref().map_or(&[0; 32], |k| &k.secret_sha256);
        let opens = presented.opens(secret);
        found.filter(|key| opens && self.is_valid(key))
    }

    fn is_valid(&self, key: &ApiKey) -> bool {
        key.revoked_at.is_none() && key.expires_at.is_none_or(|at| at > self.env.now())
    }

    /// Checks whether a caller that was admitted before would still be admitted.
    ///
    /// # Errors
    /// `unauthenticated` if not; otherwise the reason why the keys cannot be read.
    async fn still_admits(&self, key: Option<&str>) -> Result<(), ApiError> {
        // If the store is unavailable, a key that the table knows to be revoked or expired is still refused.
        let read = self.table.refresh_if_older(self.store.as_ref(), &self.env, key_table::BELIEVED_US).await;
        match key {
            None if self.needs_keys() => Err(unauthenticated("callers need a key now: the first key was created")),
            None => Ok(read?),
            Some(id) if self.table.get(id).is_some_and(|key| self.is_valid(&key)) => Ok(read?),
            Some(_) => Err(unauthenticated("the key of this stream was revoked or has expired")),
        }
    }

    /// Records the use of a key in a background task, at most once per minute.
    fn note_use(self: &Arc<Self>, key: &ApiKey) {
        let now = self.env.now();
        if !self.table.is_first_use_in_minute(&key.id, now) {
            return;
        }
        let (auth, id) = (self.clone(), key.id.clone());
        #[expect(clippy::disallowed_methods, reason = "one short write a minute and key, whose loss costs a date")]
        tokio::spawn(async move {
            let _writing = auth.table.lock_rows().await;
            if let Err(error) = auth.store.note_key_use(id, now).await {
                tracing::warn!(%error, "the use of a key could not be recorded");
            }
        });
    }

    /// Creates a key; see [`create_key`].
    ///
    /// # Errors
    /// As [`create_key`].
    pub async fn create(&self, new: NewKey) -> Result<MadeKey, ApiError> {
        let _writing = self.table.lock_rows().await;
        let made = create_key(self.store.as_ref(), new, &self.env).await?;
        self.table.put(&made.key);
        if let Some(folder) = &self.folder {
            Mark::note_keys(folder);
        }
        self.changes.send_modify(|n| *n += 1);
        Ok(made)
    }

    /// All keys.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn list(&self) -> Result<Vec<ApiKey>, ApiError> {
        list_keys(self.store.as_ref()).await
    }

    /// Revokes a key. When this returns, this process no longer accepts the key.
    ///
    /// # Errors
    /// If the key does not exist, or the store fails.
    pub async fn revoke(&self, id: &str) -> Result<ApiKey, ApiError> {
        let _writing = self.table.lock_rows().await;
        let revoked = revoke_key(self.store.as_ref(), id, &self.env).await?;
        self.table.put(&revoked);
        self.changes.send_modify(|n| *n += 1);
        Ok(revoked)
    }
}

fn unauthenticated(why: &str) -> ApiError {
    ApiError::new(Code::Unauthenticated, why)
}

/// The bearer token in the headers.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION).and_then(|v| v.to_str().ok()).and_then(|v| {
        let (scheme, key) = v.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    })
}

/// The key in the headers.
pub(crate) fn shown(headers: &HeaderMap) -> Option<&str> {
    bearer(headers).or_else(|| headers.get("x-api-key").and_then(|v| v.to_str().ok()).map(str::trim))
}

#[cfg(test)]
mod tests;
