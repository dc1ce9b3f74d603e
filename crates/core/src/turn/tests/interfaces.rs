//! The main agent with the command interface, from the beginning or after a backend refused tools.

use serde_json::json;

use super::{
    script::{cmd, dispatch, skill, skills, tool, use_skill},
    world::World,
};
use crate::{
    event::{EventBody, Mode, ResumeCause},
    ids::AgentId,
    limits::{MainInterface, TurnLimits},
    message::{Message, ModelError, ModelErrorKind},
    outcome::Outcome,
    skill::{ArgKind, Effect, SkillSet, SkillSpec},
};

fn with(mode: Mode, main_interface: MainInterface) -> World {
    World::with(mode, TurnLimits { main_interface, ..TurnLimits::default() })
}

fn refuses(w: &mut World, kind: ModelErrorKind, detail: &str) {
    let round = w.turn().main.round;
    let error = ModelError::new(kind, detail);
    let task = w.current().unwrap();
    w.record(task, AgentId::orchestrator(), EventBody::ModelFailed { round, error, waited_ms: 0 });
}

const REFUSAL: &str = "gemma3:4b does not support tools";

#[test]
fn main_agent_with_commands_runs_skills_and_answers() {
    for mode in [Mode::MultiAgent, Mode::SingleLoop, Mode::Direct] {
        let mut w = with(mode, MainInterface::Cmd);
        let task = w.say("Buy milk and look");
        assert!(w.request().tools.is_empty(), "{mode:?}");
        assert!(w.request().system[0].text.contains("```cmd"), "the prompt contains the grammar");
        w.replies(&cmd("tasks.create --title milk\ntasks.search --query milk"), &[]);
        let main = AgentId::orchestrator();
        assert_eq!(
            w.skill_calls(&main),
            [("tasks.create".to_owned(), json!({"title": "milk"}))],
            "commands run one after another"
        );
        w.main_skill("Created task #1.");
        w.main_skill("#1 milk");
        assert!(w.last_shown().contains("Created task #1.") && w.last_shown().contains("#1 milk"));
        w.replies(&cmd("tasks.create --help"), &[]);
        assert!(w.last_shown().contains("Usage: tasks.create"), "{}", w.last_shown());
        w.replies("I added milk.", &[]);
        assert_eq!(w.answer(task), "I added milk.");
    }
}

#[test]
fn history_with_commands_contains_earlier_commands_without_errors() {
    let mut w = with(Mode::SingleLoop, MainInterface::Cmd);
    w.say("Buy milk");
    w.replies(&cmd("tasks.create --wrong x"), &[]);
    w.replies(&cmd("tasks.create --title milk"), &[]);
    w.main_skill("Created task #1 milk");
    w.replies("I added task #1.", &[]);
    w.say("Buy bread");
    let shown: Vec<String> = w.request().messages.iter().map(|m| serde_json::to_string(m).unwrap()).collect();
    assert_eq!(shown.len(), 5, "{shown:#?}");
    assert!(shown[1].contains("tasks.create --title milk") && shown[2].contains("Created task #1 milk"), "{shown:#?}");
    assert!(shown[2].contains("<result-") && shown[3].contains("I added task #1."), "{shown:#?}");
}

#[test]
fn history_omits_repeated_commands_and_words_around_commands() {
    let mut w = with(Mode::SingleLoop, MainInterface::Cmd);
    w.say("Buy milk");
    w.replies(&format!("I cannot. Else: {}", cmd("tasks.create --title milk")), &[]);
    w.main_skill("Created task #1 milk");
    for again in ["tasks.create --title milk", "tasks.create --title \"milk\""] {
        w.replies(&cmd(again), &[]);
    }
    w.say("What is on my list?");
    for n in 0..2 {
        w.replies(&cmd("tasks.search"), &[]);
        w.main_skill("#1 milk");
        assert_eq!(w.last_shown().contains("This is the same result as before."), n == 1, "{}", w.last_shown());
    }
    w.replies("Milk.", &[]);
    w.say("Buy bread");
    let shown = w.texts();
    let wanted = [
        "Buy milk",
        "tasks.create --title milk",
        "Created task #1 milk",
        "Created task #1 milk.",
        "What is on my list?",
        "tasks.search",
        "#1 milk",
        "Milk.",
        "Buy bread",
    ];
    assert_eq!(shown.len(), wanted.len(), "{shown:#?}");
    for (shown, wanted) in shown.iter().zip(wanted) {
        assert!(shown.contains(wanted) && !shown.contains("cannot") && !shown.contains("again"), "{shown}");
    }
}

