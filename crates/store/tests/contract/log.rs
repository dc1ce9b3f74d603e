//! Appending to the log and reading it.

use std::sync::Arc;

use annie_core::{
    event::{Event, EventBody, Scope},
    ids::{AgentId, Seq},
    ports::{AppendError, Appended, Store, StoreErrorKind},
};

use crate::make::*;

pub async fn sequence_numbers_are_dense_and_start_at_one(store: Arc<dyn Store>) {
    let c = conversation(1);
    let first = commit(&*store, inbox(c, "ann", vec![received(task(1), "a", "Hello", 10)])).await;
    assert_eq!(first, Ok(Appended { first: Seq(1) }));
    let epoch = store.claim(c, node(1)).await.unwrap().unwrap().epoch;
    let events = vec![started(task(1), 11), answered(task(1), "Hi", 12)];
    assert_eq!(commit(&*store, owned(c, "ann", epoch, events)).await, Ok(Appended { first: Seq(2) }));
    let again = commit(&*store, inbox(c, "ann", vec![received(task(2), "b", "More", 13)])).await;
    assert_eq!(again, Ok(Appended { first: Seq(4) }));
    let seqs: Vec<u64> =
        store.events(of("ann"), c, Seq(0), 100).await.unwrap().iter().map(|event| event.seq.0).collect();
    assert_eq!(seqs, [1, 2, 3, 4]);
}

pub async fn event_is_read_exactly_as_it_was_appended(store: Arc<dyn Store>) {
    let c = conversation(1);
    let sub = AgentId::sub("mailer").unwrap();
    let calls = vec![
        planned(intent(1), "mail.send", annie_core::skill::Effect::Once),
        dispatched("mailer", "Write \"it\" — 'now'; DROP TABLE events;\n\u{0}\u{1f680}", &[]),
    ];
    let mut decided = event(
        task(1),
        i64::MIN,
        EventBody::Decided {
            component: "limits".into(),
            decision: "stop".into(),
            reasoning: "日本語 \\ \" \u{202e}".into(),
            alternatives: vec![String::new()],
            hook: None,
        },
    );
    decided.agent = sub.clone();
    let new =
        vec![received(task(1), "a", "  \u{1f680} ünï\r\n\t", 10), replied(task(1), sub, calls, i64::MAX), decided];
    commit(&*store, inbox(c, "ann", new.clone())).await.unwrap();
    let wanted: Vec<Event> = new.into_iter().zip(1..).map(|(event, seq)| Event::placed(c, Seq(seq), event)).collect();
    assert_eq!(store.events(Scope::Operator, c, Seq(0), 10).await.unwrap(), wanted);
}

pub async fn long_text_of_several_events_is_read_in_each(store: Arc<dyn Store>) {
    let c = conversation(1);
    let epoch = opened(&*store, c, "ann", task(1), 1).await;
    let with = |skills: &str, at| {
        let mut event = started(task(1), at);
        if let EventBody::TurnStarted { facts, .. } = &mut event.body {
            facts.skills = skills.repeat(500);
        }
        event
    };
    let events = vec![with("a \u{0}\u{10ffff}", 2), with("b\n\"ü", 3), with("a \u{0}\u{10ffff}", 4), with("", 5)];
    commit(&*store, owned(c, "ann", epoch, events.clone())).await.unwrap();
    commit(&*store, owned(c, "ann", epoch, vec![with("b\n\"ü", 6)])).await.unwrap();
    let wanted = events.into_iter().chain([with("b\n\"ü", 6)]).zip(2..);
    let wanted: Vec<Event> = wanted.map(|(event, seq)| Event::placed(c, Seq(seq), event)).collect();
    assert_eq!(store.events(of("ann"), c, Seq(1), 10).await.unwrap(), wanted);
}

pub async fn batch_is_answered_in_the_order_of_its_appends(store: Arc<dyn Store>) {
    let batch = vec![
        inbox(conversation(2), "ann", vec![received(task(1), "a", "x", 1), started(task(1), 2)]),
        inbox(conversation(1), "bob", vec![received(task(2), "a", "x", 1)]),
        inbox(conversation(2), "ann", vec![received(task(3), "b", "x", 3)]),
    ];
    let answers = store.commit(batch).await;
    let first = |seq| Ok(Appended { first: Seq(seq) });
    assert_eq!(answers, [first(1), first(1), first(3)]);
    assert_eq!(length(&*store, conversation(2)).await, 3);
}

pub async fn refused_append_stores_nothing_and_does_not_affect_the_others(store: Arc<dyn Store>) {
    let c = conversation(1);
    let epoch = opened(&*store, c, "ann", task(1), 1).await;
    store.claim(c, node(2)).await.unwrap();
    let batch = vec![
        owned(c, "ann", epoch, vec![answered(task(1), "stale", 5)]),
        inbox(conversation(2), "bob", vec![received(task(2), "b", "x", 2)]),
        inbox(c, "bob", vec![received(task(3), "c", "x", 3)]),
        inbox(c, "ann", vec![started(task(4), 4), received(task(5), &task(1).to_string(), "Hello there", 4)]),
        inbox(c, "ann", vec![received(task(6), "d", "x", 4)]),
    ];
    let answers = store.commit(batch).await;
    assert_eq!(answers[0], Err(AppendError::Fenced));
    assert_eq!(answers[1], Ok(Appended { first: Seq(1) }));
    assert_eq!(answers[2], Err(AppendError::WrongOwner));
    assert!(matches!(answers[3], Err(AppendError::Duplicate { same: true, .. })), "{:?}", answers[3]);
    assert_eq!(answers[4], Ok(Appended { first: Seq(2) }));
    assert_eq!(length(&*store, c).await, 2);
    for refused in [3, 4, 5] {
        assert_eq!(store.task(Scope::Operator, task(refused)).await.unwrap(), None);
    }
    assert_eq!(store.outbox(10).await.unwrap(), []);
}

