//! Detectors beyond repetition: cycles, nearly equal calls, changing results, cascades of failures, loops after the context was
//! shortened. For each of them: its thresholds and its switch act, and honest work is free.

use serde_json::{Value, json};

use super::super::*;

const FAILED: &str = "[error_permanent] 403 Forbidden";

fn both() -> [LoopGuardLimits; 2] {
    [LoopGuardLimits::annie(), LoopGuardLimits::openclaw()]
}

fn fails(guard: &mut LoopGuard, name: &str, args: &Value) {
    guard.begin_reply();
    guard.record_result(name, args, &Seen::error(FAILED, "http_403"));
}

fn reads(guard: &mut LoopGuard, name: &str, args: &Value, text: &str) {
    guard.begin_reply();
    guard.record_result(name, args, &Seen::plain(text));
}

fn changes(guard: &mut LoopGuard, name: &str, args: &Value) {
    guard.record_result(name, args, &Seen { has_changed: true, ..Seen::plain("Saved.") });
}

fn levels(limits: &LoopGuardLimits, calls: usize, step: impl Fn(&mut LoopGuard, usize) -> Verdict) -> Vec<Verdict> {
    let mut guard = LoopGuard::new(limits.clone());
    (0..calls).map(|n| step(&mut guard, n)).collect()
}

/// The numbers of the first call with a warning and of the first one that is refused, for this detector.
fn first(verdicts: &[Verdict], detector: LoopDetector) -> (Option<usize>, Option<usize>) {
    let at = |level| verdicts.iter().position(|v| v.level == level && v.detector == Some(detector));
    (at(LoopLevel::Warning), at(LoopLevel::Critical))
}

/// Calls of three skills in turn, each with one result.
fn in_a_cycle(limits: &LoopGuardLimits, calls: usize) -> Vec<Verdict> {
    levels(limits, calls, |guard, n| {
        let (name, args) = (["list", "show", "stat"][n % 3], json!({}));
        let verdict = guard.check(name, &args);
        reads(guard, name, &args, name);
        verdict
    })
}

#[test]
fn loop_guard_detects_cycle_of_three_calls_after_its_laps() {
    for limits in both() {
        let verdicts = in_a_cycle(&limits, 40);
        let last_of = |laps: u32| Some(laps as usize * 3 - 1);
        let want = (last_of(limits.cycle_warning_laps), last_of(limits.cycle_critical_laps));
        assert_eq!(first(&verdicts, LoopDetector::Cycle), want);
        let mut other = limits.clone();
        (other.cycle_warning_laps, other.cycle_critical_laps) = (2, 3);
        assert_eq!(first(&in_a_cycle(&other, 40), LoopDetector::Cycle), (Some(5), Some(8)), "the thresholds act");
        other.detectors.cycle = false;
        assert_eq!(first(&in_a_cycle(&other, 40), LoopDetector::Cycle), (None, None), "the switch acts");
    }
}

#[test]
fn loop_guard_only_warns_of_cycle_whose_results_change() {
    let verdicts = levels(&LoopGuardLimits::annie(), 40, |guard, n| {
        let (name, args) = (["a", "b", "c", "d"][n % 4], json!({}));
        let verdict = guard.check(name, &args);
        reads(guard, name, &args, &n.to_string());
        verdict
    });
    assert_eq!(first(&verdicts, LoopDetector::Cycle), (Some(11), None));
}

/// Failing calls, each with one character more than the one before.
fn with_a_growing_address(limits: &LoopGuardLimits, calls: usize) -> Vec<Verdict> {
    levels(limits, calls, |guard, n| {
        let args = json!({"url": format!("http://example.org/watch{}", "x".repeat(n))});
        let verdict = guard.check("web.fetch", &args);
        fails(guard, "web.fetch", &args);
        verdict
    })
}

