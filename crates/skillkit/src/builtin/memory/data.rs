//! Memories as documents: their form, their keys, and the search [S0 14.3].

use std::sync::Arc;

use annie_core::{
    ids::UserId,
    ports::{
        Decide, Document, DocumentChange, DocumentHit, DocumentOrder, DocumentQuery, DocumentWrite, Documents,
        ExportedDocument, Find, Namespace, NumberRange, Seen, SkillCall, StoreError, StoreErrorKind, WriteKind,
    },
    skill::ORIGIN_TAG,
    time::Micros,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::similar::{importance, merged, nearly_same};
use crate::trash;

/// The memories of all users. Stored documents have these fields: an old one must stay readable.
pub static MEMORY: Namespace = Namespace {
    texts: &["category"],
    numbers: &["importance"],
    tags: "tags",
    words: &["content", "tags"],
    ..Namespace::named("memory")
};

/// The highest importance of a memory that may come from text by another author.
pub(crate) const READ_IMPORTANCE_MAX: f64 = 0.5;
/// The most memories that are compared with a new one, the most similar ones.
const CANDIDATES_MAX: u32 = 16;
/// How many memories by words and importance are weighed by their age for one result.
const CANDIDATES_PER_RESULT: u32 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Category {
    Preference,
    Fact,
    Decision,
    Goal,
    Relationship,
    Context,
    Instruction,
}

impl Category {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Preference => "preference",
            Self::Fact => "fact",
            Self::Decision => "decision",
            Self::Goal => "goal",
            Self::Relationship => "relationship",
            Self::Context => "context",
            Self::Instruction => "instruction",
        }
    }
}

/// What is remembered.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Statement {
    /// A clear, standalone statement.
    pub(crate) content: String,
    /// Free tags, in lower case.
    pub(crate) tags: Vec<String>,
    pub(crate) category: Category,
    /// Importance, 0 to 1.
    pub(crate) importance: f64,
}

impl Statement {
    fn of(document: &Document) -> Result<Self, StoreError> {
        Self::deserialize(&document.body).map_err(corrupt)
    }

    fn body(&self) -> Value {
        let Self { content, tags, category, importance } = self;
        json!({"content": content, "tags": tags, "category": category, "importance": importance})
    }
}

fn corrupt(error: impl ToString) -> StoreError {
    StoreError { kind: StoreErrorKind::Corrupt, what: "reading a memory", detail: error.to_string() }
}

/// A memory.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Memory {
    pub(crate) number: u64,
    pub(crate) statement: Statement,
}

impl Memory {
    fn of(document: &Document) -> Result<Self, StoreError> {
        Ok(Self { number: document.number, statement: Statement::of(document)? })
    }
}

/// The result of storing a memory.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Saved {
    pub(crate) memory: Memory,
    /// Whether it was merged with a near-duplicate.
    pub(crate) is_merged: bool,
}

/// How memories that are not used lose rank [S0 14.3]. Nothing is ever deleted by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryDecay {
    /// After so long without a use, a memory counts half, in milliseconds. 0 means that age does not matter.
    pub halved_after_ms: u64,
}

impl MemoryDecay {
    /// The decay that halves after these days.
    #[must_use]
    pub const fn of_days(days: u32) -> Self {
        Self { halved_after_ms: days as u64 * 24 * 3_600_000 }
    }

    /// Age does not matter.
    pub const OFF: Self = Self::of_days(0);
    /// What remains of the rank of the oldest memory: an old fact that fits well still comes before a new one that hardly fits.
    const REST: f64 = 0.2;

    /// What a memory counts, 0 to 1: its age is that of its last use, change or creation.
    fn weight(self, document: &Document, now: Micros) -> f64 {
        let used = document.accessed_at.unwrap_or_default().max(document.updated_at).max(document.created_at);
        if self.halved_after_ms == 0 {
            return 1.0;
        }
        #[expect(clippy::cast_precision_loss, reason = "an age for a weight")]
        let halvings = now.since_ms(used) as f64 / self.halved_after_ms as f64;
        Self::REST + (1.0 - Self::REST) * 0.5_f64.powf(halvings)
    }
}

