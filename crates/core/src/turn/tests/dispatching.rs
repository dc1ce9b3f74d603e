//! The orchestrator and its sub-agents: discovery, dispatch, dependencies, results.

use serde_json::{Value, json};

use super::{
    script::{agent, cmd, collect, dispatch, dispatch_to_act, tool},
    world::World,
};
use crate::{
    context::framed,
    event::{EventBody, ReportStatus},
    message::Message,
};

fn first_message(w: &World, name: &str) -> String {
    super::world::text_of(&w.sub(name).run.messages[0])
}

#[test]
fn orchestrator_turn_discovers_dispatches_collects_and_answers() {
    let mut w = World::new();
    let task = w.say("Create a task: review PR 42");
    w.replies("", &[tool("g", "get_skill", &json!({"domain": "tasks"}))]);
    assert!(w.results()[0].contains("tasks.create --title TEXT [--due TEXT]"), "{:?}", w.results());
    w.replies("", &[dispatch_to_act("maker", &[])]);
    assert_eq!(w.results(), [r#"{"agent_id":"maker","status":"accepted"}"#]);
    assert_eq!(w.running(), ["maker"]);
    w.replies("", &[collect(&[])]);
    w.agent_replies("maker", &cmd("tasks.create --title \"Review PR 42\""), &[]);
    assert_eq!(w.skill_calls(&agent("maker")), [("tasks.create".to_owned(), json!({"title": "Review PR 42"}))]);
    w.agent_skill("maker", "Created task 7.");
    let shown = w.last_shown_to("maker");
    assert_eq!(framed(&shown, "result")[0].attributes, "command=\"tasks.create\" status=\"ok\"");
    assert_eq!(framed(&shown, "result")[0].text, "Created task 7.");
    w.agent_replies("maker", "Created task 7: Review PR 42.", &[]);
    let results: Value = serde_json::from_str(&w.results()[0]).unwrap();
    let first = &results["agents"][0];
    assert_eq!(first["agent_id"], "maker");
    assert_eq!(first["status"], "completed");
    assert_eq!(first["result"], "Created task 7: Review PR 42.");
    assert_eq!(first["tool_calls_used"], 1);
    assert!(first["duration_ms"].is_u64());
    w.replies("Done: task 7.", &[]);
    assert_eq!(w.answer(task), "Done: task 7.");
}

#[test]
fn agents_without_dependencies_run_in_parallel_and_are_collected_at_once() {
    let mut w = World::new();
    let task = w.say("Both");
    w.replies("", &[collect(&[]), dispatch("a", &[]), dispatch("b", &[])]);
    assert_eq!(w.running(), ["a", "b"]);
    w.agent_replies("b", "b is done", &[]);
    assert_eq!(w.running(), ["a"]);
    w.agent_replies("a", "a is done", &[]);
    let results = w.results();
    assert!(results[0].contains("a is done") && results[0].contains("b is done"), "{results:?}");
    w.replies("Both.", &[]);
    assert_eq!(w.statuses(task), [("b", ReportStatus::Completed), ("a", ReportStatus::Completed)]);
}

#[test]
fn orchestrator_collects_some_agents_while_others_run() {
    let mut w = World::new();
    let task = w.say("Both");
    w.replies("", &[dispatch("quick", &[]), dispatch("slow", &[]), collect(&["quick"])]);
    w.agent_replies("quick", "quick is done", &[]);
    assert!(w.results()[2].contains("quick is done"));
    w.replies("", &[collect(&["slow", "quick"])]);
    w.agent_replies("slow", "slow is done", &[]);
    assert!(w.results()[0].contains("slow is done"));
    w.replies("Fine.", &[]);
    assert_eq!(w.answer(task), "Fine.");
}

#[test]
fn agent_starts_when_its_own_dependencies_are_done() {
    let mut w = World::new();
    w.say("Diamond");
    let diamond = [
        dispatch("d", &["b", "c"]),
        dispatch("a", &[]),
        dispatch("b", &["a"]),
        dispatch("c", &["a", "x"]),
        dispatch("x", &[]),
        collect(&[]),
    ];
    w.replies("", &diamond);
    assert_eq!(w.running(), ["a", "x"]);
    w.agent_replies("a", "from a", &[]);
    assert_eq!(w.running(), ["b", "x"], "b does not wait for x");
    w.agent_replies("x", "from x", &[]);
    assert_eq!(w.running(), ["b", "c"]);
    let brief = first_message(&w, "c");
    assert!(brief.starts_with("MISSION: Do c\n\n<report-"), "{brief}");
    let reports = framed(&brief, "report");
    let reported: Vec<(&str, &str)> = reports.iter().map(|r| (r.attributes, r.text.as_ref())).collect();
    let from = |agent: &str| format!("agent=\"{agent}\" status=\"completed\"");
    assert_eq!(reported, [(from("a").as_str(), "from a"), (from("x").as_str(), "from x")]);
    w.agent_replies("c", "from c", &[]);
    w.agent_replies("b", "from b", &[]);
    assert_eq!(w.running(), ["d"]);
    w.agent_replies("d", "from d", &[]);
    assert!(w.running().is_empty());
}

#[test]
fn agent_dispatched_later_receives_results_of_earlier_dependency() {
    let mut w = World::new();
    w.say("First, then");
    w.replies("", &[dispatch("first", &[]), collect(&[])]);
    w.agent_replies("first", "three tasks", &[]);
    w.replies("", &[dispatch("then", &["first"]), collect(&["then"])]);
    assert_eq!(framed(&first_message(&w, "then"), "report")[0].text, "three tasks");
}

#[test]
fn agent_depending_on_failed_one_is_skipped_with_reason() {
    let mut w = World::new();
    let task = w.say("Chain");
    let chain =
        [dispatch("a", &[]), dispatch("b", &["a"]), dispatch("c", &["b"]), dispatch("other", &[]), collect(&[])];
    w.replies("", &chain);
    w.agent_ends("a", ReportStatus::Crashed);
    assert_eq!(w.running(), ["other"]);
    let reports = w.reports(task);
    assert_eq!(reports[1].1.result, "Skipped because dependency 'a' crashed: The agent crashed: a panic.");
    assert!(reports[2].1.result.starts_with("Skipped because dependency 'b' was skipped: Skipped because"));
    w.agent_replies("other", "fine", &[]);
    let shown = &w.results()[4];
    for status in ["crashed", "skipped", "completed"] {
        assert!(shown.contains(&format!("\"status\":\"{status}\"")), "{shown}");
    }
    w.replies("Half of it.", &[]);
    assert_eq!(w.answer(task), "Half of it.");
}

#[test]
fn orchestrator_answering_without_reading_results_is_given_them_first() {
    let mut w = World::new();
    let task = w.say("Do it");
    w.replies("", &[dispatch("a", &[])]);
    w.replies("All done!", &[]);
    assert!(w.finals(task).is_empty(), "the turn waits for the running agent");
    w.agent_replies("a", "It failed: no such task.", &[]);
    assert!(w.log.iter().any(|e| e.body == EventBody::ResultsGiven));
    assert!(w.last_shown().starts_with("[Agent results]") && w.last_shown().contains("no such task"));
    w.replies("It failed.", &[]);
    assert_eq!(w.answer(task), "It failed.");
}

#[test]
fn orchestrator_answering_in_dispatching_reply_is_asked_again() {
    let mut w = World::new();
    let task = w.say("Do it");
    w.replies("I am on it, here is what I think.", &[dispatch("a", &[])]);
    w.agent_replies("a", "result of a", &[]);
    w.replies("Looks good.", &[]);
    assert!(w.last_shown().contains("result of a"), "dispatched and never collected");
    w.replies("Done.", &[]);
    assert_eq!(w.answer(task), "Done.");
}

#[test]
fn orchestrator_may_run_rounds_while_agents_run() {
    let mut w = World::new();
    let task = w.say("Do it");
    w.replies("", &[dispatch("a", &[])]);
    w.replies("", &[tool("g", "get_skill", &json!({"search": "mail"}))]);
    assert!(w.results()[0].contains("email.send"));
    w.agent_replies("a", "fine", &[]);
    w.replies("", &[collect(&["a"])]);
    w.replies("Done.", &[]);
    assert_eq!(w.answer(task), "Done.");
}

#[test]
fn orchestrator_may_dispatch_new_agent_after_failed_one() {
    let mut w = World::new();
    let task = w.say("Do it");
    w.replies("", &[dispatch("a", &[]), collect(&[])]);
    w.agent_ends("a", ReportStatus::Timeout);
    assert!(w.results()[1].contains("timeout") && w.results()[1].contains("Ran out of time after 180 s."));
    w.replies("", &[dispatch("a2", &[]), collect(&["a2"])]);
    w.agent_replies("a2", "worked", &[]);
    w.replies("Done.", &[]);
    assert_eq!(w.statuses(task), [("a", ReportStatus::Timeout), ("a2", ReportStatus::Completed)]);
}

#[test]
fn sub_agent_prompt_contains_only_mission_context_and_granted_skills() {
    let mut w = World::new();
    w.facts.memories = vec!["A secret".to_owned()];
    w.say("Mail Bob");
    let arguments = json!({
        "agent_id": "mailer", "mission": "Mail Bob", "skills": "email.send, email.send", "context": "bob@example.org",
        "max_tool_calls": "2"
    });
    w.replies("", &[tool("d", "dispatch_agent", &arguments)]);
    let request = w.sub("mailer").view().request(&w.skills);
    let context = Some("[Context]\nLocal time: 2026-02-18 14:05 Wednesday\n[/Context]".to_owned());
    let text = "MISSION: Mail Bob\n\nAdditional context:\nbob@example.org".to_owned();
    assert_eq!(request.messages, [Message::User { context, text }]);
    let system: String = request.system.iter().map(|p| p.text.as_str()).collect();
    assert!(system.contains("email.send --to TEXT --body TEXT") && !system.contains("tasks."), "{system}");
    assert!(!system.contains("secret") && request.tools.is_empty());
    assert_eq!(w.granted("mailer"), 2);
}