pub async fn empty_batch_and_empty_append_store_nothing(store: Arc<dyn Store>) {
    assert_eq!(store.commit(Vec::new()).await, []);
    let refused = commit(&*store, inbox(conversation(1), "ann", Vec::new())).await;
    assert!(matches!(&refused, Err(AppendError::Store(e)) if e.kind == StoreErrorKind::Internal), "{refused:?}");
    assert_eq!(store.conversation(Scope::Operator, conversation(1)).await.unwrap(), None);
}

pub async fn page_of_events_begins_after_its_sequence_number_and_obeys_its_limit(store: Arc<dyn Store>) {
    let c = conversation(1);
    let events = (0..10).map(|n| received(task(n), &n.to_string(), "x", 1)).collect();
    commit(&*store, inbox(c, "ann", events)).await.unwrap();
    let page = async |after, limit| -> Vec<u64> {
        store.events(of("ann"), c, Seq(after), limit).await.unwrap().iter().map(|e| e.seq.0).collect()
    };
    assert_eq!(page(3, 4).await, [4, 5, 6, 7]);
    assert_eq!(page(8, 4).await, [9, 10]);
    assert_eq!(page(10, 4).await, [0_u64; 0]);
    assert_eq!(page(u64::MAX, 4).await, [0_u64; 0]);
    assert_eq!(page(0, 0).await, [0_u64; 0]);
}

pub async fn large_append_is_stored_whole(store: Arc<dyn Store>) {
    let c = conversation(1);
    let text = "ü".repeat(100_000);
    let events = (0..150).map(|n| received(task(n), &n.to_string(), if n == 77 { &text } else { "x" }, 1)).collect();
    assert_eq!(commit(&*store, inbox(c, "ann", events)).await, Ok(Appended { first: Seq(1) }));
    let stored = store.events(of("ann"), c, Seq(0), 1_000).await.unwrap();
    assert_eq!(stored.len(), 150);
    assert!(matches!(&stored[77].body, EventBody::Received(inbound) if inbound.text == text));
}

pub async fn repeated_message_is_a_duplicate_that_names_the_first(store: Arc<dyn Store>) {
    let (c, d) = (conversation(1), conversation(2));
    let first = vec![started(task(9), 1), received(task(1), "a", "Hello", 1)];
    commit(&*store, inbox(c, "ann", first)).await.unwrap();
    for (conversation, text, same) in [(c, "Hello", true), (c, "Bye", false), (d, "Hello", false)] {
        let repeat = commit(&*store, inbox(conversation, "ann", vec![received(task(2), "a", text, 2)])).await;
        let wanted = AppendError::Duplicate { task: task(1), conversation: c, seq: Seq(2), same };
        assert_eq!(repeat, Err(wanted));
    }
    assert_eq!(store.conversation(Scope::Operator, d).await.unwrap(), None);
}

pub async fn client_id_is_unique_per_user_and_within_one_batch(store: Arc<dyn Store>) {
    let message = |c, name, t| inbox(conversation(c), name, vec![received(task(t), "same", "x", 1)]);
    let answers = store.commit(vec![message(1, "ann", 1), message(2, "bob", 2), message(3, "ann", 3)]).await;
    assert!(answers[0].is_ok() && answers[1].is_ok());
    let wanted = AppendError::Duplicate { task: task(1), conversation: conversation(1), seq: Seq(1), same: false };
    assert_eq!(answers[2], Err(wanted));
    let twice = vec![received(task(4), "twice", "x", 1), received(task(5), "twice", "x", 1)];
    let refused = commit(&*store, inbox(conversation(1), "ann", twice)).await;
    assert!(matches!(refused, Err(AppendError::Duplicate { same: true, .. })), "{refused:?}");
    assert_eq!(length(&*store, conversation(1)).await, 1);
}

pub async fn append_to_a_conversation_of_another_user_is_refused(store: Arc<dyn Store>) {
    let c = conversation(1);
    let epoch = opened(&*store, c, "ann", task(1), 1).await;
    for append in
        [inbox(c, "bob", vec![received(task(2), "b", "x", 2)]), owned(c, "bob", epoch, vec![answered(task(1), "x", 2)])]
    {
        assert_eq!(commit(&*store, append).await, Err(AppendError::WrongOwner));
    }
    assert_eq!(store.events(of("bob"), c, Seq(0), 10).await.unwrap(), []);
    assert_eq!(store.events(of("ann"), c, Seq(0), 10).await.unwrap().len(), 1);
    assert_eq!(store.events(of("ann"), conversation(2), Seq(0), 10).await.unwrap(), []);
}

pub async fn task_id_that_is_in_use_is_refused(store: Arc<dyn Store>) {
    opened(&*store, conversation(1), "ann", task(1), 1).await;
    let again = inbox(conversation(2), "bob", vec![received(task(1), "b", "x", 2)]);
    let other = inbox(conversation(3), "bob", vec![received(task(2), "c", "x", 2)]);
    let answers = store.commit(vec![again, other]).await;
    assert!(matches!(&answers[0], Err(AppendError::Store(e)) if e.kind == StoreErrorKind::Internal));
    assert!(answers[1].is_ok());
    assert_eq!(store.task(of("ann"), task(1)).await.unwrap().unwrap().conversation, conversation(1));
}
