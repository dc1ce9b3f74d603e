//! Fails the open work of a quarantined conversation visibly. This is done without an Engine, because its Engine is what
//! crashes. Agents that were running get their one report.

use annie_core::{
    dead_letter::DeadLetter,
    event::{AgentReport, EventBody, NewEvent, ReportStatus, Scope},
    ids::{AgentId, ConversationId, TaskId, UserId},
    plan::NodeState,
    ports::{Append, Claimed, Fence, StoreError, StoreErrorKind},
    turn::Conversation,
};

use crate::{log_writer::append, orders::OrderKind, scheduler::open_tasks, tasks::caught, wiring::Wiring};

/// Events read in one page.
const PAGE: u32 = 500;

/// Fails every open task of a conversation.
///
/// # Errors
/// If the store does not take the failures.
pub(crate) async fn fail_open_turns(
    wiring: &Wiring,
    conversation: ConversationId,
    user: &UserId,
) -> Result<(), String> {
    let claim = wiring.store.claim_free(conversation, wiring.lease.incarnation()).await.map_err(|e| e.to_string())?;
    let Claimed::Ours(claim) = claim else { return Ok(()) };
    let open = open_tasks(wiring.store.as_ref(), Scope::User(user.clone())).await.map_err(|e| e.to_string())?;
    let at = wiring.env.now();
    // A log that cannot be folded may be what crashes the Engine; then only the failures are stored, without reports.
    let unknown = || (Vec::new(), true);
    let found = caught(unreported(wiring, conversation, user)).await.unwrap_or_else(|_| Ok(unknown()));
    let (agents, is_listed) = match found {
        // Waiting does not make a corrupt event readable.
        Err(error) if error.kind == StoreErrorKind::Corrupt => unknown(),
        found => found.map_err(|e| e.to_string())?,
    };
    let is_open = |task: TaskId| open.iter().any(|t| t.id == task);
    let reports = agents.into_iter().filter(|(task, ..)| is_open(*task));
    let reports =
        reports.map(|(task, agent, report)| NewEvent { at, task, agent, body: EventBody::AgentReported { report } });
    let mut events: Vec<NewEvent> = reports.collect();
    let (text, detail) = reasons(wiring, conversation);
    let failures = open.iter().filter(|t| t.conversation == conversation).map(|t| NewEvent {
        at,
        task: t.id,
        agent: AgentId::orchestrator(),
        body: EventBody::Failed {
            code: "conversation_quarantined".to_owned(),
            text: text.clone(),
            detail: detail.clone(),
            // A stateless caller has received the failure, and would never read the answer to a retry.
            dead_letter: is_listed.then(|| DeadLetter { tried: vec![detail.clone()], since: at, retry_at: None }),
        },
    });
    events.extend(failures);
    if events.is_empty() {
        return Ok(());
    }
    let what = Append { conversation, user: user.clone(), fence: Fence::Owner(claim.epoch), events };
    append(&wiring.log, what).await.map(drop).map_err(|e| e.to_string())
}

/// What the user reads about the quarantine, and what the operator reads.
fn reasons(wiring: &Wiring, conversation: ConversationId) -> (String, String) {
    match wiring.leases.orders().find(OrderKind::Quarantine, &conversation.to_string()) {
        Some(order) => (
            "The operator has put this conversation in quarantine. The operator can resume it; a new conversation works."
                .to_owned(),
            order.sentence(),
        ),
        None => (
            "Annie keeps crashing in this conversation, so it has been quarantined. The operator can resume it; a new \
             conversation works."
                .to_owned(),
            "the engine used up its restart budget".to_owned(),
        ),
    }
}

/// The agents of the running turns that have not reported, each with the report that is made for it, and whether the
/// conversation is listed, so that its user may return to it.
async fn unreported(
    wiring: &Wiring,
    conversation: ConversationId,
    user: &UserId,
) -> Result<(Vec<(TaskId, AgentId, AgentReport)>, bool), StoreError> {
    let mut state = Conversation::new(conversation, user.clone());
    loop {
        let page = wiring.store.events(Scope::User(user.clone()), conversation, state.seq, PAGE).await?;
        page.iter().for_each(|event| state.apply(event));
        if page.len() < PAGE as usize {
            break;
        }
    }
    let nodes = state.turns.iter().flat_map(|turn| turn.agents.plan.nodes().iter().map(|node| (turn.task, node)));
    let report = |status, result: &str| AgentReport::bare(status, result);
    let unreported = nodes.filter_map(|(task, node)| {
        let report = match node.state {
            NodeState::Running { .. } => report(
                ReportStatus::Crashed,
                "The conversation was quarantined. What the agent had done until then may have taken effect.",
            ),
            NodeState::Pending => {
                report(ReportStatus::Skipped, "The conversation was quarantined. The agent had not started.")
            }
            NodeState::Reported(_) => return None,
        };
        Some((task, node.spec.agent.clone(), report))
    });
    Ok((unreported.collect(), state.is_listed))
}
