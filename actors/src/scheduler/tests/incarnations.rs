//! Crashes of the scheduler: the knowledge of the next incarnation, and the cost.

use std::{collections::BTreeMap, sync::atomic::Ordering::SeqCst};

use annie_core::{event::Priority, ports::TaskState};
use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;

use super::{
    super::{AdmissionMsg, SchedulerMsg, StatusMsg, TableMsg, TaskStatusState, Verdict, permit::acquire_from},
    world::{New, Parts, conversation, row, task},
};

const NORMAL: Priority = Priority::Normal;

#[tokio::test(start_paused = true)]
async fn scheduler_incarnation_learns_waiting_tasks_and_reasons_from_the_task_table() {
    let parts = Parts::of(&[("gpu", 1)]);
    let start = annie_testkit::env::TestClock::START;
    let later = start.plus_ms(3_600_000);
    *parts.table.rows.lock() = vec![
        row(1, TaskState::Queued, start.plus_ms(-5_000), json!({})),
        row(2, TaskState::Suspended, start.plus_ms(-4_000), json!({})),
        row(3, TaskState::Queued, start.plus_ms(-3_000), json!({"not_before": later})),
        row(4, TaskState::Queued, start.plus_ms(-2_000), json!({"after": [task(1), task(77)]})),
        row(5, TaskState::Running, start.plus_ms(-1_000), json!({"started_at": start})),
        row(6, TaskState::Completed, start.plus_ms(-900), json!({"started_at": start, "ended_at": start})),
    ];
    let world = parts.start().await;
    let mut states = Vec::new();
    for n in 1..=6 {
        states.push(world.status(n).await.map(|s| s.state));
    }
    use TaskStatusState::{Between, Delayed, Held, Waiting};
    assert_eq!(states, [Some(Waiting), Some(Held), Some(Delayed), Some(Delayed), Some(Between), None]);
    assert_eq!(world.view().await["depth"]["normal"], 4, "a task that has begun waits only when it asks");
    let mut fourth = world.ask(4, NORMAL, &[]).await;
    assert!(world.waits(&mut fourth).await);
    world.tell(SchedulerMsg::Status(StatusMsg::Ended { task: task(1) }));
    world.granted(&mut fourth).await;
}

#[tokio::test(start_paused = true)]
async fn scheduler_incarnation_resumes_tasks_that_were_deferred_after_a_failure_when_a_model_answers() {
    let parts = Parts::of(&[("gpu", 1)]);
    let start = annie_testkit::env::TestClock::START;
    let deferred = |n: u32, until_ms: i64, has_model_failed: bool| {
        let more = json!({
            "started_at": start, "not_before": start.plus_ms(until_ms), "has_model_failed": has_model_failed,
        });
        row(n, TaskState::Running, start, more)
    };
    *parts.table.rows.lock() =
        vec![deferred(1, 3_600_000, true), deferred(2, 3_600_000, false), deferred(3, -1_000, true)];
    let world = parts.start().await;
    world.kill().await;
    world.loaded().await;
    let failed = async || {
        let mut failed = Vec::new();
        for n in 1..=3 {
            failed.push(world.status(n).await.map(|status| status.has_model_failed));
        }
        failed
    };
    assert_eq!(failed().await, [Some(true), Some(false), Some(false)], "the deferral of the third task is over");
    let why = world.status(1).await.map(|status| status.why).unwrap_or_default();
    assert!(why.contains("its model failed"), "{why}");
    world.take(9, NORMAL, &[]).await.give_back(10, Verdict::Fine);
    assert_eq!(failed().await, [Some(false); 3], "the conversation of the first task is notified");
}

