//! API keys: `annie_<key id>_<43 base62>`. Only the SHA-256 of the secret is stored: 256 random bits need no slow hash.

use annie_core::{
    ids::UserId,
    ports::{ApiKey, Env, Store},
    time::Micros,
};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::scope::KeyScope;
use crate::error::{ApiError, Code};

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Length of the public key id, in characters.
const ID_CHARS: usize = 12;
/// Length of the secret, in characters: 256 bits.
const SECRET_CHARS: usize = 43;
/// The maximum number of keys.
const KEYS_MAX: usize = 10_000;
/// The maximum length of a key's name, in bytes.
const NAME_BYTES_MAX: usize = 100;

/// The options of a new key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// A name for people.
    pub name: String,
    /// The user for whom the key acts.
    pub user: UserId,
    /// The scopes of the key; at least one.
    pub scopes: Vec<KeyScope>,
    /// When the key expires.
    pub expires_at: Option<Micros>,
}

/// A key that was just created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeKey {
    /// The key as it is stored.
    pub key: ApiKey,
    /// The key text that clients send. It is returned only here and cannot be retrieved later.
    pub secret: String,
    /// A warning for the caller: who is locked out by the first key.
    pub warning: Option<String>,
}

/// The warning about callers that the first key locks out. Later keys lock no further caller out.
fn warning(is_first: bool, key: &ApiKey) -> Option<String> {
    if !is_first {
        return None;
    }
    let first_key = "this is the first key: from now on every request needs a key, also from this machine";
    let is_admin = key.scopes.iter().any(|s| s == KeyScope::Admin.as_str());
    Some(if is_admin {
        format!("{first_key}; give the command line this one with --key-file or client.key_file")
    } else {
        format!(
            "{first_key}. It has no scope `admin`, so no key can make or revoke keys, and the operator of this machine is \
             locked out of a running server: stop the server and make another with `annie key create NAME --scope admin`"
        )
    })
}

/// Creates a key and stores it.
///
/// # Errors
/// If an option is not valid or the store fails.
pub async fn create_key(store: &dyn Store, new: NewKey, env: &Env) -> Result<MadeKey, ApiError> {
    let now = env.now();
    let name = new.name.trim();
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(ApiError::invalid(format!("a key's name has 1 to {NAME_BYTES_MAX} bytes")).at("name"));
    }
    if new.scopes.is_empty() {
        return Err(ApiError::invalid("a key needs at least one scope").at("scopes"));
    }
    if new.expires_at.is_some_and(|at| at <= now) {
        return Err(ApiError::invalid("the expiry time is in the past").at("expires_at"));
    }
    let keys = store.keys().await?.len();
    if keys >= KEYS_MAX {
        return Err(ApiError::new(Code::Stale, format!("there are {KEYS_MAX} keys already, which is the most")));
    }
    let (id, secret) = (base62(env, ID_CHARS), base62(env, SECRET_CHARS));
    let key = ApiKey {
        id,
        name: name.to_owned(),
        user: new.user,
        secret_sha256: Sha256::digest(secret.as_bytes()).to_vec(),
        scopes: new.scopes.iter().map(|s| s.as_str().to_owned()).collect(),
        created_at: now,
        expires_at: new.expires_at,
        last_used_at: None,
        revoked_at: None,
    };
    store.put_key(key.clone()).await?;
    let secret = format!("annie_{}_{secret}", key.id);
    let warning = warning(keys == 0, &key);
    Ok(MadeKey { key, secret, warning })
}

/// Whether a text has the prefix of Annie's keys.
pub(super) fn is_ours(text: &str) -> bool {
    text.starts_with("annie_")
}

/// All keys, oldest first, including revoked ones.
///
/// # Errors
/// If the store fails.
pub async fn list_keys(store: &dyn Store) -> Result<Vec<ApiKey>, ApiError> {
    Ok(store.keys().await?)
}

/// Revokes a key permanently. Revoking it again changes nothing.
///
/// # Errors
/// If the key does not exist, or the store fails.
pub async fn revoke_key(store: &dyn Store, id: &str, env: &Env) -> Result<ApiKey, ApiError> {
    let mut key = store.key(id.to_owned()).await?.ok_or_else(|| ApiError::not_found("key"))?;
    if key.revoked_at.is_none() {
        key.revoked_at = Some(env.now());
        store.put_key(key.clone()).await?;
    }
    Ok(key)
}

/// A key as a request presents it.
pub(super) struct Presented<'a> {
    pub id: &'a str,
    secret: &'a str,
}

