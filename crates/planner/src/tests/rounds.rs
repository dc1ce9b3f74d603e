//! Tests of whole turns, in every mode and with every interface.

use annie_core::{
    event::Mode,
    limits::SubAgentInterface,
    message::{Finish, Message},
    ports::{Draft, Model},
};

use super::{
    super::{OfflinePlanner, answer::IDENTITY, stream},
    world::{World, bundled_runner},
};

const README: &str =
    "Create a task to review PR 42 due tomorrow, remember that Bob prefers email, and then tell me what is due";

const ANSWER: &str = "I created task #1 Review PR 42, due 2026-11-22 (tomorrow), priority medium.\n\
    I will remember: Bob prefers email.\n\n\
    Found 1 open task:\n\n- #1 Review PR 42, due 2026-11-22 (tomorrow), priority medium";

#[test]
fn readme_command_runs_three_agents() {
    let mut world = World::new(SubAgentInterface::Cmd, bundled_runner);
    assert_eq!(world.turn(Mode::MultiAgent, README), ANSWER);
    assert_eq!(
        world.ran,
        [
            "tasks.create --title \"Review PR 42\" --due tomorrow",
            "memory.save --content \"Bob prefers email\" --category preference",
            "tasks.search --status open",
        ]
    );
    let waits: Vec<(&str, usize)> = world.agents.iter().map(|(id, waits)| (id.as_str(), waits.len())).collect();
    assert_eq!(waits, [("tasks_create_1", 0), ("memory_save_2", 0), ("tasks_search_3", 2)]);
    let rounds: Vec<usize> = world
        .messages
        .iter()
        .filter_map(|m| match m {
            Message::Assistant { tool_calls, .. } => Some(tool_calls.len()),
            _ => None,
        })
        .collect();
    assert_eq!(rounds, [2, 4, 0], "asks for two domains, dispatches three and collects, answers");
}

