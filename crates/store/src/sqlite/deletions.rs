//! Transactions of several statements that delete, and the rewriting of the file.

use annie_core::ports::StoreError;
use sqlx::sqlite::SqliteRow;

use super::{Sqlite, statements::Statements};
use crate::sql::Step;

/// The index of words keeps the words of deleted documents until its parts are merged into one.
const MERGE_INDEX: &str = "INSERT INTO documents_fts (documents_fts) VALUES ('optimize')";

impl Sqlite {
    pub(super) async fn run_steps(
        &self,
        what: &'static str,
        steps: Vec<Step>,
    ) -> Result<Vec<Vec<SqliteRow>>, StoreError> {
        let mut guard = self.lock_writer(what).await?;
        guard.overwrite().await?;
        guard.begin(Statements::begin()).await?;
        let mut answers = Vec::with_capacity(steps.len());
        for (sql, bound) in steps {
            match guard.send(Statements::one(sql, bound)).await {
                Ok(rows) => answers.push(rows),
                Err(error) => {
                    guard.roll_back().await;
                    return Err(error);
                }
            }
        }
        guard.commit(Statements::default()).await?;
        Ok(answers)
    }

    pub(super) async fn rewrite_file(&self) -> Result<(), StoreError> {
        let mut guard = self.lock_writer("rewriting the database").await?;
        for sql in [MERGE_INDEX, "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"] {
            guard.send(Statements::one(sql, Vec::new())).await?;
        }
        Ok(())
    }
}
