//! The state of a conversation as people read it: turns, plan, open calls and waiting messages, without prompts and facts.

use serde::Serialize;

use crate::{
    event::{Action, Mode, Priority},
    ids::{AgentId, ConversationId, IntentId, Seq, TaskId},
    plan::{Node, NodeState},
    projection::title_of,
    skill::Effect,
    time::Micros,
    turn::{AgentRun, Conversation, Directive, Ending, Lane, OpenCall, Phase, Turn},
};

/// The state of a conversation after an event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplayState {
    /// The conversation.
    pub conversation: ConversationId,
    /// The sequence number of the last folded event.
    pub seq: Seq,
    /// When the Engine last recorded an event.
    pub engine_at: Micros,
    /// The number of finished exchanges that later turns see.
    pub exchanges: usize,
    /// The turns without a final event.
    pub turns: Vec<TurnState>,
    /// The accepted messages whose turn has not begun, in queue order.
    pub waiting: Vec<WaitingState>,
    /// The job commands that are not carried out yet.
    pub job_commands: Vec<TaskId>,
    /// Messages that receive the answer of another task, as (message, other task).
    pub joined: Vec<(TaskId, TaskId)>,
    /// Messages without a turn whose cancellation was requested.
    pub cancelled: Vec<TaskId>,
    /// Whether a turn is paused at a limit and may be continued.
    pub is_paused: bool,
    /// The number of skill calls in the conversation's window.
    pub window_calls: usize,
    /// The directives without a result, each as one line.
    pub outstanding: Vec<String>,
    /// The kind of the event that the core decides next; absent if it decides nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decides: Option<&'static str>,
}

/// The state of a turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TurnState {
    /// Its task.
    pub task: TaskId,
    /// The first 80 characters of its message.
    pub title: String,
    /// Its class.
    pub priority: Priority,
    /// Its mode.
    pub mode: Mode,
    /// Whether it runs in the lane of turns that a person waits for.
    pub is_front: bool,
    /// The backends that may run its rounds, the preferred one first.
    pub route: Vec<String>,
    /// When it began.
    pub started_at: Micros,
    /// Cancellation was requested.
    pub is_cancelled: bool,
    /// Suspended by its user.
    pub is_suspended: bool,
    /// It no longer blocks its lane.
    pub is_detached: bool,
    /// The time until which it is deferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deferred_until: Option<Micros>,
    /// Its soft deadline has passed.
    pub is_past_soft_deadline: bool,
    /// Its hard deadline has passed.
    pub is_past_hard_deadline: bool,
    /// Its main agent.
    pub main: RunState,
    /// The plan: its sub-agents in the order of their dispatch.
    pub agents: Vec<AgentState>,
    /// The numbers of its open requests for an approval.
    pub approvals: Vec<u32>,
}

/// The state of an agent's loop.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunState {
    /// `thinking`, `acting` or `ended`.
    pub phase: &'static str,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ending: Option<&'static str>,
    /// The current round, from 1.
    pub round: u32,
    /// The maximum number of rounds.
    pub rounds_max: u32,
    /// The number of calls so far.
    pub calls_used: u32,
    /// The maximum number of calls.
    pub calls_max: u32,
    /// The calls of the current round.
    pub calls: Vec<CallState>,
}

/// A call of the current round.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CallState {
    /// The id of the call.
    pub call_id: String,
    /// The skill, or the tool of the kernel.
    pub name: String,
    /// The intent of a run of a skill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intent: Option<IntentId>,
    /// The consequence of running the skill twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// A breaker has admitted it.
    pub is_started: bool,
    /// It has a result.
    pub has_result: bool,
    /// The hooks that must still decide before the call is made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits_for_hooks: Vec<String>,
}

/// The state of a sub-agent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentState {
    /// The agent.
    pub agent: AgentId,
    /// The first 80 characters of its mission.
    pub mission: String,
    /// The agents whose results it needs first.
    pub depends_on: Vec<AgentId>,
    /// `pending`, `running`, or how it ended.
    pub status: &'static str,
    /// The number of tool calls that are reserved for it.
    pub calls_granted: u32,
    /// When it started; only while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Micros>,
    /// Its loop; only while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunState>,
}

/// An accepted message whose turn has not begun.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WaitingState {
    /// Its task.
    pub task: TaskId,
    /// Its place among the waiting messages of the conversation, from 1.
    pub place: usize,
    /// Its sequence number in the log.
    pub seq: Seq,
    /// The first 80 characters.
    pub title: String,
    /// Its class.
    pub priority: Priority,
    /// Whether it waits in the lane of turns that a person waits for.
    pub is_front: bool,
    /// The time from which its deadlines count.
    pub counts_from: Micros,
    /// The turn does not begin before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Micros>,
    /// The tasks that must end first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<TaskId>,
    /// Suspended by its user.
    pub is_suspended: bool,
    /// It joins the running turn if that can accept it.
    pub is_steer: bool,
}

