//! Truthful answers (invariant 21): an agent without actions is not reported as completed, no effect happens twice, and no
//! answer claims an effect that did not happen or conceals one that did.

use serde_json::{Value, json};

use super::{
    properties::assert_equal_effects_once,
    script::{agent, cmd, collect, dispatch, dispatch_to_act, reply, skill, skills, use_skill},
    world::World,
};
use crate::{
    event::{AnswerOutcome, EventBody, Mode, ReportStatus, ResumeCause},
    ids::{AgentId, OperationId, TaskId},
    limits::{MainInterface, SubAgentInterface, TurnLimits},
    message::{Finish, ModelReply},
    outcome::{Operation, Outcome},
    skill::{ArgKind, Effect, SkillSet, SkillSpec},
};

const CREATE: &str = "tasks.create --title milk";

fn outcome(w: &World, task: TaskId) -> AnswerOutcome {
    let EventBody::Answered { outcome, .. } = w.finals(task)[0] else { panic!("{:?}", w.finals(task)) };
    *outcome
}

/// The state that clients show for the task.
fn word(w: &World, task: TaskId) -> &'static str {
    let EventBody::Answered { outcome, paused, finish, .. } = w.finals(task)[0] else {
        panic!("{:?}", w.finals(task));
    };
    outcome.word(*paused, *finish)
}

fn create(id: &str, title: &str) -> crate::message::ToolCall {
    use_skill(id, "tasks.create", &json!({"title": title}))
}

#[test]
fn agent_without_actions_is_asked_once_to_act_and_then_reports_no_action() {
    let sent = [(SubAgentInterface::Cmd, "You ran no command."), (SubAgentInterface::Json, "You called no skill.")];
    for (interface, nudge) in sent {
        let mut w = World::with(Mode::MultiAgent, TurnLimits { interface, ..TurnLimits::default() });
        let task = w.say("Buy milk");
        w.replies("", &[dispatch_to_act("a", &[]), dispatch("b", &["a"]), collect(&[])]);
        w.agent_replies("a", "I created the task.", &[]);
        assert!(w.last_shown_to("a").contains(nudge), "{}", w.last_shown_to("a"));
        w.agent_replies("a", "I created the task.", &[]);
        assert_eq!(w.statuses(task), [("a", ReportStatus::NoAction), ("b", ReportStatus::Skipped)]);
        let results: Value = serde_json::from_str(w.results().last().unwrap()).unwrap();
        assert_eq!(results["agents"][0]["status"], "no_action");
        assert_eq!(results["agents"][0]["skills_run"], json!([]));
        w.replies("I created the task.", &[]);
        assert!(
            w.answer(task).ends_with("(Nothing was changed: no skill that changes anything ran for this request.)")
        );
        assert_eq!(outcome(&w, task), AnswerOutcome::NoAction);
    }
}

#[test]
fn agent_that_acts_after_reminder_is_completed_with_list_of_skills() {
    let mut w = World::new();
    let task = w.say("Buy milk");
    w.replies("", &[dispatch_to_act("a", &[]), collect(&[])]);
    w.agent_replies("a", "I created the task.", &[]);
    w.agent_replies("a", &cmd(&format!("tasks.search\n{CREATE}")), &[]);
    w.agent_skill("a", "none");
    w.agent_skill("a", "Created task #1 milk");
    w.agent_replies("a", "Created.", &[]);
    let results: Value = serde_json::from_str(w.results().last().unwrap()).unwrap();
    assert_eq!(results["agents"][0]["skills_run"], json!(["tasks.search", "tasks.create"]));
    w.replies("I created the task.", &[]);
    assert_eq!((w.answer(task).as_str(), outcome(&w, task)), ("I created the task.", AnswerOutcome::Done));
}

#[test]
fn reading_agent_may_answer_from_its_mission() {
    let mut w = World::new();
    let task = w.say("What is this?");
    w.replies("", &[dispatch("a", &[]), collect(&[])]);
    w.agent_replies("a", "It is a pipe.", &[]);
    assert_eq!(w.statuses(task), [("a", ReportStatus::Completed)]);
}

#[test]
fn effect_with_receipt_is_not_repeated_in_turn_and_second_repetition_ends_run() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Buy milk");
    w.replies("", &[create("1", "milk")]);
    w.main_skill("Created task #1 milk");
    w.replies("", &[create("2", "milk")]);
    assert_eq!(w.results(), ["[done already] Created task #1 milk This was not run again. Go on, or answer in words."]);
    assert!(w.skill_calls(&AgentId::orchestrator()).is_empty());
    w.replies("", &[create("3", "eggs"), create("4", "milk")]);
    assert_eq!(w.skill_calls(&AgentId::orchestrator()), [("tasks.create".to_owned(), json!({"title": "eggs"}))]);
    w.main_skill("Created task #2 eggs");
    assert_eq!(w.answer(task), "Done in this turn:\n- Created task #1 milk\n- Created task #2 eggs");
    assert_eq!((outcome(&w, task), word(&w, task)), (AnswerOutcome::Done, "done"));
}

#[test]
fn reply_with_finish_tool_calls_but_without_calls_is_complete_answer() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Hello");
    w.replies_with(&ModelReply { finish: Finish::ToolCalls, ..reply("Hi Ann!", &[]) });
    assert_eq!((w.answer(task).as_str(), word(&w, task)), ("Hi Ann!", "done"));
}

#[test]
fn effect_requested_four_times_in_one_reply_is_run_once() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.say("Buy milk");
    w.replies("", &[create("1", "milk"), create("2", "milk"), create("3", "milk"), create("4", "milk")]);
    assert_eq!(w.skill_calls(&AgentId::orchestrator()).len(), 1);
    w.main_skill("Created task #1 milk");
    let results = w.results();
    assert_eq!(results[0], "Created task #1 milk");
    assert!(results[1..].iter().all(|r| r.starts_with("[same call]")), "{results:?}");
}

