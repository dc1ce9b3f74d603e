//! The catalogue of skills, and their runner.

use std::{fmt, sync::Arc};

use serde_json::Value;

use super::Fut;
use crate::{
    ids::{AgentId, ConversationId, IntentId, OperationId, TaskId, UserId},
    outcome::Outcome,
    skill::SkillSet,
    time::Micros,
};

/// Provides the current skills.
pub trait Catalog: Send + Sync {
    /// The current snapshot of all skills. Cheap.
    fn skills(&self) -> Arc<SkillSet>;
}

/// One run of a skill, with all the data that the skill receives.
#[derive(Debug, Clone, PartialEq)]
pub struct SkillCall {
    /// The idempotency key.
    pub intent: IntentId,
    /// The skill.
    pub skill: String,
    /// Validated arguments.
    pub arguments: Value,
    /// The sources other than the user's words that the author had read before. Data that the run stores carries them as the
    /// tag [`ORIGIN_TAG`](crate::skill::ORIGIN_TAG).
    pub origin: Vec<String>,
    /// The user.
    pub user: UserId,
    /// The conversation.
    pub conversation: ConversationId,
    /// The task.
    pub task: TaskId,
    /// The agent that requested the run.
    pub agent: AgentId,
    /// Time of the start.
    pub now: Micros,
    /// IANA name of the user's time zone.
    pub timezone: String,
    /// The operation that the skill may start if its result takes longer than a turn: it then returns [`Outcome::pending`]
    /// with this id.
    pub operation: OperationGrant,
}

/// The permission to deliver a result later.
#[derive(Clone, PartialEq, Eq)]
pub struct OperationGrant {
    /// The operation's id.
    pub id: OperationId,
    /// The secret that authenticates the result's sender. Valid for this operation only.
    pub key: String,
    /// The path of the HTTP API to which the result is sent.
    pub path: String,
}

impl fmt::Debug for OperationGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperationGrant").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Runs skills. Dropping the future aborts the run. The caller is responsible for the time limit, the breaker and panics.
pub trait SkillRunner: Send + Sync {
    /// Runs one skill and returns its outcome. Failures are outcomes, never errors.
    fn run(&self, call: SkillCall) -> Fut<'_, Outcome>;

    /// Determines the outcome of a `once` run whose receipt is missing. Returns `None` if the skill cannot do this.
    fn reconcile(&self, call: SkillCall) -> Fut<'_, Option<Outcome>>;
}
