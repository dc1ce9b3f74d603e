//! Resource limits of a turn and a conversation, and the "continue?" report [S0 5.1] [S4 7.1] [S4 7.4].

use serde_json::json;

use super::{
    script::{cmd, collect, dispatch, dispatch_to_act, tool, use_skill},
    world::{World, text_of},
};
use crate::{
    event::{EventBody, Mode, ReportStatus},
    ids::TaskId,
    limits::TurnLimits,
    message::ToolCall,
};

/// Requests `get_skill` until the iteration limit stops the turn.
fn run_into_the_iteration_limit(w: &mut World) -> (&'static str, String) {
    let task = w.current().unwrap();
    for n in 0..6 {
        w.replies("", &[tool("g", "get_skill", &json!({"search": format!("mail {n}")}))]);
    }
    w.ending(task)
}

/// The agent makes this many calls and reports.
fn works(w: &mut World, name: &str, calls: u32) {
    for n in 0..calls {
        w.agent_replies(name, &cmd(&format!("tasks.search --query {name}{n}")), &[]);
        w.agent_skill(name, &format!("found {name}{n}"));
    }
    w.agent_replies(name, &format!("{name} is done"), &[]);
}

fn dispatches(names: impl Iterator<Item = usize>) -> Vec<ToolCall> {
    names.map(|n| dispatch(&format!("a{n}"), &[])).collect()
}

#[test]
fn turn_refuses_agent_above_limit_and_names_it_in_report() {
    let mut w = World::new();
    let task = w.say("Nine things");
    w.replies("", &dispatches(0..9));
    assert!(w.results()[8].contains("the limit of 8 agents in a turn is reached"), "{}", w.results()[8]);
    w.replies("", &[dispatch("a8", &[])]);
    for n in 0..8 {
        let name = format!("a{n}");
        // The first six agents reserve the whole budget.
        works(&mut w, &name, 0);
    }
    w.replies("", &[collect(&[])]);
    for _ in 0..3 {
        w.replies("", &[collect(&[])]);
    }
    let (kind, text) = w.ending(task);
    assert_eq!(kind, "paused");
    assert_eq!(text.matches("agent limit reached").count(), 1, "{text}");
    assert!(
        text.contains("Not yet started:\n- Do a8 (agent limit reached)\n\nWould you like me to continue?"),
        "{text}"
    );
    assert!(text.contains("Completed:\n- Do a0: a0 is done\n"), "{text}");
}

#[test]
fn agent_depending_on_refused_one_is_not_started() {
    let mut w = World::with(Mode::MultiAgent, TurnLimits { agents_max: 2, ..TurnLimits::default() });
    let task = w.say("Three");
    w.replies("", &[dispatch("a", &["c"]), dispatch("b", &[]), dispatch("c", &[])]);
    assert_eq!(w.reports(task)[0].1.result, "Skipped because dependency 'c' was not started.");
    assert_eq!(w.running(), ["b"]);
}

#[test]
fn agents_share_skill_budget_and_later_ones_get_the_rest() {
    let mut w = World::new();
    let task = w.say("Eight things");
    let mut calls = dispatches(0..8);
    calls.push(collect(&[]));
    w.replies("", &calls);
    assert_eq!(w.running().len(), 6, "six times five calls are reserved");
    works(&mut w, "a0", 2);
    assert_eq!(w.granted("a6"), 3, "the calls that a0 did not use");
    works(&mut w, "a1", 5);
    assert_eq!(w.running(), ["a2", "a3", "a4", "a5", "a6"], "nothing is left for a7 yet");
    for name in ["a2", "a3", "a4", "a5"] {
        works(&mut w, name, 5);
    }
    works(&mut w, "a6", 3);
    assert!(w.running().is_empty());
    let (name, report) = w.reports(task).pop().unwrap();
    assert_eq!((name, report.status), ("a7", ReportStatus::Skipped));
    assert_eq!(report.result, "Not started: the 30 skill calls of this turn are used up.");
    let used: u32 = w.reports(task).iter().map(|(_, r)| r.tool_calls_used).sum();
    assert_eq!(used, 30);
}

