//! The documents of skills as rows.

use annie_core::{
    ids::UserId,
    ports::{Document, DocumentHit, ExportedDocument, StoreError, Written},
};

use super::Columns;

/// The documents of a namespace that are due: its name, the time as a number key, and the limit.
pub const DUE_DOCUMENTS: &str = "SELECT user_id, number, body, created_at, updated_at, accessed_at FROM documents \
     WHERE namespace = $1 AND number_2 <= $2 AND archived_at IS NULL ORDER BY number_2, user_id, number LIMIT $3";

/// A document from `number, body, created_at, updated_at, accessed_at`.
pub fn document_of(row: &mut Columns<'_>) -> Result<Document, StoreError> {
    Ok(Document {
        number: row.count()?,
        body: row.json()?,
        created_at: row.at()?,
        updated_at: row.at()?,
        accessed_at: row.maybe_at()?,
    })
}

/// A due document: its user, then the columns of the document.
pub fn due_document_of(row: &mut Columns<'_>) -> Result<(UserId, Document), StoreError> {
    Ok((row.user()?, document_of(row)?))
}

/// A search hit: the columns of a document, then its rank.
pub fn document_hit_of(row: &mut Columns<'_>) -> Result<DocumentHit, StoreError> {
    Ok(DocumentHit { document: document_of(row)?, rank: row.real()? })
}

/// The earlier result of an intent: what it did, the number of the document or 0 if it was deleted since, then the columns of the
/// document.
pub fn written_of(row: &mut Columns<'_>) -> Result<Written, StoreError> {
    let (kind, number) = (row.word()?, row.count()?);
    let document = if number == 0 { None } else { Some(document_of(row)?) };
    Ok(Written { kind, document })
}

/// A document in an export: its namespace, the time at which it was archived, then the columns of the document.
pub fn exported_of(row: &mut Columns<'_>) -> Result<ExportedDocument, StoreError> {
    let (namespace, archived_at) = (row.text()?, row.maybe_at()?);
    Ok(ExportedDocument { namespace, archived_at, document: document_of(row)? })
}
