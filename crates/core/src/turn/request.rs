//! Requests of the current round, built from the state alone.

use super::{caller, conversation::Turn, sub::SubTurn};
use crate::{
    caller::CallOptions,
    context::{agent_system, main_system, main_tools, scoped_use_skill, tokens},
    event::{Mode, PromptFacts},
    ids::ConversationId,
    limits::SubAgentInterface,
    message::ModelRequest,
    skill::SkillSet,
};

pub(super) fn main(conversation: ConversationId, turn: &Turn, skills: &SkillSet) -> ModelRequest {
    let mut request = ModelRequest {
        model: None,
        system: main_system(turn.mode, &turn.facts),
        messages: turn.main.messages.clone(),
        stable_messages: turn.main.stable,
        tools: main_tools(turn.mode, &turn.facts),
        skill_names: skills.for_model().map(|skill| skill.name.clone()).collect(),
        output_tokens_max: turn.limits.response_tokens_reserve,
        session_id: conversation.to_string(),
        priority: turn.inbound.priority.level(),
        options: CallOptions::default(),
    };
    caller::shape(&mut request, turn);
    request
}

/// What a turn's system prompt and tools take up, about.
pub(super) fn fixed_tokens(mode: Mode, facts: &PromptFacts) -> u32 {
    let system = main_system(mode, facts).iter().map(|part| tokens(part.text.len())).fold(0, u32::saturating_add);
    let tools = main_tools(mode, facts)
        .into_iter()
        .map(|t| tokens(t.name.len() + t.description.len() + t.parameters.to_string().len()));
    tools.fold(system, u32::saturating_add)
}

pub(super) fn sub(turn: &SubTurn) -> ModelRequest {
    let interface = turn.limits.interface;
    ModelRequest {
        model: None,
        system: agent_system(interface, &turn.spec, &turn.facts),
        messages: turn.run.messages.clone(),
        stable_messages: 0,
        tools: match interface {
            SubAgentInterface::Cmd => Vec::new(),
            SubAgentInterface::Json => vec![scoped_use_skill(&turn.spec)],
        },
        skill_names: match interface {
            SubAgentInterface::Cmd => Vec::new(),
            SubAgentInterface::Json => turn.spec.skills.clone(),
        },
        output_tokens_max: turn.limits.response_tokens_reserve,
        session_id: turn.conversation.to_string(),
        priority: turn.priority.level(),
        options: CallOptions::default(),
    }
}
