//! Compares what a store keeps beside its log with what its log says. Reads only, through the ports, so it is the same for every
//! store: the log is folded into memory, and every row is held against it.

use std::collections::{BTreeMap, BTreeSet};

use annie_core::{
    event::{Event, Scope},
    ids::{ConversationId, Epoch, Seq, TaskId},
    ports::{Before, ConversationRow, LetterFilter, Records, Snapshot, Store, StoreError, StoreErrorKind},
    turn::{Conversation, STATE_VERSION},
};
use serde::Serialize;
use serde_json::Value;

use crate::MemoryStore;

/// Events that are read at once.
const PAGE: u32 = 500;
/// Rows of a table that are read at once: all of them.
const ROWS_MAX: u32 = i32::MAX as u32;
/// Events that cannot be read and are named; beyond that it is the database that cannot be read.
const UNREADABLE_MAX: usize = 1_000;
/// Later than everything.
const FAR: Before = Before::NEWEST;

/// What an examination found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Examination {
    /// Conversations that were read.
    pub conversations: u64,
    /// Events that were read.
    pub events: u64,
    /// Events that cannot be read. The rows of their conversations are not compared.
    pub unreadable: Vec<Unreadable>,
    /// Places that are missing in a log.
    pub gaps: Vec<Gap>,
    /// The tables that are folded from the log, one by one.
    pub tables: Vec<TableCheck>,
    /// Snapshots that are not what the log folds to.
    pub snapshots: Vec<WrongSnapshot>,
}

/// An event that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// In which conversation.
    pub conversation: ConversationId,
    /// At which place.
    pub seq: Seq,
    /// Why not.
    pub why: String,
}

/// Places that are missing in a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// In which conversation.
    pub conversation: ConversationId,
    /// The last place before.
    pub after: Seq,
    /// The next place that there is.
    pub next: Seq,
}

/// A table against the log. Rows are named by their ids.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TableCheck {
    /// Its name.
    pub table: &'static str,
    /// Rows that are as the log says.
    pub right: u64,
    /// Rows that the log says and the table does not have.
    pub missing: Vec<String>,
    /// Rows that the table has and no event accounts for.
    pub orphans: Vec<String>,
    /// Rows that say something else than the log.
    pub different: Vec<String>,
    /// Why the table cannot be read at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

impl TableCheck {
    /// Whether it is as the log says.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.missing.is_empty() && self.orphans.is_empty() && self.different.is_empty() && self.broken.is_none()
    }
}

/// A snapshot that is not what the log folds to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WrongSnapshot {
    /// Of which conversation.
    pub conversation: ConversationId,
    /// At which place.
    pub seq: Seq,
    /// What is wrong with it.
    pub why: String,
    /// Under which ownership it can be replaced.
    #[serde(skip)]
    epoch: Epoch,
    /// What it should be.
    #[serde(skip)]
    right: Option<Snapshot>,
}

impl Examination {
    /// Whether everything that is folded is as the log says. A log that is damaged itself is told apart.
    #[must_use]
    pub fn is_folded_right(&self) -> bool {
        self.tables.iter().all(TableCheck::is_right) && self.snapshots.is_empty()
    }

    /// Whether the log itself is whole.
    #[must_use]
    pub const fn is_log_whole(&self) -> bool {
        self.unreadable.is_empty() && self.gaps.is_empty()
    }
}

/// Rows by their names.
type Rows = BTreeMap<String, Value>;

