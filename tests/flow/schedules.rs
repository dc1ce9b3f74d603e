//! Schedules whose time comes: their message is submitted once, and their user is notified of the answer.

use std::{sync::Arc, time::Duration};

use annie_actors::Submission;
use annie_core::{
    event::{EventBody, Mode, Scope},
    ids::ConversationId,
    message::{Message, ModelError, ModelErrorKind},
    outcome::Outcome,
    ports::{Fut, Notification, SkillCall, SkillSource},
    schedule::{NewSchedule, NumberedSchedule, Schedule, ScheduleChange},
    skill::SkillSet,
    time::Micros,
};
use annie_testkit::{
    env::TestClock,
    scripted_model::{calls, says},
};
use serde_json::json;

use crate::world::{World, WorldParts, ann, eventually, eventually_within, last_text};

/// Milliseconds of an hour.
pub const HOUR_MS: i64 = 3_600_000;

/// Parts with a clock that a test sets. It starts on a Wednesday at 14:05 UTC.
pub fn parts() -> (WorldParts, Arc<TestClock>) {
    let mut parts = WorldParts::new(|request, _| Ok(says(format!("{} is done", last_text(request)))));
    parts.limits.mode = Mode::SingleLoop;
    parts.limits.notify.gather_ms = 1;
    parts.limits.notify.every_ms = 0;
    let clock = Arc::new(TestClock::new());
    parts.env.clock = clock.clone();
    (parts, clock)
}

/// Creates the first schedule, whose message is `digest`.
pub async fn created(world: &World, when: &str) -> NumberedSchedule {
    let (text, when) = ("digest".to_owned(), when.to_owned());
    let new = NewSchedule { text, when, timezone: "UTC".to_owned(), conversation: None, reply_to: None, file: None };
    world.kernel.create_schedule(&ann(), new).await.expect("the schedule is accepted")
}

/// Makes the worker read the schedules and the clock: a change that does not apply.
pub async fn wake(world: &World) {
    world.kernel.change_schedule(&ann(), 1, ScheduleChange::Resume).await.expect("there is a schedule");
}

/// Waits until the first schedule has this state.
pub async fn until(world: &World, state: &str, is_so: impl Fn(&Schedule) -> bool) -> Schedule {
    eventually(state, async || {
        let found = world.kernel.schedule(&ann(), 1).await.ok()?.schedule;
        is_so(&found).then_some(found)
    })
    .await
}

/// The ids of the messages that a schedule has submitted.
pub async fn submitted(world: &World, conversation: ConversationId) -> Vec<String> {
    let log = world.log(conversation).await;
    let ids = log.iter().filter_map(|event| {
        let EventBody::Received(inbound) = &event.body else { return None };
        (inbound.source == "schedule").then(|| inbound.client_id.clone())
    });
    ids.collect()
}

/// Waits until the user has this many notifications.
pub async fn notified(world: &World, count: usize) -> Vec<Notification> {
    eventually("the user is notified", async || {
        let all = world.kernel.notifications(&ann(), 0, 100).await.ok()?;
        (all.len() >= count).then_some(all)
    })
    .await
}

fn at(text: &str) -> Micros {
    Micros::from_utc(chrono::DateTime::parse_from_rfc3339(text).expect("a time").to_utc())
}

#[tokio::test]
async fn schedule_that_is_due_submits_its_message_once_and_notifies_of_the_answer() {
    let (parts, clock) = parts();
    let world = parts.start().await;
    let made = created(&world, "every weekday at 18").await.schedule;
    assert_eq!(made.due_at, Some(at("2026-02-18T18:00:00Z")));
    wake(&world).await;
    assert_eq!(until(&world, "the schedule is stored", |_| true).await.runs, 0, "not before its time");
    clock.set_by_ms(4 * HOUR_MS);
    wake(&world).await;
    let ran = until(&world, "the schedule has run", |schedule| schedule.runs == 1).await;
    assert_eq!((ran.last_at, ran.due_at), (made.due_at, Some(at("2026-02-19T18:00:00Z"))));
    let all = notified(&world, 1).await;
    assert_eq!(all[0].tasks, [ran.last_task.expect("a task")]);
    assert!(all[0].text.contains("is done"), "{}", all[0].text);
    wake(&world).await;
    assert_eq!(submitted(&world, made.conversation).await, [made.message_id(at("2026-02-18T18:00:00Z"))]);
    world.kernel.stop().await;
}

