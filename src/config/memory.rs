//! `[memory]`: how memories are ranked.

use serde::{Deserialize, Serialize};

/// `[memory]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemorySettings {
    /// After so many days without a use, a memory counts half in searches; 0 means that age does not matter.
    pub halved_after_days: u32,
}

impl Default for MemorySettings {
    fn default() -> Self {
        // What was not used for a year counts about a quarter.
        Self { halved_after_days: 90 }
    }
}
