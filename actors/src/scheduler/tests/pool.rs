//! Several backends: which one a task waits for, and what moves it to another.

use annie_core::{event::Priority, message::ModelErrorKind, route::RateWindow, time::Micros};

use super::{
    super::{BackendReport, NoPermit, SchedulerMsg, StatusMsg, Verdict},
    world::{Answer, Parts, task},
};

const DOWN: Verdict = Verdict::Failed { kind: ModelErrorKind::Unavailable, retry_after_ms: None };
const NORMAL: Priority = Priority::Normal;

#[tokio::test(start_paused = true)]
async fn scheduler_queues_a_round_at_its_preferred_backend_when_that_is_only_busy() {
    let world = Parts::of(&[("gpu", 1), ("cloud", 1)]).start().await;
    let first = world.take(1, NORMAL, &["gpu", "cloud"]).await;
    let mut second = world.ask(2, NORMAL, &["gpu", "cloud"]).await;
    assert!(world.waits(&mut second).await, "the cloud backend is free but not preferred");
    let third = world.take(3, NORMAL, &["cloud"]).await;
    assert_eq!((first.backend(), third.backend()), ("gpu", "cloud"));
    drop(first);
    assert_eq!(world.granted(&mut second).await.backend(), "gpu");
}

#[tokio::test(start_paused = true)]
async fn scheduler_queues_rounds_of_one_task_at_different_backends_independently() {
    let world = Parts::of(&[("gpu", 1), ("cloud", 1)]).start().await;
    let _busy = world.take(1, NORMAL, &["gpu"]).await;
    let mut on_gpu = world.ask(2, NORMAL, &["gpu"]).await;
    let on_cloud = world.take(2, NORMAL, &["cloud"]).await;
    assert_eq!(on_cloud.backend(), "cloud");
    assert!(world.waits(&mut on_gpu).await);
}

#[tokio::test(start_paused = true)]
async fn scheduler_refuses_a_route_without_an_existing_backend() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let mut answer = world.ask(1, NORMAL, &["moon", "mars"]).await;
    let none = answer.try_recv().expect("answered").err();
    assert_eq!(none, Some(NoPermit::UnknownBackend(vec!["moon".to_owned(), "mars".to_owned()])));
    assert_eq!(world.take(2, NORMAL, &["moon", "gpu"]).await.backend(), "gpu");
    assert_eq!(world.take(3, NORMAL, &[]).await.backend(), "gpu");
}

#[tokio::test(start_paused = true)]
async fn scheduler_moves_a_waiting_round_when_the_gate_closes_if_its_route_allows() {
    let world = Parts::of(&[("gpu", 1), ("cloud", 1)]).start().await;
    let _busy = world.take(1, NORMAL, &["gpu"]).await;
    let mut may_move = world.ask(2, NORMAL, &["gpu", "cloud"]).await;
    let mut must_remain = world.ask(3, NORMAL, &["gpu"]).await;
    world.leases.hold_gate(Some(0), "ann", 60_000, world.now()).expect("free");
    assert_eq!(world.granted(&mut may_move).await.backend(), "cloud");
    assert!(world.waits(&mut must_remain).await);
    assert_eq!(world.take(4, NORMAL, &["gpu", "cloud"]).await.backend(), "cloud");
}

#[tokio::test(start_paused = true)]
async fn scheduler_avoids_a_backend_after_five_failures_until_one_probe_succeeds() {
    let world = Parts::of(&[("gpu", 2), ("cloud", 1)]).start().await;
    world.fail(1, "gpu", &[DOWN; 5]).await;
    assert_eq!(world.take(2, NORMAL, &["gpu", "cloud"]).await.backend(), "cloud");
    world.pass_ms(60_001).await;
    let probe = world.take(3, NORMAL, &["gpu", "cloud"]).await;
    let other = world.take(4, NORMAL, &["gpu", "cloud"]).await;
    assert_eq!((probe.backend(), other.backend()), ("gpu", "cloud"), "one probe and no other round");
    probe.give_back(10, Verdict::Fine);
    assert_eq!(world.take(5, NORMAL, &["gpu", "cloud"]).await.backend(), "gpu");
}

