//! Calls that wait for a person.

use serde_json::json;

use super::{
    hooked::{create, decided, orchestrator, replies_asking},
    script::{agent, cmd, dispatch_to_act, reply, use_skill},
    world::{World, replied},
};
use crate::{
    approval::{APPROVAL, ApprovalMode, ApprovalVerdict},
    event::{AskedHooks, EventBody, HookAnswer, Inbound, Mode, PlannedSkill, ReportStatus, ResumeCause},
    ids::{IntentId, TaskId},
    limits::Deadlines,
    schedule::SCHEDULE,
    skill::Effect,
    turn::{Approval, ApprovalStep, Directive},
};

const DAY_MS: u64 = 24 * 3_600_000;

/// Does what the Engine does about the calls of the main agent that wait for a person.
fn engine_asks(w: &mut World, mode: ApprovalMode) {
    for directive in w.conv.outstanding(w.now) {
        let Directive::RunHook { task, agent, skill, .. } = directive else { continue };
        match w.conv.approval_step(task, &skill, mode, w.now.later_ms(DAY_MS)) {
            Some(ApprovalStep::Request(body)) => w.record(task, agent, body),
            Some(ApprovalStep::Answered(verdict)) => w.record(task, agent, decided(APPROVAL, skill.intent, verdict)),
            Some(ApprovalStep::Waits) | None => {}
        }
    }
}

/// A turn whose calls create these tasks and wait for a person.
fn waiting(w: &mut World, titles: &[&str], mode: ApprovalMode) -> TaskId {
    let task = w.say("Create it");
    let call = |(n, title): (usize, &&str)| use_skill(&n.to_string(), "tasks.create", &json!({"title": *title}));
    let calls: Vec<_> = titles.iter().enumerate().map(call).collect();
    w.on(task);
    replies_asking(w, &reply("", &calls), &[APPROVAL]);
    engine_asks(w, mode);
    task
}

fn open(w: &World) -> Vec<Approval> {
    w.conv.open_approvals().map(|(_, approval)| approval.clone()).collect()
}

fn person_decides(w: &mut World, task: TaskId, approval: &Approval, verdict: ApprovalVerdict) {
    w.record(task, approval.agent.clone(), approval.decided(verdict, "ann", None));
}

/// Another call that creates a task.
fn planned(task: TaskId) -> PlannedSkill {
    PlannedSkill {
        intent: IntentId::for_call(task, &orchestrator(), "another"),
        skill: "tasks.create".to_owned(),
        arguments: json!({"title": "z"}),
        effect: Effect::Once,
        external: false,
        timeout_ms: 1_000,
        origin: Vec::new(),
    }
}

fn verdicts(w: &World) -> Vec<&'static str> {
    let verdict = |body: &EventBody| {
        let EventBody::ApprovalDecided { verdict, .. } = body else { return None };
        Some(verdict.state())
    };
    w.log.iter().filter_map(|event| verdict(&event.body)).collect()
}

#[test]
fn approval_wait_has_no_deadlines_and_a_plain_yes_continues_it() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = waiting(&mut w, &["x"], ApprovalMode::Ask);
    assert!(w.turn().awaits_approval() && w.skill_calls(&orchestrator()).is_empty());
    assert_eq!(w.deadline(), None, "the deadlines of a turn that awaits approval stand still");
    let meanwhile = w.add("Hello");
    assert!(w.conv.turn(meanwhile).is_some(), "a message does not wait for the person");
    w.on(meanwhile).replies("Hi.", &[]);
    w.wait_ms(3_600_000);
    for _ in 0..10 {
        w.restart(ResumeCause::Restart);
    }
    let yes = w.say("Yes.");
    assert!(w.answer(yes).starts_with("Approved: tasks.create"), "{}", w.answer(yes));
    assert_eq!((verdicts(&w), open(&w).len()), (vec!["approved"], 0));
    w.on(task);
    engine_asks(&mut w, ApprovalMode::Ask);
    assert_eq!(w.skill_calls(&orchestrator()), [("tasks.create".to_owned(), json!({"title": "x"}))]);
    let next = w.conv.next_deadline(&Deadlines::default());
    assert!(next.is_some_and(|(at, of, hard)| of == task && !hard && at > w.now), "{next:?}");
    w.main_skill("Created task #1 x");
    w.replies("Done.", &[]);
    assert_eq!(w.ending(task).0, "answered");
}

