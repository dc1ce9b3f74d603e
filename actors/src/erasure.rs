//! The chore that erases deleted conversations when their time in the trash is over, and applies the retention policy.
//!
//! Owns: when its rare work was last done. Survives its users: the deletions, which the store keeps with their progress, so that an
//! interrupted erasure is continued by the next pass or by another node.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU32, Ordering::Relaxed},
};

use annie_core::{
    erasure::{self, ERASED},
    event::{EventBody, NewEvent, Scope},
    ids::{AgentId, ConversationId, IntentId, NodeIncarnation, TaskId, UserId},
    ports::{
        Append, Before, Chore, DeleteConversation, Deleting, Deletion, Document, Documents, Fence, Fut, Store,
        StoreError, StoreErrorKind,
    },
    schedule::{NumberedSchedule, SCHEDULES},
    state::{STATE, StatePlace, StateScope},
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
/// Tasks that one append cancels.
const CANCELLED_AT_ONCE_MAX: usize = 200;
/// After so many refused attempts the conversation is left to its running server.
const TRIES_MAX: usize = 10;
/// How many deleted values of a user are looked at when a conversation is erased. There are at most 100 values in a place, and the trash
/// is purged after 30 days.
const ARCHIVED_MAX: u32 = 10_000;

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
    /// Erasures that failed in the last pass. The next pass reads as many more, so that they keep no place of the others.
    failed: AtomicU32,
}

impl ErasureChore {
    /// The chore.
    #[must_use]
    pub fn chore(store: Arc<dyn Store>, documents: Arc<dyn Documents>, rules: RetentionRules) -> Arc<dyn Chore> {
        let never = || AtomicI64::new(i64::MIN);
        Arc::new(Self { store, documents, rules, applied_at: never(), swept_at: never(), failed: AtomicU32::new(0) })
    }

