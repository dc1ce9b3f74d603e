//! Documents: the data of skills, such as to-dos, memories or contacts. One port serves all skills, so that a skill with data
//! of its own needs no table. One contract suite (`crates/store/tests/contract`) specifies the behaviour of every store.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Fut, StoreError};
use crate::{
    ids::{IntentId, UserId},
    time::Micros,
};

/// Most text keys of a namespace.
pub const TEXT_KEYS_MAX: usize = 3;
/// Most number keys of a namespace.
pub const NUMBER_KEYS_MAX: usize = 2;

/// A kind of documents, and the fields of their bodies by which a store filters, sorts and searches. The store copies these
/// fields when a document is written: a changed declaration applies to a document from its next write on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace {
    /// The name: 1 to 40 lower-case letters and digits, different from that of any other namespace. The built-in skills have
    /// `tasks` and `memory`.
    pub name: &'static str,
    /// Fields with a text, at most [`TEXT_KEYS_MAX`]. A document may lack a field. Texts are compared by their bytes.
    pub texts: &'static [&'static str],
    /// Fields with a number, at most [`NUMBER_KEYS_MAX`]. A document may lack a field. If the second one is a time in
    /// microseconds UTC, [`Documents::due_documents`] finds the documents of all users that are due.
    pub numbers: &'static [&'static str],
    /// The field with a list of tags; empty if there is none.
    pub tags: &'static str,
    /// Fields with a text or a list of texts that [`Find::Containing`] searches.
    pub contents: &'static [&'static str],
    /// Fields with a text or a list of texts that [`Find::AnyWord`] searches.
    pub words: &'static [&'static str],
}

impl Namespace {
    /// A namespace without keys and search.
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        Self { name, texts: &[], numbers: &[], tags: "", contents: &[], words: &[] }
    }
}

/// A stored document.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Its number, from 1 per user and namespace, by which people and models refer to it. A number is not
    /// used again until [`Documents::delete_documents`] deletes all documents of the user.
    pub number: u64,
    /// The content, which only the skill understands.
    pub body: Value,
    /// Time of creation.
    pub created_at: Micros,
    /// Time of the last change.
    pub updated_at: Micros,
    /// Time of the last [`Documents::touch_documents`].
    pub accessed_at: Option<Micros>,
}

/// A document that a query found.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentHit {
    /// The document.
    pub document: Document,
    /// How well it matches: see [`DocumentOrder`]. Only the order of ranks is meaningful.
    pub rank: f64,
}

/// The search of a query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Find {
    /// All documents.
    #[default]
    All,
    /// Documents whose `contents` contain every word of this text, also as a part of a longer word, ignoring case. A text
    /// without words matches all.
    Containing(String),
    /// Documents whose `words` have at least one word of this text, in any grammatical form of English. At most 64 different
    /// words are used. A text without words matches nothing.
    AnyWord(String),
}

/// A range of texts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct TextRange {
    /// The first text of the range; no limit if absent.
    pub from: Option<String>,
    /// The end of the range, exclusive; no limit if absent.
    pub before: Option<String>,
}

/// A range of numbers, both ends inclusive.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct NumberRange {
    /// The least number; no limit if absent.
    pub min: Option<f64>,
    /// The greatest number; no limit if absent.
    pub max: Option<f64>,
}

/// The order of the documents that a query finds. A document without a key comes last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DocumentOrder {
    /// The first text key ascending, then the first number key descending, then the oldest document first.
    #[default]
    Text,
    /// The first number key descending, then the first text key ascending, then the oldest document first.
    Number,
    /// Rank of the words (bm25 over all documents that have words; 1 without a search for words) times the first number key (1
    /// without such a key), descending; then the newest document first.
    Rank,
    /// Rank of the words alone, descending; then the oldest document first.
    Similarity,
}

/// A query for documents of one user and one namespace. All parts must match.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DocumentQuery {
    /// The search.
    pub find: Find,
    /// For each text key: one of these texts; an empty list matches all.
    pub texts: [Vec<String>; TEXT_KEYS_MAX],
    /// The first text key is in one of these ranges; an empty list matches all.
    pub ranges: Vec<TextRange>,
    /// The number keys are in these ranges. A document without the key is only in a range without limits.
    pub numbers: [NumberRange; NUMBER_KEYS_MAX],
    /// At least one of these tags; an empty list matches all.
    pub tags: Vec<String>,
    /// The order of the result.
    pub order: DocumentOrder,
    /// Maximum number of results.
    pub limit: u32,
}

/// What a write sees before it decides.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Seen {
    /// Nothing.
    #[default]
    Nothing,
    /// The document with this number, if it exists.
    Number(u64),
    /// The archived document with this number, if it exists and was not purged.
    Archived(u64),
    /// The documents that a query finds.
    Query(DocumentQuery),
}

/// The decision of a write.
#[derive(Debug, Clone, PartialEq)]
pub enum DocumentChange {
    /// Changes nothing. This is not recorded: a repeated intent decides again.
    Keep,
    /// Creates a document with the next number.
    Insert(Value),
    /// Replaces the body of a document that the write has seen.
    Replace {
        /// Its number.
        number: u64,
        /// The new body.
        body: Value,
    },
    /// Hides a document that the write has seen, until it is restored or purged. Its number stays in use.
    Archive(u64),
    /// Shows an archived document that the write has seen again, with its body as it was.
    Restore(u64),
}

/// Decides about a write from the documents that it has seen. It runs under the lock of the user's documents of the namespace,
/// and must be pure: a store may run it several times for one write. An error fails the write, and nothing is stored.
pub type Decide = Arc<dyn Fn(&[Document]) -> Result<DocumentChange, StoreError> + Send + Sync>;

