//! Changes of a task between its beginning and its end.

use std::sync::Arc;

use annie_core::{
    event::{NewEvent, Priority, Scope},
    ids::Epoch,
    ports::{Store, TaskRow, TaskState},
    time::Micros,
};

use crate::make::*;

const FAR: Micros = Micros(i64::MAX);

async fn row(store: &dyn Store, n: u128) -> TaskRow {
    store.task(Scope::Operator, task(n)).await.unwrap().unwrap()
}

async fn state(store: &dyn Store, n: u128) -> TaskState {
    row(store, n).await.state
}

/// Commits events of Ann's first conversation, each in a batch of its own.
async fn one_by_one(store: &dyn Store, epoch: Epoch, events: Vec<NewEvent>) {
    for event in events {
        commit(store, owned(conversation(1), "ann", epoch, vec![event])).await.unwrap();
    }
}

pub async fn task_keeps_its_start_time_and_dependencies(store: Arc<dyn Store>) {
    let message = received_as(task(3), 5, |inbound| {
        inbound.not_before = Some(Micros(70));
        inbound.after = vec![task(2), task(1)];
    });
    commit(&*store, inbox(conversation(1), "ann", vec![message])).await.unwrap();
    let row = row(&*store, 3).await;
    assert_eq!((row.not_before, row.after), (Some(Micros(70)), vec![task(2), task(1)]));
    let listed = store.tasks(of("ann"), true, FAR.into(), 9).await.unwrap();
    assert_eq!((listed[0].not_before, listed[0].after.len()), (Some(Micros(70)), 2));
}

pub async fn task_without_a_queue_position_is_marked(store: Arc<dyn Store>) {
    let messages = vec![
        received_as(task(1), 1, |inbound| inbound.order = true),
        received_as(task(2), 2, |inbound| inbound.steer = true),
        received_as(task(3), 3, |inbound| inbound.same_as = Some(task(9))),
        received_as(task(4), 4, |_| {}),
    ];
    commit(&*store, inbox(conversation(1), "ann", messages)).await.unwrap();
    let wanted = [(false, false, None), (false, false, Some(task(9))), (false, true, None), (true, false, None)];
    let marks = async || {
        let listed = store.tasks(of("ann"), true, FAR.into(), 9).await.unwrap();
        listed.into_iter().map(|row| (row.is_job_command, row.is_steer, row.joins)).collect::<Vec<_>>()
    };
    assert_eq!(marks().await, wanted);
    let first = row(&*store, 1).await;
    assert!(first.is_job_command && !first.is_steer);
    assert_eq!(row(&*store, 3).await.joins, Some(task(9)));
    store.rebuild().await.unwrap();
    assert_eq!(marks().await, wanted);
}

pub async fn task_that_is_suspended_resumes_in_its_former_state(store: Arc<dyn Store>) {
    let epoch = opened(&*store, conversation(1), "ann", task(1), 1).await;
    for (event, wanted) in [
        (suspended(task(1), 2), TaskState::Suspended),
        (suspended(task(1), 3), TaskState::Suspended),
        (continued(task(1), 4), TaskState::Queued),
        (continued(task(1), 5), TaskState::Queued),
        (started(task(1), 6), TaskState::Running),
        (continued(task(1), 7), TaskState::Running),
        (suspended(task(1), 8), TaskState::Suspended),
        (continued(task(1), 9), TaskState::Running),
        (suspended(task(1), 10), TaskState::Suspended),
        (cancelled(task(1), 11), TaskState::Cancelled),
    ] {
        let at = event.at;
        one_by_one(&*store, epoch, vec![event]).await;
        assert_eq!(state(&*store, 1).await, wanted, "{at:?}");
    }
    let ended = row(&*store, 1).await;
    assert_eq!((ended.started_at, ended.ended_at), (Some(Micros(6)), Some(Micros(11))));
    assert_eq!(ended.held_at, Some(Micros(10)), "when it was last suspended or resumed");
}

