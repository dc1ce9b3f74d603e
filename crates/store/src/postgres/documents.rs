//! The documents of skills: a table, and a GIN index over stems that the store computes, ranked by bm25. The statistics are those
//! of SQLite's full-text search: the number of documents with words, of all users and namespaces, their lengths, and the number
//! of documents with a word. Only the words of the user's own documents of the namespace are searched.

use std::{collections::BTreeMap, fmt::Write};

use annie_core::{
    ids::UserId,
    ports::{
        Document, DocumentHit, DocumentKey, DocumentOrder, DocumentQuery, DocumentWrite, Documents, ExportedDocument,
        Find, Fut, Namespace, NumberRange, Seen, StoreError, TextRange, Written,
    },
    time::Micros,
    words::{all_stems, different_stems},
};

use super::{Postgres, PostgresStore, bound::Bound, errors::Failure, texts::within_json, transaction::Attempt};
use crate::{
    documents::{Decided, Effect, Keys, decided, due_until, internal, needles, owner_word},
    sql::{
        Cell, Columns, DUE_DOCUMENTS, corrupt, document_hit_of, document_of, due_document_of, exported_of, json,
        signed, written_of,
    },
};

/// Documents that are added to the index in one transaction.
const INDEXED_AT_ONCE_MAX: u32 = 500;
/// Characters of a stem that are used; PostgreSQL accepts words of up to 2,046 bytes.
const STEM_CHARS_MAX: usize = 200;
/// Bytes of all stems of one document that are indexed; PostgreSQL accepts a megabyte with their positions.
const STEMS_BYTES_MAX: usize = 300_000;
/// The last position that a word can have; later ones become this one.
const POSITION_MAX: usize = 16_383;

const WRITTEN_BEFORE: &str = "SELECT i.kind, coalesce(d.number, 0), d.number, d.body, d.created_at, d.updated_at, d.accessed_at \
     FROM document_intents i \
     LEFT JOIN documents d ON d.user_id = i.user_id AND d.namespace = i.namespace AND d.number = i.number \
     WHERE i.user_id = $1 AND i.namespace = $2 AND i.intent_id = $3";
const NEXT_NUMBER: &str = "SELECT 1 + coalesce(max(number), 0) FROM documents WHERE user_id = $1 AND namespace = $2";
pub(super) const BY_NUMBER: &str = "SELECT number, body, created_at, updated_at, accessed_at FROM documents \
     WHERE user_id = $1 AND namespace = $2 AND number = $3 AND archived_at IS NULL";
/// The lock keeps a purge from erasing the document that is being restored.
const ARCHIVED_BY_NUMBER: &str = "SELECT number, body, created_at, updated_at, accessed_at FROM documents \
     WHERE user_id = $1 AND namespace = $2 AND number = $3 AND archived_at IS NOT NULL AND body <> '{}' FOR UPDATE";
const INSERT: &str = "INSERT INTO documents (user_id, namespace, number, body, text_1, text_2, text_3, number_1, number_2, \
     tags, haystack, owner, words, updated_at, created_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)";
const REPLACE: &str = "UPDATE documents SET body = $4, text_1 = $5, text_2 = $6, text_3 = $7, number_1 = $8, number_2 = $9, \
     tags = $10, haystack = $11, owner = $12, words = $13, updated_at = $14 \
     WHERE user_id = $1 AND namespace = $2 AND number = $3";
const ARCHIVE: &str = "UPDATE documents SET archived_at = $4 WHERE user_id = $1 AND namespace = $2 AND number = $3";
const RESTORE: &str =
    "UPDATE documents SET archived_at = NULL, updated_at = $4 WHERE user_id = $1 AND namespace = $2 AND number = $3";
const ARCHIVED: &str = "SELECT namespace, archived_at, number, body, created_at, updated_at, accessed_at FROM documents \
     WHERE user_id = $1 AND namespace = $2 AND archived_at IS NOT NULL AND body <> '{}' \
     ORDER BY archived_at DESC, number DESC LIMIT $3";
