//! A sub-agent: the actor that works on one mission.
//!
//! Owns: its own loop, its model and skill tasks. Supervised by: its Engine, and temporary: a death becomes one typed report
//! to the orchestrator, never a restart. Survives its death: every event that it stored. After a crash of the Engine or the
//! process it is started again from those events. It never reports twice, because the Engine stores its last event together
//! with its report in one append.

use std::{future::Future, sync::Arc, time::Duration};

use annie_core::{
    event::{AgentReport, EventBody, NewEvent, ReportStatus, ResolvedCall},
    ids::{AgentId, Epoch, IntentId, TaskId},
    plan::AgentSteer,
    ports::{Append, Fence},
    time::Micros,
    turn::{Directive, DirectiveId, Ending, SubTurn},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tracing::Instrument;

use crate::{
    agent::{self, AgentDone, AgentTasks, Finished, Resolved, RoundHandles, Stored, append_owned},
    effects::{HookDone, ModelDone, SkillDone, Waits},
    engine::EngineMsg,
    log_ids,
    observe::{Addr, Context, Named, Node, NodeError},
    shared_effects::SharedEffects,
    tasks::Tasks,
    wiring::Wiring,
};

/// How long a reply waits for an equal call of another agent, in round time limits of an agent: about as long as a series of
/// calls before that one takes. After that the call counts as in doubt.
const EQUAL_ROUNDS_MAX: u64 = 6;

pub(crate) struct SubAgentArgs {
    pub wiring: Arc<Wiring>,
    pub turn: SubTurn,
    pub epoch: Epoch,
    pub engine: Addr<EngineMsg>,
    pub tally: Tally,
    pub waits: Waits,
    /// The effects of all agents of the turn.
    pub effects: SharedEffects,
}

/// The work of a sub-agent so far, for the report that the Engine makes if the sub-agent dies or is ended.
#[derive(Clone)]
pub(crate) struct Tally(Arc<Mutex<Noted>>);

struct Noted {
    /// `in_doubt` contains every call without a result, because a running agent may begin it at any moment.
    report: AgentReport,
    /// The calls without a result that have begun.
    begun: Vec<(String, Value)>,
}

impl Tally {
    /// The tally of a sub-agent that is about to start.
    pub fn of(turn: &SubTurn, now: Micros) -> Self {
        let report = turn.reported(ReportStatus::Crashed, String::new(), now);
        let begun = report.in_doubt.clone();
        Self(Arc::new(Mutex::new(Noted { report, begun })))
    }

    fn note(&self, turn: &SubTurn, now: Micros, may_have_begun: &dyn Fn(IntentId) -> bool) {
        let report = turn.reported(ReportStatus::Crashed, String::new(), now);
        let report = AgentReport { in_doubt: turn.doubts(&|_| true), ..report };
        *self.0.lock() = Noted { report, begun: turn.doubts(may_have_begun) };
    }

    /// Records that all calls without a result begin now.
    fn begin_all(&self, turn: &SubTurn) {
        self.0.lock().begun = turn.doubts(&|_| true);
    }

    /// The work of a running agent; calls that it may begin at any moment are in doubt.
    pub fn so_far(&self) -> AgentReport {
        self.0.lock().report.clone()
    }

    /// The work of a dead agent; only calls that it had begun are in doubt.
    pub fn at_death(&self) -> AgentReport {
        let noted = self.0.lock();
        AgentReport { in_doubt: noted.begun.clone(), ..noted.report.clone() }
    }
}

/// The messages of a sub-agent.
pub(crate) enum SubAgentMsg {
    /// The result of one of its own tasks, or a request for an approval.
    Done(AgentDone),
    /// All texts that were added to its mission.
    Steered(Vec<AgentSteer>),
    /// The time that its dispatch gave it has passed while the calls of this round ran.
    TimeUp(u32),
}

impl Named for SubAgentMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Done(done) => done.name(),
            Self::Steered(_) => "Steered",
            Self::TimeUp(_) => "TimeUp",
        }
    }
}

impl From<AgentDone> for SubAgentMsg {
    fn from(done: AgentDone) -> Self {
        Self::Done(done)
    }
}

/// The purposes of a sub-agent's tasks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum SubTask {
    Effect(DirectiveId),
    /// The end of its time.
    Clock,
}

