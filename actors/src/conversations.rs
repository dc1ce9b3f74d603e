//! The parent of all Engines: finds or thaws them, restarts each by its own budget, lets idle ones leave memory.
//!
//! Owns: which conversations are awake, their restart budgets, who is in quarantine. Supervised by: the root. Survives its
//! death: the log; its next life scans it for what is open. One conversation that keeps dying is parked with its crash
//! records, shown, and resumable; it never takes its neighbours along (invariant 11).

mod others;
mod quarantine;
mod room;
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
use others::{Looked, Whose};
use quarantine::{park_open, parked, quarantine};
use ractor::ActorId;
use room::{Room, make_room, take_seat};
use scan::{Wanted, scan};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::{
    engine::{AtWork, Control, Controlled, Engine, EngineArgs, EngineMsg, Sleep},
    fixed::FixedMap,
    observe::{Addr, ChildEnded, Context, EndKind, Named, Node, NodeError},
    supervise::{Budget, BudgetLimits, stop_child},
    tasks::Tasks,
    wiring::Wiring,
};

/// Deaths of one conversation's Engine before it is parked. More than a turn's own limit, so that a message that kills its
/// Engine is set aside first and the conversation goes on.
const BUDGET: BudgetLimits = BudgetLimits { restarts_max: 5, window_ms: 60_000 };

/// How long until an Engine is tried again that could not even be spawned, in milliseconds.
const START_AGAIN_MS: u64 = 200;
/// How long an Engine waits at least and at most that could not go on without the store, in milliseconds.
const DEPRIVED_MS_MIN: u64 = 20;
const DEPRIVED_MS_MAX: u64 = 2_000;
/// Its waits grow while they come close together.
const WAITS: BudgetLimits = BudgetLimits { restarts_max: 20, window_ms: 60_000 };

/// What it hears.
pub enum ConversationsMsg {
    /// A message is in the log.
    Wake {
        /// Of which conversation.
        conversation: ConversationId,
        /// Whose.
        user: UserId,
        /// The message, if it is at hand.
        event: Option<Arc<Event>>,
    },
    /// An Engine that leaves memory has found something open, or left it so: whoever owns the conversation is to go on with it.
    Unfinished {
        /// Which.
        conversation: ConversationId,
        /// Whose.
        user: UserId,
    },
    /// Wake-ups may have been lost: ask the log what is open.
    Rescan,
    /// Another process may have stored a message for a conversation of this one: ask the log.
    Woken,
    /// Another process is dead: what is open of it is anybody's.
    NodesEnded,
    /// This process was declared dead and has begun again under a new incarnation: what is here may be another's.
    LeaseLost,
    /// Messages of these may be stored, or not, and nobody was woken: ask the log.
    Doubt(Vec<ConversationId>),
    /// What the log said.
    Scanned(Result<Vec<OpenConversation>, StoreError>),
    /// Do something with a task.
    Control {
        /// Of which conversation.
        conversation: ConversationId,
        /// Whose.
        user: UserId,
        /// With which.
        task: TaskId,
        /// What.
        control: Control,
        /// Who asks.
        by: String,
        /// Whom to answer.
        reply: oneshot::Sender<Controlled>,
        /// Also if a living node owns the conversation: a person wants it now.
        takes_over: bool,
    },
    /// An Engine would leave memory, if no wake-up is on its way. It does nothing until it hears whether it does.
    MayHibernate {
        /// Which.
        conversation: ConversationId,
        /// Which life of it.
        incarnation: Incarnation,
        /// How many wake-ups it has seen, and questions about its tasks.
        wakes_seen: u64,
        /// When it is to come back, if it only makes room: something is open in it.
        sleep: Option<Sleep>,
    },
    /// An Engine has something to do, and does not make room.
    Stays(ConversationId),
    /// It is time to ask for room again, or for those that sleep to take turns.
    Round,
    /// The time has come of a conversation that sleeps.
    Rouse,
    /// The back-off of a conversation is over.
    StartAgain(ConversationId),
    /// An Engine was fenced: who owns its conversation now.
    Fenced {
        /// Which.
        conversation: ConversationId,
        /// Who.
        whose: Result<Whose, StoreError>,
    },
    /// What other processes did to the conversations that are awake here.
    Looked(Result<Looked, StoreError>),
    /// What was open in a parked conversation has failed visibly, or could not be stored.
    Parked {
        /// Which.
        conversation: ConversationId,
        /// Why it could not be.
        outcome: Result<(), String>,
    },
    /// An operator takes a conversation out of quarantine.
    Resume {
        /// Which.
        conversation: ConversationId,
        /// Whom to answer: whether it was there.
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
            Self::MayHibernate { .. } => "MayHibernate",
            Self::Stays(_) => "Stays",
            Self::Round => "Round",
            Self::Rouse => "Rouse",
            Self::StartAgain(_) => "StartAgain",
            Self::Fenced { .. } => "Fenced",
            Self::Looked(_) => "Looked",
            Self::Parked { .. } => "Parked",
            Self::Resume { .. } => "Resume",
        }
    }

    fn again(&self) -> Option<Self> {
        let Self::Wake { conversation, user, event } = self else { return None };
        Some(Self::Wake { conversation: *conversation, user: user.clone(), event: event.clone() })
    }
}