#[test]
fn every_mode_and_interface_gives_the_same_answer() {
    for (mode, interface) in [
        (Mode::MultiAgent, SubAgentInterface::Json),
        (Mode::SingleLoop, SubAgentInterface::Cmd),
        (Mode::Direct, SubAgentInterface::Cmd),
    ] {
        let mut world = World::new(interface, bundled_runner);
        assert_eq!(world.turn(mode, README), ANSWER, "{mode:?} {interface:?}");
        assert_eq!(world.ran.len(), 3, "{mode:?}: {:?}", world.ran);
        assert!(world.ran[0].contains(r#"{"due":"tomorrow","title":"Review PR 42"}"#), "{:?}", world.ran);
    }
}

#[test]
fn call_ids_differ_between_rounds_and_replies_are_deterministic() {
    let mut world = World::new(SubAgentInterface::Cmd, bundled_runner);
    world.turn(Mode::MultiAgent, README);
    world.turn(Mode::MultiAgent, README);
    let ids: Vec<&str> = world
        .messages
        .iter()
        .filter_map(|m| match m {
            Message::Assistant { tool_calls, .. } => Some(tool_calls.iter().map(|c| c.id.as_str())),
            _ => None,
        })
        .flatten()
        .collect();
    let unique: std::collections::BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(unique.len(), ids.len());
    let mut again = World::new(SubAgentInterface::Cmd, bundled_runner);
    again.turn(Mode::MultiAgent, README);
    assert_eq!(again.messages, world.messages[..again.messages.len()]);
}

#[test]
fn task_identified_by_words_is_looked_up_and_then_changed() {
    for mode in [Mode::MultiAgent, Mode::SingleLoop, Mode::Direct] {
        let mut world = World::new(SubAgentInterface::Cmd, bundled_runner);
        let answer = world.turn(mode, "I finished the PR review");
        assert_eq!(answer, "I updated task #1 Review PR 42, priority medium, done.", "{mode:?}");
        assert_eq!(world.ran.len(), 2, "{:?}", world.ran);
    }
}

#[test]
fn several_tasks_in_one_request_are_all_changed() {
    for mode in [Mode::MultiAgent, Mode::SingleLoop] {
        let mut world = World::new(SubAgentInterface::Cmd, bundled_runner);
        let answer = world.turn(mode, "Mark tasks 1, 2 and 5 as done");
        assert_eq!(world.ran.len(), 3, "{mode:?}: {:?}", world.ran);
        assert_eq!(answer.matches("I updated task").count(), 3, "{mode:?}: {answer}");
    }
}

/// Shows tasks by number or by words, like the bundled skills.
fn three_tasks(skill: &str, line: &str) -> String {
    let all = [
        "#1 Submit the report, due 2026-11-27 (friday), priority medium",
        "#2 File taxes, priority high",
        "#5 Buy milk, priority low",
    ];
    match skill {
        "tasks.get" => all
            .iter()
            .filter(|t| line.contains(&t[1..2]))
            .map(|t| format!("{t}\nstatus todo"))
            .collect::<Vec<_>>()
            .join("\n\n"),
        "tasks.search" if line.contains("milk") => format!("Found 1 open task:\n\n- {}", all[2]),
        "tasks.search" => format!("Found 3 open tasks:\n\n- {}", all.join("\n- ")),
        "tasks.delete" => "Deleted task #5 Buy milk".to_owned(),
        _ => bundled_runner(skill, line),
    }
}

#[test]
fn deletion_is_confirmed_and_done_with_the_next_message() {
    for mode in [Mode::MultiAgent, Mode::SingleLoop, Mode::Direct] {
        let mut world = World::new(SubAgentInterface::Cmd, three_tasks);
        let asked = world.turn(mode, "delete the milk task");
        assert_eq!(asked, "Shall I delete #5 Buy milk? Say: yes, delete task 5", "{mode:?}");
        assert!(world.declined, "{mode:?}: a question has not deleted anything yet");
        assert_eq!(world.ran.len(), 1, "{mode:?}: {:?}", world.ran);
        assert_eq!(world.turn(mode, "yes, delete task 5"), "I deleted task #5 Buy milk.", "{mode:?}");
        assert!(
            !world.declined && world.ran.len() == 2 && world.ran[1].contains("delete"),
            "{mode:?}: {:?}",
            world.ran
        );
        let again = world.turn(mode, "yes");
        assert!(again.contains("nothing left to go on with") && world.ran.len() == 2, "{mode:?}: {again}");
    }
    let mut world = World::new(SubAgentInterface::Cmd, three_tasks);
    let asked = world.turn(Mode::MultiAgent, "Delete tasks 1 and 2");
    assert!(
        asked.starts_with("Shall I delete #1 Submit the report") && asked.ends_with("Say: yes, delete tasks 1, 2"),
        "{asked}"
    );
    world.turn(Mode::MultiAgent, "yes");
    assert_eq!(world.ran[1..], ["tasks.delete --id 1", "tasks.delete --id 2"]);
    let mut world = World::new(SubAgentInterface::Cmd, three_tasks);
    world.turn(Mode::MultiAgent, "delete the milk task");
    assert!(world.turn(Mode::MultiAgent, "no").contains("nothing was deleted") && world.ran.len() == 1);
    assert!(
        world.turn(Mode::MultiAgent, "yes").contains("nothing left") && world.ran.len() == 1,
        "the question was answered"
    );
}

#[test]
fn pronoun_refers_to_the_task_named_last() {
    for mode in [Mode::MultiAgent, Mode::SingleLoop, Mode::Direct] {
        let mut world = World::new(SubAgentInterface::Cmd, three_tasks);
        world.turn(mode, "add a task to review PR 42");
        world.turn(mode, "mark it as done");
        assert!(world.ran[1].contains("done") && world.ran[1].contains('1'), "{mode:?}: {:?}", world.ran);
        world.turn(mode, "make it due tomorrow");
        assert!(world.ran[2].contains("tomorrow"), "{mode:?}: {:?}", world.ran);
        let asked = world.turn(mode, "delete it");
        assert!(asked.starts_with("Shall I delete #1 "), "{mode:?}: {asked}");
        let mut fresh = World::new(SubAgentInterface::Cmd, three_tasks);
        let answer = fresh.turn(mode, "mark it as done");
        assert!(
            answer.starts_with("Which task is “it”?") && fresh.ran.is_empty() && fresh.declined,
            "{mode:?}: {answer}"
        );
    }
}

#[test]
fn answer_is_declined_unless_the_whole_request_was_done() {
    for (sent, declined) in [
        ("create a task to call Bob", false),
        ("hello", false),
        ("gibberish", true),
        ("What is the capital of France?", true),
        ("if it rains, create a task to cry", true),
        ("remind me to call Bob; translate this text to French", true),
        ("forget that Bob likes tea", true),
    ] {
        for mode in [Mode::MultiAgent, Mode::SingleLoop, Mode::Direct] {
            let mut world = World::new(SubAgentInterface::Cmd, bundled_runner);
            let answer = world.turn(mode, sent);
            assert_eq!(world.declined, declined, "{mode:?} {sent}: {answer}");
        }
    }
}

#[test]
fn kernel_note_is_not_treated_as_a_request() {
    let mut request = annie_core::message::ModelRequest {
        model: None,
        system: vec![],
        messages: vec![
            Message::user("hello"),
            Message::note("[Time is nearly up. Come to an end now: delete task 3.]"),
        ],
        stable_messages: 0,
        tools: vec![],
        skill_names: Vec::new(),
        output_tokens_max: 10,
        session_id: String::new(),
        priority: 0,
        options: annie_core::caller::CallOptions::default(),
    };
    assert!(OfflinePlanner::new().plan(&request).text.starts_with("Hello!"));
    request
        .messages
        .push(Message::note("[The user adds, while you work on this:]\nmake it urgent\n\n[Time is nearly up.]"));
    let reply_text = OfflinePlanner::new().plan(&request).text;
    assert!(reply_text.contains("what you added meanwhile (“make it urgent”)"), "{reply_text}");
}

#[test]
fn question_about_a_day_is_answered_relative_to_today() {
    let runner = |_: &str, _: &str| "Saturday, 2026-11-21 14:03 in Europe/Prague (UTC+01:00, week 47)".to_owned();
    for mode in [Mode::MultiAgent, Mode::SingleLoop, Mode::Direct] {
        let mut world = World::new(SubAgentInterface::Cmd, runner);
        assert_eq!(world.turn(mode, "what's the date next Friday?"), "Next friday is Friday, 2026-11-27.", "{mode:?}");
    }
}

#[test]
fn reminder_request_without_a_time_creates_task_and_says_that_no_reminder_is_set() {
    let mut world = World::new(SubAgentInterface::Cmd, bundled_runner);
    let answer = world.turn(Mode::MultiAgent, "remind me to review PR 42");
    assert!(answer.starts_with("I created task #1") && answer.contains("without a reminder"), "{answer}");
}

#[test]
fn words_that_match_several_tasks_or_none_change_nothing() {
    let two = |skill: &str, _: &str| match skill {
        "tasks.search" => "Found 2 open tasks:\n\n- #1 Buy milk\n- #4 Milk the cow #7".to_owned(),
        _ => "Deleted".to_owned(),
    };
    let mut world = World::new(SubAgentInterface::Cmd, two);
    let answer = world.turn(Mode::MultiAgent, "delete the task about milk");
    assert!(answer.contains("several match “milk”") && answer.contains("#4 Milk the cow"), "{answer}");
    assert_eq!(world.ran, ["tasks.search --query milk"]);
    let mut world = World::new(SubAgentInterface::Cmd, |_, _| "No open tasks found matching 'milk'.".to_owned());
    let answer = world.turn(Mode::SingleLoop, "delete the task about milk");
    assert!(answer.contains("nothing matches “milk”"), "{answer}");
}

#[test]
fn ended_task_is_not_changed_by_words_and_question_marks_it_as_ended() {
    const ENDED: &str =
        "No open tasks found matching 'milk', but these that have ended:\n\n- #3 Buy milk, priority medium, cancelled";
    let ended = |skill: &str, line: &str| match skill {
        "tasks.search" => ENDED.to_owned(),
        _ => bundled_runner(skill, line),
    };
    for sent in ["move the milk task to Friday", "I finished the milk"] {
        let mut world = World::new(SubAgentInterface::Cmd, ended);
        let answer = world.turn(Mode::MultiAgent, sent);
        assert!(answer.contains("no open task matches “milk”") && answer.contains("#3 Buy milk"), "{sent}: {answer}");
        assert_eq!(world.ran, ["tasks.search --query milk"], "{sent}");
    }
    let mut world = World::new(SubAgentInterface::Cmd, ended);
    let answer = world.turn(Mode::MultiAgent, "delete the milk task");
    assert!(answer.contains("#3 Buy milk (cancelled)"), "{answer}");
    world.turn(Mode::MultiAgent, "yes");
    assert_eq!(world.ran.last().map(String::as_str), Some("tasks.delete --id 3"));
}

#[test]
fn letter_inside_another_word_identifies_no_task() {
    let taxes = |skill: &str, line: &str| match skill {
        "tasks.search" => "Found 1 open task:\n\n- #2 File taxes, priority medium".to_owned(),
        _ => bundled_runner(skill, line),
    };
    for sent in ["move X to Monday", "delete the x task", "I finished x"] {
        let mut world = World::new(SubAgentInterface::Cmd, taxes);
        let answer = world.turn(Mode::MultiAgent, sent);
        assert!(answer.to_lowercase().contains("nothing matches “x”") && world.ran.len() == 1, "{sent}: {answer}");
    }
    let mut world = World::new(SubAgentInterface::Cmd, taxes);
    world.turn(Mode::MultiAgent, "move the tax to Monday");
    assert_eq!(world.ran.len(), 1, "a stem of three letters matches no longer word");
    world.turn(Mode::MultiAgent, "move the taxes to Monday");
    assert_eq!(world.ran[2], "tasks.update --id 2 --due monday");
}

#[test]
fn change_of_several_tasks_reports_success_and_failure() {
    let one = |_: &str, line: &str| match line.contains("1") {
        true => "Updated task #1 Review PR 42, done".to_owned(),
        false => "[error_permanent] There is no task #2.".to_owned(),
    };
    for mode in [Mode::MultiAgent, Mode::SingleLoop] {
        let mut world = World::new(SubAgentInterface::Cmd, one);
        let answer = world.turn(mode, "close tasks 1 and 2");
        assert_eq!(answer, "I updated task #1 Review PR 42, done.\nNot done: There is no task #2.", "{mode:?}");
        assert!(world.declined, "{mode:?}");
    }
}

#[test]
fn unknown_place_is_not_answered_with_the_local_time() {
    let runner = |_: &str, line: &str| match line.contains("gotham") {
        true => {
            "Error: --timezone must be an IANA name, got \"gotham\"\nUsage: system.time [--timezone TEXT]".to_owned()
        }
        false => "Saturday, 2026-11-21 14:03 in Europe/Prague (UTC+01:00, week 47)".to_owned(),
    };
    let mut world = World::new(SubAgentInterface::Cmd, runner);
    let answer = world.turn(Mode::MultiAgent, "what time is it in Gotham");
    assert!(
        answer.contains("Not done") && !answer.contains("14:03") && !answer.contains("--") && world.declined,
        "{answer}"
    );
}

#[test]
fn answer_reports_failure_beside_successes() {
    let failing = |skill: &str, line: &str| match skill {
        "memory.save" => "[error_transient] The store is busy.\nError type: busy".to_owned(),
        _ => bundled_runner(skill, line),
    };
    let mut world = World::new(SubAgentInterface::Cmd, failing);
    let answer = world.turn(Mode::MultiAgent, "remember that Bob prefers email and what's due?");
    assert!(answer.contains("The store is busy.") && answer.contains("Found 1 open task"), "{answer}");
    assert!(!answer.contains("I will remember"), "{answer}");
}

#[test]
fn refused_flag_is_left_out_once_and_reported() {
    let strict = |_: &str, line: &str| {
        if line.contains("--tags") {
            "Error: --tags does not fit: \"work\" is no tag\nUsage: tasks.create --title TEXT [--due DATE] [--tags LIST]\nTry `tasks.create --help`."
                .to_owned()
        } else if line.contains("--due \"31 february") {
            "Error: --due does not fit: February has no day 31\nUsage: tasks.create --title TEXT [--due DATE]"
                .to_owned()
        } else {
            "Created task #2 Call Bob, priority medium".to_owned()
        }
    };
    let mut world = World::new(SubAgentInterface::Cmd, strict);
    let answer = world.turn(Mode::MultiAgent, "create a task to call Bob on 31 February");
    assert!(answer.starts_with("Not done: ") && answer.contains("February has no day 31"), "{answer}");
    assert_eq!(world.ran.len(), 1, "a task without its date was not asked for");
    let mut world = World::new(SubAgentInterface::Cmd, strict);
    let answer = world.turn(Mode::MultiAgent, "create a task to call Bob tagged work");
    let expected = "I created task #2 Call Bob, priority medium (without the tags, which was refused)";
    assert_eq!(answer.trim_end_matches('.'), expected, "the answer names the omitted flag");
    assert_eq!(world.ran, ["tasks.create --title \"Call Bob\" --tags work", "tasks.create --title \"Call Bob\""]);

    let mut world =
        World::new(SubAgentInterface::Cmd, |_, _| "Error: no such thing\nUsage: tasks.create --title TEXT".to_owned());
    let answer = world.turn(Mode::MultiAgent, "remind me to call Bob");
    assert!(answer.contains("no such thing") && world.ran.len() == 1, "{answer} {:?}", world.ran);
}

#[test]
fn requests_beyond_the_agent_limit_are_left_for_the_next_turn() {
    let mut world = World::new(SubAgentInterface::Cmd, bundled_runner);
    world.agents_max = 2;
    let answer = world.turn(Mode::MultiAgent, "add tasks: one, two, three and four");
    assert!(answer.contains("Not done yet:\n- create task: three\n- create task: four\n"), "{answer}");
    assert_eq!(world.ran.len(), 2);
    let answer = world.turn(Mode::MultiAgent, "yes, continue");
    assert_eq!(world.ran[2..], ["tasks.create --title Three", "tasks.create --title Four"]);
    assert!(!answer.contains("Not done yet"), "{answer}");
    assert!(world.turn(Mode::MultiAgent, "continue").contains("nothing left to go on with"));
}

#[test]
fn pronoun_refers_to_results_of_earlier_agents() {
    let mut world = World::new(SubAgentInterface::Cmd, bundled_runner);
    world.turn(Mode::MultiAgent, "show my tasks and then create a note titled Today saying that");
    assert!(world.ran[1].starts_with("notes.create --title Today --content \"Found 1 open task"), "{:?}", world.ran);
}

#[test]
fn message_without_request_runs_no_skill() {
    for sent in [
        "hello",
        "how are you?",
        "What is the capital of France?",
        "",
        "   ",
        "?!",
        "🦀🦀",
        "continue",
        "/nothing here",
    ] {
        for mode in [Mode::MultiAgent, Mode::SingleLoop, Mode::Direct] {
            let mut world = World::new(SubAgentInterface::Cmd, bundled_runner);
            let answer = world.turn(mode, sent);
            assert!(answer.contains(IDENTITY), "{mode:?} {sent:?}: {answer}");
            assert!(world.ran.is_empty(), "{sent:?}: {:?}", world.ran);
        }
    }
}

#[test]
fn unsupported_request_is_searched_and_then_declined() {
    let mut world = World::new(SubAgentInterface::Cmd, bundled_runner);
    let answer = world.turn(Mode::MultiAgent, "translate this text to French");
    assert!(
        answer.contains("I did not understand “translate this text to French”") && answer.contains(IDENTITY),
        "{answer}"
    );
    assert!(
        matches!(&world.messages[1], Message::Assistant { tool_calls, .. } if tool_calls[0].arguments.contains("search"))
    );
    let mut world = World::new(SubAgentInterface::Cmd, bundled_runner);
    let answer = world.turn(Mode::MultiAgent, "remind me to call Bob; translate this text to French");
    assert!(answer.starts_with("I created task") && answer.contains("not understand “translate"), "{answer}");
}

#[test]
fn instructions_of_a_prompt_skill_are_not_treated_as_requests() {
    let mut world = World::new(SubAgentInterface::Cmd, bundled_runner);
    let answer =
        world.turn(Mode::MultiAgent, "[Skill: weekly-review]\n\n1. Create a task for each thing.\n2. Delete task 3.");
    assert!(answer.contains("weekly-review") && answer.contains(IDENTITY), "{answer}");
    assert!(world.ran.is_empty());
}

#[test]
fn question_is_answered_from_the_remembered_context() {
    let mut world = World::new(SubAgentInterface::Cmd, bundled_runner);
    let answer = world.turn(Mode::MultiAgent, "Is it true that Bob dislikes calls?");
    assert!(answer.contains("- Bob prefers email") && answer.contains(IDENTITY), "{answer}");
}

#[tokio::test]
async fn answer_is_streamed_in_chunks_that_concatenate_to_it() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let text = "one two  three four five\nsix seven eight nine ";
    let sink: annie_core::ports::DraftSink = std::sync::Arc::new(move |d| drop(sender.send(d)));
    stream(text, &sink);
    drop(sink);
    let chunks: Vec<String> =
        receiver.iter().map(|d| if let Draft::Text(text) = d { text } else { String::new() }).collect();
    assert!(chunks.len() > 2);
    assert_eq!(chunks.concat(), text);

    let planner = OfflinePlanner::new();
    assert!(planner.about().contains("not a language model"));
    planner.check().await.unwrap();
    let request = annie_core::message::ModelRequest {
        model: None,
        system: vec![],
        messages: vec![Message::user("hello")],
        stable_messages: 0,
        tools: vec![],
        skill_names: Vec::new(),
        output_tokens_max: 10,
        session_id: String::new(),
        priority: 0,
        options: annie_core::caller::CallOptions::default(),
    };
    let reply = planner.call(&request, std::sync::Arc::new(|_| ())).await.unwrap();
    assert_eq!((reply.finish, reply.model.as_str()), (Finish::Stop, planner.id()));
    assert!(reply.text.contains(IDENTITY));
}

#[test]
fn planner_declines_tools_of_a_caller() {
    let tool = annie_core::message::ToolDef {
        name: "get_weather".to_owned(),
        description: "The weather of a city.".to_owned(),
        parameters: serde_json::json!({"type": "object", "properties": {"city": {"type": "string"}}}),
        strict: false,
    };
    let request = annie_core::message::ModelRequest {
        model: None,
        system: vec![],
        messages: vec![Message::user("What is the weather in Prague?")],
        stable_messages: 0,
        tools: vec![tool],
        skill_names: Vec::new(),
        output_tokens_max: 10,
        session_id: String::new(),
        priority: 0,
        options: annie_core::caller::CallOptions { is_thread: true, ..Default::default() },
    };
    let reply = OfflinePlanner::new().plan(&request);
    assert!(reply.declined && reply.tool_calls.is_empty() && reply.text.contains("not a language model"), "{reply:?}");
}
