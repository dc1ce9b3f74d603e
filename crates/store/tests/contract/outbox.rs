//! Final words on their way, and notifications.

use std::sync::Arc;

use annie_core::{
    event::Priority,
    ids::{OutboxId, TaskId},
    ports::{Notification, OutboxRow, Store, TaskState},
    time::Micros,
};

use crate::make::*;

/// The final words of tasks 1 to `count` of a user, each in a conversation of its own.
async fn said(store: &dyn Store, name: &str, numbers: impl IntoIterator<Item = u128>) {
    for n in numbers {
        let epoch = opened(store, conversation(n), name, task(n), 1).await;
        let answer = answered(task(n), &format!("answer {n}"), 100 - n as i64);
        commit(store, owned(conversation(n), name, epoch, vec![answer])).await.unwrap();
    }
}

fn word(n: u128) -> OutboxId {
    OutboxId::for_task(task(n))
}

async fn waiting(store: &dyn Store) -> Vec<TaskId> {
    store.outbox(1_000).await.unwrap().into_iter().map(|row| row.task).collect()
}

async fn notify(store: &dyn Store, name: &str, words: &[u128], at: i64) -> Option<Notification> {
    let pairs = words.iter().map(|n| (word(*n), task(*n))).collect();
    store.notify(user(name), format!("at {at}"), pairs, Micros(at)).await.unwrap()
}

fn told(id: u64, name: &str, words: &[u128], at: i64) -> Notification {
    let tasks = words.iter().map(|n| task(*n)).collect();
    Notification { id, user: user(name), text: format!("at {at}"), tasks, at: Micros(at) }
}

pub async fn the_outbox_gives_each_final_word_until_it_is_delivered(store: Arc<dyn Store>) {
    said(&*store, "ann", 1..=3).await;
    let oldest = OutboxRow {
        id: word(3),
        user: user("ann"),
        task: task(3),
        conversation: conversation(3),
        title: "Hello there".into(),
        priority: Priority::High,
        source: "http".into(),
        state: TaskState::Completed,
        text: "answer 3".into(),
        at: Micros(97),
    };
    assert_eq!(store.outbox(1).await.unwrap(), [oldest]);
    store.delivered(vec![word(3)], Micros(200)).await.unwrap();
    store.delivered(vec![word(9)], Micros(200)).await.unwrap();
    assert_eq!(waiting(&*store).await, [2, 1].map(task));
}

pub async fn many_words_are_delivered_at_once(store: Arc<dyn Store>) {
    said(&*store, "ann", 1..=90).await;
    store.delivered(Vec::new(), Micros(1)).await.unwrap();
    assert_eq!(waiting(&*store).await.len(), 90);
    let most = (1..=5_000).filter(|n| *n != 7).map(word).collect();
    store.delivered(most, Micros(200)).await.unwrap();
    assert_eq!(waiting(&*store).await, [task(7)]);
}

pub async fn a_notification_delivers_its_words(store: Arc<dyn Store>) {
    said(&*store, "ann", 1..=3).await;
    assert_eq!(store.last_notified(user("ann")).await.unwrap(), None);
    assert_eq!(notify(&*store, "ann", &[3, 1], 300).await, Some(told(1, "ann", &[3, 1], 300)));
    assert_eq!(waiting(&*store).await, [task(2)]);
    assert_eq!(store.last_notified(user("ann")).await.unwrap(), Some(Micros(300)));
    assert_eq!(store.last_notified(user("bob")).await.unwrap(), None);
}

pub async fn words_that_were_delivered_are_not_notified_again(store: Arc<dyn Store>) {
    said(&*store, "ann", 1..=3).await;
    notify(&*store, "ann", &[1], 300).await.unwrap();
    store.delivered(vec![word(2)], Micros(301)).await.unwrap();
    for words in [&[1_u128, 3] as &[u128], &[3, 2], &[1], &[3, 99]] {
        assert_eq!(notify(&*store, "ann", words, 310).await, None, "{words:?}");
    }
    assert_eq!(waiting(&*store).await, [task(3)]);
    assert_eq!(notify(&*store, "ann", &[3], 320).await.unwrap().id, 2);
    assert_eq!(store.notifications(user("ann"), 0, 9).await.unwrap().len(), 2);
}

