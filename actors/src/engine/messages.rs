//! The messages of an Engine.

use std::sync::Arc;

use annie_core::{
    event::{AgentReport, Event, Mode, NewEvent, PromptFacts},
    ids::{AgentId, Seq, TaskId},
    limits::TurnLimits,
    turn::{Approval, Meant, Summarised},
};
use tokio::sync::oneshot;

use super::control::{AgentControl, Control, Controlled, Decide, NotDecided};
use crate::{
    agent::{AgentDone, JudgedTurn},
    effects::Routed,
    observe::Named,
};

/// Messages of an Engine.
pub enum EngineMsg {
    /// A message is in the log. Without the event, the Engine reads the log.
    Wake(Option<Arc<Event>>),
    /// Apply a control to a task.
    Control {
        /// The task to control.
        task: TaskId,
        /// The control to apply.
        control: Control,
        /// The name of the requester, for the log.
        by: String,
        /// Receives the result.
        reply: oneshot::Sender<Controlled>,
    },
    /// A person decides about a part of a turn.
    Person(PersonMsg),
    /// The facts for a turn's prompts have been read.
    FactsRead {
        /// The task of the turn.
        task: TaskId,
        /// The mode in which the turn runs.
        mode: Mode,
        /// The facts.
        facts: Box<PromptFacts>,
        /// The limits of the turn.
        limits: TurnLimits,
        /// The backends that may run the turn, with the reason for the choice.
        route: Box<Routed>,
        /// The verdicts of the hooks.
        judged: Box<JudgedTurn>,
    },
    /// Progress of a job command.
    JobCommand(JobCommandMsg),
    /// A summary for a compaction was made, or could not be made.
    Summarised {
        /// The task at whose end the compaction became due.
        task: TaskId,
        /// The number of the compaction.
        number: u32,
        /// The summary.
        summarised: Summarised,
    },
    /// A deadline may have passed, or a message may be due.
    Clock,
    /// A round, a skill run or a question of the orchestrator is over, or a call of any agent waits for a person.
    Agent(AgentDone),
    /// A sub-agent has ended; its last events are not stored yet.
    AgentFinished {
        /// The task of its turn.
        task: TaskId,
        /// The sub-agent.
        agent: AgentId,
        /// Its last events.
        events: Vec<NewEvent>,
        /// Its report.
        report: Box<AgentReport>,
    },
    /// Store the beginning of a turn, because the model did not answer at once.
    Save,
    /// A snapshot was saved, or could not be saved.
    SnapshotKept(Result<Kept, String>),
    /// Whether the Engine stays in memory.
    Residency(EngineResidencyMsg),
}

impl Named for EngineMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Wake(_) => "Wake",
            Self::Control { .. } => "Control",
            Self::Person(msg) => msg.name(),
            Self::JobCommand(msg) => msg.name(),
            Self::Summarised { .. } => "Summarised",
            Self::Clock => "Clock",
            Self::FactsRead { .. } => "FactsRead",
            Self::Agent(done) => done.name(),
            Self::AgentFinished { .. } => "AgentFinished",
            Self::Save => "Save",
            Self::SnapshotKept(_) => "SnapshotKept",
            Self::Residency(msg) => msg.name(),
        }
    }
}

impl From<AgentDone> for EngineMsg {
    fn from(done: AgentDone) -> Self {
        Self::Agent(done)
    }
}

impl EngineMsg {
    /// The task that the message concerns, if any.
    pub(super) fn task(&self) -> Option<TaskId> {
        match self {
            Self::Wake(event) => event.as_ref().map(|event| event.task),
            Self::Control { task, .. }
            | Self::Person(PersonMsg::Decide { task, .. })
            | Self::FactsRead { task, .. }
            | Self::JobCommand(JobCommandMsg::Understood { task, .. } | JobCommandMsg::CarriedOut { task, .. })
            | Self::Summarised { task, .. }
            | Self::AgentFinished { task, .. } => Some(*task),
            Self::Agent(done) => Some(done.task()),
            Self::Person(PersonMsg::ControlAgent { asked, .. }) => asked.task,
            Self::Clock | Self::Save | Self::SnapshotKept(_) | Self::Residency(_) => None,
        }
    }
}

/// What a person decides about a part of a turn.
pub enum PersonMsg {
    /// Apply a person's decision about a request for an approval.
    Decide {
        /// The task of the turn.
        task: TaskId,
        /// The decision.
        decide: Box<Decide>,
        /// Receives the decided request, or why the decision has no effect.
        reply: oneshot::Sender<Result<Approval, NotDecided>>,
    },
    /// Steer or stop a sub-agent.
    ControlAgent {
        /// The control to apply.
        asked: Box<AgentControl>,
        /// Receives the task of the agent, or why the control has no effect.
        reply: oneshot::Sender<Result<TaskId, NotDecided>>,
    },
}

impl Named for PersonMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Decide { .. } => "Decide",
            Self::ControlAgent { .. } => "ControlAgent",
        }
    }
}

/// Progress of a job command.
pub enum JobCommandMsg {
    /// A job command has been parsed and resolved.
    Understood {
        /// The task of the job command.
        task: TaskId,
        /// The meaning of the command.
        meant: Meant,
    },
    /// A job command has been carried out.
    CarriedOut {
        /// The task of the job command.
        task: TaskId,
        /// The answer to the user.
        text: String,
    },
}

impl Named for JobCommandMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Understood { .. } => "Understood",
            Self::CarriedOut { .. } => "CarriedOut",
        }
    }
}

/// Messages about leaving memory: from the Engine's idle timer, and from its parent.
pub enum EngineResidencyMsg {
    /// The conversation has been idle for a whole quiet period.
    Idle {
        /// The number of the quiet period that has passed.
        period: u64,
    },
    /// Other conversations wait for capacity: leave memory if this conversation only waits.
    Evict,
    /// A wake-up is on its way, or the capacity is no longer wanted: continue.
    StayActive,
    /// No wake-up is on its way: leave memory.
    Passivate,
}

impl Named for EngineResidencyMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Idle { .. } => "Idle",
            Self::Evict => "Evict",
            Self::StayActive => "StayActive",
            Self::Passivate => "Passivate",
        }
    }
}

/// A snapshot that was saved.
pub struct Kept {
    /// The sequence number of its last event.
    pub(super) seq: Seq,
    /// The messages that were read for the snapshot: all that this incarnation may not know.
    pub(super) received: Vec<Event>,
}
