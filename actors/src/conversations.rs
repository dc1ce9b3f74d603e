//! The parent of all Engines: finds or activates them, restarts each within its own budget, and lets idle ones passivate.
//!
//! Owns: the set of active conversations, their restart budgets, the quarantine. Supervised by: the root. Survives its
//! death: the log; the next incarnation scans it for open conversations. A conversation whose Engine keeps dying is
//! quarantined with its crash records. It is shown to operators and can be resumed, and it never affects its neighbours
//! (invariant 11).

mod others;
mod quarantine;
mod residency;
mod scan;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use annie_core::{
    event::{Event, ResumeCause},
    ids::{ConversationId, Incarnation, Seq, TaskId, UserId},
    ports::{OpenConversation, StoreError},
    time::Micros,
};
use others::{Looked, Ownership};
use quarantine::{quarantine, quarantine_open, quarantined};
use ractor::ActorId;
use residency::{Residency, activate_waiting, ensure_child};
use scan::{Wanted, scan};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::{
    engine::{AtWork, Control, Controlled, Engine, EngineArgs, EngineMsg, Passivation},
    fixed::FixedMap,
    observe::{Addr, ChildEnded, Context, EndKind, Named, Node, NodeError},
    supervise::{Budget, BudgetLimits, stop_child},
    tasks::Tasks,
    wiring::Wiring,
};

/// Deaths of one conversation's Engine before the conversation is quarantined. The limit is above a turn's own limit, so
/// that a message that kills its Engine fails first and the conversation continues without it.
const BUDGET: BudgetLimits = BudgetLimits { restarts_max: 5, window_ms: 60_000 };

/// Delay before the next attempt after an Engine could not be spawned, in milliseconds.
const START_AGAIN_MS: u64 = 200;
/// Minimum and maximum back-off of an Engine that stopped because the store was unavailable, in milliseconds.
const DEPRIVED_MS_MIN: u64 = 20;
const DEPRIVED_MS_MAX: u64 = 2_000;
/// The back-off of an Engine without a store grows while its stops come close together.
const WAITS: BudgetLimits = BudgetLimits { restarts_max: 20, window_ms: 60_000 };

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
    },
    /// A passivating Engine found or left open work. The node that owns the conversation must continue it.
    Unfinished {
        /// The conversation with open work.
        conversation: ConversationId,
        /// The owner of the conversation.
        user: UserId,
    },
    /// Wake-ups may have been lost: read the open conversations from the log.
    Rescan,
    /// Another node may have stored a message for a conversation that this node owns: read the log.
    Woken,
    /// Another node is dead: any live node may claim its open conversations.
    NodesEnded,
    /// This node was declared dead and has registered a new incarnation. Other nodes may own the conversations that are
    /// active here.
    LeaseLost,
    /// Messages of these conversations may be stored without a wake-up having been sent: read the log.
    Doubt(Vec<ConversationId>),
    /// The open conversations, as read from the log.
    Scanned(Result<Vec<OpenConversation>, StoreError>),
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
    /// Time to ask Engines for capacity again, or to activate passive conversations by turns.
    Round,
    /// A passive conversation is due.
    ActivateDue,
    /// The back-off of a conversation is over.
    StartAgain(ConversationId),
    /// An Engine was fenced: this is the present owner of its conversation.
    Fenced {
        /// The conversation of the fenced Engine.
        conversation: ConversationId,
        /// Its owner, as the store knows it.
        ownership: Result<Ownership, StoreError>,
    },
    /// The conversations active here that other nodes have claimed.
    Looked(Result<Looked, StoreError>),
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
}

impl Named for ConversationsMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Wake { .. } => "Wake",
            Self::Unfinished { .. } => "Unfinished",
            Self::Rescan => "Rescan",
            Self::Woken => "Woken",
            Self::NodesEnded => "NodesEnded",
            Self::LeaseLost => "LeaseLost",
            Self::Doubt(_) => "Doubt",
            Self::Scanned(_) => "Scanned",
            Self::Control { .. } => "Control",
            Self::MayPassivate { .. } => "MayPassivate",
            Self::StaysActive(_) => "StaysActive",
            Self::Round => "Round",
            Self::ActivateDue => "ActivateDue",
            Self::StartAgain(_) => "StartAgain",
            Self::Fenced { .. } => "Fenced",
            Self::Looked(_) => "Looked",
            Self::Quarantined { .. } => "Quarantined",
            Self::Resume { .. } => "Resume",
        }
    }

    fn again(&self) -> Option<Self> {
        let Self::Wake { conversation, user, event } = self else { return None };
        Some(Self::Wake { conversation: *conversation, user: user.clone(), event: event.clone() })
    }
}