pub(crate) struct SubAgentState {
    args: SubAgentArgs,
    tasks: Tasks<SubTask>,
    /// Time spent on rounds and calls, in milliseconds. Waiting for a permit does not count.
    used_ms: u64,
    /// Since when its reply waits for an equal call of another agent.
    waits_since: Option<Micros>,
    finished: bool,
}

/// The sub-agent's actor.
pub(crate) struct SubAgent;

impl Node for SubAgent {
    type Msg = SubAgentMsg;
    type Args = SubAgentArgs;
    type State = SubAgentState;
    const KIND: &'static str = "sub_agent";
    const MAILBOX_MAX: usize = 1_000;

    fn init(ctx: &Context<Self>, args: SubAgentArgs) -> Result<SubAgentState, NodeError> {
        Ok(SubAgentState { args, tasks: Tasks::of(ctx.branch()), used_ms: 0, waits_since: None, finished: false })
    }

    async fn ready(ctx: &Context<Self>, state: &mut SubAgentState) -> Result<(), NodeError> {
        match state.args.turn.report(ctx.now()) {
            Some(report) => finish(state, Vec::new(), report),
            None => {
                // What was added while no incarnation ran is taken up now.
                let turn = &state.args.turn;
                match turn.interrupted().into_iter().chain(turn.untaken()).collect::<Vec<_>>() {
                    bodies if bodies.is_empty() => perform(ctx, state),
                    bodies => record_all(ctx, state, bodies).await?,
                }
            }
        }
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut SubAgentState, msg: SubAgentMsg) -> Result<(), NodeError> {
        if state.finished {
            return Ok(());
        }
        let turn = &state.args.turn;
        let span = log_ids::of_agent(turn.conversation, turn.task, &turn.spec.agent);
        act(ctx, state, msg).instrument(span).await
    }

    fn view(state: &SubAgentState) -> Value {
        let (run, spec) = (&state.args.turn.run, &state.args.turn.spec);
        json!({
            "label": spec.options.label, "mission": spec.mission, "skills": spec.skills, "round": run.round,
            "backends": state.args.turn.route, "steered": state.args.turn.steering.len(), "ms_max": state.args.turn.ms_max(),
            "calls_used": run.calls_used, "calls_max": run.calls_max, "tasks": state.tasks.len(), "used_ms": state.used_ms,
            "waits_for_equal_since": state.waits_since.map(|at| at.to_string()),
        })
    }
}

async fn act(ctx: &Context<SubAgent>, state: &mut SubAgentState, msg: SubAgentMsg) -> Result<(), NodeError> {
    match msg {
        SubAgentMsg::Steered(steering) => match state.args.turn.steered(steering) {
            Some(taken) => record(ctx, state, taken).await,
            None => Ok(()),
        },
        SubAgentMsg::TimeUp(round) => {
            time_is_up(ctx, state, round);
            Ok(())
        }
        SubAgentMsg::Done(AgentDone::Round(done)) => model_replied(ctx, state, *done).await,
        SubAgentMsg::Done(AgentDone::Skill(done)) => skill_finished(ctx, state, *done).await,
        SubAgentMsg::Done(AgentDone::Hook(done)) => hook_decided(ctx, state, *done).await,
        SubAgentMsg::Done(AgentDone::Approval(ask)) => {
            // The Engine keeps the requests of all agents. If it is gone, this agent ends as well.
            state.args.engine.tell(EngineMsg::Agent(AgentDone::Approval(ask)));
            Ok(())
        }
    }
}

fn ms_left(turn: &SubTurn, used_ms: u64) -> u64 {
    turn.ms_max().saturating_sub(used_ms)
}

