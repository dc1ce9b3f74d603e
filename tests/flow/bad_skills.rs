//! Skills that misbehave, each behind its breaker.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_core::{
    event::{EventBody, Mode},
    message::Message,
    outcome::{Outcome, Status},
};
use annie_testkit::{
    scripted_model::{calls, says},
    skills::{FakeBehaviour, FakeSkills},
};
use serde_json::json;

use crate::world::{World, WorldParts, check_log, eventually};

/// Parts whose model calls one skill with the user's text and answers with its result.
fn calling(skill: &'static str, behaviour: impl Fn() -> FakeBehaviour + Send + Sync + 'static) -> WorldParts {
    let mut parts = WorldParts::new(move |request, _| {
        Ok(match request.messages.last() {
            Some(Message::Tool { text, .. }) => says(text.clone()),
            Some(Message::User { text, .. }) => {
                calls([("use_skill", json!({"skill": skill, "arguments": {"what": text}}))])
            }
            _ => says("?"),
        })
    });
    parts.limits.mode = Mode::SingleLoop;
    parts.skills = Arc::new(FakeSkills::new(move |_| behaviour()));
    parts
}

async fn outcome_of(world: &World, text: &str) -> Outcome {
    let sent = world.say(text).await;
    world.answer(&sent).await;
    let log = world.log(sent.conversation).await;
    check_log(&log);
    log.into_iter()
        .find_map(|e| if let EventBody::SkillFinished { outcome, .. } = e.body { Some(outcome) } else { None })
        .expect("the skill was called")
}

async fn breaker_state(world: &World, skill: &str) -> String {
    let (_, view) = world.kernel.view(&format!("/breakers/breaker:{skill}")).await.expect("the breaker exists");
    view.expect("the breaker answers")["state"].as_str().expect("a state").to_owned()
}

#[tokio::test]
async fn skill_panic_is_a_transient_error_and_for_a_once_skill_an_unknown_outcome() {
    let world = calling("test.look", || FakeBehaviour::Panic).start().await;
    let outcome = outcome_of(&world, "x").await;
    assert_eq!((outcome.status, outcome.error_type.as_deref()), (Status::ErrorTransient, Some("panic")));
    let world = calling("test.send", || FakeBehaviour::Panic).start().await;
    assert_eq!(outcome_of(&world, "x").await.status, Status::Unknown);
}

#[tokio::test]
async fn skill_that_hangs_is_ended_at_its_time_limit() {
    let world = calling("test.look", || FakeBehaviour::Hang).start().await;
    let outcome = outcome_of(&world, "x").await;
    assert_eq!((outcome.status, outcome.error_type.as_deref()), (Status::ErrorTransient, Some("timeout")));
}

#[tokio::test]
async fn idempotent_run_that_is_interrupted_is_repeated_under_its_own_intent() {
    // The last behaviour is the outcome of a write whose reply was lost.
    let lost = FakeBehaviour::Answer(Outcome::unknown("The store could not do it.", json!({})));
    for cut in [FakeBehaviour::Panic, FakeBehaviour::Hang, lost] {
        let is_cut = AtomicBool::new(false);
        let behaviour = move || {
            if is_cut.swap(true, Relaxed) { FakeBehaviour::Answer(Outcome::success("put")) } else { cut.clone() }
        };
        let parts = calling("test.put", behaviour);
        let world = parts.start().await;
        assert_eq!(outcome_of(&world, "x").await.status, Status::Success);
        let effects: Vec<_> = parts.skills.effects().into_values().collect();
        assert_eq!(effects, [("test.put".to_owned(), 2)], "two runs of one intent");
    }
}

#[tokio::test]
async fn idempotent_run_interrupted_every_time_is_unknown_and_gets_no_second_intent() {
    let mut parts = WorldParts::new(|request, _| {
        let results = request.messages.iter().filter(|m| matches!(m, Message::Tool { .. })).count();
        Ok(match request.messages.last() {
            Some(Message::Tool { text, .. }) if results > 1 => says(text.clone()),
            _ => calls([("use_skill", json!({"skill": "test.put", "arguments": {"what": "x"}}))]),
        })
    });
    parts.limits.mode = Mode::SingleLoop;
    parts.skills = Arc::new(FakeSkills::new(|_| FakeBehaviour::Panic));
    let world = parts.start().await;
    let sent = world.say("x").await;
    let answer = world.answer(&sent).await;
    assert!(answer.contains("may have happened already"), "{answer}");
    let log = world.log(sent.conversation).await;
    let outcomes = log.iter().filter_map(|e| {
        let EventBody::SkillFinished { outcome, .. } = &e.body else { return None };
        Some(outcome.status)
    });
    assert_eq!(outcomes.collect::<Vec<_>>(), [Status::Unknown]);
    assert_eq!(parts.skills.effects().len(), 1, "one intent");
}

