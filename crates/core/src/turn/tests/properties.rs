//! Property tests with arbitrary interleavings of replies, outcomes, crashes, cancellations, repetitions and restarts:
//! [`World::check`] holds after every step, nothing panics, and in the end every message has exactly one final event.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;

use super::{
    script::{skills, use_skill},
    steps::{finish_all, limits, main_thinks, perform, step, step_with_delays},
    world::{World, timeless},
};
use crate::{
    event::{Action, EventBody, Mode},
    ids::{AgentId, TaskId},
    message::ToolCall,
    outcome::Status,
    skill::Effect,
    turn::{Conversation, Lane},
};

/// Asserts that each started agent reported once, before the final event of its turn.
fn assert_reported(w: &World) {
    let mut open = BTreeMap::new();
    for event in &w.log {
        let key = (event.task, event.agent.clone());
        match &event.body {
            EventBody::AgentStarted { .. } => assert!(open.insert(key, 0).is_none(), "started twice: {event:?}"),
            EventBody::AgentReported { .. } => *open.entry(key).or_insert(0) += 1,
            EventBody::Answered { .. } | EventBody::Failed { .. } | EventBody::Cancelled { .. } => {
                assert!(open.iter().filter(|((task, _), _)| *task == event.task).all(|(_, n)| *n == 1), "{event:?}");
            }
            EventBody::Received(_)
            | EventBody::Joined { .. }
            | EventBody::TurnStarted { .. }
            | EventBody::RoundBegan { .. }
            | EventBody::RoundNotBegun { .. }
            | EventBody::ModelReplied { .. }
            | EventBody::ModelFailed { .. }
            | EventBody::InterfaceChanged { .. }
            | EventBody::LoopDetected { .. }
            | EventBody::SkillStarted { .. }
            | EventBody::SkillFinished { .. }
            | EventBody::AgentSteered { .. }
            | EventBody::SteeringTaken { .. }
            | EventBody::AgentStopRequested { .. }
            | EventBody::CancelRequested { .. }
            | EventBody::Decided { .. }
            | EventBody::ApprovalRequested { .. }
            | EventBody::ApprovalDecided { .. }
            | EventBody::ResultsGiven
            | EventBody::Resumed { .. }
            | EventBody::Suspended { .. }
            | EventBody::Continued { .. }
            | EventBody::Reprioritised { .. }
            | EventBody::DeadlinePassed { .. }
            | EventBody::Deferred { .. }
            | EventBody::Retried { .. }
            | EventBody::Ordered { .. }
            | EventBody::DeadLetterDue { .. }
            | EventBody::DeadLetterMoved { .. }
            | EventBody::Copied(_)
            | EventBody::Compacted(_) => {}
        }
    }
    let accepted = accepted_dispatches(w);
    for (task, agent) in accepted {
        assert_eq!(open.get(&(task, agent.clone())), Some(&1), "{agent} was accepted and reported once");
    }
}

fn accepted_dispatches(w: &World) -> Vec<(TaskId, AgentId)> {
    let mut accepted = Vec::new();
    let mut conv = Conversation::new(w.conv.id, w.conv.user.clone());
    for event in &w.log {
        conv.apply(event);
        for (turn, node) in conv.turns.iter().flat_map(|t| t.agents.plan.nodes().iter().map(move |n| (t, n))) {
            // The agents of a continued turn belong to the turn before.
            let is_new =
                turn.agents.plan.before() <= turn.agents.plan.nodes().iter().position(|n| n == node).unwrap_or(0);
            if is_new && !accepted.contains(&(turn.task, node.spec.agent.clone())) {
                accepted.push((turn.task, node.spec.agent.clone()));
            }
        }
    }
    accepted
}

/// Asserts from the log alone that the skill runs of each turn are within its budget.
fn assert_budgets(w: &World) {
    let mut used = BTreeMap::<TaskId, u32>::new();
    for event in &w.log {
        if let EventBody::SkillFinished { .. } = event.body {
            *used.entry(event.task).or_default() += 1;
        }
    }
    let most = match w.mode {
        Mode::MultiAgent => w.limits.skill_calls_max,
        Mode::SingleLoop | Mode::Direct => w.limits.single_loop_calls_max,
    };
    assert!(used.values().all(|n| *n <= most), "{used:?} of {most}");
}

