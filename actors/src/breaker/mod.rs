//! The circuit breaker of one skill [S0 5.4].
//!
//! Owns: the breaker's state and the runs under way. The breaker admits or refuses a run, marks it as started (unless it
//! only reads), runs it under its time limit, answers and counts it. Supervised by: [`Breakers`]. Survives its death: the
//! row in the store. Runs under way are aborted, and their callers read in the log whether they had begun: if not, they are
//! new calls to the next incarnation.
//!
//! Nothing is admitted before the row is read. An unavailable store does not end the breaker: callers get the answer that
//! the run could not begin, and the next call reads the row again.

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
    log_ids,
    log_writer::LogMsg,
    node_lease::Lease,
    observe::{Context, Handle, Named, Node, NodeError, task_point},
    operations::OperationKeys,
    orders::{OrderKind, StandingOrders},
    tasks::{Tasks, caught},
};

/// Concurrent runs of one skill, at most.
const RUNS_MAX: usize = 256;
/// Back-off before a row is stored again after a failure, in milliseconds.
const KEEP_AGAIN_MS: u64 = 2_000;

/// A request to run a skill.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// The skill and its arguments.
    pub skill: PlannedSkill,
    /// The call's id in the model's reply.
    pub call_id: String,
    /// The user for whom it runs.
    pub user: UserId,
    /// The conversation of the call.
    pub conversation: ConversationId,
    /// The task of the call.
    pub task: TaskId,
    /// The agent that makes the call.
    pub agent: AgentId,
    /// The epoch under which the run is marked as started.
    pub epoch: Epoch,
    /// IANA name of the user's time zone.
    pub timezone: String,
    /// The intent was started before: reconcile instead of running it, if its effect forbids a repetition.
    pub started_before: bool,
    /// A breaker died over this call, and it is not known whether the run had begun. The log must be read before another
    /// breaker is asked.
    pub asked_before: bool,
    /// The caller has stored that the run begins, in place of the log. If a breaker does not answer, the run counts as begun.
    pub is_recorded: bool,
}

/// The answer to a request.
#[derive(Debug)]
pub enum RunAnswer {
    /// The outcome.
    Done(Outcome),
    /// Another epoch owns the conversation now.
    Fenced,
    /// The run could not begin, and this breaker will not begin it.
    NotBegun(NotBegun),
}

/// Messages of a breaker.
pub enum BreakerMsg {
    /// Run the skill.
    Run {
        /// The request.
        request: RunRequest,
        /// Receives the answer.
        reply: oneshot::Sender<RunAnswer>,
    },
    /// A run is over.
    RunEnded {
        /// The number of the run.
        run: u64,
        /// Whether the run counts as a failure of the skill; `None` if it does not count.
        failed: Option<bool>,
    },
    /// An operator closes the breaker.
    Reset,
    /// The row has been read, or could not be read.
    RowRead(Result<BreakerRow, NotBegun>),
    /// The row has been stored, or could not be stored.
    RowKept {
        /// Whether it was stored.
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

/// The arguments of a breaker.
#[derive(Clone)]
pub struct BreakerArgs {
    pub(crate) skill: String,
    pub(crate) limits: BreakerLimits,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) runner: Arc<dyn SkillRunner>,
    pub(crate) log: Handle<LogMsg>,
    pub(crate) operations: OperationKeys,
    pub(crate) lease: Arc<Lease>,
    pub(crate) orders: Arc<StandingOrders>,
}

/// The state of a breaker's actor.
pub struct BreakerActorState {
    args: BreakerArgs,
    /// `None` until the row is read.
    row: Option<BreakerRow>,
    reading: Tasks<()>,
    /// Requests that wait until the row is read, and whether the breaker is to be closed then.
    waiting: Vec<(RunRequest, oneshot::Sender<RunAnswer>)>,
    is_to_close: bool,
    runs: Tasks<u64>,
    next_run: u64,
    probe: Option<u64>,
    keeping: Tasks<()>,
    dirty: bool,
}

/// The actor of the breaker of one skill.
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
                    tracing::warn!(skill = state.args.skill, "the breaker's row could not be stored, trying again");
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
            "waiting": state.waiting.len(), "held": state.args.orders.find(OrderKind::OpenBreaker, &state.args.skill)
        })
    }
}

/// Starts to read the row, unless that is under way.
fn read(ctx: &Context<CircuitBreaker>, state: &mut BreakerActorState) {
    if state.reading.contains(&()) {
        return;
    }
    let (store, skill, me) = (state.args.store.clone(), state.args.skill.clone(), ctx.me());
    state.reading.spawn((), async move {
        let row = stored::row(store.as_ref(), skill).await;
        // If the message is lost, this incarnation has ended, and the waiting requests with it.
        me.tell(BreakerMsg::RowRead(row));
    });
}

/// Handles the row that was read. If it could not be read, the waiting requests are answered with the error.
fn row_read(ctx: &Context<CircuitBreaker>, state: &mut BreakerActorState, row: Result<BreakerRow, NotBegun>) {
    let waiting = std::mem::take(&mut state.waiting);
    match row {
        Ok(row) => state.row = Some(row),
        // A row that cannot be read is replaced if the breaker is to be closed.
        Err(why) if state.is_to_close && !why.is_passing => state.row = Some(BreakerRow::default()),
        Err(why) => {
            tracing::warn!(skill = state.args.skill, %why, "the breaker's row could not be read");
            for (_, reply) in waiting {
                // The requester may have given up.
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

/// Closes the breaker on request of an operator.
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
    // A run that was started before is no new call: even an open breaker reconciles it.
    if !request.started_before {
        if let Some(order) = state.args.orders.find(OrderKind::OpenBreaker, &skill) {
            metrics::counter!("annie_skill_refusals_total", "skill" => skill.clone(), "why" => "open").increment(1);
            let text =
                format!("{skill} is out of service, because an operator holds its breaker open: {}.", order.reason);
            return refuse(reply, Outcome::transient("breaker_open", text));
        }
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
    let _entered = log_ids::of_agent(request.conversation, request.task, &request.agent).entered();
    state.runs.spawn(run, async move {
        let mut reply = reply;
        let answer = tokio::select! {
            biased;
            answer = run::run(&args, &env, request) => answer,
            // The turn was cancelled or the agent died: a run without a waiting caller is ended (invariant 13).
            () = reply.closed() => {
                me.tell(BreakerMsg::RunEnded { run, failed: None });
                return;
            }
        };
        let failed = answer.counts_as_failure();
        // The result is counted before it is answered, so that a caller that received the failure finds the breaker updated.
        me.tell(BreakerMsg::RunEnded { run, failed });
        // A fault here loses only the answer, and the caller asks again.
        if task_point(&env, "run", "counted").await.is_ok() {
            let _ = reply.send(answer.answer);
        }
    });
}

fn ended(ctx: &Context<CircuitBreaker>, state: &mut BreakerActorState, run: u64, failed: Option<bool>) {
    state.runs.remove(&run);
    let probe = state.probe.take_if(|p| *p == run).is_some();
    // No run starts before the row is read.
    let Some(row) = &mut state.row else { return };
    let before = row.state;
    let changed = match failed {
        Some(true) => row.failed(&state.args.limits, probe, ctx.now()),
        Some(false) => row.succeeded(probe),
        None => probe && row.probe_lost(),
    };
    let now = row.state;
    if now != before {
        tracing::warn!(
            skill = state.args.skill,
            from = before.as_str(),
            to = now.as_str(),
            "breaker changed its state"
        );
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

/// Stores the row as it is now, after `after_ms` milliseconds.
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
