//! Compares the tables of a store with its log. The examination only reads, through the ports, so it works for every store: it
//! folds the log into a store in memory, and compares every row with the result.

use std::collections::{BTreeMap, BTreeSet};

use annie_core::{
    event::{Event, Scope},
    ids::{ConversationId, Epoch, Seq, TaskId},
    ports::{Before, ConversationRow, DeadLetterFilter, Records, Snapshot, Store, StoreError, StoreErrorKind},
    replay::{Divergence, Replay},
    turn::{Conversation, STATE_VERSION},
};
use serde::Serialize;
use serde_json::Value;

use crate::MemoryStore;

/// Events per read.
const PAGE: u32 = 500;
/// Rows of a table per read: all of them.
const ROWS_MAX: u32 = i32::MAX as u32;
/// The most unreadable events that are listed; with more of them the database counts as unreadable.
const UNREADABLE_MAX: usize = 1_000;
/// A position after every row.
const FAR: Before = Before::NEWEST;

/// Result of an examination.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Examination {
    /// Number of conversations that were read.
    pub conversations: u64,
    /// Number of events that were read.
    pub events: u64,
    /// Events that cannot be read. The rows of their conversations are not compared.
    pub unreadable: Vec<Unreadable>,
    /// Sequence numbers that are missing in a log.
    pub gaps: Vec<Gap>,
    /// The tables that are folded from the log, each with its result.
    pub tables: Vec<TableCheck>,
    /// Snapshots that differ from the folded log.
    pub snapshots: Vec<WrongSnapshot>,
    /// Decisions that the core takes otherwise than they are stored, by conversation.
    pub diverged: Vec<(ConversationId, Divergence)>,
}

/// An event that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// The event's conversation.
    pub conversation: ConversationId,
    /// The event's sequence number.
    pub seq: Seq,
    /// The error.
    pub why: String,
}

/// Missing sequence numbers of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The conversation.
    pub conversation: ConversationId,
    /// The last sequence number before the gap.
    pub after: Seq,
    /// The first sequence number after the gap.
    pub next: Seq,
}

/// Comparison of a table with the log. Rows are identified by their ids.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TableCheck {
    /// Name of the table.
    pub table: &'static str,
    /// Number of rows that match the log.
    pub right: u64,
    /// Rows that follow from the log and are missing in the table.
    pub missing: Vec<String>,
    /// Rows of the table that follow from no event.
    pub orphans: Vec<String>,
    /// Rows that differ from the log.
    pub different: Vec<String>,
    /// The error, if the table cannot be read at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

impl TableCheck {
    /// Whether the table matches the log.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.missing.is_empty() && self.orphans.is_empty() && self.different.is_empty() && self.broken.is_none()
    }
}

/// A snapshot that differs from the folded log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WrongSnapshot {
    /// The conversation.
    pub conversation: ConversationId,
    /// Sequence number of its last event.
    pub seq: Seq,
    /// The difference.
    pub why: String,
    /// The conversation's epoch, under which the snapshot can be replaced.
    #[serde(skip)]
    epoch: Epoch,
    /// The correct snapshot.
    #[serde(skip)]
    right: Option<Snapshot>,
}

impl Examination {
    /// Whether every table and snapshot matches the log. Damage of the log itself is reported by `is_log_whole`.
    #[must_use]
    pub fn is_folded_right(&self) -> bool {
        self.tables.iter().all(TableCheck::is_right) && self.snapshots.is_empty()
    }

    /// Whether the log itself is complete and readable.
    #[must_use]
    pub const fn is_log_whole(&self) -> bool {
        self.unreadable.is_empty() && self.gaps.is_empty()
    }
}

/// Rows by name.
type Rows = BTreeMap<String, Value>;