#[test]
fn effect_of_one_agent_is_not_repeated_by_another_or_after_pause() {
    let mut w = World::with(Mode::MultiAgent, TurnLimits { agents_max: 2, ..TurnLimits::default() });
    let task = w.say("Buy milk");
    w.replies("", &[dispatch_to_act("a", &[]), dispatch_to_act("b", &["a"]), dispatch("c", &[]), collect(&[])]);
    w.agent_replies("a", &cmd(CREATE), &[]);
    w.agent_skill("a", "Created task #1 milk");
    w.agent_replies("a", "Created.", &[]);
    w.agent_replies("b", &cmd(CREATE), &[]);
    assert!(w.last_shown_to("b").contains("[done already] Created task #1 milk"), "{}", w.last_shown_to("b"));
    w.agent_replies("b", &cmd("tasks.search"), &[]);
    w.agent_skill("b", "milk");
    w.agent_replies("b", "It is there.", &[]);
    w.replies("Done.", &[]);
    assert_eq!(w.ending(task).0, "paused");
    w.say("continue");
    w.replies("", &[dispatch_to_act("d", &[]), collect(&["d"])]);
    w.agent_replies("d", &cmd(CREATE), &[]);
    assert!(w.last_shown_to("d").contains("[done already] Created task #1 milk"), "{}", w.last_shown_to("d"));
}

#[test]
fn agent_ended_by_its_turn_reports_its_receipts() {
    const HARD: EventBody = EventBody::DeadlinePassed { hard: true, dead_letters: None };
    const CANCEL: fn() -> EventBody = || EventBody::CancelRequested { by: "ann".to_owned() };
    for (ends_with, is_restarted) in [(HARD, false), (HARD, true), (CANCEL(), false), (CANCEL(), true)] {
        let mut w = World::new();
        let task = w.say("Buy milk");
        w.replies("", &[dispatch_to_act("a", &[]), collect(&[])]);
        w.agent_replies("a", &cmd(CREATE), &[]);
        w.agent_skill("a", "Created task #1 milk");
        if is_restarted {
            w.restart(ResumeCause::Restart);
        }
        w.happens(task, ends_with.clone());
        let (_, report) = &w.reports(task)[0];
        assert_eq!(report.status, ReportStatus::Cancelled);
        assert_eq!(report.receipts.iter().map(|r| r.line.as_str()).collect::<Vec<_>>(), ["Created task #1 milk"]);
        assert_eq!((report.skills_run.as_slice(), report.ids.as_slice()), (&["tasks.create".to_owned()][..], &[1][..]));
        assert!(report.usage.input_tokens > 0 && report.tool_calls_used == 1, "{report:?}");
        if ends_with != HARD {
            continue;
        }
        assert_eq!(w.ending(task).0, "paused");
        w.say("continue");
        w.replies("", &[dispatch_to_act("d", &[]), collect(&["d"])]);
        w.agent_replies("d", &cmd(CREATE), &[]);
        assert!(w.last_shown_to("d").contains("[done already] Created task #1 milk"), "{}", w.last_shown_to("d"));
    }
}

#[test]
fn effect_undone_by_another_effect_is_run_again() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.skills = with_update();
    let task = w.say("Mark task 7 as done, then as open, then as done");
    for status in ["done", "open", "done"] {
        w.replies("", &[use_skill("1", "tasks.update", &json!({"id": 7, "status": status}))]);
        assert_eq!(w.skill_calls(&AgentId::orchestrator()).len(), 1, "{status}");
        w.main_skill(&format!("Task #7 is {status}"));
    }
    w.replies("", &[]);
    w.replies("", &[]);
    assert_eq!(w.answer(task), "Done in this turn:\n- Task #7 is done\n- Task #7 is open\n- Task #7 is done");
}

/// The skills, with an additional one that changes a task by its number.
fn with_update() -> SkillSet {
    let mut update = skill("tasks.update", Effect::Idempotent, &[("id", true), ("status", true)]);
    update.args[0].kind = ArgKind::Id;
    let all = skills().iter().map(|s| SkillSpec::clone(s)).chain([update]).collect::<Vec<_>>();
    SkillSet::new(all, [], 1)
}

#[test]
fn effect_undone_by_agent_with_smaller_name_is_run_again() {
    for is_restarted in [false, true] {
        let mut w = World::new();
        w.skills = with_update();
        w.say("Mark task 7 as done, then as open, then as done");
        let dispatch = |name: &str| {
            let arguments = json!({"agent_id": name, "mission": "Task 7", "skills": ["tasks.update"]});
            crate::turn::tests::script::tool(&format!("d_{name}"), "dispatch_agent", &arguments)
        };
        w.replies("", &[dispatch("m"), dispatch("a"), dispatch("z"), collect(&[])]);
        for (name, status) in [("m", "done"), ("a", "open")] {
            w.agent_replies(name, &cmd(&format!("tasks.update --id 7 --status {status}")), &[]);
            w.agent_skill(name, &format!("Task #7 is {status}"));
        }
        if is_restarted {
            w.restart(ResumeCause::Restart);
        }
        w.agent_replies("z", &cmd("tasks.update --id 7 --status done"), &[]);
        assert_eq!(w.skill_calls(&agent("z")).len(), 1, "{}", w.last_shown_to("z"));
    }
}

