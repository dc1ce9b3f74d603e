//! Dead letters.

use std::sync::Arc;

use annie_core::{
    dead_letter::DeadLetterState,
    event::{Priority, Scope},
    ports::{Before, DeadLetterFilter, DeadLetterRow, DeadLettersWaiting, Store},
    time::Micros,
};

use crate::make::*;

const FAR: Micros = Micros(i64::MAX);

/// Stores a task of Ann's in a conversation of its own that failed and became a dead letter.
async fn store_dead_letter(store: &dyn Store, n: u128, since: i64, retry_at: Option<i64>, at: i64) {
    let epoch = opened(store, conversation(n), "ann", task(n), 1).await;
    commit(store, owned(conversation(n), "ann", epoch, vec![died(task(n), dead_letter(since, retry_at), at)]))
        .await
        .unwrap();
}

/// Appends events to the conversation with this number.
async fn append_events(store: &dyn Store, n: u128, events: Vec<annie_core::event::NewEvent>) {
    commit(store, inbox(conversation(n), "ann", events)).await.unwrap();
}

async fn row(store: &dyn Store, n: u128) -> Option<DeadLetterRow> {
    store.dead_letter(Scope::Operator, task(n)).await.unwrap()
}

async fn state(store: &dyn Store, n: u128) -> Option<DeadLetterState> {
    row(store, n).await.map(|row| row.state)
}

pub async fn failure_with_a_dead_letter_is_stored_as_one(store: Arc<dyn Store>) {
    let epoch = opened(&*store, conversation(1), "ann", task(1), 1).await;
    let events = vec![reprioritised(task(1), Priority::Low, 2), died(task(1), dead_letter(5, Some(60)), 6)];
    commit(&*store, owned(conversation(1), "ann", epoch, events)).await.unwrap();
    let wanted = DeadLetterRow {
        task: task(1),
        user: user("ann"),
        conversation: conversation(1),
        title: "Hello there".into(),
        priority: Priority::Low,
        code: "model_unavailable".into(),
        text: "Sorry.".into(),
        detail: "refused".into(),
        dead_letter: dead_letter(5, Some(60)),
        state: DeadLetterState::Waiting,
        retried_by: None,
        failed_at: Micros(6),
        changed_at: Micros(6),
    };
    assert_eq!(row(&*store, 1).await, Some(wanted));
    assert_eq!(row(&*store, 2).await, None);
    let epoch = opened(&*store, conversation(2), "ann", task(2), 1).await;
    commit(&*store, owned(conversation(2), "ann", epoch, vec![failed(task(2), "x", 2)])).await.unwrap();
    assert_eq!(row(&*store, 2).await, None, "a failure without a dead letter is not kept");
}

pub async fn task_has_one_dead_letter_and_only_if_its_failure_ended_it(store: Arc<dyn Store>) {
    store_dead_letter(&*store, 1, 5, None, 6).await;
    let first = row(&*store, 1).await;
    append_events(&*store, 1, vec![died(task(1), dead_letter(7, Some(70)), 8)]).await;
    assert_eq!(row(&*store, 1).await, first);
    for (n, end) in [(2, answered(task(2), "x", 2)), (3, failed(task(3), "x", 2))] {
        opened(&*store, conversation(n), "ann", task(n), 1).await;
        append_events(&*store, n, vec![end]).await;
        append_events(&*store, n, vec![died(task(n), dead_letter(2, None), 2)]).await;
        assert_eq!(row(&*store, n).await, None);
    }
    opened(&*store, conversation(4), "ann", task(4), 1).await;
    append_events(&*store, 4, vec![cancelled(task(4), 2), died(task(4), dead_letter(2, None), 2)]).await;
    assert_eq!(row(&*store, 4).await, None);
    append_events(&*store, 5, vec![received_as(task(5), 1, |_| {}), died(task(5), dead_letter(2, None), 2)]).await;
    append_events(&*store, 6, vec![died(task(6), dead_letter(2, None), 2), died(task(5), dead_letter(2, None), 2)])
        .await;
    assert_eq!(row(&*store, 5).await.unwrap().conversation, conversation(5));
    assert_eq!(row(&*store, 6).await, None, "the task does not exist");
}