impl ReplayState {
    /// The state of a conversation. Directives that wait for a time are due at the time of the Engine's last event.
    #[must_use]
    pub fn of(state: &Conversation) -> Self {
        let waiting = state.inbox.iter().enumerate().map(|(n, pending)| WaitingState {
            task: pending.task,
            place: n + 1,
            seq: pending.seq,
            title: title_of(&pending.inbound.text),
            priority: pending.inbound.priority,
            is_front: Lane::of(pending.inbound.priority) == Lane::Front,
            counts_from: pending.at,
            not_before: pending.not_before(),
            after: pending.inbound.after.clone(),
            is_suspended: pending.is_suspended,
            is_steer: pending.inbound.steer,
        });
        Self {
            conversation: state.id,
            seq: state.seq,
            engine_at: state.at,
            exchanges: state.history.exchanges().len(),
            turns: state.turns.iter().map(turn).collect(),
            waiting: waiting.collect(),
            job_commands: state.job_commands.iter().map(|command| command.task).collect(),
            joined: state.joined.iter().map(|joined| (joined.task, joined.into)).collect(),
            cancelled: state.cancelled.clone(),
            is_paused: state.paused.is_some(),
            window_calls: state.window.len(),
            outstanding: state.outstanding(state.at).iter().map(line).collect(),
            decides: state.decide().map(|decision| decision.body.kind()),
        }
    }
}

fn turn(turn: &Turn) -> TurnState {
    TurnState {
        task: turn.task,
        title: title_of(&turn.inbound.text),
        priority: turn.inbound.priority,
        mode: turn.mode,
        is_front: turn.lane == Lane::Front,
        route: turn.route.clone(),
        started_at: turn.started_at,
        is_cancelled: turn.control.is_cancelled,
        is_suspended: turn.control.is_suspended,
        is_detached: turn.control.is_detached,
        deferred_until: turn.deferral.until,
        is_past_soft_deadline: turn.clock.soft_passed,
        is_past_hard_deadline: turn.clock.hard_passed,
        main: run(&turn.main),
        agents: turn.agents.plan.nodes().iter().map(|node| agent(turn, node)).collect(),
        approvals: turn.approvals.iter().filter(|a| a.verdict.is_none()).map(|a| a.number).collect(),
    }
}

fn agent(turn: &Turn, node: &Node) -> AgentState {
    let (status, since) = match &node.state {
        NodeState::Pending => ("pending", None),
        NodeState::Running { since, .. } => ("running", Some(*since)),
        NodeState::Reported(report) => (report.status.as_str(), None),
    };
    AgentState {
        agent: node.spec.agent.clone(),
        mission: title_of(&node.spec.mission),
        depends_on: node.spec.depends_on.clone(),
        status,
        calls_granted: node.granted,
        since,
        run: turn.agents.runs.get(&node.spec.agent).map(run),
    }
}

fn run(run: &AgentRun) -> RunState {
    let (phase, calls) = match &run.phase {
        Phase::Thinking => ("thinking", Vec::new()),
        Phase::Acting(calls) => ("acting", calls.iter().map(call).collect()),
        Phase::Ended(_) => ("ended", Vec::new()),
    };
    let ending = run.ending().map(|ending| match ending {
        Ending::Output(_) => "output",
        Ending::Ready(_) => "ready",
        Ending::Tripped(_) => "limit",
        Ending::GaveUp(_) => "gave_up",
        Ending::Silent(_) => "silent",
        Ending::ModelFailed(_) => "model_failed",
        Ending::Called(..) => "called",
        Ending::Unfit(_) => "unfit",
        Ending::StepFailed(_) => "step_failed",
    });
    RunState {
        phase,
        ending,
        round: run.round,
        rounds_max: run.rounds_max,
        calls_used: run.calls_used,
        calls_max: run.calls_max,
        calls,
    }
}

fn call(open: &OpenCall) -> CallState {
    let (name, intent, effect) = match &open.call.action {
        Action::Skill(planned) => (planned.skill.clone(), Some(planned.intent), Some(planned.effect)),
        Action::Answer { .. }
        | Action::Dispatch(_)
        | Action::Collect { .. }
        | Action::ControlAgent { .. }
        | Action::Alternatives(_)
        | Action::Caller => (open.call.name.clone(), None, None),
    };
    CallState {
        call_id: open.call.id.clone(),
        name,
        intent,
        effect,
        is_started: open.started,
        has_result: open.result.is_some(),
        waits_for_hooks: open.hooks.clone(),
    }
}

/// A directive as one line.
fn line(directive: &Directive) -> String {
    match directive {
        Directive::BeginTurn { task } => format!("begin {task}"),
        Directive::CallModel { task, agent, round } => format!("round {round} of {agent} in {task}"),
        Directive::CallSkill { task, agent, skill, started_before, .. } => {
            let again = if *started_before { ", started before" } else { "" };
            format!("run {} for {agent} in {task}{again}", skill.skill)
        }
        Directive::RunHook { task, agent, hook, skill } => {
            format!("ask hook {hook} about {} for {agent} in {task}", skill.skill)
        }
        Directive::Understand { task, .. } => format!("resolve job command {task}"),
        Directive::CarryOut { task, .. } => format!("carry out job command {task}"),
        Directive::Compact { task, number } => format!("compaction {number} after {task}"),
        Directive::RunAgent { task, agent } => format!("run agent {agent} in {task}"),
    }
}
