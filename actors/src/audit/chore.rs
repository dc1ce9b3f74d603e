//! The chore that seals what was stored since its last pass.

use std::sync::Arc;

use annie_core::{
    audit::{NOTHING, Seal, link},
    event::Scope,
    ids::Seq,
    ports::{Before, Chore, ConversationRow, Documents, Fut, Store, StoreError},
    time::Micros,
};

use super::{Progress, Seals, internal, verify::is_of_a_row};
use crate::kernel::PAGE_MAX;

/// How far before the newest change of the last pass a pass looks for conversations that have changed, in milliseconds: a commit
/// may have been under way, and nodes' clocks differ.
pub(super) const SLACK_MS: i64 = 3_600_000;
/// How often a pass considers all conversations, in milliseconds. It finds what a wrong clock or an error has left without a seal.
const WHOLE_MS: i64 = 86_400_000;

/// Seals what was stored since the last pass.
pub struct SealChore {
    store: Arc<dyn Store>,
    documents: Arc<dyn Documents>,
    every_ms: u64,
}

impl SealChore {
    /// The chore. A pass follows each `every_ms` milliseconds.
    #[must_use]
    pub fn chore(store: Arc<dyn Store>, documents: Arc<dyn Documents>, every_ms: u64) -> Arc<dyn Chore> {
        Arc::new(Self { store, documents, every_ms })
    }

    /// Seals the events of all conversations that have changed, the newest change first. How far the passes have come is written
    /// at the end: a pass that is cut off is repeated.
    async fn seal_all(&self, now: Micros) -> Result<u64, StoreError> {
        let seals = Seals::of(&*self.documents)?;
        let progress = seals.progress().await?;
        let recent = progress.filter(|last| last.whole_at <= now && now < last.whole_at.plus_ms(WHOLE_MS));
        let floor = recent.map_or(Micros(i64::MIN), |last| last.until.min(now).plus_ms(-SLACK_MS));
        let (mut sealed, mut newest, mut before) = (0, floor, Before::NEWEST);
        'pages: loop {
            let page = self.store.conversations(Scope::Operator, before, PAGE_MAX).await?;
            for row in &page {
                if row.updated_at < floor {
                    break 'pages;
                }
                newest = newest.max(row.updated_at);
                sealed += self.seal(&seals, row, now).await?;
            }
            match page.last() {
                Some(last) if page.len() >= PAGE_MAX as usize => before = last.page_start(),
                _ => break,
            }
            tokio::task::yield_now().await;
        }
        if sealed > 0 || recent.is_none() {
            let whole_at = recent.map_or(now, |last| last.whole_at);
            seals.write_progress(Progress { until: newest, whole_at }, now).await?;
        }
        Ok(sealed)
    }

    /// Seals the events of a conversation that have no seal. Returns their number. A row that cannot be read costs only this
    /// conversation its seal.
    async fn seal(&self, seals: &Seals<'_>, row: &ConversationRow, now: Micros) -> Result<u64, StoreError> {
        match self.seal_conversation(seals, row, now).await {
            Err(error) if is_of_a_row(&error) => {
                metrics::counter!("annie_audit_failures_total").increment(1);
                tracing::warn!(conversation = %row.id, %error, "events of a conversation could not be sealed");
                Ok(0)
            }
            sealed => sealed,
        }
    }

    async fn seal_conversation(
        &self,
        seals: &Seals<'_>,
        row: &ConversationRow,
        now: Micros,
    ) -> Result<u64, StoreError> {
        let last = match seals.last_of(row.id, None).await? {
            Some(last) => Some(last.seal.ok_or_else(|| internal(&format!("seal {} cannot be read", last.number)))?),
            None => None,
        };
        let (mut to, link_before) = last.map_or((Seq(0), NOTHING.to_owned()), |last| (last.to, last.link));
        if to >= row.last_seq {
            return Ok(0);
        }
        let (from, mut now_link) = (Seq(to.0 + 1), link_before.clone());
        while to < row.last_seq {
            let page = self.store.stored_events(row.id, to, PAGE_MAX).await?;
            if page.is_empty() {
                break;
            }
            for event in &page {
                now_link = link(&now_link, row.id, event);
                to = event.seq;
            }
        }
        if to < from {
            return Ok(0);
        }
        let seal = Seal {
            number: 0,
            conversation: row.id,
            from,
            to,
            link_before,
            link: now_link,
            at: now,
            until: row.updated_at,
            previous: String::new(),
            digest: String::new(),
        };
        seals.write(seal).await?;
        Ok(to.0 - from.0 + 1)
    }
}

impl Chore for SealChore {
    fn name(&self) -> &'static str {
        "audit"
    }

    fn pass(&self, now: Micros) -> Fut<'_, Result<Option<Micros>, String>> {
        Box::pin(async move {
            let sealed = self.seal_all(now).await.map_err(|error| error.to_string())?;
            if sealed > 0 {
                metrics::counter!("annie_audit_sealed_events_total").increment(sealed);
                let last =
                    Seals::of(&*self.documents).map_err(|e| e.to_string())?.last().await.map_err(|e| e.to_string())?;
                if let Some(last) = last {
                    // Outside of the database the line is what a later verification can be compared with.
                    tracing::info!(events = sealed, seal = last.number, digest = last.digest(), "events were sealed");
                }
            }
            Ok(Some(now.plus_ms(i64::try_from(self.every_ms).unwrap_or(i64::MAX))))
        })
    }
}
