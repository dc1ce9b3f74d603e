//! Who asks, and what they may do: one answer for HTTP and gRPC, deny by default.
//!
//! Without any key, only callers on this machine are let in, as the default user; the first key that is made ends that.

mod key;
mod origin;
mod policy;
mod rate;
mod scope;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use annie_core::{
    event::Scope,
    ids::UserId,
    ports::{ApiKey, Env, Store, StoreError},
};
use axum::http::{HeaderMap, header::AUTHORIZATION};
use key::Presented;
pub use key::{NewKey, create_key, list_keys, revoke_key};
pub use origin::{OriginRules, check_origin};
pub(crate) use policy::is_path;
pub use policy::{Need, RULES, Rule, need};
pub use rate::{Left, Rate, Rates};
pub use scope::{Grants, KeyScope};

use crate::error::{Code, Fault};

/// How long a key that was read is believed, in microseconds: another node may have revoked it.
const BELIEVED_US: u64 = 10_000_000;
/// Keys that are remembered at a time.
const REMEMBERED_MAX: usize = 10_000;
/// The header by which a trusted front end says for whom it speaks.
pub const USER_HEADER: &str = "x-annie-user";

/// Somebody whose request is let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// For whom they act.
    pub user: UserId,
    /// The key, or nothing for a caller on this machine while there are no keys.
    pub key: Option<String>,
    /// What they may do.
    pub grants: Grants,
}

impl Caller {
    /// Whose data they see: their own, whatever they may do besides (invariant 17).
    #[must_use]
    pub fn scope(&self) -> Scope {
        Scope::User(self.user.clone())
    }

    /// Refuses what the key does not allow.
    ///
    /// # Errors
    /// `forbidden`, naming the missing scope.
    pub fn must(&self, scope: KeyScope) -> Result<(), Fault> {
        if self.grants.has(scope) {
            return Ok(());
        }
        Err(Fault::new(Code::Forbidden, format!("this key does not have the scope `{scope}`")))
    }

    /// How they appear in the log of operations.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.key {
            Some(key) => format!("{} (key {key})", self.user),
            None => format!("{} (local)", self.user),
        }
    }
}

struct Remembered {
    key: Arc<ApiKey>,
    at_us: u64,
    used_minute: i64,
}

/// The keeper of the keys.
pub struct Auth {
    store: Arc<dyn Store>,
    env: Env,
    default_user: UserId,
    has_keys: AtomicBool,
    looked_at_us: AtomicU64,
    remembered: Mutex<HashMap<String, Remembered>>,
    /// Rows are written whole, so that two writers must not work on one at a time.
    writing: tokio::sync::Mutex<()>,
}

