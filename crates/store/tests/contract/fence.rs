//! Ownership of a conversation.

use std::{collections::BTreeSet, sync::Arc};

use annie_core::{
    event::Scope,
    ids::{Epoch, Seq},
    ports::{Append, AppendError, Appended, Claim, Fence, Snapshot, Store},
};

use crate::make::*;

pub async fn conversation_has_no_owner_before_it_is_claimed(store: Arc<dyn Store>) {
    let c = conversation(1);
    assert_eq!(store.claim(c, node(1)).await.unwrap(), None);
    let early = commit(&*store, owned(c, "ann", Epoch(0), vec![started(task(1), 1)])).await;
    assert_eq!(early, Err(AppendError::Fenced));
    commit(&*store, inbox(c, "ann", vec![received(task(1), "a", "x", 1)])).await.unwrap();
    assert_eq!(store.conversation(of("ann"), c).await.unwrap().unwrap().epoch, Epoch(0));
    let early = commit(&*store, owned(c, "ann", Epoch(1), vec![started(task(1), 1)])).await;
    assert_eq!(early, Err(AppendError::Fenced));
}

pub async fn claim_raises_the_epoch_and_returns_the_last_sequence_number(store: Arc<dyn Store>) {
    let c = conversation(1);
    let two = vec![received(task(1), "a", "x", 1), received(task(2), "b", "x", 1)];
    commit(&*store, inbox(c, "ann", two)).await.unwrap();
    assert_eq!(store.claim(c, node(1)).await.unwrap(), Some(Claim { epoch: Epoch(1), last: Seq(2) }));
    assert!(commit(&*store, owned(c, "ann", Epoch(1), vec![started(task(1), 2)])).await.is_ok());
    assert_eq!(store.claim(c, node(2)).await.unwrap(), Some(Claim { epoch: Epoch(2), last: Seq(3) }));
    let row = store.conversation(of("ann"), c).await.unwrap().unwrap();
    assert_eq!((row.epoch, row.owner), (Epoch(2), Some(node(2))));
    let listed = store.conversations(of("ann"), annie_core::time::Micros(i64::MAX).into(), 9).await.unwrap();
    assert_eq!(listed, [row]);
}

pub async fn earlier_owner_is_fenced_and_writes_nothing(store: Arc<dyn Store>) {
    let c = conversation(1);
    let old = opened(&*store, c, "ann", task(1), 1).await;
    let new = store.claim(c, node(2)).await.unwrap().unwrap().epoch;
    let stale = owned(c, "ann", old, vec![started(task(1), 2), answered(task(1), "stale", 3)]);
    assert_eq!(commit(&*store, stale).await, Err(AppendError::Fenced));
    assert_eq!(length(&*store, c).await, 1);
    assert!(!store.task(of("ann"), task(1)).await.unwrap().unwrap().state.is_ended());
    assert!(commit(&*store, owned(c, "ann", new, vec![answered(task(1), "fresh", 3)])).await.is_ok());
    let future = owned(c, "ann", Epoch(new.0 + 1), vec![started(task(1), 2)]);
    assert_eq!(commit(&*store, future).await, Err(AppendError::Fenced));
}

pub async fn front_end_may_append_regardless_of_the_owner(store: Arc<dyn Store>) {
    let c = conversation(1);
    let epoch = opened(&*store, c, "ann", task(1), 1).await;
    commit(&*store, inbox(c, "ann", vec![received(task(2), "b", "x", 2)])).await.unwrap();
    assert!(commit(&*store, owned(c, "ann", epoch, vec![started(task(1), 3)])).await.is_ok());
}

pub async fn opening_append_owns_the_conversation_that_it_creates_and_no_other(store: Arc<dyn Store>) {
    let opening = |c, n, by| Append {
        fence: Fence::Opening(node(by)),
        ..inbox(conversation(c), "ann", vec![received(task(n), &format!("c{n}"), "x", 1)])
    };
    // The second append of the batch, and a later one of another node, come into a conversation that exists.
    let answers = store.commit(vec![opening(1, 1, 1), opening(1, 2, 2)]).await;
    assert_eq!(answers, [1, 2].map(|seq| Ok(Appended { first: Seq(seq) })));
    assert_eq!(commit(&*store, opening(1, 3, 2)).await, Ok(Appended { first: Seq(3) }));
    let row = store.conversation(of("ann"), conversation(1)).await.unwrap().unwrap();
    assert_eq!((row.epoch, row.owner), (Epoch::FIRST, Some(node(1))));
    let events = vec![started(task(1), 2)];
    assert!(commit(&*store, owned(conversation(1), "ann", Epoch::FIRST, events)).await.is_ok());
    // A claim fences the opener like every owner.
    let claim = store.claim(conversation(1), node(2)).await.unwrap().unwrap();
    assert_eq!(claim, Claim { epoch: Epoch(2), last: Seq(4) });
    let late = owned(conversation(1), "ann", Epoch::FIRST, vec![started(task(2), 3)]);
    assert_eq!(commit(&*store, late).await, Err(AppendError::Fenced));
    // A conversation that has no owner gets none from a later opening.
    commit(&*store, inbox(conversation(2), "ann", vec![received(task(4), "d", "x", 1)])).await.unwrap();
    commit(&*store, opening(2, 5, 1)).await.unwrap();
    let row = store.conversation(of("ann"), conversation(2)).await.unwrap().unwrap();
    assert_eq!((row.epoch, row.owner), (Epoch(0), None));
}

pub async fn snapshot_is_stored_only_for_the_current_owner(store: Arc<dyn Store>) {
    let c = conversation(1);
    let old = opened(&*store, c, "ann", task(1), 1).await;
    let shot = |seq, state: &str| Snapshot { seq: Seq(seq), v: 3, state: state.to_owned() };
    assert_eq!(store.snapshot(c).await.unwrap(), None);
    store.put_snapshot(c, old, shot(1, "{\"b\":1,\"a\":2}")).await.unwrap();
    assert_eq!(store.snapshot(c).await.unwrap(), Some(shot(1, "{\"b\":1,\"a\":2}")));
    let new = store.claim(c, node(2)).await.unwrap().unwrap().epoch;
    store.put_snapshot(c, old, shot(9, "stale")).await.unwrap();
    assert_eq!(store.snapshot(c).await.unwrap().unwrap().seq, Seq(1));
    store.put_snapshot(c, new, shot(5, "new")).await.unwrap();
    store.put_snapshot(c, new, shot(4, "older")).await.unwrap();
    assert_eq!(store.snapshot(c).await.unwrap(), Some(shot(5, "new")));
    store.put_snapshot(conversation(2), new, shot(1, "nowhere")).await.unwrap();
    assert_eq!(store.snapshot(conversation(2)).await.unwrap(), None);
}

pub async fn racing_claims_get_different_epochs(store: Arc<dyn Store>) {
    let c = conversation(1);
    commit(&*store, inbox(c, "ann", vec![received(task(1), "a", "x", 1)])).await.unwrap();
    let mut claims = tokio::task::JoinSet::new();
    for n in 0..16 {
        let store = Arc::clone(&store);
        claims.spawn(async move { store.claim(c, node(n)).await.unwrap().unwrap().epoch });
    }
    let epochs: BTreeSet<Epoch> = claims.join_all().await.into_iter().collect();
    assert_eq!(epochs, (1..=16).map(Epoch).collect());
    assert_eq!(store.conversation(Scope::Operator, c).await.unwrap().unwrap().epoch, Epoch(16));
}
