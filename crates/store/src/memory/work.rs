//! Dead letters and long-running operations.

use std::cmp::Reverse;

use annie_core::{
    dead_letter::DeadLetterState,
    event::Scope,
    ids::{ConversationId, OperationId, TaskId, UserId},
    ports::{
        Before, DeadLetterFilter, DeadLetterRow, DeadLetters, DeadLettersWaiting, Fut, OperationRow, Operations,
        StoreError,
    },
    projection::Change,
    time::Micros,
};

use super::{MemoryStore, data::Data};

impl Data {
    /// Changes that an event makes to dead letters and operations.
    pub fn project_work(&mut self, id: ConversationId, user: &UserId, change: &Change) {
        match change {
            Change::DeadLetterPut { .. } => self.put_dead_letter(id, user, change),
            Change::DeadLetterDue { task, at } => {
                if let Some(kept) = self.dead_letters.get_mut(task).filter(|kept| kept.conversation == id) {
                    kept.dead_letter.retry_at = Some(*at);
                }
            }
            Change::DeadLetterMoved { task, state, retry, at } => {
                let kept = self.dead_letters.get_mut(task).filter(|kept| kept.conversation == id);
                if let Some(kept) = kept.filter(|kept| kept.state == DeadLetterState::Waiting) {
                    (kept.state, kept.retried_by, kept.changed_at) = (*state, *retry, *at);
                }
            }
            Change::OperationOpened { operation, task, intent, skill, at } => {
                self.operations.entry(operation.id).or_insert_with(|| OperationRow {
                    id: operation.id,
                    user: user.clone(),
                    conversation: id,
                    task: *task,
                    intent: *intent,
                    skill: skill.clone(),
                    opened_at: *at,
                    expires_at: operation.expires_at,
                    closed_by: None,
                    closed_at: None,
                });
            }
            Change::OperationClosed { operation, by, at } => {
                let kept = self.operations.get_mut(operation).filter(|kept| kept.conversation == id);
                if let Some(kept) = kept.filter(|kept| kept.closed_by.is_none()) {
                    (kept.closed_by, kept.closed_at) = (Some(*by), Some(*at));
                }
            }
            _ => {}
        }
    }

    fn put_dead_letter(&mut self, id: ConversationId, user: &UserId, change: &Change) {
        let Change::DeadLetterPut { task, dead_letter, code, text, detail, at } = change else { return };
        let Some(row) = self.tasks.get(task) else { return };
        self.dead_letters.entry(*task).or_insert_with(|| DeadLetterRow {
            task: *task,
            user: user.clone(),
            conversation: id,
            title: row.title.clone(),
            priority: row.priority,
            code: code.clone(),
            text: text.clone(),
            detail: detail.clone(),
            dead_letter: dead_letter.clone(),
            state: DeadLetterState::Waiting,
            retried_by: None,
            failed_at: *at,
            changed_at: *at,
        });
    }

    fn waiting(&self) -> impl Iterator<Item = &DeadLetterRow> {
        self.listed(false).filter(|row| row.state == DeadLetterState::Waiting)
    }

    fn listed(&self, with_deleted: bool) -> impl Iterator<Item = &DeadLetterRow> {
        self.dead_letters.values().filter(move |row| with_deleted || !self.is_deleted(row.conversation))
    }
}

