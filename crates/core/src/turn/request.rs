//! The model request of the current round, built from the state alone.

use super::{
    alternatives::{has_tools, tool},
    caller,
    conversation::Turn,
    sub::SubTurn,
};
use crate::{
    caller::CallOptions,
    classify::Intent,
    context::{
        active_skill_part, agent_system, control_tools, main_system, main_system_cmd, main_tools, scoped_use_skill,
        small_talk_system, tokens,
    },
    event::{Mode, PromptFacts},
    ids::ConversationId,
    limits::SubAgentInterface,
    message::{ModelRequest, SystemPart, ToolDef},
    planning::PLAN_PREFIX,
    skill::{ActiveSkill, SkillSet},
};

pub(super) fn main(conversation: ConversationId, turn: &Turn, skills: &SkillSet) -> ModelRequest {
    let (mut system, mut tools) = if is_small_talk(turn) {
        (small_talk_system(&turn.facts), Vec::new())
    } else {
        prompt(turn.mode, turn.main.is_cmd(), &turn.facts, turn.active_skill.as_ref())
    };
    if turn.main.plans {
        system.push(SystemPart { text: PLAN_PREFIX.to_owned(), cache: None });
    }
    if turn.limits.agent_control && turn.mode == Mode::MultiAgent && !tools.is_empty() {
        tools.extend(control_tools());
    }
    if turn.main.may_ask() && turn.facts.spoken_as.is_none() && has_tools(&turn.main) && !tools.is_empty() {
        tools.push(tool());
    }
    let mut request = ModelRequest {
        model: None,
        system,
        messages: turn.main.messages.clone(),
        stable_messages: turn.main.stable,
        tools,
        skill_names: skills.for_model().map(|skill| skill.name.clone()).collect(),
        output_tokens_max: turn.limits.response_tokens_reserve,
        session_id: conversation.to_string(),
        priority: turn.inbound.priority.level(),
        options: CallOptions {
            has_more_output: turn.main.output.is_raised(),
            effort: turn.facts.effort,
            ..CallOptions::default()
        },
    };
    caller::shape(&mut request, turn);
    request
}

/// Whether the round has the short prompt. Later rounds have a reason that was not known at first, such as a message that steers
/// the turn.
pub(super) fn is_small_talk(turn: &Turn) -> bool {
    turn.facts.intent == Some(Intent::Simple) && turn.main.round == 1
}

/// The system prompt and the tools of the main agent. A main agent that writes commands has no tools.
fn prompt(
    mode: Mode,
    by_commands: bool,
    facts: &PromptFacts,
    active: Option<&ActiveSkill>,
) -> (Vec<SystemPart>, Vec<ToolDef>) {
    let (mut system, tools) = if by_commands {
        (main_system_cmd(facts), Vec::new())
    } else {
        (main_system(mode, facts), main_tools(mode, facts))
    };
    system.extend(active.map(|active| active_skill_part(mode, by_commands, active)));
    (system, tools)
}

/// The approximate size of the system prompt and the tools, in tokens.
pub(super) fn fixed_tokens(mode: Mode, by_commands: bool, facts: &PromptFacts, active: Option<&ActiveSkill>) -> u32 {
    let (system, tools) = prompt(mode, by_commands, facts, active);
    let system = system.iter().map(|part| tokens(part.text.len())).fold(0, u32::saturating_add);
    let tools = tools.into_iter().map(|t| tokens(t.name.len() + t.description.len() + t.parameters.to_string().len()));
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
            SubAgentInterface::Json if turn.run.may_ask() => vec![scoped_use_skill(&turn.spec), tool()],
            SubAgentInterface::Json => vec![scoped_use_skill(&turn.spec)],
        },
        skill_names: turn.spec.skills.clone(),
        output_tokens_max: turn.limits.response_tokens_reserve,
        session_id: turn.conversation.to_string(),
        priority: turn.priority.level(),
        options: CallOptions {
            has_more_output: turn.run.output.is_raised(),
            effort: turn.spec.options.effort,
            ..CallOptions::default()
        },
    }
}