#[tokio::test(start_paused = true)]
async fn scheduler_lets_tasks_wait_for_tasks_without_a_queue_position() {
    let parts = Parts::of(&[("gpu", 1)]);
    let start = annie_testkit::env::TestClock::START;
    *parts.table.rows.lock() = vec![
        row(1, TaskState::Queued, start.plus_ms(-9_000), json!({"is_job_command": true})),
        row(2, TaskState::Queued, start.plus_ms(-8_000), json!({"is_steer": true})),
        row(3, TaskState::Queued, start.plus_ms(-7_000), json!({})),
        row(4, TaskState::Queued, start.plus_ms(-6_000), json!({"joins": task(3)})),
        row(5, TaskState::Queued, start.plus_ms(-5_000), json!({"joins": task(99)})),
        row(6, TaskState::Queued, start.plus_ms(-4_000), json!({"after": [task(1), task(2), task(4)]})),
    ];
    let world = parts.start().await;
    assert_eq!(
        world.view().await["depth"]["normal"],
        3,
        "the third, the fifth and the sixth: {:#}",
        world.view().await
    );
    let mut sixth = world.ask(6, NORMAL, &[]).await;
    for n in [1, 2] {
        world.tell(SchedulerMsg::Status(StatusMsg::Ended { task: task(n) }));
        assert!(world.waits(&mut sixth).await);
    }
    world.tell(SchedulerMsg::Status(StatusMsg::Ended { task: task(4) }));
    world.granted(&mut sixth).await;
}

#[tokio::test(start_paused = true)]
async fn scheduler_keeps_a_task_waiting_for_one_that_was_coalesced() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let busy = world.take(9, NORMAL, &[]).await;
    let work = Some(annie_core::queue::WorkKey::of("work", "the same"));
    world.admit(New { work, ..New::of(1, NORMAL) }).await.expect("capacity");
    let joined = world.admit(New { work, ..New::of(2, NORMAL) }).await.expect("capacity");
    assert_eq!(joined.same_as, Some(task(1)));
    world.tell(SchedulerMsg::Admission(AdmissionMsg::JobCommand { task: task(3), user: super::world::user("ann") }));
    world.admit(New { after: vec![2, 3], ..New::of(4, NORMAL) }).await.expect("capacity");
    let mut fourth = world.ask(4, NORMAL, &[]).await;
    busy.give_back(10, Verdict::Fine);
    for n in [1, 2] {
        assert!(world.waits(&mut fourth).await);
        world.tell(SchedulerMsg::Status(StatusMsg::Ended { task: task(n) }));
    }
    assert!(world.waits(&mut fourth).await, "the job command is not carried out yet");
    world.tell(SchedulerMsg::Status(StatusMsg::Ended { task: task(3) }));
    world.granted(&mut fourth).await;
}

#[tokio::test(start_paused = true)]
async fn scheduler_runs_only_voice_until_the_task_table_is_read() {
    let parts = Parts::of(&[("gpu", 2)]);
    let (open, shut) = watch::channel(true);
    *parts.table.is_shut.lock() = Some(shut);
    let start = annie_testkit::env::TestClock::START;
    *parts.table.rows.lock() = vec![row(2, TaskState::Queued, start, json!({}))];
    let world = parts.start_unread().await;
    let voice = world.take(1, Priority::Realtime, &[]).await;
    let mut held = world.ask(2, NORMAL, &[]).await;
    world.tell(SchedulerMsg::Status(StatusMsg::Hold { task: task(2), held: true }));
    let mut early = world.ask(3, NORMAL, &[]).await;
    drop(voice);
    world.tell(SchedulerMsg::Status(StatusMsg::Ended { task: task(1) }));
    let admission = world.admit(New::of(4, NORMAL));
    let opening = async {
        world.pass_ms(500).await;
        assert!(world.waits(&mut early).await);
        open.send(false).expect("it listens");
    };
    let (admitted, ()) = tokio::join!(admission, opening);
    admitted.expect("capacity");
    world.loaded().await;
    world.granted(&mut early).await;
    assert!(world.waits(&mut held).await, "the earlier suspension applies");
}

#[tokio::test(start_paused = true)]
async fn scheduler_retries_reading_the_task_table_every_second() {
    let parts = Parts::of(&[("gpu", 1)]);
    parts.table.failures.store(3, SeqCst);
    let world = parts.start_unread().await;
    let mut waits = world.ask(1, NORMAL, &[]).await;
    world.pass_ms(2_900).await;
    assert!(world.waits(&mut waits).await);
    world.pass_ms(200).await;
    world.granted(&mut waits).await;
    assert_eq!(world.table.readings(), 4);
}

