//! The task table, read again: at the start of every life, because the log is the authority; when the books have grown or
//! somebody is refused, because a message may be lost; and when other processes have stored something. Read by a tracked task;
//! nothing polls.

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
    admit::Stood,
    desk::{Desk, Entry, id},
    leases::Downtime,
};

/// Rows of one page.
const PAGE_ROWS: u32 = 500;
/// A task that is younger may not be stored yet, in milliseconds.
const YOUNG_MS: i64 = 60_000;
/// Books of this size are never looked through because they grew.
const SMALL_MAX: usize = 1_000;
/// The shortest time between two looks because somebody was refused, in milliseconds.
const LOOKS_MS_MIN: u64 = 60_000;
/// How long what other processes store is gathered until it is looked at, in milliseconds; and for each task in the books.
const GATHER_MS: u64 = 1_000;
const GATHER_MS_EACH: u64 = 1;

/// What a look at the task table found.
pub struct Found {
    /// All open tasks, newest first.
    rows: Vec<TaskRow>,
    /// Since when nothing ran before this process, if this is its first look.
    downtime: Option<Downtime>,
    began: Began,
}

/// What a look at the task table begins from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Began {
    pub at: Micros,
    /// How many tasks had been heard of: it may miss what those behind them wait for.
    pub heard: u64,
}

/// Reads all open tasks.
pub(super) async fn look(
    records: Arc<dyn Records>,
    booted_at: Option<Micros>,
    began: Began,
) -> Result<Found, StoreError> {
    let mut downtime = None;
    if let Some(booted_at) = booted_at {
        // The last trace of the process before is the last thing that it wrote.
        let newest = records.conversations(Scope::Operator, booted_at.into(), 1).await?;
        let ms = newest.first().map_or(0, |row| booted_at.since_ms(row.updated_at));
        downtime = Some(Downtime { booted_at, ms });
    }
    let rows = open_tasks(records.as_ref(), Scope::Operator).await?;
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
        let next = page.last().filter(|_| page.len() >= PAGE_ROWS as usize).map(TaskRow::place);
        rows.extend(page);
        match next {
            Some(next) => before = next,
            None => return Ok(rows),
        }
    }
}

/// When to look next.
#[derive(Debug, Default)]
pub(super) struct Looks {
    last_at: Option<Micros>,
    /// Entries after the last look.
    entries: usize,
    /// Something may have been stored after the one that is under way had read its place.
    is_owed: bool,
}

impl Looks {
    /// Whether the books have grown so much that some of it may be dead.
    pub fn are_due(&self, entries: usize) -> bool {
        entries > SMALL_MAX.max(self.entries.saturating_mul(2))
    }

    /// Whether a refusal is a reason to look: places may be taken by what is dead.
    pub fn help(&self, now: Micros) -> bool {
        self.last_at.is_none_or(|at| now.since_ms(at) >= LOOKS_MS_MIN || now < at)
    }

    /// How long to gather what other processes store: the more there is to read, the rarer it is read. In milliseconds.
    pub fn gather_ms(entries: usize) -> u64 {
        GATHER_MS.saturating_add(GATHER_MS_EACH.saturating_mul(entries as u64))
    }

    /// The table is to be read from now on, and not only as it was.
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

/// Whether it has no turn of its own; one that gets it after all asks for its rounds.
fn takes_no_place(row: &TaskRow, open: &HashSet<TaskId>) -> bool {
    let joins = row.is_steer || row.joins.is_some_and(|into| open.contains(&into));
    row.is_order || (joins && row.started_at.is_none())
}

impl Desk {
    /// Brings the books in line with the table.
    pub fn apply(&mut self, found: Found, now: Micros) {
        let Found { rows, downtime, began } = found;
        if let Some(downtime) = downtime {
            self.leases.note_downtime(downtime);
        }
        let open: HashSet<TaskId> = rows.iter().map(|row| row.id).collect();
        let running = self.leases.all_running();
        let is_over = |e: &Entry| match e.stored_at {
            Some(at) => at < began.at,
            None => began.at.since_ms(e.heard_at) > YOUNG_MS.unsigned_abs(),
        };
        let is_gone = |task: &TaskId, e: &Entry| {
            !open.contains(task)
                && !running.contains_key(task)
                && e.tickets.iter().all(|t| t.reply.is_closed())
                && is_over(e)
        };
        let gone: Vec<TaskId> = self.entries.iter().filter(|(t, e)| is_gone(t, e)).map(|(t, _)| *t).collect();
        let gone_aside =
            self.asides_before(began.at.plus_ms(-YOUNG_MS)).into_iter().filter(|task| !open.contains(task));
        for task in gone.into_iter().chain(gone_aside) {
            self.leave(task, false, now);
        }
        // What the table does not have has ended; and what it has comes in with this look, in whichever order: a task may be
        // older by its row than what it waits for, if another clock wrote that.
        let owners: HashMap<TaskId, &UserId> = rows.iter().map(|row| (row.id, &row.user)).collect();
        let was_unsure = self.is_unsure;
        // Oldest first: equals stand in the order of their coming.
        for row in rows.iter().rev() {
            if takes_no_place(row, &open) {
                self.set_aside(row.id, row.user.clone(), now);
                continue;
            }
            let is_open = |other: &&TaskId| owners.get(other).copied().or(self.owner_of(**other)) == Some(&row.user);
            let after = row.after.iter().filter(is_open).copied().collect();
            let stood = Stood { is_held: row.state == TaskState::Suspended, not_before: row.not_before, after };
            self.remember(self.waiting_of(row), stood, now);
        }
        self.is_unsure = was_unsure;
        self.stop_waiting_for_ended(&open, began, now);
        let entries = &self.entries;
        self.leases.keep_marks(|task| entries.contains_key(&task));
        self.is_loaded = true;
    }

    /// Nobody waits for a task whose end was not heard, nor for another user's. Whoever was heard of since the look began may
    /// wait for what the table did not have yet.
    fn stop_waiting_for_ended(&mut self, open: &HashSet<TaskId>, began: Began, now: Micros) {
        let mut misled = Vec::new();
        for (task, e) in self.entries.iter().filter(|(_, e)| e.number <= began.heard && !e.after.is_empty()) {
            let is_open = |other: &TaskId| open.contains(other) && self.owner_of(*other) == Some(&e.waiting.user);
            let ended: Vec<TaskId> = e.after.iter().filter(|other| !is_open(other)).copied().collect();
            if !ended.is_empty() {
                misled.push((*task, ended));
            }
        }
        for (task, ended) in misled {
            self.stop_waiting(task, &ended, now);
        }
    }

    /// The time in which nothing ran does not count as waiting: after a long outage all tasks would count as HIGH, and
    /// their classes would say nothing.
    fn waiting_of(&self, row: &TaskRow) -> Waiting {
        let downtime = self.leases.downtime().filter(|d| row.received_at < d.booted_at);
        let shift_ms = downtime.map_or(0, |d| i64::try_from(d.ms).unwrap_or(i64::MAX));
        let anchor = row.received_at.plus_ms(shift_ms);
        let mut waiting = Waiting::new(row.id, row.user.clone(), row.conversation, row.priority, id(0), anchor);
        // Not how many: the log knows, and nobody here needs it. But it has begun, and is nobody's equal any more.
        waiting.rounds_done = u32::from(row.started_at.is_some() && row.priority != Priority::Realtime);
        waiting
    }
}
