//! Compares the outstanding directives with the running tasks: starts what is missing, and ends what is no longer wanted.

use std::{collections::HashSet, future::Future};

use annie_core::{
    event::{Inbound, PromptFacts},
    fork_report::ForkCaller,
    ids::{ConversationId, TaskId, UserId},
    turn::{Directive, DirectiveId},
};

use super::{
    agents,
    at_work::AtWork,
    compaction,
    messages::{EngineMsg, JobCommandMsg},
    state::{Asked, Engine, EngineState, EngineTask, answer_decided},
};

use crate::{
    agent::{self, AgentTasks, JudgedTurn, RoundHandles},
    effects::{
        CalledWorkflow, SkillsInUse, answer_carried_by, called_workflow, fork_called, help, nothing_to_end,
        prefer_requested, read_facts, route, run_job_command, state_in, understand_job_command, with_workflow,
    },
    log_ids,
    observe::{Context, NodeError},
    tasks::Tasks,
    wiring::Wiring,
};

pub(super) async fn perform(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    answer_decided(state);
    let wanted = state.conv.outstanding(ctx.now());
    let ids: HashSet<DirectiveId> = wanted.iter().map(Directive::id).collect();
    let is_idle = state.conv.is_idle();
    state.tasks.retain(|task| match task {
        EngineTask::Effect(id) => ids.contains(id),
        EngineTask::IdleTimer => is_idle,
        EngineTask::SaveTimer | EngineTask::Snapshot | EngineTask::Clock => true,
    });
    state.asked.retain(|id, _| ids.contains(id));
    agents::dismiss_unwanted(state, &ids);
    agents::send_steering(state);
    let at_work = state.at_work.now();
    for directive in wanted {
        let id = directive.id();
        if !state.tasks.contains(&EngineTask::Effect(id.clone())) {
            state.at_work.on(Some(id.task()));
            start(ctx, state, id, directive).await?;
            state.at_work.on(at_work);
        }
    }
    Ok(())
}

/// Why a workflow is not started whose values could not be read: without them it would do something else.
const UNREAD_STATE: &str = "the values of the state that it names could not be read; please try again";

/// The tasks of an Engine's effects. If one panics, the effect's conversation task is blamed for the Engine's death.
struct EngineTasks<'a> {
    tasks: &'a mut Tasks<EngineTask>,
    at_work: &'a AtWork,
}

impl AgentTasks for EngineTasks<'_> {
    fn spawn(&mut self, id: DirectiveId, work: impl Future<Output = ()> + Send + 'static) {
        let (at_work, task) = (self.at_work.clone(), id.task());
        self.tasks.spawn_noting(EngineTask::Effect(id), work, move || at_work.broke(task));
    }
}

impl EngineState {
    pub(super) fn spawn(&mut self, id: DirectiveId, work: impl Future<Output = ()> + Send + 'static) {
        let _entered = log_ids::of_engine(self.conv.id, Some(id.task())).entered();
        EngineTasks { tasks: &mut self.tasks, at_work: &self.at_work }.spawn(id, work);
    }
}

/// The verdicts with the answer, if the message needs no turn: a task of its own carries out the skill that it calls, or it asks
/// for the commands.
async fn answered_at_once(
    wiring: &Wiring,
    user: &UserId,
    (conversation, task): (ConversationId, TaskId),
    inbound: &Inbound,
    has_active_skill: bool,
    mut judged: JudgedTurn,
) -> JudgedTurn {
    if judged.refused.is_some() {
        return judged;
    }
    let at = ForkCaller { conversation, task };
    if let Some(called) = &judged.called {
        judged.answered = fork_called(wiring, user, at, inbound, called).await;
        return judged;
    }
    judged.answered = help(wiring, inbound).await.or_else(|| nothing_to_end(inbound, has_active_skill));
    if judged.answered.is_none() {
        match called_workflow(wiring, user, at, inbound).await {
            Some(CalledWorkflow::Answer(answer)) => judged.answered = Some(answer),
            Some(CalledWorkflow::Fails(why)) => judged.not_started = Some(why),
            Some(CalledWorkflow::Begins(start)) => judged.workflow = Some(start),
            None => {}
        }
    }
    judged
}

