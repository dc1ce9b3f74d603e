//! Long-running operations, and secrets.

use std::sync::Arc;

use annie_core::{
    event::{NewEvent, Scope},
    outcome::Outcome,
    ports::{AppendError, OperationRow, Store},
    time::Micros,
};

use crate::make::*;

const FAR: Micros = Micros(i64::MAX);

/// Stores a run of Ann's in a conversation of its own that continues elsewhere.
async fn store_operation(store: &dyn Store, n: u128, expires_at: i64, at: i64) {
    opened(store, conversation(n), "ann", task(n), 1).await;
    append_events(store, n, vec![pending(n, expires_at, at)]).await;
}

/// Appends events to the conversation with this number.
async fn append_events(store: &dyn Store, n: u128, events: Vec<NewEvent>) {
    commit(store, inbox(conversation(n), "ann", events)).await.unwrap();
}

async fn row(store: &dyn Store, n: u128) -> Option<OperationRow> {
    store.operation(Scope::Operator, operation(n)).await.unwrap()
}

pub async fn pending_outcome_opens_an_operation(store: Arc<dyn Store>) {
    store_operation(&*store, 1, 90, 10).await;
    let wanted = OperationRow {
        id: operation(1),
        user: user("ann"),
        conversation: conversation(1),
        task: task(1),
        intent: intent(1),
        skill: "mail.send".into(),
        opened_at: Micros(10),
        expires_at: Micros(90),
        closed_by: None,
        closed_at: None,
    };
    assert_eq!(row(&*store, 1).await, Some(wanted));
    append_events(&*store, 1, vec![run_finished(task(1), intent(2), Outcome::success("sent"), 11)]).await;
    assert_eq!(store.operations(Scope::Operator, false, FAR.into(), 9).await.unwrap().len(), 1);
}

pub async fn operation_is_opened_once_and_closed_once(store: Arc<dyn Store>) {
    append_events(&*store, 1, vec![resumes(task(10), operation(1), 1)]).await;
    store_operation(&*store, 1, 90, 10).await;
    let open = row(&*store, 1).await;
    append_events(&*store, 1, vec![pending(1, 99, 11)]).await;
    assert_eq!(row(&*store, 1).await, open, "an earlier result does not close it");
    append_events(&*store, 1, vec![resumes(task(11), operation(1), 12), resumes(task(12), operation(1), 13)]).await;
    let closed = OperationRow { closed_by: Some(task(11)), closed_at: Some(Micros(12)), ..open.unwrap() };
    assert_eq!(row(&*store, 1).await.as_ref(), Some(&closed));
    append_events(&*store, 1, vec![resumes(task(13), operation(1), 14), pending(1, 99, 15)]).await;
    assert_eq!(row(&*store, 1).await, Some(closed));
}

pub async fn operations_are_closed_only_by_events_of_their_conversation(store: Arc<dyn Store>) {
    store_operation(&*store, 1, 90, 10).await;
    commit(&*store, inbox(conversation(2), "bob", vec![resumes(task(2), operation(1), 11)])).await.unwrap();
    assert_eq!(row(&*store, 1).await.unwrap().closed_by, None);
}

pub async fn operations_are_listed_newest_first(store: Arc<dyn Store>) {
    for n in 1..=4 {
        store_operation(&*store, n, 90, 10 * n as i64).await;
    }
    append_events(&*store, 3, vec![resumes(task(30), operation(3), 50)]).await;
    for scope in [of("ann"), Scope::Operator] {
        let page = async |open, before, limit| -> Vec<_> {
            let rows = store.operations(scope.clone(), open, Micros(before).into(), limit).await.unwrap();
            rows.into_iter().map(|row| row.id).collect()
        };
        assert_eq!(page(false, i64::MAX, 2).await, [4, 3].map(operation));
        assert_eq!(page(false, 30, 9).await, [2, 1].map(operation));
        assert_eq!(page(true, i64::MAX, 9).await, [4, 2, 1].map(operation));
    }
}

pub async fn expiring_operations_are_the_open_ones_in_order_of_expiry(store: Arc<dyn Store>) {
    for (n, expires_at) in [(1, 80), (2, 70), (3, 60), (4, 90)] {
        store_operation(&*store, n, expires_at, 10).await;
    }
    append_events(&*store, 3, vec![resumes(task(30), operation(3), 50)]).await;
    let expiring = async |until, limit| -> Vec<_> {
        let rows = store.expiring_operations(Micros(until), limit).await.unwrap();
        rows.into_iter().map(|row| row.id).collect()
    };
    assert_eq!(expiring(80, 9).await, [2, 1].map(operation));
    assert_eq!(expiring(i64::MAX, 2).await, [2, 1].map(operation));
    assert_eq!(expiring(69, 9).await, []);
}

pub async fn operations_are_hidden_from_other_users(store: Arc<dyn Store>) {
    store_operation(&*store, 1, 90, 10).await;
    for (scope, seen) in [(of("bob"), 0), (of("Ann"), 0), (of("ann"), 1), (Scope::Operator, 1)] {
        let found = [
            store.operation(scope.clone(), operation(1)).await.unwrap().iter().count(),
            store.operations(scope.clone(), false, FAR.into(), 9).await.unwrap().len(),
            store.operations(scope, true, FAR.into(), 9).await.unwrap().len(),
        ];
        assert_eq!(found, [seen; 3]);
    }
}

pub async fn repeated_operation_result_is_a_duplicate(store: Arc<dyn Store>) {
    store_operation(&*store, 1, 90, 10).await;
    let result = || inbox(conversation(1), "ann", vec![resumes(task(2), operation(1), 11)]);
    commit(&*store, result()).await.unwrap();
    let again = commit(&*store, result()).await;
    assert!(matches!(again, Err(AppendError::Duplicate { same: true, .. })), "{again:?}");
}

pub async fn operations_are_the_same_after_a_rebuild(store: Arc<dyn Store>) {
    for n in 1..=4 {
        append_events(&*store, n, vec![resumes(task(10 + n), operation(n), 1)]).await;
        store_operation(&*store, n, 90, 10).await;
    }
    append_events(&*store, 2, vec![resumes(task(20), operation(2), 11)]).await;
    append_events(&*store, 2, vec![resumes(task(21), operation(2), 12), pending(2, 99, 13)]).await;
    append_events(&*store, 3, vec![resumes(task(30), operation(4), 11)]).await;
    let before = store.operations(Scope::Operator, false, FAR.into(), 99).await.unwrap();
    assert_eq!(before.iter().filter(|row| row.closed_by.is_some()).count(), 1);
    store.rebuild().await.unwrap();
    assert_eq!(store.operations(Scope::Operator, false, FAR.into(), 99).await.unwrap(), before);
}

pub async fn secret_is_created_once_for_each_name(store: Arc<dyn Store>) {
    assert_eq!(store.known_secret("operations").await.unwrap(), None);
    assert_eq!(store.known_secret("operations").await.unwrap(), None, "a read stores nothing");
    assert_eq!(store.secret("operations", [1; 32]).await.unwrap(), [1; 32]);
    assert_eq!(store.known_secret("operations").await.unwrap(), Some([1; 32]));
    assert_eq!(store.secret("operations", [2; 32]).await.unwrap(), [1; 32]);
    assert_eq!(store.secret("other", [3; 32]).await.unwrap(), [3; 32]);
    store.rebuild().await.unwrap();
    assert_eq!(store.secret("operations", [4; 32]).await.unwrap(), [1; 32]);
}