#[test]
fn agent_crash_does_not_extend_budget() {
    let mut w = World::with(Mode::MultiAgent, TurnLimits { skill_calls_max: 6, ..TurnLimits::default() });
    w.say("Two things");
    w.replies("", &[dispatch_to_act("a", &[]), dispatch("b", &["x"]), dispatch("x", &[]), collect(&[])]);
    assert_eq!((w.granted("a"), w.granted("x")), (5, 1));
    w.agent_replies("a", &cmd("tasks.create --title 1\ntasks.create --title 2"), &[]);
    w.agent_skill("a", "created");
    w.agent_ends("a", ReportStatus::Crashed);
    w.agent_replies("x", "x is done", &[]);
    assert_eq!(w.granted("b"), 1, "the calls that x left; the use of the crashed agent a is unknown here");
}

#[test]
fn turn_pauses_at_iteration_limit_and_continue_resumes_it() {
    let mut w = World::new();
    let task = w.say("Something hard");
    w.replies("", &[dispatch("a", &[]), collect(&[])]);
    works(&mut w, "a", 1);
    for n in 0..4 {
        w.replies("", &[tool("g", "get_skill", &json!({"search": format!("mail {n}")}))]);
    }
    assert!(w.finals(task).is_empty());
    w.replies("", &[tool("g", "get_skill", &json!({"domain": "email"}))]);
    let (kind, text) = w.ending(task);
    assert_eq!(kind, "paused");
    assert_eq!(
        text,
        "I've made progress on your request but haven't finished yet. Reached the limit of 6 rounds.\n\n\
         Completed:\n- Do a: a is done\n\nWould you like me to continue?"
    );

    let before = w.conv.paused.as_ref().unwrap().messages.clone();
    let next = w.say("Yes please!");
    let request = w.request();
    assert_eq!(request.messages[..before.len()], before, "the context is kept unchanged");
    assert!(w.last_shown().contains("Do not repeat actions that were already completed"));
    let turn = w.conv.turns.first().unwrap();
    assert_eq!((turn.main.round, turn.main.rounds_max, turn.agents.plan.calls_committed()), (1, 6, 0));
    w.replies("", &[dispatch("a", &[])]);
    assert!(w.results()[0].contains("already used"), "the earlier agent is still known");
    w.replies("", &[collect(&["a"])]);
    assert!(w.results()[0].contains("a is done"));
    let more: Vec<ToolCall> = dispatches(0..8);
    w.replies("", &more);
    assert_eq!(w.running().len(), 6, "budgets start anew");
    for n in 0..8 {
        works(&mut w, &format!("a{n}"), 0);
    }
    w.replies("All of it.", &[]);
    w.replies("All of it.", &[]);
    assert_eq!(w.answer(next), "All of it.");
    let EventBody::Answered { usage, .. } = w.finals(next)[0] else { panic!("no answer") };
    assert_eq!(usage.input_tokens, 100 * (5 + 8), "the first turn's cost is not counted again");
}

#[test]
fn paused_turn_is_dropped_by_another_message() {
    let mut w = World::new();
    w.say("Something hard");
    assert_eq!(run_into_the_iteration_limit(&mut w).0, "paused");
    w.say("Never mind, what is the time?");
    assert!(w.conv.paused.is_none());
    let shown: Vec<String> = w.request().messages.iter().map(text_of).collect();
    assert_eq!(shown.len(), 3, "{shown:?}");
    assert!(shown[1].starts_with("I haven't finished your request yet."), "{}", shown[1]);
    w.replies("Two.", &[]);
    w.say("continue");
    assert!(!w.last_shown().contains("paused"), "the pause was dropped");
}

#[test]
fn paused_turn_is_continued_only_by_short_confirmation() {
    for (text, goes_on) in [
        ("continue", true),
        ("Yes, please continue.", true),
        ("ok", true),
        ("go on!", true),
        ("No", false),
        ("yes but leave out Bob", false),
        ("", false),
        ("!?", false),
        ("go go go go go go", false),
    ] {
        let mut w = World::new();
        w.say("Something hard");
        run_into_the_iteration_limit(&mut w);
        w.say(text);
        assert_eq!(w.last_shown().contains("You paused at a limit"), goes_on, "{text:?}");
    }
}