#[test]
fn approval_word_decides_only_one_request_that_came_before_it() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let early = w.post(World::inbound("yes"));
    let task = waiting(&mut w, &["x", "y"], ApprovalMode::Ask);
    assert_eq!(open(&w).iter().map(|approval| approval.number).collect::<Vec<_>>(), [1, 2]);
    w.deliver(early);
    let ambiguous = w.say("yes");
    let longer = w.say("yes, but tomorrow");
    assert_eq!((verdicts(&w).len(), open(&w).len()), (0, 2), "none of these decides");
    assert!(w.conv.inbox.iter().any(|pending| pending.task == ambiguous), "it waits for the turn of another message");
    assert!([early, ambiguous, longer].into_iter().all(|other| w.conv.is_open(other)));
    let first = open(&w).remove(0);
    person_decides(&mut w, task, &first, ApprovalVerdict::once());
    assert_eq!(open(&w).len(), 1, "the ambiguous word does not decide later what it did not decide at first");
    let no = w.say("No!");
    assert_eq!(w.answer(no), "Not approved: tasks.create. I will not do it.");
    assert_eq!(verdicts(&w), ["approved", "denied"]);
}

#[test]
fn approval_is_not_decided_by_a_message_that_the_kernel_sends() {
    let mut w = World::in_mode(Mode::SingleLoop);
    waiting(&mut w, &["x"], ApprovalMode::Ask);
    for message in [
        Inbound { source: SCHEDULE.to_owned(), ..World::inbound("yes") },
        Inbound { origins: vec!["web.fetch".to_owned()], ..World::inbound("yes") },
    ] {
        w.receive(message);
        assert_eq!((verdicts(&w).len(), open(&w).len()), (0, 1), "no person has said it");
    }
    w.say("yes");
    assert_eq!(verdicts(&w), ["approved"]);
}

#[test]
fn approval_for_the_conversation_holds_for_its_skill_unless_the_mode_is_always() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = waiting(&mut w, &["x", "y"], ApprovalMode::Ask);
    let first = open(&w).remove(0);
    person_decides(&mut w, task, &first, ApprovalVerdict::Approve { for_conversation: true, arguments: None });
    assert_eq!((verdicts(&w), open(&w).len()), (vec!["approved", "approved"], 0), "the other call waits no more");
    let another = planned(task);
    let step = |mode| w.conv.approval_step(task, &another, mode, w.now);
    assert_eq!(step(ApprovalMode::Ask), Some(ApprovalStep::Answered(HookAnswer::Continue)));
    assert_eq!(step(ApprovalMode::AskFirstTime), Some(ApprovalStep::Answered(HookAnswer::Continue)));
    assert!(matches!(step(ApprovalMode::Always), Some(ApprovalStep::Request(_))));
    let other = PlannedSkill { skill: "tasks.delete".to_owned(), ..another.clone() };
    assert!(matches!(w.conv.approval_step(task, &other, ApprovalMode::Ask, w.now), Some(ApprovalStep::Request(_))));
}

#[test]
fn approval_of_one_call_satisfies_only_the_mode_ask_first_time() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = waiting(&mut w, &["x"], ApprovalMode::AskFirstTime);
    let first = open(&w).remove(0);
    person_decides(&mut w, task, &first, ApprovalVerdict::once());
    person_decides(&mut w, task, &first, ApprovalVerdict::Deny { reason: String::new() });
    assert_eq!(w.conv.approval_answer(task, first.intent), Some(HookAnswer::Continue), "the first verdict holds");
    let another = planned(task);
    let step = |mode| w.conv.approval_step(task, &another, mode, w.now);
    assert_eq!(step(ApprovalMode::AskFirstTime), Some(ApprovalStep::Answered(HookAnswer::Continue)));
    assert!(matches!(step(ApprovalMode::Ask), Some(ApprovalStep::Request(_))));
}

