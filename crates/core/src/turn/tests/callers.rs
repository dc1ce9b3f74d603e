//! Turns for programs: request parameters, the caller's tools, and the format of the answer.

use serde_json::{Value, json};

use super::{
    script::{reply, tool, use_skill},
    world::World,
};
use crate::{
    caller::{AnswerFormat, CallOptions, CallerRequest, Sampling, Thread, ToolChoice},
    event::{EventBody, Inbound, Mode, ResumeCause},
    ids::TaskId,
    message::{Finish, Message, ModelErrorKind, ModelReply, ToolCall, ToolDef},
};

fn add_tool(strict: bool) -> ToolDef {
    let number = json!({"type": "number"});
    let parameters = json!({"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]});
    ToolDef { name: "add".into(), description: "Adds.".into(), parameters, strict }
}

fn thread(with_skills: bool) -> Thread {
    Thread {
        system: "You count.".into(),
        messages: vec![Message::user("1 + 2?")],
        tools: vec![add_tool(true)],
        with_skills,
    }
}

fn asked(options: CallOptions, thread: Option<Thread>) -> Inbound {
    let mode = thread.is_some().then_some(Mode::Direct);
    Inbound {
        stateless: true,
        mode,
        request: Some(Box::new(CallerRequest { options, instructions: String::new(), thread })),
        ..World::inbound("1 + 2?")
    }
}

fn threaded(w: &mut World, thread: Thread) -> TaskId {
    w.receive(asked(CallOptions::default(), Some(thread)))
}

fn schema() -> AnswerFormat {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    AnswerFormat::JsonSchema { name: "n".into(), description: None, schema, strict: true }
}

fn formed(w: &mut World) -> TaskId {
    w.receive(asked(CallOptions { format: Some(schema()), ..CallOptions::default() }, None))
}

/// The final answer as (text, calls, finish reason).
fn answer(w: &World, task: TaskId) -> (String, Vec<ToolCall>, Finish) {
    let found = w.log.iter().rev().filter(|e| e.task == task).find_map(|e| {
        let EventBody::Answered { text, calls, finish, .. } = &e.body else { return None };
        Some((text.clone(), calls.clone(), *finish))
    });
    found.expect("the task is answered")
}

fn failure(w: &World, task: TaskId) -> (String, String, bool) {
    let found = w.log.iter().rev().filter(|e| e.task == task).find_map(|e| {
        let EventBody::Failed { code, text, dead_letter, .. } = &e.body else { return None };
        Some((code.clone(), text.clone(), dead_letter.is_some()))
    });
    found.expect("the task failed")
}

#[test]
fn caller_sampling_applies_to_main_agent_rounds_and_survives_restart() {
    let mut w = World::new();
    let sampling = Sampling {
        temperature: Some(0.into()),
        seed: Some(7),
        output_tokens_max: Some(9),
        stop: vec!["END".into()],
        ..Sampling::default()
    };
    w.receive(asked(CallOptions { sampling: sampling.clone(), ..CallOptions::default() }, None));
    let before = w.request();
    assert_eq!((before.options.sampling.clone(), before.output_tokens_max), (sampling, 9));
    w.restart(ResumeCause::Restart);
    assert_eq!(w.request(), before, "a replay sends the same request");
    w.say("And without?");
    w.replies("3", &[]);
    assert!(w.request().options.is_default(), "parameters belong to one message");
}

#[test]
fn caller_thread_is_the_whole_prompt_and_call_of_its_tool_ends_turn() {
    let mut w = World::in_mode(Mode::Direct);
    let task = threaded(&mut w, thread(false));
    let request = w.request();
    assert_eq!(request.system.iter().map(|p| p.text.as_str()).collect::<Vec<_>>(), ["You count."]);
    assert_eq!(request.messages, [Message::user("1 + 2?")]);
    assert_eq!(request.tools, [add_tool(true)]);
    w.replies("Let me add.", &[tool("c1", "add", &json!({"a": 1, "b": 2}))]);
    let (text, calls, finish) = answer(&w, task);
    assert_eq!((text.as_str(), finish), ("Let me add.", Finish::ToolCalls));
    assert_eq!(calls.len(), 1);
    assert_eq!((calls[0].id.as_str(), calls[0].name.as_str()), ("c1", "add"));
    assert_eq!(serde_json::from_str::<Value>(&calls[0].arguments).unwrap(), json!({"a": 1, "b": 2}));
    assert!(w.conv.is_idle() && !w.conv.is_listed);
}

#[test]
fn caller_thread_without_skills_runs_none_and_wrong_call_is_returned_to_model() {
    let mut w = World::in_mode(Mode::Direct);
    let task = threaded(&mut w, thread(false));
    w.replies("", &[tool("c1", "tasks__search", &json!({"query": "x"})), tool("c2", "add", &json!({"a": 1, "b": 2}))]);
    let seen = format!("{:?}", w.request().messages);
    assert!(seen.contains("there is no tool") && seen.contains("Send all of them again"), "{seen}");
    w.replies("", &[tool("c3", "add", &json!({"a": "one"}))]);
    assert!(
        format!("{:?}", w.request().messages).contains("does not fit")
            || format!("{:?}", w.request().messages).contains("do not fit")
    );
    let broken = ToolCall { id: "c4".into(), name: "add".into(), arguments: "{\"a\": ".into() };
    w.replies("", &[broken]);
    assert!(format!("{:?}", w.request().messages).contains("not valid JSON"));
    w.replies("", &[tool("c5", "add", &json!({"a": 1, "b": 2})), tool("c5", "add", &json!({"a": 3, "b": 4}))]);
    let (_, calls, _) = answer(&w, task);
    assert_eq!(calls.len(), 2);
    assert_ne!(calls[0].id, calls[1].id, "ids are unique");
    assert!(!w.log.iter().any(|e| matches!(e.body, EventBody::SkillStarted { .. } | EventBody::SkillFinished { .. })));
}

#[test]
fn caller_calls_wait_for_skill_results_and_answer_lists_effects() {
    let mut w = World::in_mode(Mode::Direct);
    let task = threaded(&mut w, thread(true));
    let names: Vec<String> = w.request().tools.into_iter().map(|t| t.name).collect();
    assert!(names.contains(&"add".to_owned()) && names.len() > 1, "{names:?}");
    let skill = tool("s1", "tasks__create", &json!({"title": "count"}));
    w.replies("Both.", &[skill, tool("c1", "add", &json!({"a": 1, "b": 2}))]);
    assert!(w.conv.turn(task).is_some(), "the caller's call waits for the skill");
    w.main_skill("created");
    let (text, calls, _) = answer(&w, task);
    assert_eq!(calls.len(), 1);
    assert!(text.starts_with("Both.") && text.contains("tasks.create"), "{text}");
}

#[test]
fn caller_calls_above_reply_limit_are_reported_to_model() {
    let add = |n: usize| tool(&format!("c{n}"), "add", &json!({"a": n, "b": 2}));
    for (with_skills, most) in [(false, 128), (true, 32)] {
        let mut w = World::in_mode(Mode::Direct);
        let task = threaded(&mut w, thread(with_skills));
        w.replies("", &(0..most + 2).map(add).collect::<Vec<_>>());
        let seen = format!("{:?}", w.request().messages);
        let expected_note = format!("{most} were taken, this and what came behind it (2 in all) were not run");
        assert!(seen.contains(&expected_note), "{seen}");
        w.replies("", &(0..most).map(add).collect::<Vec<_>>());
        assert_eq!(answer(&w, task).1.len(), most);
    }
}

#[test]
fn caller_thread_with_truncated_answer_and_failed_continuation_gets_the_part() {
    let mut w = World::in_mode(Mode::Direct);
    let task = threaded(&mut w, thread(true));
    w.replies_with(&ModelReply { finish: Finish::Length, ..reply("One, two,", &[]) });
    w.model_fails(ModelErrorKind::Overflow);
    let (text, _, finish) = answer(&w, task);
    assert!(text.starts_with("One, two,") && finish == Finish::Length, "{text}");
}

#[test]
fn caller_thread_exceeding_context_fails_without_being_shortened() {
    let mut w = World::in_mode(Mode::Direct);
    let messages = vec![Message::user("x".repeat(5_000)), Message::assistant("y"), Message::user("z".repeat(5_000))];
    let task = threaded(&mut w, Thread { messages, ..thread(false) });
    w.model_fails(ModelErrorKind::Overflow);
    let (code, _, has_dead_letter) = failure(&w, task);
    assert_eq!((code.as_str(), has_dead_letter), ("context_overflow", false), "a stateless call is not retried");
}

#[test]
fn answer_violating_format_is_requested_once_more() {
    let mut w = World::new();
    let task = formed(&mut w);
    let system = format!("{:?}", w.request().system);
    assert!(system.contains("JSON Schema") && w.request().options.format == Some(schema()), "{system}");
    w.replies("The number is 3.", &[]);
    let again = w.request();
    assert_eq!(again.options.tool_choice, Some(ToolChoice::None), "no tools are called while the format is corrected");
    assert!(format!("{:?}", again.messages.last()).contains("not valid JSON"));
    w.restart(ResumeCause::Restart);
    w.replies("```json\n{\"n\": 3}\n```", &[]);
    assert_eq!(answer(&w, task), ("{\"n\": 3}".to_owned(), Vec::new(), Finish::Stop));
}

#[test]
fn answer_completed_from_receipts_is_checked_against_format() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = formed(&mut w);
    let create = |id| use_skill(id, "tasks.create", &json!({"title": "milk"}));
    w.replies("", &[create("1")]);
    w.main_skill("Created task #1 milk");
    w.replies("", &[create("2")]);
    w.replies("", &[create("3"), use_skill("4", "tasks.search", &json!({}))]);
    w.main_skill("milk");
    let again = w.request();
    assert_eq!(again.options.tool_choice, Some(ToolChoice::None), "only the answer is requested again, without tools");
    w.replies("{\"n\": 1}", &[]);
    assert_eq!(answer(&w, task), ("{\"n\": 1}".to_owned(), Vec::new(), Finish::Stop));
}

#[test]
fn answer_format_never_met_fails_with_the_reason() {
    let mut w = World::new();
    let task = formed(&mut w);
    w.replies("{\"n\": \"three\"}", &[]);
    w.replies("{}", &[]);
    let (code, text, has_dead_letter) = failure(&w, task);
    assert_eq!((code.as_str(), has_dead_letter), ("answer_format", false));
    assert!(text.contains("\"n\" is missing"), "{text}");
}

#[test]
fn empty_answer_truncated_by_caller_limit_is_final() {
    let mut w = World::new();
    let sampling = Sampling { output_tokens_max: Some(1), ..Sampling::default() };
    let task = w.receive(asked(CallOptions { sampling, ..CallOptions::default() }, None));
    w.replies_with(&ModelReply { finish: Finish::Length, ..reply("", &[]) });
    assert_eq!(answer(&w, task), (String::new(), Vec::new(), Finish::Length));
    assert!(w.conv.is_idle());
}

#[test]
fn answer_withheld_by_provider_is_not_requested_again() {
    let mut w = World::new();
    let task = w.say("Something unspeakable");
    w.replies_with(&ModelReply { finish: Finish::ContentFilter, ..reply("", &[]) });
    assert_eq!(answer(&w, task).2, Finish::ContentFilter);
}

#[test]
fn truncated_answer_is_returned_with_its_finish_reason() {
    let mut w = World::new();
    let task = formed(&mut w);
    w.replies_with(&ModelReply { finish: Finish::Length, ..reply("{\"n\": ", &[]) });
    let (text, _, finish) = answer(&w, task);
    assert_eq!((text.as_str(), finish), ("{\"n\":", Finish::Length));
}

#[test]
fn stateless_call_that_misses_deadline_leaves_no_dead_letter() {
    let mut w = World::new();
    w.slow_facts = true;
    let task = w.receive(asked(CallOptions::default(), None));
    assert_eq!(w.deadline(), Some((task, true)));
    let finals = w.finals(task);
    assert!(
        matches!(finals[..], [EventBody::Failed { code, dead_letter: None, .. }] if code == "deadline"),
        "a stateless call is not retried: {finals:?}"
    );
}

#[test]
fn client_with_length_limit_is_never_shown_call_of_unknown_tool() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let sampling = Sampling { output_tokens_max: Some(100), ..Sampling::default() };
    let task = w.receive(asked(CallOptions { sampling, ..CallOptions::default() }, None));
    let call = "<tool_call>{\"name\": \"launch\", \"arguments\": {}}</tool_call>";
    w.replies(call, &[]);
    assert!(w.last_shown().contains("a call of something that does not exist"), "{}", w.last_shown());
    w.replies(&format!("I cannot.\n{call}"), &[]);
    assert_eq!(answer(&w, task).0, "I cannot.");
    let task = threaded(&mut w, thread(false));
    w.replies(call, &[]);
    assert_eq!(answer(&w, task).0, call, "a program receives the text unchanged");
}

#[test]
fn call_written_as_code_twice_is_the_answer() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Show me a tool call as JSON");
    let code = "```json\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bonn\"}}\n```";
    w.replies(code, &[]);
    w.replies(code, &[]);
    assert_eq!(w.answer(task), code);
}
