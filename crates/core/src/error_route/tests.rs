//! The chain of each kind of error, what extends it, and what the kernel does by itself.

use serde_json::Value;

use super::*;
use crate::{
    dead_letter::Strategy,
    message::{ModelError, ModelErrorKind},
};

fn spec(name: &str, alternatives: &[&str]) -> SkillSpec {
    SkillSpec {
        name: name.to_owned(),
        domain: name.split('.').next().unwrap_or_default().to_owned(),
        description: "A skill.".to_owned(),
        body: String::new(),
        args: Vec::new(),
        effect: Effect::Read,
        external: true,
        timeout_ms: 30_000,
        alternatives: alternatives.iter().map(|name| (*name).to_owned()).collect(),
        fallback: std::collections::BTreeMap::new(),
        is_ready: false,
        format: crate::skill::SkillFormat::Command,
        source: "bundled".to_owned(),
    }
}

/// The steps that follow failures of one kind, until the failure is reported.
fn steps(rules: &ErrorRules, outcome: &Outcome, granted: Option<&Granted<'_>>) -> Vec<&'static str> {
    let mut steps = Vec::new();
    for before in 0..20 {
        let routed = route(rules, &Failure { skill: "web.fetch", outcome, before }, granted).expect("it failed");
        steps.push(routed.step.as_str());
        if routed.step == Step::Report {
            break;
        }
    }
    steps
}

#[test]
fn router_follows_the_chain_of_each_kind_and_reports_at_its_end() {
    let rules = ErrorRules::default();
    for (code, chain) in [
        ("http_403", &["try_alternative_url", "try_alternative_source", "report_failure"][..]),
        ("site_403", &["try_alternative_url", "try_alternative_source", "report_failure"]),
        ("http_404", &["search_for_url", "report_failure"]),
        ("http_429", &["backoff_retry", "report_failure"]),
        ("timeout", &["retry_once", "try_simpler_request", "report_failure"]),
        ("parse_error", &["retry_with_different_parser", "return_raw", "report_failure"]),
        ("empty_result", &["broaden_query", "try_alternative_source", "report_failure"]),
        ("too_large", &["try_simpler_request", "report_failure"]),
        ("cancelled", &["report_failure"]),
    ] {
        assert_eq!(steps(&rules, &Outcome::permanent(code, "no"), None), chain, "{code}");
    }
    assert_eq!(steps(&rules, &Outcome::blocked("ssrf_blocked", "no"), None), ["report_failure"]);
    assert_eq!(steps(&rules, &Outcome::unknown("?", Value::Null), None), ["report_failure"]);
    assert_eq!(route(&rules, &Failure { skill: "a", outcome: &Outcome::success(""), before: 0 }, None), None);
}

#[test]
fn router_names_only_alternatives_that_exist_are_granted_and_have_not_failed() {
    let skills = [
        spec("web.fetch", &["web.gone", "web.secret", "web.mirror"]),
        spec("web.mirror", &[]),
        spec("web.secret", &[]),
        spec("web.cache", &[]),
    ]
    .into_iter();
    let skills = SkillSet::new(skills, [], 1);
    let mut rules = ErrorRules::default();
    rules.alternatives.insert("web.fetch".to_owned(), vec!["web.cache".to_owned()]);
    let outcome = Outcome::permanent("site_403", "no");
    let names = |has_failed: &dyn Fn(&str) -> bool| {
        let granted = Granted { skills: &skills, may_run: &|spec| spec.name != "web.secret", has_failed };
        let failure = Failure { skill: "web.fetch", outcome: &outcome, before: 0 };
        route(&rules, &failure, Some(&granted))
            .map(|routed| (routed.step, routed.skills, routed.hint))
            .expect("it failed")
    };
    let (step, skills, hint) = names(&|_| false);
    assert_eq!((step, skills), (Step::OtherSkill, vec!["web.mirror".to_owned(), "web.cache".to_owned()]));
    assert_eq!(hint, "Use web.mirror for this instead, or web.cache. Do not call the same again.");
    assert_eq!(names(&|name| name == "web.mirror").1, ["web.cache"]);
    assert_eq!(names(&|_| true).0, Step::OtherAddress, "without an alternative the chain goes on");
}

#[test]
fn router_hint_names_a_skill_that_exists_is_granted_and_has_not_failed() {
    let local = |name: &str| SkillSpec { external: false, ..spec(name, &[]) };
    let all = ["web.fetch", "web.search", "python.run", "notes.search", "memory.search"];
    let of = |name: &&str| if name.starts_with("web.") { spec(name, &[]) } else { local(name) };
    let hint = |skill: &str, code: &str, before: u32, known: &[&str], has_failed: &dyn Fn(&str) -> bool| {
        let skills = SkillSet::new(known.iter().map(of), [], 1);
        let granted = Granted { skills: &skills, may_run: &|spec| spec.name != "memory.search", has_failed };
        let outcome = Outcome::permanent(code, "no");
        route(&ErrorRules::default(), &Failure { skill, outcome: &outcome, before }, Some(&granted))
            .expect("it failed")
            .hint
    };
    for (skill, code, before, with, without) in [
        (
            "web.fetch",
            "site_403",
            0,
            "Look for another address of the same thing with web.search.",
            "Try another address for the same thing.",
        ),
        (
            "web.fetch",
            "site_403",
            1,
            "Look in another place, with web.search.",
            "Work it out in another way, without this source.",
        ),
        (
            "web.fetch",
            "site_404",
            0,
            "Look for the right address with web.search first.",
            "Look for the right address first.",
        ),
        (
            "web.fetch",
            "parse_error",
            0,
            "Ask for it in another form, or read it with python.run.",
            "Ask for it in another form.",
        ),
        ("notes.search", "empty_result", 1, "Look in another place.", "Look in another place."),
        ("web.search", "empty_result", 1, "Look in another place, with notes.search.", "Look in another place."),
    ] {
        assert_eq!(hint(skill, code, before, &all, &|_| false), with, "{skill} {code}");
        assert_eq!(hint(skill, code, before, &[skill], &|_| false), without, "{skill} {code}");
        assert_eq!(hint(skill, code, before, &all, &|_| true), without, "{skill} {code}: what failed is not named");
    }
}

#[test]
fn router_takes_the_chain_of_the_skill_then_of_the_configuration() {
    let outcome = Outcome::permanent("http_404", "no");
    let mut rules = ErrorRules::default();
    rules.chains.insert(ErrorKind::Http404, vec![Step::Broaden]);
    assert_eq!(steps(&rules, &outcome, None), ["broaden_query", "report_failure"]);
    let mut own = spec("web.fetch", &[]);
    own.fallback.insert(ErrorKind::Http404, vec![Step::Raw, Step::Simpler]);
    let skills = SkillSet::new([own], [], 1);
    let granted = Granted { skills: &skills, may_run: &|_| true, has_failed: &|_| false };
    assert_eq!(steps(&rules, &outcome, Some(&granted)), ["return_raw", "try_simpler_request", "report_failure"]);
}

#[test]
fn router_decision_has_its_rung_reasons_and_the_steps_that_are_left() {
    let outcome = Outcome::transient("timeout", "slow");
    let routed =
        |before| route(&ErrorRules::default(), &Failure { skill: "web.fetch", outcome: &outcome, before }, None);
    let first = routed(0).expect("it failed");
    assert_eq!(first.decision("web.fetch"), "retry: retry_once after web.fetch");
    assert_eq!(first.reasoning(), "timeout for the 1st time for this goal");
    assert_eq!(first.alternatives(), ["try_simpler_request"]);
    let rungs: Vec<_> = (0..3).filter_map(routed).map(|routed| routed.step.rung().as_str()).collect();
    assert_eq!(rungs, ["retry", "decompose", "report"]);
    assert_eq!((ordinal(2), ordinal(11), ordinal(23)), ("2nd".to_owned(), "11th".to_owned(), "23rd".to_owned()));
}

#[test]
fn kernel_runs_only_reading_calls_again_and_only_if_the_failure_passes() {
    let rules = ErrorRules::default();
    let again = |effect, outcome: &Outcome| retries_after_ms(&rules, &Chains::new(), effect, outcome).is_some();
    assert!(again(Effect::Read, &Outcome::transient("timeout", "")));
    assert!(again(Effect::Read, &Outcome::transient("site_503", "")));
    assert!(!again(Effect::Once, &Outcome::transient("timeout", "")));
    assert!(!again(Effect::Idempotent, &Outcome::transient("timeout", "")));
    assert!(!again(Effect::Read, &Outcome::transient("breaker_open", "")));
    assert!(!again(Effect::Read, &Outcome::permanent("site_403", "")));
    let paused = |seconds| Outcome { pause_s: Some(seconds), ..Outcome::transient("site_429", "") };
    let after_ms = |seconds| retries_after_ms(&rules, &Chains::new(), Effect::Read, &paused(seconds));
    assert_eq!((after_ms(0), after_ms(3), after_ms(30)), (Some(rules.retry_wait_ms), Some(3_000), None));
    let off = ErrorRules { retry_reads: false, ..ErrorRules::default() };
    let timeout = Outcome::transient("timeout", "");
    assert_eq!(retries_after_ms(&off, &Chains::new(), Effect::Read, &timeout), None);
    // The chain of the skill's file counts before that of the operator.
    let chain = |steps: &[Step]| Chains::from([(ErrorKind::Timeout, steps.to_vec())]);
    let set = ErrorRules { chains: chain(&[Step::Simpler]), ..ErrorRules::default() };
    assert_eq!(retries_after_ms(&set, &Chains::new(), Effect::Read, &timeout), None);
    assert!(retries_after_ms(&set, &chain(&[Step::Retry]), Effect::Read, &timeout).is_some());
    assert_eq!(retries_after_ms(&rules, &chain(&[]), Effect::Read, &timeout), None);
}

#[test]
fn every_error_code_has_a_kind_with_a_name_of_its_own() {
    for kind in ErrorKind::ALL {
        assert_eq!(ErrorKind::named(kind.as_str()), Some(kind));
        assert_eq!(serde_json::to_value(kind).expect("a word"), kind.as_str());
    }
    for step in Step::ALL {
        assert_eq!(Step::named(step.as_str()), Some(step));
        assert_eq!(serde_json::to_value(step).expect("a word"), step.as_str());
    }
    for (code, kind) in [
        ("site_401", "http_403"),
        ("site_410", "http_404"),
        ("site_500", "http_error"),
        ("site_unreachable", "http_error"),
        ("invalid_arguments", "validation"),
        ("panic", "crashed"),
        ("breaker_open", "breaker_open"),
        ("io", "unavailable"),
        ("a code of a tool", "other"),
    ] {
        assert_eq!(ErrorKind::of(&Outcome::transient(code, "")).map(ErrorKind::as_str), Some(kind), "{code}");
    }
}

#[test]
fn model_error_is_retried_elsewhere_then_later_for_background_work_only() {
    let error = ModelError::new(ModelErrorKind::Unavailable, "down");
    let elsewhere = [Strategy::OtherBackend];
    assert_eq!(after_model_error(&error, false, &[], true), None);
    assert_eq!(after_model_error(&error, true, &[], true), Some(Strategy::OtherBackend));
    assert_eq!(after_model_error(&error, true, &elsewhere, true), Some(Strategy::Later));
    assert_eq!(after_model_error(&error, true, &elsewhere, false), None);
    assert_eq!(after_model_error(&ModelError::new(ModelErrorKind::Content, "no"), true, &[], true), None);
}
