//! Final messages that await delivery, and the notifications that they became.

use std::collections::BTreeSet;

use annie_core::{
    ids::{OutboxId, TaskId, UserId},
    ports::{Fut, Notification, Outbox, OutboxRow, StoreError},
    time::Micros,
};

use super::{
    MemoryStore,
    data::{Data, OutboxMessage},
};

impl Data {
    fn word(&self, id: OutboxId, word: &OutboxMessage) -> Option<OutboxRow> {
        let task = self.tasks.get(&word.task).filter(|task| task.conversation == word.conversation)?;
        Some(OutboxRow {
            id,
            user: word.user.clone(),
            task: word.task,
            conversation: word.conversation,
            title: task.title.clone(),
            priority: task.priority,
            source: task.source.clone(),
            state: task.state,
            text: word.text.clone(),
            at: word.at,
        })
    }

    fn deliver(&mut self, ids: impl IntoIterator<Item = OutboxId>, at: Micros) {
        for id in ids {
            if let Some(word) = self.outbox.get_mut(&id) {
                word.delivered_at.get_or_insert(at);
            }
        }
    }

    fn store_notification(
        &mut self,
        user: UserId,
        text: String,
        words: Vec<(OutboxId, TaskId)>,
        at: Micros,
    ) -> Option<Notification> {
        let (ids, tasks): (BTreeSet<_>, Vec<_>) = words.into_iter().unzip();
        let waits = |id| self.outbox.get(id).is_some_and(|word| word.delivered_at.is_none() && word.user == user);
        if !ids.iter().all(waits) {
            return None;
        }
        self.deliver(ids, at);
        self.notified += 1;
        let notification = Notification { id: self.notified, user, text, tasks, at };
        self.notifications.insert(notification.id, notification.clone());
        Some(notification)
    }

    fn sweep(&mut self, before: Micros) -> u64 {
        let mut swept = 0;
        for word in self.outbox.values_mut() {
            if word.delivered_at.is_some_and(|at| at < before) && !word.text.is_empty() {
                word.text.clear();
                swept += 1;
            }
        }
        let notification = self.notifications.len();
        self.notifications.retain(|_, notification| notification.at >= before);
        swept + (notification - self.notifications.len()) as u64
    }
}

impl Outbox for MemoryStore {
    fn outbox(&self, limit: u32) -> Fut<'_, Result<Vec<OutboxRow>, StoreError>> {
        Box::pin(self.read("outbox", move |data| {
            let waiting = data.outbox.iter().filter(|(_, word)| word.delivered_at.is_none());
            let mut rows: Vec<_> = waiting.filter_map(|(id, word)| data.word(*id, word)).collect();
            rows.sort_by_key(|row| (row.at, row.id));
            rows.truncate(limit as usize);
            rows
        }))
    }

    fn delivered(&self, ids: Vec<OutboxId>, at: Micros) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(self.write("delivered", move |data| data.deliver(ids, at)))
    }

    fn notify(
        &self,
        user: UserId,
        text: String,
        words: Vec<(OutboxId, TaskId)>,
        at: Micros,
    ) -> Fut<'_, Result<Option<Notification>, StoreError>> {
        Box::pin(self.write("notify", move |data| data.store_notification(user, text, words, at)))
    }

    fn notifications(&self, user: UserId, after: u64, limit: u32) -> Fut<'_, Result<Vec<Notification>, StoreError>> {
        Box::pin(self.read("notifications", move |data| {
            let later =
                data.notifications.values().filter(|notification| notification.id > after && notification.user == user);
            later.take(limit as usize).cloned().collect()
        }))
    }

    fn last_notified(&self, user: UserId) -> Fut<'_, Result<Option<Micros>, StoreError>> {
        Box::pin(self.read("last_notified", move |data| {
            data.notifications
                .values()
                .rev()
                .find(|notification| notification.user == user)
                .map(|notification| notification.at)
        }))
    }

    fn sweep_outbox(&self, before: Micros) -> Fut<'_, Result<u64, StoreError>> {
        Box::pin(self.write("sweep_outbox", move |data| data.sweep(before)))
    }
}
