//! Deadlines and model failures: what each class gets [S3 5.3.5] [S3 5.9].

use std::sync::{Arc, Mutex};

use annie_actors::{Submission, Submitted};
use annie_core::{
    dead_letter::Strategy,
    event::{Event, EventBody, Mode, Priority, ReportStatus},
    ids::ConversationId,
    limits::Deadline,
    message::{ModelError, ModelErrorKind},
};
use annie_testkit::scripted_model::{ScriptedModel, calls, commands, says};
use serde_json::json;

use crate::{
    flow::scheduling::Gated,
    world::{World, WorldParts, ann, check_log, eventually, is_sub_agent, last_text, sleep_for_ms, two_agents},
};

/// Long enough for a machine under load to do its part in time, short enough for a test to wait for.
const HARD_MS: u64 = 1_000;

/// A turn whose first round runs a skill. Later rounds hang if `hangs` returns true for their number; the others answer.
fn hanging(hangs: impl Fn(u64) -> bool + Send + Sync + 'static) -> (WorldParts, Arc<ScriptedModel>) {
    let model = ScriptedModel::new(|_, call| {
        Ok(if call == 0 {
            calls([("use_skill", json!({"skill": "test.put", "arguments": {"what": "a half"}}))])
        } else {
            says("Done after all.")
        })
    });
    let model = Arc::new(model.hanging_when(move |_, call| hangs(call)));
    let mut parts = WorldParts::with_model(model.clone());
    parts.limits.mode = Mode::SingleLoop;
    parts.limits.turn.defer_ms = 20;
    let short = Deadline { soft_ms: HARD_MS, hard_ms: HARD_MS };
    let deadlines = &mut parts.limits.deadlines;
    (deadlines.realtime, deadlines.high, deadlines.normal, deadlines.background) = (short, short, short, short);
    (parts, model)
}

async fn say(world: &World, source: &str, class: Option<Priority>) -> Submitted {
    let mut message = Submission::new(ann(), source, "do it");
    message.priority = class;
    world.kernel.submit(message).await.expect("accepted")
}

fn count(log: &[Event], is: impl Fn(&EventBody) -> bool) -> usize {
    log.iter().filter(|e| is(&e.body)).count()
}

async fn ends(parts: &WorldParts, source: &str, class: Option<Priority>) -> (EventBody, Vec<Event>) {
    let world = parts.start().await;
    let sent = say(&world, source, class).await;
    let end = world.final_of(sent.conversation, sent.task).await;
    let log = world.log(sent.conversation).await;
    check_log(&log);
    world.kernel.stop().await;
    (end, log)
}

#[tokio::test]
async fn soft_deadline_asks_the_next_round_to_finish() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let recorded = seen.clone();
    let model = ScriptedModel::new(move |request, call| {
        recorded.lock().expect("not poisoned").push(format!("{:?}", request.messages));
        let look = || calls([("use_skill", json!({"skill": "test.put", "arguments": {"what": "a half"}}))]);
        Ok(if call == 0 { look() } else { says("As far as I got.") })
    });
    let mut parts = WorldParts::with_model(Arc::new(Gated { model, gate: gate.clone() }));
    parts.limits.mode = Mode::SingleLoop;
    parts.limits.deadlines.high = Deadline { soft_ms: 50, hard_ms: 600_000 };
    let world = parts.start().await;
    let sent = say(&world, "test", Some(Priority::High)).await;
    eventually("the soft deadline passes", async || {
        let log = world.log(sent.conversation).await;
        (count(&log, |b| matches!(b, EventBody::DeadlinePassed { hard: false, dead_letters: None })) == 1).then_some(())
    })
    .await;
    gate.add_permits(2);
    assert_eq!(world.answer(&sent).await, "As far as I got.");
    let seen = seen.lock().expect("not poisoned").clone();
    assert!(!seen[0].contains("Time is nearly up"), "{}", seen[0]);
    assert!(seen[1].contains("Time is nearly up. Come to an end now"), "{}", seen[1]);
    check_log(&world.log(sent.conversation).await);
    world.kernel.stop().await;
}