#[tokio::test(start_paused = true)]
async fn scheduler_reads_the_table_again_when_asked_during_a_reading() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let (open, shut) = watch::channel(true);
    *world.table.is_shut.lock() = Some(shut);
    world.tell(SchedulerMsg::Table(TableMsg::Reread));
    world.pass_ms(10).await;
    world.tell(SchedulerMsg::Table(TableMsg::Reread));
    world.processed().await;
    let before = world.table.readings();
    open.send(false).expect("it listens");
    world.until("the table is read twice", async || (world.table.readings() == before + 2).then_some(())).await;
    world.pass_ms(100).await;
    assert_eq!(world.table.readings(), before + 2, "no further reading follows");
}

#[tokio::test(start_paused = true)]
async fn scheduler_retries_a_failed_rereading_of_the_task_table() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    world.table.failures.store(2, SeqCst);
    *world.table.rows.lock() = vec![row(1, TaskState::Suspended, world.now(), json!({}))];
    world.tell(SchedulerMsg::Table(TableMsg::Reread));
    world.pass_ms(1_500).await;
    assert!(world.status(1).await.is_none(), "the reading failed twice");
    world.pass_ms(1_000).await;
    assert_eq!(world.status(1).await.map(|s| s.state), Some(TaskStatusState::Held));
}

#[tokio::test(start_paused = true)]
async fn scheduler_waits_for_open_tasks_of_other_processes_but_not_for_ended_ones() {
    let world = Parts::of(&[("gpu", 2)]).start().await;
    *world.table.rows.lock() = vec![row(1, TaskState::Running, world.now(), json!({}))];
    world.admit(New { after: vec![1, 99], ..New::of(2, NORMAL) }).await.expect("capacity");
    world.admit(New { after: vec![99], ..New::of(3, NORMAL) }).await.expect("capacity");
    let (mut second, mut third) = (world.ask(2, NORMAL, &[]).await, world.ask(3, NORMAL, &[]).await);
    world.pass_ms(1).await;
    drop(world.granted(&mut third).await);
    assert!(world.waits(&mut second).await, "the first task runs in another process");
    let before = world.table.readings();
    world.table.rows.lock().clear();
    for _ in 0..10 {
        world.tell(SchedulerMsg::Table(TableMsg::Woken));
        world.pass_ms(50).await;
    }
    assert!(world.waits(&mut second).await);
    world.pass_ms(600).await;
    world.granted(&mut second).await;
    assert_eq!(world.table.readings(), before + 1, "many hints cause one reading");
}

#[tokio::test(start_paused = true)]
async fn scheduler_waits_for_a_task_whose_row_is_younger_by_another_clock() {
    let parts = Parts::of(&[("gpu", 2)]);
    let start = annie_testkit::env::TestClock::START;
    *parts.table.rows.lock() = vec![
        row(1, TaskState::Queued, start.plus_ms(2_000), json!({})),
        row(2, TaskState::Queued, start.plus_ms(1_000), json!({"after": [task(1), task(3), task(99)]})),
        row(3, TaskState::Queued, start.plus_ms(3_000), json!({"user": "bob"})),
    ];
    let world = parts.start().await;
    let readings = world.table.readings();
    let mut second = world.ask(2, NORMAL, &[]).await;
    world.pass_ms(1_500).await;
    assert!(world.waits(&mut second).await, "the first is open");
    assert_eq!(world.table.readings(), readings, "no further reading is needed");
    world.tell(SchedulerMsg::Status(StatusMsg::Ended { task: task(1) }));
    world.granted(&mut second).await;
}

#[tokio::test(start_paused = true)]
async fn scheduler_forgets_unknown_tasks_for_which_no_task_waits() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let awaited = async || world.view().await["awaited"].as_u64();
    for n in 1..=3 {
        world.admit(New { after: vec![90 + n], ..New::of(n, NORMAL) }).await.expect("capacity");
    }
    world.tell(SchedulerMsg::Admission(AdmissionMsg::Forget { task: task(3) }));
    world.until("the scheduler knows that they have ended", async || (awaited().await == Some(0)).then_some(())).await;
    let start = world.now();
    world.table.rows.lock().push(row(8, TaskState::Queued, start, json!({})));
    world.admit(New { after: vec![8], ..New::of(4, NORMAL) }).await.expect("capacity");
    assert_eq!(awaited().await, Some(1));
    world.tell(SchedulerMsg::Admission(AdmissionMsg::Forget { task: task(4) }));
    world.processed().await;
    assert_eq!(awaited().await, Some(0));
}

