//! The only way in which the state of a conversation changes: fold, decide, store, then act. Only the beginning of a turn may be
//! stored after its first round has started, together with the model's reply (see `begin`).

use std::{collections::HashMap, time::Duration};

use annie_core::{
    classify::Intent,
    event::{AnswerOutcome, EventBody, Mode, NewEvent, PromptFacts},
    ids::{AgentId, Seq, TaskId},
    limits::TurnLimits,
    message::{Finish, Usage},
    ports::{Append, Fence},
    turn::{DirectiveId, workflow_not_started},
};

use super::{
    agents, clock, compaction,
    messages::EngineMsg,
    perform, snapshot,
    state::{Engine, EngineState, EngineTask, note_stored},
};
use crate::{
    agent::{self, AnswerWithoutTurn, JudgedTurn, Stored, append_owned},
    effects::Routed,
    observe::{Context, NodeError},
};

/// Decisions in a row about one task without input from outside; more indicates a cycle in the core. The number of tasks is
/// not bounded: any number of them may be owed an answer.
const DECISIONS_MAX: u32 = 1_000;
/// Events that are stored in one append. Later events follow from the stored ones, in this incarnation or the next.
const APPEND_EVENTS_MAX: usize = 1_000;
/// How long the beginning of a turn waits for the model's reply before it is stored on its own, in milliseconds. Until then a
/// list shows the task as waiting, so the time is one that a person does not notice. Recovery does not need the beginning: the
/// next incarnation begins the turn anew, and what the turn has done is stored with the beginning or after it.
const SAVE_MS: u64 = 250;

/// Records one event and what follows from it.
pub(super) async fn record(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    task: TaskId,
    agent: AgentId,
    body: EventBody,
) -> Result<(), NodeError> {
    record_in_order(ctx, state, task, agent, vec![body]).await
}

/// Records events of one agent and what follows from them.
pub(super) async fn record_in_order(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    task: TaskId,
    agent: AgentId,
    bodies: Vec<EventBody>,
) -> Result<(), NodeError> {
    state.at_work.on(Some(task));
    let at = ctx.now();
    let events = bodies.into_iter().map(|body| NewEvent { at, task, agent: agent.clone(), body });
    record_all(ctx, state, events.collect()).await
}

