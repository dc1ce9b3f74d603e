//! The live stream of one viewer: several topics over one connection. A topic that shows a state sends it when it has changed,
//! at most once a second, and a slow viewer receives only the latest state. A topic that is stored resumes without a gap.
//! Nothing is read while there is no viewer.

mod topic;
mod tree;

use std::{sync::Arc, time::Duration};

use annie_actors::{Follow, NoticeStream, StreamItem};
use annie_core::{
    event::Event,
    ids::{ConversationId, Seq, TaskId},
    ports::{Draft, Notification},
};
use futures_util::{
    StreamExt,
    stream::{self, BoxStream, SelectAll},
};
use serde::Serialize;
use tokio::{
    sync::watch,
    time::{Instant, Interval, MissedTickBehavior, interval},
};
pub(crate) use topic::{Position, Topic};
pub use tree::TreeDiff;
pub(crate) use tree::TreeFilter;
use tree::TreeWatch;
use utoipa::ToSchema;

use super::{AppState, Slot};
use crate::{
    auth::{Access, Caller, KeyScope},
    error::ApiError,
};

/// How often a state is compared with what the viewer has.
const EVERY: Duration = Duration::from_secs(1);
/// How often the last hour is compared with what the viewer has.
const OVERVIEW_EVERY: Duration = Duration::from_secs(5);
/// Pages of notifications that are skipped to find the newest one, at most.
const NOTICE_PAGES_MAX: usize = 40;

/// The first event of a live stream: who watches what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Hello {
    /// The user for whom the caller acts.
    pub user: String,
    /// The scopes of the caller.
    pub scopes: Vec<&'static str>,
    /// Whether callers need a key.
    pub needs_keys: bool,
    pub version: &'static str,
    /// The topics that are followed.
    pub topics: Vec<String>,
    /// The topics that are not.
    pub refused: Vec<RefusedTopic>,
}

/// A topic that the caller may not follow, or that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct RefusedTopic {
    pub topic: String,
    /// The stable name of the error, as in a problem.
    pub code: &'static str,
    /// What is wrong.
    pub detail: String,
}

/// One item of a live stream.
#[derive(Debug, Clone)]
pub(crate) enum LiveItem {
    Hello(Hello),
    /// The name of a topic that shows a state, and the state as JSON.
    State(&'static str, Arc<str>),
    Notification(Notification),
    Event(Arc<Event>),
    /// The requested sequence number of a conversation does not exist; this is the last one.
    Reset(ConversationId, Seq),
    Draft(ConversationId, TaskId, u32, Draft),
    /// The server stops, or the stream reached its maximum duration. The client resumes from the last id.
    Again,
}

type Items = BoxStream<'static, Result<LiveItem, ApiError>>;

/// What a viewer asks for.
pub(crate) struct LiveOptions {
    pub topics: Vec<Topic>,
    pub tree: TreeFilter,
    pub position: Position,
}

/// The live stream of one viewer.
pub(crate) struct LiveFeed {
    hello: Option<Hello>,
    items: SelectAll<Items>,
    /// Everything up to here was delivered.
    position: Position,
    closing: watch::Receiver<bool>,
    until: Instant,
    over: bool,
    access: Access,
    _slot: Slot,
}

impl LiveFeed {
    /// Opens a stream of the topics that the caller may follow.
    ///
    /// # Errors
    /// If the caller may follow none of the topics, or no stream slot is free.
    pub async fn open(state: &AppState, caller: &Caller, options: LiveOptions) -> Result<Self, ApiError> {
        let slot = state.slot(caller)?;
        let LiveOptions { topics, tree, position } = options;
        let (mut items, mut followed, mut refused) = (SelectAll::new(), Vec::new(), Vec::new());
        let mut start = Position::default();
        let mut error = None;
        for topic in topics {
            let name = topic.to_string();
            if followed.contains(&name) {
                continue;
            }
            let opened = match caller.must(topic.scope()) {
                Ok(()) => open(state, caller, position.resume(topic), &tree, &mut start).await,
                Err(error) => Err(error),
            };
            match opened {
                Ok(stream) => {
                    items.push(stream);
                    followed.push(name);
                }
                Err(e) => {
                    refused.push(RefusedTopic { topic: name, code: e.code.as_str(), detail: e.detail.clone() });
                    error.get_or_insert(e);
                }
            }
        }
        if let Some(error) = error.filter(|_| followed.is_empty()) {
            return Err(error);
        }
        let hello = hello(state, caller, followed, refused);
        Ok(Self {
            hello: Some(hello),
            items,
            position: start,
            closing: state.shared.closing(),
            until: Instant::now() + Duration::from_millis(state.limits.stream_ms_max),
            over: false,
            access: Access::of(&state.auth, caller),
            _slot: slot,
        })
    }

    /// The next item; nothing at the end.
    ///
    /// # Errors
    /// If the store cannot be read, or the caller's key was revoked or has expired.
    pub async fn next(&mut self) -> Result<Option<LiveItem>, ApiError> {
        if let Some(hello) = self.hello.take() {
            return Ok(Some(LiveItem::Hello(hello)));
        }
        if self.over {
            return Ok(None);
        }
        let item = loop {
            // Outside of `select!`: inside, a steady flow of events would cancel the check again and again.
            self.access.check_if_due().await?;
            break tokio::select! {
                biased;
                _ = self.closing.wait_for(|closing| *closing) => None,
                () = tokio::time::sleep_until(self.until) => None,
                item = self.items.next() => item.transpose()?,
                () = self.access.due() => continue,
            };
        };
        match &item {
            Some(LiveItem::Notification(notification)) => self.position.notifications = Some(notification.id),
            Some(LiveItem::Event(event)) => {
                self.position.conversations.insert(event.conversation, event.seq);
            }
            Some(LiveItem::Reset(conversation, last)) => {
                self.position.conversations.insert(*conversation, *last);
            }
            Some(LiveItem::Hello(_) | LiveItem::State(..) | LiveItem::Draft(..) | LiveItem::Again) => {}
            None => self.over = true,
        }
        Ok(Some(item.unwrap_or(LiveItem::Again)))
    }