const PURGE: &str = "WITH purged AS ( \
     UPDATE documents SET body = '{}', text_1 = NULL, text_2 = NULL, text_3 = NULL, number_1 = NULL, number_2 = NULL, \
     tags = '[]', haystack = '', owner = '', words = '' WHERE id IN ( \
     SELECT id FROM documents WHERE archived_at < $1 AND body <> '{}' ORDER BY id LIMIT $2 FOR UPDATE) RETURNING id), \
     terms AS (DELETE FROM _document_terms WHERE document_id IN (SELECT id FROM purged)) SELECT id FROM purged";
const INSERT_INTENT: &str =
    "INSERT INTO document_intents (user_id, namespace, number, intent_id, kind) VALUES ($1, $2, $3, $4, $5)";
const INDEX: &str = "INSERT INTO _document_terms (document_id, terms, words) \
     SELECT id, $4::tsvector, $5 FROM documents WHERE user_id = $1 AND namespace = $2 AND number = $3 \
     ON CONFLICT (document_id) DO UPDATE SET terms = excluded.terms, words = excluded.words";
const NOT_INDEXED_ANY_MORE: &str = "DELETE FROM _document_terms WHERE document_id IN ( \
     SELECT id FROM documents WHERE user_id = $1 AND namespace = $2 AND number = $3)";
/// Documents that were not stored through a store: moved by a migration, or copied from another database.
const NOT_INDEXED: &str = "SELECT d.user_id, d.namespace, d.number, d.owner, d.words FROM documents d \
     LEFT JOIN _document_terms f ON f.document_id = d.id WHERE f.document_id IS NULL AND d.words <> '' \
     ORDER BY d.id LIMIT $1 FOR UPDATE OF d";
const TOUCH: &str = "UPDATE documents SET accessed_at = greatest(coalesce(accessed_at, 0), $1) WHERE id IN ( \
     SELECT id FROM documents WHERE user_id = $2 AND namespace = $3 AND archived_at IS NULL AND number = ANY($4) \
     ORDER BY id FOR UPDATE)";
pub(super) const EXPORT: &str = "SELECT namespace, archived_at, number, body, created_at, updated_at, accessed_at \
     FROM documents WHERE user_id = $1 AND (namespace, number) > ($2, $3) ORDER BY namespace, number LIMIT $4";
const DELETE: &str = "DELETE FROM documents WHERE user_id = $1 RETURNING number";
/// The intents stay without a document, so that a repeated intent does not write again. No document has the number 0.
const CLOSE_INTENTS: &str = "UPDATE document_intents SET number = 0 WHERE user_id = $1";

/// The condition of a query, with the arguments 1 to 13.
macro_rules! matching {
    () => {
        "d.user_id = $1 AND d.namespace = $2 AND d.archived_at IS NULL \
         AND NOT EXISTS (SELECT 1 FROM unnest($3::text[]) AS needle (word) WHERE strpos(d.haystack, needle.word) = 0) \
         AND (cardinality($4::text[]) = 0 OR d.text_1 = ANY($4)) AND (cardinality($5::text[]) = 0 OR d.text_2 = ANY($5)) \
         AND (cardinality($6::text[]) = 0 OR d.text_3 = ANY($6)) \
         AND (cardinality($7::text[]) = 0 OR EXISTS (SELECT 1 FROM unnest($7::text[], $8::text[]) AS part (low, high) \
             WHERE d.text_1 >= coalesce(part.low, '') AND (part.high IS NULL OR d.text_1 < part.high))) \
         AND ($9::float8 IS NULL OR d.number_1 >= $9) AND ($10::float8 IS NULL OR d.number_1 <= $10) \
         AND ($11::float8 IS NULL OR d.number_2 >= $11) AND ($12::float8 IS NULL OR d.number_2 <= $12) \
         AND (cardinality($13::text[]) = 0 OR EXISTS (SELECT 1 FROM json_array_elements_text(shown_body(d.tags)) AS tag (word) \
             WHERE tag.word = ANY($13)))"
    };
}

