//! How lives end and begin: what an actor leaves behind, who takes its place, and what must not be forgotten meanwhile.

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
    event::{EventBody, Mode, Scope},
    ids::{ConversationId, NodeIncarnation},
    message::Message,
    outcome::Outcome,
    ports::{FaultAction, Fence, Log, StoreErrorKind},
};
use annie_store::{MemoryStore, StoreFault, StorePoint};
use annie_testkit::{
    faults::FaultPlan,
    scripted_model::{ScriptedModel, calls, says},
    skills::{Deed, FakeSkills},
};
use serde_json::json;

use crate::{
    flow::kernel::two_agents,
    world::{PATIENCE, World, WorldParts, ann, check_log, come_back_after, eventually, kill},
};

fn engine_of(said: &Submitted) -> String {
    format!("/conversations/engine:{}", said.conversation)
}

/// A model that calls one skill with what the user said, and answers with its result.
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
async fn what_is_stored_long_after_its_log_writer_died_is_found() {
    let (data, held) = (MemoryStore::new(), Arc::new(Mutex::new(Vec::new())));
    let mut parts = WorldParts::new(|_, _| Ok(says("here")));
    let holds = held.clone();
    let conversation = ConversationId::for_key(&ann(), "late");
    parts.store = Arc::new(data.with_hook(Arc::new(move |point| match point {
        StorePoint::Commit(batch) if batch.iter().any(|append| append.fence == Fence::Inbox) => {
            holds.lock().expect("not poisoned").extend_from_slice(batch);
            StoreFault::Hang
        }
        _ => StoreFault::Pass,
    })));
    let world = parts.start().await;
    let message = Submission::new(ann(), "test", "hello").within(conversation);
    let die = async {
        eventually("it is with the store", async || (!held.lock().ok()?.is_empty()).then_some(())).await;
        kill(&world, "/infra/log").await;
    };
    let (said, ()) = tokio::join!(world.kernel.submit(message), die);
    assert!(said.is_err(), "it was acknowledged: {said:?}");
    come_back_after(50_000).await;
    let late = std::mem::take(&mut *held.lock().expect("not poisoned"));
    let task = late[0].events[0].task;
    for stored in data.commit(late).await {
        stored.expect("stored");
    }
    assert!(matches!(world.final_of(conversation, task).await, EventBody::Answered { .. }));
    world.kernel.stop().await;
}

#[tokio::test]
async fn a_store_that_panics_once_silences_nobody() {
    for point in ["commit", "find_memories", "open_for", "put_breaker"] {
        let mut parts = calling("test.put");
        let left = AtomicUsize::new(0);
        let told = Arc::new(AtomicBool::new(point == "open_for"));
        let armed = told.clone();
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
        let said = world.say("go").await;
        told.store(true, Relaxed);
        world.answer(&said).await;
        let next = eventually("the next message is taken", async || {
            let mut next = Submission::new(ann(), "test", "again").within(said.conversation);
            next.client_id = Some("the-next".to_owned());
            world.kernel.submit(next).await.ok()
        })
        .await;
        world.answer(&next).await;
        check_log(&world.log(said.conversation).await);
        world.kernel.stop().await;
    }
}

