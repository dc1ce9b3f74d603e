//! Failed work that nobody waits for is tried in other ways before it becomes a dead letter (S3 5.9).

use super::{
    script::{collect, dispatch, tool},
    world::World,
};
use crate::{
    event::{EventBody, Inbound, Mode, Priority, ResumeCause, Retry},
    ids::TaskId,
    letter::{Letter, Strategy},
    message::ModelErrorKind,
    time::Micros,
};

const HOUR_MS: i64 = 3_600_000;

fn letter(w: &World, task: TaskId) -> Letter {
    let EventBody::Failed { letter, .. } = w.finals(task)[0] else { panic!("no failure: {:?}", w.finals(task)) };
    letter.clone().expect("a letter")
}

fn strategies(w: &World) -> Vec<Strategy> {
    w.log
        .iter()
        .filter_map(|e| if let EventBody::Retried { strategy, .. } = e.body { Some(strategy) } else { None })
        .collect()
}

#[test]
fn work_that_nobody_waits_for_is_tried_elsewhere_then_later_then_becomes_a_letter() {
    for class in [Priority::Normal, Priority::Low, Priority::Background] {
        let mut w = World::new();
        w.route = ["a", "b", "c"].map(str::to_owned).to_vec();
        let task = w.say_as(class, "Report");
        w.model_fails(ModelErrorKind::Unavailable);
        assert_eq!(w.turn().route, ["b", "c", "a"], "the one that failed comes last");
        assert_eq!((w.turn().main.round, w.turn().deferral.until), (2, None));
        let first = w.now;
        w.model_fails(ModelErrorKind::Timeout);
        assert_eq!(strategies(&w), [Strategy::OtherBackend, Strategy::Later]);
        assert!(matches!(w.log.last().map(|e| &e.body), Some(EventBody::Deferred { .. })));
        assert_eq!(w.turn().deferral.count, 1);
        assert_eq!(w.turn().main.rounds_max - w.turn().main.round, 5, "failed rounds do not count");
        w.wait_ms(900_000);
        w.model_fails(ModelErrorKind::Protocol);
        let letter = letter(&w, task);
        assert_eq!(letter.tried.len(), 3);
        for (tried, word) in letter.tried.iter().zip(["unavailable", "timeout", "protocol"]) {
            assert!(tried.contains(word), "{tried}");
        }
        assert_eq!(letter.since, first, "the first of them failed then");
        let wait_ms = letter.retry_at.map(|at| at.since_ms(w.now).abs_diff(6 * HOUR_MS.unsigned_abs()));
        assert!(wait_ms < Some(10) && wait_ms.is_some());
        let text = w.ending(task).1;
        assert!(text.contains("I tried 3 times") && text.ends_with("I'll try again by myself in 6 hours."), "{text}");
        assert!(w.conv.is_idle());
    }
}

#[test]
fn another_try_goes_on_from_where_the_turn_is() {
    let mut w = World::new();
    let task = w.say_as(Priority::Normal, "Report");
    w.replies("", &[dispatch("a", &[]), dispatch("b", &["a"]), collect(&["a"])]);
    w.agent_replies("a", "found", &[]);
    w.model_fails(ModelErrorKind::Unavailable);
    assert!(w.results().iter().any(|r| r.contains("found")), "{:?}", w.results());
    assert_eq!(w.running(), ["b"], "its agents go on");
    w.agent_replies("b", "done", &[]);
    w.replies("", &[collect(&[])]);
    w.replies("Report", &[]);
    assert_eq!(w.answer(task), "Report");
}

#[test]
fn who_waits_is_told_at_once_and_decides() {
    for class in [Priority::Realtime, Priority::High] {
        let mut w = World::new();
        let task = w.say_as(class, "Hello");
        w.model_fails(ModelErrorKind::Unavailable);
        assert!(strategies(&w).is_empty());
        assert!(matches!(w.finals(task)[0], EventBody::Failed { letter: None, .. }), "{class:?}: {:?}", w.finals(task));
        assert!(!w.ending(task).1.contains("I'll try again"));
    }
}

