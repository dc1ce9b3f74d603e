//! `GET /api/v1/conversations/{id}/stream`: server-sent events with durable ids. A disconnected client resumes with
//! `Last-Event-ID` and misses no event. Drafts have no id, since they are not stored.

use std::{convert::Infallible, time::Duration};

use annie_core::{
    ids::{ConversationId, Seq, TaskId},
    ports::Draft,
};
use axum::{
    extract::State,
    http::{HeaderMap, HeaderName},
    response::{
        IntoResponse, Response, Sse,
        sse::{Event as Sent, KeepAlive},
    },
};
use futures_util::{Stream, stream};
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;

use super::{
    extract::{Args, Id, header_text},
    problem::Problem,
    schema,
};
use crate::{
    api::{AppState, Feed, FeedItem, FeedOptions, shown_event},
    auth::Caller,
    error::ApiError,
};

/// The reconnection delay that the stream sends to clients.
pub(super) const RETRY: Duration = Duration::from_millis(2_000);
/// The interval of keep-alive comments on a silent stream.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StreamArgs {
    /// The last sequence number that you have; also accepted as `Last-Event-ID`. 0 means the beginning.
    after: Option<u64>,
    /// End the stream after the final event of this task.
    #[param(value_type = Option<schema::TaskId>)]
    task_id: Option<String>,
}

/// Stream a conversation: its events after a sequence number, then live events, interleaved with drafts (`event: draft`).
#[utoipa::path(
    get, path = "/api/v1/conversations/{id}/stream", tag = "chat",
    params(("id" = schema::ConversationId, Path), StreamArgs, ("Last-Event-ID" = u64, Header, description = "As `after`")),
    responses(
        (status = 200, content_type = "text/event-stream", body = schema::SentEvent,
            description = "`id` is the sequence number, `event` is the kind, `data` is a `StreamData` as JSON on one line"),
        (status = "default", body = Problem, description = "A problem"),
    )
)]
pub async fn stream_conversation(
    State(state): State<AppState>,
    caller: Caller,
    Id(conversation): Id<ConversationId>,
    Args(args): Args<StreamArgs>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let task = args.task_id.map(|t| t.parse::<TaskId>().map_err(|e| ApiError::from(e).at("task_id"))).transpose()?;
    let after = last_event_id(&headers, args.after)?;
    let feed = Feed::open(&state, &caller, FeedOptions { conversation, after: Seq(after), task }).await?;
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("still here");
    let mut response = Sse::new(events(feed)).keep_alive(keep_alive).into_response();
    unbuffered(&mut response);
    Ok(response)
}

/// The position from which a stream is resumed. The header that a browser sends when it reconnects is newer than the URL's
/// parameter.
pub(super) fn last_event_id(headers: &HeaderMap, after: Option<u64>) -> Result<u64, ApiError> {
    match header_text(headers, "last-event-id")? {
        Some(text) => text.parse().map_err(|_| ApiError::invalid("it must be a number").at("Last-Event-ID")),
        None => Ok(after.unwrap_or(0)),
    }
}

/// Tells proxies not to buffer the stream.
pub(super) fn unbuffered(response: &mut Response) {
    let name = HeaderName::from_static("x-accel-buffering");
    response.headers_mut().insert(name, axum::http::HeaderValue::from_static("no"));
}

fn events(feed: Feed) -> impl Stream<Item = Result<Sent, Infallible>> {
    let hello = stream::once(async { Ok(Sent::default().retry(RETRY)) });
    let rest = stream::unfold(Some(feed), |feed| async move {
        let mut feed = feed?;
        match feed.next().await {
            Ok(Some(item)) => Some((Ok(sent(&item)), Some(feed))),
            Ok(None) => None,
            Err(error) => {
                let data = json!({ "code": error.code.as_str(), "detail": error.detail });
                Some((Ok(Sent::default().event("error").data(data.to_string()).retry(RETRY)), None))
            }
        }
    });
    stream::StreamExt::chain(hello, rest)
}

fn sent(item: &FeedItem) -> Sent {
    match item {
        FeedItem::Reset(last) => Sent::default().event("reset").data(json!({ "last_seq": last }).to_string()),
        FeedItem::Event(event) => {
            let data = shown_event(event).to_string();
            Sent::default().id(event.seq.to_string()).event(event.body.kind()).data(data)
        }
        FeedItem::Draft { task, round, draft } => {
            let (what, text) = match draft {
                Draft::Text(text) => ("text", text),
                Draft::Reasoning(text) => ("reasoning", text),
            };
            Sent::default().event("draft").data(json!({ "task_id": task, "round": round, what: text }).to_string())
        }
        FeedItem::Again => Sent::default().comment("closing, come back with the last id").retry(RETRY),
    }
}
