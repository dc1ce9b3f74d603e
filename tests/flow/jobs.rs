//! What a message may wish of its place: equal work done once, an order among tasks, a later start, a mood that hurries it, a
//! word in the middle of a turn.

use std::sync::Arc;

use annie_actors::{KernelError, Submission};
use annie_core::{
    classify::Emotion,
    event::{EventBody, Priority, Scope},
};
use annie_testkit::scripted_model::says;

use crate::{
    flow::{
        kernel::last_text,
        scheduling::{one_slot, rounds_begun, say, waiting},
    },
    world::{WorldParts, ann, check_log, come_back_after, eventually},
};

fn told(order: &crate::flow::scheduling::Order) -> Vec<String> {
    order.lock().expect("not poisoned").clone()
}

#[tokio::test]
async fn equal_work_that_waits_is_done_once_and_answers_both() {
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
    let first = world.kernel.submit(digest()).await.expect("taken");
    let second = world.kernel.submit(digest()).await.expect("taken");
    assert_ne!(first.task, second.task);
    assert_eq!(second.place.and_then(|p| p.same_as), Some(first.task));
    let mut other = digest();
    other.text = "digest 1 of another day".to_owned();
    let other = world.kernel.submit(other).await.expect("taken");
    assert_eq!(other.place.and_then(|p| p.same_as), None, "other work of the same name is not equal");
    gate.add_permits(10);
    world.answer(&before).await;
    assert_eq!(world.answer(&first).await, "digest is done");
    assert_eq!(world.answer(&second).await, "digest is done");
    world.answer(&other).await;
    assert_eq!(told(&order), ["before", "digest", "digest"]);
    check_log(&world.log(first.conversation).await);
    world.kernel.stop().await;
}

#[tokio::test]
async fn equal_work_that_is_more_urgent_lifts_the_first_also_in_the_log() {
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
    let first = world.kernel.submit(digest(Priority::Low)).await.expect("taken");
    let second = world.kernel.submit(digest(Priority::High)).await.expect("taken");
    assert_eq!(second.place.and_then(|p| p.same_as), Some(first.task));
    eventually("it is lifted", async || {
        let row = world.kernel.task(Scope::User(ann()), first.task).await.ok()?;
        (row.priority == Priority::High).then_some(())
    })
    .await;
    let mut private = digest(Priority::Low);
    private.private = true;
    let private = world.kernel.submit(private).await.expect("taken");
    assert_eq!(private.place.and_then(|p| p.same_as), None, "what is private is not the same");
    gate.add_permits(10);
    for said in [&before, &first, &second] {
        world.answer(said).await;
    }
    world.final_of(private.conversation, private.task).await;
    check_log(&world.log(first.conversation).await);
    world.kernel.stop().await;
}

#[tokio::test]
async fn what_has_ended_and_what_nobody_knows_is_nothing_to_wait_for() {
    let (parts, _, gate) = one_slot();
    gate.add_permits(10);
    let world = parts.start().await;
    let first = say(&world, "ann", "first 1", Priority::Normal).await;
    world.answer(&first).await;
    let unknown = annie_core::ids::TaskId::from_uuid(uuid::Uuid::from_u128(7));
    let mut second = Submission::new(ann(), "test", "second 1");
    second.after = vec![first.task, unknown];
    let second = world.kernel.submit(second).await.expect("taken");
    world.answer(&second).await;
    let row = world.kernel.task(Scope::User(ann()), second.task).await.expect("there");
    assert_eq!(row.after, []);
    world.kernel.stop().await;
}

