//! One message through the kernel itself, without a front end.

use std::{sync::Arc, time::Duration};

use annie_core::event::{EventBody, Mode};
use annie_testkit::scripted_model::{ScriptedModel, calls, says};
use serde_json::json;

use crate::world::{World, WorldParts, ann, check_log, eventually, last_text, two_agents};

#[tokio::test]
async fn message_is_stored_and_then_answered() {
    let world = WorldParts::new(|_, _| Ok(says("Hello Ann."))).start().await;
    let sent = world.say("hello").await;
    assert_eq!(world.answer(&sent).await, "Hello Ann.");
    let kinds = world.kinds(sent.conversation).await;
    assert_eq!(
        kinds,
        [
            "orchestrator received",
            "orchestrator turn_started",
            "orchestrator decided",
            "orchestrator model_replied",
            "orchestrator answered"
        ]
    );
    world.kernel.stop().await;
}

/// Appends to the log since the start.
async fn appends(world: &World) -> u64 {
    let (_, view) = world.kernel.view("/infra/log").await.expect("the log writer runs");
    view.and_then(|view| view["appends"].as_u64()).expect("the log writer answers")
}

/// Each append is an fsync, and page writes of its own.
#[tokio::test(start_paused = true)]
async fn plain_turn_with_a_reply_within_the_save_time_makes_two_appends() {
    let model = ScriptedModel::new(|_, _| Ok(says("Hello Ann."))).taking(Duration::from_millis(50));
    let world = WorldParts::with_model(Arc::new(model)).start().await;
    let before = appends(&world).await;
    let sent = world.say("hello").await;
    assert_eq!(world.answer(&sent).await, "Hello Ann.");
    assert_eq!(appends(&world).await - before, 2, "{:#?}", world.kinds(sent.conversation).await);
    check_log(&world.log(sent.conversation).await);
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn turn_whose_reply_takes_long_is_stored_as_begun_while_its_round_runs() {
    let model = ScriptedModel::new(|_, _| Ok(says("Hello Ann."))).taking(Duration::from_secs(2));
    let world = WorldParts::with_model(Arc::new(model)).start().await;
    let sent = world.say("hello").await;
    let begun = eventually("the turn is stored as begun", async || {
        let kinds = world.kinds(sent.conversation).await;
        kinds.iter().any(|kind| kind.ends_with("turn_started")).then_some(kinds)
    })
    .await;
    assert!(!begun.iter().any(|kind| kind.ends_with("answered")), "{begun:#?}");
    assert_eq!(world.answer(&sent).await, "Hello Ann.");
    world.kernel.stop().await;
}

#[tokio::test]
async fn orchestrator_runs_two_agents_in_parallel_and_answers_from_their_results() {
    let parts = WorldParts::new(|request, _| Ok(two_agents(request)));
    let world = parts.start().await;
    let sent = world.say("do both").await;
    let answer = world.answer(&sent).await;
    assert!(answer.contains("test.put did x") && answer.contains("test.send did x"), "{answer}");
    assert_eq!((parts.skills.count("test.put"), parts.skills.count("test.send")), (1, 1));
    check_log(&world.log(sent.conversation).await);
    world.kernel.stop().await;
}

#[tokio::test]
async fn messages_of_one_conversation_are_answered_in_order() {
    let world = WorldParts::new(|request, _| Ok(says(format!("re: {}", last_text(request))))).start().await;
    let first = world.say("1").await;
    let mut all = vec![first.clone()];
    for n in 2..=3 {
        all.push(world.say_in(first.conversation, &n.to_string()).await);
    }
    for (n, sent) in all.iter().enumerate() {
        assert_eq!(world.answer(sent).await, format!("re: {}", n + 1));
    }
    let log = world.log(first.conversation).await;
    let finals: Vec<_> = log.iter().filter(|e| e.body.is_final()).map(|e| e.task).collect();
    assert_eq!(finals, all.iter().map(|s| s.task).collect::<Vec<_>>());
    check_log(&log);
}

#[tokio::test]
async fn repeated_message_is_acknowledged_as_the_first_and_answered_once() {
    let world = WorldParts::new(|_, _| Ok(says("ok"))).start().await;
    let mut message = annie_actors::Submission::new(ann(), "test", "hello");
    message.client_id = Some("abc".to_owned());
    message.conversation = Some(annie_core::ids::ConversationId::for_key(&ann(), "k"));
    let first = world.kernel.submit(message.clone()).await.unwrap();
    world.answer(&first).await;
    let second = world.kernel.submit(message.clone()).await.unwrap();
    assert!(second.repeated);
    assert_eq!((first.task, first.seq), (second.task, second.seq));
    message.text = "something else".to_owned();
    assert!(matches!(world.kernel.submit(message).await, Err(annie_actors::KernelError::Conflict { .. })));
    check_log(&world.log(first.conversation).await);
}

#[tokio::test]
async fn turn_under_way_can_be_cancelled() {
    let model = annie_testkit::scripted_model::ScriptedModel::saying("late").hanging_when(|_, _| true);
    let world = WorldParts::with_model(Arc::new(model)).start().await;
    let sent = world.say("never ends").await;
    let scope = annie_core::event::Scope::User(ann());
    assert!(world.kernel.cancel(scope.clone(), sent.task, "ann").await.unwrap());
    assert!(matches!(world.final_of(sent.conversation, sent.task).await, EventBody::Cancelled { .. }));
    assert!(!world.kernel.cancel(scope, sent.task, "ann").await.unwrap());
}

#[tokio::test]
async fn single_loop_runs_a_skill_itself() {
    let parts = WorldParts::new(|request, n| {
        Ok(if n == 0 {
            calls([("use_skill", json!({"skill": "test.send", "arguments": {"what": "mail"}}))])
        } else {
            says(last_text(request))
        })
    });
    let world = parts.start().await;
    let mut message = annie_actors::Submission::new(ann(), "test", "send mail");
    message.mode = Some(Mode::SingleLoop);
    let sent = world.kernel.submit(message).await.unwrap();
    assert_eq!(world.answer(&sent).await, "test.send did mail");
    let kinds = world.kinds(sent.conversation).await;
    assert!(kinds.contains(&"orchestrator skill_started".to_owned()), "{kinds:?}");
}

#[tokio::test]
async fn message_that_could_not_be_stored_frees_its_queue_position() {
    use annie_core::ports::StoreErrorKind;
    use annie_store::{MemoryStore, StoreFault, StorePoint};
    let broken = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let is_broken = broken.clone();
    let mut parts = WorldParts::new(|_, _| Ok(says("ok")));
    parts.slots = 1;
    parts.store = Arc::new(MemoryStore::new().with_hook(Arc::new(move |point| match point {
        StorePoint::Commit(_) if is_broken.load(std::sync::atomic::Ordering::Relaxed) => {
            StoreFault::Fail(StoreErrorKind::Full)
        }
        _ => StoreFault::Pass,
    })));
    let world = parts.start().await;
    for _ in 0..20 {
        let refused = world.kernel.submit(annie_actors::Submission::new(ann(), "test", "hello")).await;
        assert!(matches!(refused, Err(annie_actors::KernelError::Store(_))), "{refused:?}");
    }
    broken.store(false, std::sync::atomic::Ordering::Relaxed);
    let sent = world.say("hello").await;
    assert_eq!(world.answer(&sent).await, "ok");
}
