//! The guarded door to one skill [S0 5.4].
//!
//! Owns: the breaker's state and the runs under way. A run is admitted or refused, marked as started (unless it only reads),
//! run under its time limit, answered and counted, all behind this door. Supervised by: [`Breakers`]. Survives its death: the
//! row in the store; runs under way are aborted, and their callers look into the log whether they had begun: if not, they are
//! new calls to the next life.
//!
//! Before its row is read nothing is admitted. A store that is away is no death of the breaker: whoever asks is told that
//! the run could not begin, and the next one who asks has the row read again.

mod breakers;
mod run;
mod stored;

use std::{sync::Arc, time::Duration};

use annie_core::{
    breaker::{Admission, BreakerLimits, BreakerRow, BreakerState},
    event::PlannedSkill,
    ids::{AgentId, ConversationId, Epoch, TaskId, UserId},
    outcome::Outcome,
    ports::{SkillRunner, Store},
};
pub(crate) use breakers::Breakers;
pub use breakers::BreakersMsg;
pub(crate) use run::in_doubt_if_started;
use serde_json::{Value, json};
pub use stored::NotBegun;
pub(crate) use stored::has_begun;
use tokio::sync::oneshot;

use crate::{
    log_writer::LogMsg,
    node_lease::Lease,
    observe::{Context, Handle, Named, Node, NodeError, task_point},
    operations::OperationKeys,
    tasks::{Tasks, caught},
};

/// Runs of one skill at a time, at most.
const RUNS_MAX: usize = 256;
/// How long until a row is kept again that could not be, in milliseconds.
const KEEP_AGAIN_MS: u64 = 2_000;

/// A run as its caller asks for it.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// What to run.
    pub skill: PlannedSkill,
    /// Which call of the reply.
    pub call_id: String,
    /// For whom.
    pub user: UserId,
    /// In which conversation.
    pub conversation: ConversationId,
    /// In which task.
    pub task: TaskId,
    /// By which agent.
    pub agent: AgentId,
    /// Under which ownership of the conversation.
    pub epoch: Epoch,
    /// IANA name of the user's time zone.
    pub timezone: String,
    /// It was started in a former life: find out rather than run, if its effect forbids a repetition.
    pub started_before: bool,
    /// A door died over it, and what became of it there is not known yet: no other door may be asked before the log was.
    pub asked_before: bool,
}

/// What a caller gets.
#[derive(Debug)]
pub enum RunAnswer {
    /// The outcome.
    Done(Outcome),
    /// Somebody else owns the conversation now.
    Fenced,
    /// It could not begin, and this door will not begin it.
    NotBegun(NotBegun),
}

/// What a breaker hears.
pub enum BreakerMsg {
    /// Run the skill.
    Run {
        /// How.
        request: RunRequest,
        /// Whom to answer.
        reply: oneshot::Sender<RunAnswer>,
    },
    /// A run is over.
    RunEnded {
        /// Which.
        run: u64,
        /// Whether it counts as the skill's failure; nothing if it says nothing about the skill.
        failed: Option<bool>,
    },
    /// An operator closes the breaker.
    Reset,
    /// The row has been read, or could not be.
    RowRead(Result<BreakerRow, NotBegun>),
    /// The row has been kept, or could not be.
    RowKept {
        /// Whether it was kept.
        kept: bool,
    },
}

impl Named for BreakerMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Run { .. } => "Run",
            Self::RunEnded { .. } => "RunEnded",
            Self::Reset => "Reset",
            Self::RowRead(_) => "RowRead",
            Self::RowKept { .. } => "RowKept",
        }
    }
}

/// What a breaker starts from.
#[derive(Clone)]
pub struct BreakerArgs {
    pub(crate) skill: String,
    pub(crate) limits: BreakerLimits,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) runner: Arc<dyn SkillRunner>,
    pub(crate) log: Handle<LogMsg>,
    pub(crate) operations: OperationKeys,
    pub(crate) lease: Arc<Lease>,
}

/// A breaker's state.
pub struct BreakerActorState {
    args: BreakerArgs,
    /// Nothing until it is read.
    row: Option<BreakerRow>,
    reading: Tasks<()>,
    /// Runs that wait until the row is read, and whether it is to be closed then.
    waiting: Vec<(RunRequest, oneshot::Sender<RunAnswer>)>,
    is_to_close: bool,
    runs: Tasks<u64>,
    next_run: u64,
    probe: Option<u64>,
    keeping: Tasks<()>,
    dirty: bool,
}