#[tokio::test]
async fn a_task_that_waits_for_another_begins_when_that_has_ended_though_a_slot_is_free() {
    let (mut parts, order, gate) = one_slot();
    parts.slots = 4;
    let world = parts.start().await;
    let first = say(&world, "ann", "first 3", Priority::Normal).await;
    let mut second = Submission::new(ann(), "test", "second 1");
    second.priority = Some(Priority::High);
    second.after = vec![first.task];
    let second = world.kernel.submit(second).await.expect("taken");
    rounds_begun(&order, 1).await;
    let queue = world.kernel.queue().await.expect("answered");
    let why = queue["waiting"][0]["why"].as_str().unwrap_or_default();
    assert!(why.contains(&first.task.to_string()), "{queue}");
    gate.add_permits(2);
    rounds_begun(&order, 3).await;
    assert_eq!(told(&order), ["first", "first", "first"]);
    gate.add_permits(1);
    rounds_begun(&order, 4).await;
    let row = world.kernel.task(Scope::User(ann()), first.task).await.expect("there");
    assert!(row.state.is_ended(), "{row:?}");
    gate.add_permits(1);
    assert_eq!(world.answer(&second).await, "second is done");
    assert_eq!(told(&order), ["first", "first", "first", "second"]);
    world.kernel.stop().await;
}

#[tokio::test]
async fn a_task_does_not_begin_before_its_time_and_holds_nobody_up_meanwhile() {
    let world = WorldParts::new(|request, _| Ok(says(format!("re: {}", last_text(request))))).start().await;
    let due = world.kernel.now().plus_ms(400);
    let mut later = Submission::new(ann(), "test", "later");
    later.not_before = Some(due);
    let later = world.kernel.submit(later).await.expect("taken");
    let now = world.say_in(later.conversation, "now").await;
    assert_eq!(world.answer(&now).await, "re: now");
    assert!(world.kernel.now() < due, "the machine is too slow for this test");
    assert_eq!(world.answer(&later).await, "re: later");
    let log = world.log(later.conversation).await;
    let began = log.iter().find(|e| e.task == later.task && matches!(e.body, EventBody::TurnStarted { .. }));
    let began = began.expect("it began").at;
    assert!(began >= due, "began at {began}, due at {due}");
    check_log(&log);
    world.kernel.stop().await;
}

#[tokio::test]
async fn long_work_of_a_frustrated_person_is_lifted_and_the_log_says_why() {
    let world = WorldParts::new(|_, _| Ok(says("done"))).start().await;
    let research = |emotion| {
        let mut message = Submission::new(ann(), "chat", "Research heat pumps for the house");
        message.emotion = emotion;
        message
    };
    let calm = world.kernel.submit(research(None)).await.expect("taken");
    assert_eq!(calm.priority, Priority::Normal);
    let upset = world.kernel.submit(research(Some((Emotion::Frustrated, 0.9)))).await.expect("taken");
    assert_eq!(upset.priority, Priority::High);
    world.answer(&upset).await;
    let log = world.log(upset.conversation).await;
    let decided = log.iter().find_map(|e| match &e.body {
        EventBody::Decided { component, decision, reasoning, alternatives } if component == "classify" => {
            Some((decision.clone(), reasoning.clone(), alternatives.join("; ")))
        }
        _ => None,
    });
    let (decision, reasoning, others) = decided.expect("the log says why");
    assert_eq!(decision, "class high");
    assert!(reasoning.contains("distress") && others.contains("normal"), "{reasoning} / {others}");
    world.kernel.stop().await;
}

/// A world whose one model looks around and then answers, each round when the test lets it, and what it was asked so far.
fn listening() -> (WorldParts, Arc<std::sync::Mutex<Vec<String>>>, Arc<tokio::sync::Semaphore>) {
    let (parts, order, gate) = one_slot();
    let heard: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let hears = heard.clone();
    let model = annie_testkit::scripted_model::ScriptedModel::new(move |request, call| {
        hears.lock().expect("not poisoned").push(format!("{:?}", request.messages));
        order.lock().expect("not poisoned").push(call.to_string());
        Ok(if call == 0 {
            annie_testkit::scripted_model::calls([("get_skill", serde_json::json!({"search": "x"}))])
        } else {
            says("The blue one it is.")
        })
    });
    let model = Arc::new(crate::flow::scheduling::Gated { model, gate: gate.clone() });
    (WorldParts { model, ..parts }, heard, gate)
}