#[test]
fn commands_that_fail_again_stand_once_in_context() {
    let mut w = with(Mode::SingleLoop, MainInterface::Cmd);
    w.say("Buy milk");
    for n in 0..3 {
        w.replies(&cmd("tasks.create --titel milk"), &[]);
        let shown = w.texts();
        assert_eq!(shown.len(), 3, "{shown:#?}");
        assert_eq!(shown[2].contains("and it failed again"), n > 0, "{shown:#?}");
    }
    w.replies(&cmd("tasks.create --titel bread"), &[]);
    assert_eq!(w.request().messages.len(), 5, "another failure is another round");
    w.add("Make it two");
    w.replies(&cmd("tasks.create --titel bread"), &[]);
    w.replies(&cmd("tasks.create --titel bread"), &[]);
    let shown = serde_json::to_string(&w.request().messages).unwrap();
    assert!(shown.contains("Make it two"), "words of the user are kept: {shown}");
}

#[test]
fn created_thing_is_not_created_again_after_it_was_changed() {
    let mut w = with(Mode::SingleLoop, MainInterface::Cmd);
    w.skills = SkillSet::new(
        [
            skill("tasks.create", Effect::Idempotent, &[("title", true)]),
            skill("tasks.rename", Effect::Idempotent, &[("id", true), ("title", true)]),
        ],
        [("tasks".to_owned(), "To-do list".to_owned())],
        1,
    );
    w.say("Add milk, and rename the task to bread");
    w.replies(&cmd("tasks.create --title milk"), &[]);
    let created = Outcome::success("Created task #1 milk").with_evidence(json!({"id": 1}));
    w.skill_ends(&AgentId::orchestrator(), 0, created);
    w.replies(&cmd("tasks.rename --id 1 --title bread"), &[]);
    w.skill_ends(
        &AgentId::orchestrator(),
        0,
        Outcome::success("Updated task #1 bread").with_evidence(json!({"id": 1})),
    );
    w.replies(&cmd("tasks.create --title milk"), &[]);
    assert!(w.skill_calls(&AgentId::orchestrator()).is_empty());
    let shown = w.texts();
    assert!(shown.last().unwrap().contains("[done already] Created task #1 milk"), "{shown:#?}");
}

#[test]
fn invented_result_in_answer_to_a_request_changes_turn_to_commands() {
    for invented in ["<result>Deleted.</result>", "<tool_response>\nTask #1 is deleted.\n</tool_response>"] {
        let mut w = with(Mode::SingleLoop, MainInterface::Auto);
        let task = w.say("Delete task 1");
        w.replies(invented, &[]);
        assert!(w.request().tools.is_empty() && !w.texts().contains(&invented.to_owned()), "{:#?}", w.texts());
        w.replies("There is no such task.", &[]);
        assert_eq!(w.answer(task), "There is no such task.");
    }
}

#[test]
fn untrue_claim_is_not_shown_to_model_that_made_it() {
    let mut w = with(Mode::SingleLoop, MainInterface::Cmd);
    let task = w.say("Create a task to buy milk");
    w.replies("I created the task \"milk\".", &[]);
    let shown = serde_json::to_string(&w.request().messages).unwrap();
    assert!(!shown.contains("I created") && shown.contains("Write the cmd block that does it now"), "{shown}");
    w.replies(&cmd("tasks.create --title milk"), &[]);
    w.main_skill("Created task #1 milk");
    w.replies("I created task #1 \"milk\".", &[]);
    assert_eq!(w.answer(task), "I created task #1 \"milk\".");
}

