//! Transactions of more than one statement, beside the log's: each is repeated when its connection broke or another
//! transaction was in its way, so each must find out whether it was carried out before.

use annie_core::ports::{Fut, StoreError};

use super::{Postgres, bound::Bound, connections::Held, errors::Failure};

/// Waits for everybody else who changes the same user's things, until the transaction ends.
const LOCK_USER: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";

/// A transaction, or an attempt at one.
pub(super) struct Attempt<'a> {
    held: Held<'a>,
    /// Whether an earlier attempt may have been carried out.
    pub is_repeated: bool,
}

impl Postgres {
    /// Does `work` in a transaction.
    pub(super) async fn transaction<T: Send>(
        &self,
        what: &'static str,
        work: impl for<'a> Fn(&'a mut Attempt<'_>) -> Fut<'a, Result<T, Failure>> + Send + Sync,
    ) -> Result<T, StoreError> {
        let mut patience = self.connections.patience();
        let mut is_repeated = false;
        loop {
            let attempt = async {
                let mut attempt = Attempt { held: self.connections.take().await?, is_repeated };
                attempt.held.begin().await?;
                match work(&mut attempt).await {
                    Ok(done) => attempt.held.commit().await.map(|()| done),
                    Err(failure) => {
                        if !failure.is_broken() {
                            attempt.held.roll_back().await;
                        }
                        Err(failure)
                    }
                }
            };
            match attempt.await {
                Ok(done) => return Ok(done),
                Err(failure) => {
                    is_repeated |= failure.is_broken();
                    patience.after(failure).await.map_err(|failure| failure.during(what))?;
                }
            }
        }
    }
}

impl Attempt<'_> {
    pub async fn rows(&mut self, sql: &'static str, bound: Bound) -> Result<Vec<sqlx::postgres::PgRow>, Failure> {
        self.held.rows(sql, bound.finish()?).await
    }

    /// Until the end of the transaction nobody else changes what this word names.
    pub async fn lock(&mut self, word: String) -> Result<(), Failure> {
        self.rows(LOCK_USER, Bound::default().with(word)).await.map(drop)
    }
}
