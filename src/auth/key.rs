//! API keys: `annie_<key id>_<43 base62>`. Of the secret only its SHA-256 is stored: 256 random bits need no slow hash.

use annie_core::{
    ids::UserId,
    ports::{ApiKey, Env, Store},
    time::Micros,
};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::scope::KeyScope;
use crate::error::{Code, Fault};

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Characters of a key's public part.
const ID_CHARS: usize = 12;
/// Characters of a key's secret part: 256 bits.
const SECRET_CHARS: usize = 43;
/// Keys that may exist at a time.
const KEYS_MAX: usize = 10_000;
/// The longest name of a key, in bytes.
const NAME_BYTES_MAX: usize = 100;

/// A key to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// A name for people.
    pub name: String,
    /// Whose data it opens.
    pub user: UserId,
    /// What it may do; at least one.
    pub scopes: Vec<KeyScope>,
    /// When it ends.
    pub expires_at: Option<Micros>,
}

/// A key that was just made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeKey {
    /// The key as it is stored.
    pub key: ApiKey,
    /// What opens it: shown this once, and it cannot be had again.
    pub secret: String,
    /// What its maker should know: whom the first key locks out.
    pub warning: Option<String>,
}

/// Whom the first key locks out. The keys after it change nothing for others.
fn warning(is_first: bool, key: &ApiKey) -> Option<String> {
    if !is_first {
        return None;
    }
    let everybody = "this is the first key: from now on every request needs a key, also from this machine";
    let is_admin = key.scopes.iter().any(|s| s == KeyScope::Admin.as_str());
    Some(if is_admin {
        format!("{everybody}; give the command line this one with --key-file or client.key_file")
    } else {
        format!(
            "{everybody}. It has no scope `admin`, so no key can make or revoke keys, and the operator of this machine is \
             locked out of a running server: stop the server and make another with `annie key create NAME --scope admin`"
        )
    })
}

/// Makes a key and stores it.
///
/// # Errors
/// If it is not acceptable or the store fails.
pub async fn create_key(store: &dyn Store, new: NewKey, env: &Env) -> Result<MadeKey, Fault> {
    let now = env.now();
    let name = new.name.trim();
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(Fault::invalid(format!("a key's name has 1 to {NAME_BYTES_MAX} bytes")).at("name"));
    }
    if new.scopes.is_empty() {
        return Err(Fault::invalid("a key needs at least one scope").at("scopes"));
    }
    if new.expires_at.is_some_and(|at| at <= now) {
        return Err(Fault::invalid("the key would have ended before it begins").at("expires_at"));
    }
    let keys = store.keys().await?.len();
    if keys >= KEYS_MAX {
        return Err(Fault::new(Code::Stale, format!("there are {KEYS_MAX} keys already, which is the most")));
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

/// Whether a text claims to be a key of Annie's.
pub(super) fn is_ours(text: &str) -> bool {
    text.starts_with("annie_")
}

/// All keys, oldest first, revoked ones too.
///
/// # Errors
/// If the store fails.
pub async fn list_keys(store: &dyn Store) -> Result<Vec<ApiKey>, Fault> {
    Ok(store.keys().await?)
}

/// Revokes a key for good; the same again changes nothing.
///
/// # Errors
/// If there is none, or the store fails.
pub async fn revoke_key(store: &dyn Store, id: &str, env: &Env) -> Result<ApiKey, Fault> {
    let mut key = store.key(id.to_owned()).await?.ok_or_else(|| Fault::not_found("key"))?;
    if key.revoked_at.is_none() {
        key.revoked_at = Some(env.now());
        store.put_key(key.clone()).await?;
    }
    Ok(key)
}

/// A key as a request shows it.
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

    /// Whether it is this key. Takes the same time whatever the answer.
    pub fn opens(&self, secret_sha256: &[u8]) -> bool {
        Sha256::digest(self.secret.as_bytes()).ct_eq(secret_sha256).into()
    }
}

/// Text of so many characters, each equally likely.
fn base62(env: &Env, chars: usize) -> String {
    let mut text = String::with_capacity(chars);
    while text.len() < chars {
        // Of six bits, 62 and 63 are thrown away: a remainder would make some characters likelier than others.
        let bits = env.entropy.next_u64();
        for n in 0..10 {
            let six = usize::from((bits >> (n * 6)) as u8 & 63);
            if let Some(letter) = ALPHABET.get(six)
                && text.len() < chars
            {
                text.push(char::from(*letter));
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
    async fn a_key_opens_with_its_own_text_only_and_its_secret_is_not_stored() {
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
    async fn first_key_warns_whom_it_locks_out_and_later_keys_do_not() {
        let (store, env) = (MemoryStore::new(), env(1));
        let first = create_key(&store, new("one"), &env).await.unwrap().warning.unwrap();
        assert!(first.contains("no scope `admin`") && first.contains("--scope admin"), "{first}");
        assert_eq!(create_key(&store, new("two"), &env).await.unwrap().warning, None);
        let admin = NewKey { scopes: vec![KeyScope::Admin], ..new("one") };
        let first = create_key(&MemoryStore::new(), admin, &env).await.unwrap().warning.unwrap();
        assert!(first.contains("every request needs a key") && !first.contains("locked out"), "{first}");
    }

    #[test]
    fn texts_that_are_no_keys_are_not_looked_up() {
        let long = format!("annie_{}_{}", "a".repeat(12), "b".repeat(43));
        assert!(Presented::parse(&long).is_some());
        for bad in
            ["", "annie_", "sk-x", &long[1..], &long[..long.len() - 1], &format!("{long}b"), &long.replace('b', "-")]
        {
            assert!(Presented::parse(bad).is_none(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_key_that_makes_no_sense_is_refused_with_the_field() {
        let (store, env) = (MemoryStore::new(), env(1));
        let bad = [
            (new(" "), "name"),
            (NewKey { scopes: vec![], ..new("x") }, "scopes"),
            (NewKey { expires_at: Some(Micros(1)), ..new("x") }, "expires_at"),
        ];
        for (new, field) in bad {
            let fault = create_key(&store, new, &env).await.unwrap_err();
            assert_eq!(fault.field.as_deref(), Some(field));
        }
        assert!(list_keys(&store).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_revoked_key_stays_listed_and_keeps_its_first_date() {
        let (store, env) = (MemoryStore::new(), env(1));
        let key = create_key(&store, new("one"), &env).await.unwrap().key;
        let first = revoke_key(&store, &key.id, &env).await.unwrap();
        let again = revoke_key(&store, &key.id, &env).await.unwrap();
        assert!(first.revoked_at.is_some() && first.revoked_at == again.revoked_at);
        assert_eq!(list_keys(&store).await.unwrap(), [again]);
        assert_eq!(revoke_key(&store, "nobody", &env).await.unwrap_err().code, Code::NotFound);
    }
}
