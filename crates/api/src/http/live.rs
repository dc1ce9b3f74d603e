//! `GET /api/v1/live`: several topics over one stream of server-sent events, for the page and for other programs that watch.

use std::convert::Infallible;

use annie_core::ports::Draft;
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
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::{
    extract::{Args, header_text},
    problem::Problem,
    schema,
    stream::{KEEP_ALIVE, RETRY, unbuffered},
};
use crate::{
    api::{
        AppState, Hello, LiveFeed, LiveItem, LiveOptions, Overview, QueueView, Summary, Topic, TreeDiff, TreeFilter,
        shown_event,
    },
    auth::Caller,
    error::ApiError,
    ops::notifications::Notice,
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LiveArgs {
    /// The topics, separated by commas: `status`, `queue`, `overview`, `tree`, `notifications`, `conversation:ID`. The last two
    /// may end with `@NUMBER`, the place after which they start.
    topics: String,
    /// `tree`: only the subtree at this path.
    under: Option<String>,
    /// `tree`: only actors whose path or kind contains this text.
    search: Option<String>,
    /// `tree`: only actors that handle a message or have waiting ones.
    #[serde(default)]
    busy: bool,
    /// `tree`: the most actors; 1000 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 5000)]
    actors_max: Option<String>,
}

/// A server-sent event of a live stream.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the stream writes")]
pub struct SentLive {
    /// The place in the stored topics, with which the stream is resumed.
    id: Option<String>,
    /// `hello`, `status`, `queue`, `overview`, `tree`, `notification`, `event`, `draft`, `reset`, or `error`.
    event: String,
    /// A `LiveData` as JSON on one line.
    data: String,
}

/// The `data` of a server-sent event of a live stream.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what the stream writes")]
pub enum LiveData {
    /// `event: hello`, the first one
    Hello(Hello),
    /// `event: status`
    Status(Summary),
    /// `event: queue`
    Queue(QueueView),
    /// `event: overview`
    Overview(Overview),
    /// `event: tree`
    Tree(TreeDiff),
    /// `event: notification`
    Notification(Notice),
    /// `event: event`: an event of a conversation
    Event(schema::Event),
    /// `event: draft`
    Draft(LiveDraft),
    /// `event: reset`
    Reset(LiveReset),
    /// `event: error`
    Error(schema::StreamError),
}

/// A piece of a round that is still being generated.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the stream writes")]
pub struct LiveDraft {
    conversation_id: schema::ConversationId,
    task_id: schema::TaskId,
    /// The number of the round within the task.
    round: u32,
    /// A further piece of the answer.
    text: Option<String>,
    /// A further piece of the reasoning before the answer.
    reasoning: Option<String>,
}

/// The requested sequence number does not exist.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the stream writes")]
pub struct LiveReset {
    conversation_id: schema::ConversationId,
    /// The last sequence number of the log.
    last_seq: u64,
}

/// Follow several topics: states of the server when they change, notifications, and events of conversations. A topic that the key
/// may not follow is named in the first event.
#[utoipa::path(
    get, path = "/api/v1/live", tag = "operations",
    params(LiveArgs, ("Last-Event-ID" = String, Header, description = "The id of the last event that you have")),
    responses(
        (status = 200, content_type = "text/event-stream", body = SentLive,
            description = "`event` says which kind of `LiveData` the `data` is"),
        (status = "default", body = Problem, description = "A problem"),
    )
)]
pub async fn stream_live(
    State(state): State<AppState>,
    caller: Caller,
    Args(args): Args<LiveArgs>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let topics = Topic::list(&args.topics)?;
    let tree = TreeFilter::of(args.under.as_deref(), args.search.as_deref(), args.busy, args.actors_max.as_deref())?;
    let position = header_text(&headers, "last-event-id")?.unwrap_or_default().parse()?;
    let feed = LiveFeed::open(&state, &caller, LiveOptions { topics, tree, position }).await?;
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("still here");
    let mut response = Sse::new(events(feed)).keep_alive(keep_alive).into_response();
    unbuffered(&mut response);
    Ok(response)
}

fn events(feed: LiveFeed) -> impl Stream<Item = Result<Sent, Infallible>> {
    let hello = stream::once(async { Ok(Sent::default().retry(RETRY)) });
    let rest = stream::unfold(Some(feed), |feed| async move {
        let mut feed = feed?;
        match feed.next().await {
            Ok(Some(item)) => {
                let sent = sent(item).id(feed.position().to_string());
                Some((Ok(sent), Some(feed)))
            }
            Ok(None) => None,
            Err(error) => {
                let data = json!({ "code": error.code.as_str(), "detail": error.detail });
                Some((Ok(named("error", &data).retry(RETRY)), None))
            }
        }
    });
    hello.chain(rest)
}

fn named(event: &str, data: &Value) -> Sent {
    Sent::default().event(event).data(data.to_string())
}

fn sent(item: LiveItem) -> Sent {
    match item {
        LiveItem::Hello(hello) => named("hello", &serde_json::to_value(&hello).unwrap_or_default()),
        LiveItem::State(topic, text) => Sent::default().event(topic).data(&*text),
        LiveItem::Notification(notification) => {
            named("notification", &serde_json::to_value(Notice::from(notification)).unwrap_or_default())
        }
        LiveItem::Event(event) => named("event", &shown_event(&event)),
        LiveItem::Reset(conversation, last) => {
            named("reset", &json!({ "conversation_id": conversation, "last_seq": last }))
        }
        LiveItem::Draft(conversation, task, round, draft) => {
            let (what, text) = match draft {
                Draft::Text(text) => ("text", text),
                Draft::Reasoning(text) => ("reasoning", text),
            };
            named("draft", &json!({ "conversation_id": conversation, "task_id": task, "round": round, what: text }))
        }
        LiveItem::Again => Sent::default().comment("closing, come back with the last id").retry(RETRY),
    }
}
