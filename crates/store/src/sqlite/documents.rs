//! The documents of skills: a table, and a full-text index (FTS5, Porter's stems) ranked by bm25. The index contains the user and
//! the namespace as a word of its own, so that a search reads only its own part; that word has no weight.

use annie_core::{
    ids::UserId,
    ports::{
        Document, DocumentHit, DocumentKey, DocumentOrder, DocumentQuery, DocumentWrite, Documents, ExportedDocument,
        Find, Fut, Namespace, NumberRange, Seen, StoreError, TextRange, Written,
    },
    time::Micros,
    words::different_words,
};

use super::{SqliteStore, absence::Gap, statements::Statements, writer::WriterGuard};
use crate::{
    documents::{Decided, Effect, Keys, decided, due_until, internal, needles, owner_word},
    sql::{
        Cell, Columns, DUE_DOCUMENTS, Database, corrupt, document_hit_of, document_of, due_document_of, exported_of,
        json, signed, written_of,
    },
};

const WRITTEN_BEFORE: &str = "SELECT i.kind, coalesce(d.number, 0), d.number, d.body, d.created_at, d.updated_at, d.accessed_at \
     FROM document_intents i \
     LEFT JOIN documents d ON d.user_id = i.user_id AND d.namespace = i.namespace AND d.number = i.number \
     WHERE i.user_id = ? AND i.namespace = ? AND i.intent_id = ?;";
const NEXT_NUMBER: &str = "SELECT '', 1 + coalesce(max(number), 0) FROM documents WHERE user_id = ? AND namespace = ?;";
const BY_NUMBER: &str = "SELECT number, body, created_at, updated_at, accessed_at FROM documents \
     WHERE user_id = $1 AND namespace = $2 AND number = $3 AND archived_at IS NULL";
const ARCHIVED_BY_NUMBER: &str = "SELECT number, body, created_at, updated_at, accessed_at FROM documents \
     WHERE user_id = $1 AND namespace = $2 AND number = $3 AND archived_at IS NOT NULL AND body <> '{}'";
const INSERT: &str = "INSERT INTO documents (body, text_1, text_2, text_3, number_1, number_2, tags, haystack, owner, words, \
     updated_at, user_id, namespace, number, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);";
const REPLACE: &str = "UPDATE documents SET body = ?, text_1 = ?, text_2 = ?, text_3 = ?, number_1 = ?, number_2 = ?, tags = ?, \
     haystack = ?, owner = ?, words = ?, updated_at = ? WHERE user_id = ? AND namespace = ? AND number = ?;";
const ARCHIVE: &str = "UPDATE documents SET archived_at = ? WHERE user_id = ? AND namespace = ? AND number = ?;";
const RESTORE: &str =
    "UPDATE documents SET archived_at = NULL, updated_at = ? WHERE user_id = ? AND namespace = ? AND number = ?;";
const INSERT_INTENT: &str =
    "INSERT INTO document_intents (user_id, namespace, intent_id, number, kind) VALUES (?, ?, ?, ?, ?);";
const ANY: &str = "SELECT 1 FROM documents WHERE user_id = $1 AND namespace = $2 AND archived_at IS NULL LIMIT 1";
const TOUCH: &str = "UPDATE documents SET accessed_at = max(coalesce(accessed_at, 0), ?) WHERE user_id = ? AND namespace = ? \
     AND archived_at IS NULL AND number IN (SELECT value FROM json_each(?))";
const ARCHIVED: &str = "SELECT namespace, archived_at, number, body, created_at, updated_at, accessed_at FROM documents \
     WHERE user_id = $1 AND namespace = $2 AND archived_at IS NOT NULL AND body <> '{}' \
     ORDER BY archived_at DESC, number DESC LIMIT $3";
const PURGE: &str = "UPDATE documents SET body = '{}', text_1 = NULL, text_2 = NULL, text_3 = NULL, number_1 = NULL, \
     number_2 = NULL, tags = '[]', haystack = '', owner = '', words = '' \
     WHERE id IN (SELECT id FROM documents WHERE archived_at < ? AND body <> '{}' LIMIT ?);";
