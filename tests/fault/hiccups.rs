//! A short outage of the store delays work and loses none.

use std::sync::{
    Arc,
    atomic::{
        AtomicBool, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
};

use annie_actors::{Operation, Submission, Submitted};
use annie_core::{
    event::{Event, EventBody, Mode, ReportStatus},
    message::Message,
    outcome::{Outcome, Status},
    ports::{FaultAction, StoreErrorKind},
};
use annie_store::{MemoryStore, StoreFault, StorePoint};
use annie_testkit::{
    faults::FaultPlan,
    scripted_model::{calls, says},
    skills::{FakeBehaviour, FakeSkills},
};
use serde_json::json;
use tokio::time::Instant;

use crate::world::{World, WorldParts, ann, check_log, eventually, sleep_for_ms, two_agents};

fn reports(log: &[Event]) -> Vec<ReportStatus> {
    let status = |e: &Event| if let EventBody::AgentReported { report } = &e.body { Some(report.status) } else { None };
    log.iter().filter_map(status).collect()
}

/// Each commit in turn ends with an unknown outcome, stored or not. No agent is reported as crashed for it, and the crash
/// budget of the message is not used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sub_agents_complete_although_the_outcome_of_any_commit_is_unknown() {
    for point in ["before", "after"] {
        for nth in 0.. {
            let plan = Arc::new(FaultPlan::once_at("commit", point, nth, FaultAction::Panic));
            let world = WorldParts::new(|request, _| Ok(two_agents(request))).faults(plan.clone()).start().await;
            let Ok(sent) = world.kernel.submit(Submission::new(ann(), "test", "do both")).await else {
                // The message itself was not acknowledged.
                world.kernel.stop().await;
                continue;
            };
            world.answer(&sent).await;
            let log = world.log(sent.conversation).await;
            check_log(&log);
            assert_eq!(reports(&log), [ReportStatus::Completed; 2], "{point} commit {nth}: {log:#?}");
            let resumed = log.iter().filter(|e| matches!(e.body, EventBody::Resumed { .. })).count();
            assert_eq!(resumed, 0, "{point} commit {nth}");
            world.kernel.stop().await;
            if plan.injected().is_empty() {
                assert!(nth > 5, "a turn with two agents has more commits than {nth}");
                break;
            }
        }
    }
}

/// The parts of a world whose model calls one skill for each message, over a store with this hook.
pub fn calling(skill: &'static str, hook: impl Fn(StorePoint<'_>) -> StoreFault + Send + Sync + 'static) -> WorldParts {
    let mut parts = WorldParts::new(move |request, _| {
        let is_done = request.messages.iter().any(|m| matches!(m, Message::Tool { .. }));
        let call = ("use_skill", json!({"skill": skill, "arguments": {"what": "x"}}));
        Ok(if is_done { says("over") } else { calls([call]) })
    });
    parts.limits.mode = Mode::SingleLoop;
    // These tests use virtual time. The watchdog uses real time, so it is switched off.
    parts.limits.stuck_ms_max = 0;
    parts.store = Arc::new(MemoryStore::new().with_hook(Arc::new(hook)));
    parts
}

/// Sends a message and returns the outcome of its skill call.
pub async fn outcome_of(world: &World) -> Outcome {
    let sent = world.say("go").await;
    outcome_for(world, &sent).await
}

pub async fn outcome_for(world: &World, sent: &Submitted) -> Outcome {
    world.answer(sent).await;
    let log = world.log(sent.conversation).await;
    check_log(&log);
    log.into_iter()
        .find_map(|e| if let EventBody::SkillFinished { outcome, .. } = e.body { Some(outcome) } else { None })
        .expect("the skill was called")
}

/// Opens the breaker of a skill: its first call fails, later calls succeed.
pub async fn open_the_breaker(parts: &mut WorldParts, skill: &str) -> World {
    parts.limits.breaker.failures_max = 1;
    let (runs, store) = (AtomicUsize::new(0), parts.store.clone());
    parts.skills = Arc::new(FakeSkills::new(move |_| {
        FakeBehaviour::Answer(match runs.fetch_add(1, SeqCst) {
            0 => Outcome::transient("http_503", "down"),
            _ => Outcome::success("up"),
        })
    }));
    let world = parts.start().await;
    assert_eq!(outcome_of(&world).await.error_type.as_deref(), Some("http_503"));
    eventually("the row is stored", async || {
        let row = store.breaker(skill.to_owned()).await.ok()??;
        (row.trips == 1).then_some(())
    })
    .await;
    world
}

pub async fn breaker_state(world: &World, skill: &str) -> Option<String> {
    let (_, view) = world.kernel.view(&format!("/breakers/breaker:{skill}")).await.expect("the breaker exists");
    view.expect("the breaker answers")["state"].as_str().map(str::to_owned)
}

/// Asserts that no actor crashed and that no breaker was given up.
async fn assert_no_crash_and_no_breaker_given_up(world: &World) {
    assert!(world.kernel.crashes().is_empty(), "{:?}", world.kernel.crashes());
    let (_, view) = world.kernel.view("/breakers").await.expect("the actor is alive");
    assert_eq!(view.expect("the actor answers")["left_alone"], json!([]));
}

