//! Tasks that are suspended, deferred, or wait for other tasks.

use annie_core::{event::Priority, ports::TaskState};
use serde_json::json;

use super::{
    super::{AdmissionMsg, SchedulerMsg, StatusMsg, Steering, TaskStatusState, Verdict},
    world::{New, Parts, conversation, row, task, user},
};

const NORMAL: Priority = Priority::Normal;

#[tokio::test(start_paused = true)]
async fn scheduler_grants_no_round_to_a_suspended_task_until_it_is_resumed() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    world.admit(New::of(1, NORMAL)).await.expect("capacity");
    let round = world.take(1, NORMAL, &[]).await;
    world.tell(SchedulerMsg::Status(StatusMsg::Hold { task: task(1), held: true }));
    assert_eq!(
        world.status(1).await.map(|s| s.state),
        Some(TaskStatusState::Running),
        "the round under way is not cut off"
    );
    round.give_back(10, Verdict::Fine);
    let mut next = world.ask(1, NORMAL, &[]).await;
    assert!(world.waits(&mut next).await);
    let status = world.status(1).await.expect("known");
    assert_eq!((status.state, status.position, status.rounds_done), (TaskStatusState::Held, None, 1));
    assert_eq!(world.take(2, NORMAL, &[]).await.backend(), "gpu", "other tasks run");
    world.tell(SchedulerMsg::Status(StatusMsg::Hold { task: task(1), held: false }));
    world.granted(&mut next).await;
}

#[tokio::test(start_paused = true)]
async fn scheduler_starts_a_deferred_task_at_its_time_and_ages_it_from_then() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let later = world.now().plus_ms(10_000);
    let position = world.admit(New { not_before: Some(later), ..New::of(1, NORMAL) }).await.expect("capacity");
    assert_eq!(position.start_in_ms, 10_000, "a short queue does not matter");
    let mut round = world.ask(1, NORMAL, &[]).await;
    let status = world.status(1).await.expect("known");
    assert_eq!((status.state, status.start_in_ms), (TaskStatusState::Delayed, Some(10_000)));
    assert!(status.why.contains(&later.to_string()), "{}", status.why);
    world.pass_ms(9_900).await;
    assert!(world.waits(&mut round).await);
    world.pass_ms(150).await;
    let permit = world.granted(&mut round).await;
    world.tell(SchedulerMsg::Status(StatusMsg::Defer {
        task: task(1),
        until: world.now().plus_ms(5_000),
        after_failure: false,
    }));
    permit.give_back(10, Verdict::Fine);
    let mut second = world.ask(1, NORMAL, &[]).await;
    assert!(world.waits(&mut second).await);
    world.tell(SchedulerMsg::Status(StatusMsg::Defer { task: task(1), until: world.now(), after_failure: false }));
    world.granted(&mut second).await;
}

#[tokio::test(start_paused = true)]
async fn scheduler_does_not_count_deferral_as_waiting() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let _busy = world.take(9, NORMAL, &[]).await;
    let later = world.now().plus_ms(600_000);
    world.admit(New { not_before: Some(later), ..New::of(1, Priority::Background) }).await.expect("capacity");
    let _round = world.ask(1, Priority::Background, &[]).await;
    world.pass_ms(601_000).await;
    let list = world.list().await;
    assert!(list["waiting"][0]["effective"].as_f64().is_some_and(|e| e > 3.99), "{list:#}");
}

