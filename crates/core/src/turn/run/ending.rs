//! How the run of an agent ends.

use serde::{Deserialize, Serialize};

use crate::message::{ModelError, ToolCall};

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The agent gave its final text.
    Output(String),
    /// The texts of its last calls are the answer as they are, and no model has written it.
    Ready(String),
    /// The agent reached a limit; the text names the limit.
    Tripped(String),
    /// The agent repeated itself without progress, or its model gave nothing usable; the text gives the reason.
    GaveUp(String),
    /// The agent ended without a final text; the text gives the reason.
    Silent(String),
    /// Its model failed.
    ModelFailed(ModelError),
    /// The agent called tools of the program that the turn runs for. The text stands beside the calls in the reply.
    Called(String, Vec<ToolCall>),
    /// The answer did not have the requested format, even after a correction; the text gives the reason.
    Unfit(String),
    /// A step of its workflow failed, and no route was for that; the text gives the reason.
    StepFailed(String),
}
