//! Parking a conversation: whatever is open in it gets its visible failure, without an Engine, since its Engine is what dies.

use annie_core::{
    event::{EventBody, NewEvent, Scope},
    ids::{AgentId, ConversationId, TaskId, UserId},
    letter::Letter,
    ports::{Append, Fence},
};

use crate::{
    log_writer::append,
    scheduler::{SchedulerMsg, open_tasks},
    wiring::Wiring,
};

/// Fails every open task of a conversation.
///
/// # Errors
/// If the store does not take the failures.
pub(crate) async fn park(wiring: &Wiring, conversation: ConversationId, user: &UserId) -> Result<(), String> {
    let claim = wiring.store.claim(conversation, wiring.node).await.map_err(|e| e.to_string())?;
    let Some(claim) = claim else { return Ok(()) };
    let open = open_tasks(wiring.store.as_ref(), Scope::User(user.clone())).await.map_err(|e| e.to_string())?;
    let at = wiring.env.now();
    let events: Vec<NewEvent> = open
        .into_iter()
        .filter(|t| t.conversation == conversation)
        .map(|t| NewEvent {
            at,
            task: t.id,
            agent: AgentId::orchestrator(),
            body: EventBody::Failed {
                code: "conversation_parked".to_owned(),
                text:
                    "Something in Annie keeps breaking down in this conversation, so it has been parked. The operator \
                       can resume it; a new conversation works."
                        .to_owned(),
                detail: "the engine used up its restart budget".to_owned(),
                letter: Some(Letter {
                    tried: vec!["the engine used up its restart budget".to_owned()],
                    since: at,
                    retry_at: None,
                }),
            },
        })
        .collect();
    if events.is_empty() {
        return Ok(());
    }
    let tasks: Vec<TaskId> = events.iter().map(|e| e.task).collect();
    let what = Append { conversation, user: user.clone(), fence: Fence::Owner(claim.epoch), events };
    append(&wiring.log, what).await.map_err(|e| e.to_string())?;
    for task in tasks {
        // If it is lost, the scheduler's next life starts without them anyway.
        wiring.scheduler.tell(SchedulerMsg::Ended { task });
    }
    Ok(())
}