#[tokio::test(start_paused = true)]
async fn scheduler_tries_the_first_backend_when_none_is_up_and_counts_its_answer() {
    let world = Parts::of(&[("gpu", 1), ("cloud", 1)]).start().await;
    world.fail(1, "gpu", &[DOWN; 5]).await;
    world.fail(1, "cloud", &[DOWN; 5]).await;
    let tried = world.take(2, NORMAL, &["gpu", "cloud"]).await;
    assert_eq!(tried.backend(), "gpu");
    tried.give_back(10, Verdict::Fine);
    assert_eq!(world.list().await["backends"][0]["up"], true, "the backend answered, so it is up");
}

#[tokio::test(start_paused = true)]
async fn scheduler_moves_rounds_off_an_unreachable_backend_and_uses_it_again_later() {
    let world = Parts::of(&[("gpu", 1), ("cloud", 1)]).start().await;
    let busy = world.take(1, NORMAL, &["gpu"]).await;
    let mut waiting = world.ask(2, NORMAL, &["gpu", "cloud"]).await;
    world.tell(SchedulerMsg::Backend(BackendReport::BackendChecked { backend: "gpu".to_owned(), up: false }));
    assert_eq!(world.granted(&mut waiting).await.backend(), "cloud");
    drop(busy);
    world.tell(SchedulerMsg::Backend(BackendReport::BackendChecked { backend: "gpu".to_owned(), up: true }));
    assert_eq!(world.take(3, NORMAL, &["gpu", "cloud"]).await.backend(), "gpu");
}

#[tokio::test(start_paused = true)]
async fn scheduler_reserves_the_rest_of_a_rate_window_for_urgent_work() {
    let window = RateWindow { requests_max: 2, window_ms: 60_000, reserve: 1 };
    let world = Parts::of(&[("cloud", 4)]).window(0, window).start().await;
    world.take(1, NORMAL, &[]).await.give_back(10, Verdict::Fine);
    let mut waits = world.ask(2, NORMAL, &[]).await;
    assert!(world.waits(&mut waits).await, "one request is reserved");
    let why = world.status(2).await.expect("known").why;
    assert!(why.contains("kept for urgent work"), "{why}");
    drop(world.take(3, Priority::High, &[]).await);
    let mut urgent = world.ask(4, Priority::High, &[]).await;
    assert!(world.waits(&mut urgent).await, "the window is used up");
    world.pass_ms(60_010).await;
    world.granted(&mut urgent).await;
    assert!(world.waits(&mut waits).await, "the request of the urgent one is still counted");
    world.pass_ms(60_010).await;
    world.granted(&mut waits).await;
}

#[tokio::test(start_paused = true)]
async fn scheduler_moves_a_round_when_the_rate_window_is_used_up_if_its_route_allows() {
    let window = RateWindow { requests_max: 1, window_ms: 60_000, reserve: 0 };
    let world = Parts::of(&[("cloud", 1), ("gpu", 1)]).window(0, window).start().await;
    let first = world.take(1, NORMAL, &["cloud", "gpu"]).await;
    let second = world.take(2, NORMAL, &["cloud", "gpu"]).await;
    assert_eq!((first.backend(), second.backend()), ("cloud", "gpu"));
}

#[tokio::test(start_paused = true)]
async fn scheduler_sends_no_requests_to_a_rate_limited_provider_until_retry_after() {
    let world = Parts::of(&[("cloud", 2)]).start().await;
    let limited = Verdict::Failed { kind: ModelErrorKind::RateLimited, retry_after_ms: Some(7_000) };
    world.fail(1, "cloud", &[limited]).await;
    let mut waits = world.ask(2, Priority::High, &[]).await;
    world.pass_ms(6_900).await;
    assert!(world.waits(&mut waits).await);
    world.pass_ms(200).await;
    world.granted(&mut waits).await;
    assert_eq!(world.list().await["backends"][0]["up"], true, "a rate limit is not a failure");
}

fn limited(retry_after_ms: u64) -> Verdict {
    Verdict::Failed { kind: ModelErrorKind::RateLimited, retry_after_ms: Some(retry_after_ms) }
}

fn refusal(answer: &mut Answer) -> (String, u64) {
    match answer.try_recv() {
        Ok(Err(NoPermit::Shut { backend, shut })) => (backend, shut.until.since_ms(Micros(0)) / 3_600_000),
        Ok(Ok(permit)) => panic!("granted on {}", permit.backend()),
        other => panic!("not answered: {}", other.is_err()),
    }
}

