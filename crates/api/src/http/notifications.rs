//! Notifications of a user outside of conversations, as server-sent events with durable ids. Their pages are in the table of
//! operations.

use std::convert::Infallible;

use axum::{
    extract::State,
    http::HeaderMap,
    response::{
        IntoResponse, Response, Sse,
        sse::{Event as Sent, KeepAlive},
    },
};
use futures_util::{Stream, StreamExt, stream};
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;

use super::{
    extract::Args,
    problem::Problem,
    schema,
    stream::{KEEP_ALIVE, RETRY, last_event_id, unbuffered},
};
use crate::{
    api::{AppState, NoticeFeed, NoticeItem},
    auth::Caller,
    error::ApiError,
    ops::notifications::Notice,
};

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
