//! Deleting conversations: hidden and restorable at first, then erased.

use annie_actors::DeleteOptions;
use annie_core::{event::Scope as DataScope, ids::ConversationId, ports::Deletion};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    conversations::{Conversation, wire},
    row::{
        Call, Operation,
        Verb::{Delete, Get, Post},
        route,
    },
};
use crate::{
    api::page,
    auth::{
        Caller,
        KeyScope::{Chat, OpsControl},
        Need::Scope,
    },
    error::ApiError,
    grpc::{convert::path_id, v1},
    http::{
        extract::{Args, Id},
        schema,
    },
};

/// Length limit for a reason, in characters.
const REASON_CHARS_MAX: usize = 500;

/// The operations on deleted conversations.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Delete, "/api/v1/conversations/{id}", Scope(Chat), delete, DeletedConversation::from)
            .about("delete_conversation", "chat", DELETE, "conversations delete")
            .rpc("/annie.v1.Conversations/Delete", asked_delete, deleted),
        route(Get, "/api/v1/conversations/trash", Scope(Chat), trash, Trash::from)
            .about("list_deleted_conversations", "chat", TRASH, "conversations trash")
            .rpc("/annie.v1.Conversations/Trash", asked_trash, listed),
        route(Post, "/api/v1/conversations/{id}/restore", Scope(Chat), restore, Conversation::from)
            .about("restore_conversation", "chat", RESTORE, "conversations restore")
            .rpc("/annie.v1.Conversations/Restore", |r: v1::ConversationRequest| path_id("id", &r.id), wire),
    ]
}

const DELETE: &str = "Delete a conversation. It is hidden and accepts no message; until its content is erased it can be restored. With \
     the scope `ops:control` it may belong to another user.";
const TRASH: &str = "List your deleted conversations that can be restored, the last deleted ones first.";
const RESTORE: &str = "Restore a deleted conversation. With the scope `ops:control` it may belong to another user.";

/// A deleted conversation.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeletedConversation {
    #[schema(value_type = schema::ConversationId)]
    id: ConversationId,
    /// The first 80 characters of the first message.
    title: String,
    /// RFC 3339.
    #[schema(format = DateTime)]
    deleted_at: String,
    /// Until then it can be restored. RFC 3339.
    #[schema(format = DateTime)]
    erase_at: String,
    deleted_by: String,
    reason: String,
}

impl From<Deletion> for DeletedConversation {
    fn from(row: Deletion) -> Self {
        Self {
            id: row.conversation,
            title: row.title,
            deleted_at: row.at.to_string(),
            erase_at: row.erase_at.to_string(),
            deleted_by: row.by,
            reason: row.reason,
        }
    }
}

fn deleted(row: Deletion) -> v1::DeletedConversation {
    v1::DeletedConversation {
        id: row.conversation.to_string(),
        title: row.title,
        deleted_at_us: row.at.0,
        erase_at_us: row.erase_at.0,
        deleted_by: row.by,
        reason: row.reason,
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HowToDelete {
    /// Cancel its open tasks first. Without it, the request is refused while a task is open.
    #[serde(default)]
    force: bool,
    /// The reason, which is recorded with the erasure.
    #[serde(default)]
    #[param(max_length = 500)]
    reason: String,
}

fn asked_delete(asked: v1::DeleteConversationRequest) -> Result<(Id<ConversationId>, Args<HowToDelete>), ApiError> {
    let v1::DeleteConversationRequest { id, force, reason } = asked;
    Ok((path_id("id", &id)?, Args(HowToDelete { force, reason })))
}

/// A caller with `ops:control` may delete and restore the conversations of others, because that reveals nothing of their content.
fn reach(caller: &Caller) -> DataScope {
    if caller.grants.has(OpsControl) { DataScope::Operator } else { caller.scope() }
}

async fn delete(
    call: Call,
    (Id(id), Args(how)): (Id<ConversationId>, Args<HowToDelete>),
) -> Result<Deletion, ApiError> {
    let HowToDelete { force, reason } = how;
    if reason.chars().count() > REASON_CHARS_MAX {
        return Err(ApiError::invalid(format!("a reason has at most {REASON_CHARS_MAX} characters")).at("reason"));
    }
    let options = DeleteOptions { force, reason, by: call.caller.name().to_string() };
    let mut row = call.state.kernel.delete_conversation(reach(&call.caller), id, options).await?;
    if row.user != call.caller.user {
        row.title.clear();
    }
    Ok(row)
}

async fn restore(call: Call, Id(id): Id<ConversationId>) -> Result<annie_core::ports::ConversationRow, ApiError> {
    let mut row = call.state.kernel.restore_conversation(reach(&call.caller), id).await?;
    tracing::info!(conversation = %id, by = call.caller.name(), "a deleted conversation was restored");
    if row.user != call.caller.user {
        row.title.clear();
    }
    Ok(row)
}

/// Deleted conversations, the last deleted ones first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Trash {
    conversations: Vec<DeletedConversation>,
}

impl From<Vec<Deletion>> for Trash {
    fn from(rows: Vec<Deletion>) -> Self {
        Self { conversations: rows.into_iter().map(Into::into).collect() }
    }
}

fn listed(rows: Vec<Deletion>) -> v1::TrashResponse {
    v1::TrashResponse { conversations: rows.into_iter().map(deleted).collect() }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TrashPage {
    /// The maximum number of rows; 50 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 500)]
    limit: Option<String>,
}

fn asked_trash(asked: v1::TrashRequest) -> Result<Args<TrashPage>, ApiError> {
    Ok(Args(TrashPage { limit: page::text_of(asked.limit) }))
}

async fn trash(call: Call, Args(page): Args<TrashPage>) -> Result<Vec<Deletion>, ApiError> {
    let (_, limit) = crate::http::extract::page_of(None, page.limit.as_deref())?;
    Ok(call.state.kernel.deleted_conversations(DataScope::User(call.caller.user.clone()), limit).await?)
}