/// Asserts from the log alone that at most one of several equal effects in a turn was made or may have been made, whichever
/// agent requested it.
pub(super) fn assert_equal_effects_once(w: &World) {
    let (mut planned, mut made) = (BTreeMap::new(), BTreeMap::<_, BTreeSet<_>>::new());
    for event in &w.log {
        match &event.body {
            EventBody::ModelReplied { calls, .. } => {
                for call in calls {
                    if let Action::Skill(skill) = &call.action
                        && skill.effect != Effect::Read
                    {
                        planned.insert(skill.intent, (event.task, skill.skill.clone(), skill.arguments.to_string()));
                    }
                }
            }
            EventBody::SkillStarted { intent, .. } => {
                let Some(effect) = planned.get(intent) else { continue };
                made.entry(effect.clone()).or_default().insert(*intent);
            }
            EventBody::SkillFinished { intent, outcome, .. } => {
                let Some(effect) = planned.get(intent) else { continue };
                let intents = made.entry(effect.clone()).or_default();
                // A partial effect may be followed by the rest.
                if matches!(outcome.status, Status::Success | Status::Pending | Status::Unknown) {
                    intents.insert(*intent);
                } else {
                    intents.remove(intent);
                }
            }
            EventBody::Received(_)
            | EventBody::Joined { .. }
            | EventBody::TurnStarted { .. }
            | EventBody::RoundBegan { .. }
            | EventBody::RoundNotBegun { .. }
            | EventBody::ModelFailed { .. }
            | EventBody::InterfaceChanged { .. }
            | EventBody::LoopDetected { .. }
            | EventBody::AgentStarted { .. }
            | EventBody::AgentReported { .. }
            | EventBody::AgentSteered { .. }
            | EventBody::SteeringTaken { .. }
            | EventBody::AgentStopRequested { .. }
            | EventBody::CancelRequested { .. }
            | EventBody::Decided { .. }
            | EventBody::ApprovalRequested { .. }
            | EventBody::ApprovalDecided { .. }
            | EventBody::ResultsGiven
            | EventBody::Resumed { .. }
            | EventBody::Suspended { .. }
            | EventBody::Continued { .. }
            | EventBody::Reprioritised { .. }
            | EventBody::DeadlinePassed { .. }
            | EventBody::Deferred { .. }
            | EventBody::Retried { .. }
            | EventBody::Ordered { .. }
            | EventBody::DeadLetterDue { .. }
            | EventBody::DeadLetterMoved { .. }
            | EventBody::Answered { .. }
            | EventBody::Failed { .. }
            | EventBody::Cancelled { .. }
            | EventBody::Copied(_)
            | EventBody::Compacted(_) => {}
        }
        for (effect, intents) in &made {
            assert!(intents.len() <= 1, "{effect:?} was made under {intents:?}");
        }
    }
}