/// A query for memories, best first: text rank times importance, less for those that were not used for long.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct MemoryQuery {
    /// Search words, any of which may match. Empty matches all.
    pub(crate) text: String,
    /// Tags, one of which must match. Empty matches all.
    pub(crate) tags: Vec<String>,
    pub(crate) category: Option<Category>,
    pub(crate) min_importance: Option<f64>,
    pub(crate) limit: u32,
    /// The decay and the present time; `None` means that age does not matter.
    pub(crate) decay: Option<(MemoryDecay, Micros)>,
}

/// Stores a memory, or merges it into a near-duplicate of the same user and category: the tags are united, and the higher
/// importance and the longer text are kept. The same call again changes nothing.
pub(crate) async fn save(documents: &dyn Documents, call: &SkillCall, new: Statement) -> Result<Saved, StoreError> {
    let new = Statement { importance: importance(new.importance), ..new };
    let alike = DocumentQuery {
        find: Find::AnyWord(new.content.clone()),
        texts: in_category(Some(new.category)),
        order: DocumentOrder::Similarity,
        limit: CANDIDATES_MAX,
        ..DocumentQuery::default()
    };
    let decide: Decide = Arc::new(move |seen: &[Document]| {
        for document in seen {
            let old = Statement::of(document)?;
            if nearly_same(&old.content, &new.content) {
                return Ok(DocumentChange::Replace { number: document.number, body: merged(old, &new).body() });
            }
        }
        Ok(DocumentChange::Insert(new.body()))
    });
    let SkillCall { user, intent, now: at, .. } = call;
    let (user, seen) = (user.clone(), Seen::Query(alike));
    let write = DocumentWrite { user, namespace: &MEMORY, intent: *intent, seen, decide, at: *at };
    let written = documents.write_document(write).await?;
    let document = written.document.ok_or_else(|| corrupt("the new memory was not stored, or it was deleted since"))?;
    Ok(Saved { memory: Memory::of(&document)?, is_merged: written.kind == WriteKind::Replaced })
}

/// Changes to a memory. `None` keeps a field.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct MemoryPatch {
    pub(crate) content: Option<String>,
    /// Replaces the tags, except those that record the origin of the text.
    pub(crate) tags: Option<Vec<String>>,
    pub(crate) importance: Option<f64>,
    /// The tags of the origins of the new text. With one of them the memory is no instruction.
    pub(crate) origin_tags: Vec<String>,
}

impl MemoryPatch {
    fn applied_to(self, old: Statement) -> Statement {
        let is_read = !self.origin_tags.is_empty();
        let mut tags = self.tags.unwrap_or_else(|| old.tags.clone());
        tags.retain(|tag| !tag.starts_with(ORIGIN_TAG));
        for tag in old.tags.iter().filter(|tag| tag.starts_with(ORIGIN_TAG)).chain(&self.origin_tags) {
            if !tags.contains(tag) {
                tags.push(tag.clone());
            }
        }
        let importance = importance(self.importance.unwrap_or(old.importance));
        Statement {
            content: self.content.unwrap_or(old.content),
            tags,
            category: if is_read && old.category == Category::Instruction { Category::Fact } else { old.category },
            importance: if is_read { importance.min(READ_IMPORTANCE_MAX) } else { importance },
        }
    }
}

/// Changes a memory. Returns `None` if it does not exist.
pub(crate) async fn update(
    documents: &dyn Documents,
    call: &SkillCall,
    number: u64,
    patch: MemoryPatch,
) -> Result<Option<Memory>, StoreError> {
    let decide: Decide = Arc::new(move |seen: &[Document]| {
        let Some(document) = seen.first() else { return Ok(DocumentChange::Keep) };
        let body = patch.clone().applied_to(Statement::of(document)?).body();
        Ok(DocumentChange::Replace { number, body })
    });
    write(documents, call, Seen::Number(number), decide).await
}

