//! Directives: the effects that the pure core requests from its Engine.

use crate::{
    event::{JobVerb, PlannedSkill},
    ids::{AgentId, TaskId},
};

/// An effect that has no result yet.
#[derive(Debug, Clone, PartialEq)]
pub enum Directive {
    /// Reads the facts for a turn and begins it.
    BeginTurn {
        /// The task to begin.
        task: TaskId,
    },
    /// Runs a model round; [`super::Conversation::request`] builds the request of the main agent.
    CallModel {
        /// The task of the turn.
        task: TaskId,
        /// The agent whose round it is.
        agent: AgentId,
        /// The number of the round.
        round: u32,
    },
    /// Runs a skill through its breaker.
    CallSkill {
        /// The task of the turn.
        task: TaskId,
        /// The agent that made the call.
        agent: AgentId,
        /// The id of the call, unique within its round.
        call_id: String,
        /// The planned run.
        skill: PlannedSkill,
        /// A previous incarnation started the run and its receipt is missing, so the effect class decides the recovery.
        started_before: bool,
    },
    /// Asks a hook outside the kernel about a call.
    RunHook {
        /// The task of the turn.
        task: TaskId,
        /// The agent that made the call.
        agent: AgentId,
        /// The name of the hook.
        hook: String,
        /// The planned run, which waits for the verdict.
        skill: PlannedSkill,
    },
    /// Resolves the meaning of a job command.
    Understand {
        /// The task of the job command.
        task: TaskId,
        /// The text of the message.
        text: String,
    },
    /// Carries out a job command. This is idempotent.
    CarryOut {
        /// The task of the job command.
        task: TaskId,
        /// The operation.
        verb: JobVerb,
        /// The tasks that it applies to.
        targets: Vec<TaskId>,
        /// The reply to the user.
        text: String,
    },
    /// Makes the summary of the compaction that is due; [`super::Conversation::compaction_work`] says how.
    Compact {
        /// The task at whose end it became due.
        task: TaskId,
        /// The number of the compaction.
        number: u32,
    },
    /// Keeps a sub-agent running; [`super::Conversation::sub_turn`] is its state.
    RunAgent {
        /// The task of the turn.
        task: TaskId,
        /// The agent to run.
        agent: AgentId,
    },
}

/// The identity of a directive. It is the same after a restart, so that no directive runs twice at the same time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DirectiveId {
    /// See [`Directive::BeginTurn`].
    Begin(TaskId),
    /// See [`Directive::CallModel`].
    Model(TaskId, AgentId, u32),
    /// See [`Directive::CallSkill`].
    Skill(TaskId, AgentId, String),
    /// See [`Directive::RunHook`]: the intent and the name of the hook.
    Hook(TaskId, AgentId, String, String),
    /// See [`Directive::Understand`].
    Understand(TaskId),
    /// See [`Directive::CarryOut`].
    CarryOut(TaskId),
    /// See [`Directive::Compact`].
    Compact(TaskId, u32),
    /// See [`Directive::RunAgent`].
    Agent(TaskId, AgentId),
}

impl DirectiveId {
    /// The task of the directive.
    #[must_use]
    pub const fn task(&self) -> TaskId {
        match self {
            Self::Begin(task)
            | Self::Model(task, ..)
            | Self::Skill(task, ..)
            | Self::Hook(task, ..)
            | Self::Understand(task)
            | Self::CarryOut(task)
            | Self::Compact(task, _)
            | Self::Agent(task, _) => *task,
        }
    }
}

impl Directive {
    /// The id of the directive.
    #[must_use]
    pub fn id(&self) -> DirectiveId {
        match self {
            Self::BeginTurn { task } => DirectiveId::Begin(*task),
            Self::CallModel { task, agent, round } => DirectiveId::Model(*task, agent.clone(), *round),
            // A call id is unique within its round only; the intent is unique.
            Self::CallSkill { task, agent, skill, .. } => {
                DirectiveId::Skill(*task, agent.clone(), skill.intent.to_string())
            }
            Self::RunHook { task, agent, hook, skill } => {
                DirectiveId::Hook(*task, agent.clone(), skill.intent.to_string(), hook.clone())
            }
            Self::Understand { task, .. } => DirectiveId::Understand(*task),
            Self::CarryOut { task, .. } => DirectiveId::CarryOut(*task),
            Self::Compact { task, number } => DirectiveId::Compact(*task, *number),
            Self::RunAgent { task, agent } => DirectiveId::Agent(*task, agent.clone()),
        }
    }
}
