//! Finds ended tasks whose notification was lost: the log writer or the subscriber's actor died between the commit and the
//! notification.

use std::collections::{HashSet, VecDeque};

use annie_core::{
    event::{Event, Scope},
    ids::{Seq, TaskId},
    ports::{Before, ConversationRow, Store, StoreError},
    time::Micros,
};
use parking_lot::Mutex;

use crate::queue::Ended;

/// How far back lost notifications are looked for, in milliseconds: a commit may reach the disk so long after it was given up
/// (`actors/src/log_writer/late.rs`).
const LOOK_BACK_MS: i64 = 120_000;
/// The number of rows or events that are read at a time.
const PAGE: u32 = 256;
/// The most conversations that are looked at.
const CONVERSATIONS_MAX: usize = 10_000;
/// The most tasks that are remembered: more than end in the time of a look back.
const TASKS_MAX: usize = 20_000;

/// The tasks whose traces were queued lately. A task is queued once.
#[derive(Default)]
pub struct Known(Mutex<(HashSet<TaskId>, VecDeque<TaskId>)>);

impl Known {
    /// Notes a task. Returns false if it was noted before.
    pub fn note(&self, task: TaskId) -> bool {
        let (known, order) = &mut *self.0.lock();
        if !known.insert(task) {
            return false;
        }
        order.push_back(task);
        if order.len() > TASKS_MAX
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
        true
    }
}

/// The tasks that ended since a time, or in the time of a look back if that is shorter.
pub async fn ended_since(store: &dyn Store, since: Micros, now: Micros) -> Result<Vec<Ended>, StoreError> {
    let floor = since.max(now.plus_ms(-LOOK_BACK_MS));
    let (mut before, mut found, mut seen) = (Before::NEWEST, Vec::new(), 0);
    loop {
        let page = store.conversations(Scope::Operator, before, PAGE).await?;
        for row in &page {
            if row.updated_at < floor || seen == CONVERSATIONS_MAX {
                return Ok(found);
            }
            seen += 1;
            found.extend(ended_in(store, row, floor).await?);
        }
        let Some(last) = page.last() else { return Ok(found) };
        before = last.page_start();
    }
}

/// The tasks of a conversation that ended since a time, the oldest first.
async fn ended_in(store: &dyn Store, row: &ConversationRow, floor: Micros) -> Result<Vec<Ended>, StoreError> {
    let (mut until, mut found) = (row.last_seq, Vec::new());
    while until > Seq(0) {
        let after = Seq(until.0.saturating_sub(u64::from(PAGE)));
        let page = store.events(Scope::Operator, row.id, after, PAGE).await?;
        let is_new = |event: &&Event| event.at >= floor && event.seq <= until && event.body.is_final();
        let ended = |event: &Event| Ended { task: event.task, conversation: event.conversation, seq: event.seq };
        found.splice(0..0, page.iter().filter(is_new).map(ended));
        if page.first().is_none_or(|first| first.at < floor) {
            break;
        }
        until = after;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn known_tasks_are_bounded_and_each_is_noted_once() {
        let known = Known::default();
        let task = |n: usize| TaskId::from_uuid(Uuid::from_u128(n as u128));
        assert!((0..=TASKS_MAX).all(|n| known.note(task(n))));
        assert!(!known.note(task(TASKS_MAX)) && !known.note(task(1)));
        assert!(known.note(task(0)), "the oldest one was forgotten");
    }
}
