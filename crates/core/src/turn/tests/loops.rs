//! The loop guard within a turn: warnings, vetoes, and the truthful report at the end [S3 4.9].

use serde_json::{Value, json};

use super::{
    script::{agent, cmd, collect, dispatch, tool, use_skill},
    world::World,
};
use crate::{
    event::{Mode, ReportStatus},
    limits::{MainInterface, TurnLimits},
};

fn search() -> crate::message::ToolCall {
    use_skill("1", "tasks.search", &json!({"query": "x"}))
}

#[test]
fn repeated_call_is_warned_then_blocked_and_second_veto_ends_turn() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Create it");
    for n in 0..5 {
        w.replies("", &[search()]);
        w.main_skill("nothing");
        let result = &w.results()[0];
        assert_eq!(result.contains("WARNING: tasks.search called"), n >= 3, "{n}: {result}");
        assert_eq!(result.contains("This is the same result as before."), n >= 1, "{n}: {result}");
    }
    w.replies("", &[search()]);
    assert!(w.results()[0].starts_with("[blocked] STOP: tasks.search called 5 times"), "{:?}", w.results());
    assert!(w.skill_calls(&crate::ids::AgentId::orchestrator()).is_empty());
    w.replies("", &[search()]);
    let text = w.answer(task);
    assert!(text.starts_with("I had to stop: The same call came up again and again without progress.\n\nCompleted:"));
    assert!(text.contains("Not completed:\n- tasks.search (blocked: it went on without progress)"), "{text}");
    assert!(
        text.ends_with("\n\nThe last result of tasks.search:\n\nnothing"),
        "the report contains what was read: {text}"
    );
    assert!(!text.contains("continue?"), "the report does not offer to continue");
    w.say("continue");
    assert_eq!(w.last_shown(), "continue");
}

#[test]
fn question_whose_model_only_reads_again_is_answered_with_what_it_read() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("What is on my list?");
    for _ in 0..5 {
        w.replies("", &[search()]);
        w.main_skill("Found 1 open task:\n\n- #1 Call the dentist");
    }
    w.replies("", &[search()]);
    w.replies("", &[search()]);
    assert_eq!(w.answer(task), "Found 1 open task:\n\n- #1 Call the dentist");
}

#[test]
fn question_about_two_things_is_not_answered_with_one_of_them() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("What is on my two lists?");
    let mut read = 0;
    while w.finals(task).is_empty() && read < 20 {
        let list = if read % 2 == 0 { "home" } else { "work" };
        w.replies("", &[use_skill("1", "tasks.search", &json!({"query": list}))]);
        if !w.skill_calls(&crate::ids::AgentId::orchestrator()).is_empty() {
            w.main_skill(&format!("Found 1 open task:\n\n- #1 Something at {list}"));
        }
        read += 1;
    }
    assert!(w.answer(task).starts_with("I had to stop"), "{}", w.answer(task));
}

#[test]
fn blocked_call_does_not_end_run_that_changes_its_approach() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Find it");
    for _ in 0..5 {
        w.replies("", &[search()]);
        w.main_skill("nothing");
    }
    w.replies("", &[search()]);
    w.replies("There is nothing.", &[]);
    assert_eq!(w.answer(task), "There is nothing.");
}

#[test]
fn stopped_orchestrator_reports_effects_of_agents() {
    let mut w = World::new();
    let task = w.say("Do it");
    w.replies("", &[dispatch("a", &[]), dispatch("b", &[]), collect(&["a"])]);
    w.agent_replies("a", "Found task 7.", &[]);
    w.replies("", &[]);
    w.replies("", &[]);
    let text = w.answer(task);
    assert!(text.contains("Completed:\n- Do a: Found task 7."), "{text}");
    assert_eq!(w.statuses(task)[1], ("b", ReportStatus::Cancelled));
}

