//! The in-memory implementation of the port `Documents`.

use std::{
    cmp::{Ordering, Reverse},
    collections::BTreeMap,
};

use annie_core::{
    ids::UserId,
    ports::{
        Document, DocumentHit, DocumentKey, DocumentOrder, DocumentQuery, DocumentWrite, Documents, ExportedDocument,
        Find, Fut, Namespace, NumberRange, Seen, StoreError, TextRange, Written,
    },
    time::Micros,
    words::{all_stems, different_words},
};
use serde_json::json;

use super::{
    MemoryStore,
    data::{Data, KeptDocument},
    search::Index,
};
use crate::documents::{Effect, Keys, decided, due_until, internal, needles};

impl Documents for MemoryStore {
    fn write_document(&self, write: DocumentWrite) -> Fut<'_, Result<Written, StoreError>> {
        Box::pin(async move { self.write("write_document", move |data| execute(data, write)).await? })
    }

    fn document(
        &self,
        user: UserId,
        namespace: &'static Namespace,
        number: u64,
    ) -> Fut<'_, Result<Option<Document>, StoreError>> {
        Box::pin(self.read("document", move |data| by_number(data, user, namespace, number)))
    }

    fn find_documents(
        &self,
        user: UserId,
        namespace: &'static Namespace,
        query: DocumentQuery,
    ) -> Fut<'_, Result<Vec<DocumentHit>, StoreError>> {
        Box::pin(self.read("find_documents", move |data| find(data, &user, namespace, &query)))
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
            self.read("count_documents", move |data| {
                let needles = needles(&query.find);
                let matched: Vec<&KeptDocument> =
                    shown(data, &user, namespace).filter(|kept| fits(&kept.keys, &query, &needles)).collect();
                let in_group = |ranges: &Vec<TextRange>| {
                    matched.iter().filter(|kept| is_in_any(kept.keys.texts[0].as_deref(), ranges)).count() as u64
                };
                std::iter::once(matched.len() as u64).chain(groups.iter().map(in_group)).collect()
            })
            .await
        })
    }

    fn due_documents(
        &self,
        namespace: &'static Namespace,
        until: Micros,
        limit: u32,
    ) -> Fut<'_, Result<Vec<(UserId, Document)>, StoreError>> {
        Box::pin(self.read("due_documents", move |data| {
            let until = due_until(until);
            let own =
                data.documents.iter().filter(|((_, of, _), kept)| *of == namespace.name && kept.archived_at.is_none());
            let mut due: Vec<(f64, UserId, Document)> = own
                // The second number is the time at which the document is due.
                .filter_map(|((user, ..), kept)| Some((kept.keys.numbers[1]?, user.clone(), kept.document.clone())))
                .filter(|(at, ..)| *at <= until)
                .collect();
            // The sort is stable, and the documents are in the order of users and numbers.
            due.sort_by(|(a, ..), (b, ..)| a.total_cmp(b));
            due.into_iter().take(limit as usize).map(|(_, user, document)| (user, document)).collect()
        }))
    }

    fn touch_documents(
        &self,
        user: UserId,
        namespace: &'static Namespace,
        numbers: Vec<u64>,
        at: Micros,
    ) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(self.write("touch_documents", move |data| {
            for number in numbers {
                let kept = data.documents.get_mut(&(user.clone(), namespace.name, number));
                if let Some(kept) = kept.filter(|kept| kept.archived_at.is_none()) {
                    kept.document.accessed_at = kept.document.accessed_at.max(Some(at));
                }
            }
        }))
    }

    fn archived_documents(
        &self,
        user: UserId,
        namespace: &'static Namespace,
        limit: u32,
    ) -> Fut<'_, Result<Vec<ExportedDocument>, StoreError>> {
        Box::pin(self.read("archived_documents", move |data| {
            let mut archived: Vec<&KeptDocument> =
                all(data, &user, namespace).filter(|kept| is_restorable(kept)).collect();
            archived.sort_by_key(|kept| Reverse((kept.archived_at, kept.document.number)));
            let exported = archived.into_iter().map(|kept| ExportedDocument {
                namespace: namespace.name.to_owned(),
                document: kept.document.clone(),
                archived_at: kept.archived_at,
            });
            exported.take(limit as usize).collect()
        }))
    }

    fn purge_documents(&self, before: Micros, limit: u32) -> Fut<'_, Result<u64, StoreError>> {
        Box::pin(self.write("purge_documents", move |data| {
            let due = |kept: &&mut KeptDocument| is_restorable(kept) && kept.archived_at.is_some_and(|at| at < before);
            let mut purged = 0;
            for kept in data.documents.values_mut().filter(due).take(limit as usize) {
                kept.document.body = json!({});
                kept.keys = Keys::default();
                purged += 1;
            }
            purged
        }))
    }

    fn export_documents(
        &self,
        user: UserId,
        after: Option<DocumentKey>,
        limit: u32,
    ) -> Fut<'_, Result<Vec<ExportedDocument>, StoreError>> {
        Box::pin(self.read("export_documents", move |data| {
            let (namespace, number) = after.unwrap_or_default();
            let own = data.documents.iter().filter(|((owner, ..), _)| *owner == user);
            let rest = own.filter(|((_, of, n), _)| (*of, *n) > (namespace.as_str(), number));
            let exported = rest.map(|((_, of, _), kept)| ExportedDocument {
                namespace: (*of).to_owned(),
                document: kept.document.clone(),
                archived_at: kept.archived_at,
            });
            exported.take(limit as usize).collect()
        }))
    }

    fn delete_documents(&self, user: UserId) -> Fut<'_, Result<u64, StoreError>> {
        Box::pin(self.write("delete_documents", move |data| {
            let before = data.documents.len();
            data.documents.retain(|(owner, ..), _| *owner != user);
            // The intents stay without a document, so that a repeated intent does not write again.
            for ((owner, ..), (number, _)) in &mut data.document_intents {
                if *owner == user {
                    *number = 0;
                }
            }
            (before - data.documents.len()) as u64
        }))
    }
}

