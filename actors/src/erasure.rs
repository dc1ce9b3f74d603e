//! The chore that erases deleted conversations when their time in the trash is over, and applies the retention policy.
//!
//! Owns: when its rare work was last done. Survives its users: the deletions, which the store keeps with their progress, so that an
//! interrupted erasure is continued by the next pass or by another node.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use annie_core::{
    erasure::{self, ERASED},
    event::{EventBody, NewEvent, Scope},
    ids::{AgentId, ConversationId, IntentId, NodeIncarnation, TaskId, UserId},
    ports::{
        Append, Before, Chore, DeleteConversation, Deleting, Deletion, Documents, Fence, Fut, Store, StoreError,
        StoreErrorKind,
    },
    schedule::{NumberedSchedule, SCHEDULES},
    time::Micros,
    titles::{self, TITLES},
};

use crate::kernel::PAGE_MAX;

/// Events that one transaction erases. Appends wait for it.
const STEP_EVENTS: u32 = 200;
/// Events that one pass erases; the rest follows in the next one.
const PASS_EVENTS_MAX: u64 = 20_000;
/// Deletions that one pass reads.
const PASS_CONVERSATIONS_MAX: u32 = 100;
/// Conversations that the retention considers in one pass.
const RETENTION_MAX: u32 = 1_000;
/// Snapshots that one transaction deletes.
const SNAPSHOTS_MAX: u32 = 100;
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// A text that no event names is deleted if it was written before this time, in milliseconds. An append names only texts that were
/// written in the hour before it; the rest is for clocks that differ and commits that take long.
const TEXT_MS: i64 = 3 * HOUR_MS;
/// After so many refused attempts the conversation is left to its running server.
const TRIES_MAX: usize = 10;

/// `[retention]`, as the chore needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionRules {
    /// After so many days without an event a conversation is erased; 0 means never.
    pub events_days: u32,
    /// After so many hours the working data of ended tasks is deleted; 0 means never.
    pub working_data_hours: u32,
    /// Time between two passes, in milliseconds.
    pub pass_ms: u64,
}

/// Erases what is due.
pub struct ErasureChore {
    store: Arc<dyn Store>,
    documents: Arc<dyn Documents>,
    rules: RetentionRules,
    /// When the retention was last applied, and when texts were last swept; microseconds.
    applied_at: AtomicI64,
    swept_at: AtomicI64,
}

impl ErasureChore {
    /// The chore.
    #[must_use]
    pub fn chore(store: Arc<dyn Store>, documents: Arc<dyn Documents>, rules: RetentionRules) -> Arc<dyn Chore> {
        let never = || AtomicI64::new(i64::MIN);
        Arc::new(Self { store, documents, rules, applied_at: never(), swept_at: never() })
    }

    /// Returns whether more is due at once.
    async fn erase_due(&self, now: Micros) -> Result<bool, StoreError> {
        let due = self.store.due_erasures(now, PASS_CONVERSATIONS_MAX).await?;
        let is_last = due.len() < PASS_CONVERSATIONS_MAX as usize;
        let mut left = PASS_EVENTS_MAX;
        for deletion in due {
            let (events, is_done) = erase_part(&*self.store, &*self.documents, &deletion, now, left).await?;
            metrics::counter!("annie_erased_events_total").increment(events);
            if is_done {
                let Deletion { conversation, by, .. } = &deletion;
                metrics::counter!("annie_erased_conversations_total").increment(1);
                tracing::info!(%conversation, by, "the content of a deleted conversation was erased");
            }
            left = left.saturating_sub(events);
            if left == 0 {
                return Ok(true);
            }
        }
        Ok(!is_last)
    }

    /// Deletes conversations that are older than the policy allows. One with an open task or with a schedule is left.
    async fn apply_retention(&self, now: Micros) -> Result<(), StoreError> {
        if self.rules.events_days > 0 {
            let before = now.plus_ms(-i64::from(self.rules.events_days) * DAY_MS);
            let mut deleted = 0_u64;
            for (conversation, user) in self.store.idle_conversations(before, RETENTION_MAX).await? {
                if self.has_schedule(&user, conversation).await? {
                    continue;
                }
                let reason = format!("nothing has happened in it for {} days", self.rules.events_days);
                let request =
                    DeleteConversation { conversation, by: "retention".to_owned(), reason, at: now, erase_at: now };
                deleted += u64::from(self.store.delete_conversation(request).await? == Deleting::Deleted);
            }
            if deleted > 0 {
                metrics::counter!("annie_retention_conversations_total").increment(deleted);
                tracing::info!(
                    deleted,
                    days = self.rules.events_days,
                    "conversations are older than the retention allows"
                );
            }
        }
        if self.rules.working_data_hours > 0 {
            let before = now.plus_ms(-i64::from(self.rules.working_data_hours) * HOUR_MS);
            let mut swept = 0;
            loop {
                let more = self.store.sweep_snapshots(before, SNAPSHOTS_MAX).await?;
                swept += more;
                if more < u64::from(SNAPSHOTS_MAX) {
                    break;
                }
            }
            if swept > 0 {
                metrics::counter!("annie_retention_working_data_total").increment(swept);
                tracing::info!(swept, "the working data of ended tasks was deleted");
            }
        }
        Ok(())
    }

    async fn has_schedule(&self, user: &UserId, conversation: ConversationId) -> Result<bool, StoreError> {
        let query = annie_core::ports::DocumentQuery { limit: PAGE_MAX, ..Default::default() };
        let hits = self.documents.find_documents(user.clone(), &SCHEDULES, query).await?;
        let schedules = hits.iter().map(|hit| NumberedSchedule::of(&hit.document));
        let mut of_it = schedules.filter_map(Result::ok).map(|found| found.schedule);
        Ok(of_it.any(|schedule| schedule.conversation == conversation && schedule.paused.is_none()))
    }

