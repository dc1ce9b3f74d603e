//! Deleted conversations: hidden, restored, erased.

use std::sync::Arc;

use annie_core::{
    audit::link,
    erasure,
    event::{EventBody, Scope},
    ids::{ConversationId, Seq},
    ports::{
        Address, AppendError, Before, DeadLetterFilter, DeleteConversation, Deleting, ErasedPart, Fence, Snapshot,
        Storage, Store,
    },
    skill::Effect,
    time::Micros,
};
use annie_store::examine;

use crate::make::*;

/// In every text of these conversations.
const SECRET: &str = "pelican";
const HOUR_US: i64 = 3_600_000_000;

fn request(conversation: ConversationId, at: i64, erase_at: i64) -> DeleteConversation {
    let (by, reason) = ("ann".to_owned(), "as she wishes".to_owned());
    DeleteConversation { conversation, by, reason, at: Micros(at), erase_at: Micros(erase_at), unchanged_since: None }
}

async fn delete(store: &dyn Store, conversation: ConversationId, at: i64) -> Deleting {
    store.delete_conversation(request(conversation, at, at + 30)).await.unwrap()
}

async fn erase(store: &dyn Store, conversation: ConversationId, events_max: u32) -> ErasedPart {
    let record = erasure::record(task(99), "ann", "as she wishes", Micros(500));
    store.erase_step(conversation, record, events_max).await.unwrap()
}

/// A conversation of ann with one answered task whose events have the secret in every text.
async fn talked(store: &dyn Store, n: u128) -> ConversationId {
    let (c, id) = (conversation(n), task(n));
    let message = received_as(id, 10, |inbound| {
        inbound.text = format!("my {SECRET}");
        inbound.client_id = format!("about a {SECRET} {n}");
        inbound.reply_to = Some(Address { channel: "mail".to_owned(), to: format!("{SECRET}@example.org") });
    });
    commit(store, inbox(c, "ann", vec![message])).await.unwrap();
    let epoch = store.claim(c, node(1)).await.unwrap().unwrap().epoch;
    let mut begun = started(id, 11);
    if let EventBody::TurnStarted { facts, .. } = &mut begun.body {
        facts.skills = SECRET.repeat(500);
        facts.todo_summary = SECRET.to_owned();
    }
    let calls = vec![planned(intent(n), "mail.send", Effect::Once), dispatched("one", SECRET, &[])];
    let reply = plans(id, calls, 12);
    let report = agent_reported(id, "one", SECRET, 13);
    let snapshot = Snapshot { seq: Seq(2), v: 1, state: format!("{{\"text\":\"{SECRET}\"}}") };
    commit(store, owned(c, "ann", epoch, vec![begun, reply, report, answered(id, SECRET, 14)])).await.unwrap();
    store.put_snapshot(c, epoch, snapshot).await.unwrap();
    c
}

/// Everything that the ports show of the conversations of ann.
async fn shown(store: &dyn Storage, c: ConversationId) -> String {
    let all = Scope::Operator;
    let mut text = format!("{:?}", store.events(all.clone(), c, Seq(0), 100).await.unwrap());
    text += &format!("{:?}", store.stored_events(c, Seq(0), 100).await.unwrap());
    text += &format!("{:?}", store.tasks(all.clone(), false, Before::NEWEST, 100).await.unwrap());
    text += &format!("{:?}", store.outbox(100).await.unwrap());
    text += &format!("{:?}", store.notifications(user("ann"), 0, 100).await.unwrap());
    text += &format!("{:?}", store.snapshot(c).await.unwrap());
    text += &format!("{:?}", store.conversations(all.clone(), Before::NEWEST, 100).await.unwrap());
    let filter = DeadLetterFilter { with_deleted: true, ..DeadLetterFilter::default() };
    let letters = store.dead_letters(all, filter, Before::NEWEST, 100).await.unwrap();
    text + &format!("{letters:?}")
}