pub async fn a_word_of_another_user_is_not_notified(store: Arc<dyn Store>) {
    said(&*store, "ann", 1..=1).await;
    said(&*store, "bob", 2..=2).await;
    assert_eq!(notify(&*store, "ann", &[1, 2], 300).await, None);
    assert_eq!(waiting(&*store).await, [2, 1].map(task));
}

pub async fn notifications_are_read_from_a_place_on(store: Arc<dyn Store>) {
    said(&*store, "ann", [1, 3, 4]).await;
    said(&*store, "bob", [2]).await;
    for (name, n) in [("ann", 1), ("bob", 2), ("ann", 3), ("ann", 4)] {
        notify(&*store, name, &[n], 300 + n as i64).await.unwrap();
    }
    let places = async |name, after, limit| -> Vec<u64> {
        store.notifications(user(name), after, limit).await.unwrap().iter().map(|told| told.id).collect()
    };
    assert_eq!(places("ann", 0, 9).await, [1, 3, 4]);
    assert_eq!(places("ann", 1, 1).await, [3]);
    assert_eq!(places("bob", 0, 9).await, [2]);
    assert_eq!(places("bob", 2, 9).await, [0_u64; 0]);
    assert_eq!(places("ann", u64::MAX, 9).await, [0_u64; 0]);
    assert_eq!(store.notifications(user("bob"), 0, 9).await.unwrap(), [told(2, "bob", &[2], 302)]);
    assert_eq!(store.last_notified(user("ann")).await.unwrap(), Some(Micros(304)));
}

pub async fn a_sweep_takes_what_is_old_and_delivered(store: Arc<dyn Store>) {
    said(&*store, "ann", 1..=4).await;
    notify(&*store, "ann", &[1], 300).await.unwrap();
    notify(&*store, "ann", &[2], 400).await.unwrap();
    store.delivered(vec![word(3)], Micros(399)).await.unwrap();
    assert_eq!(store.sweep_outbox(Micros(300)).await.unwrap(), 0);
    assert_eq!(store.sweep_outbox(Micros(400)).await.unwrap(), 3, "two words and a notification");
    assert_eq!(store.sweep_outbox(Micros(400)).await.unwrap(), 0);
    assert_eq!(store.notifications(user("ann"), 0, 9).await.unwrap(), [told(2, "ann", &[2], 400)]);
    assert_eq!(waiting(&*store).await, [task(4)], "what was not delivered is kept, however old");
    assert_eq!(notify(&*store, "ann", &[1], 500).await, None, "what was swept was delivered");
    commit(&*store, inbox(conversation(1), "ann", vec![cancelled(task(1), 600)])).await.unwrap();
    assert_eq!(waiting(&*store).await, [task(4)]);
}

pub async fn a_place_is_never_given_again(store: Arc<dyn Store>) {
    said(&*store, "ann", 1..=2).await;
    notify(&*store, "ann", &[1], 300).await.unwrap();
    store.sweep_outbox(Micros(1_000)).await.unwrap();
    assert_eq!(store.notifications(user("ann"), 0, 9).await.unwrap(), []);
    assert_eq!(notify(&*store, "ann", &[2], 400).await.unwrap().id, 2);
}

pub async fn a_rebuild_keeps_notifications_and_delivers_nothing_again(store: Arc<dyn Store>) {
    said(&*store, "ann", 1..=4).await;
    notify(&*store, "ann", &[1], 300).await.unwrap();
    notify(&*store, "ann", &[2], 400).await.unwrap();
    store.delivered(vec![word(3)], Micros(310)).await.unwrap();
    store.sweep_outbox(Micros(350)).await.unwrap();
    for _ in 0..2 {
        store.rebuild().await.unwrap();
        assert_eq!(waiting(&*store).await, [task(4)], "neither what was swept nor what was delivered");
        assert_eq!(store.sweep_outbox(Micros(310)).await.unwrap(), 1, "a swept word is there again, with its time");
        assert_eq!(store.notifications(user("ann"), 0, 9).await.unwrap(), [told(2, "ann", &[2], 400)]);
    }
    assert_eq!(notify(&*store, "ann", &[1], 500).await, None);
    assert_eq!(notify(&*store, "ann", &[4], 500).await.unwrap().id, 3);
}
