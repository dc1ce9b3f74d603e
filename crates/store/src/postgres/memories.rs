//! The users' memories: a GIN index over stems that the store computes, ranked by bm25 times importance [S0 14.3]. The
//! statistics are those of SQLite's full-text search: the number of memories of all users, their lengths, and the number of
//! memories with a word. Only the words of the user's own memories are searched.

use std::{collections::BTreeMap, fmt::Write};

use annie_core::{
    ids::{IntentId, UserId},
    ports::{Fut, Memories, Memory, MemoryCategory, MemoryHit, MemoryQuery, NewMemory, Saved, StoreError},
    time::Micros,
};

use super::{Postgres, PostgresStore, bound::Bound, errors::Failure, texts::within_json, transaction::Attempt};
use crate::{
    similar::{importance, merged, nearly_same},
    sql::{Cell, Columns, corrupt, hit_of, json, memory_of, owner_word, saved_of, signed},
    words::{all_stems, different_stems},
};

/// The most memories that are compared with a new one, those with the most words in common first.
const CANDIDATES_MAX: i64 = 16;
/// Memories that are added to the index in one transaction.
const INDEXED_AT_ONCE_MAX: u32 = 500;
/// Characters of a stem that are used; PostgreSQL accepts words of up to 2,046 bytes.
const STEM_CHARS_MAX: usize = 200;
/// Bytes of all stems of one memory that are indexed; PostgreSQL accepts a megabyte with their positions.
const STEMS_BYTES_MAX: usize = 300_000;
/// The last position that a word can have; later ones become this one.
const POSITION_MAX: usize = 16_383;

const SAVED_BEFORE: &str = "SELECT i.merged, m.number, m.content, m.tags, m.category, m.importance, m.created_at, \
     m.updated_at, m.accessed_at FROM memory_intents i JOIN memories m ON m.user_id = i.user_id AND m.number = i.number \
     WHERE i.user_id = $1 AND i.intent_id = $2";
const NEXT_NUMBER: &str = "SELECT 1 + coalesce(max(number), 0) FROM memories WHERE user_id = $1";
const CANDIDATES: &str = "SELECT m.number, m.content, m.tags, m.category, m.importance, m.created_at, \
     m.updated_at, m.accessed_at FROM _memory_terms f JOIN memories m ON m.id = f.memory_id \
     WHERE f.terms @@ $1::tsquery AND m.user_id = $2 AND m.category = $3 \
     ORDER BY (SELECT count(*) FROM unnest(f.terms) AS term WHERE term.lexeme = ANY($5)) DESC, m.number LIMIT $4";
const INSERT: &str = "INSERT INTO memories (user_id, number, owner, content, tags, category, importance, created_at, \
     updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const UPDATE: &str = "UPDATE memories SET content = $3, tags = $4, importance = $5, updated_at = $6 \
     WHERE user_id = $1 AND number = $2";
const INDEX: &str = "INSERT INTO _memory_terms (memory_id, terms, words) \
     SELECT id, $3::tsvector, $4 FROM memories WHERE user_id = $1 AND number = $2 \
     ON CONFLICT (memory_id) DO UPDATE SET terms = excluded.terms, words = excluded.words";
/// Memories that were not stored through a store: copied from another database.
const NOT_INDEXED: &str = "SELECT m.user_id, m.number, m.content, m.tags FROM memories m \
     LEFT JOIN _memory_terms f ON f.memory_id = m.id WHERE f.memory_id IS NULL ORDER BY m.id LIMIT $1 FOR UPDATE OF m";
const INSERT_INTENT: &str = "INSERT INTO memory_intents (user_id, intent_id, number, merged) VALUES ($1, $2, $3, $4)";

