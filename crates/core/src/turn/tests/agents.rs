//! The loop of a single sub-agent, with commands and with its JSON tool.

use serde_json::json;

use super::{
    script::{agent, cmd, collect, dispatch, dispatch_to_act, reply, tool, use_skill},
    world::World,
};
use crate::{
    classify::{Emotion, mood},
    context::framed,
    event::{Inbound, Mode, ReportStatus},
    limits::{SubAgentInterface, TurnLimits},
    message::{Finish, Message, ModelErrorKind, ModelReply},
    outcome::Outcome,
};

/// A world in which the agent `a` runs.
fn with_agent(limits: TurnLimits) -> World {
    let mut w = World::with(Mode::MultiAgent, limits);
    w.say("Go");
    w.replies("", &[dispatch_to_act("a", &[]), collect(&[])]);
    w
}

fn by_commands() -> World {
    with_agent(TurnLimits::default())
}

fn by_json() -> World {
    with_agent(TurnLimits { interface: SubAgentInterface::Json, ..TurnLimits::default() })
}

fn report(w: &World) -> (ReportStatus, String, u32) {
    let task = w.log[0].task;
    let (_, report) = w.reports(task).pop().expect("the agent has reported");
    (report.status, report.result, report.tool_calls_used)
}

#[test]
fn agent_commands_run_in_order_one_at_a_time() {
    let mut w = by_commands();
    w.agent_replies("a", &cmd("tasks.search\ntasks.create --title x\ntasks.create --title y"), &[]);
    for wanted in [json!({}), json!({"title": "x"}), json!({"title": "y"})] {
        let calls = w.skill_calls(&agent("a"));
        assert_eq!(calls.len(), 1, "one at a time");
        assert_eq!(calls[0].1, wanted);
        w.agent_skill("a", &format!("did {wanted}"));
    }
    let shown = w.last_shown_to("a");
    assert_eq!(framed(&shown, "result").len(), 3);
    assert!(shown.find("did {}") < shown.find("did {\"title\":\"x\"}"));
    w.agent_replies("a", "All three.", &[]);
    assert_eq!(report(&w), (ReportStatus::Completed, "All three.".to_owned(), 3));
}

#[test]
fn agent_commands_after_failed_one_are_not_run_and_not_counted() {
    let mut w = by_commands();
    w.agent_replies("a", &cmd("tasks.search\ntasks.create --title x\ntasks.create --title y"), &[]);
    w.agent_skill("a", "none");
    w.skill_ends(&agent("a"), 0, Outcome::permanent("conflict", "exists already"));
    assert!(w.skill_calls(&agent("a")).is_empty());
    let shown = w.last_shown_to("a");
    assert!(shown.contains("[error_permanent] exists already"), "{shown}");
    let last = framed(&shown, "result").pop().unwrap();
    assert_eq!(last.attributes, "command=\"tasks.create\" status=\"not_run\"");
    assert_eq!(last.text, "[not run] A command before it failed.");
    w.agent_replies("a", "x exists.", &[]);
    assert_eq!(report(&w).2, 2);
}

#[test]
fn agent_commands_after_invalid_one_are_not_run() {
    let mut w = by_commands();
    w.agent_replies("a", &cmd("tasks.search\ntasks.create --titel x\ntasks.create --title y"), &[]);
    w.agent_skill("a", "none");
    let shown = w.last_shown_to("a");
    assert!(shown.contains("has no flag --titel. Did you mean --title?"), "{shown}");
    assert!(shown.contains("[not run] A command before it failed."));
}

#[test]
fn agent_unknown_outcome_stops_commands_and_is_shown_as_unknown() {
    let mut w = by_commands();
    w.agent_replies("a", &cmd("tasks.create --title x\ntasks.create --title y"), &[]);
    w.skill_ends(&agent("a"), 0, Outcome::unknown("It was started and its receipt is missing.", json!({})));
    let shown = w.last_shown_to("a");
    assert!(shown.contains("[unknown] It was started and its receipt is missing."), "{shown}");
    assert!(shown.contains("[not run]"));
    w.agent_ends("a", ReportStatus::Timeout);
    assert!(report(&w).1.contains("tasks.create: it is not known whether it happened"), "{}", report(&w).1);
}