#[test]
fn loop_guard_detects_calls_that_change_one_character_and_fail() {
    for limits in both() {
        let (warning, critical) = (limits.near_warning_calls as usize, limits.near_critical_calls as usize);
        let verdicts = with_a_growing_address(&limits, 40);
        assert_eq!(first(&verdicts, LoopDetector::NearIdentical), (Some(warning), Some(critical)));
        let mut other = limits.clone();
        (other.near_warning_calls, other.near_critical_calls) = (2, 3);
        assert_eq!(first(&with_a_growing_address(&other, 9), LoopDetector::NearIdentical), (Some(2), Some(3)));
        other.detectors.near_identical = false;
        assert_eq!(first(&with_a_growing_address(&other, 9), LoopDetector::NearIdentical), (None, None));
    }
}

#[test]
fn loop_guard_detects_searches_that_differ_in_number_time_or_id_and_find_nothing() {
    let searches: [fn(usize) -> String; 4] = [
        |n| format!("report  {n}"),
        |n| format!("Report {}", 10_000 + n),
        |n| format!("reports at 2026-02-18T14:{:02}:00Z", 10 + n),
        |n| format!("report of 4f2a91c0-77aa-4c1e-9d2b-00000000{:04}", 1_000 + n),
    ];
    for search in searches {
        let verdicts = levels(&LoopGuardLimits::annie(), 10, |guard, n| {
            let args = json!({"query": search(n)});
            let verdict = guard.check("notes.search", &args);
            reads(guard, "notes.search", &args, "Found no notes.");
            verdict
        });
        assert_eq!(first(&verdicts, LoopDetector::NearIdentical), (Some(4), Some(7)), "{}", search(1));
    }
}

#[test]
fn loop_guard_detects_calls_that_differ_in_the_time_only_and_have_one_result() {
    let verdicts = levels(&LoopGuardLimits::annie(), 10, |guard, n| {
        let args = json!({"at": format!("14:{:02}", 10 + n), "request_id": n});
        let verdict = guard.check("weather.get", &args);
        reads(guard, "weather.get", &args, "Sunny.");
        verdict
    });
    assert_eq!(first(&verdicts, LoopDetector::NearIdentical), (Some(4), Some(7)));
}

/// The same call, with another result each time.
fn with_changing_results(limits: &LoopGuardLimits, calls: usize, name: &str) -> Vec<Verdict> {
    levels(limits, calls, |guard, n| {
        let verdict = guard.check(name, &json!({}));
        reads(guard, name, &json!({}), &n.to_string());
        verdict
    })
}

#[test]
fn loop_guard_refuses_equal_calls_in_a_row_whose_results_change() {
    for limits in both() {
        let calls = limits.changing_calls as usize;
        let verdicts = with_changing_results(&limits, 60, "dice.roll");
        assert_eq!(first(&verdicts, LoopDetector::ChangingResult), (None, Some(calls)));
        let other = LoopGuardLimits { changing_calls: 6, ..limits.clone() };
        let verdicts = with_changing_results(&other, 60, "dice.roll");
        assert_eq!(first(&verdicts, LoopDetector::ChangingResult), (None, Some(6)));
        let mut off = other;
        off.detectors.changing_result = false;
        assert_eq!(first(&with_changing_results(&off, 60, "dice.roll"), LoopDetector::ChangingResult), (None, None));
    }
}

/// Failures of two skills, with other arguments each time.
fn in_a_cascade(limits: &LoopGuardLimits, calls: usize) -> Vec<Verdict> {
    let words = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett"];
    levels(limits, calls, |guard, n| {
        let (name, args) = (["web.fetch", "web.find"][n % 2], json!({"q": words[n % 10].repeat(1 + n / 10)}));
        let verdict = guard.check(name, &args);
        fails(guard, name, &args);
        verdict
    })
}

