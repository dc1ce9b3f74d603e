//! Tests of the queue's guarantees. `model` contains the property tests against a brute-force queue.

mod model;

use uuid::Uuid;

use super::*;
use crate::ids::ConversationId;

const GPU: BackendId = BackendId(0);
const S: i64 = 1_000_000;

fn task(n: u64) -> TaskId {
    TaskId::from_uuid(Uuid::from_u128(u128::from(n)))
}

fn user(n: u64) -> UserId {
    UserId::new(format!("u{n}")).unwrap()
}

fn conversation(n: u64) -> ConversationId {
    ConversationId::from_uuid(Uuid::from_u128(u128::from(n)))
}

/// Task `n` of user `u`, in a separate conversation, waiting since `at_s`.
fn entry(n: u64, u: u64, class: Priority, at_s: i64) -> Waiting {
    Waiting::new(task(n), user(u), conversation(n), class, GPU, Micros(at_s * S))
}

fn at(s: i64) -> Micros {
    Micros(s * S)
}

fn queue_of(entries: &[Waiting]) -> Queue {
    let mut queue = Queue::new(QueueLimits::default());
    for entry in entries {
        assert_eq!(queue.admit(entry.clone(), entry.anchor), Admission::Queued);
    }
    queue
}

fn pops(queue: &mut Queue, now: Micros) -> Vec<TaskId> {
    std::iter::from_fn(|| queue.pop(GPU, now).map(|g| g.waiting.task)).collect()
}

fn tasks<const N: usize>(numbers: [u64; N]) -> Vec<TaskId> {
    numbers.into_iter().map(task).collect()
}

#[test]
fn queue_serves_more_urgent_class_first_and_never_queues_voice() {
    use Priority::{Background, High, Low, Normal, Realtime};
    let mut queue =
        queue_of(&[entry(4, 4, Background, 0), entry(3, 3, Low, 1), entry(2, 2, Normal, 2), entry(1, 1, High, 3)]);
    assert_eq!(queue.admit(entry(9, 9, Realtime, 4), at(4)), Admission::RunNow);
    assert!(!queue.restore(entry(9, 9, Realtime, 4), at(4)));
    assert_eq!(queue.len(), 4);
    assert_eq!(pops(&mut queue, at(5)), tasks([1, 2, 3, 4]));
    assert!(queue.is_empty() && queue.peek(GPU, at(6)).is_none());
}

#[test]
fn queue_aging_follows_formula_down_to_its_floor() {
    use Priority::{Background, High, Normal, Realtime};
    let aged = |class, s| effective(class, at(0), at(s), 300_000);
    assert_eq!([aged(Background, 0), aged(Background, 720), aged(Background, 900)], [4.0, 1.6, 1.0]);
    assert_eq!([aged(Background, 90_000), aged(High, 500), aged(Normal, 30)], [1.0, 1.0, 1.9]);
    assert_eq!(aged(Realtime, 9_000), 0.0);
    // An example that would break a heap whose comparator reads the clock: NORMAL leads at 800 s, and BACKGROUND leads from
    // the moment at which both have reached the floor.
    let entries = [entry(1, 1, Background, 0), entry(2, 2, Normal, 550)];
    assert_eq!(queue_of(&entries).peek(GPU, at(800)).map(|r| r.task), Some(task(2)));
    let first = queue_of(&entries).peek(GPU, at(950)).unwrap();
    assert_eq!((first.task, first.why, first.effective), (task(1), Why::Aged, 1.0));
}

#[test]
fn queue_serves_aged_tasks_before_new_high_task() {
    let mut queue = queue_of(&[entry(1, 1, Priority::Low, 0), entry(2, 2, Priority::High, 601)]);
    assert_eq!(pops(&mut queue, at(601)), tasks([1, 2]));
    let mut queue = queue_of(&[entry(1, 1, Priority::Low, 0), entry(2, 2, Priority::High, 599)]);
    assert_eq!(pops(&mut queue, at(599)), tasks([2, 1]));
}

#[test]
fn queue_rotates_users_and_conversations_of_a_user() {
    let mut entries: Vec<Waiting> = (1..=3).map(|n| entry(n, 1, Priority::High, 0)).collect();
    entries[1].conversation = entries[0].conversation;
    entries.extend([entry(4, 2, Priority::High, 1), entry(5, 2, Priority::High, 2), entry(6, 3, Priority::High, 3)]);
    // Lap one: 1 of u1, 4 of u2, 6 of u3. Lap two: u1's other conversation, 5. Then the rest.
    assert_eq!(pops(&mut queue_of(&entries), at(4)), tasks([1, 4, 6, 3, 5, 2]));
}