#[test]
fn agent_help_does_not_count_as_call() {
    let mut w = by_commands();
    for command in ["tasks.create --help", "tasks --help", "tasks.search --help", "help"] {
        w.agent_replies("a", &cmd(command), &[]);
        assert!(w.last_shown_to("a").starts_with("<result-"));
    }
    w.agent_replies("a", "Nothing to do.", &[]);
    w.agent_replies("a", "Nothing to do.", &[]);
    assert_eq!(report(&w), (ReportStatus::NoAction, "Nothing to do.".to_owned(), 0));
}

#[test]
fn agent_requesting_only_help_runs_out_of_rounds() {
    let mut w = by_commands();
    for n in 0..12 {
        w.agent_replies("a", &cmd(&format!("tasks.create --help\n# {n}")), &[tool("t", "x", &json!({"n": n}))]);
        if w.agents.is_empty() {
            break;
        }
    }
    let (status, text, calls) = report(&w);
    assert!(status == ReportStatus::Failed || text.contains("rounds"), "{status:?} {text}");
    assert_eq!(calls, 0);
}

#[test]
fn agent_is_asked_to_report_when_calls_are_used_up() {
    let mut w = by_commands();
    let many: Vec<String> = (0..7).map(|n| format!("tasks.create --title t{n}")).collect();
    w.agent_replies("a", &cmd(&many.join("\n")), &[]);
    for n in 0..5 {
        w.agent_skill("a", &format!("created {n}"));
    }
    let shown = w.last_shown_to("a");
    assert_eq!(shown.matches("[not run] Reached the tool call limit (5).").count(), 2, "{shown}");
    assert!(shown.ends_with("[All your tool calls are used. Report now, in words.]"), "{shown}");
    w.agent_replies("a", "Five of seven.", &[]);
    assert_eq!(report(&w), (ReportStatus::Completed, "Five of seven.".to_owned(), 5));
}

#[test]
fn agent_continuing_at_its_limit_ends_with_list_of_its_effects() {
    let mut w = by_commands();
    for n in 0..5 {
        w.agent_replies("a", &cmd(&format!("tasks.create --title t{n}")), &[]);
        w.agent_skill("a", &format!("created {n}"));
    }
    w.agent_replies("a", &cmd("tasks.create --title more"), &[]);
    let (status, text, calls) = report(&w);
    assert_eq!((status, calls), (ReportStatus::Completed, 5));
    assert!(text.starts_with(
        "Reached the tool call limit (5). Partial work completed.\n\nCompleted:\n- tasks.create: created 0"
    ));
    assert!(text.contains("\n\nNot completed:\n- tasks.create (tool call limit reached)"), "{text}");
}

#[test]
fn agent_calls_not_run_after_failure_can_be_made_later() {
    let mut w = by_commands();
    let many: Vec<String> = (0..6).map(|n| format!("tasks.create --title t{n}")).collect();
    w.agent_replies("a", &cmd(&many.join("\n")), &[]);
    w.skill_ends(&agent("a"), 0, Outcome::transient("timeout", "took too long"));
    assert!(!w.last_shown_to("a").contains("Report now"), "one of five calls is used");
    w.agent_replies("a", &cmd("tasks.create --title again"), &[]);
    w.agent_skill("a", "created");
    w.agent_replies("a", "Done.", &[]);
    assert_eq!(report(&w).2, 2);
}

#[test]
fn agent_can_call_only_granted_skills() {
    let mut w = by_commands();
    w.agent_replies("a", &cmd("email.send --to bob --body hi"), &[]);
    assert!(w.last_shown_to("a").contains("email.send is not available to this agent"), "{}", w.last_shown_to("a"));
    w.agent_replies("a", "I cannot.", &[tool("t", "dispatch_agent", &json!({}))]);
    assert!(w.last_shown_to("a").contains("you have no tools"), "a sub-agent cannot delegate");
    w.agent_replies("a", "I cannot.", &[]);
    w.agent_replies("a", "I cannot.", &[]);
    assert_eq!(report(&w).0, ReportStatus::NoAction);
}

#[test]
fn agent_truncated_command_is_never_run() {
    let mut w = by_commands();
    let cut = ModelReply {
        finish: Finish::Length,
        ..reply("```cmd\ntasks.search\ntasks.create --title Review the pull", &[])
    };
    w.agent_replies_with("a", &cut);
    w.agent_skill("a", "none");
    assert!(w.last_shown_to("a").contains("your reply was cut off in this command"), "{}", w.last_shown_to("a"));
    let whole = ModelReply { finish: Finish::Length, ..reply(&(cmd("tasks.create --title x") + "\nThen I"), &[]) };
    w.agent_replies_with("a", &whole);
    assert_eq!(w.skill_calls(&agent("a")).len(), 1);
}

