//! The state of one conversation as a fold over its events. Only events change the state, and only in the functions of the
//! concerns, so a replay gives the same state (invariant 5).

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::{
    concern::{
        Agents, Approval, ApprovedSkill, Carried, Clock, Compaction, Control, Deferral, JobCommand, Joined, Lane,
        Paused, Pending, Recovery, Retries, Steering,
    },
    provenance::Provenance,
    run::AgentRun,
};
use crate::{
    context::History,
    event::{EventBody, Inbound, Mode, PromptFacts},
    guard::CallTimes,
    ids::{ConversationId, Seq, TaskId, UserId},
    limits::TurnLimits,
    loop_guard::LoopGuard,
    ports::Snapshot,
    receipt::Receipt,
    skill::ActiveSkill,
    time::Micros,
};

/// The version of the serialised state. A snapshot of an older version is ignored, and the log is read instead.
pub const STATE_VERSION: u16 = 15;

/// A turn that has begun and has no final event yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Its task.
    pub task: TaskId,
    /// The message, without its preamble.
    pub inbound: Inbound,
    /// The mode in which the turn runs.
    pub mode: Mode,
    /// The limits of the turn.
    pub limits: TurnLimits,
    /// The facts that its prompts are built from.
    pub facts: PromptFacts,
    /// The main agent, which answers the user.
    pub main: AgentRun,
    /// Its sub-agents.
    pub agents: Agents,
    /// When the turn began.
    pub started_at: Micros,
    /// The backends that may run its rounds, the preferred one first. If empty, the first configured backend runs them.
    pub route: Vec<String>,
    /// The lane of its class.
    pub lane: Lane,
    /// Its cancellation and suspension.
    pub control: Control,
    /// The state of its deferral.
    pub deferral: Deferral,
    /// The state of its deadlines.
    pub clock: Clock,
    /// Its failed attempts.
    pub retries: Retries,
    /// Its interruptions.
    pub recovery: Recovery,
    /// Its steering messages.
    pub(super) steering: Steering,
    /// Notes of the kernel to the model, which are delivered before the next round.
    pub(super) notes: Vec<String>,
    /// How often the model was notified that its answer does not have the requested format.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub(super) format_repairs: u32,
    /// The requests to a person about its calls, in the order of their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Approval>,
    /// The skill that was active when the turn began, whose instructions are in the system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) active_skill: Option<ActiveSkill>,
}

/// The state of one conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// The conversation's id.
    pub id: ConversationId,
    /// The user that the conversation belongs to.
    pub user: UserId,
    /// The sequence number of the last folded event.
    pub seq: Seq,
    /// When the Engine last recorded an event.
    pub at: Micros,
    /// The finished turns, as later turns see them.
    pub history: History,
    /// Accepted messages whose turn has not begun, oldest first.
    pub inbox: VecDeque<Pending>,
    /// Job commands that are not carried out yet.
    pub job_commands: Vec<JobCommand>,
    /// Messages that receive the answer of another task.
    pub joined: Vec<Joined>,
    /// Pending messages, job commands, joined messages and steering messages whose cancellation was requested.
    pub cancelled: Vec<TaskId>,
    /// Final events that still have to be recorded for tasks that receive another task's answer.
    pub(super) owed: VecDeque<(TaskId, EventBody)>,
    /// The turns without a final event, in the order in which they began: at most one in each lane, and the detached turns.
    pub turns: Vec<Turn>,
    /// The last turn that paused at a limit. A front-lane turn that ends without a pause clears it.
    pub paused: Option<Paused>,
    /// The receipts of the last effects of finished turns, oldest first, at most as many as later turns may mention.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub(super) receipts: VecDeque<Receipt>,
    /// The sources of what its turns have read: see [`Provenance`].
    #[serde(default, skip_serializing_if = "Provenance::is_empty")]
    pub known: Provenance,
    /// The skills of which calls were approved, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approved: Vec<ApprovedSkill>,
    /// When a request for an approval was last made or decided. A word that is older does not decide one.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub(super) approvals_at: Micros,
    /// What the loop guards of its ended turns observed.
    #[serde(default, skip_serializing_if = "LoopGuard::is_new")]
    pub(super) loop_guard: LoopGuard,
    /// The times of skill calls, oldest first: the sliding window.
    pub window: VecDeque<Micros>,
    /// The tasks that ended last, oldest first.
    #[serde(default)]
    pub finished: VecDeque<TaskId>,
    /// When each lane was last free.
    pub(super) free_from: [Micros; Lane::ALL.len()],
    /// The conversation appears in lists, because not all of its messages are stateless calls.
    #[serde(default = "listed", skip_serializing_if = "is_true")]
    pub is_listed: bool,
    /// The active skill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) active_skill: Option<Carried>,
    /// How often each prompt skill began in this conversation. The least used skills are left out of prompts first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub skill_uses: BTreeMap<String, u32>,
    /// The model calls of its agents, by the minute. Those of a sub-agent are added with its report.
    #[serde(default, skip_serializing_if = "CallTimes::is_empty")]
    pub(super) model_calls: CallTimes,
    /// Its compactions.
    #[serde(default, skip_serializing_if = "Compaction::is_unused")]
    pub(super) compaction: Compaction,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_true(listed: &bool) -> bool {
    *listed
}