#[test]
fn effect_undone_by_later_command_of_same_block_is_run_again() {
    let mut w =
        World::with(Mode::SingleLoop, TurnLimits { main_interface: MainInterface::Cmd, ..TurnLimits::default() });
    w.skills = with_update();
    w.say("Mark task 7 as done, then as open, then as done");
    let update = |status: &str| format!("tasks.update --id 7 --status {status}");
    w.replies(&cmd(&[update("done"), update("done"), update("open"), update("done")].join("\n")), &[]);
    for status in ["done", "open", "done"] {
        let wanted = w.skill_calls(&AgentId::orchestrator());
        assert_eq!(wanted[0].1["status"], status, "{wanted:?}");
        w.main_skill(&format!("Task #7 is {status}"));
    }
    assert!(w.skill_calls(&AgentId::orchestrator()).is_empty());
    assert!(w.last_shown().contains("[same call]"), "{}", w.last_shown());
}

#[test]
fn effect_on_note_is_run_again_only_if_undone_on_same_note() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let edit = skill("notes.edit", Effect::Idempotent, &[("title", true), ("append", false), ("replace", false)]);
    let create = skill("notes.create", Effect::Idempotent, &[("title", true), ("content", false)]);
    w.skills = SkillSet::new([edit, create], [], 1);
    w.say("Put milk on the list, take it off, put it on again");
    let call = |skill: &str, title: &str, key: &str| use_skill("1", skill, &json!({"title": title, key: "- milk"}));
    let append = call("notes.edit", "Groceries", "append");
    for next in [append.clone(), call("notes.edit", "groceries", "replace"), append.clone()] {
        w.replies("", &[next]);
        assert_eq!(w.skill_calls(&AgentId::orchestrator()).len(), 1);
        w.main_skill("Edited note 'Groceries'.");
    }
    // An effect on another note, or a second note with the same title, does not undo it.
    for other in [call("notes.edit", "Other", "append"), call("notes.create", "Groceries", "content")] {
        w.replies("", &[other]);
        w.main_skill("Done.");
    }
    w.replies("", &[append]);
    assert!(w.results()[0].starts_with("[done already]"), "{:?}", w.results());
}

#[test]
fn partial_effect_may_be_repeated_and_accepted_one_is_reported_as_accepted() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Buy milk and eggs");
    w.replies("", &[create("1", "milk")]);
    w.skill_ends(&AgentId::orchestrator(), 0, Outcome::partial("Created 1 of 2"));
    w.replies("", &[create("2", "milk")]);
    assert_eq!(w.skill_calls(&AgentId::orchestrator()).len(), 1, "the rest may be requested");
    w.skill_ends(&AgentId::orchestrator(), 0, Outcome::partial("Created 2 of 2"));
    w.replies("", &[create("3", "eggs")]);
    let operation = Operation { id: OperationId::from_uuid(uuid::Uuid::nil()), expires_at: w.now };
    w.skill_ends(&AgentId::orchestrator(), 0, Outcome::pending(operation, "Ordered eggs"));
    w.replies("", &[create("4", "eggs")]);
    assert_eq!(
        w.results(),
        ["[done already] Ordered eggs It was accepted, and its result comes later. Go on, or answer in words."]
    );
    w.replies("", &[]);
    w.replies("", &[]);
    assert_eq!(
        w.answer(task),
        "Done in part:\n- Created 1 of 2\n- Created 2 of 2\n\nAccepted, and the result comes later:\n- Ordered eggs"
    );
}

#[test]
fn reading_calls_and_calls_with_other_arguments_are_always_run() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.say("Look twice");
    for n in 0..2 {
        w.replies("", &[use_skill("1", "tasks.search", &json!({})), create("2", &n.to_string())]);
        assert_eq!(w.skill_calls(&AgentId::orchestrator()).len(), 2);
        w.main_skill("x");
        w.main_skill("y");
    }
}

#[test]
fn failed_effect_may_be_retried() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.say("Buy milk");
    w.replies("", &[create("1", "milk")]);
    w.skill_ends(&AgentId::orchestrator(), 0, Outcome::transient("timeout", "slow"));
    w.replies("", &[create("1", "milk")]);
    assert_eq!(w.skill_calls(&AgentId::orchestrator()).len(), 1);
}

#[test]
fn empty_or_denying_answer_is_completed_from_receipts() {
    for (words, answer) in [
        (vec!["", ""], "Created task #1 milk."),
        (
            vec!["I did not receive any input to create a task."],
            "I did not receive any input to create a task.\n\nDone in this turn:\n- Created task #1 milk",
        ),
        (vec!["All set."], "All set."),
    ] {
        let mut w = World::in_mode(Mode::SingleLoop);
        let task = w.say("Buy milk");
        w.replies("", &[create("1", "milk")]);
        w.main_skill("Created task #1 milk");
        words.iter().for_each(|word| w.replies(word, &[]));
        assert_eq!((w.answer(task).as_str(), outcome(&w, task)), (answer, AnswerOutcome::Done));
    }
}

#[test]
fn claim_without_effect_is_corrected_and_possible_claim_is_not() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Remember Paris");
    w.replies("I saved \"Paris\" to long-term memory.", &[]);
    assert_eq!(
        w.answer(task),
        "I saved \"Paris\" to long-term memory.\n\n\
         (Nothing was changed: no skill that changes anything ran for this request.)"
    );
    assert_eq!(outcome(&w, task), AnswerOutcome::NoAction);
    let task = w.say("Buy milk");
    w.replies("", &[create("1", "milk")]);
    w.skill_ends(&AgentId::orchestrator(), 0, Outcome::unknown("Its receipt is missing.", json!({})));
    w.replies("I created the task.", &[]);
    assert_eq!(
        w.answer(task),
        "I created the task.\n\n(It is not known whether this happened: tasks.create.)",
        "it may have happened, and the answer says so"
    );
}

#[test]
fn claim_of_agentic_backend_is_not_corrected() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Write the file");
    w.only_logged(task, &AgentId::orchestrator(), EventBody::RoundBegan { round: 1, backend: "coder".to_owned() });
    w.conv.round_acts(task, 1);
    w.replies("I created the file.", &[]);
    assert_eq!((w.answer(task).as_str(), outcome(&w, task)), ("I created the file.", AnswerOutcome::Done));
}

