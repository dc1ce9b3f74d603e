//! How many requests a provider takes: a sliding window with a reserve for people who wait, and what the provider itself
//! says when it has had enough [S3 10.5]. As its limit comes near, what is not urgent waits.

use std::{collections::VecDeque, fmt};

use serde::{Deserialize, Serialize};

use super::facts::RateWindow;
use crate::{event::Priority, time::Micros};

/// What keeps a request out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShutBy {
    /// The window is used up.
    Full,
    /// What is left of it is kept for people who wait.
    Reserve,
    /// The provider said so.
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

/// A request that may not start yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{by} until {until}")]
pub struct Shut {
    /// When to ask again. The window may be shut then too, if others were faster.
    pub until: Micros,
    /// Why.
    pub by: ShutBy,
}

/// One backend's window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    limit: Option<RateWindow>,
    /// When the requests of the last window began, oldest first; at most [`RateWindow::requests_max`] of them.
    began: VecDeque<Micros>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shut_until: Option<Micros>,
    /// Nobody said until when: whoever cannot wait may ask the provider again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_guess: bool,
}

impl Window {
    /// The longest time for which a provider is believed, in milliseconds: a day.
    pub const RETRY_AFTER_MS_MAX: u64 = 24 * 3_600_000;
    /// How long a provider is left alone that has had enough and does not say until when, in milliseconds.
    pub const RETRY_AFTER_MS_DEFAULT: u64 = 30_000;

    /// A window with this limit, or with the provider's own words only.
    #[must_use]
    pub const fn new(limit: Option<RateWindow>) -> Self {
        Self { limit, began: VecDeque::new(), shut_until: None, is_guess: false }
    }

    /// Changes the limit and forgets nothing: the configuration was read again.
    pub fn limit(&mut self, limit: Option<RateWindow>) {
        self.limit = limit;
        self.trim();
    }

    /// How many requests of the window are used.
    pub fn used(&mut self, now: Micros) -> usize {
        self.slide(now);
        self.began.len()
    }

    /// Whether a request of this class may start. Whoever starts says so with [`Self::started`].
    ///
    /// # Errors
    /// When to ask again, and why not now.
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
        // So many of the oldest must leave the window before this class has a place.
        let last_to_leave = self.began.len() - open;
        let began = self.began.get(last_to_leave).copied().unwrap_or(now);
        Err(Shut { until: began.plus_ms(span_ms(limit.window_ms)), by })
    }

    /// A request started.
    pub fn started(&mut self, now: Micros) {
        self.slide(now);
        self.began.push_back(now);
        self.trim();
    }

    /// The provider has had enough: nobody starts until it wants to be asked again. If it does not say when, those who can
    /// wait leave it alone for a while; a person who waits is better told than kept.
    pub fn rate_limited(&mut self, retry_after_ms: Option<u64>, now: Micros) {
        let wait_ms = retry_after_ms.unwrap_or(Self::RETRY_AFTER_MS_DEFAULT).clamp(1, Self::RETRY_AFTER_MS_MAX);
        let until = now.plus_ms(span_ms(wait_ms));
        self.is_guess =
            retry_after_ms.is_none() && (self.is_guess || self.shut_until.is_none_or(|before| before <= now));
        self.shut_until = Some(self.shut_until.map_or(until, |before| before.max(until)));
    }

    /// Lets go of what is over. A clock that was put back must not shut the window for longer than it is.
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
