//! `annie.v1.Events`: a conversation's log as it is.

use annie_core::ids::Seq;
use tonic::{Request, Response, Status};

use super::{Door, Streamed, caller, chat::items, convert, refused, v1};
use crate::door::{Feed, FeedWish, page};

#[tonic::async_trait]
impl v1::events_server::Events for Door {
    async fn list(&self, request: Request<v1::ListEventsRequest>) -> Result<Response<v1::ListEventsResponse>, Status> {
        let caller = caller(&request)?;
        let wanted = request.into_inner();
        let conversation = convert::id("conversation_id", &wanted.conversation_id)?;
        let limit = page::EVENTS.of_number(wanted.limit).map_err(refused)?;
        let after = Seq(page::place(Some(&wanted.next)).map_err(refused)?.unwrap_or(wanted.after_seq));
        let events = self.state.kernel.events(caller.scope(), conversation, after, limit).await.map_err(refused)?;
        let next = page::next_of(&events, limit, |event| event.seq.0).unwrap_or_default();
        Ok(Response::new(v1::ListEventsResponse { events: events.iter().map(convert::event).collect(), next }))
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
