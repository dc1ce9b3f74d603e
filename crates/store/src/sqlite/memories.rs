//! The users' memories: a full-text index (FTS5, Porter's stems) ranked by bm25 times importance [S0 14.3]. The index contains
//! the owner as a word of its own, so that a search reads only one user's part; that word has no weight.

use annie_core::{
    ids::{IntentId, UserId},
    ports::{Fut, Memories, Memory, MemoryCategory, MemoryHit, MemoryQuery, NewMemory, Saved, StoreError},
    time::Micros,
};

use super::{SqliteStore, absence::Gap, statements::Statements, writer::WriterGuard};
use crate::{
    similar::{importance, merged, nearly_same},
    sql::{Cell, Columns, Database, corrupt, hit_of, json, memory_of, owner_word, saved_of, signed},
    words::different_words,
};

/// The most memories that are compared with a new one, those with the most words in common first.
const CANDIDATES_MAX: i64 = 16;

const SAVED_BEFORE: &str = "SELECT i.merged, m.number, m.content, m.tags, m.category, m.importance, m.created_at, \
     m.updated_at, m.accessed_at FROM memory_intents i JOIN memories m ON m.user_id = i.user_id AND m.number = i.number \
     WHERE i.user_id = ? AND i.intent_id = ?;";
const NEXT_NUMBER: &str = "SELECT -1, 1 + coalesce(max(number), 0) FROM memories WHERE user_id = ?;";
const CANDIDATES: &str = "SELECT m.number, m.content, m.tags, m.category, m.importance, m.created_at, m.updated_at, \
     m.accessed_at FROM memories_fts f CROSS JOIN memories m ON m.id = f.rowid \
     WHERE memories_fts MATCH ? AND m.user_id = ? AND m.category = ? \
     ORDER BY bm25(memories_fts, 0.0, 1.0, 1.0), m.number LIMIT ?;";
const INSERT: &str = "INSERT INTO memories (user_id, number, owner, content, tags, category, importance, created_at, \
     updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);";
const UPDATE: &str = "UPDATE memories SET content = ?, tags = ?, importance = ?, updated_at = ? \
     WHERE user_id = ? AND number = ?;";
const INSERT_INTENT: &str = "INSERT INTO memory_intents (user_id, intent_id, number, merged) VALUES (?, ?, ?, ?);";

const FIND: &str = "SELECT m.number, m.content, m.tags, m.category, m.importance, m.created_at, m.updated_at, \
         m.accessed_at, max(0.0, -bm25(memories_fts, 0.0, 1.0, 1.0) * m.importance) AS rank \
     FROM memories_fts f CROSS JOIN memories m ON m.id = f.rowid \
     WHERE memories_fts MATCH $6 AND m.user_id = $1 AND ($2 IS NULL OR m.category = $2) AND m.importance >= $3 \
     AND ($4 = '[]' OR EXISTS (SELECT 1 FROM json_each(m.tags) t WHERE t.value IN (SELECT value FROM json_each($4)))) \
     ORDER BY rank DESC, m.number DESC LIMIT $5";
const LIST: &str = "SELECT m.number, m.content, m.tags, m.category, m.importance, m.created_at, m.updated_at, \
         m.accessed_at, m.importance AS rank \
     FROM memories m WHERE m.user_id = $1 AND ($2 IS NULL OR m.category = $2) AND m.importance >= $3 \
     AND ($4 = '[]' OR EXISTS (SELECT 1 FROM json_each(m.tags) t WHERE t.value IN (SELECT value FROM json_each($4)))) \
     ORDER BY rank DESC, m.number DESC LIMIT $5";
const ANY: &str = "SELECT 1 FROM memories WHERE user_id = $1 LIMIT 1";
const TOUCH: &str = "UPDATE memories SET accessed_at = max(coalesce(accessed_at, 0), ?) WHERE user_id = ? \
     AND number IN (SELECT value FROM json_each(?))";

