//! The state of the parent of all Engines.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use annie_core::{
    event::ResumeCause,
    ids::{ConversationId, Seq, TaskId, UserId},
    time::Micros,
};
use ractor::ActorId;

use super::residency::Residency;
use crate::{
    engine::{AtWork, EngineMsg},
    fixed::FixedMap,
    observe::{Addr, Context},
    opening::Opening,
    supervise::{Budget, BudgetLimits},
    tasks::Tasks,
    wiring::Wiring,
};

/// Deaths of one conversation's Engine before the conversation is quarantined. The limit is above a turn's own limit, so
/// that a message that kills its Engine fails first and the conversation continues without it.
const BUDGET: BudgetLimits = BudgetLimits { restarts_max: 5, window_ms: 60_000 };
/// The back-off of an Engine without a store grows while its stops come close together.
const WAITS: BudgetLimits = BudgetLimits { restarts_max: 20, window_ms: 60_000 };

/// The parent of all Engines.
pub(crate) struct Conversations;

/// A conversation whose Engine runs or is about to start.
pub(super) struct Child {
    pub user: UserId,
    pub addr: Option<Addr<EngineMsg>>,
    /// Wake-ups and task controls sent to the present incarnation. The Engine may leave only after it has received all of
    /// them.
    pub wakes_sent: u64,
    /// The newest message of which the present incarnation was notified.
    pub notified_seq: Seq,
    /// The next incarnation claims the conversation even from a live node.
    pub takes_over: bool,
    /// The conversation is new and this node's: the next incarnation needs no claim.
    pub opening: Option<Opening>,
    /// Another node owns the conversation, and the present incarnation has not noticed.
    pub is_elsewhere: bool,
    pub budget: Budget,
    pub waits: Budget,
    /// Why the last incarnation ended, if that was abnormal.
    pub cause: Option<ResumeCause>,
    pub blamed: Option<TaskId>,
    pub at_work: AtWork,
    /// The age of this child: children are numbered in the order of their creation.
    pub number: u64,
}

pub(crate) struct ConversationsState {
    pub(super) wiring: Arc<Wiring>,
    pub(super) children: FixedMap<ConversationId, Child>,
    pub(super) cells: HashMap<ActorId, ConversationId>,
    pub(super) quarantine: BTreeMap<ConversationId, UserId>,
    pub(super) residency: Residency,
    pub(super) tasks: Tasks<Work>,
    /// Set after the first complete scan, which finds the conversations that were open when the process started.
    pub(super) booted: bool,
}

/// The purposes of the parent's tasks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Work {
    Backoff(ConversationId),
    Owner(ConversationId),
    Round,
    ActivateDue,
    FailOpen(ConversationId),
}

/// The monotonic time. Setting back the wall clock must not prolong any wait.
pub(super) fn steady(ctx: &Context<Conversations>) -> Micros {
    Micros(i64::try_from(ctx.env().clock.monotonic_us()).unwrap_or(i64::MAX))
}

pub(super) fn new_child(user: UserId, cause: Option<ResumeCause>, number: u64) -> Child {
    let (budget, waits) = (Budget::new(BUDGET), Budget::new(WAITS));
    Child {
        user,
        addr: None,
        wakes_sent: 0,
        notified_seq: Seq(0),
        takes_over: false,
        opening: None,
        is_elsewhere: false,
        budget,
        waits,
        cause,
        blamed: None,
        at_work: AtWork::default(),
        number,
    }
}