pub async fn deleted_conversation_is_hidden_and_accepts_nothing_until_it_is_restored(store: Arc<dyn Storage>) {
    let (c, other) = (talked(&*store, 1).await, talked(&*store, 2).await);
    let epoch = store.conversation(Scope::Operator, c).await.unwrap().unwrap().epoch;
    assert_eq!(delete(&*store, conversation(7), 20).await, Deleting::Unknown);
    assert_eq!(delete(&*store, c, 20).await, Deleting::Deleted);
    assert_eq!(delete(&*store, c, 25).await, Deleting::Deleted, "again");
    let listed = store.listed_conversations(of("ann"), Before::NEWEST, 9).await.unwrap();
    assert_eq!(listed.iter().map(|row| row.id).collect::<Vec<_>>(), [other]);
    assert_eq!(store.conversations(of("ann"), Before::NEWEST, 9).await.unwrap().len(), 1);
    assert_eq!(store.conversations(Scope::Operator, Before::NEWEST, 9).await.unwrap().len(), 2);
    let late = || inbox(c, "ann", vec![received(task(5), "late", "hello", 30)]);
    assert_eq!(commit(&*store, late()).await, Err(AppendError::Deleted));
    let opening = annie_core::ports::Append { fence: Fence::Opening(node(1)), ..late() };
    assert_eq!(commit(&*store, opening).await, Err(AppendError::Deleted));
    let stale = owned(c, "ann", epoch, vec![answered(task(1), "x", 30)]);
    assert_eq!(commit(&*store, stale.clone()).await, Err(AppendError::Fenced));
    assert_eq!(store.claim(c, node(2)).await.unwrap(), None);
    let trash = store.restorable(of("ann"), 9).await.unwrap();
    assert_eq!((trash.len(), &*trash[0].title, &*trash[0].by), (1, &*format!("my {SECRET}"), "ann"));
    assert_eq!((trash[0].at, trash[0].erase_at), (Micros(20), Micros(50)), "the first deletion counts");
    assert_eq!(store.restorable(of("bob"), 9).await.unwrap(), []);
    assert!(store.restore_conversation(c).await.unwrap());
    assert!(!store.restore_conversation(c).await.unwrap());
    assert_eq!(commit(&*store, stale).await, Err(AppendError::Fenced), "the former owner stays fenced");
    commit(&*store, late()).await.unwrap();
    assert_eq!(store.listed_conversations(of("ann"), Before::NEWEST, 9).await.unwrap().len(), 2);
    assert_eq!(store.deletion(c).await.unwrap(), None);
}

pub async fn deletion_is_refused_while_a_task_is_open(store: Arc<dyn Storage>) {
    let c = conversation(1);
    let epoch = opened(&*store, c, "ann", task(1), 1).await;
    assert_eq!(delete(&*store, c, 5).await, Deleting::Busy);
    commit(&*store, owned(c, "ann", epoch, vec![suspended(task(1), 6)])).await.unwrap();
    assert_eq!(delete(&*store, c, 7).await, Deleting::Busy);
    assert_eq!((store.deletion(c).await.unwrap(), store.restorable(of("ann"), 9).await.unwrap()), (None, Vec::new()));
    commit(&*store, owned(c, "ann", epoch, vec![cancelled(task(1), 8)])).await.unwrap();
    assert_eq!(delete(&*store, c, 9).await, Deleting::Deleted);
}

pub async fn deletion_of_a_conversation_that_has_changed_since_is_refused(store: Arc<dyn Storage>) {
    let c = talked(&*store, 1).await;
    let changed_at = store.conversation(Scope::Operator, c).await.unwrap().unwrap().updated_at.0;
    let since = async |at| {
        let unchanged_since = Some(Micros(at));
        store.delete_conversation(DeleteConversation { unchanged_since, ..request(c, 20, 20) }).await.unwrap()
    };
    assert_eq!(since(changed_at).await, Deleting::Busy);
    assert_eq!(store.deletion(c).await.unwrap(), None);
    assert_eq!(since(changed_at + 1).await, Deleting::Deleted);
}

pub async fn deletion_and_a_message_at_the_same_time_never_lose_the_message(store: Arc<dyn Storage>) {
    for n in 1..=20 {
        let c = talked(&*store, n).await;
        let message = inbox(c, "ann", vec![received(task(1_000 + n), &format!("late {n}"), "hello", 30)]);
        match tokio::join!(commit(&*store, message), delete(&*store, c, 20)) {
            (Ok(_), Deleting::Busy) | (Err(AppendError::Deleted), Deleting::Deleted) => {}
            other => panic!("{other:?}"),
        }
    }
}