#[test]
fn limit_that_blocks_agents_pauses_turn_and_continue_resumes_plan() {
    let limits = [
        TurnLimits { agents_max: 1, ..TurnLimits::default() },
        TurnLimits { skill_calls_max: 1, ..TurnLimits::default() },
    ];
    for limits in limits {
        let mut w = World::with(Mode::MultiAgent, limits);
        let task = w.say("Two things");
        w.replies("", &[dispatch("a", &[]), dispatch("b", &[]), collect(&[])]);
        w.agent_replies("a", &cmd("tasks.search --query 1"), &[]);
        w.agent_skill("a", "one");
        if w.running() == ["a"] {
            w.agent_replies("a", "One.", &[]);
        }
        w.replies("The first is done.", &[]);
        let (kind, text) = w.ending(task);
        assert_eq!(
            (kind, text.as_str()),
            ("paused", "The first is done.\n\nNot yet started:\n- Do b\n\nWould you like me to continue?")
        );
        w.say("Yes, continue");
        assert!(w.request().messages.len() > 3, "the turn continues with its context");
        w.replies("", &[dispatch("c", &[]), collect(&["c"])]);
        assert_eq!(w.running(), [agent("c").as_str()], "budgets start anew");
    }
}

/// Two parallel agents that may both create tasks. The first has requested one.
fn side_by_side() -> (World, TaskId) {
    let mut w = World::new();
    let task = w.say("Buy milk");
    w.replies("", &[dispatch_to_act("a", &[]), dispatch_to_act("b", &[]), collect(&[])]);
    w.agent_replies("a", &cmd(CREATE), &[]);
    (w, task)
}

fn asks() -> crate::message::ModelReply {
    reply(&cmd(CREATE), &[])
}

#[test]
fn equal_concurrent_effects_of_two_agents_run_once_and_share_receipt() {
    let (mut w, task) = side_by_side();
    w.skill_starts(&agent("a"));
    assert!(!w.agent_tries("b", &asks()), "the second agent waits while the first call runs");
    w.agent_skill("a", "Created task #1 milk");
    assert!(w.agent_tries("b", &asks()));
    assert!(w.skill_calls(&agent("b")).is_empty());
    assert!(w.last_shown_to("b").contains("[done already] Created task #1 milk"), "{}", w.last_shown_to("b"));
    w.agent_replies("b", "The task is there.", &[]);
    w.agent_replies("a", "Created.", &[]);
    assert_eq!(w.statuses(task), [("b", ReportStatus::Completed), ("a", ReportStatus::Completed)]);
    assert_equal_effects_once(&w);
}

#[test]
fn effect_requested_by_second_agent_runs_if_first_certainly_failed() {
    let (mut w, _) = side_by_side();
    w.skill_ends(&agent("a"), 0, Outcome::transient("timeout", "slow"));
    assert!(w.agent_tries("b", &asks()));
    assert_eq!(w.skill_calls(&agent("b")).len(), 1);
    assert!(!w.agent_tries("a", &asks()), "the other agent waits now");
}

#[test]
fn effect_in_doubt_is_not_repeated_by_any_agent_of_turn() {
    let doubt = || Outcome::unknown("Its receipt is missing.", json!({}));
    let (mut w, task) = side_by_side();
    w.skill_ends(&agent("a"), 0, doubt());
    w.agent_replies("b", &cmd(CREATE), &[]);
    assert!(w.last_shown_to("b").contains("may have happened already"), "{}", w.last_shown_to("b"));
    assert!(w.skill_calls(&agent("b")).is_empty());
    w.agent_replies("a", "Unknown.", &[]);
    w.agent_replies("b", "Unknown.", &[]);
    assert_eq!(w.reports(task)[0].1.in_doubt, [("tasks.create".to_owned(), json!({"title": "milk"}))]);
    w.replies("", &[dispatch_to_act("c", &[]), collect(&["c"])]);
    w.agent_replies("c", &cmd(CREATE), &[]);
    assert!(w.last_shown_to("c").contains("may have happened already"), "{}", w.last_shown_to("c"));
    assert!(w.skill_calls(&agent("c")).is_empty());
}

#[test]
fn effect_of_crashed_agent_is_in_doubt_for_other_agents() {
    let (mut w, _) = side_by_side();
    w.skill_starts(&agent("a"));
    assert!(!w.agent_tries("b", &asks()));
    w.agent_ends("a", ReportStatus::Crashed);
    assert!(w.agent_tries("b", &asks()));
    assert!(w.last_shown_to("b").contains("may have happened already"), "{}", w.last_shown_to("b"));
    assert!(w.skill_calls(&agent("b")).is_empty());
}

#[test]
fn equal_effect_running_at_process_exit_is_made_once() {
    let (mut w, _) = side_by_side();
    w.skill_starts(&agent("a"));
    assert!(!w.agent_tries("b", &asks()));
    w.restart(ResumeCause::Restart);
    assert!(!w.agent_tries("b", &asks()), "the next incarnation knows the running call from the log");
    w.agent_skill("a", "Created task #1 milk");
    w.restart(ResumeCause::Restart);
    assert!(w.agent_tries("b", &asks()));
    assert!(w.last_shown_to("b").contains("[done already] Created task #1 milk"), "{}", w.last_shown_to("b"));
    assert_equal_effects_once(&w);
}

