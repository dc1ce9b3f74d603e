//! Tasks that are held back, put off, or wait for others.

use annie_core::{event::Priority, ports::TaskState};
use serde_json::json;

use super::{
    super::{SchedulerMsg, StandState, Steering, Verdict},
    world::{New, Parts, conversation, row, task, user},
};

const NORMAL: Priority = Priority::Normal;

#[tokio::test(start_paused = true)]
async fn a_task_that_is_held_back_gets_no_further_round_until_it_is_let_go_on() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    world.admit(New::of(1, NORMAL)).await.expect("room");
    let round = world.take(1, NORMAL, &[]).await;
    world.tell(SchedulerMsg::Hold { task: task(1), held: true });
    assert_eq!(world.stand(1).await.map(|s| s.state), Some(StandState::Running), "its round ends as it would");
    round.give_back(10, Verdict::Fine);
    let mut next = world.ask(1, NORMAL, &[]).await;
    assert!(world.waits(&mut next).await);
    let stand = world.stand(1).await.expect("known");
    assert_eq!((stand.state, stand.position, stand.rounds_done), (StandState::Held, None, 1));
    assert_eq!(world.take(2, NORMAL, &[]).await.backend(), "gpu", "others go on");
    world.tell(SchedulerMsg::Hold { task: task(1), held: false });
    world.granted(&mut next).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_put_off_starts_when_its_time_has_come_and_ages_from_then() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let later = world.now().plus_ms(10_000);
    let place = world.admit(New { not_before: Some(later), ..New::of(1, NORMAL) }).await.expect("room");
    assert_eq!(place.start_in_ms, 10_000, "however short the queue is");
    let mut round = world.ask(1, NORMAL, &[]).await;
    let stand = world.stand(1).await.expect("known");
    assert_eq!((stand.state, stand.start_in_ms), (StandState::Delayed, Some(10_000)));
    assert!(stand.why.contains(&later.to_string()), "{}", stand.why);
    world.pass_ms(9_900).await;
    assert!(world.waits(&mut round).await);
    world.pass_ms(150).await;
    let permit = world.granted(&mut round).await;
    world.tell(SchedulerMsg::Defer { task: task(1), until: world.now().plus_ms(5_000), after_failure: false });
    permit.give_back(10, Verdict::Fine);
    let mut second = world.ask(1, NORMAL, &[]).await;
    assert!(world.waits(&mut second).await);
    world.tell(SchedulerMsg::Defer { task: task(1), until: world.now(), after_failure: false });
    world.granted(&mut second).await;
}

#[tokio::test(start_paused = true)]
async fn the_time_before_it_was_due_is_no_wait() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let _busy = world.take(9, NORMAL, &[]).await;
    let later = world.now().plus_ms(600_000);
    world.admit(New { not_before: Some(later), ..New::of(1, Priority::Background) }).await.expect("room");
    let _round = world.ask(1, Priority::Background, &[]).await;
    world.pass_ms(601_000).await;
    let list = world.list().await;
    assert!(list["waiting"][0]["effective"].as_f64().is_some_and(|e| e > 3.99), "{list:#}");
}

