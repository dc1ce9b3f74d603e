//! Secrets of users and of the installation: sealed in the database with ChaCha20-Poly1305 (RFC 8439), opened with a key
//! that only the configuration names, and masked wherever a skill repeats them (ADR 0029).

use std::sync::{Arc, Mutex, PoisonError};

use annie_core::{
    ids::UserId,
    ports::{Entropy, Fut, SealedSecret, SealedSecrets, SecretError, Secrets},
    secret::Secret,
    time::Micros,
};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::{Digest, Sha256};

/// Length of the key, in bytes.
const KEY_BYTES: usize = 32;
/// How many opened secrets are masked. The least recently opened are no longer masked first.
const OPENED_MAX: usize = 1_000;

/// The key that seals secrets. Its id is a fingerprint, so that a wrong key is recognised without trying it.
pub struct SealingKey {
    key: LessSafeKey,
    id: String,
}

impl SealingKey {
    /// Reads a key: 64 hexadecimal digits.
    ///
    /// # Errors
    /// If the text is something else. The error does not repeat it.
    pub fn parse(text: &Secret) -> Result<Self, String> {
        let wrong = || "the key is not 64 hexadecimal digits".to_owned();
        let digits = text.expose().trim();
        if digits.len() != 2 * KEY_BYTES || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let byte = |n: usize| u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).map_err(|_| wrong());
        let bytes = (0..KEY_BYTES).map(byte).collect::<Result<Vec<u8>, String>>()?;
        let digest = Sha256::new().chain_update(b"annie sealing key").chain_update(&bytes).finalize();
        let id = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let key = UnboundKey::new(&CHACHA20_POLY1305, &bytes).map_err(|_| wrong())?;
        Ok(Self { key: LessSafeKey::new(key), id })
    }

    /// The fingerprint.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Seals a secret for its owner and name: a row that is copied to another owner or name does not open.
    ///
    /// # Errors
    /// If the secret is longer than the cipher allows.
    pub fn seal(
        &self,
        (user, name): (Option<UserId>, &str),
        secret: &Secret,
        entropy: &dyn Entropy,
        now: Micros,
    ) -> Result<SealedSecret, String> {
        let mut nonce = [0; NONCE_LEN];
        let random = [entropy.next_u64().to_le_bytes(), entropy.next_u64().to_le_bytes()].concat();
        nonce.copy_from_slice(&random[..NONCE_LEN]);
        let mut sealed = secret.expose().as_bytes().to_vec();
        let owner = Aad::from(owner(user.as_ref(), name));
        let is_sealed = self.key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), owner, &mut sealed);
        is_sealed.map_err(|_| "the secret cannot be sealed".to_owned())?;
        let (name, key_id) = (name.to_owned(), self.id.clone());
        Ok(SealedSecret { user, name, key_id, nonce: nonce.to_vec(), sealed, updated_at: now })
    }

    /// Opens a sealed secret; nothing if another key sealed it or its row was changed.
    #[must_use]
    pub fn open(&self, row: &SealedSecret) -> Option<Secret> {
        let nonce = Nonce::try_assume_unique_for_key(&row.nonce).ok()?;
        let mut sealed = row.sealed.clone();
        let owner = Aad::from(owner(row.user.as_ref(), &row.name));
        let opened = self.key.open_in_place(nonce, owner, &mut sealed).ok()?;
        Some(Secret::new(std::str::from_utf8(opened).ok()?))
    }
}

/// What the tag covers beside the secret. No user id contains the separator.
fn owner(user: Option<&UserId>, name: &str) -> Vec<u8> {
    format!("{}\0{name}", user.map(UserId::as_str).unwrap_or_default()).into_bytes()
}

/// Opens the secrets of a store, and masks the opened ones.
pub struct StoredSecrets {
    store: Arc<dyn SealedSecrets>,
    key: Option<SealingKey>,
    /// The texts to mask: each opened secret in its plain form and its encodings.
    opened: Mutex<Vec<Vec<Secret>>>,
}

