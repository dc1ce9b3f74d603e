//! The catalogue of skills, their runner, and the sources that both are made of.

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

/// Lists skills and runs them. A router joins all sources to one [`Catalog`] and one [`SkillRunner`], so that the kernel knows
/// no source. A source that fails costs only its own skills.
pub trait SkillSource: Send + Sync {
    /// The name, for the log, for people, and for the service that runs [`SkillSource::changes`]: 1 to 64 lower-case letters,
    /// digits and underscores, different from that of any other source. A source with an invalid name is left out.
    fn name(&self) -> &str;

    /// The present skills, from memory. Called several times in each turn: must neither wait nor use the catalogue that the
    /// source is a part of. Every change has a higher version; the content of an equal version is not read again. The names
    /// are valid by [`valid_skill_name`](crate::skill::valid_skill_name). A skill is left out with a warning if its name is
    /// not valid, if an earlier skill has its name, however its parts are joined (`tasks__create`), if it is no command skill
    /// with a domain, or if its domain is `system`. The list must be complete when the kernel starts: a run that was
    /// interrupted is reconciled at once, and only by the source that lists its skill.
    ///
    /// # Errors
    /// The reason, for the log and for people. The skills that the source listed last stay in the catalogue. A panic counts as
    /// an error.
    fn specs(&self) -> Result<Arc<SkillSet>, String>;

    /// Runs one skill of this source, with arguments that are valid for the listed skill, and returns its outcome. Failures are
    /// outcomes, never errors; so is a skill that the source has no longer. Dropping the future aborts the run. The caller is
    /// responsible for the time limit, the breaker and panics.
    fn run(&self, call: SkillCall) -> Fut<'_, Outcome>;

    /// Determines the outcome of a `once` run whose receipt is missing. Returns `None` if the source cannot do this, which is the
    /// default.
    fn reconcile(&self, _call: SkillCall) -> Fut<'_, Option<Outcome>> {
        Box::pin(std::future::ready(None))
    }

    /// Follows the changes of the skills, so that [`SkillSource::specs`] returns the present ones: watches files, or listens to
    /// a server. Runs as a service for as long as the process serves, and may be dropped at any point. The default ends at
    /// once, for skills that never change.
    ///
    /// # Errors
    /// The reason. The service is started again after a back-off, up to ten times in a minute, and then stays stopped.
    fn changes(&self) -> Fut<'_, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
