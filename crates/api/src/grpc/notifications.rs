//! `annie.v1.Notifications`: follows the notifications of a user outside of conversations. Their pages are in the table of
//! operations.

use futures_util::stream;
use tonic::{Request, Response, Status};

use super::{Service, Streamed, caller, convert, refused, v1};
use crate::{
    api::{NoticeFeed, NoticeItem},
    ops::notifications::wire,
};

#[tonic::async_trait]
impl v1::notifications_server::Notifications for Service {
    async fn follow(
        &self,
        request: Request<v1::FollowNotificationsRequest>,
    ) -> Result<Response<Streamed<v1::Notification>>, Status> {
        let caller = caller(&request)?;
        let feed = NoticeFeed::open(&self.state, &caller, request.into_inner().after).map_err(refused)?;
        let notices = stream::unfold(Some(feed), |feed| async move {
            let mut feed = feed?;
            match feed.next().await {
                Ok(None) => None,
                Ok(Some(NoticeItem::Notification(notification))) => Some((Ok(wire(notification)), Some(feed))),
                Ok(Some(NoticeItem::Again)) => Some((Err(convert::again()), None)),
                Err(error) => Some((Err(refused(error)), None)),
            }
        });
        Ok(Response::new(Box::pin(notices)))
    }
}
