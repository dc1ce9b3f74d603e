//! Final messages that a channel delivers to an address, and the attempts to do so.

use std::sync::Arc;

use annie_core::{
    ids::{NodeId, OutboxId, TaskId},
    ports::{Address, DeliveryEnd, DeliveryRow, Diverted, Store},
    time::Micros,
};
use uuid::Uuid;

use crate::make::*;

const NODES: [NodeId; 2] = [NodeId::from_uuid(Uuid::from_u128(1)), NodeId::from_uuid(Uuid::from_u128(2))];

fn address(channel: &str, to: &str) -> Address {
    Address { channel: channel.to_owned(), to: to.to_owned() }
}

/// Stores a message with this address and its answer, in the conversation and as the task of this number.
async fn answered_to(store: &dyn Store, n: u128, to: Address, at: i64) {
    let message = received_as(task(n), 1, |inbound| inbound.reply_to = Some(to));
    commit(store, inbox(conversation(n), "ann", vec![message])).await.unwrap();
    let epoch = store.claim(conversation(n), node(1)).await.unwrap().unwrap().epoch;
    commit(store, owned(conversation(n), "ann", epoch, vec![answered(task(n), "yes", at)])).await.unwrap();
}

fn outbox_id(n: u128) -> OutboxId {
    OutboxId::for_task(task(n))
}

async fn next(store: &dyn Store, channel: &str) -> Vec<DeliveryRow> {
    store.next_deliveries(channel.to_owned(), 9).await.unwrap()
}

fn tasks(rows: &[DeliveryRow]) -> Vec<TaskId> {
    rows.iter().map(|row| row.text.task).collect()
}

async fn to_notify(store: &dyn Store) -> Vec<(TaskId, Option<Diverted>)> {
    store.to_notify(9).await.unwrap().into_iter().map(|row| (row.task, row.diverted)).collect()
}

pub async fn delivery_list_has_the_oldest_message_of_each_address(store: Arc<dyn Store>) {
    for (n, to, at) in [(1, "one", 30), (2, "one", 20), (3, "two", 25), (4, "two", 25)] {
        answered_to(&*store, n, address("mail", to), at).await;
    }
    answered_to(&*store, 5, address("sms", "one"), 1).await;
    let rows = next(&*store, "mail").await;
    let first_of_two = task(if outbox_id(3) < outbox_id(4) { 3 } else { 4 });
    assert_eq!(tasks(&rows), [task(2), first_of_two]);
    assert_eq!(rows[0].text.reply_to, Some(address("mail", "one")));
    assert_eq!((rows[0].attempts, rows[0].begun, rows[0].retry_at), (0, None, None));
    assert_eq!(tasks(&next(&*store, "sms").await), [task(5)]);
    assert_eq!(next(&*store, "none").await, []);
    let mut channels = store.waiting_channels().await.unwrap();
    channels.sort();
    assert_eq!(channels, ["mail", "sms"]);
    assert_eq!(store.outbox(9).await.unwrap().len(), 5, "all of them are undelivered");
    assert_eq!(to_notify(&*store).await, []);
}

pub async fn delivery_order_within_a_conversation_is_that_of_its_log(store: Arc<dyn Store>) {
    let to = address("mail", "one");
    let messages = (1..=3).map(|n| received_as(task(n), 1, |inbound| inbound.reply_to = Some(to.clone())));
    commit(&*store, inbox(conversation(1), "ann", messages.collect())).await.unwrap();
    let epoch = store.claim(conversation(1), node(1)).await.unwrap().unwrap().epoch;
    let answers = [3, 1, 2].map(|n| answered(task(n), "yes", 7)).to_vec();
    commit(&*store, owned(conversation(1), "ann", epoch, answers)).await.unwrap();
    for n in [3, 1, 2] {
        assert_eq!(tasks(&next(&*store, "mail").await), [task(n)], "all answers have the same time");
        assert!(store.begin_delivery(outbox_id(n), 0, NODES[0], Micros(8)).await.unwrap());
        assert!(store.end_delivery(outbox_id(n), 1, DeliveryEnd::Delivered(Micros(9))).await.unwrap());
    }
    assert_eq!(next(&*store, "mail").await, []);
    assert_eq!(store.waiting_channels().await.unwrap(), [""; 0]);
    assert_eq!(store.outbox(9).await.unwrap(), []);
}

pub async fn delivery_address_in_the_batch_of_its_answer_is_known(store: Arc<dyn Store>) {
    let message = received_as(task(1), 1, |inbound| inbound.reply_to = Some(address("mail", "one")));
    commit(&*store, inbox(conversation(1), "ann", vec![message, answered(task(1), "yes", 2)])).await.unwrap();
    assert_eq!(tasks(&next(&*store, "mail").await), [task(1)]);
}

