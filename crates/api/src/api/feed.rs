//! The protocol-independent part of every conversation stream: the kernel's follower with a resume position, an optional end
//! after one task, a maximum duration, a stream slot, and a clean end at shutdown.

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
    error::ApiError,
};

/// What a stream follows.
#[derive(Debug, Clone, Copy)]
pub struct FeedOptions {
    pub conversation: ConversationId,
    /// The sequence number after which the stream starts.
    pub after: Seq,
    /// The stream ends after the final event of this task.
    pub task: Option<TaskId>,
}

/// One item of a stream.
#[derive(Debug, Clone)]
pub enum FeedItem {
    /// The requested sequence number does not exist; this is the last one.
    Reset(Seq),
    /// A stored event.
    Event(Arc<Event>),
    /// A piece of a round that is still being generated.
    Draft { task: TaskId, round: u32, draft: Draft },
    /// The server stops, or the stream reached its maximum duration. The client resumes from the last sequence number.
    Again,
}

/// One stream of one caller.
pub struct Feed {
    follow: Follow,
    task: Option<TaskId>,
    /// Set if the task had ended before: the stream ends at this sequence number, at or behind the final event of the task.
    ends_at: Option<Seq>,
    reset: Option<Seq>,
    closing: watch::Receiver<bool>,
    until: Instant,
    over: bool,
    access: Access,
    _slot: Slot,
}

impl Feed {
    /// Opens a stream.
    ///
    /// # Errors
    /// If the caller may not see the conversation, or no stream slot is free.
    pub async fn open(state: &AppState, caller: &Caller, options: FeedOptions) -> Result<Self, ApiError> {
        let (scope, slot) = (caller.scope(), state.slot(caller)?);
        let ended = match options.task {
            Some(task) => Self::has_ended(state, scope.clone(), options.conversation, task).await?,
            None => false,
        };
        let row = state.kernel.conversation(scope.clone(), options.conversation).await?;
        let reset = (options.after > row.last_seq).then_some(row.last_seq);
        let follow = state.kernel.follow(scope, options.conversation, reset.unwrap_or(options.after)).await?;
        let mut feed = Self::of(state, caller, slot, follow, options.task);
        feed.ends_at = ended.then_some(row.last_seq);
        feed.reset = reset;
        Ok(feed)
    }

    /// Continues with an existing follower and slot. A caller that stores a message and then follows it must take the slot
    /// first. Otherwise a missing slot would make a stored message look like a refused one.
    pub fn of(state: &AppState, caller: &Caller, slot: Slot, follow: Follow, task: Option<TaskId>) -> Self {
        Self {
            follow,
            task,
            ends_at: None,
            reset: None,
            closing: state.shared.closing(),
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
    ) -> Result<bool, ApiError> {
        let row = state.kernel.task(scope, task).await?;
        if row.conversation != conversation {
            return Err(ApiError::not_found("task"));
        }
        Ok(row.state.is_ended())
    }

    /// Limits the duration of the stream further.
    pub fn at_most(mut self, wait: Duration) -> Self {
        self.until = self.until.min(Instant::now() + wait);
        self
    }

    /// The next item; nothing at the end.
    ///
    /// # Errors
    /// If the log cannot be read, or the caller's key was revoked or has expired.
    pub async fn next(&mut self) -> Result<Option<FeedItem>, ApiError> {
        if let Some(last) = self.reset.take() {
            return Ok(Some(FeedItem::Reset(last)));
        }
        if self.over || self.ends_at.is_some_and(|end| self.follow.seen() >= end) {
            return Ok(None);
        }
        let item = loop {
            // Outside of `select!`: inside, a steady flow of events would cancel the check again and again.
            self.access.check_if_due().await?;
            break tokio::select! {
                // Stored events are delivered before the end of the stream.
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

    /// Waits until the task of this feed ends. Returns its final event, or nothing if the duration ends first.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub async fn last(&mut self) -> Result<Option<Arc<Event>>, ApiError> {
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