pub async fn dead_letter_moves_once_and_only_while_it_is_waiting(store: Arc<dyn Store>) {
    append_events(&*store, 1, vec![dead_letter_moved(task(1), DeadLetterState::Discarded, 1)]).await;
    store_dead_letter(&*store, 1, 5, None, 6).await;
    assert_eq!(state(&*store, 1).await, Some(DeadLetterState::Waiting));
    append_events(&*store, 1, vec![dead_letter_moved(task(1), DeadLetterState::Discarded, 7)]).await;
    let moved = row(&*store, 1).await.unwrap();
    assert_eq!((moved.state, moved.changed_at, moved.failed_at), (DeadLetterState::Discarded, Micros(7), Micros(6)));
    append_events(
        &*store,
        1,
        vec![dead_letter_moved(task(1), DeadLetterState::Archived, 8), retries(task(9), task(1), 9)],
    )
    .await;
    assert_eq!(row(&*store, 1).await, Some(moved));
    store_dead_letter(&*store, 2, 5, None, 6).await;
    let both = vec![
        dead_letter_moved(task(2), DeadLetterState::Archived, 7),
        dead_letter_moved(task(2), DeadLetterState::Discarded, 8),
    ];
    append_events(&*store, 2, both).await;
    assert_eq!(state(&*store, 2).await, Some(DeadLetterState::Archived));
    let early_and_late = vec![
        received_as(task(3), 1, |_| {}),
        dead_letter_moved(task(3), DeadLetterState::Discarded, 2),
        died(task(3), dead_letter(3, None), 3),
        dead_letter_moved(task(3), DeadLetterState::Archived, 4),
    ];
    append_events(&*store, 3, early_and_late).await;
    assert_eq!(
        state(&*store, 3).await,
        Some(DeadLetterState::Archived),
        "a move before the dead letter does not apply to it"
    );
}

pub async fn dead_letter_is_taken_by_a_retry_and_names_the_retrying_task(store: Arc<dyn Store>) {
    store_dead_letter(&*store, 1, 5, Some(60), 6).await;
    append_events(&*store, 1, vec![retries(task(2), task(1), 60)]).await;
    let moved = row(&*store, 1).await.unwrap();
    let wanted = (DeadLetterState::Retried, Some(task(2)), Micros(60));
    assert_eq!((moved.state, moved.retried_by, moved.changed_at), wanted);
    append_events(&*store, 1, vec![retries(task(3), task(1), 61)]).await;
    assert_eq!(row(&*store, 1).await.unwrap().retried_by, Some(task(2)));
    append_events(&*store, 1, vec![died(task(2), dead_letter(5, None), 62)]).await;
    assert_eq!(state(&*store, 2).await, Some(DeadLetterState::Waiting), "the retry has a dead letter of its own");
}

pub async fn dead_letter_made_due_is_listed_as_due_and_not_among_the_others(store: Arc<dyn Store>) {
    for n in 1..=3 {
        store_dead_letter(&*store, n, 5, [None, Some(60), Some(70)][n as usize - 1], 10 * n as i64).await;
    }
    let not_due = async |at| -> Vec<_> {
        let filter =
            DeadLetterFilter { not_due_at: Some(Micros(at)), ..DeadLetterFilter::in_state(DeadLetterState::Waiting) };
        let count = store.count_dead_letters(of("ann"), filter.clone()).await.unwrap();
        let rows = store.dead_letters(of("ann"), filter, FAR.into(), 9).await.unwrap();
        assert_eq!(count, rows.len() as u64, "at {at}");
        rows.into_iter().map(|row| row.task).collect()
    };
    assert_eq!(not_due(59).await, [3, 2, 1].map(task));
    assert_eq!(not_due(60).await, [3, 1].map(task), "dead letter 2 is due at 60");
    append_events(&*store, 1, vec![dead_letter_due(task(1), 50)]).await;
    // An event of another conversation does not apply to this dead letter.
    append_events(&*store, 2, vec![dead_letter_due(task(3), 50)]).await;
    let due = row(&*store, 1).await.unwrap();
    assert_eq!(
        (due.state, due.dead_letter.retry_at, due.changed_at),
        (DeadLetterState::Waiting, Some(Micros(50)), Micros(10))
    );
    assert_eq!(not_due(50).await, [3, 2].map(task));
    let rows = store.due_dead_letters(Micros(50), Micros(0), 9).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.task).collect::<Vec<_>>(), [task(1)]);
    store.rebuild().await.unwrap();
    assert_eq!(row(&*store, 1).await, Some(due), "a rebuild gives the same");
}

