//! The audit chain: the chore that seals stored events, and the verification of the seals. Appends do not wait for seals, because
//! digests of all bodies would cost a plain turn more than one percent of its time.
//!
//! Owns: nothing. Survives its users: the log and the seals.

mod acts;
mod chore;
mod verify;

use std::sync::Arc;

use annie_core::{
    audit::{NOTHING, SEALS, Seal, raw_digest, seals_user},
    ids::{ConversationId, IntentId, UserId},
    ports::{
        Document, DocumentChange, DocumentOrder, DocumentQuery, DocumentWrite, Documents, Namespace, NumberRange, Seen,
        StoreError, StoreErrorKind,
    },
    time::Micros,
};
use serde::{Deserialize, Serialize};

pub use self::{
    acts::{Act, ActFilter, ActRequest, ActsPage},
    chore::SealChore,
    verify::{AuditPage, BrokenSeal},
};

/// How often a seal is tried whose number another node has taken meanwhile.
const TRIES_MAX: usize = 5;
/// How far the passes of the chore have come: one document.
const PASSES: Namespace = Namespace::named("auditpasses");

/// How far the passes of the chore have come.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Progress {
    /// The newest change that the last pass has seen.
    until: Micros,
    /// When the last pass began that considered all conversations.
    whole_at: Micros,
}

/// The stored seals.
struct Seals<'a> {
    documents: &'a dyn Documents,
    seals_user: UserId,
}

/// A seal as it is stored.
struct StoredSeal {
    /// Its number, which is the number of its document.
    number: u64,
    /// The seal; `None` if its document cannot be read as one.
    seal: Option<Seal>,
    /// The digest of the document as it is.
    raw: String,
}

impl StoredSeal {
    fn of(document: &Document) -> Self {
        Self { number: document.number, seal: Seal::of(&document.body), raw: raw_digest(&document.body) }
    }

    /// The digest that the next seal has to name.
    fn digest(&self) -> String {
        self.seal.as_ref().map_or_else(|| self.raw.clone(), |seal| seal.digest.clone())
    }
}

impl<'a> Seals<'a> {
    fn of(documents: &'a dyn Documents) -> Result<Self, StoreError> {
        let seals_user = seals_user().map_err(|e| internal(&e.to_string()))?;
        Ok(Self { documents, seals_user })
    }

    /// The seals that match, the newest first.
    async fn find(&self, query: DocumentQuery) -> Result<Vec<StoredSeal>, StoreError> {
        let query = DocumentQuery { order: DocumentOrder::Number, ..query };
        let hits = self.documents.find_documents(self.seals_user.clone(), &SEALS, query).await?;
        Ok(hits.iter().map(|hit| StoredSeal::of(&hit.document)).collect())
    }

    async fn last(&self) -> Result<Option<StoredSeal>, StoreError> {
        Ok(self.find(newest_one()).await?.pop())
    }

    /// The newest seal of a conversation; with `before`, of those with a lower number.
    async fn last_of(
        &self,
        conversation: ConversationId,
        before: Option<u64>,
    ) -> Result<Option<StoredSeal>, StoreError> {
        let mut query = newest_one();
        query.texts[0] = vec![conversation.to_string()];
        query.numbers[0].max = before.map(|number| as_key(number.saturating_sub(1)));
        Ok(self.find(query).await?.pop())
    }

    /// The seals with the next `limit` numbers after this one, the lowest first.
    async fn after(&self, number: u64, limit: u32) -> Result<Vec<StoredSeal>, StoreError> {
        let last = number.saturating_add(u64::from(limit));
        let mut query = DocumentQuery { limit, ..DocumentQuery::default() };
        query.numbers[0] = NumberRange { min: Some(as_key(number.saturating_add(1))), max: Some(as_key(last)) };
        let mut seals = self.find(query).await?;
        seals.reverse();
        Ok(seals)
    }

    /// The lowest number of a seal after this one, found by halving the range up to the newest seal.
    async fn next_after(&self, number: u64, newest: u64) -> Result<u64, StoreError> {
        let (mut low, mut high) = (number.saturating_add(1), newest);
        while low < high {
            let middle = low + (high - low) / 2;
            let mut query = newest_one();
            query.numbers[0] = NumberRange { min: Some(as_key(low)), max: Some(as_key(middle)) };
            match self.find(query).await?.pop() {
                Some(seal) => high = seal.number.clamp(low, middle),
                None => low = middle + 1,
            }
        }
        Ok(high)
    }

    /// How far the passes have come. `None` before the first one ends, and if the document cannot be read.
    async fn progress(&self) -> Result<Option<Progress>, StoreError> {
        let query = DocumentQuery { limit: 1, ..DocumentQuery::default() };
        let hits = self.documents.find_documents(self.seals_user.clone(), &PASSES, query).await?;
        Ok(hits.first().and_then(|hit| serde_json::from_value(hit.document.body.clone()).ok()))
    }

    async fn write_progress(&self, progress: Progress, at: Micros) -> Result<(), StoreError> {
        let body = serde_json::to_value(progress).map_err(|e| internal(&e.to_string()))?;
        let decide = move |seen: &[Document]| {
            Ok(match seen.first() {
                Some(seen) => DocumentChange::Replace { number: seen.number, body: body.clone() },
                None => DocumentChange::Insert(body.clone()),
            })
        };
        let write = DocumentWrite {
            user: self.seals_user.clone(),
            namespace: &PASSES,
            intent: IntentId::for_seal_pass(at),
            seen: Seen::Query(DocumentQuery { limit: 1, ..DocumentQuery::default() }),
            decide: Arc::new(decide),
            at,
        };
        self.documents.write_document(write).await.map(drop)
    }

    /// Stores a seal with the next number. If another node has sealed the same events, nothing is stored.
    async fn write(&self, seal: Seal) -> Result<(), StoreError> {
        let intent = IntentId::for_seal(seal.conversation, seal.from);
        let mut last = None;
        for _ in 0..TRIES_MAX {
            let template = seal.clone();
            let decide = move |seen: &[Document]| {
                let last = seen.first().map(StoredSeal::of);
                let (number, previous) =
                    last.map_or_else(|| (1, NOTHING.to_owned()), |last| (last.number + 1, last.digest()));
                let sealed = Seal { number, previous, ..template.clone() }.sealed();
                serde_json::to_value(sealed).map(DocumentChange::Insert).map_err(|e| internal(&e.to_string()))
            };
            let write = DocumentWrite {
                user: self.seals_user.clone(),
                namespace: &SEALS,
                intent,
                seen: Seen::Query(newest_one()),
                decide: Arc::new(decide),
                at: seal.at,
            };
            match self.documents.write_document(write).await {
                Ok(_) => return Ok(()),
                // The pass fails with the last one and is repeated.
                Err(error) if error.is_retryable() => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| internal("no try was made")))
    }
}

fn newest_one() -> DocumentQuery {
    DocumentQuery { limit: 1, order: DocumentOrder::Number, ..DocumentQuery::default() }
}

#[expect(clippy::cast_precision_loss, reason = "seals are far fewer than 2^52")]
const fn as_key(number: u64) -> f64 {
    number as f64
}

fn internal(what: &str) -> StoreError {
    StoreError { kind: StoreErrorKind::Internal, what: "the audit seals", detail: what.to_owned() }
}
