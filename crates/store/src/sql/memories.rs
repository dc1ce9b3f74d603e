//! The users' memories as rows.

use annie_core::{
    ids::UserId,
    ports::{Memory, MemoryHit, Saved, StoreError},
    projection::text_sha256,
};

use super::Columns;

/// A memory from `number, content, tags, category, importance, created_at, updated_at, accessed_at`.
pub fn memory_of(row: &mut Columns<'_>) -> Result<Memory, StoreError> {
    Ok(Memory {
        number: row.count()?,
        content: row.text()?,
        tags: row.json()?,
        category: row.word()?,
        importance: row.real()?,
        created_at: row.at()?,
        updated_at: row.at()?,
        accessed_at: row.maybe_at()?,
    })
}

/// A search hit: the columns of a memory, then its rank.
pub fn hit_of(row: &mut Columns<'_>) -> Result<MemoryHit, StoreError> {
    Ok(MemoryHit { memory: memory_of(row)?, rank: row.real()? })
}

/// The earlier result of an intent: whether it was merged, then the columns of the memory.
pub fn saved_of(row: &mut Columns<'_>) -> Result<Saved, StoreError> {
    let merged = row.flag()?;
    Ok(Saved { merged, memory: memory_of(row)? })
}

/// A user as one word of the full-text index.
pub fn owner_word(user: &UserId) -> String {
    let hash = text_sha256(user.as_str());
    hash[..8].iter().fold(String::from("u"), |word, byte| format!("{word}{byte:02x}"))
}
