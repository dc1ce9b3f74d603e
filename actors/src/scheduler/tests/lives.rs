//! What a new life of the scheduler knows, and what a death of it costs.

use std::{collections::BTreeMap, sync::atomic::Ordering::SeqCst};

use annie_core::{event::Priority, ports::TaskState};
use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;

use super::{
    super::{SchedulerMsg, StandState, Verdict, permit::acquire_from},
    world::{New, Parts, conversation, row, task},
};

const NORMAL: Priority = Priority::Normal;

#[tokio::test(start_paused = true)]
async fn a_new_life_learns_from_the_task_table_who_waits_and_why() {
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
        states.push(world.stand(n).await.map(|s| s.state));
    }
    use StandState::{Between, Delayed, Held, Waiting};
    assert_eq!(states, [Some(Waiting), Some(Held), Some(Delayed), Some(Delayed), Some(Between), None]);
    assert_eq!(world.view().await["depth"]["normal"], 4, "what has begun waits only when it asks");
    let mut fourth = world.ask(4, NORMAL, &[]).await;
    assert!(world.waits(&mut fourth).await);
    world.tell(SchedulerMsg::Ended { task: task(1) });
    world.granted(&mut fourth).await;
}

#[tokio::test(start_paused = true)]
async fn what_takes_no_place_waits_for_nothing_and_others_may_wait_for_it() {
    let parts = Parts::of(&[("gpu", 1)]);
    let start = annie_testkit::env::TestClock::START;
    *parts.table.rows.lock() = vec![
        row(1, TaskState::Queued, start.plus_ms(-9_000), json!({"is_order": true})),
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
        world.tell(SchedulerMsg::Ended { task: task(n) });
        assert!(world.waits(&mut sixth).await);
    }
    world.tell(SchedulerMsg::Ended { task: task(4) });
    world.granted(&mut sixth).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_waits_also_for_one_that_was_merged_into_another() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let busy = world.take(9, NORMAL, &[]).await;
    let work = Some(annie_core::queue::WorkKey::of("work", "the same"));
    world.admit(New { work, ..New::of(1, NORMAL) }).await.expect("room");
    let joined = world.admit(New { work, ..New::of(2, NORMAL) }).await.expect("room");
    assert_eq!(joined.same_as, Some(task(1)));
    world.tell(SchedulerMsg::Order { task: task(3), user: super::world::user("ann") });
    world.admit(New { after: vec![2, 3], ..New::of(4, NORMAL) }).await.expect("room");
    let mut fourth = world.ask(4, NORMAL, &[]).await;
    busy.give_back(10, Verdict::Fine);
    for n in [1, 2] {
        assert!(world.waits(&mut fourth).await);
        world.tell(SchedulerMsg::Ended { task: task(n) });
    }
    assert!(world.waits(&mut fourth).await, "the order is not carried out yet");
    world.tell(SchedulerMsg::Ended { task: task(3) });
    world.granted(&mut fourth).await;
}

#[tokio::test(start_paused = true)]
async fn until_the_table_is_read_only_voice_runs_and_the_others_wait_in_order() {
    let parts = Parts::of(&[("gpu", 2)]);
    let (open, shut) = watch::channel(true);
    *parts.table.is_shut.lock() = Some(shut);
    let start = annie_testkit::env::TestClock::START;
    *parts.table.rows.lock() = vec![row(2, TaskState::Queued, start, json!({}))];
    let world = parts.start_unread().await;
    let voice = world.take(1, Priority::Realtime, &[]).await;
    let mut held = world.ask(2, NORMAL, &[]).await;
    world.tell(SchedulerMsg::Hold { task: task(2), held: true });
    let mut early = world.ask(3, NORMAL, &[]).await;
    drop(voice);
    world.tell(SchedulerMsg::Ended { task: task(1) });
    let admission = world.admit(New::of(4, NORMAL));
    let opening = async {
        world.pass_ms(500).await;
        assert!(world.waits(&mut early).await);
        open.send(false).expect("it listens");
    };
    let (admitted, ()) = tokio::join!(admission, opening);
    admitted.expect("room");
    world.loaded().await;
    world.granted(&mut early).await;
    assert!(world.waits(&mut held).await, "what was said before counts");
}

#[tokio::test(start_paused = true)]
async fn a_table_that_cannot_be_read_is_tried_again_every_second() {
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
async fn what_may_have_been_stored_while_the_table_was_read_is_read_too() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let (open, shut) = watch::channel(true);
    *world.table.is_shut.lock() = Some(shut);
    world.tell(SchedulerMsg::Reread);
    world.pass_ms(10).await;
    world.tell(SchedulerMsg::Reread);
    world.heard().await;
    let before = world.table.readings();
    open.send(false).expect("it listens");
    world.until("it is read twice", async || (world.table.readings() == before + 2).then_some(())).await;
    world.pass_ms(100).await;
    assert_eq!(world.table.readings(), before + 2, "and not for ever");
}

#[tokio::test(start_paused = true)]
async fn a_table_that_cannot_be_read_again_is_read_when_it_can() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    world.table.failures.store(2, SeqCst);
    *world.table.rows.lock() = vec![row(1, TaskState::Suspended, world.now(), json!({}))];
    world.tell(SchedulerMsg::Reread);
    world.pass_ms(1_500).await;
    assert!(world.stand(1).await.is_none(), "it failed twice");
    world.pass_ms(1_000).await;
    assert_eq!(world.stand(1).await.map(|s| s.state), Some(StandState::Held));
}

