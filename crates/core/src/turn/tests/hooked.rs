//! Calls that wait for hooks outside the kernel.

use serde_json::{Value, json};

use super::{
    script::{agent, cmd, dispatch_to_act, reply, use_skill},
    world::{World, replied},
};
use crate::{
    event::{AskedHooks, EventBody, HookAnswer, HookDecision, Mode, ResumeCause},
    ids::{AgentId, IntentId, TaskId},
    limits::{MainInterface, TurnLimits},
    message::ModelReply,
    turn::{Directive, DirectiveId, TaskEffects},
};

pub(super) fn orchestrator() -> AgentId {
    AgentId::orchestrator()
}

pub(super) fn create(title: &str) -> crate::message::ToolCall {
    use_skill("1", "tasks.create", &json!({"title": title}))
}

/// The main agent's model replies, and each of its calls waits for these hooks.
pub(super) fn replies_asking(w: &mut World, model_reply: &ModelReply, hooks: &[&str]) -> TaskId {
    let task = w.current().expect("a turn is under way");
    let agent = w.conv.main_agent(task).expect("a turn is under way");
    let (round, calls) = (w.turn().main.round, agent.resolve(model_reply, &w.skills));
    let mut judged = agent.judge(&calls, w.now).expect("there are calls");
    let hooks: Vec<String> = hooks.iter().map(|hook| (*hook).to_owned()).collect();
    let asked = |id: &String| AskedHooks { call_id: id.clone(), hooks: hooks.clone() };
    judged.hooks = calls.iter().map(|call| asked(&call.id)).collect();
    w.record(task, orchestrator(), replied(round, model_reply, calls).with_verdicts(Some(judged)));
    task
}

/// The questions that have no answer, as (hook, intent, title).
fn questions(w: &World) -> Vec<(String, IntentId, Value)> {
    let question = |directive| match directive {
        Directive::RunHook { hook, skill, .. } => Some((hook, skill.intent, skill.arguments["title"].clone())),
        _ => None,
    };
    w.conv.outstanding(w.now).into_iter().filter_map(question).collect()
}

/// The next hook answers.
fn decides(w: &mut World, verdict: HookAnswer) {
    let (hook, intent, _) = questions(w).into_iter().next().expect("a hook is asked");
    let task = w.current().expect("a turn is under way");
    w.record(task, orchestrator(), decided(&hook, intent, verdict));
}

pub(super) fn decided(hook: &str, intent: IntentId, verdict: HookAnswer) -> EventBody {
    EventBody::Decided {
        component: format!("hook {hook}"),
        decision: "decide".to_owned(),
        reasoning: String::new(),
        alternatives: Vec::new(),
        hook: Some(HookDecision { hook: hook.to_owned(), intent, verdict }),
    }
}

fn refusal() -> HookAnswer {
    HookAnswer::Refuse { text: "[refused] The rule \"hours\" does not allow tasks.create here: Not now.".to_owned() }
}

#[test]
fn call_runs_once_all_its_hooks_have_decided_in_their_order() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.say("Create it");
    replies_asking(&mut w, &reply("", &[create("x")]), &["hours", "names"]);
    assert!(w.skill_calls(&orchestrator()).is_empty());
    assert_eq!(questions(&w).iter().map(|q| q.0.as_str()).collect::<Vec<_>>(), ["hours"]);
    decides(&mut w, HookAnswer::Continue);
    assert_eq!(questions(&w).iter().map(|q| q.0.as_str()).collect::<Vec<_>>(), ["names"]);
    assert!(w.skill_calls(&orchestrator()).is_empty());
    decides(&mut w, HookAnswer::Continue);
    assert_eq!(w.skill_calls(&orchestrator()), [("tasks.create".to_owned(), json!({"title": "x"}))]);
    w.main_skill("Created task #1 x");
    w.replies("Done.", &[]);
    assert_eq!(w.conv.receipts.len(), 1);
}

#[test]
fn call_refused_by_a_hook_is_answered_and_reported_and_does_not_count() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.say("Create both");
    let calls = [create("x"), use_skill("2", "tasks.create", &json!({"title": "y"}))];
    let task = replies_asking(&mut w, &reply("", &calls), &["hours"]);
    assert_eq!(w.turn().main.calls_used, 2);
    decides(&mut w, refusal());
    assert_eq!(w.turn().main.calls_used, 1);
    decides(&mut w, HookAnswer::Continue);
    assert_eq!(w.skill_calls(&orchestrator()), [("tasks.create".to_owned(), json!({"title": "y"}))]);
    w.main_skill("Created task #1 y");
    assert!(w.results()[0].starts_with("[refused] The rule \"hours\""), "{:?}", w.results());
    for _ in 0..2 {
        if w.current() == Some(task) {
            w.replies("", &[]);
        }
    }
    let answer = w.answer(task);
    assert!(answer.contains("The rule \"hours\" does not allow tasks.create"), "{answer}");
}

#[test]
fn commands_behind_one_that_a_hook_refused_are_not_run() {
    let limits = TurnLimits { main_interface: MainInterface::Cmd, ..TurnLimits::default() };
    let mut w = World::with(Mode::SingleLoop, limits);
    w.say("Create both");
    let text = cmd("tasks.create --title x\ntasks.create --title y");
    replies_asking(&mut w, &reply(&text, &[]), &["hours"]);
    assert_eq!(questions(&w).len(), 1, "commands run one after the other, and so do the questions");
    decides(&mut w, refusal());
    assert!(w.results()[1].starts_with("[not run]"), "{:?}", w.results());
    assert_eq!(w.turn().main.calls_used, 0);
}

