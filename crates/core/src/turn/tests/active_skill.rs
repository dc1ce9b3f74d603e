//! Prompt skills that stay active over turns: their instructions, their allowed tools, and their end.

use std::collections::BTreeMap;

use serde_json::json;

use super::{
    script::{agent, cmd, collect, dispatch, dispatch_to_act, skill, use_skill},
    world::World,
};
use crate::{
    context::skills_list,
    event::{CallVerdict, EventBody, Inbound, Mode, Refusal, ResumeCause},
    ids::AgentId,
    outcome::Outcome,
    skill::{ActiveSkill, Effect, PromptContext, SkillChange, SkillFormat, SkillSet, SkillSpec},
};

fn minutes(allowed: &[&str]) -> ActiveSkill {
    let allowed_tools = allowed.iter().map(|tool| (*tool).to_owned()).collect();
    ActiveSkill { allowed_tools, ..ActiveSkill::new("minutes", "Write down every decision.") }
}

fn prompt_skill(name: &str) -> SkillSpec {
    let format = SkillFormat::Prompt {
        context: PromptContext::Inline,
        user_invocable: true,
        model_invocable: true,
        allowed_tools: Vec::new(),
        argument_hint: None,
        model: None,
        effort: None,
        scripts: None,
    };
    SkillSpec { format, domain: "prompt".to_owned(), ..skill(name, Effect::Read, &[("args", false)]) }
}

/// A world in which the user has begun a skill by `/name`, and the turn has ended.
fn begun(mode: Mode, allowed: &[&str]) -> World {
    let mut w = World::in_mode(mode);
    w.facts.skill_change = Some(Box::new(SkillChange::Begin(minutes(allowed))));
    w.say("/minutes");
    assert!(!system(&w).contains("Write down"), "the message itself has the instructions");
    w.replies("Fine.", &[]);
    w.facts.skill_change = None;
    w
}

fn system(w: &World) -> String {
    w.request().system.iter().map(|part| part.text.as_str()).collect()
}

fn refusals(w: &World) -> Vec<Refusal> {
    let judged = w.log.iter().filter_map(|event| {
        let EventBody::ModelReplied { judged, .. } = &event.body else { return None };
        judged.as_ref()
    });
    let verdicts = judged.flat_map(|judged| &judged.verdicts);
    let why = verdicts.filter_map(|one| match &one.verdict {
        CallVerdict::Refuse { why, .. } => Some(*why),
        CallVerdict::Warn { .. } => None,
    });
    why.collect()
}

#[test]
fn active_skill_is_in_the_system_prompt_of_later_turns_also_after_a_restart() {
    for mode in [Mode::MultiAgent, Mode::SingleLoop, Mode::Direct] {
        let mut w = begun(mode, &[]);
        for n in 0..3 {
            w.say(&format!("Point {n}"));
            w.restart(ResumeCause::Restart);
            let shown = system(&w);
            assert!(
                shown.contains("Active skill: minutes.") && shown.contains("Write down every decision."),
                "{shown}"
            );
            w.replies("Fine.", &[]);
        }
        assert_eq!(w.conv.active_skill(), Some("minutes"));
        let stored = serde_json::to_string(&w.conv).unwrap();
        let restored: crate::turn::Conversation = serde_json::from_str(&stored).unwrap();
        assert_eq!(restored, w.conv, "a snapshot keeps the skill");
    }
}

#[test]
fn active_skill_ends_when_the_user_or_the_model_ends_it() {
    let mut w = begun(Mode::SingleLoop, &[]);
    w.facts.skill_change = Some(Box::new(SkillChange::End));
    w.say("/done");
    w.replies("It is over.", &[]);
    w.facts.skill_change = None;
    w.say("And now?");
    assert!(!system(&w).contains("Active skill"), "the user ended it");
    let mut w = begun(Mode::SingleLoop, &[]);
    w.skills = SkillSet::new([prompt_skill("minutes")], [], 2);
    w.say("That was all");
    w.replies("", &[use_skill("1", "minutes", &json!({}))]);
    w.skill_ends(&AgentId::orchestrator(), 0, Outcome::success("Done.").with_skill_change(SkillChange::End));
    assert!(system(&w).contains("Active skill"), "the prompt of a running turn does not change");
    w.replies("Bye.", &[]);
    w.say("And now?");
    assert!(!system(&w).contains("Active skill"), "the model ended it");
}

