//! The process dies at each step of an erasure, and the next one finishes it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use annie_actors::{ErasureChore, RetentionRules};
use annie_core::{
    audit::link,
    event::{EventBody, Inbound, NewEvent, Scope},
    ids::{AgentId, ConversationId, NodeIncarnation, Seq, TaskId, UserId},
    ports::{Append, DeleteConversation, Deleting, Deletions, Fence, Log},
    time::Micros,
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
    let (id, user, at) = (conversation(), UserId::local(), Micros(1));
    let append = |fence, events| Append { conversation: id, user: user.clone(), fence, events };
    let new = |n: u128, body| {
        let task = TaskId::from_uuid(Uuid::from_u128(100 + n));
        NewEvent { at, task, agent: AgentId::orchestrator(), body }
    };
    let received = |n: u128| {
        let text = format!("about a {SECRET}");
        EventBody::Received(Inbound { client_id: n.to_string(), text, source: "http".to_owned(), ..Inbound::default() })
    };
    let events = (0..TASKS).map(|n| new(n, received(n))).collect();
    store.commit(vec![append(Fence::Inbox, events)]).await.remove(0).expect("stored");
    let claim = store.claim(id, NodeIncarnation::from_uuid(Uuid::from_u128(9))).await;
    let epoch = claim.expect("the store works").expect("claimed").epoch;
    let events = (0..TASKS).map(|n| new(n, EventBody::answered(SECRET))).collect();
    store.commit(vec![append(Fence::Owner(epoch), events)]).await.remove(0).expect("stored");
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
    let request = DeleteConversation { conversation: conversation(), by, reason, at: Micros(2), erase_at: Micros(2) };
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
