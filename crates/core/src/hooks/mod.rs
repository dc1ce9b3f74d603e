//! Hooks: policies that decide at fixed points of a turn whether the turn goes on.
//!
//! A hook in this process is pure, and its verdict is taken at once. A hook outside the kernel, such as a program, is asked
//! while the turn or the call waits. Verdicts are recorded, so that a replay needs no hook. All other checks still apply to
//! what a hook lets through.

mod outside;
mod rule;

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

pub use outside::{HookQuestion, OutsideHook};
pub use rule::{Agents, Conditions, RefuseRule, skill_matches, valid_hook_name, valid_skill_pattern};

use crate::{
    approval::{ApprovalMode, ApprovalPolicy},
    event::{HookAnswer, PlannedSkill},
    ids::{AgentId, ConversationId, TaskId, UserId},
    inbound::Inbound,
    outcome::floor_char_boundary,
};

#[cfg(test)]
mod tests;

/// The maximum length of the text about a failed hook, in bytes. The text is stored in the log, and a panic may print any
/// value.
const FAILURE_BYTES_MAX: usize = 500;
/// The text of a refusal that follows from a failure.
const FAILED: &str =
    "A check of the operator failed with an error, so this was refused. Ask the operator; the log has the details.";

/// A point of a turn at which hooks decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookPoint {
    /// Before a turn begins.
    BeforeTurn,
    /// Before a skill that a model or the user called is planned.
    BeforeSkill,
}

impl HookPoint {
    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BeforeTurn => "before_turn",
            Self::BeforeSkill => "before_skill",
        }
    }
}

/// The level of a hook. Hooks of a lower level decide first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HookLevel {
    /// The hook holds for all agents and skills.
    Global,
    /// The hook holds for some agents.
    Agent,
    /// The hook holds for some skills.
    Skill,
}

/// The decision of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookVerdict {
    /// The hook has no objection.
    Continue,
    /// The turn, or the call of the skill, does not happen.
    Refuse {
        /// The reason, which the model or the user receives.
        text: String,
    },
}

/// The consequence of a failed hook: it panicked, or a hook outside the kernel gave no valid verdict in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The hook counts as having refused.
    #[default]
    Refuse,
    /// The hook counts as having no objection.
    Continue,
}

impl OnFailure {
    /// The answer in place of that of a failed hook outside the kernel.
    #[must_use]
    pub fn answer(self) -> HookAnswer {
        match self {
            Self::Refuse => HookAnswer::Refuse { text: FAILED.to_owned() },
            Self::Continue => HookAnswer::Continue,
        }
    }
}

/// What a hook decides about.
#[derive(Debug, Clone, Copy)]
pub enum HookSubject<'a> {
    /// The message with which the turn begins.
    Turn(&'a Inbound),
    /// The skill with its validated arguments.
    Skill(&'a PlannedSkill),
}

/// Everything that a hook may base its verdict on.
#[derive(Debug, Clone, Copy)]
pub struct HookContext<'a> {
    /// The user of the conversation.
    pub user: &'a UserId,
    /// The channels of the messages of the turn: `http`, `cli`, `voice` … A message may steer a turn from another channel.
    pub channels: &'a [String],
    /// The conversation.
    pub conversation: ConversationId,
    /// The task of the turn.
    pub task: TaskId,
    /// The agent: the orchestrator, or a sub-agent that calls a skill.
    pub agent: &'a AgentId,
    /// The point.
    pub point: HookPoint,
    /// The turn or the skill.
    pub subject: HookSubject<'a>,
}

/// A policy. It is pure: the same context gives the same verdict, without a clock and without I/O.
pub trait Hook: Send + Sync {
    /// The name, for records and people.
    fn name(&self) -> &str;

    /// The points at which the hook decides.
    fn points(&self) -> &[HookPoint];

    /// The level, which gives the order of the hooks.
    fn level(&self) -> HookLevel {
        HookLevel::Global
    }

    /// The consequence of a panic.
    fn on_failure(&self) -> OnFailure {
        OnFailure::Refuse
    }

    /// Decides. Called only at [`Self::points`].
    fn judge(&self, at: &HookContext<'_>) -> HookVerdict;
}

/// A verdict with the hook that gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// The name of the hook.
    pub hook: String,
    /// The point.
    pub point: HookPoint,
    /// The verdict. [`HookVerdict::Continue`] only if the hook failed and its failures do not refuse.
    pub verdict: HookVerdict,
    /// The description of the hook's failure. Empty if the hook did not fail.
    pub failure: String,
}

/// A hook with what it declares, which is read once.
#[derive(Clone)]
struct Entry {
    name: String,
    points: Vec<HookPoint>,
    on_failure: OnFailure,
    hook: Arc<dyn Hook>,
}