#[test]
fn looping_sub_agent_fails_and_commands_after_blocked_one_are_not_run() {
    let mut w = World::new();
    let task = w.say("Do it");
    let arguments =
        json!({"agent_id": "a", "mission": "Do a", "skills": ["tasks.search", "tasks.create"], "max_tool_calls": 15});
    w.replies("", &[tool("d", "dispatch_agent", &arguments), collect(&[])]);
    for _ in 0..5 {
        w.agent_replies("a", &cmd("tasks.search --query x"), &[]);
        w.agent_skill("a", "nothing");
    }
    w.agent_replies("a", &cmd("tasks.search --query x\ntasks.create --title y"), &[]);
    let shown = w.last_shown_to("a");
    assert!(shown.contains("[blocked] STOP") && shown.contains("[not run] A command before it failed."), "{shown}");
    w.agent_replies("a", &cmd("tasks.search --query x"), &[]);
    let (_, report) = w.reports(task).pop().unwrap();
    assert_eq!((report.status, report.tool_calls_used), (ReportStatus::Failed, 5));
    assert!(report.result.starts_with("The same call came up again and again"), "{}", report.result);
}

/// Tools only. Otherwise the turn would change to commands after two rounds of errors.
fn by_tools() -> World {
    let limits = TurnLimits { main_interface: MainInterface::Tools, ..TurnLimits::default() };
    World::with(Mode::SingleLoop, limits)
}

#[test]
fn repeated_wrong_arguments_are_not_reported_as_unknown_tool() {
    let mut w = by_tools();
    w.say("Do it");
    for n in 0..4 {
        w.replies("", &[use_skill("1", "tasks.create", &json!({"titel": n.to_string()}))]);
        assert!(
            w.results()[0].starts_with("Error: tasks.create: it has no argument \"titel\""),
            "{n}: {:?}",
            w.results()
        );
    }
}

#[test]
fn unknown_tool_is_blocked_after_three_calls_whatever_its_arguments() {
    let mut w = by_tools();
    let task = w.say("Do it");
    let invented = |n: u32| tool("1", "web_search", &json!({"q": n}));
    for n in 0..3 {
        w.replies("", &[invented(n)]);
        assert!(w.results()[0].contains("there is no tool \"web_search\". Your tools are get_skill and use_skill."));
    }
    w.replies("", &[invented(3)]);
    assert!(w.results()[0].starts_with("[blocked] STOP: web_search does not exist"), "{:?}", w.results());
    w.replies("", &[invented(4)]);
    assert!(w.answer(task).contains("web_search (blocked"));
}

#[test]
fn consecutive_unknown_names_are_blocked_after_three() {
    let mut w = by_tools();
    let task = w.say("Do it");
    w.replies("", &[tool("1", "web_search", &json!({}))]);
    w.replies("", &[use_skill("1", "web.find", &json!({}))]);
    w.replies("", &[tool("1", "google", &json!({}))]);
    w.replies("", &[tool("1", "browse", &json!({}))]);
    assert!(w.results()[0].starts_with("[blocked] STOP: 3 calls in a row"), "{:?}", w.results());
    w.replies("", &[use_skill("1", "tasks.search", &json!({}))]);
    w.main_skill("nothing");
    assert_eq!(w.results(), ["nothing"], "existing tools are not blocked");
    w.replies("There is nothing.", &[]);
    assert_eq!(w.answer(task), "There is nothing.");
}

#[test]
fn unknown_names_in_one_reply_count_as_one_veto() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Do it");
    let invented: Vec<_> = (0..6).map(|n| tool(&n.to_string(), &format!("tool_{n}"), &json!({}))).collect();
    w.replies("", &invented);
    assert!(w.results()[5].starts_with("[blocked]"), "{:?}", w.results());
    w.replies("I cannot.", &[]);
    assert_eq!(w.answer(task), "I cannot.", "the model may correct itself");
}

