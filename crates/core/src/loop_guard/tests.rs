//! Boundary cases of every detector, in both presets.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

mod patterns;

fn guard(limits: LoopGuardLimits, calls: &[(&str, i32, Option<&str>)]) -> LoopGuard {
    let mut guard = LoopGuard::new(limits);
    for (name, arg, result) in calls {
        // Written directly to the window: results must not be added to earlier open records here.
        let args = json!({ "n": arg });
        let call = Call::of(name, &args);
        let result_hash = result.map(|r| result_hash(&Seen::plain(r)));
        let record = CallRecord { result_hash, ..CallRecord::of(&call) };
        guard.remember(record);
    }
    guard
}

fn sent(guard: &LoopGuard, name: &str, arg: i32) -> (LoopLevel, Option<LoopDetector>, usize) {
    let verdict = guard.check(name, &json!({ "n": arg }));
    assert_eq!(verdict.message.is_empty(), verdict.level == LoopLevel::Ok);
    (verdict.level, verdict.detector, verdict.count)
}

/// Judges a call as a run does, which counts the veto.
fn judge(guard: &mut LoopGuard, name: &str, args: &Value) -> Verdict {
    let verdict = guard.verdict(name, args, false);
    if verdict.level == LoopLevel::Critical {
        guard.veto(name, args);
    }
    verdict
}

const OK: (LoopLevel, Option<LoopDetector>, usize) = (LoopLevel::Ok, None, 0);

fn warns(detector: LoopDetector, count: usize) -> (LoopLevel, Option<LoopDetector>, usize) {
    (LoopLevel::Warning, Some(detector), count)
}

fn stops(detector: LoopDetector, count: usize) -> (LoopLevel, Option<LoopDetector>, usize) {
    (LoopLevel::Critical, Some(detector), count)
}

fn presets() -> [(LoopGuardLimits, usize, usize, usize); 2] {
    [(LoopGuardLimits::annie(), 3, 5, 8), (LoopGuardLimits::openclaw(), 10, 20, 30)]
}

#[test]
fn loop_guard_vetoes_repeated_call_only_without_progress() {
    use LoopDetector::{GenericRepeat, GlobalCircuitBreaker};
    for (limits, warn, block, breaker) in presets() {
        let seen = |n: usize| sent(&guard(limits.clone(), &vec![("a", 1, Some("same")); n]), "a", 1);
        assert_eq!(seen(warn - 1), OK);
        assert_eq!(seen(warn), warns(GenericRepeat, warn));
        assert_eq!(seen(block - 1), warns(GenericRepeat, block - 1));
        assert_eq!(seen(block), stops(GenericRepeat, block));
        assert_eq!(seen(breaker), stops(GlobalCircuitBreaker, breaker));

        let results: Vec<String> = (0..breaker).map(|n| n.to_string()).collect();
        let calls: Vec<_> = results.iter().map(|r| ("a", 1, Some(r.as_str()))).collect();
        let moving = guard(limits.clone(), &calls);
        assert_eq!(sent(&moving, "a", 1), warns(GenericRepeat, breaker), "results that change are progress");
        assert_eq!(sent(&moving, "a", 2), OK, "other arguments are another call");
        assert_eq!(sent(&moving, "b", 1), OK);
    }
}

#[test]
fn loop_guard_keeps_what_it_learns_beside_a_full_window() {
    let limits = LoopGuardLimits::annie();
    let window = limits.window_calls as usize;
    let others = guard(limits.clone(), &vec![("known", 7, Some("broken")); window]);
    let failed: Vec<CallRecord> = others.calls.iter().cloned().collect();
    let calls: Vec<(&str, i32, Option<&str>)> = (0..window).map(|n| ("own", n as i32, Some("ok"))).collect();
    let mut full = guard(limits, &calls);
    full.learn(&failed);
    let count = |name: &str| full.calls.iter().filter(|record| record.name == name).count();
    assert_eq!((full.calls.len(), count("known"), count("own")), (window, window / 2, window - window / 2));
    assert!(full.calls.iter().take(window / 2).all(|record| record.is_earlier), "they are older than all own calls");
}

#[test]
fn loop_guard_different_result_resets_streak() {
    let mut calls = vec![("a", 1, Some("same")); 5];
    calls.push(("a", 1, Some("new")));
    assert_eq!(sent(&guard(LoopGuardLimits::annie(), &calls), "a", 1), warns(LoopDetector::GenericRepeat, 6));
    calls.extend([("b", 1, Some("x")), ("a", 1, None), ("a", 1, Some("new"))]);
    let verdict = guard(LoopGuardLimits::annie(), &calls).check("a", &json!({"n": 1}));
    assert_eq!(
        verdict.level,
        LoopLevel::Warning,
        "unanswered and other calls are passed over, two of `new` are no streak"
    );
}

