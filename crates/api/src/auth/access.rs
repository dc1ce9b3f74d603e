//! Ends streams whose key is no longer valid: a stream repeatedly checks the key that opened it.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{Auth, Caller};
use crate::error::{ApiError, Code};

/// How often a stream checks its key. A revocation by another process takes effect within this time plus the time for which the
/// key table is used without a refresh: 9 s, where 10 s are promised. A revocation by this process takes effect at once.
pub(super) const CHECK_EVERY: Duration = Duration::from_secs(4);

/// The authorisation of one stream to continue.
pub(crate) struct Access {
    auth: Arc<Auth>,
    key: Option<String>,
    changes: watch::Receiver<u64>,
    check_at: Instant,
}

impl Access {
    /// The authorisation of a caller that was admitted a moment ago.
    pub fn of(auth: &Arc<Auth>, caller: &Caller) -> Self {
        Self {
            auth: auth.clone(),
            key: caller.key.clone(),
            changes: auth.changes.subscribe(),
            // The first check is due at once: the key may have been revoked between the request and now.
            check_at: Instant::now(),
        }
    }

    /// Checks the key if a check is due.
    ///
    /// # Errors
    /// `unauthenticated` if the key was revoked or has expired. A store that cannot be read ends no stream.
    pub async fn check_if_due(&mut self) -> Result<(), ApiError> {
        if Instant::now() < self.check_at && !self.changes.has_changed().unwrap_or(false) {
            return Ok(());
        }
        self.changes.mark_unchanged();
        self.check_at = Instant::now() + CHECK_EVERY;
        match self.auth.still_admits(self.key.as_deref()).await {
            Err(error) if error.code == Code::Unauthenticated => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Waits until a check is due. Safe to cancel.
    pub async fn due(&mut self) {
        tokio::select! {
            () = sleep_until(self.check_at) => {}
            Ok(()) = self.changes.changed() => self.check_at = Instant::now(),
        }
    }
}