pub async fn dead_letter_made_due_in_the_batch_that_puts_or_moves_it_keeps_the_last_time(store: Arc<dyn Store>) {
    let epoch = opened(&*store, conversation(1), "ann", task(1), 1).await;
    let events = vec![
        dead_letter_due(task(1), 2),
        died(task(1), dead_letter(5, Some(60)), 6),
        dead_letter_due(task(1), 8),
        dead_letter_due(task(1), 7),
        dead_letter_moved(task(1), DeadLetterState::Discarded, 9),
    ];
    commit(&*store, owned(conversation(1), "ann", epoch, events)).await.unwrap();
    let moved = row(&*store, 1).await.unwrap();
    assert_eq!((moved.state, moved.dead_letter.retry_at), (DeadLetterState::Discarded, Some(Micros(7))));
    store_dead_letter(&*store, 2, 5, None, 6).await;
    append_events(
        &*store,
        2,
        vec![dead_letter_moved(task(2), DeadLetterState::Archived, 7), dead_letter_due(task(2), 8)],
    )
    .await;
    let archived = row(&*store, 2).await.unwrap();
    assert_eq!((archived.state, archived.dead_letter.retry_at), (DeadLetterState::Archived, Some(Micros(8))));
    store.rebuild().await.unwrap();
    assert_eq!([row(&*store, 1).await, row(&*store, 2).await], [Some(moved), Some(archived)]);
}

pub async fn pages_of_one_row_list_rows_of_one_instant_once_each(store: Arc<dyn Store>) {
    for n in [3, 1, 4, 2] {
        store_dead_letter(&*store, n, 5, None, 10).await;
        append_events(&*store, n, vec![pending(n, 90, 10)]).await;
    }
    for scope in [of("ann"), Scope::Operator] {
        let (mut dead_letters, mut tasks, mut conversations, mut operations) = (vec![], vec![], vec![], vec![]);
        let mut before = Before::NEWEST;
        while let Some(row) =
            store.dead_letters(scope.clone(), DeadLetterFilter::default(), before, 1).await.unwrap().pop()
        {
            dead_letters.push(row.task);
            before = row.page_start();
        }
        let mut before = Before::NEWEST;
        while let Some(row) = store.tasks(scope.clone(), false, before, 1).await.unwrap().pop() {
            tasks.push(row.id);
            before = row.page_start();
        }
        for is_listed in [false, true] {
            let mut before = Before::NEWEST;
            loop {
                let rows = match is_listed {
                    true => store.listed_conversations(scope.clone(), before, 1).await.unwrap(),
                    false => store.conversations(scope.clone(), before, 1).await.unwrap(),
                };
                let Some(row) = rows.first() else { break };
                conversations.push(row.id);
                before = row.page_start();
            }
        }
        let mut before = Before::NEWEST;
        while let Some(row) = store.operations(scope.clone(), false, before, 1).await.unwrap().pop() {
            operations.push(row.task);
            before = row.page_start();
        }
        assert_eq!(dead_letters, [4, 3, 2, 1].map(task));
        assert_eq!(tasks, [4, 3, 2, 1].map(task));
        assert_eq!(conversations, [4, 3, 2, 1, 4, 3, 2, 1].map(conversation));
        operations.sort();
        assert_eq!(operations, [1, 2, 3, 4].map(task), "their order is that of their ids");
    }
    let open = store.tasks(Scope::Operator, true, Before::NEWEST, 9).await.unwrap();
    assert_eq!(open, [], "all have failed");
}

