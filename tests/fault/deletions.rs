//! The process dies at each step of an erasure, and the next one finishes it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use annie_actors::{ErasureChore, RetentionRules};
use annie_core::{
    audit::link,
    event::{EventBody, Inbound, NewEvent, Scope},
    ids::{AgentId, ConversationId, IntentId, NodeIncarnation, Seq, TaskId, UserId},
    ports::{Append, DeleteConversation, Deleting, Deletions, Documents, Fence, Log, StoreErrorKind},
    time::Micros,
    titles::{self, TITLES},
};
use annie_store::{MemoryStore, StoreFault, StorePoint};
use uuid::Uuid;

const SECRET: &str = "pelican";
/// More than three steps of an erasure.
const TASKS: u128 = 401;
const RULES: RetentionRules = RetentionRules { events_days: 0, working_data_hours: 0, pass_ms: 60_000 };

fn conversation() -> ConversationId {
    ConversationId::from_uuid(Uuid::from_u128(1))
}

async fn talked(store: &MemoryStore) {
    talked_in(store, conversation(), TASKS).await;
}

/// `tasks` answered messages in a conversation.
async fn talked_in(store: &MemoryStore, id: ConversationId, tasks: u128) {
    let (user, at) = (UserId::local(), Micros(1));
    let append = |fence, events| Append { conversation: id, user: user.clone(), fence, events };
    let new = |n: u128, body| {
        let task = TaskId::from_uuid(Uuid::from_u128(id.uuid().as_u128() * 10_000 + n));
        NewEvent { at, task, agent: AgentId::orchestrator(), body }
    };
    let received = |n: u128| {
        let text = format!("about a {SECRET}");
        EventBody::Received(Inbound {
            client_id: format!("{id} {n}"),
            text,
            source: "http".to_owned(),
            ..Inbound::default()
        })
    };
    let events = (0..tasks).map(|n| new(n, received(n))).collect();
    store.commit(vec![append(Fence::Inbox, events)]).await.remove(0).expect("stored");
    let claim = store.claim(id, NodeIncarnation::from_uuid(Uuid::from_u128(9))).await;
    let epoch = claim.expect("the store works").expect("claimed").epoch;
    let events = (0..tasks).map(|n| new(n, EventBody::answered(SECRET))).collect();
    store.commit(vec![append(Fence::Owner(epoch), events)]).await.remove(0).expect("stored");
}

async fn delete(store: &MemoryStore, conversation: ConversationId) {
    let (by, reason, at, erase_at) = ("ann".to_owned(), "asked".to_owned(), Micros(2), Micros(2));
    let request = DeleteConversation { conversation, by, reason, at, erase_at, unchanged_since: None };
    assert_eq!(store.delete_conversation(request).await, Ok(Deleting::Deleted));
}

async fn chain(store: &MemoryStore) -> String {
    let events = store.stored_events(conversation(), Seq(0), 2 * TASKS as u32).await.expect("read");
    events.iter().fold(String::new(), |before, event| link(&before, conversation(), event))
}

/// One pass in a process that dies at the step with this number, before or after the store has done it.
async fn dies_at(step: usize, fault: StoreFault) {
    let store = MemoryStore::new();
    talked(&store).await;
    let before = chain(&store).await;
    let (by, reason) = ("ann".to_owned(), "asked".to_owned());
    let (at, erase_at) = (Micros(2), Micros(2));
    let request = DeleteConversation { conversation: conversation(), by, reason, at, erase_at, unchanged_since: None };
    assert_eq!(store.delete_conversation(request).await, Ok(Deleting::Deleted));
    let steps = Arc::new(AtomicUsize::new(0));
    let counted = steps.clone();
    let hooked = store.with_hook(Arc::new(move |point| match point {
        StorePoint::Write("erase_step") if counted.fetch_add(1, SeqCst) == step => fault,
        _ => StoreFault::Pass,
    }));
    let chore = ErasureChore::chore(Arc::new(hooked.clone()), Arc::new(hooked), RULES);
    // The pass is dropped when the step is reached: the process dies.
    tokio::select! {
        biased;
        _ = chore.pass(Micros(3)) => panic!("the pass ended before step {step}"),
        () = crate::world::eventually("the step is reached", async || (steps.load(SeqCst) > step).then_some(())) => {}
    }
    let deletion = store.deletion(conversation()).await.expect("read").expect("deleted");
    assert_eq!(deletion.erased_at, None);
    let chore = ErasureChore::chore(Arc::new(store.clone()), Arc::new(store.clone()), RULES);
    chore.pass(Micros(4)).await.expect("the next process finishes it");
    let deletion = store.deletion(conversation()).await.expect("read").expect("deleted");
    assert!(deletion.erased_at.is_some(), "step {step}");
    let events = store.events(Scope::Operator, conversation(), Seq(0), 10_000).await.expect("read");
    assert!(!format!("{events:?}").contains(SECRET), "step {step}");
    let records = events.iter().filter(|event| matches!(event.body, EventBody::Decided { .. })).count();
    assert_eq!((events.len(), records), (2 * TASKS as usize + 1, 1), "step {step}");
    assert_eq!(chain(&store).await, before, "step {step}");
}