impl<'a> Presented<'a> {
    pub fn parse(text: &'a str) -> Option<Self> {
        let (id, secret) = text.strip_prefix("annie_")?.split_once('_')?;
        let plain = |part: &str, chars| part.len() == chars && part.bytes().all(|b| b.is_ascii_alphanumeric());
        (plain(id, ID_CHARS) && plain(secret, SECRET_CHARS)).then_some(Self { id, secret })
    }

    /// Whether the secret matches, compared in constant time.
    pub fn opens(&self, secret_sha256: &[u8]) -> bool {
        Sha256::digest(self.secret.as_bytes()).ct_eq(secret_sha256).into()
    }
}

/// A random text of this length in base62, with equally likely characters.
fn base62(env: &Env, chars: usize) -> String {
    let mut text = String::with_capacity(chars);
    while text.len() < chars {
        // Of the 64 values of six bits, 62 and 63 are discarded: taking a remainder would make some characters more likely than
        // others.
        let bits = env.entropy.next_u64();
        for n in 0..10 {
            let six = usize::from((bits >> (n * 6)) as u8 & 63);
            if let Some(character) = ALPHABET.get(six)
                && text.len() < chars
            {
                text.push(char::from(*character));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use annie_store::MemoryStore;
    use annie_testkit::env::env;

    use super::*;

    fn new(name: &str) -> NewKey {
        NewKey { name: name.into(), user: UserId::new("ann").unwrap(), scopes: vec![KeyScope::Chat], expires_at: None }
    }

    #[tokio::test]
    async fn key_matches_only_its_own_secret_and_stores_no_secret() {
        let (store, env) = (MemoryStore::new(), env(1));
        let MadeKey { key, secret: text, .. } = create_key(&store, new("one"), &env).await.unwrap();
        let other = create_key(&store, new("two"), &env).await.unwrap().secret;
        let shown = Presented::parse(&text).unwrap();
        assert_eq!(shown.id, key.id);
        assert!(shown.opens(&key.secret_sha256));
        assert!(!Presented::parse(&other).unwrap().opens(&key.secret_sha256));
        assert!(!serde_json::to_string(&key).unwrap().contains(shown.secret));
    }

    #[tokio::test]
    async fn first_key_returns_lockout_warning_and_later_keys_do_not() {
        let (store, env) = (MemoryStore::new(), env(1));
        let first = create_key(&store, new("one"), &env).await.unwrap().warning.unwrap();
        assert!(first.contains("no scope `admin`") && first.contains("--scope admin"), "{first}");
        assert_eq!(create_key(&store, new("two"), &env).await.unwrap().warning, None);
        let admin = NewKey { scopes: vec![KeyScope::Admin], ..new("one") };
        let first = create_key(&MemoryStore::new(), admin, &env).await.unwrap().warning.unwrap();
        assert!(first.contains("every request needs a key") && !first.contains("locked out"), "{first}");
    }

    #[test]
    fn key_parser_rejects_malformed_keys() {
        let long = format!("annie_{}_{}", "a".repeat(12), "b".repeat(43));
        assert!(Presented::parse(&long).is_some());
        for bad in
            ["", "annie_", "sk-x", &long[1..], &long[..long.len() - 1], &format!("{long}b"), &long.replace('b', "-")]
        {
            assert!(Presented::parse(bad).is_none(), "{bad}");
        }
    }

    #[tokio::test]
    async fn key_creation_refuses_invalid_options_with_field() {
        let (store, env) = (MemoryStore::new(), env(1));
        let bad = [
            (new(" "), "name"),
            (NewKey { scopes: vec![], ..new("x") }, "scopes"),
            (NewKey { expires_at: Some(Micros(1)), ..new("x") }, "expires_at"),
        ];
        for (new, field) in bad {
            let error = create_key(&store, new, &env).await.unwrap_err();
            assert_eq!(error.field.as_deref(), Some(field));
        }
        assert!(list_keys(&store).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn revoked_key_stays_listed_and_keeps_first_revocation_time() {
        let (store, env) = (MemoryStore::new(), env(1));
        let key = create_key(&store, new("one"), &env).await.unwrap().key;
        let first = revoke_key(&store, &key.id, &env).await.unwrap();
        let again = revoke_key(&store, &key.id, &env).await.unwrap();
        assert!(first.revoked_at.is_some() && first.revoked_at == again.revoked_at);
        assert_eq!(list_keys(&store).await.unwrap(), [again]);
        assert_eq!(revoke_key(&store, "nobody", &env).await.unwrap_err().code, Code::NotFound);
    }
}
