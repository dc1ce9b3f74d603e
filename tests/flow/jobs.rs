//! Submission options: equal work done once, dependencies among tasks, a later start, an emotion that raises the class,
//! steering of a turn under way.

use std::sync::Arc;

use annie_actors::{KernelError, Submission};
use annie_core::{
    classify::Emotion,
    event::{EventBody, Priority, Scope},
};
use annie_testkit::scripted_model::says;

use crate::{
    flow::scheduling::{one_slot, rounds_begun, say, waiting},
    world::{WorldParts, ann, check_log, eventually, last_text, sleep_for_ms},
};

fn begun_rounds(order: &crate::flow::scheduling::Order) -> Vec<String> {
    order.lock().expect("not poisoned").clone()
}

#[tokio::test]
async fn equal_waiting_work_runs_once_and_answers_both_messages() {
    let (parts, order, gate) = one_slot();
    let world = parts.start().await;
    let before = say(&world, "ann", "before 1", Priority::High).await;
    rounds_begun(&order, 1).await;
    let digest = || {
        let mut message = Submission::new(ann(), "test", "digest 1");
        message.name = Some("digest".to_owned());
        message.priority = Some(Priority::Normal);
        message
    };
    let first = world.kernel.submit(digest()).await.expect("accepted");
    let second = world.kernel.submit(digest()).await.expect("accepted");
    assert_ne!(first.task, second.task);
    assert_eq!(second.place.and_then(|p| p.same_as), Some(first.task));
    let mut other = digest();
    other.text = "digest 1 of another day".to_owned();
    let other = world.kernel.submit(other).await.expect("accepted");
    assert_eq!(other.place.and_then(|p| p.same_as), None, "other work of the same name is not equal");
    gate.add_permits(10);
    world.answer(&before).await;
    assert_eq!(world.answer(&first).await, "digest is done");
    assert_eq!(world.answer(&second).await, "digest is done");
    world.answer(&other).await;
    assert_eq!(begun_rounds(&order), ["before", "digest", "digest"]);
    check_log(&world.log(first.conversation).await);
    world.kernel.stop().await;
}

#[tokio::test]
async fn equal_work_of_a_higher_class_raises_the_first_task_also_in_the_log() {
    let (parts, order, gate) = one_slot();
    let world = parts.start().await;
    let before = say(&world, "ann", "before 1", Priority::High).await;
    rounds_begun(&order, 1).await;
    let digest = |class| {
        let mut message = Submission::new(ann(), "test", "digest 1");
        message.name = Some("digest".to_owned());
        message.priority = Some(class);
        message
    };
    let first = world.kernel.submit(digest(Priority::Low)).await.expect("accepted");
    let second = world.kernel.submit(digest(Priority::High)).await.expect("accepted");
    assert_eq!(second.place.and_then(|p| p.same_as), Some(first.task));
    eventually("the class of the first task is raised", async || {
        let row = world.kernel.task(Scope::User(ann()), first.task).await.ok()?;
        (row.priority == Priority::High).then_some(())
    })
    .await;
    let mut private = digest(Priority::Low);
    private.private = true;
    let private = world.kernel.submit(private).await.expect("accepted");
    assert_eq!(private.place.and_then(|p| p.same_as), None, "a private message is not equal to a public one");
    let mut elsewhere = digest(Priority::Low);
    elsewhere.source = "mail".to_owned();
    let elsewhere = world.kernel.submit(elsewhere).await.expect("accepted");
    assert_eq!(elsewhere.place.and_then(|p| p.same_as), None, "a rule may hold for one channel only");
    gate.add_permits(10);
    for sent in [&before, &first, &second] {
        world.answer(sent).await;
    }
    world.final_of(private.conversation, private.task).await;
    check_log(&world.log(first.conversation).await);
    world.kernel.stop().await;
}

#[tokio::test]
async fn dependency_on_an_ended_or_unknown_task_is_ignored() {
    let (parts, _, gate) = one_slot();
    gate.add_permits(10);
    let world = parts.start().await;
    let first = say(&world, "ann", "first 1", Priority::Normal).await;
    world.answer(&first).await;
    let unknown = annie_core::ids::TaskId::from_uuid(uuid::Uuid::from_u128(7));
    let mut second = Submission::new(ann(), "test", "second 1");
    second.after = vec![first.task, unknown];
    let second = world.kernel.submit(second).await.expect("accepted");
    world.answer(&second).await;
    let row = world.kernel.task(Scope::User(ann()), second.task).await.expect("the task exists");
    assert_eq!(row.after, []);
    world.kernel.stop().await;
}

