//! Control of single agents: additions to a mission, and the end of an agent that is no longer wanted.

use serde::{Deserialize, Serialize};

use super::{Node, NodeState, Plan};
use crate::ids::AgentId;

/// A text that reaches an agent in its next round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSteer {
    /// The person; absent if the main agent of the turn steers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The text.
    pub text: String,
    /// The origins of what the main agent had read when it wrote the text. Empty for a text of a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<String>,
}

impl AgentSteer {
    /// The longest text, in bytes.
    pub const TEXT_BYTES_MAX: usize = 4 * 1024;
    /// How many texts one agent gets: each gives it a further round.
    pub const COUNT_MAX: usize = 10;

    /// Why an agent with this many texts may not get this one, in words for a person or a model.
    #[must_use]
    pub fn refusal(text: &str, count: usize) -> Option<String> {
        if text.trim().is_empty() {
            return Some("the text is empty".to_owned());
        }
        if text.len() > Self::TEXT_BYTES_MAX {
            let max = Self::TEXT_BYTES_MAX;
            return Some(format!("the text has {} bytes and at most {max} are allowed", text.len()));
        }
        let max = Self::COUNT_MAX;
        (count >= max).then(|| format!("the agent was steered {max} times already, which is the limit"))
    }
}

impl Node {
    /// Whether the agent can still be steered or stopped.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        !matches!(self.state, NodeState::Reported(_)) && self.stop.is_none()
    }
}

impl Plan {
    /// Adds a text to an agent without a report. Returns false if there is none.
    pub fn steer(&mut self, agent: &AgentId, steer: AgentSteer) -> bool {
        let node = self.node_mut(agent).filter(|node| node.is_open());
        node.map(|node| node.steering.push(steer)).is_some()
    }

    /// Records that an agent without a report is to end, and why. Returns false if there is none.
    pub fn stop(&mut self, agent: &AgentId, why: String) -> bool {
        let node = self.node_mut(agent).filter(|node| node.is_open());
        node.map(|node| node.stop = Some(why)).is_some()
    }

    /// An agent without a report that is to end, and why.
    #[must_use]
    pub fn stopped(&self) -> Option<(&Node, &str)> {
        self.unreported().find_map(|node| Some((node, node.stop.as_deref()?)))
    }
}
