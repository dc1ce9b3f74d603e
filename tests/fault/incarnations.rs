//! How incarnations end and begin: what an actor leaves behind, which incarnation succeeds it, and what must not be lost
//! in between.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, Instant},
};

use annie_actors::{Operation, Submission, Submitted};
use annie_core::{
    event::{EventBody, FinalEvent, Mode, Scope},
    ids::{ConversationId, NodeIncarnation},
    message::Message,
    outcome::Outcome,
    ports::{FaultAction, Fence, Log, StoreErrorKind},
};
use annie_store::{MemoryStore, StoreFault, StorePoint};
use annie_testkit::{
    faults::FaultPlan,
    scripted_model::{ScriptedModel, calls, says},
    skills::{FakeBehaviour, FakeSkills},
};
use serde_json::json;

use crate::world::{PATIENCE, World, WorldParts, ann, check_log, eventually, kill, sleep_for_ms, two_agents};

fn engine_of(sent: &Submitted) -> String {
    format!("/conversations/engine:{}", sent.conversation)
}

/// A model that calls one skill and answers with its result.
pub(super) fn calling(skill: &'static str) -> WorldParts {
    let mut parts = WorldParts::new(move |request, _| {
        Ok(match request.messages.last() {
            Some(Message::Tool { text, .. }) => says(text.clone()),
            _ => calls([("use_skill", json!({"skill": skill, "arguments": {"what": "x"}}))]),
        })
    });
    parts.limits.mode = Mode::SingleLoop;
    parts
}