#[tokio::test(start_paused = true)]
async fn a_task_of_another_process_is_waited_for_and_one_that_ended_long_ago_is_not() {
    let world = Parts::of(&[("gpu", 2)]).start().await;
    *world.table.rows.lock() = vec![row(1, TaskState::Running, world.now(), json!({}))];
    world.admit(New { after: vec![1, 99], ..New::of(2, NORMAL) }).await.expect("room");
    world.admit(New { after: vec![99], ..New::of(3, NORMAL) }).await.expect("room");
    let (mut second, mut third) = (world.ask(2, NORMAL, &[]).await, world.ask(3, NORMAL, &[]).await);
    world.pass_ms(1).await;
    drop(world.granted(&mut third).await);
    assert!(world.waits(&mut second).await, "it runs elsewhere");
    let before = world.table.readings();
    world.table.rows.lock().clear();
    for _ in 0..10 {
        world.tell(SchedulerMsg::Woken);
        world.pass_ms(50).await;
    }
    assert!(world.waits(&mut second).await);
    world.pass_ms(600).await;
    world.granted(&mut second).await;
    assert_eq!(world.table.readings(), before + 1, "many hints are one look");
}

#[tokio::test(start_paused = true)]
async fn a_task_waits_for_one_that_is_younger_by_its_row_since_another_clock_wrote_that() {
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
    assert_eq!(world.table.readings(), readings, "the table has said all that there is to know");
    world.tell(SchedulerMsg::Ended { task: task(1) });
    world.granted(&mut second).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_tasks_that_were_never_known_and_that_nobody_waits_for_any_more() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let awaited = async || world.view().await["awaited"].as_u64();
    for n in 1..=3 {
        world.admit(New { after: vec![90 + n], ..New::of(n, NORMAL) }).await.expect("room");
    }
    world.tell(SchedulerMsg::Forget { task: task(3) });
    world.until("it is known that they have ended", async || (awaited().await == Some(0)).then_some(())).await;
    let start = world.now();
    world.table.rows.lock().push(row(8, TaskState::Queued, start, json!({})));
    world.admit(New { after: vec![8], ..New::of(4, NORMAL) }).await.expect("room");
    assert_eq!(awaited().await, Some(1));
    world.tell(SchedulerMsg::Forget { task: task(4) });
    world.heard().await;
    assert_eq!(awaited().await, Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_another_process_ended_takes_no_place_any_more() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let _busy = world.take(99, NORMAL, &[]).await;
    let start = world.now();
    for n in 1..=5 {
        world.admit(New::of(n, NORMAL)).await.expect("room");
        world.table.rows.lock().push(row(n, TaskState::Queued, start, json!({})));
    }
    assert!(world.admit(New::of(6, NORMAL)).await.is_err(), "it is full");
    let hear = async || {
        world.tell(SchedulerMsg::Woken);
        world.pass_ms(1_100).await;
    };
    hear().await;
    world.table.rows.lock().retain(|row| row.id == task(1));
    hear().await;
    for n in 7..=10 {
        world.admit(New::of(n, NORMAL)).await.expect("there is room again");
    }
    assert!(world.admit(New::of(11, NORMAL)).await.is_err(), "the first is still open");
}

#[tokio::test(start_paused = true)]
async fn a_new_life_knows_how_long_a_round_usually_takes() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    for _ in 0..40 {
        world.take(1, NORMAL, &[]).await.give_back(7_000, Verdict::Fine);
    }
    let usual = async || world.stand(1).await.expect("it is known").round_ms;
    let learned = usual().await;
    assert!((6_500..7_500).contains(&learned), "{learned}");
    let start = world.now();
    world.table.rows.lock().push(row(1, TaskState::Running, start, json!({"started_at": start})));
    world.kill().await;
    world.loaded().await;
    assert!(usual().await.abs_diff(learned) < 100, "{} instead of {learned}", usual().await);
}

#[tokio::test(start_paused = true)]
async fn a_table_that_does_not_answer_is_asked_again() {
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
async fn time_in_which_nothing_ran_is_no_wait() {
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
    assert!((first - second).abs() < 0.01, "the next life counts the same: {second}");
    drop(busy);
}

#[tokio::test(start_paused = true)]
async fn a_new_life_gives_out_no_more_than_there_are_slots() {
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
async fn a_task_is_parked_three_times_at_most_also_across_a_death() {
    let world = Parts::of(&[("gpu", 1)]).start().await;
    let start = world.now();
    world.table.rows.lock().push(row(1, TaskState::Running, start, json!({"started_at": start})));
    let mut parks = Vec::new();
    let mut round = world.take(1, NORMAL, &[]).await;
    for n in 2..8 {
        let mut urgent = world.ask(n, Priority::High, &[]).await;
        drop(round);
        let permit = world.granted(&mut urgent).await;
        let mut mine = world.ask(1, NORMAL, &[]).await;
        parks.push(world.list().await["waiting"][0]["parks"].as_u64().expect("a number"));
        drop(permit);
        world.tell(SchedulerMsg::Ended { task: task(n) });
        round = world.granted(&mut mine).await;
        if n == 3 {
            world.kill().await;
            world.loaded().await;
        }
    }
    assert_eq!(parks, [1, 2, 3, 3, 3, 3]);
}

#[tokio::test(start_paused = true)]
async fn two_hundred_tasks_on_three_backends_finish_once_each_while_the_scheduler_is_killed_again_and_again() {
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
        // Between two lives nobody hears of it, and the table says so.
        world.scheduler.tell(SchedulerMsg::Ended { task: task(n) });
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
    assert_eq!(join_all([world.view()]).await[0]["tasks"], 0, "nothing is left");
}