/// The door to one skill.
pub struct CircuitBreaker;

impl Node for CircuitBreaker {
    type Msg = BreakerMsg;
    type Args = BreakerArgs;
    type State = BreakerActorState;
    const KIND: &'static str = "breaker";

    fn init(ctx: &Context<Self>, args: BreakerArgs) -> Result<BreakerActorState, NodeError> {
        Ok(BreakerActorState {
            args,
            row: None,
            reading: Tasks::of(ctx.branch()),
            waiting: Vec::new(),
            is_to_close: false,
            runs: Tasks::of(ctx.branch()),
            next_run: 0,
            probe: None,
            keeping: Tasks::of(ctx.branch()),
            dirty: false,
        })
    }

    async fn ready(ctx: &Context<Self>, state: &mut BreakerActorState) -> Result<(), NodeError> {
        let row = ctx.wait_for(stored::row(state.args.store.as_ref(), state.args.skill.clone())).await;
        row_read(ctx, state, row);
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut BreakerActorState, msg: BreakerMsg) -> Result<(), NodeError> {
        match msg {
            BreakerMsg::Run { request, reply } => admit(ctx, state, request, reply),
            BreakerMsg::RunEnded { run, failed } => ended(ctx, state, run, failed),
            BreakerMsg::Reset => {
                state.is_to_close = true;
                if state.row.is_some() {
                    close(ctx, state);
                } else {
                    read(ctx, state);
                }
            }
            BreakerMsg::RowRead(row) => {
                state.reading.remove(&());
                row_read(ctx, state, row);
            }
            BreakerMsg::RowKept { kept } => {
                state.keeping.remove(&());
                if !kept {
                    tracing::warn!(skill = state.args.skill, "the breaker's row could not be kept");
                    keep(ctx, state, KEEP_AGAIN_MS);
                } else if std::mem::take(&mut state.dirty) {
                    keep(ctx, state, 0);
                }
            }
        }
        Ok(())
    }

    fn view(state: &BreakerActorState) -> Value {
        let row = state.row.as_ref();
        json!({
            "skill": state.args.skill, "state": row.map(|r| r.state.as_str()), "failures": row.map(|r| r.failures),
            "trips": row.map(|r| r.trips), "opened_at": row.map(|r| r.opened_at).filter(|at| at.0 > 0).map(|at| at.to_string()), "runs": state.runs.len(),
            "waiting": state.waiting.len()
        })
    }
}

/// Reads the row, unless it is being read.
fn read(ctx: &Context<CircuitBreaker>, state: &mut BreakerActorState) {
    if state.reading.contains(&()) {
        return;
    }
    let (store, skill, me) = (state.args.store.clone(), state.args.skill.clone(), ctx.me());
    state.reading.spawn((), async move {
        let row = stored::row(store.as_ref(), skill).await;
        // If it does not arrive this life is over, and with it whoever waits.
        me.tell(BreakerMsg::RowRead(row));
    });
}

/// The row is known, or whoever waits is told that it is not.
fn row_read(ctx: &Context<CircuitBreaker>, state: &mut BreakerActorState, row: Result<BreakerRow, NotBegun>) {
    let waiting = std::mem::take(&mut state.waiting);
    match row {
        Ok(row) => state.row = Some(row),
        // What cannot be read and is to be closed is written anew.
        Err(why) if state.is_to_close && !why.is_passing => state.row = Some(BreakerRow::default()),
        Err(why) => {
            tracing::warn!(skill = state.args.skill, %why, "a breaker does not know its row");
            for (_, reply) in waiting {
                // Whoever asked may have given up.
                let _ = reply.send(RunAnswer::NotBegun(why.clone()));
            }
            return;
        }
    }
    if state.is_to_close {
        close(ctx, state);
    }
    publish(state);
    for (request, reply) in waiting {
        admit(ctx, state, request, reply);
    }
}

/// An operator wants it closed.
fn close(ctx: &Context<CircuitBreaker>, state: &mut BreakerActorState) {
    (state.probe, state.is_to_close) = (None, false);
    let changed = state.row.as_mut().is_some_and(BreakerRow::reset);
    publish(state);
    keep_if(ctx, state, changed);
}