pub async fn deleted_conversation_wakes_no_background_work_and_delivers_nothing(store: Arc<dyn Storage>) {
    let c = conversation(1);
    let epoch = opened(&*store, c, "ann", task(1), 1).await;
    let calls = vec![planned(intent(1), "mail.send", Effect::Once)];
    let events = vec![started(task(1), 2), plans(task(1), calls, 3), run_started(task(1), intent(1), 3)];
    commit(&*store, owned(c, "ann", epoch, events)).await.unwrap();
    let failed = died(task(1), dead_letter(1, Some(10)), 5);
    commit(&*store, owned(c, "ann", epoch, vec![pending(1, 20, 4), failed])).await.unwrap();
    let due = async |store: &dyn Store| {
        let letters = store.due_dead_letters(Micros(100), Micros(0), 9).await.unwrap().len();
        let operations = store.expiring_operations(Micros(100), 9).await.unwrap().len();
        (letters, operations, store.dead_letters_waiting().await.unwrap().next_retry_at.is_some())
    };
    let listed = async |store: &dyn Store| {
        let filter = DeadLetterFilter::default;
        let of_user = store.dead_letters(of("ann"), filter(), Before::NEWEST, 9).await.unwrap().len();
        let of_all = store.dead_letters(Scope::Operator, filter(), Before::NEWEST, 9).await.unwrap().len();
        let counted = [of("ann"), Scope::Operator].map(|scope| store.count_dead_letters(scope, filter()));
        let [of_user_counted, of_all_counted] = counted;
        let waiting = store.dead_letters_waiting().await.unwrap().count;
        [of_user as u64, of_all as u64, of_user_counted.await.unwrap(), of_all_counted.await.unwrap(), waiting]
    };
    assert_eq!((due(&*store).await, store.outbox(9).await.unwrap().len()), ((1, 1, true), 1));
    assert_eq!(listed(&*store).await, [1; 5]);
    assert_eq!(delete(&*store, c, 6).await, Deleting::Deleted);
    assert_eq!((due(&*store).await, store.outbox(9).await.unwrap().len()), ((0, 0, false), 0));
    assert_eq!(listed(&*store).await, [0; 5], "nothing can be done with its dead letters");
    assert!(store.restore_conversation(c).await.unwrap());
    assert_eq!(listed(&*store).await, [1; 5]);
    assert_eq!((due(&*store).await, store.outbox(9).await.unwrap().len()), ((1, 1, true), 0));
    assert_eq!(delete(&*store, c, 7).await, Deleting::Deleted);
    assert!(erase(&*store, c, 100).await.is_done);
    assert_eq!(due(&*store).await, (0, 0, false));
    assert!(!shown(&*store, c).await.contains("Sorry"));
}

pub async fn erasure_leaves_no_content_and_the_links_of_the_audit_chain(store: Arc<dyn Storage>) {
    let (c, other) = (talked(&*store, 1).await, talked(&*store, 2).await);
    let words = vec![(annie_core::ids::OutboxId::for_task(task(1)), task(1))];
    let _ = store.notify(user("ann"), format!("your {SECRET}"), words, Micros(15)).await.unwrap();
    let chain = async |events: usize| {
        let events = store.stored_events(c, Seq(0), events as u32).await.unwrap();
        events.iter().fold(String::new(), |before, event| link(&before, c, event))
    };
    let before = chain(5).await;
    assert_eq!(erase(&*store, c, 100).await, ErasedPart { events: 0, is_done: true }, "it is not deleted");
    assert_eq!(delete(&*store, c, 20).await, Deleting::Deleted);
    assert_eq!(erase(&*store, c, 100).await, ErasedPart { events: 5, is_done: true });
    assert_eq!(erase(&*store, c, 100).await, ErasedPart { events: 0, is_done: true }, "again");
    assert_eq!(chain(5).await, before);
    let stored = store.stored_events(c, Seq(0), 100).await.unwrap();
    assert_eq!(stored.len(), 6);
    assert!(stored[..5].iter().all(|event| event.erased.is_some()) && stored[5].erased.is_none());
    assert!(erasure::is_record(&stored[5].body) && stored[5].body.contains("as she wishes"));
    let record = store.deletion(c).await.unwrap().and_then(|deletion| deletion.record);
    assert_eq!(record, Some(Seq(6)));
    for event in &stored[..5] {
        assert_eq!(erasure::fault_of(event.seq, event.task, &event.body, record), None);
    }
    assert!(!store.restore_conversation(c).await.unwrap(), "what is erased cannot be restored");
    assert_eq!(
        commit(&*store, inbox(c, "ann", vec![received(task(5), "x", "y", 30)])).await,
        Err(AppendError::Deleted)
    );
    let text = shown(&*store, c).await;
    let others = store.tasks(Scope::Operator, false, Before::NEWEST, 9).await.unwrap();
    let of_it = others.iter().find(|row| row.conversation == c).unwrap();
    assert_eq!(of_it.title, erasure::ERASED);
    assert_eq!(store.message(user("ann"), format!("about a {SECRET} 1")).await.unwrap(), None);
    assert!(text.matches(SECRET).count() > 0, "the other conversation is unchanged");
    let events = store.events(Scope::Operator, c, Seq(0), 100).await.unwrap();
    assert!(!format!("{events:?} {stored:?}").contains(SECRET), "{events:?}");
    assert_eq!(store.notifications(user("ann"), 0, 9).await.unwrap(), []);
    assert_eq!(store.snapshot(c).await.unwrap(), None);
    let kept = store.events(Scope::Operator, other, Seq(0), 100).await.unwrap();
    assert!(format!("{kept:?}").contains(SECRET));
}

