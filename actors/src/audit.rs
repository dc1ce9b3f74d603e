//! The chore that seals stored events for the audit chain, and the verification of the seals. Appends do not wait for seals, because
//! digests of all bodies would cost a plain turn more than one percent of its time.
//!
//! Owns: nothing. Survives its users: the log and the seals.

use std::sync::Arc;

use annie_core::{
    audit::{NOTHING, SEALS, Seal, link, seals_user},
    erasure::{fault_of, is_record},
    event::Scope,
    ids::{ConversationId, IntentId, Seq, UserId},
    ports::{
        Before, Chore, ConversationRow, Document, DocumentChange, DocumentOrder, DocumentQuery, DocumentWrite,
        Documents, Fut, NumberRange, Seen, Store, StoreError, StoreErrorKind, StoredEvent,
    },
    time::Micros,
};
use serde::Serialize;

use crate::kernel::{Kernel, KernelError, PAGE_MAX};

/// The most conversations that one pass considers; the others follow in the next pass.
const CONVERSATIONS_MAX: usize = 100_000;
/// How far before the newest seal a pass looks for conversations that have changed, in milliseconds: a commit may have been under
/// way, and nodes' clocks differ.
const SLACK_MS: i64 = 3_600_000;
/// How often a seal is tried whose number another node has taken meanwhile.
const TRIES_MAX: usize = 5;
/// The most differences that one page of a verification lists.
const BROKEN_MAX: usize = 100;

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

    async fn seal_all(&self, now: Micros) -> Result<u64, StoreError> {
        let seals = Seals::of(&*self.documents)?;
        let floor = seals.last().await?.map_or(Micros(i64::MIN), |last| last.until.plus_ms(-SLACK_MS));
        let mut changed = self.changed_since(floor).await?;
        let mut sealed = 0;
        // The oldest first: the newest seal says up to when all is sealed, also if this pass is cut off.
        while let Some(row) = changed.pop() {
            sealed += self.seal(&seals, &row, now).await?;
        }
        Ok(sealed)
    }

    /// The conversations that have changed since a time, the newest first.
    async fn changed_since(&self, floor: Micros) -> Result<Vec<ConversationRow>, StoreError> {
        let (mut changed, mut before) = (Vec::new(), Before::NEWEST);
        loop {
            let page = self.store.conversations(Scope::Operator, before, PAGE_MAX).await?;
            let Some(last) = page.last() else { return Ok(changed) };
            before = last.page_start();
            let is_whole = page.len() < PAGE_MAX as usize;
            let rows = page.into_iter().take_while(|row| row.updated_at >= floor);
            let count = changed.len();
            changed.extend(rows);
            if is_whole || changed.len() - count < PAGE_MAX as usize || changed.len() >= CONVERSATIONS_MAX {
                return Ok(changed);
            }
        }
    }

    /// Seals the events of a conversation that have no seal. Returns their number.
    async fn seal(&self, seals: &Seals<'_>, row: &ConversationRow, now: Micros) -> Result<u64, StoreError> {
        let last = seals.last_of(row.id, None).await?;
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
                if let Some(Seal { number, digest, .. }) = last {
                    // Outside of the database the line is what a later verification can be compared with.
                    tracing::info!(events = sealed, seal = number, digest, "events were sealed");
                }
            }
            Ok(Some(now.plus_ms(i64::try_from(self.every_ms).unwrap_or(i64::MAX))))
        })
    }
}

/// The stored seals.
struct Seals<'a> {
    documents: &'a dyn Documents,
    seals_user: UserId,
}

impl<'a> Seals<'a> {
    fn of(documents: &'a dyn Documents) -> Result<Self, StoreError> {
        let seals_user = seals_user().map_err(|e| internal(&e.to_string()))?;
        Ok(Self { documents, seals_user })
    }

    /// The seals that match, the newest first.
    async fn find(&self, query: DocumentQuery) -> Result<Vec<Seal>, StoreError> {
        let query = DocumentQuery { order: DocumentOrder::Number, ..query };
        let hits = self.documents.find_documents(self.seals_user.clone(), &SEALS, query).await?;
        hits.iter().map(|hit| Seal::of(&hit.document.body).ok_or_else(|| internal("a seal cannot be read"))).collect()
    }

    async fn last(&self) -> Result<Option<Seal>, StoreError> {
        Ok(self.find(newest()).await?.pop())
    }

    /// The newest seal of a conversation; with `before`, of those with a lower number.
    async fn last_of(&self, conversation: ConversationId, before: Option<u64>) -> Result<Option<Seal>, StoreError> {
        let mut query = newest();
        query.texts[0] = vec![conversation.to_string()];
        query.numbers[0].max = before.map(|number| as_key(number.saturating_sub(1)));
        Ok(self.find(query).await?.pop())
    }

