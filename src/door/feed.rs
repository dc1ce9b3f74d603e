//! What every stream is made of, whatever the protocol: the kernel's follower with a place to resume from, an end after a
//! task, a longest duration, a place among the streams, and a clean end when the server stops.

use std::{sync::Arc, time::Duration};

use annie_actors::{Follow, StreamItem};
use annie_core::{
    event::{Event, Scope},
    ids::{ConversationId, Seq, TaskId},
    ports::Draft,
};
use tokio::{sync::watch, time::Instant};

use super::{AppState, Slot};
use crate::{
    auth::{Access, Caller},
    error::Fault,
};

/// What a caller wants to follow.
#[derive(Debug, Clone, Copy)]
pub struct FeedWish {
    /// Which conversation.
    pub conversation: ConversationId,
    /// From behind which place on.
    pub after: Seq,
    /// Ends after this task's final event.
    pub task: Option<TaskId>,
}

/// One item of a stream.
#[derive(Debug, Clone)]
pub enum FeedItem {
    /// The place that was asked for does not exist: this is the last one.
    Reset(Seq),
    /// A stored event.
    Event(Arc<Event>),
    /// A piece of a round that is still being written.
    Draft { task: TaskId, round: u32, draft: Draft },
    /// The server stops, or the stream has lasted long enough: resume it from the last place.
    Again,
}

/// A stream.
pub struct Feed {
    follow: Follow,
    task: Option<TaskId>,
    /// The task has ended: its final event is here or before.
    ends_at: Option<Seq>,
    reset: Option<Seq>,
    closing: watch::Receiver<bool>,
    until: Instant,
    over: bool,
    access: Access,
    _slot: Slot,
}

impl Feed {
    /// Begins to follow.
    ///
    /// # Errors
    /// If the caller may not see it, or there is no place.
    pub async fn open(state: &AppState, caller: &Caller, wish: FeedWish) -> Result<Self, Fault> {
        let (scope, slot) = (caller.scope(), state.slot(caller)?);
        let ended = match wish.task {
            Some(task) => Self::has_ended(state, scope.clone(), wish.conversation, task).await?,
            None => false,
        };
        let row = state.kernel.conversation(scope.clone(), wish.conversation).await?;
        let reset = (wish.after > row.last_seq).then_some(row.last_seq);
        let follow = state.kernel.follow(scope, wish.conversation, reset.unwrap_or(wish.after)).await?;
        let mut feed = Self::of(state, caller, slot, follow, wish.task);
        feed.ends_at = ended.then_some(row.last_seq);
        feed.reset = reset;
        Ok(feed)
    }

    /// Goes on with a follower in a place. Whoever stores a message to follow it takes the place before: for want of a place,
    /// a stored message must not look like a refused one.
    pub fn of(state: &AppState, caller: &Caller, slot: Slot, follow: Follow, task: Option<TaskId>) -> Self {
        Self {
            follow,
            task,
            ends_at: None,
            reset: None,
            closing: state.doors.closing(),
            until: Instant::now() + Duration::from_millis(state.limits.stream_ms_max),
            over: false,
            access: Access::of(&state.auth, caller),
            _slot: slot,
        }
    }

    async fn has_ended(
        state: &AppState,
        scope: Scope,
        conversation: ConversationId,
        task: TaskId,
    ) -> Result<bool, Fault> {
        let row = state.kernel.task(scope, task).await?;
        if row.conversation != conversation {
            return Err(Fault::not_found("task"));
        }
        Ok(row.state.is_ended())
    }

    /// Shortens the longest duration.
    pub fn at_most(mut self, wait: Duration) -> Self {
        self.until = self.until.min(Instant::now() + wait);
        self
    }

    /// The next item; nothing at the end.
    ///
    /// # Errors
    /// If the log cannot be read, or the caller's key was revoked or has expired.
    pub async fn next(&mut self) -> Result<Option<FeedItem>, Fault> {
        if let Some(last) = self.reset.take() {
            return Ok(Some(FeedItem::Reset(last)));
        }
        if self.over || self.ends_at.is_some_and(|end| self.follow.seen() >= end) {
            return Ok(None);
        }
        let item = loop {
            // Outside of `select!`, where a steady flow of events would drop the check again and again.
            self.access.check_if_due().await?;
            break tokio::select! {
                // What is stored goes out before the end is told.
                biased;
                item = self.follow.next() => item?,
                _ = self.closing.wait_for(|closing| *closing) => None,
                () = tokio::time::sleep_until(self.until) => None,
                () = self.access.due() => continue,
            };
        };
        Ok(Some(match item {
            Some(StreamItem::Event(event)) => {
                self.over = self.task == Some(event.task) && event.body.is_final();
                FeedItem::Event(event)
            }
            Some(StreamItem::Draft { task, round, draft }) => FeedItem::Draft { task, round, draft },
            None => {
                self.over = true;
                FeedItem::Again
            }
        }))
    }

    /// Waits for the end of the task that the feed was opened for: its final event, or nothing if time is up first.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub async fn last(&mut self) -> Result<Option<Arc<Event>>, Fault> {
        while let Some(item) = self.next().await? {
            if let FeedItem::Event(event) = item
                && self.task == Some(event.task)
                && event.body.is_final()
            {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}
