//! Deleting conversations, and restoring them from the trash.

use std::time::Duration;

use annie_core::{
    event::Scope,
    ids::ConversationId,
    ports::{ConversationRow, DeleteConversation, Deleting, Deletion},
};

use super::{Kernel, KernelError, PAGE_MAX};
use crate::erasure::open_tasks;

/// How long a forced deletion waits for the end of the turns that it cancels, in milliseconds.
const END_MS_MAX: u64 = 20_000;

/// After this time without a commit a forced deletion cancels what is still open once more, in milliseconds.
const AGAIN_MS: u64 = 500;

/// How a conversation is deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Cancel open tasks first.
    pub force: bool,
    /// The reason; may be empty.
    pub reason: String,
    /// Who requests it.
    pub by: String,
}

impl Kernel {
    /// Deletes a conversation: it is hidden, accepts no message, and can be restored until its content is erased.
    ///
    /// # Errors
    /// `NotFound` if the scope sees no such conversation, `Stale` if a task of it is open and not forced to end.
    pub async fn delete_conversation(
        &self,
        scope: Scope,
        id: ConversationId,
        options: DeleteOptions,
    ) -> Result<Deletion, KernelError> {
        let store = &self.wiring.store;
        let missing = KernelError::NotFound("conversation");
        let row = store.conversation(scope, id).await?.ok_or_else(|| missing.clone())?;
        let at = self.now();
        let erase_at = at.plus_ms(i64::try_from(self.wiring.limits.trash_ms).unwrap_or(i64::MAX));
        let DeleteOptions { force, reason, by } = options;
        let request =
            DeleteConversation { conversation: id, by: by.clone(), reason, at, erase_at, unchanged_since: None };
        let mut commits = self.commits();
        let delete = async {
            loop {
                commits.mark_unchanged();
                match store.delete_conversation(request.clone()).await? {
                    Deleting::Deleted => return Ok(()),
                    Deleting::Unknown => return Err(missing),
                    Deleting::Busy if !force => return Err(busy(id)),
                    Deleting::Busy => self.cancel_tasks(&row, &by).await?,
                }
                let again = Duration::from_millis(AGAIN_MS);
                if matches!(tokio::time::timeout(again, commits.changed()).await, Ok(Err(_))) {
                    return Err(KernelError::NotReady("it is shutting down".to_owned()));
                }
            }
        };
        let late = || KernelError::Unavailable(format!("the turn of {id} was cancelled and has not ended yet"));
        tokio::time::timeout(Duration::from_millis(END_MS_MAX), delete).await.map_err(|_| late())??;
        metrics::counter!("annie_conversations_deleted_total").increment(1);
        tracing::info!(conversation = %id, by, "a conversation was deleted");
        store.deletion(id).await?.ok_or(KernelError::NotFound("conversation"))
    }

    async fn cancel_tasks(&self, row: &ConversationRow, by: &str) -> Result<(), KernelError> {
        let scope = Scope::User(row.user.clone());
        for task in open_tasks(&*self.wiring.store, &row.user, row.id).await? {
            match self.cancel(scope.clone(), task, by).await {
                // The Engine of a restored conversation is fenced by its first append, and another one follows it.
                Ok(_) | Err(KernelError::Unavailable(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Restores a deleted conversation.
    ///
    /// # Errors
    /// `NotFound` if the scope sees no such conversation, `Stale` if it is not deleted, `Deleted` if its erasure has begun.
    pub async fn restore_conversation(&self, scope: Scope, id: ConversationId) -> Result<ConversationRow, KernelError> {
        let store = &self.wiring.store;
        let row = store.conversation(scope.clone(), id).await?.ok_or(KernelError::NotFound("conversation"))?;
        if row.deleted_at.is_none() {
            return Err(KernelError::Stale(format!("{id} is not deleted")));
        }
        if !store.restore_conversation(id).await? {
            return Err(KernelError::Deleted);
        }
        self.conversation(scope, id).await
    }

    /// The deleted conversations that can be restored, the last deleted ones first.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn deleted_conversations(&self, scope: Scope, limit: u32) -> Result<Vec<Deletion>, KernelError> {
        Ok(self.wiring.store.restorable(scope, limit.clamp(1, PAGE_MAX)).await?)
    }
}

fn busy(id: ConversationId) -> KernelError {
    KernelError::Stale(format!(
        "a task of {id} is open: wait for its end or cancel it, or delete with `force`, which cancels it first"
    ))
}