/// Rounds that each read their prompt for longer than the soft deadline. The last hard deadline passes while the first round reads.
#[tokio::test(start_paused = true)]
async fn soft_deadline_excludes_prompt_reading_and_hard_deadline_includes_it() {
    for (hard_ms, is_whole, rounds) in [(60_000, true, 3), (6_000, false, 1), (3_500, false, 0)] {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let recorded = seen.clone();
        let model = ScriptedModel::new(move |request, call| {
            recorded.lock().expect("not poisoned").push(format!("{:?}", request.messages));
            let look = |what: u64| {
                calls([("use_skill", json!({"skill": "test.put", "arguments": {"what": what.to_string()}}))])
            };
            Ok(if call < 2 { look(call) } else { says("Done.") })
        });
        let mut parts = WorldParts::with_model(Arc::new(model.taking(std::time::Duration::from_secs(4))));
        parts.limits.mode = Mode::SingleLoop;
        // The watchdog uses real time, so it is switched off under virtual time.
        parts.limits.stuck_ms_max = 0;
        parts.limits.deadlines.high = Deadline { soft_ms: 3_000, hard_ms };
        let (end, log) = ends(&parts, "test", Some(Priority::High)).await;
        let EventBody::Answered { text, paused, .. } = end else { panic!("wanted an answer, got {end:?}") };
        assert_eq!((text == "Done.", paused), (is_whole, !is_whole), "{text}");
        assert_eq!(count(&log, |b| matches!(b, EventBody::DeadlinePassed { hard: false, .. })), 0);
        let read = count(&log, |b| b.round_end().is_some_and(|end| end.prefill_ms >= 3_900));
        assert_eq!(read, rounds, "rounds that read their whole prompt within {hard_ms} ms");
        let seen = seen.lock().expect("not poisoned").clone();
        assert!(!seen.iter().any(|seen| seen.contains("Time is nearly up")), "{seen:?}");
    }
}

#[tokio::test]
async fn high_task_past_its_hard_deadline_is_answered_with_what_is_done() {
    let (parts, model) = hanging(|call| call == 1);
    let (end, _) = ends(&parts, "test", Some(Priority::High)).await;
    let EventBody::Answered { text, paused, .. } = end else { panic!("wanted an answer, got {end:?}") };
    assert!(paused && text.contains("My time for it was up") && text.contains("test.put"), "{text}");
    assert_eq!((model.call_count(), model.abandoned_count()), (2, 1), "the hanging round is abandoned");
}

#[tokio::test]
async fn agent_ended_by_the_hard_deadline_reports_receipts_that_the_continued_turn_does_not_repeat() {
    let model = ScriptedModel::new(|request, _| {
        let last = last_text(request);
        if is_sub_agent(request) {
            let is_refused = last.contains("[done already]");
            return Ok(if is_refused { says("It is there.") } else { commands(["test.send --what mail"]) });
        }
        if last.contains("\"agents\"") {
            return Ok(says("It was sent."));
        }
        let agent = if last.contains("continue") { "again" } else { "one" };
        Ok(calls([
            ("dispatch_agent", json!({"agent_id": agent, "mission": "send it", "skills": ["test.send"]})),
            ("get_agent_results", json!({"agent_ids": [agent]})),
        ]))
    });
    let has_its_receipt = |text: &str| text.contains("test.send did mail") && !text.contains("[done already]");
    let model = model.hanging_when(move |request, _| is_sub_agent(request) && has_its_receipt(&last_text(request)));
    let mut parts = WorldParts::with_model(Arc::new(model));
    parts.limits.deadlines.high = Deadline { soft_ms: HARD_MS, hard_ms: HARD_MS };
    let world = parts.start().await;
    let sent = say(&world, "test", Some(Priority::High)).await;
    let end = world.final_of(sent.conversation, sent.task).await;
    assert!(matches!(end, EventBody::Answered { paused: true, .. }), "{end:?}");
    let log = world.log(sent.conversation).await;
    let report =
        log.iter().find_map(|e| if let EventBody::AgentReported { report } = &e.body { Some(report) } else { None });
    let report = report.expect("the agent reported");
    assert_eq!((report.status, report.receipts.len()), (ReportStatus::Cancelled, 1), "{report:?}");
    let mut message = Submission::new(ann(), "test", "continue");
    message.conversation = Some(sent.conversation);
    message.priority = Some(Priority::High);
    let on = world.kernel.submit(message).await.expect("accepted");
    assert_eq!(world.answer(&on).await, "It was sent.");
    assert_eq!(parts.skills.count("test.send"), 1, "the mail is sent once");
    world.kernel.stop().await;
}

