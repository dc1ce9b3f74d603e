//! Final messages that await delivery, and notifications.

use std::sync::Arc;

use annie_core::{
    event::Priority,
    ids::{OutboxId, TaskId},
    ports::{Notification, OutboxRow, Store, TaskState},
    time::Micros,
};

use crate::make::*;

/// Stores the final messages of these tasks of a user, each in a conversation of its own.
async fn sent(store: &dyn Store, name: &str, numbers: impl IntoIterator<Item = u128>) {
    for n in numbers {
        let epoch = opened(store, conversation(n), name, task(n), 1).await;
        let answer = answered(task(n), &format!("answer {n}"), 100 - n as i64);
        commit(store, owned(conversation(n), name, epoch, vec![answer])).await.unwrap();
    }
}

fn outbox_id(n: u128) -> OutboxId {
    OutboxId::for_task(task(n))
}

async fn waiting(store: &dyn Store) -> Vec<TaskId> {
    store.outbox(1_000).await.unwrap().into_iter().map(|row| row.task).collect()
}

async fn notify(store: &dyn Store, name: &str, words: &[u128], at: i64) -> Option<Notification> {
    let pairs = words.iter().map(|n| (outbox_id(*n), task(*n))).collect();
    store.notify(user(name), format!("at {at}"), pairs, Micros(at)).await.unwrap()
}

fn notification(id: u64, name: &str, words: &[u128], at: i64) -> Notification {
    let tasks = words.iter().map(|n| task(*n)).collect();
    Notification { id, user: user(name), text: format!("at {at}"), tasks, at: Micros(at) }
}

pub async fn outbox_lists_each_final_message_until_it_is_delivered(store: Arc<dyn Store>) {
    sent(&*store, "ann", 1..=3).await;
    let oldest = OutboxRow {
        id: outbox_id(3),
        user: user("ann"),
        task: task(3),
        conversation: conversation(3),
        title: "Hello there".into(),
        priority: Priority::High,
        source: "http".into(),
        state: TaskState::Completed,
        text: "answer 3".into(),
        at: Micros(97),
        reply_to: None,
        diverted: None,
    };
    assert_eq!(store.outbox(1).await.unwrap(), [oldest]);
    store.delivered(vec![outbox_id(3)], Micros(200)).await.unwrap();
    store.delivered(vec![outbox_id(9)], Micros(200)).await.unwrap();
    assert_eq!(waiting(&*store).await, [2, 1].map(task));
}

pub async fn outbox_marks_many_messages_delivered_at_once(store: Arc<dyn Store>) {
    sent(&*store, "ann", 1..=90).await;
    store.delivered(Vec::new(), Micros(1)).await.unwrap();
    assert_eq!(waiting(&*store).await.len(), 90);
    let most = (1..=5_000).filter(|n| *n != 7).map(outbox_id).collect();
    store.delivered(most, Micros(200)).await.unwrap();
    assert_eq!(waiting(&*store).await, [task(7)]);
}

pub async fn notification_delivers_its_messages(store: Arc<dyn Store>) {
    sent(&*store, "ann", 1..=3).await;
    assert_eq!(store.last_notified(user("ann")).await.unwrap(), None);
    assert_eq!(notify(&*store, "ann", &[3, 1], 300).await, Some(notification(1, "ann", &[3, 1], 300)));
    assert_eq!(waiting(&*store).await, [task(2)]);
    assert_eq!(store.last_notified(user("ann")).await.unwrap(), Some(Micros(300)));
    assert_eq!(store.last_notified(user("bob")).await.unwrap(), None);
}

pub async fn notification_is_refused_if_one_of_its_messages_was_delivered(store: Arc<dyn Store>) {
    sent(&*store, "ann", 1..=3).await;
    notify(&*store, "ann", &[1], 300).await.unwrap();
    store.delivered(vec![outbox_id(2)], Micros(301)).await.unwrap();
    for words in [&[1_u128, 3] as &[u128], &[3, 2], &[1], &[3, 99]] {
        assert_eq!(notify(&*store, "ann", words, 310).await, None, "{words:?}");
    }
    assert_eq!(waiting(&*store).await, [task(3)]);
    assert_eq!(notify(&*store, "ann", &[3], 320).await.unwrap().id, 2);
    assert_eq!(store.notifications(user("ann"), 0, 9).await.unwrap().len(), 2);
}

