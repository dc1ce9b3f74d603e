//! The guarded door to one skill (S0 5.4).
//!
//! Owns: the breaker's state and the runs under way. A run is admitted or refused, marked as started (unless it only reads),
//! run under its time limit, answered and counted, all behind this door. Supervised by: [`Breakers`]. Survives its death: the
//! row in the store; runs under way are aborted, and their callers try the next life, where the intent's compare-and-set
//! decides whether they may.

mod breakers;
mod run;

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
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::{
    log_writer::LogMsg,
    observe::{Context, Handle, Named, Node, NodeError, task_point},
    operations::OperationKeys,
    tasks::{Tasks, caught},
};

/// Runs of one skill at a time, at most.
const RUNS_MAX: usize = 256;

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
    /// Another life of this breaker died over it: it is no new call.
    pub asked_before: bool,
}

/// What a caller gets.
#[derive(Debug)]
pub enum RunAnswer {
    /// The outcome.
    Done(Outcome),
    /// Somebody else owns the conversation now.
    Fenced,
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
}

/// A breaker's state.
pub struct BreakerActorState {
    args: BreakerArgs,
    row: BreakerRow,
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
            row: BreakerRow::default(),
            runs: Tasks::of(ctx.cell()),
            next_run: 0,
            probe: None,
            keeping: Tasks::of(ctx.cell()),
            dirty: false,
        })
    }

    async fn ready(_ctx: &Context<Self>, state: &mut BreakerActorState) -> Result<(), NodeError> {
        let row = state.args.store.breaker(state.args.skill.clone()).await;
        state.row = row.map_err(|e| NodeError::new(format!("cannot load the breaker's row: {e}")))?.unwrap_or_default();
        // The probe of a former life is lost with it.
        state.row.probe_lost();
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut BreakerActorState, msg: BreakerMsg) -> Result<(), NodeError> {
        match msg {
            BreakerMsg::Run { request, reply } => admit(ctx, state, request, reply),
            BreakerMsg::RunEnded { run, failed } => ended(ctx, state, run, failed),
            BreakerMsg::Reset => {
                state.probe = None;
                let changed = state.row.reset();
                keep_if(ctx, state, changed);
            }
            BreakerMsg::RowKept { kept } => {
                state.keeping.remove(&());
                if !kept {
                    tracing::warn!(skill = state.args.skill, "the breaker's row could not be kept");
                }
                if std::mem::take(&mut state.dirty) {
                    keep(ctx, state);
                }
            }
        }
        Ok(())
    }

    fn view(state: &BreakerActorState) -> Value {
        json!({
            "skill": state.args.skill, "state": state.row.state.as_str(), "failures": state.row.failures,
            "trips": state.row.trips, "opened_at": state.row.opened_at, "runs": state.runs.len()
        })
    }
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
    if state.runs.len() >= RUNS_MAX {
        metrics::counter!("annie_skill_refusals_total", "skill" => skill.clone(), "why" => "busy").increment(1);
        let text = format!("{skill} is busy: {RUNS_MAX} runs are under way. Try again shortly.");
        return refuse(reply, Outcome::transient("overloaded", text));
    }
    let run = state.next_run;
    state.next_run += 1;
    // A run that was started before is no new call: what became of it is asked even of an open breaker.
    if !(request.started_before || request.asked_before) {
        let (admission, changed) = state.row.admit(&state.args.limits, ctx.now());
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
    let before = state.row.state;
    let changed = match failed {
        Some(true) => state.row.failed(&state.args.limits, probe, ctx.now()),
        Some(false) => state.row.succeeded(probe),
        None => probe && state.row.probe_lost(),
    };
    if state.row.state != before {
        tracing::warn!(
            skill = state.args.skill,
            from = before.as_str(),
            to = state.row.state.as_str(),
            "breaker moved"
        );
        metrics::counter!(
            "annie_breaker_transitions_total", "skill" => state.args.skill.clone(), "to" => state.row.state.as_str()
        )
        .increment(1);
    }
    metrics::gauge!("annie_breaker_state", "skill" => state.args.skill.clone()).set(match state.row.state {
        BreakerState::Closed => 0.0,
        BreakerState::HalfOpen => 1.0,
        BreakerState::Open => 2.0,
    });
    keep_if(ctx, state, changed);
}

fn keep_if(ctx: &Context<CircuitBreaker>, state: &mut BreakerActorState, changed: bool) {
    if !changed {
    } else if state.keeping.is_empty() {
        keep(ctx, state);
    } else {
        state.dirty = true;
    }
}

fn keep(ctx: &Context<CircuitBreaker>, state: &mut BreakerActorState) {
    let (store, skill, row, me) = (state.args.store.clone(), state.args.skill.clone(), state.row, ctx.me());
    state.keeping.spawn((), async move {
        let kept = tokio::time::timeout(Duration::from_secs(10), caught(store.put_breaker(skill, row))).await;
        me.tell(BreakerMsg::RowKept { kept: matches!(kept, Ok(Ok(Ok(())))) });
    });
}
