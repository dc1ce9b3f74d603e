//! Hooks outside the kernel, such as programs. They take time and may fail.

use std::{fmt, sync::Arc};

use serde::Serialize;
use serde_json::Value;

use super::{Conditions, HookContext, HookPoint, HookSubject, OnFailure};
use crate::{
    ids::{AgentId, ConversationId, TaskId, UserId},
    ports::HookRunner,
    skill::Effect,
};

/// A hook outside the kernel.
#[derive(Clone)]
pub struct OutsideHook {
    /// The name, for records and people.
    pub name: String,
    /// The point at which the hook decides.
    pub point: HookPoint,
    /// The conditions under which the hook is asked.
    pub when: Conditions,
    /// The consequence of a failure.
    pub on_failure: OnFailure,
    /// The time limit of an answer, in milliseconds.
    pub ms_max: u64,
    /// Asks the hook.
    pub runner: Arc<dyn HookRunner>,
}

impl OutsideHook {
    /// The maximum of the time limit, in milliseconds. A person may wait for the turn.
    pub const MS_MAX: u64 = 60_000;
}

impl fmt::Debug for OutsideHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutsideHook").field("name", &self.name).field("point", &self.point).finish_non_exhaustive()
    }
}

/// What a hook outside the kernel is asked. Its JSON is an interface: fields may be added, and none changes its meaning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HookQuestion {
    /// The version of the interface.
    pub v: u32,
    /// The id of the question. A question that is asked again after a crash has the same id.
    pub id: String,
    /// The name of the hook.
    pub hook: String,
    /// The point.
    pub point: HookPoint,
    /// The user of the conversation.
    pub user: UserId,
    /// The channels of the messages of the turn.
    pub channels: Vec<String>,
    /// The conversation.
    pub conversation_id: ConversationId,
    /// The task of the turn.
    pub task_id: TaskId,
    /// The agent that calls the skill.
    pub agent: AgentId,
    /// Before a turn: the text of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Before a skill: its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skill: Option<String>,
    /// Before a skill: its validated arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// Before a skill: the consequence of running it twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// Before a skill: whether it communicates with systems outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<bool>,
}

impl HookQuestion {
    /// The version of the interface.
    pub const VERSION: u32 = 1;

    /// The question to a hook.
    #[must_use]
    pub fn of(hook: &str, at: &HookContext<'_>) -> Self {
        let (id, message, skill) = match at.subject {
            HookSubject::Turn(inbound) => (format!("{}:{hook}", at.task), Some(inbound.text.clone()), None),
            HookSubject::Skill(skill) => (format!("{}:{hook}", skill.intent), None, Some(skill)),
        };
        Self {
            v: Self::VERSION,
            id,
            hook: hook.to_owned(),
            point: at.point,
            user: at.user.clone(),
            channels: at.channels.to_vec(),
            conversation_id: at.conversation,
            task_id: at.task,
            agent: at.agent.clone(),
            message,
            skill: skill.map(|skill| skill.skill.clone()),
            arguments: skill.map(|skill| skill.arguments.clone()),
            effect: skill.map(|skill| skill.effect),
            external: skill.map(|skill| skill.external),
        }
    }
}
