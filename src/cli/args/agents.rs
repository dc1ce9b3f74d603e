//! The arguments of `annie agents`.

use std::str::FromStr;

use annie_core::ids::{ConversationId, TaskId};
use clap::Subcommand;

use super::Named;

/// `annie agents`
#[derive(Debug, Clone, Subcommand)]
pub enum Agents {
    /// List the sub-agents that have not reported
    List {
        /// Only those of this conversation: its id or your name for it
        #[arg(value_name = "ID|NAME", value_parser = Named::parse)]
        conversation: Option<Named>,
    },
    /// Add a text to the mission of an agent, which it sees in its next round
    Steer {
        /// The agent, as `annie agents list` shows it
        #[arg(value_name = "CONVERSATION/AGENT")]
        of: AgentOf,
        /// What it is to know or to do differently
        #[arg(required = true)]
        text: Vec<String>,
        /// Its task, if several tasks of the conversation have an agent with this name
        #[arg(long, value_name = "TASK")]
        task: Option<TaskId>,
    },
    /// End an agent; the others continue
    Stop {
        /// The agent, as `annie agents list` shows it
        #[arg(value_name = "CONVERSATION/AGENT")]
        of: AgentOf,
        /// The reason, for the orchestrator and the user
        reason: Vec<String>,
        /// Its task, if several tasks of the conversation have an agent with this name
        #[arg(long, value_name = "TASK")]
        task: Option<TaskId>,
    },
}

/// A sub-agent of a conversation: `CONVERSATION/AGENT`.
#[derive(Debug, Clone)]
pub struct AgentOf {
    /// The conversation.
    pub conversation: ConversationId,
    /// The name of the agent.
    pub agent: String,
}

impl FromStr for AgentOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (conversation, agent) = text
            .split_once('/')
            .ok_or_else(|| "write CONVERSATION/AGENT, such as conv_0198…/task_search".to_owned())?;
        let conversation = conversation.parse().map_err(|e| format!("{e}"))?;
        Ok(Self { conversation, agent: agent.to_owned() })
    }
}