impl Memories for SqliteStore {
    fn save_memory(
        &self,
        user: UserId,
        intent: IntentId,
        new: NewMemory,
        at: Micros,
    ) -> Fut<'_, Result<Saved, StoreError>> {
        Box::pin(async move {
            let mut guard = self.db.lock_writer("keeping a memory").await?;
            self.db.no_memories.begins(&user);
            let saved = save(&mut guard, &user, intent, new, at).await;
            if saved.is_err() {
                guard.roll_back().await;
            }
            self.db.no_memories.ended();
            saved
        })
    }

    fn find_memories(&self, user: UserId, query: MemoryQuery) -> Fut<'_, Result<Vec<MemoryHit>, StoreError>> {
        Box::pin(async move {
            const WHAT: &str = "searching memories";
            if self.db.no_memories.is_known(&user, &Gap::all("memories")) {
                return Ok(Vec::new());
            }
            let writes = self.db.no_memories.writes();
            let mut bound = vec![
                Cell::from(&user),
                Cell::maybe_word(query.category.map(MemoryCategory::as_str)),
                Cell::Real(query.min_importance.unwrap_or(0.0)),
                json(&query.tags)?.into(),
                query.limit.into(),
            ];
            let sql = if query.text.trim().is_empty() {
                LIST
            } else {
                let Some(expression) = expression(&user, &query.text) else { return Ok(Vec::new()) };
                bound.push(expression.into());
                FIND
            };
            let hits = self.list(WHAT, sql, bound, hit_of).await?;
            if hits.is_empty() && self.db.query(WHAT, ANY, vec![Cell::from(&user)]).await?.is_empty() {
                self.db.no_memories.found(&user, Gap::all("memories"), writes);
            }
            Ok(hits)
        })
    }

    fn touch_memories(&self, user: UserId, numbers: Vec<u64>, at: Micros) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let mut statements = Statements::default();
            statements.push(TOUCH).with(at.0).with(user.as_str().to_owned()).with(json(&numbers)?);
            self.db.write("noting found memories", statements).await?;
            Ok(())
        })
    }
}

async fn save(
    guard: &mut WriterGuard<'_>,
    user: &UserId,
    intent: IntentId,
    new: NewMemory,
    at: Micros,
) -> Result<Saved, StoreError> {
    let name = || user.as_str().to_owned();
    let mut statements = Statements::begin();
    statements.push(SAVED_BEFORE).with(name()).with(intent.uuid()).push(NEXT_NUMBER).with(name());
    let rows = guard.begin(statements).await?;
    let number = match rows.as_slice() {
        [before, _next] => {
            guard.roll_back().await;
            return saved_of(&mut Columns::of(before));
        }
        [next] => {
            let mut row = Columns::of(next);
            row.number()?;
            row.count()?
        }
        _ => return Err(corrupt("keeping a memory", "no next number")),
    };
    let same = same_as(guard, user, &new).await?;
    let mut write = Statements::default();
    let merging = same.is_some();
    let memory = if let Some(old) = same {
        let memory = merged(old, &new, at);
        write.push(UPDATE).with(memory.content.clone()).with(json(&memory.tags)?).with(memory.importance).with(at.0);
        write.with(name()).with(signed(memory.number));
        memory
    } else {
        let memory = Memory {
            number,
            importance: importance(new.importance),
            content: new.content,
            tags: new.tags,
            category: new.category,
            created_at: at,
            updated_at: at,
            accessed_at: None,
        };
        write.push(INSERT).with(name()).with(signed(number)).with(owner_word(user)).with(memory.content.clone());
        write.with(json(&memory.tags)?).with(memory.category.as_str()).with(memory.importance).with(at.0).with(at.0);
        memory
    };
    write.push(INSERT_INTENT).with(name()).with(intent.uuid()).with(signed(memory.number)).with(merging);
    guard.commit(write).await?;
    Ok(Saved { memory, merged: merging })
}

/// The existing memory that is nearly the same, if any.
async fn same_as(guard: &mut WriterGuard<'_>, user: &UserId, new: &NewMemory) -> Result<Option<Memory>, StoreError> {
    let Some(expression) = expression(user, &new.content) else { return Ok(None) };
    let mut statements = Statements::default();
    statements.push(CANDIDATES).with(expression).with(user.as_str().to_owned()).with(new.category.as_str());
    statements.with(CANDIDATES_MAX);
    for row in &guard.send(statements).await? {
        let memory = memory_of(&mut Columns::of(row))?;
        if nearly_same(&memory.content, &new.content) {
            return Ok(Some(memory));
        }
    }
    Ok(None)
}

/// A full-text expression for any of a text's words among one user's memories; `None` if the text has no words. Words contain
/// only letters and digits and are quoted, so that no text is interpreted as an operator.
fn expression(user: &UserId, text: &str) -> Option<String> {
    let words: Vec<String> = different_words(text).into_iter().map(|w| format!("\"{w}\"")).collect();
    (!words.is_empty()).then(|| format!("owner : {} AND ({})", owner_word(user), words.join(" OR ")))
}
