//! The record of the acts of operators. An act is recorded before it begins and when it has ended. It does not wait long for the
//! store: an operator must be able to end an actor that keeps the store from answering. Such an act is logged and counted.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use annie_core::{
    act::{ACTS, ActEntry, ActPhase, ActResult},
    audit::{NOTHING, raw_digest, seals_user},
    ids::IntentId,
    ports::{
        Document, DocumentChange, DocumentOrder, DocumentQuery, DocumentWrite, NumberRange, Seen, StoreError, TextRange,
    },
    time::Micros,
};

use super::{TRIES_MAX, as_key, internal, newest_one};
use crate::kernel::{Kernel, KernelError};

/// How long an act waits for its record, in milliseconds.
const RECORD_MS_MAX: u64 = 1_000;
/// The longest stored text of an entry, in characters. The front ends refuse longer reasons; targets and errors are cut.
const TEXT_CHARS_MAX: usize = 1_000;
/// The most differences that one page of a verification lists.
const BROKEN_MAX: usize = 100;

/// An act that an operator requests.
#[derive(Debug, Clone)]
pub struct ActRequest {
    /// The kind of act, such as `actor.kill`.
    pub act: &'static str,
    /// What the act is about.
    pub target: String,
    /// The reason; empty if none was given.
    pub reason: String,
    /// The user, and the public id of the key.
    pub by: String,
    /// The front end.
    pub channel: &'static str,
}

/// A recorded act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    /// Its number in the chain, which is that of the entry of its request.
    pub number: u64,
    /// When it was requested.
    pub at: Micros,
    /// The node that carried it out.
    pub node: String,
    /// The user, and the public id of the key.
    pub by: String,
    /// The front end.
    pub channel: String,
    /// The kind of act.
    pub act: String,
    /// What it is about.
    pub target: String,
    /// The reason; empty if none was given.
    pub reason: String,
    /// How it ended; `None` if it is under way, or its end was not recorded.
    pub result: Option<ActResult>,
    /// The error of an act that was not done.
    pub detail: String,
    /// When it ended.
    pub ended_at: Option<Micros>,
}

/// Which acts are listed, newest first.
#[derive(Debug, Clone, Default)]
pub struct ActFilter {
    /// Only acts about this target, or about a path below it.
    pub under: Option<String>,
    /// Only acts at this time or later.
    pub from: Option<Micros>,
    /// Only acts before this time.
    pub before: Option<Micros>,
    /// Only acts with a lower number.
    pub below: Option<u64>,
    /// The maximum number of acts.
    pub limit: u32,
}

/// A page of a verification of the acts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActsPage {
    /// The number of entries that were verified.
    pub entries: u64,
    /// The number of differences.
    pub broken_total: u64,
    /// The first differences: the number of the entry, and what is wrong.
    pub broken: Vec<(u64, String)>,
    /// The last entry of the page: its number and its digest.
    pub last: Option<(u64, String)>,
    /// When the last entry of the page was made.
    pub last_at: Option<Micros>,
    /// Whether there are entries after the page.
    pub has_more: bool,
}

impl ActsPage {
    fn add(&mut self, number: u64, what: &str) {
        self.broken_total += 1;
        if self.broken.len() < BROKEN_MAX {
            self.broken.push((number, what.to_owned()));
        }
    }
}

impl Kernel {
    /// Records that an act was requested. Returns the entry, which [`Self::end_act`] needs; `None` if the store did not take it
    /// in time. Then the act is in the log of the process only.
    pub async fn begin_act(&self, asked: &ActRequest) -> Option<ActEntry> {
        let ActRequest { act, target, reason, by, channel } = asked;
        tracing::warn!(act, target, by, reason, "an operator acts");
        let entry = ActEntry {
            number: 0,
            of: String::new(),
            phase: ActPhase::Requested,
            at: self.now(),
            node: self.wiring.lease.node().to_string(),
            by: by.clone(),
            channel: (*channel).to_owned(),
            act: (*act).to_owned(),
            target: clipped(target),
            reason: clipped(reason),
            result: None,
            detail: String::new(),
            previous: String::new(),
            digest: String::new(),
        };
        self.record(entry).await
    }

