//! Dead letters.

use std::sync::Arc;

use annie_core::{
    event::{Priority, Scope},
    letter::LetterState,
    ports::{Before, LetterFilter, LetterRow, LettersWaiting, Store},
    time::Micros,
};

use crate::make::*;

const FAR: Micros = Micros(i64::MAX);

/// A task of Ann's in a conversation of its own, dead.
async fn dead(store: &dyn Store, n: u128, since: i64, retry_at: Option<i64>, at: i64) {
    let epoch = opened(store, conversation(n), "ann", task(n), 1).await;
    commit(store, owned(conversation(n), "ann", epoch, vec![died(task(n), letter(since, retry_at), at)]))
        .await
        .unwrap();
}

/// Something happens in the conversation of this number.
async fn happens(store: &dyn Store, n: u128, events: Vec<annie_core::event::NewEvent>) {
    commit(store, inbox(conversation(n), "ann", events)).await.unwrap();
}

async fn row(store: &dyn Store, n: u128) -> Option<LetterRow> {
    store.letter(Scope::Operator, task(n)).await.unwrap()
}

async fn state(store: &dyn Store, n: u128) -> Option<LetterState> {
    row(store, n).await.map(|row| row.state)
}

pub async fn a_failure_with_a_letter_is_a_dead_letter(store: Arc<dyn Store>) {
    let epoch = opened(&*store, conversation(1), "ann", task(1), 1).await;
    let events = vec![reprioritised(task(1), Priority::Low, 2), died(task(1), letter(5, Some(60)), 6)];
    commit(&*store, owned(conversation(1), "ann", epoch, events)).await.unwrap();
    let wanted = LetterRow {
        task: task(1),
        user: user("ann"),
        conversation: conversation(1),
        title: "Hello there".into(),
        priority: Priority::Low,
        code: "model_unavailable".into(),
        text: "Sorry.".into(),
        detail: "refused".into(),
        letter: letter(5, Some(60)),
        state: LetterState::Waiting,
        retried_by: None,
        failed_at: Micros(6),
        changed_at: Micros(6),
    };
    assert_eq!(row(&*store, 1).await, Some(wanted));
    assert_eq!(row(&*store, 2).await, None);
    let epoch = opened(&*store, conversation(2), "ann", task(2), 1).await;
    commit(&*store, owned(conversation(2), "ann", epoch, vec![failed(task(2), "x", 2)])).await.unwrap();
    assert_eq!(row(&*store, 2).await, None, "nobody wants to try this again");
}

pub async fn a_task_has_one_letter_and_only_if_its_failure_ended_it(store: Arc<dyn Store>) {
    dead(&*store, 1, 5, None, 6).await;
    let first = row(&*store, 1).await;
    happens(&*store, 1, vec![died(task(1), letter(7, Some(70)), 8)]).await;
    assert_eq!(row(&*store, 1).await, first);
    for (n, end) in [(2, answered(task(2), "x", 2)), (3, failed(task(3), "x", 2))] {
        opened(&*store, conversation(n), "ann", task(n), 1).await;
        happens(&*store, n, vec![end]).await;
        happens(&*store, n, vec![died(task(n), letter(2, None), 2)]).await;
        assert_eq!(row(&*store, n).await, None);
    }
    opened(&*store, conversation(4), "ann", task(4), 1).await;
    happens(&*store, 4, vec![cancelled(task(4), 2), died(task(4), letter(2, None), 2)]).await;
    assert_eq!(row(&*store, 4).await, None);
    happens(&*store, 5, vec![received_as(task(5), 1, |_| {}), died(task(5), letter(2, None), 2)]).await;
    happens(&*store, 6, vec![died(task(6), letter(2, None), 2), died(task(5), letter(2, None), 2)]).await;
    assert_eq!(row(&*store, 5).await.unwrap().conversation, conversation(5));
    assert_eq!(row(&*store, 6).await, None, "there is no such task");
}

