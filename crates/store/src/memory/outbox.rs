//! Final messages that await delivery, and the notifications that they became.

use std::collections::{BTreeMap, BTreeSet};

use annie_core::{
    ids::{NodeId, OutboxId, TaskId, UserId},
    ports::{Address, DeliveryEnd, DeliveryRow, Diverted, Fut, Notification, Outbox, OutboxRow, StoreError},
    time::Micros,
};

use super::{
    MemoryStore,
    data::{Data, OutboxMessage},
};

impl OutboxMessage {
    /// Whether a channel has to deliver it.
    fn is_to_send(&self) -> bool {
        self.reply_to.is_some() && self.delivery.delivered_at.is_none() && self.delivery.diverted.is_none()
    }

    /// Whether its user is to be notified of it.
    fn is_to_notify(&self) -> bool {
        self.delivery.delivered_at.is_none() && !self.is_to_send()
    }
}

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
            reply_to: word.reply_to.clone(),
            diverted: word.delivery.diverted,
        })
    }

    /// The matching final messages, oldest first.
    fn words(&self, matches: impl Fn(&OutboxMessage) -> bool, limit: u32) -> Vec<OutboxRow> {
        let matching = self.outbox.iter().filter(|(_, word)| matches(word));
        let mut rows: Vec<_> = matching.filter_map(|(id, word)| self.word(*id, word)).collect();
        rows.sort_by_key(|row| (row.at, row.id));
        rows.truncate(limit as usize);
        rows
    }

    fn next_deliveries(&self, channel: &str, limit: u32) -> Vec<DeliveryRow> {
        let mut oldest: BTreeMap<&Address, (OutboxId, &OutboxMessage)> = BTreeMap::new();
        for (id, word) in self.outbox.iter().filter(|(_, word)| word.is_to_send()) {
            let Some(address) = word.reply_to.as_ref().filter(|address| address.channel == channel) else { continue };
            let first = oldest.entry(address).or_insert((*id, word));
            if (word.at, word.seq, *id) < (first.1.at, first.1.seq, first.0) {
                *first = (*id, word);
            }
        }
        let mut next: Vec<_> = oldest.into_values().collect();
        next.sort_by_key(|(id, word)| (word.delivery.retry_at.unwrap_or(Micros(0)), word.at, word.seq, *id));
        let row = |(id, word): (OutboxId, &OutboxMessage)| {
            let (attempts, begun, retry_at) = (word.delivery.attempts, word.delivery.begun, word.delivery.retry_at);
            Some(DeliveryRow { text: self.word(id, word)?, attempts, begun, retry_at })
        };
        next.into_iter().filter_map(row).take(limit as usize).collect()
    }

    fn begin_delivery(&mut self, id: OutboxId, attempts: u32, by: NodeId, at: Micros) -> bool {
        let Some(word) = self.outbox.get_mut(&id).filter(|word| word.is_to_send()) else { return false };
        let is_repeated = word.delivery.attempts == attempts + 1 && word.delivery.begun == Some((by, at));
        let begins = word.delivery.attempts == attempts || is_repeated;
        if begins {
            word.delivery.attempts = attempts + 1;
            word.delivery.begun = Some((by, at));
        }
        begins
    }

    fn end_delivery(&mut self, id: OutboxId, attempts: u32, end: DeliveryEnd) -> bool {
        let word = self.outbox.get_mut(&id).filter(|word| word.is_to_send() && word.delivery.attempts == attempts);
        let Some(word) = word else { return false };
        word.delivery.begun = None;
        word.delivery.retry_at = None;
        match end {
            DeliveryEnd::Delivered(at) => word.delivery.delivered_at = Some(at),
            DeliveryEnd::Retry(at) => word.delivery.retry_at = Some(at),
            DeliveryEnd::Diverted(why) => word.delivery.diverted = Some(why),
        }
        true
    }

    fn divert_channel(&mut self, channel: &str, before: Micros) -> u64 {
        let mut diverted = 0;
        for word in self.outbox.values_mut().filter(|word| word.is_to_send() && word.at < before) {
            if word.reply_to.as_ref().is_some_and(|address| address.channel == channel) {
                let begun = word.delivery.begun.take();
                word.delivery.diverted = Some(begun.map_or(Diverted::NoChannel, |_| Diverted::InDoubt));
                diverted += 1;
            }
        }
        diverted
    }

    fn deliver(&mut self, ids: impl IntoIterator<Item = OutboxId>, at: Micros) {
        for id in ids {
            if let Some(word) = self.outbox.get_mut(&id).filter(|word| word.is_to_notify()) {
                word.delivery.delivered_at = Some(at);
            }
        }
    }

    fn receive(&mut self, ids: impl IntoIterator<Item = OutboxId>, at: Micros) {
        for id in ids {
            if let Some(word) = self.outbox.get_mut(&id).filter(|word| word.reply_to.is_none()) {
                word.delivery.delivered_at.get_or_insert(at);
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
        let waits = |id| self.outbox.get(id).is_some_and(|word| word.is_to_notify() && word.user == user);
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
            if word.delivery.delivered_at.is_some_and(|at| at < before) && !word.text.is_empty() {
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
        Box::pin(self.read("outbox", move |data| data.words(|word| word.delivery.delivered_at.is_none(), limit)))
    }

    fn to_notify(&self, limit: u32) -> Fut<'_, Result<Vec<OutboxRow>, StoreError>> {
        Box::pin(self.read("to_notify", move |data| data.words(OutboxMessage::is_to_notify, limit)))
    }

    fn waiting_channels(&self) -> Fut<'_, Result<Vec<String>, StoreError>> {
        Box::pin(self.read("waiting_channels", |data| {
            let waiting = data.outbox.values().filter(|word| word.is_to_send());
            let channels: BTreeSet<&String> =
                waiting.filter_map(|word| word.reply_to.as_ref()).map(|address| &address.channel).collect();
            channels.into_iter().cloned().collect()
        }))
    }

    fn next_deliveries(&self, channel: String, limit: u32) -> Fut<'_, Result<Vec<DeliveryRow>, StoreError>> {
        Box::pin(self.read("next_deliveries", move |data| data.next_deliveries(&channel, limit)))
    }

    fn begin_delivery(&self, id: OutboxId, attempts: u32, by: NodeId, at: Micros) -> Fut<'_, Result<bool, StoreError>> {
        Box::pin(self.write("begin_delivery", move |data| data.begin_delivery(id, attempts, by, at)))
    }

    fn end_delivery(&self, id: OutboxId, attempts: u32, end: DeliveryEnd) -> Fut<'_, Result<bool, StoreError>> {
        Box::pin(self.write("end_delivery", move |data| data.end_delivery(id, attempts, end)))
    }

    fn divert_channel(&self, channel: String, before: Micros) -> Fut<'_, Result<u64, StoreError>> {
        Box::pin(self.write("divert_channel", move |data| data.divert_channel(&channel, before)))
    }

    fn delivered(&self, ids: Vec<OutboxId>, at: Micros) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(self.write("delivered", move |data| data.receive(ids, at)))
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