#[tokio::test]
async fn a_word_into_a_running_turn_reaches_its_next_round_and_both_messages_end() {
    let (parts, heard, gate) = listening();
    let world = parts.start().await;
    let long = world.say("choose a colour").await;
    eventually("the first round has begun", async || (!heard.lock().expect("not poisoned").is_empty()).then_some(()))
        .await;
    let steer = |text: &str| {
        let mut message = Submission::new(ann(), "test", text).within(long.conversation);
        message.steer = true;
        message
    };
    let word = world.kernel.submit(steer("I prefer blue")).await.expect("taken");
    let refused = world.kernel.submit(steer("or red")).await;
    let Err(KernelError::TooSoon { retry_after_ms }) = refused else { panic!("wanted a refusal, got {refused:?}") };
    assert!((1..=2_000).contains(&retry_after_ms), "{retry_after_ms}");
    gate.add_permits(1);
    eventually("the second round has begun", async || (heard.lock().expect("not poisoned").len() == 2).then_some(()))
        .await;
    let second = heard.lock().expect("not poisoned")[1].clone();
    assert!(second.contains("I prefer blue") && !second.contains("or red"), "{second}");
    come_back_after(retry_after_ms).await;
    // Nothing of it is left to steer once it answers: then it is a message like any other.
    let late = world.kernel.submit(steer("or red")).await.expect("taken after the time that was named");
    gate.add_permits(10);
    assert_eq!(world.answer(&long).await, "The blue one it is.");
    world.answer(&word).await;
    world.answer(&late).await;
    let log = world.log(long.conversation).await;
    let joined = log.iter().filter(|e| e.task == word.task && e.body == EventBody::Joined { into: long.task });
    assert_eq!(joined.count(), 1, "the log says what it joined: {log:?}");
    check_log(&log);
    world.kernel.stop().await;
}

#[tokio::test]
async fn a_word_into_a_turn_whose_process_dies_is_told_by_the_next_life_and_ends_once() {
    let (parts, heard, gate) = listening();
    let mut world = parts.start().await;
    let long = world.say("choose a colour").await;
    let rounds = async |n: usize| {
        let begun = async || (heard.lock().expect("not poisoned").len() >= n).then_some(());
        eventually("the round has begun", begun).await;
    };
    rounds(1).await;
    let mut word = Submission::new(ann(), "test", "I prefer blue").within(long.conversation);
    word.steer = true;
    let word = world.kernel.submit(word).await.expect("taken");
    eventually("it has joined", async || {
        let log = world.log(long.conversation).await;
        log.iter().any(|e| e.task == word.task && matches!(e.body, EventBody::Joined { .. })).then_some(())
    })
    .await;
    world.kernel.crash().await;
    world = parts.start().await;
    rounds(2).await;
    // This round answers without having heard it, so there is one more.
    gate.add_permits(1);
    rounds(3).await;
    let (second, third) = {
        let heard = heard.lock().expect("not poisoned");
        (heard[1].clone(), heard[2].clone())
    };
    assert!(!second.contains("I prefer blue") && third.contains("I prefer blue"), "{second} / {third}");
    gate.add_permits(10);
    assert_eq!(world.answer(&long).await, "The blue one it is.");
    assert!(world.answer(&word).await.starts_with("Taken up"));
    check_log(&world.log(long.conversation).await);
    world.kernel.stop().await;
}

#[tokio::test]
async fn suspended_task_stays_so_when_its_model_answers_again() {
    use annie_actors::Control;
    let (parts, order, gate) = one_slot();
    let world = parts.start().await;
    let long = say(&world, "ann", "long 2", Priority::Normal).await;
    rounds_begun(&order, 1).await;
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
async fn a_paused_task_makes_no_round_until_it_is_let_go_on_also_in_the_next_life() {
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
        // Others go on, and that they did shows that there was time enough.
        let other = say(&world, "bob", &format!("other{n} 1"), Priority::Background).await;
        gate.add_permits(1);
        crate::flow::scheduling::ended(&world, "bob", &other).await;
    }
    assert_eq!(told(&order), ["long", "other0", "other1", "other2"]);
    assert!(world.kernel.control(scope(), long.task, Control::Continue, "ann").await.expect("done"));
    gate.add_permits(10);
    assert_eq!(world.answer(&long).await, "long is done");
    assert_eq!(told(&order), ["long", "other0", "other1", "other2", "long", "long"]);
    world.kernel.stop().await;
}
