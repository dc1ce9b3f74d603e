//! A store with injected faults: locked, full, slow, stale, unavailable, or done without a reply.

use std::{future::Future, sync::Arc};

use annie_core::{
    breaker::BreakerRow,
    event::{Event, NewEvent, Scope},
    faults::{FaultKind, Target},
    ids::{ConversationId, Epoch, NodeId, NodeIncarnation, OperationId, OutboxId, Seq, TaskId, UserId},
    ports::{
        ApiKey, Append, AppendError, Appended, Before, Breakers, Claim, Claimed, ConversationRow, DeadLetterFilter,
        DeadLetterRow, DeadLetters, DeadLettersWaiting, DeleteConversation, Deleting, Deletion, Deletions, DeliveryEnd,
        DeliveryRow, Document, DocumentHit, DocumentKey, DocumentQuery, DocumentWrite, Documents, ErasedPart,
        ExportedDocument, Fut, IntentRow, Keys, Log, MessageRow, Namespace, NodeRow, Nodes, Notification,
        OpenConversation, OperationRow, Operations, Outbox, OutboxRow, Records, Renewal, SealedSecret, SealedSecrets,
        Snapshot, Storage, Store, StoreError, StoreErrorKind, StoredEvent, TaskRow, TextRange, Written,
    },
    spend::{UsageQuery, UsageRow},
    time::Micros,
};

use super::injector::{Injector, abort, wait};

/// A wrapper that injects faults into a store.
pub(super) struct ChaosStore {
    inner: Arc<dyn Storage>,
    faults: Arc<Injector>,
}

impl ChaosStore {
    pub fn new(inner: Arc<dyn Storage>, faults: Arc<Injector>) -> Self {
        Self { inner, faults }
    }

    async fn at<T>(
        &self,
        method: &'static str,
        act: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let Some(injection) = self.faults.pass(Target::Store, method, "", "call", |_| true) else { return act.await };
        let failed = |kind| StoreError { kind, what: method, detail: "injected fault".to_owned() };
        match injection.kind {
            FaultKind::Locked => return Err(failed(StoreErrorKind::Locked)),
            FaultKind::Full => return Err(failed(StoreErrorKind::Full)),
            FaultKind::Unavailable => return Err(failed(StoreErrorKind::Unavailable)),
            FaultKind::Corrupt => return Err(failed(StoreErrorKind::Corrupt)),
            FaultKind::Hang => std::future::pending().await,
            FaultKind::Slow => wait(injection).await,
            FaultKind::Abort => abort(method),
            _ => {}
        }
        let done = act.await;
        match injection.kind {
            FaultKind::LoseReply => Err(failed(StoreErrorKind::Unavailable)),
            FaultKind::Stale => {
                wait(injection).await;
                done
            }
            FaultKind::HangAfter => std::future::pending().await,
            FaultKind::AbortAfter => abort(method),
            _ => done,
        }
    }
}

/// Methods that are forwarded through [`ChaosStore::at`].
macro_rules! passed_on {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $answer:ty;)*) => {$(
        fn $name(&self, $($arg: $kind),*) -> Fut<'_, Result<$answer, StoreError>> {
            Box::pin(self.at(stringify!($name), self.inner.$name($($arg),*)))
        }
    )*};
}

impl Log for ChaosStore {
    fn commit(&self, batch: Vec<Append>) -> Fut<'_, Vec<Result<Appended, AppendError>>> {
        Box::pin(async move {
            let count = batch.len();
            match self.at("commit", async { Ok(self.inner.commit(batch).await) }).await {
                Ok(results) => results,
                Err(error) => vec![Err(AppendError::Store(error)); count],
            }
        })
    }

    passed_on! {
        claim(conversation: ConversationId, by: NodeIncarnation) -> Option<Claim>;
        events(scope: Scope, conversation: ConversationId, after: Seq, limit: u32) -> Vec<Event>;
        stored_events(conversation: ConversationId, after: Seq, limit: u32) -> Vec<StoredEvent>;
        snapshot(conversation: ConversationId) -> Option<Snapshot>;
        put_snapshot(conversation: ConversationId, epoch: Epoch, snapshot: Snapshot) -> ();
        open_conversations() -> Vec<(ConversationId, UserId)>;
        ping() -> ();
    }
}

