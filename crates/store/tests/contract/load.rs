//! Many concurrent writers.

use std::sync::Arc;

use annie_core::{
    event::Scope,
    ids::{Epoch, Seq},
    ports::{Append, Store, TaskState},
    time::Micros,
};
use tokio::{sync::mpsc, task::JoinSet};

use crate::make::*;

const CONVERSATIONS: u128 = 100;
const TURNS: u128 = 50;
const BATCH_MAX: usize = 256;

/// Each turn has two appends: the message, and its answer by the owner.
pub async fn store_loses_nothing_of_ten_thousand_appends_in_a_hundred_conversations(store: Arc<dyn Store>) {
    let (send, mut receive) = mpsc::channel::<(Append, tokio::sync::oneshot::Sender<Seq>)>(1_024);
    let mut writers = JoinSet::new();
    for n in 0..CONVERSATIONS {
        let (store, send) = (Arc::clone(&store), send.clone());
        writers.spawn(async move { talk(&*store, &send, n).await });
    }
    drop(send);
    let mut waiting = Vec::new();
    while receive.recv_many(&mut waiting, BATCH_MAX).await > 0 {
        let (batch, answers): (Vec<_>, Vec<_>) = waiting.drain(..).unzip();
        for (stored, answer) in store.commit(batch).await.into_iter().zip(answers) {
            answer.send(stored.unwrap().first).unwrap();
        }
    }
    writers.join_all().await;
    for n in 0..CONVERSATIONS {
        let c = conversation(n);
        let events = store.events(Scope::Operator, c, Seq(0), u32::MAX).await.unwrap();
        let seqs: Vec<u64> = events.iter().map(|event| event.seq.0).collect();
        assert_eq!(seqs, (1..=3 * TURNS as u64).collect::<Vec<_>>());
    }
    let tasks = store.tasks(Scope::Operator, false, Micros(i64::MAX).into(), u32::MAX).await.unwrap();
    assert_eq!(tasks.len() as u128, CONVERSATIONS * TURNS);
    assert!(tasks.iter().all(|task| task.state == TaskState::Completed));
    assert_eq!(store.outbox(u32::MAX).await.unwrap().len() as u128, CONVERSATIONS * TURNS);
}

async fn talk(store: &dyn Store, send: &mpsc::Sender<(Append, tokio::sync::oneshot::Sender<Seq>)>, n: u128) {
    let (c, name) = (conversation(n), format!("user{}", n % 7));
    let mut epoch = Epoch(0);
    for turn in 0..TURNS {
        let task = task(n << 32 | turn);
        let message = inbox(c, &name, vec![received(task, &task.to_string(), "Hello", turn as i64)]);
        let seq = append(send, message).await;
        assert_eq!(u128::from(seq.0), 3 * turn + 1);
        if turn % 10 == 0 {
            epoch = store.claim(c, node(turn)).await.unwrap().unwrap().epoch;
        }
        let answer = vec![started(task, turn as i64), answered(task, "Hi", turn as i64)];
        append(send, owned(c, &name, epoch, answer)).await;
    }
}

async fn append(send: &mpsc::Sender<(Append, tokio::sync::oneshot::Sender<Seq>)>, append: Append) -> Seq {
    let (answer, stored) = tokio::sync::oneshot::channel();
    send.send((append, answer)).await.unwrap();
    stored.await.unwrap()
}
