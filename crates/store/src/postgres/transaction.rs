//! Transactions of several statements, except the log's. Each one is retried when its connection breaks or when it collides
//! with another transaction, so each must find out whether it was executed before.

use annie_core::ports::{Fut, StoreError};

use super::{Postgres, bound::Bound, connections::Held, errors::Failure};

/// Waits for all other transactions that change the same user's data, until this transaction ends.
const LOCK_USER: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";
/// Waits only for those that hold the lock alone.
const LOCK_USER_SHARED: &str = "SELECT pg_advisory_xact_lock_shared(hashtextextended($1, 0))";

/// A transaction, or an attempt at one.
pub(super) struct Attempt<'a> {
    held: Held<'a>,
    /// Whether an earlier attempt may have been executed.
    pub is_repeated: bool,
}

impl Postgres {
    /// Runs `work` in a transaction.
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

    /// Locks the data that this word names against other processes until the end of the transaction.
    pub async fn lock(&mut self, word: String) -> Result<(), Failure> {
        self.rows(LOCK_USER, Bound::default().with(word)).await.map(drop)
    }

    /// The same together with other transactions that share the lock.
    pub async fn lock_shared(&mut self, word: String) -> Result<(), Failure> {
        self.rows(LOCK_USER_SHARED, Bound::default().with(word)).await.map(drop)
    }
}