#[test]
fn agent_json_calls_run_concurrently_and_enum_lists_granted_skills() {
    let mut w = by_json();
    let request = w.sub("a").view().request(&w.skills);
    assert_eq!(request.tools[0].parameters["properties"]["skill"]["enum"], json!(["tasks.create", "tasks.search"]));
    let calls = [
        use_skill("1", "tasks.create", &json!({"title": "x"})),
        use_skill("2", "tasks.search", &json!("{\"query\": \"y\"}")),
        use_skill("3", "email.send", &json!({"to": "b", "body": "c"})),
        use_skill("4", "tasks.create", &json!({"titel": "x"})),
    ];
    w.agent_replies("a", "", &calls);
    assert_eq!(w.skill_calls(&agent("a")).len(), 2);
    w.skill_ends(&agent("a"), 1, Outcome::transient("timeout", "slow"));
    w.agent_skill("a", "created");
    let shown: Vec<String> = w.sub("a").run.messages[2..].iter().map(super::world::text_of).collect();
    assert_eq!(shown[0], "created");
    assert!(shown[1].starts_with("[error_transient] slow"), "one failure does not stop the other calls");
    assert!(shown[2].contains("is not available to this agent; yours are tasks.create, tasks.search."), "{}", shown[2]);
    assert!(shown[3].contains("it has no argument \"titel\". Did you mean \"title\"?"), "{}", shown[3]);
    w.agent_replies("a", "Done.", &[]);
    assert_eq!(report(&w), (ReportStatus::Completed, "Done.".to_owned(), 2));
}

#[test]
fn agent_with_json_is_asked_to_report_at_call_limit() {
    let mut w = by_json();
    let calls: Vec<_> =
        (0..6).map(|n| use_skill(&n.to_string(), "tasks.create", &json!({"title": n.to_string()}))).collect();
    w.agent_replies("a", "", &calls);
    for _ in 0..5 {
        w.agent_skill("a", "created");
    }
    let run = &w.sub("a").run;
    assert!(matches!(run.messages.last(), Some(Message::Note { text }) if text.contains("Report now")));
    w.agent_replies("a", "Five.", &[]);
    assert_eq!(report(&w).2, 5);
}

#[test]
fn agent_with_empty_replies_fails() {
    for mut w in [by_commands(), by_json()] {
        w.agent_replies("a", "", &[]);
        assert!(w.last_shown_to("a").contains("was empty"));
        w.agent_replies("a", " ", &[]);
        assert_eq!(report(&w).0, ReportStatus::Failed);
        assert!(w.results()[1].contains("empty answer twice"));
    }
}

#[test]
fn agent_model_failure_becomes_report_to_orchestrator() {
    let mut w = by_commands();
    w.agent_replies("a", &cmd("tasks.create --title x"), &[]);
    w.agent_skill("a", "created 1");
    w.agent_model_fails("a", ModelErrorKind::Unavailable);
    let (status, text, calls) = report(&w);
    assert_eq!((status, calls), (ReportStatus::Failed, 1));
    assert_eq!(text, "model call failed (unavailable): so it is\n\nCompleted:\n- tasks.create: created 1");
    w.replies("It got stuck after creating x.", &[]);
    assert!(w.conv.is_idle());
}

#[test]
fn agent_with_context_overflow_continues_with_shorter_results() {
    let mut w = by_commands();
    w.agent_replies("a", &cmd("tasks.search"), &[]);
    w.agent_skill("a", &"long ".repeat(2_000));
    let before = w.last_shown_to("a").len();
    assert!(before < 8_100, "a result is never more than a quarter of the window: {before}");
    w.agent_model_fails("a", ModelErrorKind::Overflow);
    assert!(w.last_shown_to("a").len() <= 1_000);
    w.agent_replies("a", "Many.", &[]);
    assert_eq!(report(&w).0, ReportStatus::Completed);

    let mut w = by_commands();
    w.agent_model_fails("a", ModelErrorKind::Overflow);
    assert_eq!(report(&w).0, ReportStatus::Failed, "there are no results to shorten");
}

