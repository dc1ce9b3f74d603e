//! Reading of the task table: at the start of every incarnation, because the log is the authority; when the entries have grown
//! in number or a task is refused, because a message may have been lost; and when other processes have stored tasks. A tracked
//! task reads it; it is not polled.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use annie_core::{
    event::{Priority, Scope},
    ids::{TaskId, UserId},
    ports::{Before, Records, StoreError, TaskRow, TaskState},
    queue::Waiting,
    time::Micros,
};

use super::{
    admit::StoredState,
    leases::Downtime,
    messages::{Began, Found},
    task_table::{Entry, TaskTable, id},
};

/// Rows of one page.
const PAGE_ROWS: u32 = 500;
/// A task that is younger may not be stored yet, in milliseconds.
const YOUNG_MS: i64 = 60_000;
/// Up to this number of entries, growth never causes a reading.
const SMALL_MAX: usize = 1_000;
/// The shortest time between two readings that refusals cause, in milliseconds.
const READS_MS_MIN: u64 = 60_000;
/// How long hints about tasks of other processes are gathered until the table is read, in milliseconds; and the addition for
/// each known task.
const GATHER_MS: u64 = 1_000;
const GATHER_MS_EACH: u64 = 1;

/// Reads all open tasks.
pub(super) async fn read_open_tasks(
    records: Arc<dyn Records>,
    is_shared: bool,
    booted_at: Option<Micros>,
    began: Began,
) -> Result<Found, StoreError> {
    let mut downtime = None;
    if let Some(booted_at) = booted_at {
        // The last write of the previous process marks its end.
        let newest = records.conversations(Scope::Operator, booted_at.into(), 1).await?;
        let ms = newest.first().map_or(0, |row| booted_at.since_ms(row.updated_at));
        downtime = Some(Downtime { booted_at, ms });
    }
    let mut rows = open_tasks(records.as_ref(), Scope::Operator).await?;
    if is_shared {
        // A row does not name the node whose Engine waits, and this node cannot resume the tasks of others.
        rows.iter_mut().for_each(|row| row.has_model_failed = false);
    }
    Ok(Found { rows, downtime, began })
}

/// All open tasks that a scope sees, newest first.
///
/// # Errors
/// If the store fails.
pub(crate) async fn open_tasks(records: &(impl Records + ?Sized), scope: Scope) -> Result<Vec<TaskRow>, StoreError> {
    let mut rows: Vec<TaskRow> = Vec::new();
    let mut before = Before::NEWEST;
    loop {
        let page = records.tasks(scope.clone(), true, before, PAGE_ROWS).await?;
        let next = page.last().filter(|_| page.len() >= PAGE_ROWS as usize).map(TaskRow::page_start);
        rows.extend(page);
        match next {
            Some(next) => before = next,
            None => return Ok(rows),
        }
    }
}

/// When the task table is read next.
#[derive(Debug, Default)]
pub(super) struct TableReads {
    last_at: Option<Micros>,
    /// Number of entries after the last reading.
    entries: usize,
    /// A task may have been stored after the reading under way had passed its row.
    is_owed: bool,
}

impl TableReads {
    /// Whether the number of entries has grown so much that some of them may be obsolete.
    pub fn are_due(&self, entries: usize) -> bool {
        entries > SMALL_MAX.max(self.entries.saturating_mul(2))
    }

    /// Whether a refusal is a reason to read the table: obsolete entries may take queue positions.
    pub fn help(&self, now: Micros) -> bool {
        self.last_at.is_none_or(|at| now.since_ms(at) >= READS_MS_MIN || now < at)
    }

    /// How long to gather hints about tasks of other processes, in milliseconds: the more there is to read, the less often it
    /// is read.
    pub fn gather_ms(entries: usize) -> u64 {
        GATHER_MS.saturating_add(GATHER_MS_EACH.saturating_mul(entries as u64))
    }

    /// Requires another reading that begins from now on.
    pub fn owe(&mut self) {
        self.is_owed = true;
    }

    pub fn is_owed(&self) -> bool {
        self.is_owed
    }

    pub fn begin(&mut self, entries: usize, now: Micros) {
        *self = Self { last_at: Some(now), entries, is_owed: false };
    }

    pub fn end(&mut self, entries: usize, now: Micros) {
        (self.last_at, self.entries) = (Some(now), entries);
    }
}