    /// The seals with numbers after this one, the lowest first.
    async fn after(&self, number: u64, limit: u32) -> Result<Vec<Seal>, StoreError> {
        let last = number.saturating_add(u64::from(limit));
        let mut query = DocumentQuery { limit, ..DocumentQuery::default() };
        query.numbers[0] = NumberRange { min: Some(as_key(number.saturating_add(1))), max: Some(as_key(last)) };
        let mut seals = self.find(query).await?;
        seals.reverse();
        Ok(seals)
    }

    /// Stores a seal with the next number. If another node has sealed the same events, nothing is stored.
    async fn write(&self, seal: Seal) -> Result<(), StoreError> {
        let intent = IntentId::for_seal(seal.conversation, seal.from);
        for _ in 0..TRIES_MAX {
            let template = seal.clone();
            let decide = move |seen: &[Document]| {
                let last = seen.first().map(|document| Seal::of(&document.body));
                let (number, previous) = match last {
                    None => (1, NOTHING.to_owned()),
                    Some(Some(last)) => (last.number + 1, last.digest),
                    Some(None) => return Err(internal("the newest seal cannot be read")),
                };
                let sealed = Seal { number, previous, ..template.clone() }.sealed();
                serde_json::to_value(sealed).map(DocumentChange::Insert).map_err(|e| internal(&e.to_string()))
            };
            let write = DocumentWrite {
                user: self.seals_user.clone(),
                namespace: &SEALS,
                intent,
                seen: Seen::Query(DocumentQuery { order: DocumentOrder::Number, ..newest() }),
                decide: Arc::new(decide),
                at: seal.at,
            };
            match self.documents.write_document(write).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error),
            }
        }
        Err(internal("the seals are busy"))
    }
}

fn newest() -> DocumentQuery {
    DocumentQuery { limit: 1, ..DocumentQuery::default() }
}

#[expect(clippy::cast_precision_loss, reason = "seals are far fewer than 2^52")]
const fn as_key(number: u64) -> f64 {
    number as f64
}

fn internal(what: &str) -> StoreError {
    StoreError { kind: StoreErrorKind::Internal, what: "the audit seals", detail: what.to_owned() }
}

/// What a verification found wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BrokenSeal {
    /// The number of the seal.
    pub number: u64,
    /// The conversation; absent if the seal is missing.
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
    /// Whether there are seals after the page.
    pub has_more: bool,
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
                Some(seal) => (seal.number, seal.digest),
                None => (after, String::new()),
            },
        };
        let newest = seals.last().await?.map_or(0, |last| last.number);
        for seal in seals.after(after, limit).await? {
            for missing in before.0 + 1..seal.number {
                page.add(missing, None, "the seal is missing".to_owned());
            }
            self.verify_seal(&seals, &seal, &before.1, &mut page).await?;
            before = (seal.number, seal.digest);
            tokio::task::yield_now().await;
        }
        page.has_more = newest > before.0;
        page.last = Some(before).filter(|(number, _)| *number > 0);
        Ok(page)
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

    async fn verify_seal(
        &self,
        seals: &Seals<'_>,
        seal: &Seal,
        previous: &str,
        page: &mut AuditPage,
    ) -> Result<(), KernelError> {
        let (number, id) = (seal.number, seal.conversation);
        page.seals += 1;
        if seal.computed() != seal.digest {
            page.add(number, Some(id), "the seal was changed".to_owned());
        }
        if seal.previous != previous {
            page.add(number, Some(id), "it does not follow the seal before it".to_owned());
        }
        let earlier = seals.last_of(id, Some(number)).await?;
        let (to, link_before) = earlier.map_or((Seq(0), NOTHING.to_owned()), |earlier| (earlier.to, earlier.link));
        if seal.from.0 != to.0 + 1 || seal.link_before != link_before {
            page.add(number, Some(id), format!("events between {to} and {} have no seal", seal.from));
        }
        let (mut at, mut now_link) = (Seq(seal.from.0.saturating_sub(1)), seal.link_before.clone());
        while at < seal.to {
            let limit = u32::try_from(seal.to.0 - at.0).unwrap_or(PAGE_MAX).min(PAGE_MAX);
            let events = self.wiring.store.stored_events(id, at, limit).await?;
            let Some(last) = events.last() else { break };
            (page.events, at) = (page.events + events.len() as u64, last.seq);
            for event in &events {
                now_link = link(&now_link, id, event);
            }
            self.verify_erased(&events, (number, id), page).await?;
        }
        if now_link != seal.link {
            let Seal { from, to, at, .. } = seal;
            page.add(number, Some(id), format!("events {from} to {to} are not those that were sealed at {at}"));
        }
        Ok(())
    }
}