#[tokio::test]
async fn schedule_that_was_missed_runs_once_within_the_window_and_never_after_it() {
    let (parts, clock) = parts();
    let world = parts.start().await;
    let made = created(&world, "every hour").await.schedule;
    clock.set_by_ms(10 * HOUR_MS);
    wake(&world).await;
    let ran = until(&world, "the schedule has run", |schedule| schedule.runs == 1).await;
    assert_eq!((ran.missed, ran.due_at), (1, Some(at("2026-02-19T01:00:00Z"))));
    assert_eq!(submitted(&world, made.conversation).await, [made.message_id(at("2026-02-19T00:00:00Z"))]);
    world.kernel.change_schedule(&ann(), 1, ScheduleChange::Remove).await.expect("removed");
    let daily = created(&world, "every day at 8").await;
    assert_eq!(daily.number, 2);
    clock.set_by_ms(20 * HOUR_MS);
    world.kernel.change_schedule(&ann(), 2, ScheduleChange::Resume).await.expect("there is a schedule");
    let missed = eventually("the occurrence is missed", async || {
        let found = world.kernel.schedule(&ann(), 2).await.ok()?.schedule;
        (found.missed == 1).then_some(found)
    })
    .await;
    assert_eq!((missed.runs, missed.due_at), (0, Some(at("2026-02-20T08:00:00Z"))));
    world.kernel.stop().await;
}

#[tokio::test]
async fn schedule_whose_task_has_not_ended_skips_its_next_time() {
    let (mut parts, clock) = parts();
    parts.model = WorldParts::new(|_, _| Err(ModelError::new(ModelErrorKind::Unavailable, "away"))).model;
    let world = parts.start().await;
    created(&world, "* * * * *").await;
    for (runs, skipped) in [(1, 0), (1, 1)] {
        // Less than the time after which the task is tried again.
        clock.set_by_ms(60_000);
        wake(&world).await;
        until(&world, "the occurrence is handled", |schedule| (schedule.runs, schedule.skipped) == (runs, skipped))
            .await;
    }
    world.kernel.stop().await;
}

#[tokio::test]
async fn schedule_whose_message_is_refused_is_paused_with_the_reason() {
    let (mut parts, clock) = parts();
    parts.limits.message_bytes_max = 3;
    let world = parts.start().await;
    created(&world, "every hour").await;
    clock.set_by_ms(HOUR_MS);
    wake(&world).await;
    let paused = until(&world, "the schedule is paused", |schedule| schedule.paused.is_some()).await;
    assert!(paused.paused.is_some_and(|why| why.contains("at most 3 are allowed")));
    assert_eq!((paused.due_at, paused.runs), (None, 0));
    world.kernel.stop().await;
}

/// A source without skills: with one source, a test kernel has the bundled skills.
pub struct Nothing;

impl SkillSource for Nothing {
    fn name(&self) -> &str {
        "nothing"
    }

    fn specs(&self) -> Result<Arc<SkillSet>, String> {
        Ok(Arc::new(SkillSet::new([], [], 1)))
    }

    fn run(&self, _: SkillCall) -> Fut<'_, Outcome> {
        Box::pin(async { Outcome::permanent("not_found", "there is no skill") })
    }
}

#[tokio::test(start_paused = true)]
async fn schedule_that_a_skill_creates_runs_without_a_restart() {
    let (mut parts, _clock) = parts();
    parts.model = WorldParts::new(|request, _| {
        Ok(match request.messages.last() {
            Some(Message::Tool { text, .. }) => says(text.clone()),
            _ if last_text(request).contains("every minute") => calls([(
                "use_skill",
                json!({"skill": "schedules.create", "arguments": {"when": "every minute", "message": "run my digest"}}),
            )]),
            _ => says("the digest"),
        })
    })
    .model;
    // This test uses virtual time, and the watchdog real time.
    parts.limits.stuck_ms_max = 0;
    parts.sources.push(Arc::new(Nothing));
    let world = parts.start().await;
    let sent =
        world.kernel.submit(Submission::new(ann(), "test", "every minute run my digest")).await.expect("accepted");
    let answer = world.answer(&sent).await;
    assert!(answer.contains("Created schedule #1"), "{answer}");
    let ran = eventually_within(Duration::from_secs(200), "the schedule has run", async || {
        let found = world.kernel.schedule(&ann(), 1).await.ok()?.schedule;
        (found.runs > 0).then_some(found)
    })
    .await;
    assert_eq!(ran.conversation, sent.conversation);
    let task = world.kernel.task(Scope::User(ann()), ran.last_task.expect("a task")).await.expect("readable");
    assert_eq!(task.conversation, sent.conversation);
    world.kernel.stop().await;
}