#[test]
fn loop_guard_detects_failures_of_several_skills_in_a_row() {
    for limits in both() {
        let (warning, critical) = (limits.cascade_warning_calls as usize, limits.cascade_critical_calls as usize);
        let mut limits = limits;
        limits.detectors.near_identical = false;
        assert_eq!(first(&in_a_cascade(&limits, 30), LoopDetector::ErrorCascade), (Some(warning), Some(critical)));
        (limits.cascade_warning_calls, limits.cascade_critical_calls) = (2, 3);
        assert_eq!(first(&in_a_cascade(&limits, 30), LoopDetector::ErrorCascade), (Some(2), Some(3)));
        limits.detectors.error_cascade = false;
        assert_eq!(first(&in_a_cascade(&limits, 30), LoopDetector::ErrorCascade), (None, None));
    }
}

#[test]
fn loop_guard_counts_failures_of_one_reply_as_one() {
    let mut guard = LoopGuard::default();
    for n in 0..20 {
        let args = json!({"url": format!("http://example.org/page-{n}")});
        guard.record_result(["web.fetch", "web.find"][n % 2], &args, &Seen::error(FAILED, "http_403"));
    }
    assert_eq!(guard.check("web.fetch", &json!({"url": "http://example.org/page-21"})), Verdict::default());
}

#[test]
fn loop_guard_lets_a_skill_that_has_not_failed_be_tried_after_a_cascade() {
    let mut guard = LoopGuard::default();
    for n in 0..10 {
        fails(&mut guard, ["a", "b"][n % 2], &json!({"n": n, "what": "that"}));
    }
    assert_eq!(guard.check("a", &json!({"other": "thing"})).level, LoopLevel::Critical);
    assert_eq!(guard.check("c", &json!({})), Verdict::default());
    reads(&mut guard, "c", &json!({}), "It works.");
    assert_ne!(guard.check("a", &json!({"other": "thing"})).detector, Some(LoopDetector::ErrorCascade));
}

#[test]
fn loop_guard_refuses_the_same_call_after_a_failure_that_lasts() {
    let url = json!({"url": "http://example.org/watch"});
    for (limits, refuses) in [(LoopGuardLimits::annie(), true), (LoopGuardLimits::openclaw(), false)] {
        let mut guard = LoopGuard::new(limits.clone());
        fails(&mut guard, "web.fetch", &url);
        assert_eq!(guard.check("web.fetch", &url).detector == Some(LoopDetector::KnownFailure), refuses);
        assert_eq!(guard.check("web.fetch", &json!({"url": "other"})), Verdict::default());
        let mut off = limits;
        (off.known_failure_calls, off.detectors.known_failure) = (1, false);
        let mut guard = LoopGuard::new(off);
        fails(&mut guard, "web.fetch", &url);
        assert_eq!(guard.check("web.fetch", &url), Verdict::default(), "the switch acts");
    }
    let mut guard = LoopGuard::default();
    guard.record_result("web.fetch", &url, &Seen::error("slow", "timeout"));
    assert_eq!(guard.check("web.fetch", &url), Verdict::default(), "a timeout passes");
    fails(&mut guard, "web.fetch", &url);
    changes(&mut guard, "web.login", &json!({}));
    assert_eq!(guard.check("web.fetch", &url), Verdict::default(), "a change may have opened the page");
}

/// The same call with the same result after the context was shortened.
fn after_compaction(limits: &LoopGuardLimits) -> (Verdict, bool) {
    let mut guard = LoopGuard::new(limits.clone());
    reads(&mut guard, "list", &json!({}), "same");
    guard.context_was_shortened();
    for _ in 0..limits.compaction_calls {
        assert_ne!(guard.check("list", &json!({})).detector, Some(LoopDetector::CompactionLoop));
        reads(&mut guard, "list", &json!({}), "same");
    }
    let verdict = guard.check("list", &json!({}));
    guard.veto("list", &json!({}));
    guard.count_once(0);
    (verdict, guard.is_spent())
}