impl Auth {
    /// Looks whether there are keys.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn load(store: Arc<dyn Store>, env: Env, default_user: UserId) -> Result<Arc<Self>, StoreError> {
        let has_keys = !store.keys().await?.is_empty();
        Ok(Arc::new(Self {
            looked_at_us: AtomicU64::new(env.clock.monotonic_us()),
            store,
            env,
            default_user,
            has_keys: AtomicBool::new(has_keys),
            remembered: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
        }))
    }

    /// Whether callers need a key. While they do not, only loopback addresses may be listened on.
    #[must_use]
    pub fn needs_keys(&self) -> bool {
        self.has_keys.load(Relaxed)
    }

    /// Who sends these headers. `local` means a direct connection from this machine.
    ///
    /// # Errors
    /// `unauthenticated`, or `forbidden` if they name a user that they may not speak for.
    pub async fn identify(self: &Arc<Self>, headers: &HeaderMap, local: bool) -> Result<Caller, Fault> {
        self.look_for_keys().await?;
        let mut caller = if self.needs_keys() {
            self.by_key(headers).await?
        } else if local {
            Caller { user: self.default_user.clone(), key: None, grants: Grants::all() }
        } else {
            return Err(unauthenticated("no key is configured, so only this machine itself is let in"));
        };
        if let Some(other) = headers.get(USER_HEADER) {
            caller.must(KeyScope::Impersonate)?;
            let other = other.to_str().unwrap_or_default();
            caller.user = UserId::new(other).map_err(|e| Fault::from(e).at(USER_HEADER))?;
        }
        Ok(caller)
    }

    async fn by_key(self: &Arc<Self>, headers: &HeaderMap) -> Result<Caller, Fault> {
        let Some(text) = shown(headers) else {
            return Err(unauthenticated("send a key as `Authorization: Bearer annie_…` or `x-api-key: annie_…`"));
        };
        // One answer for everything that is wrong: it tells nothing about which keys there are.
        let wrong = || unauthenticated("this key is not valid: it is unknown, has ended or was revoked");
        let presented = Presented::parse(text).ok_or_else(wrong)?;
        let found = self.find(presented.id).await?;
        let secret: &[u8] = found.as_ref().map_or(&[0; 32], |k| &k.secret_sha256);
        let opens = presented.opens(secret);
        let now = self.env.now();
        let key = found
            .filter(|k| opens && k.revoked_at.is_none() && k.expires_at.is_none_or(|at| at > now))
            .ok_or_else(wrong)?;
        self.note_use(&key);
        Ok(Caller { user: key.user.clone(), key: Some(key.id.clone()), grants: Grants::of_words(&key.scopes) })
    }

    async fn find(&self, id: &str) -> Result<Option<Arc<ApiKey>>, Fault> {
        let now_us = self.env.clock.monotonic_us();
        {
            let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = remembered.get(id).filter(|r| now_us.saturating_sub(r.at_us) < BELIEVED_US) {
                return Ok(Some(known.key.clone()));
            }
        }
        let Some(key) = self.store.key(id.to_owned()).await?.map(Arc::new) else { return Ok(None) };
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        // A revocation may have come between the reading and this; what it left here stands.
        if let Some(known) = remembered.get(id).filter(|r| r.key.revoked_at.is_some()) {
            return Ok(Some(known.key.clone()));
        }
        let used_minute = key.last_used_at.map_or(0, minute);
        remembered.insert(id.to_owned(), Remembered { key: key.clone(), at_us: now_us, used_minute });
        Ok(Some(key))
    }

    /// Notes the use of a key, once a minute and beside the request.
    fn note_use(self: &Arc<Self>, key: &ApiKey) {
        let now = self.env.now();
        {
            let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(known) = remembered.get_mut(&key.id) else { return };
            if known.used_minute == minute(now) {
                return;
            }
            known.used_minute = minute(now);
        }
        let (auth, id) = (self.clone(), key.id.clone());
        #[expect(clippy::disallowed_methods, reason = "one short write a minute and key, whose loss costs a date")]
        tokio::spawn(async move {
            let _writing = auth.writing.lock().await;
            let Ok(Some(mut key)) = auth.store.key(id).await else { return };
            key.last_used_at = Some(now);
            if let Err(error) = auth.store.put_key(key).await {
                tracing::warn!(%error, "the use of a key could not be noted");
            }
        });
    }

    /// While there are no keys, somebody else may make the first.
    async fn look_for_keys(&self) -> Result<(), Fault> {
        let now_us = self.env.clock.monotonic_us();
        let looked_at_us = self.looked_at_us.load(Relaxed);
        if !self.needs_keys() && now_us.saturating_sub(looked_at_us) >= BELIEVED_US {
            self.has_keys.fetch_or(!self.store.keys().await?.is_empty(), Relaxed);
            self.looked_at_us.store(now_us, Relaxed);
        }
        Ok(())
    }

    /// Makes a key; see [`create_key`].
    ///
    /// # Errors
    /// As there.
    pub async fn create(&self, new: NewKey) -> Result<(ApiKey, String), Fault> {
        let _writing = self.writing.lock().await;
        let made = create_key(self.store.as_ref(), new, &self.env).await?;
        self.has_keys.store(true, Relaxed);
        Ok(made)
    }

    /// All keys.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn list(&self) -> Result<Vec<ApiKey>, Fault> {
        list_keys(self.store.as_ref()).await
    }

    /// Revokes a key; from the answer on it opens nothing here.
    ///
    /// # Errors
    /// If there is none, or the store fails.
    pub async fn revoke(&self, id: &str) -> Result<ApiKey, Fault> {
        let _writing = self.writing.lock().await;
        let revoked = revoke_key(self.store.as_ref(), id, &self.env).await?;
        let known = Remembered { key: Arc::new(revoked.clone()), at_us: self.env.clock.monotonic_us(), used_minute: 0 };
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), known);
        Ok(revoked)
    }
}

fn minute(at: annie_core::time::Micros) -> i64 {
    at.0.div_euclid(60_000_000)
}

fn unauthenticated(why: &str) -> Fault {
    Fault::new(Code::Unauthenticated, why)
}

/// The bearer token that the headers show.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION).and_then(|v| v.to_str().ok()).and_then(|v| {
        let (scheme, key) = v.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    })
}

/// The key that the headers show.
fn shown(headers: &HeaderMap) -> Option<&str> {
    bearer(headers).or_else(|| headers.get("x-api-key").and_then(|v| v.to_str().ok()).map(str::trim))
}

#[cfg(test)]
mod tests;
