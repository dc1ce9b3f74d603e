//! API keys. Of each secret only its SHA-256 is stored.

use annie_core::{
    ports::{ApiKey, Fut, Keys, StoreError},
    time::Micros,
};

use super::{Cell, Columns, Database, SqlStore, json};

const KEY: &str = "SELECT id, name, user_id, secret_sha256, scopes, created_at, expires_at, last_used_at, revoked_at \
     FROM api_keys WHERE id = $1";
const KEYS: &str = "SELECT id, name, user_id, secret_sha256, scopes, created_at, expires_at, last_used_at, revoked_at \
     FROM api_keys ORDER BY created_at, id";
const PUT_KEY: &str = "INSERT INTO api_keys \
     (id, name, user_id, secret_sha256, scopes, created_at, expires_at, last_used_at, revoked_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (id) DO UPDATE SET name = excluded.name, \
     user_id = excluded.user_id, secret_sha256 = excluded.secret_sha256, scopes = excluded.scopes, \
     created_at = excluded.created_at, expires_at = excluded.expires_at, last_used_at = excluded.last_used_at, \
     revoked_at = coalesce(api_keys.revoked_at, excluded.revoked_at)";
const NOTE_KEY_USE: &str =
    "UPDATE api_keys SET last_used_at = $2 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)";

impl<D: Database> Keys for SqlStore<D> {
    fn key(&self, id: String) -> Fut<'_, Result<Option<ApiKey>, StoreError>> {
        Box::pin(self.one("reading an API key", KEY, vec![id.into()], key_of))
    }

    fn keys(&self) -> Fut<'_, Result<Vec<ApiKey>, StoreError>> {
        Box::pin(self.list("listing API keys", KEYS, Vec::new(), key_of))
    }

    fn put_key(&self, key: ApiKey) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let scopes = json(&key.scopes)?;
            let mut bound = vec![
                key.id.into(),
                key.name.into(),
                Cell::from(&key.user),
                Cell::Bytes(key.secret_sha256),
                scopes.into(),
                key.created_at.into(),
            ];
            bound.extend([key.expires_at, key.last_used_at, key.revoked_at].map(Cell::maybe_at));
            self.execute("keeping an API key", PUT_KEY, bound).await?;
            Ok(())
        })
    }

    fn note_key_use(&self, id: String, at: Micros) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.execute("noting the use of an API key", NOTE_KEY_USE, vec![id.into(), at.into()]).await?;
            Ok(())
        })
    }
}

fn key_of(row: &mut Columns<'_>) -> Result<ApiKey, StoreError> {
    Ok(ApiKey {
        id: row.text()?,
        name: row.text()?,
        user: row.user()?,
        secret_sha256: row.bytes()?,
        scopes: row.json()?,
        created_at: row.at()?,
        expires_at: row.maybe_at()?,
        last_used_at: row.maybe_at()?,
        revoked_at: row.maybe_at()?,
    })
}
