//! Nodes and their leases, and claims that spare live owners. A lease of 0 ms has expired at the next check.

use std::{collections::BTreeSet, sync::Arc};

use annie_core::{
    ids::{Epoch, NodeId, Seq},
    ports::{AppendError, Claim, Claimed, OpenConversation, Renewal, Store},
};
use uuid::Uuid;

use crate::make::*;

/// Longer than any test runs.
const LONG_MS: u64 = 3_600_000;

fn id(n: u128) -> NodeId {
    NodeId::from_uuid(Uuid::from_u128(0x1d << 64 | n))
}

async fn register(store: &dyn Store, n: u128, lease_ms: u64) {
    store.register_node(id(n), node(n), lease_ms).await.unwrap();
}

async fn renew(store: &dyn Store, n: u128, lease_ms: u64, may_end_others: bool) -> Renewal {
    store.renew_node(node(n), lease_ms, may_end_others).await.unwrap()
}

async fn epoch_of(store: &dyn Store, n: u128) -> Epoch {
    store.conversation(of("ann"), conversation(n)).await.unwrap().unwrap().epoch
}

async fn is_claimed(store: &dyn Store, n: u128, by: u128) -> bool {
    match store.claim_free(conversation(n), node(by)).await.unwrap() {
        Claimed::Ours(claim) => {
            assert_eq!(claim.epoch, epoch_of(store, n).await);
            true
        }
        Claimed::Refused => false,
        Claimed::Unknown => panic!("the conversation exists"),
    }
}

async fn with_message(store: &dyn Store, n: u128) {
    let message = received(task(n), &n.to_string(), "x", i64::try_from(n).unwrap());
    commit(store, inbox(conversation(n), "ann", vec![message])).await.unwrap();
}

pub async fn node_holds_its_lease_as_long_as_it_renews_it(store: Arc<dyn Store>) {
    let store = &*store;
    assert_eq!(store.nodes().await.unwrap(), []);
    assert!(!renew(store, 1, LONG_MS, true).await.is_held, "the node is not registered");
    register(store, 1, LONG_MS).await;
    let first = store.nodes().await.unwrap().remove(0);
    assert_eq!((first.node, first.incarnation, first.ended_at), (id(1), node(1), None));
    assert_eq!(first.heartbeat_at, first.started_at);
    assert_eq!(first.expires_at.since_ms(first.heartbeat_at), LONG_MS);
    assert_eq!(renew(store, 1, 2 * LONG_MS, true).await, Renewal { is_held: true, ended: (0, None) });
    let second = store.nodes().await.unwrap().remove(0);
    assert_eq!((second.started_at, second.expires_at.since_ms(second.heartbeat_at)), (first.started_at, 2 * LONG_MS));
    assert!(second.heartbeat_at >= first.heartbeat_at);
    // Its lease has expired, but it was not declared dead: no other node has claimed its conversations.
    register(store, 2, 0).await;
    assert!(renew(store, 2, LONG_MS, false).await.is_held);
}

