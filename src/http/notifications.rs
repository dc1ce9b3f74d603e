//! Notifications: what a user is told beside the conversations, as pages and as server-sent events with durable ids.

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
    auth::Caller,
    door::{AppState, NoticeFeed, NoticeItem, page},
    error::Fault,
};

/// What a user is told beside the conversations.
#[derive(Debug, Serialize, ToSchema)]
pub struct Notice {
    /// Its place: what a reader resumes from. Rises, with gaps.
    id: u64,
    text: String,
    /// About which tasks.
    #[schema(value_type = Vec<schema::TaskId>)]
    task_ids: Vec<TaskId>,
    /// RFC 3339.
    at: String,
}

impl From<Notification> for Notice {
    fn from(told: Notification) -> Self {
        Self { id: told.id, text: told.text, task_ids: told.tasks, at: told.at.to_string() }
    }
}

/// Notifications, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Notices {
    notifications: Vec<Notice>,
    /// Ask again with this as `next` for the rest; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NoticesPage {
    /// The last place that you have; 0 is the beginning. `next` goes on from where an earlier page ended.
    after: Option<u64>,
    /// The `next` of an earlier page: this one goes on behind it.
    #[param(pattern = "^[0-9]{0,18}$")]
    next: Option<String>,
    /// How many at most; 50 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 500)]
    limit: Option<String>,
}

/// Your notifications.
#[utoipa::path(
    get, path = "/api/v1/notifications", tag = "chat", params(NoticesPage),
    responses((status = 200, body = Notices), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn list_notifications(
    State(state): State<AppState>,
    caller: Caller,
    Args(page): Args<NoticesPage>,
) -> Result<Json<Notices>, Fault> {
    let limit = page::ROWS.of_text(page.limit.as_deref())?;
    let after = page::place(page.next.as_deref())?.or(page.after).unwrap_or(0);
    let told = state.kernel.notifications(&caller.user, after, limit).await?;
    let next = page::next_of(&told, limit, |told| told.id);
    Ok(Json(Notices { notifications: told.into_iter().map(Into::into).collect(), next }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NoticesFrom {
    /// The last place that you have; also as `Last-Event-ID`. 0 is the beginning.
    after: Option<u64>,
}

/// Your notifications from a place on, then as they come.
#[utoipa::path(
    get, path = "/api/v1/notifications/stream", tag = "chat",
    params(NoticesFrom, ("Last-Event-ID" = u64, Header, description = "As `after`")),
    responses(
        (status = 200, content_type = "text/event-stream", body = schema::SentNotice,
            description = "`id` is the place, `event` is `notification`, `data` a `Notice` as JSON on one line"),
        (status = "default", body = Problem, description = "A problem"),
    )
)]
pub async fn stream_notifications(
    State(state): State<AppState>,
    caller: Caller,
    Args(args): Args<NoticesFrom>,
    headers: HeaderMap,
) -> Result<Response, Fault> {
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
            Err(fault) => {
                let data = json!({ "code": fault.code.as_str(), "detail": fault.detail });
                Some((Ok(Sent::default().event("error").data(data.to_string()).retry(RETRY)), None))
            }
        }
    });
    hello.chain(rest)
}

fn sent(item: NoticeItem) -> Sent {
    match item {
        NoticeItem::Told(told) => {
            let told = Notice::from(told);
            let data = serde_json::to_string(&told).unwrap_or_default();
            Sent::default().id(told.id.to_string()).event("notification").data(data)
        }
        NoticeItem::Again => Sent::default().comment("closing, come back with the last id").retry(RETRY),
    }
}
