//! The verification of the seals against the stored events.

use std::collections::HashSet;

use annie_core::{
    audit::{NOTHING, Seal, link, text_fault},
    erasure::{fault_of, is_record},
    event::Scope,
    ids::{ConversationId, Seq},
    ports::{Before, StoreError, StoredEvent},
    time::Micros,
};
use serde::Serialize;

use super::{Seals, StoredSeal, chore::SLACK_MS};
use crate::kernel::{Kernel, KernelError, PAGE_MAX};

/// The most differences that one page of a verification lists.
const BROKEN_MAX: usize = 100;

/// What a verification found wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BrokenSeal {
    /// The number of the seal.
    pub number: u64,
    /// The conversation; absent if the seal is missing or cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation: Option<ConversationId>,
    /// What is wrong.
    pub what: String,
}

/// A page of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AuditPage {
    /// The number of seals that were verified.
    pub seals: u64,
    /// The number of events that they cover.
    pub events: u64,
    /// The number of events among them whose content was erased.
    pub erased: u64,
    /// The number of differences.
    pub broken_total: u64,
    /// The first differences.
    pub broken: Vec<BrokenSeal>,
    /// The last seal of the page: its number and digest, to be noted outside of the database.
    pub last: Option<(u64, String)>,
    /// When the last seal of the page was made; absent if it cannot be read.
    pub last_at: Option<Micros>,
    /// Whether there are seals after the page.
    pub has_more: bool,
    /// The number of events that were stored since and have no seal yet; on the last page only.
    pub unsealed: Option<u64>,
}

impl AuditPage {
    fn add(&mut self, number: u64, conversation: Option<ConversationId>, what: String) {
        self.broken_total += 1;
        if self.broken.len() < BROKEN_MAX {
            self.broken.push(BrokenSeal { number, conversation, what });
        }
    }
}

