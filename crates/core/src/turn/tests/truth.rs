//! What a turn says is true (invariant 21): no agent is done that did nothing, no effect happens twice, no answer claims or
//! hides one.

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
    match w.finals(task)[0] {
        EventBody::Answered { outcome, .. } => *outcome,
        other => panic!("{other:?}"),
    }
}

/// The word that front ends show.
fn word(w: &World, task: TaskId) -> &'static str {
    match w.finals(task)[0] {
        EventBody::Answered { outcome, paused, finish, .. } => outcome.word(*paused, *finish),
        other => panic!("{other:?}"),
    }
}

fn create(id: &str, title: &str) -> crate::message::ToolCall {
    use_skill(id, "tasks.create", &json!({"title": title}))
}

#[test]
fn agent_that_ran_nothing_is_asked_once_to_act_and_then_reports_no_action() {
    let said = [(SubAgentInterface::Cmd, "You ran no command."), (SubAgentInterface::Json, "You called no skill.")];
    for (interface, nudge) in said {
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
fn agent_that_acts_after_the_nudge_is_completed_and_its_skills_are_listed() {
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
fn agent_that_only_reads_may_answer_from_its_mission() {
    let mut w = World::new();
    let task = w.say("What is this?");
    w.replies("", &[dispatch("a", &[]), collect(&[])]);
    w.agent_replies("a", "It is a pipe.", &[]);
    assert_eq!(w.statuses(task), [("a", ReportStatus::Completed)]);
}

#[test]
fn effect_with_a_receipt_is_not_run_again_in_its_turn_and_the_second_repetition_ends_the_run() {
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
fn reply_that_stopped_for_calls_and_has_none_is_a_whole_answer() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Hello");
    w.replies_with(&ModelReply { finish: Finish::ToolCalls, ..reply("Hi Ann!", &[]) });
    assert_eq!((w.answer(task).as_str(), word(&w, task)), ("Hi Ann!", "done"));
}

#[test]
fn effect_that_stands_four_times_in_one_reply_is_run_once() {
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
fn effect_of_one_agent_is_not_run_again_by_another_or_after_a_pause() {
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
fn agent_that_its_turn_ends_reports_the_receipts_that_it_has() {
    const HARD: EventBody = EventBody::DeadlinePassed { hard: true, letters: None };
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
fn effect_that_another_effect_on_its_thing_has_undone_is_run_again() {
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

/// The skills with one that changes a task by its number.
fn with_update() -> SkillSet {
    let mut update = skill("tasks.update", Effect::Idempotent, &[("id", true), ("status", true)]);
    update.args[0].kind = ArgKind::Id;
    let all = skills().iter().map(|s| SkillSpec::clone(s)).chain([update]).collect::<Vec<_>>();
    SkillSet::new(all, [], 1)
}

#[test]
fn effect_undone_by_an_agent_of_a_smaller_name_is_run_again() {
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
fn effect_that_another_command_of_its_block_undoes_is_run_again() {
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
fn effect_on_a_note_that_another_effect_on_it_has_undone_is_run_again_and_on_another_note_it_is_not() {
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
    // Another note, or a second one of the title, does not undo it.
    for other in [call("notes.edit", "Other", "append"), call("notes.create", "Groceries", "content")] {
        w.replies("", &[other]);
        w.main_skill("Done.");
    }
    w.replies("", &[append]);
    assert!(w.results()[0].starts_with("[done already]"), "{:?}", w.results());
}

#[test]
fn partial_effect_may_be_called_again_and_an_accepted_one_is_told_as_accepted() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Buy milk and eggs");
    w.replies("", &[create("1", "milk")]);
    w.skill_ends(&AgentId::orchestrator(), 0, Outcome::partial("Created 1 of 2"));
    w.replies("", &[create("2", "milk")]);
    assert_eq!(w.skill_calls(&AgentId::orchestrator()).len(), 1, "the rest may be asked for");
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
fn reads_and_other_arguments_run_as_often_as_they_are_asked_for() {
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
fn failed_effect_may_be_tried_again() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.say("Buy milk");
    w.replies("", &[create("1", "milk")]);
    w.skill_ends(&AgentId::orchestrator(), 0, Outcome::transient("timeout", "slow"));
    w.replies("", &[create("1", "milk")]);
    assert_eq!(w.skill_calls(&AgentId::orchestrator()).len(), 1);
}

#[test]
fn last_word_that_is_empty_or_denies_is_completed_from_the_receipts() {
    for (words, answer) in [
        (vec!["", ""], "Done in this turn:\n- Created task #1 milk"),
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
fn claim_without_any_effect_gets_a_true_line_and_a_claim_that_may_be_true_does_not() {
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
fn claim_of_a_program_is_left_to_the_program() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Write the file");
    w.only_logged(task, &AgentId::orchestrator(), EventBody::RoundBegan { round: 1, backend: "coder".to_owned() });
    w.conv.round_acts(task, 1);
    w.replies("I created the file.", &[]);
    assert_eq!((w.answer(task).as_str(), outcome(&w, task)), ("I created the file.", AnswerOutcome::Done));
}

#[test]
fn limit_that_keeps_work_from_beginning_pauses_the_turn_and_continue_goes_on_with_the_plan() {
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
        assert!(w.request().messages.len() > 3, "it goes on from where it was");
        w.replies("", &[dispatch("c", &[]), collect(&["c"])]);
        assert_eq!(w.running(), [agent("c").as_str()], "budgets count anew");
    }
}

/// Two agents beside each other that both may create tasks; the first has asked for one.
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
fn equal_effects_of_two_agents_at_once_are_one_and_the_second_gets_the_firsts_receipt() {
    let (mut w, task) = side_by_side();
    w.skill_starts(&agent("a"));
    assert!(!w.agent_tries("b", &asks()), "the first is under way: the second waits");
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
fn effect_that_another_agent_asks_for_runs_if_the_first_failed_for_sure() {
    let (mut w, _) = side_by_side();
    w.skill_ends(&agent("a"), 0, Outcome::transient("timeout", "slow"));
    assert!(w.agent_tries("b", &asks()));
    assert_eq!(w.skill_calls(&agent("b")).len(), 1);
    assert!(!w.agent_tries("a", &asks()), "now the other one waits");
}

#[test]
fn effect_in_doubt_is_not_repeated_by_another_agent_of_the_turn_whenever_it_starts() {
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
fn effect_of_an_agent_that_died_in_it_is_in_doubt_for_the_others() {
    let (mut w, _) = side_by_side();
    w.skill_starts(&agent("a"));
    assert!(!w.agent_tries("b", &asks()));
    w.agent_ends("a", ReportStatus::Crashed);
    assert!(w.agent_tries("b", &asks()));
    assert!(w.last_shown_to("b").contains("may have happened already"), "{}", w.last_shown_to("b"));
    assert!(w.skill_calls(&agent("b")).is_empty());
}

#[test]
fn equal_effect_that_was_under_way_when_the_process_ended_is_still_made_once() {
    let (mut w, _) = side_by_side();
    w.skill_starts(&agent("a"));
    assert!(!w.agent_tries("b", &asks()));
    w.restart(ResumeCause::Restart);
    assert!(!w.agent_tries("b", &asks()), "the next life knows of it from the log");
    w.agent_skill("a", "Created task #1 milk");
    w.restart(ResumeCause::Restart);
    assert!(w.agent_tries("b", &asks()));
    assert!(w.last_shown_to("b").contains("[done already] Created task #1 milk"), "{}", w.last_shown_to("b"));
    assert_equal_effects_once(&w);
}

#[test]
fn effect_in_doubt_is_not_repeated_by_the_turn_that_continues() {
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
fn claim_of_an_effect_that_failed_is_corrected_beside_one_that_took_place() {
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
fn call_of_something_that_does_not_exist_is_told_to_the_model_and_never_shown() {
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
fn answer_that_says_itself_that_it_declined_gets_no_list_of_receipts() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Buy milk and fly");
    w.replies("", &[create("1", "milk")]);
    w.main_skill("Created task #1 milk");
    let words = "Created task #1 milk. I can't fly.";
    w.replies_with(&crate::message::ModelReply { declined: true, ..reply(words, &[]) });
    assert_eq!((w.answer(task).as_str(), outcome(&w, task)), (words, AnswerOutcome::Declined));
}

#[test]
fn second_repetition_of_what_the_paused_turn_did_is_answered_from_its_receipts() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Buy milk");
    w.replies("", &[create("1", "milk")]);
    w.main_skill("Created task #1 milk");
    w.happens(task, EventBody::DeadlinePassed { hard: true, letters: None });
    assert_eq!(w.ending(task).0, "paused");
    let task = w.say("continue");
    w.replies("", &[create("2", "milk")]);
    w.replies("", &[create("3", "milk")]);
    assert_eq!(w.answer(task), "Done before:\n- Created task #1 milk");
}

#[test]
fn claim_that_an_earlier_turns_receipt_shows_is_neither_denied_nor_done_again() {
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
        ] {
            let task = w.say(asks);
            w.replies(says, &[]);
            assert_eq!((w.answer(task).as_str(), outcome(&w, task)), (says, AnswerOutcome::Done), "{interface:?}");
            w.restart(ResumeCause::Restart);
        }
        // Another thing of the same kind is no echo of the first.
        for (asks, says, told) in [
            (
                "Can you add a task to buy eggs?",
                "I created the task \"Buy eggs\".",
                "If it asks for something to be done",
            ),
            ("Add a task to buy eggs", "I have created task #8.", "If it asks for something to be done"),
            ("Did you delete the task?", "Yes, I deleted the task.", "asks for no change"),
        ] {
            let task = w.say(asks);
            w.replies(says, &[]);
            if interface == MainInterface::Cmd {
                assert!(w.last_shown().contains(told), "{}", w.last_shown());
                w.replies(says, &[]);
            }
            assert_eq!(outcome(&w, task), AnswerOutcome::NoAction, "{says}");
        }
    }
}

#[test]
fn doubt_about_something_else_does_not_hide_that_an_effect_is_in_doubt() {
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
fn claim_of_an_effect_that_failed_is_corrected_beside_one_that_is_in_doubt_or_was_done_before() {
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
fn claim_of_what_was_never_asked_for_is_corrected_beside_a_true_one() {
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
fn result_that_the_model_made_up_is_pointed_out_to_it_and_never_stands_as_the_answer() {
    for mode in [Mode::MultiAgent, Mode::SingleLoop] {
        let mut w = World::in_mode(mode);
        let task = w.say("Create a task to buy stamps");
        let invented = "<result>Created task #8 Buy stamps, due today.</result>";
        w.replies(invented, &[]);
        assert!(w.last_shown().contains("You wrote a result yourself"), "{}", w.last_shown());
        w.replies(invented, &[]);
        let answer = w.answer(task);
        assert!(answer.contains("Nothing was changed") && !answer.contains('<'), "{answer}");
        assert_eq!(outcome(&w, task), AnswerOutcome::NoAction);
        let task = w.say("Where is the key?");
        w.replies("<result-x1 command=\"a\">Anna has it.</result-x1>", &[]);
        w.replies("Anna has it.", &[]);
        assert_eq!(w.answer(task), "Anna has it.");
    }
}

#[test]
fn silent_model_does_not_hide_what_may_have_happened_or_failed() {
    for (outcome_of, told) in [
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
        assert!(answer.starts_with("Done in this turn:\n- Created task #1 milk") && answer.contains(told), "{answer}");
        assert!(!answer.contains("Completed:"), "the receipts say it once: {answer}");
    }
}

#[test]
fn silent_orchestrator_does_not_hide_what_an_agent_may_have_done() {
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
fn claim_beside_an_agent_that_failed_before_it_did_anything_is_corrected() {
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
fn claim_beside_an_agent_that_failed_in_the_middle_is_held_against_its_receipts() {
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
fn claim_that_names_a_date_or_a_time_is_no_claim_of_an_earlier_turns_thing() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.say("Buy milk");
    w.replies("", &[create("1", "milk")]);
    w.main_skill("Created task #3 milk");
    w.replies("Done.", &[]);
    for (asks, says) in [
        ("Add the dentist on March 3", "I've created a task for the dentist on March 3."),
        ("Add the dentist at 3 pm", "I've created a task for the dentist at 3 pm."),
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
fn question_stops_to_be_one_when_the_user_adds_a_wish() {
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
        assert!(!w.turn().main.is_asked && !w.turn().main.asks_only, "both are a wish now");
        w.replies(says, &[]);
        let is_claim = says.starts_with('I');
        assert_eq!(outcome(&w, task) == AnswerOutcome::NoAction, is_claim, "{says}");
    }
}

#[test]
fn commands_behind_the_one_under_way_are_neither_told_as_in_doubt_nor_kept_from_running() {
    let mut w =
        World::with(Mode::SingleLoop, TurnLimits { main_interface: MainInterface::Cmd, ..TurnLimits::default() });
    w.skills = with_update();
    let task = w.say("Mark tasks 1, 2 and 3 as done");
    let update = |id: u64| format!("tasks.update --id {id} --status done");
    w.replies(&cmd(&[update(1), update(2), update(3)].join("\n")), &[]);
    w.skill_starts(&AgentId::orchestrator());
    w.happens(task, EventBody::DeadlinePassed { hard: true, letters: None });
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
fn receipts_and_doubts_of_agents_are_kept_once_however_often_their_turn_pauses() {
    let mut w = World::new();
    let mut task = w.say("Buy milk and eggs");
    w.replies("", &[dispatch_to_act("a", &[]), collect(&[])]);
    w.agent_replies("a", &cmd("tasks.create --title milk\ntasks.create --title eggs"), &[]);
    w.agent_skill("a", "Created task #1 milk");
    w.skill_ends(&agent("a"), 0, Outcome::unknown("No receipt.", json!({})));
    w.agent_replies("a", "Done.", &[]);
    for _ in 0..3 {
        w.happens(task, EventBody::DeadlinePassed { hard: true, letters: None });
        assert_eq!(w.ending(task).0, "paused");
        task = w.say("continue");
        let main = &w.turn().main;
        assert_eq!((main.known.len(), main.in_doubt.len()), (1, 1), "{main:?}");
        assert_eq!(w.turn().known_receipts().count(), 1);
    }
}

#[test]
fn story_or_translation_is_no_claim_of_the_models_own() {
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
fn receipts_of_earlier_turns_are_bounded_and_the_newest_stay() {
    let mut w = World::in_mode(Mode::SingleLoop);
    for n in 0..40 {
        w.say("Buy more");
        w.replies("", &[create("1", &n.to_string())]);
        w.main_skill(&format!("Created task #{n} x"));
        w.replies("Done.", &[]);
    }
    assert_eq!((w.conv.receipts.len(), w.conv.receipts.back().unwrap().line.as_str()), (32, "Created task #39 x"));
}