#[test]
fn queue_preempts_normal_for_high_and_keeps_its_anchor() {
    let mut queue = queue_of(&[entry(1, 1, Priority::Normal, 0), entry(2, 2, Priority::Normal, 10)]);
    let mut running = queue.pop(GPU, at(20)).unwrap().waiting;
    running.rounds_done = 2;
    assert!(!queue.should_preempt(&running, at(21)), "tasks of equal class do not preempt");
    queue.admit(entry(3, 3, Priority::High, 22), at(22));
    assert!(queue.should_preempt(&running, at(22)));
    assert!(queue.preempt(running, at(30)));
    let (first, then) = (queue.pop(GPU, at(30)).unwrap(), queue.pop(GPU, at(40)).unwrap());
    assert_eq!((first.waiting.task, first.why), (task(3), Why::Urgent));
    assert_eq!((then.waiting.task, then.waiting.rounds_done, then.waiting.preemptions), (task(1), 3, 1));
    assert_eq!(then.waiting.anchor, at(0), "preemption keeps the anchor");
}

#[test]
fn queue_preempts_only_for_high_and_at_most_three_times() {
    use Priority::{Background, High, Low, Normal};
    let mut queue = queue_of(&[entry(1, 1, Low, 0), entry(2, 2, Normal, 0), entry(3, 3, Background, 0)]);
    for class in [High, Normal, Low, Background] {
        assert!(!queue.should_preempt(&entry(9, 9, class, 100_000), at(100_000)), "aged tasks do not preempt");
    }
    queue.admit(entry(4, 4, High, 100_000), at(100_000));
    let preemptions = |queue: &mut Queue, class, preemptions| {
        queue.should_preempt(&Waiting { preemptions, ..entry(9, 9, class, 100_000) }, at(100_000))
    };
    assert!(preemptions(&mut queue, Normal, 0) && preemptions(&mut queue, Background, 2));
    assert!(!preemptions(&mut queue, High, 0) && !preemptions(&mut queue, Normal, 3));
    let elsewhere = Waiting { backend: BackendId(1), ..entry(9, 9, Normal, 0) };
    assert!(!queue.should_preempt(&elsewhere, at(100_000)), "another backend's queue is not its business");
    let mut later = entry(5, 5, High, 0);
    (later.backend, later.not_before) = (BackendId(1), Some(at(200_000)));
    queue.admit(later, at(100_000));
    assert!(!queue.should_preempt(&elsewhere, at(100_000)), "a delayed task does not preempt");
}

#[test]
fn queue_serves_preempted_aged_task_after_task_it_was_preempted_for() {
    let mut queue = queue_of(&[entry(1, 1, Priority::Normal, 0)]);
    let running = queue.pop(GPU, at(1_000)).unwrap().waiting;
    queue.admit(entry(2, 2, Priority::High, 1_001), at(1_001));
    assert!(queue.should_preempt(&running, at(1_005)));
    queue.preempt(running, at(1_005));
    queue.admit(entry(3, 3, Priority::High, 1_006), at(1_006));
    assert_eq!(
        pops(&mut queue, at(1_006)),
        tasks([2, 1, 3]),
        "after the task for which it was preempted, and before all later ones"
    );
}

#[test]
fn queue_restarts_wait_of_yielding_task() {
    let mut queue = queue_of(&[entry(1, 1, Priority::Background, 0), entry(2, 2, Priority::Background, 50)]);
    let running = queue.pop(GPU, at(100)).unwrap().waiting;
    assert!(queue.yield_back(running, at(130)));
    let rank = queue.position(task(1), at(130)).unwrap();
    assert_eq!((rank.position, rank.waited_ms, rank.effective), (Some(2), 0, 4.0));
    assert_eq!(queue.get(task(1)).map(|w| (w.rounds_done, w.preemptions)), Some((1, 0)));
}