#[test]
fn loop_guard_detects_polling_without_progress() {
    use LoopDetector::KnownPollNoProgress;
    for (limits, warn, block, _) in presets() {
        for name in ["command_status", "jobs.status", "backup_poll"] {
            let seen = |n: usize| sent(&guard(limits.clone(), &vec![(name, 1, Some("running")); n]), name, 1);
            assert_eq!(seen(warn - 1), OK);
            assert_eq!(seen(warn), warns(KnownPollNoProgress, warn));
            assert_eq!(seen(block), stops(KnownPollNoProgress, block));
        }
        let mut off = limits.clone();
        off.detectors.known_poll_no_progress = false;
        let seen = guard(off, &vec![("command_status", 1, Some("running")); block]);
        assert_eq!(sent(&seen, "command_status", 1).0, LoopLevel::Warning, "the plain detector never stops a poll");
    }
    assert!(is_poll("process", &json!({"action": "poll"})) && !is_poll("process", &json!({"action": "kill"})));
}

#[test]
fn loop_guard_detects_alternating_calls_without_progress() {
    use LoopDetector::PingPong;
    let turns = |n: usize, changing: bool| -> Vec<(&'static str, i32, Option<&'static str>)> {
        (0..n)
            .map(|i| {
                let (name, result) = if i % 2 == 0 { ("a", "x") } else { ("b", "y") };
                (name, 0, Some(if changing && i == n - 1 { "z" } else { result }))
            })
            .collect()
    };
    let next = |n: usize| if n.is_multiple_of(2) { "a" } else { "b" };
    for (limits, warn, block, _) in presets() {
        let warn = warn.max(limits.ping_pong_calls as usize);
        let seen = |n: usize, changing| sent(&guard(limits.clone(), &turns(n, changing)), next(n), 0);
        assert_eq!(seen(warn - 2, false), OK);
        assert_eq!(seen(warn - 1, false), warns(PingPong, warn));
        assert_eq!(seen(block - 2, false).0, LoopLevel::Warning);
        assert_eq!(seen(block - 1, false), stops(PingPong, block));
        assert_eq!(seen(block - 1, true), warns(PingPong, block), "one changed result is progress");
        let mut unanswered = turns(block - 1, false);
        unanswered[0].2 = None;
        assert_eq!(sent(&guard(limits.clone(), &unanswered), next(block - 1), 0).0, LoopLevel::Warning);
        assert_ne!(sent(&guard(limits.clone(), &turns(block - 1, false)), "c", 0).1, Some(PingPong));
    }
}

#[test]
fn loop_guard_vetoes_unknown_tool_whatever_its_arguments() {
    for (limits, _, _, _) in presets() {
        let most = limits.unknown_tool_calls as usize;
        let mut guard = LoopGuard::new(limits);
        for n in 0..most {
            assert_eq!(sent(&guard, "invented", 1_000), OK);
            guard.record("invented", &json!({ "n": n }), Some("no such tool"), true);
        }
        assert_eq!(sent(&guard, "invented", 1_000), stops(LoopDetector::UnknownToolRepeat, most));
        assert_eq!(sent(&guard, "other", 1_000), OK);
        judge(&mut guard, "invented", &json!({}));
        assert_eq!(
            guard.check("invented", &json!({})).level,
            LoopLevel::Critical,
            "a veto does not end the run of them"
        );
        guard.record("real", &json!({}), Some("fine"), false);
        assert_eq!(sent(&guard, "invented", 1_000), OK);
    }
}

#[test]
fn loop_guard_warns_of_argument_churn() {
    let of = |variants: i32, laps: usize, result: &'static str| -> Vec<(&'static str, i32, Option<&'static str>)> {
        (0..laps).flat_map(|_| (0..variants).map(move |v| ("search", v, Some(result)))).collect()
    };
    let openclaw = LoopGuardLimits::openclaw;
    assert_eq!(sent(&guard(openclaw(), &of(3, 3, "none")), "search", 0), OK, "nine calls");
    assert_eq!(sent(&guard(openclaw(), &of(3, 4, "none")), "search", 0), warns(LoopDetector::ArgumentChurn, 12));
    assert_eq!(sent(&guard(openclaw(), &of(3, 4, "none")), "search", 9), OK, "a new variant is a new idea");
    assert_eq!(sent(&guard(openclaw(), &of(15, 2, "read")), "search", 0), OK, "two passes over fifteen files");
    let mut off = openclaw();
    off.detectors.argument_churn = false;
    assert_eq!(sent(&guard(off, &of(3, 4, "none")), "search", 0), OK);
}