fn execute(data: &mut Data, write: DocumentWrite) -> Result<Written, StoreError> {
    let DocumentWrite { user, namespace, intent, seen, decide, at } = write;
    let by_intent = (user.clone(), namespace.name, intent);
    if let Some((number, kind)) = data.document_intents.get(&by_intent).copied() {
        let kept = data.documents.get(&(user, namespace.name, number));
        return Ok(Written { kind, document: kept.map(|kept| kept.document.clone()) });
    }
    let next = all(data, &user, namespace).map(|kept| kept.document.number).max().unwrap_or(0) + 1;
    let seen = match seen {
        Seen::Nothing => Vec::new(),
        Seen::Number(number) => by_number(data, user.clone(), namespace, number).into_iter().collect(),
        Seen::Archived(number) => {
            let kept = data.documents.get(&(user.clone(), namespace.name, number)).filter(|kept| is_restorable(kept));
            kept.map(|kept| kept.document.clone()).into_iter().collect()
        }
        Seen::Query(query) => find(data, &user, namespace, &query).into_iter().map(|hit| hit.document).collect(),
    };
    let change = decide(&seen)?;
    // A database may call `decide` several times for one write. A decision that is not pure is a bug of the skill.
    debug_assert_eq!(decide(&seen).as_ref(), Ok(&change), "the decision of a write must be pure");
    let decided = decided(namespace, change, &seen, next, at)?;
    if let Some(document) = &decided.document {
        let key = (user, namespace.name, document.number);
        let kept = data.documents.entry(key).or_insert_with(|| KeptDocument {
            document: document.clone(),
            keys: Keys::default(),
            archived_at: None,
        });
        kept.document = document.clone();
        match &decided.effect {
            Effect::None => {}
            Effect::Insert(keys) | Effect::Replace(keys) => kept.keys = keys.clone(),
            Effect::Archive => kept.archived_at = Some(at),
            Effect::Restore => kept.archived_at = None,
        }
        data.document_intents.insert(by_intent, (document.number, decided.kind));
    }
    Ok(decided.written())
}

/// All documents of a user and a namespace, archived ones too.
fn all<'a>(data: &'a Data, user: &UserId, namespace: &Namespace) -> impl Iterator<Item = &'a KeptDocument> + use<'a> {
    let key = |number| (user.clone(), namespace.name, number);
    data.documents.range(key(0)..=key(u64::MAX)).map(|(_, kept)| kept)
}

/// Whether a document is archived and not purged. A purge replaces the body by an empty object.
fn is_restorable(kept: &KeptDocument) -> bool {
    kept.archived_at.is_some() && kept.document.body != json!({})
}

fn shown<'a>(data: &'a Data, user: &UserId, namespace: &Namespace) -> impl Iterator<Item = &'a KeptDocument> + use<'a> {
    all(data, user, namespace).filter(|kept| kept.archived_at.is_none())
}

fn by_number(data: &Data, user: UserId, namespace: &Namespace, number: u64) -> Option<Document> {
    let kept = data.documents.get(&(user, namespace.name, number));
    kept.filter(|kept| kept.archived_at.is_none()).map(|kept| kept.document.clone())
}