pub async fn delivery_attempt_begins_on_one_node_only(store: Arc<dyn Store>) {
    answered_to(&*store, 1, address("mail", "one"), 2).await;
    let id = outbox_id(1);
    assert!(!store.begin_delivery(id, 1, NODES[0], Micros(10)).await.unwrap(), "no attempt was made before");
    assert!(store.begin_delivery(id, 0, NODES[0], Micros(10)).await.unwrap());
    assert!(store.begin_delivery(id, 0, NODES[0], Micros(10)).await.unwrap(), "the same call again");
    assert!(!store.begin_delivery(id, 0, NODES[1], Micros(10)).await.unwrap());
    assert!(!store.begin_delivery(id, 0, NODES[0], Micros(11)).await.unwrap());
    let row = next(&*store, "mail").await.remove(0);
    assert_eq!((row.attempts, row.begun), (1, Some((NODES[0], Micros(10)))));
    assert!(!store.end_delivery(id, 2, DeliveryEnd::Delivered(Micros(12))).await.unwrap());
    assert!(store.begin_delivery(id, 1, NODES[1], Micros(20)).await.unwrap(), "the second attempt");
    assert!(!store.end_delivery(id, 1, DeliveryEnd::Delivered(Micros(21))).await.unwrap(), "the first one is over");
    assert!(store.end_delivery(id, 2, DeliveryEnd::Retry(Micros(50))).await.unwrap());
    let row = next(&*store, "mail").await.remove(0);
    assert_eq!((row.attempts, row.begun, row.retry_at), (2, None, Some(Micros(50))));
    answered_to(&*store, 2, address("mail", "two"), 99).await;
    assert_eq!(tasks(&next(&*store, "mail").await), [task(2), task(1)], "texts without a time are first");
}

pub async fn delivery_that_is_diverted_is_to_be_notified(store: Arc<dyn Store>) {
    for n in 1..=4 {
        answered_to(&*store, n, address("mail", &format!("{n}")), n as i64).await;
    }
    assert!(store.begin_delivery(outbox_id(1), 0, NODES[0], Micros(10)).await.unwrap());
    assert!(store.end_delivery(outbox_id(1), 1, DeliveryEnd::Diverted(Diverted::Refused)).await.unwrap());
    assert!(store.begin_delivery(outbox_id(2), 0, NODES[0], Micros(10)).await.unwrap());
    assert_eq!(store.divert_channel("mail".to_owned(), Micros(4)).await.unwrap(), 2);
    let diverted = [(1, Diverted::Refused), (2, Diverted::InDoubt), (3, Diverted::NoChannel)];
    assert_eq!(to_notify(&*store).await, diverted.map(|(n, why)| (task(n), Some(why))));
    assert_eq!(tasks(&next(&*store, "mail").await), [task(4)]);
    assert!(!store.end_delivery(outbox_id(2), 1, DeliveryEnd::Delivered(Micros(12))).await.unwrap());
    store.delivered((1..=4).map(outbox_id).collect(), Micros(20)).await.unwrap();
    assert_eq!(to_notify(&*store).await.len(), 3, "a client that received a text live does not replace its channel");
    let pair = |n| (outbox_id(n), task(n));
    let refused = store.notify(user("ann"), "x".into(), vec![pair(3), pair(4)], Micros(21)).await.unwrap();
    assert_eq!(refused, None, "the channel has to deliver the last one");
    let stored = store.notify(user("ann"), "x".into(), [1, 2, 3].map(pair).to_vec(), Micros(22)).await.unwrap();
    assert!(stored.is_some());
    assert_eq!(to_notify(&*store).await, []);
    assert_eq!(store.outbox(9).await.unwrap().len(), 1);
}

pub async fn deliveries_survive_a_rebuild(store: Arc<dyn Store>) {
    for n in 1..=4 {
        answered_to(&*store, n, address("mail", &format!("{n}")), n as i64).await;
        if n < 4 {
            assert!(store.begin_delivery(outbox_id(n), 0, NODES[0], Micros(10)).await.unwrap());
        }
    }
    assert!(store.end_delivery(outbox_id(2), 1, DeliveryEnd::Retry(Micros(50))).await.unwrap());
    assert!(store.end_delivery(outbox_id(3), 1, DeliveryEnd::Diverted(Diverted::GivenUp)).await.unwrap());
    let before = (next(&*store, "mail").await, to_notify(&*store).await, store.outbox(9).await.unwrap());
    assert_eq!((before.0.len(), before.1.len(), before.2.len()), (3, 1, 4));
    store.rebuild().await.unwrap();
    assert_eq!((next(&*store, "mail").await, to_notify(&*store).await, store.outbox(9).await.unwrap()), before);
}