/// Begins a turn. The beginning is not announced and has had no effect yet, so it may wait briefly for the model's reply and
/// be stored together with it. This saves one commit when the model answers at once. There are two exceptions. After a crash
/// the beginning is stored at once, so that a message that kills its Engine is identified. It is also stored at once if an
/// agentic backend may run the turn, because the mark that a round began must come after it in the log.
pub(super) async fn begin(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    task: TaskId,
    beginning: Beginning,
) -> Result<(), NodeError> {
    let Some(inbound) = state.conv.may_begin(task) else {
        // The turn was cancelled or suspended while its facts were read.
        return Ok(());
    };
    let Beginning { mode, mut facts, limits, route, judged } = beginning;
    facts.suggestion = route.suggestion;
    facts.is_flagged = judged.is_flagged;
    let new = |body| NewEvent { at: ctx.now(), task, agent: AgentId::orchestrator(), body };
    let verdicts = agent::record(judged.verdicts).into_iter();
    if let Some(text) = judged.refused {
        // No turn begins, so that a paused turn can still be continued.
        let end = refused_by_rule(text, inbound.format().is_some());
        return record_all(ctx, state, verdicts.chain([end]).map(new).collect()).await;
    }
    if let Some(AnswerWithoutTurn { text, is_done }) = judged.answered {
        let outcome = if is_done { AnswerOutcome::Done } else { AnswerOutcome::Declined };
        let end = EventBody::answered(text).with_outcome(outcome);
        return record_all(ctx, state, verdicts.chain([end]).map(new).collect()).await;
    }
    if let Some(why) = judged.not_started {
        let end = workflow_not_started(inbound, &limits.dead_letters, &why, ctx.now());
        return record_all(ctx, state, verdicts.chain([end]).map(new).collect()).await;
    }
    let is_spoken = facts.spoken_as.is_some();
    let mut events = vec![new(mode_decided(mode, inbound.mode.is_some(), is_spoken))];
    events.extend(facts.intent.map(intent_decided).into_iter().map(new));
    events.extend(route.decided.into_iter().chain(verdicts).map(new));
    let may_act = state.wiring.routing.may_act(&route.candidates);
    let continues = state.conv.continues(task);
    events.insert(0, new(EventBody::TurnStarted { mode, facts, limits, route: route.candidates, continues }));
    if let Some(text) = route.refused {
        events.push(new(EventBody::Failed {
            code: "no_backend".to_owned(),
            text,
            detail: String::new(),
            dead_letter: None,
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
    // The timer of an earlier beginning also stores this one.
    if !state.tasks.contains(&EngineTask::SaveTimer) {
        let me = ctx.me();
        state.tasks.spawn(EngineTask::SaveTimer, async move {
            tokio::time::sleep(Duration::from_millis(SAVE_MS)).await;
            // If the message is lost, this incarnation has ended, and the next one begins the turn.
            me.tell(EngineMsg::Save);
        });
    }
    perform::perform(ctx, state).await?;
    // The first round may take longer than the soft deadline.
    clock::set_timer(ctx, state);
    Ok(())
}

/// The data with which a turn begins.
pub(super) struct Beginning {
    pub mode: Mode,
    pub facts: PromptFacts,
    pub limits: TurnLimits,
    pub route: Routed,
    /// The verdicts of the hooks.
    pub judged: JudgedTurn,
}

/// The end of a message whose turn a hook refuses. A program that requested a format would take the text for its answer.
fn refused_by_rule(text: String, has_format: bool) -> EventBody {
    if has_format {
        let (code, detail) = ("refused_by_rule".to_owned(), String::new());
        return EventBody::Failed { code, text, detail, dead_letter: None };
    }
    EventBody::Answered {
        text,
        paused: false,
        usage: Usage::default(),
        outcome: AnswerOutcome::Declined,
        finish: Finish::Stop,
        calls: Vec::new(),
        redacted: Vec::new(),
        spoken: Vec::new(),
    }
}

fn intent_decided(intent: Intent) -> EventBody {
    let why = match intent {
        Intent::Simple => {
            "the whole message is small talk and nothing is open, so a short prompt without skills is enough"
        }
        Intent::ToolUse => "it may need a skill, or something is open to which it may be the answer",
        Intent::Complex => "it is long, or its words join several steps",
    };
    let others = [Intent::Simple, Intent::ToolUse, Intent::Complex].into_iter().filter(|other| *other != intent);
    EventBody::Decided {
        component: "intent".to_owned(),
        decision: intent.as_str().to_owned(),
        reasoning: why.to_owned(),
        alternatives: others.map(|other| other.as_str().to_owned()).collect(),
        hook: None,
    }
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
        hook: None,
    }
}

/// Stores the beginning of a turn that is not stored yet.
pub(super) async fn save(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    if !state.unsaved.is_empty() {
        store(ctx, state, Vec::new()).await?;
    }
    Ok(())
}

/// Records only what follows from the state as it is.
pub(super) async fn record_decisions(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
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
    events.iter().for_each(|event| compaction::count(&event.body));
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
        count_changes(&decision.body);
        compaction::count(&decision.body);
        events.push(NewEvent { at: now, task: decision.task, agent: decision.agent, body: decision.body });
    }
    while !events.is_empty() {
        let rest = events.split_off(events.len().min(APPEND_EVENTS_MAX));
        if !store(ctx, state, std::mem::replace(&mut events, rest)).await? {
            return Ok(());
        }
    }
    perform::perform(ctx, state).await?;
    clock::set_timer(ctx, state);
    if state.conv.is_idle() {
        clock::start_idle_timer(ctx, state);
    }
    Ok(())
}

fn count_changes(body: &EventBody) {
    if let EventBody::Answered { redacted, spoken, .. } = body {
        for change in spoken {
            metrics::counter!("annie_answers_spoken_total", "change" => change.as_str()).increment(1);
        }
        for kind in redacted {
            metrics::counter!("annie_answers_redacted_total", "kind" => kind.as_str()).increment(1);
        }
    }
}

/// Notes in the state which rounds have begun on an agentic backend. This happens before anything is decided, so that an
/// event that ends a turn reports that round.
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

/// Forbids further rounds of a turn whose final event is decided. Returns true if a round has begun that the decision did
/// not know of; then the decision must be made again.
fn forbid_rounds(state: &mut EngineState, task: TaskId) -> bool {
    let mut has_new_round = false;
    for (id, asked) in &state.asked {
        if let DirectiveId::Model(of, _, round) = id
            && *of == task
            && !asked.begin.forbid()
        {
            has_new_round |= state.conv.round_acts(task, *round);
        }
    }
    has_new_round
}

/// Stores folded events, after those that are still unsaved. Returns false if another epoch owns the conversation now; then
/// this incarnation stops and starts nothing more.
async fn store(ctx: &Context<Engine>, state: &mut EngineState, new: Vec<NewEvent>) -> Result<bool, NodeError> {
    let mut events = std::mem::take(&mut state.unsaved);
    if !events.is_empty() {
        // Otherwise every turn would wake its Engine once more for nothing.
        state.tasks.remove(&EngineTask::SaveTimer);
    }
    events.extend(new);
    ctx.fault_point("deciding").await?;
    let count = events.len() as u64;
    let what =
        Append { conversation: state.conv.id, user: state.conv.user.clone(), fence: Fence::Owner(state.epoch), events };
    match append_owned(ctx, &state.wiring.log, what).await? {
        Stored::At(first) => {
            state.conv.set_last_seq(Seq(first.0 + count - 1));
            note_stored(state, first, count);
        }
        Stored::Fenced => {
            state.fenced = true;
            return Ok(false);
        }
    }
    snapshot::save_if_due(ctx, state);
    ctx.fault_point("stored").await?;
    Ok(true)
}