async fn start(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    id: DirectiveId,
    directive: Directive,
) -> Result<(), NodeError> {
    let (wiring, me, user, conversation) = (state.wiring.clone(), ctx.me(), state.conv.user.clone(), state.conv.id);
    match directive {
        Directive::BeginTurn { task } => {
            let Some(inbound) = state.conv.may_begin(task).cloned() else { return Ok(()) };
            let known = SkillsInUse::of(&state.conv);
            state.spawn(id, async move {
                let mut route = Box::new(route(&wiring, &inbound));
                let judged = agent::judge_turn(&wiring, (&user, conversation, task), &inbound).await;
                let judged =
                    answered_at_once(&wiring, &user, (conversation, task), &inbound, known.has_active(), judged);
                let mut judged = Box::new(judged.await);
                prefer_requested(&wiring, &mut route, judged.called.as_ref());
                let begins = judged.refused.is_none() && judged.answered.is_none() && judged.not_started.is_none();
                let (mode, facts, limits) = if !begins {
                    (wiring.limits.mode, PromptFacts::default(), wiring.limits.turn.clone())
                } else {
                    // No model reads what a workflow begins with, and what nothing reads must not count as read.
                    let skills = (judged.called.as_ref(), &known, judged.workflow.is_none());
                    let read = read_facts(&wiring, (&user, conversation, task), &inbound, skills, &route).await;
                    match (judged.workflow.take(), read) {
                        (Some(mut start), (_, facts, limits)) => {
                            match state_in(&wiring, (&user, conversation), &[start.definition.as_str()]).await {
                                Ok(values) => start.state = values,
                                Err(_) => judged.not_started = Some(UNREAD_STATE.to_owned()),
                            }
                            with_workflow(facts, limits, start)
                        }
                        (None, read) => read,
                    }
                };
                // If it is lost, this incarnation has ended; the next one begins the turn.
                me.tell(EngineMsg::FactsRead { task, mode, facts: Box::new(facts), limits, route, judged });
            });
        }
        Directive::CallModel { task, .. } | Directive::CallSkill { task, .. } | Directive::RunHook { task, .. } => {
            let Some(view) = state.conv.main_agent(task) else { return Ok(()) };
            let handles = RoundHandles::default();
            if matches!(directive, Directive::CallModel { .. }) {
                handles.waits.begin(ctx.now());
                let RoundHandles { handle, begin, waits } = handles.clone();
                state.asked.insert(id, Asked { handle, begin, waits, since: ctx.now() });
            }
            let mut tasks = EngineTasks { tasks: &mut state.tasks, at_work: &state.at_work };
            let ms_max = wiring.limits.round_ms_max;
            agent::start((&mut tasks, me), (view, state.epoch), wiring, directive, ms_max, handles);
        }
        Directive::Understand { task, text } => {
            let Some(command) = state.conv.job_commands.iter().find(|o| o.task == task) else { return Ok(()) };
            let (source, carries_answer) = (command.inbound.source.clone(), command.inbound.carries_answer());
            state.spawn(id, async move {
                let meant = if carries_answer {
                    answer_carried_by(&text)
                } else {
                    understand_job_command(&wiring, &user, conversation, task, (&text, &source)).await
                };
                // If one of these messages is lost, this incarnation has ended, and the next one starts the command again.
                me.tell(EngineMsg::JobCommand(JobCommandMsg::Understood { task, meant }));
            });
        }
        Directive::CarryOut { task, verb, targets, text } => {
            let by = format!("order:{task}");
            state.spawn(id, async move {
                let text = run_job_command(&wiring, &user, verb, &targets, text, &by).await;
                me.tell(EngineMsg::JobCommand(JobCommandMsg::CarriedOut { task, text }));
            });
        }
        Directive::Compact { task, number } => compaction::start(ctx, state, id, task, number),
        // On the heap: the start of an actor is large, and every message of an Engine would have room for it on the stack.
        Directive::RunAgent { task, agent } => Box::pin(agents::run(ctx, state, task, agent)).await?,
    }
    Ok(())
}
