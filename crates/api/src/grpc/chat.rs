//! `annie.v1.Chat`: submit and stream. The history is in the table of operations.

use annie_core::{ids::Seq, ports::Address};
use futures_util::stream;
use tonic::{Request, Response, Status};

use super::{Service, Streamed, caller, convert, refused, v1};
use crate::{
    api::{ConversationRef, Feed, FeedItem, FeedOptions, Message, MessageOptions, submission},
    error::ApiError,
};

/// The metadata key of the caller's message id.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

#[tonic::async_trait]
impl v1::chat_server::Chat for Service {
    async fn submit(&self, request: Request<v1::SubmitRequest>) -> Result<Response<v1::SubmitResponse>, Status> {
        use v1::submit_request::Conversation;
        let caller = caller(&request)?;
        let from_metadata = request.metadata().get(IDEMPOTENCY_KEY).map(|v| v.to_str().map(str::to_owned)).transpose();
        let from_metadata =
            from_metadata.map_err(|_| refused(ApiError::invalid("not visible ASCII").at(IDEMPOTENCY_KEY)))?;
        let wanted = request.into_inner();
        let client_id = Some(wanted.client_id).filter(|id| !id.is_empty()).or(from_metadata);
        let message = Message {
            text: wanted.text,
            conversation_ref: match wanted.conversation {
                None => ConversationRef::New,
                Some(Conversation::ConversationId(id)) => ConversationRef::Id(id),
                Some(Conversation::ConversationKey(key)) => ConversationRef::Key(key),
            },
            mode: convert::mode(wanted.mode)?,
            priority: convert::priority(wanted.priority)?,
            client_id,
            preamble: Vec::new(),
            options: MessageOptions {
                source: some(wanted.source),
                steer: wanted.steer,
                name: some(wanted.name),
                private: wanted.private,
                emotion: wanted.emotion.map(|e| (e.name, e.intensity)),
                not_before: some(wanted.not_before),
                delay_ms: Some(wanted.delay_ms).filter(|ms| *ms > 0),
                after: wanted.after,
                verbatim: wanted.verbatim,
                reply_to: wanted.reply_to.map(|address| Address { channel: address.channel, to: address.to }),
            },
        };
        let submission = submission(&self.state, &caller, "grpc", message).await.map_err(refused)?;
        let submitted = self.state.kernel.submit(submission).await.map_err(refused)?;
        Ok(Response::new(convert::submitted(submitted)))
    }

    async fn stream(&self, request: Request<v1::StreamRequest>) -> Result<Response<Streamed<v1::StreamItem>>, Status> {
        let caller = caller(&request)?;
        let wanted = request.into_inner();
        let options = FeedOptions {
            conversation: convert::id("conversation_id", &wanted.conversation_id)?,
            after: Seq(wanted.after_seq),
            task: convert::maybe_id("task_id", &wanted.task_id)?,
        };
        let feed = Feed::open(&self.state, &caller, options).await.map_err(refused)?;
        Ok(Response::new(items(feed, true)))
    }
}

/// The text, unless it is empty.
fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// A feed as a gRPC stream.
pub(super) fn items(feed: Feed, with_drafts: bool) -> Streamed<v1::StreamItem> {
    Box::pin(stream::unfold(Some(feed), move |feed| async move {
        let mut feed = feed?;
        loop {
            return match feed.next().await {
                Ok(None) => None,
                Ok(Some(FeedItem::Draft { .. })) if !with_drafts => continue,
                Ok(Some(item)) => {
                    let item = convert::stream_item(item);
                    let rest = item.is_ok().then_some(feed);
                    Some((item, rest))
                }
                Err(error) => Some((Err(refused(error)), None)),
            };
        }
    }))
}