#[tokio::test]
async fn dependent_task_begins_only_after_its_predecessor_although_a_slot_is_free() {
    let (mut parts, order, gate) = one_slot();
    parts.slots = 4;
    let world = parts.start().await;
    let first = say(&world, "ann", "first 3", Priority::Normal).await;
    let mut second = Submission::new(ann(), "test", "second 1");
    second.priority = Some(Priority::High);
    second.after = vec![first.task];
    let second = world.kernel.submit(second).await.expect("accepted");
    rounds_begun(&order, 1).await;
    let queue = world.kernel.queue().await.expect("answered");
    let why = queue["waiting"][0]["why"].as_str().unwrap_or_default();
    assert!(why.contains(&first.task.to_string()), "{queue}");
    gate.add_permits(2);
    rounds_begun(&order, 3).await;
    assert_eq!(begun_rounds(&order), ["first", "first", "first"]);
    gate.add_permits(1);
    rounds_begun(&order, 4).await;
    let row = world.kernel.task(Scope::User(ann()), first.task).await.expect("the task exists");
    assert!(row.state.is_ended(), "{row:?}");
    gate.add_permits(1);
    assert_eq!(world.answer(&second).await, "second is done");
    assert_eq!(begun_rounds(&order), ["first", "first", "first", "second"]);
    world.kernel.stop().await;
}

#[tokio::test]
async fn task_does_not_begin_before_its_start_time_and_blocks_no_other_task() {
    let world = WorldParts::new(|request, _| Ok(says(format!("re: {}", last_text(request))))).start().await;
    let due = world.kernel.now().plus_ms(400);
    let mut later = Submission::new(ann(), "test", "later");
    later.not_before = Some(due);
    let later = world.kernel.submit(later).await.expect("accepted");
    let now = world.say_in(later.conversation, "now").await;
    assert_eq!(world.answer(&now).await, "re: now");
    assert!(world.kernel.now() < due, "the machine is too slow for this test");
    assert_eq!(world.answer(&later).await, "re: later");
    let log = world.log(later.conversation).await;
    let began = log.iter().find(|e| e.task == later.task && matches!(e.body, EventBody::TurnStarted { .. }));
    let began = began.expect("the turn began").at;
    assert!(began >= due, "began at {began}, due at {due}");
    check_log(&log);
    world.kernel.stop().await;
}

#[tokio::test]
async fn long_work_of_a_frustrated_user_is_raised_to_high_and_the_reason_is_logged() {
    let world = WorldParts::new(|_, _| Ok(says("done"))).start().await;
    let research = |emotion| {
        let mut message = Submission::new(ann(), "chat", "Research heat pumps for the house");
        message.emotion = emotion;
        message
    };
    let calm = world.kernel.submit(research(None)).await.expect("accepted");
    assert_eq!(calm.priority, Priority::Normal);
    let upset = world.kernel.submit(research(Some((Emotion::Frustrated, 0.9)))).await.expect("accepted");
    assert_eq!(upset.priority, Priority::High);
    world.answer(&upset).await;
    let log = world.log(upset.conversation).await;
    let decided = log.iter().find_map(|e| {
        let EventBody::Decided { component, decision, reasoning, alternatives, .. } = &e.body else { return None };
        (component == "classify").then(|| (decision.clone(), reasoning.clone(), alternatives.join("; ")))
    });
    let (decision, reasoning, others) = decided.expect("the reason is logged");
    assert_eq!(decision, "class high");
    assert!(reasoning.contains("distress") && others.contains("normal"), "{reasoning} / {others}");
    world.kernel.stop().await;
}

/// A world whose model first searches skills and then answers, each round when the test lets it. Also returns the
/// requests of the model so far, and the gate.
fn recording_world() -> (WorldParts, Arc<std::sync::Mutex<Vec<String>>>, Arc<tokio::sync::Semaphore>) {
    let (parts, order, gate) = one_slot();
    let requests: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let recorded = requests.clone();
    let model = annie_testkit::scripted_model::ScriptedModel::new(move |request, call| {
        recorded.lock().expect("not poisoned").push(format!("{:?}", request.messages));
        order.lock().expect("not poisoned").push(call.to_string());
        Ok(if call == 0 {
            annie_testkit::scripted_model::calls([("get_skill", serde_json::json!({"search": "x"}))])
        } else {
            says("The blue one it is.")
        })
    });
    let model = Arc::new(crate::flow::scheduling::Gated { model, gate: gate.clone() });
    (WorldParts { model, ..parts }, requests, gate)
}

#[tokio::test]
async fn steering_message_reaches_the_next_round_and_both_messages_end() {
    let (parts, requests, gate) = recording_world();
    let world = parts.start().await;
    let long = world.say("choose a colour").await;
    eventually("the first round has begun", async || {
        (!requests.lock().expect("not poisoned").is_empty()).then_some(())
    })
    .await;
    let steer = |text: &str| {
        let mut message = Submission::new(ann(), "test", text).within(long.conversation);
        message.steer = true;
        message
    };
    let steering = world.kernel.submit(steer("I prefer blue")).await.expect("accepted");
    let refused = world.kernel.submit(steer("or red")).await;
    let Err(KernelError::TooSoon { retry_after_ms }) = refused else { panic!("wanted a refusal, got {refused:?}") };
    assert!((1..=2_000).contains(&retry_after_ms), "{retry_after_ms}");
    gate.add_permits(1);
    eventually("the second round has begun", async || {
        (requests.lock().expect("not poisoned").len() == 2).then_some(())
    })
    .await;
    let second = requests.lock().expect("not poisoned")[1].clone();
    assert!(second.contains("I prefer blue") && !second.contains("or red"), "{second}");
    sleep_for_ms(retry_after_ms).await;
    // The turn answers in its next round, so this message has nothing to steer and is handled like any other.
    let late = world.kernel.submit(steer("or red")).await.expect("accepted after the wait that the refusal named");
    gate.add_permits(10);
    assert_eq!(world.answer(&long).await, "The blue one it is.");
    world.answer(&steering).await;
    world.answer(&late).await;
    let log = world.log(long.conversation).await;
    let joined = log.iter().filter(|e| e.task == steering.task && e.body == EventBody::Joined { into: long.task });
    assert_eq!(joined.count(), 1, "the log names the turn that it joined: {log:?}");
    check_log(&log);
    world.kernel.stop().await;
}

