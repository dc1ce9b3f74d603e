//! `annie.v1.Events`: follows the event log of a conversation. Its pages are in the table of operations.

use annie_core::ids::Seq;
use tonic::{Request, Response, Status};

use super::{Service, Streamed, caller, chat::items, convert, refused, v1};
use crate::api::{Feed, FeedOptions};

#[tonic::async_trait]
impl v1::events_server::Events for Service {
    async fn follow(
        &self,
        request: Request<v1::FollowEventsRequest>,
    ) -> Result<Response<Streamed<v1::StreamItem>>, Status> {
        let caller = caller(&request)?;
        let wanted = request.into_inner();
        let conversation = convert::id("conversation_id", &wanted.conversation_id)?;
        let options = FeedOptions { conversation, after: Seq(wanted.after_seq), task: None };
        let feed = Feed::open(&self.state, &caller, options).await.map_err(refused)?;
        Ok(Response::new(items(feed, false)))
    }
}