const EXPORT: &str = "SELECT namespace, archived_at, number, body, created_at, updated_at, accessed_at FROM documents \
     WHERE user_id = $1 AND (namespace, number) > ($2, $3) ORDER BY namespace, number LIMIT $4";
const DELETE: &str = "DELETE FROM documents WHERE user_id = ?;";
const CHANGED: &str = "SELECT changes();";
/// The intents stay without a document, so that a repeated intent does not write again. No document has the number 0.
const CLOSE_INTENTS: &str = "UPDATE document_intents SET number = 0 WHERE user_id = ?;";

/// The condition of a query, with the arguments 1 to 12.
macro_rules! matching {
    () => {
        "d.user_id = $1 AND d.namespace = $2 AND d.archived_at IS NULL \
         AND NOT EXISTS (SELECT 1 FROM json_each($3) AS needle WHERE instr(d.haystack, needle.value) = 0) \
         AND ($4 = '[]' OR d.text_1 IN (SELECT value FROM json_each($4))) \
         AND ($5 = '[]' OR d.text_2 IN (SELECT value FROM json_each($5))) \
         AND ($6 = '[]' OR d.text_3 IN (SELECT value FROM json_each($6))) \
         AND ($7 = '[]' OR EXISTS (SELECT 1 FROM json_each($7) AS part \
             WHERE d.text_1 >= coalesce(json_extract(part.value, '$[0]'), '') \
             AND (json_extract(part.value, '$[1]') IS NULL OR d.text_1 < json_extract(part.value, '$[1]')))) \
         AND ($8 IS NULL OR d.number_1 >= $8) AND ($9 IS NULL OR d.number_1 <= $9) \
         AND ($10 IS NULL OR d.number_2 >= $10) AND ($11 IS NULL OR d.number_2 <= $11) \
         AND ($12 = '[]' OR EXISTS (SELECT 1 FROM json_each(d.tags) AS tag \
             WHERE tag.value IN (SELECT value FROM json_each($12))))"
    };
}

/// The text of a query with this rank and order, and the limit as the argument 13.
macro_rules! find {
    ($from:literal, $rank:literal, $order:literal) => {
        concat!(
            "SELECT d.number, d.body, d.created_at, d.updated_at, d.accessed_at, ",
            $rank,
            " AS rank FROM ",
            $from,
            matching!(),
            " ORDER BY ",
            $order,
            " LIMIT $13"
        )
    };
}

macro_rules! plain {
    ($rank:literal, $order:literal) => {
        find!("documents d WHERE ", $rank, $order)
    };
}

/// With the full-text expression as the argument 14.
macro_rules! words {
    ($rank:literal, $order:literal) => {
        find!(
            "documents_fts f CROSS JOIN documents d ON d.id = f.rowid WHERE documents_fts MATCH $14 AND ",
            $rank,
            $order
        )
    };
}

/// The groups of ranges are the argument 13.
const COUNT: &str = concat!(
    "WITH matched AS MATERIALIZED (SELECT d.text_1 AS sorted FROM documents d WHERE ",
    matching!(),
    ") SELECT 0 AS place, (SELECT count(*) FROM matched) AS found \
     UNION ALL SELECT 1 + grouped.key, (SELECT count(*) FROM matched WHERE EXISTS (SELECT 1 FROM json_each(grouped.value) AS part \
         WHERE matched.sorted >= coalesce(json_extract(part.value, '$[0]'), '') \
         AND (json_extract(part.value, '$[1]') IS NULL OR matched.sorted < json_extract(part.value, '$[1]')))) \
     FROM json_each($13) AS grouped ORDER BY place"
);

const fn find_all(order: DocumentOrder) -> &'static str {
    match order {
        DocumentOrder::Text => {
            plain!("coalesce(d.number_1, 1.0)", "d.text_1 IS NULL, d.text_1, d.number_1 DESC NULLS LAST, d.number")
        }
        DocumentOrder::Number => {
            plain!("coalesce(d.number_1, 1.0)", "d.number_1 DESC NULLS LAST, d.text_1 IS NULL, d.text_1, d.number")
        }
        DocumentOrder::Rank => plain!("coalesce(d.number_1, 1.0)", "rank DESC, d.number DESC"),
        DocumentOrder::Similarity => plain!("1.0", "d.number"),
    }
}