fn admit(
    ctx: &Context<CircuitBreaker>,
    state: &mut BreakerActorState,
    request: RunRequest,
    reply: oneshot::Sender<RunAnswer>,
) {
    if reply.is_closed() {
        return;
    }
    let refuse = |reply: oneshot::Sender<RunAnswer>, outcome| {
        let _ = reply.send(RunAnswer::Done(outcome));
    };
    let skill = state.args.skill.clone();
    if state.runs.len() + state.waiting.len() >= RUNS_MAX {
        metrics::counter!("annie_skill_refusals_total", "skill" => skill.clone(), "why" => "busy").increment(1);
        let text = format!("{skill} is busy: {RUNS_MAX} runs are under way. Try again shortly.");
        let outcome = run::in_doubt_if_started(&request, Outcome::transient("overloaded", text));
        return refuse(reply, outcome);
    }
    let Some(row) = &mut state.row else {
        state.waiting.push((request, reply));
        return read(ctx, state);
    };
    let run = state.next_run;
    state.next_run += 1;
    // A run that was started before is no new call: what became of it is asked even of an open breaker.
    if !request.started_before {
        let (admission, changed) = row.admit(&state.args.limits, ctx.now());
        match admission {
            Admission::Pass => {}
            Admission::Probe => state.probe = Some(run),
            Admission::Refuse { retry_after_ms } => {
                metrics::counter!("annie_skill_refusals_total", "skill" => skill.clone(), "why" => "open").increment(1);
                let text = format!(
                    "{skill} is temporarily unavailable after repeated failures. Try again in {} s.",
                    retry_after_ms.div_ceil(1_000)
                );
                return refuse(reply, Outcome::transient("breaker_open", text));
            }
        }
        keep_if(ctx, state, changed);
    }
    let (args, me, env) = (state.args.clone(), ctx.me(), ctx.env().clone());
    state.runs.spawn(run, async move {
        let mut reply = reply;
        let answer = tokio::select! {
            biased;
            answer = run::run(&args, &env, request) => answer,
            // Its turn is cancelled or its agent is dead: what nobody waits for ends (invariant 13).
            () = reply.closed() => {
                me.tell(BreakerMsg::RunEnded { run, failed: None });
                return;
            }
        };
        let failed = answer.counts();
        // Counted before it is answered, so that whoever saw the failure finds the breaker knowing of it.
        me.tell(BreakerMsg::RunEnded { run, failed });
        // An error there loses nothing but the answer, which the caller asks for again.
        if task_point(&env, "run", "counted").await.is_ok() {
            let _ = reply.send(answer.answer);
        }
    });
}

fn ended(ctx: &Context<CircuitBreaker>, state: &mut BreakerActorState, run: u64, failed: Option<bool>) {
    state.runs.remove(&run);
    let probe = state.probe.take_if(|p| *p == run).is_some();
    // Nothing runs before the row is read.
    let Some(row) = &mut state.row else { return };
    let before = row.state;
    let changed = match failed {
        Some(true) => row.failed(&state.args.limits, probe, ctx.now()),
        Some(false) => row.succeeded(probe),
        None => probe && row.probe_lost(),
    };
    let now = row.state;
    if now != before {
        tracing::warn!(skill = state.args.skill, from = before.as_str(), to = now.as_str(), "breaker moved");
        metrics::counter!(
            "annie_breaker_transitions_total", "skill" => state.args.skill.clone(), "to" => now.as_str()
        )
        .increment(1);
    }
    publish(state);
    keep_if(ctx, state, changed);
}

/// Sets the gauge of the breaker's state.
fn publish(state: &BreakerActorState) {
    let Some(row) = &state.row else { return };
    metrics::gauge!("annie_breaker_state", "skill" => state.args.skill.clone()).set(match row.state {
        BreakerState::Closed => 0.0,
        BreakerState::HalfOpen => 1.0,
        BreakerState::Open => 2.0,
    });
}

fn keep_if(ctx: &Context<CircuitBreaker>, state: &mut BreakerActorState, changed: bool) {
    if !changed {
    } else if state.keeping.is_empty() {
        keep(ctx, state, 0);
    } else {
        state.dirty = true;
    }
}

/// Keeps the row as it is now, after so many milliseconds.
fn keep(ctx: &Context<CircuitBreaker>, state: &mut BreakerActorState, after_ms: u64) {
    state.dirty = false;
    let Some(row) = state.row else { return };
    let (store, skill, me) = (state.args.store.clone(), state.args.skill.clone(), ctx.me());
    state.keeping.spawn((), async move {
        if after_ms > 0 {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
        }
        let kept = tokio::time::timeout(Duration::from_secs(10), caught(store.put_breaker(skill, row))).await;
        me.tell(BreakerMsg::RowKept { kept: matches!(kept, Ok(Ok(Ok(())))) });
    });
}
