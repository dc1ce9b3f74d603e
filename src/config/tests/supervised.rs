//! `[loop_guard]`, `[error_router]` and `[result_checks]`: what their keys mean, and their errors.

use annie_core::{
    error_route::{Chains, ErrorKind, Step},
    loop_guard::LoopGuardLimits,
};

use super::super::typed::typed;

fn config(text: &str) -> super::super::settings::Config {
    typed(text.parse().expect("TOML")).unwrap_or_else(|e| panic!("{text}: {}", e.what))
}

#[test]
fn loop_guard_keys_replace_single_values_of_the_preset() {
    assert_eq!(config("").kernel_limits().turn.loop_guard, LoopGuardLimits::annie());
    let preset = config("[loop_guard]\npreset = \"openclaw\"\n");
    assert_eq!(preset.kernel_limits().turn.loop_guard, LoopGuardLimits::openclaw());
    let own = config("[loop_guard]\npreset = \"openclaw\"\nwarning_calls = 4\ndetectors = { cycle = false }\n");
    let limits = own.loop_guard.limits();
    assert_eq!((limits.warning_calls, limits.critical_calls, limits.detectors.cycle), (4, 20, false));
    assert!(limits.detectors.ping_pong, "the other switches stay on");
    let long = config("[loop_guard]\nbreaker_calls = 60\n").loop_guard.limits();
    assert_eq!(long.window_calls, 60, "the window grows with the thresholds");
}

#[test]
fn error_router_keys_reach_the_turn() {
    let text = "[error_router]\nchains = { http_403 = [\"broaden_query\"] }\nalternatives = { \"a.b\" = [\"c.d\"] }\n";
    let rules = config(text).kernel_limits().turn.error_router;
    assert_eq!(rules.chain(&Chains::new(), ErrorKind::Http403), [Step::Broaden]);
    assert_ne!(rules.chain(&Chains::new(), ErrorKind::Http404), [Step::Broaden]);
}

#[test]
fn invalid_values_are_refused_with_their_key_and_a_fix() {
    for (text, key, what) in [
        ("[loop_guard]\nwarning_calls = 0\n", "loop_guard.warning_calls", "0 is not between 1 and 1000"),
        ("[loop_guard]\nwindow_calls = 1001\n", "loop_guard.window_calls", "1001 is not between 1 and 1000"),
        ("[loop_guard]\ncritical_calls = 3\n", "loop_guard.critical_calls", "3 is not more than the 3 of the warning"),
        ("[loop_guard]\nnear_critical_calls = 2\n", "loop_guard.near_critical_calls", "2 is not more than the 4"),
        ("[loop_guard]\nbreaker_calls = 5\n", "loop_guard.breaker_calls", "5 is not more than critical_calls, 5"),
        ("[loop_guard]\nwindow_calls = 10\n", "loop_guard.window_calls", "in 10 calls not every threshold"),
        ("[loop_guard]\ncycle_calls_max = 2\n", "loop_guard.cycle_calls_max", "2 is not between 3 and 8"),
        ("[loop_guard]\nnear_percent_max = 51\n", "loop_guard.near_percent_max", "51 is not between 1 and 50"),
        ("[loop_guard]\npollers = [\"a b\"]\n", "loop_guard.pollers.0", "\"a b\" is no name of a skill"),
        ("[guard]\nmodel_calls_window_ms = 90000\n", "guard.model_calls_window_ms", "90000 is not whole minutes"),
        ("[guard]\nmodel_calls_window_ms = 0\n", "guard.model_calls_window_ms", "0 is not whole minutes"),
        (
            "[[guard.topic]]\nname = \"a\"\naction = \"flag\"\npattern = \"(\"\n",
            "guard.topic.0.pattern",
            "\"(\" is no usable pattern",
        ),
        (
            "[[guard.topic]]\nname = \"a\"\naction = \"flag\"\npattern = '(\\w{1000}){1000}'\n",
            "guard.topic.0.pattern",
            "\"(\\\\w{1000}){1000}\" is no usable pattern",
        ),
        (
            "[[guard.topic]]\nname = \"a\"\naction = \"refuse\"\nwords = [\"x\"]\n",
            "guard.topic.0.reply",
            "it is missing: the user would get no answer",
        ),
        ("[cache]\nseconds = 3601\n", "cache.seconds", "3601 is more than 3600"),
        ("[cache]\nentries_max = 0\n", "cache.entries_max", "0 is not between 1 and 10000"),
        ("[error_router]\nretry_wait_ms = 20000\n", "error_router.retry_wait_ms", "20000 is more than 10000"),
        (
            "[error_router]\nchains = { refused = [\"retry_once\"] }\n",
            "error_router.chains.refused",
            "such a failure is always reported",
        ),
        (
            "[error_router]\nalternatives = { \"a.b\" = [\"a.b\"] }\n",
            "error_router.alternatives.\"a.b\".0",
            "a skill cannot stand in for itself",
        ),
        ("[result_checks]\noverlap_percent_min = 101\n", "result_checks.overlap_percent_min", "101 is more than 100"),
        (
            "[result_checks]\nsizes = { \"a.b\" = { chars_min = 2, chars_max = 1 } }\n",
            "result_checks.sizes.\"a.b\".chars_min",
            "2 is more than chars_max, 1",
        ),
    ] {
        let problems = config(text).problems();
        let [problem] = &problems[..] else { panic!("{text}: {problems:?}") };
        assert!(problem.what.starts_with(&format!("`{key}`: {what}")), "{text}: {}", problem.what);
        assert!(!problem.fix.is_empty(), "{text}");
    }
    let unknown = typed("[error_router]\nchains = { http_403 = [\"hope\"] }\n".parse().expect("TOML"));
    assert!(unknown.is_err_and(|e| e.what.contains("unknown value `hope`")));
}
