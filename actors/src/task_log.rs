//! Reads the events of one task from the log.
//!
//! Owns: nothing. Survives its callers: the log.

use annie_core::{
    event::{Event, EventBody, Inbound, Scope},
    ids::{ConversationId, Seq, TaskId},
    ports::{Store, StoreError},
};

use crate::kernel::PAGE_MAX;

/// A message from the log.
pub(crate) struct Message {
    pub seq: Seq,
    pub inbound: Inbound,
}

/// The message of a task.
///
/// # Errors
/// If the store fails.
pub(crate) async fn message_of(
    store: &dyn Store,
    conversation: ConversationId,
    task: TaskId,
) -> Result<Option<Message>, StoreError> {
    let mut found = None;
    each_event(store, conversation, |event| {
        if event.task == task
            && let EventBody::Received(inbound) = event.body
        {
            found = Some(Message { seq: event.seq, inbound });
        }
        found.is_none()
    })
    .await?;
    Ok(found)
}

/// Reads a conversation's events from the first one, until `take` returns false.
///
/// # Errors
/// If the store fails.
pub(crate) async fn each_event(
    store: &dyn Store,
    conversation: ConversationId,
    mut take: impl FnMut(Event) -> bool,
) -> Result<(), StoreError> {
    let mut after = Seq(0);
    loop {
        let page = store.events(Scope::Operator, conversation, after, PAGE_MAX).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.seq;
        for event in page {
            if !take(event) {
                return Ok(());
            }
        }
    }
}
