//! The messages of the parent of all Engines.

use std::{collections::BTreeMap, sync::Arc};

use annie_core::{
    event::Event,
    ids::{ConversationId, Incarnation, Seq, TaskId, UserId},
    ports::{OpenConversation, StoreError},
    time::Micros,
    turn::Approval,
};
use tokio::sync::oneshot;

use crate::{
    engine::{AgentControl, Control, Controlled, Decide, NotDecided},
    observe::Named,
    opening::Opening,
    ownership::Owner,
};

/// Messages of the parent of all Engines.
pub enum ConversationsMsg {
    /// A message was stored in the log.
    Wake {
        /// The conversation of the message.
        conversation: ConversationId,
        /// The owner of the conversation.
        user: UserId,
        /// The message, if the sender has it.
        event: Option<Arc<Event>>,
        /// Set if the message created the conversation, and this node owns it.
        opening: Option<Opening>,
    },
    /// A passivating Engine found or left open work. The node that owns the conversation must continue it.
    Unfinished {
        /// The conversation with open work.
        conversation: ConversationId,
        /// The owner of the conversation.
        user: UserId,
    },
    /// Apply a control (cancel, suspend, ...) to a task.
    Control {
        /// The conversation of the task.
        conversation: ConversationId,
        /// The owner of the conversation.
        user: UserId,
        /// The task to control.
        task: TaskId,
        /// The control to apply.
        control: Control,
        /// The name of the requester, for the log.
        by: String,
        /// Receives the result.
        reply: oneshot::Sender<Controlled>,
        /// Claim the conversation even from a live node, because a person waits for the control.
        takes_over: bool,
    },
    /// Apply a person's decision about a request for an approval.
    Decide {
        /// The conversation of the task.
        conversation: ConversationId,
        /// The owner of the conversation.
        user: UserId,
        /// The task whose call waits.
        task: TaskId,
        /// The decision.
        decide: Box<Decide>,
        /// Receives the decided request, or why the decision has no effect.
        reply: oneshot::Sender<Result<Approval, NotDecided>>,
    },
    /// Steer or stop a sub-agent.
    ControlAgent {
        /// The conversation of the agent.
        conversation: ConversationId,
        /// The owner of the conversation.
        user: UserId,
        /// The control to apply.
        asked: Box<AgentControl>,
        /// Receives the task of the agent, or why the control has no effect.
        reply: oneshot::Sender<Result<TaskId, NotDecided>>,
    },
    /// This node was declared dead and has registered a new incarnation. Other nodes may own the conversations that are
    /// active here.
    LeaseLost,
    /// Which conversations this node must continue, and which other nodes own.
    Ownership(OwnershipNews),
    /// Which Engines are in memory.
    Residency(ResidencyMsg),
    /// Restarts and quarantine.
    Supervision(SupervisionMsg),
}

impl Named for ConversationsMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Wake { .. } => "Wake",
            Self::Unfinished { .. } => "Unfinished",
            Self::Control { .. } => "Control",
            Self::Decide { .. } => "Decide",
            Self::ControlAgent { .. } => "ControlAgent",
            Self::LeaseLost => "LeaseLost",
            Self::Ownership(msg) => msg.name(),
            Self::Residency(msg) => msg.name(),
            Self::Supervision(msg) => msg.name(),
        }
    }

    fn again(&self) -> Option<Self> {
        let Self::Wake { conversation, user, event, opening } = self else { return None };
        Some(Self::Wake {
            conversation: *conversation,
            user: user.clone(),
            event: event.clone(),
            opening: opening.clone(),
        })
    }
}

/// What the ownership actor has read in the store.
pub enum OwnershipNews {
    /// Open conversations that this node may continue.
    Opened {
        /// The conversations.
        open: Vec<OpenWork>,
        /// Whether these are all of them.
        is_complete: bool,
        /// The incarnation of the receiver that asked for this scan when it started.
        started: Option<Incarnation>,
    },
    /// Asks for the Engines that are active here and for their incarnations.
    ListActive(oneshot::Sender<BTreeMap<ConversationId, Incarnation>>),
    /// The conversations active here that another node owns now, each with the incarnation of the Engine that does not know
    /// it.
    Elsewhere(Vec<(ConversationId, Incarnation)>),
    /// Another node stored something.
    StoredByOthers,
}

