//! State as front ends read and write it: values under keys of a user, of one of the user's conversations, and of the application.

use annie_core::{
    event::Scope,
    ids::{ConversationId, IntentId, UserId},
    state::{STATE, StateAuthor, StateEntry, StateError, StateKey, StatePlace, StateScope, check_value},
};
use serde_json::Value;

use super::{Kernel, KernelError};

/// A value that was set or deleted, with the one before.
#[derive(Debug, Clone, PartialEq)]
pub struct StateChanged {
    /// The key.
    pub key: StateKey,
    /// The value before; null if there was none.
    pub before: Value,
    /// The value now; null if it was deleted.
    pub after: Value,
}

fn invalid(error: StateError) -> KernelError {
    KernelError::Invalid(error.to_string())
}

impl Kernel {
    /// The values that a user sees, by key: the user's own, those of the application, and with a conversation those of it.
    ///
    /// # Errors
    /// `NotFound` for a conversation that the user does not have.
    pub async fn state(
        &self,
        user: &UserId,
        conversation: Option<ConversationId>,
    ) -> Result<Vec<StateEntry>, KernelError> {
        self.check_conversation(user, conversation).await?;
        let mut found = Vec::new();
        for scope in [StateScope::Session, StateScope::User, StateScope::App] {
            if scope == StateScope::Session && conversation.is_none() {
                continue;
            }
            let place = StatePlace::of(scope, user, conversation).map_err(invalid)?;
            let hits = self.wiring.documents.find_documents(place.user.clone(), &STATE, place.all()).await?;
            for hit in hits {
                found.extend(StateEntry::of(&hit.document)?);
            }
        }
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    /// One value.
    ///
    /// # Errors
    /// `Invalid` for a bad key, `NotFound` if it is not set.
    pub async fn state_entry(
        &self,
        user: &UserId,
        key: &str,
        conversation: Option<ConversationId>,
    ) -> Result<StateEntry, KernelError> {
        let (key, place) = self.state_place(user, key, conversation).await?;
        let hits = self.wiring.documents.find_documents(place.user.clone(), &STATE, place.one(&key)).await?;
        let found = hits.first().map(|hit| StateEntry::of(&hit.document)).transpose()?;
        found.flatten().ok_or(KernelError::NotFound("state"))
    }

    /// Sets a value. `is_operator` says whether the caller may write values of the application; `by` names the front end.
    ///
    /// # Errors
    /// `Invalid` for a bad key or value, a key that only operators write, or a key too many.
    pub async fn set_state(
        &self,
        (user, is_operator, by): (&UserId, bool, &str),
        key: &str,
        conversation: Option<ConversationId>,
        value: Value,
    ) -> Result<StateChanged, KernelError> {
        check_value(&value).map_err(invalid)?;
        let (key, place) = self.state_place(user, key, conversation).await?;
        check_writable(&key, is_operator)?;
        let written = self.wiring.documents.write_document(place.set(&key, &value, &self.author(user, by))).await?;
        let document = written.document.ok_or_else(|| invalid(place.full()))?;
        let entry = StateEntry::of(&document)?.ok_or(KernelError::NotFound("state"))?;
        let before = entry.last_change().map_or(Value::Null, |change| change.before.clone());
        tracing::info!(%key, by, "a value of the state was set");
        Ok(StateChanged { key, before, after: entry.value })
    }

    /// Deletes a value.
    ///
    /// # Errors
    /// As [`Kernel::set_state`]; `NotFound` if it is not set.
    pub async fn delete_state(
        &self,
        (user, is_operator, by): (&UserId, bool, &str),
        key: &str,
        conversation: Option<ConversationId>,
    ) -> Result<StateChanged, KernelError> {
        let (key, place) = self.state_place(user, key, conversation).await?;
        check_writable(&key, is_operator)?;
        let written = self.wiring.documents.write_document(place.delete(&key, &self.author(user, by))).await?;
        let entry = written.document.as_ref().map(StateEntry::of).transpose()?.flatten();
        let before = entry.ok_or(KernelError::NotFound("state"))?.value;
        tracing::info!(%key, by, "a value of the state was deleted");
        Ok(StateChanged { key, before, after: Value::Null })
    }

    fn author(&self, user: &UserId, by: &str) -> StateAuthor {
        let intent = IntentId::from_uuid(self.wiring.env.uuid());
        StateAuthor { by: format!("{user} by {by}"), origin: Vec::new(), intent, at: self.now() }
    }

    async fn state_place(
        &self,
        user: &UserId,
        key: &str,
        conversation: Option<ConversationId>,
    ) -> Result<(StateKey, StatePlace), KernelError> {
        let key = StateKey::parse(key).map_err(invalid)?;
        let place = StatePlace::of(key.scope, user, conversation).map_err(|error| match error {
            StateError::NoConversation(_) => invalid(StateError::NoConversation(key.to_string())),
            StateError::NoTurn(_) => invalid(StateError::NoTurn(key.to_string())),
            other => invalid(other),
        })?;
        if key.scope == StateScope::Session {
            self.check_conversation(user, conversation).await?;
        }
        Ok((key, place))
    }

    async fn check_conversation(&self, user: &UserId, conversation: Option<ConversationId>) -> Result<(), KernelError> {
        if let Some(conversation) = conversation {
            self.conversation(Scope::User(user.clone()), conversation).await?;
        }
        Ok(())
    }
}

fn check_writable(key: &StateKey, is_operator: bool) -> Result<(), KernelError> {
    if is_operator { Ok(()) } else { key.check_writable().map_err(invalid) }
}
