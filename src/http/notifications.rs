//! Notifications of a user outside of conversations, as pages and as server-sent events with durable ids.

use std::convert::Infallible;

use annie_core::{ids::TaskId, ports::Notification};
use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{
        IntoResponse, Response, Sse,
        sse::{Event as Sent, KeepAlive},
    },
};
use futures_util::{Stream, StreamExt, stream};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::{
    extract::Args,
    problem::Problem,
    schema,
    stream::{KEEP_ALIVE, RETRY, last_event_id, unbuffered},
};
use crate::{
    api::{AppState, NoticeFeed, NoticeItem, page},
    auth::Caller,
    error::ApiError,
};

/// A notification outside of conversations.
#[derive(Debug, Serialize, ToSchema)]
pub struct Notice {
    /// The id, after which a stream is resumed. Ids ascend, with gaps.
    id: u64,
    text: String,
    /// The tasks that the notification is about.
    #[schema(value_type = Vec<schema::TaskId>)]
    task_ids: Vec<TaskId>,
    /// RFC 3339.
    #[schema(format = DateTime)]
    at: String,
}

impl From<Notification> for Notice {
    fn from(notification: Notification) -> Self {
        Self {
            id: notification.id,
            text: notification.text,
            task_ids: notification.tasks,
            at: notification.at.to_string(),
        }
    }
}

/// Notifications, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Notices {
    notifications: Vec<Notice>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NoticesPage {
    /// Only notifications after this id; 0 means the beginning. `next` takes precedence.
    after: Option<u64>,
    /// The `next` of an earlier page; this page continues after it.
    #[param(pattern = "^[0-9]{0,18}$")]
    next: Option<String>,
    /// The maximum number of rows; 50 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 500)]
    limit: Option<String>,
}

/// List your notifications.
#[utoipa::path(
    get, path = "/api/v1/notifications", tag = "chat", params(NoticesPage),
    responses((status = 200, body = Notices), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn list_notifications(
    State(state): State<AppState>,
    caller: Caller,
    Args(page): Args<NoticesPage>,
) -> Result<Json<Notices>, ApiError> {
    let limit = page::ROWS.of_text(page.limit.as_deref())?;
    let after = page::cursor(page.next.as_deref())?.or(page.after).unwrap_or(0);
    let rows = state.kernel.notifications(&caller.user, after, limit).await?;
    let next = page::next_of(&rows, limit, |row| row.id);
    Ok(Json(Notices { notifications: rows.into_iter().map(Into::into).collect(), next }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NoticesFrom {
    /// The last id that you have; also accepted as `Last-Event-ID`. 0 means the beginning.
    after: Option<u64>,
}

/// Stream your notifications: those after an id, then new ones as they are created.
#[utoipa::path(
    get, path = "/api/v1/notifications/stream", tag = "chat",
    params(NoticesFrom, ("Last-Event-ID" = u64, Header, description = "As `after`")),
    responses(
        (status = 200, content_type = "text/event-stream", body = schema::SentNotice,
            description = "`id` is the id of the notification, `event` is `notification`, `data` is a `Notice` as JSON on one line"),
        (status = "default", body = Problem, description = "A problem"),
    )
)]
pub async fn stream_notifications(
    State(state): State<AppState>,
    caller: Caller,
    Args(args): Args<NoticesFrom>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let feed = NoticeFeed::open(&state, &caller, last_event_id(&headers, args.after)?)?;
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("still here");
    let mut response = Sse::new(events(feed)).keep_alive(keep_alive).into_response();
    unbuffered(&mut response);
    Ok(response)
}

fn events(feed: NoticeFeed) -> impl Stream<Item = Result<Sent, Infallible>> {
    let hello = stream::once(async { Ok(Sent::default().retry(RETRY)) });
    let rest = stream::unfold(Some(feed), |feed| async move {
        let mut feed = feed?;
        match feed.next().await {
            Ok(Some(item)) => Some((Ok(sent(item)), Some(feed))),
            Ok(None) => None,
            Err(error) => {
                let data = json!({ "code": error.code.as_str(), "detail": error.detail });
                Some((Ok(Sent::default().event("error").data(data.to_string()).retry(RETRY)), None))
            }
        }
    });
    hello.chain(rest)
}

fn sent(item: NoticeItem) -> Sent {
    match item {
        NoticeItem::Notification(notification) => {
            let notice = Notice::from(notification);
            let data = serde_json::to_string(&notice).unwrap_or_default();
            Sent::default().id(notice.id.to_string()).event("notification").data(data)
        }
        NoticeItem::Again => Sent::default().comment("closing, come back with the last id").retry(RETRY),
    }
}