#[test]
fn history_with_tools_contains_earlier_calls_without_errors() {
    let mut w = with(Mode::SingleLoop, MainInterface::Tools);
    w.say("Buy milk");
    w.replies("", &[tool("0", "get_skill", &json!({}))]);
    w.replies("", &[use_skill("0", "tasks.create", &json!({"wrong": "x"}))]);
    w.replies("", &[use_skill("0", "tasks.create", &json!({"title": "milk"}))]);
    w.main_skill(&format!("Created task #1 milk {}", "x".repeat(5_000)));
    w.replies("I added task #1.", &[]);
    w.say("Buy bread");
    let messages = w.request().messages;
    assert_eq!(messages.len(), 5, "{messages:#?}");
    let Message::Assistant { tool_calls, .. } = &messages[1] else { panic!("no call: {messages:#?}") };
    let Message::Tool { call_id, text, is_error: false } = &messages[2] else { panic!("no result: {messages:#?}") };
    assert!(tool_calls[0].arguments.contains("milk") && tool_calls[0].id == *call_id, "{messages:#?}");
    assert!(text.starts_with("Created task #1 milk") && text.len() < 700, "{text}");
    assert!(!format!("{messages:?}").contains("wrong"), "{messages:#?}");
    assert_eq!(w.request().stable_messages, 4);
    // The ids of several turns are different.
    w.replies("", &[use_skill("0", "tasks.create", &json!({"title": "bread"}))]);
    w.main_skill("Created task #2 bread");
    w.replies("I added task #2.", &[]);
    w.say("And now?");
    let messages = w.request().messages;
    let ids = messages.iter().filter_map(|m| if let Message::Tool { call_id, .. } = m { Some(call_id) } else { None });
    let ids: std::collections::BTreeSet<_> = ids.collect();
    assert!(ids.len() == 2 && ids.iter().all(|id| id.len() == 9), "{ids:?}");
}

#[test]
fn history_omits_calls_of_another_mode() {
    let mut w = with(Mode::SingleLoop, MainInterface::Tools);
    w.say("Buy milk");
    w.replies("", &[use_skill("0", "tasks.create", &json!({"title": "milk"}))]);
    w.main_skill("Created task #1 milk");
    w.replies("I added task #1.", &[]);
    w.mode = Mode::MultiAgent;
    w.say("Buy bread");
    assert_eq!(w.request().messages.len(), 3, "{:#?}", w.request().messages);
}

#[test]
fn claim_without_command_is_asked_once_to_act() {
    let mut w = with(Mode::SingleLoop, MainInterface::Cmd);
    let task = w.say("Delete the dentist task");
    w.replies("I deleted task #1 \"Call the dentist\".", &[]);
    assert!(w.last_shown().contains("Nothing was done: you ran no command"), "{}", w.last_shown());
    w.replies("I deleted the task.", &[]);
    let nothing = "Nothing was changed: no skill that changes anything ran for this request.";
    assert_eq!(w.answer(task), nothing, "an untrue claim is not repeated to the user");
    let task = w.say("Buy milk");
    w.replies("I added the task.", &[]);
    w.replies(&cmd("tasks.create --title milk"), &[]);
    w.main_skill("Created task #2 milk");
    w.replies("I added the task.", &[]);
    assert_eq!(w.answer(task), "I added the task.");
}

#[test]
fn claim_after_message_without_request_is_not_asked_to_act() {
    for words in ["Thanks, that was helpful!", "What is in my groceries note?"] {
        let mut w = with(Mode::SingleLoop, MainInterface::Cmd);
        let task = w.say(words);
        w.replies("I added task #5 \"Send the parcel\".", &[]);
        let kernel_note = w.last_shown();
        assert!(kernel_note.contains("asks for no change") && !kernel_note.contains("cmd block"), "{kernel_note}");
        w.replies("You are welcome.", &[]);
        assert_eq!(w.answer(task), "You are welcome.");
    }
}

#[test]
fn main_agent_with_commands_respects_call_limit_of_single_loop() {
    let mut w = with(Mode::MultiAgent, MainInterface::Cmd);
    let task = w.say("Many");
    for n in 0..11 {
        w.replies(&cmd(&format!("tasks.create --title t{n}")), &[]);
        if n < 10 {
            w.main_skill("created");
        }
    }
    assert_eq!(w.ending(task).0, "paused");
}

#[test]
fn refusal_of_tools_changes_turn_to_commands_also_on_replay() {
    for (mode, kind, detail) in [
        (Mode::MultiAgent, ModelErrorKind::InvalidRequest, REFUSAL),
        (Mode::SingleLoop, ModelErrorKind::InvalidRequest, "\"auto\" tool choice requires --enable-auto-tool-choice"),
        (Mode::Direct, ModelErrorKind::Unavailable, "tools param requires --jinja flag"),
        (Mode::Direct, ModelErrorKind::ToolsUnsupported, "no"),
    ] {
        let mut w = with(mode, MainInterface::Auto);
        let task = w.say("Buy milk");
        assert!(!w.request().tools.is_empty());
        refuses(&mut w, kind, detail);
        assert!(w.request().tools.is_empty(), "{mode:?}");
        let changes = w.log.iter().filter(|e| e.body.kind() == "interface_changed").count();
        assert_eq!(changes, 1, "the change is in the log");
        w.restart(ResumeCause::Restart);
        w.replies(&cmd("tasks.create --title milk"), &[]);
        w.main_skill("Created task #1.");
        w.replies("I added milk.", &[]);
        assert_eq!(w.answer(task), "I added milk.");
    }
}