pub async fn notification_is_refused_if_one_of_its_messages_belongs_to_another_user(store: Arc<dyn Store>) {
    sent(&*store, "ann", 1..=1).await;
    sent(&*store, "bob", 2..=2).await;
    assert_eq!(notify(&*store, "ann", &[1, 2], 300).await, None);
    assert_eq!(waiting(&*store).await, [2, 1].map(task));
}

pub async fn notifications_are_read_after_an_id(store: Arc<dyn Store>) {
    sent(&*store, "ann", [1, 3, 4]).await;
    sent(&*store, "bob", [2]).await;
    for (name, n) in [("ann", 1), ("bob", 2), ("ann", 3), ("ann", 4)] {
        notify(&*store, name, &[n], 300 + n as i64).await.unwrap();
    }
    let notification_ids = async |name, after, limit| -> Vec<u64> {
        store
            .notifications(user(name), after, limit)
            .await
            .unwrap()
            .iter()
            .map(|notification| notification.id)
            .collect()
    };
    assert_eq!(notification_ids("ann", 0, 9).await, [1, 3, 4]);
    assert_eq!(notification_ids("ann", 1, 1).await, [3]);
    assert_eq!(notification_ids("bob", 0, 9).await, [2]);
    assert_eq!(notification_ids("bob", 2, 9).await, [0_u64; 0]);
    assert_eq!(notification_ids("ann", u64::MAX, 9).await, [0_u64; 0]);
    assert_eq!(store.notifications(user("bob"), 0, 9).await.unwrap(), [notification(2, "bob", &[2], 302)]);
    assert_eq!(store.last_notified(user("ann")).await.unwrap(), Some(Micros(304)));
}

pub async fn outbox_sweep_removes_old_delivered_messages(store: Arc<dyn Store>) {
    sent(&*store, "ann", 1..=4).await;
    notify(&*store, "ann", &[1], 300).await.unwrap();
    notify(&*store, "ann", &[2], 400).await.unwrap();
    store.delivered(vec![outbox_id(3)], Micros(399)).await.unwrap();
    assert_eq!(store.sweep_outbox(Micros(300)).await.unwrap(), 0);
    assert_eq!(store.sweep_outbox(Micros(400)).await.unwrap(), 3, "two messages and a notification");
    assert_eq!(store.sweep_outbox(Micros(400)).await.unwrap(), 0);
    assert_eq!(store.notifications(user("ann"), 0, 9).await.unwrap(), [notification(2, "ann", &[2], 400)]);
    assert_eq!(waiting(&*store).await, [task(4)], "an undelivered message is kept, however old");
    assert_eq!(notify(&*store, "ann", &[1], 500).await, None, "a swept message counts as delivered");
    commit(&*store, inbox(conversation(1), "ann", vec![cancelled(task(1), 600)])).await.unwrap();
    assert_eq!(waiting(&*store).await, [task(4)]);
}

pub async fn notification_id_is_never_reused(store: Arc<dyn Store>) {
    sent(&*store, "ann", 1..=2).await;
    notify(&*store, "ann", &[1], 300).await.unwrap();
    store.sweep_outbox(Micros(1_000)).await.unwrap();
    assert_eq!(store.notifications(user("ann"), 0, 9).await.unwrap(), []);
    assert_eq!(notify(&*store, "ann", &[2], 400).await.unwrap().id, 2);
}

pub async fn notifications_and_deliveries_survive_a_rebuild(store: Arc<dyn Store>) {
    sent(&*store, "ann", 1..=4).await;
    notify(&*store, "ann", &[1], 300).await.unwrap();
    notify(&*store, "ann", &[2], 400).await.unwrap();
    store.delivered(vec![outbox_id(3)], Micros(310)).await.unwrap();
    store.sweep_outbox(Micros(350)).await.unwrap();
    for _ in 0..2 {
        store.rebuild().await.unwrap();
        assert_eq!(waiting(&*store).await, [task(4)], "neither swept nor delivered messages wait");
        assert_eq!(
            store.sweep_outbox(Micros(310)).await.unwrap(),
            1,
            "a swept message is restored with its delivery time"
        );
        assert_eq!(store.notifications(user("ann"), 0, 9).await.unwrap(), [notification(2, "ann", &[2], 400)]);
    }
    assert_eq!(notify(&*store, "ann", &[1], 500).await, None);
    assert_eq!(notify(&*store, "ann", &[4], 500).await.unwrap().id, 3);
}
