//! The messages of the ownership actor.

use annie_core::{
    ids::{ConversationId, Incarnation, NodeIncarnation},
    ports::{OpenConversation, StoreError},
};

use crate::observe::Named;

/// Messages of the ownership actor.
pub enum OwnershipMsg {
    /// The parent of all Engines has started: read all open conversations.
    ConversationsStarted(Incarnation),
    /// Wake-ups may have been lost: read the open conversations from the log.
    Rescan,
    /// Another node is dead: any live node may claim its open conversations.
    NodesEnded,
    /// Messages of these conversations may be stored without a wake-up having been sent: read the log.
    Doubt(Vec<ConversationId>),
    /// Another node may have stored a message for a conversation that this node owns: read the log.
    Woken,
    /// The open conversations, as read from the log.
    Scanned {
        /// The number of the scan.
        scan: u64,
        /// The incarnation of this node for which they were read.
        by: NodeIncarnation,
        /// The conversations.
        found: Result<Vec<OpenConversation>, StoreError>,
    },
    /// The conversations active here that other nodes have claimed, each with the incarnation of its Engine here.
    Checked(Result<Vec<(ConversationId, Incarnation)>, StoreError>),
}

impl Named for OwnershipMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::ConversationsStarted(_) => "ConversationsStarted",
            Self::Rescan => "Rescan",
            Self::NodesEnded => "NodesEnded",
            Self::Doubt(_) => "Doubt",
            Self::Woken => "Woken",
            Self::Scanned { .. } => "Scanned",
            Self::Checked(_) => "Checked",
        }
    }
}
