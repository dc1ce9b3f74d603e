//! Leaving memory: when nothing has happened for a while, and when the room is wanted and this Engine only waits.
//!
//! Its parent has the last word, since a wake-up may be on its way. Until it has spoken nothing is begun: rounds that wait for
//! their permits are taken back, so that none is cut off that has begun.

use annie_core::{
    ids::Seq,
    time::Micros,
    turn::{Directive, DirectiveId, Lane, Turn},
};

use super::{Engine, EngineMsg, EngineState, EngineTask, act, clock, record, rest, snapshot};
use crate::{
    conversations::ConversationsMsg,
    effects::{Begin, Waits},
    observe::{Context, NodeError},
    scheduler::Wish,
};

/// How long a round waits at least for its permit before its Engine makes room for others, in milliseconds. What is known to
/// wait for longer than that does not wait here.
const PERMIT_MS_MIN: u64 = 5_000;

/// How a conversation sleeps that made room though something is open in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sleep {
    /// It is to be back at this time.
    pub until: Option<Micros>,
    /// It waits for what nobody tells it while it sleeps, and comes back now and then.
    pub takes_turns: bool,
    /// The last event that it knows.
    pub seq: Seq,
}

/// A round that this life asked for.
pub(crate) struct Asked {
    pub wish: Wish,
    pub begin: Begin,
    /// How long it waits for its permits.
    pub waits: Waits,
    pub since: Micros,
}

/// What comes while it is not known whether this life ends.
pub(crate) struct Leaving {
    later: Vec<EngineMsg>,
}

/// Asks to leave memory if nothing is under way; otherwise, later.
pub(super) async fn leave(ctx: &Context<Engine>, state: &mut EngineState, is_asked: bool) -> Result<(), NodeError> {
    let refuse = |state: &mut EngineState| {
        if is_asked {
            // If nobody lives there, this life is ending with its parent.
            state.wiring.conversations.tell(ConversationsMsg::Stays(state.conv.id));
        } else {
            rest(ctx, state);
        }
    };
    if !only_waits(state, ctx.now()) {
        refuse(state);
        return Ok(());
    }
    let sleep = (!state.conv.is_idle()).then(|| sleep(state, ctx.now()));
    if !take_back(state) {
        refuse(state);
        return record::go_on(ctx, state).await;
    }
    state.leaving = Some(Leaving { later: Vec::new() });
    state.questions_open += 1;
    let ask = ConversationsMsg::MayHibernate {
        conversation: state.conv.id,
        incarnation: ctx.incarnation,
        wakes_seen: state.wakes_seen,
        sleep,
    };
    state.wiring.conversations.tell(ask);
    Ok(())
}

/// Whether nothing is under way but rounds that wait for their permits, and have waited a while or will. A task that is held
/// back keeps the round that it had begun, and that round ends as it would. What a person waits for stays if it waits for
/// nothing but its permit: who sleeps asks for none, and rounds of others would begin before it.
fn only_waits(state: &EngineState, now: Micros) -> bool {
    let is_quiet = state.agents.is_empty() && state.unsaved.is_empty() && state.conv.orders.is_empty();
    let is_idle = state.conv.is_idle();
    let waits = |wanted: &Directive| {
        let asked = state.asked.get(&wanted.id()).filter(|asked| asked.wish.is_open());
        let (Directive::CallModel { task, .. }, Some(asked)) = (wanted, asked) else { return false };
        let has_waited = now.since_ms(asked.since) >= PERMIT_MS_MIN;
        let may_go = |turn: &Turn| waits_long(turn, now) || (has_waited && turn.lane != Lane::Front);
        is_idle || state.conv.turn(*task).is_some_and(may_go)
    };
    let is_out = |turn: &Turn| state.wiring.leases.is_out(turn.task);
    !state.fenced && is_quiet && state.conv.outstanding(now).iter().all(waits) && !state.conv.turns.iter().any(is_out)
}

/// Whether a turn waits for other tasks, as far as it is known here, or was put off.
fn waits_long(turn: &Turn, now: Micros) -> bool {
    let waits_for_others = !turn.inbound.after.is_empty() && turn.main.awaits(1);
    turn.suspended || waits_for_others || put_off(turn, now).is_some()
}

