//! Who asks, and what they may do: one answer for HTTP and gRPC, deny by default.
//!
//! Without any key, only callers on this machine are let in, as the default user; the first key that is made ends that.

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
};
use axum::http::{HeaderMap, header::AUTHORIZATION};
use key::Presented;
pub use key::{MadeKey, NewKey, create_key, list_keys, revoke_key};
use key_table::KeyTable;
pub use origin::{OriginRules, check_origin};
pub(crate) use policy::is_path;
pub use policy::{Need, RULES, Rule, need};
pub use rate::{Left, Rate, Rates};
pub use scope::{Grants, KeyScope};
use tokio::sync::watch;

use crate::{
    boot::Mark,
    error::{Code, Fault},
};

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

/// Which keys a server without keys lets pass unread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placeholder {
    /// None: whoever shows a key expects it to be checked.
    Refused,
    /// Any text that is not in the form of Annie's keys: OpenAI's libraries cannot leave the key out.
    Allowed,
}

/// Identifies callers by their keys.
pub struct Auth {
    store: Arc<dyn Store>,
    env: Env,
    default_user: UserId,
    table: KeyTable,
    /// The data folder, whose mark says that there are keys.
    folder: Option<PathBuf>,
    /// Counts changes of the keys that this process made; open streams check their key again after each.
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

    /// The same, with the data folder whose mark says that there are keys.
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

    /// Whether callers need a key. While they do not, only loopback addresses may be listened on.
    #[must_use]
    pub fn needs_keys(&self) -> bool {
        !self.table.is_empty()
    }

    /// Who sends these headers. `local` means a direct connection from this machine.
    ///
    /// # Errors
    /// `unauthenticated`, or `forbidden` if they name a user that they may not speak for.
    pub async fn identify(
        self: &Arc<Self>,
        headers: &HeaderMap,
        local: bool,
        placeholder: Placeholder,
    ) -> Result<Caller, Fault> {
        self.table.refresh_if_older(self.store.as_ref(), &self.env, key_table::BELIEVED_US).await?;
        let mut caller = if self.needs_keys() {
            self.by_key(headers).await?
        } else if !local {
            return Err(unauthenticated("no key is configured, so only this machine itself is let in"));
        } else if shown(headers).is_some_and(|key| placeholder == Placeholder::Refused || key::is_ours(key)) {
            return Err(unauthenticated(
                "this server has no keys, so the key that was sent is worth nothing: leave it out, or make one with \
                 `annie key create`",
            ));
        } else {
            Caller { user: self.default_user.clone(), key: None, grants: Grants::all() }
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
        let key = match self.opened_by(&presented) {
            Some(key) => key,
            // Another process may have made the key a moment ago. Every wrong key takes this path, whether its id is
            // known or not, so that the time of the answer tells nothing.
            None => {
                self.table.refresh_if_older(self.store.as_ref(), &self.env, key_table::WRONG_KEY_US).await?;
                self.opened_by(&presented).ok_or_else(wrong)?
            }
        };
        self.note_use(&key);
        Ok(Caller { user: key.user.clone(), key: Some(key.id.clone()), grants: Grants::of_words(&key.scopes) })
    }

    /// The key that these characters open. The work is the same for an unknown id and a wrong secret.
    fn opened_by(&self, presented: &Presented<'_>) -> Option<Arc<ApiKey>> {
        let found = self.table.get(presented.id);
        let secret: &[u8] = found.as_ref().map_or(&[0; 32], |k| &k.secret_sha256);
        let opens = presented.opens(secret);
        found.filter(|key| opens && self.is_valid(key))
    }

    fn is_valid(&self, key: &ApiKey) -> bool {
        key.revoked_at.is_none() && key.expires_at.is_none_or(|at| at > self.env.now())
    }

    /// Whether a caller who was let in would be let in now.
    ///
    /// # Errors
    /// `unauthenticated` if not; otherwise why the keys cannot be read.
    async fn still_admits(&self, key: Option<&str>) -> Result<(), Fault> {
        // A store that is away keeps no key valid that the table already knows to be revoked or expired.
        let read = self.table.refresh_if_older(self.store.as_ref(), &self.env, key_table::BELIEVED_US).await;
        match key {
            None if self.needs_keys() => Err(unauthenticated("callers need a key now: the first one was made")),
            None => Ok(read?),
            Some(id) if self.table.get(id).is_some_and(|key| self.is_valid(&key)) => Ok(read?),
            Some(_) => Err(unauthenticated("the key of this stream was revoked or has ended")),
        }
    }

    /// Notes the use of a key, once a minute and beside the request.
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
                tracing::warn!(%error, "the use of a key could not be noted");
            }
        });
    }

    /// Makes a key; see [`create_key`].
    ///
    /// # Errors
    /// As there.
    pub async fn create(&self, new: NewKey) -> Result<MadeKey, Fault> {
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
    pub async fn list(&self) -> Result<Vec<ApiKey>, Fault> {
        list_keys(self.store.as_ref()).await
    }

    /// Revokes a key; from the answer on it opens nothing here.
    ///
    /// # Errors
    /// If there is none, or the store fails.
    pub async fn revoke(&self, id: &str) -> Result<ApiKey, Fault> {
        let _writing = self.table.lock_rows().await;
        let revoked = revoke_key(self.store.as_ref(), id, &self.env).await?;
        self.table.put(&revoked);
        self.changes.send_modify(|n| *n += 1);
        Ok(revoked)
    }
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
pub(crate) fn shown(headers: &HeaderMap) -> Option<&str> {
    bearer(headers).or_else(|| headers.get("x-api-key").and_then(|v| v.to_str().ok()).map(str::trim))
}

#[cfg(test)]
mod tests;