/// Reads the whole store and compares. Takes as long as reading the whole log, and as much memory as the tables.
///
/// # Errors
/// If the store does not answer. A wrong answer of the store is a finding, not an error.
pub async fn examine(store: &dyn Store) -> Result<Examination, StoreError> {
    let mut found = Examination::default();
    let folded = MemoryStore::new();
    let mut unreadable_conversations = BTreeSet::new();
    let mut last_seqs = BTreeMap::new();
    let conversations = store.conversations(Scope::Operator, FAR, ROWS_MAX).await?;
    for row in &conversations {
        let log = read_log(store, row, &mut found).await?;
        found.conversations += 1;
        found.events += log.events.len() as u64;
        last_seqs.insert(row.id, log.events.last().map_or(Seq(0), |event| event.seq));
        if log.is_whole {
            check_snapshot(store, row, &log.events, &mut found).await?;
            check_decisions(row, &log.events, &mut found);
            folded.import(row.id, &row.user, log.events);
        } else {
            unreadable_conversations.insert(row.id.to_string());
        }
    }
    let heads = conversations.into_iter().map(|row| (row.id.to_string(), head(&row, row.last_seq)));
    let wanted = folded.conversations(Scope::Operator, FAR, ROWS_MAX).await?;
    let wanted = wanted
        .iter()
        .map(|row| (row.id.to_string(), head(row, last_seqs.get(&row.id).copied().unwrap_or(row.last_seq))));
    let heads: Rows = heads.filter(|(id, _)| !unreadable_conversations.contains(id)).collect();
    found.tables.push(compare("conversations", heads, wanted.collect()));
    for table in TABLES {
        let wanted = read_table(&folded, table, &unreadable_conversations).await?;
        found.tables.push(match read_table(store, table, &unreadable_conversations).await {
            Ok(rows) => compare(table, rows, wanted),
            Err(error) if error.kind == StoreErrorKind::Corrupt => {
                TableCheck { table, broken: Some(error.to_string()), ..TableCheck::default() }
            }
            Err(error) => return Err(error),
        });
    }
    Ok(found)
}

/// Folds the log again, and replaces the snapshots that an examination found wrong. Events are never changed, and neither are
/// the rows of a conversation with an unreadable event.
///
/// # Errors
/// If the store does not answer.
pub async fn repair(store: &dyn Store, found: &Examination) -> Result<(), StoreError> {
    store.rebuild().await?;
    for wrong in &found.snapshots {
        // The store keeps it only if the epoch is unchanged. A new owner's snapshot is newer.
        if let Some(right) = &wrong.right {
            store.put_snapshot(wrong.conversation, wrong.epoch, right.clone()).await?;
        }
    }
    Ok(())
}

struct LogRead {
    events: Vec<Event>,
    is_whole: bool,
}

