//! The one way in which an Engine's state moves: fold, decide, store, and only then act.

use std::{collections::HashMap, time::Duration};

use annie_core::{
    event::{EventBody, Mode, NewEvent, PromptFacts},
    ids::{AgentId, Seq, TaskId},
    limits::TurnLimits,
    ports::{Append, AppendError, Fence},
    turn::DirectiveId,
};

use super::{Engine, EngineMsg, EngineState, EngineTask, agents, clock, perform, rest, snapshot};
use crate::{
    effects::Routed,
    log_writer::{LogError, append},
    observe::{Context, NodeError},
};

/// Decisions about one task in a row without anything from outside; more would be a circle in the core. About how many tasks
/// is not bounded: an answer may be owed to any number of them.
const DECISIONS_MAX: u32 = 1_000;
/// Events that are stored at once. What is behind them follows from them, in this life or the next.
const APPEND_EVENTS_MAX: usize = 1_000;
/// How long the beginning of a turn waits for the model's reply before it is stored by itself, in milliseconds.
const SAVE_MS: u64 = 5;

/// Records one event and what follows from it.
pub(super) async fn record(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    task: TaskId,
    agent: AgentId,
    body: EventBody,
) -> Result<(), NodeError> {
    state.at_work.on(Some(task));
    let event = NewEvent { at: ctx.now(), task, agent, body };
    record_all(ctx, state, vec![event]).await
}

/// Begins a turn. What is known of it is not announced and has had no effect yet, so it may wait a moment for the model's
/// reply and be stored together with it: a model that answers at once costs one commit less. After a death it is stored at
/// once, so that a message that kills its Engine is found out; and so it is if a backend may run it that works by itself,
/// whose mark that a round began must stand behind it in the log.
pub(super) async fn begin(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    task: TaskId,
    beginning: Beginning,
) -> Result<(), NodeError> {
    let Some(inbound) = state.conv.may_begin(task) else {
        // It was cancelled or held back while its facts were read.
        return Ok(());
    };
    let Beginning { mode, mut facts, limits, route } = beginning;
    facts.suggestion = route.suggestion;
    let new = |body| NewEvent { at: ctx.now(), task, agent: AgentId::orchestrator(), body };
    let is_spoken = facts.spoken_as.is_some();
    let mut events = vec![new(mode_decided(mode, inbound.mode.is_some(), is_spoken))];
    if let Some(decided) = route.decided {
        events.push(new(decided));
    }
    let may_act = state.wiring.routing.may_act(&route.candidates);
    let continues = state.conv.continues(task);
    events.insert(0, new(EventBody::TurnStarted { mode, facts, limits, route: route.candidates, continues }));
    if let Some(text) = route.refused {
        events.push(new(EventBody::Failed {
            code: "no_backend".to_owned(),
            text,
            detail: String::new(),
            letter: None,
        }));
        return record_all(ctx, state, events).await;
    }
    if state.cause.is_some() || may_act {
        return record_all(ctx, state, events).await;
    }
    for event in &events {
        state.conv.fold(event.at, event.task, &event.agent, &event.body);
    }
    state.unsaved.extend(events);
    let me = ctx.me();
    state.tasks.spawn(EngineTask::SaveTimer, async move {
        tokio::time::sleep(Duration::from_millis(SAVE_MS)).await;
        // If it fails this life is over, and the next one begins the turn.
        me.tell(EngineMsg::Save);
    });
    perform::perform(ctx, state).await?;
    // A first round may take longer than the soft deadline.
    clock::wind(ctx, state);
    Ok(())
}

/// What a turn begins with.
pub(super) struct Beginning {
    pub mode: Mode,
    pub facts: PromptFacts,
    pub limits: TurnLimits,
    pub route: Routed,
}

fn mode_decided(mode: Mode, asked: bool, is_spoken: bool) -> EventBody {
    let why = match (is_spoken, asked) {
        (true, _) => "it was spoken, and an orchestrator would take too long",
        (false, true) => "the message asks for it",
        (false, false) => "it is the configured mode",
    };
    let others = [Mode::MultiAgent, Mode::SingleLoop, Mode::Direct].into_iter().filter(|m| *m != mode);
    EventBody::Decided {
        component: "engine".to_owned(),
        decision: format!("run in mode {}", mode.as_str()),
        reasoning: why.to_owned(),
        alternatives: others.map(|m| m.as_str().to_owned()).collect(),
    }
}