pub async fn task_that_is_suspended_is_open(store: Arc<dyn Store>) {
    let epoch = opened(&*store, conversation(1), "ann", task(1), 1).await;
    one_by_one(&*store, epoch, vec![suspended(task(1), 2)]).await;
    assert_eq!(store.open_conversations().await.unwrap(), [(conversation(1), user("ann"))]);
    for scope in [of("ann"), Scope::Operator] {
        assert_eq!(store.tasks(scope, true, FAR.into(), 9).await.unwrap().len(), 1);
    }
    one_by_one(&*store, epoch, vec![answered(task(1), "x", 3)]).await;
    assert_eq!(store.open_conversations().await.unwrap(), []);
}

pub async fn task_that_is_deferred_keeps_its_state_and_its_time(store: Arc<dyn Store>) {
    let epoch = opened(&*store, conversation(1), "ann", task(1), 1).await;
    one_by_one(&*store, epoch, vec![started(task(1), 2), deferred(task(1), 500, 3)]).await;
    let after = row(&*store, 1).await;
    assert_eq!((after.state, after.not_before), (TaskState::Running, Some(Micros(500))));
    one_by_one(&*store, epoch, vec![suspended(task(1), 4), continued(task(1), 5)]).await;
    let after = row(&*store, 1).await;
    assert_eq!((after.state, after.not_before), (TaskState::Running, Some(Micros(500))));
    one_by_one(&*store, epoch, vec![deferred(task(1), 400, 6)]).await;
    assert_eq!(row(&*store, 1).await.not_before, Some(Micros(400)));
}

pub async fn task_keeps_whether_it_was_last_deferred_because_its_model_failed(store: Arc<dyn Store>) {
    let epoch = opened(&*store, conversation(1), "ann", task(1), 1).await;
    for (event, wanted) in [
        (started(task(1), 2), false),
        (deferred_after_failure(task(1), 500, 3), true),
        (suspended(task(1), 4), true),
        (continued(task(1), 5), true),
        (deferred(task(1), 600, 6), false),
        (deferred_after_failure(task(1), 700, 7), true),
        (failed(task(1), "model_unavailable", 8), true),
        (deferred(task(1), 800, 9), true),
    ] {
        let at = event.at;
        one_by_one(&*store, epoch, vec![event]).await;
        let listed = store.tasks(of("ann"), false, FAR.into(), 9).await.unwrap();
        let found = (row(&*store, 1).await.has_model_failed, listed[0].has_model_failed);
        assert_eq!(found, (wanted, wanted), "{at:?}");
    }
}

pub async fn task_changes_its_class(store: Arc<dyn Store>) {
    let epoch = opened(&*store, conversation(1), "ann", task(1), 1).await;
    for class in [Priority::Background, Priority::Realtime] {
        one_by_one(&*store, epoch, vec![reprioritised(task(1), class, 2)]).await;
        let after = row(&*store, 1).await;
        assert_eq!((after.state, after.priority), (TaskState::Queued, class));
    }
}

pub async fn task_that_has_ended_never_changes(store: Arc<dyn Store>) {
    let epoch = opened(&*store, conversation(1), "ann", task(1), 1).await;
    one_by_one(&*store, epoch, vec![answered(task(1), "x", 2)]).await;
    let ended = row(&*store, 1).await;
    let late = vec![
        suspended(task(1), 3),
        continued(task(1), 4),
        reprioritised(task(1), Priority::Low, 5),
        deferred(task(1), 99, 6),
        started(task(1), 7),
    ];
    one_by_one(&*store, epoch, late.clone()).await;
    assert_eq!(row(&*store, 1).await, ended);
    commit(&*store, owned(conversation(1), "ann", epoch, late)).await.unwrap();
    assert_eq!(row(&*store, 1).await, ended);
}

