//! Model backends behind core's Model port: one client for every OpenAI-compatible server, programs that work by
//! themselves, and the offline planner that stands in when no model is configured.
//!
//! This package is the only one that knows what a completion looks like on the wire. The kernel sees
//! [`annie_core::ports::Model`] and typed failures.

mod client;
mod command;
mod config;
mod error;
pub mod offline;
mod repair;
mod secret;
mod server_facts;
mod transport;
mod wire;

pub use client::{Offer, OpenAiModel};
pub use command::{
    CommandConfig, CommandModel, FailureWords, ProcessLimits, SHIM_GROUP, SHIM_NEVER_BEGAN, children_of,
    end_descendants,
};
pub use config::{ModelConfig, Price, Profile};
pub use error::LlmError;
pub use offline::OfflinePlanner;
pub use secret::Secret;
pub use transport::http_client;
