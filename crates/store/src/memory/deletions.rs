//! Deletions of conversations, and the erasure of their content.

use std::cmp::Reverse;

use annie_core::{
    erasure::{ERASED, erased_body},
    event::{Event, EventBody, NewEvent, Scope},
    ids::{ConversationId, Seq, UserId},
    ports::{DeleteConversation, Deleting, Deletion, Deletions, ErasedPart, Fut, StoreError},
    projection::{self, Change},
    time::Micros,
};
use sha2::{Digest, Sha256};

use super::{
    MemoryStore,
    data::{Conversation, Data, KeptDeletion},
};
use crate::admission::Received;

impl Deletions for MemoryStore {
    fn delete_conversation(&self, request: DeleteConversation) -> Fut<'_, Result<Deleting, StoreError>> {
        Box::pin(self.write("delete_conversation", move |data| delete(data, request)))
    }

    fn restore_conversation(&self, conversation: ConversationId) -> Fut<'_, Result<bool, StoreError>> {
        Box::pin(self.write("restore_conversation", move |data| {
            let found = data.conversations.get_mut(&conversation);
            let restorable = found.filter(|c| c.deletion.as_ref().is_some_and(|kept| kept.deletion.is_restorable()));
            restorable.is_some_and(|c| {
                (c.deletion, c.epoch.0) = (None, c.epoch.0 + 1);
                true
            })
        }))
    }

    fn deletion(&self, conversation: ConversationId) -> Fut<'_, Result<Option<Deletion>, StoreError>> {
        Box::pin(self.read("deletion", move |data| deletion_of(data.conversations.get(&conversation)?)))
    }

    fn restorable(&self, scope: Scope, limit: u32) -> Fut<'_, Result<Vec<Deletion>, StoreError>> {
        Box::pin(self.read("restorable", move |data| {
            let mut found: Vec<Deletion> = data.conversations.values().filter_map(deletion_of).collect();
            found.retain(|deletion| deletion.is_restorable() && scope.sees(&deletion.user));
            found.sort_by_key(|deletion| (Reverse(deletion.at), deletion.conversation));
            found.truncate(limit as usize);
            found
        }))
    }

    fn due_erasures(&self, scope: Scope, now: Micros, limit: u32) -> Fut<'_, Result<Vec<Deletion>, StoreError>> {
        Box::pin(self.read("due_erasures", move |data| {
            let mut found: Vec<Deletion> = data.conversations.values().filter_map(deletion_of).collect();
            let is_due = |one: &Deletion| one.erased_at.is_none() && (!one.is_restorable() || one.erase_at <= now);
            found.retain(|one| is_due(one) && scope.sees(&one.user));
            found.sort_by_key(|deletion| (deletion.erase_at, deletion.conversation));
            found.truncate(limit as usize);
            found
        }))
    }

    fn erase_step(
        &self,
        conversation: ConversationId,
        record: NewEvent,
        events_max: u32,
    ) -> Fut<'_, Result<ErasedPart, StoreError>> {
        Box::pin(self.write("erase_step", move |data| erase(data, conversation, record, events_max)))
    }

    fn sweep_texts(&self, _before: Micros) -> Fut<'_, Result<u64, StoreError>> {
        // No text is stored apart.
        Box::pin(std::future::ready(Ok(0)))
    }

    fn sweep_snapshots(&self, before: Micros, limit: u32) -> Fut<'_, Result<u64, StoreError>> {
        Box::pin(self.write("sweep_snapshots", move |data| {
            let open: Vec<ConversationId> = data.open().into_iter().map(|(id, _)| id).collect();
            let old = data.conversations.iter_mut().filter(|(id, c)| c.updated_at < before && !open.contains(id));
            old.filter_map(|(_, c)| c.snapshot.take()).take(limit as usize).count() as u64
        }))
    }

    fn idle_conversations(
        &self,
        before: Micros,
        limit: u32,
    ) -> Fut<'_, Result<Vec<(ConversationId, UserId)>, StoreError>> {
        Box::pin(self.read("idle_conversations", move |data| {
            let open: Vec<ConversationId> = data.open().into_iter().map(|(id, _)| id).collect();
            let is_idle = |id: &ConversationId, c: &Conversation| {
                c.updated_at < before && c.deletion.is_none() && !open.contains(id)
            };
            let mut idle: Vec<_> = data.conversations.iter().filter(|(id, c)| is_idle(id, c)).collect();
            idle.sort_by_key(|(id, c)| (c.updated_at, **id));
            idle.into_iter().take(limit as usize).map(|(id, c)| (*id, c.user.clone())).collect()
        }))
    }

    fn compact(&self) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The body as SQL databases store it: an erased body that no version can read remains as it is.
pub(super) fn stored_body(conversation: &Conversation, event: &Event) -> String {
    let body = serde_json::to_string(&event.body).unwrap_or_default();
    if conversation.erased.contains_key(&event.seq) { erased_body(&body, event.task) } else { body }
}

