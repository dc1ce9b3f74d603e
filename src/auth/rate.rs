//! How many requests a key may make: a generic cell rate limit, one number per key, on the kernel's own monotonic clock.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// Keys that are counted at a time; beyond, those that have been quiet are forgotten.
const KEYS_MAX: usize = 10_000;

/// A rate, and how much of it may be used at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests a minute in the long run.
    pub per_minute: u32,
    /// Requests that may come at once.
    pub burst: u32,
}

/// What a key has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// The most that may come at once.
    pub limit: u32,
    /// How many more may come now.
    pub remaining: u32,
    /// When all of them are there again, in milliseconds.
    pub reset_ms: u64,
}

/// The counters.
#[derive(Default)]
pub struct Rates {
    /// When each key will have been quiet for long enough to have its whole burst again, in monotonic microseconds.
    full_at_us: Mutex<HashMap<String, u64>>,
}

impl Rates {
    /// Counts one request of a key.
    ///
    /// # Errors
    /// When to come back, in milliseconds.
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
    fn a_burst_passes_and_the_next_is_told_when_to_come() {
        let rates = Rates::default();
        let left: Vec<u32> = (0..3).map(|_| rates.take("a", RATE, 0).unwrap().remaining).collect();
        assert_eq!(left, [2, 1, 0]);
        assert_eq!(rates.take("a", RATE, 0), Err(1_000));
        assert!(rates.take("b", RATE, 0).is_ok(), "another key has its own");
        assert_eq!(rates.take("a", RATE, 1_000_000).unwrap().remaining, 0);
    }

    #[test]
    fn quiet_keys_make_room_for_new_ones() {
        let rates = Rates::default();
        for n in 0..KEYS_MAX {
            rates.take(&n.to_string(), RATE, 0).unwrap();
        }
        rates.take("late", RATE, 2_000_000).unwrap();
        assert_eq!(rates.full_at_us.lock().unwrap().len(), 1);
    }
}