impl Kernel {
    /// Verifies the seals with numbers after `after`, at most `limit`, against the stored events.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn verify_audit(&self, after: u64, limit: u32) -> Result<AuditPage, KernelError> {
        let seals = Seals::of(&*self.wiring.documents)?;
        let mut page = AuditPage::default();
        let mut before = match after {
            0 => (0, NOTHING.to_owned()),
            after => match seals.after(after - 1, 1).await?.pop() {
                Some(seal) => (seal.number, seal.digest()),
                None => (after, String::new()),
            },
        };
        let Some(newest) = seals.last().await? else {
            page.unsealed = Some(self.unsealed(&seals).await?);
            return Ok(page);
        };
        let mut found = seals.after(before.0, limit).await?;
        if found.is_empty() && newest.number > before.0 {
            // The seals after the last page were removed. The next one that exists is found, however wide the gap is.
            let next = seals.next_after(before.0, newest.number).await?;
            found = seals.after(next.saturating_sub(1), limit).await?;
            if found.is_empty() {
                page.add(newest.number, None, "the seal is not found by its number".to_owned());
                before = (newest.number, newest.digest());
            }
        }
        let mut texts = HashSet::new();
        for seal in found {
            match (before.0.saturating_add(1), seal.number.saturating_sub(1)) {
                (first, last) if first == last => page.add(first, None, "the seal is missing".to_owned()),
                (first, last) if first < last => {
                    page.add(first, None, format!("the seals from here to {last} are missing"));
                }
                _ => {}
            }
            self.verify_seal(&seals, &seal, &before.1, (&mut page, &mut texts)).await?;
            page.last_at = seal.seal.as_ref().map(|seal| seal.at);
            // A number that was changed never leads back.
            before = (seal.number.max(before.0.saturating_add(1)), seal.digest());
            tokio::task::yield_now().await;
        }
        page.has_more = newest.number > before.0;
        if !page.has_more {
            page.unsealed = Some(self.unsealed(&seals).await?);
        }
        page.last = Some(before).filter(|(number, _)| *number > 0);
        Ok(page)
    }

    /// The number of events without a seal in the conversations that have changed since the last pass of the chore.
    async fn unsealed(&self, seals: &Seals<'_>) -> Result<u64, KernelError> {
        let floor = seals.progress().await?.map_or(Micros(i64::MIN), |last| last.until.plus_ms(-SLACK_MS));
        let (mut unsealed, mut before) = (0, Before::NEWEST);
        loop {
            let page = self.wiring.store.conversations(Scope::Operator, before, PAGE_MAX).await?;
            for row in page.iter().take_while(|row| row.updated_at >= floor) {
                let sealed = seals.last_of(row.id, None).await?.and_then(|last| last.seal);
                unsealed += row.last_seq.0.saturating_sub(sealed.map_or(0, |seal| seal.to.0));
            }
            match page.last() {
                Some(last) if page.len() >= PAGE_MAX as usize && last.updated_at >= floor => before = last.page_start(),
                _ => return Ok(unsealed),
            }
            tokio::task::yield_now().await;
        }
    }

    async fn verify_seal(
        &self,
        seals: &Seals<'_>,
        stored: &StoredSeal,
        previous: &str,
        (page, texts): (&mut AuditPage, &mut HashSet<[u8; 16]>),
    ) -> Result<(), KernelError> {
        let number = stored.number;
        page.seals += 1;
        let Some(seal) = &stored.seal else {
            page.add(number, None, "the seal cannot be read".to_owned());
            return Ok(());
        };
        let id = seal.conversation;
        if seal.computed() != seal.digest || seal.number != number {
            page.add(number, Some(id), "the seal was changed".to_owned());
        }
        if seal.previous != previous {
            page.add(number, Some(id), "it does not follow the seal before it".to_owned());
        }
        let earlier = seals.last_of(id, Some(number)).await?.and_then(|earlier| earlier.seal);
        let (to, link_before) = earlier.map_or((Seq(0), NOTHING.to_owned()), |earlier| (earlier.to, earlier.link));
        if seal.from.0 != to.0 + 1 || seal.link_before != link_before {
            page.add(number, Some(id), format!("events between {to} and {} have no seal", seal.from));
        }
        let now_link = self.link_of(seal, number, (page, texts)).await?;
        if now_link.as_ref() != Some(&seal.link) {
            let Seal { from, to, at, .. } = seal;
            let what = if now_link.is_none() { "cannot be read" } else { "are not those that were sealed" };
            page.add(number, Some(id), format!("events {from} to {to} {what} at {at}"));
        }
        Ok(())
    }

    /// The link of the last event of a seal, computed from the stored events. `None` if they cannot be read.
    async fn link_of(
        &self,
        seal: &Seal,
        number: u64,
        (page, texts): (&mut AuditPage, &mut HashSet<[u8; 16]>),
    ) -> Result<Option<String>, KernelError> {
        let id = seal.conversation;
        let (mut at, mut now_link) = (Seq(seal.from.0.saturating_sub(1)), seal.link_before.clone());
        while at < seal.to {
            let limit = u32::try_from(seal.to.0 - at.0).unwrap_or(PAGE_MAX).min(PAGE_MAX);
            let events = match self.wiring.store.stored_events(id, at, limit).await {
                Err(error) if is_of_a_row(&error) => return Ok(None),
                events => events?,
            };
            let Some(last) = events.last() else { break };
            (page.events, at) = (page.events + events.len() as u64, last.seq);
            for event in &events {
                now_link = link(&now_link, id, event);
                // A text that was found right once is not compared again in this page.
                if event.text.as_ref().is_none_or(|text| !texts.contains(text.id.as_bytes()))
                    && let Some(what) = text_fault(event)
                {
                    page.add(number, Some(id), what);
                } else if let Some(text) = &event.text {
                    texts.insert(*text.id.as_bytes());
                }
            }
            self.verify_erased(&events, (number, id), page).await?;
        }
        Ok(Some(now_link))
    }

    /// An erased event keeps the digest of its body, so the chain says nothing about what it is now: a record of the erasure must
    /// follow it in the same conversation, and it must have no content.
    async fn verify_erased(
        &self,
        events: &[StoredEvent],
        (number, id): (u64, ConversationId),
        page: &mut AuditPage,
    ) -> Result<(), KernelError> {
        if events.iter().all(|event| event.erased.is_none()) {
            return Ok(());
        }
        let store = &self.wiring.store;
        let mut record = store.deletion(id).await?.and_then(|deletion| deletion.record);
        if let Some(seq) = record {
            let stored = store.stored_events(id, Seq(seq.0.saturating_sub(1)), 1).await?;
            record = stored.first().filter(|event| event.erased.is_none() && is_record(&event.body)).map(|_| seq);
        }
        for event in events {
            if event.erased.is_none() {
                continue;
            }
            page.erased += 1;
            if let Some(what) = fault_of(event.seq, event.task, &event.body, record) {
                page.add(number, Some(id), what);
            }
        }
        Ok(())
    }
}

/// Whether an error is one of a stored row, which other rows do not share.
pub(super) const fn is_of_a_row(error: &StoreError) -> bool {
    !error.is_retryable()
}