#[tokio::test(start_paused = true)]
async fn scheduler_starts_a_task_when_the_tasks_it_waits_for_have_ended() {
    let world = Parts::of(&[("gpu", 3)]).start().await;
    for n in [1, 2] {
        world.admit(New::of(n, NORMAL)).await.expect("capacity");
    }
    let start = world.now();
    *world.table.rows.lock() =
        vec![row(1, TaskState::Queued, start, json!({})), row(2, TaskState::Queued, start, json!({}))];
    world.admit(New { after: vec![1, 2, 99], ..New::of(3, NORMAL) }).await.expect("capacity");
    let mut round = world.ask(3, NORMAL, &[]).await;
    world.until("the table was read", async || (world.table.readings() > 1).then_some(())).await;
    world.pass_ms(1).await;
    let status = world.status(3).await.expect("known");
    assert_eq!(status.state, TaskStatusState::Delayed);
    assert!(status.why.contains(&task(1).to_string()) && !status.why.contains(&task(99).to_string()), "{}", status.why);
    world.tell(SchedulerMsg::Status(StatusMsg::Ended { task: task(1) }));
    assert!(world.waits(&mut round).await);
    world.tell(SchedulerMsg::Status(StatusMsg::Ended { task: task(2) }));
    world.granted(&mut round).await;
}

#[tokio::test(start_paused = true)]
async fn scheduler_counts_suspended_and_deferred_tasks_as_waiting_and_lists_reasons() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let later = world.now().plus_ms(3_600_000);
    for n in 1..=5 {
        world.admit(New { not_before: Some(later), ..New::of(n, NORMAL) }).await.expect("capacity");
    }
    assert!(world.admit(New { not_before: Some(later), ..New::of(6, NORMAL) }).await.is_err());
    world.admit(New { user: "bob", ..New::of(7, NORMAL) }).await.expect("another user has capacity");
    let list = world.list().await;
    let waiting = list["waiting"].as_array().expect("a list");
    assert_eq!(waiting.len(), 6);
    assert!(waiting.iter().all(|w| w["why"].as_str().is_some_and(|why| !why.is_empty())), "{list:#}");
    assert_eq!(world.view().await["depth"]["normal"], 6);
}

#[tokio::test(start_paused = true)]
async fn scheduler_runs_a_lifted_task_before_its_former_equals() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let busy = world.take(1, NORMAL, &[]).await;
    let mut first = world.ask(2, NORMAL, &[]).await;
    let mut second = world.ask(3, Priority::Background, &[]).await;
    world.tell(SchedulerMsg::Status(StatusMsg::Reprioritise { task: task(3), priority: Priority::High }));
    world.tell(SchedulerMsg::Status(StatusMsg::Reprioritise { task: task(2), priority: Priority::Realtime }));
    drop(busy);
    let permit = world.granted(&mut second).await;
    assert!(world.waits(&mut first).await, "voice alone is realtime");
    drop(permit);
    world.granted(&mut first).await;
}

#[tokio::test(start_paused = true)]
async fn scheduler_admits_one_steer_in_two_seconds_and_only_during_a_turn() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let steer_as = async |name: &str| {
        let wait = std::time::Duration::from_secs(1);
        let (conversation, task, user) = (conversation(1), task(9), user(name));
        let ask = |reply| SchedulerMsg::Admission(AdmissionMsg::Steer { conversation, task, user, reply });
        world.scheduler.call(wait, ask).await.expect("answered")
    };
    let steer = async || steer_as("ann").await;
    for _ in 0..3 {
        assert_eq!(steer().await, Ok(Steering::OwnTurn), "no turn is under way, so the message needs a queue position");
    }
    let _busy = world.take(1, NORMAL, &[]).await;
    assert_eq!(
        steer_as("bob").await,
        Ok(Steering::OwnTurn),
        "another user's conversation is not steered, and its limit is not used up"
    );
    assert_eq!(steer().await, Ok(Steering::Joins));
    assert!(steer().await.is_err_and(|ms| (1..=2_000).contains(&ms)));
    world.pass_ms(2_000).await;
    assert_eq!(steer().await, Ok(Steering::Joins));
    world.tell(SchedulerMsg::Status(StatusMsg::Hold { task: task(1), held: true }));
    assert_eq!(steer().await, Ok(Steering::OwnTurn), "a suspended task receives no steering");
}

#[tokio::test(start_paused = true)]
async fn scheduler_keeps_a_task_waiting_when_its_admission_was_lost() {
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
    assert!(world.waits(&mut second).await, "the first task has not ended");
    world.tell(SchedulerMsg::Status(StatusMsg::Ended { task: task(1) }));
    world.granted(&mut second).await;
}