#[tokio::test]
async fn idempotent_run_that_fails_after_an_interrupted_run_is_unknown_whatever_the_failure() {
    for (cut, failure) in [
        (FakeBehaviour::Hang, Outcome::transient("http_503", "The service is away.")),
        (FakeBehaviour::Panic, Outcome::transient("http_503", "The service is away.")),
        (FakeBehaviour::Panic, Outcome::permanent("http_409", "There is one already.")),
        (FakeBehaviour::Panic, Outcome::blocked("guard", "Not now.")),
    ] {
        let (is_cut, failing) = (AtomicBool::new(false), failure.clone());
        let behaviour =
            move || if is_cut.swap(true, Relaxed) { FakeBehaviour::Answer(failing.clone()) } else { cut.clone() };
        let parts = calling("test.put", behaviour);
        let world = parts.start().await;
        let outcome = outcome_of(&world, "x").await;
        assert_eq!(outcome.status, Status::Unknown, "the cut run may have taken effect: {outcome:?}");
        assert!(outcome.data.starts_with(&failure.data), "the outcome names the failure: {outcome:?}");
        let effects: Vec<_> = parts.skills.effects().into_values().collect();
        assert_eq!(effects, [("test.put".to_owned(), 2)], "two runs of one intent");
    }
}

#[tokio::test]
async fn skill_result_of_ten_megabytes_is_truncated_with_a_notice() {
    let world = calling("test.look", || FakeBehaviour::Answer(Outcome::success("x".repeat(10 << 20)))).start().await;
    let outcome = outcome_of(&world, "x").await;
    assert!(outcome.data.len() < Outcome::DATA_BYTES_MAX + 100);
    assert!(outcome.data.contains("of 10485760 bytes"), "the notice gives the full size");
}

#[tokio::test]
async fn breaker_opens_for_all_callers_after_five_failures_and_closes_after_one_probe() {
    let broken = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let is_broken = broken.clone();
    let mut parts = calling("test.look", move || {
        FakeBehaviour::Answer(if is_broken.load(std::sync::atomic::Ordering::Relaxed) {
            Outcome::transient("http_503", "down")
        } else {
            Outcome::success("up")
        })
    });
    parts.limits.breaker.open_ms = 300;
    // Each call is one run: a retry by the kernel would be a second one.
    parts.limits.turn.error_router.retry_reads = false;
    let world = parts.start().await;
    for _ in 0..5 {
        assert_eq!(outcome_of(&world, "x").await.error_type.as_deref(), Some("http_503"));
    }
    assert_eq!(breaker_state(&world, "test.look").await, "open");
    let refused = outcome_of(&world, "another conversation").await;
    assert_eq!(refused.error_type.as_deref(), Some("breaker_open"));
    assert_eq!(parts.skills.count("test.look"), 5, "an open breaker lets nothing through");
    // The row of the breaker outlives the breaker and the whole kernel.
    world.kernel.stop().await;
    let world = parts.start().await;
    assert_eq!(outcome_of(&world, "x").await.error_type.as_deref(), Some("breaker_open"));
    broken.store(false, std::sync::atomic::Ordering::Relaxed);
    eventually("the probe passes", async || (outcome_of(&world, "x").await.status == Status::Success).then_some(()))
        .await;
    assert_eq!(breaker_state(&world, "test.look").await, "closed");
}

#[tokio::test(start_paused = true)]
async fn retry_of_a_reading_call_waits_as_long_as_the_configuration_says() {
    for (wait_ms, waits) in [(0, false), (5_000, true)] {
        let runs = Arc::new(Mutex::new(Vec::new()));
        let seen = runs.clone();
        let mut parts = calling("test.look", move || {
            let mut runs = seen.lock().unwrap();
            runs.push(tokio::time::Instant::now());
            let is_first = runs.len() == 1;
            FakeBehaviour::Answer(if is_first {
                Outcome::transient("http_503", "down")
            } else {
                Outcome::success("up")
            })
        });
        parts.limits.turn.error_router.retry_wait_ms = wait_ms;
        let world = parts.start().await;
        assert_eq!(outcome_of(&world, "x").await.status, Status::Success);
        let runs = runs.lock().unwrap().clone();
        assert_eq!((runs.len(), runs[1] - runs[0] >= Duration::from_secs(5)), (2, waits));
        world.kernel.stop().await;
    }
}

#[tokio::test]
async fn breaker_is_closed_by_an_operator() {
    let world = calling("test.look", || FakeBehaviour::Answer(Outcome::transient("http_503", "down"))).start().await;
    for _ in 0..5 {
        outcome_of(&world, "x").await;
    }
    assert_eq!(breaker_state(&world, "test.look").await, "open");
    world.kernel.reset_breaker("test.look").await.expect("it is there");
    assert_eq!(breaker_state(&world, "test.look").await, "closed");
}

#[tokio::test]
async fn breaker_open_before_the_start_and_unused_since_is_closed_by_an_operator() {
    let parts = calling("test.look", || FakeBehaviour::Answer(Outcome::transient("http_503", "down")));
    let world = parts.start().await;
    for _ in 0..5 {
        outcome_of(&world, "x").await;
    }
    eventually("its row is stored", async || {
        let row = parts.store.breaker("test.look".to_owned()).await.ok()??;
        (row.trips > 0).then_some(())
    })
    .await;
    world.kernel.crash().await;
    let world = parts.start().await;
    assert!(world.kernel.reset_breaker("test.put").await.is_err(), "the skill has no breaker");
    world.kernel.reset_breaker("test.look").await.expect("the breaker is started");
    assert_eq!(breaker_state(&world, "test.look").await, "closed");
}
