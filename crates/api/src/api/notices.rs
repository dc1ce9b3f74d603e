//! The protocol-independent part of a user's notification stream: a resume position, a maximum duration, a stream slot, and a
//! clean end at shutdown.

use std::time::Duration;

use annie_actors::NoticeStream;
use annie_core::ports::Notification;
use tokio::{sync::watch, time::Instant};

use super::{AppState, Slot};
use crate::{
    auth::{Access, Caller},
    error::ApiError,
};

/// One item of the stream.
#[derive(Debug, Clone)]
pub enum NoticeItem {
    /// A notification.
    Notification(Notification),
    /// The server stops, or the stream reached its maximum duration. The client resumes from the last id.
    Again,
}

/// The notification stream of one caller.
pub struct NoticeFeed {
    notices: NoticeStream,
    closing: watch::Receiver<bool>,
    until: Instant,
    over: bool,
    access: Access,
    _slot: Slot,
}

impl NoticeFeed {
    /// Starts to follow the caller's notifications after an id.
    ///
    /// # Errors
    /// If no stream slot is free.
    pub fn open(state: &AppState, caller: &Caller, after: u64) -> Result<Self, ApiError> {
        Ok(Self {
            notices: state.kernel.follow_notifications(&caller.user, after),
            closing: state.shared.closing(),
            until: Instant::now() + Duration::from_millis(state.limits.stream_ms_max),
            over: false,
            access: Access::of(&state.auth, caller),
            _slot: state.shared.slots.take(&caller.user, &state.limits)?,
        })
    }

    /// The next item; nothing at the end.
    ///
    /// # Errors
    /// If the store cannot be read, or the caller's key was revoked or has expired.
    pub async fn next(&mut self) -> Result<Option<NoticeItem>, ApiError> {
        if self.over {
            return Ok(None);
        }
        let item = loop {
            self.access.check_if_due().await?;
            break tokio::select! {
                // Stored notifications are delivered before the end of the stream.
                biased;
                item = self.notices.next() => item?,
                _ = self.closing.wait_for(|closing| *closing) => None,
                () = tokio::time::sleep_until(self.until) => None,
                () = self.access.due() => continue,
            };
        };
        self.over = item.is_none();
        Ok(Some(item.map_or(NoticeItem::Again, NoticeItem::Notification)))
    }
}