/// A conversation that is awake, or about to be again.
struct Seat {
    user: UserId,
    addr: Option<Addr<EngineMsg>>,
    /// Wake-ups sent to its present life, and what was asked of its tasks: none of both is to be left lying.
    wakes_sent: u64,
    /// The newest message that its present life was told of.
    told_to: Seq,
    /// Its next life takes the conversation whoever owns it.
    takes_over: bool,
    /// Another process has it, and its present life does not know.
    is_elsewhere: bool,
    budget: Budget,
    waits: Budget,
    /// Why its last life ended, if not in good order, and over which task.
    cause: Option<ResumeCause>,
    blamed: Option<TaskId>,
    at_work: AtWork,
    /// Its place among all seats, by age.
    number: u64,
}

/// Its state.
pub(crate) struct ConversationsState {
    wiring: Arc<Wiring>,
    seats: FixedMap<ConversationId, Seat>,
    cells: HashMap<ActorId, ConversationId>,
    quarantine: BTreeMap<ConversationId, UserId>,
    room: Room,
    tasks: Tasks<Work>,
    /// Another process was heard while it was looked what others did.
    look_again: bool,
    /// When everything was last looked through that is open, by the monotonic clock.
    all_at: Option<Micros>,
    /// What nobody owned then: another process may be about to claim it.
    unclaimed: BTreeSet<ConversationId>,
    /// Before the first scan is done, what is open was open when the process started.
    booted: bool,
    /// Whom the next scan wakes, and whom the one under way.
    wanted: Wanted,
    scanning: Wanted,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Work {
    Scan,
    ScanLater,
    Listen,
    Look,
    Backoff(ConversationId),
    Whose(ConversationId),
    Round,
    Rouse,
    Park(ConversationId),
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
            seats: FixedMap::default(),
            cells: HashMap::new(),
            quarantine: BTreeMap::new(),
            room: Room::default(),
            tasks: Tasks::of(ctx.branch()),
            look_again: false,
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
            ConversationsMsg::Woken => others::heard(ctx, state),
            ConversationsMsg::NodesEnded => others::nodes_ended(ctx, state),
            // The next life begins as the first one of a process does.
            ConversationsMsg::LeaseLost => return Err(NodeError::new("the lease of this process was lost")),
            ConversationsMsg::Looked(seen) => others::looked(ctx, state, seen),
            ConversationsMsg::Doubt(conversations) => {
                state.wanted.doubted.extend(conversations);
                scan(ctx, state);
            }
            ConversationsMsg::Scanned(found) => scan::scanned(ctx, state, found).await,
            ConversationsMsg::Control { conversation, user, task, control, by, reply, takes_over } => {
                // If it dies over it, whoever asked hears of a crash and may ask again.
                if let Some(engine) = engine(ctx, state, conversation, user, takes_over).await
                    && engine.cast(EngineMsg::Control { task, control, by, reply }).is_ok()
                    && let Some(seat) = state.seats.get_mut(&conversation)
                {
                    seat.wakes_sent += 1;
                }
            }
            ConversationsMsg::MayHibernate { conversation, incarnation, wakes_seen, sleep } => {
                room::may_leave(ctx, state, (conversation, incarnation), wakes_seen, sleep).await;
            }
            ConversationsMsg::Stays(conversation) => room::stays(ctx, state, conversation),
            ConversationsMsg::Round => room::round(ctx, state).await,
            ConversationsMsg::Rouse => room::rouse(ctx, state).await,
            ConversationsMsg::StartAgain(conversation) => {
                state.tasks.remove(&Work::Backoff(conversation));
                // One that something arrived for meanwhile lives already.
                if state.seats.get(&conversation).is_some_and(|seat| seat.addr.is_none()) {
                    start(ctx, state, conversation).await;
                }
            }
            ConversationsMsg::Fenced { conversation, whose } => {
                others::fenced(ctx, state, conversation, whose).await;
            }
            ConversationsMsg::Parked { conversation, outcome } => parked(ctx, state, conversation, outcome).await,
            ConversationsMsg::Resume { conversation, reply } => {
                // What is not failed yet goes on.
                state.tasks.remove(&Work::Park(conversation));
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
        let Some(seat) = state.seats.get_mut(&conversation) else { return Ok(()) };
        // A life that was let go has a successor in its seat, perhaps one that does not live yet.
        if seat.addr.as_ref().is_none_or(|a| a.cell.get_id() != ended.id) {
            return Ok(());
        }
        seat.addr = None;
        // If it was asked for its room it will not answer any more.
        room::stays(ctx, state, conversation);
        let Some(seat) = state.seats.get_mut(&conversation) else { return Ok(()) };
        if seat.is_elsewhere {
            // However it ended: another process is at work there, and a new life would take the conversation from it.
            others::ask_whose(ctx, state, conversation, 0);
            return Ok(());
        }
        if ended.kind == EndKind::Stopped {
            // An operator wanted a fresh life, not an abandoned turn: no message is to blame.
            seat.cause = Some(ResumeCause::Bystander);
            start(ctx, state, conversation).await;
            return Ok(());
        }
        if ended.kind == EndKind::Done {
            // An Engine that ends by itself was fenced.
            others::ask_whose(ctx, state, conversation, 0);
            return Ok(());
        }
        if let EndKind::Deprived(why) = &ended.kind {
            // Neither the conversation nor its message is to blame, and it goes on as soon as it can: nothing is counted,
            // and nothing is written that could be.
            tracing::warn!(%conversation, why, "an engine waits for the store");
            let wait_ms = seat.waits.died(ctx.now()).unwrap_or(DEPRIVED_MS_MAX).min(DEPRIVED_MS_MAX);
            start_later(ctx, state, conversation, wait_ms.max(DEPRIVED_MS_MIN));
            return Ok(());
        }
        (seat.cause, seat.blamed) = (Some(ResumeCause::Crash), seat.at_work.blamed());
        if !start_again(ctx, state, conversation).await {
            quarantine(ctx, state, conversation);
            make_room(ctx, state).await;
        }
        Ok(())
    }

    async fn stopping(_ctx: &Context<Self>, state: &mut ConversationsState) {
        let engines = state.seats.values_mut().filter_map(|s| s.addr.take());
        let stops: Vec<_> = engines.map(|a| async move { stop_child(&a.cell, Duration::from_secs(5)).await }).collect();
        futures_util::future::join_all(stops).await;
    }

    fn view(state: &ConversationsState) -> Value {
        let elsewhere = state.seats.values().filter(|seat| seat.is_elsewhere).count();
        json!({
            "booted": state.booted, "awake": state.cells.len(), "elsewhere": elsewhere,
            "waiting_for_room": state.room.waiting(), "sleeping": state.room.sleeping(),
            "quarantine": state.quarantine.keys().collect::<Vec<_>>()
        })
    }
}

/// Starts an Engine anew, as soon as its budget says; false if that is used up.
async fn start_again(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
) -> bool {
    let Some(seat) = state.seats.get_mut(&conversation) else { return true };
    metrics::counter!("annie_actor_restarts_total", "kind" => "engine").increment(1);
    match seat.budget.died(ctx.now()) {
        Some(0) => start(ctx, state, conversation).await,
        Some(wait_ms) => start_later(ctx, state, conversation, wait_ms),
        None => return false,
    }
    true
}

/// The time by the monotonic clock: whoever sets the other one back makes nobody wait.
fn steady(ctx: &Context<Conversations>) -> Micros {
    Micros(i64::try_from(ctx.env().clock.monotonic_us()).unwrap_or(i64::MAX))
}

fn new_seat(user: UserId, cause: Option<ResumeCause>, number: u64) -> Seat {
    let (budget, waits) = (Budget::new(BUDGET), Budget::new(WAITS));
    Seat {
        user,
        addr: None,
        wakes_sent: 0,
        told_to: Seq(0),
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
    let awake = state.seats.get(&conversation).is_some_and(|s| s.addr.is_some() && !s.is_elsewhere);
    let seq = event.as_ref().map(|event| event.seq);
    let Some(engine) = engine(ctx, state, conversation, user, false).await else { return };
    let Some(seat) = state.seats.get_mut(&conversation) else { return };
    // What thaws for a message reads it from the log.
    if awake {
        seat.wakes_sent += u64::from(engine.tell(EngineMsg::Wake(event)));
    }
    seat.told_to = seat.told_to.max(seq.unwrap_or_default());
}

/// The Engine of a conversation, thawed if need be. Nothing if it is parked, backing off, or there is no room.
async fn engine(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    user: UserId,
    takes_over: bool,
) -> Option<Addr<EngineMsg>> {
    if state.quarantine.contains_key(&conversation) {
        park_open(ctx, state, conversation);
        return None;
    }
    if !take_seat(ctx, state, conversation, &user, None) {
        return None;
    }
    if let Some(seat) = state.seats.get_mut(&conversation).filter(|seat| seat.is_elsewhere)
        && let Some(shut_out) = seat.addr.take()
    {
        // Whatever it does now is refused.
        state.cells.remove(&shut_out.cell.get_id());
        shut_out.cell.stop(None);
        room::stays(ctx, state, conversation);
    }
    if let Some(seat) = state.seats.get_mut(&conversation).filter(|seat| seat.addr.is_none()) {
        seat.takes_over |= takes_over;
    }
    if state.seats.get(&conversation).is_some_and(|s| s.addr.is_none())
        && !state.tasks.contains(&Work::Backoff(conversation))
    {
        start(ctx, state, conversation).await;
    }
    state.seats.get(&conversation).and_then(|s| s.addr.clone())
}

async fn start(ctx: &Context<Conversations>, state: &mut ConversationsState, conversation: ConversationId) {
    let Some(seat) = state.seats.get_mut(&conversation) else { return };
    let (user, cause, blamed) = (seat.user.clone(), seat.cause, seat.blamed);
    seat.at_work = AtWork::after(blamed);
    let at_work = seat.at_work.clone();
    let takes_over = std::mem::take(&mut seat.takes_over);
    let args = EngineArgs { wiring: state.wiring.clone(), conversation, user, cause, blamed, at_work, takes_over };
    match ctx.spawn::<Engine>(&format!("engine:{conversation}"), args).await {
        Ok(addr) => {
            state.cells.insert(addr.cell.get_id(), conversation);
            seat.wakes_sent = 0;
            (seat.told_to, seat.is_elsewhere) = (Seq(0), false);
            (seat.cause, seat.blamed) = (None, None);
            seat.addr = Some(addr);
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