const fn find_words(order: DocumentOrder) -> &'static str {
    match order {
        DocumentOrder::Text => words!(
            "max(0.0, -bm25(documents_fts, 0.0, 1.0) * coalesce(d.number_1, 1.0))",
            "d.text_1 IS NULL, d.text_1, d.number_1 DESC NULLS LAST, d.number"
        ),
        DocumentOrder::Number => words!(
            "max(0.0, -bm25(documents_fts, 0.0, 1.0) * coalesce(d.number_1, 1.0))",
            "d.number_1 DESC NULLS LAST, d.text_1 IS NULL, d.text_1, d.number"
        ),
        DocumentOrder::Rank => {
            words!("max(0.0, -bm25(documents_fts, 0.0, 1.0) * coalesce(d.number_1, 1.0))", "rank DESC, d.number DESC")
        }
        DocumentOrder::Similarity => {
            words!("max(0.0, -bm25(documents_fts, 0.0, 1.0))", "rank DESC, d.number")
        }
    }
}

impl Documents for SqliteStore {
    fn write_document(&self, write: DocumentWrite) -> Fut<'_, Result<Written, StoreError>> {
        Box::pin(async move {
            let mut guard = self.db.lock_writer("writing a document").await?;
            self.db.no_documents.begins(&write.user);
            let written = execute(&mut guard, &write).await;
            if written.is_err() {
                guard.roll_back().await;
            }
            self.db.no_documents.ended();
            written
        })
    }

    fn document(
        &self,
        user: UserId,
        namespace: &'static Namespace,
        number: u64,
    ) -> Fut<'_, Result<Option<Document>, StoreError>> {
        Box::pin(async move {
            let bound = vec![Cell::from(&user), namespace.name.into(), signed(number).into()];
            self.one("reading a document", BY_NUMBER, bound, document_of).await
        })
    }

    fn find_documents(
        &self,
        user: UserId,
        namespace: &'static Namespace,
        query: DocumentQuery,
    ) -> Fut<'_, Result<Vec<DocumentHit>, StoreError>> {
        Box::pin(async move {
            const WHAT: &str = "searching documents";
            if self.db.no_documents.is_known(&user, &Gap { namespace: namespace.name, texts: query.texts.clone() }) {
                return Ok(Vec::new());
            }
            let writes = self.db.no_documents.writes();
            let Some((sql, bound)) = find(&user, namespace, &query)? else { return Ok(Vec::new()) };
            let hits = self.list(WHAT, sql, bound, document_hit_of).await?;
            if hits.is_empty() {
                let any = vec![Cell::from(&user), namespace.name.into()];
                if self.db.query(WHAT, ANY, any).await?.is_empty() {
                    self.db.no_documents.found(&user, Gap::all(namespace.name), writes);
                }
            }
            Ok(hits)
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
            let gap = Gap { namespace: namespace.name, texts: query.texts.clone() };
            if self.db.no_documents.is_known(&user, &gap) {
                return Ok(vec![0; groups.len() + 1]);
            }
            let writes = self.db.no_documents.writes();
            let mut bound = matching(&user, namespace, &query)?;
            let groups: Vec<_> = groups.iter().map(|ranges| bounds(ranges)).collect();
            bound.push(json(&groups)?.into());
            let read = |row: &mut Columns<'_>| {
                row.count()?;
                row.count()
            };
            let counts = self.list("counting documents", COUNT, bound, read).await?;
            // If nothing but the texts of the keys limits the query, the gap is all that it asked for.
            let DocumentQuery { order, limit, .. } = query;
            let by_texts = DocumentQuery { texts: query.texts.clone(), order, limit, ..DocumentQuery::default() };
            if counts.first() == Some(&0) && query == by_texts {
                self.db.no_documents.found(&user, gap, writes);
            }
            Ok(counts)
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
            let mut statements = Statements::default();
            statements.push(TOUCH).with(at.0).with(name(&user)).with(namespace.name).with(json(&numbers)?);
            self.db.write("noting the use of documents", statements).await?;
            Ok(())
        })
    }

    fn archived_documents(
        &self,
        user: UserId,
        namespace: &'static Namespace,
        limit: u32,
    ) -> Fut<'_, Result<Vec<ExportedDocument>, StoreError>> {
        Box::pin(async move {
            let bound = vec![Cell::from(&user), namespace.name.into(), limit.into()];
            self.list("listing archived documents", ARCHIVED, bound, exported_of).await
        })
    }

    fn purge_documents(&self, before: Micros, limit: u32) -> Fut<'_, Result<u64, StoreError>> {
        Box::pin(async move {
            let mut guard = self.db.lock_writer("purging documents").await?;
            let mut statements = Statements::begin();
            statements.push(PURGE).with(before.0).with(i64::from(limit)).push(CHANGED);
            let rows = guard.begin(statements).await?;
            guard.commit(Statements::default()).await?;
            rows.first().map_or(Ok(0), |row| Columns::of(row).count())
        })
    }

    fn export_documents(
        &self,
        user: UserId,
        after: Option<DocumentKey>,
        limit: u32,
    ) -> Fut<'_, Result<Vec<ExportedDocument>, StoreError>> {
        Box::pin(async move {
            let (namespace, number) = after.unwrap_or_default();
            let bound = vec![Cell::from(&user), namespace.into(), signed(number).into(), limit.into()];
            self.list("exporting documents", EXPORT, bound, exported_of).await
        })
    }

    fn delete_documents(&self, user: UserId) -> Fut<'_, Result<u64, StoreError>> {
        Box::pin(async move {
            let mut guard = self.db.lock_writer("deleting documents").await?;
            let mut statements = Statements::begin();
            statements.push(DELETE).with(name(&user)).push(CHANGED).push(CLOSE_INTENTS).with(name(&user));
            let rows = guard.begin(statements).await?;
            guard.commit(Statements::default()).await?;
            rows.first().map_or(Ok(0), |row| Columns::of(row).count())
        })
    }
}

