//! Provider state: the opaque data of a client's reply is sent back with the reply's calls within the turn.

use serde_json::{Value, json};

use super::{
    script::{dispatch, reply, tool, use_skill},
    world::World,
};
use crate::{
    event::{EventBody, Mode, ResumeCause},
    limits::{SubAgentInterface, TurnLimits},
    message::{Message, ModelReply, Repair},
};

fn states(messages: &[Message]) -> Vec<Option<&Value>> {
    messages
        .iter()
        .filter_map(|m| {
            if let Message::Assistant { provider_state, .. } = m { Some(provider_state.as_ref()) } else { None }
        })
        .collect()
}

fn with_state(reply: ModelReply) -> ModelReply {
    ModelReply { provider_state: Some(json!({"signature": "c2ln"})), repairs: vec![Repair::Thinking], ..reply }
}

#[test]
fn provider_state_is_sent_back_with_its_calls_within_turn_and_after_restart() {
    let mut w = World::new();
    let task = w.say("Look");
    w.replies_with(&with_state(reply("I look.", &[tool("c1", "get_skill", &json!({}))])));
    assert_eq!(states(&w.request().messages), [Some(&json!({"signature": "c2ln"}))]);
    w.restart(ResumeCause::Restart);
    assert_eq!(states(&w.request().messages), [Some(&json!({"signature": "c2ln"}))]);
    w.replies_with(&with_state(reply("Done.", &[])));
    assert_eq!(w.answer(task), "Done.");
    let repairs = w.log.iter().filter_map(|e| {
        let EventBody::ModelReplied { repairs, .. } = &e.body else { return None };
        Some(repairs.as_slice())
    });
    assert_eq!(repairs.collect::<Vec<_>>(), [&[Repair::Thinking], &[Repair::Thinking]]);
    w.say("And now?");
    assert_eq!(states(&w.request().messages), [None]);
}

#[test]
fn provider_state_of_sub_agent_is_sent_back_with_its_calls() {
    let limits = TurnLimits { interface: SubAgentInterface::Json, ..TurnLimits::default() };
    let mut w = World::with(Mode::MultiAgent, limits);
    w.say("Look");
    w.replies("", &[dispatch("a", &[])]);
    assert_eq!(
        w.sub("a").view().request(&w.skills).skill_names,
        ["mcp.files.read__all", "tasks.search"],
        "the agent's granted skills"
    );
    w.agent_replies_with("a", &with_state(reply("", &[use_skill("u", "tasks.none", &json!({}))])));
    assert_eq!(states(&w.sub("a").view().request(&w.skills).messages), [Some(&json!({"signature": "c2ln"}))]);
}

#[test]
fn request_lists_skills_that_text_calls_may_name() {
    for mode in [Mode::MultiAgent, Mode::SingleLoop, Mode::Direct] {
        let mut w = World::in_mode(mode);
        w.say("Look");
        assert_eq!(w.request().skill_names, ["email.send", "mcp.files.read__all", "tasks.create", "tasks.search"]);
    }
    let mut w = World::new();
    w.say("Look");
    w.replies("", &[dispatch("a", &[])]);
    let granted = w.sub("a").view().request(&w.skills).skill_names.clone();
    assert_eq!(
        granted,
        ["mcp.files.read__all", "tasks.search"],
        "an agent that writes commands may write a call of what it was granted"
    );
}