#[test]
fn queue_refusal_at_user_depth_has_reason_position_and_time() {
    let mut queue = queue_of(&[1, 2, 3].map(|n| entry(n, 1, Priority::High, 0)));
    let Admission::Refused(refusal) = queue.admit(entry(4, 1, Priority::High, 1), at(1)) else { panic!("taken") };
    let want = Refusal {
        reason: RefusalReason::UserDepth,
        class: Priority::High,
        limit: 3,
        position: 4,
        retry_after_ms: 5_000,
    };
    assert_eq!(refusal, want);
    assert_eq!(refusal.to_string(), "3 high tasks of yours are waiting already, which is the most; try again in 5 s");
    assert_eq!(queue.len(), 3);
    assert_eq!(queue.admit(entry(4, 1, Priority::Normal, 1), at(1)), Admission::Queued);
    assert_eq!(queue.admit(entry(5, 2, Priority::High, 1), at(1)), Admission::Queued);
    assert!(queue.restore(entry(6, 1, Priority::High, 1), at(1)), "an admitted task is never refused later");
    assert_eq!(queue.depth(&user(1), Priority::High), 4);
}

#[test]
fn queue_refuses_tasks_above_total_limit() {
    let mut queue = Queue::new(QueueLimits { waiting_max: 2, ..QueueLimits::default() });
    assert_eq!(queue.admit(entry(1, 1, Priority::Low, 0), at(0)), Admission::Queued);
    assert_eq!(queue.admit(entry(2, 2, Priority::High, 0), at(0)), Admission::Queued);
    let Admission::Refused(refusal) = queue.admit(entry(3, 3, Priority::Normal, 0), at(0)) else { panic!("taken") };
    assert_eq!((refusal.reason, refusal.limit, refusal.position), (RefusalReason::QueueFull, 2, 2));
    queue.pop(GPU, at(1));
    assert_eq!(queue.admit(entry(3, 3, Priority::Normal, 1), at(1)), Admission::Queued);
}

#[test]
fn queue_coalesces_equal_work_of_user_until_it_has_begun() {
    let same = |n, u, class| Waiting { work: Some(WorkKey::of("ask", "weather")), ..entry(n, u, class, 0) };
    let mut queue = queue_of(&[same(1, 1, Priority::Normal)]);
    let coalesced = Admission::Coalesced { into: task(1) };
    assert_eq!(queue.admit(same(1, 1, Priority::Normal), at(1)), coalesced, "the same task is not queued twice");
    assert_eq!(queue.admit(same(2, 1, Priority::High), at(1)), coalesced);
    assert_eq!(queue.get(task(1)).map(|w| w.class), Some(Priority::High), "and is as urgent as its most urgent waiter");
    assert_eq!(queue.admit(same(3, 1, Priority::Low), at(1)), coalesced);
    assert_eq!(queue.get(task(1)).map(|w| w.class), Some(Priority::High));
    assert_eq!(queue.admit(same(4, 2, Priority::Normal), at(1)), Admission::Queued, "another user's is other work");
    let running = queue.pop(GPU, at(2)).unwrap().waiting;
    queue.yield_back(running, at(3));
    assert_eq!(
        queue.admit(same(5, 1, Priority::Normal), at(3)),
        Admission::Queued,
        "a task that has begun is not joined"
    );
    assert_eq!(queue.admit(same(6, 1, Priority::Normal), at(3)), Admission::Coalesced { into: task(5) });
    queue.remove(task(5));
    assert_eq!(queue.admit(same(6, 1, Priority::Normal), at(3)), Admission::Queued);
    assert_ne!(WorkKey::of("ab", "c"), WorkKey::of("a", "bc"));
}

#[test]
fn queue_delayed_task_is_not_ready_and_does_not_age_before_its_time() {
    let mut queue = queue_of(&[Waiting { not_before: Some(at(100)), ..entry(1, 1, Priority::High, 0) }]);
    queue.admit(entry(2, 2, Priority::Background, 0), at(0));
    assert_eq!((queue.len(), queue.ready(GPU), queue.next_due(GPU)), (2, 1, Some(at(100))));
    let rank = queue.position(task(1), at(40)).unwrap();
    assert_eq!((rank.position, rank.why, rank.start_in_ms), (None, Why::Delayed { until: at(100) }, 60_000));
    assert_eq!(queue.list(GPU, at(40)).iter().map(|r| r.task).collect::<Vec<_>>(), tasks([2, 1]));
    assert_eq!(queue.peek(GPU, at(99)).map(|r| r.task), Some(task(2)));
    let due = queue.pop(GPU, at(130)).unwrap();
    assert_eq!((due.waiting.task, due.waited_ms, queue.next_due(GPU)), (task(1), 30_000, None));
}

