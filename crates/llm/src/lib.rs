//! Model backends behind core's Model port: one client with a wire per protocol (OpenAI Chat Completions, Anthropic
//! Messages), and agentic backends, which are programs. Also hooks that are programs.
//!
//! Only this package knows the wire format of a completion. The kernel sees [`annie_core::ports::Model`] and typed
//! failures.

mod client;
mod command;
mod config;
mod error;
mod repair;
mod server_facts;
mod transport;
mod wire;

pub use annie_core::secret::Secret;
pub use client::{Offer, OpenAiModel};
pub use command::{CommandConfig, CommandModel, FailureWords, ProcessLimits, ProgramHook};
pub use config::{ModelConfig, Price, Profile};
pub use error::LlmError;
pub use transport::http_client;