impl StoredSecrets {
    /// The secrets of this store. Without a key none of them opens.
    #[must_use]
    pub fn new(store: Arc<dyn SealedSecrets>, key: Option<SealingKey>) -> Self {
        Self { store, key, opened: Mutex::default() }
    }

    async fn find(&self, user: Option<UserId>, name: &str) -> Result<Option<Secret>, SecretError> {
        let mut row = None;
        if user.is_some() {
            row = self.store.sealed_secret(user, name.to_owned()).await?;
        }
        if row.is_none() {
            row = self.store.sealed_secret(None, name.to_owned()).await?;
        }
        let Some(row) = row else { return Ok(None) };
        let name = || name.to_owned();
        let key = self.key.as_ref().ok_or_else(|| SecretError::NoKey { name: name() })?;
        let secret = key.open(&row).ok_or_else(|| SecretError::WrongKey { name: name() })?;
        self.note(&secret);
        Ok(Some(secret))
    }

    fn note(&self, secret: &Secret) {
        let forms = forms(secret);
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.retain(|known| known != &forms);
        opened.push(forms);
        let beyond = opened.len().saturating_sub(OPENED_MAX);
        opened.drain(..beyond);
    }
}

impl Secrets for StoredSecrets {
    fn secret(&self, user: Option<UserId>, name: String) -> Fut<'_, Result<Option<Secret>, SecretError>> {
        Box::pin(async move { self.find(user, &name).await })
    }

    fn scrubbed(&self, text: &str) -> String {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        // A secret may begin with another one.
        let mut forms: Vec<&Secret> = opened.iter().flatten().collect();
        forms.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
        forms.into_iter().fold(text.to_owned(), |text, secret| secret.scrub(&text))
    }
}

/// The secret in its plain form and in the encodings that are masked.
fn forms(secret: &Secret) -> Vec<Secret> {
    let text = secret.expose();
    let upper = percent_encoded(text, |byte| format!("%{byte:02X}"));
    let lower = percent_encoded(text, |byte| format!("%{byte:02x}"));
    let encoded = (0..3).flat_map(|before| within_base64(text.as_bytes(), before));
    let all = [text.to_owned(), upper, lower].into_iter().chain(encoded);
    all.map(Secret::new).collect()
}

/// The characters of a base64 text that depend on the secret alone, if this many bytes of another text stand before it in
/// its group of three: up to the end of the text, and if more follows.
fn within_base64(secret: &[u8], before: usize) -> [String; 2] {
    let encoded = base64(&[&[0; 2][..before], secret].concat());
    // A character has 6 bits. Characters that share bits with the bytes before or after the secret are left out.
    let (first, end) = ((before * 8).div_ceil(6), (before + secret.len()) * 8 / 6);
    [encoded[first..].to_owned(), encoded[first..end].to_owned()]
}

/// Base64 without padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for n in 0..=chunk.len() {
            text.push(char::from(DIGITS[((bits >> (18 - 6 * n)) & 0x3f) as usize]));
        }
    }
    text
}

fn percent_encoded(text: &str, escape: impl Fn(u8) -> String) -> String {
    let encode = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        _ => escape(byte),
    };
    text.bytes().map(encode).collect()
}