#[test]
fn approval_expires_and_is_withdrawn_when_its_turn_is_cancelled() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = waiting(&mut w, &["x"], ApprovalMode::Always);
    let request = open(&w).remove(0);
    assert_eq!(w.conv.next_approval_expiry(), Some(request.expires_at));
    assert_eq!(w.conv.expired_approval(w.now), None);
    w.wait_ms(i64::try_from(DAY_MS).expect("a day"));
    let expired = w.conv.expired_approval(w.now).expect("a day is over");
    w.record(expired.task, expired.agent, expired.body);
    assert!(matches!(w.conv.approval_answer(task, request.intent), Some(HookAnswer::Refuse { .. })));
    w.cancel(task);
    assert_eq!((w.ending(task).0, verdicts(&w)), ("cancelled", vec!["expired"]));

    let task = waiting(&mut w, &["y"], ApprovalMode::Always);
    w.cancel(task);
    assert_eq!((w.ending(task).0, verdicts(&w)), ("cancelled", vec!["expired", "withdrawn"]));
}

#[test]
fn approval_of_a_sub_agents_call_belongs_to_the_turn_and_ends_with_the_agent() {
    let mut w = World::new();
    let task = w.say("Create it");
    w.replies("", &[dispatch_to_act("a", &[])]);
    let turn = w.sub("a");
    let model_reply = reply(&cmd("tasks.create --title x"), &[]);
    let (round, calls) = (turn.run.round, turn.view().resolve(&model_reply, &w.skills));
    let mut judged = turn.view().judge(&calls, w.now).expect("there is a call");
    judged.hooks = vec![AskedHooks { call_id: calls[0].id.clone(), hooks: vec![APPROVAL.to_owned()] }];
    w.agent_records(&agent("a"), replied(round, &model_reply, calls).with_verdicts(Some(judged)));
    let outstanding = w.sub("a").outstanding();
    let [Directive::RunHook { skill, .. }] = outstanding.as_slice() else { panic!("{outstanding:?}") };
    let step = w.conv.approval_step(task, skill, ApprovalMode::Ask, w.now.later_ms(DAY_MS));
    let Some(ApprovalStep::Request(body)) = step else { panic!("{step:?}") };
    w.record(task, agent("a"), body);
    assert_eq!((w.deadline(), open(&w).len()), (None, 1));
    w.agent_ends("a", ReportStatus::Crashed);
    assert_eq!(verdicts(&w), ["withdrawn"]);
    assert!(w.deadline().is_some(), "the turn waits no more");
}

#[test]
fn edited_arguments_run_and_the_model_reads_who_changed_them() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = waiting(&mut w, &["x"], ApprovalMode::Ask);
    let request = open(&w).remove(0);
    let arguments = Some(json!({"title": "z"}));
    person_decides(&mut w, task, &request, ApprovalVerdict::Approve { for_conversation: false, arguments });
    engine_asks(&mut w, ApprovalMode::Ask);
    assert_eq!(w.skill_calls(&orchestrator()), [("tasks.create".to_owned(), json!({"title": "z"}))]);
    w.main_skill("Created task #1 z");
    let shown = w.results()[0].clone();
    assert!(shown.contains("[changed] The person who approved this changed the arguments"), "{shown}");
}

#[test]
fn call_without_a_request_runs_beside_one_that_waits() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.say("Create both");
    let calls = [create("x"), use_skill("2", "tasks.create", &json!({"title": "y"}))];
    let task = w.current().expect("a turn is under way");
    let view = w.conv.main_agent(task).expect("a turn is under way");
    let model_reply = reply("", &calls);
    let (round, resolved) = (w.turn().main.round, view.resolve(&model_reply, &w.skills));
    let mut judged = view.judge(&resolved, w.now).expect("there are calls");
    judged.hooks = vec![AskedHooks { call_id: "1".to_owned(), hooks: vec![APPROVAL.to_owned()] }];
    w.record(task, orchestrator(), replied(round, &model_reply, resolved).with_verdicts(Some(judged)));
    engine_asks(&mut w, ApprovalMode::Ask);
    assert_eq!((open(&w).len(), w.skill_calls(&orchestrator()).len()), (1, 1));
    w.main_skill("Created task #1 y");
    assert_eq!(open(&w).len(), 1, "the turn still waits");
}