impl Named for OwnershipNews {
    fn name(&self) -> &'static str {
        match self {
            Self::Opened { .. } => "Opened",
            Self::ListActive(_) => "ListActive",
            Self::Elsewhere(_) => "Elsewhere",
            Self::StoredByOthers => "StoredByOthers",
        }
    }
}

/// An open conversation that this node may continue.
pub struct OpenWork {
    /// The conversation.
    pub found: OpenConversation,
    /// Whether its owner is dead.
    pub is_orphan: bool,
    /// Whether no wake-up of this process is in doubt: then only a message of which the Engine was not notified is a reason
    /// to wake the Engine.
    pub only_news: bool,
}

/// Messages about which Engines are in memory.
pub enum ResidencyMsg {
    /// An Engine asks to leave memory. The parent agrees if no wake-up is on its way. The Engine starts nothing until it is
    /// answered.
    MayPassivate {
        /// The conversation of the Engine.
        conversation: ConversationId,
        /// The Engine's incarnation.
        incarnation: Incarnation,
        /// The number of wake-ups and task controls that the Engine has received.
        wakes_seen: u64,
        /// When to activate the conversation again, if work is open in it and it leaves only to free capacity.
        passivation: Option<Passivation>,
    },
    /// An Engine that was asked to leave has work to do and stays active.
    StaysActive(ConversationId),
    /// Time to ask Engines for capacity again, or to activate passive conversations in rotation.
    Round,
    /// A passive conversation is due.
    ActivateDue,
}

impl Named for ResidencyMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::MayPassivate { .. } => "MayPassivate",
            Self::StaysActive(_) => "StaysActive",
            Self::Round => "Round",
            Self::ActivateDue => "ActivateDue",
        }
    }
}

/// How a conversation with open work passivates to free capacity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passivation {
    /// When to activate it again.
    pub until: Option<Micros>,
    /// It waits for something of which it gets no notification while passive, so it is activated in rotation.
    pub takes_turns: bool,
    /// The last event that the Engine knows.
    pub seq: Seq,
}

/// Messages about restarts and quarantine.
pub enum SupervisionMsg {
    /// The back-off of a conversation is over.
    StartAgain(ConversationId),
    /// An Engine was fenced: this is the present owner of its conversation.
    Fenced {
        /// The conversation of the fenced Engine.
        conversation: ConversationId,
        /// Its owner, as the store knows it.
        owner: Result<Owner, StoreError>,
    },
    /// The open turns of a quarantined conversation were failed visibly, or those failures could not be stored.
    Quarantined {
        /// The quarantined conversation.
        conversation: ConversationId,
        /// The error, if the failures could not be stored.
        outcome: Result<(), String>,
    },
    /// An operator releases a conversation from quarantine.
    Resume {
        /// The conversation to release.
        conversation: ConversationId,
        /// Receives whether the conversation was in quarantine.
        reply: oneshot::Sender<bool>,
    },
    /// An operator puts a conversation in quarantine. The order is in force already.
    Quarantine {
        /// The conversation.
        conversation: ConversationId,
        /// Its user.
        user: UserId,
        /// Receives an answer once its Engine is stopped.
        reply: oneshot::Sender<()>,
    },
    /// An operator gives an Engine its whole restart budget again.
    ResetBudget {
        /// The conversation of the Engine.
        conversation: ConversationId,
        /// Receives the restarts that are left; `None` if the conversation has no Engine.
        reply: oneshot::Sender<Option<u32>>,
    },
}

impl Named for SupervisionMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::StartAgain(_) => "StartAgain",
            Self::Fenced { .. } => "Fenced",
            Self::Quarantined { .. } => "Quarantined",
            Self::Quarantine { .. } => "Quarantine",
            Self::ResetBudget { .. } => "ResetBudget",
            Self::Resume { .. } => "Resume",
        }
    }
}