async fn model_replied(ctx: &Context<SubAgent>, state: &mut SubAgentState, done: ModelDone) -> Result<(), NodeError> {
    state.used_ms += done.ran_ms;
    let turn = &state.args.turn;
    state.tasks.remove(&SubTask::Effect(DirectiveId::Model(turn.task, turn.spec.agent.clone(), done.round)));
    if !turn.run.awaits(done.round) {
        return Ok(());
    }
    if done.acted {
        state.args.turn.run.round_acts(done.round);
    }
    let (effects, wiring) = (state.args.effects.clone(), state.args.wiring.clone());
    let turn = &mut state.args.turn;
    match &done.result {
        Ok(reply) => {
            let Resolved { calls, verdicts } = agent::resolve(&wiring, turn.view(), reply);
            let now = ctx.now();
            let waited_ms = state.waits_since.map_or(0, |since| now.since_ms(since));
            let left_ms = turn.limits.agent_round_ms_max.saturating_mul(EQUAL_ROUNDS_MAX).saturating_sub(waited_ms);
            let replied = |turn: &SubTurn, calls: Vec<ResolvedCall>| {
                agent::replied(&wiring, &done, reply, calls, (turn.view(), now))
            };
            match effects.take(turn, (now, left_ms > 0), calls, replied) {
                Ok(body) => {
                    state.waits_since = None;
                    let mut bodies = agent::chosen(&done);
                    bodies.extend(agent::record(verdicts));
                    let loops = agent::after_reply(turn.view(), &body);
                    bodies.push(body);
                    bodies.extend(loops);
                    store(ctx, state, now, bodies).await
                }
                Err(changed) => {
                    state.waits_since.get_or_insert(now);
                    let left = Duration::from_millis(left_ms);
                    let id = DirectiveId::Model(turn.task, turn.spec.agent.clone(), done.round);
                    let me = ctx.me();
                    // The time of this round is counted already.
                    let mut done = done;
                    done.ran_ms = 0;
                    state.tasks.spawn(SubTask::Effect(id), async move {
                        // The wait also ends if the Engine is gone; this agent then ends as well.
                        let _ = tokio::time::timeout(left, changed).await;
                        me.tell(AgentDone::Round(Box::new(done)).into());
                    });
                    Ok(())
                }
            }
        }
        Err(error) => {
            let failed = agent::failed(turn.view(), &done, error);
            let now = ctx.now();
            for body in &failed {
                state.args.turn.fold(now, body);
            }
            let mut bodies = agent::chosen(&done);
            bodies.extend(failed);
            store(ctx, state, now, bodies).await
        }
    }
}

async fn skill_finished(ctx: &Context<SubAgent>, state: &mut SubAgentState, done: SkillDone) -> Result<(), NodeError> {
    state.used_ms += done.duration_ms;
    let Finished { id, bodies, .. } = agent::skill_finished(&state.args.wiring, Some(state.args.turn.view()), done);
    state.tasks.remove(&SubTask::Effect(id));
    match bodies {
        Some(bodies) => record_all(ctx, state, bodies).await,
        None => {
            ctx.stop();
            Ok(())
        }
    }
}

async fn hook_decided(ctx: &Context<SubAgent>, state: &mut SubAgentState, done: HookDone) -> Result<(), NodeError> {
    state.used_ms += done.duration_ms;
    state.tasks.remove(&SubTask::Effect(done.request.id()));
    let now = ctx.now();
    let (effects, wiring) = (state.args.effects.clone(), state.args.wiring.clone());
    let body = effects.decide(&mut state.args.turn, now, |turn, of_turn| {
        agent::hook_decided(&wiring, turn.view(), done, |planned| of_turn.refusal(&turn.spec.agent, planned))
    });
    store(ctx, state, now, vec![body]).await
}

/// Folds an event and stores it.
async fn record(ctx: &Context<SubAgent>, state: &mut SubAgentState, body: EventBody) -> Result<(), NodeError> {
    record_all(ctx, state, vec![body]).await
}

/// Folds events and stores them together.
async fn record_all(
    ctx: &Context<SubAgent>,
    state: &mut SubAgentState,
    bodies: Vec<EventBody>,
) -> Result<(), NodeError> {
    let now = ctx.now();
    bodies.iter().for_each(|body| state.args.turn.fold(now, body));
    store(ctx, state, now, bodies).await
}