#[test]
fn loop_guard_ends_the_run_that_repeats_itself_after_its_context_was_shortened() {
    for calls in [3, 4] {
        let mut limits = LoopGuardLimits { compaction_calls: calls, ..LoopGuardLimits::openclaw() };
        let (verdict, is_spent) = after_compaction(&limits);
        assert_eq!((verdict.detector, verdict.count), (Some(LoopDetector::CompactionLoop), calls as usize));
        assert!(is_spent, "the first refusal ends the run");
        limits.detectors.compaction_loop = false;
        let (verdict, is_spent) = after_compaction(&limits);
        assert_eq!((verdict.level, is_spent), (LoopLevel::Ok, false));
    }
    let mut guard = LoopGuard::default();
    guard.context_was_shortened();
    for n in 0..3 {
        reads(&mut guard, "list", &json!({ "page": n }), "same");
    }
    assert_eq!(guard.check("list", &json!({"page": 2})).level, LoopLevel::Ok, "other calls are work");
}

#[test]
fn loop_guard_switches_and_thresholds_of_the_older_detectors_act() {
    let same = |limits: &LoopGuardLimits, name: &str, n: usize| {
        let mut guard = LoopGuard::new(limits.clone());
        (0..n).for_each(|_| reads(&mut guard, name, &json!({}), "same"));
        guard.check(name, &json!({}))
    };
    let mut limits = LoopGuardLimits::annie();
    limits.detectors.generic_repeat = false;
    assert_eq!(same(&limits, "a", 7), Verdict::default());
    assert_eq!(same(&limits, "a", 8).detector, Some(LoopDetector::GlobalCircuitBreaker));
    limits.breaker_calls = 6;
    assert_eq!(same(&limits, "a", 6).detector, Some(LoopDetector::GlobalCircuitBreaker));
    limits.detectors.global_circuit_breaker = false;
    assert_eq!(same(&limits, "a", 20), Verdict::default());
    let short = LoopGuardLimits { window_calls: 8, ..LoopGuardLimits::annie() };
    assert_eq!(LoopGuard::new(short).limits.window_calls, 16, "every threshold can be reached");

    let unknown = |limits: &LoopGuardLimits| {
        let mut guard = LoopGuard::new(limits.clone());
        for _ in 0..4 {
            guard.record("invented", &json!({}), Some("no such tool"), true);
        }
        guard.verdict("invented", &json!({}), true).detector
    };
    let mut limits = LoopGuardLimits { critical_calls: 9, warning_calls: 8, ..LoopGuardLimits::annie() };
    assert_eq!(unknown(&limits), Some(LoopDetector::UnknownToolRepeat));
    limits.unknown_tool_calls = 5;
    assert_eq!(unknown(&limits), None);
    limits.unknown_tool_calls = 3;
    limits.detectors.unknown_tool_repeat = false;
    assert_eq!(unknown(&limits), None);

    let mut limits = LoopGuardLimits::annie();
    limits.detectors.ping_pong = false;
    let mut guard = LoopGuard::new(limits);
    for n in 0..4 {
        reads(&mut guard, ["a", "b"][n % 2], &json!({}), "same");
    }
    assert_eq!(guard.check("a", &json!({})), Verdict::default());
    let mut patient = LoopGuard::new(LoopGuardLimits { vetoes_max: 3, ..LoopGuardLimits::annie() });
    patient.veto("a", &json!({}));
    patient.veto("a", &json!({}));
    assert!(!patient.is_spent(), "vetoes_max acts");
}

// Honest work

#[test]
fn loop_guard_is_silent_about_a_pass_over_fifteen_files() {
    for limits in both() {
        let verdicts = levels(&limits, 45, |guard, n| {
            let (pass, file) = (n / 15, n % 15 + 1);
            let (name, args) = (["read", "lint", "write"][pass], json!({"path": format!("notes/file-{file}.md")}));
            let verdict = guard.check(name, &args);
            match name {
                "read" => reads(guard, name, &args, &format!("text of file {file}")),
                "lint" => reads(guard, name, &args, "OK"),
                _ => changes(guard, name, &args),
            }
            verdict
        });
        assert!(verdicts.iter().all(|v| v.level == LoopLevel::Ok), "{verdicts:?}");
    }
}

