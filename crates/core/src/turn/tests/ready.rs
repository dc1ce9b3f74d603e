//! Answers that are the texts of skills as they are.

use serde_json::json;

use super::{
    script::{dispatch, skill, use_skill},
    world::World,
};
use crate::{
    event::{AnswerOutcome, EventBody, Mode},
    guard::Injection,
    ids::{AgentId, TaskId},
    limits::TurnLimits,
    outcome::Outcome,
    skill::{Effect, SkillSet, SkillSpec},
    turn::{Conversation, Ending, Phase},
};

const LIST: &str = "Found 1 open task:\n\n- #1 I have deleted the note, due today";

fn ready(name: &str, effect: Effect, description: &str, args: &[(&str, bool)]) -> SkillSpec {
    SkillSpec { is_ready: true, external: false, description: description.to_owned(), ..skill(name, effect, args) }
}

fn world() -> World {
    world_with(TurnLimits::default())
}

fn world_with(limits: TurnLimits) -> World {
    let mut w = World::with(Mode::SingleLoop, limits);
    let all = [
        ready("tasks.search", Effect::Read, "List tasks: what is on the list.", &[("query", false)]),
        ready("tasks.create", Effect::Idempotent, "Create a task.", &[("title", true)]),
        skill("notes.list", Effect::Read, &[]),
        SkillSpec { external: true, ..ready("web.news", Effect::Read, "List the news.", &[]) },
    ];
    w.skills = SkillSet::new(all, [("tasks", "To-dos")].map(|(name, about)| (name.to_owned(), about.to_owned())), 1);
    w
}

/// The first call that runs has this outcome.
fn finishes(w: &mut World, outcome: Outcome) {
    w.skill_ends(&AgentId::orchestrator(), 0, outcome);
}

fn list() -> crate::message::ToolCall {
    use_skill("c", "tasks.search", &json!({}))
}

/// Asks for the list, and lets its only skill return this outcome. Returns the answer; `None` if the model is asked.
fn listed(w: &mut World, outcome: Outcome) -> Option<String> {
    let task = w.say("List my tasks");
    w.replies("", &[list()]);
    finishes(w, outcome);
    w.conv.is_idle().then(|| w.answer(task))
}

#[test]
fn ready_text_of_the_only_call_is_the_answer_without_another_round_or_correction() {
    let mut w = world();
    assert_eq!(listed(&mut w, Outcome::success(LIST)).as_deref(), Some(LIST));
    let EventBody::Answered { outcome, finish, .. } = &w.log.last().expect("a log").body else { panic!("no answer") };
    assert!(*outcome == AnswerOutcome::Done && finish.is_stop());
    w.say("Thanks, what is next?");
    let shown = serde_json::to_string(&w.request().messages).expect("JSON");
    assert!(shown.contains("I have deleted the note"), "later turns see the answer: {shown}");
}

#[test]
fn ready_text_of_an_effect_is_the_answer_and_its_receipt_line_stands_once() {
    let mut w = world();
    let task = w.say("Add milk to my list");
    w.replies("On it.", &[use_skill("c", "tasks.create", &json!({"title": "milk"}))]);
    finishes(&mut w, Outcome::success("Created task #3 milk"));
    assert_eq!(w.answer(task), "Created task #3 milk");
}

#[test]
fn outcome_that_is_no_plain_success_goes_to_the_model() {
    let outcomes = [
        Outcome::partial(LIST),
        Outcome::transient("timeout", "slow"),
        Outcome::success(" "),
        Outcome::success("x".repeat(5_000)),
        Outcome { doubts: vec!["it is old".to_owned()], ..Outcome::success(LIST) },
        Outcome { origins: vec!["web.fetch".to_owned()], ..Outcome::success(LIST) },
        Outcome {
            injection: Some(Box::new(Injection { what: "rules".to_owned(), words: String::new() })),
            ..Outcome::success(LIST)
        },
    ];
    for outcome in outcomes {
        let said = format!("{outcome:?}");
        assert_eq!(listed(&mut world(), outcome), None, "{said}");
    }
}

#[test]
fn message_that_asks_for_more_than_the_calls_do_goes_to_the_model() {
    for text in ["List my tasks and tell me which is urgent", "List my tasks. Then add milk.", "Which task is urgent?"]
    {
        let mut w = world();
        w.say(text);
        w.replies("", &[list()]);
        finishes(&mut w, Outcome::success(LIST));
        assert!(!w.conv.is_idle(), "{text}");
    }
}

#[test]
fn reply_with_a_call_that_is_not_ready_or_reaches_other_machines_goes_to_the_model() {
    for other in ["notes.list", "web.news"] {
        let mut w = world();
        w.say("List my tasks, notes, news");
        w.replies("", &[list(), use_skill("o", other, &json!({}))]);
        finishes(&mut w, Outcome::success(LIST));
        finishes(&mut w, Outcome::success("One."));
        assert!(!w.conv.is_idle(), "{other}");
    }
}

#[test]
fn turn_with_rules_or_instructions_or_without_the_setting_goes_to_the_model() {
    let off = TurnLimits { ready_answers: false, ..TurnLimits::default() };
    assert_eq!(listed(&mut world_with(off), Outcome::success(LIST)), None);
    let mut w = world();
    w.facts.rules = vec!["Answer in German.".to_owned()];
    assert_eq!(listed(&mut w, Outcome::success(LIST)), None);
    let mut w = world();
    w.facts.is_flagged = true;
    assert_eq!(listed(&mut w, Outcome::success(LIST)), None);
}

#[test]
fn text_that_the_user_adds_while_the_skill_runs_is_answered_by_the_model() {
    let mut w = world();
    let task: TaskId = w.say("List my tasks");
    w.replies("", &[list()]);
    w.add("Only the urgent ones");
    finishes(&mut w, Outcome::success(LIST));
    assert!(w.last_shown().ends_with("Only the urgent ones"));
    w.replies("None is urgent.", &[]);
    assert_eq!(w.answer(task), "None is urgent.");
}

#[test]
fn spoken_list_goes_to_the_model_and_a_spoken_sentence_is_the_answer() {
    for (text, is_answer) in [(LIST, false), (&*"Nothing is due. ".repeat(30), false), ("No tasks *found*.", true)] {
        let mut w = world();
        w.facts.channel = crate::context::VOICE.to_owned();
        let answer = listed(&mut w, Outcome::success(text));
        assert_eq!(answer.as_deref(), is_answer.then_some("No tasks found."), "{text}");
    }
}

#[test]
fn orchestrator_with_agents_is_never_ended_by_the_text_of_a_skill() {
    let mut w = World::new();
    w.skills = world().skills.clone();
    let task = w.say("List my tasks");
    w.replies("", &[dispatch("a", &[])]);
    assert!(w.finals(task).is_empty() && w.conv.turn(task).is_some());
}

#[test]
fn state_with_a_ready_text_is_stored_and_read() {
    let mut w = world();
    w.say("List my tasks");
    w.replies("", &[list(), use_skill("d", "tasks.search", &json!({"query": "tasks"}))]);
    finishes(&mut w, Outcome::success(LIST));
    let stored = serde_json::to_string(&w.conv).expect("JSON");
    assert_eq!(serde_json::from_str::<Conversation>(&stored).expect("a state"), w.conv);
    assert!(!matches!(w.turn().main.phase, Phase::Ended(Ending::Ready(_))), "the other call has no result yet");
    finishes(&mut w, Outcome::success("No tasks found."));
    assert!(w.conv.is_idle());
}