/// A write of at most one document.
#[derive(Clone)]
pub struct DocumentWrite {
    /// The user.
    pub user: UserId,
    /// The namespace.
    pub namespace: &'static Namespace,
    /// The idempotency key. An intent writes each namespace at most once.
    pub intent: IntentId,
    /// What the decision needs.
    pub seen: Seen,
    /// The decision.
    pub decide: Decide,
    /// The time of the write.
    pub at: Micros,
}

impl fmt::Debug for DocumentWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, namespace, intent, .. } = self;
        let mut shown = f.debug_struct("DocumentWrite");
        shown.field("user", user).field("namespace", &namespace.name).field("intent", intent).finish_non_exhaustive()
    }
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteKind {
    /// Nothing.
    Kept,
    /// A document was created.
    Inserted,
    /// A document got a new body, or was restored.
    Replaced,
    /// A document was archived.
    Archived,
}

impl WriteKind {
    /// The wire name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Inserted => "inserted",
            Self::Replaced => "replaced",
            Self::Archived => "archived",
        }
    }
}

/// The result of a write.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// What the write did. For a repeated intent, what its first write did.
    pub kind: WriteKind,
    /// The document after the write; for a repeated intent, as it is now, also if it is archived. `None` if the write changed
    /// nothing, or if the document was deleted since.
    pub document: Option<Document>,
}

/// A position in a user's documents: namespace and number.
pub type DocumentKey = (String, u64);

/// A document in an export.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportedDocument {
    /// Name of its namespace, also of one that no installed skill declares.
    pub namespace: String,
    /// The document.
    pub document: Document,
    /// Time at which it was archived.
    pub archived_at: Option<Micros>,
}

/// Access to the documents of skills. No method except the purge and [`Documents::due_documents`] sees documents of another user or
/// another namespace. Archived documents are seen only by the export, the deletion, the purge, [`Documents::archived_documents`] and
/// [`Seen::Archived`].
pub trait Documents: Send + Sync {
    /// Writes at most one document: reads what the write sees, decides, and stores the decision with the intent, all in one
    /// transaction. Writes of the same user and namespace, and the deletion of the user's documents, run one after the other, in
    /// all processes. A repeated intent changes nothing and does not decide.
    ///
    /// # Errors
    /// The error of the decision, or `Internal` if the namespace is not valid, the body is no object, a declared field has
    /// another type, or the decision names a document that the write has not seen.
    fn write_document(&self, write: DocumentWrite) -> Fut<'_, Result<Written, StoreError>>;

    /// One document, by number.
    fn document(
        &self,
        user: UserId,
        namespace: &'static Namespace,
        number: u64,
    ) -> Fut<'_, Result<Option<Document>, StoreError>>;

    /// The documents that match a query.
    fn find_documents(
        &self,
        user: UserId,
        namespace: &'static Namespace,
        query: DocumentQuery,
    ) -> Fut<'_, Result<Vec<DocumentHit>, StoreError>>;

    /// Counts the documents that match a query, without regard to its limit, and then, for each group, those of them whose first
    /// text key is in one of the group's ranges. The result has one number more than there are groups.
    ///
    /// # Errors
    /// `Internal` for a query that searches for words with [`Find::AnyWord`].
    fn count_documents(
        &self,
        user: UserId,
        namespace: &'static Namespace,
        query: DocumentQuery,
        groups: Vec<Vec<TextRange>>,
    ) -> Fut<'_, Result<Vec<u64>, StoreError>>;

    /// The documents of all users whose second number key is a time that is not after `until`, in the order of these times, and
    /// of equal times by user and number. At most `limit`. For the kernel's background workers: no skill may see documents of
    /// other users.
    fn due_documents(
        &self,
        namespace: &'static Namespace,
        until: Micros,
        limit: u32,
    ) -> Fut<'_, Result<Vec<(UserId, Document)>, StoreError>>;

    /// Records that these documents were accessed, unless a later access is recorded. Numbers without a document are ignored.
    fn touch_documents(
        &self,
        user: UserId,
        namespace: &'static Namespace,
        numbers: Vec<u64>,
        at: Micros,
    ) -> Fut<'_, Result<(), StoreError>>;

    /// The archived documents of a user and a namespace that were not purged, the last archived first. At most `limit`.
    fn archived_documents(
        &self,
        user: UserId,
        namespace: &'static Namespace,
        limit: u32,
    ) -> Fut<'_, Result<Vec<ExportedDocument>, StoreError>>;

    /// Erases the content of documents of all users and namespaces that were archived before a time, and returns their number, at
    /// most `limit`. What is left of a document is its number with an empty object as body, so that no number is used again and
    /// an intent that wrote it is still known. A document whose body was an empty object counts as purged.
    fn purge_documents(&self, before: Micros, limit: u32) -> Fut<'_, Result<u64, StoreError>>;

    /// All documents of a user in the order of their keys, archived ones included, after a key. At most `limit`.
    fn export_documents(
        &self,
        user: UserId,
        after: Option<DocumentKey>,
        limit: u32,
    ) -> Fut<'_, Result<Vec<ExportedDocument>, StoreError>>;

    /// Deletes all documents of a user, and returns their number. Afterwards numbers begin at 1 again. The intents stay without
    /// their documents: a repeated intent of before writes nothing, so that it does not bring the data back.
    fn delete_documents(&self, user: UserId) -> Fut<'_, Result<u64, StoreError>>;
}
