//! What the pure core asks of the world.

use crate::{
    event::{OrderVerb, PlannedSkill},
    ids::{AgentId, TaskId},
};

/// An effect that has no result yet.
#[derive(Debug, Clone, PartialEq)]
pub enum Directive {
    /// Read the facts for a turn and begin it.
    BeginTurn {
        /// Which.
        task: TaskId,
    },
    /// Run a round of the main agent; [`super::Conversation::request`] builds it.
    CallModel {
        /// In which turn.
        task: TaskId,
        /// Whose round.
        agent: AgentId,
        /// Which round.
        round: u32,
    },
    /// Run a skill through its breaker.
    CallSkill {
        /// In which turn.
        task: TaskId,
        /// For which agent.
        agent: AgentId,
        /// Which call.
        call_id: String,
        /// What to run.
        skill: PlannedSkill,
        /// It was started in a former life and its receipt is missing: recover by its effect class.
        started_before: bool,
    },
    /// Find out what an order about tasks means.
    Understand {
        /// The order's task.
        task: TaskId,
        /// Its words.
        text: String,
    },
    /// Carry an order out; doing it twice is the same as doing it once.
    CarryOut {
        /// The order's task.
        task: TaskId,
        /// What is done.
        verb: OrderVerb,
        /// With which tasks.
        targets: Vec<TaskId>,
        /// What the user is told then.
        text: String,
    },
    /// Have a sub-agent running; [`super::Conversation::sub_turn`] is its state.
    RunAgent {
        /// In which turn.
        task: TaskId,
        /// Which.
        agent: AgentId,
    },
}

/// What tells one directive from another: the same after a restart, so that none is performed twice at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DirectiveId {
    /// See [`Directive::BeginTurn`].
    Begin(TaskId),
    /// See [`Directive::CallModel`].
    Model(TaskId, AgentId, u32),
    /// See [`Directive::CallSkill`].
    Skill(TaskId, AgentId, String),
    /// See [`Directive::Understand`].
    Understand(TaskId),
    /// See [`Directive::CarryOut`].
    CarryOut(TaskId),
    /// See [`Directive::RunAgent`].
    Agent(TaskId, AgentId),
}

impl DirectiveId {
    /// For which task.
    #[must_use]
    pub const fn task(&self) -> TaskId {
        match self {
            Self::Begin(task)
            | Self::Model(task, ..)
            | Self::Skill(task, ..)
            | Self::Understand(task)
            | Self::CarryOut(task)
            | Self::Agent(task, _) => *task,
        }
    }
}

impl Directive {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> DirectiveId {
        match self {
            Self::BeginTurn { task } => DirectiveId::Begin(*task),
            Self::CallModel { task, agent, round } => DirectiveId::Model(*task, agent.clone(), *round),
            // A call id is unique within its round only; the intent is unique.
            Self::CallSkill { task, agent, skill, .. } => {
                DirectiveId::Skill(*task, agent.clone(), skill.intent.to_string())
            }
            Self::Understand { task, .. } => DirectiveId::Understand(*task),
            Self::CarryOut { task, .. } => DirectiveId::CarryOut(*task),
            Self::RunAgent { task, agent } => DirectiveId::Agent(*task, agent.clone()),
        }
    }
}
