//! Passivation: an Engine leaves memory when nothing has happened for a while, or when it only waits and its capacity is
//! wanted.
//!
//! The parent decides, because a wake-up may be on its way. Until it answers, the Engine starts nothing: permit requests
//! that still wait are withdrawn, so that no round is cut off that has begun.

use annie_core::{
    approval::APPROVAL,
    time::Micros,
    turn::{Directive, DirectiveId, Lane, Turn},
};

use super::{
    act,
    clock::{self, start_idle_timer},
    messages::{EngineMsg, EngineResidencyMsg},
    record, snapshot,
    state::{Engine, EngineState, EngineTask, Leaving},
};
use crate::{
    conversations::{ConversationsMsg, Passivation, ResidencyMsg},
    observe::{Context, NodeError},
};

/// How long a round must have waited for its permit before its Engine passivates to free capacity, in milliseconds. A round
/// that is known to wait longer than this need not wait here first.
const PERMIT_MS_MIN: u64 = 5_000;

/// Asks to leave memory if nothing is under way; otherwise refuses or waits for another quiet period.
pub(super) async fn ask_to_passivate(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    is_asked: bool,
) -> Result<(), NodeError> {
    let refuse = |state: &mut EngineState| {
        if is_asked {
            // If the parent is dead, this Engine ends with it.
            state.wiring.conversations.tell(ConversationsMsg::Residency(ResidencyMsg::StaysActive(state.conv.id)));
        } else {
            start_idle_timer(ctx, state);
        }
    };
    if !only_waits(state, ctx.now(), is_asked) {
        refuse(state);
        return Ok(());
    }
    let passivation = (!state.conv.is_idle()).then(|| passivation(state, ctx.now()));
    if !withdraw_requests(state) {
        refuse(state);
        return record::record_decisions(ctx, state).await;
    }
    state.leaving = Some(Leaving { later: Vec::new() });
    state.questions_open += 1;
    let ask = ConversationsMsg::Residency(ResidencyMsg::MayPassivate {
        conversation: state.conv.id,
        incarnation: ctx.incarnation,
        wakes_seen: state.wakes_seen,
        passivation,
    });
    state.wiring.conversations.tell(ask);
    Ok(())
}

/// Whether nothing is under way except calls that wait for persons, and rounds that wait for permits and have waited a while
/// or will wait long. A suspended task keeps a round that has begun, until that round ends. A turn in the front lane, for which
/// a person waits, stays if it waits only for its permit: a passive conversation requests none, so that rounds of others would
/// begin before it.
fn only_waits(state: &EngineState, now: Micros, is_asked: bool) -> bool {
    let is_quiet = state.agents.is_empty() && state.unsaved.is_empty() && state.conv.job_commands.is_empty();
    let is_idle = state.conv.is_idle();
    let waits = |wanted: &Directive| {
        if let Directive::RunHook { task, hook, skill, .. } = wanted {
            let mut open = state.conv.open_approvals();
            return hook == APPROVAL && open.any(|(of, approval)| of == *task && approval.intent == skill.intent);
        }
        if let Directive::Compact { .. } = wanted {
            // The next incarnation makes the summary anew, so it is cut off only if the capacity is wanted.
            return is_asked;
        }
        let asked = state.asked.get(&wanted.id()).filter(|asked| asked.handle.is_open());
        let (Directive::CallModel { task, .. }, Some(asked)) = (wanted, asked) else { return false };
        let has_waited = now.since_ms(asked.since) >= PERMIT_MS_MIN;
        let may_go = |turn: &Turn| waits_long(turn, now) || (has_waited && turn.lane != Lane::Front);
        is_idle || state.conv.turn(*task).is_some_and(may_go)
    };
    let is_out = |turn: &Turn| state.wiring.leases.is_out(turn.task);
    !state.fenced && is_quiet && state.conv.outstanding(now).iter().all(waits) && !state.conv.turns.iter().any(is_out)
}

/// Whether a turn is suspended, deferred, or waits for other tasks as far as this Engine knows.
fn waits_long(turn: &Turn, now: Micros) -> bool {
    let waits_for_others = !turn.inbound.after.is_empty() && turn.main.awaits(1);
    turn.control.is_suspended || waits_for_others || deferred_until(turn, now).is_some()
}

fn deferred_until(turn: &Turn, now: Micros) -> Option<Micros> {
    turn.deferral.until.filter(|until| *until > now)
}