/// The default for older snapshots.
const fn listed() -> bool {
    true
}

impl Conversation {
    /// The model calls of its agents, by the minute.
    #[must_use]
    pub const fn call_times(&self) -> &CallTimes {
        &self.model_calls
    }

    /// A conversation without events.
    #[must_use]
    pub fn new(id: ConversationId, user: UserId) -> Self {
        Self {
            id,
            user,
            seq: Seq(0),
            at: Micros(0),
            history: History::default(),
            inbox: VecDeque::new(),
            job_commands: Vec::new(),
            joined: Vec::new(),
            cancelled: Vec::new(),
            owed: VecDeque::new(),
            turns: Vec::new(),
            paused: None,
            receipts: VecDeque::new(),
            known: Provenance::default(),
            approved: Vec::new(),
            approvals_at: Micros(0),
            loop_guard: LoopGuard::default(),
            window: VecDeque::new(),
            finished: VecDeque::new(),
            free_from: [Micros(0); Lane::ALL.len()],
            is_listed: false,
            active_skill: None,
            skill_uses: BTreeMap::new(),
            model_calls: CallTimes::default(),
            compaction: Compaction::default(),
        }
    }

    /// The state of a stored snapshot.
    ///
    /// # Errors
    /// If the snapshot has another version, cannot be read, or is not a state of this conversation at its sequence number. The log
    /// must be read instead.
    pub fn of_snapshot(snapshot: &Snapshot, id: ConversationId, user: &UserId) -> Result<Self, String> {
        if snapshot.v != STATE_VERSION {
            return Err(format!("it has version {}, not {STATE_VERSION}", snapshot.v));
        }
        let state: Self = serde_json::from_str(&snapshot.state).map_err(|e| e.to_string())?;
        if state.id != id {
            return Err(format!("it is of conversation {}", state.id));
        }
        if state.user != *user {
            return Err("it is of another user".to_owned());
        }
        if state.seq != snapshot.seq {
            return Err(format!(
                "it is stored as that of event {}, and contains the state at {}",
                snapshot.seq, state.seq
            ));
        }
        Ok(state)
    }

    /// Whether no work is running or pending, except suspended work.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.turns.iter().all(Turn::is_at_rest)
            && self.inbox.iter().all(|p| p.is_suspended)
            && self.job_commands.is_empty()
            && self.owed.is_empty()
    }

    /// The open turn of a task.
    #[must_use]
    pub fn turn(&self, task: TaskId) -> Option<&Turn> {
        self.turns.iter().find(|t| t.task == task)
    }

    /// Whether a task is accepted and has no final event yet.
    #[must_use]
    pub fn is_open(&self, task: TaskId) -> bool {
        self.turn(task).is_some()
            || self.inbox.iter().any(|p| p.task == task)
            || self.job_commands.iter().any(|o| o.task == task)
            || self.joined.iter().any(|j| j.task == task)
            || self.turns.iter().any(|t| t.is_steered_by(task))
            || self.owed.iter().any(|(owed, _)| *owed == task)
    }
}