/// A conversation whose Engine runs or is about to start.
struct Child {
    user: UserId,
    addr: Option<Addr<EngineMsg>>,
    /// Wake-ups and task controls sent to the present incarnation. The Engine may leave only after it has received all of
    /// them.
    wakes_sent: u64,
    /// The newest message of which the present incarnation was notified.
    notified_seq: Seq,
    /// The next incarnation claims the conversation even from a live node.
    takes_over: bool,
    /// Another node owns the conversation, and the present incarnation has not noticed.
    is_elsewhere: bool,
    budget: Budget,
    waits: Budget,
    /// Why the last incarnation ended, if that was abnormal.
    cause: Option<ResumeCause>,
    blamed: Option<TaskId>,
    at_work: AtWork,
    /// The age of this child: children are numbered in the order of their creation.
    number: u64,
}

pub(crate) struct ConversationsState {
    wiring: Arc<Wiring>,
    children: FixedMap<ConversationId, Child>,
    cells: HashMap<ActorId, ConversationId>,
    quarantine: BTreeMap<ConversationId, UserId>,
    residency: Residency,
    tasks: Tasks<Work>,
    /// A hint from another node arrived while an ownership check was under way: check again.
    check_again: bool,
    /// When the last complete scan finished, by the monotonic clock.
    all_at: Option<Micros>,
    /// Open conversations without an owner at the last complete scan. Another node may be about to claim them.
    unclaimed: BTreeSet<ConversationId>,
    /// Set after the first scan, which finds the conversations that were open when the process started.
    booted: bool,
    /// The conversations that the next scan takes up, and those of the scan under way.
    wanted: Wanted,
    scanning: Wanted,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Work {
    Scan,
    ScanLater,
    Listen,
    CheckOwnership,
    Backoff(ConversationId),
    Ownership(ConversationId),
    Round,
    ActivateDue,
    FailOpen(ConversationId),
}

/// The parent of all Engines.
pub(crate) struct Conversations;

impl Node for Conversations {
    type Msg = ConversationsMsg;
    type Args = Arc<Wiring>;
    type State = ConversationsState;
    const KIND: &'static str = "conversations";
    const MAILBOX_MAX: usize = 1_000_000;

    fn init(ctx: &Context<Self>, wiring: Arc<Wiring>) -> Result<ConversationsState, NodeError> {
        Ok(ConversationsState {
            wiring,
            children: FixedMap::default(),
            cells: HashMap::new(),
            quarantine: BTreeMap::new(),
            residency: Residency::default(),
            tasks: Tasks::of(ctx.branch()),
            check_again: false,
            all_at: None,
            unclaimed: BTreeSet::new(),
            booted: false,
            wanted: Wanted::default(),
            scanning: Wanted::default(),
        })
    }

    async fn ready(ctx: &Context<Self>, state: &mut ConversationsState) -> Result<(), NodeError> {
        state.wanted.all = true;
        scan(ctx, state);
        others::listen(ctx, state);
        Ok(())
    }

