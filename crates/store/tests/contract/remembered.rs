//! The facts that the store remembers of its last commits decide nothing: a row that was changed past the store is noticed.

use annie_core::{
    ids::{ConversationId, Epoch, IntentId, Seq},
    ports::{AppendError, Appended, Log, Records},
    skill::Effect,
};
use sqlx::{Executor, SqliteConnection};
use tempfile::TempDir;
use uuid::Uuid;

use crate::{
    make::*,
    sqlite_only::{beside, open},
};

async fn change(db: &mut SqliteConnection, sql: &'static str) {
    assert!(db.execute(sql).await.unwrap().rows_affected() > 0, "{sql}");
}

#[tokio::test]
async fn owner_is_fenced_after_a_claim_past_the_store() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    let epoch = opened(&store, conversation(1), "ann", task(1), 1).await;
    let other = opened(&store, conversation(2), "ann", task(2), 1).await;
    commit(&store, owned(conversation(1), "ann", epoch, vec![started(task(1), 2)])).await.unwrap();
    let mut db = beside(folder.path()).await;
    change(&mut db, "UPDATE conversations SET owner_epoch = owner_epoch + 1 WHERE next_seq = 3").await;
    let batch = vec![
        owned(conversation(1), "ann", epoch, vec![answered(task(1), "stale", 3)]),
        owned(conversation(2), "ann", other, vec![started(task(2), 3)]),
    ];
    let answers = store.commit(batch).await;
    assert_eq!(answers, [Err(AppendError::Fenced), Ok(Appended { first: Seq(2) })]);
    assert_eq!((length(&store, conversation(1)).await, length(&store, conversation(2)).await), (2, 2));
    let new = Epoch(epoch.0 + 1);
    let owner = owned(conversation(1), "ann", new, vec![answered(task(1), "fresh", 4)]);
    assert_eq!(commit(&store, owner).await, Ok(Appended { first: Seq(3) }));
}

#[tokio::test]
async fn event_written_past_the_store_keeps_its_sequence_number() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    let epoch = opened(&store, conversation(1), "ann", task(1), 1).await;
    let mut db = beside(folder.path()).await;
    change(
        &mut db,
        "INSERT INTO events (conversation_id, seq, at, task_id, agent_id, kind, v, body) \
         SELECT conversation_id, 2, at, task_id, agent_id, kind, v, body FROM events; \
         UPDATE conversations SET next_seq = 3",
    )
    .await;
    let owner = owned(conversation(1), "ann", epoch, vec![started(task(1), 2)]);
    assert_eq!(commit(&store, owner).await, Ok(Appended { first: Seq(3) }));
    let handle = inbox(conversation(1), "ann", vec![received(task(2), "b", "x", 3)]);
    assert_eq!(commit(&store, handle).await, Ok(Appended { first: Seq(4) }));
}

#[tokio::test]
async fn conversation_created_past_the_store_belongs_to_its_user() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    let mut db = beside(folder.path()).await;
    change(&mut db, "INSERT INTO conversations (id, user_id, owner_node, owner_epoch, next_seq, title, created_at, updated_at, stateless) VALUES (zeroblob(16), 'bob', NULL, 0, 1, '', 1, 1, 0)").await;
    let nil = ConversationId::from_uuid(Uuid::nil());
    let refused = commit(&store, inbox(nil, "ann", vec![received(task(1), "a", "x", 1)])).await;
    assert_eq!(refused, Err(AppendError::WrongOwner));
    assert_eq!(length(&store, nil).await, 0);
    let of_bob = commit(&store, inbox(nil, "bob", vec![received(task(1), "a", "x", 1)])).await;
    assert_eq!(of_bob, Ok(Appended { first: Seq(1) }));
}

#[tokio::test]
async fn message_stored_past_the_store_is_a_duplicate() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    opened(&store, conversation(1), "ann", task(1), 1).await;
    let mut db = beside(folder.path()).await;
    change(&mut db, "UPDATE tasks SET client_id = 'other'").await;
    let handle = inbox(conversation(2), "ann", vec![received(task(2), "other", "x", 3)]);
    let refused = commit(&store, handle).await;
    assert!(matches!(refused, Err(AppendError::Duplicate { seq: Seq(1), same: false, .. })), "{refused:?}");
    assert_eq!(length(&store, conversation(2)).await, 0);
}

#[tokio::test]
async fn once_run_started_or_planned_past_the_store_does_not_start_again() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    let epoch = opened(&store, conversation(1), "ann", task(1), 1).await;
    let plan = |n| plans(task(1), vec![planned(intent(n), "mail.send", Effect::Once)], 2);
    let mine = |events| owned(conversation(1), "ann", epoch, events);
    commit(&store, mine(vec![plan(1)])).await.unwrap();
    let mut db = beside(folder.path()).await;
    change(&mut db, "UPDATE intents SET state = 'started'").await;
    let start = commit(&store, mine(vec![run_started(task(1), intent(1), 3)])).await;
    assert_eq!(start, Err(AppendError::AlreadyStarted(intent(1))));
    // The store does not remember this intent, but the table has it.
    change(
        &mut db,
        "INSERT INTO intents SELECT zeroblob(16), conversation_id, task_id, seq, 9, skill, effect, state, attempts, \
         planned_at, changed_at FROM intents",
    )
    .await;
    let nil = IntentId::from_uuid(Uuid::nil());
    let plan = plans(task(1), vec![planned(nil, "mail.send", Effect::Once)], 4);
    let start = commit(&store, mine(vec![plan, run_started(task(1), nil, 4)])).await;
    assert_eq!(start, Err(AppendError::AlreadyStarted(nil)));
    assert_eq!(length(&store, conversation(1)).await, 2);
    assert_eq!(store.intents(task(1)).await.unwrap().iter().map(|i| i.attempts).sum::<u32>(), 0);
}
