//! Admission of new tasks.

use annie_core::{
    event::Priority,
    ports::{ServerFacts, TaskState},
    queue::{RefusalReason, WorkKey},
    time::Micros,
};
use serde_json::json;
use tokio::sync::oneshot;

use super::{
    super::{AdmissionMsg, PermitRequest, SchedulerMsg, StatusMsg, Verdict},
    world::{New, Parts, row, task},
};

const NORMAL: Priority = Priority::Normal;

#[tokio::test(start_paused = true)]
async fn scheduler_joins_and_lifts_equal_work_that_has_not_begun() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let busy = world.take(9, NORMAL, &[]).await;
    let work = Some(WorkKey::of("ask", "the weather"));
    world.admit(New { work, ..New::of(1, Priority::Low) }).await.expect("capacity");
    let mut first = world.ask(1, Priority::Low, &[]).await;
    let joined = world.admit(New { work, ..New::of(2, Priority::High) }).await.expect("joined");
    assert_eq!(joined.same_as, Some(task(1)));
    let other = world.admit(New { work, user: "bob", ..New::of(3, NORMAL) }).await.expect("capacity");
    assert_eq!(other.same_as, None, "work of another user is never joined");
    assert_eq!(world.view().await["depth"], json!({"high": 1, "normal": 1, "low": 0, "background": 0}));
    drop(busy);
    let _runs = world.granted(&mut first).await;
    let late = world.admit(New { work, ..New::of(4, NORMAL) }).await.expect("capacity");
    assert_eq!(late.same_as, None, "it has begun");
}

#[tokio::test(start_paused = true)]
async fn scheduler_does_not_join_deferred_work() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let work = Some(WorkKey::of("ask", "the weather"));
    let later = Some(world.now().plus_ms(3_600_000));
    world.admit(New { work, not_before: later, ..New::of(1, NORMAL) }).await.expect("capacity");
    assert_eq!(world.admit(New { work, ..New::of(2, NORMAL) }).await.expect("capacity").same_as, None);
}

#[tokio::test(start_paused = true)]
async fn scheduler_refuses_a_full_class_with_position_and_retry_time_and_admits_others() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let _busy = world.take(9, NORMAL, &[]).await;
    for n in 1..=3 {
        let position = world.admit(New::of(n, Priority::High)).await.expect("capacity");
        assert_eq!(position.position, n as usize);
    }
    let refusal = world.admit(New::of(4, Priority::High)).await.expect_err("full");
    assert_eq!((refusal.reason, refusal.limit), (RefusalReason::UserDepth, 3));
    assert!(refusal.retry_after_ms >= 1_000);
    world.admit(New::of(5, NORMAL)).await.expect("capacity");
    world.tell(SchedulerMsg::Admission(AdmissionMsg::Forget { task: task(1) }));
    world.admit(New::of(6, Priority::High)).await.expect("there is capacity again");
}

#[tokio::test(start_paused = true)]
async fn scheduler_counts_no_queue_position_for_rounds_without_a_task() {
    let world = Parts::of(&[("gpu", 1), ("vectors", 1)]).start().await;
    let mut asked = Vec::new();
    for n in 1..=12 {
        let (reply, answer) = oneshot::channel();
        let request = PermitRequest { is_task: false, ..world.request(n, Priority::High, &["vectors"]) };
        world.tell(SchedulerMsg::Acquire { request, reply });
        asked.push(answer);
    }
    assert_eq!(world.view().await["depth"]["high"], 0, "no estimate counts them");
    let position = world.admit(New::of(20, Priority::High)).await.expect("embeddings do not block a chat");
    assert_eq!((position.position, position.start_in_ms), (1, 0), "it begins at once");
    let first = asked[0].try_recv().expect("granted").expect("a permit");
    first.give_back(10, Verdict::Fine);
    world.granted(&mut asked[1]).await;
}

#[tokio::test(start_paused = true)]
async fn scheduler_learns_nothing_about_the_chat_model_from_an_embedding() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let facts = ServerFacts { assumed_tokens_max: Some(4_096), ..ServerFacts::default() };
    world.leases.learn("gpu", facts);
    let (reply, answer) = oneshot::channel();
    let request = PermitRequest { is_task: false, ..world.request(1, Priority::High, &["gpu"]) };
    world.tell(SchedulerMsg::Acquire { request, reply });
    answer.await.expect("granted").expect("a permit").give_back(60_000, Verdict::Fine);
    world.processed().await;
    assert!(world.leases.last_rounds(0).is_empty(), "an embedding does not change the estimate");
    assert!(world.leases.is_to_be_asked_again(0), "an embedding loads another model");
    world.leases.learn_nothing("gpu");
    world.take(2, Priority::High, &["gpu"]).await.give_back(10, Verdict::Fine);
    world.processed().await;
    assert!(!world.leases.is_to_be_asked_again(0), "a round of the chat model triggers the question");
}

#[tokio::test(start_paused = true)]
async fn scheduler_frees_positions_of_unstored_tasks_after_a_refusal() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let _busy = world.take(9, NORMAL, &[]).await;
    for n in 1..=3 {
        world.admit(New::of(n, Priority::High)).await.expect("capacity");
    }
    world.table.rows.lock().push(row(3, TaskState::Queued, world.now(), json!({"priority": "high"})));
    world.pass_ms(61_000).await;
    world.admit(New::of(4, Priority::High)).await.expect_err("the queue is full as far as the scheduler knows");
    world.until("the obsolete entries are removed", async || world.status(1).await.is_none().then_some(())).await;
    assert!(world.status(3).await.is_some(), "this one is stored");
    world.admit(New::of(5, Priority::High)).await.expect("there is capacity");
}

#[tokio::test(start_paused = true)]
async fn scheduler_does_not_revive_an_ended_task_on_a_late_request() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    world.admit(New::of(1, NORMAL)).await.expect("capacity");
    world.tell(SchedulerMsg::Status(StatusMsg::Ended { task: task(1) }));
    let late = world.ask(1, NORMAL, &[]).await;
    assert!(late.await.is_err(), "the late request is refused");
    assert_eq!(world.view().await["tasks"], 0);
    assert_eq!(world.leases.count(0), 0);
}

#[tokio::test(start_paused = true)]
async fn scheduler_rereads_the_task_table_when_its_entries_have_grown() {
    let mut parts = Parts::of(&[("gpu", 1)]);
    parts.limits.depth_per_user.normal_max = 10_000;
    let world = parts.start().await;
    let before = world.table.readings();
    for n in 1..=1_001 {
        world.admit(New::of(n, NORMAL)).await.expect("capacity");
    }
    world.until("the table is read again", async || (world.table.readings() > before).then_some(())).await;
    assert_eq!(world.view().await["tasks"], 1_001, "the entries are young, so their messages may not be stored yet");
    assert!(world.now() > Micros(0));
}

#[tokio::test(start_paused = true)]
async fn scheduler_counts_no_slots_as_free_while_the_voice_gate_is_closed() {
    let world = Parts::of(&[("gpu", 8)]).start().await;
    world.admit(New::of(1, Priority::Realtime)).await.expect("capacity");
    for n in 2..=4 {
        let position = world.admit(New::of(n, Priority::Low)).await.expect("capacity");
        assert_eq!(position.position, n as usize - 1, "the task waits behind earlier ones");
    }
    let refusal = world.admit(New::of(5, Priority::Low)).await.expect_err("three wait");
    assert_eq!(refusal.reason, RefusalReason::UserDepth);
}