pub async fn a_letter_moves_once_and_only_while_it_waits(store: Arc<dyn Store>) {
    happens(&*store, 1, vec![letter_moved(task(1), LetterState::Discarded, 1)]).await;
    dead(&*store, 1, 5, None, 6).await;
    assert_eq!(state(&*store, 1).await, Some(LetterState::Waiting));
    happens(&*store, 1, vec![letter_moved(task(1), LetterState::Discarded, 7)]).await;
    let moved = row(&*store, 1).await.unwrap();
    assert_eq!((moved.state, moved.changed_at, moved.failed_at), (LetterState::Discarded, Micros(7), Micros(6)));
    happens(&*store, 1, vec![letter_moved(task(1), LetterState::Archived, 8), retries(task(9), task(1), 9)]).await;
    assert_eq!(row(&*store, 1).await, Some(moved));
    dead(&*store, 2, 5, None, 6).await;
    let both = vec![letter_moved(task(2), LetterState::Archived, 7), letter_moved(task(2), LetterState::Discarded, 8)];
    happens(&*store, 2, both).await;
    assert_eq!(state(&*store, 2).await, Some(LetterState::Archived));
    let early_and_late = vec![
        received_as(task(3), 1, |_| {}),
        letter_moved(task(3), LetterState::Discarded, 2),
        died(task(3), letter(3, None), 3),
        letter_moved(task(3), LetterState::Archived, 4),
    ];
    happens(&*store, 3, early_and_late).await;
    assert_eq!(state(&*store, 3).await, Some(LetterState::Archived), "what came before the letter is not about it");
}

pub async fn a_retry_takes_the_letter_and_says_which_task_tries(store: Arc<dyn Store>) {
    dead(&*store, 1, 5, Some(60), 6).await;
    happens(&*store, 1, vec![retries(task(2), task(1), 60)]).await;
    let moved = row(&*store, 1).await.unwrap();
    let wanted = (LetterState::Retried, Some(task(2)), Micros(60));
    assert_eq!((moved.state, moved.retried_by, moved.changed_at), wanted);
    happens(&*store, 1, vec![retries(task(3), task(1), 61)]).await;
    assert_eq!(row(&*store, 1).await.unwrap().retried_by, Some(task(2)));
    happens(&*store, 1, vec![died(task(2), letter(5, None), 62)]).await;
    assert_eq!(state(&*store, 2).await, Some(LetterState::Waiting), "the new try has a letter of its own");
}

pub async fn letter_that_is_made_due_is_due_and_left_out_of_those_that_are_not(store: Arc<dyn Store>) {
    for n in 1..=3 {
        dead(&*store, n, 5, [None, Some(60), Some(70)][n as usize - 1], 10 * n as i64).await;
    }
    let not_due = async |at| -> Vec<_> {
        let filter = LetterFilter { not_due_at: Some(Micros(at)), ..LetterFilter::in_state(LetterState::Waiting) };
        let count = store.count_letters(of("ann"), filter.clone()).await.unwrap();
        let rows = store.letters(of("ann"), filter, FAR.into(), 9).await.unwrap();
        assert_eq!(count, rows.len() as u64, "at {at}");
        rows.into_iter().map(|row| row.task).collect()
    };
    assert_eq!(not_due(59).await, [3, 2, 1].map(task));
    assert_eq!(not_due(60).await, [3, 1].map(task), "2 is tried again by itself at 60");
    happens(&*store, 1, vec![letter_due(task(1), 50)]).await;
    // Another conversation's event is not about this letter.
    happens(&*store, 2, vec![letter_due(task(3), 50)]).await;
    let due = row(&*store, 1).await.unwrap();
    assert_eq!((due.state, due.letter.retry_at, due.changed_at), (LetterState::Waiting, Some(Micros(50)), Micros(10)));
    assert_eq!(not_due(50).await, [3, 2].map(task));
    let rows = store.due_letters(Micros(50), Micros(0), 9).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.task).collect::<Vec<_>>(), [task(1)]);
    store.rebuild().await.unwrap();
    assert_eq!(row(&*store, 1).await, Some(due), "a rebuild gives the same");
}

pub async fn letter_made_due_in_the_batch_that_puts_or_moves_it_has_the_last_time(store: Arc<dyn Store>) {
    let epoch = opened(&*store, conversation(1), "ann", task(1), 1).await;
    let events = vec![
        letter_due(task(1), 2),
        died(task(1), letter(5, Some(60)), 6),
        letter_due(task(1), 8),
        letter_due(task(1), 7),
        letter_moved(task(1), LetterState::Discarded, 9),
    ];
    commit(&*store, owned(conversation(1), "ann", epoch, events)).await.unwrap();
    let moved = row(&*store, 1).await.unwrap();
    assert_eq!((moved.state, moved.letter.retry_at), (LetterState::Discarded, Some(Micros(7))));
    dead(&*store, 2, 5, None, 6).await;
    happens(&*store, 2, vec![letter_moved(task(2), LetterState::Archived, 7), letter_due(task(2), 8)]).await;
    let archived = row(&*store, 2).await.unwrap();
    assert_eq!((archived.state, archived.letter.retry_at), (LetterState::Archived, Some(Micros(8))));
    store.rebuild().await.unwrap();
    assert_eq!([row(&*store, 1).await, row(&*store, 2).await], [Some(moved), Some(archived)]);
}