/// Whether the task has no turn of its own. If it gets one after all, it asks for its rounds.
fn is_unqueued(row: &TaskRow, open: &HashSet<TaskId>) -> bool {
    let joins = row.is_steer || row.joins.is_some_and(|into| open.contains(&into));
    row.is_job_command || (joins && row.started_at.is_none())
}

impl TaskTable {
    /// Reconciles the entries with the task table.
    pub fn apply(&mut self, found: Found, now: Micros) {
        let Found { rows, downtime, began } = found;
        if let Some(downtime) = downtime {
            self.leases.note_downtime(downtime);
        }
        let open: HashSet<TaskId> = rows.iter().map(|row| row.id).collect();
        let running = self.leases.all_running();
        let is_over = |e: &Entry| match e.stored_at {
            Some(at) => at < began.at,
            None => began.at.since_ms(e.first_seen_at) > YOUNG_MS.unsigned_abs(),
        };
        let is_gone = |task: &TaskId, e: &Entry| {
            !open.contains(task)
                && !running.contains_key(task)
                && e.tickets.iter().all(|t| t.reply.is_closed())
                && is_over(e)
        };
        let gone: Vec<TaskId> = self.entries.iter().filter(|(t, e)| is_gone(t, e)).map(|(t, _)| *t).collect();
        let gone_unqueued =
            self.unqueued_before(began.at.plus_ms(-YOUNG_MS)).into_iter().filter(|task| !open.contains(task));
        for task in gone.into_iter().chain(gone_unqueued) {
            self.leave(task, false, now);
        }
        // A task that the table lacks has ended. Tasks that the table has are entered here in any order: by its row a task may
        // be older than one that it waits for, if another node's clock wrote that row.
        let owners: HashMap<TaskId, &UserId> = rows.iter().map(|row| (row.id, &row.user)).collect();
        let was_unsure = self.is_unsure;
        // Oldest first: tasks of equal rank keep their order of arrival.
        for row in rows.iter().rev() {
            if is_unqueued(row, &open) {
                self.enter_unqueued(row.id, row.user.clone(), now);
                continue;
            }
            let is_open = |other: &&TaskId| owners.get(other).copied().or(self.owner_of(**other)) == Some(&row.user);
            let after = row.after.iter().filter(is_open).copied().collect();
            let stored = StoredState {
                is_held: row.state == TaskState::Suspended,
                not_before: row.not_before,
                has_model_failed: row.has_model_failed,
                after,
            };
            self.remember(self.waiting_of(row), stored, now);
        }
        self.is_unsure = was_unsure;
        self.stop_waiting_for_ended(&open, began, now);
        let entries = &self.entries;
        self.leases.keep_marks(|task| entries.contains_key(&task));
        self.is_loaded = true;
    }

    /// No task keeps waiting for a task whose end was missed, nor for a task of another user. A task that was entered after the
    /// reading began may wait for tasks that the table did not have yet.
    fn stop_waiting_for_ended(&mut self, open: &HashSet<TaskId>, began: Began, now: Micros) {
        let mut waiting_in_vain = Vec::new();
        for (task, e) in self.entries.iter().filter(|(_, e)| e.number <= began.seen && !e.after.is_empty()) {
            let is_open = |other: &TaskId| open.contains(other) && self.owner_of(*other) == Some(&e.waiting.user);
            let ended: Vec<TaskId> = e.after.iter().filter(|other| !is_open(other)).copied().collect();
            if !ended.is_empty() {
                waiting_in_vain.push((*task, ended));
            }
        }
        for (task, ended) in waiting_in_vain {
            self.stop_waiting(task, &ended, now);
        }
    }

    /// The time in which nothing ran does not count as waiting: after a long outage all tasks would count as HIGH, and their
    /// classes would mean nothing.
    fn waiting_of(&self, row: &TaskRow) -> Waiting {
        let downtime = self.leases.downtime().filter(|d| row.received_at < d.booted_at);
        let shift_ms = downtime.map_or(0, |d| i64::try_from(d.ms).unwrap_or(i64::MAX));
        let anchor = row.received_at.plus_ms(shift_ms);
        let mut waiting = Waiting::new(row.id, row.user.clone(), row.conversation, row.priority, id(0), anchor);
        // The number of rounds is in the log and is not needed here. But the task has begun, and equal work no longer joins it.
        waiting.rounds_done = u32::from(row.started_at.is_some() && row.priority != Priority::Realtime);
        waiting
    }
}
