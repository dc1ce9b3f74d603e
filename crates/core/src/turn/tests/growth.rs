//! Bounds of a conversation's state, however long the conversation is and whatever it receives.

use serde_json::json;

use super::{
    script::{cmd, collect, dispatch, tool, use_skill},
    world::World,
};
use crate::{event::Mode, limits::TurnLimits, turn::Conversation};

const STATE_BYTES_MAX: usize = 2_000_000;

fn bytes(conv: &Conversation) -> usize {
    serde_json::to_string(conv).unwrap().len()
}

fn fast(mode: Mode, limits: TurnLimits) -> World {
    let mut w = World::with(mode, limits);
    w.fast = true;
    w
}

/// A turn with many long texts and results. Every hundredth one has the maximum number of agents.
fn long_turn(w: &mut World, n: usize) {
    let long = |what: &str| format!("{what} {n} \"\n{}", "lorem ipsum\n".repeat(1_700));
    let agents = if n.is_multiple_of(100) { 8 } else { 1 };
    w.wait_ms(400_000);
    w.say(&long("question"));
    let mut calls = vec![tool("g", "get_skill", &json!({"domain": "tasks"}))];
    calls.extend((0..agents).map(|a| {
        let arguments = json!({
            "agent_id": format!("a{a}"), "mission": &long("mission")[..7_000],
            "skills": ["tasks.search", "email.send"], "context": &long("context")[..15_000], "max_tool_calls": 3
        });
        tool(&format!("d{a}"), "dispatch_agent", &arguments)
    }));
    calls.push(collect(&[]));
    w.replies(&long("thoughts"), &calls);
    for a in 0..agents {
        let name = format!("a{a}");
        for round in 0..3 {
            w.agent_replies(&name, &cmd(&format!("tasks.search --query {round}")), &[]);
            w.agent_skill(&name, &long("found"));
        }
        assert!(!n.is_multiple_of(50) || bytes(&w.conv) < STATE_BYTES_MAX, "{}", bytes(&w.conv));
        w.agent_replies(&name, &long("report"), &[]);
    }
    w.replies(&long("answer"), &[]);
}

#[test]
fn conversation_state_is_bounded_over_hundreds_of_long_turns() {
    // With the budget of a small model, and with a budget so large that nothing is omitted.
    for (context_tokens_max, turns) in [(8_000, 40), (200_000, 240)] {
        let mut w = fast(Mode::MultiAgent, TurnLimits { context_tokens_max, ..TurnLimits::default() });
        let mut largest = [0; 3];
        for n in 0..turns {
            long_turn(&mut w, n);
            assert!(w.conv.is_idle());
            if n % 10 == 9 {
                let third = &mut largest[n * 3 / turns];
                *third = bytes(&w.conv).max(*third);
            }
        }
        // Every limit of the state is reached in the first 160 turns. A state that still grows afterwards would grow for
        // ever.
        let has_stopped = largest[2] <= largest[1] + largest[1] / 100;
        assert!(has_stopped || turns < 240, "{context_tokens_max} tokens: {largest:?} bytes");
    }
}

#[test]
fn repeatedly_continued_turn_has_bounded_state() {
    let limits = TurnLimits { context_tokens_max: 200_000, ..TurnLimits::default() };
    let mut w = fast(Mode::SingleLoop, limits);
    w.say("Read everything");
    for n in 0..100 {
        let task = w.current().unwrap();
        for round in 0..6 {
            w.replies("", &[use_skill("1", "tasks.search", &json!({"query": format!("{n} {round}")}))]);
            w.main_skill(&"lorem ipsum ".repeat(2_000));
        }
        let many: Vec<_> =
            (0..5).map(|c| use_skill(&c.to_string(), "tasks.create", &json!({"n": n, "c": c}))).collect();
        w.replies("", &many);
        assert_eq!(w.ending(task).0, "paused");
        assert!(bytes(&w.conv) < STATE_BYTES_MAX, "{n}: {}", bytes(&w.conv));
        w.wait_ms(400_000);
        w.say("continue");
    }
}

#[test]
fn continued_plan_keeps_results_and_drops_prompts_of_agents() {
    let mut w = World::with(Mode::MultiAgent, TurnLimits { iterations_max: 2, ..TurnLimits::default() });
    let task = w.say("Do it");
    w.replies("", &[dispatch("a", &[]), collect(&[])]);
    w.agent_replies("a", "found 3", &[]);
    w.replies("", &[collect(&[])]);
    assert_eq!(w.ending(task).0, "paused");
    let kept = &w.conv.paused.as_ref().unwrap().plan.nodes()[0].spec;
    assert!(kept.manual.is_empty() && kept.context.is_empty());
}
