//! Reports forked tasks: brings the final text of a forked task into the conversation that started the task, as a message that the
//! kernel answers with the text. To the kernel it is a channel, and the conversation is the address of the forked task.
//!
//! Owns: nothing; its worker is that of a channel (`delivery.rs`). Supervised by: infra. Survives its death: the outbox. The id of
//! the message is derived from the text, so an attempt that is repeated after a crash stores no second message.

use std::sync::Arc;

use annie_core::{
    event::{EventBody, Topics},
    fork_report::{FORK_REPORT, FORK_REPORT_CHANNEL, ForkCaller, message_id, message_text},
    ids::{OutboxId, UserId},
    ports::{Address, Channel, Delivered, DeliveryError, Fut, OutboxRow, StoreError},
    turn::Conversation,
};

use crate::{
    delivery::Delivery,
    kernel::{KernelError, Submission, accept_message},
    observe::{NodeError, Path, task_point},
    subscriptions::Subscription,
    supervise::ChildSpec,
    task_log::{each_event, message_of},
    wiring::Wiring,
    worker::{Worker, WorkerMsg},
};

/// The name of the worker below infra.
pub(crate) const FORK_REPORTS: &str = "fork_reports";

/// The worker.
pub(crate) fn worker(wiring: &Arc<Wiring>) -> ChildSpec {
    let wiring = wiring.clone();
    ChildSpec::permanent::<Worker<Delivery>>(FORK_REPORTS, move || {
        let channel: Arc<dyn Channel> = Arc::new(ForkReports { wiring: wiring.clone() });
        (channel, wiring.clone())
    })
}

/// The worker reads its texts after every final text: whether a text has an address is stored with it.
pub(crate) fn subscription(wiring: &Wiring, infra: &Path) -> Subscription {
    let worker = wiring.log.sibling::<WorkerMsg<Delivery>>(infra.child(FORK_REPORTS));
    Subscription::of_actor(Topics::FINAL_TEXT, worker, |_| Some(WorkerMsg::New(())), || WorkerMsg::New(()))
}

struct ForkReports {
    wiring: Arc<Wiring>,
}

impl Channel for ForkReports {
    fn name(&self) -> &str {
        FORK_REPORT_CHANNEL
    }

    fn check(&self, _user: &UserId, _to: &str) -> Result<(), String> {
        Err("only the kernel reports forked tasks".to_owned())
    }

    fn is_idempotent(&self) -> bool {
        true
    }

    fn deliver<'a>(&'a self, text: &'a OutboxRow) -> Fut<'a, Result<Delivered, DeliveryError>> {
        Box::pin(report(&self.wiring, text))
    }
}

/// Stores the message that reports a text. If the conversation is gone, the user is notified instead.
async fn report(wiring: &Wiring, text: &OutboxRow) -> Result<Delivered, DeliveryError> {
    let caller = text.reply_to.as_ref().and_then(ForkCaller::of);
    let caller = caller.ok_or_else(|| DeliveryError::Refused("it is not the address of a forked task".to_owned()))?;
    let message = message_about(wiring, text, caller).await.map_err(|error| failed(error.into()))?;
    point(wiring, "read").await?;
    match accept_message(wiring, message).await {
        // A text has one id, so the message with this id reports it.
        Ok(_) | Err(KernelError::Conflict { .. }) => {}
        Err(error) => return Err(failed(error)),
    }
    point(wiring, "stored").await?;
    Ok(Delivered::Received)
}

/// A fault point between two steps of a report.
async fn point(wiring: &Wiring, point: &str) -> Result<(), DeliveryError> {
    let failed = |why: NodeError| DeliveryError::Retry { after_ms: 0, why: why.to_string() };
    task_point(&wiring.env, FORK_REPORT, point).await.map_err(failed)
}

fn failed(error: KernelError) -> DeliveryError {
    let why = error.to_string();
    match error {
        KernelError::Invalid(_)
        | KernelError::InvalidField { .. }
        | KernelError::NotFound(_)
        | KernelError::Deleted => DeliveryError::Refused(why),
        KernelError::Full(refusal) => DeliveryError::Retry { after_ms: refusal.retry_after_ms, why },
        _ => DeliveryError::Retry { after_ms: 0, why },
    }
}

async fn message_about(wiring: &Wiring, text: &OutboxRow, caller: ForkCaller) -> Result<Submission, StoreError> {
    let original = message_of(wiring.store.as_ref(), caller.conversation, caller.task).await?;
    let original = original.map(|found| found.inbound);
    let read = read_by(wiring, text).await?;
    let report = message_text(text, wiring.limits.message_bytes_max);
    let mut message = Submission::new(text.user.clone(), FORK_REPORT, report).within(caller.conversation);
    message.client_id = Some(message_id(text));
    message.channel = original.as_ref().map(|inbound| inbound.channel().to_owned()).unwrap_or_default();
    message.private = read.is_private;
    message.reply_to = original.and_then(|inbound| inbound.reply_to).filter(|to| is_known(wiring, to));
    message.carries_answer = true;
    message.origins = read.origins;
    Ok(message)
}

/// The address of the caller may be a conversation too: a forked task may call a workflow, and its turn another skill.
fn is_known(wiring: &Wiring, address: &Address) -> bool {
    ForkCaller::of(address).is_some() || wiring.extensions.channel(&address.channel).is_some()
}

/// What a forked task has read until its text.
struct Read {
    origins: Vec<String>,
    is_private: bool,
}

/// Folds the log of the forked task's conversation until the end of the task.
async fn read_by(wiring: &Wiring, text: &OutboxRow) -> Result<Read, StoreError> {
    let mut state = Conversation::new(text.conversation, text.user.clone());
    let mut is_private = false;
    let is_end = text.id == OutboxId::for_task(text.task);
    each_event(wiring.store.as_ref(), text.conversation, |event| {
        state.apply(&event);
        if let EventBody::Received(inbound) = &event.body {
            is_private |= inbound.private;
        }
        !(is_end && event.task == text.task && event.body.is_final())
    })
    .await?;
    // The origins of an open turn become those of its conversation when the turn ends.
    let origins = match state.main_agent(text.task) {
        Some(agent) => agent.origins().to_vec(),
        None => state.known.origins().to_vec(),
    };
    Ok(Read { origins, is_private })
}