impl Nodes for ChaosStore {
    passed_on! {
        register_node(node: NodeId, incarnation: NodeIncarnation, lease_ms: u64) -> ();
        renew_node(incarnation: NodeIncarnation, lease_ms: u64, may_end_others: bool) -> Renewal;
        end_node(incarnation: NodeIncarnation) -> ();
        nodes() -> Vec<NodeRow>;
        open_for(by: NodeIncarnation, settled: bool) -> Vec<OpenConversation>;
    }

    fn claim_free(&self, conversation: ConversationId, by: NodeIncarnation) -> Fut<'_, Result<Claimed, StoreError>> {
        Box::pin(self.at("claim", self.inner.claim_free(conversation, by)))
    }
}

impl Records for ChaosStore {
    passed_on! {
        conversation(scope: Scope, id: ConversationId) -> Option<ConversationRow>;
        conversations(scope: Scope, before: Before, limit: u32) -> Vec<ConversationRow>;
        listed_conversations(scope: Scope, before: Before, limit: u32) -> Vec<ConversationRow>;
        task(scope: Scope, id: TaskId) -> Option<TaskRow>;
        tasks(scope: Scope, open: bool, before: Before, limit: u32) -> Vec<TaskRow>;
        message(user: UserId, client_id: String) -> Option<MessageRow>;
        intents(task: TaskId) -> Vec<IntentRow>;
        usage(query: UsageQuery) -> Vec<UsageRow>;
        rebuild() -> u64;
    }
}

impl Deletions for ChaosStore {
    passed_on! {
        delete_conversation(request: DeleteConversation) -> Deleting;
        restore_conversation(conversation: ConversationId) -> bool;
        deletion(conversation: ConversationId) -> Option<Deletion>;
        restorable(scope: Scope, limit: u32) -> Vec<Deletion>;
        due_erasures(scope: Scope, now: Micros, limit: u32) -> Vec<Deletion>;
        erase_step(conversation: ConversationId, record: NewEvent, events_max: u32) -> ErasedPart;
        sweep_texts(before: Micros) -> u64;
        sweep_snapshots(before: Micros, limit: u32) -> u64;
        idle_conversations(before: Micros, limit: u32) -> Vec<(ConversationId, UserId)>;
        compact() -> ();
    }
}

impl DeadLetters for ChaosStore {
    passed_on! {
        dead_letter(scope: Scope, task: TaskId) -> Option<DeadLetterRow>;
        dead_letters(scope: Scope, filter: DeadLetterFilter, before: Before, limit: u32) -> Vec<DeadLetterRow>;
        count_dead_letters(scope: Scope, filter: DeadLetterFilter) -> u64;
        due_dead_letters(now: Micros, archive_before: Micros, limit: u32) -> Vec<DeadLetterRow>;
        dead_letters_waiting() -> DeadLettersWaiting;
    }
}