/// Asserts that messages of one lane whose class was not changed begin in the order of acceptance.
fn assert_order(w: &World) {
    let mut accepted: BTreeMap<TaskId, (usize, Lane)> = BTreeMap::new();
    for (index, event) in w.log.iter().enumerate() {
        if let EventBody::Received(inbound) = &event.body
            && !inbound.steer
            && inbound.not_before.is_none()
        {
            accepted.insert(event.task, (index, Lane::of(inbound.priority)));
        }
    }
    for event in &w.log {
        if matches!(event.body, EventBody::Suspended { .. } | EventBody::Reprioritised { .. }) {
            accepted.remove(&event.task);
        }
    }
    for lane in Lane::ALL {
        let begun = w.log.iter().filter(|e| matches!(e.body, EventBody::TurnStarted { .. }));
        let indexes =
            begun.filter_map(|e| accepted.get(&e.task)).filter(|(_, of)| *of == lane).map(|(index, _)| *index);
        assert!(indexes.is_sorted(), "{lane:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn every_message_ends_once_and_replay_equals_state_for_every_history(
        mode in prop_oneof![3 => Just(Mode::MultiAgent), 1 => Just(Mode::SingleLoop), 1 => Just(Mode::Direct)],
        limits in limits(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut w = World::with(mode, limits);
        w.say("Do it");
        for step in steps {
            perform(&mut w, step);
        }
        finish_all(&mut w);
        let received: Vec<TaskId> =
            w.log.iter().filter(|e| matches!(e.body, EventBody::Received(_))).map(|e| e.task).collect();
        for task in received {
            prop_assert_eq!(w.finals(task).len(), 1);
        }
        assert_reported(&w);
        assert_budgets(&w);
        assert_equal_effects_once(&w);
        assert_order(&w);
        prop_assert_eq!(timeless(&w.conv), timeless(&w.refolded()));
        let json = serde_json::to_string(&w.conv).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Conversation>(&json).unwrap(), &w.conv);
    }

    /// The log contains each message at its position, and the Engine receives it any number of events later. After every
    /// step, [`World::check`] compares the whole state with a replay of the log.
    #[test]
    fn replay_equals_state_however_late_engine_receives_messages(
        mode in prop_oneof![3 => Just(Mode::MultiAgent), 1 => Just(Mode::SingleLoop), 1 => Just(Mode::Direct)],
        limits in limits(),
        steps in prop::collection::vec(step_with_delays(), 1..60),
    ) {
        let mut w = World::with(mode, limits);
        w.say("Do it");
        for step in steps {
            perform(&mut w, step);
        }
        let asked = |conv: &Conversation| conv.turns.iter().map(|t| conv.main_agent(t.task).map(|agent| agent.request(&skills()))).collect::<Vec<_>>();
        prop_assert_eq!(asked(&w.conv), asked(&w.expected_from_log()));
        finish_all(&mut w);
        let received = w.log.iter().filter(|e| matches!(e.body, EventBody::Received(_)));
        for task in received.map(|e| e.task) {
            prop_assert_eq!(w.finals(task).len(), 1);
            let begun = w.log.iter().filter(|e| e.task == task && matches!(e.body, EventBody::TurnStarted { .. }));
            prop_assert!(begun.count() <= 1);
        }
        assert_reported(&w);
        assert_budgets(&w);
        prop_assert_eq!(timeless(&w.conv), timeless(&w.refolded()));
    }

    #[test]
    fn log_folds_equally_from_snapshot_at_any_position(
        steps in prop::collection::vec(step(), 1..40),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut w = World::new();
        w.say("Do it");
        for step in steps {
            perform(&mut w, step);
        }
        let at = cut.index(w.log.len());
        let mut conv = Conversation::new(w.conv.id, w.conv.user.clone());
        for (n, event) in w.log.iter().enumerate() {
            if n == at {
                conv = serde_json::from_str(&serde_json::to_string(&conv).unwrap()).unwrap();
            }
            conv.apply(event);
        }
        prop_assert_eq!(conv, w.refolded());
    }

    #[test]
    fn turn_machine_handles_every_reply_without_panic_or_stall(
        mode in prop_oneof![Just(Mode::MultiAgent), Just(Mode::SingleLoop), Just(Mode::Direct)],
        text in "(?s).{0,200}",
        names in prop::collection::vec((".{0,30}", ".{0,30}", "(?s).{0,80}"), 0..4),
    ) {
        let calls: Vec<ToolCall> =
            names.into_iter().map(|(id, name, arguments)| ToolCall { id, name, arguments }).collect();
        let mut w = World::in_mode(mode);
        w.say(&text);
        w.replies(&text, &calls);
        if main_thinks(&w) {
            w.replies(&format!("```cmd\n{text}\n```"), &[use_skill("1", &text, &json!({"x": text}))]);
        }
        finish_all(&mut w);
    }
}