pub async fn dead_letters_are_moved_only_by_events_of_their_conversation(store: Arc<dyn Store>) {
    store_dead_letter(&*store, 1, 5, None, 6).await;
    let foreign = vec![dead_letter_moved(task(1), DeadLetterState::Discarded, 7), retries(task(2), task(1), 8)];
    commit(&*store, inbox(conversation(2), "bob", foreign)).await.unwrap();
    assert_eq!(state(&*store, 1).await, Some(DeadLetterState::Waiting));
}

pub async fn dead_letters_are_listed_newest_first_by_state(store: Arc<dyn Store>) {
    for n in 1..=4 {
        store_dead_letter(&*store, n, 5, None, 10 * n as i64).await;
    }
    append_events(&*store, 2, vec![dead_letter_moved(task(2), DeadLetterState::Discarded, 100)]).await;
    for scope in [of("ann"), Scope::Operator] {
        let page = async |state, before, limit| -> Vec<_> {
            let filter = DeadLetterFilter { state, ..DeadLetterFilter::default() };
            let rows = store.dead_letters(scope.clone(), filter, Micros(before).into(), limit).await.unwrap();
            rows.into_iter().map(|row| row.task).collect()
        };
        assert_eq!(page(None, i64::MAX, 2).await, [4, 3].map(task));
        assert_eq!(page(None, 30, 9).await, [2, 1].map(task));
        assert_eq!(page(Some(DeadLetterState::Waiting), i64::MAX, 9).await, [4, 3, 1].map(task));
        assert_eq!(page(Some(DeadLetterState::Discarded), i64::MAX, 9).await, [task(2)]);
        assert_eq!(page(Some(DeadLetterState::Retried), i64::MAX, 9).await, []);
    }
}

pub async fn dead_letters_are_filtered_and_counted_by_error_class_and_age(store: Arc<dyn Store>) {
    for n in 1..=4 {
        store_dead_letter(&*store, n, 5, None, 10 * n as i64).await;
    }
    let epoch = opened(&*store, conversation(5), "ann", task(5), 1).await;
    let code = annie_core::event::EventBody::Failed {
        code: "model_overflow".into(),
        text: "Too long.".into(),
        detail: String::new(),
        dead_letter: Some(dead_letter(5, None)),
    };
    let events = vec![reprioritised(task(5), Priority::Low, 2), event(task(5), 50, code)];
    commit(&*store, owned(conversation(5), "ann", epoch, events)).await.unwrap();
    append_events(&*store, 2, vec![dead_letter_moved(task(2), DeadLetterState::Discarded, 100)]).await;
    let class = row(&*store, 1).await.unwrap().priority;
    let all = DeadLetterFilter::default();
    for (filter, wanted) in [
        (all.clone(), vec![5, 4, 3, 2, 1]),
        (DeadLetterFilter { code: Some("model_overflow".into()), ..all.clone() }, vec![5]),
        (DeadLetterFilter { code: Some("overflow".into()), ..all.clone() }, vec![]),
        (DeadLetterFilter { class: Some(Priority::Low), ..all.clone() }, vec![5]),
        (
            DeadLetterFilter { class: Some(class), ..DeadLetterFilter::in_state(DeadLetterState::Waiting) },
            vec![4, 3, 1],
        ),
        (
            DeadLetterFilter { failed_from: Some(Micros(20)), failed_before: Some(Micros(40)), ..all.clone() },
            vec![3, 2],
        ),
        (
            DeadLetterFilter {
                failed_before: Some(Micros(20)),
                ..DeadLetterFilter::in_state(DeadLetterState::Waiting)
            },
            vec![1],
        ),
    ] {
        for (scope, is_seen) in [(of("ann"), true), (Scope::Operator, true), (of("bob"), false)] {
            let wanted: Vec<_> = wanted.iter().filter(|_| is_seen).map(|n| task(*n)).collect();
            let rows = store.dead_letters(scope.clone(), filter.clone(), FAR.into(), 9).await.unwrap();
            assert_eq!(rows.iter().map(|row| row.task).collect::<Vec<_>>(), wanted, "{filter:?}");
            let count = store.count_dead_letters(scope, filter.clone()).await.unwrap();
            assert_eq!(count, wanted.len() as u64, "{filter:?}");
        }
    }
}

