//! State rows of the circuit breakers.

use annie_core::{
    breaker::BreakerRow,
    ports::{Breakers, Fut, StoreError},
};

use super::{Columns, Database, SqlStore, signed};

const BREAKER: &str = "SELECT state, failures, opened_at, trips FROM breakers WHERE skill = $1";
const OPEN_BREAKERS: &str = "SELECT skill FROM breakers WHERE state <> 'closed' ORDER BY skill LIMIT $1";
const PUT_BREAKER: &str = "INSERT INTO breakers (skill, state, failures, opened_at, trips) VALUES ($1, $2, $3, $4, $5) \
     ON CONFLICT (skill) DO UPDATE SET state = excluded.state, failures = excluded.failures, \
     opened_at = excluded.opened_at, trips = excluded.trips";

impl<D: Database> Breakers for SqlStore<D> {
    fn breaker(&self, skill: String) -> Fut<'_, Result<Option<BreakerRow>, StoreError>> {
        Box::pin(self.one("reading a breaker", BREAKER, vec![skill.into()], breaker_of))
    }

    fn open_breakers(&self, limit: u32) -> Fut<'_, Result<Vec<String>, StoreError>> {
        Box::pin(self.list("listing open breakers", OPEN_BREAKERS, vec![limit.into()], |row| row.text()))
    }

    fn put_breaker(&self, skill: String, row: BreakerRow) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let bound = vec![
                skill.into(),
                row.state.as_str().into(),
                row.failures.into(),
                row.opened_at.into(),
                signed(row.trips).into(),
            ];
            self.execute("keeping a breaker", PUT_BREAKER, bound).await?;
            Ok(())
        })
    }
}

fn breaker_of(row: &mut Columns<'_>) -> Result<BreakerRow, StoreError> {
    Ok(BreakerRow { state: row.word()?, failures: row.small()?, opened_at: row.at()?, trips: row.count()? })
}
