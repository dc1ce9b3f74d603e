//! Single sub-agents that a person or the orchestrator steers and stops, and the options of their dispatches.

use serde_json::{Value, json};

use super::{
    script::{agent, cmd, collect, dispatch, tool},
    world::World,
};
use crate::{
    event::{EventBody, Mode, ReportStatus},
    limits::TurnLimits,
};

/// A world in which the agents `a` and `b` run and `c` waits for `a`.
fn running(limits: TurnLimits) -> World {
    let mut w = World::with(Mode::MultiAgent, limits);
    w.say("Go");
    w.replies("", &[dispatch("a", &[]), dispatch("b", &[]), dispatch("c", &["a"]), collect(&["b"])]);
    w
}

fn dispatch_with(name: &str, options: &Value) -> crate::message::ToolCall {
    let mut arguments = json!({"agent_id": name, "mission": format!("Do {name}"), "skills": ["tasks.search"]});
    arguments.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    tool(&format!("d_{name}"), "dispatch_agent", &arguments)
}

fn result_of(w: &World, name: &str) -> String {
    let reports = w.reports(w.log[0].task);
    reports.into_iter().find(|(agent, _)| *agent == name).map(|(_, report)| report.result).expect("a report")
}

#[test]
fn agent_sees_added_text_after_its_round_and_its_report_waits_for_that() {
    let mut w = running(TurnLimits::default());
    w.steer("a", "Only this week.");
    assert!(!w.last_shown_to("a").contains("Only this week."), "its round is under way");
    w.agent_replies("a", "I found three.", &[]);
    assert!(w.last_shown_to("a").contains("[The user adds, while you work on this:]\nOnly this week."));
    w.agent_replies("a", "I found one.", &[]);
    assert_eq!(result_of(&w, "a"), "I found one.");
}

#[test]
fn agent_that_calls_a_skill_sees_added_text_with_the_result() {
    let mut w = running(TurnLimits::default());
    w.agent_replies("a", &cmd("tasks.search"), &[]);
    w.steer("a", "One.");
    w.steer("a", "Two.");
    w.agent_skill("a", "none");
    let shown = w.last_shown_to("a");
    assert!(shown.contains("none") && shown.contains("One.") && shown.contains("Two."), "{shown}");
}

#[test]
fn agent_that_waits_begins_with_the_added_text() {
    let mut w = running(TurnLimits::default());
    w.steer("c", "Only this week.");
    w.agent_replies("a", "Fine.", &[]);
    assert!(w.last_shown_to("c").contains("Only this week."));
}

#[test]
fn agent_that_is_stopped_is_reported_and_only_its_dependants_are_skipped() {
    let mut w = running(TurnLimits::default());
    let task = w.log[0].task;
    w.record(task, agent("a"), EventBody::AgentStopRequested { by: "ann".into(), reason: "too slow".into() });
    assert_eq!(w.statuses(task), [("a", ReportStatus::Cancelled), ("c", ReportStatus::Skipped)]);
    assert!(result_of(&w, "a").starts_with("Cancelled by ann: too slow. What it had done"));
    assert_eq!(w.running(), ["b"]);
    w.agent_replies("b", "Fine.", &[]);
    w.replies("Done.", &[]);
    assert!(w.last_shown().contains("Cancelled by ann"), "the answer waits for the results: {}", w.last_shown());
}

#[test]
fn orchestrator_steers_and_stops_agents_only_with_the_tools_for_it() {
    let control = |agent: &str| {
        [
            tool("1", "steer_agent", &json!({"agent_id": agent, "text": "Hurry."})),
            tool("2", "stop_agent", &json!({"agent_id": agent})),
        ]
    };
    let mut w = running(TurnLimits { agent_control: true, ..TurnLimits::default() });
    w.agent_replies("b", "Fine.", &[]);
    assert!(w.request().tools.iter().any(|tool| tool.name == "stop_agent"));
    w.replies("", &control("a"));
    w.replies("", &control("a"));
    assert_eq!(w.results()[w.results().len() - 2..], ["Error: agent a has ended already."; 2]);
    assert!(result_of(&w, "a").starts_with("Cancelled by the orchestrator."));

    let mut w = running(TurnLimits::default());
    w.agent_replies("b", "Fine.", &[]);
    assert!(!w.request().tools.iter().any(|tool| tool.name == "stop_agent"));
    w.replies("", &control("a"));
    assert!(w.last_shown().contains("there is no tool \"stop_agent\""), "{}", w.last_shown());
    assert_eq!(w.running(), ["a"]);
}

#[test]
fn agent_that_the_orchestrator_steers_has_the_origins_of_what_that_had_read() {
    let mut w = running(TurnLimits { agent_control: true, ..TurnLimits::default() });
    w.agent_replies("b", &cmd("tasks.search"), &[]);
    w.agent_skill("b", "none");
    w.agent_replies("b", "Fine.", &[]);
    w.replies("", &[tool("1", "steer_agent", &json!({"agent_id": "c", "text": "Take task #7."}))]);
    // What it inherits when it begins is what the orchestrator has read by then. The text has origins of its own.
    let task = w.log[0].task;
    let steered = w.conv.turn(task).unwrap().agents.plan.node(&agent("c")).unwrap().steering.clone();
    assert_eq!(steered.iter().map(|steer| steer.origins.as_slice()).collect::<Vec<_>>(), [["tasks.search"]]);
    let mut run = w.sub("a").run.clone();
    assert!(run.provenance.origins().is_empty(), "{:?}", run.provenance.origins());
    run.take_steering(&steered, 1);
    run.deliver_steered();
    assert_eq!(run.provenance.origins(), ["tasks.search"]);
    assert!(run.provenance.names(7), "the number of the text is known");
}

#[test]
fn mission_contains_the_report_of_a_key_once_and_waits_for_it() {
    let mut w = World::new();
    w.say("Go");
    let double = dispatch_with("b", &json!({"context": "The number: {number}. Not {other}."}));
    w.replies("", &[double, dispatch_with("a", &json!({"output_key": "number"})), collect(&[])]);
    assert_eq!(w.running(), ["a"]);
    w.agent_replies("a", "It is 21.", &[]);
    let shown = w.last_shown_to("b");
    assert!(shown.matches("It is 21.").count() == 1 && shown.contains("Not {other}."), "{shown}");
    assert!(shown.find("The number: <report") < shown.find("Not {other}."), "{shown}");
}

#[test]
fn report_of_an_agent_with_a_schema_is_json_or_a_failure() {
    let schema = json!({"output_schema": {"type": "object", "required": ["n"]}});
    let begin = || {
        let mut w = World::new();
        w.say("Go");
        w.replies("", &[dispatch_with("a", &schema), collect(&[])]);
        w.agent_replies("a", "Three.", &[]);
        assert!(w.last_shown_to("a").contains("does not have the form that was asked for"));
        w
    };
    let mut w = begin();
    w.agent_replies("a", "```json\n{\"n\": 3}\n```", &[]);
    assert_eq!(
        (w.statuses(w.log[0].task), result_of(&w, "a").as_str()),
        (vec![("a", ReportStatus::Completed)], "{\"n\": 3}")
    );
    let mut w = begin();
    w.agent_replies("a", "Still three.", &[]);
    assert_eq!(w.statuses(w.log[0].task), [("a", ReportStatus::Failed)]);
    assert!(result_of(&w, "a").contains("Still three."));
}