#[test]
fn retry_of_a_dead_letter_that_a_person_asked_for_is_a_dead_letter_again_when_it_fails() {
    let mut w = World::new();
    let before = vec!["x".to_owned()];
    let retry = Retry { of: TaskId::from_uuid(uuid::Uuid::nil()), since: Micros(0), tried: before, is_outside: false };
    let task = w.receive(Inbound { priority: Priority::High, retry: Some(retry), ..World::inbound("Report") });
    w.model_fails(ModelErrorKind::Unavailable);
    let letter = letter(&w, task);
    assert_eq!((letter.tried.len(), letter.retry_at), (2, None), "kept, and not tried again by itself");
}

#[test]
fn what_would_fail_in_the_same_way_is_not_tried_again_by_itself() {
    for kind in [ModelErrorKind::Content, ModelErrorKind::InvalidRequest, ModelErrorKind::Overflow] {
        let mut w = World::new();
        let task = w.say_as(Priority::Normal, "Report");
        w.model_fails(kind);
        assert!(strategies(&w).is_empty());
        assert_eq!(letter(&w, task).retry_at, None);
    }
    let mut w = World::new();
    let task = w.say_as(Priority::Normal, "Report");
    w.restart(ResumeCause::Crash);
    w.restart(ResumeCause::Crash);
    assert!(w.ending(task).1.starts_with("engine_crashed"));
    assert_eq!(letter(&w, task).retry_at, None, "a message that kills Engines is not given to one again");
}

#[test]
fn a_retrys_failures_count_on_and_stop_before_the_archive_is_due() {
    for (hours, again) in [(6, true), (41, true), (42, false), (47, false)] {
        let mut w = World::new();
        w.now = Micros(0).plus_ms(hours * HOUR_MS);
        let before = Letter { tried: vec!["x".to_owned(), "y".to_owned()], since: Micros(0), retry_at: None };
        let retry = Retry {
            of: TaskId::from_uuid(uuid::Uuid::nil()),
            since: before.since,
            tried: before.tried,
            is_outside: false,
        };
        let inbound = Inbound { priority: Priority::Normal, retry: Some(retry), ..World::inbound("Report") };
        let task = w.receive(inbound);
        for _ in 0..3 {
            w.model_fails(ModelErrorKind::Unavailable);
        }
        let letter = letter(&w, task);
        assert_eq!((letter.since, letter.tried.len()), (Micros(0), 5));
        assert_eq!(letter.tried[..2], ["x", "y"]);
        assert_eq!(letter.retry_at.is_some(), again, "after {hours} h");
        assert_eq!(w.ending(task).1.contains("I'll try again by myself"), again);
    }
}

#[test]
fn a_turn_that_is_put_off_after_failures_is_not_put_off_again_by_its_deadline() {
    let mut w = World::new();
    let task = w.say_as(Priority::Normal, "Report");
    w.model_fails(ModelErrorKind::Unavailable);
    w.model_fails(ModelErrorKind::Unavailable);
    assert_eq!((w.deadline(), w.deadline()), (Some((task, false)), Some((task, true))));
    assert_eq!(letter(&w, task).tried.len(), 3);
}

#[test]
fn a_turn_can_be_cancelled_and_held_back_between_its_tries() {
    let mut w = World::new();
    let task = w.say_as(Priority::Normal, "Report");
    w.model_fails(ModelErrorKind::Unavailable);
    w.suspend(task);
    w.model_fails(ModelErrorKind::Unavailable);
    assert!(w.conv.is_idle());
    w.let_go_on(task);
    assert_eq!(w.turn().deferral.until, Some(w.turn().clock.from));
    w.cancel(task);
    assert_eq!(w.ending(task).0, "cancelled");
}

#[test]
fn each_way_is_tried_once_in_a_turn() {
    let mut w = World::in_mode(Mode::MultiAgent);
    let task = w.say_as(Priority::Normal, "Report");
    w.model_fails(ModelErrorKind::Unavailable);
    w.replies("", &[tool("g", "get_skill", &serde_json::json!({}))]);
    w.model_fails(ModelErrorKind::Unavailable);
    w.replies("", &[tool("h", "get_skill", &serde_json::json!({"domain": "tasks"}))]);
    w.model_fails(ModelErrorKind::Unavailable);
    assert_eq!(strategies(&w), [Strategy::OtherBackend, Strategy::Later]);
    assert_eq!(w.ending(task).0, "failed");
}
