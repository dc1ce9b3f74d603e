//! Long-running operations: the result comes days later into the right conversation, from any sender with the key, once.

use std::sync::Arc;

use annie_actors::{KernelError, Operation as ActorOperation, OperationResult};
use annie_core::{
    context::framed,
    event::{Event, EventBody, Mode, Priority, Scope},
    ids::UserId,
    message::{Message, ModelRequest},
    outcome::{Operation, Outcome},
    ports::{OperationGrant, OperationRow},
    time::Micros,
};
use annie_testkit::{
    env::TestClock,
    scripted_model::{calls, says},
    skills::{FakeBehaviour, FakeSkills},
};
use serde_json::json;

use crate::world::{World, WorldParts, ann, check_log, eventually};

const DAY_MS: i64 = 24 * 3_600_000;

fn own() -> Scope {
    Scope::User(ann())
}

/// A model that starts the operation, reports its outcome, and passes on messages from outside.
fn secretary(request: &ModelRequest) -> annie_core::message::ModelReply {
    match request.messages.last() {
        Some(Message::Tool { text, .. }) => says(text.clone()),
        Some(Message::User { text, .. }) if text.starts_with('[') => says(format!("News: {text}")),
        _ => calls([("use_skill", json!({"skill": "test.put", "arguments": {"what": "the coffee"}}))]),
    }
}

/// A skill whose operation expires after `ms` milliseconds, and a clock that a test can set.
fn parts(ms: i64) -> (WorldParts, Arc<TestClock>) {
    let mut parts = WorldParts::new(|request, _| Ok(secretary(request)));
    let clock = Arc::new(TestClock::new());
    parts.env.clock = clock.clone();
    parts.skills = Arc::new(FakeSkills::new(move |call| {
        let operation = Operation { id: call.operation.id, expires_at: call.now.plus_ms(ms) };
        FakeBehaviour::Answer(Outcome::pending(operation, "The coffee is ordered."))
    }));
    parts.limits.mode = Mode::SingleLoop;
    parts.limits.notify.gather_ms = 5;
    parts.limits.notify.every_ms = 0;
    (parts, clock)
}

async fn start(world: &World) -> (annie_actors::Submitted, OperationRow) {
    let sent = world.say("order coffee").await;
    assert!(world.answer(&sent).await.contains("The coffee is ordered."), "the turn does not wait for the operation");
    let row = world.kernel.operations(own(), false, Micros(i64::MAX).into(), 10).await.expect("readable").pop();
    let row = row.expect("the operation is stored");
    assert_eq!((row.conversation, row.task, row.skill.as_str()), (sent.conversation, sent.task, "test.put"));
    (sent, row)
}

fn result(text: &str) -> OperationResult {
    OperationResult { ok: true, text: text.to_owned(), data: json!({"time": "10:23"}) }
}

fn resumptions(log: &[Event]) -> usize {
    log.iter().filter(|e| matches!(&e.body, EventBody::Received(inbound) if inbound.resumes.is_some())).count()
}

#[tokio::test]
async fn operation_result_after_days_and_a_restart_reaches_its_conversation_once() {
    let (parts, clock) = parts(5 * DAY_MS);
    let world = parts.start().await;
    let (sent, row) = start(&world).await;
    let OperationGrant { id, key, path } = world.kernel.operation_key(&ann(), row.id).await.expect("its owner's");
    assert_eq!((id, path), (row.id, format!("/api/v1/resume/{}", row.id)));
    let bob = UserId::new("bob").expect("a user id");
    assert_eq!(world.kernel.operation_key(&bob, id).await, Err(KernelError::NotFound("operation")));
    let log = serde_json::to_string(&world.log(sent.conversation).await).expect("JSON");
    assert!(!log.contains(&key), "the log contains the key");
    world.kernel.crash().await;

    clock.set_by_ms(3 * DAY_MS);
    let world = parts.start().await;
    let came = world.kernel.finish_operation(id, &key, result("Delivered.")).await.expect("accepted");
    assert_eq!((came.conversation, came.priority, came.repeated), (sent.conversation, Priority::Normal, false));
    let answer = world.answer(&came).await;
    assert!(answer.contains("has finished]\n<result-"), "{answer}");
    let shown = framed(&answer, "result");
    assert_eq!(shown.len(), 1, "the text of an outside party is framed: {answer}");
    assert_eq!((shown[0].attributes, &*shown[0].text), ("origin=\"operation\"", "Delivered.\n{\"time\":\"10:23\"}"));
    let again = world.kernel.finish_operation(id, &key, result("Delivered.")).await.expect("acknowledged again");
    assert_eq!((again.task, again.seq, again.repeated), (came.task, came.seq, true));
    let other = world.kernel.finish_operation(id, &key, result("Spilled.")).await;
    assert!(matches!(&other, Err(KernelError::Stale(why)) if why.contains("another result")), "{other:?}");
    assert_eq!(resumptions(&world.log(sent.conversation).await), 1);
    assert_eq!(world.kernel.operation(own(), id).await.expect("stored").closed_by, Some(came.task));
    assert!(world.kernel.operations(own(), true, Micros(i64::MAX).into(), 10).await.expect("readable").is_empty());
    assert!(matches!(world.kernel.operation_key(&ann(), id).await, Err(KernelError::Stale(_))));
    check_log(&world.log(sent.conversation).await);
    world.kernel.stop().await;
}

