//! Seals of the audit chain after wrong clocks, and after a process that dies within a pass.

use std::sync::Arc;

use annie_actors::SealChore;
use annie_core::{
    audit::{SEALS, seals_user},
    event::{EventBody, Inbound, NewEvent},
    ids::{AgentId, ConversationId, TaskId, UserId},
    ports::{Append, Chore, DocumentOrder, DocumentQuery, Documents, Fence, Log},
    time::Micros,
};
use annie_store::MemoryStore;
use uuid::Uuid;

const HOUR_MS: i64 = 3_600_000;

fn conversation(n: u128) -> ConversationId {
    ConversationId::from_uuid(Uuid::from_u128(n))
}

async fn talked(store: &MemoryStore, n: u128, at: Micros) {
    let inbound =
        Inbound { client_id: n.to_string(), text: "hello".to_owned(), source: "http".to_owned(), ..Inbound::default() };
    let task = TaskId::from_uuid(Uuid::from_u128(100 + n));
    let events = vec![NewEvent { at, task, agent: AgentId::orchestrator(), body: EventBody::Received(inbound) }];
    let append = Append { conversation: conversation(n), user: UserId::local(), fence: Fence::Inbox, events };
    store.commit(vec![append]).await.remove(0).expect("stored");
}

/// The conversations that have a seal.
async fn sealed(store: &MemoryStore) -> Vec<String> {
    let query = DocumentQuery { limit: 99, order: DocumentOrder::Number, ..DocumentQuery::default() };
    let hits = store.find_documents(seals_user().expect("a name"), &SEALS, query).await.expect("read");
    hits.iter().map(|hit| hit.document.body["conversation"].as_str().unwrap_or_default().to_owned()).collect()
}

fn chore(store: &MemoryStore) -> Arc<dyn Chore> {
    SealChore::chore(Arc::new(store.clone()), Arc::new(store.clone()), 1)
}

#[tokio::test]
async fn seal_pass_is_not_misled_by_a_clock_that_was_wrong() {
    let (store, now) = (MemoryStore::new(), Micros(0).plus_ms(1_000 * HOUR_MS));
    talked(&store, 1, now.plus_ms(90_000 * HOUR_MS)).await;
    chore(&store).pass(now).await.expect("sealed");
    let later = now.plus_ms(2 * HOUR_MS);
    talked(&store, 2, later).await;
    chore(&store).pass(later).await.expect("sealed");
    assert_eq!(sealed(&store).await, [conversation(2).to_string(), conversation(1).to_string()]);
}

#[tokio::test]
async fn seal_pass_of_a_day_finds_what_is_older_than_the_last_pass() {
    let (store, now) = (MemoryStore::new(), Micros(0).plus_ms(1_000 * HOUR_MS));
    talked(&store, 1, now).await;
    chore(&store).pass(now).await.expect("sealed");
    // A node whose clock is behind stores an event.
    talked(&store, 2, now.plus_ms(-5 * HOUR_MS)).await;
    chore(&store).pass(now.plus_ms(HOUR_MS)).await.expect("sealed");
    assert_eq!(sealed(&store).await.len(), 1, "recent changes only");
    chore(&store).pass(now.plus_ms(24 * HOUR_MS)).await.expect("sealed");
    assert_eq!(sealed(&store).await[0], conversation(2).to_string());
}