/// Stores folded events and continues, or hands the last events to the Engine together with the report.
async fn store(
    ctx: &Context<SubAgent>,
    state: &mut SubAgentState,
    now: Micros,
    bodies: Vec<EventBody>,
) -> Result<(), NodeError> {
    let (turn, tasks) = (&mut state.args.turn, &state.tasks);
    let (task, agent) = (turn.task, turn.spec.agent.clone());
    // Directives that these events make outstanding start only after they are stored, so they have not begun here.
    let has_begun = |intent: IntentId| tasks.contains(&skill_task(task, &agent, intent));
    state.args.tally.note(turn, now, &has_begun);
    let new = |body| NewEvent { at: now, task, agent: turn.spec.agent.clone(), body };
    let events: Vec<NewEvent> = bodies.into_iter().map(new).collect();
    let is_late = ms_left(turn, state.used_ms) == 0;
    // A round that the time limit ended fails like any other, but the model is not the reason.
    let was_cut = is_late && matches!(turn.run.ending(), Some(Ending::ModelFailed(_)));
    if let Some(report) = turn.report(now).filter(|_| !was_cut) {
        finish(state, events, report);
        return Ok(());
    }
    if is_late {
        let report = turn.timed_out(now, &has_begun);
        finish(state, events, report);
        return Ok(());
    }
    let turn = &state.args.turn;
    let what = Append {
        conversation: turn.conversation,
        user: turn.user.clone(),
        fence: Fence::Owner(state.args.epoch),
        events,
    };
    if let Stored::Fenced = append_owned(ctx, &state.args.wiring.log, what).await? {
        return Ok(());
    }
    // Only stored receipts are shared with other agents, so that the log contains every receipt they rely on. The last
    // events are stored by the Engine.
    state.args.effects.note(&state.args.turn);
    ctx.fault_point("stored").await?;
    perform(ctx, state);
    Ok(())
}

fn skill_task(task: TaskId, agent: &AgentId, intent: IntentId) -> SubTask {
    SubTask::Effect(DirectiveId::Skill(task, agent.clone(), intent.to_string()))
}

/// Ends the agent while the calls of this round run: what they do may take effect.
fn time_is_up(ctx: &Context<SubAgent>, state: &mut SubAgentState, round: u32) {
    state.tasks.remove(&SubTask::Clock);
    let (turn, tasks) = (&mut state.args.turn, &state.tasks);
    if turn.run.round != round || turn.run.open_calls().is_empty() {
        return;
    }
    let (task, agent) = (turn.task, turn.spec.agent.clone());
    let report = turn.timed_out(ctx.now(), &|intent| tasks.contains(&skill_task(task, &agent, intent)));
    finish(state, Vec::new(), report);
}

fn finish(state: &mut SubAgentState, events: Vec<NewEvent>, report: AgentReport) {
    state.finished = true;
    state.tasks.retain(|_| false);
    let agent = state.args.turn.spec.agent.clone();
    let task = state.args.turn.task;
    // If the message is lost the Engine is gone, and its next incarnation runs this agent again.
    state.args.engine.tell(EngineMsg::AgentFinished { task, agent, events, report: Box::new(report) });
}

/// Ends the agent after this time, if its dispatch set a time limit and its calls still run then. A round has a limit of its own.
fn limit_calls(ctx: &Context<SubAgent>, state: &mut SubAgentState, left_ms: u64) {
    // The time of calls that run counts only when they end: a limit that runs must not begin again.
    if state.args.turn.spec.options.timeout_ms.is_none() || state.tasks.contains(&SubTask::Clock) {
        return;
    }
    let (me, round) = (ctx.me(), state.args.turn.run.round);
    state.tasks.spawn(SubTask::Clock, async move {
        tokio::time::sleep(Duration::from_millis(left_ms)).await;
        // If the message is lost, this incarnation has ended.
        me.tell(SubAgentMsg::TimeUp(round));
    });
}

/// Starts what is outstanding and not under way.
fn perform(ctx: &Context<SubAgent>, state: &mut SubAgentState) {
    let left_ms = ms_left(&state.args.turn, state.used_ms);
    let outstanding = state.args.turn.outstanding();
    if outstanding.iter().any(|directive| matches!(directive, Directive::CallSkill { .. })) {
        state.args.tally.begin_all(&state.args.turn);
        limit_calls(ctx, state, left_ms);
    } else {
        state.tasks.remove(&SubTask::Clock);
    }
    let handles = RoundHandles { waits: state.args.waits.clone(), ..RoundHandles::default() };
    let wiring = &state.args.wiring;
    let ms_max = left_ms.min(wiring.limits.round_ms_max);
    for directive in outstanding {
        if !state.tasks.contains(&SubTask::Effect(directive.id())) {
            let agent = (state.args.turn.view(), state.args.epoch);
            agent::start((&mut state.tasks, ctx.me()), agent, wiring.clone(), directive, ms_max, handles.clone());
        }
    }
}

impl AgentTasks for Tasks<SubTask> {
    fn spawn(&mut self, id: DirectiveId, work: impl Future<Output = ()> + Send + 'static) {
        Self::spawn(self, SubTask::Effect(id), work);
    }
}
