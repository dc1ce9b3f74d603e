//! `annie.v1.Events`: the event log of a conversation.

use annie_core::ids::Seq;
use tonic::{Request, Response, Status};

use super::{Service, Streamed, caller, chat::items, convert, refused, v1};
use crate::api::{Feed, FeedOptions, page};

#[tonic::async_trait]
impl v1::events_server::Events for Service {
    async fn list(&self, request: Request<v1::ListEventsRequest>) -> Result<Response<v1::ListEventsResponse>, Status> {
        let caller = caller(&request)?;
        let wanted = request.into_inner();
        let conversation = convert::id("conversation_id", &wanted.conversation_id)?;
        let limit = page::EVENTS.of_number(wanted.limit).map_err(refused)?;
        let after = Seq(page::cursor(Some(&wanted.next)).map_err(refused)?.unwrap_or(wanted.after_seq));
        let events = self.state.kernel.events(caller.scope(), conversation, after, limit).await.map_err(refused)?;
        let next = page::next_of(&events, limit, |event| event.seq.0).unwrap_or_default();
        Ok(Response::new(v1::ListEventsResponse { events: events.iter().map(convert::event).collect(), next }))
    }

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
