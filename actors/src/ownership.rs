//! Reads which conversations this node must continue: the open ones that it owns, that dead nodes owned, or that no node
//! owns; and which active conversations other nodes have claimed. The parent of all Engines acts on both.
//!
//! No message passes through this actor on its way to an Engine: a wake-up that the log writer sends goes to the parent of
//! all Engines. Scans find the messages whose wake-up was lost, or that another node stored.
//!
//! Owns: the requests for scans. Supervised by: the root. Survives its death: the log and the table of nodes; the next
//! incarnation reads all open conversations.

mod messages;
mod owner;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use annie_core::{
    event::Scope,
    ids::{ConversationId, Incarnation, NodeIncarnation},
    ports::{Before, OpenConversation, StoreError},
    time::Micros,
};
pub use messages::OwnershipMsg;
pub use owner::{Owner, read_owner};
use owner::{ask, broken};
use serde_json::{Value, json};

use crate::{
    conversations::{ConversationsMsg, OpenWork, OwnershipNews},
    observe::{Context, Node, NodeError, SendError},
    scheduler::{SchedulerMsg, TableMsg},
    tasks::{Tasks, caught},
    wiring::Wiring,
};

/// Time limit of one scan, in milliseconds.
const SCAN_MS_MAX: u64 = 30_000;
/// Time limit for the list of active Engines, in milliseconds.
const ACTIVE_MS_MAX: u64 = 5_000;
/// Minimum interval between two hints of other nodes that are acted on, in milliseconds.
const WOKEN_MS_MIN: u64 = 100;
/// Delay from a hint to the check which conversations other nodes have claimed, in milliseconds: one check serves many
/// hints.
const CHECK_MS: u64 = 1_000;
/// Interval between two scans for conversations that dead nodes left or that no node has claimed, in milliseconds. Both are
/// scanned for at once when a node is declared dead; the periodic scan finds what was missed.
const LEFT_MS: u64 = 60_000;
/// How many conversations the ownership check reads: the most recently updated ones.
const NEWEST_MAX: u32 = 500;

/// The conversations that a scan takes up, among the open ones that this node owns or that no live node owns.
#[derive(Default)]
struct Wanted {
    /// Everything: a wake-up of this process may have been lost, or another node is dead.
    all: bool,
    /// Everything except conversations without an owner: the node that stored a message a moment ago is about to claim them.
    claimed: bool,
    /// Conversations that this node owns: another node may have stored a message for one of them.
    ours: bool,
    /// Conversations for which a message may be stored without a wake-up having been sent.
    doubted: BTreeSet<ConversationId>,
    /// The incarnation of the parent of all Engines that asked for everything when it started.
    started: Option<Incarnation>,
}

impl Wanted {
    fn is_nothing(&self) -> bool {
        !self.all && !self.claimed && !self.ours && self.doubted.is_empty()
    }

    fn add(&mut self, mut other: Self) {
        self.all |= other.all;
        self.claimed |= other.claimed;
        self.ours |= other.ours;
        self.doubted.append(&mut other.doubted);
        self.started = self.started.or(other.started);
    }
}

pub(crate) struct OwnershipState {
    wiring: Arc<Wiring>,
    tasks: Tasks<Work>,
    /// The conversations that the next scan takes up, and those of the scan under way.
    wanted: Wanted,
    scanning: Wanted,
    /// The number of scans begun. The result of an earlier one than the last is dropped.
    scans: u64,
    /// When the last scan for all or for claimed conversations finished, by the monotonic clock.
    all_at: Option<Micros>,
    /// Open conversations without an owner at that scan. Another node may be about to claim them.
    unclaimed: BTreeSet<ConversationId>,
    /// A hint from another node arrived while an ownership check was under way: check again.
    check_again: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Work {
    Scan,
    ScanLater,
    Listen,
    Check,
}

/// The ownership actor.
pub(crate) struct Ownership;

impl Node for Ownership {
    type Msg = OwnershipMsg;
    type Args = Arc<Wiring>;
    type State = OwnershipState;
    const KIND: &'static str = "ownership";
    const MAILBOX_MAX: usize = 100_000;

    fn init(ctx: &Context<Self>, wiring: Arc<Wiring>) -> Result<OwnershipState, NodeError> {
        Ok(OwnershipState {
            wiring,
            tasks: Tasks::of(ctx.branch()),
            wanted: Wanted::default(),
            scanning: Wanted::default(),
            scans: 0,
            all_at: None,
            unclaimed: BTreeSet::new(),
            check_again: false,
        })
    }