fn deletion_of(conversation: &Conversation) -> Option<Deletion> {
    let mut deletion = conversation.deletion.as_ref()?.deletion.clone();
    if deletion.is_restorable() {
        deletion.title.clone_from(&conversation.title);
    }
    Some(deletion)
}

fn delete(data: &mut Data, request: DeleteConversation) -> Deleting {
    let DeleteConversation { conversation: id, by, reason, at, erase_at, unchanged_since } = request;
    let is_open = data.tasks.values().any(|task| task.conversation == id && !task.state.is_ended());
    let Some(c) = data.conversations.get_mut(&id) else { return Deleting::Unknown };
    if c.deletion.is_some() {
        return Deleting::Deleted;
    }
    if is_open || unchanged_since.is_some_and(|since| c.updated_at >= since) {
        return Deleting::Busy;
    }
    let (conversation, user, title) = (id, c.user.clone(), String::new());
    let deletion = Deletion { conversation, user, title, by, reason, at, erase_at, record: None, erased_at: None };
    c.deletion = Some(KeptDeletion { deletion, erased: Seq(0) });
    c.epoch.0 += 1;
    for word in data.outbox.values_mut().filter(|word| word.conversation == id && word.delivery.delivered_at.is_none())
    {
        word.delivery.delivered_at = Some(at);
        word.text.clear();
    }
    Deleting::Deleted
}

fn erase(data: &mut Data, id: ConversationId, record: NewEvent, events_max: u32) -> ErasedPart {
    let at = record.at;
    let done = ErasedPart { events: 0, is_done: true };
    let Some(c) = data.conversations.get_mut(&id) else { return done };
    let next = Seq(c.last().0 + 1);
    let Some(kept) = &mut c.deletion else { return done };
    if kept.deletion.record.is_none() {
        kept.deletion.record = Some(next);
        ERASED.clone_into(&mut c.title);
        c.snapshot = None;
        let user = c.user.clone();
        data.append(id, &user, record, &[]);
    }
    let Some(c) = data.conversations.get_mut(&id) else { return done };
    let Some(kept) = &mut c.deletion else { return done };
    let last = kept.deletion.record.map_or(0, |record| record.0.saturating_sub(1));
    let end = last.min(kept.erased.0 + u64::from(events_max));
    let mut changes = Vec::new();
    for event in &mut c.events {
        if event.seq > kept.erased && event.seq.0 <= end {
            let body = serde_json::to_string(&event.body).unwrap_or_default();
            c.erased.insert(event.seq, Sha256::digest(body.as_bytes()).into());
            if let Ok(body) = serde_json::from_str::<EventBody>(&erased_body(&body, event.task)) {
                event.body = body;
            }
            let event =
                NewEvent { at: event.at, task: event.task, agent: event.agent.clone(), body: event.body.clone() };
            changes.extend(projection::changes(&event));
        }
    }
    let events = end - kept.erased.0;
    kept.erased = Seq(end);
    let is_done = end == last;
    if is_done {
        kept.deletion.erased_at.get_or_insert(at);
    }
    changes.into_iter().for_each(|change| erase_row(data, id, change));
    ErasedPart { events, is_done }
}

/// What the tables have of an erased event.
fn erase_row(data: &mut Data, id: ConversationId, change: Change) {
    match change {
        Change::TaskOpened { task, client_id, text_sha256, title, .. } => {
            if let Some(row) = data.tasks.get_mut(&task) {
                row.title = title;
            }
            let key = data.messages.iter().find(|(_, received)| received.task == task).map(|(key, _)| key.clone());
            if let Some((key, received)) = key.and_then(|key| data.messages.remove_entry(&key)) {
                data.messages.insert((key.0, client_id), Received { text_sha256, ..received });
            }
            data.addresses.remove(&task);
            // A notification about several tasks stays, without its text, for the others.
            for notification in data.notifications.values_mut().filter(|found| found.tasks.contains(&task)) {
                ERASED.clone_into(&mut notification.text);
                notification.tasks.retain(|other| *other != task);
            }
            data.notifications.retain(|_, notification| !notification.tasks.is_empty());
        }
        Change::DeadLetterPut { task, dead_letter, text, detail, .. } => {
            if let Some(row) = data.dead_letters.get_mut(&task).filter(|row| row.conversation == id) {
                (row.text, row.detail, row.dead_letter.tried) = (text, detail, dead_letter.tried);
                ERASED.clone_into(&mut row.title);
            }
        }
        Change::OutboxPut { id, .. } => {
            if let Some(word) = data.outbox.get_mut(&id) {
                word.text.clear();
                word.reply_to = None;
            }
        }
        Change::TaskMoved { .. }
        | Change::IntentPlanned { .. }
        | Change::IntentStarted { .. }
        | Change::IntentClosed { .. }
        | Change::TaskReprioritised { .. }
        | Change::TaskHeld { .. }
        | Change::TaskDeferred { .. }
        | Change::DeadLetterDue { .. }
        | Change::DeadLetterMoved { .. }
        | Change::OperationOpened { .. }
        | Change::OperationClosed { .. }
        | Change::UsageAdded { .. }
        | Change::AddressPut { .. } => {}
    }
}
