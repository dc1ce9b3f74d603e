//! `[cache]`: replies of models that are used again.

use annie_actors::CacheLimits;
use serde::{Deserialize, Serialize};

use super::{settings::Config, typed::KeyError};

/// `[cache]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheSettings {
    /// How long a reply is used again for an equal request of the same user; 0 means never.
    pub seconds: u64,
    /// The maximum number of kept replies.
    pub entries_max: usize,
}

impl Default for CacheSettings {
    fn default() -> Self {
        let CacheLimits { kept_ms, entries_max } = CacheLimits::default();
        Self { seconds: kept_ms / 1_000, entries_max }
    }
}

impl CacheSettings {
    /// The longest time. An older reply is hardly what a person wants to hear.
    const SECONDS_MAX: u64 = 3_600;
    /// The highest number of replies, each of at most 32 KiB.
    const ENTRIES_MAX: usize = 10_000;

    pub(super) const fn limits(&self) -> CacheLimits {
        CacheLimits { kept_ms: self.seconds.saturating_mul(1_000), entries_max: self.entries_max }
    }
}

impl Config {
    /// The errors in `[cache]`.
    pub(super) fn cache_problems(&self) -> Vec<KeyError> {
        let mut found = Vec::new();
        let CacheSettings { seconds, entries_max } = self.cache;
        if seconds > CacheSettings::SECONDS_MAX {
            let what = format!("{seconds} is more than {}", CacheSettings::SECONDS_MAX);
            found.push(KeyError::value(&["cache", "seconds"], &what, "300 is five minutes, 0 switches it off"));
        }
        if !(1..=CacheSettings::ENTRIES_MAX).contains(&entries_max) {
            let what = format!("{entries_max} is not between 1 and {}", CacheSettings::ENTRIES_MAX);
            found.push(KeyError::value(&["cache", "entries_max"], &what, "256 is the default"));
        }
        found
    }
}
