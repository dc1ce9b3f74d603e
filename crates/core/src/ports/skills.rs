//! The catalogue of skills and who runs them.

use std::{fmt, sync::Arc};

use serde_json::Value;

use super::Fut;
use crate::{
    ids::{AgentId, ConversationId, IntentId, OperationId, TaskId, UserId},
    outcome::Outcome,
    skill::SkillSet,
    time::Micros,
};

/// Knows the skills as they are now.
pub trait Catalog: Send + Sync {
    /// The present picture; cheap.
    fn skills(&self) -> Arc<SkillSet>;
}

/// One run of a skill, with everything that it may know.
#[derive(Debug, Clone, PartialEq)]
pub struct SkillCall {
    /// The idempotency key.
    pub intent: IntentId,
    /// The skill.
    pub skill: String,
    /// Validated arguments.
    pub arguments: Value,
    /// What its author had read before, other than the user's words. What it stores carries this as a tag,
    /// [`ORIGIN_TAG`](crate::skill::ORIGIN_TAG).
    pub origin: Vec<String>,
    /// For whom.
    pub user: UserId,
    /// In which conversation.
    pub conversation: ConversationId,
    /// In which task.
    pub task: TaskId,
    /// By which agent.
    pub agent: AgentId,
    /// When it was started.
    pub now: Micros,
    /// IANA name of the user's time zone.
    pub timezone: String,
    /// What it may start if its result takes longer than a turn: it answers [`Outcome::pending`] with this id.
    pub operation: OperationGrant,
}

/// The right to bring a result later.
#[derive(Clone, PartialEq, Eq)]
pub struct OperationGrant {
    /// Under which id.
    pub id: OperationId,
    /// What whoever brings the result has to show; a secret, good for this operation alone.
    pub key: String,
    /// Where the result is brought, as a path of the HTTP door.
    pub path: String,
}

impl fmt::Debug for OperationGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperationGrant").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Runs skills. Dropping the future aborts the run; time limit, breaker and panics are the caller's care.
pub trait SkillRunner: Send + Sync {
    /// Runs one skill to its outcome. Failures are outcomes, never errors.
    fn run(&self, call: SkillCall) -> Fut<'_, Outcome>;

    /// Finds out what became of a `once` run whose receipt is missing, if the skill can: `None` if it cannot.
    fn reconcile(&self, call: SkillCall) -> Fut<'_, Option<Outcome>>;
}