#[test]
fn command_that_a_hook_changed_into_a_later_one_leaves_the_later_one_to_run() {
    let limits = TurnLimits { main_interface: MainInterface::Cmd, ..TurnLimits::default() };
    let mut w = World::with(Mode::SingleLoop, limits);
    w.say("Create both");
    let text = cmd("tasks.create --title x\ntasks.create --title y");
    let task = replies_asking(&mut w, &reply(&text, &[]), &["names"]);
    let (_, intent, _) = questions(&w).remove(0);
    let agent = w.conv.main_agent(task).expect("a turn is under way");
    let planned = crate::event::PlannedSkill {
        intent,
        skill: "tasks.create".to_owned(),
        arguments: json!({"title": "y"}),
        effect: crate::skill::Effect::Once,
        external: false,
        timeout_ms: 1_000,
        origin: Vec::new(),
    };
    let text = agent.refusal_of_replaced(&planned).expect("the later command has these arguments");
    decides(&mut w, HookAnswer::Refuse { text });
    decides(&mut w, HookAnswer::Continue);
    assert_eq!(w.skill_calls(&orchestrator()), [("tasks.create".to_owned(), json!({"title": "y"}))]);
}

#[test]
fn replaced_arguments_run_and_are_those_of_the_receipt() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.say("Create it");
    let task = replies_asking(&mut w, &reply("", &[create("x")]), &["names"]);
    decides(&mut w, HookAnswer::Replace { arguments: json!({"title": "z"}) });
    assert_eq!(w.skill_calls(&orchestrator()), [("tasks.create".to_owned(), json!({"title": "z"}))]);
    w.main_skill("Created task #1 z");
    let shown = w.results()[0].clone();
    assert!(shown.contains("[changed] The rule \"names\" changed the arguments to {\"title\":\"z\"}."), "{shown}");
    let mut effects = TaskEffects::of(task);
    w.log.iter().for_each(|event| effects.take(event));
    let receipts = effects.retry(w.now).receipts;
    assert!(receipts[0].is_of("tasks.create", &json!({"title": "z"})), "a retry knows the effect: {receipts:?}");
    w.replies("", &[create("z")]);
    assert!(w.results()[0].starts_with("[done already]"), "{:?}", w.results());
    let planned = crate::event::PlannedSkill {
        intent: IntentId::for_call(task, &orchestrator(), "other"),
        skill: "tasks.create".to_owned(),
        arguments: json!({"title": "z"}),
        effect: crate::skill::Effect::Once,
        external: false,
        timeout_ms: 1_000,
        origin: Vec::new(),
    };
    let agent = w.conv.main_agent(task).expect("a turn is under way");
    let refused = agent.refusal_of_replaced(&planned).expect("replaced arguments repeat no effect");
    assert!(refused.starts_with("[done already]"), "{refused}");
}

#[test]
fn question_has_the_same_id_after_a_restart_and_late_verdicts_change_nothing() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.say("Create it");
    let task = replies_asking(&mut w, &reply("", &[create("x")]), &["hours"]);
    let ids = |w: &World| w.conv.outstanding(w.now).iter().map(Directive::id).collect::<Vec<_>>();
    let before = ids(&w);
    assert!(matches!(before[..], [DirectiveId::Hook(..)]), "{before:?}");
    w.restart(ResumeCause::Restart);
    assert_eq!(ids(&w), before);
    let (hook, intent, _) = questions(&w).remove(0);
    decides(&mut w, HookAnswer::Continue);
    w.record(task, orchestrator(), decided(&hook, intent, refusal()));
    w.record(task, orchestrator(), decided("another", intent, refusal()));
    assert_eq!(w.skill_calls(&orchestrator()).len(), 1, "the first verdict holds");
}

#[test]
fn call_that_waits_for_a_hook_has_certainly_not_begun() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.say("Create it");
    let task = replies_asking(&mut w, &reply("", &[create("x")]), &["hours"]);
    assert!(w.turn().main.doubts().is_empty());
    assert!(!w.conv.is_idle());
    w.cancel(task);
    assert_eq!(w.ending(task).0, "cancelled");
}

#[test]
fn hook_decides_about_the_call_of_a_sub_agent() {
    let mut w = World::new();
    w.say("Create it");
    w.replies("", &[dispatch_to_act("a", &[])]);
    let turn = w.sub("a");
    let model_reply = reply(&cmd("tasks.create --title x"), &[]);
    let (round, calls) = (turn.run.round, turn.view().resolve(&model_reply, &w.skills));
    let mut judged = turn.view().judge(&calls, w.now).expect("there is a call");
    judged.hooks = vec![AskedHooks { call_id: calls[0].id.clone(), hooks: vec!["hours".to_owned()] }];
    w.agent_records(&agent("a"), replied(round, &model_reply, calls).with_verdicts(Some(judged)));
    let outstanding = w.sub("a").outstanding();
    let [Directive::RunHook { hook, skill, .. }] = outstanding.as_slice() else { panic!("{outstanding:?}") };
    w.agent_records(&agent("a"), decided(hook, skill.intent, refusal()));
    assert!(w.last_shown_to("a").contains("[refused] The rule"), "{}", w.last_shown_to("a"));
}