#[tokio::test]
async fn process_that_dies_at_any_step_of_an_erasure_is_followed_by_one_that_finishes_it() {
    for step in 0..4 {
        for fault in [StoreFault::Hang, StoreFault::HangAfter] {
            dies_at(step, fault).await;
        }
    }
}

#[tokio::test]
async fn erasure_that_fails_stops_no_other_one_and_is_tried_again() {
    let store = MemoryStore::new();
    let ids = [1, 2].map(|n| ConversationId::from_uuid(Uuid::from_u128(n)));
    for id in ids {
        talked_in(&store, id, 1).await;
        delete(&store, id).await;
    }
    let steps = Arc::new(AtomicUsize::new(0));
    let hooked = store.with_hook(Arc::new(move |point| match point {
        StorePoint::Write("erase_step") if steps.fetch_add(1, SeqCst) == 0 => {
            StoreFault::Fail(StoreErrorKind::Internal)
        }
        _ => StoreFault::Pass,
    }));
    let chore = ErasureChore::chore(Arc::new(hooked.clone()), Arc::new(hooked), RULES);
    let erased = async || {
        let deletions = [store.deletion(ids[0]).await, store.deletion(ids[1]).await];
        deletions.map(|found| found.expect("read").expect("deleted").erased_at.is_some())
    };
    chore.pass(Micros(3)).await.expect("the others are erased");
    assert_eq!(erased().await, [false, true]);
    chore.pass(Micros(4)).await.expect("it is tried again");
    assert_eq!(erased().await, [true, true]);
}

#[tokio::test]
async fn conversation_that_is_restored_before_its_erasure_keeps_its_title() {
    let store = MemoryStore::new();
    let id = conversation();
    talked_in(&store, id, 1).await;
    let rename = |title: &str, n| {
        let intent = IntentId::from_uuid(Uuid::from_u128(n));
        titles::rename(UserId::local(), id, title.to_owned(), intent, Micros(2))
    };
    let title = async || {
        let found = store.find_documents(UserId::local(), &TITLES, titles::of(&[id])).await.expect("read");
        titles::read(&found[0].document).expect("a title").1
    };
    store.write_document(rename("first", 1)).await.expect("written");
    delete(&store, id).await;
    let hooked = store.with_hook(Arc::new(|point| match point {
        StorePoint::Write("erase_step") => StoreFault::Fail(StoreErrorKind::Unavailable),
        _ => StoreFault::Pass,
    }));
    let chore = ErasureChore::chore(Arc::new(hooked.clone()), Arc::new(hooked), RULES);
    chore.pass(Micros(3)).await.expect_err("the store is unavailable");
    assert_eq!(title().await, "first");
    assert_eq!(store.restore_conversation(id).await, Ok(true));
    store.write_document(rename("second", 2)).await.expect("written");
    delete(&store, id).await;
    let chore = ErasureChore::chore(Arc::new(store.clone()), Arc::new(store.clone()), RULES);
    chore.pass(Micros(4)).await.expect("erased");
    assert_eq!(title().await, annie_core::erasure::ERASED);
}
