//! The log.

use annie_core::{
    event::{Event, Scope},
    ids::{ConversationId, Epoch, NodeIncarnation, Seq, UserId},
    ports::{Append, AppendError, Appended, Claim, Fut, Log, Snapshot, StoreError, StoredEvent},
};

use super::{MemoryStore, StorePoint, data::Data};
use crate::admission::{Needs, Proposal};

impl Log for MemoryStore {
    fn commit(&self, batch: Vec<Append>) -> Fut<'_, Vec<Result<Appended, AppendError>>> {
        Box::pin(async move {
            let count = batch.len();
            let proposals = batch.clone();
            let committed = self.at(StorePoint::Commit(&batch), move |data| commit(data, proposals)).await;
            committed.unwrap_or_else(|error| vec![Err(AppendError::Store(error)); count])
        })
    }

    fn claim(&self, conversation: ConversationId, by: NodeIncarnation) -> Fut<'_, Result<Option<Claim>, StoreError>> {
        Box::pin(self.at(StorePoint::Claim(conversation), move |data| {
            data.conversations.get_mut(&conversation).filter(|c| c.deletion.is_none()).map(|c| {
                c.owner = Some(by);
                c.epoch.0 += 1;
                Claim { epoch: c.epoch, last: c.last() }
            })
        }))
    }

    fn events(
        &self,
        scope: Scope,
        conversation: ConversationId,
        after: Seq,
        limit: u32,
    ) -> Fut<'_, Result<Vec<Event>, StoreError>> {
        Box::pin(self.read("events", move |data| {
            let seen = data.conversations.get(&conversation).filter(|c| scope.sees(&c.user));
            let skip = usize::try_from(after.0).unwrap_or(usize::MAX);
            seen.map(|c| c.events.iter().skip(skip).take(limit as usize).cloned().collect()).unwrap_or_default()
        }))
    }

    fn stored_events(
        &self,
        conversation: ConversationId,
        after: Seq,
        limit: u32,
    ) -> Fut<'_, Result<Vec<StoredEvent>, StoreError>> {
        Box::pin(self.read("stored_events", move |data| {
            let skip = usize::try_from(after.0).unwrap_or(usize::MAX);
            let Some(c) = data.conversations.get(&conversation) else { return Vec::new() };
            let stored = |event: &Event| StoredEvent {
                seq: event.seq,
                at: event.at,
                task: event.task,
                agent: event.agent.to_string(),
                body: super::deletions::stored_body(c, event),
                erased: c.erased.get(&event.seq).copied(),
                text: None,
            };
            c.events.iter().skip(skip).take(limit as usize).map(stored).collect()
        }))
    }

    fn snapshot(&self, conversation: ConversationId) -> Fut<'_, Result<Option<Snapshot>, StoreError>> {
        Box::pin(
            self.read("snapshot", move |data| data.conversations.get(&conversation).and_then(|c| c.snapshot.clone())),
        )
    }

    fn put_snapshot(
        &self,
        conversation: ConversationId,
        epoch: Epoch,
        snapshot: Snapshot,
    ) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(self.write("put_snapshot", move |data| {
            let owned = data.conversations.get_mut(&conversation).filter(|c| c.epoch == epoch);
            if let Some(c) = owned.filter(|c| c.snapshot.as_ref().is_none_or(|old| old.seq <= snapshot.seq)) {
                c.snapshot = Some(snapshot);
            }
        }))
    }

    fn open_conversations(&self) -> Fut<'_, Result<Vec<(ConversationId, UserId)>, StoreError>> {
        Box::pin(self.read("open_conversations", |data| data.open()))
    }

    fn ping(&self) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(self.read("ping", |_| ()))
    }
}

fn commit(data: &mut Data, batch: Vec<Append>) -> Vec<Result<Appended, AppendError>> {
    let proposals: Vec<Proposal> = batch.into_iter().map(Proposal::new).collect();
    let mut admission = data.admission(&Needs::of(&proposals));
    proposals
        .into_iter()
        .map(|proposal| {
            let admitted = admission.judge(&proposal)?;
            let Proposal { conversation, user, fence, events } = proposal;
            for (event, changes) in events {
                data.append(conversation, &user, event, &changes);
            }
            let appended = Appended { first: admitted.first };
            if let Some(by) = appended.opened_by(fence)
                && let Some(opened) = data.conversations.get_mut(&conversation)
            {
                (opened.owner, opened.epoch) = (Some(by), Epoch::FIRST);
            }
            Ok(appended)
        })
        .collect()
}