#[test]
fn effect_in_doubt_is_not_repeated_by_continuing_turn() {
    let mut w = World::with(Mode::MultiAgent, TurnLimits { agents_max: 1, ..TurnLimits::default() });
    let task = w.say("Buy milk");
    w.replies("", &[dispatch_to_act("a", &[]), dispatch("b", &[]), collect(&[])]);
    w.agent_replies("a", &cmd(CREATE), &[]);
    w.skill_ends(&agent("a"), 0, Outcome::unknown("Its receipt is missing.", json!({})));
    w.agent_replies("a", "Unknown.", &[]);
    w.replies("It may have happened.", &[]);
    assert_eq!(w.ending(task).0, "paused");
    w.say("continue");
    w.replies("", &[dispatch_to_act("d", &[]), collect(&["d"])]);
    w.agent_replies("d", &cmd(CREATE), &[]);
    assert!(w.last_shown_to("d").contains("may have happened already"), "{}", w.last_shown_to("d"));
}

#[test]
fn claim_of_failed_effect_is_corrected_next_to_successful_one() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let send = use_skill("2", "email.send", &json!({"to": "bob", "body": "hi"}));
    let task = w.say("Buy milk and write to Bob");
    w.replies("", &[create("1", "milk"), send]);
    w.main_skill("Created task #1 milk");
    w.skill_ends(&AgentId::orchestrator(), 0, Outcome::permanent("refused", "No such mailbox."));
    w.replies("I created the task and I sent the e-mail.", &[]);
    assert_eq!(w.answer(task), "I created the task and I sent the e-mail.\n\n(Not done: email.send failed.)");
}

#[test]
fn call_of_unknown_tool_is_reported_to_model_and_never_shown() {
    let call = "{\"name\": \"launch\", \"arguments\": {\"at\": \"once\"}}";
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Launch it");
    w.replies(call, &[]);
    assert!(w.last_shown().contains("a call of something that does not exist"), "{}", w.last_shown());
    w.replies("I cannot launch anything.", &[]);
    assert_eq!(w.answer(task), "I cannot launch anything.");
    let task = w.say("Launch it now");
    w.replies(call, &[]);
    w.replies(&format!("I try.\n<tool_call>{call}</tool_call>"), &[]);
    assert_eq!(w.answer(task), "I try.");
    let task = w.say("Launch it at last");
    w.replies(call, &[]);
    w.replies(call, &[]);
    let (_, text) = w.ending(task);
    assert!(!text.contains('{') && text.contains("things that do not exist"), "{text}");
}

#[test]
fn declined_answer_gets_no_list_of_receipts() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Buy milk and fly");
    w.replies("", &[create("1", "milk")]);
    w.main_skill("Created task #1 milk");
    let words = "Created task #1 milk. I can't fly.";
    w.replies_with(&crate::message::ModelReply { declined: true, ..reply(words, &[]) });
    assert_eq!((w.answer(task).as_str(), outcome(&w, task)), (words, AnswerOutcome::Declined));
}

#[test]
fn second_repetition_of_paused_turns_effect_is_answered_from_receipts() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Buy milk");
    w.replies("", &[create("1", "milk")]);
    w.main_skill("Created task #1 milk");
    w.happens(task, EventBody::DeadlinePassed { hard: true, dead_letters: None });
    assert_eq!(w.ending(task).0, "paused");
    let task = w.say("continue");
    w.replies("", &[create("2", "milk")]);
    w.replies("", &[create("3", "milk")]);
    assert_eq!(w.answer(task), "Done before:\n- Created task #1 milk");
}

#[test]
fn claim_proved_by_earlier_turn_is_neither_corrected_nor_repeated() {
    for interface in [MainInterface::Cmd, MainInterface::Tools] {
        let mut w = World::with(Mode::SingleLoop, TurnLimits { main_interface: interface, ..TurnLimits::default() });
        w.say("Call the bank: make a task");
        if interface == MainInterface::Cmd {
            w.replies(&cmd("tasks.create --title \"Call the bank\""), &[]);
        } else {
            w.replies("", &[create("1", "Call the bank")]);
        }
        w.main_skill("Created task #7 \"Call the bank\"");
        w.replies("Done.", &[]);
        for (asks, says) in [
            ("Did you create the task?", "Yes, I created the task."),
            ("thanks", "You're welcome, I created the task \"Call the bank\"."),
            ("good", "I have created task #7 for you."),
            // A message of two sentences may be about both.
            ("Did you create the task? I have to order the rest.", "I created task #7."),
            ("Thanks for the task. Now I can order the rest.", "I created task #7."),
        ] {
            let task = w.say(asks);
            w.replies(says, &[]);
            assert_eq!((w.answer(task).as_str(), outcome(&w, task)), (says, AnswerOutcome::Done), "{interface:?}");
            w.restart(ResumeCause::Restart);
        }
        // Another thing of the same kind is not a repetition of the first.
        for (asks, says, expected) in [
            (
                "Can you add a task to buy eggs?",
                "I created the task \"Buy eggs\".",
                "Write the cmd block that does it now",
            ),
            ("Add a task to buy eggs", "I have created task #8.", "Write the cmd block that does it now"),
            // Nor is the first thing an answer to a request.
            ("Rename task 7", "I created task #7.", "Write the cmd block that does it now"),
            ("I called them, so that task is done", "I created task #7.", "Write the cmd block that does it now"),
            ("Delete the task", "Task #7 \"Call the bank\" is deleted.", "Write the cmd block that does it now"),
            ("Good old bank", "I have created note #7.", "asks for no change"),
            ("Did you delete the task?", "Yes, I deleted the task.", "asks for no change"),
        ] {
            let task = w.say(asks);
            w.replies(says, &[]);
            if interface == MainInterface::Cmd {
                assert!(w.last_shown().contains(expected), "{}", w.last_shown());
                w.replies(says, &[]);
            }
            assert_eq!(outcome(&w, task), AnswerOutcome::NoAction, "{says}");
        }
    }
}