async fn read_log(store: &dyn Store, row: &ConversationRow, found: &mut Examination) -> Result<LogRead, StoreError> {
    let conversation = row.id;
    let mut log = LogRead { events: Vec::new(), is_whole: true };
    let mut after = Seq(0);
    let mut limit = PAGE;
    loop {
        match store.events(Scope::Operator, conversation, after, limit).await {
            Ok(page) if page.is_empty() => return Ok(log),
            Ok(page) => {
                for event in page {
                    if event.seq.0 != after.0 + 1 {
                        found.gaps.push(Gap { conversation, after, next: event.seq });
                    }
                    after = event.seq;
                    log.events.push(event);
                }
            }
            // From here on the events are read singly, until the unreadable one is found.
            Err(error) if error.kind == StoreErrorKind::Corrupt && limit > 1 => limit = 1,
            Err(error) if error.kind == StoreErrorKind::Corrupt => {
                after = Seq(after.0 + 1);
                log.is_whole = false;
                found.unreadable.push(Unreadable { conversation, seq: after, why: error.detail });
                if after > row.last_seq || found.unreadable.len() >= UNREADABLE_MAX {
                    return Ok(log);
                }
                limit = PAGE;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Compares a snapshot with the log up to its last event. A snapshot of another version is ignored.
async fn check_snapshot(
    store: &dyn Store,
    row: &ConversationRow,
    events: &[Event],
    found: &mut Examination,
) -> Result<(), StoreError> {
    let Some(kept) = store.snapshot(row.id).await?.filter(|kept| kept.v == STATE_VERSION) else { return Ok(()) };
    let mut state = Conversation::new(row.id, row.user.clone());
    for event in events.iter().filter(|event| event.seq <= kept.seq) {
        state.apply(event);
    }
    let wanted = serde_json::to_value(&state).unwrap_or_default();
    let why = match serde_json::from_str::<Conversation>(&kept.state).map(serde_json::to_value) {
        _ if state.seq != kept.seq => format!("the log has no sequence number {}", kept.seq),
        Ok(Ok(stored_state)) if stored_state == wanted => return Ok(()),
        Ok(_) => "it is not what the log folds to".to_owned(),
        Err(e) => format!("it cannot be read: {e}"),
    };
    let right = Snapshot { seq: state.seq, v: STATE_VERSION, state: wanted.to_string() };
    found.snapshots.push(WrongSnapshot {
        conversation: row.id,
        seq: kept.seq,
        why,
        epoch: row.epoch,
        right: Some(right),
    });
    Ok(())
}

/// Takes the decisions of the core again, and compares them with those of the log.
fn check_decisions(row: &ConversationRow, events: &[Event], found: &mut Examination) {
    let mut replay = Replay::new(row.id, row.user.clone());
    events.iter().for_each(|event| replay.see(event));
    found.diverged.extend(replay.finish().divergences.into_iter().map(|one| (row.id, one)));
}

/// The columns of a conversation's row that follow from the log. The owner does not follow from events.
fn head(row: &ConversationRow, last: Seq) -> Value {
    let ConversationRow { user, title, created_at, updated_at, .. } = row;
    serde_json::json!({"user": user, "title": title, "last": last, "created": created_at, "updated": updated_at})
}

/// The other tables that are folded from the log.
const TABLES: [&str; 5] = ["tasks", "intents", "dead_letters", "operations", "outbox"];

async fn read_table(
    store: &dyn Store,
    table: &str,
    unreadable_conversations: &BTreeSet<String>,
) -> Result<Rows, StoreError> {
    let all = Scope::Operator;
    let rows = match table {
        "tasks" => named(store.tasks(all, false, FAR, ROWS_MAX).await?, |row| row.id.to_string()),
        "intents" => intents(store).await?,
        "dead_letters" => named(
            store
                .dead_letters(
                    all,
                    DeadLetterFilter { with_deleted: true, ..DeadLetterFilter::default() },
                    FAR,
                    ROWS_MAX,
                )
                .await?,
            |row| row.task.to_string(),
        ),
        "operations" => named(store.operations(all, false, FAR, ROWS_MAX).await?, |row| row.id.to_string()),
        _ => named(store.outbox(ROWS_MAX).await?, |row| row.id.to_string()),
    };
    let is_compared =
        |row: &Value| row["conversation"].as_str().is_none_or(|id| !unreadable_conversations.contains(id));
    Ok(rows.into_iter().filter(|(_, row)| is_compared(row)).collect())
}

/// Intents are read by task.
async fn intents(store: &dyn Store) -> Result<Rows, StoreError> {
    let mut rows = Rows::new();
    for task in store.tasks(Scope::Operator, false, FAR, ROWS_MAX).await? {
        let id: TaskId = task.id;
        for (name, mut row) in named(store.intents(id).await?, |row| row.id.to_string()) {
            row["conversation"] = Value::from(task.conversation.to_string());
            rows.insert(name, row);
        }
    }
    Ok(rows)
}

fn named<T: Serialize>(rows: Vec<T>, name: impl Fn(&T) -> String) -> Rows {
    rows.iter().map(|row| (name(row), serde_json::to_value(row).unwrap_or_default())).collect()
}

fn compare(table: &'static str, kept: Rows, wanted: Rows) -> TableCheck {
    let mut check = TableCheck { table, ..TableCheck::default() };
    for (name, row) in &kept {
        match wanted.get(name) {
            Some(right) if right == row => check.right += 1,
            Some(_) => check.different.push(name.clone()),
            None => check.orphans.push(name.clone()),
        }
    }
    // A message that is missing here may have been delivered: it cannot be distinguished from a lost one.
    if table != "outbox" {
        check.missing.extend(wanted.keys().filter(|name| !kept.contains_key(*name)).cloned());
    }
    check
}