#[tokio::test(start_paused = true)]
async fn a_task_starts_when_those_that_it_waits_for_have_ended() {
    let world = Parts::of(&[("gpu", 3)]).start().await;
    for n in [1, 2] {
        world.admit(New::of(n, NORMAL)).await.expect("room");
    }
    let start = world.now();
    *world.table.rows.lock() =
        vec![row(1, TaskState::Queued, start, json!({})), row(2, TaskState::Queued, start, json!({}))];
    world.admit(New { after: vec![1, 2, 99], ..New::of(3, NORMAL) }).await.expect("room");
    let mut round = world.ask(3, NORMAL, &[]).await;
    world.until("the table was looked at", async || (world.table.readings() > 1).then_some(())).await;
    world.pass_ms(1).await;
    let stand = world.stand(3).await.expect("known");
    assert_eq!(stand.state, StandState::Delayed);
    assert!(stand.why.contains(&task(1).to_string()) && !stand.why.contains(&task(99).to_string()), "{}", stand.why);
    world.tell(SchedulerMsg::Ended { task: task(1) });
    assert!(world.waits(&mut round).await);
    world.tell(SchedulerMsg::Ended { task: task(2) });
    world.granted(&mut round).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_held_back_or_put_off_counts_as_waiting_and_is_listed_with_its_reason() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let later = world.now().plus_ms(3_600_000);
    for n in 1..=5 {
        world.admit(New { not_before: Some(later), ..New::of(n, NORMAL) }).await.expect("room");
    }
    assert!(world.admit(New { not_before: Some(later), ..New::of(6, NORMAL) }).await.is_err());
    world.admit(New { user: "bob", ..New::of(7, NORMAL) }).await.expect("another one's place");
    let list = world.list().await;
    let waiting = list["waiting"].as_array().expect("a list");
    assert_eq!(waiting.len(), 6);
    assert!(waiting.iter().all(|w| w["why"].as_str().is_some_and(|why| !why.is_empty())), "{list:#}");
    assert_eq!(world.view().await["depth"]["normal"], 6);
}

#[tokio::test(start_paused = true)]
async fn a_lifted_task_goes_before_its_former_equals() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let busy = world.take(1, NORMAL, &[]).await;
    let mut first = world.ask(2, NORMAL, &[]).await;
    let mut second = world.ask(3, Priority::Background, &[]).await;
    world.tell(SchedulerMsg::Reprioritise { task: task(3), priority: Priority::High });
    world.tell(SchedulerMsg::Reprioritise { task: task(2), priority: Priority::Realtime });
    drop(busy);
    let permit = world.granted(&mut second).await;
    assert!(world.waits(&mut first).await, "voice alone is realtime");
    drop(permit);
    world.granted(&mut first).await;
}

#[tokio::test(start_paused = true)]
async fn a_conversation_is_steered_once_in_two_seconds_and_only_while_something_works_there() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let steer_as = async |name: &str| {
        let wait = std::time::Duration::from_secs(1);
        let (conversation, task, user) = (conversation(1), task(9), user(name));
        let ask = |reply| SchedulerMsg::Steer { conversation, task, user, reply };
        world.scheduler.call(wait, ask).await.expect("answered")
    };
    let steer = async || steer_as("ann").await;
    for _ in 0..3 {
        assert_eq!(steer().await, Ok(Steering::OwnTurn), "there is nothing to steer, and it needs a place");
    }
    let _busy = world.take(1, NORMAL, &[]).await;
    assert_eq!(steer_as("bob").await, Ok(Steering::OwnTurn), "it is not his, and he uses up nobody's turn");
    assert_eq!(steer().await, Ok(Steering::Joins));
    assert!(steer().await.is_err_and(|ms| (1..=2_000).contains(&ms)));
    world.pass_ms(2_000).await;
    assert_eq!(steer().await, Ok(Steering::Joins));
    world.tell(SchedulerMsg::Hold { task: task(1), held: true });
    assert_eq!(steer().await, Ok(Steering::OwnTurn), "what is held back hears nothing");
}

#[tokio::test(start_paused = true)]
async fn a_task_waits_for_those_before_it_also_if_its_place_was_lost() {
    let world = Parts::of(&[("gpu", 2)]).start().await;
    let first = world.take(1, NORMAL, &[]).await;
    let ask = |n: u32, user_name: &str| {
        let mut request = world.request(n, NORMAL, &[]);
        (request.after, request.user) = (vec![task(1)], super::world::user(user_name));
        let (reply, answer) = tokio::sync::oneshot::channel();
        world.tell(SchedulerMsg::Acquire { request, reply });
        answer
    };
    let mut second = ask(2, "ann");
    assert!(world.waits(&mut second).await);
    world.granted(&mut ask(3, "bob")).await;
    first.give_back(10, Verdict::Fine);
    assert!(world.waits(&mut second).await, "it has not ended");
    world.tell(SchedulerMsg::Ended { task: task(1) });
    world.granted(&mut second).await;
}
