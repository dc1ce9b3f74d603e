//! Rate limits of providers: a sliding window with a reserve for urgent requests, and the provider's own rate-limit
//! responses [S3 10.5]. Near the limit, requests that are not urgent wait.

use std::{collections::VecDeque, fmt};

use serde::{Deserialize, Serialize};

use super::facts::RateWindow;
use crate::{event::Priority, time::Micros};

/// The reason why a request may not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShutBy {
    /// The window is full.
    Full,
    /// The rest of the window is reserved for urgent requests.
    Reserve,
    /// The provider's rate-limit response.
    Provider,
}

impl fmt::Display for ShutBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "its rate window is used up",
            Self::Reserve => "what is left of its rate window is kept for urgent work",
            Self::Provider => "its provider wants no requests",
        })
    }
}

/// A request may not start yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{by} until {until}")]
pub struct Shut {
    /// The time of the next attempt. The window may be full again then, if other requests were faster.
    pub until: Micros,
    /// The reason.
    pub by: ShutBy,
}

/// The rate window of one backend.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    limit: Option<RateWindow>,
    /// Start times of the requests in the current window, oldest first; at most [`RateWindow::requests_max`].
    began: VecDeque<Micros>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shut_until: Option<Micros>,
    /// Whether the provider gave no time, so that `shut_until` is a guess. Urgent requests ignore a guess.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_guess: bool,
}

impl Window {
    /// Maximum retry time accepted from a provider, in milliseconds: one day.
    pub const RETRY_AFTER_MS_MAX: u64 = 24 * 3_600_000;
    /// How long requests pause after a rate-limit response without a time, in milliseconds.
    pub const RETRY_AFTER_MS_DEFAULT: u64 = 30_000;

    /// A window with this limit; without a limit, only the provider's responses count.
    #[must_use]
    pub const fn new(limit: Option<RateWindow>) -> Self {
        Self { limit, began: VecDeque::new(), shut_until: None, is_guess: false }
    }

    /// Changes the limit after the configuration was reloaded. Keeps the state.
    pub fn limit(&mut self, limit: Option<RateWindow>) {
        self.limit = limit;
        self.trim();
    }

    /// Number of requests in the current window.
    pub fn used(&mut self, now: Micros) -> usize {
        self.slide(now);
        self.began.len()
    }

    /// Whether a request of this class may start. The caller reports a started request with [`Self::started`].
    ///
    /// # Errors
    /// The time of the next attempt, and the reason.
    pub fn may_start(&mut self, class: Priority, now: Micros) -> Result<(), Shut> {
        self.slide(now);
        let is_urgent = class <= Priority::High;
        if let Some(until) = self.shut_until.filter(|_| !(is_urgent && self.is_guess)) {
            return Err(Shut { until, by: ShutBy::Provider });
        }
        let Some(limit) = self.limit else { return Ok(()) };
        let kept = if is_urgent { 0 } else { limit.reserve };
        let open = limit.requests_max.saturating_sub(kept).max(1) as usize;
        if self.began.len() < open {
            return Ok(());
        }
        let by = if self.began.len() < limit.requests_max as usize { ShutBy::Reserve } else { ShutBy::Full };
        // This many of the oldest requests must leave the window before a request of this class may start.
        let last_to_leave = self.began.len() - open;
        let began = self.began.get(last_to_leave).copied().unwrap_or(now);
        Err(Shut { until: began.plus_ms(span_ms(limit.window_ms)), by })
    }

    /// Records a started request.
    pub fn started(&mut self, now: Micros) {
        self.slide(now);
        self.began.push_back(now);
        self.trim();
    }

    /// Records a rate-limit response: no request starts until the time that the provider gave. If it gave none, requests
    /// that can wait pause for a while; an urgent request is tried anyway, because an error is better than a wait of unknown
    /// length.
    pub fn rate_limited(&mut self, retry_after_ms: Option<u64>, now: Micros) {
        let wait_ms = retry_after_ms.unwrap_or(Self::RETRY_AFTER_MS_DEFAULT).clamp(1, Self::RETRY_AFTER_MS_MAX);
        let until = now.plus_ms(span_ms(wait_ms));
        self.is_guess =
            retry_after_ms.is_none() && (self.is_guess || self.shut_until.is_none_or(|before| before <= now));
        self.shut_until = Some(self.shut_until.map_or(until, |before| before.max(until)));
    }

    /// Removes expired entries. After the clock was set back, the window must not stay closed for longer than its length.
    fn slide(&mut self, now: Micros) {
        let latest = now.plus_ms(span_ms(Self::RETRY_AFTER_MS_MAX));
        self.shut_until = self.shut_until.map(|until| until.min(latest)).filter(|until| *until > now);
        for began in self.began.iter_mut().rev().take_while(|began| **began > now) {
            *began = now;
        }
        let Some(limit) = self.limit else { return self.began.clear() };
        while self.began.front().is_some_and(|began| now.since_ms(*began) >= limit.window_ms) {
            self.began.pop_front();
        }
    }

    fn trim(&mut self) {
        let max = self.limit.map_or(0, |l| l.requests_max.min(RateWindow::REQUESTS_MAX)) as usize;
        while self.began.len() > max {
            self.began.pop_front();
        }
    }
}

fn span_ms(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}