async fn execute(guard: &mut WriterGuard<'_>, write: &DocumentWrite) -> Result<Written, StoreError> {
    let DocumentWrite { user, namespace, intent, seen, decide, at } = write;
    let mut statements = Statements::begin();
    statements.push(WRITTEN_BEFORE).with(name(user)).with(namespace.name).with(intent.uuid());
    statements.push(NEXT_NUMBER).with(name(user)).with(namespace.name);
    let rows = guard.begin(statements).await?;
    let next = match rows.as_slice() {
        [before, _next] => {
            guard.roll_back().await;
            return written_of(&mut Columns::of(before));
        }
        [next] => {
            let mut row = Columns::of(next);
            row.text()?;
            row.count()?
        }
        _ => return Err(corrupt("writing a document", "no next number")),
    };
    let seen = read_seen(guard, user, namespace, seen).await?;
    let decided = decided(namespace, decide(&seen)?, &seen, next, *at)?;
    let Some(statements) = statements_of(write, &decided)? else {
        guard.roll_back().await;
        return Ok(decided.written());
    };
    guard.commit(statements).await?;
    Ok(decided.written())
}

async fn read_seen(
    guard: &mut WriterGuard<'_>,
    user: &UserId,
    namespace: &Namespace,
    seen: &Seen,
) -> Result<Vec<Document>, StoreError> {
    let (sql, bound) = match seen {
        Seen::Nothing => return Ok(Vec::new()),
        Seen::Number(number) => (BY_NUMBER, vec![Cell::from(user), namespace.name.into(), signed(*number).into()]),
        Seen::Archived(number) => {
            (ARCHIVED_BY_NUMBER, vec![Cell::from(user), namespace.name.into(), signed(*number).into()])
        }
        Seen::Query(query) => match find(user, namespace, query)? {
            Some(found) => found,
            None => return Ok(Vec::new()),
        },
    };
    let rows = guard.send(Statements::one(sql, bound)).await?;
    rows.iter().map(|row| document_of(&mut Columns::of(row))).collect()
}