/// Under virtual time the deadline passes while the round hangs, however slow the machine is, and no other deadline
/// passes while the test checks.
#[tokio::test(start_paused = true)]
async fn normal_task_past_its_hard_deadline_is_deferred_once_and_continues_where_it_was() {
    let gate = Arc::new(tokio::sync::Semaphore::new(1));
    let model = ScriptedModel::new(|_, call| {
        Ok(match call {
            0 | 1 => {
                calls([("use_skill", json!({"skill": "test.put", "arguments": {"what": format!("part {call}")}}))])
            }
            _ => says("Done after all."),
        })
    });
    let (mut parts, _) = hanging(|_| false);
    // The watchdog uses real time, so it is switched off under virtual time.
    parts.limits.stuck_ms_max = 0;
    parts.model = Arc::new(Gated { model, gate: gate.clone() });
    let world = parts.start().await;
    let sent = say(&world, "test", Some(Priority::Normal)).await;
    eventually("the task is deferred", async || {
        let log = world.log(sent.conversation).await;
        (count(&log, |b| matches!(b, EventBody::Deferred { .. })) == 1).then_some(())
    })
    .await;
    // The reply of the round under way is kept.
    gate.add_permits(2);
    assert_eq!(world.answer(&sent).await, "Done after all.");
    assert_eq!(parts.skills.count("test.put"), 2, "the effects made before are not repeated");
    let log = world.log(sent.conversation).await;
    assert_eq!(count(&log, |b| matches!(b, EventBody::Deferred { .. })), 1);
    assert_eq!(count(&log, |b| matches!(b, EventBody::ModelReplied { .. })), 3);
    check_log(&log);
    world.kernel.stop().await;
}

#[tokio::test]
async fn normal_task_past_its_hard_deadline_twice_becomes_a_dead_letter() {
    let (parts, _) = hanging(|call| call > 0);
    let (end, log) = ends(&parts, "test", Some(Priority::Normal)).await;
    let EventBody::Failed { code, dead_letter: Some(dead_letter), text, .. } = end else {
        panic!("no dead letter in {end:?}")
    };
    assert_eq!(code, "deadline");
    assert_eq!(dead_letter.retry_at, None, "the task had an effect, so a person decides on a retry");
    assert!(text.contains("test.put"), "{text}");
    assert_eq!(count(&log, |b| matches!(b, EventBody::Deferred { .. })), 1);
}

#[tokio::test]
async fn background_task_past_its_hard_deadline_fails_without_a_dead_letter() {
    let (parts, _) = hanging(|call| call > 0);
    let (end, log) = ends(&parts, "test", Some(Priority::Background)).await;
    let EventBody::Failed { code, dead_letter, .. } = end else { panic!("wanted a failure, got {end:?}") };
    assert_eq!((code.as_str(), dead_letter), ("deadline", None));
    assert_eq!(count(&log, |b| matches!(b, EventBody::Deferred { .. })), 0);
}

#[tokio::test]
async fn voice_task_past_its_hard_deadline_fails_with_an_apology() {
    let (parts, _) = hanging(|_| true);
    let (end, _) = ends(&parts, "voice", None).await;
    let EventBody::Failed { code, text, dead_letter, .. } = end else { panic!("wanted a failure, got {end:?}") };
    assert_eq!((code.as_str(), dead_letter), ("deadline", None));
    assert!(text.contains("I'm having trouble with that right now"), "{text}");
}

/// Two backends. The first one is always unavailable, the second one unless `is_second_up`.
fn two(is_second_up: bool) -> (WorldParts, [Arc<ScriptedModel>; 2]) {
    let away = || Err(ModelError::new(ModelErrorKind::Unavailable, "the model is away"));
    let main = Arc::new(ScriptedModel::new(move |_, _| away()));
    let spare =
        Arc::new(ScriptedModel::new(move |_, _| if is_second_up { Ok(says("The spare did it.")) } else { away() }));
    let mut parts = WorldParts::with_model(main.clone());
    parts.others = vec![("spare", spare.clone())];
    parts.limits.mode = Mode::SingleLoop;
    parts.limits.turn.defer_ms = 5;
    parts.limits.breaker.failures_max = u32::MAX;
    (parts, [main, spare])
}

