//! A generic cell rate limiter: one number per key, on the kernel's monotonic clock.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// The maximum number of keys that are counted. Above it, keys with their whole burst available are removed.
const KEYS_MAX: usize = 10_000;

/// A rate and its burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests per minute as a long-term rate.
    pub per_minute: u32,
    /// Requests that may arrive in one burst.
    pub burst: u32,
}

/// What remains of a key's rate after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// The size of the burst.
    pub limit: u32,
    /// How many more requests may arrive now.
    pub remaining: u32,
    /// When the whole burst is available again, in milliseconds.
    pub reset_ms: u64,
}

/// Rate limiters by key.
#[derive(Default)]
pub struct Rates {
    /// When each key's whole burst is available again, in monotonic microseconds.
    full_at_us: Mutex<HashMap<String, u64>>,
}

impl Rates {
    /// Counts one request of a key.
    ///
    /// # Errors
    /// The time until the next request is allowed, in milliseconds.
    pub fn take(&self, key: &str, rate: Rate, now_us: u64) -> Result<Left, u64> {
        let each_us = 60_000_000 / u64::from(rate.per_minute.max(1));
        let burst_us = each_us * u64::from(rate.burst.max(1));
        let mut all = self.full_at_us.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= KEYS_MAX {
            all.retain(|_, full_at| *full_at > now_us);
        }
        let full_at = all.get(key).copied().unwrap_or(0).max(now_us) + each_us;
        let used_us = full_at - now_us;
        if used_us > burst_us {
            return Err((used_us - burst_us).div_ceil(1_000));
        }
        if all.len() < KEYS_MAX || all.contains_key(key) {
            all.insert(key.to_owned(), full_at);
        }
        let remaining = u32::try_from((burst_us - used_us) / each_us).unwrap_or(u32::MAX);
        Ok(Left { limit: rate.burst.max(1), remaining, reset_ms: used_us.div_ceil(1_000) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { per_minute: 60, burst: 3 };

    #[test]
    fn rate_limit_admits_burst_then_returns_retry_time() {
        let rates = Rates::default();
        let left: Vec<u32> = (0..3).map(|_| rates.take("a", RATE, 0).unwrap().remaining).collect();
        assert_eq!(left, [2, 1, 0]);
        assert_eq!(rates.take("a", RATE, 0), Err(1_000));
        assert!(rates.take("b", RATE, 0).is_ok(), "another key has a limit of its own");
        assert_eq!(rates.take("a", RATE, 1_000_000).unwrap().remaining, 0);
    }

    #[test]
    fn rate_limit_evicts_idle_keys_at_capacity() {
        let rates = Rates::default();
        for n in 0..KEYS_MAX {
            rates.take(&n.to_string(), RATE, 0).unwrap();
        }
        rates.take("late", RATE, 2_000_000).unwrap();
        assert_eq!(rates.full_at_us.lock().unwrap().len(), 1);
    }
}