/// The statements of a decision; `None` if it changes nothing.
fn statements_of(write: &DocumentWrite, decided: &Decided) -> Result<Option<Statements>, StoreError> {
    let (Some(document), namespace) = (&decided.document, write.namespace) else { return Ok(None) };
    let mut statements = Statements::default();
    let by_key = |statements: &mut Statements| {
        statements.with(name(&write.user)).with(namespace.name).with(signed(document.number));
    };
    match &decided.effect {
        Effect::None => return Ok(None),
        Effect::Insert(keys) => {
            statements.push(INSERT);
            bind(&mut statements, write, document, keys)?;
            by_key(&mut statements);
            statements.with(document.created_at.0);
        }
        Effect::Replace(keys) => {
            statements.push(REPLACE);
            bind(&mut statements, write, document, keys)?;
            by_key(&mut statements);
        }
        Effect::Archive => {
            statements.push(ARCHIVE).with(write.at.0);
            by_key(&mut statements);
        }
        Effect::Restore => {
            statements.push(RESTORE).with(write.at.0);
            by_key(&mut statements);
        }
    }
    statements.push(INSERT_INTENT).with(name(&write.user)).with(namespace.name).with(write.intent.uuid());
    statements.with(signed(document.number)).with(decided.kind.as_str());
    Ok(Some(statements))
}

/// Binds body, text_1, text_2, text_3, number_1, number_2, tags, haystack, owner, words, updated_at.
fn bind(
    statements: &mut Statements,
    write: &DocumentWrite,
    document: &Document,
    keys: &Keys,
) -> Result<(), StoreError> {
    statements.with(json(&document.body)?);
    for text in &keys.texts {
        statements.with(text.clone());
    }
    for number in keys.numbers {
        statements.with(number);
    }
    let owner = if keys.words.is_empty() { String::new() } else { owner_word(&write.user, write.namespace) };
    statements.with(json(&keys.tags)?).with(keys.haystack.clone()).with(owner).with(keys.words.clone());
    statements.with(document.updated_at.0);
    Ok(())
}

/// The statement of a query with its arguments; `None` if no document can match.
fn find(
    user: &UserId,
    namespace: &Namespace,
    query: &DocumentQuery,
) -> Result<Option<(&'static str, Vec<Cell>)>, StoreError> {
    let mut bound = matching(user, namespace, query)?;
    bound.push(query.limit.into());
    let Find::AnyWord(text) = &query.find else { return Ok(Some((find_all(query.order), bound))) };
    let Some(expression) = expression(user, namespace, text) else { return Ok(None) };
    bound.push(expression.into());
    Ok(Some((find_words(query.order), bound)))
}

/// The arguments of `matching!`.
fn matching(user: &UserId, namespace: &Namespace, query: &DocumentQuery) -> Result<Vec<Cell>, StoreError> {
    let mut bound = vec![Cell::from(user), namespace.name.into(), json(&needles(&query.find))?.into()];
    for texts in &query.texts {
        bound.push(json(texts)?.into());
    }
    bound.push(json(&bounds(&query.ranges))?.into());
    for NumberRange { min, max } in query.numbers {
        bound.extend([Cell::maybe_real(min), Cell::maybe_real(max)]);
    }
    bound.push(json(&query.tags)?.into());
    Ok(bound)
}

fn bounds(ranges: &[TextRange]) -> Vec<[Option<&str>; 2]> {
    ranges.iter().map(|range| [range.from.as_deref(), range.before.as_deref()]).collect()
}

/// A full-text expression for any of a text's words among one user's documents of a namespace; `None` if the text has no words.
/// Words contain only letters and digits and are quoted, so that no text is interpreted as an operator.
fn expression(user: &UserId, namespace: &Namespace, text: &str) -> Option<String> {
    let words: Vec<String> = different_words(text).into_iter().map(|w| format!("\"{w}\"")).collect();
    (!words.is_empty()).then(|| format!("owner : {} AND ({})", owner_word(user, namespace), words.join(" OR ")))
}

fn name(user: &UserId) -> String {
    user.as_str().to_owned()
}