/// A query without a search for words, with the limit as the argument 14.
macro_rules! plain {
    ($rank:literal, $order:literal) => {
        concat!(
            "SELECT d.number, d.body, d.created_at, d.updated_at, d.accessed_at, ",
            $rank,
            " AS rank FROM documents d WHERE ",
            matching!(),
            " ORDER BY ",
            $order,
            " LIMIT $14"
        )
    };
}

/// A search for the stems in the argument 16, with the full-text expression as the argument 15. bm25 with k1 = 1.2 and b = 0.75;
/// the weight of a word is at least a millionth, as in SQLite.
macro_rules! words {
    ($factor:literal, $order:literal) => {
        concat!(
            "WITH totals AS MATERIALIZED (SELECT documents::float8 AS all_documents, \
                 words::float8 / greatest(documents, 1) AS mean_words FROM _document_totals), \
             word AS MATERIALIZED (SELECT w.word, w.place, CASE WHEN w.weight > 0 THEN w.weight ELSE 1e-6 END AS weight FROM ( \
                 SELECT h.word, h.place, ln(greatest(t.all_documents - h.holding + 0.5, 0.5) / (h.holding + 0.5)) AS weight \
                 FROM totals t CROSS JOIN (SELECT l.word, l.place, (SELECT count(*) FROM _document_terms x \
                     WHERE x.terms @@ quote_literal(l.word)::tsquery)::float8 AS holding \
                     FROM unnest($16::text[]) WITH ORDINALITY AS l (word, place)) h) w), \
             hit AS (SELECT d.number, d.body, d.created_at, d.updated_at, d.accessed_at, d.text_1, d.number_1, \
                 (SELECT sum(word.weight * ((term.times * 2.2) / (term.times + 1.2 * (0.25 + 0.75 * f.words / t.mean_words))) \
                         ORDER BY word.place) \
                     FROM (SELECT u.lexeme, cardinality(u.positions)::float8 AS times FROM unnest(f.terms) u) term \
                     JOIN word ON word.word = term.lexeme) * ",
            $factor,
            " AS rank FROM totals t CROSS JOIN _document_terms f JOIN documents d ON d.id = f.document_id \
                 WHERE f.terms @@ $15::tsquery AND ",
            matching!(),
            ") SELECT d.number, d.body, d.created_at, d.updated_at, d.accessed_at, \
                 greatest(0.0::float8, coalesce(d.rank, 0)) AS rank FROM hit d ORDER BY ",
            $order,
            " LIMIT $14"
        )
    };
}

/// The groups, their ranges' lower and upper ends, and the number of groups are the arguments 14 to 17.
pub(super) const COUNT: &str = concat!(
    "WITH matched AS MATERIALIZED (SELECT d.text_1 AS sorted FROM documents d WHERE ",
    matching!(),
    ") SELECT 0::bigint AS place, (SELECT count(*) FROM matched) AS found \
     UNION ALL SELECT grouped.place, (SELECT count(*) FROM matched WHERE EXISTS ( \
         SELECT 1 FROM unnest($14::bigint[], $15::text[], $16::text[]) AS part (place, low, high) \
         WHERE part.place = grouped.place AND matched.sorted >= coalesce(part.low, '') \
         AND (part.high IS NULL OR matched.sorted < part.high))) \
     FROM generate_series(1::bigint, $17::bigint) AS grouped (place) ORDER BY place"
);

pub(super) const fn find_all(order: DocumentOrder) -> &'static str {
    match order {
        DocumentOrder::Text => {
            plain!("coalesce(d.number_1, 1)", "d.text_1 NULLS LAST, d.number_1 DESC NULLS LAST, d.number")
        }
        DocumentOrder::Number => {
            plain!("coalesce(d.number_1, 1)", "d.number_1 DESC NULLS LAST, d.text_1 NULLS LAST, d.number")
        }
        DocumentOrder::Rank => plain!("coalesce(d.number_1, 1)", "6 DESC, d.number DESC"),
        DocumentOrder::Similarity => plain!("1::float8", "d.number"),
    }
}