#[test]
fn queue_task_can_be_reprioritised_removed_and_restored() {
    let mut queue = queue_of(&[1, 2, 3].map(|n| entry(n, n, Priority::Low, 0)));
    assert_eq!(queue.reprioritise(task(3), Priority::High, at(10)), Ok(()));
    assert_eq!(queue.peek(GPU, at(10)).map(|r| (r.task, r.waited_ms)), Some((task(3), 10_000)), "it keeps its anchor");
    assert_eq!(queue.reprioritise(task(3), Priority::Realtime, at(10)), Err(ReprioritiseError::Realtime));
    assert_eq!(queue.reprioritise(task(8), Priority::High, at(10)), Err(ReprioritiseError::NotWaiting));
    let held = queue.remove(task(1)).unwrap();
    assert!(queue.remove(task(1)).is_none() && queue.position(task(1), at(10)).is_none());
    assert_eq!(pops(&mut queue, at(10)), tasks([3, 2]));
    assert!(queue.restore(held.clone(), at(20)) && queue.restore(held, at(20)));
    assert_eq!((queue.len(), pops(&mut queue, at(20))), (1, tasks([1])));
}

#[test]
fn queue_reprioritise_respects_depth_limit() {
    let mut queue = queue_of(&[1, 2, 3].map(|n| entry(n, 1, Priority::High, 0)));
    queue.admit(entry(4, 1, Priority::Normal, 0), at(0));
    let error = queue.reprioritise(task(4), Priority::High, at(0));
    assert!(matches!(error, Err(ReprioritiseError::Refused(Refusal { limit: 3, .. }))), "{error:?}");
    assert_eq!(queue.get(task(4)).map(|w| w.class), Some(Priority::Normal));
}

#[test]
fn queue_estimates_follow_observed_rounds() {
    let mut queue = queue_of(&[1, 2, 3].map(|n| entry(n, n, Priority::Normal, 0)));
    let last = |queue: &mut Queue| queue.list(GPU, at(1)).last().map(|r| r.start_in_ms);
    assert_eq!(last(&mut queue), Some(15_000));
    for _ in 0..100 {
        queue.observe_round(GPU, 2_000);
    }
    assert_eq!((queue.round_ms(GPU), last(&mut queue)), (2_000, Some(6_000)));
    queue.set_slots(GPU, 2);
    assert_eq!(last(&mut queue), Some(4_000));
    queue.observe_round(GPU, u64::MAX);
    assert!(queue.round_ms(GPU) <= 77_000, "one stuck call does not spoil the estimate");
    assert_eq!(queue.round_ms(BackendId(7)), 5_000);
}

#[test]
fn queue_order_is_unchanged_by_clock_set_back() {
    let mut queue = queue_of(&[entry(1, 1, Priority::High, 5_000)]);
    queue.admit(entry(2, 2, Priority::Normal, 1_000), at(1_000));
    queue.admit(entry(3, 3, Priority::High, 9_000), at(1_100));
    assert_eq!(pops(&mut queue, at(1_200)), tasks([1, 3, 2]), "2 is no older for coming in at an earlier time");
}

#[test]
fn queue_backends_are_independent() {
    let other = BackendId(1);
    let mut queue = queue_of(&[entry(1, 1, Priority::High, 0)]);
    queue.admit(Waiting { backend: other, ..entry(2, 2, Priority::Background, 0) }, at(0));
    assert_eq!(queue.pop(other, at(0)).map(|g| g.waiting.task), Some(task(2)));
    assert_eq!((queue.pop(other, at(0)), queue.ready(GPU)), (None, 1));
}

#[test]
fn queue_limits_reject_unknown_fields() {
    let read = |text: &str| serde_json::from_str::<QueueLimits>(text);
    assert_eq!(read("{}").unwrap(), QueueLimits::default());
    assert_eq!(read(r#"{"depth_per_user": {"high_max": 9}}"#).unwrap().depth_per_user.of(Priority::High), 9);
    assert!(read(r#"{"depth": 1}"#).is_err());
    let limits = DepthLimits::default();
    assert_eq!(Priority::ALL.map(|class| limits.of(class)), [0, 3, 5, 3, 5]);
}