    async fn handle(
        ctx: &Context<Self>,
        state: &mut ConversationsState,
        msg: ConversationsMsg,
    ) -> Result<(), NodeError> {
        match msg {
            ConversationsMsg::Wake { conversation, user, event } => {
                wake(ctx, state, conversation, user, event).await;
            }
            ConversationsMsg::Unfinished { conversation, user } => {
                others::unfinished(ctx, state, conversation, user).await;
            }
            ConversationsMsg::Rescan => {
                state.wanted.all = true;
                scan(ctx, state);
            }
            ConversationsMsg::Woken => others::on_hint(ctx, state),
            ConversationsMsg::NodesEnded => others::nodes_ended(ctx, state),
            // The next incarnation starts like the first one of a process.
            ConversationsMsg::LeaseLost => return Err(NodeError::new("the lease of this process was lost")),
            ConversationsMsg::Looked(seen) => others::looked(ctx, state, seen),
            ConversationsMsg::Doubt(conversations) => {
                state.wanted.doubted.extend(conversations);
                scan(ctx, state);
            }
            ConversationsMsg::Scanned(found) => scan::scanned(ctx, state, found).await,
            ConversationsMsg::Control { conversation, user, task, control, by, reply, takes_over } => {
                // If the Engine dies while it handles the control, the requester gets a crash error and may ask again.
                if let Some(engine) = engine(ctx, state, conversation, user, takes_over).await
                    && engine.cast(EngineMsg::Control { task, control, by, reply }).is_ok()
                    && let Some(child) = state.children.get_mut(&conversation)
                {
                    child.wakes_sent += 1;
                }
            }
            ConversationsMsg::MayPassivate { conversation, incarnation, wakes_seen, passivation } => {
                residency::handle_leave_request(ctx, state, (conversation, incarnation), wakes_seen, passivation).await;
            }
            ConversationsMsg::StaysActive(conversation) => residency::stays_active(ctx, state, conversation),
            ConversationsMsg::Round => residency::round(ctx, state).await,
            ConversationsMsg::ActivateDue => residency::activate_due(ctx, state).await,
            ConversationsMsg::StartAgain(conversation) => {
                state.tasks.remove(&Work::Backoff(conversation));
                // A message that arrived meanwhile may have started the Engine already.
                if state.children.get(&conversation).is_some_and(|child| child.addr.is_none()) {
                    start(ctx, state, conversation).await;
                }
            }
            ConversationsMsg::Fenced { conversation, ownership } => {
                others::fenced(ctx, state, conversation, ownership).await;
            }
            ConversationsMsg::Quarantined { conversation, outcome } => {
                quarantined(ctx, state, conversation, outcome).await
            }
            ConversationsMsg::Resume { conversation, reply } => {
                // Open turns that were not failed yet continue.
                state.tasks.remove(&Work::FailOpen(conversation));
                let user = state.quarantine.remove(&conversation);
                let _ = reply.send(user.is_some());
                if let Some(user) = user {
                    wake(ctx, state, conversation, user, None).await;
                }
            }
        }
        Ok(())
    }

    async fn child_ended(
        ctx: &Context<Self>,
        state: &mut ConversationsState,
        ended: ChildEnded,
    ) -> Result<(), NodeError> {
        let Some(conversation) = state.cells.remove(&ended.id) else { return Ok(()) };
        let Some(child) = state.children.get_mut(&conversation) else { return Ok(()) };
        // A detached Engine has a successor in its slot, which may not have started yet.
        if child.addr.as_ref().is_none_or(|a| a.cell.get_id() != ended.id) {
            return Ok(());
        }
        child.addr = None;
        // If this Engine was asked to free capacity, no answer will come.
        residency::stays_active(ctx, state, conversation);
        let Some(child) = state.children.get_mut(&conversation) else { return Ok(()) };
        if child.is_elsewhere {
            // However the Engine ended, another node owns the conversation, and a new Engine here would claim it from that
            // node.
            others::ask_owner(ctx, state, conversation, 0);
            return Ok(());
        }
        if ended.kind == EndKind::Stopped {
            // An operator wanted a fresh incarnation, not an abandoned turn: no message is to blame.
            child.cause = Some(ResumeCause::Bystander);
            start(ctx, state, conversation).await;
            return Ok(());
        }
        if ended.kind == EndKind::Done {
            // An Engine that stops without an error was fenced.
            others::ask_owner(ctx, state, conversation, 0);
            return Ok(());
        }
        if let EndKind::Deprived(why) = &ended.kind {
            // Neither the conversation nor its message caused this, so the restart budget and the crash counters are not
            // charged. The Engine starts again after the back-off.
            tracing::warn!(%conversation, why, "the store is unavailable, the Engine backs off");
            let wait_ms = child.waits.died(ctx.now()).unwrap_or(DEPRIVED_MS_MAX).min(DEPRIVED_MS_MAX);
            start_later(ctx, state, conversation, wait_ms.max(DEPRIVED_MS_MIN));
            return Ok(());
        }
        (child.cause, child.blamed) = (Some(ResumeCause::Crash), child.at_work.blamed());
        if !start_again(ctx, state, conversation).await {
            quarantine(ctx, state, conversation);
            activate_waiting(ctx, state).await;
        }
        Ok(())
    }

    async fn stopping(_ctx: &Context<Self>, state: &mut ConversationsState) {
        let engines = state.children.values_mut().filter_map(|s| s.addr.take());
        let stops: Vec<_> = engines.map(|a| async move { stop_child(&a.cell, Duration::from_secs(5)).await }).collect();
        futures_util::future::join_all(stops).await;
    }