/// How the conversation passivates: until its next deadline or due message, or until a deferred turn resumes. A conversation
/// that waits for anything else is activated in rotation.
fn passivation(state: &EngineState, now: Micros) -> Passivation {
    let earliest_deferral = state.conv.turns.iter().filter_map(|turn| deferred_until(turn, now)).min();
    let until = clock::next_at(state, now).into_iter().chain(earliest_deferral).min();
    let is_woken =
        |turn: &Turn| turn.control.is_suspended || turn.awaits_approval() || deferred_until(turn, now).is_some();
    let takes_turns = !state.conv.turns.iter().all(is_woken);
    Passivation { until, takes_turns: takes_turns || until.is_none(), seq: state.conv.seq }
}

/// Withdraws all permit requests that still wait. Returns false if one has just been granted; the withdrawn ones are then
/// requested again.
fn withdraw_requests(state: &mut EngineState) -> bool {
    let taken: Vec<DirectiveId> =
        state.asked.iter().filter(|(_, asked)| asked.handle.take_back()).map(|(id, _)| id.clone()).collect();
    for id in taken {
        state.asked.remove(&id);
        state.tasks.remove(&EngineTask::Effect(id));
    }
    state.asked.is_empty()
}

/// Defers a message that arrives while the request to leave is open. There are three exceptions: the parent's answer is
/// handled at once; a further [`EngineResidencyMsg::Evict`] is dropped; and a wake-up or a control ends the wait, because the parent has
/// counted it as sent and refuses the request. Returns the message if it must be handled now.
pub(super) async fn defer_while_leaving(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    msg: EngineMsg,
) -> Result<Option<EngineMsg>, NodeError> {
    let Some(leaving) = state.leaving.as_mut() else { return Ok(Some(msg)) };
    match msg {
        EngineMsg::Residency(EngineResidencyMsg::Passivate | EngineResidencyMsg::StayActive) => Ok(Some(msg)),
        // The Engine has asked already, and the parent takes that request for the answer.
        EngineMsg::Residency(EngineResidencyMsg::Evict) => Ok(None),
        EngineMsg::Wake(_) | EngineMsg::Control { .. } | EngineMsg::Person(_) => {
            while state.leaving.is_some() {
                stay_active(ctx, state).await?;
            }
            Ok(Some(msg))
        }
        msg => {
            leaving.later.push(msg);
            Ok(None)
        }
    }
}

/// The parent refuses the request to leave. If that answers an earlier request, whose wait ended for another reason, the
/// answer to the last one is still to come: every request is answered once, in order.
pub(super) async fn refused(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    state.questions_open = state.questions_open.saturating_sub(1);
    if state.questions_open > 0 { Ok(()) } else { stay_active(ctx, state).await }
}

/// Continues after a refusal or a wake-up with the deferred messages. If one of them makes the Engine ask to leave again,
/// the remaining ones stay deferred.
async fn stay_active(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    let Some(Leaving { later }) = state.leaving.take() else { return Ok(()) };
    let mut later = later.into_iter();
    while let Some(msg) = later.next() {
        Box::pin(act(ctx, state, msg)).await?;
        if let Some(leaving) = state.leaving.as_mut() {
            leaving.later.extend(later);
            return Ok(());
        }
    }
    record::record_decisions(ctx, state).await
}

/// Leaves memory. The last events of sub-agents that finished meanwhile are stored. Open work that follows from them is
/// continued by the next incarnation, here or on the node that owns the conversation by then.
pub(super) async fn passivate(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    let leaving = state.leaving.take();
    // The Engine took the answer to an earlier request for the answer to this one, and continued.
    let mut has_open_work = leaving.is_none() && !state.conv.is_idle();
    let later = leaving.map(|leaving| leaving.later).unwrap_or_default();
    for msg in later.into_iter().filter(|msg| matches!(msg, EngineMsg::AgentFinished { .. })) {
        has_open_work = true;
        Box::pin(act(ctx, state, msg)).await?;
    }
    state.tasks.retain(|_| false);
    if has_open_work || !snapshot::save_on_passivate(ctx, state).await? {
        report_open_work(state);
    }
    ctx.stop();
    Ok(())
}

/// Reports open work that this incarnation does not continue. The Engine has no child slot any more, so the parent first
/// checks which node owns the conversation. A fenced Engine reports nothing, because another owner is known.
fn report_open_work(state: &EngineState) {
    if !state.fenced {
        let (conversation, user) = (state.conv.id, state.conv.user.clone());
        // If the parent is dead, its next incarnation scans for open work.
        state.wiring.conversations.tell(ConversationsMsg::Unfinished { conversation, user });
    }
}