#[tokio::test(start_paused = true)]
async fn scheduler_frees_the_position_of_a_task_that_another_process_ended() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let _busy = world.take(99, NORMAL, &[]).await;
    let start = world.now();
    for n in 1..=5 {
        world.admit(New::of(n, NORMAL)).await.expect("capacity");
        world.table.rows.lock().push(row(n, TaskState::Queued, start, json!({})));
    }
    assert!(world.admit(New::of(6, NORMAL)).await.is_err(), "the queue is full");
    let notify = async || {
        world.tell(SchedulerMsg::Table(TableMsg::Woken));
        world.pass_ms(1_100).await;
    };
    notify().await;
    world.table.rows.lock().retain(|row| row.id == task(1));
    notify().await;
    for n in 7..=10 {
        world.admit(New::of(n, NORMAL)).await.expect("there is capacity again");
    }
    assert!(world.admit(New::of(11, NORMAL)).await.is_err(), "the first is still open");
}

#[tokio::test(start_paused = true)]
async fn scheduler_incarnation_keeps_the_learned_round_duration() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    for _ in 0..40 {
        world.take(1, NORMAL, &[]).await.give_back(7_000, Verdict::Fine);
    }
    let usual = async || world.status(1).await.expect("the task is known").round_ms;
    let learned = usual().await;
    assert!((6_500..7_500).contains(&learned), "{learned}");
    let start = world.now();
    world.table.rows.lock().push(row(1, TaskState::Running, start, json!({"started_at": start})));
    world.kill().await;
    world.loaded().await;
    assert!(usual().await.abs_diff(learned) < 100, "{} instead of {learned}", usual().await);
}

#[tokio::test(start_paused = true)]
async fn scheduler_retries_the_task_table_when_it_does_not_answer() {
    let parts = Parts::of(&[("gpu", 1)]);
    let (_open, shut) = watch::channel(true);
    *parts.table.is_shut.lock() = Some(shut);
    let world = parts.start_unread().await;
    let mut waits = world.ask(1, NORMAL, &[]).await;
    world.pass_ms(20_000).await;
    assert!(world.waits(&mut waits).await);
    *world.table.is_shut.lock() = None;
    world.pass_ms(12_000).await;
    world.granted(&mut waits).await;
}

#[tokio::test(start_paused = true)]
async fn scheduler_does_not_count_downtime_as_waiting() {
    let parts = Parts::of(&[("gpu", 1)]);
    let start = annie_testkit::env::TestClock::START;
    let hour_ms = 3_600_000;
    *parts.table.rows.lock() =
        vec![row(1, TaskState::Queued, start.plus_ms(-hour_ms - 60_000), json!({"priority": "background"}))];
    let last = json!({
        "id": conversation(1), "user": "ann", "title": "", "last_seq": 1, "epoch": 1,
        "created_at": start.plus_ms(-hour_ms - 60_000), "updated_at": start.plus_ms(-hour_ms),
    });
    *parts.table.conversations.lock() = vec![serde_json::from_value(last).expect("a row")];
    let world = parts.start().await;
    let busy = world.take(9, NORMAL, &[]).await;
    let _waits = world.ask(1, Priority::Background, &[]).await;
    let effective = |list: &serde_json::Value| list["waiting"][0]["effective"].as_f64().expect("a number");
    let first = effective(&world.list().await);
    assert!((3.7..3.9).contains(&first), "a minute's wait, not an hour's: {first}");
    world.kill().await;
    world.loaded().await;
    let _waits = world.ask(1, Priority::Background, &[]).await;
    let second = effective(&world.list().await);
    assert!((first - second).abs() < 0.01, "the next incarnation counts the same: {second}");
    drop(busy);
}

#[tokio::test(start_paused = true)]
async fn scheduler_incarnation_grants_no_more_permits_than_slots() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let out = world.take(1, NORMAL, &[]).await;
    world.kill().await;
    world.loaded().await;
    let mut next = world.ask(2, NORMAL, &[]).await;
    assert!(world.waits(&mut next).await);
    out.give_back(10, Verdict::Fine);
    world.granted(&mut next).await;
}