#[test]
fn loop_guard_is_silent_about_an_edit_test_edit_cycle() {
    for limits in both() {
        let verdicts = levels(&limits, 30, |guard, n| {
            let (name, args) = match n % 2 {
                0 => ("notes.edit", json!({"file": "main.rs", "text": format!("attempt {n}")})),
                _ => ("tests.run", json!({})),
            };
            let verdict = guard.check(name, &args);
            match name {
                "notes.edit" => changes(guard, name, &args),
                _ => guard.record_result(name, &args, &Seen::error("1 test failed", "program_failed")),
            }
            verdict
        });
        assert!(verdicts.iter().all(|v| v.level == LoopLevel::Ok), "{verdicts:?}");
    }
}

#[test]
fn loop_guard_is_silent_about_a_poller() {
    let progress = levels(&LoopGuardLimits::annie(), 60, |guard, n| {
        let verdict = guard.check("builds.status", &json!({"build": 7}));
        reads(guard, "builds.status", &json!({"build": 7}), &format!("{n} % done"));
        verdict
    });
    assert!(progress.iter().all(|v| v.level == LoopLevel::Ok), "a poll that sees changes: {progress:?}");
    for pattern in ["builds.watch", "builds.*"] {
        let limits = LoopGuardLimits { pollers: vec![pattern.to_owned()], ..LoopGuardLimits::annie() };
        let declared = levels(&limits, 60, |guard, _| {
            let verdict = guard.check("builds.watch", &json!({}));
            reads(guard, "builds.watch", &json!({}), "running");
            verdict
        });
        assert!(declared.iter().all(|v| v.level == LoopLevel::Ok), "{pattern}: {declared:?}");
    }
    let plain = with_changing_results(&LoopGuardLimits::annie(), 20, "builds.watch");
    assert!(plain.iter().any(|v| v.level == LoopLevel::Critical), "a skill that is not listed is judged");
}

// The guard of the conversation

#[test]
fn loop_guard_of_next_turn_knows_failures_and_no_successes() {
    let mut conversation = LoopGuard::default();
    let mut turn = conversation.begin(LoopGuardLimits::annie());
    for _ in 0..5 {
        fails(&mut turn, "web.fetch", &json!({"url": "x"}));
        reads(&mut turn, "tasks.list", &json!({}), "same");
    }
    turn.veto("web.fetch", &json!({"url": "x"}));
    conversation.absorb(&turn);
    let mut next = conversation.begin(LoopGuardLimits::annie());
    assert_eq!(next.check("tasks.list", &json!({})), Verdict::default(), "a user may ask again");
    let first = next.check("web.fetch", &json!({"url": "x"}));
    assert_eq!((first.level, next.vetoes()), (LoopLevel::Warning, 0), "it may work now: {first:?}");
    fails(&mut next, "web.fetch", &json!({"url": "x"}));
    assert_eq!(next.check("web.fetch", &json!({"url": "x"})).level, LoopLevel::Critical, "it does not");

    conversation.pause(&turn);
    let resumed = conversation.resume(LoopGuardLimits::annie());
    assert_eq!((resumed.vetoes(), resumed.check("tasks.list", &json!({})).level), (1, LoopLevel::Critical));

    let mut works = conversation.begin(LoopGuardLimits::annie());
    reads(&mut works, "web.fetch", &json!({"url": "x"}), "page");
    conversation.absorb(&works);
    let after = conversation.begin(LoopGuardLimits::annie());
    assert_eq!(after.check("web.fetch", &json!({"url": "x"})), Verdict::default(), "a success clears its failures");
}