/// Sequences of changes of a task, in every order that matters.
fn stories(n: u128) -> Vec<Vec<NewEvent>> {
    let t = task(n);
    vec![
        vec![suspended(t, 2), continued(t, 3)],
        vec![started(t, 2), suspended(t, 3), continued(t, 4)],
        vec![suspended(t, 2), started(t, 3)],
        vec![started(t, 2), suspended(t, 3)],
        vec![suspended(t, 2), continued(t, 3), started(t, 4), suspended(t, 5)],
        vec![reprioritised(t, Priority::Low, 2), deferred(t, 9, 3), reprioritised(t, Priority::Normal, 4)],
        vec![deferred(t, 9, 2), cancelled(t, 3), deferred(t, 10, 4), suspended(t, 5)],
        vec![started(t, 2), failed(t, "x", 3), continued(t, 4), reprioritised(t, Priority::Low, 5)],
        vec![suspended(t, 2), answered(t, "x", 3), started(t, 4)],
        vec![started(t, 2), deferred_after_failure(t, 9, 3), suspended(t, 4)],
        vec![deferred_after_failure(t, 9, 2), deferred(t, 10, 3)],
    ]
}

/// A task's row without its identity.
fn without_ids(row: TaskRow) -> TaskRow {
    TaskRow { id: task(0), conversation: conversation(0), ..row }
}

pub async fn task_changes_in_one_batch_equal_single_changes(store: Arc<dyn Store>) {
    for n in 0..stories(0).len() {
        let base = n as u128;
        let (single, whole, new) = (base + 100, base + 200, base + 300);
        for (task_n, apart) in [(single, true), (whole, false)] {
            let c = conversation(task_n);
            let epoch = opened(&*store, c, "ann", task(task_n), 1).await;
            let story = stories(task_n).swap_remove(n);
            let parts: Vec<Vec<NewEvent>> =
                if apart { story.into_iter().map(|e| vec![e]).collect() } else { vec![story] };
            for events in parts {
                commit(&*store, owned(c, "ann", epoch, events)).await.unwrap();
            }
        }
        let message = received(task(new), &task(new).to_string(), "Hello there", 1);
        let events = std::iter::once(message).chain(stories(new).swap_remove(n)).collect();
        commit(&*store, inbox(conversation(new), "ann", events)).await.unwrap();
        let wanted = without_ids(row(&*store, single).await);
        assert_eq!(without_ids(row(&*store, whole).await), wanted, "story {n} in one batch");
        assert_eq!(without_ids(row(&*store, new).await), wanted, "story {n} with its message");
    }
}

pub async fn tasks_are_changed_only_by_events_of_their_conversation(store: Arc<dyn Store>) {
    opened(&*store, conversation(1), "ann", task(1), 1).await;
    let before = row(&*store, 1).await;
    let epoch = opened(&*store, conversation(2), "bob", task(2), 1).await;
    let foreign = vec![suspended(task(1), 2), deferred(task(1), 9, 3), reprioritised(task(1), Priority::Low, 4)];
    commit(&*store, owned(conversation(2), "bob", epoch, foreign)).await.unwrap();
    assert_eq!(row(&*store, 1).await, before);
}

pub async fn tasks_are_the_same_after_a_rebuild(store: Arc<dyn Store>) {
    for (story, n) in (0..).zip(1_u128..=stories(0).len() as u128) {
        let c = conversation(n);
        let message = received_as(task(n), 1, |inbound| {
            inbound.not_before = Some(Micros(3));
            inbound.after = vec![task(n + 50)];
        });
        commit(&*store, inbox(c, "ann", vec![message])).await.unwrap();
        for event in stories(n).swap_remove(story) {
            commit(&*store, inbox(c, "ann", vec![event])).await.unwrap();
        }
    }
    let before = store.tasks(Scope::Operator, false, FAR.into(), 99).await.unwrap();
    store.rebuild().await.unwrap();
    assert_eq!(store.tasks(Scope::Operator, false, FAR.into(), 99).await.unwrap(), before);
}