/// Moves a memory into the trash. Returns `None` if it does not exist.
pub(crate) async fn delete(
    documents: &dyn Documents,
    call: &SkillCall,
    number: u64,
) -> Result<Option<Memory>, StoreError> {
    let decide: Decide = Arc::new(move |seen: &[Document]| {
        Ok(if seen.is_empty() { DocumentChange::Keep } else { DocumentChange::Archive(number) })
    });
    write(documents, call, Seen::Number(number), decide).await
}

/// Brings a memory back from the trash. Returns `None` if it is not there.
pub(crate) async fn restore(
    documents: &dyn Documents,
    call: &SkillCall,
    number: u64,
) -> Result<Option<Memory>, StoreError> {
    let decide: Decide = Arc::new(move |seen: &[Document]| {
        Ok(if seen.is_empty() { DocumentChange::Keep } else { DocumentChange::Restore(number) })
    });
    write(documents, call, Seen::Archived(number), decide).await
}

/// The memory that the same call has written before.
pub(crate) async fn written_before(documents: &dyn Documents, call: &SkillCall) -> Result<Option<Memory>, StoreError> {
    write(documents, call, Seen::Nothing, Arc::new(|_: &[Document]| Ok(DocumentChange::Keep))).await
}

async fn write(
    documents: &dyn Documents,
    call: &SkillCall,
    seen: Seen,
    decide: Decide,
) -> Result<Option<Memory>, StoreError> {
    let SkillCall { user, intent, now: at, .. } = call;
    let write = DocumentWrite { user: user.clone(), namespace: &MEMORY, intent: *intent, seen, decide, at: *at };
    documents.write_document(write).await?.document.as_ref().map(Memory::of).transpose()
}

/// The memories in the trash with the times of their deletion, the last deleted first.
pub(crate) async fn trashed(documents: &dyn Documents, user: &UserId) -> Result<Vec<(Memory, Micros)>, StoreError> {
    let archived = documents.archived_documents(user.clone(), &MEMORY, trash::SHOWN_MAX).await?;
    let trashed = |kept: &ExportedDocument| {
        Memory::of(&kept.document).map(|memory| (memory, kept.archived_at.unwrap_or_default()))
    };
    archived.iter().map(trashed).collect()
}

pub(crate) async fn find(
    documents: &dyn Documents,
    user: &UserId,
    query: MemoryQuery,
) -> Result<Vec<Memory>, StoreError> {
    let MemoryQuery { text, tags, category, min_importance, limit, decay } = query;
    let decay = decay.filter(|(decay, _)| decay.halved_after_ms > 0);
    // A memory further down may come to the front by its age.
    let candidates = if decay.is_some() { limit.saturating_mul(CANDIDATES_PER_RESULT) } else { limit };
    let query = DocumentQuery {
        find: if text.trim().is_empty() { Find::All } else { Find::AnyWord(text) },
        texts: in_category(category),
        numbers: [NumberRange { min: min_importance, max: None }, NumberRange::default()],
        tags,
        order: DocumentOrder::Rank,
        limit: candidates,
        ..DocumentQuery::default()
    };
    let mut hits = documents.find_documents(user.clone(), &MEMORY, query).await?;
    if let Some((decay, now)) = decay {
        // The sort is stable, so that equal ranks keep the order of the store.
        let rank = |hit: &DocumentHit| hit.rank * decay.weight(&hit.document, now);
        hits.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
        hits.truncate(limit as usize);
    }
    hits.iter().map(|hit| Memory::of(&hit.document)).collect()
}

/// Records that a search returned these memories.
pub(crate) async fn touch(
    documents: &dyn Documents,
    user: UserId,
    numbers: Vec<u64>,
    at: Micros,
) -> Result<(), StoreError> {
    documents.touch_documents(user, &MEMORY, numbers, at).await
}

/// The filter by category.
fn in_category(category: Option<Category>) -> [Vec<String>; 3] {
    [category.map(|category| category.as_str().to_owned()).into_iter().collect(), Vec::new(), Vec::new()]
}

#[cfg(test)]
mod tests;