#[test]
fn paused_turn_survives_cancelled_message() {
    let mut w = World::new();
    w.say("Something hard");
    run_into_the_iteration_limit(&mut w);
    w.slow_facts = true;
    let task = w.say("wait");
    w.cancel(task);
    w.slow_facts = false;
    w.say("continue");
    assert!(w.last_shown().contains("You paused at a limit"));
}

#[test]
fn paused_turn_with_long_context_continues_from_its_report() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Read everything");
    for n in 0..5 {
        w.replies("", &[use_skill("1", "tasks.search", &json!({"query": n.to_string()}))]);
        w.main_skill(&"long ".repeat(5_000));
    }
    w.replies(
        "",
        &[dispatches(0..0), (0..9).map(|n| use_skill(&n.to_string(), "tasks.create", &json!({"n": n}))).collect()]
            .concat(),
    );
    assert_eq!(w.ending(task).0, "paused");
    w.say("continue");
    let shown: Vec<String> = w.request().messages.iter().map(text_of).collect();
    assert_eq!(shown.len(), 3, "{shown:?}");
    assert!(shown[1].starts_with("I've made progress"));
    assert!(shown[2].contains("You paused at a limit"));
}

#[test]
fn single_loop_is_limited_to_ten_calls_including_get_skill() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Many things");
    w.replies("", &[tool("g", "get_skill", &json!({"domain": "tasks"}))]);
    assert!(w.results()[0].contains("\"parameters\""), "this agent needs the schema: {}", w.results()[0]);
    for n in 0..9 {
        w.replies("", &[use_skill("1", "tasks.create", &json!({"title": n.to_string()}))]);
        w.main_skill(&format!("created {n}"));
    }
    assert!(w.finals(task).is_empty(), "after ten calls the answer may still be given");
    w.replies("", &[use_skill("1", "tasks.create", &json!({"title": "more"}))]);
    let (kind, text) = w.ending(task);
    assert_eq!(kind, "paused");
    assert!(
        text.starts_with(
            "I've made progress on your request but haven't finished yet. Reached the limit of 10 tool calls in a turn."
        ),
        "{text}"
    );
    assert_eq!(text.matches("\n- tasks.create: created").count(), 9, "{text}");
    assert!(text.contains("Not completed:\n- tasks.create (tool call limit reached)"), "{text}");
    let next = w.say("continue");
    w.replies("", &[use_skill("1", "tasks.create", &json!({"title": "more"}))]);
    w.main_skill("created more");
    w.replies("All ten.", &[]);
    assert_eq!(w.answer(next), "All ten.");
}

#[test]
fn single_loop_runs_first_calls_of_reply_exceeding_limit() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Many things");
    let calls: Vec<_> =
        (0..12).map(|n| use_skill(&n.to_string(), "tasks.create", &json!({"title": n.to_string()}))).collect();
    w.replies("", &calls);
    for n in 0..10 {
        assert!(w.finals(task).is_empty());
        w.main_skill(&format!("created {n}"));
    }
    let (kind, text) = w.ending(task);
    assert_eq!((kind, text.matches("created").count()), ("paused", 10));
    assert!(
        text.ends_with("- tasks.create (tool call limit reached) (2 times)\n\nWould you like me to continue?"),
        "{text}"
    );
}

#[test]
fn direct_mode_has_tool_per_skill_and_same_limit() {
    let mut w = World::in_mode(Mode::Direct);
    let task = w.say("Many things");
    let names: Vec<String> = w.request().tools.iter().map(|t| t.name.clone()).collect();
    assert_eq!(names, ["email__send", "mcp__files__read__all", "tasks__create", "tasks__search"]);
    w.replies(
        "",
        &[tool("1", "mcp__files__read__all", &json!({})), tool("2", "tasks__create", &json!({"title": "x"}))],
    );
    w.main_skill("files");
    w.main_skill("created");
    assert_eq!(w.results(), ["files", "created"]);
    for n in 0..8 {
        w.replies("", &[tool("1", "tasks__search", &json!({"query": n.to_string()}))]);
        w.main_skill(&format!("found {n}"));
    }
    w.replies("", &[tool("1", "tasks__search", &json!({}))]);
    assert_eq!(w.ending(task).0, "paused");
}