pub async fn pages_of_one_row_list_rows_of_one_instant_once_each(store: Arc<dyn Store>) {
    for n in [3, 1, 4, 2] {
        dead(&*store, n, 5, None, 10).await;
        happens(&*store, n, vec![pending(n, 90, 10)]).await;
    }
    for scope in [of("ann"), Scope::Operator] {
        let (mut letters, mut tasks, mut conversations, mut operations) = (vec![], vec![], vec![], vec![]);
        let mut before = Before::NEWEST;
        while let Some(row) = store.letters(scope.clone(), LetterFilter::default(), before, 1).await.unwrap().pop() {
            letters.push(row.task);
            before = row.place();
        }
        let mut before = Before::NEWEST;
        while let Some(row) = store.tasks(scope.clone(), false, before, 1).await.unwrap().pop() {
            tasks.push(row.id);
            before = row.place();
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
                before = row.place();
            }
        }
        let mut before = Before::NEWEST;
        while let Some(row) = store.operations(scope.clone(), false, before, 1).await.unwrap().pop() {
            operations.push(row.task);
            before = row.place();
        }
        assert_eq!(letters, [4, 3, 2, 1].map(task));
        assert_eq!(tasks, [4, 3, 2, 1].map(task));
        assert_eq!(conversations, [4, 3, 2, 1, 4, 3, 2, 1].map(conversation));
        operations.sort();
        assert_eq!(operations, [1, 2, 3, 4].map(task), "their order is that of their ids");
    }
    let open = store.tasks(Scope::Operator, true, Before::NEWEST, 9).await.unwrap();
    assert_eq!(open, [], "all have failed");
}

pub async fn only_a_conversations_own_events_move_its_letters(store: Arc<dyn Store>) {
    dead(&*store, 1, 5, None, 6).await;
    let foreign = vec![letter_moved(task(1), LetterState::Discarded, 7), retries(task(2), task(1), 8)];
    commit(&*store, inbox(conversation(2), "bob", foreign)).await.unwrap();
    assert_eq!(state(&*store, 1).await, Some(LetterState::Waiting));
}

pub async fn letters_are_listed_newest_first_by_state(store: Arc<dyn Store>) {
    for n in 1..=4 {
        dead(&*store, n, 5, None, 10 * n as i64).await;
    }
    happens(&*store, 2, vec![letter_moved(task(2), LetterState::Discarded, 100)]).await;
    for scope in [of("ann"), Scope::Operator] {
        let page = async |state, before, limit| -> Vec<_> {
            let filter = LetterFilter { state, ..LetterFilter::default() };
            let rows = store.letters(scope.clone(), filter, Micros(before).into(), limit).await.unwrap();
            rows.into_iter().map(|row| row.task).collect()
        };
        assert_eq!(page(None, i64::MAX, 2).await, [4, 3].map(task));
        assert_eq!(page(None, 30, 9).await, [2, 1].map(task));
        assert_eq!(page(Some(LetterState::Waiting), i64::MAX, 9).await, [4, 3, 1].map(task));
        assert_eq!(page(Some(LetterState::Discarded), i64::MAX, 9).await, [task(2)]);
        assert_eq!(page(Some(LetterState::Retried), i64::MAX, 9).await, []);
    }
}

pub async fn letters_are_filtered_and_counted_by_error_class_and_age(store: Arc<dyn Store>) {
    for n in 1..=4 {
        dead(&*store, n, 5, None, 10 * n as i64).await;
    }
    let epoch = opened(&*store, conversation(5), "ann", task(5), 1).await;
    let code = annie_core::event::EventBody::Failed {
        code: "model_overflow".into(),
        text: "Too long.".into(),
        detail: String::new(),
        letter: Some(letter(5, None)),
    };
    let events = vec![reprioritised(task(5), Priority::Low, 2), event(task(5), 50, code)];
    commit(&*store, owned(conversation(5), "ann", epoch, events)).await.unwrap();
    happens(&*store, 2, vec![letter_moved(task(2), LetterState::Discarded, 100)]).await;
    let class = row(&*store, 1).await.unwrap().priority;
    let all = LetterFilter::default();
    for (filter, wanted) in [
        (all.clone(), vec![5, 4, 3, 2, 1]),
        (LetterFilter { code: Some("model_overflow".into()), ..all.clone() }, vec![5]),
        (LetterFilter { code: Some("overflow".into()), ..all.clone() }, vec![]),
        (LetterFilter { class: Some(Priority::Low), ..all.clone() }, vec![5]),
        (LetterFilter { class: Some(class), ..LetterFilter::in_state(LetterState::Waiting) }, vec![4, 3, 1]),
        (LetterFilter { failed_from: Some(Micros(20)), failed_before: Some(Micros(40)), ..all.clone() }, vec![3, 2]),
        (LetterFilter { failed_before: Some(Micros(20)), ..LetterFilter::in_state(LetterState::Waiting) }, vec![1]),
    ] {
        for (scope, is_seen) in [(of("ann"), true), (Scope::Operator, true), (of("bob"), false)] {
            let wanted: Vec<_> = wanted.iter().filter(|_| is_seen).map(|n| task(*n)).collect();
            let rows = store.letters(scope.clone(), filter.clone(), FAR.into(), 9).await.unwrap();
            assert_eq!(rows.iter().map(|row| row.task).collect::<Vec<_>>(), wanted, "{filter:?}");
            let count = store.count_letters(scope, filter.clone()).await.unwrap();
            assert_eq!(count, wanted.len() as u64, "{filter:?}");
        }
    }
}