#[tokio::test]
async fn operation_result_without_a_follower_becomes_a_notification() {
    let (parts, _clock) = parts(DAY_MS);
    let world = parts.start().await;
    let (_, row) = start(&world).await;
    let key = world.kernel.operation_key(&ann(), row.id).await.expect("its owner's").key;
    let came = world.kernel.finish_operation(row.id, &key, result("Delivered.")).await.expect("accepted");
    let notification =
        eventually("the user is notified", async || world.kernel.notifications(&ann(), 0, 10).await.ok()?.pop()).await;
    assert_eq!(notification.tasks, [came.task]);
    assert!(notification.text.starts_with("News: "), "{}", notification.text);
    world.kernel.stop().await;
}

#[tokio::test]
async fn operation_with_a_wrong_key_looks_unknown_and_an_invalid_result_is_refused() {
    let (parts, _clock) = parts(DAY_MS);
    let world = parts.start().await;
    let (sent, row) = start(&world).await;
    let key = world.kernel.operation_key(&ann(), row.id).await.expect("its owner's").key;
    let unknown = format!("op_{:032}", 7).parse().expect("an id");
    let not_found = Err(KernelError::NotFound("operation"));
    for (id, key) in [(row.id, ""), (row.id, &key[1..]), (unknown, key.as_str()), (row.id, &"0".repeat(64))] {
        assert_eq!(world.kernel.finish_operation(id, key, result("x")).await, not_found);
    }
    for text in [String::new(), "x".repeat(OperationResult::BYTES_MAX + 1)] {
        let bad = OperationResult { text, ..OperationResult::default() };
        let refused = world.kernel.finish_operation(row.id, &key, bad).await;
        assert!(matches!(refused, Err(KernelError::Invalid(_))), "{refused:?}");
    }
    assert_eq!(resumptions(&world.log(sent.conversation).await), 0);
    world.kernel.stop().await;
}

#[tokio::test]
async fn operation_without_a_result_is_reported_once_whatever_dies() {
    let (parts, clock) = parts(DAY_MS);
    let world = parts.start().await;
    let (sent, row) = start(&world).await;
    let key = world.kernel.operation_key(&ann(), row.id).await.expect("its owner's").key;
    clock.set_by_ms(2 * DAY_MS);
    let late = world.kernel.finish_operation(row.id, &key, result("Delivered.")).await;
    assert!(matches!(&late, Err(KernelError::Stale(why)) if why.contains("in time")), "{late:?}");
    for _ in 0..3 {
        eventually("the actor is alive", async || {
            world.kernel.operate("/infra/expiry", None, ActorOperation::Kill, "a test").await.ok()
        })
        .await;
    }
    let closed =
        eventually("the operation is closed", async || world.kernel.operation(own(), row.id).await.ok()?.closed_by)
            .await;
    eventually("its task has ended", async || {
        world.kernel.task(own(), closed).await.ok()?.state.is_ended().then_some(())
    })
    .await;
    let log = world.log(sent.conversation).await;
    assert_eq!(resumptions(&log), 1);
    let is_reported =
        log.iter().any(|e| matches!(&e.body, EventBody::Answered { text, .. } if text.contains("no result until")));
    assert!(is_reported, "{log:#?}");
    let late = world.kernel.finish_operation(row.id, &key, result("Delivered.")).await;
    assert!(matches!(&late, Err(KernelError::Stale(why)) if why.contains("in time")), "{late:?}");
    check_log(&log);
    world.kernel.stop().await;
}

