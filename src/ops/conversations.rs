//! Conversations: leaving quarantine.

use annie_core::ids::ConversationId;

use super::row::{Call, Operation, command};
use crate::{
    api,
    auth::{KeyScope::JobsControl, Need::Scope},
    error::ApiError,
    grpc::{convert, v1},
    http::extract::Id,
};

/// The operations on conversations.
pub(super) fn table() -> Vec<Operation> {
    vec![
        command(
            "/api/v1/conversations/{id}/resume",
            Scope(JobsControl),
            resume_conversation,
            "The conversation is resumed",
        )
        .about("resume_conversation", "chat", RESUME)
        .rpc(
            "/annie.v1.Jobs/ResumeConversation",
            |r: v1::ResumeConversationRequest| of(&r.conversation_id),
            |()| v1::ResumeConversationResponse {},
        ),
    ]
}

const RESUME: &str =
    "Take a conversation out of quarantine. With the scope `ops:control` it may belong to another user.";

/// The conversation of a gRPC request.
fn of(conversation_id: &str) -> Result<Id<ConversationId>, ApiError> {
    convert::id("conversation_id", conversation_id).map(Id)
}

async fn resume_conversation(call: Call, Id(id): Id<ConversationId>) -> Result<(), ApiError> {
    api::resume_conversation(&call.state, &call.caller, id).await
}