#[tokio::test(start_paused = true)]
async fn scheduler_refuses_urgent_rounds_at_once_when_the_provider_is_closed_for_hours() {
    let world = Parts::of(&[("cloud", 2), ("other", 2)]).start().await;
    world.fail(1, "cloud", &[limited(6 * 3_600_000)]).await;
    let hours = |at: Micros| at.since_ms(Micros(0)) / 3_600_000;
    let in_six_hours = hours(world.now()) + 6;
    for (n, class) in [(2, Priority::High), (3, Priority::Realtime)] {
        let mut person = world.ask(n, class, &["cloud"]).await;
        assert_eq!(refusal(&mut person), ("cloud".to_owned(), in_six_hours), "{class:?}");
        world.tell(SchedulerMsg::Status(StatusMsg::Ended { task: task(n) }));
        let elsewhere = world.take(n + 10, class, &["cloud", "other"]).await;
        assert_eq!(elsewhere.backend(), "other");
        drop(elsewhere);
        world.tell(SchedulerMsg::Status(StatusMsg::Ended { task: task(n + 10) }));
    }
    let mut job = world.ask(4, NORMAL, &["cloud"]).await;
    world.pass_ms(6 * 3_600_000 - 6_000).await;
    let spoken = world.ask(6, Priority::Realtime, &["cloud"]).await;
    assert!(spoken.await.is_ok_and(|answer| answer.is_err()), "the shortest deadline of a spoken turn is 5 s");
    world.tell(SchedulerMsg::Status(StatusMsg::Ended { task: task(6) }));
    world.pass_ms(5_000).await;
    assert!(world.waits(&mut job).await, "a job may wait for hours");
    let mut soon = world.ask(5, Priority::High, &["cloud"]).await;
    assert!(world.waits(&mut soon).await, "a wait of a second is short enough");
    world.pass_ms(1_100).await;
    world.granted(&mut soon).await;
    world.granted(&mut job).await;
}

#[tokio::test(start_paused = true)]
async fn scheduler_refuses_a_waiting_urgent_round_when_the_wait_becomes_too_long() {
    let world = Parts::of(&[("cloud", 1), ("other", 2)]).start().await;
    let running = world.take(1, NORMAL, &["cloud"]).await;
    let [late, later] = [world.take(2, NORMAL, &["other"]).await, world.take(4, NORMAL, &["other"]).await];
    let mut person = world.ask(3, Priority::High, &["cloud", "other"]).await;
    running.give_back(10, limited(3_600_000));
    assert!(world.waits(&mut person).await, "the other backend is only busy");
    late.give_back(10, limited(20_000));
    assert!(world.waits(&mut person).await, "the other backend accepts it soon");
    later.give_back(10, limited(2 * 3_600_000));
    world.processed().await;
    let (backend, _) = refusal(&mut person);
    assert_eq!(backend, "cloud", "the backend that accepts requests again first");
}

#[tokio::test(start_paused = true)]
async fn scheduler_prefers_an_unreachable_backend_to_one_closed_for_hours() {
    let world = Parts::of(&[("cloud", 1), ("gpu", 1)]).start().await;
    world.fail(1, "cloud", &[limited(6 * 3_600_000)]).await;
    world.fail(2, "gpu", &[DOWN; 5]).await;
    let tried = world.take(3, Priority::High, &["cloud", "gpu"]).await;
    assert_eq!(tried.backend(), "gpu", "a visible failure beats silence");
}

#[tokio::test(start_paused = true)]
async fn permit_returns_exactly_once_however_it_ends() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    drop(world.take(1, NORMAL, &[]).await);
    let abandoned = world.take(1, NORMAL, &[]).await;
    let waiting = world.ask(2, NORMAL, &[]).await;
    drop(waiting);
    let mut next = world.ask(3, NORMAL, &[]).await;
    assert!(world.waits(&mut next).await);
    drop(abandoned);
    let permit = world.granted(&mut next).await;
    assert_eq!(world.leases.count(0), 1);
    permit.give_back(10, Verdict::Fine);
    assert_eq!(world.leases.count(0), 0);
}