/// One turn in which one agent makes this many calls; none if the window does not allow any.
fn turn_with_calls(w: &mut World, calls: u32) -> TaskId {
    let task = w.say("Some more");
    let arguments = json!({"agent_id": "a", "mission": "Do a", "skills": ["tasks.search"], "max_tool_calls": 15});
    w.replies("", &[tool("d", "dispatch_agent", &arguments), collect(&[])]);
    if !w.agents.is_empty() {
        let calls = calls.min(w.granted("a"));
        works(w, "a", calls);
    }
    w.replies("Done.", &[]);
    task
}

#[test]
fn conversation_is_limited_to_fifty_calls_in_five_minutes() {
    let mut w = World::new();
    for _ in 0..3 {
        turn_with_calls(&mut w, 15);
    }
    let task = turn_with_calls(&mut w, 15);
    assert_eq!(w.reports(task)[0].1.tool_calls_used, 5, "45 of 50 were used");
    let task = turn_with_calls(&mut w, 15);
    let report = &w.reports(task)[0].1;
    assert_eq!(report.status, ReportStatus::Skipped);
    assert!(report.result.contains("50 skill calls within 300 s"), "{}", report.result);
    w.wait_ms(300_000);
    let task = turn_with_calls(&mut w, 15);
    assert_eq!(w.reports(task)[0].1.tool_calls_used, 15);
}

#[test]
fn conversation_call_window_applies_in_every_mode() {
    let mut w = World::new();
    for _ in 0..3 {
        turn_with_calls(&mut w, 15);
    }
    w.mode = Mode::SingleLoop;
    let task = w.say("More");
    let calls: Vec<_> =
        (0..6).map(|n| use_skill(&n.to_string(), "tasks.create", &json!({"title": n.to_string()}))).collect();
    w.replies("", &calls);
    for _ in 0..5 {
        w.main_skill("created");
    }
    let (kind, text) = w.ending(task);
    assert_eq!(kind, "paused");
    assert!(text.contains("50 skill calls within 300 s"), "{text}");
    let task = w.say("Just talk to me");
    w.replies("Gladly.", &[]);
    assert_eq!(w.answer(task), "Gladly.");
    assert_eq!(w.conv.window.len(), 50);
}

#[test]
fn zero_limits_stop_work_but_allow_answers() {
    let none = TurnLimits {
        agents_max: 0,
        skill_calls_max: 0,
        iterations_max: 0,
        single_loop_calls_max: 0,
        agent_calls_default: 0,
        agent_calls_max: 0,
        agent_round_ms_max: 0,
        window_calls_max: 0,
        window_ms: 0,
        crashes_max: 0,
        restarts_max: 0,
        context_tokens_max: 0,
        system_tokens_reserve: 0,
        response_tokens_reserve: 0,
        ..TurnLimits::default()
    };
    let most = TurnLimits {
        agents_max: u32::MAX,
        skill_calls_max: u32::MAX,
        iterations_max: u32::MAX,
        single_loop_calls_max: u32::MAX,
        agent_calls_default: u32::MAX,
        agent_calls_max: u32::MAX,
        agent_round_ms_max: u64::MAX,
        window_calls_max: u32::MAX,
        window_ms: u64::MAX,
        ..TurnLimits::default()
    };
    for limits in [none, most] {
        for mode in [Mode::MultiAgent, Mode::SingleLoop, Mode::Direct] {
            let mut w = World::with(mode, limits.clone());
            let task = w.say("Hello");
            w.replies("Hi", &[]);
            assert_eq!(w.answer(task), "Hi");
            let task = w.say("Do it");
            w.replies("", &[dispatch("a", &[]), use_skill("u", "tasks.create", &json!({"title": "x"}))]);
            if w.running().contains(&"a") {
                w.agent_ends("a", ReportStatus::Timeout);
            }
            w.cancel(task);
        }
    }
}