#[test]
fn loop_guard_of_an_agent_knows_failures_of_the_agents_before_it() {
    let mut first = LoopGuard::default();
    for _ in 0..4 {
        fails(&mut first, "web.fetch", &json!({"url": "x"}));
    }
    let mut main = LoopGuard::default();
    reads(&mut main, "dispatch_agent", &json!({}), "accepted");
    main.learn(&first.own_failed_calls());
    let mut second = main.begin(LoopGuardLimits::annie());
    assert_eq!(second.check("web.fetch", &json!({"url": "x"})).level, LoopLevel::Warning);
    fails(&mut second, "web.fetch", &json!({"url": "x"}));
    assert_eq!(second.check("web.fetch", &json!({"url": "x"})).level, LoopLevel::Critical);
    assert_eq!(second.own_failed_calls().len(), 1, "it reports its own failures only");
}

// Hashes

#[test]
fn loop_guard_ignores_parts_of_structured_results_that_differ_from_run_to_run() {
    let hash = |text: &str, has_changed| result_hash(&Seen { has_changed, ..Seen::plain(text) });
    let same = |a: &str, b: &str, has_changed| hash(a, has_changed) == hash(b, has_changed);
    assert!(same(r#"{"out":"x","duration_ms":3,"pid":9}"#, r#"{"pid":10,"duration_ms":4,"out":"x"}"#, false));
    assert!(!same(r#"{"out":"x"}"#, r#"{"out":"y"}"#, false));
    let (a, b) = (r#"{"message_id":1,"id":5,"text":"hi"}"#, r#"{"message_id":2,"id":6,"text":"hi"}"#);
    assert!(same(a, b, true), "ids of what was sent");
    assert!(!same(a, b, false), "a search that finds other messages has another result");
    assert!(!same(r#"{"id":5}"#, r#"{"id":6}"#, true), "an id of something else is a result");
    let error = result_hash(&Seen::error("x", "timeout"));
    assert!(error.starts_with("error:") && error != hash("x", false));
}

#[test]
fn loop_guard_of_a_new_turn_forgets_failures_before_a_change_and_judges_each_call_by_its_own_record() {
    for limits in both() {
        let (u, v) = (json!({"url": "https://a.test/u"}), json!({"url": "https://b.test/other/page"}));
        let mut run = LoopGuard::new(limits.clone());
        (0..6).for_each(|_| fails(&mut run, "fetch", &u));
        let mut conversation = LoopGuard::new(limits.clone());
        conversation.absorb(&run);
        let mut next = conversation.begin(limits.clone());
        reads(&mut next, "fetch", &v, "other");
        assert_ne!(next.check("fetch", &u).level, LoopLevel::Critical, "its failure is of an earlier turn");

        changes(&mut run, "login", &json!({}));
        let mut conversation = LoopGuard::new(limits.clone());
        conversation.absorb(&run);
        assert_eq!(
            conversation.begin(limits.clone()).check("fetch", &u).level,
            LoopLevel::Ok,
            "a change came after it"
        );
    }
}

#[test]
fn failed_call_that_works_again_is_no_failure_for_others() {
    let limits = LoopGuardLimits::annie();
    let (mut run, u) = (LoopGuard::new(limits), json!({"url": "u"}));
    fails(&mut run, "fetch", &u);
    assert_eq!((run.failed_calls().count(), run.own_failed_calls().len()), (1, 1));
    changes(&mut run, "login", &json!({}));
    reads(&mut run, "fetch", &u, "text");
    assert_eq!((run.failed_calls().count(), run.own_failed_calls().len()), (0, 0));
}

#[test]
fn vetoes_of_a_paused_run_are_kept_when_another_turn_ends() {
    let limits = LoopGuardLimits::annie();
    let (mut conversation, mut paused) = (LoopGuard::new(limits.clone()), LoopGuard::new(limits.clone()));
    paused.vetoes = 1;
    conversation.absorb(&paused);
    conversation.pause(&paused);
    let mut other = LoopGuard::new(limits.clone());
    other.vetoes = u32::MAX;
    conversation.absorb(&other);
    assert_eq!(conversation.resume(limits).vetoes, 1);
}