#[tokio::test]
async fn an_engine_that_an_operator_stops_comes_back_to_its_open_turn() {
    for operation in [Operation::Stop, Operation::Restart] {
        let model = ScriptedModel::new(|_, _| Ok(says("here"))).hanging_when(|_, call| call == 0);
        let model = Arc::new(model);
        let world = WorldParts::with_model(model.clone()).start().await;
        let said = world.say("hello").await;
        eventually("the first round has begun", async || (model.call_count() > 0).then_some(())).await;
        world.kernel.operate(&engine_of(&said), None, operation, "a test").await.expect("it lives");
        assert_eq!(world.answer(&said).await, "here");
        assert!(world.kernel.crashes().is_empty(), "{:?}", world.kernel.crashes());
        world.kernel.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_now_and_then_is_held_against_no_conversation_and_no_message() {
    let mut parts = WorldParts::new(|_, _| Ok(says("here all the same")));
    let failures = Arc::new(AtomicUsize::new(0));
    let counted = failures.clone();
    with_hook(&mut parts, move |point| match point {
        // What an Engine stores; a failure that the user sees could be stored all the time.
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
    let said = world.say("hello").await;
    assert_eq!(world.answer(&said).await, "here all the same");
    assert!(failures.load(Relaxed) > 15);
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_away_for_seconds_parks_no_conversation() {
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
    let said = world.say("hello").await;
    eventually("the engine has died more often than it may", async || (world.kernel.crashes().len() > 6).then_some(()))
        .await;
    away.store(false, Relaxed);
    assert_eq!(world.answer(&said).await, "back again");
    check_log(&world.log(said.conversation).await);
    world.kernel.stop().await;
}

#[tokio::test]
async fn an_engine_that_was_shut_out_by_a_claim_that_came_to_nothing_goes_on() {
    let mut parts = calling("test.look");
    // Whoever lives writes something within the time of a round.
    parts.limits.round_ms_max = 500;
    parts.skills =
        Arc::new(FakeSkills::new(|_| Deed::Slow(Duration::from_millis(100), Outcome::success("looked around"))));
    let world = parts.start().await;
    let said = world.say("hello").await;
    eventually("the skill runs", async || (parts.skills.count("test.look") == 1).then_some(())).await;
    let dead = NodeIncarnation::from_uuid(parts.env.uuid());
    parts.store.claim(said.conversation, dead).await.expect("the store works").expect("it is there");
    assert!(world.answer(&said).await.contains("looked around"));
    check_log(&world.log(said.conversation).await);
    world.kernel.stop().await;
}

/// Holds an Engine on its way out of memory while its successor does not start: the end of the old life must not end the
/// new one's wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_end_of_a_hibernating_life_does_not_forget_its_successor() {
    let (leave, may_leave) = mpsc::channel::<()>();
    let may_leave = Mutex::new(Some(may_leave));
    let leaving = Arc::new(AtomicBool::new(false));
    let told = leaving.clone();
    let failed = AtomicBool::new(false);
    let plan = FaultPlan::by(move |kind, point, _| match (kind, point) {
        ("engine", "after:Hibernate") => {
            if let Some(wait) = may_leave.lock().expect("not poisoned").take() {
                told.store(true, Relaxed);
                let _ = tokio::task::block_in_place(|| wait.recv_timeout(PATIENCE));
            }
            FaultAction::Pass
        }
        ("engine", "init") if told.load(Relaxed) && !failed.swap(true, Relaxed) => FaultAction::Fail,
        _ => FaultAction::Pass,
    });
    let mut parts = WorldParts::new(|_, _| Ok(says("here"))).faults(Arc::new(plan));
    parts.limits.hibernate_ms = 20;
    parts.limits.stuck_ms_max = 10_000;
    let world = parts.start().await;
    let first = world.say("1").await;
    world.answer(&first).await;
    eventually("it leaves", async || leaving.load(Relaxed).then_some(())).await;
    let wakes =
        |world: &World| world.kernel.tree().into_iter().find(|n| n.kind == "conversations").map_or(0, |n| n.handled);
    let before = wakes(&world);
    let second = world.say_in(first.conversation, "2").await;
    eventually("the wake-up is handled", async || (wakes(&world) > before).then_some(())).await;
    leave.send(()).expect("it waits");
    assert_eq!(world.answer(&second).await, "here");
    world.kernel.stop().await;
}

#[tokio::test]
async fn an_open_breaker_lets_nothing_through_when_its_door_has_to_be_asked_twice() {
    let plan = Arc::new(FaultPlan::once_at("breaker", "init", 0, FaultAction::Fail));
    plan.disarm();
    let mut parts = calling("test.look").faults(plan.clone());
    parts.limits.breaker.failures_max = 1;
    parts.skills = Arc::new(FakeSkills::new(|_| Deed::Answer(Outcome::transient("broken", "it is broken"))));
    let world = parts.start().await;
    let first = world.say("1").await;
    world.answer(&first).await;
    assert_eq!(parts.skills.count("test.look"), 1);
    eventually("the row is kept", async || {
        let row = parts.store.breaker("test.look".to_owned()).await.ok()??;
        (row.trips == 1).then_some(())
    })
    .await;
    world.kernel.operate("/breakers/breaker:test.look", None, Operation::Kill, "a test").await.expect("it lives");
    plan.arm();
    let second = world.say("2").await;
    world.answer(&second).await;
    assert_eq!(plan.struck().len(), 1);
    assert_eq!(parts.skills.count("test.look"), 1, "it went through an open breaker");
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_kills_and_stops_are_no_crashes_and_park_no_conversation() {
    // More than a turn's crashes and restarts, and more than a conversation's deaths within a minute.
    const OPERATIONS: u64 = 9;
    let model = ScriptedModel::new(|_, _| Ok(says("here"))).hanging_when(|_, call| call < OPERATIONS);
    let model = Arc::new(model);
    let world = WorldParts::with_model(model.clone()).start().await;
    let said = world.say("hello").await;
    let paths = [engine_of(&said), "/scheduler".to_owned()];
    for n in 1..=OPERATIONS {
        model.called(n).await;
        for path in &paths {
            let operation = if n % 3 == 0 { Operation::Stop } else { Operation::Kill };
            eventually("it lives, and is ended", async || {
                world.kernel.operate(path, None, operation, "a test").await.ok()
            })
            .await;
        }
    }
    assert_eq!(world.answer(&said).await, "here");
    assert!(world.kernel.crashes().is_empty(), "{:?}", world.kernel.crashes());
    assert_eq!(world.kernel.health().await.crashes_total, 0);
    check_log(&world.log(said.conversation).await);
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_the_children_of_a_killed_engine() {
    let model = Arc::new(ScriptedModel::new(|r, _| Ok(two_agents(r))).hanging_when(|_, call| call == 1 || call == 2));
    let mut parts = WorldParts::with_model(model.clone());
    parts.limits.turn.crashes_max = 1;
    let world = parts.start().await;
    let said = world.say("do both").await;
    eventually("both agents think", async || (model.call_count() >= 3).then_some(())).await;
    world.kernel.operate(&engine_of(&said), None, Operation::Kill, "a test").await.expect("it lives");
    let end = world.final_of(said.conversation, said.task).await;
    assert!(matches!(end, EventBody::Answered { .. }), "an operator's kill is held against no turn: {end:?}");
    eventually("the agents are gone", async || {
        let tree = world.kernel.tree();
        (!tree.iter().any(|n| n.kind == "sub_agent")).then_some(())
    })
    .await;
    world.kernel.operate("/infra", None, Operation::Kill, "a test").await.expect("it lives");
    eventually("the log writer has another life", async || {
        let log = world.kernel.tree().into_iter().find(|n| n.path.as_str() == "/infra/log")?;
        (log.status == "running" && world.kernel.health().await.ready).then_some(())
    })
    .await;
    world.kernel.stop().await;
    assert_eq!(world.kernel.tree(), [], "a stopped kernel has no actors");
}

#[tokio::test]
async fn a_cancelled_turn_ends_the_skill_that_it_runs() {
    let mut parts = calling("test.look");
    parts.skills = Arc::new(FakeSkills::new(|_| Deed::Hang));
    let world = parts.start().await;
    let said = world.say("go").await;
    let breaker = "/breakers/breaker:test.look";
    let runs = async || world.kernel.view(breaker).await.ok()?.1?["runs"].as_u64();
    eventually("it runs", async || (runs().await? == 1).then_some(())).await;
    assert!(world.kernel.cancel(Scope::User(ann()), said.task, "ann").await.expect("it is there"));
    let from = Instant::now();
    eventually("it has ended", async || (runs().await? == 0).then_some(())).await;
    assert!(from.elapsed() < Duration::from_secs(1), "only its time limit ended it");
    assert!(matches!(world.final_of(said.conversation, said.task).await, EventBody::Cancelled { .. }));
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_waits_for_a_slow_commit_is_not_stuck() {
    let slow = Arc::new(AtomicUsize::new(0));
    let seen = slow.clone();
    let mut parts = WorldParts::new(|_, _| Ok(says("here")));
    with_hook(&mut parts, move |point| {
        if matches!(point, StorePoint::Commit(_)) && seen.fetch_add(1, Relaxed) > 0 {
            // As a slow disk blocks its caller: nobody ever sends.
            let (_keep, never) = mpsc::channel::<()>();
            let _ = tokio::task::block_in_place(|| never.recv_timeout(Duration::from_millis(400)));
        }
        StoreFault::Pass
    });
    parts.limits.stuck_ms_max = 100;
    let world = parts.start().await;
    let said = world.say("hello").await;
    assert_eq!(world.answer(&said).await, "here");
    assert!(world.kernel.crashes().is_empty(), "{:?}", world.kernel.crashes());
    world.kernel.stop().await;
}

/// Whoever gives up before the answer comes takes its place along, also when nothing is stored in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_message_whose_sender_leaves_takes_up_no_place() {
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let full = Arc::new(AtomicBool::new(false));
    let seen = full.clone();
    let model = Arc::new(ScriptedModel::new(|_, _| Ok(says("here"))).hanging_when(|_, _| true));
    let mut parts = WorldParts::with_model(model.clone());
    parts.slots = 1;
    with_hook(&mut parts, move |point| match point {
        StorePoint::Commit(_) if seen.load(Relaxed) => {
            let wait = may_go_on.lock().expect("not poisoned");
            let _ = tokio::task::block_in_place(|| wait.recv_timeout(PATIENCE));
            StoreFault::Fail(StoreErrorKind::Full)
        }
        _ => StoreFault::Pass,
    });
    let world = parts.start().await;
    let running = world.say("running").await;
    eventually("it runs", async || {
        let stored = world.kinds(running.conversation).await.iter().any(|k| k.ends_with("turn_started"));
        (model.call_count() == 1 && stored).then_some(())
    })
    .await;
    full.store(true, Relaxed);
    for n in 0..3 {
        let message = Submission::new(ann(), "test", format!("{n}"));
        let given_up = tokio::time::timeout(Duration::from_millis(50), world.kernel.submit(message)).await;
        assert!(given_up.is_err(), "{given_up:?}");
        go_on.send(()).expect("the store waits");
    }
    full.store(false, Relaxed);
    eventually("there is room", async || world.kernel.submit(Submission::new(ann(), "test", "one more")).await.ok())
        .await;
    world.kernel.crash().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_writer_that_dies_around_a_program_neither_hinders_it_nor_runs_it_twice() {
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
        let said = eventually("it is taken", async || {
            let mut message = Submission::new(ann(), "test", "do it").within(first.conversation);
            message.client_id = Some("the-message".to_owned());
            world.kernel.submit(message).await.ok()
        })
        .await;
        // What it did is not known if its reply is lost. But it is not said to have failed before it began.
        match world.final_of(said.conversation, said.task).await {
            EventBody::Answered { text, .. } => assert_eq!(text, "the program did it"),
            EventBody::Failed { code, .. } if code == "model_in_doubt" => {}
            other => panic!("struck {:?}: {other:?}", plan.struck()),
        }
        assert_eq!(model.call_count(), 2, "each program ran once; struck {:?}", plan.struck());
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
async fn a_cancellation_by_an_engine_that_was_shut_out_is_not_acknowledged() {
    let model = Arc::new(ScriptedModel::new(|_, _| Ok(says("late"))).hanging_when(|_, _| true));
    let parts = WorldParts::with_model(model.clone());
    let world = parts.start().await;
    let said = world.say("never ends").await;
    eventually("it runs", async || (model.call_count() == 1).then_some(())).await;
    let stranger = NodeIncarnation::from_uuid(parts.env.uuid());
    parts.store.claim(said.conversation, stranger).await.expect("the store works").expect("it is there");
    let cancelled = world.kernel.cancel(Scope::User(ann()), said.task, "ann").await;
    assert!(
        !matches!(cancelled, Ok(true)),
        "it is acknowledged, and the log has {:?}",
        world.kinds(said.conversation).await
    );
    // Whoever asks again asks the life that owns it.
    eventually("it is cancelled", async || {
        world.kernel.cancel(Scope::User(ann()), said.task, "ann").await.ok().filter(|done| *done)
    })
    .await;
    assert!(matches!(world.final_of(said.conversation, said.task).await, EventBody::Cancelled { .. }));
    world.kernel.stop().await;
}

#[tokio::test]
async fn what_everybody_needs_is_back_soon_however_often_it_died() {
    let world = WorldParts::new(|_, _| Ok(says("here"))).start().await;
    for n in 0..8 {
        let from = Instant::now();
        kill(&world, ["/scheduler", "/conversations"][n % 2]).await;
        let said = eventually("it is taken", async || {
            let mut message = Submission::new(ann(), "test", "hello");
            message.client_id = Some(format!("message-{n}"));
            message.conversation = Some(ConversationId::for_key(&ann(), &n.to_string()));
            world.kernel.submit(message).await.ok()
        })
        .await;
        assert_eq!(world.answer(&said).await, "here");
        assert!(from.elapsed() < Duration::from_secs(2), "after {n} deaths it took {:?}", from.elapsed());
    }
    world.kernel.stop().await;
}
