//! Sealed secrets. An empty user stands for the installation.

use annie_core::{
    ids::UserId,
    ports::{Fut, SealedSecret, SealedSecrets, StoreError},
};

use super::{Cell, Columns, Database, SqlStore, corrupt};

const SECRET: &str = "SELECT user_id, name, key_id, nonce, sealed, updated_at FROM sealed_secrets \
     WHERE user_id = $1 AND name = $2";
const SECRETS: &str =
    "SELECT user_id, name, key_id, nonce, sealed, updated_at FROM sealed_secrets ORDER BY user_id, name";
const PUT_SECRET: &str = "INSERT INTO sealed_secrets (user_id, name, key_id, nonce, sealed, updated_at) \
     VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (user_id, name) DO UPDATE SET key_id = excluded.key_id, \
     nonce = excluded.nonce, sealed = excluded.sealed, updated_at = excluded.updated_at";
const DELETE_SECRET: &str = "DELETE FROM sealed_secrets WHERE user_id = $1 AND name = $2 RETURNING name";

impl<D: Database> SealedSecrets for SqlStore<D> {
    fn sealed_secret(&self, user: Option<UserId>, name: String) -> Fut<'_, Result<Option<SealedSecret>, StoreError>> {
        Box::pin(self.one("reading a sealed secret", SECRET, vec![user_cell(user), name.into()], secret_of))
    }

    fn sealed_secrets(&self) -> Fut<'_, Result<Vec<SealedSecret>, StoreError>> {
        Box::pin(self.list("listing sealed secrets", SECRETS, Vec::new(), secret_of))
    }

    fn put_sealed_secret(&self, secret: SealedSecret) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let SealedSecret { user, name, key_id, nonce, sealed, updated_at } = secret;
            let (nonce, sealed) = (Cell::Bytes(nonce), Cell::Bytes(sealed));
            let bound = vec![user_cell(user), name.into(), key_id.into(), nonce, sealed, updated_at.into()];
            self.execute("keeping a sealed secret", PUT_SECRET, bound).await?;
            Ok(())
        })
    }

    fn delete_sealed_secret(&self, user: Option<UserId>, name: String) -> Fut<'_, Result<bool, StoreError>> {
        Box::pin(async move {
            let bound = vec![user_cell(user), name.into()];
            let deleted = self.execute("deleting a sealed secret", DELETE_SECRET, bound).await?;
            Ok(!deleted.is_empty())
        })
    }
}

fn user_cell(user: Option<UserId>) -> Cell {
    Cell::Text(user.map_or_else(String::new, |user| user.as_str().to_owned()))
}

fn secret_of(row: &mut Columns<'_>) -> Result<SealedSecret, StoreError> {
    let user = row.text()?;
    let user = if user.is_empty() {
        None
    } else {
        Some(UserId::new(user).map_err(|e| corrupt("reading a sealed secret", e))?)
    };
    Ok(SealedSecret {
        user,
        name: row.text()?,
        key_id: row.text()?,
        nonce: row.bytes()?,
        sealed: row.bytes()?,
        updated_at: row.at()?,
    })
}
