//! What model calls cost, as front ends see it.

use annie_core::spend::{UsageBy, UsageQuery, UsageRow, UsageTotals};

use super::{Kernel, KernelError};

impl Kernel {
    /// The sums of a query, and the sum of all that it covers, whatever its limit.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn usage(&self, query: UsageQuery) -> Result<(Vec<UsageRow>, UsageTotals), KernelError> {
        let total = UsageQuery { by: UsageBy::All, limit: 1, ..query.clone() };
        let rows = self.wiring.store.usage(query).await?;
        let total = self.wiring.store.usage(total).await?;
        Ok((rows, total.first().map(|row| row.totals).unwrap_or_default()))
    }
}