pub async fn erasure_takes_the_text_of_a_notification_about_several_tasks_and_leaves_it_to_the_others(
    store: Arc<dyn Storage>,
) {
    let c = conversation(1);
    for n in [1, 2] {
        let epoch = opened(&*store, conversation(n), "ann", task(n), 1).await;
        commit(&*store, owned(conversation(n), "ann", epoch, vec![answered(task(n), SECRET, 2)])).await.unwrap();
    }
    let word = |n| (annie_core::ids::OutboxId::for_task(task(n)), task(n));
    let text = format!("two about a {SECRET}");
    let kept = store.notify(user("ann"), text, vec![word(1), word(2)], Micros(15)).await.unwrap();
    assert!(kept.is_some());
    assert_eq!(delete(&*store, c, 20).await, Deleting::Deleted);
    assert!(erase(&*store, c, 100).await.is_done);
    assert!(erase(&*store, c, 100).await.is_done, "again");
    let left = store.notifications(user("ann"), 0, 9).await.unwrap();
    assert_eq!(left.len(), 1, "the other task is notified of");
    assert_eq!((left[0].text.as_str(), left[0].tasks.as_slice()), (erasure::ERASED, &[task(2)][..]));
    assert_eq!(delete(&*store, conversation(2), 20).await, Deleting::Deleted);
    assert!(erase(&*store, conversation(2), 100).await.is_done);
    assert_eq!(store.notifications(user("ann"), 0, 9).await.unwrap(), []);
}

pub async fn erasure_begins_without_an_event_if_none_is_asked_for(store: Arc<dyn Storage>) {
    let c = talked(&*store, 1).await;
    assert_eq!(delete(&*store, c, 20).await, Deleting::Deleted);
    assert_eq!(erase(&*store, c, 0).await, ErasedPart { events: 0, is_done: false });
    assert!(!store.restore_conversation(c).await.unwrap());
    let due = async |scope| store.due_erasures(scope, Micros(0), 9).await.unwrap().len();
    assert_eq!((due(of("ann")).await, due(of("bob")).await), (1, 0));
    assert_eq!(erase(&*store, c, 100).await, ErasedPart { events: 5, is_done: true });
}

pub async fn erasure_in_steps_and_by_two_at_once_ends_with_the_same_rows(store: Arc<dyn Storage>) {
    for n in 1..=5 {
        let c = talked(&*store, n).await;
        assert_eq!(delete(&*store, c, 20).await, Deleting::Deleted);
        let work = async || while !erase(&*store, c, 2).await.is_done {};
        tokio::join!(work(), work());
        let stored = store.stored_events(c, Seq(0), 100).await.unwrap();
        assert_eq!(stored.iter().filter(|event| event.erased.is_some()).count(), 5);
        assert_eq!(stored.len(), 6, "one record");
        assert!(store.deletion(c).await.unwrap().unwrap().erased_at.is_some());
    }
    assert!(!shown(&*store, conversation(1)).await.contains(SECRET));
}