#[tokio::test(start_paused = true)]
async fn scheduler_preempts_a_task_three_times_at_most_even_across_a_crash() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let start = world.now();
    world.table.rows.lock().push(row(1, TaskState::Running, start, json!({"started_at": start})));
    let mut preemptions = Vec::new();
    let mut round = world.take(1, NORMAL, &[]).await;
    for n in 2..8 {
        let mut urgent = world.ask(n, Priority::High, &[]).await;
        drop(round);
        let permit = world.granted(&mut urgent).await;
        let mut mine = world.ask(1, NORMAL, &[]).await;
        preemptions.push(world.list().await["waiting"][0]["preemptions"].as_u64().expect("a number"));
        drop(permit);
        world.tell(SchedulerMsg::Status(StatusMsg::Ended { task: task(n) }));
        round = world.granted(&mut mine).await;
        if n == 3 {
            world.kill().await;
            world.loaded().await;
        }
    }
    assert_eq!(preemptions, [1, 2, 3, 3, 3, 3]);
}

#[tokio::test(start_paused = true)]
async fn scheduler_finishes_two_hundred_tasks_once_each_while_it_is_killed_repeatedly() {
    const TASKS: u32 = 200;
    const ROUNDS: u32 = 3;
    let slots = [("gpu", 1_usize), ("cloud", 3), ("agent", 2)];
    let mut parts = Parts::of(&slots.map(|(name, n)| (name, u32::try_from(n).expect("small"))));
    parts.limits.depth_per_user.normal_max = 1_000;
    let world = parts.start().await;
    let running: Mutex<BTreeMap<String, usize>> = Mutex::default();
    let rounds: Mutex<BTreeMap<u32, u32>> = Mutex::default();
    let routes: [&[&str]; 3] = [&["gpu", "cloud"], &["cloud"], &["agent", "cloud", "gpu"]];
    let start = world.now();
    world.table.rows.lock().extend((0..TASKS).map(|n| row(n, TaskState::Queued, start, json!({}))));
    let one = async |n: u32| {
        for _ in 0..ROUNDS {
            let request = world.request(n, NORMAL, routes[n as usize % 3]);
            let permit = acquire_from(&world.scheduler, request).await.expect("a backend");
            let name = permit.backend().to_owned();
            let now_running = {
                let mut running = running.lock();
                let count = running.entry(name.clone()).or_default();
                *count += 1;
                *count
            };
            let most = slots.iter().find(|(s, _)| *s == name).map_or(0, |(_, n)| *n);
            assert!(now_running <= most, "{now_running} rounds on {name}, which has {most} slots");
            world.pass_ms(7).await;
            running.lock().entry(name).and_modify(|count| *count -= 1);
            permit.give_back(7, Verdict::Fine);
            *rounds.lock().entry(n).or_default() += 1;
        }
        world.table.rows.lock().retain(|row| row.id != task(n));
        // A message that arrives between two incarnations is lost; the task table shows the end.
        world.scheduler.tell(SchedulerMsg::Status(StatusMsg::Ended { task: task(n) }));
    };
    let all = async {
        let mut tasks: FuturesUnordered<_> = (0..TASKS).map(&one).collect();
        while tasks.next().await.is_some() {}
    };
    let killer = async {
        loop {
            world.pass_ms(40).await;
            world.kill().await;
        }
    };
    tokio::select! {
        () = all => {}
        () = killer => {}
    }
    assert!(rounds.lock().len() == TASKS as usize && rounds.lock().values().all(|n| *n == ROUNDS));
    assert!(world.system.directory.crashes_total() >= 5, "it was killed");
    world.loaded().await;
    assert_eq!(join_all([world.view()]).await[0]["tasks"], 0, "no task is left");
}

#[tokio::test(start_paused = true)]
async fn scheduler_incarnation_on_a_shared_store_does_not_know_whose_model_failed() {
    let parts = Parts { is_shared: true, ..Parts::of(&[("gpu", 1)]) };
    let start = annie_testkit::env::TestClock::START;
    let more = json!({"started_at": start, "not_before": start.plus_ms(3_600_000), "has_model_failed": true});
    *parts.table.rows.lock() = vec![row(1, TaskState::Running, start, more)];
    let world = parts.start().await;
    assert_eq!(world.status(1).await.map(|status| status.has_model_failed), Some(false));
}