    /// The place from which a client that has received everything so far resumes.
    pub const fn position(&self) -> &Position {
        &self.position
    }
}

fn hello(state: &AppState, caller: &Caller, topics: Vec<String>, refused: Vec<RefusedTopic>) -> Hello {
    let scopes = KeyScope::ALL.into_iter().filter(|scope| caller.grants.has(*scope)).map(KeyScope::as_str);
    Hello {
        user: caller.user.to_string(),
        scopes: scopes.collect(),
        needs_keys: state.auth.needs_keys(),
        version: super::VERSION,
        topics,
        refused,
    }
}

/// Opens one topic, and adds the place where it starts.
async fn open(
    state: &AppState,
    caller: &Caller,
    topic: Topic,
    filter: &TreeFilter,
    start: &mut Position,
) -> Result<Items, ApiError> {
    let state = state.clone();
    Ok(match topic {
        Topic::Status => states(Shown::Status, EVERY, state),
        Topic::Queue => states(Shown::Queue, EVERY, state),
        Topic::Overview => states(Shown::Overview, OVERVIEW_EVERY, state),
        Topic::Tree => trees(state, TreeWatch::new(filter.clone())),
        Topic::Notifications(after) => {
            let after = match after {
                Some(after) => after,
                None => newest_notification(&state, caller).await?,
            };
            start.notifications = Some(after);
            notifications(state.kernel.follow_notifications(&caller.user, after))
        }
        Topic::Conversation(id, after) => {
            let last = state.kernel.conversation(caller.scope(), id).await?.last_seq;
            let reset = (after > last).then_some(last);
            let follow = state.kernel.follow(caller.scope(), id, reset.unwrap_or(after)).await?;
            start.conversations.insert(id, reset.unwrap_or(after));
            conversation(id, reset, follow)
        }
    })
}

fn ticks(every: Duration) -> Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// The states that the board keeps.
#[derive(Debug, Clone, Copy)]
enum Shown {
    Status,
    Queue,
    Overview,
}

impl Shown {
    const fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Queue => "queue",
            Self::Overview => "overview",
        }
    }

    async fn read(self, state: &AppState) -> Result<Arc<str>, ApiError> {
        let board = &state.shared.board;
        match self {
            Self::Status => board.summary(state).await,
            Self::Queue => board.queue(&state.kernel).await,
            Self::Overview => board.overview(state).await,
        }
    }
}

/// A state: the present one, then each one that differs from the last. While it cannot be read, nothing is sent.
fn states(shown: Shown, every: Duration, state: AppState) -> Items {
    let next = move |(mut ticks, state, last): (Interval, AppState, Option<Arc<str>>)| async move {
        loop {
            ticks.tick().await;
            let Ok(text) = shown.read(&state).await else { continue };
            if last.as_ref() != Some(&text) {
                break Some((Ok(LiveItem::State(shown.name(), text.clone())), (ticks, state, Some(text))));
            }
        }
    };
    stream::unfold((ticks(every), state, None), next).boxed()
}

fn trees(state: AppState, watch: TreeWatch) -> Items {
    let next = |(mut ticks, state, mut watch): (Interval, AppState, TreeWatch)| async move {
        loop {
            ticks.tick().await;
            let Ok(tree) = state.shared.board.tree(&state.kernel).await else { continue };
            if let Some(diff) = watch.diff(&state.kernel, &tree) {
                let text = Arc::from(tree::text(&diff));
                break Some((Ok(LiveItem::State("tree", text)), (ticks, state, watch)));
            }
        }
    };
    stream::unfold((ticks(EVERY), state, watch), next).boxed()
}

/// The id of the caller's newest notification; 0 if there is none.
async fn newest_notification(state: &AppState, caller: &Caller) -> Result<u64, ApiError> {
    let mut last = 0;
    for _ in 0..NOTICE_PAGES_MAX {
        match state.kernel.notifications(&caller.user, last, annie_actors::PAGE_MAX).await?.last() {
            Some(notification) => last = notification.id,
            None => break,
        }
    }
    Ok(last)
}

fn notifications(notices: NoticeStream) -> Items {
    let next = |notices: Option<NoticeStream>| async move {
        let mut notices = notices?;
        match notices.next().await {
            Ok(notification) => Some((Ok(LiveItem::Notification(notification?)), Some(notices))),
            Err(error) => Some((Err(error.into()), None)),
        }
    };
    stream::unfold(Some(notices), next).boxed()
}

fn conversation(id: ConversationId, reset: Option<Seq>, follow: Follow) -> Items {
    let next = move |follow: Option<Follow>| async move {
        let mut follow = follow?;
        match follow.next().await {
            Ok(item) => {
                let item = match item? {
                    StreamItem::Event(event) => LiveItem::Event(event),
                    StreamItem::Draft { task, round, draft } => LiveItem::Draft(id, task, round, draft),
                };
                Some((Ok(item), Some(follow)))
            }
            Err(error) => Some((Err(error.into()), None)),
        }
    };
    let reset = stream::iter(reset.map(|last| Ok(LiveItem::Reset(id, last))));
    reset.chain(stream::unfold(Some(follow), next)).boxed()
}