pub(super) const fn find_words(order: DocumentOrder) -> &'static str {
    match order {
        DocumentOrder::Text => {
            words!("coalesce(d.number_1, 1)", "d.text_1 NULLS LAST, d.number_1 DESC NULLS LAST, d.number")
        }
        DocumentOrder::Number => {
            words!("coalesce(d.number_1, 1)", "d.number_1 DESC NULLS LAST, d.text_1 NULLS LAST, d.number")
        }
        DocumentOrder::Rank => words!("coalesce(d.number_1, 1)", "6 DESC, d.number DESC"),
        DocumentOrder::Similarity => words!("1::float8", "6 DESC, d.number"),
    }
}

impl Documents for PostgresStore {
    fn write_document(&self, write: DocumentWrite) -> Fut<'_, Result<Written, StoreError>> {
        Box::pin(async move {
            self.db
                .transaction("writing a document", |attempt| {
                    let write = write.clone();
                    Box::pin(async move { execute(attempt, &write).await })
                })
                .await
        })
    }

    fn document(
        &self,
        user: UserId,
        namespace: &'static Namespace,
        number: u64,
    ) -> Fut<'_, Result<Option<Document>, StoreError>> {
        let bound = vec![Cell::from(&user), namespace.name.into(), signed(number).into()];
        Box::pin(self.one("reading a document", BY_NUMBER, bound, document_of))
    }

    fn find_documents(
        &self,
        user: UserId,
        namespace: &'static Namespace,
        query: DocumentQuery,
    ) -> Fut<'_, Result<Vec<DocumentHit>, StoreError>> {
        Box::pin(async move {
            let Some(found) = Found::of(&user, namespace, &query) else { return Ok(Vec::new()) };
            let rows = self.db.connections.read("searching documents", found.sql, || found.bound()).await?;
            rows.iter().map(|row| document_hit_of(&mut Columns::of(row))).collect()
        })
    }

    fn count_documents(
        &self,
        user: UserId,
        namespace: &'static Namespace,
        query: DocumentQuery,
        groups: Vec<Vec<TextRange>>,
    ) -> Fut<'_, Result<Vec<u64>, StoreError>> {
        Box::pin(async move {
            if matches!(query.find, Find::AnyWord(_)) {
                return Err(internal("documents that a search for words finds are not counted".to_owned()));
            }
            let count = signed(groups.len() as u64);
            let (mut places, mut ranges) = (Vec::new(), Vec::new());
            for (place, group) in (1_i64..).zip(groups) {
                places.extend(group.iter().map(|_| place));
                ranges.extend(group);
            }
            let (lows, highs) = ends(&ranges);
            let bound = || {
                let bound = matching(&user, namespace, &query).numbers(places.clone());
                bound.maybe_words(lows.clone()).maybe_words(highs.clone()).with(count)
            };
            let rows = self.db.connections.read("counting documents", COUNT, bound).await?;
            let counts = rows.iter().map(|row| {
                let mut row = Columns::of(row);
                row.count()?;
                row.count()
            });
            counts.collect()
        })
    }

    fn due_documents(
        &self,
        namespace: &'static Namespace,
        until: Micros,
        limit: u32,
    ) -> Fut<'_, Result<Vec<(UserId, Document)>, StoreError>> {
        let bound = vec![namespace.name.into(), Cell::Real(due_until(until)), limit.into()];
        Box::pin(self.list("reading due documents", DUE_DOCUMENTS, bound, due_document_of))
    }

    fn touch_documents(
        &self,
        user: UserId,
        namespace: &'static Namespace,
        numbers: Vec<u64>,
        at: Micros,
    ) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let numbers: Vec<i64> = numbers.into_iter().map(signed).collect();
            let bound = || Bound::default().with(at).with(&user).with(namespace.name).numbers(numbers.clone());
            self.db.connections.rows("noting the use of documents", TOUCH, bound).await.map(drop)
        })
    }

    fn archived_documents(
        &self,
        user: UserId,
        namespace: &'static Namespace,
        limit: u32,
    ) -> Fut<'_, Result<Vec<ExportedDocument>, StoreError>> {
        let bound = vec![Cell::from(&user), namespace.name.into(), limit.into()];
        Box::pin(self.list("listing archived documents", ARCHIVED, bound, exported_of))
    }

    fn purge_documents(&self, before: Micros, limit: u32) -> Fut<'_, Result<u64, StoreError>> {
        Box::pin(async move {
            self.db
                .transaction("purging documents", |attempt| {
                    Box::pin(async move {
                        let rows = attempt.rows(PURGE, Bound::default().with(before).with(limit)).await?;
                        Ok(rows.len() as u64)
                    })
                })
                .await
        })
    }

    fn export_documents(
        &self,
        user: UserId,
        after: Option<DocumentKey>,
        limit: u32,
    ) -> Fut<'_, Result<Vec<ExportedDocument>, StoreError>> {
        let (namespace, number) = after.unwrap_or_default();
        let bound = vec![Cell::from(&user), namespace.into(), signed(number).into(), limit.into()];
        Box::pin(self.list("exporting documents", EXPORT, bound, exported_of))
    }

    fn delete_documents(&self, user: UserId) -> Fut<'_, Result<u64, StoreError>> {
        Box::pin(async move {
            self.db
                .transaction("deleting documents", |attempt| {
                    let user = user.clone();
                    Box::pin(async move {
                        // A write under way may have read a document that is deleted here.
                        attempt.lock(all_documents(&user)).await?;
                        let rows = attempt.rows(DELETE, Bound::default().with(&user)).await?;
                        attempt.rows(CLOSE_INTENTS, Bound::default().with(&user)).await?;
                        Ok(rows.len() as u64)
                    })
                })
                .await
        })
    }
}