fn put_off(turn: &Turn, now: Micros) -> Option<Micros> {
    turn.deferral.until.filter(|until| *until > now)
}

/// How it sleeps: until its clock would strike, or a turn goes on that was put off; and whoever waits for anything else takes
/// turns.
fn sleep(state: &EngineState, now: Micros) -> Sleep {
    let put_off_until = state.conv.turns.iter().filter_map(|turn| put_off(turn, now)).min();
    let until = clock::next_at(state, now).into_iter().chain(put_off_until).min();
    let takes_turns = state.conv.turns.iter().any(|turn| !turn.suspended && put_off(turn, now).is_none());
    Sleep { until, takes_turns: takes_turns || until.is_none(), seq: state.conv.seq }
}

/// Takes all rounds back that wait for their permits. False if one has just got it; then those that were taken back are asked
/// for again.
fn take_back(state: &mut EngineState) -> bool {
    let taken: Vec<DirectiveId> =
        state.asked.iter().filter(|(_, asked)| asked.wish.take_back()).map(|(id, _)| id.clone()).collect();
    for id in taken {
        state.asked.remove(&id);
        state.tasks.remove(&EngineTask::Effect(id));
    }
    state.asked.is_empty()
}

/// What comes meanwhile waits, or ends the wait: a wake-up that this life has heard of its parent has counted too, and does
/// not let it go. Nothing is given back if it was dealt with.
pub(super) async fn meanwhile(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    msg: EngineMsg,
) -> Result<Option<EngineMsg>, NodeError> {
    let Some(leaving) = state.leaving.as_mut() else { return Ok(Some(msg)) };
    match msg {
        EngineMsg::Hibernate | EngineMsg::Stay => Ok(Some(msg)),
        // It has asked already, and its parent takes that for the answer.
        EngineMsg::Vacate => Ok(None),
        EngineMsg::Wake(_) | EngineMsg::Control { .. } => {
            while state.leaving.is_some() {
                stay(ctx, state).await?;
            }
            Ok(Some(msg))
        }
        msg => {
            leaving.later.push(msg);
            Ok(None)
        }
    }
}

/// Its parent does not let it go. If that answers an earlier question, whose wait something else has ended, the answer to the
/// last one is still to come: every question is answered once, in order.
pub(super) async fn refused(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    state.questions_open = state.questions_open.saturating_sub(1);
    if state.questions_open > 0 { Ok(()) } else { stay(ctx, state).await }
}

/// It does not leave: it goes on where it was. If what has waited makes it ask once more, the rest waits on.
async fn stay(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    let Some(Leaving { later }) = state.leaving.take() else { return Ok(()) };
    let mut later = later.into_iter();
    while let Some(msg) = later.next() {
        Box::pin(act(ctx, state, msg)).await?;
        if let Some(leaving) = state.leaving.as_mut() {
            leaving.later.extend(later);
            return Ok(());
        }
    }
    record::go_on(ctx, state).await
}

/// It leaves. What its agents have done since is stored; that may lead on, and the next life goes on with it, here or where
/// another process has the conversation by now.
pub(super) async fn hibernate(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    let leaving = state.leaving.take();
    // It had taken the answer to an earlier question for this one's, and went on.
    let mut leads_on = leaving.is_none() && !state.conv.is_idle();
    let later = leaving.map(|leaving| leaving.later).unwrap_or_default();
    for msg in later.into_iter().filter(|msg| matches!(msg, EngineMsg::AgentFinished { .. })) {
        leads_on = true;
        Box::pin(act(ctx, state, msg)).await?;
    }
    state.tasks.retain(|_| false);
    if leads_on {
        leave_open(state);
    } else {
        snapshot::keep_at_leave(ctx, state).await?;
    }
    ctx.stop();
    Ok(())
}

/// Something is open that this life does not go on with. It has no seat any more, so nobody is woken before it is known whose
/// the conversation is; and if it was shut out that is known already.
pub(super) fn leave_open(state: &EngineState) {
    if !state.fenced {
        let (conversation, user) = (state.conv.id, state.conv.user.clone());
        // If nobody lives there, its next life finds what is open.
        state.wiring.conversations.tell(ConversationsMsg::Unfinished { conversation, user });
    }
}
