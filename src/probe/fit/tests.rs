//! The settings that follow from probe results.

use annie_core::ports::ServerFacts;

use super::*;

fn report(tool_call: Outcome, command: Outcome, model: &str, window: Option<u32>) -> Report {
    Report {
        backend: "gpu".into(),
        model: model.into(),
        error: None,
        server: ServerFacts { context_tokens_max: window, ..ServerFacts::default() },
        first_token_ms: Some(100),
        input_tokens_per_s: Some(1_000.0),
        output_tokens_per_s: Some(50.0),
        unmeasured: None,
        reasons: false,
        is_in_own_network: false,
        plain: Some(Outcome::Well),
        tool_call: Some(tool_call),
        command: Some(command),
        parallel: None,
        requests: 3,
    }
}

fn not() -> Outcome {
    Outcome::Not("hm".into())
}

#[test]
fn fit_runs_small_or_tool_refusing_model_with_commands_in_single_loop() {
    let of = |tools, commands, model, window| {
        let fit = Fit::of(&report(tools, commands, model, window));
        (fit.interface, fit.mode)
    };
    let by_commands = (Some("cmd"), Some("single_loop"));
    assert_eq!(of(Outcome::Well, Outcome::Well, "qwen2.5-coder:1.5b", None), by_commands);
    assert_eq!(of(Outcome::AsText, Outcome::Well, "some-70b", None), by_commands);
    assert_eq!(of(Outcome::Refused("no".into()), Outcome::Well, "gemma", None), by_commands);
    assert_eq!(of(not(), not(), "gemma", None), by_commands);
    assert_eq!(of(Outcome::Well, not(), "tiny-1b", None), (Some("auto"), Some("single_loop")));
    assert_eq!(of(Outcome::Well, Outcome::Well, "big", Some(32_000)), (Some("auto"), None));
    assert_eq!(
        of(Outcome::Well, Outcome::Well, "Llama-3.3-70B-Instruct", Some(4_096)),
        (Some("auto"), Some("single_loop"))
    );
    assert_eq!(
        of(Outcome::AsText, not(), "some-70b", None),
        (Some("auto"), None),
        "its calls are found in the text and run"
    );
}

#[test]
fn fit_reports_failed_or_truncated_step_and_decides_nothing_from_it() {
    let limited = || Outcome::Failed("rate_limited: HTTP 429\nname = \"x\"".to_owned());
    for (tools, commands, interface) in [
        (limited(), Outcome::Well, None),
        (limited(), not(), None),
        (limited(), limited(), None),
        (Outcome::Well, limited(), Some("auto")),
        (Outcome::AsText, limited(), None),
        (Outcome::Refused("no".into()), limited(), None),
        (Outcome::Cut(200), Outcome::Well, None),
        (Outcome::Cut(200), Outcome::Cut(200), None),
    ] {
        let report = report(tools, commands, "some-70b", None);
        let fit = Fit::of(&report);
        assert_eq!((fit.interface, fit.mode), (interface, None), "{report:?}");
        let all_notes = fit.notes.join("; ");
        assert!(
            all_notes.contains("could not be tried") || all_notes.contains("cut at 200 tokens"),
            "{report:?}: {all_notes}"
        );
        assert!(!all_notes.contains("did neither") && !all_notes.contains("by itself"), "{report:?}: {all_notes}");
        let table: toml::Table = fit.toml().parse().unwrap();
        assert!(!table.contains_key("name"), "a server's text stays in the comment: {}", fit.toml());
    }
    let small = Fit::of(&report(limited(), Outcome::Well, "tiny-1b", None));
    assert_eq!(
        (small.interface, small.mode),
        (Some("cmd"), Some("single_loop")),
        "a small model uses commands in any case"
    );
}

