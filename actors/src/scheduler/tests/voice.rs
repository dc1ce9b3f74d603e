//! Voice runs first, and alone.

use annie_core::{event::Priority, queue::RefusalReason};

use super::{
    super::{GateMsg, SchedulerMsg, StatusMsg, Verdict},
    world::{New, Parts, task},
};

const VOICE: Priority = Priority::Realtime;
const NORMAL: Priority = Priority::Normal;

#[tokio::test(start_paused = true)]
async fn scheduler_closes_the_gate_from_admission_to_end_of_a_voice_task() {
    let world = Parts::of(&[("gpu", 2)]).start().await;
    world.admit(New::of(1, VOICE)).await.expect("capacity");
    let mut other = world.ask(2, NORMAL, &[]).await;
    assert!(world.waits(&mut other).await, "a voice task has been admitted");
    let round = world.take(1, VOICE, &[]).await;
    assert!(world.waits(&mut other).await);
    round.give_back(100, Verdict::Fine);
    world.pass_ms(3_000).await;
    world.take(1, VOICE, &[]).await.give_back(100, Verdict::Fine);
    // A skill runs until the hard deadline of the spoken turn is near.
    world.pass_ms(11_900).await;
    assert!(world.waits(&mut other).await, "between two of its rounds");
    world.tell(SchedulerMsg::Status(StatusMsg::Ended { task: task(1) }));
    world.granted(&mut other).await;
    let gate = &world.list().await["backends"][0]["gate"];
    assert_eq!(gate["closed"], false);
    assert!(gate["closed_ms_total"].as_u64().is_some_and(|ms| ms >= 6_000), "{gate}");
}

#[tokio::test(start_paused = true)]
async fn scheduler_runs_voice_before_all_others_after_one_round_at_most() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let busy = world.take(1, NORMAL, &[]).await;
    let mut urgent = world.ask(2, Priority::High, &[]).await;
    let mut voice = world.ask(3, VOICE, &[]).await;
    drop(busy);
    let voice_permit = world.granted(&mut voice).await;
    drop(voice_permit);
    assert!(world.waits(&mut urgent).await);
    world.tell(SchedulerMsg::Status(StatusMsg::Ended { task: task(3) }));
    world.granted(&mut urgent).await;
}

#[tokio::test(start_paused = true)]
async fn scheduler_opens_the_gate_one_term_after_a_voice_task_dies_but_not_during_its_round() {
    let world = Parts::of(&[("gpu", 2)]).start().await;
    let long = world.take(1, VOICE, &[]).await;
    let mut other = world.ask(2, NORMAL, &[]).await;
    world.pass_ms(30_000).await;
    assert!(world.waits(&mut other).await, "the voice round still runs");
    drop(long);
    world.pass_ms(13_100).await;
    world.granted(&mut other).await;
}

#[tokio::test(start_paused = true)]
async fn voice_gate_term_follows_the_configured_deadlines_of_voice() {
    let mut parts = Parts::of(&[("gpu", 2)]);
    parts.deadlines.voice_action.hard_ms = 20_000;
    let world = parts.start().await;
    world.take(1, VOICE, &[]).await.give_back(100, Verdict::Fine);
    let mut other = world.ask(2, NORMAL, &[]).await;
    world.pass_ms(20_000).await;
    assert!(world.waits(&mut other).await, "the spoken turn may still continue");
    world.pass_ms(1_100).await;
    world.granted(&mut other).await;
}

#[tokio::test(start_paused = true)]
async fn scheduler_refuses_voice_tasks_beyond_the_limit_until_one_ends() {
    let world = Parts::of(&[("gpu", 8)]).start().await;
    for n in 1..=4 {
        world.admit(New::of(n, VOICE)).await.expect("capacity");
    }
    let refusal = world.admit(New::of(5, VOICE)).await.expect_err("four voice tasks run");
    assert_eq!((refusal.reason, refusal.limit), (RefusalReason::RealtimeFull, 4));
    assert!(refusal.retry_after_ms >= 1_000 && refusal.to_string().contains("voice"), "{refusal}");
    world.tell(SchedulerMsg::Status(StatusMsg::Ended { task: task(1) }));
    world.admit(New::of(6, VOICE)).await.expect("one voice task has ended");
}

#[tokio::test(start_paused = true)]
async fn gate_survives_a_crash_of_the_scheduler() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let wait = std::time::Duration::from_secs(1);
    let hold = |reply| {
        SchedulerMsg::Gate(GateMsg::HoldGate {
            backend: String::new(),
            holder: "the microphone".to_owned(),
            ttl_ms: 20_000,
            reply,
        })
    };
    world.scheduler.call(wait, hold).await.expect("answered").expect("free");
    world.kill().await;
    world.loaded().await;
    let mut other = world.ask(1, NORMAL, &[]).await;
    assert!(world.waits(&mut other).await, "the gate is still held");
    world.pass_ms(20_100).await;
    world.granted(&mut other).await;
}

#[tokio::test(start_paused = true)]
async fn scheduler_closes_the_gate_only_on_the_backend_of_the_voice_task() {
    let world = Parts::of(&[("gpu", 2), ("other", 2)]).start().await;
    world.admit(New::of(1, VOICE)).await.expect("capacity");
    let _voice_permit = world.take(1, VOICE, &["other"]).await;
    let mut there = world.ask(2, NORMAL, &["other"]).await;
    assert!(world.waits(&mut there).await);
    assert_eq!(world.take(3, NORMAL, &["gpu"]).await.backend(), "gpu");
}