#[test]
fn agent_knows_the_failed_calls_of_the_agents_before_it() {
    let mut w = World::new();
    w.say("Do it");
    for (agent, tries) in [("a", 4), ("b", 2)] {
        w.replies("", &[dispatch(agent, &[]), collect(&[agent])]);
        for n in 0..tries {
            w.agent_replies(agent, &cmd("tasks.search --query x"), &[]);
            let calls = w.skill_calls(&super::script::agent(agent));
            if agent == "b" && n == 1 {
                assert_eq!(calls, [], "five failures are enough");
                let shown = w.last_shown_to("b");
                assert!(shown.contains("[blocked] STOP: tasks.search called 5 times"), "{shown}");
                return;
            }
            w.agent_fails(agent, "timeout");
            let is_warned = w.last_shown_to(agent).contains("WARNING: tasks.search called");
            assert_eq!(is_warned, n >= 3 || agent == "b", "{agent} {n}: {}", w.last_shown_to(agent));
        }
        w.agent_replies(agent, "It does not work.", &[]);
    }
    panic!("the second agent was not stopped");
}

#[test]
fn loop_is_recorded_with_the_reply_once_in_ten_warnings_and_at_every_refusal() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.say("Look");
    let found = |w: &World| -> Vec<(String, usize)> {
        let events = w.log.iter().flat_map(|event| event.body.loops_detected());
        events
            .filter_map(|body| {
                let crate::event::EventBody::LoopDetected { found, .. } = body else { return None };
                Some((found.level.as_str().to_owned(), found.count as usize))
            })
            .collect()
    };
    for n in 0..7 {
        w.replies("", &[search()]);
        if n < 5 {
            w.main_skill("nothing to see");
        }
    }
    let wanted = [("warning", 3), ("critical", 5), ("critical", 5)];
    assert_eq!(found(&w), wanted.map(|(level, count)| (level.to_owned(), count)));
}

#[test]
fn repeated_call_in_one_reply_is_run_once() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.say("Create it");
    let create = |n: u32| use_skill(&n.to_string(), "tasks.create", &json!({"title": "milk"}));
    let calls: Vec<_> = (0..5).map(create).collect();
    w.replies("", &calls);
    assert_eq!(w.skill_calls(&crate::ids::AgentId::orchestrator()).len(), 1);
    w.main_skill("Created task #1.");
    let results = w.results();
    assert_eq!((results.len(), results[0].as_str()), (5, "Created task #1."));
    assert!(results[1..].iter().all(|r| r.starts_with("[same call]")), "{results:?}");
    assert_eq!(w.turn().main.calls_used, 1);
}

#[test]
fn excess_calls_are_reported_in_one_line() {
    let mut w = by_tools();
    let task = w.say("Do it");
    let create = |n: u32| use_skill(&n.to_string(), "tasks.create", &json!({"title": n.to_string()}));
    w.replies("", &(0..58).map(create).collect::<Vec<_>>());
    for n in 0..10 {
        w.main_skill(&format!("created {n}"));
    }
    let (kind, text) = w.ending(task);
    assert_eq!(kind, "paused");
    assert!(text.contains("- tasks.create (tool call limit reached) (22 times)"), "{text}");
    assert_eq!(
        text.matches("tool call limit reached").count(),
        2,
        "the call that tells of the rest, and the group: {text}"
    );
}

#[test]
fn unknown_command_is_blocked_after_three_times() {
    let mut w = World::new();
    w.say("Do it");
    w.replies("", &[dispatch("a", &[])]);
    for n in 0..3 {
        w.agent_replies("a", &cmd(&format!("web.search --q {n}")), &[]);
        assert!(w.last_shown_to("a").contains("unknown skill \"web.search\""), "{}", w.last_shown_to("a"));
    }
    w.agent_replies("a", &cmd("web.search --q 4"), &[]);
    assert!(w.last_shown_to("a").contains("[blocked] STOP: web.search does not exist"));
    let wrong: Vec<Value> = w.skill_calls(&agent("a")).into_iter().map(|(_, arguments)| arguments).collect();
    assert!(wrong.is_empty());
}

#[test]
fn loop_guard_compares_skills_and_not_the_generic_tool() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.say("Create many");
    for n in 0..8 {
        w.replies("", &[use_skill("1", "tasks.create", &json!({"title": n.to_string()}))]);
        w.main_skill("created");
        assert_eq!(w.results(), ["created"], "calls with different arguments are not a loop");
    }
}