#[test]
fn effect_in_doubt_is_stated_despite_doubt_about_another_matter() {
    let line = "(It is not known whether this happened: email.send.)";
    for (says, is_added) in [
        ("I sent the e-mail to Bob. You may want to check your calendar too.", true),
        ("I sent the e-mail to Bob for May 3rd.", true),
        ("I sent the e-mail. Maybe call him. It is unclear what the weather will be.", true),
        ("The e-mail may have been sent.", false),
        ("I don't know whether the mail reached him.", false),
        ("The outcome is unknown.", false),
        ("Es ist unklar, ob die E-Mail gesendet wurde.", false),
    ] {
        let mut w = World::in_mode(Mode::SingleLoop);
        let task = w.say("Write to Bob");
        w.replies("", &[use_skill("1", "email.send", &json!({"to": "bob", "body": "hi"}))]);
        w.skill_ends(&AgentId::orchestrator(), 0, Outcome::unknown("No receipt.", json!({})));
        w.replies(says, &[]);
        assert_eq!(w.answer(task).contains(line), is_added, "{}", w.answer(task));
    }
}

#[test]
fn claim_of_failed_effect_is_corrected_next_to_doubtful_or_earlier_one() {
    let send = use_skill("2", "email.send", &json!({"to": "bob", "body": "hi"}));
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Buy milk and write to Bob");
    w.replies("", &[create("1", "milk"), send]);
    w.skill_ends(&AgentId::orchestrator(), 0, Outcome::unknown("No receipt.", json!({})));
    w.skill_ends(&AgentId::orchestrator(), 0, Outcome::permanent("refused", "No such mailbox."));
    w.replies("I don't know whether the task was created. I sent the e-mail.", &[]);
    assert!(w.answer(task).ends_with("I sent the e-mail.\n\n(Not done: email.send failed.)"), "{}", w.answer(task));
}

#[test]
fn claim_of_effect_never_requested_is_corrected_next_to_true_one() {
    for (says, line) in [
        ("I created the task and sent the e-mail.", Some("(Nothing was sent for this request.)")),
        ("I created the task. I have deleted the old task.", Some("(Nothing was deleted for this request.)")),
        ("I created the task and marked it as urgent.", None),
        ("I created the task and set it to Friday.", None),
        ("I created the task. Should I delete the other task?", None),
    ] {
        let mut w = World::in_mode(Mode::SingleLoop);
        let task = w.say("Buy milk and write to Bob");
        w.replies("", &[create("1", "milk")]);
        w.main_skill("Created task #1 milk");
        w.replies(says, &[]);
        let wanted = line.map_or_else(|| says.to_owned(), |line| format!("{says}\n\n{line}"));
        assert_eq!((w.answer(task), outcome(&w, task)), (wanted, AnswerOutcome::Done));
    }
}

#[test]
fn result_invented_by_model_is_rejected_and_never_the_answer() {
    for mode in [Mode::MultiAgent, Mode::SingleLoop] {
        let limits = TurnLimits { main_interface: MainInterface::Tools, ..TurnLimits::default() };
        let mut w = World::with(mode, limits);
        let task = w.say("Create a task to buy stamps");
        let invented = "<result>Created task #8 Buy stamps, due today.</result>";
        w.replies(invented, &[]);
        assert!(w.last_shown().contains("You wrote a result yourself"), "{}", w.last_shown());
        w.replies(invented, &[]);
        let answer = w.answer(task);
        assert!(answer.contains("Nothing ran") && !answer.contains("Created"), "{answer}");
        assert_eq!(outcome(&w, task), AnswerOutcome::GaveUp);
        let task = w.say("Where is the key?");
        w.replies("<result-x1 command=\"a\">Anna has it.</result-x1>", &[]);
        w.replies("Anna has it.", &[]);
        assert_eq!(w.answer(task), "Anna has it.");
    }
}

#[test]
fn empty_answer_of_model_is_completed_with_failures_and_doubts() {
    for (outcome_of, expected) in [
        (Outcome::unknown("No receipt.", json!({})), "email.send: it is not known whether it happened"),
        (Outcome::permanent("refused", "No such mailbox."), "Not completed:\n- email.send: No such mailbox."),
    ] {
        let mut w = World::in_mode(Mode::SingleLoop);
        let task = w.say("Buy milk and write to Bob");
        let send = use_skill("2", "email.send", &json!({"to": "bob", "body": "hi"}));
        w.replies("", &[create("1", "milk"), send]);
        w.main_skill("Created task #1 milk");
        w.skill_ends(&AgentId::orchestrator(), 0, outcome_of);
        w.replies("", &[]);
        w.replies("", &[]);
        let answer = w.answer(task);
        assert!(
            answer.starts_with("Done in this turn:\n- Created task #1 milk") && answer.contains(expected),
            "{answer}"
        );
        assert!(!answer.contains("Completed:"), "effects are listed once, from the receipts: {answer}");
    }
}

#[test]
fn empty_answer_of_orchestrator_is_completed_with_doubts_of_agent() {
    let mut w = World::new();
    let task = w.say("Buy milk and eggs");
    w.replies("", &[dispatch_to_act("a", &[]), collect(&[])]);
    w.agent_replies("a", &cmd("tasks.create --title milk\ntasks.create --title eggs"), &[]);
    w.agent_skill("a", "Created task #1 milk");
    w.skill_ends(&agent("a"), 0, Outcome::unknown("No receipt.", json!({})));
    w.agent_replies("a", "Done.", &[]);
    w.replies("", &[]);
    w.replies("", &[]);
    let answer = w.answer(task);
    assert!(answer.contains("(It is not known whether this happened: tasks.create.)"), "{answer}");
}

#[test]
fn claim_is_corrected_if_agent_failed_before_any_action() {
    for status in [None, Some(ReportStatus::Crashed), Some(ReportStatus::Timeout)] {
        let mut w = World::new();
        let task = w.say("Buy milk");
        w.replies("", &[dispatch_to_act("a", &[]), collect(&[])]);
        match status {
            None => w.agent_model_fails("a", crate::message::ModelErrorKind::Unavailable),
            Some(status) => w.agent_ends("a", status),
        }
        w.replies("I created the task.", &[]);
        assert!(w.answer(task).contains("(Nothing was changed:"), "{status:?}: {}", w.answer(task));
        assert_eq!(outcome(&w, task), AnswerOutcome::NoAction);
    }
}