pub async fn tables_of_an_erased_conversation_are_the_same_after_a_rebuild(store: Arc<dyn Storage>) {
    let c = talked(&*store, 1).await;
    let letter = conversation(2);
    let epoch = opened(&*store, letter, "ann", task(2), 1).await;
    commit(&*store, owned(letter, "ann", epoch, vec![died(task(2), dead_letter(1, None), 5)])).await.unwrap();
    for id in [c, letter] {
        assert_eq!(delete(&*store, id, 20).await, Deleting::Deleted);
        assert!(erase(&*store, id, 100).await.is_done);
    }
    let usage = || {
        store.usage(annie_core::spend::UsageQuery {
            user: None,
            conversation: None,
            by: annie_core::spend::UsageBy::All,
            from: annie_core::spend::Day(0),
            to: annie_core::spend::Day(i64::MAX / 1_000_000_000_000),
            limit: 9,
        })
    };
    let (before, spent) = (shown(&*store, c).await, usage().await.unwrap());
    assert_eq!(spent[0].totals.input_tokens, 100, "numbers are kept");
    let found = examine(&*store).await.unwrap();
    assert!(found.is_folded_right() && found.is_log_whole(), "{found:?}");
    store.rebuild().await.unwrap();
    assert_eq!(shown(&*store, c).await, before);
    assert_eq!(usage().await.unwrap(), spent);
    let letters = format!("{:?}", store.dead_letter(Scope::Operator, task(2)).await.unwrap());
    assert!(!letters.contains("Sorry") && !letters.contains("refused"), "{letters}");
}

pub async fn erasures_are_due_at_their_time_and_until_they_are_done(store: Arc<dyn Storage>) {
    let c = talked(&*store, 1).await;
    assert_eq!(delete(&*store, c, 20).await, Deleting::Deleted);
    let due = async |now| store.due_erasures(Scope::Operator, Micros(now), 9).await.unwrap().len();
    assert_eq!((due(49).await, due(50).await), (0, 1));
    assert_eq!(erase(&*store, c, 2).await, ErasedPart { events: 2, is_done: false });
    assert_eq!(due(0).await, 1, "what has begun is finished");
    assert_eq!(store.restorable(of("ann"), 9).await.unwrap(), []);
    while !erase(&*store, c, 2).await.is_done {}
    assert_eq!(due(i64::MAX).await, 0);
}

pub async fn shared_text_without_events_is_deleted_after_two_hours_only(store: Arc<dyn Storage>) {
    let c = talked(&*store, 1).await;
    let kept = talked(&*store, 2).await;
    for id in [c, kept] {
        assert_eq!(store.sweep_texts(Micros(10 * HOUR_US)).await.unwrap(), 0, "events of {id} name it");
    }
    for id in [c, kept] {
        assert_eq!(delete(&*store, id, 20).await, Deleting::Deleted);
        assert!(erase(&*store, id, 100).await.is_done);
    }
    assert_eq!(store.sweep_texts(Micros(0)).await.unwrap(), 0, "it was written after that");
    let expected = u64::from(store.name() != "memory");
    assert_eq!(store.sweep_texts(Micros(10 * HOUR_US)).await.unwrap(), expected);
    // The store remembers for an hour that it has written the text, so within this hour no sweep may come. Afterwards it is written
    // again with the next event.
    let epoch = opened(&*store, conversation(3), "ann", task(3), 3 * HOUR_US).await;
    let mut begun = started(task(3), 3 * HOUR_US);
    if let EventBody::TurnStarted { facts, .. } = &mut begun.body {
        facts.skills = SECRET.repeat(500);
    }
    commit(&*store, owned(conversation(3), "ann", epoch, vec![begun.clone()])).await.unwrap();
    let events = store.events(Scope::Operator, conversation(3), Seq(1), 9).await.unwrap();
    assert_eq!(events[0].body, begun.body);
}

pub async fn old_snapshots_of_conversations_without_open_tasks_are_deleted(store: Arc<dyn Storage>) {
    let c = talked(&*store, 1).await;
    let open = conversation(2);
    let epoch = opened(&*store, open, "ann", task(2), 1).await;
    store.put_snapshot(open, epoch, Snapshot { seq: Seq(1), v: 1, state: "{}".to_owned() }).await.unwrap();
    assert_eq!(store.sweep_snapshots(Micros(14), 9).await.unwrap(), 0, "it has changed since");
    assert_eq!(store.sweep_snapshots(Micros(100), 9).await.unwrap(), 1);
    assert_eq!(store.snapshot(c).await.unwrap(), None);
    assert!(store.snapshot(open).await.unwrap().is_some());
}
