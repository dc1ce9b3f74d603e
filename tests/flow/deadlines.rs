//! When time is up and when a model fails: what each class gets [S3 5.3.5] [S3 5.9].

use std::sync::{Arc, Mutex};

use annie_actors::{Submission, Submitted};
use annie_core::{
    event::{Event, EventBody, Mode, Priority, ReportStatus},
    ids::ConversationId,
    letter::Strategy,
    limits::Deadline,
    message::{ModelError, ModelErrorKind},
};
use annie_testkit::scripted_model::{ScriptedModel, calls, commands, says};
use serde_json::json;

use crate::{
    flow::{
        kernel::{is_sub_agent, last_text, two_agents},
        scheduling::Gated,
    },
    world::{World, WorldParts, ann, check_log, come_back_after, eventually},
};

/// Long enough that a machine under load does its part in time, short enough to be waited for.
const HARD_MS: u64 = 1_000;

/// A turn whose first round runs a skill; of the others those hang that the test says, and the rest answers.
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
    world.kernel.submit(message).await.expect("taken")
}

fn count(log: &[Event], is: impl Fn(&EventBody) -> bool) -> usize {
    log.iter().filter(|e| is(&e.body)).count()
}

async fn ends(parts: &WorldParts, source: &str, class: Option<Priority>) -> (EventBody, Vec<Event>) {
    let world = parts.start().await;
    let said = say(&world, source, class).await;
    let end = world.final_of(said.conversation, said.task).await;
    let log = world.log(said.conversation).await;
    check_log(&log);
    world.kernel.stop().await;
    (end, log)
}

#[tokio::test]
async fn after_the_soft_deadline_the_next_round_is_asked_to_come_to_an_end() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let hears = heard.clone();
    let model = ScriptedModel::new(move |request, call| {
        hears.lock().expect("not poisoned").push(format!("{:?}", request.messages));
        let look = || calls([("use_skill", json!({"skill": "test.put", "arguments": {"what": "a half"}}))]);
        Ok(if call == 0 { look() } else { says("As far as I got.") })
    });
    let mut parts = WorldParts::with_model(Arc::new(Gated { model, gate: gate.clone() }));
    parts.limits.mode = Mode::SingleLoop;
    parts.limits.deadlines.high = Deadline { soft_ms: 50, hard_ms: 600_000 };
    let world = parts.start().await;
    let said = say(&world, "test", Some(Priority::High)).await;
    eventually("the soft deadline passes", async || {
        let log = world.log(said.conversation).await;
        (count(&log, |b| matches!(b, EventBody::DeadlinePassed { hard: false, letters: None })) == 1).then_some(())
    })
    .await;
    gate.add_permits(2);
    assert_eq!(world.answer(&said).await, "As far as I got.");
    let heard = heard.lock().expect("not poisoned").clone();
    assert!(!heard[0].contains("Time is nearly up"), "{}", heard[0]);
    assert!(heard[1].contains("Time is nearly up. Come to an end now"), "{}", heard[1]);
    check_log(&world.log(said.conversation).await);
    world.kernel.stop().await;
}

/// Three rounds that a slow machine reads for longer than the soft deadline each.
#[tokio::test(start_paused = true)]
async fn soft_deadline_does_not_run_while_a_model_reads_and_the_hard_one_does() {
    for (hard_ms, is_whole) in [(60_000, true), (6_000, false)] {
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let hears = heard.clone();
        let model = ScriptedModel::new(move |request, call| {
            hears.lock().expect("not poisoned").push(format!("{:?}", request.messages));
            let look = |what: u64| {
                calls([("use_skill", json!({"skill": "test.put", "arguments": {"what": what.to_string()}}))])
            };
            Ok(if call < 2 { look(call) } else { says("Done.") })
        });
        let mut parts = WorldParts::with_model(Arc::new(model.taking(std::time::Duration::from_secs(4))));
        parts.limits.mode = Mode::SingleLoop;
        // The watchdog has a clock of its own, by which this one flies.
        parts.limits.stuck_ms_max = 0;
        parts.limits.deadlines.high = Deadline { soft_ms: 3_000, hard_ms };
        let (end, log) = ends(&parts, "test", Some(Priority::High)).await;
        let EventBody::Answered { text, paused, .. } = end else { panic!("wanted an answer, got {end:?}") };
        assert_eq!((text == "Done.", paused), (is_whole, !is_whole), "{text}");
        assert_eq!(count(&log, |b| matches!(b, EventBody::DeadlinePassed { hard: false, .. })), 0);
        let read = count(&log, |b| b.prefill_ms() >= 3_900);
        assert_eq!(read, if is_whole { 3 } else { 1 });
        let heard = heard.lock().expect("not poisoned").clone();
        assert!(!heard.iter().any(|heard| heard.contains("Time is nearly up")), "{heard:?}");
    }
}