fn strategies(log: &[Event]) -> Vec<Strategy> {
    log.iter()
        .filter_map(|e| if let EventBody::Retried { strategy, .. } = e.body { Some(strategy) } else { None })
        .collect()
}

#[tokio::test]
async fn fallback_backend_answers_when_the_first_model_fails() {
    let (parts, [main, spare]) = two(true);
    let (end, log) = ends(&parts, "test", Some(Priority::Normal)).await;
    assert!(matches!(&end, EventBody::Answered { text, .. } if text == "The spare did it."), "{end:?}");
    assert_eq!((main.call_count(), spare.call_count()), (1, 1));
    assert_eq!(strategies(&log), []);
}

#[tokio::test]
async fn normal_task_with_failing_models_tries_the_other_backend_then_later_then_is_dead_lettered() {
    let (parts, [main, spare]) = two(false);
    let (end, log) = ends(&parts, "test", Some(Priority::Normal)).await;
    let EventBody::Failed { dead_letter: Some(dead_letter), text, .. } = end else {
        panic!("no dead letter in {end:?}")
    };
    assert_eq!(dead_letter.tried.len(), 3, "{dead_letter:?}");
    assert!(text.contains("I tried 3 times") && dead_letter.retry_at.is_some(), "{text}");
    assert_eq!(strategies(&log), [Strategy::OtherBackend, Strategy::Later]);
    assert_eq!(count(&log, |b| matches!(b, EventBody::Deferred { .. })), 1);
    assert_eq!((main.call_count(), spare.call_count()), (3, 3), "both backends in each attempt");
}

#[tokio::test]
async fn high_task_reports_a_model_failure_at_once() {
    let (parts, [main, spare]) = two(false);
    let (end, log) = ends(&parts, "test", Some(Priority::High)).await;
    // A user who waited has received the failure and decides on a retry: there is no dead letter.
    assert!(matches!(end, EventBody::Failed { dead_letter: None, .. }), "{end:?}");
    assert_eq!((strategies(&log), main.call_count(), spare.call_count()), (Vec::new(), 1, 1));
}

/// An unavailable backend, a fallback backend with one slot, and the gate of the fallback's rounds. HIGH tasks have ten
/// seconds.
fn one_slot_behind(main: ScriptedModel, spare: Option<ScriptedModel>) -> (WorldParts, Arc<tokio::sync::Semaphore>) {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let gated = |model| Arc::new(Gated { model, gate: gate.clone() });
    let mut parts = match spare {
        Some(spare) => {
            let mut parts = WorldParts::with_model(Arc::new(main));
            parts.others = vec![("spare", gated(spare))];
            parts
        }
        None => WorldParts::with_model(gated(main)),
    };
    parts.limits.breaker.failures_max = u32::MAX;
    parts.limits.deadlines.high = Deadline { soft_ms: 10_000, hard_ms: 10_000 };
    // The watchdog uses real time, so it is switched off under virtual time.
    parts.limits.stuck_ms_max = 0;
    parts.slots = 1;
    (parts, gate)
}

async fn hold(world: &World) -> Submitted {
    let mut message = Submission::new(ann(), "test", "hold the slot");
    message.priority = Some(Priority::Normal);
    world.kernel.submit(message.within(ConversationId::for_key(&ann(), "holder"))).await.expect("accepted")
}

#[tokio::test(start_paused = true)]
async fn task_deadline_excludes_the_wait_for_a_fallback_backend() {
    let away = ScriptedModel::new(|_, _| Err(ModelError::new(ModelErrorKind::Unavailable, "the model is away")));
    let (mut parts, gate) = one_slot_behind(away, Some(ScriptedModel::new(|_, _| Ok(says("Done after all.")))));
    parts.limits.mode = Mode::SingleLoop;
    let world = parts.start().await;
    let holder = hold(&world).await;
    sleep_for_ms(1_000).await;
    let sent = say(&world, "test", Some(Priority::High)).await;
    sleep_for_ms(40_000).await;
    gate.add_permits(2);
    assert_eq!(world.answer(&sent).await, "Done after all.");
    world.answer(&holder).await;
    let log = world.log(sent.conversation).await;
    assert_eq!(count(&log, |b| matches!(b, EventBody::DeadlinePassed { .. })), 0, "{log:#?}");
    world.kernel.stop().await;
}