    async fn ready(ctx: &Context<Self>, state: &mut OwnershipState) -> Result<(), NodeError> {
        state.wanted.all = true;
        scan(ctx, state);
        listen(ctx, state);
        if state.wiring.store.is_shared() {
            // The last incarnation may have died with a hint that it had not handled.
            ctx.me().tell(OwnershipMsg::Woken);
        }
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut OwnershipState, msg: OwnershipMsg) -> Result<(), NodeError> {
        match msg {
            OwnershipMsg::ConversationsStarted(incarnation) => {
                // The scan under way began before the parent's wake-ups were lost, and may hang in a frozen store.
                state.tasks.remove(&Work::Scan);
                state.wanted.add(std::mem::take(&mut state.scanning));
                (state.wanted.all, state.wanted.started) = (true, Some(incarnation));
                scan(ctx, state);
                // The last incarnation may have died with a hint that it had not handled.
                state.wiring.conversations.tell(ConversationsMsg::Ownership(OwnershipNews::StoredByOthers));
            }
            // Every live node takes a dead node's open conversations that it is first to claim. The dead node may also have
            // stored a message without having claimed the conversation.
            OwnershipMsg::Rescan | OwnershipMsg::NodesEnded => {
                state.wanted.all = true;
                scan(ctx, state);
            }
            OwnershipMsg::Doubt(conversations) => {
                state.wanted.doubted.extend(conversations);
                scan(ctx, state);
            }
            OwnershipMsg::Woken => on_hint(ctx, state),
            OwnershipMsg::Scanned { scan, by, found } if scan == state.scans => scanned(ctx, state, by, found),
            OwnershipMsg::Scanned { .. } => {}
            OwnershipMsg::Checked(elsewhere) => checked(ctx, state, elsewhere),
        }
        Ok(())
    }

    fn view(state: &OwnershipState) -> Value {
        json!({
            "scanning": state.tasks.contains(&Work::Scan), "scan_wanted": !state.wanted.is_nothing(),
            "unclaimed": state.unclaimed.len()
        })
    }
}

/// The monotonic time. Setting back the wall clock must not prolong any wait.
fn steady(ctx: &Context<Ownership>) -> Micros {
    Micros(i64::try_from(ctx.env().clock.monotonic_us()).unwrap_or(i64::MAX))
}

/// Reads the open conversations that this node owns or that no live node owns. Requests that come while a scan runs are
/// served by the next scan: restarting the scan at every hint would keep it from ever finishing.
fn scan(ctx: &Context<Ownership>, state: &mut OwnershipState) {
    const WHAT: &str = "open_for";
    if state.tasks.contains(&Work::Scan) {
        return;
    }
    state.scanning = std::mem::take(&mut state.wanted);
    state.scans += 1;
    let scan = state.scans;
    let (store, me, by) = (state.wiring.store.clone(), ctx.me(), state.wiring.lease.incarnation());
    // With `settled`, commits whose callers gave up waiting are decided before the scan reads. A scan for hints of other
    // nodes alone does not need that, because a hint is sent only for a message that is stored.
    let settled = state.scanning.all || state.scanning.claimed || !state.scanning.doubted.is_empty();
    state.tasks.spawn(Work::Scan, async move {
        let wait = Duration::from_millis(SCAN_MS_MAX);
        let found = match tokio::time::timeout(wait, caught(store.open_for(by, settled))).await {
            Ok(found) => found.unwrap_or_else(|panic| Err(broken(WHAT, panic))),
            Err(_) => Err(broken(WHAT, format!("no answer within {SCAN_MS_MAX} ms"))),
        };
        // If the message is lost, this incarnation has ended, and the next one scans for everything.
        me.tell(OwnershipMsg::Scanned { scan, by, found });
    });
}

/// Handles the result of a scan. A scan that failed is repeated after a second, or with the next request.
fn scanned(
    ctx: &Context<Ownership>,
    state: &mut OwnershipState,
    by: NodeIncarnation,
    found: Result<Vec<OpenConversation>, StoreError>,
) {
    state.tasks.remove(&Work::Scan);
    let wanted = std::mem::take(&mut state.scanning);
    let open = match found {
        Ok(open) => open,
        Err(e) => {
            tracing::error!(error = %e, "the log could not be scanned for open conversations, trying again");
            state.wanted.add(wanted);
            let me = ctx.me();
            state.tasks.spawn(Work::ScanLater, async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                me.tell(OwnershipMsg::Doubt(Vec::new()));
            });
            return;
        }
    };
    let me = state.wiring.lease.incarnation();
    if by != me {
        // The lease was lost and acquired again while the scan ran, so the scan read for an incarnation that is dead.
        state.wanted.add(wanted);
        scan(ctx, state);
        return;
    }
    let unclaimed = open.iter().filter(|found| found.owner.is_none()).map(|found| found.id).collect();
    let still_unclaimed = if wanted.all || wanted.claimed {
        state.all_at = Some(steady(ctx));
        std::mem::replace(&mut state.unclaimed, unclaimed)
    } else {
        BTreeSet::new()
    };
    let mut taken_up = Vec::new();
    for found in open {
        let is_wanted = match found.owner {
            Some(owner) if owner == me => wanted.all || wanted.claimed || wanted.ours,
            Some(_) => wanted.all || wanted.claimed,
            None => wanted.all || still_unclaimed.contains(&found.id),
        };
        let is_doubted = wanted.doubted.contains(&found.id);
        if is_wanted || is_doubted {
            let is_orphan = found.owner.is_some_and(|owner| owner != me);
            taken_up.push(OpenWork { found, is_orphan, only_news: !wanted.all && !is_doubted });
        }
    }
    if wanted.all || !taken_up.is_empty() {
        let news = OwnershipNews::Opened { open: taken_up, is_complete: wanted.all, started: wanted.started };
        // If the parent of all Engines is dead, its next incarnation asks for everything.
        state.wiring.conversations.tell(ConversationsMsg::Ownership(news));
    }
    if !state.wanted.is_nothing() {
        scan(ctx, state);
    }
}

