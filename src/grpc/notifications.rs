//! `annie.v1.Notifications`: notifications of a user outside of conversations.

use annie_core::ports::Notification;
use futures_util::stream;
use tonic::{Request, Response, Status};

use super::{Service, Streamed, caller, convert, refused, v1};
use crate::api::{NoticeFeed, NoticeItem, page};

#[tonic::async_trait]
impl v1::notifications_server::Notifications for Service {
    async fn list(
        &self,
        request: Request<v1::ListNotificationsRequest>,
    ) -> Result<Response<v1::ListNotificationsResponse>, Status> {
        let caller = caller(&request)?;
        let wanted = request.into_inner();
        let limit = page::ROWS.of_number(wanted.limit).map_err(refused)?;
        let after = page::cursor(Some(&wanted.next)).map_err(refused)?.unwrap_or(wanted.after);
        let rows = self.state.kernel.notifications(&caller.user, after, limit).await.map_err(refused)?;
        let next = page::next_of(&rows, limit, |row| row.id).unwrap_or_default();
        Ok(Response::new(v1::ListNotificationsResponse { notifications: rows.into_iter().map(notice).collect(), next }))
    }

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
                Ok(Some(NoticeItem::Notification(notification))) => Some((Ok(notice(notification)), Some(feed))),
                Ok(Some(NoticeItem::Again)) => Some((Err(convert::again()), None)),
                Err(error) => Some((Err(refused(error)), None)),
            }
        });
        Ok(Response::new(Box::pin(notices)))
    }
}

fn notice(notification: Notification) -> v1::Notification {
    v1::Notification {
        id: notification.id,
        text: notification.text,
        task_ids: notification.tasks.iter().map(ToString::to_string).collect(),
        at_us: notification.at.0,
    }
}
