//! A user's notifications as a stream, whatever the protocol: a place to resume from, a longest duration, a place among the
//! streams, and a clean end when the server stops.

use std::time::Duration;

use annie_actors::NoticeStream;
use annie_core::ports::Notification;
use tokio::{sync::watch, time::Instant};

use super::{AppState, Slot};
use crate::{
    auth::{Access, Caller},
    error::Fault,
};

/// One item of the stream.
#[derive(Debug, Clone)]
pub enum NoticeItem {
    /// A notification.
    Told(Notification),
    /// The server stops, or the stream has lasted long enough: resume it from the last place.
    Again,
}

/// A stream.
pub struct NoticeFeed {
    notices: NoticeStream,
    closing: watch::Receiver<bool>,
    until: Instant,
    over: bool,
    access: Access,
    _slot: Slot,
}

impl NoticeFeed {
    /// Begins to follow the caller's notifications from behind a place on.
    ///
    /// # Errors
    /// If there is no place among the streams.
    pub fn open(state: &AppState, caller: &Caller, after: u64) -> Result<Self, Fault> {
        Ok(Self {
            notices: state.kernel.follow_notifications(&caller.user, after),
            closing: state.doors.closing(),
            until: Instant::now() + Duration::from_millis(state.limits.stream_ms_max),
            over: false,
            access: Access::of(&state.auth, caller),
            _slot: state.doors.slots.take(&caller.user, &state.limits)?,
        })
    }

    /// The next item; nothing at the end.
    ///
    /// # Errors
    /// If the store cannot be read, or the caller's key was revoked or has expired.
    pub async fn next(&mut self) -> Result<Option<NoticeItem>, Fault> {
        if self.over {
            return Ok(None);
        }
        let told = loop {
            self.access.check_if_due().await?;
            break tokio::select! {
                // What is stored goes out before the end is told.
                biased;
                told = self.notices.next() => told?,
                _ = self.closing.wait_for(|closing| *closing) => None,
                () = tokio::time::sleep_until(self.until) => None,
                () = self.access.due() => continue,
            };
        };
        self.over = told.is_none();
        Ok(Some(told.map_or(NoticeItem::Again, NoticeItem::Told)))
    }
}