/// The lock that a write shares with writes of other namespaces, and that a deletion has alone.
fn all_documents(user: &UserId) -> String {
    format!("all documents of {user}")
}

async fn execute(attempt: &mut Attempt<'_>, write: &DocumentWrite) -> Result<Written, Failure> {
    let DocumentWrite { user, namespace, intent, seen, decide, at } = write;
    attempt.lock_shared(all_documents(user)).await?;
    attempt.lock(format!("documents {} of {user}", namespace.name)).await?;
    let owned = || Bound::default().with(user).with(namespace.name);
    let before = attempt.rows(WRITTEN_BEFORE, owned().with(intent.uuid())).await?;
    if let Some(row) = before.first() {
        return Ok(written_of(&mut Columns::of(row))?);
    }
    let next = attempt.rows(NEXT_NUMBER, owned()).await?;
    let Some(row) = next.first() else { return Err(corrupt("writing a document", "no next number").into()) };
    let next = Columns::of(row).count()?;
    let seen = read_seen(attempt, user, namespace, seen).await?;
    let decided = decided(namespace, decide(&seen)?, &seen, next, *at)?;
    store(attempt, write, &decided).await?;
    Ok(decided.written())
}

async fn read_seen(
    attempt: &mut Attempt<'_>,
    user: &UserId,
    namespace: &Namespace,
    seen: &Seen,
) -> Result<Vec<Document>, Failure> {
    let rows = match seen {
        Seen::Nothing => return Ok(Vec::new()),
        Seen::Number(number) => {
            attempt.rows(BY_NUMBER, Bound::default().with(user).with(namespace.name).with(signed(*number))).await?
        }
        Seen::Archived(number) => {
            let bound = Bound::default().with(user).with(namespace.name).with(signed(*number));
            attempt.rows(ARCHIVED_BY_NUMBER, bound).await?
        }
        Seen::Query(query) => match Found::of(user, namespace, query) {
            Some(found) => attempt.rows(found.sql, found.bound()).await?,
            None => return Ok(Vec::new()),
        },
    };
    Ok(rows.iter().map(|row| document_of(&mut Columns::of(row))).collect::<Result<_, _>>()?)
}