fn with_hook(parts: &mut WorldParts, hook: impl Fn(StorePoint<'_>) -> StoreFault + Send + Sync + 'static) {
    parts.store = Arc::new(MemoryStore::new().with_hook(Arc::new(hook)));
}

#[tokio::test(start_paused = true)]
async fn message_stored_long_after_its_log_writer_died_is_found() {
    let (data, withheld) = (MemoryStore::new(), Arc::new(Mutex::new(Vec::new())));
    let mut parts = WorldParts::new(|_, _| Ok(says("here")));
    let withheld_by_hook = withheld.clone();
    let conversation = ConversationId::for_key(&ann(), "late");
    parts.store = Arc::new(data.with_hook(Arc::new(move |point| match point {
        StorePoint::Commit(batch) if batch.iter().any(|append| append.fence.is_inbox()) => {
            withheld_by_hook.lock().expect("not poisoned").extend_from_slice(batch);
            StoreFault::Hang
        }
        _ => StoreFault::Pass,
    })));
    let world = parts.start().await;
    let message = Submission::new(ann(), "test", "hello").within(conversation);
    let die = async {
        eventually("the append has reached the store", async || (!withheld.lock().ok()?.is_empty()).then_some(()))
            .await;
        kill(&world, "/infra/log").await;
    };
    let (sent, ()) = tokio::join!(world.kernel.submit(message), die);
    assert!(sent.is_err(), "it was acknowledged: {sent:?}");
    sleep_for_ms(50_000).await;
    let late = std::mem::take(&mut *withheld.lock().expect("not poisoned"));
    let task = late[0].events[0].task;
    for stored in data.commit(late).await {
        stored.expect("stored");
    }
    assert!(matches!(world.final_of(conversation, task).await, EventBody::Answered { .. }));
    world.kernel.stop().await;
}

#[tokio::test]
async fn store_panic_at_one_call_does_not_stop_later_answers() {
    for point in ["commit", "find_documents", "open_for", "put_breaker"] {
        let mut parts = calling("test.put");
        let left = AtomicUsize::new(0);
        let is_armed = Arc::new(AtomicBool::new(point == "open_for"));
        let armed = is_armed.clone();
        with_hook(&mut parts, move |at| {
            let is_it = match at {
                StorePoint::Commit(_) => point == "commit",
                StorePoint::Read(name) | StorePoint::Write(name) => name == point,
                StorePoint::Claim(_) => false,
            };
            assert!(!(is_it && armed.load(Relaxed) && left.fetch_add(1, Relaxed) == 0), "the store panics at {point}");
            StoreFault::Pass
        });
        let world = parts.start().await;
        let sent = world.say("go").await;
        is_armed.store(true, Relaxed);
        world.answer(&sent).await;
        let next = eventually("the next message is accepted", async || {
            let mut next = Submission::new(ann(), "test", "again").within(sent.conversation);
            next.client_id = Some("the-next".to_owned());
            world.kernel.submit(next).await.ok()
        })
        .await;
        world.answer(&next).await;
        check_log(&world.log(sent.conversation).await);
        world.kernel.stop().await;
    }
}

#[tokio::test]
async fn engine_stopped_by_an_operator_resumes_its_open_turn() {
    for operation in [Operation::Stop, Operation::Restart] {
        let model = ScriptedModel::new(|_, _| Ok(says("here"))).hanging_when(|_, call| call == 0);
        let model = Arc::new(model);
        let world = WorldParts::with_model(model.clone()).start().await;
        let sent = world.say("hello").await;
        eventually("the first round has begun", async || (model.call_count() > 0).then_some(())).await;
        world.kernel.operate(&engine_of(&sent), None, operation, "a test").await.expect("the actor is alive");
        assert_eq!(world.answer(&sent).await, "here");
        assert!(world.kernel.crashes().is_empty(), "{:?}", world.kernel.crashes());
        world.kernel.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_with_intermittent_failures_fails_no_conversation_and_no_message() {
    let mut parts = WorldParts::new(|_, _| Ok(says("here all the same")));
    let failures = Arc::new(AtomicUsize::new(0));
    let counted = failures.clone();
    with_hook(&mut parts, move |point| match point {
        // The appends of an Engine. An append with the failure that the user sees can always be stored.
        StorePoint::Commit(batch)
            if batch.iter().any(|append| {
                let gives_up = append.events.iter().any(|event| matches!(event.body, EventBody::Failed { .. }));
                matches!(append.fence, Fence::Owner(_)) && !gives_up
            }) && counted.fetch_add(1, Relaxed) < 15 =>
        {
            StoreFault::Fail(StoreErrorKind::Unavailable)
        }
        _ => StoreFault::Pass,
    });
    let world = parts.start().await;
    let sent = world.say("hello").await;
    assert_eq!(world.answer(&sent).await, "here all the same");
    assert!(failures.load(Relaxed) > 15);
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_unavailable_for_seconds_quarantines_no_conversation() {
    let away = Arc::new(AtomicBool::new(false));
    let (model_sees, store_sees) = (away.clone(), away.clone());
    let mut parts = WorldParts::new(move |_, call| {
        model_sees.fetch_or(call == 0, Relaxed);
        Ok(says("back again"))
    });
    with_hook(&mut parts, move |point| match point {
        StorePoint::Commit(_) | StorePoint::Claim(_) if store_sees.load(Relaxed) => {
            StoreFault::Fail(StoreErrorKind::Full)
        }
        _ => StoreFault::Pass,
    });
    let world = parts.start().await;
    let sent = world.say("hello").await;
    eventually("the engine has died more often than it may", async || (world.kernel.crashes().len() > 6).then_some(()))
        .await;
    away.store(false, Relaxed);
    assert_eq!(world.answer(&sent).await, "back again");
    check_log(&world.log(sent.conversation).await);
    world.kernel.stop().await;
}

#[tokio::test]
async fn engine_fenced_by_a_claim_of_a_dead_node_continues() {
    let mut parts = calling("test.look");
    // The owner of a conversation writes something within the time of a round.
    parts.limits.round_ms_max = 500;
    parts.skills = Arc::new(FakeSkills::new(|_| {
        FakeBehaviour::Slow(Duration::from_millis(100), Outcome::success("looked around"))
    }));
    let world = parts.start().await;
    let sent = world.say("hello").await;
    eventually("the skill runs", async || (parts.skills.count("test.look") == 1).then_some(())).await;
    let dead = NodeIncarnation::from_uuid(parts.env.uuid());
    parts.store.claim(sent.conversation, dead).await.expect("the store works").expect("it is there");
    assert!(world.answer(&sent).await.contains("looked around"));
    check_log(&world.log(sent.conversation).await);
    world.kernel.stop().await;
}

/// Delays the end of a passivating Engine while its successor fails to start. The end of the old incarnation must not end
/// the wait for the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn engine_passivation_end_does_not_forget_the_successor() {
    let (leave, may_leave) = mpsc::channel::<()>();
    let may_leave = Mutex::new(Some(may_leave));
    let leaving = Arc::new(AtomicBool::new(false));
    let is_leaving = leaving.clone();
    let failed = AtomicBool::new(false);
    let plan = FaultPlan::by(move |kind, point, _| match (kind, point) {
        ("engine", "after:Passivate") => {
            if let Some(wait) = may_leave.lock().expect("not poisoned").take() {
                is_leaving.store(true, Relaxed);
                let _ = tokio::task::block_in_place(|| wait.recv_timeout(PATIENCE));
            }
            FaultAction::Pass
        }
        ("engine", "init") if is_leaving.load(Relaxed) && !failed.swap(true, Relaxed) => FaultAction::Fail,
        _ => FaultAction::Pass,
    });
    let mut parts = WorldParts::new(|_, _| Ok(says("here"))).faults(Arc::new(plan));
    parts.limits.passivate_after_ms = 20;
    parts.limits.stuck_ms_max = 10_000;
    let world = parts.start().await;
    let first = world.say("1").await;
    world.answer(&first).await;
    eventually("the Engine is passivating", async || leaving.load(Relaxed).then_some(())).await;
    let wakes =
        |world: &World| world.kernel.tree().into_iter().find(|n| n.kind == "conversations").map_or(0, |n| n.handled);
    let before = wakes(&world);
    let second = world.say_in(first.conversation, "2").await;
    eventually("the wake-up is handled", async || (wakes(&world) > before).then_some(())).await;
    leave.send(()).expect("the old incarnation waits");
    assert_eq!(world.answer(&second).await, "here");
    world.kernel.stop().await;
}

#[tokio::test]
async fn breaker_that_is_open_refuses_calls_although_its_restart_fails_once() {
    let plan = Arc::new(FaultPlan::once_at("breaker", "init", 0, FaultAction::Fail));
    plan.disarm();
    let mut parts = calling("test.look").faults(plan.clone());
    parts.limits.breaker.failures_max = 1;
    parts.skills = Arc::new(FakeSkills::new(|_| FakeBehaviour::Answer(Outcome::transient("broken", "it is broken"))));
    let world = parts.start().await;
    let first = world.say("1").await;
    world.answer(&first).await;
    assert_eq!(parts.skills.count("test.look"), 1);
    eventually("the row is stored", async || {
        let row = parts.store.breaker("test.look".to_owned()).await.ok()??;
        (row.trips == 1).then_some(())
    })
    .await;
    world
        .kernel
        .operate("/breakers/breaker:test.look", None, Operation::Kill, "a test")
        .await
        .expect("the actor is alive");
    plan.arm();
    let second = world.say("2").await;
    world.answer(&second).await;
    assert_eq!(plan.injected().len(), 1);
    assert_eq!(parts.skills.count("test.look"), 1, "the call went through an open breaker");
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_kills_and_stops_count_as_no_crashes_and_quarantine_no_conversation() {
    // More than the crashes and restarts that one turn may have, and more than the deaths that a conversation may have
    // within a minute.
    const OPERATIONS: u64 = 9;
    let model = ScriptedModel::new(|_, _| Ok(says("here"))).hanging_when(|_, call| call < OPERATIONS);
    let model = Arc::new(model);
    let world = WorldParts::with_model(model.clone()).start().await;
    let sent = world.say("hello").await;
    let paths = [engine_of(&sent), "/scheduler".to_owned()];
    for n in 1..=OPERATIONS {
        model.called(n).await;
        for path in &paths {
            let operation = if n % 3 == 0 { Operation::Stop } else { Operation::Kill };
            eventually("the actor is alive and is ended", async || {
                world.kernel.operate(path, None, operation, "a test").await.ok()
            })
            .await;
        }
    }
    assert_eq!(world.answer(&sent).await, "here");
    assert!(world.kernel.crashes().is_empty(), "{:?}", world.kernel.crashes());
    assert_eq!(world.kernel.health().await.crashes_total, 0);
    check_log(&world.log(sent.conversation).await);
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engine_kill_leaves_no_children() {
    let model = Arc::new(ScriptedModel::new(|r, _| Ok(two_agents(r))).hanging_when(|_, call| call == 1 || call == 2));
    let mut parts = WorldParts::with_model(model.clone());
    parts.limits.turn.crashes_max = 1;
    let world = parts.start().await;
    let sent = world.say("do both").await;
    eventually("both agents think", async || (model.call_count() >= 3).then_some(())).await;
    world.kernel.operate(&engine_of(&sent), None, Operation::Kill, "a test").await.expect("the actor is alive");
    let end = world.final_of(sent.conversation, sent.task).await;
    assert!(matches!(end, EventBody::Answered { .. }), "an operator's kill is held against no turn: {end:?}");
    eventually("the agents are gone", async || {
        let tree = world.kernel.tree();
        (!tree.iter().any(|n| n.kind == "sub_agent")).then_some(())
    })
    .await;
    world.kernel.operate("/infra", None, Operation::Kill, "a test").await.expect("the actor is alive");
    eventually("the log writer has a new incarnation", async || {
        let log = world.kernel.tree().into_iter().find(|n| n.path.as_str() == "/infra/log")?;
        (log.status == "running" && world.kernel.health().await.ready).then_some(())
    })
    .await;
    world.kernel.stop().await;
    assert_eq!(world.kernel.tree(), [], "a stopped kernel has no actors");
}

#[tokio::test]
async fn turn_cancellation_ends_its_running_skill() {
    let mut parts = calling("test.look");
    parts.skills = Arc::new(FakeSkills::new(|_| FakeBehaviour::Hang));
    let world = parts.start().await;
    let sent = world.say("go").await;
    let breaker = "/breakers/breaker:test.look";
    let runs = async || world.kernel.view(breaker).await.ok()?.1?["runs"].as_u64();
    eventually("the skill runs", async || (runs().await? == 1).then_some(())).await;
    assert!(world.kernel.cancel(Scope::User(ann()), sent.task, "ann").await.expect("it is there"));
    let from = Instant::now();
    eventually("the skill has ended", async || (runs().await? == 0).then_some(())).await;
    assert!(from.elapsed() < Duration::from_secs(1), "only its time limit ended it");
    assert!(matches!(world.final_of(sent.conversation, sent.task).await, EventBody::Cancelled { .. }));
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn actor_waiting_for_a_slow_commit_does_not_count_as_stuck() {
    let slow = Arc::new(AtomicUsize::new(0));
    let seen = slow.clone();
    let mut parts = WorldParts::new(|_, _| Ok(says("here")));
    with_hook(&mut parts, move |point| {
        if matches!(point, StorePoint::Commit(_)) && seen.fetch_add(1, Relaxed) > 0 {
            // Blocks the caller as a slow disk does: the channel never receives anything.
            let (_keep, never) = mpsc::channel::<()>();
            let _ = tokio::task::block_in_place(|| never.recv_timeout(Duration::from_millis(400)));
        }
        StoreFault::Pass
    });
    parts.limits.stuck_ms_max = 100;
    let world = parts.start().await;
    let sent = world.say("hello").await;
    assert_eq!(world.answer(&sent).await, "here");
    assert!(world.kernel.crashes().is_empty(), "{:?}", world.kernel.crashes());
    world.kernel.stop().await;
}

/// A caller that gives up before the acknowledgement frees its queue position, even if its message is never stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn admission_queue_frees_the_position_of_a_sender_that_leaves() {
    let (resume_store, may_resume) = mpsc::channel::<()>();
    let may_resume = Mutex::new(may_resume);
    let full = Arc::new(AtomicBool::new(false));
    let seen = full.clone();
    let model = Arc::new(ScriptedModel::new(|_, _| Ok(says("here"))).hanging_when(|_, _| true));
    let mut parts = WorldParts::with_model(model.clone());
    parts.slots = 1;
    with_hook(&mut parts, move |point| match point {
        StorePoint::Commit(_) if seen.load(Relaxed) => {
            let wait = may_resume.lock().expect("not poisoned");
            let _ = tokio::task::block_in_place(|| wait.recv_timeout(PATIENCE));
            StoreFault::Fail(StoreErrorKind::Full)
        }
        _ => StoreFault::Pass,
    });
    let world = parts.start().await;
    let running = world.say("running").await;
    eventually("the first task runs", async || {
        let stored = world.kinds(running.conversation).await.iter().any(|k| k.ends_with("turn_started"));
        (model.call_count() == 1 && stored).then_some(())
    })
    .await;
    full.store(true, Relaxed);
    for n in 0..3 {
        let message = Submission::new(ann(), "test", format!("{n}"));
        let given_up = tokio::time::timeout(Duration::from_millis(50), world.kernel.submit(message)).await;
        assert!(given_up.is_err(), "{given_up:?}");
        resume_store.send(()).expect("the store waits");
    }
    full.store(false, Relaxed);
    eventually("the queue has capacity", async || {
        world.kernel.submit(Submission::new(ann(), "test", "one more")).await.ok()
    })
    .await;
    world.kernel.crash().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_writer_death_around_an_agentic_round_neither_blocks_nor_repeats_it() {
    let parts_with = |plan: &Arc<FaultPlan>| {
        let model = Arc::new(ScriptedModel::new(|_, _| Ok(says("the program did it"))));
        let mut parts = WorldParts::with_model(model.clone()).faults(plan.clone());
        parts.acts = true;
        (parts, model)
    };
    let turn = async |plan: Arc<FaultPlan>| {
        plan.disarm();
        let (parts, model) = parts_with(&plan);
        let world = parts.start().await;
        let first = world.say("wake up").await;
        world.answer(&first).await;
        plan.arm();
        let sent = eventually("the message is accepted", async || {
            let mut message = Submission::new(ann(), "test", "do it").within(first.conversation);
            message.client_id = Some("the-message".to_owned());
            world.kernel.submit(message).await.ok()
        })
        .await;
        // If its reply is lost, the effect of an agentic round is unknown. The round is never reported as failed before
        // it began.
        let body = world.final_of(sent.conversation, sent.task).await;
        match body.as_final() {
            Some(FinalEvent::Answered { text, .. }) => assert_eq!(text, "the program did it"),
            Some(FinalEvent::Failed { code: "model_in_doubt", .. }) => {}
            Some(FinalEvent::Failed { .. } | FinalEvent::Cancelled { .. }) | None => {
                panic!("injected {:?}: {body:?}", plan.injected())
            }
        }
        assert_eq!(model.call_count(), 2, "each program ran once; injected {:?}", plan.injected());
        world.kernel.stop().await;
        plan.hits().into_iter().filter(|(kind, _)| kind == "log_writer").collect::<Vec<_>>()
    };
    let hits = turn(Arc::new(FaultPlan::recording())).await;
    assert!(hits.iter().any(|(_, point)| point == "before:Append"), "{hits:?}");
    for (kind, point) in hits.iter().collect::<std::collections::BTreeSet<_>>() {
        for nth in 0..hits.iter().filter(|(_, p)| p == point).count() {
            turn(Arc::new(FaultPlan::once_at(kind, point, nth, FaultAction::Kill))).await;
        }
    }
}

#[tokio::test]
async fn cancellation_by_a_fenced_engine_is_not_acknowledged() {
    let model = Arc::new(ScriptedModel::new(|_, _| Ok(says("late"))).hanging_when(|_, _| true));
    let parts = WorldParts::with_model(model.clone());
    let world = parts.start().await;
    let sent = world.say("never ends").await;
    eventually("the round runs", async || (model.call_count() == 1).then_some(())).await;
    let stranger = NodeIncarnation::from_uuid(parts.env.uuid());
    parts.store.claim(sent.conversation, stranger).await.expect("the store works").expect("it is there");
    let cancelled = world.kernel.cancel(Scope::User(ann()), sent.task, "ann").await;
    assert!(
        !matches!(cancelled, Ok(true)),
        "it is acknowledged, and the log has {:?}",
        world.kinds(sent.conversation).await
    );
    // A repeated cancellation goes to the incarnation that owns the conversation.
    eventually("the task is cancelled", async || {
        world.kernel.cancel(Scope::User(ann()), sent.task, "ann").await.ok().filter(|done| *done)
    })
    .await;
    assert!(matches!(world.final_of(sent.conversation, sent.task).await, EventBody::Cancelled { .. }));
    world.kernel.stop().await;
}

#[tokio::test]
async fn scheduler_and_conversations_restart_soon_however_often_they_died() {
    let world = WorldParts::new(|_, _| Ok(says("here"))).start().await;
    for n in 0..8 {
        let from = Instant::now();
        kill(&world, ["/scheduler", "/conversations"][n % 2]).await;
        let sent = eventually("the message is accepted", async || {
            let mut message = Submission::new(ann(), "test", "hello");
            message.client_id = Some(format!("message-{n}"));
            message.conversation = Some(ConversationId::for_key(&ann(), &n.to_string()));
            world.kernel.submit(message).await.ok()
        })
        .await;
        assert_eq!(world.answer(&sent).await, "here");
        assert!(from.elapsed() < Duration::from_secs(2), "after {n} deaths it took {:?}", from.elapsed());
    }
    world.kernel.stop().await;
}