#[test]
fn loop_guard_is_spent_after_two_vetoes_and_veto_is_no_progress() {
    let mut guard = guard(LoopGuardLimits::annie(), &[("a", 1, Some("same")); 5]);
    let args = json!({"n": 1});
    assert_eq!(guard.check("a", &args).level, LoopLevel::Critical);
    assert_eq!((guard.vetoes(), guard.is_spent()), (0, false), "a look changes nothing");
    judge(&mut guard, "a", &args);
    assert_eq!((guard.vetoes(), guard.is_spent()), (1, false));
    assert_eq!(judge(&mut guard, "a", &args).count, 5, "the veto has no result and does not count as one");
    assert!(guard.is_spent());
}

#[test]
fn loop_guard_detects_ping_pong_after_vetoed_call_is_replaced() {
    let calls: Vec<_> = (0..4).map(|i| if i % 2 == 0 { ("a", 0, Some("x")) } else { ("b", 0, Some("y")) }).collect();
    let mut guard = guard(LoopGuardLimits::annie(), &calls);
    assert_eq!(judge(&mut guard, "a", &json!({"n": 0})).level, LoopLevel::Critical);
    assert_eq!(judge(&mut guard, "b", &json!({"n": 0})).detector, Some(LoopDetector::PingPong));
    assert!(guard.is_spent());
}

#[test]
fn loop_guard_adds_result_to_open_call() {
    let mut guard = LoopGuard::default();
    for _ in 0..5 {
        guard.record("a", &json!({}), None, false);
    }
    assert_eq!(guard.check("a", &json!({})).level, LoopLevel::Warning);
    for _ in 0..5 {
        guard.record("a", &json!({}), Some("same"), false);
    }
    assert_eq!((guard.calls.len(), guard.check("a", &json!({})).level), (5, LoopLevel::Critical));
}

#[test]
fn loop_guard_limits_correct_unusable_values() {
    let read = |text: &str| serde_json::from_str::<LoopGuardLimits>(text).map(LoopGuardLimits::corrected);
    let of = |text: &str| {
        let l = read(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        (l.window_calls, l.warning_calls, l.critical_calls, l.breaker_calls)
    };
    assert_eq!(of("{}"), (20, 3, 5, 8));
    assert_eq!(of(r#"{"warning_calls": 7, "critical_calls": 7}"#), (20, 7, 8, 9));
    assert_eq!(of(r#"{"warning_calls": 0, "critical_calls": 0, "breaker_calls": 2}"#), (20, 3, 5, 6));
    assert_eq!(of(r#"{"window_calls": 4, "breaker_calls": 40}"#), (40, 3, 5, 40));
    assert_eq!(of(r#"{"warning_calls": 4000000000}"#), (1_000, 998, 999, 1_000));
    assert!(read(r#"{"windw": 3}"#).is_err());
    assert_eq!(LoopGuardLimits::openclaw(), LoopGuardLimits::openclaw().corrected());
    let off = LoopGuardLimits { enabled: false, ..LoopGuardLimits::annie() };
    assert_eq!(sent(&guard(off, &[("a", 1, Some("same")); 9]), "a", 1), OK);
}

#[test]
fn loop_guard_hashes_equal_arguments_equally() {
    let (a, b): (Value, Value) =
        (json!({"x": {"p": 1, "q": [2, null]}, "y": "t"}), json!({"y": "t", "x": {"q": [2, null], "p": 1}}));
    assert_eq!(args_hash(&a), args_hash(&b));
    assert_eq!(args_hash(&json!("x".repeat(1_000_000))).len(), 16);
    for (a, b) in
        [(json!({"a": 1}), json!({"a": "1"})), (json!([1, 2]), json!([2, 1])), (json!(["a,b"]), json!(["a", "b"]))]
    {
        assert_ne!(args_hash(&a), args_hash(&b));
    }
}

proptest! {
    #[test]
    fn loop_guard_round_trips_through_json_and_window_is_bounded(
        calls in prop::collection::vec((0..3_u8, 0..3_u8, prop::option::of(0..3_u8), any::<bool>()), 0..80)
    ) {
        let mut guard = LoopGuard::default();
        for (name, arg, result, unknown) in calls {
            let (name, args) = (format!("t{name}"), json!({ "n": arg }));
            let before = guard.vetoes();
            let verdict = judge(&mut guard, &name, &args);
            prop_assert_eq!(guard.vetoes() - before, u32::from(verdict.level == LoopLevel::Critical));
            if verdict.level != LoopLevel::Critical {
                guard.record(&name, &args, result.map(|r| r.to_string()).as_deref(), unknown);
            }
            prop_assert!(guard.calls.len() <= 20);
            let text = serde_json::to_string(&guard).map_err(|e| TestCaseError::fail(e.to_string()))?;
            let back: LoopGuard = serde_json::from_str(&text).map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert_eq!(&back, &guard);
        }
    }
}