/// bm25 with k1 = 1.2 and b = 0.75; the weight of a word is at least a millionth, as in SQLite.
pub(super) const FIND: &str = "WITH totals AS MATERIALIZED (SELECT memories::float8 AS all_memories, \
         words::float8 / greatest(memories, 1) AS mean_words FROM _memory_totals), \
     word AS MATERIALIZED (SELECT w.word, w.place, CASE WHEN w.weight > 0 THEN w.weight ELSE 1e-6 END AS weight FROM ( \
         SELECT h.word, h.place, ln(greatest(t.all_memories - h.holding + 0.5, 0.5) / (h.holding + 0.5)) AS weight \
         FROM totals t CROSS JOIN (SELECT l.word, l.place, (SELECT count(*) FROM _memory_terms x \
             WHERE x.terms @@ quote_literal(l.word)::tsquery)::float8 AS holding \
             FROM unnest($7::text[]) WITH ORDINALITY AS l (word, place)) h) w), \
     hit AS (SELECT m.number, m.content, m.tags, m.category, m.importance, m.created_at, m.updated_at, m.accessed_at, \
         (SELECT sum(word.weight * ((term.times * 2.2) / (term.times + 1.2 * (0.25 + 0.75 * f.words / t.mean_words))) \
                 ORDER BY word.place) \
             FROM (SELECT u.lexeme, cardinality(u.positions)::float8 AS times FROM unnest(f.terms) u) term \
             JOIN word ON word.word = term.lexeme) * m.importance AS rank \
         FROM totals t CROSS JOIN _memory_terms f JOIN memories m ON m.id = f.memory_id \
         WHERE f.terms @@ $6::tsquery AND m.user_id = $1 AND ($2 IS NULL OR m.category = $2) AND m.importance >= $3 \
         AND (cardinality($4::text[]) = 0 OR EXISTS (SELECT 1 FROM json_array_elements_text(shown_body(m.tags)) AS tag (word) \
             WHERE tag.word = ANY($4)))) \
     SELECT number, content, tags, category, importance, created_at, updated_at, accessed_at, \
         greatest(0.0::float8, coalesce(rank, 0)) AS rank FROM hit ORDER BY 9 DESC, number DESC LIMIT $5";
const LIST: &str = "SELECT m.number, m.content, m.tags, m.category, m.importance, m.created_at, m.updated_at, \
         m.accessed_at, m.importance AS rank \
     FROM memories m WHERE m.user_id = $1 AND ($2 IS NULL OR m.category = $2) AND m.importance >= $3 \
     AND (cardinality($4::text[]) = 0 OR EXISTS (SELECT 1 FROM json_array_elements_text(shown_body(m.tags)) AS tag (word) \
         WHERE tag.word = ANY($4))) ORDER BY rank DESC, m.number DESC LIMIT $5";
const TOUCH: &str = "UPDATE memories SET accessed_at = greatest(coalesce(accessed_at, 0), $1) WHERE id IN ( \
     SELECT id FROM memories WHERE user_id = $2 AND number = ANY($3) ORDER BY id FOR UPDATE)";

impl Memories for PostgresStore {
    fn save_memory(
        &self,
        user: UserId,
        intent: IntentId,
        new: NewMemory,
        at: Micros,
    ) -> Fut<'_, Result<Saved, StoreError>> {
        Box::pin(async move {
            self.db
                .transaction("keeping a memory", |attempt| {
                    let (user, new) = (user.clone(), new.clone());
                    Box::pin(async move { save(attempt, &user, intent, new, at).await })
                })
                .await
        })
    }

    fn find_memories(&self, user: UserId, query: MemoryQuery) -> Fut<'_, Result<Vec<MemoryHit>, StoreError>> {
        Box::pin(async move {
            const WHAT: &str = "searching memories";
            let tags: Vec<String> = query.tags.iter().cloned().map(within_json).collect();
            let bound = || {
                Bound::default()
                    .with(&user)
                    .with(Cell::maybe_word(query.category.map(MemoryCategory::as_str)))
                    .with(Cell::Real(query.min_importance.unwrap_or(0.0)))
                    .words(&tags)
                    .with(query.limit)
            };
            let rows = if query.text.trim().is_empty() {
                self.db.connections.read(WHAT, LIST, bound).await?
            } else {
                let stems = query_stems(&query.text);
                let Some(expression) = expression(&user, &stems) else { return Ok(Vec::new()) };
                self.db.connections.read(WHAT, FIND, || bound().with(expression.clone()).words(&stems)).await?
            };
            rows.iter().map(|row| hit_of(&mut Columns::of(row))).collect()
        })
    }

    fn touch_memories(&self, user: UserId, numbers: Vec<u64>, at: Micros) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let numbers: Vec<i64> = numbers.into_iter().map(signed).collect();
            let bound = || Bound::default().with(at).with(&user).numbers(numbers.clone());
            self.db.connections.rows("noting found memories", TOUCH, bound).await.map(drop)
        })
    }
}