impl Operations for ChaosStore {
    passed_on! {
        operation(scope: Scope, id: OperationId) -> Option<OperationRow>;
        operations(scope: Scope, open: bool, before: Before, limit: u32) -> Vec<OperationRow>;
        expiring_operations(until: Micros, limit: u32) -> Vec<OperationRow>;
        known_secret(name: &'static str) -> Option<[u8; 32]>;
        secret(name: &'static str, fresh: [u8; 32]) -> [u8; 32];
    }
}

impl Outbox for ChaosStore {
    passed_on! {
        outbox(limit: u32) -> Vec<OutboxRow>;
        to_notify(limit: u32) -> Vec<OutboxRow>;
        waiting_channels() -> Vec<String>;
        next_deliveries(channel: String, limit: u32) -> Vec<DeliveryRow>;
        begin_delivery(id: OutboxId, attempts: u32, by: NodeId, at: Micros) -> bool;
        end_delivery(id: OutboxId, attempts: u32, end: DeliveryEnd) -> bool;
        divert_channel(channel: String, before: Micros) -> u64;
        delivered(ids: Vec<OutboxId>, at: Micros) -> ();
        notify(user: UserId, text: String, words: Vec<(OutboxId, TaskId)>, at: Micros) -> Option<Notification>;
        notifications(user: UserId, after: u64, limit: u32) -> Vec<Notification>;
        last_notified(user: UserId) -> Option<Micros>;
        sweep_outbox(before: Micros) -> u64;
    }
}

impl Breakers for ChaosStore {
    passed_on! {
        breaker(skill: String) -> Option<BreakerRow>;
        open_breakers(limit: u32) -> Vec<String>;
        put_breaker(skill: String, row: BreakerRow) -> ();
    }
}

impl Keys for ChaosStore {
    passed_on! {
        key(id: String) -> Option<ApiKey>;
        keys() -> Vec<ApiKey>;
        put_key(key: ApiKey) -> ();
        note_key_use(id: String, at: Micros) -> ();
    }
}

impl SealedSecrets for ChaosStore {
    passed_on! {
        sealed_secret(user: Option<UserId>, name: String) -> Option<SealedSecret>;
        sealed_secrets() -> Vec<SealedSecret>;
        put_sealed_secret(secret: SealedSecret) -> ();
        delete_sealed_secret(user: Option<UserId>, name: String) -> bool;
    }
}

impl Documents for ChaosStore {
    passed_on! {
        write_document(write: DocumentWrite) -> Written;
        document(user: UserId, namespace: &'static Namespace, number: u64) -> Option<Document>;
        find_documents(user: UserId, namespace: &'static Namespace, query: DocumentQuery) -> Vec<DocumentHit>;
        count_documents(
            user: UserId,
            namespace: &'static Namespace,
            query: DocumentQuery,
            groups: Vec<Vec<TextRange>>
        ) -> Vec<u64>;
        due_documents(namespace: &'static Namespace, until: Micros, limit: u32) -> Vec<(UserId, Document)>;
        touch_documents(user: UserId, namespace: &'static Namespace, numbers: Vec<u64>, at: Micros) -> ();
        archived_documents(user: UserId, namespace: &'static Namespace, limit: u32) -> Vec<ExportedDocument>;
        purge_documents(before: Micros, limit: u32) -> u64;
        export_documents(user: UserId, after: Option<DocumentKey>, limit: u32) -> Vec<ExportedDocument>;
        delete_documents(user: UserId) -> u64;
    }
}

impl Store for ChaosStore {
    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn woken(&self) -> Fut<'_, ()> {
        self.inner.woken()
    }

    fn close(&self) -> Fut<'_, ()> {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    use annie_store::MemoryStore;

    use super::*;
    use crate::FaultSpec;

    #[tokio::test(start_paused = true)]
    async fn stale_store_read_misses_later_writes() {
        let faults = Arc::new(Injector::new(annie_testkit::env::env(1).clock));
        let store = ChaosStore::new(Arc::new(MemoryStore::new()), faults.clone());
        let stale = FaultSpec { wait_ms: 1_000, ..FaultSpec::new(Target::Store, FaultKind::Stale).at("keys", "*") };
        faults.inject(stale.once()).unwrap();
        let key = ApiKey {
            id: "one".to_owned(),
            name: "n".to_owned(),
            user: UserId::local(),
            secret_sha256: Vec::new(),
            scopes: Vec::new(),
            created_at: Micros(0),
            expires_at: None,
            last_used_at: None,
            revoked_at: None,
        };
        let (old, written) = tokio::join!(store.keys(), store.put_key(key));
        written.unwrap();
        assert_eq!(old.unwrap().len(), 0);
        assert_eq!(store.keys().await.unwrap().len(), 1, "the fault is injected once");
    }
}