#[test]
fn claim_is_checked_against_receipts_of_failed_agent() {
    let mut w = World::new();
    let task = w.say("Buy milk and write to Bob");
    w.replies("", &[dispatch_to_act("a", &[]), collect(&[])]);
    w.agent_replies("a", &cmd(CREATE), &[]);
    w.agent_skill("a", "Created task #1 milk");
    w.agent_model_fails("a", crate::message::ModelErrorKind::Unavailable);
    w.replies("I created the task and sent the e-mail.", &[]);
    assert!(w.answer(task).ends_with("(Nothing was sent for this request.)"), "{}", w.answer(task));
}

#[test]
fn claim_with_date_or_time_does_not_refer_to_earlier_turn() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.say("Buy milk");
    w.replies("", &[create("1", "milk")]);
    w.main_skill("Created task #3 milk");
    w.replies("Done.", &[]);
    for (asks, says) in [
        ("Add the dentist on March 3", "I've created a task for the dentist on March 3."),
        ("Add the dentist at 3 pm", "I've created a task for the dentist at 3 pm."),
        // After more than one sentence, an answer may also be about an earlier turn.
        ("The dentist has time. Add it on March 3.", "I've created a task for the dentist on March 3."),
        ("The dentist has time. Add it at 3.", "I've created a task for the dentist at 3 o'clock."),
        ("Is it possible to add eggs?", "Yes, I've added eggs to your list."),
        ("How about we add eggs?", "Sure, I've added eggs to your list."),
        ("When you have time, could you create a task to buy eggs?", "I've created the task."),
        ("Add milk", "After checking your list, I've added it."),
        ("Delete it as I asked you", "As you asked before, I've deleted it."),
    ] {
        let task = w.say(asks);
        w.replies(says, &[]);
        assert_eq!(outcome(&w, task), AnswerOutcome::NoAction, "{asks} {says}");
    }
    let task = w.say("thanks");
    w.replies("You're welcome. I have created task 3 for you.", &[]);
    assert_eq!(outcome(&w, task), AnswerOutcome::Done);
}

#[test]
fn claim_with_invented_detail_does_not_refer_to_earlier_turn() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.say("Call the bank: make a task");
    w.replies("", &[create("1", "Call the bank")]);
    w.main_skill("Created task #1 Call the bank, priority medium");
    w.replies("Done.", &[]);
    for detail in ["due next Friday", "priority high"] {
        // The second message requests nothing, so its answer may be about an earlier turn.
        for asks in ["I have called the bank, so that task is done", "I have called the bank. Which task was that?"] {
            let task = w.say(asks);
            w.replies(&format!("I added task #1 \"Call the bank\", {detail}."), &[]);
            assert_eq!(outcome(&w, task), AnswerOutcome::NoAction, "{asks}: {detail}");
        }
    }
    let task = w.say("thanks");
    w.replies("You're welcome. I added task #1 \"Call the bank\", priority medium.", &[]);
    assert_eq!(outcome(&w, task), AnswerOutcome::Done);
}

#[test]
fn state_claimed_without_effect_is_corrected_in_answer_to_a_request() {
    for (asks, read, says, is_corrected) in [
        ("Delete task 1", None, "Done.", true),
        ("Delete task 1", None, "Ok, deleted!", true),
        ("Lösche Aufgabe 1", None, "Erledigt.", true),
        ("Please delete task 1. It is old.", None, "Task #1 is deleted.", true),
        ("Please delete task 1. It is old.", None, "Done.", true),
        ("Delete the milk task", Some("#1 milk, open"), "Task #1 is deleted.", true),
        ("Delete the milk task", Some("#1 milk, open"), "Deleted.", true),
        // The result says so, or the sentence only describes it.
        ("Delete the milk task", Some("#1 milk, deleted yesterday"), "Task #1 is deleted.", false),
        ("Delete the milk task", Some("#1 milk, closed"), "Task #1 is done.", false),
        ("Delete the milk task", Some("#1 milk, open"), "Task #1 was created today. Is it that one?", false),
        // Nothing was requested.
        ("Is task 1 deleted?", None, "Task #1 is deleted.", false),
        ("Are we there yet?", None, "Done.", false),
        ("Delete task 1", None, "Not done: which list is it on?", false),
    ] {
        let mut w = World::in_mode(Mode::SingleLoop);
        let task = w.say(asks);
        if let Some(read) = read {
            w.replies("", &[use_skill("1", "tasks.search", &json!({}))]);
            w.main_skill(read);
        }
        w.replies(says, &[]);
        assert_eq!(outcome(&w, task) == AnswerOutcome::NoAction, is_corrected, "{asks}: {}", w.answer(task));
        assert_eq!(w.answer(task) == says, !is_corrected, "{asks}: {}", w.answer(task));
    }
}

#[test]
fn state_that_an_earlier_turn_brought_about_is_not_corrected() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let mut delete = skill("tasks.delete", Effect::Idempotent, &[("id", true)]);
    delete.args[0].kind = ArgKind::Id;
    w.skills = SkillSet::new([delete], [], 1);
    w.say("Delete task 1");
    w.replies("", &[use_skill("1", "tasks.delete", &json!({"id": 1}))]);
    w.main_skill("Deleted task #1");
    w.replies("Done.", &[]);
    for (asks, says, is_corrected) in [
        ("Delete task 1", "Task #1 is deleted.", false),
        ("Please delete task 1. It is old.", "Task #1 is deleted.", false),
        ("Please delete it. It is old.", "Deleted.", false),
        ("Delete task 2", "Task #2 is deleted.", true),
        ("Delete task 2", "Deleted.", true),
    ] {
        let task = w.say(asks);
        w.replies(says, &[]);
        assert_eq!(outcome(&w, task) == AnswerOutcome::NoAction, is_corrected, "{asks}: {}", w.answer(task));
    }
}