#[test]
fn fit_ignores_rate_limited_parallel_requests_for_slots() {
    let mut report = report(Outcome::Well, Outcome::Well, "big", None);
    let of = |answered, rate_limited| Some(crate::probe::Parallel { requests: 4, answered, rate_limited, ms: 5 });
    for (answered, rate_limited, slots) in [(4, 0, None), (3, 1, None), (3, 0, Some(1)), (2, 1, Some(1))] {
        report.parallel = of(answered, rate_limited);
        let fit = Fit::of(&report);
        assert_eq!(fit.slots, slots, "{answered} answered, {rate_limited} over the limit");
        assert_eq!(fit.notes.join("").contains("rate limit"), rate_limited > 0, "{:?}", fit.notes);
    }
}

#[test]
fn fit_reads_parameter_count_from_model_name() {
    assert_eq!(named_size("qwen2.5-coder:1.5b"), Some(1_500_000_000));
    assert_eq!(named_size("meta-llama/Llama-3.1-8B-Instruct"), Some(8_000_000_000));
    assert_eq!((named_size("gpt-5"), named_size("b"), named_size("openrouter/auto")), (None, None, None));
}

#[test]
fn fit_raises_first_token_limit_for_slow_prompt_processing() {
    assert_eq!(slow_reader(30.0, Some(4_096)), Some(210_000));
    assert_eq!(slow_reader(30.0, None), Some(400_000));
    assert_eq!((slow_reader(0.0, None), slow_reader(500.0, None)), (Some(600_000), None));
}

#[test]
fn fit_sets_output_limit_for_reasoning_models_only() {
    assert_eq!((output(false, Some(4_096)), output(false, Some(32_000)), output(false, None)), (None, None, None));
    assert_eq!(
        (output(true, Some(4_096)), output(true, Some(32_000)), output(true, None)),
        (Some(2_048), Some(8_192), Some(8_192))
    );
}

#[test]
fn fit_limits_exceed_first_token_limit() {
    let mut report = report(Outcome::Well, Outcome::Well, "big", None);
    for (speed, first, call) in
        [(1_000.0, None, None), (60.0, Some(200_000), None), (0.5, Some(600_000), Some(720_000))]
    {
        report.input_tokens_per_s = Some(speed);
        let fit = Fit::of(&report);
        assert_eq!((fit.first_token_ms_max, fit.call_ms_max), (first, call));
        let Some(first) = first else {
            assert_eq!(fit.limits, None);
            continue;
        };
        let limits = fit.limits.unwrap();
        assert!(first < limits.round_ms_max && limits.round_ms_max < limits.hard_ms, "{limits:?}");
        assert!(call.unwrap_or(CALL_MS_USUAL) > first);
    }
}

#[test]
fn fit_toml_writes_server_facts_as_comments_and_findings_as_keys() {
    let mut report = report(not(), Outcome::Well, "m", Some(4_096));
    report.server.profile = "llamacpp".into();
    report.server.profile_from = Origin::Server;
    report.server.slots = Some(2);
    let text = Fit::of(&report).toml();
    assert!(text.starts_with("# it does not call tools by itself\n# the window"), "{text}");
    for line in ["profile = \"llamacpp\"", "context_tokens_max = 4096", "slots = 2"] {
        assert!(text.contains(&format!("# the server says: {line}\n")), "{line} is not in {text}");
    }
    let table: toml::Table = text.parse().unwrap();
    let keys: Vec<&String> = table.keys().collect();
    assert_eq!(keys, ["interface", "mode"], "{text}");
    report.parallel = Some(crate::probe::Parallel { requests: 2, answered: 1, rate_limited: 0, ms: 5 });
    assert_eq!(Fit::of(&report).slots, Some(1), "the server reports two slots, and failed with two requests");
    report.is_in_own_network = true;
    assert_eq!(
        Fit::of(&report).profile.as_deref(),
        Some("llamacpp"),
        "without the profile private requests are refused"
    );
    report.is_in_own_network = false;
    report.server.profile_from = Origin::Configured;
    assert_eq!(Fit::of(&report).profile.as_deref(), Some("llamacpp"), "a configured profile is kept");
}
