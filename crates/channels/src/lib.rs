//! Channels: ways to deliver final texts to users, each in one file behind core's [`annie_core::ports::Channel`]. Also hooks that
//! are services of the operator, because they send the same signed requests.

mod hook;
mod signed;
mod webhook;

pub use hook::{WebhookHook, WebhookHookConfig, WebhookHookError};
pub use webhook::{Webhook, WebhookConfig, WebhookError};
