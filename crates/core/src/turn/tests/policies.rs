//! Recorded verdicts of the kernel's policies: a replay does not depend on the present policies.

use proptest::prelude::*;
use serde_json::json;

use super::{
    script::use_skill,
    steps::{finish_all, limits, perform, step},
    world::{World, timeless},
};
use crate::{
    event::{CallVerdict, EventBody, JudgedCall, JudgedCalls, Mode, Refusal},
    ids::AgentId,
    message::ToolCall,
    turn::{Conversation, policy::BEFORE_SKILL},
};

fn search() -> ToolCall {
    use_skill("1", "tasks.search", &json!({"query": "x"}))
}

/// The state that the log gives if no verdicts had been recorded, as in logs of older versions.
fn refolded_without_verdicts(w: &World) -> Conversation {
    let mut conv = Conversation::new(w.conv.id, w.conv.user.clone());
    for event in &w.log {
        let mut event = event.clone();
        event.body = event.body.with_verdicts(None);
        conv.apply(&event);
    }
    conv
}

/// How many replies of the log have recorded verdicts.
fn judged_replies(w: &World) -> usize {
    w.log.iter().filter(|e| matches!(&e.body, EventBody::ModelReplied { judged: Some(_), .. })).count()
}

#[test]
fn policies_are_recorded_with_replies_that_have_calls() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.say("Look");
    w.replies("", &[search()]);
    w.main_skill("nothing");
    assert_eq!(judged_replies(&w), 1);
    w.replies("There is nothing.", &[]);
    assert_eq!(judged_replies(&w), 1, "a reply without calls has no verdicts");
}

#[test]
fn removed_loop_guard_does_not_change_the_replay_of_its_vetoes() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Look");
    for _ in 0..5 {
        w.replies("", &[search()]);
        w.main_skill("nothing");
    }
    w.replies("", &[search()]);
    let blocked = w.results();
    assert!(blocked[0].starts_with("[blocked]"), "{blocked:?}");
    // The guard of a later version tolerates more repetitions.
    let mut later = w.log.clone();
    let vetoed = later.pop().expect("the reply that the guard refused");
    let mut conv = Conversation::new(w.conv.id, w.conv.user.clone());
    later.iter().for_each(|event| conv.apply(event));
    let main = |conv: &Conversation| conv.turn(task).expect("the turn runs").main.clone();
    let mut tolerant = conv.clone();
    for turn in &mut tolerant.turns {
        turn.main.guard = crate::loop_guard::LoopGuard::default();
    }
    conv.apply(&vetoed);
    tolerant.apply(&vetoed);
    assert_eq!(main(&conv).messages, main(&tolerant).messages);
    assert_eq!(main(&conv).phase, main(&tolerant).phase);
    assert_eq!(main(&conv).undone, main(&tolerant).undone);
    tolerant.apply(&{
        let mut unjudged = vetoed;
        unjudged.body = unjudged.body.with_verdicts(None);
        unjudged
    });
    assert_eq!(main(&conv).phase, main(&tolerant).phase, "a repeated reply changes nothing");
}

#[test]
fn added_loop_guard_does_not_change_the_replay_of_calls_that_ran() {
    let mut w = World::in_mode(Mode::SingleLoop);
    // The log is written by a version without a loop guard.
    w.policies.truncate(3);
    let task = w.say("Look");
    for n in 0..8 {
        w.replies("", &[search()]);
        assert_eq!(w.skill_calls(&AgentId::orchestrator()).len(), 1, "call {n} runs");
        w.main_skill("nothing");
    }
    assert!(w.finals(task).is_empty());
    assert_eq!(timeless(&w.refolded()), timeless(&w.conv), "the present policies do not change the past");
    let judged_now = refolded_without_verdicts(&w);
    assert_ne!(judged_now.turn(task).map(|turn| turn.main.guard.vetoes()), Some(0), "the present guard would refuse");
}

#[test]
fn recorded_refusal_holds_although_no_present_policy_refuses() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Look");
    let reply = super::script::reply("", &[search()]);
    let agent = w.conv.main_agent(task).expect("the turn runs");
    let (round, calls) = (w.turn().main.round, agent.resolve(&reply, &w.skills));
    let verdict = CallVerdict::Refuse { why: Refusal::CallLimit, text: "[not run] A former limit.".to_owned() };
    let verdicts = vec![JudgedCall { call_id: calls[0].id.clone(), verdict }];
    let judged = JudgedCalls { verdicts, ..JudgedCalls::default() };
    let body = super::world::replied(round, &reply, calls).with_verdicts(Some(judged));
    w.record(task, AgentId::orchestrator(), body);
    assert!(w.log.iter().all(|e| !matches!(e.body, EventBody::SkillFinished { .. })));
    assert_eq!(w.ending(task).0, "paused", "the refused call reached a limit");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    /// What is recorded live is what the fold of an older log judges.
    #[test]
    fn recorded_verdicts_equal_the_verdicts_of_the_fold_for_every_history(
        mode in prop_oneof![3 => Just(Mode::MultiAgent), 1 => Just(Mode::SingleLoop), 1 => Just(Mode::Direct)],
        limits in limits(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut w = World::with(mode, limits);
        w.say("Do it");
        for step in steps {
            perform(&mut w, step);
            prop_assert_eq!(refolded_without_verdicts(&w), w.refolded());
        }
        finish_all(&mut w);
        prop_assert_eq!(refolded_without_verdicts(&w), w.refolded());
    }

    /// The log is written with other policies than the replay has. After every step, [`World::check`] compares the whole state
    /// with a replay of the log. The limit on calls stays, because a turn without it would exceed its budget.
    #[test]
    fn replay_equals_state_whatever_policies_judged_live(
        mode in prop_oneof![3 => Just(Mode::MultiAgent), 1 => Just(Mode::SingleLoop), 1 => Just(Mode::Direct)],
        limits in limits(),
        has in prop::array::uniform3(any::<bool>()),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut w = World::with(mode, limits);
        let [has_receipts, has_doubts, has_guard] = has;
        let kept = BEFORE_SKILL.into_iter().zip([has_receipts, true, has_doubts, has_guard]);
        w.policies = kept.filter(|(_, is_kept)| *is_kept).map(|(policy, _)| policy).collect();
        w.say("Do it");
        for step in steps {
            perform(&mut w, step);
        }
        finish_all(&mut w);
        prop_assert_eq!(timeless(&w.conv), timeless(&w.refolded()));
    }
}
