//! A store that is away for a moment costs time, and nobody's work.

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
    skills::{Deed, FakeSkills},
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    flow::kernel::two_agents,
    world::{World, WorldParts, ann, check_log, come_back_after, eventually},
};

fn reports(log: &[Event]) -> Vec<ReportStatus> {
    let status = |e: &Event| if let EventBody::AgentReported { report } = &e.body { Some(report.status) } else { None };
    log.iter().filter_map(status).collect()
}

/// One commit after the other is stored or not, and nobody hears which: no agent is called crashed over it, and nothing of the
/// message's budget of deaths is used up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_go_on_after_any_commit_of_which_nobody_hears() {
    for point in ["before", "after"] {
        for nth in 0.. {
            let plan = Arc::new(FaultPlan::once_at("commit", point, nth, FaultAction::Panic));
            let world = WorldParts::new(|request, _| Ok(two_agents(request))).faults(plan.clone()).start().await;
            let Ok(said) = world.kernel.submit(Submission::new(ann(), "test", "do both")).await else {
                // The message itself was not acknowledged.
                world.kernel.stop().await;
                continue;
            };
            world.answer(&said).await;
            let log = world.log(said.conversation).await;
            check_log(&log);
            assert_eq!(reports(&log), [ReportStatus::Completed; 2], "{point} commit {nth}: {log:#?}");
            let resumed = log.iter().filter(|e| matches!(e.body, EventBody::Resumed { .. })).count();
            assert_eq!(resumed, 0, "{point} commit {nth}");
            world.kernel.stop().await;
            if plan.struck().is_empty() {
                assert!(nth > 5, "a turn with two agents has more commits than {nth}");
                break;
            }
        }
    }
}

/// A world whose model calls one skill for each message, over a store with this hook.
pub fn calling(skill: &'static str, hook: impl Fn(StorePoint<'_>) -> StoreFault + Send + Sync + 'static) -> WorldParts {
    let mut parts = WorldParts::new(move |request, _| {
        let is_done = request.messages.iter().any(|m| matches!(m, Message::Tool { .. }));
        let call = ("use_skill", json!({"skill": skill, "arguments": {"what": "x"}}));
        Ok(if is_done { says("over") } else { calls([call]) })
    });
    parts.limits.mode = Mode::SingleLoop;
    // The time of these tests passes by itself, and the watchdog's does not.
    parts.limits.stuck_ms_max = 0;
    parts.store = Arc::new(MemoryStore::new().with_hook(Arc::new(hook)));
    parts
}

/// What the skill call of a new message comes to.
pub async fn outcome_of(world: &World) -> Outcome {
    let said = world.say("go").await;
    outcome_for(world, &said).await
}

pub async fn outcome_for(world: &World, said: &Submitted) -> Outcome {
    world.answer(said).await;
    let log = world.log(said.conversation).await;
    check_log(&log);
    log.into_iter()
        .find_map(|e| if let EventBody::SkillFinished { outcome, .. } = e.body { Some(outcome) } else { None })
        .expect("the skill was called")
}

/// A skill whose breaker opens at the first call, which fails.
pub async fn open_the_breaker(parts: &mut WorldParts, skill: &str) -> World {
    parts.limits.breaker.failures_max = 1;
    let (runs, store) = (AtomicUsize::new(0), parts.store.clone());
    parts.skills = Arc::new(FakeSkills::new(move |_| {
        Deed::Answer(match runs.fetch_add(1, SeqCst) {
            0 => Outcome::transient("http_503", "down"),
            _ => Outcome::success("up"),
        })
    }));
    let world = parts.start().await;
    assert_eq!(outcome_of(&world).await.error_type.as_deref(), Some("http_503"));
    eventually("the row is kept", async || {
        let row = store.breaker(skill.to_owned()).await.ok()??;
        (row.trips == 1).then_some(())
    })
    .await;
    world
}

pub async fn breaker_state(world: &World, skill: &str) -> Option<String> {
    let (_, view) = world.kernel.view(&format!("/breakers/breaker:{skill}")).await.expect("there is a breaker");
    view.expect("it answers")["state"].as_str().map(str::to_owned)
}

