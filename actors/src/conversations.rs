//! The parent of all Engines: finds or activates them, restarts each within its own budget, and lets idle ones passivate.
//!
//! Owns: the set of active conversations, their restart budgets, the quarantine. Supervised by: the root. Survives its
//! death: the log, which the ownership actor scans for open conversations when the next incarnation starts. A conversation
//! whose Engine keeps dying is quarantined with its crash records. It is shown to operators and can be resumed, and it never
//! affects its neighbours (invariant 11).
//!
//! The actor has two responsibilities, each a module with its own data and messages: residency decides which Engines are in
//! memory, and supervision restarts Engines and quarantines conversations (ADR 0021). Which node owns a conversation is read
//! by another actor ([`crate::ownership`]).

mod activation;
mod messages;
mod residency;
mod state;
mod supervision;
mod takeover;

use std::{collections::HashMap, sync::Arc, time::Duration};

use activation::{activate_due, activate_waiting, engine, handle_leave_request, round, stays_active, wake};
use annie_core::event::ResumeCause;
pub use messages::{ConversationsMsg, OpenWork, OwnershipNews, Passivation, ResidencyMsg, SupervisionMsg};
use residency::Residency;
use serde_json::{Value, json};
pub(crate) use state::Conversations;
use state::{ConversationsState, Work};
use supervision::{ask_owner, deprived_ms, quarantine, quarantined, start, start_again, start_later};

use crate::{
    engine::{EngineMsg, PersonMsg},
    fixed::FixedMap,
    observe::{ChildEnded, Context, EndKind, Node, NodeError},
    ownership::OwnershipMsg,
    supervise::stop_child,
    tasks::Tasks,
    wiring::Wiring,
};

impl Node for Conversations {
    type Msg = ConversationsMsg;
    type Args = Arc<Wiring>;
    type State = ConversationsState;
    const KIND: &'static str = "conversations";
    const MAILBOX_MAX: usize = 1_000_000;

    fn init(ctx: &Context<Self>, wiring: Arc<Wiring>) -> Result<ConversationsState, NodeError> {
        Ok(ConversationsState {
            quarantine: wiring.leases.orders().quarantined(),
            wiring,
            children: FixedMap::default(),
            cells: HashMap::new(),
            residency: Residency::default(),
            tasks: Tasks::of(ctx.branch()),
            booted: false,
        })
    }

    async fn ready(ctx: &Context<Self>, state: &mut ConversationsState) -> Result<(), NodeError> {
        // If the ownership actor is dead, its next incarnation scans for all open work.
        state.wiring.ownership.tell(OwnershipMsg::ConversationsStarted(ctx.incarnation));
        Ok(())
    }

    async fn handle(
        ctx: &Context<Self>,
        state: &mut ConversationsState,
        msg: ConversationsMsg,
    ) -> Result<(), NodeError> {
        match msg {
            ConversationsMsg::Wake { conversation, user, event, opening } => {
                activation::expect_opened(ctx, state, conversation, &user, opening);
                wake(ctx, state, conversation, user, event).await;
            }
            ConversationsMsg::Unfinished { conversation, user } => {
                takeover::unfinished(ctx, state, conversation, user).await;
            }
            ConversationsMsg::Control { conversation, user, task, control, by, reply, takes_over } => {
                // If the Engine dies while it handles the control, the requester gets a crash error and may ask again.
                if let Some(engine) = engine(ctx, state, conversation, user, takes_over).await
                    && engine.cast(EngineMsg::Control { task, control, by, reply }).is_ok()
                    && let Some(child) = state.children.get_mut(&conversation)
                {
                    child.wakes_sent += 1;
                }
            }
            ConversationsMsg::Decide { conversation, user, task, decide, reply } => {
                // A person waits for the result, so the conversation is claimed even from a live node.
                if let Some(engine) = engine(ctx, state, conversation, user, true).await
                    && engine.cast(EngineMsg::Person(PersonMsg::Decide { task, decide, reply })).is_ok()
                    && let Some(child) = state.children.get_mut(&conversation)
                {
                    child.wakes_sent += 1;
                }
            }
            ConversationsMsg::ControlAgent { conversation, user, asked, reply } => {
                // A person waits for the result, so the conversation is claimed even from a live node.
                if let Some(engine) = engine(ctx, state, conversation, user, true).await
                    && engine.cast(EngineMsg::Person(PersonMsg::ControlAgent { asked, reply })).is_ok()
                    && let Some(child) = state.children.get_mut(&conversation)
                {
                    child.wakes_sent += 1;
                }
            }
            // The next incarnation starts like the first one of a process.
            ConversationsMsg::LeaseLost => return Err(NodeError::new("the lease of this process was lost")),
            ConversationsMsg::Ownership(news) => takeover::learn(ctx, state, news).await,
            ConversationsMsg::Residency(msg) => residency_changed(ctx, state, msg).await,
            ConversationsMsg::Supervision(msg) => supervise(ctx, state, msg).await,
        }
        Ok(())
    }