#[tokio::test]
async fn who_waits_gets_what_is_there_when_time_is_up() {
    let (parts, model) = hanging(|call| call == 1);
    let (end, _) = ends(&parts, "test", Some(Priority::High)).await;
    let EventBody::Answered { text, paused, .. } = end else { panic!("wanted an answer, got {end:?}") };
    assert!(paused && text.contains("My time for it was up") && text.contains("test.put"), "{text}");
    assert_eq!((model.call_count(), model.abandoned_count()), (2, 1), "its round is not left running");
}

#[tokio::test]
async fn agent_that_the_hard_deadline_ends_reports_its_receipts_and_the_continued_turn_does_not_repeat_them() {
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
    let said = say(&world, "test", Some(Priority::High)).await;
    let end = world.final_of(said.conversation, said.task).await;
    assert!(matches!(end, EventBody::Answered { paused: true, .. }), "{end:?}");
    let log = world.log(said.conversation).await;
    let report =
        log.iter().find_map(|e| if let EventBody::AgentReported { report } = &e.body { Some(report) } else { None });
    let report = report.expect("the agent reported");
    assert_eq!((report.status, report.receipts.len()), (ReportStatus::Cancelled, 1), "{report:?}");
    let mut message = Submission::new(ann(), "test", "continue");
    message.conversation = Some(said.conversation);
    message.priority = Some(Priority::High);
    let on = world.kernel.submit(message).await.expect("taken");
    assert_eq!(world.answer(&on).await, "It was sent.");
    assert_eq!(parts.skills.count("test.send"), 1, "it is not sent twice");
    world.kernel.stop().await;
}

/// On a clock that goes on only when nobody has anything to do: however slow the machine is, the deadline passes while the
/// round hangs, and no other does while the test looks.
#[tokio::test(start_paused = true)]
async fn work_in_the_background_of_a_person_is_put_off_once_and_goes_on_where_it_was() {
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
    // The watchdog has a clock of its own, by which this one flies.
    parts.limits.stuck_ms_max = 0;
    parts.model = Arc::new(Gated { model, gate: gate.clone() });
    let world = parts.start().await;
    let said = say(&world, "test", Some(Priority::Normal)).await;
    eventually("it is put off", async || {
        let log = world.log(said.conversation).await;
        (count(&log, |b| matches!(b, EventBody::Deferred { .. })) == 1).then_some(())
    })
    .await;
    // The round that was under way is not thrown away.
    gate.add_permits(2);
    assert_eq!(world.answer(&said).await, "Done after all.");
    assert_eq!(parts.skills.count("test.put"), 2, "what was done before is not done again");
    let log = world.log(said.conversation).await;
    assert_eq!(count(&log, |b| matches!(b, EventBody::Deferred { .. })), 1);
    assert_eq!(count(&log, |b| matches!(b, EventBody::ModelReplied { .. })), 3);
    check_log(&log);
    world.kernel.stop().await;
}

#[tokio::test]
async fn work_in_the_background_of_a_person_that_is_late_again_becomes_a_dead_letter() {
    let (parts, _) = hanging(|call| call > 0);
    let (end, log) = ends(&parts, "test", Some(Priority::Normal)).await;
    let EventBody::Failed { code, letter: Some(letter), text, .. } = end else { panic!("no letter in {end:?}") };
    assert_eq!(code, "deadline");
    assert_eq!(letter.retry_at, None, "it had an effect, so a person decides on another try");
    assert!(text.contains("test.put"), "{text}");
    assert_eq!(count(&log, |b| matches!(b, EventBody::Deferred { .. })), 1);
}

