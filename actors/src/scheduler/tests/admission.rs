//! A place for a new task.

use annie_core::{
    event::Priority,
    ports::{ServerFacts, TaskState},
    queue::{RefusalReason, WorkKey},
    time::Micros,
};
use serde_json::json;
use tokio::sync::oneshot;

use super::{
    super::{PermitRequest, SchedulerMsg, Verdict},
    world::{New, Parts, row, task},
};

const NORMAL: Priority = Priority::Normal;

#[tokio::test(start_paused = true)]
async fn equal_work_that_has_not_begun_is_joined_and_lifted() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let busy = world.take(9, NORMAL, &[]).await;
    let work = Some(WorkKey::of("ask", "the weather"));
    world.admit(New { work, ..New::of(1, Priority::Low) }).await.expect("room");
    let mut first = world.ask(1, Priority::Low, &[]).await;
    let joined = world.admit(New { work, ..New::of(2, Priority::High) }).await.expect("joined");
    assert_eq!(joined.same_as, Some(task(1)));
    let other = world.admit(New { work, user: "bob", ..New::of(3, NORMAL) }).await.expect("room");
    assert_eq!(other.same_as, None, "somebody else's work is never joined");
    assert_eq!(world.view().await["depth"], json!({"high": 1, "normal": 1, "low": 0, "background": 0}));
    drop(busy);
    let _runs = world.granted(&mut first).await;
    let late = world.admit(New { work, ..New::of(4, NORMAL) }).await.expect("room");
    assert_eq!(late.same_as, None, "it has begun");
}

#[tokio::test(start_paused = true)]
async fn work_that_is_put_off_is_not_joined() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let work = Some(WorkKey::of("ask", "the weather"));
    let later = Some(world.now().plus_ms(3_600_000));
    world.admit(New { work, not_before: later, ..New::of(1, NORMAL) }).await.expect("room");
    assert_eq!(world.admit(New { work, ..New::of(2, NORMAL) }).await.expect("room").same_as, None);
}

#[tokio::test(start_paused = true)]
async fn a_full_class_refuses_with_a_place_and_a_time_and_other_classes_do_not_mind() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let _busy = world.take(9, NORMAL, &[]).await;
    for n in 1..=3 {
        let place = world.admit(New::of(n, Priority::High)).await.expect("room");
        assert_eq!(place.position, n as usize);
    }
    let refusal = world.admit(New::of(4, Priority::High)).await.expect_err("full");
    assert_eq!((refusal.reason, refusal.limit), (RefusalReason::UserDepth, 3));
    assert!(refusal.retry_after_ms >= 1_000);
    world.admit(New::of(5, NORMAL)).await.expect("room");
    world.tell(SchedulerMsg::Forget { task: task(1) });
    world.admit(New::of(6, Priority::High)).await.expect("there is room again");
}

#[tokio::test(start_paused = true)]
async fn rounds_that_are_no_tasks_take_no_place_of_their_user() {
    let world = Parts::of(&[("gpu", 1), ("vectors", 1)]).start().await;
    let mut asked = Vec::new();
    for n in 1..=12 {
        let (reply, answer) = oneshot::channel();
        let request = PermitRequest { is_task: false, ..world.request(n, Priority::High, &["vectors"]) };
        world.tell(SchedulerMsg::Acquire { request, reply });
        asked.push(answer);
    }
    assert_eq!(world.view().await["depth"]["high"], 0, "no estimate counts them");
    let place = world.admit(New::of(20, Priority::High)).await.expect("the user of the program may chat");
    assert_eq!((place.position, place.start_in_ms), (1, 0), "it begins at once");
    let first = asked[0].try_recv().expect("granted").expect("a permit");
    first.give_back(10, Verdict::Fine);
    world.granted(&mut asked[1]).await;
}

#[tokio::test(start_paused = true)]
async fn embedding_says_nothing_of_the_chat_model_of_its_backend() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let facts = ServerFacts { assumed_tokens_max: Some(4_096), ..ServerFacts::default() };
    world.leases.learn("gpu", facts);
    let (reply, answer) = oneshot::channel();
    let request = PermitRequest { is_task: false, ..world.request(1, Priority::High, &["gpu"]) };
    world.tell(SchedulerMsg::Acquire { request, reply });
    answer.await.expect("granted").expect("a permit").give_back(60_000, Verdict::Fine);
    world.heard().await;
    assert!(world.leases.last_rounds(0).is_empty(), "no estimate is made of it");
    assert!(world.leases.is_to_be_asked_again(0), "it has loaded another model");
    world.leases.learn_nothing("gpu");
    world.take(2, Priority::High, &["gpu"]).await.give_back(10, Verdict::Fine);
    world.heard().await;
    assert!(!world.leases.is_to_be_asked_again(0), "a round of the chat model asked");
}

#[tokio::test(start_paused = true)]
async fn places_of_tasks_that_were_never_stored_are_found_when_somebody_is_refused() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let _busy = world.take(9, NORMAL, &[]).await;
    for n in 1..=3 {
        world.admit(New::of(n, Priority::High)).await.expect("room");
    }
    world.table.rows.lock().push(row(3, TaskState::Queued, world.now(), json!({"priority": "high"})));
    world.pass_ms(61_000).await;
    world.admit(New::of(4, Priority::High)).await.expect_err("full, as far as it knows");
    world.until("the dead are found", async || world.stand(1).await.is_none().then_some(())).await;
    assert!(world.stand(3).await.is_some(), "this one is stored");
    world.admit(New::of(5, Priority::High)).await.expect("there is room");
}

#[tokio::test(start_paused = true)]
async fn a_late_request_does_not_bring_an_ended_task_back() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    world.admit(New::of(1, NORMAL)).await.expect("room");
    world.tell(SchedulerMsg::Ended { task: task(1) });
    let late = world.ask(1, NORMAL, &[]).await;
    assert!(late.await.is_err(), "it is told to go");
    assert_eq!(world.view().await["tasks"], 0);
    assert_eq!(world.leases.count(0), 0);
}

#[tokio::test(start_paused = true)]
async fn books_that_have_grown_are_looked_through() {
    let mut parts = Parts::of(&[("gpu", 1)]);
    parts.limits.depth_per_user.normal_max = 10_000;
    let world = parts.start().await;
    let before = world.table.readings();
    for n in 1..=1_001 {
        world.admit(New::of(n, NORMAL)).await.expect("room");
    }
    world.until("the table is read again", async || (world.table.readings() > before).then_some(())).await;
    assert_eq!(world.view().await["tasks"], 1_001, "they are young: their messages may be on their way");
    assert!(world.now() > Micros(0));
}

#[tokio::test(start_paused = true)]
async fn while_somebody_speaks_free_slots_are_no_room() {
    let world = Parts::of(&[("gpu", 8)]).start().await;
    world.admit(New::of(1, Priority::Realtime)).await.expect("room");
    for n in 2..=4 {
        let place = world.admit(New::of(n, Priority::Low)).await.expect("room");
        assert_eq!(place.position, n as usize - 1, "it waits behind those who came before it");
    }
    let refusal = world.admit(New::of(5, Priority::Low)).await.expect_err("three wait");
    assert_eq!(refusal.reason, RefusalReason::UserDepth);
}
