//! Instants as stored in the log: microseconds since 1970 in UTC. Core never reads a clock; callers pass the time in.

use std::fmt;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

/// An instant, in microseconds UTC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micros(pub i64);

impl Micros {
    /// The instant as a calendar time; out-of-range values become 1970.
    #[must_use]
    pub fn to_utc(self) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(self.0).unwrap_or_default()
    }

    /// The instant of a calendar time.
    #[must_use]
    pub fn from_utc(at: DateTime<Utc>) -> Self {
        Self(at.timestamp_micros())
    }

    /// Adds milliseconds (negative values subtract). Saturates.
    #[must_use]
    pub const fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1_000)))
    }

    /// Adds milliseconds, as given by limits and waits. Saturates.
    #[must_use]
    pub const fn later_ms(self, ms: u64) -> Self {
        self.plus_ms(if ms > i64::MAX as u64 { i64::MAX } else { ms.cast_signed() })
    }

    /// Whether this is the zero instant, which stands for "not set".
    #[must_use]
    pub const fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// Milliseconds since `earlier`; 0 if `earlier` is not earlier.
    #[must_use]
    pub const fn since_ms(self, earlier: Self) -> u64 {
        let us = self.0.saturating_sub(earlier.0);
        if us <= 0 { 0 } else { us.unsigned_abs() / 1_000 }
    }
}

/// For `serde(serialize_with)` of values that are shown and never stored: RFC 3339 instead of a number.
///
/// # Errors
/// Those of the serializer.
pub fn rfc3339<S: serde::Serializer>(at: &Micros, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(at)
}

impl fmt::Display for Micros {
    /// RFC 3339 with milliseconds and `Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_utc().to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}