#[test]
fn skill_that_the_model_runs_is_active_in_later_turns_and_replaces_the_former_one() {
    let mut w = begun(Mode::SingleLoop, &[]);
    w.skills = SkillSet::new([prompt_skill("review")], [], 2);
    w.say("Review it");
    w.replies("", &[use_skill("1", "review", &json!({}))]);
    let next = SkillChange::Begin(ActiveSkill::new("review", "Read it twice."));
    w.skill_ends(&AgentId::orchestrator(), 0, Outcome::success("Read it twice.").with_skill_change(next));
    w.replies("Fine.", &[]);
    w.say("Go on");
    let shown = system(&w);
    assert!(shown.contains("Read it twice.") && !shown.contains("Write down"), "{shown}");
    assert_eq!(w.conv.skill_uses, BTreeMap::from([("minutes".to_owned(), 1), ("review".to_owned(), 1)]));
}

#[test]
fn skill_of_a_private_turn_is_not_shown_in_a_public_one() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.facts.skill_change = Some(Box::new(SkillChange::Begin(minutes(&[]))));
    let private = |text: &str| Inbound { private: true, ..World::inbound(text) };
    w.receive(private("/minutes my diagnosis"));
    w.replies("Fine.", &[]);
    w.facts.skill_change = None;
    w.say("Hello");
    assert!(!system(&w).contains("Write down"), "a cloud backend may see this prompt");
    w.replies("Hello.", &[]);
    w.receive(private("Go on"));
    assert!(system(&w).contains("Write down"));
}

#[test]
fn active_skill_refuses_calls_outside_its_allowed_tools_and_the_verdict_is_recorded() {
    let mut w = begun(Mode::SingleLoop, &["tasks.search"]);
    w.say("Create a task for that, call it milk");
    w.replies("", &[use_skill("1", "tasks.create", &json!({"title": "milk"}))]);
    let results = w.results();
    assert!(results[0].starts_with("[refused] The skill minutes is active"), "{results:?}");
    assert_eq!(refusals(&w), [Refusal::NotAllowed]);
    w.replies("", &[use_skill("2", "tasks.search", &json!({"query": "milk"}))]);
    assert_eq!(w.skill_calls(&AgentId::orchestrator()).len(), 1, "a listed skill runs");
    w.main_skill("nothing");
    w.replies("I may not do that now.", &[]);
    assert_eq!(w.refolded().active_skill(), Some("minutes"));
}

#[test]
fn active_skill_confines_the_agents_that_the_orchestrator_dispatches() {
    let mut w = begun(Mode::MultiAgent, &["tasks.search", "mcp"]);
    w.say("Create a task");
    w.replies("", &[dispatch_to_act("a", &[]), dispatch("b", &[]), collect(&[])]);
    assert_eq!(w.running(), ["b"], "an agent with a skill that is not allowed does not start");
    assert_eq!(refusals(&w), [Refusal::NotAllowed]);
    assert!(w.sub("b").run.confined.is_some(), "its agents are confined too");
}

#[test]
fn skill_that_a_sub_agent_runs_confines_this_agent_only() {
    let mut w = World::new();
    w.say("Do it");
    w.replies("", &[dispatch_to_act("a", &[]), collect(&[])]);
    w.agent_replies("a", &cmd("tasks.search"), &[]);
    let begin = SkillChange::Begin(minutes(&["tasks.search"]));
    w.skill_ends(&agent("a"), 0, Outcome::success("So.").with_skill_change(begin));
    w.agent_replies("a", &cmd("tasks.create --title milk"), &[]);
    assert_eq!(refusals(&w), [Refusal::NotAllowed]);
    assert_eq!(w.conv.active_skill(), None, "the conversation has no active skill");
}

#[test]
fn list_of_prompt_skills_fits_its_limit_and_leaves_out_the_least_used_ones() {
    let names = ["alpha", "beta", "gamma", "delta"];
    let skills = SkillSet::new(names.map(prompt_skill), [], 1);
    let all = skills_list(&skills, 16_000, &BTreeMap::new());
    assert!(
        all.skills_left_out.is_empty() && all.text.contains("  gamma [--args TEXT]\n    Does gamma.\n"),
        "{}",
        all.text
    );
    let uses = BTreeMap::from([("gamma".to_owned(), 3), ("delta".to_owned(), 1)]);
    let some = skills_list(&skills, 100, &uses);
    assert_eq!(some.skills_left_out, ["alpha", "beta"], "{}", some.text);
    let last = "(Left out for room: prompt skills: 2; ask for the domain prompt.)\n";
    let shown = some.text.strip_suffix(last).expect("the prompt says what was left out");
    assert!(shown.chars().count() <= 100 && shown.contains("gamma") && shown.contains("delta"), "{shown}");
    let none = skills_list(&skills, 10, &uses);
    assert_eq!(none.skills_left_out.len(), 4);
    assert!(!none.text.contains("gamma"), "{}", none.text);
}
