//! API keys: of the secret only its SHA-256.

use annie_core::ports::{ApiKey, Fut, Keys, StoreError};
use sqlx::sqlite::SqliteRow;

use super::{
    SqliteStore,
    errors::failed,
    rows::{Columns, json},
    statements::{Statements, arguments},
};

const KEY: &str = "SELECT id, name, user_id, secret_sha256, scopes, created_at, expires_at, last_used_at, revoked_at \
     FROM api_keys WHERE id = $1";
const KEYS: &str = "SELECT id, name, user_id, secret_sha256, scopes, created_at, expires_at, last_used_at, revoked_at \
     FROM api_keys ORDER BY created_at, id";
const PUT_KEY: &str = "INSERT INTO api_keys \
     (id, name, user_id, secret_sha256, scopes, created_at, expires_at, last_used_at, revoked_at) \
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET name = excluded.name, \
     user_id = excluded.user_id, secret_sha256 = excluded.secret_sha256, scopes = excluded.scopes, \
     created_at = excluded.created_at, expires_at = excluded.expires_at, last_used_at = excluded.last_used_at, \
     revoked_at = excluded.revoked_at";

impl Keys for SqliteStore {
    fn key(&self, id: String) -> Fut<'_, Result<Option<ApiKey>, StoreError>> {
        Box::pin(async move {
            const WHAT: &str = "reading an API key";
            let rows = self.rows(WHAT, KEY, arguments().with(id).finish().map_err(failed(WHAT))?).await?;
            rows.first().map(key_of).transpose()
        })
    }

    fn keys(&self) -> Fut<'_, Result<Vec<ApiKey>, StoreError>> {
        Box::pin(async move {
            const WHAT: &str = "listing API keys";
            let rows = self.rows(WHAT, KEYS, arguments().finish().map_err(failed(WHAT))?).await?;
            rows.iter().map(key_of).collect()
        })
    }

    fn put_key(&self, key: ApiKey) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let scopes = json(&key.scopes)?;
            let mut statements = Statements::default();
            statements.say(PUT_KEY).with(key.id).with(key.name).with(key.user.as_str().to_owned());
            statements.with(key.secret_sha256).with(scopes).with(key.created_at.0);
            for time in [key.expires_at, key.last_used_at, key.revoked_at] {
                statements.with(time.map(|t| t.0));
            }
            self.write("keeping an API key", statements).await?;
            Ok(())
        })
    }
}

fn key_of(row: &SqliteRow) -> Result<ApiKey, StoreError> {
    let mut row = Columns::of(row);
    Ok(ApiKey {
        id: row.take()?,
        name: row.take()?,
        user: row.user()?,
        secret_sha256: row.take()?,
        scopes: row.json()?,
        created_at: row.at()?,
        expires_at: row.maybe_at()?,
        last_used_at: row.maybe_at()?,
        revoked_at: row.maybe_at()?,
    })
}