pub async fn expired_node_is_declared_dead_for_good_by_one_that_may(store: Arc<dyn Store>) {
    let store = &*store;
    for (n, lease_ms) in [(1, LONG_MS), (2, 0), (3, LONG_MS)] {
        register(store, n, lease_ms).await;
    }
    assert_eq!(renew(store, 1, LONG_MS, false).await, Renewal { is_held: true, ended: (0, None) });
    assert!(!renew(store, 4, LONG_MS, true).await.is_held);
    assert!(
        store.nodes().await.unwrap().iter().all(|row| row.ended_at.is_none()),
        "a node that is not registered ends no other node"
    );
    assert_eq!(
        renew(store, 1, 0, true).await,
        Renewal { is_held: true, ended: (0, None) },
        "the node did not renew for half a lease"
    );
    let renewal = renew(store, 1, LONG_MS, true).await;
    let rows = store.nodes().await.unwrap();
    assert_eq!(renewal, Renewal { is_held: true, ended: (1, rows[1].ended_at) });
    assert_eq!(rows.iter().map(|row| row.ended_at.is_some()).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(renew(store, 3, LONG_MS, false).await, renewal, "every node learns of it");
    assert!(!renew(store, 2, LONG_MS, true).await.is_held);
    assert_eq!(store.nodes().await.unwrap()[1], rows[1], "a dead node's row does not change");
    register(store, 2, LONG_MS).await;
    assert!(!store.renew_node(node(9), LONG_MS, true).await.unwrap().is_held);
}

pub async fn new_incarnation_replaces_the_previous_one(store: Arc<dyn Store>) {
    let store = &*store;
    register(store, 1, LONG_MS).await;
    with_message(store, 1).await;
    assert!(is_claimed(store, 1, 1).await);
    store.register_node(id(1), node(2), LONG_MS).await.unwrap();
    assert_eq!(store.nodes().await.unwrap().len(), 1);
    assert!(!renew(store, 1, LONG_MS, true).await.is_held);
    assert!(renew(store, 2, LONG_MS, true).await.is_held);
    assert!(is_claimed(store, 1, 2).await);
}

pub async fn node_that_leaves_is_dead_at_once(store: Arc<dyn Store>) {
    let store = &*store;
    for n in [1, 2] {
        register(store, n, LONG_MS).await;
    }
    with_message(store, 1).await;
    assert!(is_claimed(store, 1, 1).await);
    store.end_node(node(1)).await.unwrap();
    let ended_at = store.nodes().await.unwrap()[0].ended_at;
    store.end_node(node(1)).await.unwrap();
    assert_eq!(renew(store, 2, LONG_MS, true).await, Renewal { is_held: true, ended: (1, ended_at) });
    assert!(ended_at.is_some() && !renew(store, 1, LONG_MS, true).await.is_held);
    assert!(is_claimed(store, 1, 2).await);
}

pub async fn claim_that_spares_live_owners_takes_no_conversation_of_a_live_node(store: Arc<dyn Store>) {
    let store = &*store;
    assert_eq!(store.claim_free(conversation(1), node(1)).await.unwrap(), Claimed::Unknown);
    for (n, lease_ms) in [(1, LONG_MS), (2, LONG_MS), (3, 0)] {
        register(store, n, lease_ms).await;
    }
    with_message(store, 1).await;
    let first = store.claim_free(conversation(1), node(1)).await.unwrap();
    assert_eq!(first, Claimed::Ours(Claim { epoch: Epoch(1), last: Seq(1) }), "it had no owner");
    assert!(is_claimed(store, 1, 1).await, "its own");
    assert!(!is_claimed(store, 1, 2).await, "its owner is alive");
    assert_eq!(epoch_of(store, 1).await, Epoch(2));
    assert!(commit(store, owned(conversation(1), "ann", Epoch(2), vec![started(task(1), 2)])).await.is_ok());
    // The other kind of claim ignores the present owner.
    assert_eq!(store.claim(conversation(1), node(3)).await.unwrap().map(|claim| claim.epoch), Some(Epoch(3)));
    assert!(!is_claimed(store, 1, 2).await, "an expired lease alone does not end its node");
    renew(store, 2, LONG_MS, true).await;
    assert!(is_claimed(store, 1, 2).await, "its owner is dead");
    assert!(!is_claimed(store, 1, 3).await, "a dead node claims nothing from another owner");
    let stale = owned(conversation(1), "ann", Epoch(3), vec![answered(task(1), "stale", 3)]);
    assert_eq!(commit(store, stale).await, Err(AppendError::Fenced));
    store.claim(conversation(1), node(77)).await.unwrap();
    assert!(!is_claimed(store, 1, 3).await, "a dead node claims nothing even from an unregistered owner");
    assert!(is_claimed(store, 1, 2).await);
}

pub async fn racing_claims_that_spare_live_owners_have_one_winner(store: Arc<dyn Store>) {
    with_message(&*store, 1).await;
    for n in 0..16 {
        register(&*store, n, LONG_MS).await;
    }
    let mut claims = tokio::task::JoinSet::new();
    for n in 0..16 {
        let store = Arc::clone(&store);
        claims.spawn(async move { store.claim_free(conversation(1), node(n)).await.unwrap() });
    }
    let claims = claims.join_all().await;
    assert_eq!(claims.iter().filter(|claim| matches!(claim, Claimed::Ours(_))).count(), 1, "{claims:?}");
    assert_eq!(epoch_of(&*store, 1).await, Epoch(1));
}

pub async fn open_work_is_listed_for_its_owner_and_for_all_nodes_if_the_owner_is_dead(store: Arc<dyn Store>) {
    let store = &*store;
    for (n, lease_ms) in [(1, LONG_MS), (2, LONG_MS), (3, 0)] {
        register(store, n, lease_ms).await;
    }
    for n in 1..=6 {
        with_message(store, n).await;
    }
    for (conversation, by) in [(2, 1), (3, 2), (4, 3), (5, 1), (6, 99)] {
        assert!(is_claimed(store, conversation, by).await);
    }
    let ended = owned(conversation(5), "ann", Epoch(1), vec![started(task(5), 9), answered(task(5), "done", 9)]);
    commit(store, ended).await.unwrap();
    let more = [received(task(14), "14", "x", 14), received(task(24), "24", "x", 24)];
    commit(store, inbox(conversation(4), "ann", more.into())).await.unwrap();
    for c in [3, 4] {
        commit(store, owned(conversation(c), "ann", Epoch(1), vec![started(task(c), 30)])).await.unwrap();
    }
    let open = async |n| {
        let open = store.open_for(node(n), true).await.unwrap();
        let is_as_expected = |one: &OpenConversation| {
            // In conversation 4 two messages wait behind one that is under way, and in conversation 3 none.
            let (last, waiting) = match one.id.uuid().as_u128() & 0xff {
                4 => (Seq(4), Some(Seq(3))),
                3 => (Seq(2), None),
                _ => (Seq(1), Some(Seq(1))),
            };
            (one.last, one.waiting) == (last, waiting)
        };
        assert!(open.iter().all(|one| one.user == user("ann") && is_as_expected(one)), "{open:?}");
        open.into_iter().map(|one| (one.id, one.owner)).collect::<Vec<_>>()
    };
    let without_owner = (conversation(1), None);
    let of = |c, n| (conversation(c), Some(node(n)));
    assert_eq!(open(1).await, [without_owner, of(2, 1), of(6, 99)]);
    assert_eq!(open(2).await, [without_owner, of(3, 2), of(6, 99)]);
    renew(store, 2, LONG_MS, true).await;
    assert_eq!(open(1).await, [without_owner, of(2, 1), of(4, 3), of(6, 99)]);
    let all: BTreeSet<_> = open(7).await.into_iter().map(|(id, _)| id).collect();
    assert_eq!(all, [1, 4, 6].map(conversation).into());
}