#[tokio::test]
async fn upkeep_that_takes_too_long_is_dropped() {
    let (parts, _) = hanging(|call| call > 0);
    let (end, log) = ends(&parts, "test", Some(Priority::Background)).await;
    let EventBody::Failed { code, letter, .. } = end else { panic!("wanted a failure, got {end:?}") };
    assert_eq!((code.as_str(), letter), ("deadline", None));
    assert_eq!(count(&log, |b| matches!(b, EventBody::Deferred { .. })), 0);
}

#[tokio::test]
async fn who_speaks_hears_of_trouble_when_time_is_up() {
    let (parts, _) = hanging(|_| true);
    let (end, _) = ends(&parts, "voice", None).await;
    let EventBody::Failed { code, text, letter, .. } = end else { panic!("wanted a failure, got {end:?}") };
    assert_eq!((code.as_str(), letter), ("deadline", None));
    assert!(text.contains("I'm having trouble with that right now"), "{text}");
}

/// Two backends, of which the first is away, and the second as well if the test says so.
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
async fn a_model_that_fails_is_stood_in_for_by_the_second_backend() {
    let (parts, [main, spare]) = two(true);
    let (end, log) = ends(&parts, "test", Some(Priority::Normal)).await;
    assert!(matches!(&end, EventBody::Answered { text, .. } if text == "The spare did it."), "{end:?}");
    assert_eq!((main.call_count(), spare.call_count()), (1, 1));
    assert_eq!(strategies(&log), []);
}

#[tokio::test]
async fn a_model_failure_of_background_work_is_tried_elsewhere_then_later_then_told_with_all_that_was_tried() {
    let (parts, [main, spare]) = two(false);
    let (end, log) = ends(&parts, "test", Some(Priority::Normal)).await;
    let EventBody::Failed { letter: Some(letter), text, .. } = end else { panic!("no letter in {end:?}") };
    assert_eq!(letter.tried.len(), 3, "{letter:?}");
    assert!(text.contains("I tried 3 times") && letter.retry_at.is_some(), "{text}");
    assert_eq!(strategies(&log), [Strategy::OtherBackend, Strategy::Later]);
    assert_eq!(count(&log, |b| matches!(b, EventBody::Deferred { .. })), 1);
    assert_eq!((main.call_count(), spare.call_count()), (3, 3), "both backends, each time");
}

#[tokio::test]
async fn a_model_failure_of_what_is_waited_for_is_told_at_once() {
    let (parts, [main, spare]) = two(false);
    let (end, log) = ends(&parts, "test", Some(Priority::High)).await;
    // A person who waited has been told of the failure and decides: there is no dead letter.
    assert!(matches!(end, EventBody::Failed { letter: None, .. }), "{end:?}");
    assert_eq!((strategies(&log), main.call_count(), spare.call_count()), (Vec::new(), 1, 1));
}

/// A backend that is away, a stand-in with one slot, and the gate of the stand-in's rounds. HIGH work has ten seconds.
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
    // The watchdog has a clock of its own, by which this one flies.
    parts.limits.stuck_ms_max = 0;
    parts.slots = 1;
    (parts, gate)
}

async fn hold(world: &World) -> Submitted {
    let mut message = Submission::new(ann(), "test", "hold the slot");
    message.priority = Some(Priority::Normal);
    world.kernel.submit(message.within(ConversationId::for_key(&ann(), "holder"))).await.expect("taken")
}

#[tokio::test(start_paused = true)]
async fn time_that_a_round_waits_for_a_stand_in_is_not_the_tasks() {
    let away = ScriptedModel::new(|_, _| Err(ModelError::new(ModelErrorKind::Unavailable, "the model is away")));
    let (mut parts, gate) = one_slot_behind(away, Some(ScriptedModel::new(|_, _| Ok(says("Done after all.")))));
    parts.limits.mode = Mode::SingleLoop;
    let world = parts.start().await;
    let holder = hold(&world).await;
    come_back_after(1_000).await;
    let said = say(&world, "test", Some(Priority::High)).await;
    come_back_after(40_000).await;
    gate.add_permits(2);
    assert_eq!(world.answer(&said).await, "Done after all.");
    world.answer(&holder).await;
    let log = world.log(said.conversation).await;
    assert_eq!(count(&log, |b| matches!(b, EventBody::DeadlinePassed { .. })), 0, "{log:#?}");
    world.kernel.stop().await;
}