/// The final event of a message, and the seconds until it.
async fn end_of(world: &World, sent: &Submitted) -> (EventBody, u64) {
    let end = world.final_of(sent.conversation, sent.task).await;
    let log = world.log(sent.conversation).await;
    let at = |is: fn(&Event) -> bool| log.iter().find(|e| is(e)).expect("the event is in the log").at;
    let took_ms = at(|e| e.body.is_final()).since_ms(at(|e| matches!(e.body, EventBody::Received(_))));
    (end, took_ms / 1_000)
}

#[tokio::test(start_paused = true)]
async fn task_that_gets_no_permit_ends_at_the_limit_of_the_permit_wait() {
    for (source, class, limit_s) in [("test", Some(Priority::High), 40), ("voice", None, 5)] {
        let away = ScriptedModel::new(|_, _| Err(ModelError::new(ModelErrorKind::Unavailable, "the model is away")));
        let (mut parts, gate) = one_slot_behind(away, Some(ScriptedModel::new(|_, _| Ok(says("Done after all.")))));
        parts.limits.mode = Mode::SingleLoop;
        parts.limits.deadlines.permit_ms_max = 30_000;
        let world = parts.start().await;
        let holder = hold(&world).await;
        sleep_for_ms(1_000).await;
        let sent = say(&world, source, class).await;
        let (end, took_s) = end_of(&world, &sent).await;
        assert!((limit_s - 1..=limit_s + 1).contains(&took_s), "{source}: {took_s} s: {end:?}");
        let ends_well = match source {
            "voice" => matches!(&end, EventBody::Failed { code, .. } if code == "deadline"),
            "test" => matches!(end, EventBody::Answered { paused: true, .. }),
            _ => false,
        };
        assert!(ends_well, "{source} ends with {end:?}");
        gate.add_permits(2);
        world.answer(&holder).await;
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn high_task_fails_at_once_when_the_provider_refuses_requests_for_hours() {
    let limited = || ModelError {
        retry_after_ms: Some(6 * 3_600_000),
        ..ModelError::new(ModelErrorKind::RateLimited, "the daily quota is used up")
    };
    let (mut parts, _) = one_slot_behind(ScriptedModel::new(move |_, _| Err(limited())), None);
    let model = Arc::new(ScriptedModel::new(move |_, _| Err(limited())));
    parts.model = model.clone();
    let world = parts.start().await;
    for n in 0..3 {
        let sent = say(&world, "test", Some(Priority::High)).await;
        let (end, took_s) = end_of(&world, &sent).await;
        let EventBody::Failed { code, text, .. } = &end else { panic!("wanted a failure, got {end:?}") };
        assert_eq!((code.as_str(), took_s), ("model_rate_limited", 0), "message {n}");
        assert!(text.contains("takes no requests for the next 6 hours"), "{text}");
    }
    assert_eq!(model.call_count(), 1, "the provider is called once");
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn task_deadline_excludes_the_wait_of_its_agents_for_permits() {
    let model = ScriptedModel::new(|request, _| {
        let is_holder = format!("{:?}", request.messages).contains("hold the slot");
        Ok(if is_holder { says("held") } else { two_agents(request) })
    });
    let (parts, gate) = one_slot_behind(model, None);
    let world = parts.start().await;
    let sent = say(&world, "test", Some(Priority::High)).await;
    sleep_for_ms(1_000).await;
    let holder = hold(&world).await;
    sleep_for_ms(1_000).await;
    // The dispatching round ends, and the holder's round begins before the agents request theirs.
    gate.add_permits(1);
    sleep_for_ms(40_000).await;
    gate.add_permits(20);
    world.answer(&sent).await;
    world.answer(&holder).await;
    let log = world.log(sent.conversation).await;
    let waited = |b: &EventBody| matches!(b, EventBody::AgentReported { report } if report.waited_ms >= 30_000);
    assert!(count(&log, waited) > 0, "the agents had to wait: {log:#?}");
    assert_eq!(count(&log, |b| matches!(b, EventBody::DeadlinePassed { .. })), 0, "{log:#?}");
    world.kernel.stop().await;
}
