//! `annie.v1.Events`: a conversation's log as it is.

use annie_core::ids::Seq;
use tonic::{Request, Response, Status};

use super::{Door, Streamed, caller, chat::items, convert, refused, v1};
use crate::door::{Feed, FeedWish, page_limit};

#[tonic::async_trait]
impl v1::events_server::Events for Door {
    async fn list(&self, request: Request<v1::ListEventsRequest>) -> Result<Response<v1::ListEventsResponse>, Status> {
        let caller = caller(&request)?;
        let wanted = request.into_inner();
        let conversation = convert::id("conversation_id", &wanted.conversation_id)?;
        let limit = page_limit(wanted.limit, 100, annie_actors::PAGE_MAX);
        let kernel = &self.state.kernel;
        let events =
            kernel.events(caller.scope(), conversation, Seq(wanted.after_seq), limit).await.map_err(refused)?;
        Ok(Response::new(v1::ListEventsResponse { events: events.iter().map(convert::event).collect() }))
    }

    type FollowStream = Streamed<v1::StreamItem>;

    async fn follow(&self, request: Request<v1::FollowEventsRequest>) -> Result<Response<Self::FollowStream>, Status> {
        let caller = caller(&request)?;
        let wanted = request.into_inner();
        let conversation = convert::id("conversation_id", &wanted.conversation_id)?;
        let wish = FeedWish { conversation, after: Seq(wanted.after_seq), task: None };
        let feed = Feed::open(&self.state, &caller, wish).await.map_err(refused)?;
        Ok(Response::new(items(feed, false)))
    }
}