const SKILLS: [&str; 3] = ["test.look", "test.put", "test.send"];

fn is_row(point: StorePoint<'_>) -> bool {
    matches!(point, StorePoint::Read("breaker"))
}

/// A store that can never read the row of a breaker.
fn no_row(kind: StoreErrorKind) -> impl Fn(StorePoint<'_>) -> StoreFault {
    move |point| if is_row(point) { StoreFault::Fail(kind) } else { StoreFault::Pass }
}

#[tokio::test(start_paused = true)]
async fn breaker_call_waits_while_the_breaker_row_cannot_be_read_and_counts_no_crash() {
    for skill in SKILLS {
        let is_away = Arc::new(AtomicBool::new(true));
        let away = is_away.clone();
        let parts = calling(skill, move |point| match point {
            point if is_row(point) && away.load(Relaxed) => StoreFault::Fail(StoreErrorKind::Unavailable),
            _ => StoreFault::Pass,
        });
        let world = parts.start().await;
        let call = outcome_of(&world);
        let comes_back = async {
            sleep_for_ms(5_000).await;
            is_away.store(false, Relaxed);
        };
        let (outcome, ()) = tokio::join!(call, comes_back);
        assert_eq!(outcome.status, Status::Success, "{skill}: {outcome:?}");
        assert_eq!(parts.skills.count(skill), 1);
        assert_no_crash_and_no_breaker_given_up(&world).await;
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn breaker_row_read_that_hangs_delays_its_callers_only_for_seconds() {
    for hangs in [1, 2, 3] {
        let asked = AtomicUsize::new(0);
        let parts = calling("test.send", move |point| {
            let is_lost = is_row(point) && asked.fetch_add(1, Relaxed) < hangs;
            if is_lost { StoreFault::Hang } else { StoreFault::Pass }
        });
        let world = parts.start().await;
        let from = Instant::now();
        let outcome = outcome_of(&world).await;
        assert_eq!(outcome.status, Status::Success, "{outcome:?}");
        assert!(from.elapsed().as_secs() < 20, "{:?}", from.elapsed());
        assert_no_crash_and_no_breaker_given_up(&world).await;
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn breaker_row_unreadable_for_long_is_reported_as_a_transient_error_without_a_run() {
    for (kind, s_min, s_max) in [(StoreErrorKind::Unavailable, 20, 50), (StoreErrorKind::Corrupt, 0, 1)] {
        let parts = calling("test.send", no_row(kind));
        let world = parts.start().await;
        let from = Instant::now();
        let outcome = outcome_of(&world).await;
        assert_eq!(outcome.error_type.as_deref(), Some("breaker_unavailable"), "{outcome:?}");
        assert_eq!((outcome.status, parts.skills.count("test.send")), (Status::ErrorTransient, 0));
        let s = from.elapsed().as_secs();
        assert!((s_min..=s_max).contains(&s), "{kind:?} failed after {s} s");
        assert_eq!(breaker_state(&world, "test.send").await, None, "the state is not known");
        assert_no_crash_and_no_breaker_given_up(&world).await;
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn breaker_reset_by_an_operator_rewrites_a_corrupt_row() {
    let parts = calling("test.send", no_row(StoreErrorKind::Corrupt));
    let world = parts.start().await;
    assert_eq!(outcome_of(&world).await.error_type.as_deref(), Some("breaker_unavailable"));
    world.kernel.reset_breaker("test.send").await.expect("the actor is alive");
    assert_eq!(outcome_of(&world).await.status, Status::Success);
    assert_eq!(breaker_state(&world, "test.send").await.as_deref(), Some("closed"));
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn breaker_that_is_open_refuses_calls_when_only_the_second_read_of_its_row_succeeds() {
    for skill in SKILLS {
        let fails = Arc::new(AtomicUsize::new(0));
        let left = fails.clone();
        let mut parts = calling(skill, move |point| {
            let is_it = is_row(point) && left.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_ok();
            if is_it { StoreFault::Fail(StoreErrorKind::Unavailable) } else { StoreFault::Pass }
        });
        let world = open_the_breaker(&mut parts, skill).await;
        let breaker = format!("/breakers/breaker:{skill}");
        world.kernel.operate(&breaker, None, Operation::Kill, "a test").await.expect("the actor is alive");
        fails.store(1, Relaxed);
        let refused = outcome_of(&world).await;
        assert_eq!(fails.load(Relaxed), 0, "the row was asked for");
        assert_eq!(refused.error_type.as_deref(), Some("breaker_open"), "{skill}: {refused:?}");
        assert_eq!(parts.skills.count(skill), 1, "the call went through an open breaker");
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn breaker_row_that_could_not_be_stored_is_stored_when_the_store_is_back() {
    let puts = AtomicUsize::new(0);
    let mut parts = calling("test.look", move |point| match point {
        StorePoint::Write("put_breaker") if puts.fetch_add(1, Relaxed) < 2 => {
            StoreFault::Fail(StoreErrorKind::Unavailable)
        }
        _ => StoreFault::Pass,
    });
    // The state does not change after the breaker opened, and its row is stored all the same.
    let world = open_the_breaker(&mut parts, "test.look").await;
    world.kernel.stop().await;
}