/// All hooks, ordered by their level and then as registered. Hooks outside the kernel decide after those in this process.
#[derive(Clone, Default)]
pub struct HookSet {
    hooks: Arc<[Entry]>,
    outside: Arc<[OutsideHook]>,
    approval: Arc<ApprovalPolicy>,
}

/// The hooks of a kernel, before they are put into their order.
#[derive(Clone, Default)]
pub struct Hooks {
    /// Policies within the kernel: the rules of the configuration, then those of extensions.
    pub inside: Vec<Arc<dyn Hook>>,
    /// Hooks outside the kernel, such as programs.
    pub outside: Vec<OutsideHook>,
    /// Which calls wait for a person. A person is asked after all hooks.
    pub approval: ApprovalPolicy,
}

impl HookSet {
    /// The maximum number of configured hooks. Each call of a skill asks all hooks of that point.
    pub const HOOKS_MAX: usize = 64;

    /// The set of these hooks. Within a level they keep their order.
    #[must_use]
    pub fn new(mut hooks: Vec<Arc<dyn Hook>>) -> Self {
        hooks.sort_by_key(|hook| hook.level());
        let entry = |hook: Arc<dyn Hook>| {
            let (name, points, on_failure) = (hook.name().to_owned(), hook.points().to_vec(), hook.on_failure());
            Entry { name, points, on_failure, hook }
        };
        Self { hooks: hooks.into_iter().map(entry).collect(), ..Self::default() }
    }

    /// The same set with these hooks outside the kernel. Within a level they keep their order.
    #[must_use]
    pub fn with_outside(self, mut outside: Vec<OutsideHook>) -> Self {
        outside.sort_by_key(|hook| hook.when.level());
        Self { outside: outside.into(), ..self }
    }

    /// The same set with this policy about approvals.
    #[must_use]
    pub fn with_approval(self, approval: ApprovalPolicy) -> Self {
        Self { approval: Arc::new(approval), ..self }
    }

    /// Which calls wait for a person.
    #[must_use]
    pub fn approval(&self) -> &ApprovalPolicy {
        &self.approval
    }

    /// Whether no hook and no person decides.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hooks.is_empty()
            && self.outside.is_empty()
            && self.approval.is_off()
            && self.approval.untrusted.mode == ApprovalMode::Off
            && self.approval.untrusted.reads == ApprovalMode::Off
    }

    /// The first verdict at this point other than [`HookVerdict::Continue`]. If there is none, but a hook failed whose failures
    /// do not refuse, the first such failure, so that the caller can report it. A hook that panics fails and stops no other
    /// hook.
    #[must_use]
    pub fn judge(&self, at: &HookContext<'_>) -> Option<Decided> {
        let mut failed = None;
        for entry in self.hooks.iter().filter(|entry| entry.points.contains(&at.point)) {
            match judge_one(entry, at) {
                Some(decided) if decided.verdict != HookVerdict::Continue => return Some(decided),
                decided => failed = failed.or(decided),
            }
        }
        failed
    }

    /// The hooks outside the kernel that decide at this point, in their order.
    pub fn outside(&self, at: &HookContext<'_>) -> impl Iterator<Item = &OutsideHook> {
        self.outside.iter().filter(move |hook| hook.point == at.point && hook.when.hold(at))
    }

    /// The hook outside the kernel with this name.
    #[must_use]
    pub fn outside_named(&self, name: &str) -> Option<&OutsideHook> {
        self.outside.iter().find(|hook| hook.name == name)
    }
}

impl fmt::Debug for HookSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outside = self.outside.iter().map(|hook| &hook.name);
        f.debug_list().entries(self.hooks.iter().map(|entry| &entry.name).chain(outside)).finish()
    }
}

/// The decision of one hook; nothing if it has no objection.
fn judge_one(entry: &Entry, at: &HookContext<'_>) -> Option<Decided> {
    let (verdict, failure) = match catch_unwind(AssertUnwindSafe(|| entry.hook.judge(at))) {
        Ok(HookVerdict::Continue) => return None,
        Ok(verdict) => (verdict, String::new()),
        Err(panic) => (verdict_of_failure(entry.on_failure), format!("it panicked: {}", panic_text(&*panic))),
    };
    Some(Decided { hook: entry.name.clone(), point: at.point, verdict, failure })
}

fn verdict_of_failure(on_failure: OnFailure) -> HookVerdict {
    match on_failure {
        OnFailure::Refuse => HookVerdict::Refuse { text: FAILED.to_owned() },
        OnFailure::Continue => HookVerdict::Continue,
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("panic without a text");
    &text[..floor_char_boundary(text, FAILURE_BYTES_MAX)]
}