#[tokio::test]
async fn steering_message_survives_a_crash_of_the_process_and_ends_once() {
    let (parts, requests, gate) = recording_world();
    let mut world = parts.start().await;
    let long = world.say("choose a colour").await;
    let rounds = async |n: usize| {
        let begun = async || (requests.lock().expect("not poisoned").len() >= n).then_some(());
        eventually("the round has begun", begun).await;
    };
    rounds(1).await;
    let mut steering = Submission::new(ann(), "test", "I prefer blue").within(long.conversation);
    steering.steer = true;
    let steering = world.kernel.submit(steering).await.expect("accepted");
    eventually("the message has joined the turn", async || {
        let log = world.log(long.conversation).await;
        log.iter().any(|e| e.task == steering.task && matches!(e.body, EventBody::Joined { .. })).then_some(())
    })
    .await;
    world.kernel.crash().await;
    world = parts.start().await;
    rounds(2).await;
    // This round was requested before it could see the steering message, so one more round follows.
    gate.add_permits(1);
    rounds(3).await;
    let (second, third) = {
        let requests = requests.lock().expect("not poisoned");
        (requests[1].clone(), requests[2].clone())
    };
    assert!(!second.contains("I prefer blue") && third.contains("I prefer blue"), "{second} / {third}");
    gate.add_permits(10);
    assert_eq!(world.answer(&long).await, "The blue one it is.");
    assert!(world.answer(&steering).await.starts_with("Taken up"));
    check_log(&world.log(long.conversation).await);
    world.kernel.stop().await;
}

#[tokio::test]
async fn suspended_task_stays_suspended_when_its_model_answers_again() {
    use annie_actors::Control;
    let (parts, order, gate) = one_slot();
    let world = parts.start().await;
    let long = say(&world, "ann", "long 2", Priority::Normal).await;
    rounds_begun(&order, 1).await;
    let jobs = world.kernel.jobs(&ann()).await.expect("answered");
    assert_eq!(jobs.first().and_then(|job| job.round), Some((1, 12)), "the maximum of single_loop: {jobs:?}");
    let control = async |control| world.kernel.control(Scope::User(ann()), long.task, control, "ann").await;
    assert!(control(Control::Suspend).await.expect("done"));
    assert!(!control(Control::TryAgain).await.expect("answered"), "a person suspended it");
    assert!(control(Control::Continue).await.expect("done"));
    assert!(control(Control::TryAgain).await.expect("done"));
    gate.add_permits(10);
    assert_eq!(world.answer(&long).await, "long is done");
    let kinds = world.kinds(long.conversation).await;
    assert_eq!(kinds.iter().filter(|kind| kind.ends_with("continued")).count(), 2, "{kinds:?}");
    world.kernel.stop().await;
}

#[tokio::test]
async fn suspended_task_runs_no_round_until_it_is_resumed_also_after_a_restart() {
    use annie_actors::Control;
    let (parts, order, gate) = one_slot();
    let mut world = parts.start().await;
    let long = say(&world, "ann", "long 3", Priority::Normal).await;
    rounds_begun(&order, 1).await;
    let scope = || Scope::User(ann());
    assert!(world.kernel.control(scope(), long.task, Control::Suspend, "ann").await.expect("done"));
    gate.add_permits(1);
    waiting(&world, 0).await;
    for n in 0..3 {
        if n == 1 {
            world.kernel.crash().await;
            world = parts.start().await;
        }
        // Tasks of other users continue. That they end shows that the suspended task had time enough to start a round.
        let other = say(&world, "bob", &format!("other{n} 1"), Priority::Background).await;
        gate.add_permits(1);
        crate::flow::scheduling::ended(&world, "bob", &other).await;
    }
    assert_eq!(begun_rounds(&order), ["long", "other0", "other1", "other2"]);
    assert!(world.kernel.control(scope(), long.task, Control::Continue, "ann").await.expect("done"));
    gate.add_permits(10);
    assert_eq!(world.answer(&long).await, "long is done");
    assert_eq!(begun_rounds(&order), ["long", "other0", "other1", "other2", "long", "long"]);
    world.kernel.stop().await;
}