#[test]
fn question_becomes_request_when_user_adds_a_request() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.say("Buy milk");
    w.replies("", &[create("1", "milk")]);
    w.main_skill("Created task #3 milk");
    w.replies("Done.", &[]);
    for says in ["I created the task.", "Sure."] {
        let task = w.say("Did you create the task?");
        assert!(w.turn().main.is_asked && w.turn().main.asks_only);
        w.add("And create one to buy eggs");
        w.replies("", &[use_skill("1", "tasks.search", &json!({}))]);
        w.main_skill("milk");
        assert!(!w.turn().main.is_asked && !w.turn().main.asks_only, "question and addition are a request now");
        w.replies(says, &[]);
        let is_claim = says.starts_with('I');
        assert_eq!(outcome(&w, task) == AnswerOutcome::NoAction, is_claim, "{says}");
    }
}

#[test]
fn commands_after_running_one_are_neither_in_doubt_nor_blocked() {
    let mut w =
        World::with(Mode::SingleLoop, TurnLimits { main_interface: MainInterface::Cmd, ..TurnLimits::default() });
    w.skills = with_update();
    let task = w.say("Mark tasks 1, 2 and 3 as done");
    let update = |id: u64| format!("tasks.update --id {id} --status done");
    w.replies(&cmd(&[update(1), update(2), update(3)].join("\n")), &[]);
    w.skill_starts(&AgentId::orchestrator());
    w.happens(task, EventBody::DeadlinePassed { hard: true, dead_letters: None });
    let (kind, text) = w.ending(task);
    assert_eq!(kind, "paused");
    assert!(text.contains("May or may not have happened:\n- tasks.update (it was under way)\n\nNot yet started:\n- tasks.update (not run) (2 times)"), "{text}");
    w.say("continue");
    let shown = format!("{:?}", w.request().messages);
    assert_eq!((shown.matches("[unknown]").count(), shown.matches("[not run]").count()), (1, 2), "{shown}");
    w.replies(&cmd(&update(1)), &[]);
    assert!(w.skill_calls(&AgentId::orchestrator()).is_empty() && w.last_shown().contains("may have happened already"));
    w.replies(&cmd(&update(2)), &[]);
    assert_eq!(w.skill_calls(&AgentId::orchestrator()).len(), 1);
}

#[test]
fn receipts_and_doubts_of_agents_are_kept_once_over_many_pauses() {
    let mut w = World::new();
    let mut task = w.say("Buy milk and eggs");
    w.replies("", &[dispatch_to_act("a", &[]), collect(&[])]);
    w.agent_replies("a", &cmd("tasks.create --title milk\ntasks.create --title eggs"), &[]);
    w.agent_skill("a", "Created task #1 milk");
    w.skill_ends(&agent("a"), 0, Outcome::unknown("No receipt.", json!({})));
    w.agent_replies("a", "Done.", &[]);
    for _ in 0..3 {
        w.happens(task, EventBody::DeadlinePassed { hard: true, dead_letters: None });
        assert_eq!(w.ending(task).0, "paused");
        task = w.say("continue");
        let main = &w.turn().main;
        assert_eq!((main.known.len(), main.in_doubt.len()), (1, 1), "{main:?}");
        assert_eq!(w.turn().known_receipts().count(), 1);
    }
}

#[test]
fn story_or_translation_contains_no_claim_of_the_model() {
    let long = "I picked up the box and carried on through the rain. ".repeat(8);
    for (asks, says, expected) in [
        (
            "Write a short story in the first person",
            "I set it down. I moved to Berlin, and that was it.".to_owned(),
            true,
        ),
        ("Translate: Ich habe die Aufgabe erledigt", "I completed the task.".to_owned(), true),
        ("Bitte erzähl mir eine Geschichte", "Ich habe die Nachricht gesendet.".to_owned(), true),
        ("How was your day?", format!("{long}Then I moved it."), true),
        ("Add milk", "I've added it.".to_owned(), false),
        ("Add milk", format!("{long}I've added it to your list."), false),
        ("Write a poem and add a task to read it", "I've added the task.".to_owned(), false),
        ("Add a task: write a story", "I've added the task.".to_owned(), false),
        ("Tell me a joke and add milk to my list", "I've added milk to your list.".to_owned(), false),
        ("Translate this to German and save it as a note", "I've saved it as a note.".to_owned(), false),
        ("Write a note with the lyrics of my song", "I've created the note.".to_owned(), false),
    ] {
        for interface in [MainInterface::Cmd, MainInterface::Tools] {
            let limits = TurnLimits { main_interface: interface, ..TurnLimits::default() };
            let mut w = World::with(Mode::SingleLoop, limits);
            let task = w.say(asks);
            w.replies(&says, &[]);
            if interface == MainInterface::Cmd && !expected {
                w.replies(&says, &[]);
            }
            assert_eq!(outcome(&w, task) == AnswerOutcome::Done, expected, "{asks}: {says}");
        }
    }
}

#[test]
fn receipts_of_earlier_turns_are_bounded_and_newest_are_kept() {
    let mut w = World::in_mode(Mode::SingleLoop);
    for n in 0..40 {
        w.say("Buy more");
        w.replies("", &[create("1", &n.to_string())]);
        w.main_skill(&format!("Created task #{n} x"));
        w.replies("Done.", &[]);
    }
    assert_eq!((w.conv.receipts.len(), w.conv.receipts.back().unwrap().line.as_str()), (32, "Created task #39 x"));
}