type Granted = Arc<std::sync::Mutex<Option<OperationGrant>>>;

/// A skill that takes the order but hangs without a reply, and the grant that it received.
fn hanging(skill: &'static str) -> (WorldParts, Granted) {
    let mut parts = WorldParts::new(move |request, _| {
        Ok(match request.messages.last() {
            Some(Message::User { text, .. }) if !text.starts_with('[') => {
                calls([("use_skill", json!({"skill": skill, "arguments": {"what": "the coffee"}}))])
            }
            _ => secretary(request),
        })
    });
    parts.limits.mode = Mode::SingleLoop;
    let grant = Granted::default();
    let given = grant.clone();
    parts.skills = Arc::new(FakeSkills::new(move |call| {
        *given.lock().expect("not poisoned") = Some(call.operation.clone());
        FakeBehaviour::Hang
    }));
    (parts, grant)
}

async fn ordered(grant: &Granted) -> OperationGrant {
    eventually("the skill has the order", async || grant.lock().expect("not poisoned").clone()).await
}

#[tokio::test]
async fn operation_result_of_a_run_killed_before_it_reported_pending_is_accepted_once() {
    let (parts, grant) = hanging("test.send");
    let world = parts.start().await;
    let sent = world.say("order coffee").await;
    let OperationGrant { id, key, .. } = ordered(&grant).await;
    let early = world.kernel.finish_operation(id, &key, result("Delivered.")).await;
    assert!(matches!(early, Err(KernelError::Unavailable(_))), "{early:?}");
    world.kernel.crash().await;

    let world = parts.start().await;
    let answer = world.answer(&sent).await;
    assert!(answer.contains("not known whether it took effect"), "{answer}");
    assert_eq!(world.kernel.operations(own(), false, Micros(i64::MAX).into(), 10).await.expect("readable"), []);
    let came = world.kernel.finish_operation(id, &key, result("Delivered.")).await.expect("accepted");
    assert!(world.answer(&came).await.contains("Delivered."));
    let again = world.kernel.finish_operation(id, &key, result("Delivered.")).await.expect("acknowledged again");
    assert_eq!((again.task, again.repeated, came.conversation), (came.task, true, sent.conversation));
    let other = world.kernel.finish_operation(id, &key, result("Spilled.")).await;
    assert!(matches!(&other, Err(KernelError::Stale(why)) if why.contains("another result")), "{other:?}");
    let log = world.log(sent.conversation).await;
    assert_eq!((resumptions(&log), parts.skills.most("test.send")), (1, 1));
    check_log(&log);
    world.kernel.stop().await;
}

#[tokio::test]
async fn operation_result_of_a_run_cancelled_with_its_turn_is_accepted() {
    let (parts, grant) = hanging("test.put");
    let world = parts.start().await;
    let sent = world.say("order coffee").await;
    let OperationGrant { id, key, .. } = ordered(&grant).await;
    assert!(world.kernel.cancel(own(), sent.task, "test").await.expect("received"));
    world.final_of(sent.conversation, sent.task).await;
    let came = world.kernel.finish_operation(id, &key, result("Delivered.")).await.expect("accepted");
    assert!(world.answer(&came).await.contains("Delivered."));
    check_log(&world.log(sent.conversation).await);
    world.kernel.stop().await;
}

#[tokio::test]
async fn operation_without_a_result_expires() {
    let (parts, _clock) = parts(60);
    let world = parts.start().await;
    let (sent, row) = start(&world).await;
    let closed =
        eventually("the operation is closed", async || world.kernel.operation(own(), row.id).await.ok()?.closed_by)
            .await;
    let EventBody::Answered { text, .. } = world.final_of(sent.conversation, closed).await else {
        panic!("wanted an answer");
    };
    assert!(text.contains("brought no result"), "{text}");
    world.kernel.stop().await;
}