    fn view(state: &ConversationsState) -> Value {
        let elsewhere = state.children.values().filter(|child| child.is_elsewhere).count();
        json!({
            "booted": state.booted, "active": state.cells.len(), "elsewhere": elsewhere,
            "waiting_for_capacity": state.residency.waiting(), "passive": state.residency.passive_count(),
            "quarantine": state.quarantine.keys().collect::<Vec<_>>()
        })
    }
}

/// Restarts an Engine after the wait that its budget asks for. Returns false if the budget is used up.
async fn start_again(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
) -> bool {
    let Some(child) = state.children.get_mut(&conversation) else { return true };
    metrics::counter!("annie_actor_restarts_total", "kind" => "engine").increment(1);
    match child.budget.died(ctx.now()) {
        Some(0) => start(ctx, state, conversation).await,
        Some(wait_ms) => start_later(ctx, state, conversation, wait_ms),
        None => return false,
    }
    true
}

/// The monotonic time. Setting back the wall clock must not prolong any wait.
fn steady(ctx: &Context<Conversations>) -> Micros {
    Micros(i64::try_from(ctx.env().clock.monotonic_us()).unwrap_or(i64::MAX))
}

fn new_child(user: UserId, cause: Option<ResumeCause>, number: u64) -> Child {
    let (budget, waits) = (Budget::new(BUDGET), Budget::new(WAITS));
    Child {
        user,
        addr: None,
        wakes_sent: 0,
        notified_seq: Seq(0),
        takes_over: false,
        is_elsewhere: false,
        budget,
        waits,
        cause,
        blamed: None,
        at_work: AtWork::default(),
        number,
    }
}

async fn wake(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    user: UserId,
    event: Option<Arc<Event>>,
) {
    let is_active = state.children.get(&conversation).is_some_and(|s| s.addr.is_some() && !s.is_elsewhere);
    let seq = event.as_ref().map(|event| event.seq);
    let Some(engine) = engine(ctx, state, conversation, user, false).await else { return };
    let Some(child) = state.children.get_mut(&conversation) else { return };
    // An Engine that is activated by a message reads that message from the log.
    if is_active {
        child.wakes_sent += u64::from(engine.tell(EngineMsg::Wake(event)));
    }
    child.notified_seq = child.notified_seq.max(seq.unwrap_or_default());
}

/// Returns the Engine of a conversation and activates it if necessary. Returns `None` if the conversation is quarantined,
/// backing off, or waiting for capacity.
async fn engine(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    user: UserId,
    takes_over: bool,
) -> Option<Addr<EngineMsg>> {
    if state.quarantine.contains_key(&conversation) {
        quarantine_open(ctx, state, conversation);
        return None;
    }
    if !ensure_child(ctx, state, conversation, &user, None) {
        return None;
    }
    if let Some(child) = state.children.get_mut(&conversation).filter(|child| child.is_elsewhere)
        && let Some(fenced_engine) = child.addr.take()
    {
        // The store refuses everything that the fenced Engine writes from now on.
        state.cells.remove(&fenced_engine.cell.get_id());
        fenced_engine.cell.stop(None);
        residency::stays_active(ctx, state, conversation);
    }
    if let Some(child) = state.children.get_mut(&conversation).filter(|child| child.addr.is_none()) {
        child.takes_over |= takes_over;
    }
    if state.children.get(&conversation).is_some_and(|s| s.addr.is_none())
        && !state.tasks.contains(&Work::Backoff(conversation))
    {
        start(ctx, state, conversation).await;
    }
    state.children.get(&conversation).and_then(|s| s.addr.clone())
}

async fn start(ctx: &Context<Conversations>, state: &mut ConversationsState, conversation: ConversationId) {
    let Some(child) = state.children.get_mut(&conversation) else { return };
    let (user, cause, blamed) = (child.user.clone(), child.cause, child.blamed);
    child.at_work = AtWork::after(blamed);
    let at_work = child.at_work.clone();
    let takes_over = std::mem::take(&mut child.takes_over);
    let args = EngineArgs { wiring: state.wiring.clone(), conversation, user, cause, blamed, at_work, takes_over };
    match ctx.spawn::<Engine>(&format!("engine:{conversation}"), args).await {
        Ok(addr) => {
            state.cells.insert(addr.cell.get_id(), conversation);
            child.wakes_sent = 0;
            (child.notified_seq, child.is_elsewhere) = (Seq(0), false);
            (child.cause, child.blamed) = (None, None);
            child.addr = Some(addr);
        }
        Err(e) => {
            tracing::warn!(%conversation, error = %e, "engine did not start");
            start_later(ctx, state, conversation, START_AGAIN_MS);
        }
    }
}

fn start_later(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    wait_ms: u64,
) {
    let me = ctx.me();
    state.tasks.spawn(Work::Backoff(conversation), async move {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        me.tell(ConversationsMsg::StartAgain(conversation));
    });
}
