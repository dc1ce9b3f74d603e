//! Ends what outlives a request: a stream checks again and again whether the key that opened it is still valid.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{Auth, Caller};
use crate::error::{Code, Fault};

/// How often a stream checks its key. A revocation by another process is seen within this and the time for which the table
/// of keys is believed: 9 s, where 10 s are promised. One by this process is seen at once.
pub(super) const CHECK_EVERY: Duration = Duration::from_secs(4);

/// The right of one stream to go on.
pub(crate) struct Access {
    auth: Arc<Auth>,
    key: Option<String>,
    changes: watch::Receiver<u64>,
    check_at: Instant,
}

impl Access {
    /// Of a caller who was let in a moment ago.
    pub fn of(auth: &Arc<Auth>, caller: &Caller) -> Self {
        Self {
            auth: auth.clone(),
            key: caller.key.clone(),
            changes: auth.changes.subscribe(),
            // The first look checks at once: the key may have been revoked between the request and this.
            check_at: Instant::now(),
        }
    }

    /// Checks the key if that is due.
    ///
    /// # Errors
    /// `unauthenticated` if it was revoked or has expired. A store that cannot be read ends no stream.
    pub async fn check_if_due(&mut self) -> Result<(), Fault> {
        if Instant::now() < self.check_at && !self.changes.has_changed().unwrap_or(false) {
            return Ok(());
        }
        self.changes.mark_unchanged();
        self.check_at = Instant::now() + CHECK_EVERY;
        match self.auth.still_admits(self.key.as_deref()).await {
            Err(fault) if fault.code == Code::Unauthenticated => Err(fault),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Waits until a check is due. Loses nothing if it is dropped.
    pub async fn due(&mut self) {
        tokio::select! {
            () = sleep_until(self.check_at) => {}
            Ok(()) = self.changes.changed() => self.check_at = Instant::now(),
        }
    }
}
