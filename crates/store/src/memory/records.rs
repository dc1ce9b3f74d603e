//! Lists and look-ups.

use std::{cmp::Reverse, collections::BTreeMap};

use annie_core::{
    event::Scope,
    ids::{ConversationId, TaskId, UserId},
    ports::{Before, ConversationRow, Fut, IntentRow, IntentState, MessageRow, Records, StoreError, TaskRow},
    spend::{UsageBy, UsageQuery, UsageRow, UsageTotals},
};

use super::MemoryStore;

impl Records for MemoryStore {
    fn conversation(&self, scope: Scope, id: ConversationId) -> Fut<'_, Result<Option<ConversationRow>, StoreError>> {
        Box::pin(self.read("conversation", move |data| {
            data.conversations.get(&id).filter(|c| scope.sees(&c.user)).map(|c| c.row(id))
        }))
    }

    fn conversations(
        &self,
        scope: Scope,
        before: Before,
        limit: u32,
    ) -> Fut<'_, Result<Vec<ConversationRow>, StoreError>> {
        Box::pin(self.read("conversations", move |data| {
            let seen = data
                .conversations
                .iter()
                .filter(|(_, c)| c.deletion.is_none() || matches!(scope, Scope::Operator))
                .filter(|(id, c)| scope.sees(&c.user) && before.takes(c.updated_at, id.uuid()));
            let mut rows: Vec<_> = seen.map(|(id, c)| c.row(*id)).collect();
            rows.sort_by_key(|row| Reverse((row.updated_at, row.id)));
            rows.truncate(limit as usize);
            rows
        }))
    }

    fn listed_conversations(
        &self,
        scope: Scope,
        before: Before,
        limit: u32,
    ) -> Fut<'_, Result<Vec<ConversationRow>, StoreError>> {
        Box::pin(self.read("conversations", move |data| {
            let seen = data
                .conversations
                .iter()
                .filter(|(id, c)| scope.sees(&c.user) && before.takes(c.updated_at, id.uuid()))
                .filter(|(_, c)| c.deletion.is_none());
            let mut rows: Vec<_> = seen.filter(|(_, c)| c.stateless != Some(true)).map(|(id, c)| c.row(*id)).collect();
            rows.sort_by_key(|row| Reverse((row.updated_at, row.id)));
            rows.truncate(limit as usize);
            rows
        }))
    }

    fn task(&self, scope: Scope, id: TaskId) -> Fut<'_, Result<Option<TaskRow>, StoreError>> {
        Box::pin(self.read("task", move |data| data.tasks.get(&id).filter(|t| scope.sees(&t.user)).cloned()))
    }

    fn tasks(&self, scope: Scope, open: bool, before: Before, limit: u32) -> Fut<'_, Result<Vec<TaskRow>, StoreError>> {
        Box::pin(self.read("tasks", move |data| {
            let mut rows: Vec<_> = data
                .tasks
                .values()
                .filter(|t| {
                    scope.sees(&t.user) && before.takes(t.received_at, t.id.uuid()) && !(open && t.state.is_ended())
                })
                .cloned()
                .collect();
            rows.sort_by_key(|row| Reverse((row.received_at, row.id)));
            rows.truncate(limit as usize);
            rows
        }))
    }

    fn message(&self, user: UserId, client_id: String) -> Fut<'_, Result<Option<MessageRow>, StoreError>> {
        Box::pin(self.read("message", move |data| {
            let found = data.messages.get(&(user, client_id))?;
            Some(MessageRow {
                task: found.task,
                conversation: found.conversation,
                seq: found.seq,
                text_sha256: found.text_sha256,
            })
        }))
    }

    fn intents(&self, task: TaskId) -> Fut<'_, Result<Vec<IntentRow>, StoreError>> {
        Box::pin(self.read("intents", move |data| {
            let mut found: Vec<_> = data.intents.values().filter(|i| i.row.task == task).collect();
            found.sort_by_key(|intent| intent.position);
            let is_over = data.tasks.get(&task).is_some_and(|task| task.ended_at.is_some());
            let shown = |row: &IntentRow| match row.state {
                IntentState::Started if is_over => IntentRow { state: IntentState::Unknown, ..row.clone() },
                _ => row.clone(),
            };
            found.into_iter().map(|intent| shown(&intent.row)).collect()
        }))
    }

    fn usage(&self, query: UsageQuery) -> Fut<'_, Result<Vec<UsageRow>, StoreError>> {
        Box::pin(self.read("usage", move |data| {
            let mut sums: BTreeMap<String, UsageTotals> = BTreeMap::new();
            let conversation = query.conversation.filter(|_| query.user.is_some());
            let by = if conversation.is_some() { UsageBy::All } else { query.by };
            for ((of, day, backend, skills), (user, totals)) in &data.usage {
                let is_wanted = query.user.as_ref().is_none_or(|wanted| wanted == user)
                    && conversation.is_none_or(|wanted| wanted == *of)
                    && (query.from..=query.to).contains(day);
                if !is_wanted {
                    continue;
                }
                let key = match by {
                    UsageBy::All => String::new(),
                    UsageBy::Day => day.to_string(),
                    UsageBy::User => user.as_str().to_owned(),
                    UsageBy::Conversation => of.to_string(),
                    UsageBy::Skill => skills.clone(),
                    UsageBy::Backend => backend.clone(),
                };
                sums.entry(key).or_default().add(totals);
            }
            let mut rows: Vec<_> = sums.into_iter().map(|(key, totals)| UsageRow { key, totals }).collect();
            match by {
                UsageBy::Day => rows.reverse(),
                // The sort is stable: equal costs stay in the order of their keys.
                _ => rows.sort_by_key(|row| Reverse((row.totals.nanodollars, row.totals.spent().tokens))),
            }
            rows.truncate(query.limit as usize);
            rows
        }))
    }

    fn rebuild(&self) -> Fut<'_, Result<u64, StoreError>> {
        Box::pin(self.write("rebuild", super::data::Data::rebuild))
    }
}