#[test]
fn call_that_its_server_cannot_read_changes_turn_to_commands_and_keeps_what_was_done() {
    let mut w = with(Mode::SingleLoop, MainInterface::Auto);
    let task = w.say("Buy milk and bread");
    w.replies("", &[use_skill("0", "tasks.create", &json!({"title": "milk"}))]);
    w.main_skill("Created task #1.");
    refuses(&mut w, ModelErrorKind::MalformedCall, "output that does not match the expected format");
    assert!(w.request().tools.is_empty());
    assert!(format!("{:?}", w.request()).contains("Created task #1."), "the first call stays in the context");
    w.replies(&cmd("tasks.create --title bread"), &[]);
    w.main_skill("Created task #2.");
    w.replies("I added milk and bread.", &[]);
    assert_eq!(w.answer(task), "I added milk and bread.");
}

#[test]
fn configured_tools_interface_is_kept_and_other_errors_change_nothing() {
    let mut w = with(Mode::SingleLoop, MainInterface::Tools);
    let task = w.say("Buy milk");
    refuses(&mut w, ModelErrorKind::InvalidRequest, REFUSAL);
    assert_eq!(w.ending(task).0, "failed");
    for (kind, detail) in [
        (ModelErrorKind::InvalidRequest, "max_tokens is too large"),
        (ModelErrorKind::InvalidRequest, "tools[0].function.parameters is no schema"),
        (ModelErrorKind::RateLimited, "this model does not support tools so often"),
    ] {
        let mut w = with(Mode::SingleLoop, MainInterface::Auto);
        let task = w.say("Buy milk");
        refuses(&mut w, kind, detail);
        assert_eq!(w.ending(task).0, "failed", "{detail}");
    }
}

#[test]
fn three_rounds_of_malformed_calls_change_turn_to_commands() {
    let mut w = with(Mode::MultiAgent, MainInterface::Auto);
    w.say("Buy milk");
    w.replies("", &[tool("1", "buy_milk", &json!({}))]);
    w.replies("", &[tool("1", "make_task", &json!({}))]);
    assert!(!w.request().tools.is_empty(), "two rounds of invalid calls are tolerated");
    w.replies("", &[tool("1", "todo_add", &json!({}))]);
    let request = w.request();
    assert!(request.tools.is_empty());
    assert!(
        matches!(&request.messages[..], [Message::User { text, .. }] if text == "Buy milk"),
        "{:?}",
        request.messages
    );
    assert!(w.turn().mode == Mode::SingleLoop, "commands have no orchestrator");
}

#[test]
fn rejected_well_formed_calls_do_not_change_interface() {
    let mut w = with(Mode::SingleLoop, MainInterface::Auto);
    let mut drop = skill("tasks.drop", Effect::Once, &[("id", true)]);
    drop.args[0].kind = ArgKind::Id;
    w.skills = SkillSet::new(skills().iter().map(|s| SkillSpec::clone(s)).chain([drop]).collect::<Vec<_>>(), [], 1);
    w.say("Drop the milk task");
    w.replies("", &[use_skill("1", "tasks.drop", &json!({"id": 5}))]);
    w.replies("", &[use_skill("1", "tasks.create", &json!({"due": "today"}))]);
    w.replies("", &[use_skill("1", "pets.feed", &json!({}))]);
    w.replies("", &[tool("1", "get_skill", &json!({"domain": "pets"}))]);
    assert!(
        !w.request().tools.is_empty(),
        "invented numbers, missing arguments, and unknown skills and domains are ordinary errors"
    );
}