async fn save(
    attempt: &mut Attempt<'_>,
    user: &UserId,
    intent: IntentId,
    new: NewMemory,
    at: Micros,
) -> Result<Saved, Failure> {
    attempt.lock(format!("memories of {user}")).await?;
    let before = attempt.rows(SAVED_BEFORE, Bound::default().with(user).with(intent.uuid())).await?;
    if let Some(row) = before.first() {
        return Ok(saved_of(&mut Columns::of(row))?);
    }
    let same = same_as(attempt, user, &new).await?;
    let merging = same.is_some();
    let memory = if let Some(old) = same {
        let memory = merged(old, &new, at);
        let bound = Bound::default().with(user).with(signed(memory.number)).with(memory.content.clone());
        let bound = bound.with(json(&memory.tags)?).with(Cell::Real(memory.importance)).with(at);
        attempt.rows(UPDATE, bound).await?;
        memory
    } else {
        insert(attempt, user, new, at).await?
    };
    attempt.rows(INDEX, index(user, memory.number, &memory.content, &memory.tags)).await?;
    let bound = Bound::default().with(user).with(intent.uuid()).with(signed(memory.number)).with(merging);
    attempt.rows(INSERT_INTENT, bound).await?;
    Ok(Saved { memory, merged: merging })
}

async fn insert(attempt: &mut Attempt<'_>, user: &UserId, new: NewMemory, at: Micros) -> Result<Memory, Failure> {
    let next = attempt.rows(NEXT_NUMBER, Bound::default().with(user)).await?;
    let Some(row) = next.first() else { return Err(corrupt("keeping a memory", "no next number").into()) };
    let memory = Memory {
        number: Columns::of(row).count()?,
        importance: importance(new.importance),
        content: new.content,
        tags: new.tags,
        category: new.category,
        created_at: at,
        updated_at: at,
        accessed_at: None,
    };
    let bound = Bound::default().with(user).with(signed(memory.number)).with(owner_word(user));
    let bound = bound.with(memory.content.clone()).with(json(&memory.tags)?).with(memory.category.as_str());
    attempt.rows(INSERT, bound.with(Cell::Real(memory.importance)).with(at).with(at)).await?;
    Ok(memory)
}

impl Postgres {
    /// Adds memories to the search index that are missing there.
    pub(super) async fn index_memories(&self) -> Result<(), StoreError> {
        while self
            .transaction("indexing memories", |attempt| {
                Box::pin(async move {
                    let rows = attempt.rows(NOT_INDEXED, Bound::default().with(INDEXED_AT_ONCE_MAX)).await?;
                    for row in &rows {
                        let mut row = Columns::of(row);
                        let (user, number, content) = (row.user()?, row.count()?, row.text()?);
                        let tags: Vec<String> = row.json()?;
                        attempt.rows(INDEX, index(&user, number, &content, &tags)).await?;
                    }
                    Ok(rows.len())
                })
            })
            .await?
            > 0
        {}
        Ok(())
    }
}