/// Nobody died over it, and no breaker is left alone.
async fn is_held_against_nobody(world: &World) {
    assert!(world.kernel.crashes().is_empty(), "{:?}", world.kernel.crashes());
    let (_, view) = world.kernel.view("/breakers").await.expect("it lives");
    assert_eq!(view.expect("it answers")["left_alone"], json!([]));
}

const SKILLS: [&str; 3] = ["test.look", "test.put", "test.send"];

fn is_row(point: StorePoint<'_>) -> bool {
    matches!(point, StorePoint::Read("breaker"))
}

/// A store that never says the row of a breaker.
fn no_row(kind: StoreErrorKind) -> impl Fn(StorePoint<'_>) -> StoreFault {
    move |point| if is_row(point) { StoreFault::Fail(kind) } else { StoreFault::Pass }
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_while_the_row_of_its_breaker_cannot_be_read_and_nobody_is_to_blame() {
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
            come_back_after(5_000).await;
            is_away.store(false, Relaxed);
        };
        let (outcome, ()) = tokio::join!(call, comes_back);
        assert_eq!(outcome.status, Status::Success, "{skill}: {outcome:?}");
        assert_eq!(parts.skills.count(skill), 1);
        is_held_against_nobody(&world).await;
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_never_said_holds_its_callers_for_seconds() {
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
        is_held_against_nobody(&world).await;
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_read_for_long_is_told_as_a_failure_that_did_not_happen() {
    for (kind, s_min, s_max) in [(StoreErrorKind::Unavailable, 20, 50), (StoreErrorKind::Corrupt, 0, 1)] {
        let parts = calling("test.send", no_row(kind));
        let world = parts.start().await;
        let from = Instant::now();
        let outcome = outcome_of(&world).await;
        assert_eq!(outcome.error_type.as_deref(), Some("breaker_unavailable"), "{outcome:?}");
        assert_eq!((outcome.status, parts.skills.count("test.send")), (Status::ErrorTransient, 0));
        let s = from.elapsed().as_secs();
        assert!((s_min..=s_max).contains(&s), "{kind:?} was waited for {s} s");
        assert_eq!(breaker_state(&world, "test.send").await, None, "it is not known");
        is_held_against_nobody(&world).await;
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_read_any_more_is_written_anew_when_an_operator_closes_the_breaker() {
    let parts = calling("test.send", no_row(StoreErrorKind::Corrupt));
    let world = parts.start().await;
    assert_eq!(outcome_of(&world).await.error_type.as_deref(), Some("breaker_unavailable"));
    world.kernel.reset_breaker("test.send").await.expect("it lives");
    assert_eq!(outcome_of(&world).await.status, Status::Success);
    assert_eq!(breaker_state(&world, "test.send").await.as_deref(), Some("closed"));
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_lets_nothing_through_when_its_row_can_be_read_at_the_second_time_only() {
    for skill in SKILLS {
        let fails = Arc::new(AtomicUsize::new(0));
        let left = fails.clone();
        let mut parts = calling(skill, move |point| {
            let is_it = is_row(point) && left.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_ok();
            if is_it { StoreFault::Fail(StoreErrorKind::Unavailable) } else { StoreFault::Pass }
        });
        let world = open_the_breaker(&mut parts, skill).await;
        let breaker = format!("/breakers/breaker:{skill}");
        world.kernel.operate(&breaker, None, Operation::Kill, "a test").await.expect("it lives");
        fails.store(1, Relaxed);
        let refused = outcome_of(&world).await;
        assert_eq!(fails.load(Relaxed), 0, "the row was asked for");
        assert_eq!(refused.error_type.as_deref(), Some("breaker_open"), "{skill}: {refused:?}");
        assert_eq!(parts.skills.count(skill), 1, "it went through an open breaker");
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_that_could_not_be_kept_is_kept_when_the_store_is_back() {
    let puts = AtomicUsize::new(0);
    let mut parts = calling("test.look", move |point| match point {
        StorePoint::Write("put_breaker") if puts.fetch_add(1, Relaxed) < 2 => {
            StoreFault::Fail(StoreErrorKind::Unavailable)
        }
        _ => StoreFault::Pass,
    });
    // Nothing changes after it opened, and its row is kept all the same.
    let world = open_the_breaker(&mut parts, "test.look").await;
    world.kernel.stop().await;
}