/// What came of a person's message, and after how many seconds.
async fn end_of(world: &World, said: &Submitted) -> (EventBody, u64) {
    let end = world.final_of(said.conversation, said.task).await;
    let log = world.log(said.conversation).await;
    let at = |is: fn(&Event) -> bool| log.iter().find(|e| is(e)).expect("it stands in the log").at;
    let took_ms = at(|e| e.body.is_final()).since_ms(at(|e| matches!(e.body, EventBody::Received(_))));
    (end, took_ms / 1_000)
}

#[tokio::test(start_paused = true)]
async fn person_whose_round_gets_no_permit_is_answered_at_the_limit_of_the_wait() {
    for (source, class, limit_s) in [("test", Some(Priority::High), 40), ("voice", None, 5)] {
        let away = ScriptedModel::new(|_, _| Err(ModelError::new(ModelErrorKind::Unavailable, "the model is away")));
        let (mut parts, gate) = one_slot_behind(away, Some(ScriptedModel::new(|_, _| Ok(says("Done after all.")))));
        parts.limits.mode = Mode::SingleLoop;
        parts.limits.deadlines.permit_ms_max = 30_000;
        let world = parts.start().await;
        let holder = hold(&world).await;
        come_back_after(1_000).await;
        let said = say(&world, source, class).await;
        let (end, took_s) = end_of(&world, &said).await;
        assert!((limit_s - 1..=limit_s + 1).contains(&took_s), "{source}: {took_s} s: {end:?}");
        match (source, &end) {
            ("voice", EventBody::Failed { code, .. }) => assert_eq!(code, "deadline"),
            ("test", EventBody::Answered { paused: true, .. }) => {}
            _ => panic!("{source} ends with {end:?}"),
        }
        gate.add_permits(2);
        world.answer(&holder).await;
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn person_is_told_at_once_that_the_provider_takes_no_requests_for_hours() {
    let limited = || ModelError {
        retry_after_ms: Some(6 * 3_600_000),
        ..ModelError::new(ModelErrorKind::RateLimited, "the daily quota is used up")
    };
    let (mut parts, _) = one_slot_behind(ScriptedModel::new(move |_, _| Err(limited())), None);
    let model = Arc::new(ScriptedModel::new(move |_, _| Err(limited())));
    parts.model = model.clone();
    let world = parts.start().await;
    for n in 0..3 {
        let said = say(&world, "test", Some(Priority::High)).await;
        let (end, took_s) = end_of(&world, &said).await;
        let EventBody::Failed { code, text, .. } = &end else { panic!("wanted a failure, got {end:?}") };
        assert_eq!((code.as_str(), took_s), ("model_rate_limited", 0), "message {n}");
        assert!(text.contains("takes no requests for the next 6 hours"), "{text}");
    }
    assert_eq!(model.call_count(), 1, "the provider is left alone");
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn time_that_agents_wait_for_their_permits_is_not_the_tasks() {
    let model = ScriptedModel::new(|request, _| {
        let is_holder = format!("{:?}", request.messages).contains("hold the slot");
        Ok(if is_holder { says("held") } else { two_agents(request) })
    });
    let (parts, gate) = one_slot_behind(model, None);
    let world = parts.start().await;
    let said = say(&world, "test", Some(Priority::High)).await;
    come_back_after(1_000).await;
    let holder = hold(&world).await;
    come_back_after(1_000).await;
    // The round that dispatches ends, and the holder's begins before the agents ask for theirs.
    gate.add_permits(1);
    come_back_after(40_000).await;
    gate.add_permits(20);
    world.answer(&said).await;
    world.answer(&holder).await;
    let log = world.log(said.conversation).await;
    let waited = |b: &EventBody| matches!(b, EventBody::AgentReported { report } if report.waited_ms >= 30_000);
    assert!(count(&log, waited) > 0, "the agents had to wait: {log:#?}");
    assert_eq!(count(&log, |b| matches!(b, EventBody::DeadlinePassed { .. })), 0, "{log:#?}");
    world.kernel.stop().await;
}