    /// Returns whether more is due at once. An erasure that fails is tried again in the next pass, and stops no other one.
    async fn erase_due(&self, now: Micros) -> Result<bool, StoreError> {
        let limit = PASS_CONVERSATIONS_MAX.saturating_add(self.failed.swap(0, Relaxed));
        let due = self.store.due_erasures(Scope::Operator, now, limit).await?;
        let is_last = due.len() < limit as usize;
        let mut left = PASS_EVENTS_MAX;
        for deletion in due {
            let Deletion { conversation, by, .. } = &deletion;
            let (events, is_done) = match erase_part(&*self.store, &*self.documents, &deletion, now, left).await {
                Ok(part) => part,
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => {
                    self.failed.fetch_add(1, Relaxed);
                    metrics::counter!("annie_erasure_failures_total").increment(1);
                    tracing::warn!(%conversation, %error, "a deleted conversation could not be erased");
                    continue;
                }
            };
            metrics::counter!("annie_erased_events_total").increment(events);
            if is_done {
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
                // A message may have come in since the list was read.
                let unchanged_since = Some(before);
                let by = "retention".to_owned();
                let request = DeleteConversation { conversation, by, reason, at: now, erase_at: now, unchanged_since };
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
            match self.apply_retention(now).await {
                // What cannot be decided about one conversation does not keep the content of others.
                Err(error) if !error.is_retryable() => {
                    metrics::counter!("annie_erasure_failures_total").increment(1);
                    tracing::warn!(%error, "the retention could not be applied");
                }
                applied => applied?,
            }
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
    // The record needs a task of its own: no task of a message has the id of a conversation.
    let task = TaskId::from_uuid(deletion.conversation.uuid());
    let record = || erasure::record(task, &deletion.by, &deletion.reason, now);
    // From the record on the conversation cannot be restored. A restored one would have lost its title.
    if deletion.is_restorable() && store.erase_step(deletion.conversation, record(), 0).await?.is_done {
        return Ok((0, false));
    }
    erase_title(documents, deletion, now).await?;
    erase_state(documents, deletion, now).await?;
    let mut events = 0;
    loop {
        let part = store.erase_step(deletion.conversation, record(), STEP_EVENTS).await?;
        events += part.events;
        if part.is_done || events >= events_max {
            return Ok((events, part.is_done));
        }
        tokio::task::yield_now().await;
    }
}

/// Erases the values that were set in the conversation.
async fn erase_state(documents: &dyn Documents, deletion: &Deletion, now: Micros) -> Result<(), StoreError> {
    let Deletion { conversation, user, .. } = deletion;
    let Ok(place) = StatePlace::of(StateScope::Session, user, Some(*conversation)) else { return Ok(()) };
    for hit in documents.find_documents(user.clone(), &STATE, place.all()).await? {
        let Document { number, updated_at, .. } = hit.document;
        let key = format!("erase the state {number} of {}", updated_at.0);
        let intent = IntentId::for_call(TaskId::from_uuid(conversation.uuid()), &AgentId::orchestrator(), &key);
        documents.write_document(place.erase(number, intent, now)).await?;
    }
    // Deleted values are in the trash.
    for deleted in documents.archived_documents(user.clone(), &STATE, ARCHIVED_MAX).await? {
        let Document { number, updated_at, body, .. } = deleted.document;
        if place.has(&body) {
            let key = format!("erase the deleted state {number} of {}", updated_at.0);
            let intent = IntentId::for_call(TaskId::from_uuid(conversation.uuid()), &AgentId::orchestrator(), &key);
            documents.write_document(place.erase_deleted(number, intent, now)).await?;
        }
    }
    Ok(())
}

/// Erases the title that the user gave to the conversation.
async fn erase_title(documents: &dyn Documents, deletion: &Deletion, now: Micros) -> Result<(), StoreError> {
    let Deletion { conversation, user, .. } = deletion;
    let found = documents.find_documents(user.clone(), &TITLES, titles::of(&[*conversation])).await?;
    let Some(title) = found.first().map(|hit| &hit.document) else { return Ok(()) };
    if titles::read(title).is_ok_and(|(_, title)| title == ERASED) {
        return Ok(());
    }
    // Each title has an intent of its own: the same intent again would change nothing.
    let key = format!("erase the title of {}", title.updated_at.0);
    let intent = IntentId::for_call(TaskId::from_uuid(conversation.uuid()), &AgentId::orchestrator(), &key);
    let write = titles::rename(user.clone(), *conversation, ERASED.to_owned(), intent, now);
    documents.write_document(write).await.map(drop)
}

/// The result of [`erase_user`].
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ErasedUser {
    /// The number of conversations that were erased.
    pub conversations: u64,
    /// The conversations that could not be erased, with the reason.
    pub failed: Vec<(ConversationId, StoreError)>,
}

/// Deletes and erases all conversations of a user at once, with those in the trash and those whose erasure was interrupted. Open
/// tasks are cancelled.
///
/// # Errors
/// If the store is unavailable, or a server keeps accepting messages of the user.
pub async fn erase_user(
    store: &dyn Store,
    documents: &dyn Documents,
    user: &UserId,
    by: &str,
    now: Micros,
) -> Result<ErasedUser, StoreError> {
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
    let mut done = ErasedUser::default();
    loop {
        let failed = u32::try_from(done.failed.len()).unwrap_or(u32::MAX);
        let due = store.due_erasures(scope.clone(), Micros(i64::MAX), PAGE_MAX.saturating_add(failed)).await?;
        let has_failed = |deletion: &Deletion| done.failed.iter().any(|(id, _)| *id == deletion.conversation);
        let due: Vec<Deletion> = due.into_iter().filter(|deletion| !has_failed(deletion)).collect();
        if due.is_empty() {
            break;
        }
        for deletion in due {
            match erase_part(store, documents, &deletion, now, u64::MAX).await {
                Ok(_) => done.conversations += 1,
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => done.failed.push((deletion.conversation, error)),
            }
        }
    }
    store.sweep_texts(now.plus_ms(-TEXT_MS)).await?;
    Ok(done)
}

/// Cancels the open tasks of a conversation and deletes it.
async fn delete_now(
    store: &dyn Store,
    user: &UserId,
    conversation: ConversationId,
    by: &str,
    now: Micros,
) -> Result<(), StoreError> {
    let (by, reason) = (by.to_owned(), "all data of the user is deleted".to_owned());
    let request =
        DeleteConversation { conversation, by: by.clone(), reason, at: now, erase_at: now, unchanged_since: None };
    for _ in 0..TRIES_MAX {
        if store.delete_conversation(request.clone()).await? != Deleting::Busy {
            return Ok(());
        }
        let open = open_tasks(store, user, conversation).await?;
        let node = NodeIncarnation::from_uuid(conversation.uuid());
        let Some(claim) = store.claim(conversation, node).await? else { continue };
        let new = |task, body| NewEvent { at: now, task, agent: AgentId::orchestrator(), body };
        let end = |task: &TaskId| {
            let cancelled = EventBody::Cancelled { text: ERASED.to_owned() };
            [new(*task, EventBody::CancelRequested { by: by.clone() }), new(*task, cancelled)]
        };
        for part in open.chunks(CANCELLED_AT_ONCE_MAX) {
            let events: Vec<NewEvent> = part.iter().flat_map(end).collect();
            let append = Append { conversation, user: user.clone(), fence: Fence::Owner(claim.epoch), events };
            // A refused append is found by the next attempt.
            let _ = store.commit(vec![append]).await;
        }
    }
    let detail = format!("{conversation} keeps getting work from a running server");
    Err(StoreError { kind: StoreErrorKind::Locked, what: "deleting a conversation", detail })
}

/// The open tasks of a conversation, among however many of its user.
pub(crate) async fn open_tasks(
    store: &dyn Store,
    user: &UserId,
    conversation: ConversationId,
) -> Result<Vec<TaskId>, StoreError> {
    let (mut before, mut open) = (Before::NEWEST, Vec::new());
    loop {
        let page = store.tasks(Scope::User(user.clone()), true, before, PAGE_MAX).await?;
        let Some(last) = page.last() else { return Ok(open) };
        before = last.page_start();
        open.extend(page.iter().filter(|task| task.conversation == conversation).map(|task| task.id));
    }
}