    /// Records how an act ended.
    pub async fn end_act(&self, begun: Option<ActEntry>, result: ActResult, detail: &str) {
        let Some(begun) = begun else { return };
        let (at, detail) = (self.now(), clipped(detail));
        self.record(ActEntry { phase: ActPhase::Ended, at, result: Some(result), detail, ..begun }).await;
    }

    async fn record(&self, entry: ActEntry) -> Option<ActEntry> {
        let (act, target) = (entry.act.clone(), entry.target.clone());
        let wait = Duration::from_millis(RECORD_MS_MAX);
        let error = match tokio::time::timeout(wait, self.append_act(entry)).await {
            Ok(Ok(entry)) => return Some(entry),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("the store did not answer within {RECORD_MS_MAX} ms"),
        };
        metrics::counter!("annie_actions_unrecorded_total").increment(1);
        tracing::error!(act, target, error, "an act of an operator could not be recorded");
        None
    }

    /// Appends an entry to the chain. The entry of a request is about itself.
    async fn append_act(&self, entry: ActEntry) -> Result<ActEntry, StoreError> {
        let documents = &self.wiring.documents;
        let user = seals_user().map_err(|e| internal(&e.to_string()))?;
        let intent = IntentId::for_request(self.wiring.env.uuid());
        let mut failed = None;
        for _ in 0..TRIES_MAX {
            let template = entry.clone();
            let decide = move |seen: &[Document]| {
                let body = serde_json::to_value(following(template.clone(), seen.first()));
                body.map(DocumentChange::Insert).map_err(|e| internal(&e.to_string()))
            };
            let write = DocumentWrite {
                user: user.clone(),
                namespace: &ACTS,
                intent,
                seen: Seen::Query(newest_one()),
                decide: Arc::new(decide),
                at: entry.at,
            };
            match documents.write_document(write).await {
                Ok(written) => {
                    let stored = written.document.and_then(|document| read(&document).ok());
                    return stored.ok_or_else(|| internal("the entry cannot be read"));
                }
                Err(error) if error.is_retryable() => failed = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(failed.unwrap_or_else(|| internal("no try was made")))
    }

    /// The entries that match, the newest first: each with the number of its document, and as an entry or as the digest of a
    /// document that cannot be read as one.
    async fn find_acts(&self, query: DocumentQuery) -> Result<Vec<(u64, Result<ActEntry, String>)>, StoreError> {
        let user = seals_user().map_err(|e| internal(&e.to_string()))?;
        let query = DocumentQuery { order: DocumentOrder::Number, ..query };
        let hits = self.wiring.documents.find_documents(user, &ACTS, query).await?;
        Ok(hits.iter().map(|hit| (hit.document.number, read(&hit.document))).collect())
    }

    /// The acts that match, newest first.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn acts(&self, filter: ActFilter) -> Result<Vec<Act>, KernelError> {
        let mut query = DocumentQuery { limit: filter.limit, ..DocumentQuery::default() };
        query.texts[1] = vec![ActPhase::Requested.as_str().to_owned()];
        if let Some(under) = filter.under.filter(|under| !under.is_empty() && under != "/") {
            let under = under.trim_end_matches('/').to_owned();
            let exact = TextRange { from: Some(under.clone()), before: Some(format!("{under}\0")) };
            // `0` follows `/`: the range has all paths below.
            let below = TextRange { from: Some(format!("{under}/")), before: Some(format!("{under}0")) };
            query.ranges = vec![exact, below];
        }
        query.numbers[0].max = filter.below.map(|number| as_key(number.saturating_sub(1)));
        query.numbers[1] =
            NumberRange { min: filter.from.map(of_time), max: filter.before.map(|at| of_time(at) - 1.0) };
        let requested: Vec<ActEntry> =
            self.find_acts(query).await?.into_iter().filter_map(|(_, act)| act.ok()).collect();
        let mut ends = BTreeMap::new();
        if !requested.is_empty() {
            let limit = u32::try_from(requested.len()).unwrap_or(filter.limit);
            let mut query = DocumentQuery { limit, ..DocumentQuery::default() };
            query.texts[1] = vec![ActPhase::Ended.as_str().to_owned()];
            query.texts[2] = requested.iter().map(|act| act.of.clone()).collect();
            let found = self.find_acts(query).await?;
            ends.extend(found.into_iter().filter_map(|(_, end)| end.ok()).map(|end| (end.of.clone(), end)));
        }
        Ok(requested.into_iter().map(|act| joined(&mut ends, act)).collect())
    }

    /// Verifies the entries with numbers after `after`, at most `limit`.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn verify_acts(&self, after: u64, limit: u32) -> Result<ActsPage, KernelError> {
        let mut page = ActsPage::default();
        let mut before = (0, NOTHING.to_owned());
        let last = after.saturating_add(u64::from(limit));
        let mut query = DocumentQuery { limit: limit.saturating_add(1), ..DocumentQuery::default() };
        query.numbers[0] = NumberRange { min: Some(as_key(after.max(1))), max: Some(as_key(last)) };
        let mut found = self.find_acts(query).await?;
        found.reverse();
        if after > 0 {
            // The entry before the page: its digest is what the first entry follows.
            match found.first() {
                Some((number, entry)) if *number == after => {
                    before = (after, digest_of(entry));
                    drop(found.remove(0));
                }
                _ => before = (after, String::new()),
            }
        }
        for (number, entry) in found {
            page.entries += 1;
            if number != before.0.saturating_add(1) {
                page.add(number, "an entry before it is missing");
            }
            match &entry {
                Ok(entry) if entry.computed() != entry.digest || entry.number != number => {
                    page.add(number, "the entry was changed");
                }
                Ok(entry) if entry.previous != before.1 => page.add(number, "it does not follow the entry before it"),
                Ok(_) => {}
                Err(_) => page.add(number, "the entry cannot be read"),
            }
            page.last_at = entry.as_ref().ok().map(|entry| entry.at);
            before = (number, digest_of(&entry));
        }
        let newest = self.find_acts(newest_one()).await?.pop().map_or(0, |(number, _)| number);
        page.has_more = newest > last;
        if before.0 < newest.min(last) {
            page.add(newest.min(last), "the entries before it are missing");
            before = (newest.min(last), String::new());
        }
        page.last = Some(before).filter(|(number, _)| *number > 0);
        Ok(page)
    }
}