#[test]
fn continued_turn_changing_to_commands_keeps_earlier_calls() {
    let mut w = with(Mode::SingleLoop, MainInterface::Auto);
    let task = w.say("Buy milk");
    w.replies("", &[use_skill("1", "tasks.create", &json!({"title": "milk"}))]);
    w.main_skill("Created task #1 milk");
    w.happens(task, EventBody::DeadlinePassed { hard: true, dead_letters: None });
    assert_eq!(w.ending(task).0, "paused");
    let task = w.say("continue");
    let error = ModelError::new(ModelErrorKind::ToolsUnsupported, "no tools here");
    w.happens(task, EventBody::ModelFailed { round: 1, error, waited_ms: 0 });
    assert!(w.request().tools.is_empty(), "the continued turn uses commands");
    let shown = w.request().messages.iter().map(super::world::text_of).collect::<Vec<_>>().join("\n");
    assert!(shown.contains("tasks.create {\"title\":\"milk\"}") && shown.contains("Created task #1 milk"), "{shown}");
}

#[test]
fn calls_before_change_of_interface_stay_in_context_as_commands() {
    let mut w = with(Mode::SingleLoop, MainInterface::Auto);
    w.say("Buy milk");
    w.replies("", &[use_skill("1", "tasks.create", &json!({"title": "milk"}))]);
    w.main_skill("Created task #1.");
    refuses(&mut w, ModelErrorKind::InvalidRequest, REFUSAL);
    let messages = w.request().messages;
    let [_, Message::Assistant { text, tool_calls, .. }, Message::User { text: result, .. }] = &messages[..] else {
        panic!("{messages:?}")
    };
    assert!(tool_calls.is_empty() && text.contains("```cmd\ntasks.create {\"title\":\"milk\"}\n```"), "{text}");
    assert!(result.contains("Created task #1."), "{result}");
}

#[test]
fn change_to_commands_keeps_count_of_calls() {
    let limits = TurnLimits { main_interface: MainInterface::Auto, window_calls_max: 3, ..TurnLimits::default() };
    let mut w = World::with(Mode::SingleLoop, limits);
    w.say("Buy milk");
    for title in ["milk", "bread"] {
        w.replies("", &[use_skill("1", "tasks.create", &json!({"title": title}))]);
        w.main_skill(&format!("Created task {title}"));
    }
    refuses(&mut w, ModelErrorKind::InvalidRequest, REFUSAL);
    assert_eq!((w.turn().main.calls_used, w.turn().main.calls_max), (2, 3), "one call is left");
}

#[test]
fn orchestrator_with_running_agents_keeps_tools() {
    let mut w = with(Mode::MultiAgent, MainInterface::Auto);
    w.say("Do it");
    w.replies("", &[dispatch("a", &[])]);
    for n in 0..3 {
        w.replies("", &[tool("1", "get_skill", &json!({"domain": n.to_string()}))]);
    }
    assert!(!w.request().tools.is_empty());
}

#[test]
fn main_agent_with_commands_runs_call_found_in_text() {
    let mut w = with(Mode::SingleLoop, MainInterface::Cmd);
    w.say("Buy milk");
    w.replies("", &[tool("1", "tasks_create", &json!({"title": "milk"}))]);
    assert_eq!(w.skill_calls(&AgentId::orchestrator())[0].0, "tasks.create");
    w.main_skill("Created task #1.");
    w.replies("", &[tool("1", "launch", &json!({}))]);
    assert!(w.last_shown().contains("you have no tools"), "{}", w.last_shown());
}

#[test]
fn answer_in_command_block_is_returned_as_text() {
    let mut w = with(Mode::SingleLoop, MainInterface::Cmd);
    let task = w.say("Hi there");
    w.replies("```cmd\nHi there! How can I help you today?\n```", &[]);
    assert_eq!(w.ending(task), ("answered", "Hi there! How can I help you today?".into()));
}

#[test]
fn command_in_two_capitalised_words_runs_despite_prose_next_to_block() {
    for reply in [
        "```cmd\nTasks create --title milk\n```",
        "```cmd\nTasks create milk please\n```",
        "```cmd\nI create the task now.\n```\n```bash\ntasks.create --title milk\n```",
    ] {
        let mut w = with(Mode::SingleLoop, MainInterface::Cmd);
        let task = w.say("Buy milk");
        w.replies(reply, &[]);
        assert!(w.finals(task).is_empty(), "{reply}: {:?}", w.finals(task));
        let shown = format!("{:?} {}", w.skill_calls(&AgentId::orchestrator()), w.request().messages.len());
        let has_run = !w.skill_calls(&AgentId::orchestrator()).is_empty();
        assert!(has_run || w.last_shown().contains("tasks.create"), "{reply}: {shown} {}", w.last_shown());
    }
}
