//! Features that do not work although messages are accepted.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The feature that a warning is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Feature {
    /// The skills that keep notes.
    Notes,
    /// The sources of skills.
    Skills,
    /// Chores, subscribers and channels of extensions.
    Extensions,
    /// Hooks that are programs or services.
    Hooks,
    /// What operators stopped by an order.
    Orders,
}

/// A feature that does not work, or not completely, although messages are accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Warning {
    /// The feature.
    pub about: Feature,
    /// The state, the reason and the next step, for people.
    pub text: String,
}