    async fn child_ended(
        ctx: &Context<Self>,
        state: &mut ConversationsState,
        ended: ChildEnded,
    ) -> Result<(), NodeError> {
        let Some(conversation) = state.cells.remove(&ended.id) else { return Ok(()) };
        let Some(child) = state.children.get_mut(&conversation) else { return Ok(()) };
        // A detached Engine has a successor in its slot, which may not have started yet.
        if child.addr.as_ref().is_none_or(|a| a.cell.get_id() != ended.id) {
            return Ok(());
        }
        child.addr = None;
        // If this Engine was asked to free capacity, no answer will come.
        stays_active(ctx, state, conversation);
        let Some(child) = state.children.get_mut(&conversation) else { return Ok(()) };
        if child.is_elsewhere {
            // However the Engine ended, another node owns the conversation, and a new Engine here would claim it from that
            // node.
            ask_owner(ctx, state, conversation, 0);
            return Ok(());
        }
        if ended.kind == EndKind::Stopped {
            // An operator wanted a fresh incarnation, not an abandoned turn: no message is to blame.
            child.cause = Some(ResumeCause::Bystander);
            start(ctx, state, conversation).await;
            return Ok(());
        }
        if ended.kind == EndKind::Done {
            // An Engine that stops without an error was fenced.
            ask_owner(ctx, state, conversation, 0);
            return Ok(());
        }
        if let EndKind::Deprived(why) = &ended.kind {
            // Neither the conversation nor its message caused this, so the restart budget and the crash counters are not
            // charged. The Engine starts again after the back-off.
            tracing::warn!(%conversation, why, "the store is unavailable, the Engine backs off");
            let wait_ms = deprived_ms(ctx, state, conversation);
            start_later(ctx, state, conversation, wait_ms);
            return Ok(());
        }
        (child.cause, child.blamed) = (Some(ResumeCause::Crash), child.at_work.blamed());
        if !start_again(ctx, state, conversation).await {
            quarantine(ctx, state, conversation);
            activate_waiting(ctx, state).await;
        }
        Ok(())
    }

    async fn stopping(_ctx: &Context<Self>, state: &mut ConversationsState) {
        let engines = state.children.values_mut().filter_map(|s| s.addr.take());
        let stops: Vec<_> = engines.map(|a| async move { stop_child(&a.cell, Duration::from_secs(5)).await }).collect();
        futures_util::future::join_all(stops).await;
    }

    fn view(state: &ConversationsState) -> Value {
        let elsewhere = state.children.values().filter(|child| child.is_elsewhere).count();
        json!({
            "booted": state.booted, "active": state.cells.len(), "elsewhere": elsewhere,
            "waiting_for_capacity": state.residency.waiting(), "passive": state.residency.passive_count(),
            "quarantine": state.quarantine.keys().collect::<Vec<_>>()
        })
    }
}

async fn residency_changed(ctx: &Context<Conversations>, state: &mut ConversationsState, msg: ResidencyMsg) {
    match msg {
        ResidencyMsg::MayPassivate { conversation, incarnation, wakes_seen, passivation } => {
            handle_leave_request(ctx, state, (conversation, incarnation), wakes_seen, passivation).await;
        }
        ResidencyMsg::StaysActive(conversation) => stays_active(ctx, state, conversation),
        ResidencyMsg::Round => round(ctx, state).await,
        ResidencyMsg::ActivateDue => activate_due(ctx, state).await,
    }
}

async fn supervise(ctx: &Context<Conversations>, state: &mut ConversationsState, msg: SupervisionMsg) {
    match msg {
        SupervisionMsg::StartAgain(conversation) => {
            state.tasks.remove(&Work::Backoff(conversation));
            // A message that arrived meanwhile may have started the Engine already.
            if state.children.get(&conversation).is_some_and(|child| child.addr.is_none()) {
                start(ctx, state, conversation).await;
            }
        }
        SupervisionMsg::Fenced { conversation, owner } => takeover::fenced(ctx, state, conversation, owner).await,
        SupervisionMsg::Quarantined { conversation, outcome } => {
            quarantined(ctx, state, conversation, outcome).await;
        }
        SupervisionMsg::Quarantine { conversation, user, reply } => {
            supervision::quarantine_by_order(ctx, state, conversation, user).await;
            let _ = reply.send(());
            activate_waiting(ctx, state).await;
        }
        SupervisionMsg::ResetBudget { conversation, reply } => {
            let child = state.children.get_mut(&conversation);
            let left = child.map(|child| {
                child.budget.reset();
                child.budget.left()
            });
            let _ = reply.send(left);
        }
        SupervisionMsg::Resume { conversation, reply } => {
            // Open turns that were not failed yet continue.
            state.tasks.remove(&Work::FailOpen(conversation));
            let user = state.quarantine.remove(&conversation);
            let _ = reply.send(user.is_some());
            if let Some(user) = user {
                wake(ctx, state, conversation, user, None).await;
            }
        }
    }
}