// Other nodes on the same database

/// Listens for hints that other nodes stored something. The pause merges many hints into one.
fn listen(ctx: &Context<Ownership>, state: &mut OwnershipState) {
    let (store, me) = (state.wiring.store.clone(), ctx.me());
    state.tasks.spawn(Work::Listen, async move {
        loop {
            store.woken().await;
            me.tell(OwnershipMsg::Woken);
            tokio::time::sleep(Duration::from_millis(WOKEN_MS_MIN)).await;
        }
    });
}

/// Handles a hint that another node stored something.
fn on_hint(ctx: &Context<Ownership>, state: &mut OwnershipState) {
    state.wiring.conversations.tell(ConversationsMsg::Ownership(OwnershipNews::StoredByOthers));
    // Tasks that other nodes ended must leave the queue here and unblock the tasks that wait for them. If the Scheduler is
    // down, its next incarnation reads the task table.
    state.wiring.scheduler.tell(SchedulerMsg::Table(TableMsg::Woken));
    if state.tasks.contains(&Work::Check) {
        state.check_again = true;
    } else {
        check(ctx, state);
    }
    let now = steady(ctx);
    let is_scan_due = state.all_at.is_some_and(|at| now.since_ms(at) >= LEFT_MS);
    state.wanted.ours = true;
    state.wanted.claimed |= is_scan_due;
    scan(ctx, state);
}

/// Checks which conversations active here another living node has claimed. The Engines are listed well before the owners are
/// read, so that a new Engine has time for its claim: what was read before it must not mark it.
fn check(ctx: &Context<Ownership>, state: &mut OwnershipState) {
    state.check_again = false;
    let (wiring, me) = (state.wiring.clone(), ctx.me());
    state.tasks.spawn(Work::Check, async move {
        let wait = Duration::from_millis(ACTIVE_MS_MAX);
        let list = |reply| ConversationsMsg::Ownership(OwnershipNews::ListActive(reply));
        let listed = wiring.conversations.call(wait, list).await;
        tokio::time::sleep(Duration::from_millis(CHECK_MS)).await;
        let active = match listed {
            Ok(active) => active,
            // The next incarnation of the parent has no Engines yet.
            Err(SendError::Unavailable | SendError::Crashed) => BTreeMap::new(),
            Err(e @ (SendError::Timeout | SendError::Overloaded)) => {
                me.tell(OwnershipMsg::Checked(Err(broken("active Engines", e.to_string()))));
                return;
            }
        };
        me.tell(OwnershipMsg::Checked(elsewhere(&wiring, &active).await));
    });
}

/// The Engines among these whose conversations belong to another living node. A dead owner was the owner before the Engine
/// began its claim.
async fn elsewhere(
    wiring: &Wiring,
    active: &BTreeMap<ConversationId, Incarnation>,
) -> Result<Vec<(ConversationId, Incarnation)>, StoreError> {
    if active.is_empty() {
        return Ok(Vec::new());
    }
    let (store, by) = (&wiring.store, wiring.lease.incarnation());
    let newest = ask("conversations", store.conversations(Scope::Operator, Before::NEWEST, NEWEST_MAX)).await?;
    let nodes = ask("nodes", store.nodes()).await?;
    let is_living = |owner| nodes.iter().any(|node| node.incarnation == owner && node.ended_at.is_none());
    let others = newest.into_iter().filter(|row| row.owner.is_some_and(|owner| owner != by && is_living(owner)));
    Ok(others.filter_map(|row| Some((row.id, *active.get(&row.id)?))).collect())
}

fn checked(
    ctx: &Context<Ownership>,
    state: &mut OwnershipState,
    elsewhere: Result<Vec<(ConversationId, Incarnation)>, StoreError>,
) {
    state.tasks.remove(&Work::Check);
    let elsewhere = elsewhere.unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read which conversations other nodes own, trying again");
        state.check_again = true;
        Vec::new()
    });
    if !elsewhere.is_empty() {
        // If the parent of all Engines is dead, its Engines are dead as well.
        state.wiring.conversations.tell(ConversationsMsg::Ownership(OwnershipNews::Elsewhere(elsewhere)));
    }
    if state.check_again {
        check(ctx, state);
    }
}