pub async fn due_dead_letters_are_those_to_retry_and_those_to_archive(store: Arc<dyn Store>) {
    for (n, since, retry_at) in
        [(1, 50, Some(100)), (2, 40, Some(101)), (3, 10, None), (4, 11, None), (5, 5, Some(90)), (6, 1, Some(1))]
    {
        store_dead_letter(&*store, n, since, retry_at, 60).await;
    }
    append_events(&*store, 6, vec![dead_letter_moved(task(6), DeadLetterState::Discarded, 61)]).await;
    let due = async |now, archive_before, limit| -> Vec<_> {
        let rows = store.due_dead_letters(Micros(now), Micros(archive_before), limit).await.unwrap();
        rows.into_iter().map(|row| row.task).collect()
    };
    assert_eq!(due(100, 11, 9).await, [5, 3, 1].map(task), "dead letter 5 is due twice and listed once");
    assert_eq!(due(100, 11, 2).await, [5, 3].map(task));
    assert_eq!(due(89, 5, 9).await, []);
}

pub async fn dead_letters_that_are_waiting_are_counted(store: Arc<dyn Store>) {
    assert_eq!(store.dead_letters_waiting().await.unwrap(), DeadLettersWaiting::default());
    for (n, since, retry_at) in [(1, 9, None), (2, 8, Some(70)), (3, 7, Some(80)), (4, 1, Some(2))] {
        store_dead_letter(&*store, n, since, retry_at, 20).await;
    }
    append_events(&*store, 4, vec![dead_letter_moved(task(4), DeadLetterState::Archived, 61)]).await;
    let wanted = DeadLettersWaiting { count: 3, next_retry_at: Some(Micros(70)), oldest_since: Some(Micros(7)) };
    assert_eq!(store.dead_letters_waiting().await.unwrap(), wanted);
}

pub async fn dead_letters_are_hidden_from_other_users(store: Arc<dyn Store>) {
    store_dead_letter(&*store, 1, 5, None, 6).await;
    for (scope, seen) in [(of("bob"), 0), (of("Ann"), 0), (of("ann"), 1), (Scope::Operator, 1)] {
        let one = store.dead_letter(scope.clone(), task(1)).await.unwrap().iter().count();
        assert_eq!(
            [one, store.dead_letters(scope, DeadLetterFilter::default(), FAR.into(), 9).await.unwrap().len()],
            [seen; 2]
        );
    }
}

pub async fn dead_letters_are_the_same_after_a_rebuild(store: Arc<dyn Store>) {
    // The early move came in a batch of its own; a rebuild folds it together with the dead letter.
    for n in 1..=6 {
        append_events(&*store, n, vec![dead_letter_moved(task(n), DeadLetterState::Archived, 1)]).await;
        store_dead_letter(&*store, n, 5, (n % 2 == 0).then_some(60), 6).await;
    }
    append_events(&*store, 2, vec![dead_letter_moved(task(2), DeadLetterState::Discarded, 7)]).await;
    append_events(&*store, 3, vec![retries(task(30), task(3), 8)]).await;
    append_events(&*store, 3, vec![dead_letter_moved(task(3), DeadLetterState::Discarded, 9)]).await;
    append_events(&*store, 4, vec![retries(task(40), task(3), 8), died(task(40), dead_letter(5, None), 9)]).await;
    let picture = async || {
        let listed = store.dead_letters(Scope::Operator, DeadLetterFilter::default(), FAR.into(), 99).await.unwrap();
        (
            listed,
            store.dead_letters_waiting().await.unwrap(),
            store.due_dead_letters(Micros(60), FAR, 99).await.unwrap(),
        )
    };
    let before = picture().await;
    assert_eq!((before.0.len(), before.1.count), (7, 5));
    store.rebuild().await.unwrap();
    assert_eq!(picture().await, before);
}