async fn store(attempt: &mut Attempt<'_>, write: &DocumentWrite, decided: &Decided) -> Result<(), Failure> {
    let (Some(document), namespace) = (&decided.document, write.namespace) else { return Ok(()) };
    let by_key = || Bound::default().with(&write.user).with(namespace.name).with(signed(document.number));
    match &decided.effect {
        Effect::None => return Ok(()),
        Effect::Insert(keys) => {
            let bound = Bound::of(cells(write, document, keys)?).with(document.created_at);
            attempt.rows(INSERT, bound).await?;
            if !keys.words.is_empty() {
                let (terms, words) = terms(&owner_word(&write.user, namespace), &keys.words);
                attempt.rows(INDEX, by_key().with(terms).with(words)).await?;
            }
        }
        Effect::Replace(keys) => {
            attempt.rows(REPLACE, Bound::of(cells(write, document, keys)?)).await?;
            if keys.words.is_empty() {
                attempt.rows(NOT_INDEXED_ANY_MORE, by_key()).await?;
            } else {
                let (terms, words) = terms(&owner_word(&write.user, namespace), &keys.words);
                attempt.rows(INDEX, by_key().with(terms).with(words)).await?;
            }
        }
        Effect::Archive => {
            attempt.rows(ARCHIVE, by_key().with(write.at)).await?;
        }
        Effect::Restore => {
            attempt.rows(RESTORE, by_key().with(write.at)).await?;
        }
    }
    attempt.rows(INSERT_INTENT, by_key().with(write.intent.uuid()).with(decided.kind.as_str())).await?;
    Ok(())
}

/// The values for user, namespace, number, body, text_1, text_2, text_3, number_1, number_2, tags, haystack, owner, words,
/// updated_at.
fn cells(write: &DocumentWrite, document: &Document, keys: &Keys) -> Result<Vec<Cell>, StoreError> {
    let owner = if keys.words.is_empty() { String::new() } else { owner_word(&write.user, write.namespace) };
    let mut cells = vec![Cell::from(&write.user), write.namespace.name.into(), signed(document.number).into()];
    cells.push(json(&document.body)?.into());
    cells.extend(keys.texts.iter().cloned().map(Cell::maybe_text));
    cells.extend(keys.numbers.map(Cell::maybe_real));
    cells.push(json(&keys.tags)?.into());
    cells.push(keys.haystack.clone().into());
    cells.push(owner.into());
    cells.push(keys.words.clone().into());
    cells.push(document.updated_at.into());
    Ok(cells)
}

/// The statement of a query and its arguments.
struct Found<'a> {
    sql: &'static str,
    user: &'a UserId,
    namespace: &'a Namespace,
    query: &'a DocumentQuery,
    /// The full-text expression and the stems of a search for words.
    searched: Option<(String, Vec<String>)>,
}

impl<'a> Found<'a> {
    /// `None` if no document can match.
    fn of(user: &'a UserId, namespace: &'a Namespace, query: &'a DocumentQuery) -> Option<Self> {
        let Find::AnyWord(text) = &query.find else {
            return Some(Self { sql: find_all(query.order), user, namespace, query, searched: None });
        };
        let stems = query_stems(text);
        let searched = Some((expression(&owner_word(user, namespace), &stems)?, stems));
        Some(Self { sql: find_words(query.order), user, namespace, query, searched })
    }

    fn bound(&self) -> Bound {
        let bound = matching(self.user, self.namespace, self.query).with(self.query.limit);
        match &self.searched {
            Some((expression, stems)) => bound.with(expression.clone()).words(stems),
            None => bound,
        }
    }
}

