//! `annie.v1.Notifications`: what a user is told beside the conversations.

use annie_core::ports::Notification;
use futures_util::stream;
use tonic::{Request, Response, Status};

use super::{Door, Streamed, caller, convert, refused, v1};
use crate::door::{NoticeFeed, NoticeItem, page};

#[tonic::async_trait]
impl v1::notifications_server::Notifications for Door {
    async fn list(
        &self,
        request: Request<v1::ListNotificationsRequest>,
    ) -> Result<Response<v1::ListNotificationsResponse>, Status> {
        let caller = caller(&request)?;
        let wanted = request.into_inner();
        let limit = page::ROWS.of_number(wanted.limit).map_err(refused)?;
        let after = page::place(Some(&wanted.next)).map_err(refused)?.unwrap_or(wanted.after);
        let told = self.state.kernel.notifications(&caller.user, after, limit).await.map_err(refused)?;
        let next = page::next_of(&told, limit, |told| told.id).unwrap_or_default();
        Ok(Response::new(v1::ListNotificationsResponse { notifications: told.into_iter().map(notice).collect(), next }))
    }

    type FollowStream = Streamed<v1::Notification>;

    async fn follow(
        &self,
        request: Request<v1::FollowNotificationsRequest>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let caller = caller(&request)?;
        let feed = NoticeFeed::open(&self.state, &caller, request.into_inner().after).map_err(refused)?;
        let told = stream::unfold(Some(feed), |feed| async move {
            let mut feed = feed?;
            match feed.next().await {
                Ok(None) => None,
                Ok(Some(NoticeItem::Told(told))) => Some((Ok(notice(told)), Some(feed))),
                Ok(Some(NoticeItem::Again)) => Some((Err(convert::again()), None)),
                Err(fault) => Some((Err(refused(fault)), None)),
            }
        });
        Ok(Response::new(Box::pin(told)))
    }
}

fn notice(told: Notification) -> v1::Notification {
    v1::Notification {
        id: told.id,
        text: told.text,
        task_ids: told.tasks.iter().map(ToString::to_string).collect(),
        at_us: told.at.0,
    }
}
