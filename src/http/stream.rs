//! `GET /api/v1/conversations/{id}/stream`: server-sent events with durable ids. A client that was cut off comes back with
//! `Last-Event-ID` and misses nothing; drafts have no id, since they are not stored.

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
    auth::Caller,
    door::{AppState, Feed, FeedItem, FeedWish, shown_event},
    error::Fault,
};

/// When a client that was cut off should come back.
pub(super) const RETRY: Duration = Duration::from_millis(2_000);
/// After so long a silence a comment is sent.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StreamArgs {
    /// The last place that you have; also as `Last-Event-ID`. 0 is the beginning.
    after: Option<u64>,
    /// Ends the stream after this task's final event.
    #[param(value_type = Option<schema::TaskId>)]
    task_id: Option<String>,
}

/// A conversation's events from a place on, then live, with drafts (`event: draft`) in between.
#[utoipa::path(
    get, path = "/api/v1/conversations/{id}/stream", tag = "chat",
    params(("id" = schema::ConversationId, Path), StreamArgs, ("Last-Event-ID" = u64, Header, description = "As `after`")),
    responses(
        (status = 200, content_type = "text/event-stream", body = schema::SentEvent,
            description = "`id` is the place, `event` the kind, `data` a `StreamData` as JSON on one line"),
        (status = "default", body = Problem, description = "A problem"),
    )
)]
pub async fn stream_conversation(
    State(state): State<AppState>,
    caller: Caller,
    Id(conversation): Id<ConversationId>,
    Args(args): Args<StreamArgs>,
    headers: HeaderMap,
) -> Result<Response, Fault> {
    let task = args.task_id.map(|t| t.parse::<TaskId>().map_err(|e| Fault::from(e).at("task_id"))).transpose()?;
    let after = last_event_id(&headers, args.after)?;
    let feed = Feed::open(&state, &caller, FeedWish { conversation, after: Seq(after), task }).await?;
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("still here");
    let mut response = Sse::new(events(feed)).keep_alive(keep_alive).into_response();
    unbuffered(&mut response);
    Ok(response)
}

/// Where a stream is taken up: what a browser says by itself when it comes back is newer than the address that it was given.
pub(super) fn last_event_id(headers: &HeaderMap, after: Option<u64>) -> Result<u64, Fault> {
    match header_text(headers, "last-event-id")? {
        Some(text) => text.parse().map_err(|_| Fault::invalid("it must be a number").at("Last-Event-ID")),
        None => Ok(after.unwrap_or(0)),
    }
}

/// Proxies must not hold a stream back.
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
            Err(fault) => {
                let data = json!({ "code": fault.code.as_str(), "detail": fault.detail });
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