/// The arguments of `INDEX`: user, number, terms and number of words.
fn index(user: &UserId, number: u64, content: &str, tags: &[String]) -> Bound {
    let (terms, words) = terms(user, content, tags);
    Bound::default().with(user).with(signed(number)).with(terms).with(words)
}

/// The existing memory that is nearly the same, if any.
async fn same_as(attempt: &mut Attempt<'_>, user: &UserId, new: &NewMemory) -> Result<Option<Memory>, Failure> {
    let stems = query_stems(&new.content);
    let Some(expression) = expression(user, &stems) else { return Ok(None) };
    let bound = Bound::default().with(expression).with(user).with(new.category.as_str()).with(CANDIDATES_MAX);
    for row in &attempt.rows(CANDIDATES, bound.words(&stems)).await? {
        let memory = memory_of(&mut Columns::of(row))?;
        if nearly_same(&memory.content, &new.content) {
            return Ok(Some(memory));
        }
    }
    Ok(None)
}

fn query_stems(text: &str) -> Vec<String> {
    different_stems(text).into_iter().map(clipped).collect()
}

fn clipped(stem: String) -> String {
    match stem.char_indices().nth(STEM_CHARS_MAX) {
        Some((end, _)) => stem[..end].to_owned(),
        None => stem,
    }
}

/// A user as a term that no stem can equal.
fn owner_term(user: &UserId) -> String {
    format!("@{}", owner_word(user))
}

/// A query for any of a text's stems among one user's memories; `None` if the text has no words. Stems contain only letters and
/// digits and are quoted, so that no text is interpreted as an operator.
fn expression(user: &UserId, stems: &[String]) -> Option<String> {
    let any: Vec<String> = stems.iter().map(|stem| format!("'{stem}'")).collect();
    (!any.is_empty()).then(|| format!("'{}' & ({})", owner_term(user), any.join(" | ")))
}

/// A memory's words with their positions, and their number including the owner.
fn terms(user: &UserId, content: &str, tags: &[String]) -> (String, i64) {
    let mut positions: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let (mut words, mut bytes) = (1, 0);
    for stem in all_stems(content).chain(tags.iter().flat_map(|tag| all_stems(tag))) {
        words += 1;
        let stem = clipped(stem);
        bytes += stem.len();
        if bytes <= STEMS_BYTES_MAX {
            positions.entry(stem).or_default().push((words - 1).min(POSITION_MAX));
        }
    }
    let mut terms = format!("'{}'", owner_term(user));
    for (stem, positions) in positions {
        let positions: Vec<String> = positions.iter().map(ToString::to_string).collect();
        let _ = write!(terms, " '{stem}':{}", positions.join(","));
    }
    (terms, i64::try_from(words).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgres_memory_is_indexed_by_its_stems_and_its_owner() {
        let ann = UserId::new("ann").unwrap();
        let owner = owner_term(&ann);
        let (terms, words) = terms(&ann, "Bob's emails, and Bob's 'phone' \\ calls", &["work|play".to_owned()]);
        let wanted = format!("'{owner}' 'and':4 'bob':1,5 'call':8 'email':3 'phone':7 'plai':10 's':2,6 'work':9");
        assert_eq!((terms, words), (wanted, 11));
        assert_eq!(expression(&ann, &query_stems("(email) | 'x")), Some(format!("'{owner}' & ('email' | 'x')")));
        assert_eq!(expression(&ann, &query_stems("🎉 & |")), None);
    }

    #[test]
    fn postgres_memory_index_accepts_words_and_texts_of_any_length() {
        let content = format!("{} {}", "ü".repeat(100_000), "word ".repeat(200_000));
        let (terms, words) = terms(&UserId::local(), &content, &[]);
        assert_eq!(words, 200_002);
        assert!(terms.split('\'').all(|word| word.starts_with(':') || word.len() < 2_046));
    }
}