#[test]
fn agent_keeps_its_results_over_restart() {
    let mut w = by_commands();
    w.agent_replies("a", &cmd("tasks.create --title x\ntasks.create --title y"), &[]);
    w.agent_skill("a", "created x");
    w.skill_starts(&agent("a"));
    w.restart(crate::event::ResumeCause::Restart);
    assert_eq!(w.running(), ["a"]);
    let outstanding = w.sub("a").outstanding();
    assert!(matches!(
        outstanding.as_slice(),
        [crate::turn::Directive::CallSkill { started_before: true, skill, .. }] if skill.arguments["title"] == "y"
    ));
    w.agent_skill("a", "created y");
    w.agent_replies("a", "Both.", &[]);
    assert_eq!(report(&w), (ReportStatus::Completed, "Both.".to_owned(), 2));
}

/// The commands of an agent fail in this way, one for each word.
fn agent_fails(w: &mut World, name: &str, words: &[&str], outcome: &Outcome) -> Vec<String> {
    let mut shown = Vec::new();
    for word in words {
        w.agent_replies(name, &cmd(&format!("tasks.search --query {word}")), &[]);
        w.skill_ends(&agent(name), 0, outcome.clone());
        shown.push(w.last_shown_to(name));
    }
    shown
}

#[test]
fn attempts_are_counted_for_the_goal_over_all_agents_of_the_turn() {
    let mut w = World::new();
    w.say("Find it");
    let nothing = Outcome::permanent("empty_result", "nothing");
    for (name, next) in [("a", "Ask more broadly."), ("b", "Look in another place."), ("c", "Nothing else is left")] {
        w.replies("", &[dispatch(name, &[]), collect(&[name])]);
        let shown = agent_fails(&mut w, name, &[&format!("{name}{name}{name}")], &nothing);
        assert!(shown[0].contains(&format!("\nNext: {next}")), "{name}: {}", shown[0]);
        w.agent_replies(name, "There is nothing.", &[]);
    }
}

#[test]
fn failure_at_the_end_of_its_chain_is_put_to_the_orchestrator() {
    let mut w = World::new();
    w.say("Find it");
    w.replies("", &[dispatch("a", &[]), collect(&["a"])]);
    agent_fails(&mut w, "a", &["apple", "banana"], &Outcome::permanent("empty_result", "nothing"));
    let asks =
        Outcome { escalate: true, escalation_context: "two mirrors".to_owned(), ..Outcome::permanent("odd", "no") };
    agent_fails(&mut w, "a", &["cherry"], &asks);
    w.agent_replies("a", "I did not find it.", &[]);
    let shown = w.results().join("\n");
    assert!(shown.contains("\"decide\":[\"tasks.search failed (other): no; tried: two mirrors\"]"), "{shown}");
    w.replies("", &[dispatch("b", &[]), collect(&["b"])]);
    agent_fails(&mut w, "b", &["damson"], &Outcome::permanent("empty_result", "nothing"));
    w.agent_replies("b", "Nothing.", &[]);
    let shown = w.results().join("\n");
    assert!(shown.contains("tasks.search failed (empty_result): nothing; tried: 3 of this kind in all"), "{shown}");
}

#[test]
fn agent_is_given_next_alternative_after_each_failure() {
    let mut w = by_commands();
    let mut sent = Vec::new();
    for n in 0..3 {
        w.agent_replies("a", &cmd(&format!("tasks.search --query q{n}")), &[]);
        w.skill_ends(&agent("a"), 0, Outcome::permanent("empty_result", "nothing"));
        sent.push(w.last_shown_to("a"));
    }
    for (shown, next) in sent.iter().zip(["Ask more broadly.", "Look in another place.", "Nothing else is left to try"])
    {
        assert!(shown.contains(&format!("\nNext: {next}")), "{shown}");
    }
}

#[test]
fn agent_stands_in_the_queue_where_the_mood_puts_its_turn() {
    let mood = mood(Emotion::Frustrated, 1.0);
    assert!(mood.shift_ms() < 0);
    let mut w = World::new();
    w.receive(Inbound { mood: Some(mood), ..World::inbound("Find it") });
    w.replies("", &[dispatch("a", &[]), collect(&["a"])]);
    assert_eq!(w.sub("a").view().shift_ms(), mood.shift_ms());
}