impl DeadLetters for MemoryStore {
    fn dead_letter(&self, scope: Scope, task: TaskId) -> Fut<'_, Result<Option<DeadLetterRow>, StoreError>> {
        Box::pin(
            self.read("dead_letter", move |data| {
                data.dead_letters.get(&task).filter(|row| scope.sees(&row.user)).cloned()
            }),
        )
    }

    fn dead_letters(
        &self,
        scope: Scope,
        filter: DeadLetterFilter,
        before: Before,
        limit: u32,
    ) -> Fut<'_, Result<Vec<DeadLetterRow>, StoreError>> {
        Box::pin(self.read("dead_letters", move |data| {
            let takes = |row: &&DeadLetterRow| before.takes(row.failed_at, row.task.uuid());
            let seen = data.listed(filter.with_deleted).filter(|row| scope.sees(&row.user)).filter(takes);
            let mut rows: Vec<_> = seen.filter(|row| filter.takes(row)).cloned().collect();
            rows.sort_by_key(|row| Reverse((row.failed_at, row.task)));
            rows.truncate(limit as usize);
            rows
        }))
    }

    fn count_dead_letters(&self, scope: Scope, filter: DeadLetterFilter) -> Fut<'_, Result<u64, StoreError>> {
        Box::pin(self.read("count_dead_letters", move |data| {
            data.listed(filter.with_deleted).filter(|row| scope.sees(&row.user) && filter.takes(row)).count() as u64
        }))
    }

    fn due_dead_letters(
        &self,
        now: Micros,
        archive_before: Micros,
        limit: u32,
    ) -> Fut<'_, Result<Vec<DeadLetterRow>, StoreError>> {
        Box::pin(self.read("due_dead_letters", move |data| {
            let mut rows: Vec<_> = data
                .waiting()
                .filter(|row| {
                    row.dead_letter.retry_at.is_some_and(|at| at <= now) || row.dead_letter.since < archive_before
                })
                .cloned()
                .collect();
            rows.sort_by_key(|row| (row.dead_letter.since, row.task));
            rows.truncate(limit as usize);
            rows
        }))
    }

    fn dead_letters_waiting(&self) -> Fut<'_, Result<DeadLettersWaiting, StoreError>> {
        Box::pin(self.read("dead_letters_waiting", |data| DeadLettersWaiting {
            count: data.waiting().count() as u64,
            next_retry_at: data.waiting().filter_map(|row| row.dead_letter.retry_at).min(),
            oldest_since: data.waiting().map(|row| row.dead_letter.since).min(),
        }))
    }
}

impl Operations for MemoryStore {
    fn operation(&self, scope: Scope, id: OperationId) -> Fut<'_, Result<Option<OperationRow>, StoreError>> {
        Box::pin(
            self.read("operation", move |data| data.operations.get(&id).filter(|row| scope.sees(&row.user)).cloned()),
        )
    }

    fn operations(
        &self,
        scope: Scope,
        open: bool,
        before: Before,
        limit: u32,
    ) -> Fut<'_, Result<Vec<OperationRow>, StoreError>> {
        Box::pin(self.read("operations", move |data| {
            let seen = data
                .operations
                .values()
                .filter(|row| scope.sees(&row.user) && before.takes(row.opened_at, row.id.uuid()));
            let mut rows: Vec<_> = seen.filter(|row| !(open && row.closed_by.is_some())).cloned().collect();
            rows.sort_by_key(|row| Reverse((row.opened_at, row.id)));
            rows.truncate(limit as usize);
            rows
        }))
    }

    fn expiring_operations(&self, until: Micros, limit: u32) -> Fut<'_, Result<Vec<OperationRow>, StoreError>> {
        Box::pin(self.read("expiring_operations", move |data| {
            let awaited = data.operations.values().filter(|row| row.closed_by.is_none() && row.expires_at <= until);
            let mut rows: Vec<_> = awaited.filter(|row| !data.is_deleted(row.conversation)).cloned().collect();
            rows.sort_by_key(|row| (row.expires_at, row.id));
            rows.truncate(limit as usize);
            rows
        }))
    }

    fn known_secret(&self, name: &'static str) -> Fut<'_, Result<Option<[u8; 32]>, StoreError>> {
        Box::pin(self.read("known_secret", move |data| data.secrets.get(name).copied()))
    }

    fn secret(&self, name: &'static str, fresh: [u8; 32]) -> Fut<'_, Result<[u8; 32], StoreError>> {
        Box::pin(self.write("secret", move |data| *data.secrets.entry(name).or_insert(fresh)))
    }
}