/// Reads everything and compares. Takes as long as reading the whole log, and as much memory as the tables.
///
/// # Errors
/// If the store does not answer. What it answers wrongly is a finding.
pub async fn examine(store: &dyn Store) -> Result<Examination, StoreError> {
    let mut found = Examination::default();
    let folded = MemoryStore::new();
    let mut set_aside = BTreeSet::new();
    let mut last_places = BTreeMap::new();
    let conversations = store.conversations(Scope::Operator, FAR, ROWS_MAX).await?;
    for row in &conversations {
        let log = read_log(store, row, &mut found).await?;
        found.conversations += 1;
        found.events += log.events.len() as u64;
        last_places.insert(row.id, log.events.last().map_or(Seq(0), |event| event.seq));
        if log.is_whole {
            check_snapshot(store, row, &log.events, &mut found).await?;
            folded.take_in(row.id, &row.user, log.events);
        } else {
            set_aside.insert(row.id.to_string());
        }
    }
    let heads = conversations.into_iter().map(|row| (row.id.to_string(), head(&row, row.last_seq)));
    let wanted = folded.conversations(Scope::Operator, FAR, ROWS_MAX).await?;
    let wanted = wanted
        .iter()
        .map(|row| (row.id.to_string(), head(row, last_places.get(&row.id).copied().unwrap_or(row.last_seq))));
    let heads: Rows = heads.filter(|(id, _)| !set_aside.contains(id)).collect();
    found.tables.push(compare("conversations", heads, wanted.collect()));
    for table in TABLES {
        let wanted = read_table(&folded, table, &set_aside).await?;
        found.tables.push(match read_table(store, table, &set_aside).await {
            Ok(rows) => compare(table, rows, wanted),
            Err(error) if error.kind == StoreErrorKind::Corrupt => {
                TableCheck { table, broken: Some(error.to_string()), ..TableCheck::default() }
            }
            Err(error) => return Err(error),
        });
    }
    Ok(found)
}

/// Folds the log again, and puts right the snapshots that an examination found wrong. Events are never touched, and neither is
/// what belongs to a conversation with an event that cannot be read.
///
/// # Errors
/// If the store does not answer.
pub async fn repair(store: &dyn Store, found: &Examination) -> Result<(), StoreError> {
    store.rebuild().await?;
    for wrong in &found.snapshots {
        // Kept only if nobody else owns the conversation meanwhile, whose snapshot is then newer.
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
            // One by one from here on, until the one is found that cannot be read.
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

/// A snapshot against the log up to its place. One of another version is no snapshot to this Annie.
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
        _ if state.seq != kept.seq => format!("the log has no place {}", kept.seq),
        Ok(Ok(said)) if said == wanted => return Ok(()),
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

/// What the log says of a conversation's row. Who owns it is no event's business.
fn head(row: &ConversationRow, last: Seq) -> Value {
    let ConversationRow { user, title, created_at, updated_at, .. } = row;
    serde_json::json!({"user": user, "title": title, "last": last, "created": created_at, "updated": updated_at})
}

/// The other tables that are folded.
const TABLES: [&str; 5] = ["tasks", "intents", "letters", "operations", "outbox"];

async fn read_table(store: &dyn Store, table: &str, set_aside: &BTreeSet<String>) -> Result<Rows, StoreError> {
    let all = Scope::Operator;
    let rows = match table {
        "tasks" => named(store.tasks(all, false, FAR, ROWS_MAX).await?, |row| row.id.to_string()),
        "intents" => intents(store).await?,
        "letters" => {
            named(store.letters(all, LetterFilter::default(), FAR, ROWS_MAX).await?, |row| row.task.to_string())
        }
        "operations" => named(store.operations(all, false, FAR, ROWS_MAX).await?, |row| row.id.to_string()),
        _ => named(store.outbox(ROWS_MAX).await?, |row| row.id.to_string()),
    };
    let is_compared = |row: &Value| row["conversation"].as_str().is_none_or(|id| !set_aside.contains(id));
    Ok(rows.into_iter().filter(|(_, row)| is_compared(row)).collect())
}

/// Intents are found by their tasks.
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
    // A word that is not there may have been delivered: nobody can tell it from one that was lost.
    if table != "outbox" {
        check.missing.extend(wanted.keys().filter(|name| !kept.contains_key(*name)).cloned());
    }
    check
}