    async fn do_all(&self, now: Micros) -> Result<bool, StoreError> {
        if is_due(&self.applied_at, now, HOUR_MS) {
            self.apply_retention(now).await?;
            self.applied_at.store(now.0, Relaxed);
        }
        let has_more = self.erase_due(now).await?;
        if is_due(&self.swept_at, now, DAY_MS) {
            let texts = self.store.sweep_texts(now.plus_ms(-TEXT_MS)).await?;
            self.swept_at.store(now.0, Relaxed);
            if texts > 0 {
                tracing::info!(texts, "shared texts that no event names any more were deleted");
            }
        }
        Ok(has_more)
    }
}

fn is_due(last: &AtomicI64, now: Micros, every_ms: i64) -> bool {
    now >= Micros(last.load(Relaxed)).plus_ms(every_ms)
}

impl Chore for ErasureChore {
    fn name(&self) -> &'static str {
        "erasure"
    }

    fn pass(&self, now: Micros) -> Fut<'_, Result<Option<Micros>, String>> {
        Box::pin(async move {
            let has_more = self.do_all(now).await.map_err(|error| error.to_string())?;
            let pause = if has_more { 1 } else { i64::try_from(self.rules.pass_ms).unwrap_or(i64::MAX) };
            Ok(Some(now.plus_ms(pause)))
        })
    }
}

/// Erases a part of a deleted conversation: about `events_max` events. Returns their number, and whether nothing is left.
async fn erase_part(
    store: &dyn Store,
    documents: &dyn Documents,
    deletion: &Deletion,
    now: Micros,
    events_max: u64,
) -> Result<(u64, bool), StoreError> {
    erase_title(documents, deletion, now).await?;
    // The record needs a task of its own: no task of a message has the id of a conversation.
    let task = TaskId::from_uuid(deletion.conversation.uuid());
    let mut events = 0;
    loop {
        let record = erasure::record(task, &deletion.by, &deletion.reason, now);
        let part = store.erase_step(deletion.conversation, record, STEP_EVENTS).await?;
        events += part.events;
        if part.is_done || events >= events_max {
            return Ok((events, part.is_done));
        }
        tokio::task::yield_now().await;
    }
}

/// Erases the title that the user gave to the conversation.
async fn erase_title(documents: &dyn Documents, deletion: &Deletion, now: Micros) -> Result<(), StoreError> {
    let Deletion { conversation, user, .. } = deletion;
    if documents.find_documents(user.clone(), &TITLES, titles::of(&[*conversation])).await?.is_empty() {
        return Ok(());
    }
    let intent = IntentId::from_uuid(conversation.uuid());
    let write = titles::rename(user.clone(), *conversation, ERASED.to_owned(), intent, now);
    documents.write_document(write).await.map(drop)
}

/// Deletes and erases all conversations of a user at once, with those in the trash. Open tasks are cancelled. Returns the number of
/// conversations.
///
/// # Errors
/// If the store fails, or a server keeps accepting messages of the user.
pub async fn erase_user(
    store: &dyn Store,
    documents: &dyn Documents,
    user: &UserId,
    by: &str,
    now: Micros,
) -> Result<u64, StoreError> {
    let scope = Scope::User(user.clone());
    loop {
        let rows = store.conversations(scope.clone(), Before::NEWEST, PAGE_MAX).await?;
        if rows.is_empty() {
            break;
        }
        for row in rows {
            delete_now(store, user, row.id, by, now).await?;
        }
    }
    let mut erased = 0;
    loop {
        let deleted = store.restorable(scope.clone(), PAGE_MAX).await?;
        if deleted.is_empty() {
            break;
        }
        for deletion in deleted {
            erase_part(store, documents, &deletion, now, u64::MAX).await?;
            erased += 1;
        }
    }
    store.sweep_texts(now.plus_ms(-TEXT_MS)).await?;
    Ok(erased)
}

/// Cancels the open tasks of a conversation and deletes it.
async fn delete_now(
    store: &dyn Store,
    user: &UserId,
    conversation: ConversationId,
    by: &str,
    now: Micros,
) -> Result<(), StoreError> {
    let reason = "all data of the user is deleted".to_owned();
    let request = DeleteConversation { conversation, by: by.to_owned(), reason, at: now, erase_at: now };
    for _ in 0..TRIES_MAX {
        if store.delete_conversation(request.clone()).await? != Deleting::Busy {
            return Ok(());
        }
        let open = store.tasks(Scope::User(user.clone()), true, Before::NEWEST, PAGE_MAX).await?;
        let node = NodeIncarnation::from_uuid(conversation.uuid());
        let Some(claim) = store.claim(conversation, node).await? else { continue };
        let new = |task, body| NewEvent { at: now, task, agent: AgentId::orchestrator(), body };
        let end = |task| {
            let cancelled = EventBody::Cancelled { text: ERASED.to_owned() };
            [new(task, EventBody::CancelRequested { by: by.to_owned() }), new(task, cancelled)]
        };
        let of_it = open.iter().filter(|task| task.conversation == conversation);
        let events: Vec<NewEvent> = of_it.flat_map(|task| end(task.id)).collect();
        if !events.is_empty() {
            let append = Append { conversation, user: user.clone(), fence: Fence::Owner(claim.epoch), events };
            // A refused append is found by the next attempt.
            let _ = store.commit(vec![append]).await;
        }
    }
    let detail = format!("{conversation} keeps getting work from a running server");
    Err(StoreError { kind: StoreErrorKind::Locked, what: "deleting a conversation", detail })
}
