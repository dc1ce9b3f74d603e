//! State rows of the circuit breakers.

use annie_core::{
    breaker::BreakerRow,
    ports::{Breakers, Fut, StoreError},
};

use super::{
    SqliteStore,
    errors::failed,
    rows::{Columns, signed},
    statements::{Statements, arguments},
};

const BREAKER: &str = "SELECT state, failures, opened_at, trips FROM breakers WHERE skill = $1";
const PUT_BREAKER: &str = "INSERT INTO breakers (skill, state, failures, opened_at, trips) VALUES (?, ?, ?, ?, ?) \
     ON CONFLICT (skill) DO UPDATE SET state = excluded.state, failures = excluded.failures, \
     opened_at = excluded.opened_at, trips = excluded.trips";

impl Breakers for SqliteStore {
    fn breaker(&self, skill: String) -> Fut<'_, Result<Option<BreakerRow>, StoreError>> {
        Box::pin(async move {
            const WHAT: &str = "reading a breaker";
            let rows = self.rows(WHAT, BREAKER, arguments().with(skill).finish().map_err(failed(WHAT))?).await?;
            rows.first()
                .map(|row| {
                    let mut row = Columns::of(row);
                    Ok(BreakerRow {
                        state: row.word()?,
                        failures: row.small()?,
                        opened_at: row.at()?,
                        trips: row.count()?,
                    })
                })
                .transpose()
        })
    }

    fn put_breaker(&self, skill: String, row: BreakerRow) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let mut statements = Statements::default();
            statements.say(PUT_BREAKER).with(skill).with(row.state.as_str()).with(i64::from(row.failures));
            statements.with(row.opened_at.0).with(signed(row.trips));
            self.write("keeping a breaker", statements).await?;
            Ok(())
        })
    }
}