/// The entry as it follows the newest one.
fn following(entry: ActEntry, newest: Option<&Document>) -> ActEntry {
    let (number, previous) =
        newest.map_or_else(|| (1, NOTHING.to_owned()), |newest| (newest.number + 1, digest_of(&read(newest))));
    let of = if entry.phase == ActPhase::Requested { number.to_string() } else { entry.of.clone() };
    ActEntry { number, of, previous, ..entry }.sealed()
}

fn read(document: &Document) -> Result<ActEntry, String> {
    ActEntry::of(&document.body).ok_or_else(|| raw_digest(&document.body))
}

/// The digest that the next entry has to name.
fn digest_of(entry: &Result<ActEntry, String>) -> String {
    match entry {
        Ok(entry) => entry.digest.clone(),
        Err(raw) => raw.clone(),
    }
}

fn joined(ends: &mut BTreeMap<String, ActEntry>, act: ActEntry) -> Act {
    let end = ends.remove(&act.of);
    let ActEntry { number, at, node, by, channel, act, target, reason, .. } = act;
    let (result, ended_at) = (end.as_ref().and_then(|end| end.result), end.as_ref().map(|end| end.at));
    let detail = end.map(|end| end.detail).unwrap_or_default();
    Act { number, at, node, by, channel, act, target, reason, result, detail, ended_at }
}

fn clipped(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

#[expect(clippy::cast_precision_loss, reason = "microseconds since 1970 stay below 2^53 for 200 years")]
const fn of_time(at: Micros) -> f64 {
    at.0 as f64
}
