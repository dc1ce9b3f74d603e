//! Transactions of several statements that delete.

use annie_core::ports::StoreError;
use sqlx::postgres::PgRow;

use super::{Postgres, bound::Bound};
use crate::sql::Step;

impl Postgres {
    pub(super) async fn run_steps(&self, what: &'static str, steps: Vec<Step>) -> Result<Vec<Vec<PgRow>>, StoreError> {
        self.transaction(what, |attempt| {
            let steps = steps.clone();
            Box::pin(async move {
                let mut answers = Vec::with_capacity(steps.len());
                for (sql, bound) in steps {
                    answers.push(attempt.rows(sql, Bound::of(bound)).await?);
                }
                Ok(answers)
            })
        })
        .await
    }
}