/// Stores what has waited.
pub(super) async fn save(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    if !state.unsaved.is_empty() {
        store(ctx, state, Vec::new()).await?;
    }
    Ok(())
}

/// Records nothing new, but what follows from the state as it is.
pub(super) async fn go_on(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    record_all(ctx, state, Vec::new()).await
}

pub(super) async fn record_all(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    mut events: Vec<NewEvent>,
) -> Result<(), NodeError> {
    note_rounds_that_act(state);
    for event in &events {
        state.conv.fold(event.at, event.task, &event.agent, &event.body);
    }
    agents::note_progress(state);
    let now = ctx.now();
    let mut decided: HashMap<TaskId, u32> = HashMap::new();
    while let Some(decision) = state.conv.decide() {
        if decision.body.is_final() && forbid_rounds(state, decision.task) {
            continue;
        }
        let count = decided.entry(decision.task).or_default();
        *count += 1;
        if *count > DECISIONS_MAX {
            return Err(NodeError::new("the core decides in a circle"));
        }
        state.conv.fold(now, decision.task, &decision.agent, &decision.body);
        events.push(NewEvent { at: now, task: decision.task, agent: decision.agent, body: decision.body });
    }
    while !events.is_empty() {
        let rest = events.split_off(events.len().min(APPEND_EVENTS_MAX));
        if !store(ctx, state, std::mem::replace(&mut events, rest)).await? {
            return Ok(());
        }
    }
    perform::perform(ctx, state).await?;
    clock::wind(ctx, state);
    if state.conv.is_idle() {
        rest(ctx, state);
    }
    Ok(())
}

/// Before anything is decided the state learns which rounds have begun on a backend that works by itself, so that what ends
/// their turn tells it.
fn note_rounds_that_act(state: &mut EngineState) {
    for (id, asked) in &state.asked {
        let DirectiveId::Model(task, _, round) = id else { continue };
        if asked.begin.has_begun() {
            state.conv.round_acts(*task, *round);
        } else {
            state.conv.round_does_not_act(*task);
        }
    }
}

/// Of a turn whose final event is decided no round begins any more. True if one has begun that the decision did not know of:
/// then it is decided again.
fn forbid_rounds(state: &mut EngineState, task: TaskId) -> bool {
    let mut is_news = false;
    for (id, asked) in &state.asked {
        if let DirectiveId::Model(of, _, round) = id
            && *of == task
            && !asked.begin.forbid()
        {
            is_news |= state.conv.round_acts(task, *round);
        }
    }
    is_news
}

/// Stores events that are folded already, behind those that have waited. False if another life owns the conversation now:
/// then this one ends, and starts nothing more.
async fn store(ctx: &Context<Engine>, state: &mut EngineState, new: Vec<NewEvent>) -> Result<bool, NodeError> {
    let mut events = std::mem::take(&mut state.unsaved);
    events.extend(new);
    ctx.fault_point("deciding").await?;
    let count = events.len() as u64;
    let what =
        Append { conversation: state.conv.id, user: state.conv.user.clone(), fence: Fence::Owner(state.epoch), events };
    match ctx.wait_for(append(&state.wiring.log, what)).await {
        Ok(stored) => {
            state.conv.placed(Seq(stored.first.0 + count - 1));
            super::own(state, stored.first, count);
        }
        Err(LogError::Refused(AppendError::Fenced)) => {
            tracing::info!(conversation = %state.conv.id, "another life owns the conversation now");
            state.fenced = true;
            ctx.stop();
            return Ok(false);
        }
        // The state says more than the log, or the log more than is known: the next life reads it.
        Err(e) => {
            let what = format!("an append failed: {e}");
            return Err(if e.is_passing() { NodeError::deprived(what) } else { NodeError::new(what) });
        }
    }
    snapshot::keep_now_and_then(ctx, state);
    ctx.fault_point("stored").await?;
    Ok(true)
}