/// The arguments of `matching!`.
fn matching(user: &UserId, namespace: &Namespace, query: &DocumentQuery) -> Bound {
    let mut bound = Bound::default().with(user).with(namespace.name).words(&needles(&query.find));
    for texts in &query.texts {
        bound = bound.words(texts);
    }
    let (lows, highs) = ends(&query.ranges);
    bound = bound.maybe_words(lows).maybe_words(highs);
    for NumberRange { min, max } in query.numbers {
        bound = bound.with(Cell::maybe_real(min)).with(Cell::maybe_real(max));
    }
    bound.words(&query.tags.iter().cloned().map(within_json).collect::<Vec<_>>())
}

/// The lower and the upper ends of ranges.
fn ends(ranges: &[TextRange]) -> (Vec<Option<String>>, Vec<Option<String>>) {
    ranges.iter().map(|range| (range.from.clone(), range.before.clone())).unzip()
}

impl Postgres {
    /// Adds documents to the search index that are missing there.
    pub(super) async fn index_documents(&self) -> Result<(), StoreError> {
        while self
            .transaction("indexing documents", |attempt| {
                Box::pin(async move {
                    let rows = attempt.rows(NOT_INDEXED, Bound::default().with(INDEXED_AT_ONCE_MAX)).await?;
                    for row in &rows {
                        let mut row = Columns::of(row);
                        let (user, namespace, number) = (row.user()?, row.text()?, row.number()?);
                        let (terms, words) = terms(&row.text()?, &row.text()?);
                        let bound = Bound::default().with(&user).with(namespace).with(number).with(terms).with(words);
                        attempt.rows(INDEX, bound).await?;
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

fn query_stems(text: &str) -> Vec<String> {
    different_stems(text).into_iter().map(clipped).collect()
}

fn clipped(stem: String) -> String {
    match stem.char_indices().nth(STEM_CHARS_MAX) {
        Some((end, _)) => stem[..end].to_owned(),
        None => stem,
    }
}

/// A query for any of a text's stems among the documents of an owner; `None` if the text has no words. Stems contain only letters
/// and digits and are quoted, so that no text is interpreted as an operator. The owner is a term that no stem can equal.
fn expression(owner: &str, stems: &[String]) -> Option<String> {
    let any: Vec<String> = stems.iter().map(|stem| format!("'{stem}'")).collect();
    (!any.is_empty()).then(|| format!("'@{owner}' & ({})", any.join(" | ")))
}

/// The terms of a text with their positions, and their number including the owner.
fn terms(owner: &str, text: &str) -> (String, i64) {
    let mut positions: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let (mut words, mut bytes) = (1, 0);
    for stem in all_stems(text) {
        words += 1;
        let stem = clipped(stem);
        bytes += stem.len();
        if bytes <= STEMS_BYTES_MAX {
            positions.entry(stem).or_default().push((words - 1).min(POSITION_MAX));
        }
    }
    let mut terms = format!("'@{owner}'");
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
    fn postgres_document_is_indexed_by_its_stems_and_its_owner() {
        let (terms, words) = terms("u1memory", "Bob's emails, and Bob's 'phone' \\ calls\nwork|play");
        let wanted = "'@u1memory' 'and':4 'bob':1,5 'call':8 'email':3 'phone':7 'plai':10 's':2,6 'work':9";
        assert_eq!((terms.as_str(), words), (wanted, 11));
        let wanted = Some("'@u1memory' & ('email' | 'x')".to_owned());
        assert_eq!(expression("u1memory", &query_stems("(email) | 'x")), wanted);
        assert_eq!(expression("u1memory", &query_stems("🎉 & |")), None);
    }

    #[test]
    fn postgres_document_index_accepts_words_and_texts_of_any_length() {
        let text = format!("{} {}", "ü".repeat(100_000), "word ".repeat(200_000));
        let (terms, words) = terms("u1memory", &text);
        assert_eq!(words, 200_002);
        assert!(terms.split('\'').all(|word| word.starts_with(':') || word.len() < 2_046));
    }
}
