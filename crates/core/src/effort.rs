//! How hard a model should think. A backend gets it where its protocol has a field for it; elsewhere it is only recorded.

use serde::{Deserialize, Serialize};

/// The reasoning effort of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// Fast and cheap.
    Low,
    /// The usual.
    Medium,
    /// Thorough.
    High,
}

impl Effort {
    /// All efforts, the least first.
    pub const ALL: [Self; 3] = [Self::Low, Self::Medium, Self::High];

    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// The effort with this name, in any case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|effort| effort.as_str().eq_ignore_ascii_case(name.trim()))
    }
}