fn find(data: &Data, user: &UserId, namespace: &Namespace, query: &DocumentQuery) -> Vec<DocumentHit> {
    let ranks = match &query.find {
        Find::AnyWord(text) if different_words(text).is_empty() => return Vec::new(),
        Find::AnyWord(text) => Some(ranks(data, user, namespace, text)),
        Find::All | Find::Containing(_) => None,
    };
    let needles = needles(&query.find);
    let mut hits: Vec<(&KeptDocument, f64)> = shown(data, user, namespace)
        .filter(|kept| fits(&kept.keys, query, &needles))
        .filter_map(|kept| {
            let text_rank = match &ranks {
                Some(ranks) => *ranks.get(&kept.document.number)?,
                None => 1.0,
            };
            let factor = match query.order {
                DocumentOrder::Similarity => 1.0,
                DocumentOrder::Text | DocumentOrder::Number | DocumentOrder::Rank => {
                    kept.keys.numbers[0].unwrap_or(1.0)
                }
            };
            let rank = text_rank * factor;
            Some((kept, if ranks.is_some() { rank.max(0.0) } else { rank }))
        })
        .collect();
    hits.sort_by(|a, b| in_order(query.order, *a, *b));
    hits.truncate(query.limit as usize);
    hits.into_iter().map(|(kept, rank)| DocumentHit { document: kept.document.clone(), rank }).collect()
}

/// Maps the number of each document of this user and namespace that contains at least one word of the text to its bm25 rank. As
/// in SQLite, word frequencies are counted over the documents of all users.
fn ranks(data: &Data, user: &UserId, namespace: &Namespace, text: &str) -> BTreeMap<u64, f64> {
    let indexed: Vec<_> = data.documents.iter().filter(|(_, kept)| !kept.keys.words.is_empty()).collect();
    let index = Index::of(indexed.iter().map(|(_, kept)| all_stems(&kept.keys.words).collect()));
    let own = |n: usize| {
        let ((owner, of, number), _) = indexed[n];
        (owner == user && *of == namespace.name).then_some(*number)
    };
    index.ranks(text).into_iter().filter_map(|(n, rank)| Some((own(n)?, rank))).collect()
}

fn in_order(order: DocumentOrder, a: (&KeptDocument, f64), b: (&KeptDocument, f64)) -> Ordering {
    let (left, right) = (&a.0.keys, &b.0.keys);
    let text = || {
        let key = |keys: &Keys| (keys.texts[0].is_none(), keys.texts[0].clone());
        key(left).cmp(&key(right))
    };
    let number = || {
        let key = |keys: &Keys| keys.numbers[0].unwrap_or(f64::NEG_INFINITY);
        key(right).total_cmp(&key(left))
    };
    let oldest = || a.0.document.number.cmp(&b.0.document.number);
    match order {
        DocumentOrder::Text => text().then_with(number).then_with(oldest),
        DocumentOrder::Number => number().then_with(text).then_with(oldest),
        DocumentOrder::Rank => b.1.total_cmp(&a.1).then_with(|| oldest().reverse()),
        DocumentOrder::Similarity => b.1.total_cmp(&a.1).then_with(oldest),
    }
}

fn fits(keys: &Keys, query: &DocumentQuery, needles: &[String]) -> bool {
    let mut texts = keys.texts.iter().zip(&query.texts);
    let mut numbers = keys.numbers.iter().zip(query.numbers);
    needles.iter().all(|needle| keys.haystack.contains(needle))
        && texts.all(|(key, wanted)| wanted.is_empty() || key.as_ref().is_some_and(|key| wanted.contains(key)))
        && (query.ranges.is_empty() || is_in_any(keys.texts[0].as_deref(), &query.ranges))
        && numbers.all(|(key, range)| is_within(*key, range))
        && (query.tags.is_empty() || query.tags.iter().any(|tag| keys.tags.contains(tag)))
}

fn is_in_any(key: Option<&str>, ranges: &[TextRange]) -> bool {
    let Some(key) = key else { return false };
    ranges.iter().any(|TextRange { from, before }| {
        from.as_ref().is_none_or(|from| key >= from.as_str())
            && before.as_ref().is_none_or(|before| key < before.as_str())
    })
}

fn is_within(key: Option<f64>, NumberRange { min, max }: NumberRange) -> bool {
    min.is_none_or(|min| key.is_some_and(|key| key >= min)) && max.is_none_or(|max| key.is_some_and(|key| key <= max))
}