pub async fn due_letters_are_those_to_retry_and_those_to_archive(store: Arc<dyn Store>) {
    for (n, since, retry_at) in
        [(1, 50, Some(100)), (2, 40, Some(101)), (3, 10, None), (4, 11, None), (5, 5, Some(90)), (6, 1, Some(1))]
    {
        dead(&*store, n, since, retry_at, 60).await;
    }
    happens(&*store, 6, vec![letter_moved(task(6), LetterState::Discarded, 61)]).await;
    let due = async |now, archive_before, limit| -> Vec<_> {
        let rows = store.due_letters(Micros(now), Micros(archive_before), limit).await.unwrap();
        rows.into_iter().map(|row| row.task).collect()
    };
    assert_eq!(due(100, 11, 9).await, [5, 3, 1].map(task), "5 is due twice and listed once");
    assert_eq!(due(100, 11, 2).await, [5, 3].map(task));
    assert_eq!(due(89, 5, 9).await, []);
}

pub async fn the_waiting_letters_are_counted(store: Arc<dyn Store>) {
    assert_eq!(store.letters_waiting().await.unwrap(), LettersWaiting::default());
    for (n, since, retry_at) in [(1, 9, None), (2, 8, Some(70)), (3, 7, Some(80)), (4, 1, Some(2))] {
        dead(&*store, n, since, retry_at, 20).await;
    }
    happens(&*store, 4, vec![letter_moved(task(4), LetterState::Archived, 61)]).await;
    let wanted = LettersWaiting { count: 3, next_retry_at: Some(Micros(70)), oldest_since: Some(Micros(7)) };
    assert_eq!(store.letters_waiting().await.unwrap(), wanted);
}

pub async fn a_wrong_owner_sees_no_letter(store: Arc<dyn Store>) {
    dead(&*store, 1, 5, None, 6).await;
    for (scope, seen) in [(of("bob"), 0), (of("Ann"), 0), (of("ann"), 1), (Scope::Operator, 1)] {
        let one = store.letter(scope.clone(), task(1)).await.unwrap().iter().count();
        assert_eq!([one, store.letters(scope, LetterFilter::default(), FAR.into(), 9).await.unwrap().len()], [seen; 2]);
    }
}

pub async fn a_rebuild_gives_the_same_letters(store: Arc<dyn Store>) {
    // The early move came in a batch of its own; a rebuild folds it together with the letter.
    for n in 1..=6 {
        happens(&*store, n, vec![letter_moved(task(n), LetterState::Archived, 1)]).await;
        dead(&*store, n, 5, (n % 2 == 0).then_some(60), 6).await;
    }
    happens(&*store, 2, vec![letter_moved(task(2), LetterState::Discarded, 7)]).await;
    happens(&*store, 3, vec![retries(task(30), task(3), 8)]).await;
    happens(&*store, 3, vec![letter_moved(task(3), LetterState::Discarded, 9)]).await;
    happens(&*store, 4, vec![retries(task(40), task(3), 8), died(task(40), letter(5, None), 9)]).await;
    let picture = async || {
        let listed = store.letters(Scope::Operator, LetterFilter::default(), FAR.into(), 99).await.unwrap();
        (listed, store.letters_waiting().await.unwrap(), store.due_letters(Micros(60), FAR, 99).await.unwrap())
    };
    let before = picture().await;
    assert_eq!((before.0.len(), before.1.count), (7, 5));
    store.rebuild().await.unwrap();
    assert_eq!(picture().await, before);
}