/// Whether a text can be the name of a secret: 1 to 64 bytes of `a-z 0-9 - _ .`.
#[must_use]
pub fn valid_secret_name(name: &str) -> bool {
    let is_part = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
    (1..=64).contains(&name.len()) && name.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use annie_store::MemoryStore;
    use annie_testkit::env;

    use super::*;

    fn key(digit: &str) -> SealingKey {
        SealingKey::parse(&Secret::new(digit.repeat(64))).unwrap()
    }

    fn sealed(key: &SealingKey, user: Option<&str>, text: &str) -> SealedSecret {
        let user = user.map(|user| UserId::new(user).unwrap());
        key.seal((user, "token"), &Secret::new(text), env::env(1).entropy.as_ref(), Micros(1)).unwrap()
    }

    #[test]
    fn sealed_secret_opens_only_with_its_key_owner_name_and_content() {
        let row = sealed(&key("a"), Some("ann"), "sk-123456");
        assert_eq!(key("a").open(&row), Some(Secret::new("sk-123456")));
        assert!(!row.sealed.windows(6).any(|part| part == b"123456"));
        let mut changed = row.clone();
        changed.sealed[0] ^= 1;
        let others = [
            SealedSecret { user: None, ..row.clone() },
            SealedSecret { name: "other".to_owned(), ..row.clone() },
            SealedSecret { nonce: vec![0; 3], ..row.clone() },
            SealedSecret { sealed: Vec::new(), ..row.clone() },
            changed,
        ];
        for other in others {
            assert_eq!(key("a").open(&other), None, "{other:?}");
        }
        assert_eq!(key("b").open(&row), None);
        assert_ne!(key("a").id(), key("b").id());
        for text in ["", "a", &"g".repeat(64), &"ä".repeat(32)] {
            assert!(SealingKey::parse(&Secret::new(text)).is_err_and(|why| !why.contains("gg")), "{text}");
        }
    }

    #[tokio::test]
    async fn opened_secret_is_masked_in_every_alignment_of_base64_and_both_cases_of_percent_encoding() {
        let store = Arc::new(MemoryStore::new());
        store.put_sealed_secret(sealed(&key("a"), None, "house+secret?")).await.unwrap();
        let secrets = StoredSecrets::new(store, Some(key("a")));
        assert!(secrets.secret(None, "token".into()).await.is_ok_and(|secret| secret.is_some()));
        for (encoded, masked) in [
            ("house%2Bsecret%3F house%2bsecret%3f", "[secret] [secret]"),
            // `house+secret?` alone, and after `x:`, `xy:` and `xyz:`, as in the header of basic authentication.
            ("aG91c2Urc2VjcmV0Pw==", "[secret]=="),
            ("eDpob3VzZStzZWNyZXQ/", "eDp[secret]"),
            ("eHk6aG91c2Urc2VjcmV0Pw==", "eHk6[secret]=="),
            ("eHl6OmhvdXNlK3NlY3JldD8=", "eHl6Om[secret]="),
            // With `!!` behind it.
            ("aG91c2Urc2VjcmV0PyEh", "[secret]yEh"),
        ] {
            assert_eq!(secrets.scrubbed(encoded), masked, "{encoded}");
        }
    }

    #[tokio::test]
    async fn secret_of_the_user_comes_before_that_of_the_installation_and_opened_ones_are_masked() {
        let store = Arc::new(MemoryStore::new());
        for row in [sealed(&key("a"), None, "house+secret?"), sealed(&key("a"), Some("ann"), "ann's secret")] {
            store.put_sealed_secret(row).await.unwrap();
        }
        let user = |name: &str| Some(UserId::new(name).unwrap());
        let secrets = StoredSecrets::new(store.clone(), Some(key("a")));
        assert_eq!(secrets.scrubbed("house+secret?"), "house+secret?", "it was not opened yet");
        assert_eq!(secrets.secret(user("ann"), "token".into()).await, Ok(Some(Secret::new("ann's secret"))));
        assert_eq!(secrets.secret(user("bob"), "token".into()).await, Ok(Some(Secret::new("house+secret?"))));
        assert_eq!(secrets.secret(user("bob"), "other".into()).await, Ok(None));
        let encoded = "house+secret? aG91c2Urc2VjcmV0Pw== house%2Bsecret%3F ann's secret";
        assert_eq!(secrets.scrubbed(encoded), "[secret] [secret]== [secret] [secret]");
        let name = "token".to_owned();
        let without = StoredSecrets::new(store.clone(), None).secret(None, name.clone()).await;
        assert_eq!(without, Err(SecretError::NoKey { name: name.clone() }));
        let wrong = StoredSecrets::new(store, Some(key("b"))).secret(None, name.clone()).await;
        assert_eq!(wrong, Err(SecretError::WrongKey { name }));
    }
}
